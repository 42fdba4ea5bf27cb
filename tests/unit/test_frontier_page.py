"""The analysis as JSON, in sentences, and as a page."""

import json
import math
import re
from xml.etree import ElementTree

import pytest
from frontier_runs import rising_and_falling, write_best_of_n, write_run

from kleash.errors import DataError
from kleash.frontier.analysis import analyse
from kleash.frontier.page import render
from kleash.frontier.points import read_best_of_n, read_run
from kleash.frontier.words import caveats, strand_sentences
from kleash.runs.records import Event

PEAK = math.exp(2 * 0.42 / 0.22 - 2)  # nats


@pytest.fixture
def points(tmp_path):
    alarm = Event(70, "critical", "hacking/gold_split", "Gold falls.", began=70)
    run = write_run(tmp_path / "a", rising_and_falling(), saved=range(10, 80, 10), events=[alarm])
    return [*read_run(run), *read_best_of_n(write_best_of_n(tmp_path / "best.json"))]


def strand(frontier, method, by):
    (found,) = [one for one in frontier.strands if (one.method, one.by) == (method, by)]
    return found


def test_methods_are_fitted_apart_each_by_its_form(points):
    found = analyse(points)
    assert found.methods == ["RLOO", "best-of-n"]
    assert [(one.method, one.by) for one in found.strands] == [
        ("RLOO", "gold"), ("RLOO", "proxy"), ("best-of-n", "gold"), ("best-of-n", "proxy"),
    ]  # fmt: skip
    learned, sampled = strand(found, "RLOO", "gold").fit, strand(found, "best-of-n", "gold").fit
    assert (learned.alpha, learned.beta) == pytest.approx((0.42, 0.22), abs=1e-6)
    assert learned.peak.kl.value == pytest.approx(PEAK, rel=1e-4)
    assert (sampled.alpha, sampled.beta) == pytest.approx((0.4, 0.15), abs=1e-6)


def test_the_numbers_are_json_and_say_what_the_kl_is(points):
    plain = json.loads(json.dumps(analyse(points, max_kl=12.0).to_dict(), allow_nan=False))
    assert plain["schema_version"] == 1
    assert "not to be compared across methods" in plain["kl"]
    assert plain["choice"]["by"] == "gold"
    assert plain["choice"]["chosen"]["checkpoint"].endswith(f"step_{plain['choice']['chosen']['at']}")
    gold, proxy, *_ = plain["strands"]
    assert gold["fit"]["peak_kl"]["low"] < PEAK < gold["fit"]["peak_kl"]["high"]
    assert gold["smooth"]["turns_over"]
    assert proxy["smooth"]["peak_kl"]["high"] is None
    by_name = {point["at"]: point for point in plain["points"] if point["source"]["method"] == "RLOO"}
    assert by_name[70]["alarms"] == ["hacking/gold_split"]


def test_gold_is_the_default_where_it_is_and_proxy_else(tmp_path, points):
    assert analyse(points).choice.by == "gold"
    assert analyse(points, by="proxy").choice.by == "proxy"
    rows = {step: (kl, proxy, None) for step, (kl, proxy, _) in rising_and_falling().items()}
    found = analyse(read_run(write_run(tmp_path / "b", rows, saved=[10])))
    assert found.choice.by == "proxy"
    assert any("No gold reward was measured" in note for note in caveats(found))


def test_sentences_of_a_peak_that_is_reached_and_of_one_that_is_not(points):
    found = analyse(points)
    gold = " ".join(strand_sentences(strand(found, "RLOO", "gold")))
    assert "R = d (α − β log d) with α = 0.420" in gold
    assert "Its peak is at 6.16 nats, between" in gold
    assert "it turns over, with its peak between" in gold
    proxy = " ".join(strand_sentences(strand(found, "RLOO", "proxy")))
    assert re.search(r"Its peak is not reached: at least [\d.]+ nats", proxy)
    assert "is not seen to turn over" in proxy


def test_too_few_points_say_so(tmp_path):
    found = analyse(read_run(write_run(tmp_path / "a", rising_and_falling(steps=3), saved=[10])))
    assert strand_sentences(strand(found, "RLOO", "gold")) == [
        "3 points are too few to fit two numbers and to check the fit: 5 with the start do."
    ]


def test_without_a_start_nothing_is_fitted(tmp_path):
    rows = {step: row for step, row in rising_and_falling().items() if step > 0}
    found = analyse(read_run(write_run(tmp_path / "a", rows, saved=[10])))
    assert "No start with an error was measured" in strand(found, "RLOO", "gold").missing


def test_methods_are_told_apart_and_so_are_starts(tmp_path, points):
    notes = " ".join(caveats(analyse(points, max_kl=5.0)))
    assert "KL is not comparable across RLOO, best-of-n" in notes
    assert "The limit of KL was applied to every method alike." in notes
    assert "made of the same samples" in notes
    assert "common start" not in notes
    moved = {step: (kl, proxy, gold + 0.1) for step, (kl, proxy, gold) in rising_and_falling().items()}
    more = read_run(write_run(tmp_path / "b", moved))
    assert "moved onto a common start" in " ".join(caveats(analyse([*points, *more])))


def test_one_point_is_no_frontier(points):
    with pytest.raises(DataError, match=r"There is 1 point in all \(.* step 0\).*smaller training.eval_every"):
        analyse(points[:1])


def test_the_page_is_whole_and_marks_what_it_says(points):
    html = render(analyse(points, max_kl=12.0))
    drawings = [ElementTree.fromstring(svg) for svg in re.findall(r"<svg.*?</svg>", html, re.DOTALL)]
    titles = [drawing.findtext("title") for drawing in drawings]
    assert titles == [
        "RLOO, gold reward", "RLOO, proxy reward", "best-of-n, gold reward", "best-of-n, proxy reward",
        "RLOO", "best-of-n",
        "Residuals: RLOO, gold reward", "Residuals: RLOO, proxy reward", "Residuals: best-of-n, gold reward",
        "Residuals: best-of-n, proxy reward",
    ]  # fmt: skip
    gold = drawings[0]
    dots = [node for node in gold.iter("circle") if "dot" in node.get("class", "")]
    assert len(dots) == 8
    assert sum("fill:var(--paper)" in node.get("style", "") for node in dots) == 1  # under an alarm
    assert sum(node.get("r") == "7" for node in gold.iter("circle")) == 1  # the chosen one
    assert any("peak, 95 %" in (node.text or "") for node in gold.iter("title"))
    assert "hacking/gold_split" in html
    assert not any(
        re.search(r"\b(nan|inf)\b", value) for svg in drawings for node in svg.iter() for value in node.attrib.values()
    )


def test_the_axis_of_drift_is_spaced_by_the_root(points):
    html = render(analyse(points))
    gold = ElementTree.fromstring(re.search(r"<svg.*?</svg>", html, re.DOTALL)[0])
    texts = {node.text: float(node.get("x")) for node in gold.iter("text") if node.get("text-anchor") == "middle"}
    left = texts["0"]
    assert (texts["20"] - left) / (texts["5"] - left) == pytest.approx(2.0, abs=0.01)
