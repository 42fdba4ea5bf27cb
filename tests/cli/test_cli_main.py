import subprocess
import sys
import time
from pathlib import Path
from types import ModuleType

import pytest

import kleash.training
from kleash import __version__
from kleash.cli.main import main
from kleash.errors import ConfigError, DataError, ModelError, RunDirError, RunStopped
from kleash.runs.records import Checkpoint, Step
from kleash.runs.writer import RunWriter

RUN = ["model=demo", "prompts=demo", "reward=kleash.demo.sentiment:positive"]


def stand_in(monkeypatch, name, **functions):
    """Put functions in the place of a module of `kleash.training`, which needs torch."""
    module = ModuleType(f"kleash.training.{name}")
    vars(module).update(functions)
    monkeypatch.setitem(sys.modules, module.__name__, module)
    monkeypatch.setattr(kleash.training, name, module, raising=False)


def raising(error):
    def train(config, *, observer, warnings):
        raise error

    return train


@pytest.mark.parametrize(
    ("error", "code"),
    [
        (ConfigError("settings"), 2),
        (DataError("prompts"), 2),
        (ModelError("weights"), 2),
        (RunDirError("folder"), 2),
        (RunStopped("step 3: KL is not finite"), 3),
    ],
)
def test_an_error_for_the_user_is_its_text_and_its_code(monkeypatch, capsys, error, code):
    stand_in(monkeypatch, "run", train=raising(error))
    assert main(["train", *RUN]) == code
    assert capsys.readouterr().err == f"kleash: {error}\n"


class OutOfMemoryError(RuntimeError):
    """Named as torch's own, which is not loaded here."""


@pytest.mark.parametrize(
    ("text", "shown"),
    [("CUDA out of memory. Tried to allocate\nmore lines", "CUDA out of memory. Tried to allocate"), ("", "")],
)
def test_a_full_gpu_is_no_bug(monkeypatch, capsys, text, shown):
    stand_in(monkeypatch, "run", train=raising(OutOfMemoryError(text)))
    assert main(["train", *RUN]) == 2
    error = capsys.readouterr().err
    assert error.startswith(
        "kleash: the GPU has no memory left. Cut updates smaller with training.gradient_accumulation"
    )
    assert error.endswith(f"the run resumes from its checkpoint ({shown})\n")


def test_ctrl_c_is_130(monkeypatch, capsys):
    stand_in(monkeypatch, "run", train=raising(KeyboardInterrupt()))
    assert main(["train", *RUN]) == 130
    assert capsys.readouterr().err == "kleash: interrupted\n"


def test_anything_else_is_our_bug_with_its_traceback(monkeypatch, capsys):
    stand_in(monkeypatch, "run", train=raising(ZeroDivisionError("oh")))
    assert main(["train", *RUN]) == 1
    *trace, last = capsys.readouterr().err.splitlines()
    assert trace[0] == "Traceback (most recent call last):"
    assert trace[-1] == "ZeroDivisionError: oh"
    assert last == (
        "This is a fault in Kleash, not in your settings. Please report it with the text above, the command and the "
        "output of `kleash --version`."
    )


def test_train_passes_file_settings_and_warnings_on(monkeypatch, tmp_path, capsys):
    given = {}

    def train(config, *, observer, warnings):
        given.update(config=config, warnings=warnings)
        observer.fact("reference  itself")
        return tmp_path

    stand_in(monkeypatch, "run", train=train)
    path = tmp_path / "run.toml"
    path.write_text('model = "demo"\nprompts = "demo"\nreward = "kleash.demo.sentiment:positive"\ntraining.steps = 7\n')
    assert main(["train", "training.seed=5", str(path), "training.steps=9"]) == 0
    assert (given["config"].training.steps, given["config"].training.seed) == (9, 5)
    assert given["warnings"] == ()
    assert capsys.readouterr().out == f"settings   {path} and the command line\nreference  itself\n"


def test_a_setting_on_the_command_line_is_checked_before_torch_is_loaded(capsys):
    assert main(["train", *RUN, "training.stepps=9"]) == 2
    error = capsys.readouterr().err
    assert "training.stepps" in error
    assert "training.steps" in error
    assert "Traceback" not in error


def test_a_missing_file_is_the_users_mistake(tmp_path, capsys):
    assert main(["check", str(tmp_path / "run.toml")]) == 2
    path = tmp_path / "run.toml"
    assert capsys.readouterr().err == (
        f"kleash: There is no file {path}. `kleash init {path}` writes one to start from.\n"
    )


def test_a_run_has_one_file(capsys):
    assert main(["train", "a.toml", "b.toml"]) == 2
    assert capsys.readouterr().err == (
        "kleash: There are 2 files on the command line (a.toml, b.toml); a run has one. Merge them, or give single "
        "settings as key=value.\n"
    )


def test_resume_goes_on_with_the_run(monkeypatch, tmp_path):
    resumed = []
    stand_in(monkeypatch, "run", resume=lambda run_dir, *, observer: resumed.append(run_dir))
    RunWriter.create(tmp_path / "run", {}, {}).close()
    assert main(["train", "--resume", str(tmp_path / "run")]) == 0
    assert resumed == [tmp_path / "run"]


def test_resume_takes_no_settings(capsys):
    assert main(["train", "run.toml", "training.steps=9", "--resume", "runs/a"]) == 2
    assert capsys.readouterr().err == (
        "kleash: run.toml training.steps=9 has no effect with --resume runs/a: a run goes on with the settings it was "
        "started with, which are stored in it. Leave it out, or start a new run without --resume.\n"
    )


def test_resume_of_nothing(capsys, tmp_path):
    assert main(["train", "--resume", str(tmp_path / "none")]) == 2
    assert capsys.readouterr().err.startswith(f"kleash: There is no run directory {tmp_path / 'none'}.")


@pytest.mark.parametrize(("passed", "code"), [(True, 0), (False, 3)])
def test_check_says_how_it_came_out(monkeypatch, capsys, passed, code):
    stand_in(monkeypatch, "run", check=lambda config, *, observer: passed)
    assert main(["check", *RUN]) == code
    printed = capsys.readouterr()
    if passed:
        assert printed.out.splitlines()[-1] == f"All checks passed: kleash train {' '.join(RUN)}"
        assert printed.err == ""
    else:
        assert printed.err == (
            "kleash: A check failed, so this run would stop before its first step. Mend what it names above, or list "
            "the check in skip_checks if it is meant.\n"
        )


@pytest.mark.parametrize("words", [["export"], ["runs", "export"]])
def test_export_writes_beside_the_run_unless_told_otherwise(monkeypatch, tmp_path, capsys, words):
    asked = []

    def export(run_dir, out, *, step, merge, observer, allow_suspect):
        asked.append((run_dir, out, step, merge, allow_suspect))
        return out

    stand_in(monkeypatch, "export", export=export)
    run_dir = tmp_path / "run"
    folder = run_dir / "checkpoints" / "step_20"
    with RunWriter.create(run_dir, {}, {}) as writer:
        writer.write_step(Step(20, {}))
        writer.write_checkpoint(Checkpoint(20, folder))
    folder.mkdir(parents=True)
    assert main([*words, str(run_dir)]) == 0
    assert main([*words, str(run_dir), "--step", "10", "--merge"]) == 0
    assert main([*words, str(run_dir), "--out", "elsewhere", "--allow-suspect"]) == 0
    assert asked == [
        (run_dir, run_dir / "export" / "step_20", None, False, False),
        (run_dir, run_dir / "export" / "step_10_merged", 10, True, False),
        (run_dir, Path("elsewhere"), None, False, True),
    ]
    assert capsys.readouterr().out.splitlines()[-1] == "elsewhere"


def test_export_of_a_run_without_a_checkpoint(tmp_path, capsys):
    RunWriter.create(tmp_path / "run", {}, {}).close()
    assert main(["export", str(tmp_path / "run")]) == 2
    assert capsys.readouterr().err == (
        f"kleash: {tmp_path / 'run'} has no checkpoint, so there is nothing to export. Give a run that saved one.\n"
    )


def test_init_writes_where_it_is_told(tmp_path, capsys):
    path = tmp_path / "mine.toml"
    assert main(["init", str(path)]) == 0
    assert path.read_text().startswith("# A run of Kleash.")
    assert main(["init", str(path)]) == 2
    assert "--force to replace it" in capsys.readouterr().err
    path.write_text("mine")
    assert main(["init", str(path), "--force"]) == 0
    assert path.read_text() != "mine"


def test_report_is_written_anew(tmp_path, capsys):
    RunWriter.create(tmp_path / "run", {}, {}).close()
    assert main(["report", str(tmp_path / "run")]) == 0
    page = tmp_path / "run" / "report.html"
    assert capsys.readouterr().out == f"{page}\n"
    assert page.read_text().startswith("<!doctype html>")


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["trian"], "kleash: 'trian' is not a command. Did you mean 'train'? There are: train, check, "),
        (["runs", "lst"], "kleash: 'lst' is not a command. Did you mean 'list'? There are: list, show, export.\n"),
        (["runs"], "kleash: the following arguments are required: COMMAND\n`kleash runs --help` shows what it takes."),
        (["try", "runs/a", "hello", "--samples", "0"], "kleash: argument --samples: 0 is less than 1\n"),
        (["try", "runs/a", "hello", "--max-length", "-1"], "kleash: argument --max-length: -1 is less than 1\n"),
        (["gauge", "a", "b", "--samples", "0"], "kleash: argument --samples: 0 is less than 1\n"),
        (["demo", "--steps", "many"], "kleash: argument --steps: invalid int value: 'many'\n`kleash demo --help`"),
    ],
)
def test_words_that_are_no_command(capsys, words, said):
    with pytest.raises(SystemExit) as left:
        main(words)
    assert left.value.code == 2
    assert capsys.readouterr().err.startswith(said)


def test_version(capsys):
    with pytest.raises(SystemExit) as left:
        main(["--version"])
    assert left.value.code == 0
    assert capsys.readouterr().out == f"kleash {__version__}\n"


def test_help_answers_within_a_second():
    seconds = []
    for _ in range(3):
        began = time.perf_counter()
        shown = subprocess.run([sys.executable, "-m", "kleash", "--help"], capture_output=True, text=True, check=True)
        seconds.append(time.perf_counter() - began)
    assert min(seconds) < 1
    for command in ("train", "check", "init", "demo", "try", "export", "report", "runs"):
        assert f"\n    {command} " in shown.stdout


def test_reading_commands_load_no_torch(tmp_path):
    RunWriter.create(tmp_path / "run", {}, {}).close()
    script = (
        "import sys\n"
        "from kleash.cli.main import main\n"
        "for words in (['runs', 'list', '.'], ['runs', 'show', 'run'], ['report', 'run'], ['train', 'none.toml']):\n"
        "    main(words)\n"
        "print(sorted({'torch', 'transformers'} & sys.modules.keys()))\n"
    )
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True, cwd=tmp_path)
    assert done.stdout.splitlines()[-1] == "[]"
