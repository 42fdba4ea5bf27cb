import html
import re

import pytest

from kleash.report.run_summary import controlled_key, summary
from kleash.runs.reader import RunReader
from kleash.runs.records import Step
from kleash.runs.writer import RunWriter

NAN = float("nan")
PER_TOKEN = {"algorithm": {"kl": {"target_nats_per_sequence": None, "target_nats_per_token": 0.1}}}


def said(tmp_path, steps, config=None):
    """Return the headline of a run with these steps, as plain text."""
    with RunWriter.create(tmp_path / "run", config or {}, {}) as writer:
        for step in steps:
            writer.write_step(step)
    with RunReader(tmp_path / "run") as reader:
        first = re.search(r'<p class="headline">(.*?)</p>', summary(reader))[1]
    return html.unescape(re.sub("<[^>]+>", "", first)).replace("\u202f", " ")


def reward(step, value, error=None, key="reward/proxy"):
    return Step(step, {key: value}, {} if error is None else {key: error})


def kl(value, error, target):
    key = "kl/exact_per_sequence"
    return Step(1, {key: value, "control/target": target}, {key: error})


def test_a_gain_is_told_with_its_errors(tmp_path):
    text = said(tmp_path, [reward(0, 0.2, 0.04), reward(9, 0.66, 0.03)])
    assert text.startswith("Mean reward on training prompts rose from 0.200 ± 0.040 to 0.660 ± 0.030 by step 9.")


def test_held_out_prompts_come_first(tmp_path):
    steps = [
        reward(0, 0.5, 0.01, "eval/reward/proxy"),
        reward(1, 9.0),
        reward(2, 0.1, 0.01, "eval/reward/proxy"),
    ]
    assert said(tmp_path, steps).startswith("Mean reward on held-out prompts fell from 0.500 ± 0.010 to 0.100")


def test_noise_is_not_called_a_gain(tmp_path):
    text = said(tmp_path, [reward(0, 0.2, 0.1), reward(9, 0.3, 0.1)])
    assert "went from 0.20 ± 0.10 to 0.30 ± 0.10, within two standard errors of no change." in text


def test_one_step_is_not_compared(tmp_path):
    assert "is 0.200 ± 0.010 at step 1, with nothing yet to compare it to." in said(tmp_path, [reward(1, 0.2, 0.01)])


def test_a_broken_reward_is_not_compared(tmp_path):
    text = said(tmp_path, [reward(1, 0.2, 0.1), reward(2, NAN)])
    assert "went from 0.20 ± 0.10 to nan, which cannot be compared." in text


@pytest.mark.parametrize(
    ("value", "words"),
    [
        (6.3, "5 % above the target of 6 and within the ±25 % band."),
        (4.2, "30 % below the target of 6 and outside the ±25 % band."),
        (6.01, "at the target of 6 and within the ±25 % band."),
    ],
)
def test_drift_is_held_against_its_target(tmp_path, value, words):
    text = said(tmp_path, [kl(value, 0.35, 6.0)])
    assert f"The policy is {value:.2f} ± 0.35 nats per sequence from its reference, {words}" in text


def test_a_broken_kl_is_not_compared(tmp_path):
    text = said(tmp_path, [kl(NAN, 0.1, 6.0)])
    assert "The policy is nan ± 0.100 nats per sequence from its reference: the number broke at step 1" in text


def test_without_a_target_that_is_said(tmp_path):
    assert "2.00 ± 0.50 nats per sequence from its reference; no target was set." in said(
        tmp_path, [kl(2.0, 0.5, None)]
    )


def test_a_target_per_token_is_held_against_the_kl_per_token(tmp_path):
    step = Step(1, {"kl/exact_per_token": 0.11, "kl/exact_per_sequence": 50.0, "control/target": 0.1})
    assert "0.110 nats per token from its reference, 10 % above the target" in said(tmp_path, [step], PER_TOKEN)


def test_the_scope_of_the_target_is_found_at_any_depth():
    assert controlled_key(PER_TOKEN) == "kl/exact_per_token"
    assert controlled_key({"kl": {"target_nats_per_sequence": 6.0}}) == "kl/exact_per_sequence"


def test_a_run_without_steps_says_so(tmp_path):
    assert said(tmp_path, []) == "No step has been recorded yet."
