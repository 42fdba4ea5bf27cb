"""A gauge made up from seeds, without a model: every field filled, numbers of the size that real ones have."""

from __future__ import annotations

import random
from dataclasses import replace
from statistics import fmean, quantiles
from typing import Any

from kleash.gauge.records import (
    Corpus,
    Direction,
    Distribution,
    Estimate,
    Gauge,
    ModelFacts,
    PromptDrift,
    Reply,
    Scale,
    Score,
    TokenDrift,
)

CATEGORIES = ("story", "chat", "facts", "arithmetic", "code", "refusal", "languages")
CLASSES = ("word", "punctuation", "whitespace", "digit", "stop")
WORDS = [
    " the",
    " girl",
    " said",
    ",",
    " that",
    " it",
    " was",
    " a",
    " wonderful",
    " day",
    " and",
    " every",
    "thing",
    " would",
    " be",
    " fine",
    ".",
    "\n",
    " Then",
]
TEMPLATE = "<|im_start|>system\nYou help.<|im_end|>\n<|im_start|>user\n{}<|im_end|>\n<|im_start|>assistant\n"


def estimate(value: float, half: float | None = None, count: int = 100, prompts: int = 100) -> Estimate:
    """An estimate with a symmetric interval, 10 % of the value to each side by default."""
    half = abs(value) * 0.1 if half is None else half
    return Estimate(value, value - half, value + half, count, prompts)


def distribution(values: list[float]) -> Distribution:
    """The distribution of values, their mean with an interval."""
    cuts = quantiles(values, n=1000, method="inclusive")
    return Distribution(estimate(fmean(values)), cuts[499], cuts[899], cuts[949], cuts[989], cuts[998], max(values))


def reply(number: int, size: float, seed: random.Random, writer: str) -> Reply:
    """One reply whose KL per token is exponential around `size`; every seventh is cut."""
    length = seed.randint(8, 60)
    tokens = tuple(seed.choice(WORDS) for _ in range(length))
    token_kl = tuple(seed.expovariate(1 / size) * (4 if seed.random() < 0.05 else 0.6) for _ in tokens)
    return Reply(
        prompt_index=number,
        sample_index=0,
        category=CATEGORIES[number % len(CATEGORIES)],
        prompt=TEMPLATE.format(f"Prompt number {number}: tell me what {writer} would say about the sea?"),
        text="".join(tokens),
        tokens=tokens,
        token_kl=token_kl,
        kl=sum(token_kl),
        entropy=1.9,
        other_entropy=2.2,
        stopped=number % 7 != 0,
        token_classes=tuple(seed.choice(CLASSES) for _ in tokens),
        loops=number % 14 == 0,
    )


def direction(name: Any, size: float, count: int = 100) -> Direction:
    """Replies of one model with all that is derived from them, roughly."""
    seed = random.Random(name)
    replies = tuple(reply(number, size, seed, "you") for number in range(count))
    worst = sorted(replies, key=lambda one: -one.kl)
    edges = (0, 1, 2, 4, 8, 16, 32, 60)
    return Direction(
        name=name,
        sampled_from="tuned" if name == "reverse" else "reference",
        per_sequence=distribution([one.kl for one in replies]),
        per_token=estimate(size),
        by_category={kind: estimate(40 * size / (1 + at), prompts=14) for at, kind in enumerate(CATEGORIES)},
        position_edges=edges,
        by_position=tuple(estimate(size * (0.4 + 0.2 * at), size / 8) for at in range(len(edges) - 1)),
        by_class={kind: estimate(2 * size / (1 + at)) for at, kind in enumerate(CLASSES)},
        length=estimate(34.2, 2.5),
        entropy=estimate(1.91, 0.12),
        other_entropy=estimate(2.23, 0.14),
        distinct_2=0.61,
        repeated_4gram=0.034,
        cut_share=0.14,
        loop_share=0.07,
        replies=replies,
        worst_tokens=tuple(
            TokenDrift(word, CLASSES[at % len(CLASSES)], 40 - at, 6 * size / (1 + at), 0.12 / (1 + at))
            for at, word in enumerate(WORDS)
        ),
        worst_prompts=tuple(PromptDrift(one.prompt_index, one.category, one.prompt, one.kl, 1) for one in worst[:12]),
    )


def model(name: str, **changes: Any) -> ModelFacts:
    """Facts about a model of that name."""
    facts = ModelFacts(name, "model", "a Hugging Face folder", "float32", 134_515_008, 49_152, "5f" * 32)
    return replace(facts, **changes)


def gauge(tuned: str = "runs/a/checkpoints/step_40", size: float = 0.08, **changes: Any) -> Gauge:
    """A whole gauge of `size` nats per token; `changes` replace fields."""
    made = Gauge(
        reference=model("HuggingFaceTB/SmolLM2-135M-Instruct"),
        tuned=model(tuned, kind="run"),
        reverse=direction("reverse", size),
        forward=direction("forward", size / 3),
        corpus=Corpus(
            20, 2_431,
            distribution([size * at / 50 for at in range(101)]), distribution([size * at / 70 for at in range(101)]),
            estimate(21.4, 1.1), estimate(22.9, 1.2), Estimate(0.941, 0.93, 0.951, 2431, 20),
            distribution([(at - 55) / 1000 for at in range(101)]),
        ),
        scale=Scale(estimate(0.0121), estimate(0.842)),
        scores=(Score("positive", estimate(0.11, 0.05), estimate(0.48, 0.06), estimate(0.37, 0.07)),),
        settings={"samples": 1, "max_length": 64, "temperature": 1.0, "seed": 0, "prompts": "built-in, 100"},
        partial=False,
        notes=("14 of 100 replies of the tuned model were cut at 64 tokens: their KL is that up to the cut.",),
        verdict="Moved 2.9 ± 0.3 nats per reply, most in story prompts; the forgetting direction is 3.1 times smaller.",
    )  # fmt: skip
    return replace(made, **changes)
