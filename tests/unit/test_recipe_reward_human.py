"""recipes/reward_human on a handwritten archive in the real one's format; nothing is fetched."""

import hashlib
import importlib
import io
import json
import subprocess
import sys
import tarfile
from pathlib import Path

import pytest

from kleash.errors import DataError

RECIPE = Path(__file__).parents[2] / "recipes" / "reward_human"
SCRIPTS = ("ratings", "accuracy", "make_data", "evaluate")

MOVIES = [
    ("1", "Warm,  witty and well acted.", [3, 2, 4]),
    ("2", "A dull two hours.", [-2, -3, -1]),
    ("3", "It starts at noon.", [0, 0, 1]),
    ("4", "a DULL two hours.", [-1, -1, -1]),
    ("5", "Fine\u2028enough.", [1, 1, 2]),
]
TWEETS = [("1_1", "Yay.", [2, 3]), ("1_2", "Ugh.", [-2, -2])]


@pytest.fixture
def recipe(monkeypatch):
    """The recipe's modules by name, as its scripts see each other."""
    monkeypatch.syspath_prepend(RECIPE)
    for name in SCRIPTS:
        monkeypatch.delitem(sys.modules, name, raising=False)
    modules = {name: importlib.import_module(name) for name in SCRIPTS}
    yield type("Recipe", (), modules)
    for name in SCRIPTS:
        sys.modules.pop(name, None)


def mean(values):
    return sum(values) / len(values)


def texts_of(snippets):
    return "\r\n".join(f"{key}\t{mean(ratings):.9f}\t{text}" for key, text, ratings in snippets)


def ratings_of(snippets):
    return "\n".join(f"{key}\t{mean(ratings):.9f}\t0.5\t{json.dumps(ratings)}" for key, _, ratings in snippets)


def packed(files):
    target = io.BytesIO()
    with tarfile.open(fileobj=target, mode="w:gz") as tar:
        for name, content in files.items():
            entry = tarfile.TarInfo(name)
            entry.size = len(content)
            tar.addfile(entry, io.BytesIO(content))
    return target.getvalue()


def archive_of(**collections):
    """An sdist with the inner archive in it; ratings files begin with a byte order mark, as one of the real ones."""
    files = {}
    for stem, snippets in collections.items():
        files[f"hutto_ICWSM_2014/{stem}_GroundTruth.txt"] = texts_of(snippets).encode()
        files[f"hutto_ICWSM_2014/{stem}_anonDataRatings.txt"] = b"\xef\xbb\xbf" + ratings_of(snippets).encode()
    return packed({"vaderSentiment-3.3.2/additional_resources/hutto_ICWSM_2014.tar.gz": packed(files)})


def many(count):
    """Snippets whose texts tell their ratings: snippet k got k % 5 - 2 from one rater and one more from another."""
    return [(str(k), f"Snippet {k}.", [k % 5 - 2, k % 5 - 1]) for k in range(count)]


def movies(recipe, rows, held_out=2):
    return recipe.ratings.Domain("movies", "movieReviewSnippets", rows=rows, held_out=held_out)


def parsed_of(recipe, snippets):
    return recipe.ratings.parse(movies(recipe, len(snippets)), texts_of(snippets), ratings_of(snippets))


def test_the_archive_is_read_file_by_file(recipe):
    domains = (movies(recipe, 5), recipe.ratings.Domain("tweets", "tweets", rows=2, held_out=2))
    archive = archive_of(movieReviewSnippets=MOVIES, tweets=TWEETS)
    parsed = recipe.make_data.read_archive(archive, domains, hashlib.sha256(archive).hexdigest())
    assert [(one.domain, one.id, one.text, one.ratings) for one in parsed["movies"].snippets] == [
        ("movies", "1", "Warm, witty and well acted.", (3, 2, 4)),
        ("movies", "2", "A dull two hours.", (-2, -3, -1)),
        ("movies", "3", "It starts at noon.", (0, 0, 1)),
        ("movies", "5", "Fine enough.", (1, 1, 2)),
    ]
    assert (parsed["movies"].mismatched, parsed["movies"].repeated) == (0, 1)
    assert [one.text for one in parsed["tweets"].snippets] == ["Yay.", "Ugh."]


def test_another_checksum_is_refused_with_both(recipe):
    archive = archive_of(tweets=TWEETS)
    with pytest.raises(DataError) as caught:
        recipe.make_data.read_archive(archive)
    assert str(caught.value) == (
        f"vaderSentiment-3.3.2.tar.gz has SHA-256 {hashlib.sha256(archive).hexdigest()}, expected "
        "5d7c06e027fc8b99238edb0d53d970cf97066ef97654009890b83703849632f9: this is not the archive that the numbers of "
        "this recipe were measured on. Check the package index that pip uses, or the file given with --archive."
    )


def test_a_missing_file_is_named(recipe):
    archive = archive_of(tweets=TWEETS)
    with pytest.raises(DataError, match=r"no file hutto_ICWSM_2014/movieReviewSnippets_GroundTruth\.txt"):
        recipe.make_data.read_archive(archive, (movies(recipe, 5),), hashlib.sha256(archive).hexdigest())


def test_a_snippet_with_two_different_means_is_left_out(recipe):
    wrong = ratings_of([*MOVIES[:2], ("3", "", [-4, -4, -4]), *MOVIES[3:]])
    parsed = recipe.ratings.parse(movies(recipe, 5), texts_of(MOVIES), wrong)
    assert parsed.mismatched == 1
    assert [one.id for one in parsed.snippets] == ["1", "2", "5"]


@pytest.mark.parametrize(
    ("texts", "ratings", "message"),
    [
        ("1\t0.0\tone", "1\t0.0\t0\t[0, 0]\n2\t0.0\t0\t[0, 0]", "GroundTruth.txt has 1 snippets, expected 2"),
        ("1\t0.0\n2\t0.0\ttwo", "1\t0.0\t0\t[0, 0]\n2\t0.0\t0\t[0, 0]", "GroundTruth.txt:1 has 2 columns between tabs"),
        ("1\tx\tone\n2\t0.0\ttwo", "1\t0.0\t0\t[0, 0]\n2\t0.0\t0\t[0, 0]", "GroundTruth.txt:1: the mean rating is 'x'"),
        (
            "1\t0.0\tone\n3\t0.0\ttwo",
            "1\t0.0\t0\t[0, 0]\n2\t0.0\t0\t[0, 0]",
            "GroundTruth.txt:2: snippet 3 has no line",
        ),
        ("1\t0.0\tone\n2\t0.0\ttwo", "1\t0.0\t0\t[0, 0]\n2\t0.0\t0\t[0, 5]", "Ratings.txt:2: the single ratings are"),
        ("1\t0.0\tone\n2\t0.0\ttwo", "1\t0.0\t0\t[0, 0]\n2\t0.0\t0\t[0, 1", "Ratings.txt:2: the single ratings are"),
        ("1\t0.0\tone\n2\t0.0\ttwo", "1\t0.0\t0\t[0, 0]\n2\t0.0\t0\t[0]", "list of two or more whole numbers from -4"),
    ],
)
def test_what_cannot_be_read_is_named_by_file_and_line(recipe, texts, ratings, message):
    with pytest.raises(DataError) as caught:
        recipe.ratings.parse(movies(recipe, 2), texts, ratings)
    assert message in str(caught.value)


def test_no_snippet_is_on_both_sides(recipe):
    domain = movies(recipe, 60, held_out=20)
    files = recipe.make_data.make_votes({"movies": parsed_of(recipe, many(60))}, (domain,))
    texts = {
        name: {one.text for vote in votes for one in (vote.chosen, vote.rejected)} for name, votes in files.items()
    }
    assert set(texts) == {"movies_train", "movies_test"}
    assert texts["movies_train"]
    assert texts["movies_test"]
    assert not texts["movies_train"] & texts["movies_test"]


def test_a_split_keeps_every_snippet_once(recipe):
    snippets = parsed_of(recipe, many(10)).snippets
    train, test = recipe.ratings.split(snippets, 4, seed="a")
    assert len(test) == 4
    assert sorted(one.id for one in [*train, *test]) == sorted(one.id for one in snippets)
    assert recipe.ratings.split(snippets, 4, seed="a") == (train, test)
    assert recipe.ratings.split(snippets, 4, seed="b") != (train, test)


def test_more_held_out_than_there_is_cannot_work(recipe):
    with pytest.raises(DataError, match="12 snippets cannot be held out of 10: lower held_out"):
        recipe.ratings.split(parsed_of(recipe, many(10)).snippets, 12, seed="a")


def test_a_vote_is_one_rater_on_each_side(recipe):
    split_minds = [("1", "Up.", [4, -4]), ("2", "Down.", [3, -3])]
    votes = recipe.ratings.draw_votes(parsed_of(recipe, split_minds).snippets, passes=400, seed="a")
    drawn = {(vote.chosen.text, vote.chosen_rating, vote.rejected_rating, vote.strength) for vote in votes}
    assert drawn == {("Up.", 4, 3, 1), ("Up.", 4, -3, 7), ("Down.", 3, -4, 7), ("Down.", -3, -4, 1)}
    wins = sum(vote.chosen.text == "Up." for vote in votes)
    assert 160 < wins < 240  # both means are 0: the sides win half the time, with a standard deviation of 10


def test_equal_ratings_are_left_out(recipe):
    agreed = [("1", "Up.", [1, 1]), ("2", "Also up.", [1, 1])]
    assert recipe.ratings.draw_votes(parsed_of(recipe, agreed).snippets, passes=3, seed="a") == []


def test_a_pass_uses_no_snippet_twice(recipe):
    distinct = [(str(k), f"Snippet {k}.", [k, k]) for k in range(-4, 5)]
    votes = recipe.ratings.draw_votes(parsed_of(recipe, distinct).snippets, passes=1, seed="a")
    used = [one.id for vote in votes for one in (vote.chosen, vote.rejected)]
    assert len(used) == len(set(used)) == 8  # of nine, one sits out


def test_a_row_is_a_comparison_in_our_format(recipe):
    up, down = parsed_of(recipe, [("1", "Up.", [4, 4]), ("2", "Down.", [-3, -3])]).snippets
    assert recipe.make_data.comparison(recipe.ratings.Vote(up, down, 4, -3)) == {
        "prompt": "Someone wrote:",
        "chosen": " Up.",
        "rejected": " Down.",
        "strength": 7,
        "source": "movies",
    }


def test_accuracy_counts_ties_half(recipe):
    made = recipe.accuracy.accuracy([1.0, 2.0, 0.0, 5.0], [0.0, 2.0, 1.0, 4.0])
    assert (made.value, made.comparisons, made.ties) == (0.625, 4, 1)


def test_the_interval_is_wilsons(recipe):
    low, high = recipe.accuracy.wilson(0.5, 10)
    assert (low, high) == pytest.approx((0.236593, 0.763407), abs=1e-6)  # (p + z²/2n ± z √(pq/n + z²/4n²)) / (1 + z²/n)
    low, high = recipe.accuracy.wilson(1.0, 10)
    assert (low, high) == pytest.approx((0.722467, 1.0), abs=1e-6)  # n / (n + z²)


def test_the_mean_is_taken_with_and_without_the_voters(recipe):
    pytest.importorskip("vaderSentiment")
    liked, disliked = parsed_of(
        recipe, [("1", "I love it.", [1, 1, -4]), ("2", "A horrible mess.", [-1, -1, 4])]
    ).snippets
    # Two outliers vote: all other raters say the opposite, and the means of all say it less clearly.
    scores = recipe.accuracy.baselines([recipe.ratings.Vote(disliked, liked, 4, -4)])
    assert {name: made.value for name, made in scores.items()} == {
        "mean of the other raters": 0.0,  # -1 against 1
        "mean of all raters": 1.0,  # 2/3 against -2/3: the voters' own ratings decide
        "lexicon (VADER)": 0.0,
        "longer text": 1.0,
    }


def test_from_archive_to_table(recipe, tmp_path, capsys):
    pytest.importorskip("vaderSentiment")
    domain = movies(recipe, 60, held_out=20)
    recipe.make_data.write({"movies": parsed_of(recipe, many(60))}, tmp_path, (domain,))
    rows = [json.loads(line) for line in (tmp_path / "movies_test.jsonl").read_text().splitlines()]
    assert f"movies_test.jsonl: {len(rows)} comparisons" in capsys.readouterr().out

    known = recipe.evaluate.read_baselines(tmp_path)
    preferred = {row["chosen"] for row in rows}
    assert not preferred & {row["rejected"] for row in rows}

    def score(prompts, completions):
        assert set(prompts) == {"Someone wrote:"}
        return [float(completion in preferred) for completion in completions]

    measured = recipe.evaluate.evaluate(score, tmp_path, known)
    assert next(iter(measured["movies"])) == "reward model, trained on movies"
    assert measured["movies"]["reward model, trained on movies"]["value"] == 1.0
    head, rule, first, *_ = recipe.accuracy.table(measured).splitlines()
    assert head == f"| score | movies ({len(rows)}) |"
    assert rule == "|---|---|"
    assert first.startswith("| reward model, trained on movies | 1.000 [")


def test_evaluation_asks_for_the_data_first(recipe, tmp_path, capsys):
    assert recipe.evaluate.main(["model", "--data", str(tmp_path)]) == 2
    path = tmp_path / "baselines.json"
    assert capsys.readouterr().err == (
        f"evaluate.py: {path} is not there: run `python make_data.py --output {tmp_path}` first.\n"
    )


def test_a_failed_download_says_why_and_what_else(recipe, tmp_path, monkeypatch, capsys):
    def failing(command, **settings):
        return subprocess.CompletedProcess(command, 1, stdout="", stderr="warning\nERROR: no index\n")

    monkeypatch.setattr(subprocess, "run", failing)
    assert recipe.make_data.main(["--output", str(tmp_path / "data")]) == 2
    assert capsys.readouterr().err == (
        "make_data.py: `pip download vaderSentiment==3.3.2` failed (ERROR: no index). Connect to a package index, or "
        "fetch vaderSentiment-3.3.2.tar.gz elsewhere and give it with --archive.\n"
    )
    assert not (tmp_path / "data").exists()


def test_the_scripts_load_without_torch():
    code = (
        f"import sys; sys.path.insert(0, {str(RECIPE)!r}); import make_data, evaluate; sys.exit('torch' in sys.modules)"
    )
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0
