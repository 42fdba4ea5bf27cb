"""The independent answer: the toy language enumerated in numpy, by recursion, without Kleash or autograd.

A model is a table of logits [7, 3]; a distribution, 15 probabilities; a gradient, a table [7, 3]. p is the
policy, q the reference. All KL in nats per sequence unless a name says otherwise.
"""

from __future__ import annotations

import numpy as np

EOS, HORIZON, VOCABULARY = 2, 3, 3


def sequences(prefix=()):
    if len(prefix) == HORIZON or (prefix and prefix[-1] == EOS):
        return [prefix]
    return [y for token in range(VOCABULARY) for y in sequences((*prefix, token))]


PREFIXES = [(), (0,), (1,), (0, 0), (0, 1), (1, 0), (1, 1)]
SEQUENCES = sequences()
LENGTHS = np.array([len(y) for y in SEQUENCES])

_i = np.arange(21.0).reshape(7, 3)
REFERENCE = 0.7 * np.sin(1.3 * _i + 0.5)
POLICY = REFERENCE + 0.9 * np.cos(0.7 * _i + 0.2)
BEHAVIOR = POLICY + 0.4 * np.sin(1.1 * _i + 0.3)
REWARDS = np.sin(2.1 * np.arange(15.0) + 0.4)


def softmax(logits):
    weights = np.exp(logits - logits.max(-1, keepdims=True))
    return weights / weights.sum(-1, keepdims=True)


def probability(logits, y):
    """Chain rule along one sequence or prefix."""
    table, total = softmax(logits), 1.0
    for t, token in enumerate(y):
        total *= table[PREFIXES.index(y[:t]), token]
    return total


def distribution(logits):
    return np.array([probability(logits, y) for y in SEQUENCES])


def occupancy(logits):
    """Probability that a sequence passes through each prefix."""
    return np.array([probability(logits, c) for c in PREFIXES])


def score(logits):
    """Gradient of log p(y) for each sequence: one-hot minus softmax at every visited prefix. [15, 7, 3]."""
    table, scores = softmax(logits), np.zeros((15, 7, 3))
    for row, y in zip(scores, SEQUENCES, strict=True):
        for t, token in enumerate(y):
            c = PREFIXES.index(y[:t])
            row[c] -= table[c]
            row[c, token] += 1.0
    return scores


# Values of distributions over sequences.


def kl(p, q):
    return float(p @ np.log(p / q))


def entropy(p):
    return float(-p @ np.log(p))


def chi2(p, q):
    return float((p - q) ** 2 @ (1 / q))


def posterior(q, beta, rewards=REWARDS):
    """The optimum of E[r] - beta KL(. || q), and log Z."""
    weights = q * np.exp(rewards / beta)
    return weights / weights.sum(), float(np.log(weights.sum()))


def objective(p, q, beta, rewards=REWARDS):
    return float(p @ rewards) - beta * kl(p, q)


# Gradients with respect to the logits of p. [7, 3]


def expectation_gradient(logits, f):
    """Gradient of E_p[f(y)] for an f that does not depend on p."""
    return np.einsum("y,ycv->cv", distribution(logits) * f, score(logits))


def reverse_kl_gradient(logits, reference):
    """Gradient of KL(p || q): sum_y p(y) log(p/q) grad log p(y)."""
    p, q = distribution(logits), distribution(reference)
    return expectation_gradient(logits, np.log(p / q))


def forward_kl_gradient(logits, reference):
    """Gradient of KL(q || p): -sum_y q(y) grad log p(y)."""
    return -np.einsum("y,ycv->cv", distribution(reference), score(logits))


# One next-token distribution at a time. [7] and [7, 3]


def prefix_kl(logits, reference):
    p, q = softmax(logits), softmax(reference)
    return (p * np.log(p / q)).sum(-1)


def partial_reverse_gradient(logits, reference, weights):
    """sum_c weights_c grad KL(p_c || q_c), the weights held fixed."""
    p, q = softmax(logits), softmax(reference)
    return weights[:, None] * p * (np.log(p / q) - prefix_kl(logits, reference)[:, None])


def partial_forward_gradient(logits, reference, weights):
    """sum_c weights_c grad KL(q_c || p_c), the weights held fixed: p - q at each prefix."""
    return weights[:, None] * (softmax(logits) - softmax(reference))


# How far a gradient is from the truth.


def relative_error(gradient, truth):
    return float(np.linalg.norm(gradient - truth) / np.linalg.norm(truth))


def cosine(gradient, truth):
    return float((gradient * truth).sum() / np.linalg.norm(gradient) / np.linalg.norm(truth))
