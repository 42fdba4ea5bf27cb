"""Agreement against published tables and sums done by hand."""

import numpy as np
import pytest

from kleash.labels.agreement import agreement_of, cohen_kappa, krippendorff_alpha

FLEISS_1971 = """
00060 03003 01401 00006 03030 20400 00402 20310 20040 00006 10050 11040 03300 10050 02031
00501 30012 51000 02040 10203 00006 01050 02013 20040 10041 05010 40002 02040 10500 00006
"""
"""30 patients, six psychiatrists each: depression, personality disorder, schizophrenia, neurosis, other."""

KRIPPENDORFF_2011 = ["123321412...", "1233224125.3", ".3332342251.", "12332441251."]
"""Section C: four observers, twelve units, values 1 to 5; a dot is missing."""


def fleiss_counts():
    return np.array([[int(figure) for figure in row] for row in FLEISS_1971.split()])


def once(counts):
    return np.ones(len(counts), dtype=np.int64)


def test_the_table_of_fleiss_is_the_published_one():
    counts = fleiss_counts()
    assert counts.sum(axis=1).tolist() == [6] * 30
    assert (counts.sum(axis=0) / 180).round(3).tolist() == [0.144, 0.144, 0.167, 0.306, 0.239]


def test_cohen_on_the_table_of_1960():
    """Proportions .44 .05 .01 / .07 .20 .03 / .09 .05 .06: p_o = .70, p_e = .41, kappa = .29 / .59."""
    table = np.array([[44, 5, 1], [7, 20, 3], [9, 5, 6]])
    assert cohen_kappa(table) == pytest.approx(0.29 / 0.59, abs=1e-12)


@pytest.mark.parametrize(
    ("table", "expected"),
    [
        ([[20, 5], [10, 15]], 0.4),  # p_o = .7, p_e = .5
        ([[5, 0], [0, 7]], 1.0),
        ([[0, 5], [5, 0]], -1.0),
        ([[25, 25], [25, 25]], 0.0),
    ],
)
def test_cohen_by_hand(table, expected):
    assert cohen_kappa(np.array(table)) == pytest.approx(expected, abs=1e-12)


@pytest.mark.parametrize("table", [[[0, 0], [0, 0]], [[9, 0], [0, 0]]])
def test_cohen_is_undefined_where_chance_explains_everything(table):
    assert cohen_kappa(np.array(table)) is None


def test_alpha_on_the_table_of_fleiss():
    """Fleiss gives kappa = .430; with N n answers in all, 1 - alpha = (1 - kappa) (N n - 1) / (N n)."""
    counts = fleiss_counts()
    alpha = krippendorff_alpha(counts, once(counts))
    assert 1 - (1 - alpha) * 180 / 179 == pytest.approx(0.430, abs=5e-4)


def test_alpha_on_the_example_of_krippendorff():
    counts = np.array([[unit.count(value) for value in "12345"] for unit in zip(*KRIPPENDORFF_2011, strict=True)])
    assert krippendorff_alpha(counts, once(counts)) == pytest.approx(0.743, abs=5e-4)


def test_alpha_counts_an_item_as_often_as_it_is_told():
    counts = np.array([[2, 0], [1, 1], [0, 2]])
    assert krippendorff_alpha(counts, np.array([2, 0, 1])) == pytest.approx(1.0)
    # 8 answers, 4 and 4, of which 4 disagree: 1 - 7 * 4 / (64 - 32)
    assert krippendorff_alpha(counts, np.array([1, 2, 1])) == pytest.approx(0.125)


def test_alpha_is_undefined_where_all_answers_are_the_same():
    counts = np.array([[3, 0], [2, 0], [0, 1]])
    assert krippendorff_alpha(counts, once(counts)) is None


def two(*cells):
    """Answers of ann and bob to one pair each, written as letters: f, s, t."""
    names = {"f": "first", "s": "second", "t": "tie"}
    return [
        (pair, annotator, names[letter])
        for pair, cell in enumerate(cells)
        for annotator, letter in zip(("ann", "bob"), cell, strict=True)
    ]


def test_two_annotators_have_cohens_kappa_with_ties_as_a_category():
    """Table by hand: 4 ff, 1 fs, 2 ss, 2 tt, 1 ts; p_o = .8, p_e = (5*4 + 2*4 + 3*2) / 100 = .34."""
    found = agreement_of(two("ff", "ff", "ff", "ff", "fs", "ss", "ss", "tt", "tt", "ts"))
    assert found.statistic == "Cohen's kappa"
    assert (found.pairs, found.raw) == (10, 0.8)
    assert found.kappa == pytest.approx((0.8 - 0.34) / 0.66)
    assert -1 <= found.low < found.kappa < found.high <= 1


def test_the_order_of_names_changes_nothing():
    answers = two("ff", "fs", "ss", "tt", "ts")
    assert agreement_of(answers) == agreement_of(answers[::-1])


def test_pairs_with_one_answer_are_left_out():
    answers = [*two("ff", "ss", "fs"), (17, "ann", "first"), (18, "carl", "tie")]
    found = agreement_of(answers)
    assert (found.statistic, found.pairs) == ("Cohen's kappa", 3)
    assert found.raw == pytest.approx(2 / 3)


def test_three_annotators_have_krippendorffs_alpha():
    """Counts ff. / fs. / sss: n = 7, answers 3 and 4, disagreement 2 of 7: alpha = 1 - 6 * 2 / (49 - 25)."""
    answers = [*two("ff", "fs"), (2, "ann", "second"), (2, "bob", "second"), (2, "carl", "second")]
    found = agreement_of(answers)
    assert found.statistic == "Krippendorff's alpha"
    assert found.kappa == pytest.approx(0.5)
    assert found.raw == pytest.approx(5 / 7)


def test_nothing_shared_has_no_agreement():
    found = agreement_of([(0, "ann", "first"), (1, "bob", "first")])
    assert (found.kappa, found.pairs, found.low, found.high, found.raw) == (None, 0, None, None, None)


def test_one_shared_pair_has_no_interval():
    found = agreement_of(two("fs"))
    assert (found.kappa, found.pairs, found.low, found.high, found.raw) == (0.0, 1, None, None, 0.0)


def test_the_interval_covers_the_truth_about_as_often_as_it_says():
    """60 data sets of 60 pairs; two annotators of three categories, right with probability .8: p_o = .66, p_e = 1/3."""
    generator = np.random.default_rng(5)
    truth = (0.66 - 1 / 3) / (1 - 1 / 3)
    covered = 0
    for _ in range(60):
        right = generator.integers(3, size=60)
        said = [(right + generator.choice([0, 1, 2], p=[0.8, 0.1, 0.1], size=60)) % 3 for _ in range(2)]
        found = agreement_of(two(*("fst"[one] + "fst"[other] for one, other in zip(*said, strict=True))))
        covered += found.low <= truth <= found.high
    assert 52 <= covered <= 60
