"""What a gauge measures, as plain data: replies, estimates with their intervals, and the whole result.

Every KL is in nats and exact over the vocabulary at each position. `reverse` is KL(tuned ‖ reference) on replies of the
tuned model, `forward` is KL(reference ‖ tuned) on replies of the reference: what forgetting tracks. Entropies are in
nats per token, lengths in tokens, the stop token included. A number that could not be measured is NaN, null in JSON.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, fields, is_dataclass
from typing import Any, Literal

SCHEMA_VERSION = 1

DirectionName = Literal["reverse", "forward"]
ModelKind = Literal["model", "adapter", "gguf", "run", "memory"]


@dataclass(frozen=True)
class Estimate:
    """A mean with its 95 % interval: a bootstrap that draws whole prompts, so that their samples stay together."""

    value: float
    low: float
    high: float
    count: int
    """What was averaged: replies for numbers per sequence, tokens for numbers per token."""
    prompts: int
    """Independent clusters behind them: prompts, or texts of a corpus."""

    @property
    def half_width(self) -> float:
        """Half the interval: what is printed after ±."""
        return (self.high - self.low) / 2


@dataclass(frozen=True)
class Distribution:
    """A mean with its interval, and the quantiles by linear interpolation."""

    mean: Estimate
    median: float
    q90: float
    q95: float
    q99: float
    q999: float
    maximum: float


@dataclass(frozen=True)
class Reply:
    """One reply with the KL of the direction it was drawn for, token by token."""

    prompt_index: int
    sample_index: int
    category: str
    prompt: str
    """As the models read it, chat template included."""
    text: str
    tokens: tuple[str, ...]
    token_kl: tuple[float, ...]
    kl: float
    """Nats per sequence: the sum of `token_kl`."""
    entropy: float
    """Of the model that wrote it, mean per token."""
    other_entropy: float
    """Of the other model at the same positions."""
    stopped: bool
    """False where the length limit cut it."""
    token_classes: tuple[str, ...]
    loops: bool
    """It was cut while it went on repeating itself."""


@dataclass(frozen=True)
class TokenDrift:
    """All positions at which one token was written."""

    token: str
    token_class: str
    count: int
    mean_kl: float
    share: float
    """Of the direction's whole KL."""


@dataclass(frozen=True)
class PromptDrift:
    """One prompt, its samples averaged."""

    prompt_index: int
    category: str
    prompt: str
    kl: float
    samples: int


@dataclass(frozen=True)
class Direction:
    """Replies of one model, scored by both: one direction of the KL."""

    name: DirectionName
    sampled_from: str
    per_sequence: Distribution
    """Over replies, nats per sequence."""
    per_token: Estimate
    """Sum of nats over sum of tokens."""
    by_category: dict[str, Estimate]
    """Nats per sequence; most drifted first."""
    position_edges: tuple[int, ...]
    """Bin i of `by_position` holds the 0-based positions edge i <= t < edge i + 1."""
    by_position: tuple[Estimate, ...]
    """Nats per token that reaches the bin."""
    by_class: dict[str, Estimate]
    """Nats per token of the class of `kleash.ops.text.token_class`; most drifted first."""
    length: Estimate
    entropy: Estimate
    other_entropy: Estimate
    distinct_2: float
    repeated_4gram: float
    cut_share: float
    loop_share: float
    replies: tuple[Reply, ...]
    worst_tokens: tuple[TokenDrift, ...]
    worst_prompts: tuple[PromptDrift, ...]


@dataclass(frozen=True)
class Corpus:
    """Both models on given text, teacher-forced: neither direction of a sequence KL, for neither model wrote it."""

    texts: int
    tokens: int
    reverse_per_token: Distribution
    forward_per_token: Distribution
    reference_perplexity: Estimate
    tuned_perplexity: Estimate
    top1_agreement: Estimate
    """Share of tokens at which both models prefer the same next token."""
    probability_change: Distribution
    """Probability of the true token, tuned minus reference."""


@dataclass(frozen=True)
class Scale:
    """What rounding the reference's own weights costs on the same prompts: KL(rounded ‖ reference), nats per sequence.

    None where it was not measured, for example bfloat16 rounding of a model that is measured in bfloat16.
    """

    bf16_reverse: Estimate | None
    int4_reverse: Estimate | None


@dataclass(frozen=True)
class Score:
    """A task score of both models; intervals pair the two by prompt where the scores are ours."""

    name: str
    reference: Estimate
    tuned: Estimate
    difference: Estimate


@dataclass(frozen=True)
class ModelFacts:
    """Which weights a number was measured on."""

    name: str
    """As given."""
    kind: ModelKind
    description: str
    """In words, for example that GGUF weights were dequantised."""
    dtype: str
    parameters: int
    vocabulary: int
    """Rows of its output layer, padding rows included."""
    fingerprint: str
    """SHA-256 of its weights, hex."""


@dataclass(frozen=True)
class Gauge:
    """How far `tuned` has moved from `reference`."""

    reference: ModelFacts
    tuned: ModelFacts
    reverse: Direction | None
    forward: Direction | None
    corpus: Corpus | None
    scale: Scale | None
    scores: tuple[Score, ...]
    settings: dict[str, Any]
    partial: bool
    """The measurement was interrupted: what is here was finished before."""
    notes: tuple[str, ...]
    verdict: str

    def to_dict(self) -> dict[str, Any]:
        """The result in JSON's types, `schema_version` first; NaN and infinity become None."""
        return {"schema_version": SCHEMA_VERSION, **_plain(self)}

    def to_frame(self) -> Any:
        """A pandas data frame, one row a reply of either direction.

        Raises:
            ImportError: pandas is not installed: `pip install 'kleash[data]'`.
        """
        import pandas

        return pandas.DataFrame(
            [
                {
                    "direction": direction.name,
                    "prompt_index": reply.prompt_index,
                    "sample_index": reply.sample_index,
                    "category": reply.category,
                    "prompt": reply.prompt,
                    "text": reply.text,
                    "tokens": len(reply.tokens),
                    "kl": reply.kl,
                    "entropy": reply.entropy,
                    "other_entropy": reply.other_entropy,
                    "stopped": reply.stopped,
                    "loops": reply.loops,
                }
                for direction in (self.reverse, self.forward)
                if direction is not None
                for reply in direction.replies
            ]
        )


def _plain(value: Any) -> Any:
    if is_dataclass(value):
        return {field.name: _plain(getattr(value, field.name)) for field in fields(value)}
    if isinstance(value, dict):
        return {str(key): _plain(entry) for key, entry in value.items()}
    if isinstance(value, list | tuple):
        return [_plain(entry) for entry in value]
    if isinstance(value, float) and not math.isfinite(value):
        return None
    return value
