"""Judges as rewards: a win against the reference's completion, or against another completion of the same prompt.

Both are reward functions of TRL's kind and give 1 for a win, 0.5 for a tie, 0 for a loss, and None where the judge
gave no verdict that can be read. The mean of `WinRate` is the policy's win rate against its reference, ties counted
half. `Preference` says which of two samples online DPO learns from. `make_judge` makes the judge that the `judge` table
of a run means.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from kleash.config.schema import Judge as JudgeSettings
from kleash.errors import DataError, ModelError
from kleash.rewards.judge import (
    Choice,
    Judge,
    JudgeTally,
    Prices,
    Question,
    Text,
    completion_text,
    prompt_text,
)

FIRST_WINS: dict[Choice | None, float | None] = {"first": 1.0, "tie": 0.5, "second": 0.0, None: None}


class WinRate:
    """Does a completion beat what the frozen reference wrote to the same prompt?

    Attributes:
        judge: who is asked.
        tally: over all questions so far.
    """

    def __init__(self, judge: Judge) -> None:
        self.judge = judge
        self.tally = JudgeTally(prices=judge.prices)

    def __call__(
        self, prompts: Sequence[Text], completions: Sequence[Any], reference_completions: Sequence[Any]
    ) -> list[float | None]:
        """Return 1, 0.5, 0 or None a completion.

        Args:
            prompts: one a completion.
            completions: texts, or the assistant's messages.
            reference_completions: the same, by the reference.
        """
        questions = [
            Question(prompt, completion_text(ours), completion_text(theirs))
            for prompt, ours, theirs in zip(prompts, completions, reference_completions, strict=True)
        ]
        choices, self.tally = ask_all(self.judge, questions, self.tally)
        return [FIRST_WINS[choice] for choice in choices]


class Preference:
    """Which of two consecutive completions of the same prompt is better?

    Attributes:
        judge: who is asked.
        tally: over all questions so far.
    """

    def __init__(self, judge: Judge) -> None:
        self.judge = judge
        self.tally = JudgeTally(prices=judge.prices)

    def __call__(self, prompts: Sequence[Text], completions: Sequence[Any]) -> list[float | None]:
        """Return 1 for a winner and 0 for its loser, 0.5 each for a tie, None each without a verdict.

        Args:
            prompts: one a completion; entries 0 and 1 are equal, 2 and 3, and so on.
            completions: texts, or the assistant's messages.

        Raises:
            DataError: the completions are not in pairs of one prompt.
        """
        _check_pairs(prompts, completions)
        texts = [completion_text(completion) for completion in completions]
        questions = [Question(prompts[i], texts[i], texts[i + 1]) for i in range(0, len(texts), 2)]
        choices, self.tally = ask_all(self.judge, questions, self.tally)
        firsts = [FIRST_WINS[choice] for choice in choices]
        return [score for first in firsts for score in (first, None if first is None else 1.0 - first)]


def make_judge(settings: JudgeSettings) -> Judge:
    """Return the judge that the settings mean: with `base_url` an endpoint, else a local Hugging Face model.

    A local model compares as many questions at once as an endpoint is asked at once: `concurrency`. It writes
    nothing, so what is about requests does not concern it.

    Raises:
        ConfigError: no sound address or key, or httpx is not installed.
        ModelError: no such model, or one that cannot judge.
    """
    prices = Prices(settings.price_per_million_input, settings.price_per_million_output)
    if settings.base_url is None:
        return _local_judge(settings, prices)
    return _http_judge(settings, settings.base_url, prices)


def ask_all(judge: Judge, questions: Sequence[Question], tally: JudgeTally) -> tuple[list[Choice | None], JudgeTally]:
    """Ask every question; return the choices in their order, and the tally with them in it.

    Raises:
        ModelError: not one question got an answer: the judge is down, and there is nothing to learn from.
    """
    choices: list[Choice | None] = [None] * len(questions)
    failures: list[str] = []
    for i, verdict in judge.judge(questions):
        choices[i] = verdict.choice
        tally = tally.plus(verdict)
        failures += [verdict.reason] if verdict.failed else []
    if questions and len(failures) == len(questions):
        raise ModelError(
            f"The judge answered none of {len(questions)} questions. The last: {failures[-1]} Bring it back, and "
            "resume from the last checkpoint."
        )
    return choices, tally


def _check_pairs(prompts: Sequence[Text], completions: Sequence[Any]) -> None:
    if len(completions) % 2:
        raise DataError(
            f"{len(completions)} completions cannot be compared in pairs: one is left over. Sample an even number"
            " for each prompt."
        )
    for i in range(0, len(prompts), 2):
        if prompts[i] != prompts[i + 1]:
            raise DataError(
                f"Completions {i} and {i + 1} answer different prompts ({prompt_text(prompts[i])[:40]!r} and"
                f" {prompt_text(prompts[i + 1])[:40]!r}), so neither can be the better one. Put the two completions"
                " of a prompt next to each other."
            )


def _http_judge(settings: JudgeSettings, base_url: str, prices: Prices) -> Judge:
    from kleash.rewards.judge_http import Endpoint, HttpJudge, key_from_environment

    endpoint = Endpoint(
        base_url,
        settings.model,
        max_tokens=settings.max_tokens,
        temperature=settings.temperature,
        retries=settings.retries,
        timeout=settings.timeout,
        requests_per_minute=settings.requests_per_minute,
        concurrency=settings.concurrency,
    )
    return HttpJudge(endpoint, settings.rubric, api_key=key_from_environment(settings.api_key_env), prices=prices)


def _local_judge(settings: JudgeSettings, prices: Prices) -> Judge:
    from kleash.models.device import pick_device, pick_dtype
    from kleash.models.loading import load_frozen
    from kleash.models.names import load_tokenizer
    from kleash.rewards.judge_local import LocalJudge

    device = pick_device()
    tokenizer = load_tokenizer(settings.model)
    causal_lm = load_frozen(settings.model, None, pick_dtype(device, "auto"), device, tokenizer.max_context)
    return LocalJudge(causal_lm, tokenizer, settings.rubric, batch_size=settings.concurrency, prices=prices)
