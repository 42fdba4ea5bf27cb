"""From replies and token numbers to one direction of the drift, and to the measurement on given text."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

import numpy as np

from kleash.data.render import RenderedPrompt
from kleash.gauge import statistics
from kleash.gauge.records import Corpus, Direction, DirectionName, Estimate, PromptDrift, Reply, TokenDrift
from kleash.gauge.scoring import TokenNumbers
from kleash.models.tokenizer import Tokenizer
from kleash.ops.text import distinct_n, repeated_ngram_share, token_class
from kleash.rollout.sampler import Completion

SHOWN_TOKENS = 30
SHOWN_PROMPTS = 20


@dataclass
class Drawn:
    """Replies of one model in the order drawn, with the token numbers of both."""

    prompts: list[int]
    """Which prompt each reply answers."""
    completions: list[Completion]
    numbers: list[TokenNumbers]
    """One a reply."""

    def joined(self, field: str) -> Any:
        """A field of the token numbers of all replies, end to end."""
        return np.concatenate([getattr(numbers, field) for numbers in self.numbers])


def direction(
    name: DirectionName, sampled_from: str, drawn: Drawn, prompts: Sequence[RenderedPrompt], tokenizer: Tokenizer
) -> Direction:
    """Summarise the replies of the tuned model (`reverse`) or of the reference (`forward`)."""
    author, other = ("tuned", "reference") if name == "reverse" else ("reference", "tuned")
    token_kl = drawn.joined(f"{name}_kl")
    lengths = np.array([len(completion.token_ids) for completion in drawn.completions])
    asked = np.array(drawn.prompts)
    of_token = np.repeat(asked, lengths)
    replies = _replies(drawn, prompts, tokenizer, name, author, other)
    kl = np.array([reply.kl for reply in replies])
    ids = [completion.token_ids for completion in drawn.completions]
    position = np.concatenate([np.arange(length) for length in lengths])
    edges = statistics.position_edges(int(lengths.max()))
    classes = np.array([kind for reply in replies for kind in reply.token_classes])
    categories = np.array([reply.category for reply in replies])
    return Direction(
        name=name,
        sampled_from=sampled_from,
        per_sequence=statistics.distribution(kl, asked),
        per_token=statistics.estimate(kl, lengths, asked),
        by_category=_groups(categories, lambda chosen: statistics.mean(kl[chosen], asked[chosen])),
        position_edges=edges,
        by_position=tuple(
            statistics.mean(token_kl[chosen], of_token[chosen])
            for chosen in ((position >= low) & (position < high) for low, high in pairwise(edges))
        ),
        by_class=_groups(classes, lambda chosen: statistics.mean(token_kl[chosen], of_token[chosen])),
        length=statistics.mean(lengths, asked),
        entropy=statistics.mean(drawn.joined(f"{author}_entropy"), of_token),
        other_entropy=statistics.mean(drawn.joined(f"{other}_entropy"), of_token),
        distinct_2=distinct_n(ids, 2),
        repeated_4gram=repeated_ngram_share(ids, 4),
        cut_share=float(np.mean([not reply.stopped for reply in replies])),
        loop_share=float(np.mean([reply.loops for reply in replies])),
        replies=tuple(replies),
        worst_tokens=_worst_tokens(replies),
        worst_prompts=_worst_prompts(replies),
    )


def corpus(pieces: Sequence[TokenNumbers], text_of_piece: Sequence[int]) -> Corpus:
    """Summarise both models on given text; intervals draw whole texts."""
    of_token = np.repeat(text_of_piece, [len(piece.reverse_kl) for piece in pieces])
    drawn = Drawn(list(text_of_piece), [], list(pieces))
    tuned, reference = drawn.joined("tuned_logprobs"), drawn.joined("reference_logprobs")
    return Corpus(
        texts=len(set(text_of_piece)),
        tokens=len(of_token),
        reverse_per_token=statistics.distribution(drawn.joined("reverse_kl"), of_token),
        forward_per_token=statistics.distribution(drawn.joined("forward_kl"), of_token),
        reference_perplexity=statistics.exponential(statistics.mean(-reference, of_token)),
        tuned_perplexity=statistics.exponential(statistics.mean(-tuned, of_token)),
        top1_agreement=statistics.mean(drawn.joined("same_top"), of_token),
        probability_change=statistics.distribution(np.exp(tuned) - np.exp(reference), of_token),
    )


def _replies(
    drawn: Drawn,
    prompts: Sequence[RenderedPrompt],
    tokenizer: Tokenizer,
    name: DirectionName,
    author: str,
    other: str,
) -> list[Reply]:
    special, stops = tokenizer.special_ids, set(tokenizer.stop_ids)
    counted: defaultdict[int, int] = defaultdict(int)
    replies = []
    for index, completion, numbers in zip(drawn.prompts, drawn.completions, drawn.numbers, strict=True):
        tokens = tokenizer.token_texts(completion.token_ids)
        token_kl = getattr(numbers, f"{name}_kl")
        replies.append(
            Reply(
                prompt_index=index,
                sample_index=counted[index],
                category=str(prompts[index].prompt.columns.get("category") or ""),
                prompt=prompts[index].text,
                text=tokenizer.decode(completion.token_ids),
                tokens=tuple(tokens),
                token_kl=tuple(token_kl.tolist()),
                kl=float(token_kl.sum()),
                entropy=float(getattr(numbers, f"{author}_entropy").mean()),
                other_entropy=float(getattr(numbers, f"{other}_entropy").mean()),
                stopped=completion.stopped,
                token_classes=tuple(
                    token_class(text, token in special, token in stops)
                    for token, text in zip(completion.token_ids, tokens, strict=True)
                ),
                loops=statistics.loops(completion.token_ids, completion.stopped),
            )
        )
        counted[index] += 1
    return replies


def _groups(labels: Any, measured: Callable[[Any], Estimate]) -> dict[str, Estimate]:
    """One estimate a label, largest first; none where nothing is labelled."""
    groups = {str(label): measured(labels == label) for label in np.unique(labels) if label}
    return dict(sorted(groups.items(), key=lambda item: -item[1].value))


def _worst_tokens(replies: Sequence[Reply]) -> tuple[TokenDrift, ...]:
    """The tokens at which most of the KL was, all their occurrences together."""
    found: defaultdict[tuple[str, str], list[float]] = defaultdict(list)
    for reply in replies:
        for token, kind, kl in zip(reply.tokens, reply.token_classes, reply.token_kl, strict=True):
            found[token, kind].append(kl)
    whole = sum(reply.kl for reply in replies)
    ranked = sorted(found.items(), key=lambda item: -sum(item[1]))[:SHOWN_TOKENS]
    return tuple(
        TokenDrift(token, kind, len(kl), sum(kl) / len(kl), sum(kl) / whole if whole else 0.0)
        for (token, kind), kl in ranked
    )


def _worst_prompts(replies: Sequence[Reply]) -> tuple[PromptDrift, ...]:
    by_prompt: defaultdict[int, list[Reply]] = defaultdict(list)
    for reply in replies:
        by_prompt[reply.prompt_index].append(reply)
    found = [
        PromptDrift(index, own[0].category, own[0].prompt, sum(reply.kl for reply in own) / len(own), len(own))
        for index, own in by_prompt.items()
    ]
    return tuple(sorted(found, key=lambda prompt: -prompt.kl)[:SHOWN_PROMPTS])
