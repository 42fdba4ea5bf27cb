"""What a record of Argilla means: the dicts of `rg.Dataset.records.to_json` and `to_list`, Argilla 2.x.

Format: `id`, `fields`, `metadata`, `suggestions`, `responses` (by question, a list of `value` and `user_id`) and
`vectors`, as `rg.Record.from_dict` takes them. Made from its documentation. Written are the fields `prompt`,
`response_1` and `response_2` and the label questions `preference` (response_1, response_2, tie) and `flag` (broken),
and the text question `note`. Read are, besides these:

- a question `ranking` over the two responses, as in the template `rg.Settings.for_ranking` (`response1`, `response2`);
- a question `rating` of one response a record, as in `rg.Settings.for_rating`: the responses to one prompt become
  pairs, the better-rated one is chosen, the difference is the strength, and equal ratings are a tie.

`instruction` is read as the prompt, too. Kept both ways: pair, source, choice, flag, note. Not kept: strength, seconds,
skips (Argilla's discarded responses leave no trace in this format), and answers that could not be read. Argilla knows
users by UUID: an annotator of another name gets one made from the name, and the metadata `annotators` says whose it is.
A server takes only responses of its own users.
"""

from __future__ import annotations

import json
import uuid
from collections import defaultdict
from collections.abc import Iterable, Mapping
from itertools import combinations
from typing import Any

from kleash.errors import DataError
from kleash.labels.records import Answer, Choice, Labelled, Pair

VIEWER = "argilla"
"""Decides which completion is response_1, as an annotator's name decides the side in Kleash's own page."""

PROMPTS = ("prompt", "instruction")
SIDES = (("response_1", "response_2"), ("response1", "response2"))
ONE_SIDE = "response"
PREFERENCES = ("preference", "ranking")
RATING = "rating"
NAMESPACE = uuid.uuid5(uuid.NAMESPACE_URL, "https://argilla.io")


def to_records(labelled: Iterable[Labelled]) -> list[dict[str, Any]]:
    """Return one record a pair, with a response a vote; skips and answers that could not be read are left out."""
    return [_record(item) for item in labelled]


def from_records(records: Iterable[Mapping[str, Any]]) -> list[Labelled]:
    """Return the pairs and votes of records.

    Raises:
        DataError: a record with other fields, or a response that names neither side nor a tie.
    """
    labelled: list[Labelled] = []
    rated: defaultdict[str, list[Mapping[str, Any]]] = defaultdict(list)
    for number, record in enumerate(records):
        fields = record.get("fields") or {}
        sides = next((names for names in SIDES if all(name in fields for name in names)), None)
        prompt = next((fields[name] for name in PROMPTS if name in fields), None)
        if prompt is not None and sides is not None:
            labelled.append(_labelled(record, prompt, sides, number))
        elif prompt is not None and ONE_SIDE in fields:
            rated[json.dumps(prompt)].append(record)
        else:
            raise DataError(
                f"Record {number} of Argilla has the fields {', '.join(fields) or 'none'}: a comparison has a prompt"
                " (or instruction) and response_1 and response_2 (or response1 and response2), or one response that is"
                " rated. Rename the fields, in the JSON file, to these."
            )
    for key, group in rated.items():
        labelled.extend(_rated_pairs(json.loads(key), group))
    return labelled


def _record(item: Labelled) -> dict[str, Any]:
    pair = item.pair
    first_is_1 = pair.first_on_left(VIEWER)
    sides = (pair.first, pair.second) if first_is_1 else (pair.second, pair.first)
    responses: defaultdict[str, list[dict[str, str]]] = defaultdict(list)
    annotators = {}
    for answer in item.answers:
        user = _user(answer.annotator)
        for question, value in _values(answer, first_is_1).items():
            responses[question].append({"value": value, "user_id": user})
            annotators[user] = answer.annotator
    metadata = {"source": pair.source, "annotators": json.dumps(annotators)}
    return {
        "id": pair.key,
        "fields": {"prompt": pair.prompt, **dict(zip(SIDES[0], sides, strict=True))},
        "metadata": {name: value for name, value in metadata.items() if value not in (None, "{}")},
        "suggestions": {},
        "responses": dict(responses),
        "vectors": {},
    }


def _values(answer: Answer, first_is_1: bool) -> dict[str, str]:
    """What an annotator answers to each question: nothing at all to those that were skipped."""
    values = {}
    if answer.choice == "tie":
        values["preference"] = "tie"
    elif answer.choice in ("first", "second"):
        values["preference"] = SIDES[0][(answer.choice == "first") != first_is_1]
    if answer.flagged:
        values["flag"] = "broken"
    if values and answer.note is not None:
        values["note"] = answer.note
    return values


def _labelled(record: Mapping[str, Any], prompt: Any, sides: tuple[str, str], number: int) -> Labelled:
    metadata = record.get("metadata") or {}
    pair = Pair(prompt, record["fields"][sides[0]], record["fields"][sides[1]], metadata.get("source"))
    names = json.loads(metadata.get("annotators", "{}"))
    given: defaultdict[str, dict[str, Any]] = defaultdict(dict)
    asked = record.get("responses") or {}
    if asked and not {*PREFERENCES, "flag"} & asked.keys():
        raise DataError(
            f"Record {number} of Argilla has responses to {', '.join(asked)}: the question of which response is better"
            f" is named {' or '.join(PREFERENCES)}. Rename it, in the JSON file, to one of these."
        )
    for question, responses in asked.items():
        for response in responses:
            given[response["user_id"]][question] = response["value"]
    answers = [_answer(names.get(user, user), values, sides, number) for user, values in given.items()]
    return Labelled(pair, tuple(answer for answer in answers if answer is not None))


def _answer(annotator: str, values: Mapping[str, Any], sides: tuple[str, str], number: int) -> Answer | None:
    """One user's answer; None where the user answered neither the preference nor the flag."""
    flagged = bool(values.get("flag"))
    choices = [_choice(values[name], sides, number) for name in PREFERENCES if name in values]
    if not choices and not flagged:
        return None
    return Answer(annotator, choices[0] if choices else None, flagged, note=values.get("note"))


def _choice(value: Any, sides: tuple[str, str], number: int) -> Choice:
    """A label, or a ranking: a list of `value` and `rank`, 1 the best, equal ranks a tie."""
    if isinstance(value, list):
        ranks = {entry["value"]: entry["rank"] for entry in value}
        if set(ranks) != set(sides):
            raise DataError(
                f"Record {number} of Argilla ranks {', '.join(sorted(ranks))}: a comparison ranks"
                f" {' and '.join(sides)}."
            )
        first, second = (ranks[side] for side in sides)
        return "tie" if first == second else "first" if first < second else "second"
    named: dict[Any, Choice] = {sides[0]: "first", sides[1]: "second", "tie": "tie"}
    if value not in named:
        raise DataError(
            f"Record {number} of Argilla has the answer {value!r}: a preference is {sides[0]}, {sides[1]} or tie."
        )
    return named[value]


def _rated_pairs(prompt: Any, records: list[Mapping[str, Any]]) -> list[Labelled]:
    """Every two different responses to one prompt, with the answer of each user who rated both."""
    labelled = []
    for one, other in combinations(records, 2):
        first, second = one["fields"][ONE_SIDE], other["fields"][ONE_SIDE]
        if first != second:
            mine, theirs = _ratings(one), _ratings(other)
            answers = [_compared(user, mine[user], theirs[user]) for user in mine if user in theirs]
            pair = Pair(prompt, first, second, (one.get("metadata") or {}).get("source"))
            labelled.append(Labelled(pair, tuple(answers)))
    return labelled


def _ratings(record: Mapping[str, Any]) -> dict[str, float]:
    rated = (record.get("responses") or {}).get(RATING) or []
    return {response["user_id"]: response["value"] for response in rated}


def _compared(user: str, first: float, second: float) -> Answer:
    if first == second:
        return Answer(user, "tie")
    return Answer(user, "first" if first > second else "second", strength=float(abs(first - second)))


def _user(annotator: str) -> str:
    try:
        return str(uuid.UUID(annotator))
    except ValueError:
        return str(uuid.uuid5(NAMESPACE, annotator))
