"""What the policy writes: before and after training side by side, each token coloured by its drift."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from kleash.report import heatmap
from kleash.report.markup import Html, escape, join
from kleash.report.page import Section, columns, folded, prose
from kleash.report.run_summary import algorithm
from kleash.report.wording import number
from kleash.runs.reader import RunReader
from kleash.runs.records import Sample

OPEN_PAIRS = 6
MOST_PAIRS = 24

Pair = tuple[Sample | None, Sample | None]


def samples_section(reader: RunReader) -> list[Section]:
    """Return the held-out pairs; a run that has none yet shows its newest replies, a reward model has none at all."""
    if algorithm(reader.config) == "reward_model":
        return []
    pairs = pair_up(reader.samples("before"), reader.samples("after"))
    if not any(after for _, after in pairs):
        return [Section("Samples", _newest(reader))]
    text = prose(
        "Replies to the same prompts before and after training, in the prompts' order: none was chosen.",
        "A token's colour is KL(policy ‖ reference) where it was written; point at one to read it.",
    )
    shown = [_pair(*pair) for pair in pairs[:MOST_PAIRS]]
    rest = shown[OPEN_PAIRS:]
    more = folded(f"{len(rest)} more prompts", join(rest)) if rest else Html()
    return [Section("Samples", join([text, heatmap.legend(), *shown[:OPEN_PAIRS], more]))]


def pair_up(before: Sequence[Sample], after: Sequence[Sample]) -> list[Pair]:
    """Return the newest samples of both splits by prompt; one that lacks its partner stands alone."""
    left, right = _newest_by_place(before), _newest_by_place(after)
    return [(left.get(place), right.get(place)) for place in sorted(left.keys() | right.keys())]


def _newest_by_place(samples: Iterable[Sample]) -> dict[tuple[int, int], Sample]:
    by_step = sorted(samples, key=lambda sample: sample.step)
    return {(sample.prompt_index, sample.sample_index): sample for sample in by_step}


def _newest(reader: RunReader) -> Html:
    """Show what there is while a run has not ended: the replies of the newest step that has any."""
    by_step = (reader.samples(step=step.step) for step in reversed(reader.steps()))
    replies = next((found for found in by_step if found), []) or reader.samples("before")
    if not replies:
        return prose("No samples were recorded.")
    text = prose(f"Replies of step {replies[0].step}; pairs from before and after training come when the run ends.")
    return join([text, heatmap.legend(), columns([_alone(reply) for reply in replies[:OPEN_PAIRS]])])


def _pair(before: Sample | None, after: Sample | None) -> Html:
    prompt = next(sample.prompt for sample in (before, after) if sample)
    sides = columns([_side("Before", before), _side("After", after)])
    return Html(f'<article class="pair"><p class="prompt">{escape(prompt)}</p>{sides}</article>')


def _alone(sample: Sample) -> Html:
    prompt = f'<p class="prompt">{escape(sample.prompt)}</p>'
    return Html(f'<article class="pair">{prompt}{_side("Reply", sample)}</article>')


def _side(name: str, sample: Sample | None) -> Html:
    if sample is None:
        return Html(f'<div class="side"><h4><b>{name}</b></h4><p class="heat empty">(not recorded)</p></div>')
    facts = [f"reward {number(sample.reward)}"] if sample.reward is not None else []
    facts += [f"gold {number(sample.gold)}"] if sample.gold is not None else []
    facts += [f"KL {number(sample.kl)} nats", f"{len(sample.tokens)} tokens"]
    facts += [] if sample.stopped else ["cut at the limit"]
    said = join(Html(f"<span>{escape(fact)}</span>") for fact in facts)
    text = heatmap.token_heatmap(sample.tokens, sample.token_kl, f"{name} training:")
    return Html(f'<div class="side"><h4><b>{name}</b>{said}</h4>{text}</div>')
