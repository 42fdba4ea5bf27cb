"""Writes toy.json: value and gradient of every penalty and policy loss on one off-policy batch of the toy.

Derived in numpy, token by token, from the formulas of the papers; neither Kleash nor autograd takes part. The
numbers may change only when a formula of Kleash changes on purpose. Run: python tests/golden/make_toy.py
"""

import json
import sys
from pathlib import Path

import numpy as np

HERE = Path(__file__).parent
sys.path.insert(0, str(HERE.parent / "exact"))

import enumeration as toy  # noqa: E402

GROUPS = [[0, 9, 14], [6, 7, 2], [14, 13, 12], [4, 10, 6]]
EPSILON_LOW, EPSILON_HIGH = 0.1, 0.15


class Row:
    """One sampled sequence, token by token."""

    def __init__(self, index):
        self.tokens, self.reward = toy.SEQUENCES[index], toy.REWARDS[index]
        self.length = len(self.tokens)
        self.prefixes = [toy.PREFIXES.index(self.tokens[:t]) for t in range(self.length)]
        policy, reference, behavior = (self.logprobs(x) for x in (toy.POLICY, toy.REFERENCE, toy.BEHAVIOR))
        self.k1 = policy - reference
        self.ratio = np.exp(policy - behavior)
        self.weight = np.cumprod(self.ratio)
        self.earlier = np.concatenate([[1.0], self.weight[:-1]])
        self.kl = toy.prefix_kl(toy.POLICY, toy.REFERENCE)[self.prefixes]

    def logprobs(self, logits):
        return np.log(toy.softmax(logits)[self.prefixes, self.tokens])

    def at(self, t, values):
        table = np.zeros((7, 3))
        table[self.prefixes[t]] = values
        return table

    def score(self, t):
        """Gradient of log p(token t)."""
        return self.at(t, np.eye(3)[self.tokens[t]] - toy.softmax(toy.POLICY)[self.prefixes[t]])

    def kl_gradient(self, t):
        return self.at(t, toy.partial_reverse_gradient(toy.POLICY, toy.REFERENCE, np.ones(7))[self.prefixes[t]])

    def history(self, t):
        """Gradient of the log-probability of the first t tokens."""
        return sum((self.score(u) for u in range(t)), np.zeros((7, 3)))


def others_mean(row, group, to_go, t):
    """Mean of the other samples of the group that reach position t; 0 where there is none."""
    reached = [to_go(other)[t] for other in group if other is not row and other.length > t]
    return np.mean(reached) if reached else 0.0


def exact_sequence(row, group):
    def future(other):
        paid = other.earlier * other.kl
        return [paid[t + 1 :].sum() for t in range(other.length)]

    gradient = np.zeros((7, 3))
    for t in range(row.length):
        gradient += row.earlier[t] * (row.kl_gradient(t) + row.kl[t] * row.history(t))
        gradient -= row.weight[t] * others_mean(row, group, future, t) * row.score(t)
    return (row.earlier * row.kl).sum(), gradient


def exact_token(row, group):
    return row.kl.sum(), sum(row.kl_gradient(t) for t in range(row.length))


def k2_token(row, group):
    return (row.k1**2 / 2).sum(), sum(row.k1[t] * row.score(t) for t in range(row.length))


def k3_token(row, group):
    inverse = np.exp(-row.k1)
    gradient = sum((1 - inverse[t]) * row.score(t) for t in range(row.length))
    return (inverse - 1 + row.k1).sum(), gradient


def k1_reward_to_go(row, group):
    def to_go(other):
        paid = other.weight * other.k1
        return [paid[t:].sum() for t in range(other.length)]

    gradient = np.zeros((7, 3))
    for t in range(row.length):
        gradient += row.weight[t] * row.k1[t] * row.history(t + 1)
        gradient -= row.weight[t] * others_mean(row, group, to_go, t) * row.score(t)
    return (row.weight * row.k1).sum(), gradient


def k1_sequence(row, group):
    baseline = np.mean([other.k1.sum() for other in group if other is not row])
    whole = row.weight[-1]
    return whole * row.k1.sum(), whole * (row.k1.sum() - baseline) * row.history(row.length)


def is_clipped(ratio, advantage, low, high):
    return (advantage > 0 and ratio > 1 + high) or (advantage < 0 and ratio < 1 - low)


def rloo(row, group):
    advantage = row.reward - np.mean([other.reward for other in group if other is not row])
    ratio = row.weight[-1]
    if is_clipped(ratio, advantage, EPSILON_LOW, EPSILON_LOW):
        return -np.clip(ratio, 1 - EPSILON_LOW, 1 + EPSILON_LOW) * advantage, np.zeros((7, 3))
    return -ratio * advantage, -ratio * advantage * row.history(row.length)


def grpo(row, group):
    rewards = np.array([other.reward for other in group])
    advantage = (row.reward - rewards.mean()) / (rewards.std(ddof=1) + 1e-4)
    value, gradient = 0.0, np.zeros((7, 3))
    for t, ratio in enumerate(row.ratio):
        if is_clipped(ratio, advantage, EPSILON_LOW, EPSILON_HIGH):
            value -= np.clip(ratio, 1 - EPSILON_LOW, 1 + EPSILON_HIGH) * advantage
        else:
            value -= ratio * advantage
            gradient -= ratio * advantage * row.score(t)
    return value, gradient


QUANTITIES = [exact_sequence, exact_token, k2_token, k3_token, k1_reward_to_go, k1_sequence, rloo, grpo]


def build():
    """The contents of toy.json: means over the rows of the batch."""
    groups = [[Row(index) for index in group] for group in GROUPS]
    rows = [(row, group) for group in groups for row in group]
    out = {"groups": GROUPS, "epsilon_low": EPSILON_LOW, "epsilon_high": EPSILON_HIGH, "mean": {}}
    for quantity in QUANTITIES:
        values, gradients = zip(*(quantity(row, group) for row, group in rows), strict=True)
        out["mean"][quantity.__name__] = {
            "value": round(float(np.mean(values)), 13),
            "gradient": np.mean(gradients, axis=0).round(13).tolist(),
        }
    return out


if __name__ == "__main__":
    (HERE / "toy.json").write_text(json.dumps(build(), indent=1) + "\n")
