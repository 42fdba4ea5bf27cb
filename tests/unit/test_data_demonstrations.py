import json
from dataclasses import dataclass

import pytest

from kleash.data.demonstrations import load_demonstrations, render_demonstrations
from kleash.errors import DataError

BOS, STOP = 1, 2
SPECIAL = {ord("^"): BOS, ord("$"): STOP}
USER = {"role": "user", "content": "2 + 2?"}
SUM = {"role": "assistant", "content": "4"}


@dataclass
class Bytes:
    """One token a byte; ``^`` is the BOS, ``$`` ends a turn."""

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
    return tuple(SPECIAL.get(byte, byte) for byte in text.encode())


def failure(*rows):
    with pytest.raises(DataError) as caught:
        load_demonstrations(rows)
    return str(caught.value)


def rendered(row, renderer=None, **settings):
    settings = {"stop_id": STOP, "max_length": 50} | settings
    (one,) = render_demonstrations(load_demonstrations([row]), renderer or Bytes(), **settings)
    return one.prompt_ids, one.completion_ids


def test_the_shapes():
    rows = [
        {"prompt": "Hello", "completion": " you", "id": 7},
        {"prompt": [USER], "completion": [SUM]},
        {"prompt": "2 + 2?", "completion": [SUM]},
        {"messages": [USER, SUM, USER, SUM], "prompt": "2 + 2?"},
        {"text": "All of it."},
    ]
    demonstrations = load_demonstrations(rows)
    asked = [row.prompt and (row.prompt.text or row.prompt.messages) for row in demonstrations]
    assert asked == ["Hello", (USER,), "2 + 2?", (USER, SUM, USER), None]
    assert [row.completion for row in demonstrations] == [" you", "4", "4", "4", "All of it."]
    assert demonstrations[4].where == "demonstrations[4]"


def test_a_text_file_holds_a_document_a_paragraph(tmp_path):
    path = tmp_path / "corpus.txt"
    path.write_text("\nOne line,\n  and another.\n\n \nSecond.\n\n")
    documents = load_demonstrations(path)
    assert [(row.prompt, row.completion) for row in documents] == [
        (None, "One line,\n  and another."),
        (None, "Second."),
    ]
    assert [row.where for row in documents] == [f"{path}:2", f"{path}:6"]
    assert len(load_demonstrations(path, limit=1)) == 1
    renamed = path.rename(tmp_path / "corpus.md")
    assert len(load_demonstrations(renamed, format="text")) == 2


def test_jsonl(tmp_path):
    path = tmp_path / "sums.jsonl"
    path.write_text(json.dumps({"messages": [USER, SUM]}) + "\n")
    (only,) = load_demonstrations(path)
    assert (only.prompt.messages, only.completion, only.where) == ((USER,), "4", f"{path}:1")


def test_nothing_to_read(tmp_path):
    path = tmp_path / "corpus.txt"
    path.write_text("\n\n")
    with pytest.raises(DataError) as caught:
        load_demonstrations(path)
    assert str(caught.value) == (
        f"'{path}' holds no demonstrations, so there is nothing to imitate. Give it at least one."
    )
    with pytest.raises(DataError, match="limit = 0 leaves no demonstrations"):
        load_demonstrations([{"text": "a"}], limit=0)


def test_rows_that_say_too_little_or_too_much():
    advice = "Give exactly one of completion (with its prompt), messages and text."
    assert failure({"prompt": "a", "completon": "b"}) == (
        "demonstrations[0] has nothing to imitate; its columns: prompt, completon. Did you mean 'completon'? " + advice
    )
    assert failure({"messages": [USER, SUM], "text": "a"}) == (
        f"demonstrations[0] has messages and text; its columns: messages, text. {advice}"
    )
    assert failure({"completion": "b"}).startswith("demonstrations[0] has no column 'prompt'. It has: completion.")


def test_rows_with_the_wrong_thing_in_them():
    assert failure({"text": 7}) == "demonstrations[0]: text is 7, a int. The text to imitate is a string."
    assert failure({"prompt": "a", "completion": " "}).startswith(
        "demonstrations[0]: completion is ' ', which is blank"
    )
    assert failure({"messages": "a"}) == (
        "demonstrations[0]: messages is 'a'. It is a list of messages that ends with the assistant's answer."
    )
    assert failure({"messages": [SUM, USER]}).startswith(f"demonstrations[0]: messages ends with {USER!r}. Its last")
    assert failure({"messages": [SUM]}).startswith("demonstrations[0]: the prompt is an empty list of messages.")
    assert failure({"prompt": "a", "completion": [USER, SUM]}) == (
        "demonstrations[0]: completion has 2 messages. It is the assistant's one answer: move those before it to the"
        " prompt."
    )


def test_the_answer_comes_behind_the_prompt_that_sampling_has():
    assert rendered({"prompt": "Hello", "completion": " you"}) == (ids("^Hello"), ids(" you$"))
    assert rendered({"prompt": "Hello", "completion": " you"}, stop_id=None) == (ids("^Hello"), ids(" you"))
    assert rendered({"prompt": "Hi", "completion": "a"}, as_chat=True) == (ids("^<user>Hi<assistant>"), ids("a$"))
    assert rendered({"messages": [USER, SUM]}, system_prompt="Add.") == (
        ids("^<system>Add.<user>2 + 2?<assistant>"),
        ids("4$"),
    )


def test_a_document_is_read_behind_the_bos_or_its_own_first_token():
    assert rendered({"text": "abc"}, as_chat=True) == ((BOS,), ids("abc$"))
    assert rendered({"text": "abc"}, Bytes(bos_token_id=None)) == (ids("a"), ids("bc$"))
    assert rendered({"text": "a"}, Bytes(bos_token_id=None)) == (ids("a"), (STOP,))
    with pytest.raises(DataError) as caught:
        rendered({"text": "a"}, Bytes(bos_token_id=None), stop_id=None)
    assert str(caught.value) == (
        "demonstrations[0] is a single token for org/model, which has no BOS to read it behind: nothing is left to"
        " imitate. Remove it, or join it to another document."
    )
    with pytest.raises(DataError) as caught:
        rendered({"text": "^abc"})
    assert str(caught.value) == (
        "demonstrations[0] begins with the BOS token (id 1) of org/model, and it is put first anyway: the model would"
        " read two. Remove it from the text."
    )


def test_nothing_is_cut():
    rows = load_demonstrations([{"text": "x" * length} for length in (8, 9, 12)])
    with pytest.raises(DataError) as caught:
        render_demonstrations(rows, Bytes(), stop_id=STOP, max_length=10)
    assert str(caught.value) == (
        "2 of 3 demonstrations are longer than 10 tokens, the smaller of the row length (10) and the context of"
        " org/model (100): the first is demonstrations[1] with 11, the longest has 14. None is cut: shorten or remove"
        " them, or lengthen the rows."
    )
    with pytest.raises(DataError, match=r"^1 of 3 demonstrations are longer than 13 tokens"):
        render_demonstrations(rows, Bytes(max_context=13), stop_id=STOP, max_length=50)
    assert len(render_demonstrations(rows, Bytes(), stop_id=STOP, max_length=14)) == 3
