"""The label store on SQLite and on a real PostgreSQL server: the same tests for both."""

import os
import signal
import sqlite3
import subprocess
import sys
import tempfile
import threading
from collections import Counter
from datetime import UTC, datetime, timedelta

import pytest
from plain_user import as_plain_user
from postgres_server import postgres_process, postgres_server
from sqlalchemy import create_engine, text

from kleash.errors import DataError, KleashError
from kleash.labels import database
from kleash.labels.records import Pair, Progress
from kleash.labels.store import LabelStore

CHAT = [{"role": "system", "content": "Be kind."}, {"role": "user", "content": "Grüße, 世界"}]
TABLES = ("label_votes", "label_pairs", "label_schema")


@pytest.fixture(scope="module")
def postgres():
    with postgres_server() as url:
        yield url


@pytest.fixture(params=["sqlite", "postgresql"])
def location(request, tmp_path):
    """Where a store may be made, and none is yet."""
    if request.param == "sqlite":
        return str(tmp_path / "labels.db")
    url = request.getfixturevalue("postgres")
    run_sql(url, *(f"DROP TABLE IF EXISTS {table}" for table in TABLES))
    return url


@pytest.fixture
def store(location):
    with LabelStore.open(location) as opened:
        yield opened


def run_sql(location, *statements):
    engine = create_engine(location if "://" in location else f"sqlite:///{location}")
    try:
        with engine.begin() as connection:
            for statement in statements:
                connection.execute(text(statement))
    finally:
        engine.dispose()


def numbered(count):
    return [Pair(f"prompt {n}", f"one {n}", f"other {n}") for n in range(count)]


def test_pairs_come_back_as_they_went_in(store):
    """With what a database would not take as text: NUL and half a surrogate."""
    pairs = [Pair("plain", "a\x00", "\ud800", "a file"), Pair(CHAT, "", "é\n\t 'quoted\"", None)]
    assert store.add(pairs) == 2
    assert [(p.id, p.prompt, p.first, p.second, p.source) for p in store.pairs()] == [
        (1, "plain", "a\x00", "\ud800", "a file"),
        (2, CHAT, "", "é\n\t 'quoted\"", None),
    ]


def test_a_pair_is_added_once_in_either_order(store):
    assert store.add([Pair("p", "a", "b"), Pair("p", "b", "a"), Pair("p", "a", "b", "elsewhere")]) == 1
    assert store.add([Pair("p", "b", "a"), Pair("p", "a", "c"), Pair("q", "a", "b")]) == 2
    assert [(p.prompt, p.first, p.second) for p in store.pairs()] == [("p", "a", "b"), ("p", "a", "c"), ("q", "a", "b")]


def test_more_pairs_than_one_statement_holds(store):
    assert store.add(numbered(1201)) == 1201
    assert [p.prompt for p in store.pairs()] == [f"prompt {n}" for n in range(1201)]


def test_nothing_to_add(store):
    assert store.add([]) == 0
    assert store.next_task("ann") is None
    assert store.progress() == Progress(0, 0, 0, 0, 0, {})


def test_all_or_none_are_added(store):
    def pairs():
        yield Pair("p", "a", "b")
        yield Pair("p", "c", "c")

    with pytest.raises(DataError, match=r"the same completion on both sides \('c'\).*Leave such pairs out"):
        store.add(pairs())
    assert list(store.pairs()) == []


def test_the_queue_gives_the_fewest_votes_first_then_the_oldest(store):
    store.add(numbered(3))
    store.vote("bob", 1, "first")
    store.vote("carl", 1, "first")
    store.vote("bob", 2, "skip")
    order = []
    while task := store.next_task("ann"):
        order.append(task.pair.id)
        store.vote("ann", task.pair.id, "tie")
    assert order == [3, 2, 1]


def test_a_task_stays_the_same_until_it_is_voted_on(store):
    store.add(numbered(2))
    task = store.next_task("ann")
    assert [store.next_task("ann") for _ in range(5)] == [task] * 5
    assert store.next_task("bob").pair == task.pair


def test_sides_differ_among_pairs_and_annotators(store):
    """200 fair coins: 70 to 130 heads except with probability 2e-5."""
    store.add(numbered(100))
    sides = []
    for annotator in ("ann", "bob"):
        while task := store.next_task(annotator):
            sides.append(task.first_on_left)
            store.vote(annotator, task.pair.id, "tie")
    assert 70 < sum(sides) < 130
    assert 20 < sum(one != other for one, other in zip(sides[:100], sides[100:], strict=True)) < 80


def test_a_vote_comes_back_as_it_was_cast(store):
    store.add(numbered(1))
    before = datetime.now(UTC)
    store.vote("Ann-Marie Müller", 1, "second", strength=2, flagged=True, note="odd\x00", seconds=3.25)
    (vote,) = store.votes()
    assert (vote.pair_id, vote.annotator, vote.choice, vote.flagged) == (1, "Ann-Marie Müller", "second", True)
    assert (vote.strength, vote.note, vote.seconds) == (2.0, "odd\x00", 3.25)
    cast = datetime.fromisoformat(vote.created_at)
    assert cast.utcoffset() == timedelta(0)
    assert before <= cast <= datetime.now(UTC)


def test_a_second_vote_replaces_the_first(store):
    store.add(numbered(1))
    store.vote("ann", 1, "first", strength=1.5, flagged=True, note="hm", seconds=2)
    store.vote("ann", 1, "tie")
    (vote,) = store.votes()
    assert (vote.choice, vote.flagged, vote.strength, vote.note, vote.seconds) == ("tie", False, None, None, None)


def test_an_answer_that_could_not_be_read_is_kept_and_not_asked_again(store):
    store.add(numbered(1))
    store.vote("judge", 1, None, note="As an AI, I ...")
    (vote,) = store.votes()
    assert (vote.choice, vote.flagged, vote.note) == (None, False, "As an AI, I ...")
    assert store.next_task("judge") is None
    assert list(store.comparisons()) == []
    assert store.progress("judge") == Progress(0, 0, 0, 0, 1, {})


def test_undo_takes_back_one_vote_at_a_time_and_only_the_annotators_own(store):
    store.add(numbered(3))
    for pair_id in (2, 3, 1):
        store.vote("ann", pair_id, "first")
    store.vote("bob", 1, "second")
    store.vote("ann", 2, "second")  # a change of mind makes it the newest
    assert [store.undo("ann").pair.id for _ in range(3)] == [2, 1, 3]
    assert store.undo("ann") is None
    assert [(vote.annotator, vote.pair_id) for vote in store.votes()] == [("bob", 1)]


def test_undo_gives_back_the_task_as_it_was_shown(store):
    store.add(numbered(8))
    for _ in range(8):
        task = store.next_task("ann")
        store.vote("ann", task.pair.id, "first")
        assert store.undo("ann") == task
        store.vote("ann", task.pair.id, "first")


def test_a_flag_keeps_the_choice_and_needs_none(store):
    store.add(numbered(2))
    store.vote("ann", 1, "first", note="good", strength=1)
    store.flag("ann", 1)
    store.flag("ann", 2, "cut off")
    first, second = store.votes()
    assert (first.choice, first.flagged, first.note, first.strength) == ("first", True, "good", 1.0)
    assert (second.choice, second.flagged, second.note) == (None, True, "cut off")
    assert store.next_task("ann") is None
    assert store.undo("ann").pair.id == 2


def test_progress_counts_pairs(store):
    store.add(numbered(6))
    store.vote("ann", 1, "first")
    store.vote("bob", 1, "tie")
    store.vote("ann", 2, "skip")
    store.vote("bob", 2, "second", flagged=True)
    store.flag("ann", 3)
    store.vote("judge", 4, None, note="?")
    everyone = {"ann": 1, "bob": 2}
    assert store.progress() == Progress(2, 1, 2, 2, 6, everyone)
    assert store.progress("ann") == Progress(1, 1, 1, 3, 6, everyone)
    assert store.progress("bob") == Progress(2, 0, 1, 4, 6, everyone)
    assert store.progress("nobody yet") == Progress(0, 0, 0, 6, 6, everyone)


def test_comparisons_are_one_a_vote(store):
    store.add([Pair("p", "a", "b", "run 7"), Pair(CHAT, "c", "d"), Pair("flagged", "e", "f")])
    store.vote("ann", 1, "second", strength=2)
    store.vote("bob", 1, "first")
    store.vote("ann", 2, "tie")
    store.vote("bob", 2, "skip")
    store.vote("judge", 2, None, note="?")
    store.vote("ann", 3, "first")
    store.flag("bob", 3)
    rows = [
        {"prompt": "p", "chosen": "b", "rejected": "a", "strength": 2.0, "annotator": "ann", "source": "run 7"},
        {"prompt": "p", "chosen": "a", "rejected": "b", "strength": None, "annotator": "bob", "source": "run 7"},
        {"prompt": CHAT, "chosen": "c", "rejected": "d", "strength": 0.0, "annotator": "ann", "source": None},
    ]
    flagged = {"prompt": "flagged", "chosen": "e", "rejected": "f", "strength": None, "annotator": "ann"}
    assert list(store.comparisons()) == rows
    assert list(store.comparisons(flagged=True)) == [*rows, {**flagged, "source": None}]


def test_agreement_leaves_out_skips_flags_and_single_answers(store):
    """Answers of ann and bob by pair: ff, fs, ss, tt; then a flagged, a skipped and a lonely one. p_e = 5/16."""
    store.add(numbered(7))
    choices = [("first", "first"), ("first", "second"), ("second", "second"), ("tie", "tie"), ("first", "second")]
    for pair_id, (ann, bob) in enumerate(choices, start=1):
        store.vote("ann", pair_id, ann)
        store.vote("bob", pair_id, bob)
    store.flag("ann", 5)
    store.vote("ann", 6, "first")
    store.vote("bob", 6, "skip")
    store.vote("bob", 7, "tie")
    found = store.agreement()
    assert (found.pairs, found.raw) == (4, 0.75)
    assert found.kappa == pytest.approx((0.75 - 5 / 16) / (1 - 5 / 16))


@pytest.mark.parametrize(
    ("arguments", "options", "message"),
    [
        ((" ", 1, "first"), {}, r"The annotator's name is ' ': a vote needs the name of who casts it"),
        (("a\nb", 1, "first"), {}, r"The annotator's name is 'a\\nb'"),
        (("ann", 1, "frist"), {}, r"'frist' is no choice. Did you mean 'first'\? There are: first, second, tie, skip"),
        (("ann", 9, "first"), {}, r"There is no pair 9 in .*, so nobody can vote on it"),
        (("ann", 1, "tie"), {"strength": 1}, r"The vote 'tie' has the strength 1: only a vote for one of the two"),
        (("ann", 1, "first"), {"strength": 0}, r"The strength of a vote is 0: it is a finite number above 0"),
        (("ann", 1, "first"), {"strength": float("nan")}, r"The strength of a vote is nan"),
    ],
)
def test_votes_that_mean_nothing(store, arguments, options, message):
    store.add(numbered(1))
    with pytest.raises(DataError, match=message):
        store.vote(*arguments, **options)
    assert list(store.votes()) == []


def test_a_store_is_opened_again(location):
    with LabelStore.open(location) as store:
        store.add(numbered(2))
        store.vote("ann", 1, "first")
    with LabelStore.open(location) as store:
        assert store.progress("ann") == Progress(1, 0, 0, 1, 2, {"ann": 1})


def test_a_version_that_is_not_known_is_refused(location):
    LabelStore.open(location).close()
    run_sql(location, "UPDATE label_schema SET version = 9")
    with pytest.raises(KleashError, match=r"has schema version 9; this Kleash knows version 1.*upgrade"):
        LabelStore.open(location)


def test_the_schema_itself_holds_a_vote_to_one_a_pair_and_annotator(location):
    with LabelStore.open(location) as store:
        store.add(numbered(1))
        store.vote("ann", 1, "first")
    columns = "pair_id, annotator, choice, flagged, created_at"
    with pytest.raises(Exception, match=r"(?i)unique"):
        run_sql(location, f"INSERT INTO label_votes ({columns}) VALUES (1, 'ann', 'tie', false, '')")
    with pytest.raises(Exception, match=r"(?i)check"):
        run_sql(location, f"INSERT INTO label_votes ({columns}) VALUES (1, 'bob', 'left', false, '')")


ANNOTATE = """
import sys
from kleash.labels.records import Pair
from kleash.labels.store import LabelStore
location, annotator, pairs = sys.argv[1], sys.argv[2], int(sys.argv[3])
with LabelStore.open(location) as store:
    print(store.add([Pair(f"prompt {n}", "a", "b") for n in range(pairs)]))
    while task := store.next_task(annotator):
        store.vote("everyone", task.pair.id, "tie")
        store.vote(annotator, task.pair.id, "first")
        if task.pair.id % 5 == 0:
            store.vote(annotator, store.undo(annotator).pair.id, "second")
"""


def test_processes_that_make_fill_and_label_a_store_at_once(location):
    """Four begin with a store that is not there; each votes on every pair, and all on behalf of a fifth name."""
    names, pairs = ("ann", "bob", "carl", "dora"), 15
    command = [sys.executable, "-W", "error", "-c", ANNOTATE, location]
    running = [
        subprocess.Popen([*command, name, str(pairs)], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
        for name in names
    ]
    printed = [process.communicate(timeout=120) for process in running]
    assert [errors for _, errors in printed] == [""] * 4
    assert sum(int(added) for added, _ in printed) == pairs
    with LabelStore.open(location) as store:
        votes = list(store.votes())
    assert Counter((vote.annotator, vote.choice) for vote in votes) == {
        ("everyone", "tie"): pairs,
        **{(name, "first"): 12 for name in names},
        **{(name, "second"): 3 for name in names},
    }
    assert len({(vote.annotator, vote.pair_id) for vote in votes}) == len(votes)


def test_threads_share_a_store(store):
    store.add(numbered(15))
    failed = []

    def annotate(name):
        try:
            while task := store.next_task(name):
                store.vote(name, task.pair.id, "first")
                store.progress(name)
        except Exception as error:
            failed.append(error)

    threads = [threading.Thread(target=annotate, args=(f"annotator {n}",)) for n in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert failed == []
    assert store.progress().by_annotator == {f"annotator {n}": 15 for n in range(8)}


def test_one_who_reads_slowly_keeps_nobody_from_voting(store):
    store.add(numbered(3))
    reading = store.pairs()
    assert next(reading).id == 1
    store.vote("ann", 1, "first")
    store.add([Pair("later", "a", "b")])
    assert [pair.id for pair in reading] == [2, 3]


def test_a_file_that_is_something_else(tmp_path):
    run = tmp_path / "run.db"
    connection = sqlite3.connect(run)
    connection.execute("CREATE TABLE steps (step INTEGER)")
    connection.close()
    with pytest.raises(KleashError, match=r"run\.db is an SQLite file that holds something else \(steps\)"):
        LabelStore.open(run)
    notes = tmp_path / "notes.txt"
    notes.write_text("not a database at all, yet as long as the header of one has to be" * 30)
    with pytest.raises(KleashError, match=r"notes\.txt cannot be used \(file is not a database\)"):
        LabelStore.open(notes)


@pytest.mark.parametrize(
    ("mode", "message"),
    [
        (0o555, r"labels\.db cannot be used \(unable to open database file\)"),
        (0o000, r"labels\.db cannot be used \(unable to open database file\)"),
    ],
)
def test_a_folder_that_may_not_be_written_or_entered(mode, message):
    with tempfile.TemporaryDirectory() as folder:
        os.chmod(folder, mode)
        with as_plain_user(), pytest.raises(KleashError, match=message):
            LabelStore.open(f"{folder}/labels.db")
        os.chmod(folder, 0o755)


@pytest.mark.parametrize(
    ("location", "message"),
    [
        ("no/such/folder/labels.db", r"there is no folder 'no/such/folder'"),
        ("mysql://host/labels", r"kept in SQLite or PostgreSQL, not in 'mysql'. Give a file, such as labels.db"),
        ("://", r"The label store's URL cannot be read"),
        ("postgresql://ann@host:port/labels", r"The label store's URL cannot be read \(.*'port'\)"),
        ("", r"has no file, and votes in memory alone would be lost"),
        ("sqlite://", r"has no file, and votes in memory alone would be lost"),
        ("sqlite:///no/such/folder/labels.db", r"there is no folder 'no/such/folder'"),
        ("postgresql+nothing://host/labels", r"The driver of 'postgresql\+nothing' cannot be loaded.*kleash\[label\]"),
    ],
)
def test_places_where_no_store_can_be(location, message):
    with pytest.raises(KleashError, match=message):
        LabelStore.open(location)


def test_a_server_that_is_not_there_is_named_without_the_password():
    with pytest.raises(
        KleashError, match=r"(?i)postgresql\+psycopg://ann:\*\*\*@127\.0\.0\.1:1/x cannot be used"
    ) as caught:
        LabelStore.open("postgresql+psycopg://ann:s3cret@127.0.0.1:1/x?password=s3cret")
    assert "s3cret" not in str(caught.value)


def test_a_vote_after_a_lost_connection_finds_the_server_again(postgres):
    run_sql(postgres, *(f"DROP TABLE IF EXISTS {table}" for table in TABLES))
    with LabelStore.open(postgres) as store:
        store.add(numbered(2))
        store.vote("ann", 1, "first")
        others = "backend_type = 'client backend' AND pid <> pg_backend_pid()"
        run_sql(postgres, f"SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE {others}")
        store.vote("ann", 2, "first")
        assert store.progress("ann").done == 2


def test_a_server_that_ended():
    with postgres_process() as (url, server), LabelStore.open(url) as store:
        store.add(numbered(1))
        server.send_signal(signal.SIGQUIT)  # at once, as if it had crashed
        server.wait(timeout=30)
        for call in (
            lambda: store.vote("ann", 1, "first"),
            lambda: store.next_task("ann"),
            lambda: list(store.votes()),
        ):
            with pytest.raises(KleashError, match=r"cannot be used \(.*\)\. What was not confirmed is not in it"):
                call()


def test_the_store_is_named_as_it_was_given(store, location):
    assert store.name == location


class Refusing:
    """A connection that SQLite refuses at once, some times over, as it does while others switch the same new file."""

    def __init__(self, times, reason):
        self.times, self.reason, self.asked = times, reason, []

    def execute(self, statement):
        self.asked.append(statement)
        if len(self.asked) <= self.times:
            raise sqlite3.OperationalError(self.reason)


def test_a_file_that_others_are_switching_is_asked_again():
    connection = Refusing(3, "database is locked")
    database._use_write_ahead_log(connection)
    assert connection.asked == ["PRAGMA journal_mode = WAL"] * 4


def test_another_failure_of_the_switch_is_not_asked_away():
    connection = Refusing(1, "disk I/O error")
    with pytest.raises(sqlite3.OperationalError, match="disk I/O error"):
        database._use_write_ahead_log(connection)
    assert len(connection.asked) == 1
