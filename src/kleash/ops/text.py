"""How varied and how repetitive sampled text is, and what kind of token each token is.

Works on token ids and token texts; needs no torch.
"""

from __future__ import annotations

import unicodedata
from collections.abc import Iterator, Sequence
from typing import Literal

TokenClass = Literal["stop", "special", "whitespace", "digit", "punctuation", "word"]

_REPLACEMENT = "\N{REPLACEMENT CHARACTER}"


def distinct_n(token_id_lists: Sequence[Sequence[int]], n: int) -> float:
    """Share of different n-grams among all n-grams of a batch.

    distinct_n = |set of n-grams| / number of n-grams, both pooled over the sequences; no n-gram spans two.

    Unit: a share in (0, 1]; lower is more repetitive, within sequences or between them.
    Bias: falls as the batch grows, for a larger sample repeats itself more; compare equal numbers of tokens.
    Empty: 0 where no sequence has n tokens, the value that a collapse to nothing should have.

    Args:
        token_id_lists: completion token ids, one list a sequence.
        n: length of the n-grams, at least 1.

    Raises:
        ValueError: n below 1.

    Reference: Li et al. 2016, "A Diversity-Promoting Objective Function for Neural Conversation Models".
    Differs: tokens of the model rather than words.

    Example:
        >>> distinct_n([[1, 2, 1, 2], [1, 2]], 2)
        0.5
    """
    ngrams = [ngram for token_ids in token_id_lists for ngram in _ngrams(token_ids, n)]
    return len(set(ngrams)) / len(ngrams) if ngrams else 0.0


def repeated_ngram_share(token_id_lists: Sequence[Sequence[int]], n: int) -> float:
    """Share of n-grams that occurred earlier in the same sequence.

    repeated = sum_b (n-grams of b - different n-grams of b) / sum_b n-grams of b.

    Unit: a share in [0, 1); higher is more repetitive. Repetition between sequences does not count.
    Bias: rises with length, for a longer text has more chances to repeat itself.
    Empty: 0 where no sequence has n tokens.

    Args:
        token_id_lists: completion token ids, one list a sequence.
        n: length of the n-grams, at least 1.

    Raises:
        ValueError: n below 1.

    Reference: Welleck et al. 2020, "Neural Text Generation with Unlikelihood Training", seq-rep-n.
    Differs: pooled over the batch rather than averaged over sequences.

    Example:
        >>> repeated_ngram_share([[1, 2, 1, 2], [1, 2]], 2)
        0.25
    """
    total = repeated = 0
    for token_ids in token_id_lists:
        ngrams = list(_ngrams(token_ids, n))
        total += len(ngrams)
        repeated += len(ngrams) - len(set(ngrams))
    return repeated / total if total else 0.0


def token_class(token_text: str, is_special: bool, is_stop: bool) -> TokenClass:
    r"""What kind of token this is, by the first rule that holds.

    1. stop: it ends a completion.
    2. special: the tokenizer calls it so; a chat template's marks are special.
    3. whitespace: nothing else in it, or nothing at all.
    4. word: a letter of any script in it, or a part of a character that takes several tokens.
    5. digit: a number in it.
    6. punctuation: the rest, symbols and emoji included.

    Args:
        token_text: the token decoded on its own.
        is_special: the tokenizer calls it special.
        is_stop: it is one of the run's stop tokens.

    Example:
        >>> [token_class(text, False, False) for text in (" film", "\n", "42", "...")]
        ['word', 'whitespace', 'digit', 'punctuation']
    """
    if is_stop:
        return "stop"
    if is_special:
        return "special"
    if not token_text.strip():
        return "whitespace"
    kinds = {"L" if char == _REPLACEMENT else unicodedata.category(char)[0] for char in token_text}
    if "L" in kinds or "M" in kinds:
        return "word"
    return "digit" if "N" in kinds else "punctuation"


def _ngrams(token_ids: Sequence[int], n: int) -> Iterator[tuple[int, ...]]:
    if n < 1:
        raise ValueError(f"n = {n}: an n-gram has at least 1 token.")
    return zip(*(token_ids[start:] for start in range(n)), strict=False)
