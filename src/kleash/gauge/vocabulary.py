"""Whether two models speak one vocabulary, id by id, and over which rows of their heads a KL between them runs."""

from __future__ import annotations

from dataclasses import replace

from kleash.errors import ModelError
from kleash.models.tokenizer import Tokenizer

SHOWN = 3


def check_tokenizers(reference: Tokenizer, reference_rows: int, tuned: Tokenizer, tuned_rows: int) -> None:
    """Refuse tokenizers that are not the same, id by id. A padding token that only one of them has is no difference.

    Tokens beyond the rows of a model's output layer do not count: it can neither write nor score them.

    Raises:
        ModelError: with what differs.
    """
    ours, theirs = _tokens(reference, reference_rows), _tokens(tuned, tuned_rows)
    padding = {reference.inner.pad_token, tuned.inner.pad_token}
    moved = [token for token in ours if token in theirs and theirs[token] != ours[token]]
    only_ours = [token for token in ours if token not in theirs and token not in padding]
    only_theirs = [token for token in theirs if token not in ours and token not in padding]
    if not moved and not only_ours and not only_theirs:
        return
    problems = [
        _count(moved, f"have other ids (as {ours[moved[0]]} and {theirs[moved[0]]})") if moved else "",
        _count(only_ours, f"only {reference.name} has") if only_ours else "",
        _count(only_theirs, f"only {tuned.name} has") if only_theirs else "",
    ]
    raise ModelError(
        f"{tuned.name!r} has another tokenizer than the reference {reference.name!r}: "
        f"{'; '.join(problem for problem in problems if problem)}. "
        "A KL needs one vocabulary: gauge a model against one of its own family"
    )


def shared(reference: Tokenizer, tuned: Tokenizer) -> Tokenizer:
    """The reference's tokenizer with what must hold for both: every stop token, and the shorter context.

    The chat template is the reference's, or the tuned model's where the reference has none.
    """
    chosen = reference if reference.has_chat_template or not tuned.has_chat_template else tuned
    return replace(
        chosen,
        stop_ids=tuple(dict.fromkeys((*reference.stop_ids, *tuned.stop_ids))),
        max_context=min(reference.max_context, tuned.max_context),
    )


def shared_rows(reference: Tokenizer, reference_rows: int, tuned_rows: int) -> tuple[int, str | None]:
    """Rows of both heads that are compared, and a sentence where one head has more.

    Raises:
        ModelError: a head has fewer rows than the tokenizer has tokens.
    """
    rows = min(reference_rows, tuned_rows)
    needed = 1 + max(i for token, i in _tokens(reference, reference_rows).items() if token != reference.inner.pad_token)
    if rows < needed:
        raise ModelError(
            f"an output layer of {rows} rows cannot hold the {needed} tokens of {reference.name!r}: tokens would be "
            "left out of the KL. Use weights and tokenizer that belong together"
        )
    if reference_rows == tuned_rows:
        return rows, None
    return rows, (
        f"output layers of {reference_rows} (reference) and {tuned_rows} (tuned) rows: the tokenizers are the same, "
        f"so the rest is padding, and both distributions run over the first {rows} rows"
    )


def _tokens(tokenizer: Tokenizer, rows: int) -> dict[str, int]:
    return {token: i for token, i in tokenizer.inner.get_vocab().items() if i < rows}


def _count(tokens: list[str], what: str) -> str:
    shown = ", ".join(repr(token) for token in tokens[:SHOWN])
    return (
        f"{len(tokens)} token{'s' if len(tokens) > 1 else ''} {what} ({shown}{', ...' if len(tokens) > SHOWN else ''})"
    )
