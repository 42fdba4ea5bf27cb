"""Comparisons, Argilla records and Label Studio tasks: read as those tools write them, and there and back again."""

import json
import uuid
import xml.etree.ElementTree as ElementTree

import pytest

from kleash.errors import DataError
from kleash.labels import argilla, label_studio
from kleash.labels.exchange import Exchanged, collect, read_labels, take_in, write_labels
from kleash.labels.records import Answer, Labelled, Pair
from kleash.labels.store import LabelStore

CHAT = [
    {"role": "user", "content": "Why?"},
    {"role": "assistant", "content": "How?"},
    {"role": "user", "content": "So."},
]
ANN, BOB = "11111111-1111-4111-8111-111111111111", "22222222-2222-4222-8222-222222222222"

ARGILLA_LABELS = {
    "id": "7",
    "fields": {"prompt": "Name a colour.", "response_1": "Red.", "response_2": "Seven."},
    "metadata": {"source": "run 3"},
    "suggestions": {"preference": {"value": "response_2", "score": None, "agent": "some model"}},
    "responses": {
        "preference": [{"value": "response_1", "user_id": ANN}, {"value": "tie", "user_id": BOB}],
        "flag": [{"value": "broken", "user_id": BOB}],
        "note": [{"value": "not a colour", "user_id": BOB}],
    },
    "vectors": {},
    "_server_id": "0a0a0a0a-0a0a-4a0a-8a0a-0a0a0a0a0a0a",
}

ARGILLA_RANKING = {
    "id": "8",
    "fields": {"instruction": "Name a town.", "response1": "Ulm.", "response2": "Bern."},
    "metadata": {},
    "suggestions": {},
    "responses": {
        "ranking": [
            {"value": [{"value": "response2", "rank": 1}, {"value": "response1", "rank": 2}], "user_id": ANN},
            {"value": [{"value": "response1", "rank": 1}, {"value": "response2", "rank": 1}], "user_id": BOB},
        ]
    },
    "vectors": {},
}


def rated(response, ratings):
    responses = {"rating": [{"value": value, "user_id": user} for user, value in ratings.items()]}
    return {"id": response, "fields": {"instruction": "Count.", "response": response}, "responses": responses}


LABEL_STUDIO_TASK = {
    "id": 12,
    "project": 3,
    "created_at": "2024-06-18T23:45:46.048490Z",
    "data": {"prompt": "Name a colour.", "left": "Red.", "right": "Seven."},
    "annotations": [
        {
            "id": 1001,
            "result": [
                {
                    "id": "Dx_aB91ISN",
                    "from_name": "pw",
                    "to_name": "left,right",
                    "type": "pairwise",
                    "value": {"selected": "right"},
                    "origin": "manual",
                }
            ],
            "was_cancelled": False,
            "ground_truth": False,
            "created_at": "2024-06-18T23:46:16.728353Z",
            "lead_time": 4.288,
            "task": 12,
            "completed_by": {"id": 10, "email": "ann@example.org"},
        },
        {
            "id": 1002,
            "result": [
                {"from_name": "verdict", "type": "choices", "value": {"choices": ["tie"]}},
                {"from_name": "note", "type": "textarea", "value": {"text": ["both", "bad"]}},
            ],
            "was_cancelled": False,
            "lead_time": 2.0,
            "completed_by": 11,
        },
        {"id": 1003, "result": [], "was_cancelled": True, "lead_time": 1.0, "completed_by": 12},
        {
            "id": 1004,
            "result": [{"from_name": "verdict", "type": "choices", "value": {"choices": ["broken"]}}],
            "was_cancelled": False,
            "lead_time": 3.0,
            "completed_by": 13,
        },
    ],
    "predictions": [],
}


@pytest.fixture
def store(tmp_path):
    with LabelStore.open(tmp_path / "labels.db") as opened:
        yield opened


@pytest.fixture
def other(tmp_path):
    with LabelStore.open(tmp_path / "other.db") as opened:
        yield opened


def filled(store):
    """Twelve pairs, so that some stand the other way round in another tool, with every kind of vote."""
    store.add(Pair(f"prompt {n}", f"one {n}", f"other {n}", f"run {n}") for n in range(10))
    store.add([Pair(CHAT, "Because.", "No."), Pair("nobody looked", "a", "b")])
    for number in range(1, 11):
        store.vote("ann@example.org", number, "first" if number % 2 else "second", seconds=1.5)
    store.vote("bob@example.org", 1, "tie", note="alike")
    store.vote("bob@example.org", 2, "second", flagged=True)
    store.flag("bob@example.org", 3, "cut off")
    store.vote("bob@example.org", 11, "second")
    return store


def said(store):
    """Who chose which text, whatever the order of a pair's sides."""
    found = set()
    for item in collect(store):
        for answer in item.answers:
            text = {"first": item.pair.first, "second": item.pair.second}.get(answer.choice, answer.choice)
            prompt = json.dumps(item.pair.prompt)
            found.add((prompt, item.pair.source, answer.annotator, text, answer.flagged, answer.note))
    return found


def test_argilla_labels_are_read():
    assert argilla.from_records([ARGILLA_LABELS]) == [
        Labelled(
            Pair("Name a colour.", "Red.", "Seven.", "run 3"),
            (Answer(ANN, "first"), Answer(BOB, "tie", flagged=True, note="not a colour")),
        )
    ]


def test_argilla_rankings_are_read():
    assert argilla.from_records([ARGILLA_RANKING]) == [
        Labelled(Pair("Name a town.", "Ulm.", "Bern."), (Answer(ANN, "second"), Answer(BOB, "tie")))
    ]


def test_argilla_ratings_of_one_prompt_become_pairs():
    records = [rated("1 2", {ANN: 2, BOB: 4}), rated("1 2 3", {ANN: 5}), rated("one", {ANN: 2, BOB: 1})]
    assert argilla.from_records(records) == [
        Labelled(Pair("Count.", "1 2", "1 2 3"), (Answer(ANN, "second", strength=3.0),)),
        Labelled(Pair("Count.", "1 2", "one"), (Answer(ANN, "tie"), Answer(BOB, "first", strength=3.0))),
        Labelled(Pair("Count.", "1 2 3", "one"), (Answer(ANN, "first", strength=3.0),)),
    ]


def test_an_argilla_record_has_the_documented_keys():
    pair = Pair("p", "a", "b", "run 3")
    answers = (Answer(ANN, "first"), Answer("carl", "skip"), Answer("judge", None, note="?"))
    (record,) = argilla.to_records([Labelled(pair, answers)])
    assert set(record) == {"id", "fields", "metadata", "suggestions", "responses", "vectors"}
    side = next(name for name, text in record["fields"].items() if text == "a")
    assert sorted(record["fields"].items(), key=lambda item: item[1]) == [
        (side, "a"), ({"response_1": "response_2", "response_2": "response_1"}[side], "b"), ("prompt", "p"),
    ]  # fmt: skip
    assert record["responses"] == {"preference": [{"value": side, "user_id": ANN}]}
    assert json.loads(record["metadata"]["annotators"]) == {ANN: ANN}


def test_an_annotator_of_argilla_is_a_uuid_with_a_name_in_the_metadata():
    (record,) = argilla.to_records([Labelled(Pair("p", "a", "b"), (Answer("carl", "tie"),))])
    (response,) = record["responses"]["preference"]
    assert str(uuid.UUID(response["user_id"])) == response["user_id"]
    assert json.loads(record["metadata"]["annotators"]) == {response["user_id"]: "carl"}


def test_label_studio_annotations_are_read():
    assert label_studio.from_tasks([LABEL_STUDIO_TASK]) == [
        Labelled(
            Pair("Name a colour.", "Red.", "Seven."),
            (
                Answer("ann@example.org", "second", seconds=4.288),
                Answer("label-studio:11", "tie", note="both\nbad", seconds=2.0),
                Answer("label-studio:12", "skip", seconds=1.0),
                Answer("label-studio:13", None, flagged=True, seconds=3.0),
            ),
        )
    ]


def test_a_label_studio_task_fits_the_interface_that_goes_with_it():
    """The controls and texts that the tasks name are those of CONFIG."""
    view = ElementTree.fromstring(label_studio.CONFIG)
    names = {tag.get("name"): tag for tag in view.iter() if tag.get("name")}
    answers = (Answer("ann@example.org", "first"), Answer("bob@example.org", "tie", flagged=True, note="n"))
    (task,) = label_studio.to_tasks([Labelled(Pair("p", "a", "b"), answers)])
    assert {tag.get("value")[1:] for tag in view.iter("Text")} <= task["data"].keys()
    for result in [result for annotation in task["annotations"] for result in annotation["result"]]:
        control = names[result["from_name"]]
        assert control.tag.lower() == result["type"]
        assert control.get("toName") == result["to_name"]
    choices = {tag.get("value") for tag in view.iter("Choice")}
    assert task["annotations"][1]["result"][0]["value"] == {"choices": ["tie", "broken"]}
    assert choices == {"tie", "broken"}


def test_a_chat_prompt_can_be_read_in_label_studio():
    (task,) = label_studio.to_tasks([Labelled(Pair(CHAT, "a", "b"), ())])
    assert task["data"]["prompt"] == "user: Why?\n\nassistant: How?\n\nuser: So."
    assert label_studio.from_tasks([task])[0].pair.prompt == CHAT


@pytest.mark.parametrize("convert", [argilla.to_records, label_studio.to_tasks])
def test_the_first_completion_stands_on_either_side(convert):
    """40 fair coins: both sides occur except with probability 2e-12."""
    records = convert(Labelled(Pair(str(n), "first", "second"), ()) for n in range(40))
    texts = [record.get("fields") or record["data"] for record in records]
    assert {text.get("response_1") or text["left"] for text in texts} == {"first", "second"}


@pytest.mark.parametrize("format", ["argilla", "label-studio"])
def test_there_and_back_again(store, other, tmp_path, format):
    filled(store)
    assert write_labels(store, tmp_path / "labels.json", format) == Exchanged(12, 14)
    assert read_labels(other, tmp_path / "labels.json", format) == Exchanged(12, 14)
    assert said(other) == said(store)
    assert read_labels(store, tmp_path / "labels.json", format) == Exchanged(0, 14)
    assert said(other) == said(store)
    assert len(list(store.votes())) == 14


def test_what_label_studio_keeps_besides(store, other, tmp_path):
    store.add([Pair("p", "a", "b")])
    store.vote("ann@example.org", 1, "skip", seconds=2.5)
    write_labels(store, tmp_path / "labels.json", "label-studio")
    read_labels(other, tmp_path / "labels.json", "label-studio")
    (vote,) = other.votes()
    assert (vote.annotator, vote.choice, vote.seconds) == ("ann@example.org", "skip", 2.5)


@pytest.mark.parametrize("name", ["comparisons.jsonl", "comparisons.parquet"])
def test_comparisons_there_and_back_again(store, other, tmp_path, name):
    store.add([Pair("p", "a", "b", "run 1"), Pair("q", "c", "d"), Pair("flagged", "e", "f"), Pair("skipped", "g", "h")])
    store.vote("ann", 1, "second", strength=2.5)
    store.vote("bob", 1, "first")
    store.vote("ann", 2, "tie")
    store.vote("ann", 3, "first", flagged=True)
    store.vote("ann", 4, "skip")
    assert write_labels(store, tmp_path / name, "comparisons") == Exchanged(2, 3)
    assert read_labels(other, tmp_path / name, "comparisons") == Exchanged(2, 3)
    assert said(other) == {
        ('"p"', "run 1", "ann", "b", False, None),
        ('"p"', "run 1", "bob", "a", False, None),
        ('"q"', None, "ann", "tie", False, None),
    }
    assert [row["strength"] for row in other.comparisons()] == [2.5, None, 0.0]


def test_comparisons_of_nobody_are_their_files(store, tmp_path):
    (tmp_path / "old.jsonl").write_text('{"prompt": "p", "chosen": "a", "rejected": "b"}\n')
    read_labels(store, tmp_path / "old.jsonl", "comparisons")
    (vote,) = store.votes()
    assert (vote.annotator, vote.choice) == ("old.jsonl", "first")


def test_a_vote_is_turned_where_the_store_has_the_pair_the_other_way_round(store):
    store.add([Pair("p", "b", "a")])
    choices = ["first", "second", "tie", "skip", None]
    answers = tuple(Answer(f"annotator {n}", choice) for n, choice in enumerate(choices))
    assert take_in(store, [Labelled(Pair("p", "a", "b"), answers)]) == Exchanged(0, 5)
    assert [vote.choice for vote in store.votes()] == ["second", "first", "tie", "skip", None]


def labels_with(**changes):
    return {**ARGILLA_LABELS, **changes}


@pytest.mark.parametrize(
    ("convert", "record", "message"),
    [
        (argilla.from_records, {"fields": {"text": "a"}}, r"Record 0 of Argilla has the fields text: a comparison has"),
        (argilla.from_records, {}, r"Record 0 of Argilla has the fields none"),
        (
            argilla.from_records,
            labels_with(responses={"preference": [{"value": "response_3", "user_id": ANN}]}),
            r"Record 0 of Argilla has the answer 'response_3': a preference is response_1, response_2 or tie",
        ),
        (
            argilla.from_records,
            labels_with(responses={"better": [{"value": "response_1", "user_id": ANN}]}),
            r"has responses to better: the question .* is named preference or ranking\. Rename it",
        ),
        (
            argilla.from_records,
            labels_with(responses={"ranking": [{"value": [{"value": "response_1", "rank": 1}], "user_id": ANN}]}),
            r"Record 0 of Argilla ranks response_1: a comparison ranks response_1 and response_2",
        ),
        (label_studio.from_tasks, {"data": {"text1": "a"}}, r"Task 0 of Label Studio has the data fields text1"),
        (label_studio.from_tasks, {"id": 1}, r"Task 0 of Label Studio has the data fields none"),
    ],
)
def test_records_that_mean_nothing(convert, record, message):
    with pytest.raises(DataError, match=message):
        convert([record])


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (None, r"labels\.json' cannot be read: No such file"),
        ("{", r"labels\.json' is not JSON"),
        ('{"a": 1}', r"labels\.json' is not a list of records"),
        ("[1]", r"labels\.json' is not a list of records"),
    ],
)
def test_files_that_cannot_be_read(store, tmp_path, content, message):
    if content is not None:
        (tmp_path / "labels.json").write_text(content)
    with pytest.raises(DataError, match=message):
        read_labels(store, tmp_path / "labels.json", "argilla")


def test_nothing_to_write(store, tmp_path):
    with pytest.raises(DataError, match=r"has no pairs, so there is nothing to write"):
        write_labels(store, tmp_path / "labels.json", "argilla")
    store.add([Pair("p", "a", "b")])
    store.vote("ann", 1, "skip")
    with pytest.raises(DataError, match=r"has no votes for one completion or a tie on pairs that nobody flagged"):
        write_labels(store, tmp_path / "labels.jsonl", "comparisons")
    with pytest.raises(DataError, match=r"nowhere/labels\.json' cannot be written: No such file or directory"):
        write_labels(store, tmp_path / "nowhere" / "labels.json", "argilla")
    assert sorted(path.name for path in tmp_path.glob("labels.json*")) == []


def test_rows_that_are_left_out_are_counted_and_contradictions_refused(store, tmp_path):
    path = tmp_path / "rows.jsonl"
    row = {"prompt": "p", "chosen": "a", "rejected": "b"}
    path.write_text("\n".join(json.dumps(r) for r in (row, row, {**row, "rejected": "a"})))
    read = read_labels(store, path, "comparisons")
    assert (read.pairs, read.votes) == (1, 1)
    assert sum(read.filtered.values()) == 2
    path.write_text("\n".join(json.dumps(r) for r in (row, {**row, "chosen": "b", "rejected": "a"})))
    with pytest.raises(DataError, match=r"rows.jsonl:2 is another vote of 'rows.jsonl' on the pair of .*rows.jsonl:1"):
        read_labels(store, path, "comparisons")
