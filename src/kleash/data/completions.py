"""Answers as token ids, behind their prompt's, for everything that learns from written answers.

The boundary between prompt and completion is where sampling has it: both are encoded on their own, so that a token
never spans the two.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass

from kleash.data.comparisons import Comparison, nothing_left
from kleash.data.render import RenderedPrompt, Renderer, render_prompt
from kleash.errors import DataError

EQUAL_TOKENS = "both sides are the same tokens"


@dataclass(frozen=True)
class RenderedComparison:
    """A comparison as a model reads it: each side's tokens come directly behind those of the prompt.

    Attributes:
        prompt: the prompt and its tokens.
        chosen_ids: tokens of the better answer, its stop token included where one was asked for.
        rejected_ids: the same of the worse answer.
        comparison: the comparison it was made from.
    """

    prompt: RenderedPrompt
    chosen_ids: tuple[int, ...]
    rejected_ids: tuple[int, ...]
    comparison: Comparison


@dataclass(frozen=True)
class RenderedComparisons:
    """What was rendered, and the number of comparisons left out, by reason."""

    rows: list[RenderedComparison]
    filtered: dict[str, int]


def completion_ids(text: str, renderer: Renderer, stop_id: int | None) -> tuple[int, ...]:
    """Token ids of an answer, encoded on its own without special tokens, and the token that ends it.

    Args:
        text: the answer.
        renderer: the model's tokenizer.
        stop_id: the token that ends an answer; None for texts that a length limit cut off.

    Raises:
        DataError: the text ends with the stop token already, so that the answer would end twice.
    """
    ids = tuple(renderer.encode(text, add_special_tokens=False))
    if stop_id is None:
        return ids
    if ids[-1:] == (stop_id,):
        raise DataError(
            f"The completion that ends in {text[-40:]!r} already has the stop token (id {stop_id}) of {renderer.name},"
            " and it would be added again: no sampled completion ends twice. Remove it from the text, or set"
            " append_stop = false."
        )
    return (*ids, stop_id)


def render_comparisons(
    comparisons: Sequence[Comparison],
    renderer: Renderer,
    *,
    stop_id: int | None,
    max_completion_length: int,
    system_prompt: str | None = None,
    as_chat: bool = False,
) -> RenderedComparisons:
    """Turn comparisons into token ids; those with a side that is too long are left out and counted, never cut.

    Args:
        comparisons: what to render.
        renderer: the tokenizer of the model that reads them: the policy's, or a reward model's own.
        stop_id: the token that ends an answer; None for texts that a length limit cut off.
        max_completion_length: the most tokens of a side, stop token included.
        system_prompt: put before every conversation; plain text becomes the user's message.
        as_chat: plain text becomes the user's message even without a system prompt.

    Raises:
        ModelError: the model has no chat template and a prompt needs one.
        DataError: a prompt that cannot be rendered or leaves no room for a completion, a side that has its stop token
            already, or nothing left.
    """
    prompts = [
        render_prompt(comparison.prompt, renderer, system_prompt=system_prompt, as_chat=as_chat)
        for comparison in comparisons
    ]
    beyond = f"prompt and a side are longer than the context of {renderer.max_context} tokens"
    too_long = f"a side is longer than max_completion_length = {max_completion_length} tokens"
    rows: list[RenderedComparison] = []
    filtered: Counter[str] = Counter()
    for comparison, prompt in zip(comparisons, prompts, strict=True):
        if len(prompt.token_ids) >= renderer.max_context:
            raise DataError(
                f"{prompt.prompt.label} is {len(prompt.token_ids)} tokens long, and the context of {renderer.name} has"
                f" {renderer.max_context}: nothing is left for a completion. Shorten or remove the prompt."
            )
        chosen_ids = completion_ids(comparison.chosen, renderer, stop_id)
        rejected_ids = completion_ids(comparison.rejected, renderer, stop_id)
        longer = max(len(chosen_ids), len(rejected_ids))
        if longer > max_completion_length:
            filtered[too_long] += 1
        elif len(prompt.token_ids) + longer > renderer.max_context:
            filtered[beyond] += 1
        elif chosen_ids == rejected_ids:
            filtered[EQUAL_TOKENS] += 1
        else:
            rows.append(RenderedComparison(prompt, chosen_ids, rejected_ids, comparison))
    if not rows:
        raise nothing_left(
            f"The comparisons as {renderer.name} reads them",
            filtered,
            "Raise max_completion_length, or give other comparisons.",
        )
    return RenderedComparisons(rows, dict(filtered))
