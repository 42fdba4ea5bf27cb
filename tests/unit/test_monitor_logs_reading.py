"""What a path is taken for, what the rules are told of a log, and how it is put into alarms and suspects."""

import sqlite3

import pytest
from foreign_logs import json_lines, trainer_state

from kleash.errors import DataError, RunDirError
from kleash.monitor.log import Log
from kleash.monitor.logs import health
from kleash.monitor.logs.facts import facts_of, planned_steps
from kleash.monitor.logs.reading import read_log
from kleash.monitor.rule import Facts, Finding
from kleash.runs.records import Cause, Checkpoint, Event, Sample, Step
from kleash.runs.writer import RunWriter

SAMPLE = Sample(0, "train", 0, 0, "p", "a b", ("a", " b"), (0.0, 1.0), 0.5, 2.0, 1.0, True)


@pytest.fixture
def kleash_run(tmp_path):
    """Two steps, a sample, an event and a checkpoint."""
    config = {
        "algorithm": {"type": "rloo", "kl": {"target_nats_per_sequence": 6.0, "target_nats_per_token": None}},
        "training": {"steps": 50},
    }
    path = tmp_path / "runs" / "one"
    with RunWriter.create(path, config, {}) as writer:
        writer.write_step(Step(0, {"kl/exact_per_sequence": 0.0, "eval/length/mean": 9.0}), [SAMPLE])
        writer.write_step(Step(1, {"kl/exact_per_sequence": 2.0, "mine": 1.0}, {"kl/exact_per_sequence": 0.5}))
        writer.write_event(Event(1, "warning", "kl/spike", "up"))
        writer.write_checkpoint(Checkpoint(1, path / "checkpoints" / "step_1"))
        writer.set_status("finished", "")
    return path


def test_a_kleash_run_keeps_everything(kleash_run):
    for path in (kleash_run, kleash_run / "run.db"):
        log = read_log(path)
        assert log.source == "Kleash"
        assert log.steps[1].metrics == {"kl/exact_per_sequence": 2.0, "mine": 1.0}
        assert log.steps[1].stderr == {"kl/exact_per_sequence": 0.5}
        assert [event.name for event in log.events] == ["kl/spike"]
        assert [checkpoint.step for checkpoint in log.checkpoints] == [1]
        assert log.samples[0].rewards == {"reward": 0.5, "gold": 2.0}
        assert log.samples[0].kl == 1.0
        assert {c.name: c.says for c in log.columns}["mine"] == "not in the catalogue of this release"
        assert "finished" in log.notes[0]


def test_a_kleash_runs_facts(kleash_run):
    facts = facts_of(read_log(kleash_run))
    assert facts == Facts(target_key="kl/exact_per_sequence", before_updates=0, reference={"length/mean": 9.0})
    assert facts_of(read_log(kleash_run), beta=0.5).beta == 0.5


def test_a_foreign_logs_facts(tmp_path):
    trainer_state(tmp_path, [{"step": 1, "reward": 1.0, "completions/mean_length": 9.0}])
    assert facts_of(read_log(tmp_path)) == Facts(before_updates=1)
    assert facts_of(read_log(tmp_path, beta=0.5)) == Facts(beta=0.5, before_updates=1)
    assert planned_steps(read_log(tmp_path)) == 40
    verl = Log(tmp_path, "verl", (), settings={"max_steps": -1})
    assert facts_of(verl) == Facts()
    assert planned_steps(verl) is None


@pytest.mark.parametrize(
    ("source", "key", "above"),
    [
        ("TRL GRPO", "kl/k3_per_token", True),
        ("TRL RLOO", "kl/k1_per_token", True),
        ("OpenRLHF", "kl/unstated_per_token", True),
        ("TRL GRPO", "eval/kl/exact_per_token", False),  # the callback's: measured at beta 0 too
        ("TRL GRPO", "reward/proxy", False),
        ("TRL PPO", "kl/unstated_per_sequence", False),
        ("my own", "kl/k3_per_token", False),
    ],
)
def test_a_kl_that_is_logged_only_under_a_penalty_says_that_there_is_one(tmp_path, source, key, above):
    log = Log(tmp_path, source, [Step(1, {key: 0.0})])
    assert facts_of(log).beta_above_zero is above
    assert not facts_of(log, beta=0.0).beta_above_zero


def test_a_count_from_zero_has_nothing_before_its_first_step(tmp_path):
    """W&B counts its own calls from 0; the callback's measurement at 0 is none of the trainer's steps."""
    row = {"train/kl": 0.5, "train/reward": 1.0, "train/completions/mean_length": 9.0}
    calls = json_lines(tmp_path / "calls.jsonl", [{"_step": step, **row} for step in (0, 1)])
    updates = json_lines(tmp_path / "updates.jsonl", [{"train/global_step": step, **row} for step in (1, 2)])
    history = [{"step": 0, "kleash/kl_to_start_nats_per_token": 0.0}, {"step": 1, "reward": 1.0, "kl": 0.0}]
    trainer_state(tmp_path / "out", history, tag="grpo")
    found = [facts_of(read_log(path)).before_updates for path in (calls, updates, tmp_path / "out")]
    assert found == [0, 1, 1]


def test_a_newer_schema_is_refused(kleash_run):
    with sqlite3.connect(kleash_run / "run.db") as connection:
        connection.execute("PRAGMA user_version = 99")
    connection.close()
    with pytest.raises(RunDirError, match="has schema version 99; this Kleash reads versions up to"):
        read_log(kleash_run)


def test_a_run_deleted_while_it_is_read_is_said_so(kleash_run, monkeypatch):
    def vanish(connection, *arguments):
        raise sqlite3.OperationalError("disk I/O error")

    monkeypatch.setattr("kleash.runs.rows.select_steps", vanish)
    with pytest.raises(RunDirError, match=r"could not be read to its end \(disk I/O error\): the run was deleted"):
        read_log(kleash_run)


def test_a_damaged_text_in_the_database_is_said_so(kleash_run):
    with sqlite3.connect(kleash_run / "run.db") as connection:
        connection.execute("UPDATE samples SET token_kl = '[0.0, 1'")
    connection.close()
    with pytest.raises(RunDirError, match=r"could not be read to its end \(Expecting ',' delimiter"):
        read_log(kleash_run)


def test_a_file_deleted_while_it_is_read_is_said_so(tmp_path, monkeypatch):
    path = json_lines(tmp_path / "metrics.jsonl", [{"step": 1, "reward/proxy": 1.0}])
    monkeypatch.setattr("kleash.monitor.logs.reading.text_of", lambda path: path.unlink() or path.read_text())
    with pytest.raises(DataError, match="cannot be read: No such file or directory"):
        read_log(path)


def test_a_folder_with_one_table_is_that_table(tmp_path):
    json_lines(tmp_path / "metrics.jsonl", [{"step": 1, "reward/proxy": 1.0}])
    assert len(read_log(tmp_path).steps) == 1
    (tmp_path / "other.csv").write_text("x\n")
    assert len(read_log(tmp_path).steps) == 1
    (tmp_path / "metrics.jsonl").rename(tmp_path / "a.jsonl")
    with pytest.raises(DataError, match=r"holds 2 tables \(a\.jsonl, other\.csv\) and nothing that says"):
        read_log(tmp_path)


@pytest.mark.parametrize(
    ("name", "content", "message"),
    [
        ("a.jsonl", b"", "is empty"),
        ("a.jsonl", b"\n\n", "is empty"),
        ("a.bin", b"\x00\x01\x02", "is a binary file. Looked for: a Kleash run"),
        ("a.parquet", b"PAR1xxxx", "is a binary file"),
        ("a.db", b"SQLite format 3\x00", "is an SQLite file but not named run.db"),
        ("a.csv", b"step,reward/proxy\n1,\xff\n", "is not UTF-8 text: byte 0xff at 20 is no character"),
        ("a.csv", b"step,reward/proxy\n", "has no column that is known|holds no line yet|holds no numbers"),
        ("a.jsonl", b'{"step": 1', "is not valid JSON"),
        ("a.json", b"[1", "A list is read as a whole"),
        ("a.txt", b"once upon a time\n", "holds no line yet|no column with the step"),
    ],
)
def test_a_file_that_is_no_log(tmp_path, name, content, message):
    (tmp_path / name).write_bytes(content)
    with pytest.raises(DataError, match=message):
        read_log(tmp_path / name)


def test_a_path_that_is_no_log(tmp_path):
    with pytest.raises(DataError, match=r"It is empty\. Looked for: a Kleash run \(run\.db\); a TRL output directory"):
        read_log(tmp_path)
    (tmp_path / "model.safetensors").write_bytes(b"")
    with pytest.raises(DataError, match=r"is no log that is known\. It holds model\.safetensors\."):
        read_log(tmp_path)
    with pytest.raises(DataError, match=r"There is no .*model\.safetensor\. Did you mean 'model\.safetensors'\?"):
        read_log(tmp_path / "model.safetensor")


def test_a_users_names_are_refused_for_a_kleash_run(kleash_run):
    with pytest.raises(
        DataError, match=r"is a Kleash run: .*, so that --column mine=kl/k3_per_token, --trainer 'verl'"
    ):
        read_log(kleash_run, columns={"mine": "kl/k3_per_token"}, trainer="verl")
    with pytest.raises(DataError, match=r"so that --trainer 'Kleash' would change nothing\. Leave it out"):
        read_log(kleash_run / "run.db", trainer="Kleash")


def event(step, severity="warning", name="a/b", **more):
    return Event(step, severity, name, "said", began=more.pop("began", step), **more)


def test_events_of_an_alarm_are_one():
    grown = event(5, "critical", began=2)
    told = [event(3), grown, event(4, name="c/d"), event(9, "info", ends=True)]
    assert health.alarms_of(told) == [health.Alarm(told[2], 4, None), health.Alarm(grown, 3, 9)]


class Finds:
    """A rule that finds a warning in some steps."""

    name, title, looks_at = "a/b", "A", ("x",)
    causes, advice = (Cause("chance", "again"),), "Wait."

    def __init__(self, *steps):
        self.steps = steps

    def __call__(self, history, facts):
        """Find something in one of the steps."""
        return Finding("warning", "found", {}, history.now) if history.now in self.steps else None


@pytest.mark.parametrize(("source", "suspect"), [("Kleash", [3, 20]), ("verl", [2, 3, 20])])
def test_checkpoints_under_an_alarm_are_suspect(tmp_path, monkeypatch, source, suspect):
    """Others measure step n before its update, so that the weights of checkpoint 2 are those of step 3."""
    monkeypatch.setattr("kleash.monitor.monitor.make_rules", lambda: [Finds(3)])
    checkpoints = [Checkpoint(step, tmp_path) for step in (1, 2, 3, 20)]
    log = Log(tmp_path, source, [Step(step, {"x": 1.0}) for step in range(5)], checkpoints=checkpoints)
    found = health.examine(log, Facts())
    assert [one.checkpoint.step for one in found.suspects] == suspect
    assert [alarm.event.name for alarm in found.raised("warning")] == ["a/b"]
    assert found.raised("critical") == []


@pytest.mark.parametrize("settings", [{"monitor": {"ignore": ["a/b"]}}, {"callback": {"ladder": []}}])
def test_a_run_that_was_watched_is_what_its_record_says(tmp_path, monkeypatch, settings):
    """A rule that was left out, or a history that was forgotten at a roll back, is not judged anew."""
    monkeypatch.setattr("kleash.monitor.monitor.make_rules", lambda: [Finds(0, 1, 2, 3, 4)])
    recorded = [
        event(1, "critical", name="c/d"),
        Event(2, "warning", "action/roll_back", "back", {"to": 0}),
        event(2, "info", name="c/d", began=1, values={"last": 2.0}, ends=True),
    ]
    steps = [Step(step, {"x": 1.0}) for step in range(5)]
    checkpoints = [Checkpoint(step, tmp_path) for step in (2, 3)]
    log = Log(tmp_path, "Kleash", steps, settings=settings, events=recorded, checkpoints=checkpoints)
    found = health.examine(log, Facts())
    assert found.from_record
    assert found.alarms == [health.Alarm(recorded[0], 1, 2)]
    assert [one.checkpoint.step for one in found.suspects] == [2]
    calm = health.examine(Log(tmp_path, "Kleash", steps, settings=settings), Facts())
    assert (calm.from_record, calm.alarms) == (True, [])


def test_a_checkpoint_of_the_callbacks_run_is_measured_by_two_steps(tmp_path):
    """By the callback in the step of its number, by the trainer in the next one."""
    recorded = [event(6, began=5, name="length/blow_up"), event(9, "info", name="length/blow_up", began=5, ends=True)]
    steps, checkpoints = (
        [Step(step, {"x": 1.0}) for step in range(12)],
        [Checkpoint(step, tmp_path) for step in range(12)],
    )
    settings = {"callback": {"ladder": []}}
    log = Log(tmp_path, "Kleash", steps, settings=settings, events=recorded, checkpoints=checkpoints)
    found = health.examine(log, Facts())
    assert [one.checkpoint.step for one in found.suspects] == [4, 5, 6, 7, 8]


@pytest.mark.parametrize("settings", [{"training": {"steps": 9}}, {"callback": {"every": 50}}])
def test_a_run_from_before_there_was_a_monitor_is_shown_to_the_rules(tmp_path, monkeypatch, settings):
    monkeypatch.setattr("kleash.monitor.monitor.make_rules", lambda: [Finds(3)])
    steps = [Step(step, {"x": 1.0}) for step in range(5)]
    told = [Event(0, "info", "starting_model", "KL is measured from it")]
    found = health.examine(Log(tmp_path, "Kleash", steps, settings=settings, events=told), Facts())
    assert (found.from_record, [alarm.noticed for alarm in found.alarms]) == (False, [3])


@pytest.mark.parametrize(
    ("key", "count", "notes"),
    [
        ("kl/k3_per_token", 229, 1),
        ("eval/kl/exact_per_token", 229, 1),
        ("kl/k3_per_token", 230, 0),
        ("reward/proxy", 5, 0),
    ],
)
def test_a_log_too_short_for_the_rules_on_changes_says_so(tmp_path, monkeypatch, key, count, notes):
    monkeypatch.setattr("kleash.monitor.monitor.make_rules", list)
    steps = [Step(step, {key: 0.1} if step < count else {key: None}) for step in range(300)]
    words = (
        f"Change rules need about 230 measurements of a series; this log has {count} of its KL, so that only fixed "
        "limits were applied."
    )
    assert health.examine(Log(tmp_path, "verl", steps), Facts()).notes == [words] * notes
