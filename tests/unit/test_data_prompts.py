import json
import sys

import pytest

from kleash.data.prompts import Prompt, load_prompts, split_held_out
from kleash.errors import DataError


def write(folder, name, text):
    path = folder / name
    path.write_text(text, encoding="utf-8")
    return path


def failure(source, **settings):
    with pytest.raises(DataError) as caught:
        load_prompts(source, **settings)
    return str(caught.value)


def test_text_file_is_one_prompt_a_line_kept_to_the_letter(tmp_path):
    path = write(tmp_path, "openers.txt", "The weather\n  indented \nlast, \u2028 one line\n\n")
    prompts = load_prompts(path)
    assert [prompt.text for prompt in prompts] == ["The weather", "  indented ", "last, \u2028 one line"]
    assert [prompt.source for prompt in prompts] == [f"{path}:{line}" for line in (1, 2, 3)]
    assert all(prompt.messages is None and prompt.columns == {} for prompt in prompts)


def test_windows_line_endings_and_byte_order_mark_are_not_part_of_a_prompt(tmp_path):
    path = tmp_path / "openers.txt"
    path.write_bytes(b"\xef\xbb\xbfone\r\ntwo\r\n")
    assert [prompt.text for prompt in load_prompts(path)] == ["one", "two"]


def test_jsonl_keeps_messages_and_further_columns(tmp_path):
    messages = [{"role": "system", "content": "Be brief."}, {"role": "user", "content": "2 + 2?"}]
    lines = [
        json.dumps({"prompt": messages, "answer": 4}),
        "",
        json.dumps({"prompt": "3 + 3 =", "answer": 6}),
    ]
    path = write(tmp_path, "sums.jsonl", "\n".join(lines))
    chat, plain = load_prompts(str(path))
    assert chat == Prompt(tuple(messages), None, {"answer": 4}, f"{path}:1")
    assert plain == Prompt(None, "3 + 3 =", {"answer": 6}, f"{path}:3")


@pytest.mark.parametrize("text", ['[{"q": "a"}, {"q": "b"}]', '{"q": "a"}\n{"q": "b"}\n'])
def test_json_is_an_array_or_lines(tmp_path, text):
    prompts = load_prompts(write(tmp_path, "some.json", text), column="q")
    assert [prompt.text for prompt in prompts] == ["a", "b"]


def test_csv_with_quoted_line_break(tmp_path):
    path = write(tmp_path, "some.csv", 'prompt,label\n"one,\ntwo",x\nthree,y\n')
    prompts = load_prompts(path)
    assert [(prompt.text, prompt.columns) for prompt in prompts] == [
        ("one,\ntwo", {"label": "x"}),
        ("three", {"label": "y"}),
    ]
    assert prompts[1].source == f"{path}:4"


def test_parquet_with_messages(tmp_path):
    pyarrow = pytest.importorskip("pyarrow")
    from pyarrow import parquet

    path = tmp_path / "some.parquet"
    rows = [{"prompt": [{"role": "user", "content": "hello"}], "label": 1}]
    parquet.write_table(pyarrow.Table.from_pylist(rows), path)
    assert load_prompts(path) == [Prompt(({"role": "user", "content": "hello"},), None, {"label": 1}, f"{path}[0]")]


def test_memory_takes_strings_dicts_and_data_sets():
    datasets = pytest.importorskip("datasets")
    rows = [{"prompt": "a", "label": 1}, {"prompt": "b", "label": 2}]
    for source in (rows, datasets.Dataset.from_list(rows)):
        assert [(p.text, p.columns, p.source) for p in load_prompts(source)] == [
            ("a", {"label": 1}, "prompts[0]"),
            ("b", {"label": 2}, "prompts[1]"),
        ]
    assert [prompt.text for prompt in load_prompts(["a", "b", "c"], limit=2)] == ["a", "b"]


def test_format_overrides_the_extension(tmp_path):
    path = write(tmp_path, "prompts.data", '{"prompt": "a"}\n')
    assert load_prompts(path, format="jsonl")[0].text == "a"


def test_malformed_json_names_file_and_line(tmp_path):
    path = write(tmp_path, "bad.jsonl", '{"prompt": "a"}\n{"prompt": "b"\n')
    assert failure(path) == (
        f"{path}:2 is not valid JSON: Expecting ',' delimiter at column 15 of '{{\"prompt\": \"b\"'."
        ' Each prompt is one JSON object, such as {"prompt": "The weather today"}.'
    )
    path = write(tmp_path, "bad.json", '[{"prompt": "a"},\n{"prompt" "b"}]')
    assert failure(path).startswith(f"{path}:2 is not valid JSON: Expecting ':' delimiter at column 11")


def test_jsonl_line_that_is_no_object(tmp_path):
    path = write(tmp_path, "bad.jsonl", '"only a string"\n')
    assert failure(path) == (
        f'{path}:1 holds a str, not an object with named columns. Write {{"prompt": ...}} for each prompt.'
    )


def test_missing_column_lists_the_columns_and_a_near_match(tmp_path):
    path = write(tmp_path, "some.jsonl", '{"prompts_": "a", "label": 1}\n')
    assert failure(path) == (
        f"{path}:1 has no column 'prompt'. It has: prompts_, label. Did you mean 'prompts_'? Name the column"
        " that holds the prompt."
    )
    assert "has no column 'question'. It has: prompt." in failure(["a"], column="question")


def test_columns_that_hide_a_reward_argument_are_refused():
    assert failure([{"prompt": "a", "completions": "b"}]) == (
        "prompts[0] has a column 'completions', the name of an argument that every reward function gets."
        " Rename the column."
    )


@pytest.mark.parametrize(
    ("name", "text"), [("a.txt", "\n\n"), ("a.jsonl", ""), ("a.json", "[]"), ("a.csv", "prompt\n")]
)
def test_empty_file(tmp_path, name, text):
    path = write(tmp_path, name, text)
    assert failure(path) == (f"'{path}' holds no prompts, so there is nothing to train on. Give it at least one.")


def test_empty_list():
    assert failure([]).startswith("The list of prompts holds no prompts")


def test_blank_prompts_name_the_line(tmp_path):
    blank = ": the prompt is blank. Remove the row, or write the prompt."
    path = write(tmp_path, "some.txt", "one\n \ntwo\n")
    assert failure(path) == f"{path}:2{blank}"
    assert failure([{"prompt": "  "}]) == f"prompts[0]{blank}"
    assert failure([{"prompt": [{"role": "user", "content": " "}]}]).startswith("prompts[0]: the prompt is blank.")


def test_missing_file_offers_a_near_match(tmp_path):
    write(tmp_path, "openers.txt", "one\n")
    message = failure(tmp_path / "opners.txt")
    assert message == (
        f"No file '{tmp_path}/opners.txt' in {tmp_path}. Did you mean 'openers.txt'? Check the path; a data"
        " set on the hub is written 'org/name' or 'org/name:split'."
    )
    assert failure(str(tmp_path / "nowhere" / "a.txt")) == (
        f"No file '{tmp_path}/nowhere/a.txt': there is no folder '{tmp_path}/nowhere'. Check the path."
    )


def test_unknown_extension_folder_and_format(tmp_path):
    path = write(tmp_path, "prompts.yaml", "a\n")
    assert failure(path) == (
        f"'{path}' has the extension '.yaml', which says nothing about how to read it. Known extensions:"
        " .txt, .jsonl, .json, .csv, .parquet. Rename the file or set format."
    )
    assert failure(tmp_path).startswith(f"'{tmp_path}' is a folder, not a file of prompts.")
    assert failure(path, format="jsonlines") == (
        "format = 'jsonlines' is not a format that prompts are read in. Did you mean 'jsonl'? Known formats:"
        " text, jsonl, json, csv, parquet, hub."
    )


def test_text_in_another_encoding(tmp_path):
    path = tmp_path / "latin.txt"
    path.write_bytes("caf\xe9\n".encode("latin-1"))
    assert failure(path) == f"{path} is not UTF-8 text: byte 0xe9 is no character. Save it as UTF-8."


def test_csv_row_with_too_many_or_too_few_fields(tmp_path):
    expected = (
        " does not have the 2 fields that the header names (prompt, label). Quote a field that contains a"
        " comma or a line break."
    )
    for row in ("a,b,c", "a"):
        path = write(tmp_path, "some.csv", f"prompt,label\n{row}\n")
        assert failure(path) == f"{path}:2{expected}"


def test_parquet_that_is_none(tmp_path):
    pytest.importorskip("pyarrow")
    path = write(tmp_path, "some.parquet", "text")
    assert failure(path).startswith(f"{path} is not a Parquet file that pyarrow can read:")


def test_missing_extras_say_what_to_install(tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "pyarrow", None)
    monkeypatch.setitem(sys.modules, "datasets", None)
    path = write(tmp_path, "some.parquet", "")
    assert failure(path) == (f"Reading {path} needs pyarrow, which is not installed: pip install 'kleash[data]'.")
    assert failure("org/name") == (
        "Reading the hub data set 'org/name' needs datasets, which is not installed: pip install 'kleash[data]'."
    )


class FakeDatasets:
    """Stands in for the datasets library."""

    def __init__(self):
        self.asked = None

    def load_dataset(self, name, split):
        self.asked = (name, split)
        if split == "nope":
            raise ConnectionError("Couldn't reach the hub\nlong story")
        return [{"prompt": "a"}]


def test_hub_data_set_and_split(monkeypatch):
    fake = FakeDatasets()
    monkeypatch.setitem(sys.modules, "datasets", fake)
    assert load_prompts("org/some-data")[0].source == "org/some-data:train[0]"
    assert fake.asked == ("org/some-data", "train")
    load_prompts("org/some-data:test[:10]")
    assert fake.asked == ("org/some-data", "test[:10]")


def test_unreachable_hub(monkeypatch):
    monkeypatch.setitem(sys.modules, "datasets", FakeDatasets())
    assert failure("org/some-data:nope") == (
        "Cannot load split 'nope' of the hub data set 'org/some-data': ConnectionError: Couldn't reach the"
        " hub. Check the name, the split and the network, or save the prompts to a .jsonl or .parquet file"
        " and name that file instead."
    )


def test_containers_that_iterate_over_names_are_refused():
    assert failure({"train": [], "test": []}) == (
        "The prompts are a dict of train, test, not a list of rows. Pass one of its splits, or a list with"
        " one dict a prompt."
    )
    pandas = pytest.importorskip("pandas")
    assert failure(pandas.DataFrame({"prompt": ["a"]})) == (
        "The prompts are a DataFrame, which iterates over column names. Pass frame.to_dict('records') instead."
    )
    assert failure([7]) == "prompts[0] is a int: a prompt is a string, or a dict with a 'prompt' column."


@pytest.mark.parametrize(
    ("value", "message"),
    [
        (3, "column 'prompt' holds a int (3). A prompt is a string or a list of messages."),
        ([], "the prompt is an empty list of messages. Remove the row, or write the messages."),
        (
            [{"role": "user"}],
            "message 0 is {'role': 'user'}: a message is an object with a 'role' and a 'content'.",
        ),
        (
            [{"role": "users", "content": "a"}],
            "message 0 has the role 'users'. Did you mean 'user'?"
            " Known roles: system, developer, user, assistant, tool.",
        ),
        (
            [{"role": "user", "content": None}],
            "message 0 has content None: content is text, and nothing else is",
        ),
        (
            [{"role": "user", "content": "a"}, {"role": "assistant", "content": "b"}],
            "the last message is the assistant's, so there is nothing left to answer. End the prompt with the"
            " user's message and move the answer to a column of its own.",
        ),
    ],
)
def test_values_that_are_no_prompt(value, message):
    said = failure([{"prompt": value}])
    assert said.startswith("prompts[0]")
    assert message in said


def test_limit_must_leave_something():
    assert failure(["a"], limit=0) == ("limit = 0 leaves no prompts. Give 1 or more, or leave it out to read all.")


def test_a_prompt_is_text_or_messages():
    for messages, text in ((None, None), (({"role": "user", "content": "a"},), "a")):
        with pytest.raises(DataError, match="exactly one of the two"):
            Prompt(messages, text, {}, "here")


def test_held_out_prompts_are_disjoint_by_text_and_complete():
    texts = [f"prompt {number % 10}" for number in range(25)]
    prompts = load_prompts(texts)
    training, held_out = split_held_out(prompts, 4, seed=0)
    assert len({prompt.text for prompt in held_out}) == 4
    assert not {prompt.text for prompt in held_out} & {prompt.text for prompt in training}
    assert sorted(prompt.text for prompt in training + held_out) == sorted(texts)
    assert [prompt.source for prompt in training] == [prompt.source for prompt in prompts if prompt in training]


def test_the_choice_depends_on_the_seed_and_not_on_the_order():
    prompts = load_prompts([f"prompt {number}" for number in range(40)])
    chosen = {prompt.text for prompt in split_held_out(prompts, 10, seed=0)[1]}
    assert {prompt.text for prompt in split_held_out(prompts[::-1], 10, seed=0)[1]} == chosen
    assert {prompt.text for prompt in split_held_out(prompts, 10, seed=1)[1]} != chosen


def test_conversations_are_compared_by_all_their_messages():
    def chat(system):
        return {"prompt": [{"role": "system", "content": system}, {"role": "user", "content": "hi"}]}

    training, held_out = split_held_out(load_prompts([chat("a"), chat("b"), chat("a")]), 1, seed=0)
    assert {len(training), len(held_out)} == {1, 2}


@pytest.mark.parametrize("count", [-1, 2, 3])
def test_holding_out_everything_is_refused(count):
    with pytest.raises(DataError) as caught:
        split_held_out(load_prompts(["a", "b", "b"]), count, seed=0)
    assert str(caught.value) == (
        f"Cannot hold out {count} of 2 distinct prompts: between 0 and 1 can be held out, so that at least"
        " one is left to train on."
    )
