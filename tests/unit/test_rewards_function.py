import asyncio
import math
import subprocess
import sys
import threading
import time
from functools import partial

import numpy as np
import pytest

from kleash.data.prompts import Prompt
from kleash.data.render import RenderedPrompt
from kleash.errors import ConfigError, DataError
from kleash.rewards.function import Reward, accepted_columns, evaluate, resolve, reward_batch, score

PROMPTS = ["a", "b"]
COMPLETIONS = ["x", "yy"]


def lengths(prompts, completions, **columns):
    return [len(completion) for completion in completions]


def returning(value):
    def fixed(completions, **columns):
        return value

    return fixed


def failure(function, columns=None, timeout=None, error=DataError):
    with pytest.raises(error) as caught:
        evaluate(resolve(function, timeout=timeout), PROMPTS, COMPLETIONS, columns or {})
    return caught.value


def test_a_function_is_called_and_its_scores_are_floats():
    scores = evaluate(resolve(lengths), PROMPTS, COMPLETIONS, {})
    assert scores == [1.0, 2.0]
    assert all(type(value) is float for value in scores)


@pytest.mark.parametrize(
    "answer",
    [(1, 0.5), [True, 0.5], np.array([1.0, 0.5]), [np.float32(1), np.float64(0.5)], [np.bool_(True), 0.5]],
)
def test_numbers_of_any_kind_are_taken(answer):
    assert evaluate(resolve(returning(answer)), PROMPTS, COMPLETIONS, {}) == [1.0, 0.5]


def test_none_is_kept_as_no_score():
    assert evaluate(resolve(returning([None, 2])), PROMPTS, COMPLETIONS, {}) == [None, 2.0]


def test_functions_get_only_the_columns_they_accept():
    columns = {"answer": [1, 2], "level": ["low", "high"]}
    seen = {}

    def named(completions, answer, missing="default"):
        seen["named"] = (completions, answer, missing)
        return [0, 0]

    def everything(**given):
        seen["everything"] = given
        return [0, 0]

    for function in (named, everything):
        evaluate(resolve(function), PROMPTS, COMPLETIONS, columns)
    assert seen["named"] == (COMPLETIONS, [1, 2], "default")
    assert seen["everything"] == {"prompts": PROMPTS, "completions": COMPLETIONS, **columns}


def test_a_required_column_that_is_missing():
    def graded(completions, anwser):
        return [0, 0]

    assert str(failure(graded, {"answer": [1, 2]})) == (
        "Reward 'graded' requires 'anwser', which it cannot be given: it gets prompts, completions, answer."
        " Did you mean 'answer'? Add that column to the prompts, or give the argument a default."
    )
    with pytest.raises(DataError, match="requires 'anwser'"):
        accepted_columns(resolve(graded), ["answer"])


@pytest.mark.parametrize("answer", [[1.0], [1.0, 2.0, 3.0], []])
def test_wrong_count(answer):
    assert str(failure(returning(answer))) == (
        f"Reward 'fixed' returned {len(answer)} scores for 2 completions. It must return one each, in their"
        " order, with None where there is no score."
    )


@pytest.mark.parametrize(
    ("answer", "shown"),
    [
        (1.0, "a float (1.0)"),
        ("ab", "a str ('ab')"),
        (None, "a NoneType (None)"),
        (np.float64(1), "a float64 (np.float64(1.0))"),
    ],
)
def test_an_answer_that_is_no_list(answer, shown):
    assert str(failure(returning(answer))) == (
        f"Reward 'fixed' returned {shown}. It must return a list with one number or None a completion."
    )


@pytest.mark.parametrize(
    ("value", "shown"), [("good", "'good' (a str)"), ([1.0], "[1.0] (a list)"), (1j, "1j (a complex)")]
)
def test_a_score_of_another_type(value, shown):
    assert str(failure(returning([0.0, value]))) == (
        f"Reward 'fixed' returned {shown} for completion 1. A score is a number, or None for no score."
    )


@pytest.mark.parametrize(("value", "shown"), [(math.nan, "nan"), (-math.inf, "-inf"), (np.float32("inf"), "inf")])
def test_a_score_that_is_not_finite(value, shown):
    assert str(failure(returning([value, 0.0]))) == (
        f"Reward 'fixed' returned {shown} for completion 0, from which nothing can be learned. Return a"
        " finite number, or None for no score."
    )


def raising(completions, **columns):
    return [1 / 0 for _ in completions]


async def raising_later(completions, **columns):
    await asyncio.sleep(0)
    raise TimeoutError("the judge is busy")


@pytest.mark.parametrize("timeout", [None, 5.0])
def test_the_functions_own_exception_is_the_cause(timeout):
    error = failure(raising, timeout=timeout)
    assert isinstance(error.__cause__, ZeroDivisionError)
    line = raising.__code__.co_firstlineno + 1
    assert str(error).startswith(
        f"Reward 'raising' raised ZeroDivisionError: division by zero ({__file__}, line {line},"
    )
    assert str(error).endswith(". Mend the function, or let it return None for what it cannot score.")


@pytest.mark.parametrize("timeout", [None, 5.0])
def test_a_timeout_error_of_its_own_is_not_taken_for_ours(timeout):
    error = failure(raising_later, timeout=timeout)
    assert str(error).startswith("Reward 'raising_later' raised TimeoutError: the judge is busy (")


def test_async_functions_share_one_event_loop_and_may_be_partial():
    loops = []

    async def judged(completions, offset, **columns):
        loops.append(asyncio.get_running_loop())
        return [offset + len(completion) for completion in completions]

    reward = Reward("judged", partial(judged, offset=10))
    assert evaluate(reward, PROMPTS, COMPLETIONS, {}) == [11.0, 12.0]
    evaluate(reward, PROMPTS, COMPLETIONS, {})
    assert loops[0] is loops[1]


def test_async_functions_run_where_a_loop_runs_already():
    async def notebook():
        return evaluate(resolve(AsyncCallable()), PROMPTS, COMPLETIONS, {})

    assert asyncio.run(notebook()) == [0.0, 0.0]


class AsyncCallable:
    async def __call__(self, completions):
        return [0.0 for _ in completions]


def test_a_plain_function_that_runs_out_of_time():
    release = threading.Event()

    def slow(completions):
        release.wait(10)
        return [0.0, 0.0]

    started = time.monotonic()
    error = failure(slow, timeout=0.2)
    release.set()
    assert time.monotonic() - started < 5
    assert str(error) == (
        "Reward 'slow' had not answered after 0.2 s; its timeout is 0.2 s. Raise the timeout, or let it"
        " return None in time for what it cannot score."
    )


def test_an_async_function_that_runs_out_of_time_is_cancelled():
    cancelled = threading.Event()

    async def slow(completions):
        try:
            await asyncio.sleep(30)
        except asyncio.CancelledError:
            cancelled.set()
            raise

    assert "its timeout is 0.2 s" in str(failure(slow, timeout=0.2))
    assert cancelled.wait(5)


def test_a_hung_function_does_not_keep_the_process_alive():
    code = (
        "import time\n"
        "from kleash.rewards.function import evaluate, resolve\n"
        "def hung(completions): time.sleep(60); return []\n"
        "try: evaluate(resolve(hung, timeout=0.1), ['a'], ['b'], {})\n"
        "except ValueError as error: print(error)\n"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=30)
    assert done.stdout.startswith("Reward 'hung' had not answered after 0.1 s")
    assert done.stderr == ""


def test_interrupts_pass_through():
    def interrupted(completions):
        raise KeyboardInterrupt

    failure(interrupted, error=KeyboardInterrupt)


def test_total_is_the_weighted_sum():
    rewards = [resolve(lengths), resolve(returning([10.0, -4.0]), name="style")]
    scores = score(rewards, [2.0, 0.5], PROMPTS, COMPLETIONS, {})
    assert scores.total == [7.0, 2.0]
    assert scores.by_function == {"lengths": [1.0, 2.0], "style": [10.0, -4.0]}


def test_one_missing_score_leaves_no_total():
    rewards = [resolve(lengths), resolve(returning([None, -4.0]), name="style")]
    scores = score(rewards, [1.0, 1.0], PROMPTS, COMPLETIONS, {})
    assert scores.total == [None, -2.0]
    assert scores.by_function["lengths"] == [1.0, 2.0]


def test_weights_and_names_must_fit():
    with pytest.raises(ConfigError) as caught:
        score([resolve(lengths)], [1.0, 2.0], PROMPTS, COMPLETIONS, {})
    assert str(caught.value) == "2 reward weights for 1 rewards. Give one weight a reward."
    with pytest.raises(ConfigError) as caught:
        score([resolve(lengths), resolve(lengths)], [1.0, 2.0], PROMPTS, COMPLETIONS, {})
    assert str(caught.value) == (
        "2 rewards are called 'lengths', so their scores could not be told apart. Give each a name of its own."
    )


def test_chat_is_passed_as_message_lists_and_plain_text_as_strings():
    messages = ({"role": "user", "content": "hi"},)
    rendered = [
        RenderedPrompt(Prompt(messages, None, {"answer": 1}, "p:1"), messages, "<user>hi", (5,)),
        RenderedPrompt(Prompt(None, "The soup", {"level": "low"}, "p:2"), None, "The soup", (6,)),
    ]
    batch = reward_batch(rendered, ["hello", " was hot"])
    assert batch.prompts == [[{"role": "user", "content": "hi"}], "The soup"]
    assert batch.completions == [[{"role": "assistant", "content": "hello"}], " was hot"]
    assert batch.columns == {"answer": [1, None], "level": [None, "low"]}


def test_settings_that_cannot_work():
    with pytest.raises(ConfigError) as caught:
        resolve(lengths, timeout=0)
    assert str(caught.value) == (
        "timeout = 0 gives a reward no time at all. Give seconds above 0, or none for no limit."
    )
    with pytest.raises(ConfigError) as caught:
        resolve(3)
    assert str(caught.value) == "reward = 3 is a int. Pass a function, or a string 'module:function'."


def test_torch_stays_out():
    code = (
        "import sys, kleash.rewards.function, kleash.rewards.shaping, kleash.demo.sentiment,"
        " kleash.ops.text\nprint([name for name in ('torch', 'transformers', 'datasets', 'pyarrow') if name"
        " in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60, check=True)
    assert done.stdout == "[]\n"
