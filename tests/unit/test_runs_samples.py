import math
import sqlite3

import pytest

from kleash.runs.reader import RunReader
from kleash.runs.records import Sample
from kleash.runs.samples import SampleNumbers, SampleQuery
from kleash.runs.writer import RunWriter


def sample(step, prompt_index, kl, *, split="eval", reward=None, gold=None, text="", prompt="Once", tokens=1, index=0):
    return Sample(
        step=step,
        split=split,
        prompt_index=prompt_index,
        sample_index=index,
        prompt=prompt,
        completion=text,
        tokens=("t",) * tokens,
        token_kl=(0.5,) * tokens,
        reward=reward,
        gold=gold,
        kl=kl,
        stopped=True,
    )


SAMPLES = [
    sample(0, 0, 0.0, split="before", reward=1.0, gold=0.0, text="A plain start", tokens=9),
    sample(0, 1, 4.0, reward=3.0, text="100% sure_of it", tokens=2),
    sample(5, 0, 2.0, reward=None, text="Größe und Maß", tokens=3),
    sample(5, 1, math.nan, reward=-1.0, gold=2.0, text="broken", prompt="ÄRGER", tokens=4),
    sample(9, 0, math.inf, reward=2.0, gold=1.0, text="Sure enough", tokens=5),
    sample(9, 1, -math.inf, reward=math.nan, text="sureXof", prompt="twice", tokens=6),
]
"""The KL of each says which it is."""


@pytest.fixture
def run(tmp_path):
    with RunWriter.create(tmp_path / "run", {}, {}) as writer:
        writer.write_samples(SAMPLES)
    with RunReader(tmp_path / "run") as reader:
        yield reader


@pytest.fixture
def old_run(run):
    """The same as version 1 laid it out: neither the index nor the number of tokens."""
    with sqlite3.connect(run.path / "run.db") as database:
        database.execute("DROP INDEX samples_numbers")
        database.execute("ALTER TABLE samples DROP COLUMN num_tokens")
        for column in ("began", "causes", "advice", "ends"):
            database.execute(f"ALTER TABLE events DROP COLUMN {column}")
        database.execute("PRAGMA user_version = 1")
    database.close()
    with RunReader(run.path) as reader:
        yield reader


def texts(run, **query):
    return [found.completion for found in run.find_samples(SampleQuery(**query)).samples]


def test_without_a_filter_all_come_by_step_with_everything_but_their_tokens(run):
    found = run.find_samples(SampleQuery())
    assert found.total == 6
    assert [one.completion for one in found.samples] == [one.completion for one in SAMPLES]
    first = found.samples[0]
    assert (first.step, first.split, first.prompt_index, first.sample_index) == (0, "before", 0, 0)
    assert (first.prompt, first.reward, first.gold, first.kl) == ("Once", 1.0, 0.0, 0.0)
    assert (first.stopped, first.num_tokens) == (True, 9)


@pytest.mark.parametrize(
    ("query", "expected"),
    [
        ({"sort": "kl"}, ["-inf", "0", "2", "4", "inf", "nan"]),
        ({"sort": "kl", "descending": True}, ["inf", "4", "2", "0", "-inf", "nan"]),
        ({"sort": "reward"}, ["nan", "0", "inf", "4", "2", "-inf"]),
        ({"sort": "reward", "descending": True}, ["4", "inf", "0", "nan", "2", "-inf"]),
        ({"sort": "gold"}, ["0", "inf", "nan", "4", "2", "-inf"]),
        ({"sort": "length"}, ["4", "2", "nan", "inf", "-inf", "0"]),
        ({"sort": "step", "descending": True}, ["inf", "-inf", "2", "nan", "0", "4"]),
        ({"split": "before"}, ["0"]),
        ({"min_kl": 2}, ["4", "2", "inf"]),
        ({"max_kl": 2}, ["0", "2", "-inf"]),
        ({"min_kl": 1, "max_kl": 3}, ["2"]),
        ({"min_reward": 1}, ["0", "4", "inf"]),
        ({"max_reward": 1}, ["0", "nan"]),
        ({"first_step": 1, "last_step": 8}, ["2", "nan"]),
        ({"first_step": 9, "split": "eval", "min_reward": 0}, ["inf"]),
    ],
)
def test_numbers_sort_and_filter_with_what_is_missing_last(run, query, expected):
    assert [f"{found.kl:g}" for found in run.find_samples(SampleQuery(**query)).samples] == expected


@pytest.mark.parametrize(
    ("search", "expected"),
    [
        ("SURE", ["100% sure_of it", "Sure enough", "sureXof"]),
        ("sure_of", ["100% sure_of it"]),
        ("0%", ["100% sure_of it"]),
        ("\\", []),
        ("GRÖSSE", ["Größe und Maß"]),
        ("ärger", ["broken"]),
        ("once", ["A plain start", "100% sure_of it", "Größe und Maß", "Sure enough"]),
        ("' OR 1=1 --", []),
    ],
)
def test_a_search_finds_text_in_prompt_or_completion_whatever_its_case(run, search, expected):
    assert texts(run, search=search) == expected


def test_a_list_holds_as_much_of_a_long_text_as_it_shows_and_is_searched_whole(tmp_path):
    prompt, completion = "needle" + "p" * 239, "c" * 240 + "thread"
    with RunWriter.create(tmp_path / "run", {}, {}) as writer:
        writer.write_samples([sample(0, 0, 0.0, prompt=prompt, text=completion)])
    with RunReader(tmp_path / "run") as run:
        for search in ("needle", "thread"):
            (found,) = run.find_samples(SampleQuery(search=search)).samples
            assert (found.prompt, found.completion) == ("e" + "p" * 239, "c" * 240)
        assert run.find_sample("eval", 0, 0, 0).completion == completion


def test_a_page_is_a_part_of_what_was_found(run):
    found = run.find_samples(SampleQuery(sort="length", offset=2, limit=3))
    assert (found.total, [one.num_tokens for one in found.samples]) == (6, [4, 5, 6])
    beyond = run.find_samples(SampleQuery(offset=6))
    assert (beyond.total, beyond.samples) == (6, [])


def test_a_run_of_version_1_is_searched_just_so(old_run):
    assert [found.num_tokens for found in old_run.find_samples(SampleQuery(sort="length")).samples] == [
        2,
        3,
        4,
        5,
        6,
        9,
    ]
    assert texts(old_run, min_kl=2, split="eval") == ["100% sure_of it", "Größe und Maß", "Sure enough"]


def test_a_run_of_version_1_that_is_resumed_has_the_index_from_then_on(old_run):
    old_run.close()
    with RunWriter.resume(old_run.path, 0) as writer:
        writer.write_samples([sample(0, 2, 0.0, tokens=7)])
    with RunReader(old_run.path) as run:
        assert [found.num_tokens for found in run.find_samples(SampleQuery()).samples] == [9, 2, 7]
    test_numbers_are_read_from_the_index_alone(run)


def test_without_tokens_the_length_is_that_of_the_text(tmp_path):
    with RunWriter.create(tmp_path / "run", {}, {}) as writer:
        writer.write_samples(sample(0, n, 0.0, text="x" * n, tokens=0) for n in (3, 1, 2))
    with RunReader(tmp_path / "run") as run:
        found = run.find_samples(SampleQuery(sort="length")).samples
    assert [(one.completion, one.num_tokens) for one in found] == [("x", None), ("xx", None), ("xxx", None)]


def test_numbers_are_read_from_the_index_alone(run):
    """A reader that walked through texts would take ten times as long on a long run."""
    database = sqlite3.connect(run.path / "run.db")
    plan = database.execute(
        "EXPLAIN QUERY PLAN SELECT rowid FROM samples WHERE +split = 'eval' AND kl >= 2 ORDER BY num_tokens"
    ).fetchall()
    database.close()
    assert "COVERING INDEX samples_numbers" in str(plan)


def test_one_sample_comes_with_its_tokens_or_is_none(run):
    assert run.find_sample("eval", 5, 0, 0) == SAMPLES[2]
    assert run.find_sample("eval", 5, 0, 1) is None
    assert run.find_sample("train", 5, 0, 0) is None


def test_a_prompt_is_followed_over_the_held_out_splits_by_step(tmp_path):
    with RunWriter.create(tmp_path / "run", {}, {}) as writer:
        writer.write_samples([sample(9, 1, 6.0, split="after"), sample(9, 1, 5.0, reward=0.5)])
        writer.write_samples([sample(0, 1, 2.0), sample(0, 1, 1.0, split="before")])
        writer.write_samples([sample(4, 1, 9.0, split="train", tokens=0), sample(4, 2, 8.0)])
        writer.write_samples([sample(4, 1, 4.0, index=1), sample(4, 1, 3.0)])
    with RunReader(tmp_path / "run") as run:
        for split in ("before", "eval", "after"):
            assert [one.kl for one in run.find_prompt(split, 1, 200)] == [1.0, 2.0, 3.0, 4.0, 5.0, 6.0]
        assert [one.kl for one in run.find_prompt("eval", 1, 3)] == [1.0, 3.0, 6.0]
        assert run.find_prompt("train", 1, 200) == [SampleNumbers(4, "train", 1, 0, None, None, 9.0, True, None)]
        assert run.find_prompt("eval", 1, 200)[4] == SampleNumbers(9, "eval", 1, 0, 0.5, None, 5.0, True, 1)


def test_samples_are_counted_by_split(run):
    assert run.sample_counts() == {"before": 1, "eval": 5}
