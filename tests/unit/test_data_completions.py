from dataclasses import dataclass

import pytest

from kleash.data.comparisons import load_comparisons
from kleash.data.completions import completion_ids, render_comparisons
from kleash.errors import DataError

BOS, STOP = 1, 2
SPECIAL = {ord("^"): BOS, ord("$"): STOP}


@dataclass
class Bytes:
    """One token a byte of the lower-cased text; ``^`` is the BOS, ``$`` ends a turn."""

    name: str = "org/model"
    has_chat_template: bool = True
    bos_token_id: int | None = BOS
    max_context: int = 100

    def encode(self, text, *, add_special_tokens=True):
        return [BOS] * add_special_tokens + list(ids(text))

    def apply_chat_template(self, messages):
        turns = "".join(f"<{message['role']}>{message['content']}" for message in messages)
        return f"^{turns}<assistant>"


def ids(text):
    return tuple(SPECIAL.get(byte, byte) for byte in text.lower().encode())


def compared(*pairs):
    return load_comparisons([{"prompt": "ask", "chosen": chosen, "rejected": other} for chosen, other in pairs]).rows


def test_a_completion_is_encoded_alone_and_then_ended():
    assert completion_ids(" yes", Bytes(), STOP) == (*ids(" yes"), STOP)
    assert completion_ids(" yes", Bytes(), None) == ids(" yes")
    assert completion_ids("yes$", Bytes(), None) == (*ids("yes"), STOP)


def test_a_completion_does_not_end_twice():
    with pytest.raises(DataError) as caught:
        completion_ids("x" * 60 + "$", Bytes(), STOP)
    assert str(caught.value) == (
        f"The completion that ends in '{'x' * 39}$' already has the stop token (id 2) of org/model, and it would be"
        " added again: no sampled completion ends twice. Remove it from the text, or set append_stop = false."
    )


def test_both_sides_come_behind_the_prompt_that_sampling_has():
    (comparison,) = compared((" yes", " no"))
    (plain,) = render_comparisons([comparison], Bytes(), stop_id=STOP, max_completion_length=10).rows
    assert plain.prompt.token_ids == ids("^ask")
    assert plain.chosen_ids == (*ids(" yes"), STOP)
    assert plain.rejected_ids == (*ids(" no"), STOP)
    assert plain.comparison is comparison
    (chat,) = render_comparisons(
        [comparison], Bytes(), stop_id=None, max_completion_length=10, system_prompt="be kind"
    ).rows
    assert chat.prompt.token_ids == ids("^<system>be kind<user>ask<assistant>")
    assert (chat.chosen_ids, chat.rejected_ids) == (ids(" yes"), ids(" no"))
    (as_chat,) = render_comparisons([comparison], Bytes(), stop_id=STOP, max_completion_length=10, as_chat=True).rows
    assert as_chat.prompt.token_ids == ids("^<user>ask<assistant>")


def test_a_side_that_is_too_long_or_reads_the_same_is_counted():
    comparisons = compared(("four", "no"), ("fiver", "no"), ("no", "fiver"), ("Yes", "yes"))
    rendered = render_comparisons(comparisons, Bytes(), stop_id=STOP, max_completion_length=5)
    assert [row.comparison for row in rendered.rows] == comparisons[:1]
    assert rendered.filtered == {
        "a side is longer than max_completion_length = 5 tokens": 2,
        "both sides are the same tokens": 1,
    }
    assert len(render_comparisons(comparisons, Bytes(), stop_id=None, max_completion_length=5).rows) == 3


def test_nothing_left_says_what_was_filtered_and_why():
    with pytest.raises(DataError) as caught:
        render_comparisons(compared(("fiver", "no"), ("Yes", "yes")), Bytes(), stop_id=STOP, max_completion_length=5)
    assert str(caught.value) == (
        "The comparisons as org/model reads them: nothing is left of 2 comparisons. Filtered: 1 because a side is"
        " longer than max_completion_length = 5 tokens; 1 because both sides are the same tokens. Raise"
        " max_completion_length, or give other comparisons."
    )


def test_a_prompt_that_leaves_no_room_for_a_completion():
    with pytest.raises(DataError) as caught:
        render_comparisons(compared(("yes", "no")), Bytes(max_context=4), stop_id=STOP, max_completion_length=6)
    assert str(caught.value) == (
        "comparisons[0] ('ask') is 4 tokens long, and the context of org/model has 4: nothing is left for a completion."
        " Shorten or remove the prompt."
    )


def test_a_side_beyond_the_context_is_counted():
    comparisons = compared(("yes", "no"), ("y", "n"))
    rendered = render_comparisons(comparisons, Bytes(max_context=6), stop_id=STOP, max_completion_length=6)
    assert [row.comparison for row in rendered.rows] == comparisons[1:]
    assert rendered.filtered == {"prompt and a side are longer than the context of 6 tokens": 1}
