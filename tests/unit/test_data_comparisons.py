import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kleash.data.comparisons import Comparison, load_comparisons, split_comparisons, write_comparisons
from kleash.data.prompts import Prompt
from kleash.errors import DataError

HELLO = {"prompt": "Hello", "chosen": " you", "rejected": " thing"}
USER = {"role": "user", "content": "2 + 2?"}
KNOWN = "Known columns: prompt, chosen, rejected, strength, annotator, source."


def says(text):
    return {"role": "assistant", "content": text}


def failure(*rows):
    with pytest.raises(DataError) as caught:
        load_comparisons(rows)
    return str(caught.value)


def only(row):
    (comparison,) = load_comparisons([row]).rows
    return comparison


def test_our_own_columns():
    row = {**HELLO, "strength": 2, "annotator": "ann", "source": "mail"}
    prompt = Prompt(None, "Hello", {}, "comparisons[0]")
    assert load_comparisons([row]).rows == [
        Comparison(prompt, " you", " thing", 2.0, "ann", "mail", "comparisons[0]"),
    ]
    assert only(HELLO) == Comparison(prompt, " you", " thing", None, None, None, "comparisons[0]")


def test_text_answers_to_a_conversation():
    comparison = only({"prompt": [USER], "chosen": "4", "rejected": "5"})
    assert comparison.prompt.messages == (USER,)
    assert (comparison.chosen, comparison.rejected) == ("4", "5")


@pytest.mark.parametrize(
    "row",
    [
        {"prompt": [USER], "chosen": [says("4")], "rejected": [says("5")]},
        {"chosen": [USER, says("4")], "rejected": [USER, says("5")]},
        {"prompt": [USER], "chosen": [USER, says("4")], "rejected": [USER, says("5")]},
        {"prompt": "2 + 2?", "chosen": [USER, says("4")], "rejected": [USER, says("5")]},
        {"chosen": "\n\nHuman: 2 + 2?\n\nAssistant: 4", "rejected": "\n\nHuman: 2 + 2?\n\nAssistant: 5"},
    ],
)
def test_the_shapes_of_conversations_say_the_same(row):
    comparison = only(row)
    assert comparison.prompt == Prompt((USER,), None, {}, "comparisons[0]")
    assert (comparison.chosen, comparison.rejected) == ("4", "5")


def test_text_prompt_with_message_answers_stays_text():
    assert only({"prompt": "2 + 2?", "chosen": [says("4")], "rejected": [says("5")]}).prompt.text == "2 + 2?"


def test_hh_dialogue_keeps_its_turns_to_the_letter():
    start = "\n\nHuman: Hi\n\nto you \n\nAssistant: Yes?\n\nHuman:  Who: I?\n\nAssistant:"
    comparison = only({"chosen": start + " You.\n", "rejected": start + "No"})
    assert comparison.prompt.messages == (
        {"role": "user", "content": "Hi\n\nto you "},
        {"role": "assistant", "content": "Yes?"},
        {"role": "user", "content": " Who: I?"},
    )
    assert (comparison.chosen, comparison.rejected) == ("You.\n", "No")


def test_hh_rows_that_are_no_comparison_are_counted():
    def dialogue(*turns):
        return "".join(f"\n\n{speaker}: {text}" for speaker, text in turns)

    ask, other, reply = ("Human", "a"), ("Human", "b"), ("Assistant", "c")
    good = {"chosen": dialogue(ask, reply), "rejected": dialogue(ask, ("Assistant", "d"))}
    rows = [
        good,
        {"chosen": dialogue(ask, reply), "rejected": dialogue(other, reply)},
        {"chosen": dialogue(ask, reply), "rejected": dialogue(ask, reply, ask, reply)},
        {"chosen": dialogue(ask, reply), "rejected": dialogue(ask)},
        {"chosen": dialogue(ask, reply, reply), "rejected": dialogue(ask, reply, ("Assistant", "d"))},
        {"chosen": dialogue(ask, reply), "rejected": dialogue(ask, ("Assistant", ""))},
    ]
    comparisons = load_comparisons(rows)
    assert [row.where for row in comparisons.rows] == ["comparisons[0]"]
    assert comparisons.filtered == {
        "the HH dialogues part before their last turn": 2,
        "the turns of an HH dialogue do not alternate from the human's to the assistant's": 2,
        "a turn of an HH dialogue is blank": 1,
    }


def test_equal_sides_and_repetitions_are_counted():
    rows = [
        HELLO,
        {**HELLO, "annotator": "ann"},
        {**HELLO, "annotator": "bob"},
        {**HELLO, "annotator": "ann", "strength": 3},
        HELLO,
        {**HELLO, "chosen": " thing", "rejected": " you"},
        {**HELLO, "prompt": "Hi"},
        {**HELLO, "rejected": " you"},
    ]
    comparisons = load_comparisons(rows)
    assert [row.where for row in comparisons.rows] == [f"comparisons[{index}]" for index in (0, 1, 2, 5, 6)]
    assert comparisons.filtered == {
        "the same annotator made the same comparison before": 2,
        "chosen and rejected are the same text": 1,
    }


def test_nothing_left_says_what_was_filtered_and_why(tmp_path):
    same = {**HELLO, "rejected": " you"}
    path = tmp_path / "pairs.jsonl"
    path.write_text("\n".join(json.dumps(row) for row in [same, same]))
    with pytest.raises(DataError) as caught:
        load_comparisons(path)
    assert str(caught.value) == (
        f"'{path}': nothing is left of 2 comparisons. Filtered: 2 because chosen and rejected are the same text."
        " Mend it, or give other comparisons."
    )
    assert failure() == (
        "The tuple of comparisons: no comparisons, so there is nothing to learn from. Give at least one."
    )


@pytest.mark.parametrize("row", [{"prompt": "Hello", "chosen": " you"}, {**HELLO, "rejected": None}])
def test_missing_side(row):
    assert failure(HELLO, row) == (
        f"comparisons[1] has no rejected answer; its columns: {', '.join(row)}. A comparison needs chosen and"
        " rejected. Write it, or remove the row."
    )


def test_side_that_is_no_text():
    assert failure({**HELLO, "chosen": 7}) == (
        "comparisons[0]: chosen is 7, a int. An answer is text, or a list of messages that ends with the assistant's."
    )
    assert failure({**HELLO, "chosen": []}).startswith("comparisons[0]: chosen is [], a list. An answer is text")
    assert failure({**HELLO, "chosen": [says("4")]}) == (
        "comparisons[0]: chosen is a list and rejected is a str. Give both as text, or both as lists of messages."
    )


@pytest.mark.parametrize("side", [{"role": "user", "content": "4"}, {"role": "assistant", "content": None}, "4"])
def test_conversation_that_does_not_end_with_an_answer(side):
    assert failure({"chosen": [USER, side], "rejected": [USER, says("5")]}) == (
        f"comparisons[0]: chosen ends with {side!r}. Its last message is the answer, so it must be"
        ' {"role": "assistant", "content": TEXT}.'
    )


@pytest.mark.parametrize(
    "row", [{**HELLO, "rejected": " \n"}, {"chosen": [USER, says("4")], "rejected": [USER, says(" \n")]}]
)
def test_blank_side(row):
    assert failure(row) == (
        "comparisons[0]: rejected is ' \\n', which is blank: there is no answer to learn from. Remove the row, or"
        " write the answer."
    )


def test_no_prompt():
    assert failure({"chosen": "\n\nHuman: a\n\nAssistant: b", "rejected": "c"}) == (
        "comparisons[0] has no prompt: its chosen and rejected are text, and not both are a dialogue that begins with"
        " 'Human:'. Add a column 'prompt', or give whole conversations as lists of messages."
    )
    assert failure({**HELLO, "prompt": " "}).startswith("comparisons[0]: the prompt is blank.")
    assert failure({"chosen": [says("4")], "rejected": [says("5")]}).startswith(
        "comparisons[0]: the prompt is an empty list of messages."
    )


def test_prompts_that_differ_between_the_sides():
    other = {"role": "user", "content": "2 + 3?"}
    assert failure({"chosen": [USER, says("4")], "rejected": [other, says("5")]}) == (
        f"comparisons[0]: chosen and rejected answer different prompts: message 0 before the answer is {USER!r} in"
        f" chosen and {other!r} in rejected. Compare two answers to one prompt, or remove the row."
    )
    longer = failure({"chosen": [USER, says("4")], "rejected": [USER, says("4"), other, says("5")]})
    assert f"message 1 before the answer is None in chosen and {says('4')!r} in rejected" in longer
    assert failure({"prompt": "2 + 3?", "chosen": [USER, says("4")], "rejected": [USER, says("5")]}) == (
        f"comparisons[0]: the prompt is '2 + 3?', but the conversations in chosen and rejected ask {USER!r}. Make them"
        " say the same, or leave only the answers in chosen and rejected."
    )


def test_unknown_columns():
    advice = "Rename it to the one it is, or remove it from the file."
    assert failure({"prompt": "a", "chosen": "b", "rejcted": "c"}) == (
        "comparisons[0] has a column 'rejcted', which is not one of a comparison. Did you mean 'rejected'?"
        f" {KNOWN} {advice}"
    )
    assert failure({**HELLO, "margin": 1.0}) == (
        "comparisons[0] has a column 'margin', which is not one of a comparison. What others call 'margin' is"
        f" 'strength' here. {KNOWN} {advice}"
    )
    assert failure({**HELLO, "weather": 1}).startswith(
        f"comparisons[0] has a column 'weather', which is not one of a comparison. {KNOWN}"
    )


def test_columns_of_well_known_data_sets_are_ignored_and_named():
    comparisons = load_comparisons(
        [{**HELLO, "score_chosen": 8.0, "prompt_id": "x"}, {**HELLO, "prompt": "Hi", "id": 1}]
    )
    assert comparisons.ignored_columns == ("id", "prompt_id", "score_chosen")
    assert len(comparisons.rows) == 2


@pytest.mark.parametrize("value", [-1, -0.5, float("nan"), float("inf"), "clear", True, [1]])
def test_strength_is_a_finite_number_from_0(value):
    assert failure({**HELLO, "strength": value}) == (
        f"comparisons[0]: strength is {value!r}. It is a finite number: 0 for a tie, larger for a clearer preference,"
        " never negative (swap chosen and rejected instead). Leave it out where nobody said how clear it was."
    )


def test_annotator_is_a_text_or_a_number():
    assert only({**HELLO, "annotator": 7}).annotator == "7"
    assert failure({**HELLO, "annotator": ["ann"]}) == (
        "comparisons[0]: annotator is ['ann'], a list. Name it by a text or a number."
    )


def test_csv(tmp_path):
    path = tmp_path / "pairs.csv"
    path.write_text("prompt,chosen,rejected,strength,annotator\nHello, you, thing,0,ann\nHi,a,b,,\n")
    tie, unsaid = load_comparisons(path).rows
    assert (tie.strength, tie.annotator, tie.chosen, tie.where) == (0.0, "ann", " you", f"{path}:2")
    assert (unsaid.strength, unsaid.annotator) == (None, None)


def test_limit_counts_rows_of_the_source():
    same = {**HELLO, "rejected": " you"}
    comparisons = load_comparisons([HELLO, same, {**HELLO, "prompt": "Hi"}], limit=2)
    assert (len(comparisons.rows), sum(comparisons.filtered.values())) == (1, 1)
    with pytest.raises(DataError, match="limit = 0 leaves no comparisons"):
        load_comparisons([HELLO], limit=0)


texts = st.text(min_size=1).filter(str.strip)
conversations = st.lists(st.builds(lambda text: {"role": "user", "content": text}, texts), min_size=1, max_size=3)
names = st.none() | st.text(min_size=1)


def written(prompt, chosen, rejected, strength, annotator, source):
    asked = Prompt(None, prompt, {}, "x") if isinstance(prompt, str) else Prompt(tuple(prompt), None, {}, "x")
    return Comparison(asked, chosen, rejected, strength, annotator, source, "x")


def content(row):
    return (row.prompt.key, row.chosen, row.rejected, row.strength, row.annotator, row.source)


@pytest.mark.parametrize("suffix", [".jsonl", ".parquet"])
@given(data=st.data())
def test_what_is_written_is_read_back(tmp_path_factory, suffix, data):
    if suffix == ".parquet":
        pytest.importorskip("pyarrow")
    prompts = data.draw(st.sampled_from([texts, conversations] if suffix == ".parquet" else [texts | conversations]))
    rows = data.draw(
        st.lists(
            st.builds(written, prompts, texts, texts, st.none() | st.floats(0, 9), names, names).filter(
                lambda row: row.chosen != row.rejected
            ),
            min_size=1,
            max_size=5,
            unique_by=lambda row: (row.prompt.key, row.chosen, row.rejected, row.annotator),
        )
    )
    path = tmp_path_factory.mktemp("written") / f"pairs{suffix}"
    write_comparisons(path, rows)
    assert [content(row) for row in load_comparisons(path).rows] == [content(row) for row in rows]
    assert [entry.name for entry in path.parent.iterdir()] == [path.name]


def test_what_cannot_be_written(tmp_path):
    rows = [written("a", "b", "c", None, None, None), written([USER], "b", "c", None, None, None)]
    with pytest.raises(DataError) as caught:
        write_comparisons(tmp_path / "pairs.csv", rows)
    assert str(caught.value) == (
        f"'{tmp_path}/pairs.csv' has the extension '.csv': comparisons are written as .jsonl or .parquet. Rename it."
    )
    with pytest.raises(DataError, match=r"No such file or directory\. Make its folder"):
        write_comparisons(tmp_path / "nowhere" / "pairs.jsonl", rows)
    pytest.importorskip("pyarrow")
    with pytest.raises(DataError, match=r"a Parquet column has one type\. Write a \.jsonl file, or two files"):
        write_comparisons(tmp_path / "pairs.parquet", rows)
    assert list(tmp_path.iterdir()) == []


def asked(*prompts):
    return [written(prompt, f"{index}", "-", None, None, None) for index, prompt in enumerate(prompts)]


@given(st.lists(st.sampled_from("abcdefgh"), min_size=2, max_size=30), st.integers(0, 30), st.integers(0, 5))
def test_a_split_keeps_a_prompts_comparisons_together(prompts, count, seed):
    rows = asked(*prompts)
    try:
        training, held_out = split_comparisons(rows, count, seed)
    except DataError:
        assert count > len(prompts) - max(prompts.count(prompt) for prompt in prompts)
        return
    left, right = ({row.prompt.key for row in side} for side in (training, held_out))
    assert left
    assert left.isdisjoint(right)
    assert sorted([*training, *held_out], key=rows.index) == rows
    sizes = [prompts.count(prompt) for prompt in right]
    assert sum(sizes) == len(held_out) >= count
    assert count > 0 or not held_out
    assert not sizes or len(held_out) - max(sizes) < count


def test_a_split_depends_on_the_seed_and_not_on_the_order():
    rows = asked(*(f"prompt {index}" for index in range(40)))
    chosen = {row.prompt.key for row in split_comparisons(rows, 10, seed=0)[1]}
    assert len(chosen) == 10
    assert {row.prompt.key for row in split_comparisons(rows[::-1], 10, seed=0)[1]} == chosen
    assert {row.prompt.key for row in split_comparisons(rows, 10, seed=1)[1]} != chosen


@pytest.mark.parametrize("count", [-1, 3, 4])
def test_a_split_leaves_something_to_train_on(count):
    with pytest.raises(DataError) as caught:
        split_comparisons(asked("a", "a", "b"), count, seed=0)
    assert str(caught.value) == (
        f"Cannot hold out {count} of 3 comparisons of 2 distinct prompts: a prompt's comparisons stay together, and"
        " those of at least one prompt must be left to train on. Hold out fewer, or give more prompts."
    )
