"""Which estimator, scope and placement of the KL penalty follow a KL's gradient, and why the others are refused.

A penalty is estimator x scope x placement:

* estimator: `exact` (full vocabulary at each visited prefix), `k1`, `k2`, `k3` (sampled token only).
* scope: `sequence` (a token also pays for the drift it causes later: the true gradient of the sequence KL) or
  `token` (each position's KL alone, holding the prefixes fixed: a partial gradient, which must be asked for).
* placement: `loss` (differentiated) or `reward` (a number that the score function multiplies).

Derivations: Schulman 2020 (the estimators); Tang and Munos, arXiv 2506.09477, and Liu et al., arXiv 2510.01555
(what their gradients are). Every line of the table is tested against exact enumeration.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from kleash.errors import ConfigError, near_match

Estimator = Literal["exact", "k1", "k2", "k3"]
Scope = Literal["sequence", "token"]
Placement = Literal["loss", "reward"]


@dataclass(frozen=True)
class Penalty:
    """One allowed way to charge for drift, with the gradient it really has."""

    estimator: Estimator
    scope: Scope
    placement: Placement
    gradient: str
    on_policy_only: bool = False

    @property
    def names(self) -> tuple[str, str, str]:
        """Estimator, scope and placement."""
        return (self.estimator, self.scope, self.placement)


ALLOWED = (
    Penalty("exact", "sequence", "loss", "the gradient of KL(policy ‖ reference) per sequence, on- and off-policy"),
    Penalty(
        "exact",
        "token",
        "loss",
        "a partial gradient: each position's reverse KL with its prefix held fixed",
        on_policy_only=True,
    ),
    Penalty("k1", "sequence", "reward", "the gradient of KL(policy ‖ reference) per sequence, with more variance"),
    Penalty(
        "k2",
        "token",
        "loss",
        "a partial gradient: each position's reverse KL with its prefix held fixed, from one sampled token",
        on_policy_only=True,
    ),
    Penalty(
        "k3",
        "token",
        "loss",
        "a partial gradient of the *forward* KL(reference ‖ policy) at each position, as GRPO has it",
        on_policy_only=True,
    ),
)

RESEARCH_ONLY = (
    Penalty("k1", "token", "loss", "zero in expectation: noise that holds nothing", on_policy_only=True),
    Penalty(
        "k3",
        "sequence",
        "reward",
        "that of KL(policy ‖ reference) per sequence minus that of each position's *forward* KL(reference ‖ policy): "
        "it can push away from the reference",
    ),
)
"""Refused, too, but implemented, so that what they do can be seen."""

REFUSED: dict[tuple[str, str, str], str] = {
    ("k1", "token", "loss"): (
        "the expected gradient of k1 as a loss is zero: it adds noise and holds nothing. "
        "Use k1 in the reward, or exact in the loss"
    ),
    ("k1", "sequence", "loss"): (
        "the expected gradient of k1 as a loss is zero: it adds noise and holds nothing. "
        "Use k1 in the reward, or exact in the loss"
    ),
    ("k1", "token", "reward"): (
        "k1 paid only at its own token leaves out the drift a token causes later. "
        "Use scope = 'sequence', which sums what follows"
    ),
    ("exact", "sequence", "reward"): (
        "as a reward the exact KL of a position does not depend on the token sampled there, "
        "so the direct gradient is lost and only the future part is left. Use placement = 'loss'"
    ),
    ("exact", "token", "reward"): (
        "as a reward the exact KL of a position does not depend on the token sampled there, "
        "so nothing is left of its gradient. Use placement = 'loss'"
    ),
    ("k2", "sequence", "loss"): (
        "k2 of the whole sequence's log-ratio does follow the KL's gradient, but with a variance that grows "
        "with the square of the KL. Use exact, which has the same gradient and little noise"
    ),
    ("k2", "sequence", "reward"): (
        "k2 in the reward follows the gradient of another quantity, E[k2]. Use k1 in the reward"
    ),
    ("k2", "token", "reward"): (
        "k2 in the reward follows the gradient of another quantity, E[k2]. Use k1 in the reward"
    ),
    ("k3", "sequence", "loss"): (
        "k3 of the whole sequence's ratio follows the gradient of the forward KL(reference ‖ policy), with "
        "the variance of a product of ratios. Use exact"
    ),
    ("k3", "sequence", "reward"): (
        "k3 in the reward is KL(policy ‖ reference) minus KL(reference ‖ policy) in gradient: it can push away "
        "from the reference. Use k1 in the reward"
    ),
    ("k3", "token", "reward"): (
        "k3 in the reward is KL(policy ‖ reference) minus KL(reference ‖ policy) in gradient: it can push away "
        "from the reference. Use k1 in the reward"
    ),
}

ELSEWHERE = {
    "kl": "k1",
    "mse": "k2",
    "low_var_kl": "k3",
    "full": "exact",
    "schulman": "k3",
    "rao_blackwell": "exact",
}
"""Names that other trainers use for the same estimators; they are translated in the message, never accepted."""


def penalty(estimator: str, scope: str, placement: str, *, research_only: bool = False) -> Penalty:
    """Return the penalty of this name, or raise a ConfigError that says whose gradient it would have had.

    With `research_only` the names are those of `RESEARCH_ONLY`, and no others.
    """
    if estimator == "abs":
        raise ConfigError(
            "estimator = 'abs' is refused: the gradient of |log ratio| is not a KL's; near the reference it is "
            "an order of magnitude too large. Use 'exact'"
        )
    if estimator in ELSEWHERE:
        raise ConfigError(f"estimator = '{estimator}' is called '{ELSEWHERE[estimator]}' here")
    if estimator not in ("exact", "k1", "k2", "k3"):
        raise ConfigError(
            f"estimator = '{estimator}' is unknown. Choose one of exact, k1, k2, k3."
            + near_match(estimator, ("exact", "k1", "k2", "k3"))
        )
    names = (estimator, scope, placement)
    allowed, research = ({one.names: one for one in known} for known in (ALLOWED, RESEARCH_ONLY))
    if names in allowed and not research_only:
        return allowed[names]
    if names in research and research_only:
        return research[names]
    if names in allowed:
        raise ConfigError(
            f"research_only = true lets refused penalties run, and estimator = '{estimator}', scope = '{scope}', "
            f"placement = '{placement}' is none. Leave research_only out"
        )
    reason = REFUSED.get(names)
    if reason is None:
        raise ConfigError(
            f"scope = '{scope}' with placement = '{placement}' is unknown. "
            "scope is 'sequence' or 'token'; placement is 'loss' or 'reward'"
        )
    see = "; to see what it does, research_only = true lets it run" if names in research else ""
    if research_only:
        see = f"; research_only = true lets only {' and '.join(map(_spelled, research))} run"
    raise ConfigError(
        f"estimator = '{estimator}', scope = '{scope}', placement = '{placement}' is refused: {reason}{see}"
    )


def _spelled(names: tuple[str, str, str]) -> str:
    return "'{}' with scope '{}' in the {}".format(*names)
