import html
import re

import pytest

from kleash.report.run_page import render_report
from kleash.runs.reader import RunReader
from kleash.runs.records import Sample, Step
from kleash.runs.writer import RunWriter

HEALTH = {
    "comparisons": 43,
    "ties": 3,
    "accuracy": {"value": 0.75, "low": 0.6, "high": 0.86},
    "accuracy_by_member": [{"value": 0.75, "low": 0.6, "high": 0.86}],
    "agreement": None,
    "member_sd": None,
    "calibration": [{"stated": 0.6, "observed": 0.5, "low": 0.3, "high": 0.7, "count": 40}],
    "margins": [0.123456789, 2.0],
    "scores": [0.0, 1.0],
    "length_correlation": None,
    "longer_wins": None,
    "odd_answers": {
        kind: {"mean": mean, "stderr": 0.1}
        for kind, mean in {"chosen": 1.0, "rejected": 0.0, "empty": 3.0, "repeated": 0.0, "truncated": 0.0}.items()
    },
    "tail_index": None,
}


class Page:
    """A rendered report: its headline, its charts' names and all its text."""

    def __init__(self, source):
        self.source = source
        self.headline = plain(re.search(r'<p class="headline">(.*?)</p>', source)[1])
        self.charts = [plain(name) for name in re.findall(r'<span class="name">(.*?)</span>', source)]
        self.sections = [plain(name) for name in re.findall(r"<h2>(.*?)</h2>", source)]
        self.text = plain(source)

    def chart(self, name):
        (found,) = [plain(part) for part in self.source.split("<figure")[1:] if f">{html.escape(name)}</span>" in part]
        return found


def plain(source):
    return html.unescape(re.sub("<[^>]+>", "", source)).replace("\u202f", " ")


def page(folder, algorithm, steps, samples=(), meta=None):
    with RunWriter.create(folder / "run", {"algorithm": {"type": algorithm}}, meta or {}) as writer:
        for step in steps:
            writer.write_step(step)
        writer.write_samples(samples)
    with RunReader(folder / "run") as reader:
        return Page(render_report(reader))


def behind_eval(metrics):
    return {f"eval/{key}": value for key, value in metrics.items()}


def dpo_steps(chosen=1.0, rejected=-2.0):
    def of(scale):
        return {
            "loss/preference": 0.7 - 0.1 * scale,
            "preference/accuracy": 0.5 + 0.1 * scale,
            "preference/margin": 0.1 * scale,
            "preference/chosen_drift": chosen * scale,
            "preference/rejected_drift": rejected * scale,
        }

    def sampled(scale):
        reward = {"reward/proxy": 0.2 + 0.1 * scale, "reward/gold": 0.5 - 0.1 * scale}
        drift = {"kl/exact_per_sequence": 2.0 * scale, "entropy/per_token": 3.0, "length/mean": 9.0}
        return behind_eval(of(scale) | reward | drift | {"kl/class_word": scale, "kl/token_max": scale})

    errors = {f"eval/{key}": 0.01 for key in ("preference/accuracy", "reward/proxy", "reward/gold")}
    errors["eval/kl/exact_per_sequence"] = 0.25
    return [
        Step(0, of(0) | sampled(0) | {"time/total": 1.0}, errors),
        Step(1, of(1) | {"time/total": 1.0}),
        Step(2, sampled(2), errors),
    ]


def test_a_dpo_run_says_what_it_learned_and_what_that_cost(tmp_path):
    assert page(tmp_path, "dpo", dpo_steps()).headline == (
        "Accuracy on held-out comparisons rose from 0.500 ± 0.010 to 0.700 ± 0.010 by step 2. "
        "Mean reward on sampled replies rose from 0.200 ± 0.010 to 0.400 ± 0.010 by step 2. "
        "Gold reward on sampled replies fell from 0.500 ± 0.010 to 0.300 ± 0.010 by step 2. "
        "The policy is 4.00 ± 0.25 nats per sequence from its reference."
    )


def test_a_dpo_run_draws_what_it_recorded_and_nothing_else(tmp_path):
    found = page(tmp_path, "dpo", dpo_steps())
    assert found.charts == [
        "Preference loss",
        "Accuracy: chosen above rejected",
        "Margin: beta × difference of the log-ratios",
        "log π − log π_ref of both texts",
        "KL to the reference, per sequence",
        "Reward on held-out prompts",
        "Entropy of the next token",
        "Reply length",
        "KL on words, held out",
        "The tokens that drift most",
        "Step",
    ]
    assert "Not recorded in this run." not in found.text


def test_both_drifts_share_a_chart(tmp_path):
    chart = page(tmp_path, "dpo", dpo_steps()).chart("log π − log π_ref of both texts")
    for label in ("chosen", "rejected", "chosen, held out", "rejected, held out"):
        assert f"{label}: from" in chart
    assert "Both are below 0" not in chart


def test_that_both_texts_become_less_likely_is_said(tmp_path):
    chart = page(tmp_path, "dpo", dpo_steps(chosen=-1.0)).chart("log π − log π_ref of both texts")
    assert "Both are below 0: the policy forgets the chosen text too" in chart


def test_a_dpo_run_shows_samples_without_a_reward_where_none_was_measured(tmp_path):
    samples = [
        Sample(step, split, 0, 0, "Say", text, (text,), (0.5,), None, None, 0.5, True)
        for step, split, text in ((0, "before", " dull"), (2, "after", " great"))
    ]
    found = page(tmp_path, "dpo", dpo_steps(), samples)
    assert "Samples" in found.sections
    assert "KL of each reply after training" in found.charts
    assert "AfterKL 0.500 nats1 tokens great" in found.text.replace("\n", "")


def test_an_unfinished_run_shows_the_replies_of_its_last_evaluation(tmp_path):
    before = Sample(0, "before", 0, 0, "Say", " dull", (" dull",), (0.5,), None, None, 0.5, True)
    between = Sample(1, "eval", 0, 0, "Say", " better", (" better",), (0.5,), None, None, 0.5, True)
    found = page(tmp_path, "dpo", dpo_steps(), [before, between])
    assert "Replies of step 1;" in found.text
    assert " better" in found.text
    assert " dull" not in found.text


def sft_steps():
    evaluated = {"eval/text/perplexity": 8.0, "eval/kl/exact_per_sequence": 3.0, "eval/kl/exact_per_token": 0.25}
    return [
        Step(0, {"loss/sft": 3.0, "eval/loss/sft": 3.25, "time/total": 1.0}),
        Step(1, {"loss/sft": 2.0, "eval/loss/sft": 2.25, "time/total": 1.0} | evaluated),
    ]


def test_an_sft_run_is_about_its_loss(tmp_path):
    found = page(tmp_path, "sft", sft_steps())
    assert found.headline == (
        "Loss per token on held-out demonstrations fell from 3.25 to 2.25 by step 1. "
        "The policy is 3 nats per sequence from its reference."
    )
    assert found.charts[:4] == [
        "Loss of a demonstrated token",
        "Perplexity",
        "KL to the reference, per sequence",
        "KL to the reference, per token",
    ]
    assert "Not recorded in this run." not in found.text


def reward_model_steps():
    metrics = {"loss/preference": 0.6, "preference/accuracy": 0.5, "preference/margin": 0.25}
    scores = {"preference/chosen_score": 0.5, "preference/rejected_score": 0.25}
    return [Step(step, metrics | scores | behind_eval(metrics | scores) | {"time/total": 1.0}) for step in (0, 1)]


def test_a_reward_model_says_how_often_it_is_right_and_where_its_hole_is(tmp_path):
    found = page(tmp_path, "reward_model", reward_model_steps(), meta={"reward_health": HEALTH})
    assert found.headline == (
        "Accuracy on 40 held-out comparisons (3 ties left out) is 0.75 [0.60, 0.86]. "
        "It has a hole: empty answers score above the chosen ones."
    )
    assert found.sections == [
        "Learning", "Can its odds be believed", "Can it be fooled", "Events", "Time", "Numbers and settings",
    ]  # fmt: skip
    assert "Scores of both texts" in found.charts
    assert "How often it is right, by what it states" in found.charts
    assert "0.123456789" not in found.text


@pytest.mark.parametrize(
    ("interval", "ending"),
    [((0.4, 0.7), "which cannot be told from a coin."), ((0.51, 0.7), "is 0.550 [0.510, 0.700].")],
)
def test_an_accuracy_around_a_half_is_called_a_coin(tmp_path, interval, ending):
    low, high = interval
    report = HEALTH | {"accuracy": {"value": 0.55, "low": low, "high": high}}
    headline = page(tmp_path, "reward_model", reward_model_steps(), meta={"reward_health": report}).headline
    assert ending in headline


def test_a_reward_model_that_has_not_ended_has_no_health(tmp_path):
    found = page(tmp_path, "reward_model", reward_model_steps())
    assert found.headline == (
        "Accuracy on held-out comparisons went from 0.500 to 0.500, within two standard errors of no change."
    )
    assert found.sections == ["Learning", "Events", "Time", "Numbers and settings"]


def test_ppo_draws_its_critic_and_the_pretraining_mix(tmp_path):
    metrics = {
        "reward/proxy": 0.5,
        "critic/explained_variance": 0.25,
        "critic/loss": 0.125,
        "critic/clip_fraction": 0.0625,
        "loss/pretraining": 2.0,
    }
    found = page(tmp_path, "ppo", [Step(step, metrics) for step in (0, 1)])
    assert found.sections[:3] == ["Reward and drift", "Critic", "Pretraining mix"]
    assert found.charts == [
        "Reward on training prompts",
        "Explained variance",
        "Critic's loss",
        "Values that the clip held back",
        "Loss on the mixed-in text",
    ]


def test_gold_stands_beside_the_proxy(tmp_path):
    steps = [
        Step(step, {"reward/proxy": proxy, "reward/gold": gold}, {"reward/proxy": 0.01, "reward/gold": 0.02})
        for step, proxy, gold in ((0, 0.2, 0.5), (1, 0.6, 0.3))
    ]
    assert page(tmp_path, "rloo", steps).headline.startswith(
        "Mean reward on training prompts rose from 0.200 ± 0.010 to 0.600 ± 0.010 by step 1. "
        "Gold reward on training prompts fell from 0.500 ± 0.020 to 0.300 ± 0.020 by step 1."
    )
