"""The page of a sweep: what to take, every value, and links that lead to runs and frontier."""

from pathlib import Path

from kleash.frontier.points import Mean, Point, Source
from kleash.sweep.page import numbers, render
from kleash.sweep.recommend import Recommendation, Value


def measured(name, gold, kl):
    source = Source(f"out/<sweep>/{name}", "RLOO", "exact", "proxy", "lexicon")
    return Point(source, 40, Mean(kl, 0.1), None, Mean(gold, 0.02), Path("here"))


FOUND = Recommendation(
    (
        Value({"beta": "0.1"}, "beta=0.1",
              (measured("beta_0.1-seed_0", 0.7, 2.0), measured("beta_0.1-seed_1", 0.8, 2.2)), (), "gold"),
        Value({"beta": "0"}, "beta=<0>", (), ("nothing was measured on held-out prompts",), "gold"),
    ),
    "gold",
    4.0,
)  # fmt: skip


def test_numbers_have_a_row_for_each_value():
    titles, rows = numbers(FOUND)
    assert titles[0] == "value"
    assert rows == [
        ["beta=0.1", "0.750 ± 0.050", "0.0707", "2.10 ± 0.10", "40, 40", "2 of 2", "take"],
        ["beta=<0>", "–", "–", "–", "–", "0 of 1", "does not qualify"],
    ]


def test_the_page_says_what_to_take_and_leads_on():
    page = render(FOUND, "my <sweep>", "frontier.html")
    assert "<title>my &lt;sweep&gt; · Kleash sweep</title>" in page
    assert (
        '<p class="headline">Take beta=0.1: gold 0.750 ± 0.050 at 2.10 ± 0.10 nats per sequence, the best of 2' in page
    )
    assert "beta=&lt;0&gt; does not qualify: nothing was measured on held-out prompts." in page
    assert '<a href="beta_0.1-seed_1/report.html">beta_0.1-seed_1</a>' in page
    assert '<a href="frontier.html">' in page
    assert "<0>" not in page


def test_intervals_over_two_seeds_are_students():
    """t with 1 degree of freedom at 97.5 % is 12.706."""
    page = render(FOUND, "sweep", "frontier.html")
    assert "0.75 [0.11, 1.39]" in page
