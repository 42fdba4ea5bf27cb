"""The sentence: each rule, and that it claims no more than its intervals."""

from dataclasses import replace

import pytest
from synthetic_gauge import direction, estimate, gauge

from kleash.gauge.records import Scale, Score
from kleash.gauge.verdict import verdict


def moved(name, value, half, by_category=None):
    found = direction(name, 0.1, count=10)
    mean = replace(found.per_sequence, mean=estimate(value, half))
    return replace(found, per_sequence=mean, by_category=by_category or {})


def still(name):
    found = direction(name, 0.1, count=10)
    replies = tuple(replace(reply, token_kl=(0.0,) * len(reply.token_kl), kl=0.0) for reply in found.replies)
    return replace(found, replies=replies, per_sequence=replace(found.per_sequence, mean=estimate(0.0, 0.0)))


def said(reverse=None, forward=None, corpus=None, scale=None, scores=(), partial=False):
    return verdict(reverse, forward, corpus, scale, scores, partial=partial)


def score(name, difference, half):
    return Score(name, estimate(0.1), estimate(0.1 + difference), estimate(difference, half))


def test_a_model_against_itself_has_not_moved():
    assert said(still("reverse"), still("forward")) == ("Not moved: the KL is exactly 0 at every token of 20 replies.")


def test_one_token_that_moved_is_enough_to_have_moved():
    forward = still("forward")
    first = replace(forward.replies[0], token_kl=(0.0, 1e-9))
    forward = replace(forward, replies=(first, *forward.replies[1:]))
    assert said(still("reverse"), forward).startswith("Moved 0 ± 0 nats per reply")


@pytest.mark.parametrize(
    ("value", "half", "expected"),
    [
        (0.002, 0.0005, "Moved 0.00200 ± 5e−4 nats per reply, no further than rounding its weights to bfloat16"),
        (0.002, 0.0015, "Moved 0.0020 ± 0.0015 nats per reply; less than rounding its weights to 4 bits"),
        (0.9, 0.3, "Moved 0.90 ± 0.30 nats per reply; about as much as rounding its weights to 4 bits"),
        (3.1, 0.4, "Moved 3.10 ± 0.40 nats per reply; more than rounding its weights to 4 bits (1.00 ± 0.10 nats)"),
    ],
)
def test_the_size_is_held_against_the_scale_by_whole_intervals(value, half, expected):
    scale = Scale(estimate(0.0028, 0.0002), estimate(1.0, 0.1))
    assert said(moved("reverse", value, half), scale=scale).startswith(expected)


@pytest.mark.parametrize(
    ("categories", "expected"),
    [
        ({"story": estimate(9.0, 2.0, count=40), "code": estimate(1.0, 0.1, count=60)}, ", mostly in story prompts"),
        (
            {"story": estimate(9.0, 2.0, count=10), "code": estimate(3.0, 0.1, count=90)},
            ", most of all in story prompts",
        ),
        ({"story": estimate(6.0, 3.0, count=50), "code": estimate(3.0, 0.1, count=50)}, ""),
        ({"story": estimate(9.0, 2.0, count=100)}, ""),
    ],
)
def test_a_category_is_named_only_where_its_interval_lies_above_the_overall_one(categories, expected):
    assert said(moved("reverse", 4.0, 0.5, categories)) == f"Moved 4.00 ± 0.50 nats per reply{expected}."


@pytest.mark.parametrize(
    ("value", "half", "expected"),
    [
        (0.8, 0.1, "5 times smaller (0.80 ± 0.10 nats)"),
        (20.0, 1.0, "5 times larger (20.0 ± 1.0 nats)"),
        (3.4, 0.3, "about as large (3.40 ± 0.30 nats)"),
    ],
)
def test_the_forgetting_direction_is_smaller_or_larger_only_where_the_intervals_are_apart(value, half, expected):
    assert said(moved("reverse", 4.0, 0.5), moved("forward", value, half)).endswith(
        f"; forgetting direction {expected}."
    )


@pytest.mark.parametrize(
    ("size", "scores", "expected"),
    [
        (0.5, [score("taste", 0.2, 0.1)], "scores up on taste: a small drift with better scores is what one wants."),
        (
            5.0,
            [score("taste", 0.2, 0.1)],
            "taste is up: a large drift for a gain on one narrow thing, so score others too.",
        ),
        (5.0, [score("taste", 0.2, 0.1), score("sums", 0.3, 0.1)], "scores up on taste, sums."),
        (0.5, [score("taste", 0.2, 0.1), score("sums", -0.3, 0.1)], "scores up on taste, down on sums."),
        (0.5, [score("taste", -0.2, 0.1)], "scores down on taste."),
        (0.5, [score("taste", 0.2, 0.3)], "no clear change in scores."),
    ],
)
def test_scores_count_where_the_interval_of_their_difference_leaves_zero_out(size, scores, expected):
    scale = Scale(estimate(0.01), estimate(1.0, 0.1))
    assert said(moved("reverse", size, 0.1), scale=scale, scores=scores).endswith(f"; {expected}")


def test_an_interrupted_measurement_says_so_first():
    found = said(moved("reverse", 4.0, 0.5), partial=True)
    assert found == "Interrupted, so only on what was finished: moved 4.00 ± 0.50 nats per reply."


def test_one_prompt_is_said_to_have_no_interval():
    nan = float("nan")
    assert "4 nats (one prompt or text, so no interval) per reply" in said(moved("reverse", 4.0, nan))


def test_given_text_alone_names_both_directions_per_token():
    found = said(corpus=gauge().corpus)
    assert found.startswith("On the given text 0.0800 ± 0.0080 nats per token (tuned to reference) and 0.0571")
    assert "the same first choice at 94.1% of tokens, perplexity 21.4 to 22.9." in found
