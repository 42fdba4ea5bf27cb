"""The words and the page of a dial."""

from kleash.gauge.dial_search import Dial, Point
from kleash.gauge.page_dial import headline, render, rows, short_rows
from kleash.gauge.records import Estimate


def estimate(value, arm=0.2):
    return Estimate(value, value - arm, value + arm, 128, 32)


def point(scale, *, reward=True, gold=False):
    return Point(
        scale,
        estimate(8 * scale**2),
        estimate(scale**2),
        estimate(9.0),
        estimate(0.5 + scale / 4, 0.02) if reward else None,
        estimate(0.5 - scale / 4, 0.02) if gold else None,
    )


def dial(points, limit=None, scale=None, notes=()):
    return Dial("runs/one", 40, limit, scale, tuple(points), ((1.0, 8.0),), 32, 4, {"prompts": "held out"}, notes)


def test_the_headline_of_a_limit_says_what_it_keeps_of_the_reward():
    found = dial([point(0.0), point(0.5), point(1.0)], 3.0, 0.5)
    assert headline(found) == (
        "Scale 0.5: KL 2.00 [1.80, 2.20] nats per sequence, within the limit of 3, reward 0.625 [0.605, 0.645]; "
        "at scale 1 KL 8.00 [7.80, 8.20], reward 0.750 [0.730, 0.770]."
    )


def test_the_headline_of_a_whole_adapter_and_of_a_curve():
    points = [point(0.0, gold=True), point(1.0, gold=True)]
    assert headline(dial(points, 9.0, 1.0)) == (
        "The whole adapter lies within the limit of 9 nats per sequence and is exported as it was trained: KL 8.00 "
        "[7.80, 8.20], reward 0.750 [0.730, 0.770], gold 0.250 [0.230, 0.270]."
    )
    assert headline(dial([point(0.0, reward=False), point(1.0, reward=False)])) == (
        "At scale 1: KL 8.00 [7.80, 8.20] nats per sequence."
    )


def test_columns_that_were_not_measured_are_left_out():
    found = dial([point(0.0, reward=False), point(0.5, reward=False)])
    assert short_rows(found)[0] == ["scale", "KL"]
    assert rows(found)[0] == ["scale", "KL", "KL per token", "length"]
    assert rows(found)[1][1] == ["0.5", "2.00 [1.80, 2.20]", "0.25 [0.05, 0.45]", "9.00 [8.80, 9.20]"]
    assert short_rows(dial([point(0.5, gold=True)]))[0] == ["scale", "KL", "reward", "gold"]


def test_the_page_draws_kl_reward_and_gold_and_escapes_names():
    text = render(dial([point(s / 5, gold=True) for s in range(6)], notes=("<b>odd</b> prompts",)))
    for title in (
        "KL(policy ‖ reference) over the scale",
        "Reward over the scale",
        "Gold reward over the scale",
        "Reward over the KL",
        "Gold reward over the KL",
    ):
        assert text.count(f"<figcaption>{title}") + text.count(f">{title}<") >= 1, title
    assert "&lt;b&gt;odd&lt;/b&gt; prompts." in text
    assert "<b>odd" not in text


def test_without_a_reward_only_the_kl_is_drawn():
    text = render(dial([point(0.0, reward=False), point(1.0, reward=False)]))
    assert "KL(policy ‖ reference) over the scale" in text
    assert "Reward over" not in text
