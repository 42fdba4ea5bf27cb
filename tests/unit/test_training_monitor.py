"""Alarms inside a run: what is recorded, what is done about them, and that a resumed run does the same."""

import json
import signal
import sqlite3
from pathlib import Path

import pytest
import torch
from scripted_rules import Scripted
from tiny_jobs import settings_of, write_data
from tiny_run import Remembering, settings

from kleash.config.loader import load
from kleash.errors import ConfigError, RunStopped
from kleash.monitor import monitor
from kleash.monitor.suspects import suspicions
from kleash.runs.reader import RunReader
from kleash.training import loop, on_policy, run, state
from kleash.training.observer import Silent
from kleash.training.run import check, resume, train

TIMED = ("time/", "throughput/", "eval/time/")
HELD_OUT = ("prompts.held_out=3", "training.eval_every=1")


class Alarmed(Remembering):
    """Keeps the events that it is told of, and can die as a killed process does after a step."""

    def __init__(self, die_after=None):
        super().__init__()
        self.events = []
        self._die_after = die_after

    def alarmed(self, event):
        self.events.append(event)

    def stepped(self, step):
        if step.step == self._die_after:
            raise Killed


class Killed(BaseException):
    pass


class Interrupting(Alarmed):
    """Presses Ctrl-C in a step: the run ends after it, with a checkpoint."""

    def stepped(self, step):
        if step.step == self._die_after:
            signal.raise_signal(signal.SIGINT)


@pytest.fixture
def make(tiny_model_dir, tmp_path):
    def made(*overrides, name="run"):
        return settings(tiny_model_dir, tmp_path, "training.checkpoint_every=2", *overrides, f"name={name}")

    return made


@pytest.fixture
def scripted(monkeypatch):
    """Give the monitor one rule, which finds what the test says."""

    def script(steps, **how):
        monkeypatch.setattr(monitor, "make_rules", lambda: [Scripted(steps, **how)])

    return script


def recorded(path):
    with RunReader(path) as reader:
        return reader.steps(), reader.events()


def story(path):
    """All that a run recorded, timings apart."""
    steps, events = recorded(path)
    return [
        (step.step, {k: v for k, v in step.metrics.items() if not k.startswith(TIMED)}, step.stderr, step.notes)
        for step in steps
    ], events


def kept(path):
    return sorted(int(folder.name.removeprefix("step_")) for folder in (path / "checkpoints").iterdir())


def named(events, name):
    return [event for event in events if event.name == name]


def test_an_alarm_is_recorded_with_its_step_and_told(make, scripted):
    scripted({2: "warning"}, began=1)
    observer = Alarmed()
    path = train(make(), observer=observer)
    _, events = recorded(path)
    assert events == observer.events
    (event,) = events
    assert (event.step, event.severity, event.name, event.began) == (2, "warning", "test/scripted", 1)
    assert event.causes[0].check == "the test"
    assert [bool(suspicions(events, step)) for step in (0, 2, 4)] == [False, True, True]


def test_an_alarm_without_a_ladder_changes_no_number(make, scripted):
    scripted({})
    quiet = train(make("algorithm.kl.target_nats_per_sequence=0.5", *HELD_OUT, name="quiet"), observer=Silent())
    scripted({1: "critical", 2: "critical"})
    loud = train(make("algorithm.kl.target_nats_per_sequence=0.5", *HELD_OUT, name="loud"), observer=Silent())
    assert story(loud)[0] == story(quiet)[0]
    assert len(recorded(loud)[1]) == 1


def test_tighten_lowers_the_target_from_the_next_step_on(make, scripted):
    scripted({1: "critical"})
    path = train(
        make(
            "algorithm.kl.target_nats_per_sequence=0.5",
            'algorithm.kl.controller={type="target", ramp_steps=0}',
            'monitor.ladder=["tighten"]',
            "monitor.tighten_by=0.5",
        ),
        observer=Silent(),
    )
    steps, events = recorded(path)
    assert [step.metrics["control/target"] for step in steps] == [0.5, 0.5, 0.25, 0.25]
    (tightened,) = named(events, "action/tighten")
    assert (tightened.step, tightened.began, tightened.values) == (1, None, {"before": 0.5, "after": 0.25})
    assert tightened.message == (
        "target 0.5 -> 0.25 nats per sequence: test/scripted is critical since step 1; rung 1 of 1."
    )


def test_tighten_raises_a_fixed_beta(make, scripted):
    scripted({0: "critical"})
    path = train(
        make("algorithm.kl.beta=0.1", 'monitor.ladder=["tighten"]', "monitor.tighten_by=0.5"), observer=Silent()
    )
    assert [step.metrics["control/beta"] for step in recorded(path)[0]] == [0.1, 0.2, 0.2, 0.2]


def test_a_warning_is_acted_on_only_where_the_settings_say_so(make, scripted):
    scripted({0: "warning"})
    ladder = ("algorithm.kl.beta=0.1", 'monitor.ladder=["tighten"]')
    lenient = train(make(*ladder, name="lenient"), observer=Silent())
    strict = train(make(*ladder, "monitor.act_on=warning", name="strict"), observer=Silent())
    assert named(recorded(lenient)[1], "action/tighten") == []
    assert len(named(recorded(strict)[1], "action/tighten")) == 1


ROLLING = (
    *HELD_OUT,
    "training.steps=8",
    "training.keep_checkpoints=1",
    "training.learning_rate=0.01",
    "algorithm.kl.target_nats_per_sequence=0.5",
    'algorithm.kl.controller={type="target", ramp_steps=0}',
    'monitor.ladder=["tighten", "roll_back", "stop"]',
    "monitor.patience=2",
    "monitor.tighten_by=0.5",
)
"""Alarms at 3 and 5 with a beginning at 3 tighten after step 3 and go back from 6 to checkpoint 2 after step 5."""


def test_roll_back_puts_the_weights_of_the_newest_trusted_checkpoint_back(make, scripted):
    scripted({3: "critical", 5: "critical"}, began=3)
    path = train(make(*ROLLING), observer=Silent())
    steps, events = recorded(path)
    (back,) = named(events, "action/roll_back")
    assert (back.step, back.values) == (5, {"to": 2})
    assert back.message.startswith("weights and optimiser are those of checkpoint 2 from step 6 on: test/scripted is")
    kl = [step.metrics["eval/kl/exact_per_sequence"] for step in steps]
    assert kl[6] == kl[2] > 0.0
    assert len(set(kl[:6])) == 6
    assert kl[7] not in kl[:7]
    targets = [step.metrics.get("control/target") for step in steps]
    assert targets[:8] == [0.5, 0.5, 0.5, 0.5, 0.25, 0.25, 0.25, 0.25]
    (end,) = [event for event in events if event.ends]
    assert (end.step, end.values) == (5, {"last": 5})
    assert [bool(suspicions(events, step)) for step in (2, 3, 4, 5, 6, 8)] == [False, True, True, True, False, False]


def test_a_checkpoint_that_can_be_gone_back_to_is_kept(make, scripted):
    scripted({3: "warning", 5: "warning"}, began=3)
    path = train(make("training.steps=6", "training.keep_checkpoints=1"), observer=Silent())
    assert kept(path) == [0, 2, 6]


def test_a_run_that_is_killed_around_a_roll_back_resumes_to_the_same_numbers(make, scripted, monkeypatch):
    scripted({3: "critical", 5: "critical"}, began=3)
    whole = train(make(*ROLLING, name="whole"), observer=Silent())
    for die_after, resumed_at in ((5, 4), (6, 6)):
        with monkeypatch.context() as patch:
            patch.setattr(loop.Loop, "_leave", lambda self: None)
            with pytest.raises(Killed):
                train(make(*ROLLING, name=f"killed_{die_after}"), observer=Alarmed(die_after))
        path = whole.parent / f"killed_{die_after}"
        observer = Alarmed()
        resume(path, observer=observer)
        assert observer.facts[0].endswith(f"resumed at step {resumed_at} from step_{resumed_at}")
        assert story(path) == story(whole)
        assert kept(path) == kept(whole)
        assert all(event.step >= resumed_at for event in observer.events)


class Tearing(Alarmed):
    """Damages checkpoints after a step, as a disk does."""

    def __init__(self, folder, step, torn):
        super().__init__()
        self._folder, self._step, self._torn = folder, step, torn

    def stepped(self, step):
        if step.step == self._step:
            for number in self._torn:
                (self._folder / f"step_{number}" / "training_state.pt").write_bytes(b"torn")


def test_a_checkpoint_that_cannot_be_read_counts_as_not_there(make, scripted, tmp_path):
    scripted({5: "critical"})
    rolling = make("training.steps=6", 'monitor.ladder=["roll_back", "stop"]')
    folder = Path(rolling.output_dir) / "run" / "checkpoints"
    path = train(rolling, observer=Tearing(folder, 4, [4]))
    _, events = recorded(path)
    alarm, damaged, back, end = events
    assert (alarm.name, back.name, back.values, end.ends) == ("test/scripted", "action/roll_back", {"to": 2}, True)
    assert (damaged.step, damaged.name, damaged.values) == (5, "action/unreadable", {"checkpoint": 4})
    assert damaged.message.startswith("checkpoint 4 cannot be gone back to and counts as not there: ")
    assert "no training state can be read there" in damaged.message


def test_where_none_can_be_read_the_next_rung_is_taken(make, scripted):
    scripted({5: "critical"})
    rolling = make("training.steps=8", 'monitor.ladder=["roll_back", "stop"]')
    folder = Path(rolling.output_dir) / "run" / "checkpoints"
    with pytest.raises(RunStopped, match=r"step 5: monitor.ladder stops the run"):
        train(rolling, observer=Tearing(folder, 4, [0, 2, 4]))
    steps, events = recorded(folder.parent)
    assert [event.name for event in events] == [
        "test/scripted", *["action/unreadable"] * 3, "action/not_rolled_back", "action/stop",
    ]  # fmt: skip
    assert steps[-1].step == 5


def test_an_action_that_fails_loses_neither_the_step_nor_its_alarm(make, scripted, monkeypatch):
    scripted({5: "critical"})

    def broken(*_):
        raise ValueError("out of memory")

    monkeypatch.setattr(on_policy.OnPolicyJob, "restore", broken)
    rolling = make("training.steps=8", 'monitor.ladder=["roll_back"]')
    with pytest.raises(ValueError, match="out of memory"):
        train(rolling, observer=Silent())
    path = Path(rolling.output_dir) / "run"
    steps, events = recorded(path)
    assert (steps[-1].step, [event.name for event in events]) == (5, ["test/scripted"])
    assert kept(path) == [0, 2, 4]
    with RunReader(path) as reader:
        assert (reader.status, reader.status_reason) == ("failed", "ValueError: out of memory")


def test_a_failure_that_returns_after_a_roll_back_stops_the_run(make, scripted):
    scripted({7: "critical", 14: "critical"}, began=3)
    rolling = make("training.steps=20", "monitor.patience=2", 'monitor.ladder=["roll_back", "stop"]')
    with pytest.raises(RunStopped, match=r"step 14: monitor.ladder stops the run"):
        train(rolling, observer=Silent())


def test_the_reason_of_a_stop_has_the_newest_numbers(make, scripted):
    scripted({2: "critical", 3: "critical", 4: "critical"})
    stopping = make(
        "training.steps=8", "monitor.patience=2", "algorithm.kl.beta=0.1", 'monitor.ladder=["tighten", "stop"]'
    )
    with pytest.raises(RunStopped, match=r"critical since step 2; rung 2 of 2\. found at 4\."):
        train(stopping, observer=Silent())


def test_an_alarm_goes_to_the_address_in_the_environment_and_mirrors_do_not_get_one(make, scripted, monkeypatch):
    scripted({1: "warning"})
    given = []
    monkeypatch.setattr(run, "open_mirrors", lambda names, settings, path: given.append(settings) or [])
    monkeypatch.setenv("KLEASH_TEST_HOOK", "http://127.0.0.1:9/S3CRET")
    observer = Alarmed()
    path = train(make("monitor.webhook_env=KLEASH_TEST_HOOK"), observer=observer)
    (told,) = [fact for fact in observer.facts if "webhook" in fact]
    assert told.startswith("note       the webhook http://127.0.0.1:9/… did not take an alarm")
    assert b"S3CRET" not in (path / "run.db").read_bytes()
    train(make("monitor.webhook=http://127.0.0.1:9/S3CRET", name="plain"), observer=Silent())
    assert given[-1]["monitor"]["webhook"] == "http://127.0.0.1:9/…"


def test_a_program_that_is_missing_is_refused_before_a_folder_is_made(make, scripted):
    config = make("monitor.command=nosuchprogram")
    with pytest.raises(ConfigError, match=r"monitor.command names 'nosuchprogram', which is not on the PATH"):
        train(config, observer=Silent())
    assert not (Path(config.output_dir) / "run").exists()


@pytest.mark.parametrize("broken", ["open_mirrors", "Loop"])
def test_a_run_that_cannot_be_taken_up_stays_as_it_was(make, scripted, monkeypatch, broken):
    scripted({})
    with pytest.raises(KeyboardInterrupt):
        train(make("training.steps=6"), observer=Interrupting(3))
    path = Path(make().output_dir) / "run"

    def refused(*_):
        raise ConfigError("mlflow is not installed")

    with monkeypatch.context() as patch:
        patch.setattr(run, broken, refused)
        with pytest.raises(ConfigError, match="mlflow is not installed"):
            resume(path, observer=Silent())
    with RunReader(path) as reader:
        assert (reader.status, reader.status_reason) == ("interrupted", "by Ctrl-C or SIGTERM")
    assert list(path.glob("run.db-*")) == []
    resume(path, observer=Silent())


@pytest.mark.parametrize("job", ["dpo", "reward_model", "sft", "ppo"])
def test_every_kind_of_run_can_go_back(tiny_model_dir, tmp_path, scripted, monkeypatch, job):
    monkeypatch.setenv("KLEASH_CACHE", str(tmp_path / "cache"))
    scripted({3: "critical"})
    write_data(tmp_path)
    rolling = ("training.eval_every=1", "training.learning_rate=0.01", 'monitor.ladder=["roll_back"]')
    path = train(load(None, settings_of(job, tiny_model_dir, tmp_path, *rolling)).config, observer=Silent())
    steps = [numbers for _, numbers, _, _ in story(path)[0]]
    held_out = [{key: value for key, value in numbers.items() if key.startswith("eval/")} for numbers in steps]
    assert held_out[4] == held_out[2] != held_out[3]
    assert held_out[5] not in held_out[:5]


def test_an_interrupted_run_goes_back_to_the_same_checkpoint(make, scripted):
    """It saves checkpoint 5 besides, which the uninterrupted run does not have."""
    scripted({6: "critical"})
    rolling = ("training.steps=8", *HELD_OUT, "training.learning_rate=0.01", 'monitor.ladder=["roll_back"]')
    sparse = (*rolling, "training.checkpoint_every=4", "training.keep_checkpoints=1")
    whole = train(make(*sparse, name="whole"), observer=Silent())
    with pytest.raises(KeyboardInterrupt):
        train(make(*sparse, name="left"), observer=Interrupting(4))
    path = whole.parent / "left"
    assert kept(path) == [0, 4, 5]
    assert story(resume(path, observer=Silent())) == story(whole)
    assert named(recorded(path)[1], "action/roll_back")[0].values == {"to": 4}


def test_without_a_trusted_checkpoint_the_next_rung_is_taken(make, scripted):
    scripted({3: "critical"}, began=0)
    with pytest.raises(RunStopped, match=r"step 3: monitor.ladder stops the run") as caught:
        train(make("training.steps=8", 'monitor.ladder=["roll_back", "stop"]'), observer=Silent())
    assert caught.value.exit_code == 3
    assert str(caught.value) == (
        "step 3: monitor.ladder stops the run: test/scripted is critical since step 0; rung 2 of 2. found at 3. "
        "Read the test."
    )
    path = make().output_dir + "/run"
    _, events = recorded(path)
    assert [event.name for event in events] == ["test/scripted", "action/not_rolled_back", "action/stop"]
    assert events[1].message.startswith(
        "no checkpoint on disk is free of alarms and can be read, so the ladder goes on"
    )
    with RunReader(path) as reader:
        assert reader.status == "stopped"
        assert reader.latest_checkpoint().step == 4
        assert len(reader.steps()) == 4


def test_a_run_that_was_stopped_can_be_taken_up_with_its_ladder_where_it_was(make, scripted):
    scripted({1: "critical", 2: "critical", 3: "critical"})
    stopping = make("training.steps=5", 'monitor.ladder=["tighten", "stop"]', "monitor.patience=1")
    with pytest.raises(RunStopped, match="step 2"):
        train(stopping, observer=Silent())
    path = resume(make().output_dir + "/run", observer=Silent())
    _, events = recorded(path)
    assert [(event.step, event.name) for event in events if event.name.startswith("action/")] == [
        (1, "action/tighten"),
        (2, "action/stop"),
    ]
    with RunReader(path) as reader:
        assert reader.status == "finished"


def test_a_run_of_an_older_kleash_is_taken_up(make, scripted, tmp_path):
    """Its database is of version 1, its settings know no monitor, and its checkpoint no ladder."""
    scripted({})
    target = ("algorithm.kl.target_nats_per_sequence=0.5", 'algorithm.kl.controller={type="target", ramp_steps=3}')
    whole = train(make(*target, *HELD_OUT, "training.steps=6", name="whole"), observer=Silent())
    with pytest.raises(Killed):
        train(make(*target, *HELD_OUT, "training.steps=6", name="old"), observer=Alarmed(3))
    path = whole.parent / "old"
    with sqlite3.connect(path / "run.db") as database:
        database.execute("DROP INDEX samples_numbers")
        database.execute("ALTER TABLE samples DROP COLUMN num_tokens")
        for column in ("began", "causes", "advice", "ends"):
            database.execute(f"ALTER TABLE events DROP COLUMN {column}")
        config = json.loads(database.execute("SELECT config FROM run").fetchone()[0])
        del config["monitor"]
        config["algorithm"]["kl"]["controller"]["loosen"] = None
        database.execute("UPDATE run SET config = ?", (json.dumps(config),))
        database.execute("UPDATE meta SET value = '1' WHERE key = 'schema_version'")
        database.execute("PRAGMA user_version = 1")
    database.close()
    saved = state.read(path / "checkpoints" / "step_2")
    saved["loosening"] = saved.pop("watch")["loosening"]
    torch.save(saved, path / "checkpoints" / "step_2" / "training_state.pt")
    observer = Alarmed()
    assert story(resume(path, observer=observer)) == story(whole)
    assert "resumed at step 2" in observer.facts[0]
    with RunReader(path) as reader:
        assert reader.meta["schema_version"] == 2


LOOSE = (
    *HELD_OUT,
    "training.steps=6",
    "algorithm.kl.target_nats_per_sequence=0.001",
    'algorithm.kl.controller={type="target", ramp_steps=0}',
    "monitor.loosen={raise_by=0.001, limit=0.003, patience=1, min_gain=10}",
    "monitor.patience=2",
)
"""Every evaluation with the KL near the target is a reason to raise it."""


def test_loosening_is_recorded_and_vetoed_near_an_alarm(make, scripted):
    scripted({})
    free = train(make(*LOOSE, name="free"), observer=Silent())
    steps, events = recorded(free)
    raised = named(events, "action/loosen")
    assert raised
    assert raised[0].severity == "info"
    assert raised[0].values == {"before": 0.001, "after": 0.002}
    assert raised[0].message.startswith("target raised 0.001 -> 0.002: reward has not risen")
    first = raised[0].step
    assert steps[first].notes["target"] == raised[0].message
    scripted({first: "warning"})
    held = train(make(*LOOSE, name="held"), observer=Silent())
    steps, events = recorded(held)
    note = "target stays at 0.001: an alarm is open, or was within 2 steps."
    assert [step.notes["target"] for step in steps[first : first + 2]] == [note, note]
    assert not [event for event in named(events, "action/loosen") if event.step <= first + 2]


def test_loosening_goes_on_from_its_saved_counts(make, scripted, monkeypatch):
    scripted({})
    patient = (*LOOSE, "monitor.loosen.patience=3")
    whole = train(make(*patient, name="whole"), observer=Silent())
    assert named(recorded(whole)[1], "action/loosen")
    monkeypatch.setattr(loop.Loop, "_leave", lambda self: None)
    with pytest.raises(Killed):
        train(make(*patient, name="killed"), observer=Alarmed(2))
    assert story(resume(whole.parent / "killed", observer=Silent())) == story(whole)


def test_a_rule_that_does_not_exist_cannot_be_ignored(make, scripted):
    scripted({})
    with pytest.raises(ConfigError, match=r"monitor.ignore names 'test/script', and no rule is called so. Did you"):
        check(make('monitor.ignore=["test/script"]'), observer=Silent())
    scripted({1: "critical"})
    path = train(make('monitor.ignore=["test/scripted"]'), observer=Silent())
    assert recorded(path)[1] == []


def test_the_command_gets_the_alarm_of_a_run(make, scripted, tmp_path):
    scripted({1: "warning", 2: "critical"})
    told = tmp_path / "told.jsonl"
    command = f"sh -c 'cat >> {told}; echo >> {told}'"
    path = train(make(f'monitor.command="{command}"', "monitor.notify=critical"), observer=Silent())
    (line,) = told.read_text().splitlines()
    assert json.loads(line)["run"] == str(path)
    assert json.loads(line)["step"] == 2


def test_a_command_that_fails_is_mentioned_once_and_the_run_goes_on(make, scripted):
    scripted({0: "warning", 1: "critical"})
    observer = Alarmed()
    path = train(make('monitor.command="false"'), observer=observer)
    assert [fact for fact in observer.facts if "false" in fact] == [
        "note       the command 'false' ended with code 1. The run goes on; further failures are not told"
    ]
    with RunReader(path) as reader:
        assert reader.status == "finished"


def test_rules_know_the_reference_from_the_evaluation_before_training(make, monkeypatch):
    seen = []

    class Nosy(Scripted):
        def __call__(self, history, facts):
            seen.append(facts)

    monkeypatch.setattr(monitor, "make_rules", lambda: [Nosy({})])
    path = train(make(*HELD_OUT), observer=Silent())
    first = recorded(path)[0][0].metrics
    assert {facts.beta for facts in seen} == {None}
    assert seen[0].reference["length/mean"] == first["eval/length/mean"]
    assert seen[-1].reference == seen[0].reference
    assert not any(key.startswith("eval/") for key in seen[0].reference)


def test_the_names_of_rules_are_checked_before_weights_are_read(make, scripted, monkeypatch):
    scripted({})
    monkeypatch.setattr(run, "Accelerator", lambda: pytest.fail("weights would be read next"))
    with pytest.raises(ConfigError, match=r"monitor\.ignore names"):
        train(make('monitor.ignore=["nothing/like_it"]'), observer=Silent())
