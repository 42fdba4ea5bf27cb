"""Every number a run records: what it measures, between whom, in which unit, and what a high value means.

A metric is declared here before it is logged; the docs' table and the report's titles come from here. Means carry a
standard error beside them. Evaluation on held-out prompts uses the same keys behind `eval/`.
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Metric:
    """One declared number."""

    key: str
    title: str
    unit: str
    meaning: str
    high: str = ""


HELD_OUT = "eval/"
"""Before the key of a number that was measured on held-out prompts."""

_ALL = (
    Metric("reward/proxy", "Reward", "reward", "Weighted sum of the reward functions, mean over scored sequences, before shaping.", "the proxy is pleased; read it beside the KL"),
    Metric("reward/shaped", "Shaped reward", "reward", "What the policy is trained on: after rescaling, clipping and penalties."),
    Metric("reward/gold", "Gold reward", "reward", "A reward that is measured and never optimised.", "if it falls while the proxy rises, the proxy is being exploited"),
    Metric("reward/sd", "Spread of rewards", "reward", "Standard deviation over all scored sequences of a step, prompts mixed; logged by other trainers.", "low: nothing to learn from"),
    Metric("reward/flat_groups", "Prompts without a difference", "share", "Prompts whose samples all got the same reward; logged by other trainers.", "nothing to learn from"),
    Metric("reward/unscored_share", "Without a score", "share", "Sequences that a reward function gave None; they take no part in the update."),
    Metric("reward/clipped_share", "Clipped rewards", "share", "Sequences whose reward was outside `reward.clip`."),
    Metric("reward/group_sd", "Spread within a group", "reward", "Standard deviation among the samples of a prompt, mean over prompts.", "low: nothing to learn from"),
    Metric("kl/exact_per_sequence", "KL to the reference", "nats per sequence", "KL(policy ‖ reference), exact over the vocabulary at each visited prefix, summed over a reply, mean over replies.", "the policy has moved far"),
    Metric("kl/exact_per_token", "KL per token", "nats per token", "The same, total over all replies divided by their tokens: it does not fall when replies get shorter."),
    Metric("kl/k1_per_sequence", "k1 per sequence", "nats per sequence", "Sampled log-ratio policy / reference, summed over a reply. Noisy; clearly negative means that sampler and scorer differ."),
    Metric("kl/k1_per_token", "k1 per token", "nats per token", "The same per token."),
    Metric("kl/forward_per_token", "Forward KL per token", "nats per token", "KL(reference ‖ policy) at the prefixes that the policy visited; not the sequence's forward KL."),
    Metric("kl/k3_per_token", "k3 per token", "nats per token", "Mean of exp(d) - 1 - d with d = log reference - log policy of the drawn token: an estimate of KL(policy ‖ reference) that is never negative; logged by other trainers.", "the policy has moved far"),
    Metric("kl/k3_per_sequence", "k3 per sequence", "nats per sequence", "The same, summed over a reply; logged by other trainers.", "the policy has moved far"),
    Metric("kl/k2_per_token", "k2 per token", "nats per token", "Mean of half the squared log-ratio policy / reference of the drawn token: biased, close to the KL while it is small; logged by other trainers.", "the policy has moved far"),
    Metric("kl/unstated_per_token", "KL per token, estimator not stated", "nats per token", "KL(policy ‖ reference) by an estimator that the log does not name; logged by other trainers.", "the policy has moved far"),
    Metric("kl/unstated_per_sequence", "KL per sequence, estimator not stated", "nats per sequence", "The same, summed over a reply; logged by other trainers.", "the policy has moved far"),
    Metric("kl/sequence_p90", "KL, 90 % quantile", "nats per sequence", "Nine replies of ten drift less than this."),
    Metric("kl/token_p95", "Token KL, 95 % quantile", "nats per token", "KL(policy ‖ reference) of a single position."),
    Metric("kl/token_p99", "Token KL, 99 % quantile", "nats per token", "KL(policy ‖ reference) of a single position."),
    Metric("kl/token_max", "Token KL, largest", "nats per token", "KL(policy ‖ reference) of a single position."),
    Metric("kl/class_stop", "KL on stop tokens", "nats per sequence", "Part of the KL per sequence that falls on positions where a stop token was drawn."),
    Metric("kl/class_special", "KL on special tokens", "nats per sequence", "The part on template and other special tokens."),
    Metric("kl/class_whitespace", "KL on white space", "nats per sequence", "The part on white space."),
    Metric("kl/class_digit", "KL on digits", "nats per sequence", "The part on numbers."),
    Metric("kl/class_punctuation", "KL on punctuation", "nats per sequence", "The part on punctuation."),
    Metric("kl/class_word", "KL on words", "nats per sequence", "The part on words."),
    Metric("kl/original_per_sequence", "KL to the original", "nats per sequence", "With a moving reference: KL(policy ‖ where training started)."),
    Metric("entropy/per_token", "Entropy", "nats per token", "Of the policy's next-token distribution, mean over positions.", "more varied; a fall towards 0 is a collapse"),
    Metric("length/mean", "Length", "tokens", "Tokens of a reply, stop token included."),
    Metric("length/stop_rate", "Stop rate", "share", "Replies that ended by themselves rather than at the limit."),
    Metric("text/distinct_2", "Distinct bigrams", "share", "Different token bigrams over all bigrams of the step's replies.", "more varied"),
    Metric("text/repeated_4gram", "Repeated 4-grams", "share", "Token 4-grams that already occurred in the same reply.", "loops"),
    Metric("text/perplexity", "Perplexity", "", "exp of the SFT loss."),
    Metric("loss/policy", "Policy loss", "reward", "Value of the policy-gradient surrogate; its size says little."),
    Metric("loss/total", "Loss", "", "All that is minimised, as another trainer logs it; its size says little."),
    Metric("loss/kl", "KL loss", "reward", "beta times the penalty."),
    Metric("loss/pretraining", "Loss on the pretraining mix", "nats per token", "Minus the log-probability of a token of the text that is learned beside the reward, before the update.", "the skill outside the reward is fading"),
    Metric("loss/preference", "Preference loss", "", "DPO's loss, or Bradley-Terry's for a reward model, mean over comparisons; log 2 = 0.693 at the start."),
    Metric("loss/sft", "SFT loss", "nats per token", "Minus the log-probability of a token of a demonstrated completion."),
    Metric("preference/accuracy", "Accuracy", "share", "Comparisons whose chosen side has the larger log-ratio (DPO) or score (reward model); equal ones count half, ties (strength 0) not at all."),
    Metric("preference/margin", "Margin", "reward", "Chosen minus rejected: beta times the log-ratios (DPO), or scores (reward model)."),
    Metric("preference/chosen_logprob", "Log-probability of chosen", "nats per sequence", "Of the chosen completion under the policy.", "likelier"),
    Metric("preference/rejected_logprob", "Log-probability of rejected", "nats per sequence", "Of the rejected completion under the policy.", "likelier"),
    Metric("preference/chosen_drift", "Drift of chosen", "nats per sequence", "log policy - log reference of the chosen completion: a log-ratio on given text, not a KL.", "below 0 together with the rejected one's: the policy forgets both"),
    Metric("preference/rejected_drift", "Drift of rejected", "nats per sequence", "log policy - log reference of the rejected completion: a log-ratio on given text, not a KL."),
    Metric("preference/chosen_score", "Score of chosen", "reward", "Of the chosen completions, mean over the reward model's members."),
    Metric("preference/rejected_score", "Score of rejected", "reward", "Of the rejected completions, mean over the reward model's members."),
    Metric("preference/agreement", "Agreement of members", "share", "Pairs of members of a reward ensemble that prefer the same side."),
    Metric("judge/asked", "Questions to the judge", "count", "Comparisons asked for since the run was started or resumed, each in both orders."),
    Metric("judge/unread", "Questions without a verdict", "count", "Answers that were no verdict, or never came; their samples have no score."),
    Metric("judge/both_orders_agree", "Both orders agree", "share", "Questions that the judge answered alike in both orders; the others are ties.", "low: it follows the position, not the answers"),
    Metric("judge/cost", "Cost of the judge", "", "In the currency of the prices given, since the run was started or resumed."),
    Metric("critic/loss", "Critic's loss", "reward squared", "Half the squared error of the values, clipped as PPO has it, mean over tokens and updates."),
    Metric("critic/clip_fraction", "Critic's clip fraction", "share", "Tokens whose value moved further than the critic's epsilon."),
    Metric("critic/explained_variance", "Explained variance", "share", "1 - Var(return - value) / Var(return) when the samples were drawn: 1 for a perfect critic, 0 for a constant."),
    Metric("critic/grad_norm", "Critic's gradient norm", "", "Before clipping, mean over the step's updates."),
    Metric("ratio/clip_fraction", "Clip fraction", "share", "Sequences (RLOO) or tokens (GRPO, PPO) whose gradient the clip cut."),
    Metric("ratio/max", "Largest ratio", "ratio", "Policy / behavior, per sequence (RLOO) or token (GRPO, PPO)."),
    Metric("ratio/truncated_share", "Truncated weights", "share", "Prefixes whose importance weight was cut at `max_weight`: a biased penalty."),
    Metric("update/kl_per_token", "KL of the update per token", "nats per token", "Between the policy that drew the samples and the one after updates on them, not to the reference; logged by other trainers.", "large steps"),
    Metric("update/kl_per_sequence", "KL of the update per sequence", "nats per sequence", "The same, summed over a reply; logged by other trainers.", "large steps"),
    Metric("sampler/kl_per_token", "KL of the sampler per token", "nats per token", "Between the sampler's probabilities and the scorer's for the same weights, not to the reference; logged by other trainers.", "sampler and scorer are not the same model"),
    Metric("sampler/mismatch_mean", "Sampler mismatch", "nats per token", "Mean of |sampler's - scorer's log-probability| of the drawn token."),
    Metric("sampler/mismatch_p99", "Sampler mismatch, 99 %", "nats per token", "Its 99 % quantile.", "sampler and scorer are not the same model"),
    Metric("control/beta", "beta", "reward per nat", "Price of drift in this step.", "a short leash"),
    Metric("control/target", "Target", "nats per sequence or token", "What the controller holds at this step."),
    Metric("control/saturated", "Saturated updates", "count", "Updates so far in which beta was at a bound."),
    Metric("optim/learning_rate", "Learning rate", "", "Of this step."),
    Metric("optim/grad_norm", "Gradient norm", "", "Before clipping, mean over the step's updates."),
    Metric("time/rollout", "Sampling", "seconds", "Wall time."),
    Metric("time/reward", "Rewards", "seconds", "Wall time."),
    Metric("time/score", "Scoring", "seconds", "Wall time of the reference's pass, and the behavior's where there is one."),
    Metric("time/update", "Update", "seconds", "Wall time of forward, backward and optimiser."),
    Metric("time/total", "Step", "seconds", "Wall time of the whole step, evaluation and checkpoint apart."),
    Metric("throughput/tokens_per_second", "Throughput", "tokens per second", "Response tokens sampled and trained on, over the step's wall time."),
)  # fmt: skip

METRICS: dict[str, Metric] = {metric.key: metric for metric in _ALL}


FUNCTION_PREFIX = "reward/function/"
"""Where there are several reward functions, each one's own mean is recorded behind this, by its name."""


def lookup(key: str) -> Metric:
    """The declaration of a key, with or without `HELD_OUT`; KeyError if it was never declared."""
    key = key.removeprefix(HELD_OUT)
    if key.startswith(FUNCTION_PREFIX):
        name = key.removeprefix(FUNCTION_PREFIX)
        return Metric(key, f"Reward of {name}", "reward", f"Mean of the function {name} alone, unweighted.")
    return METRICS[key]
