"""`kleash sweep` and its child processes: finished, failed, interrupted, killed and started again.

Points are trained by a stand-in that writes run directories without a model, but for the last test.
"""

import io
import os
import re
import shutil
import signal
import sqlite3
import subprocess
import sys
from pathlib import Path

import pytest
from rich.console import Console
from sweep_process import FILE, STEPS, starts, sweep_process, wait_until, write_settings

from kleash.cli import sweep as command
from kleash.cli.arguments import Parser
from kleash.cli.main import main
from kleash.cli.sweep_arguments import add_sweep
from kleash.cli.sweep_progress import Terminal
from kleash.errors import ConfigError
from kleash.runs.reader import RunReader
from kleash.sweep import scheduler
from kleash.sweep.record import open_sweep
from kleash.sweep.scheduler import State

BETAS = "algorithm.kl.beta=0,0.05,0.1,0.2,0.4"
NAMES = ["beta_0", "beta_0.05", "beta_0.1", "beta_0.2", "beta_0.4"]
SWEEP = Path("out/run-beta")


@pytest.fixture
def folder(tmp_path):
    write_settings(tmp_path)
    return tmp_path


@pytest.fixture
def run_sweep(folder, monkeypatch, capsys):
    """Run a sweep in the folder to its end: exit code, standard output, standard error."""
    monkeypatch.chdir(folder)
    monkeypatch.setattr(scheduler, "KLEASH", (sys.executable, FILE))

    def run(*words):
        code = main(["sweep", *words])
        printed = capsys.readouterr()
        return code, printed.out, printed.err

    return run


def status(run_dir):
    with RunReader(run_dir) as reader:
        return reader.status, reader.created_at, reader.counts().last_step


def steps_of(run_dir):
    try:
        with RunReader(run_dir) as reader:
            return reader.counts().steps
    except OSError:
        return 0


def files_of(run_dir):
    return {path: path.stat().st_mtime_ns for path in run_dir.rglob("*") if path.is_file()}


def children_of(folder):
    """Ids of the processes that train a point in a folder."""
    found = []
    for process in Path("/proc").glob("[0-9]*"):
        try:
            words = (process / "cmdline").read_bytes().decode().split("\0")
            here = os.readlink(process / "cwd") == str(folder)
        except OSError:
            continue
        if here and ("train" in words):
            found.append(int(process.name))
    return found


def killed(folder, *words, after, everything):
    """Start a sweep, wait until `after` holds, and kill it as nothing can be done about; its children too, or not."""
    process = sweep_process(folder, "run.toml", *words)
    wait_until(after)
    children = children_of(folder)
    os.killpg(process.pid, signal.SIGKILL)
    if everything:
        for child in children:
            os.kill(child, signal.SIGKILL)
    process.communicate(timeout=30)
    return children


def test_every_point_is_trained_once_and_a_value_recommended(folder, run_sweep):
    code, out, error = run_sweep("run.toml", BETAS, "--jobs", "3")
    assert (code, error) == (0, "")
    assert sorted(starts(folder)) == [f"start {name}" for name in NAMES]
    for name in NAMES:
        assert status(folder / SWEEP / name)[0] == "finished"
    assert "3 at a time on" in out
    assert "Take beta=0.1: proxy 1.000 ± 0.020 at 2.000 ± 0.020 nats per sequence, the best of 5 values." in out
    assert "not told apart at 95 %" in out
    assert "paste      algorithm.kl.beta=0.1\n" in out
    assert f"model      kleash export {SWEEP}/beta_0.1 --step {STEPS}\n" in out
    assert f"page       {SWEEP}/sweep.html\nfrontier   {SWEEP}/frontier.html\n" in out
    page = (folder / SWEEP / "frontier.html").read_text()
    assert all(f"{SWEEP}/{name}" in page for name in NAMES)


def test_finished_points_are_not_repeated(folder, run_sweep):
    run_sweep("run.toml", "training.seed=0,1")
    points = [folder / "out" / "run-seed" / name for name in ("seed_0", "seed_1")]
    before = [files_of(point) for point in points]
    for words in (("run.toml", "training.seed=0,1"), ("--resume", "out/run-seed")):
        code, out, _ = run_sweep(*words)
        assert code == 0
        assert "finished   seed=0: already" in out
        assert [files_of(point) for point in points] == before
    assert len(starts(folder)) == 2


@pytest.mark.parametrize("everything", [True, False])
def test_after_kill_9_finished_points_are_kept_and_the_others_resumed(folder, run_sweep, everything):
    first, third = (folder / SWEEP / name for name in (NAMES[0], NAMES[2]))

    def in_the_middle():
        return steps_of(third) > 2 and status(first)[0] == "finished"

    killed(folder, BETAS, "--jobs", "2", after=in_the_middle, everything=everything)
    wait_until(lambda: not children_of(folder))
    before, created = files_of(first), status(third)[1]
    assert status(first)[0] == "finished"
    assert status(third)[0] == ("running" if everything else "interrupted")
    assert not (folder / SWEEP / "frontier.html").exists()
    code, out, _ = run_sweep("run.toml", BETAS, "--jobs", "2")
    assert code == 0
    assert files_of(first) == before
    assert [status(folder / SWEEP / name)[0] for name in NAMES] == ["finished"] * 5
    assert status(third)[1] == created
    assert starts(folder).count("resume beta_0.1") == 1
    assert sorted(line for line in starts(folder) if line.startswith("start")) == [f"start {name}" for name in NAMES]
    assert "finished   beta=0: already" in out
    assert (folder / SWEEP / "frontier.html").exists()


def test_a_point_that_a_survivor_still_trains_is_waited_for(folder):
    """A child that does not hear that its parent was killed, as on systems that cannot tell it."""
    point = folder / SWEEP / "beta_0"
    process = sweep_process(folder, "run.toml", "algorithm.kl.beta=0,0.05", "--jobs", "1")
    wait_until(lambda: steps_of(point) > 0)
    (child,) = children_of(folder)
    os.kill(child, signal.SIGSTOP)
    process.kill()
    process.communicate(timeout=30)
    again = sweep_process(folder, "run.toml", "algorithm.kl.beta=0,0.05", "--jobs", "2")
    wait_until(lambda: "start beta_0.05" in starts(folder))
    assert starts(folder).count("start beta_0") == 1
    assert "resume beta_0" not in starts(folder)
    os.kill(child, signal.SIGCONT)
    out, _ = again.communicate(timeout=30)
    assert again.returncode == 0
    assert "elsewhere  beta=0" in out
    assert starts(folder).count("resume beta_0") == 1
    assert status(point)[0] == "finished"


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_an_interrupted_sweep_leaves_checkpoints_and_no_child(folder, run_sweep, number):
    points = [folder / SWEEP / name for name in NAMES[:2]]
    process = sweep_process(folder, "run.toml", BETAS, "--jobs", "2")
    wait_until(lambda: all(steps_of(point) > 1 for point in points))
    os.killpg(process.pid, number)
    out, error = process.communicate(timeout=30)
    assert process.returncode == 130
    assert "interrupted: finishing this step, then saving a checkpoint" in out
    assert error == "kleash: interrupted\n"
    assert children_of(folder) == []
    assert [status(point)[0] for point in points] == ["interrupted"] * 2
    assert len(starts(folder)) == 2
    code, _, _ = run_sweep("--resume", str(SWEEP))
    assert code == 0
    assert starts(folder)[2:].count("resume beta_0") == 1
    assert status(points[0])[0] == "finished"


def test_a_start_that_was_killed_before_its_first_checkpoint_starts_anew(folder, run_sweep):
    run_sweep("run.toml", "algorithm.kl.beta=0,0.05")
    started = folder / SWEEP / "beta_0.05"
    for path in sorted(started.rglob("*"), reverse=True):
        path.rmdir() if path.is_dir() else path.unlink()
    (started / "run.db").touch()
    code, _, _ = run_sweep("run.toml", "algorithm.kl.beta=0,0.05")
    assert code == 0
    assert starts(folder).count("start beta_0.05") == 2
    assert status(started)[0] == "finished"


@pytest.mark.parametrize(
    ("rates", "code", "said"),
    [
        ("0.3,0.01", 3, "stopped    learning_rate=0.3: step 2: KL is above stop_above"),
        ("0.3,0.2,0.01", 2, "failed     learning_rate=0.2: the reward returned a word"),
        ("0.3,0.2,0.1,0.01", 1, "failed     learning_rate=0.1: ZeroDivisionError: division by zero"),
        ("0.4,0.01", 2, "failed     learning_rate=0.4: its process was ended by SIGKILL and said no more"),
    ],
)
def test_a_point_that_fails_does_not_stop_the_others(folder, run_sweep, rates, code, said):
    found, out, error = run_sweep("run.toml", f"training.learning_rate={rates}", "--jobs", "4")
    assert found == code
    assert said in out
    assert "finished   learning_rate=0.01" in out
    bad = rates.count(",")
    assert f"kleash: {bad} of {bad + 1} points did not finish, and are compared as far as they came." in error
    assert "`kleash sweep --resume out/run-learning_rate` tries again those that failed" in error


def test_stopped_points_are_kept_and_failed_ones_tried_again(folder, run_sweep):
    words = ("run.toml", "training.learning_rate=0.3,0.2", "--jobs", "2")
    run_sweep(*words)
    code, out, _ = run_sweep(*words)
    assert code == 2
    assert "stopped    learning_rate=0.3: already" in out
    assert starts(folder)[2:] == ["resume learning_rate_0.2"]


def test_a_change_to_the_file_does_not_reach_points_that_start_later(folder, run_sweep):
    process = sweep_process(folder, "run.toml", "algorithm.kl.beta=0,0.05", "--jobs", "1")
    wait_until(lambda: steps_of(folder / SWEEP / "beta_0") > 0)
    file = folder / "run.toml"
    before = file.read_text()
    file.write_text(before.replace("eval_every = 4", "eval_every = 1"))
    process.communicate(timeout=30)
    with RunReader(folder / SWEEP / "beta_0.05") as reader:
        assert reader.config["training"]["eval_every"] == 4
    code, _, error = run_sweep("run.toml", "algorithm.kl.beta=0,0.05")
    assert code == 2
    assert "is a sweep of other settings: training.eval_every is 4 there and 1 here" in error


def test_seeds_are_summed_up_and_a_limit_is_kept(folder, run_sweep):
    code, out, _ = run_sweep("run.toml", "algorithm.kl.beta=0.05,0.2", "training.seed=0,1", "--max-nats", "2")
    assert code == 0
    assert "Take beta=0.2: proxy 0.9650 ± 0.0050" in out
    assert "the best of 2 values within 2 nats per sequence" in out
    assert "± is over 2 seeds" in out
    assert re.search(r"beta=0\.2 .* 2 of 2 +take", out)


def test_rewards_that_cannot_be_ranked_end_without_a_recommendation(folder, run_sweep):
    code, out, _ = run_sweep("run.toml", "reward=json:dumps,json:loads", "--jobs", "2")
    assert code == 0
    assert "note       no value is recommended: The points have different proxy rewards" in out
    assert "Take" not in out
    assert not (folder / "out" / "run-reward" / "frontier.html").exists()


def test_points_without_an_evaluation_are_named(folder, run_sweep):
    run_sweep("run.toml", "training.seed=0,1", "--jobs", "2")
    with sqlite3.connect(folder / "out" / "run-seed" / "seed_1" / "run.db") as connection:
        connection.execute("DELETE FROM metrics WHERE key LIKE 'eval/%'")
    connection.close()
    code, out, _ = run_sweep("--resume", "out/run-seed")
    assert code == 0
    assert "note       seed=1 is not compared: out/run-seed/seed_1 has no held-out evaluation that measured KL" in out
    assert "the run does not qualify: seed 1: nothing was measured on held-out prompts." in out


def test_a_terminal_keeps_a_line_for_each_point(folder, run_sweep):
    run_sweep("run.toml", "algorithm.kl.beta=0,0.05")
    opened = open_sweep(folder / SWEEP)
    first, second = opened.points
    shutil.rmtree(opened.run_dir(second))
    console = Console(file=io.StringIO(), force_terminal=True, width=120)
    terminal = Terminal(opened, console)
    with terminal.live:
        terminal.moved(first, State.RUNNING, "resumed")
        terminal.show({first: State.RUNNING, second: State.WAITING})
        terminal.live.refresh()
    text = re.sub(r"\x1b\[[0-9;?]*[a-zA-Z]", "", console.file.getvalue())
    assert "running    beta=0: resumed" in text
    assert re.search(r"beta=0 +running +8/8 +reward 0\.840 +3\.50 nats per sequence", text)
    assert re.search(r"beta=0\.05 +waiting +– +– +– +–", text)


def parsed(*words):
    top = Parser(prog="kleash")
    add_sweep(top.add_subparsers())
    arguments = vars(top.parse_args(["sweep", *words]))
    assert arguments.pop("call") == "sweep:run"
    return arguments


def test_words_of_the_command_line():
    assert parsed("run.toml", "a=1,2") == {
        "arguments": ["run.toml", "a=1,2"], "resume": None, "jobs": None, "max_nats": None,
    }  # fmt: skip
    assert parsed("--jobs", "auto")["jobs"] is None
    assert parsed("--jobs", "3")["jobs"] == 3


def test_jobs_must_be_a_number(capsys):
    with pytest.raises(SystemExit):
        parsed("--jobs", "0")
    assert "'0' is no number of points. Give auto, or 1 or more" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["algorithm.kl.beta=0.02"], "Nothing is swept: algorithm.kl.beta=0.02 gives one value"),
        (["algorithm.kl.betta=0,1"], "Did you mean 'algorithm.kl.beta'"),
        (
            ["algorithm.kl.beta=0,-1"],
            "none was started.\nbeta=-1: algorithm.kl.beta = -1 .* cannot work",
        ),
        (
            ["algorithm.kl.beta=0,0.02", "algorithm.kl.target_nats_per_sequence=3"],
            "none was started.\nbeta=0: .*it would stay 0 for ever",
        ),
    ],
)
def test_settings_that_cannot_work_start_nothing(folder, monkeypatch, words, said):
    monkeypatch.chdir(folder)
    with pytest.raises(ConfigError, match=said):
        command.run(["run.toml", *words])
    assert not (folder / "out").exists()


def test_resume_takes_no_settings(folder):
    with pytest.raises(ConfigError, match=r"training\.steps=3 has no effect with --resume somewhere"):
        command.run(["training.steps=3"], resume=Path("somewhere"))


def test_the_command_loads_no_torch():
    code = "import sys, kleash.cli.sweep; print('torch' in sys.modules, 'transformers' in sys.modules)"
    result = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert result.stdout == "False False\n"


@pytest.mark.slow
def test_five_betas_on_a_model_survive_kill_9(tiny_model_dir, tmp_path):
    """`kleash train` itself: finished points stay as they are, unfinished ones go on, and the page is written."""
    from tiny_run import PROMPTS, REWARD

    (tmp_path / "prompts.txt").write_text("\n".join(PROMPTS))
    (tmp_path / "reward.py").write_text(REWARD)
    (tmp_path / "run.toml").write_text(
        f'model = {{ name = "{tiny_model_dir}", dtype = "float32" }}\n'
        'prompts = { path = "prompts.txt", held_out = 3 }\nreward = "reward.py:vowels"\noutput_dir = "out"\n'
        "rollout.max_completion_length = 10\nalgorithm.num_generations = 4\n"
        "training = { steps = 12, prompts_per_step = 4, eval_every = 4, checkpoint_every = 3 }\n"
    )
    words = [sys.executable, "-P", "-m", "kleash", "sweep", "run.toml", BETAS, "--jobs", "2"]
    process = subprocess.Popen(words, cwd=tmp_path, stdout=subprocess.DEVNULL, start_new_session=True)
    points = [tmp_path / SWEEP / name for name in NAMES]
    wait_until(lambda: steps_of(points[2]) > 4, seconds=200)
    children = children_of(tmp_path)
    os.killpg(process.pid, signal.SIGKILL)
    for child in children:
        os.kill(child, signal.SIGKILL)
    process.wait(timeout=30)
    wait_until(lambda: not children_of(tmp_path))
    done = {point: files_of(point) for point in points if point.exists() and status(point)[0] == "finished"}
    assert done
    created = status(points[2])[1]
    again = subprocess.run(words, cwd=tmp_path, capture_output=True, text=True, timeout=300, check=False)
    assert again.returncode == 0, again.stdout + again.stderr
    assert {point: files_of(point) for point in done} == done
    assert [status(point)[0] for point in points] == ["finished"] * 5
    assert status(points[2])[1] == created
    assert "running    beta=0.1: resumed" in again.stdout
    assert "Take beta=" in again.stdout
    assert "Frontier" in (tmp_path / SWEEP / "frontier.html").read_text()
