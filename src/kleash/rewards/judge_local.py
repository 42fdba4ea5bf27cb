"""A judge in this process: a causal language model whose probabilities of the letters A and B are read.

Nothing is sampled, so every reply can be read and a question costs two forward passes. The letter is the more
probable one, P(A | A or B) against P(B | A or B), right where the reply would begin; equal is a tie. The choice
itself needs both orders, as everywhere; the mean of the two orders' probabilities is kept beside it.
"""

from __future__ import annotations

from collections.abc import Generator, Sequence
from typing import Any, NamedTuple

import torch

from kleash.errors import ModelError
from kleash.models.batch import collate
from kleash.models.scoring import check_head, head_weight, response_hidden
from kleash.models.tokenizer import Tokenizer
from kleash.rewards.judge import (
    UNPRICED,
    Answer,
    Letter,
    Prices,
    Question,
    Usage,
    Verdict,
    combine,
    letter_request,
)

REPLY_BEGINS = "\n\nAnswer:"
"""Behind the question where a model has no chat template: the letter comes next, after a space."""


class _Letters(NamedTuple):
    """The ids of A and B where a reply begins, and ids that both share before them: a space of its own, or none."""

    before: list[int]
    a: int
    b: int


class LocalJudge:
    """Implements `kleash.rewards.judge.Judge` with a model in memory."""

    def __init__(
        self, causal_lm: Any, tokenizer: Tokenizer, rubric: str, *, batch_size: int = 4, prices: Prices = UNPRICED
    ) -> None:
        """Find the letters in the tokenizer.

        Args:
            causal_lm: frozen, in evaluation mode.
            tokenizer: its own.
            rubric: what "better" means, in words.
            batch_size: questions at once; each is two rows.
            prices: of a million tokens.

        Raises:
            ModelError: the model's head is not a plain product, or its tokens do not tell A from B.
        """
        check_head(causal_lm, tokenizer.name)
        self.prices = prices
        self._model = causal_lm
        self._tokenizer = tokenizer
        self._rubric = rubric
        self._batch_size = batch_size
        self._letters = _letters(tokenizer)

    def judge(self, questions: Sequence[Question]) -> Generator[tuple[int, Verdict], None, None]:
        """Answer in order, `batch_size` questions at a time."""
        for start in range(0, len(questions), self._batch_size):
            batch = questions[start : start + self._batch_size]
            answers = self._answers([*batch, *(question.exchanged() for question in batch)])
            for i in range(len(batch)):
                yield start + i, combine(answers[i], answers[i + len(batch)])

    def _answers(self, questions: Sequence[Question]) -> list[Answer]:
        """One answer a question in the order as it stands; a question beyond the context fails."""
        rows = [self._encode(question) for question in questions]
        fitting = [row for row in rows if len(row) < self._tokenizer.max_context]
        probabilities = iter(self._probabilities_of_A(fitting) if fitting else ())
        return [
            _answer(next(probabilities), len(row)) if len(row) < self._tokenizer.max_context else self._too_long(row)
            for row in rows
        ]

    @torch.inference_mode()
    def _probabilities_of_A(self, rows: Sequence[Sequence[int]]) -> list[float]:
        """P(A) / (P(A) + P(B)) after each row, in float32."""
        device = next(self._model.parameters()).device
        batch = collate(rows, [[self._letters.a]] * len(rows), pad=self._tokenizer.pad_id, device=device)
        head_2H = head_weight(self._model)[[self._letters.a, self._letters.b]]
        logits_B2 = response_hidden(self._model, batch).float() @ head_2H.float().T
        probabilities: list[float] = logits_B2.softmax(-1)[:, 0].tolist()
        return probabilities

    def _encode(self, question: Question) -> list[int]:
        text = letter_request(question, self._rubric)
        if self._tokenizer.has_chat_template:
            text = self._tokenizer.apply_chat_template([{"role": "user", "content": text}])
            return self._tokenizer.encode(text, add_special_tokens=False) + self._letters.before
        return self._tokenizer.encode(text + REPLY_BEGINS) + self._letters.before

    def _too_long(self, row: Sequence[int]) -> Answer:
        limit = self._tokenizer.max_context
        return Answer(
            None,
            None,
            f"the question and one letter take {len(row) + 1} tokens, more than the {limit} of {self._tokenizer.name}",
            permanent=True,
        )


def _letters(tokenizer: Tokenizer) -> _Letters:
    """A reply in a chat begins with the letter, plain text goes on with a space and the letter.

    Raises:
        ModelError: one of the letters is not a token of its own there.
    """
    space = "" if tokenizer.has_chat_template else " "
    *before, a = tokenizer.encode(f"{space}A", add_special_tokens=False)
    *before_b, b = tokenizer.encode(f"{space}B", add_special_tokens=False)
    if a == b or before != before_b:
        raise ModelError(
            f"Model {tokenizer.name!r} cannot be a local judge: 'A' and 'B' are not one token each where a reply"
            " begins, so their probabilities cannot be compared. Use another model, or serve this one and give"
            " base_url."
        )
    return _Letters(before, a, b)


def _answer(probability_A: float, input_tokens: int) -> Answer:
    letter: Letter = "tie" if probability_A == 0.5 else "A" if probability_A > 0.5 else "B"
    return Answer(letter, letter, usage=Usage(input_tokens, 0), probability_A=probability_A)
