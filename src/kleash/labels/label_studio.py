"""What a task of Label Studio means: its JSON format for import and export, with the pairwise template.

Format: the "Label Studio JSON" of Label Studio 1.x (tasks with `data` and `annotations`; docs/guide/task_format), whose
`Pairwise` control answers `{"selected": "left"}` or `"right"`. Made from its documentation. `CONFIG` is the labelling
interface that the tasks fit; `Pairwise` knows no tie, so a tie and a broken pair are choices below the texts.

Kept both ways: pair, source, better side, tie, skip (`was_cancelled`), flag, note, seconds (`lead_time`), and an
annotator who is named by an e-mail address. Not kept: strength, and the text of answers that could not be read. Label
Studio refuses votes of an e-mail address that is no user of it unless ALLOW_IMPORT_TASKS_WITH_UNKNOWN_EMAILS is set.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from kleash.errors import DataError
from kleash.labels.records import Answer, Choice, Labelled, Pair

CONFIG = """<View>
  <Text name="prompt" value="$prompt"/>
  <Pairwise name="pw" toName="left,right"/>
  <View style="display: flex; gap: 1em">
    <Text name="left" value="$left"/>
    <Text name="right" value="$right"/>
  </View>
  <Choices name="verdict" toName="prompt" choice="multiple">
    <Choice value="tie"/>
    <Choice value="broken"/>
  </Choices>
  <TextArea name="note" toName="prompt"/>
</View>
"""

VIEWER = "label-studio"
"""Decides which completion stands on the left, as an annotator's name does in Kleash's own page."""


def to_tasks(labelled: Iterable[Labelled]) -> list[dict[str, Any]]:
    """Return one task a pair, with an annotation a vote; answers that could not be read are left out."""
    return [_task(item) for item in labelled]


def from_tasks(tasks: Iterable[dict[str, Any]]) -> list[Labelled]:
    """Return the pairs and votes of tasks; annotations with neither an answer nor a flag count as skips.

    Raises:
        DataError: a task without the texts `prompt`, `left` and `right`.
    """
    return [_labelled(task, number) for number, task in enumerate(tasks)]


def _task(item: Labelled) -> dict[str, Any]:
    pair = item.pair
    first_on_left = pair.first_on_left(VIEWER)
    left, right = (pair.first, pair.second) if first_on_left else (pair.second, pair.first)
    data: dict[str, Any] = {"prompt": pair.prompt, "left": left, "right": right, "source": pair.source}
    if not isinstance(pair.prompt, str):
        data["prompt"] = "\n\n".join(f"{message['role']}: {message['content']}" for message in pair.prompt)
        data["messages"] = pair.prompt
    readable = [answer for answer in item.answers if answer.choice is not None or answer.flagged]
    return {"data": data, "annotations": [_annotation(answer, first_on_left) for answer in readable]}


def _annotation(answer: Answer, first_on_left: bool) -> dict[str, Any]:
    result: list[dict[str, Any]] = []
    if answer.choice in ("first", "second"):
        selected = "left" if (answer.choice == "first") == first_on_left else "right"
        result.append(_result("pw", "left,right", "pairwise", {"selected": selected}))
    verdict = [name for name, said in (("tie", answer.choice == "tie"), ("broken", answer.flagged)) if said]
    if verdict:
        result.append(_result("verdict", "prompt", "choices", {"choices": verdict}))
    if answer.note is not None:
        result.append(_result("note", "prompt", "textarea", {"text": [answer.note]}))
    return {
        "result": result,
        "was_cancelled": answer.choice == "skip",
        "lead_time": answer.seconds,
        "completed_by": {"email": answer.annotator},
    }


def _result(name: str, to: str, kind: str, value: dict[str, Any]) -> dict[str, Any]:
    return {"from_name": name, "to_name": to, "type": kind, "value": value}


def _labelled(task: dict[str, Any], number: int) -> Labelled:
    data = task.get("data")
    if not isinstance(data, dict) or not all(isinstance(data.get(name), str) for name in ("prompt", "left", "right")):
        names = ", ".join(data) if isinstance(data, dict) and data else "none"
        raise DataError(
            f"Task {number} of Label Studio has the data fields {names}: a comparison has the texts prompt, left and"
            " right. Rename the fields of its tasks, in the JSON file, to these."
        )
    pair = Pair(data.get("messages") or data["prompt"], data["left"], data["right"], data.get("source"))
    return Labelled(pair, tuple(_answer(annotation) for annotation in task.get("annotations", [])))


def _answer(annotation: dict[str, Any]) -> Answer:
    values = {entry["type"]: entry.get("value", {}) for entry in annotation.get("result", [])}
    verdict = values.get("choices", {}).get("choices", [])
    flagged = "broken" in verdict
    choice: Choice | None
    if annotation.get("was_cancelled"):
        choice = "skip"
    elif "tie" in verdict:
        choice = "tie"
    elif "pairwise" in values:
        choice = "first" if values["pairwise"]["selected"] == "left" else "second"
    else:
        choice = None if flagged else "skip"
    note = values.get("textarea", {}).get("text", [])
    lines = [note] if isinstance(note, str) else note
    return Answer(
        _annotator(annotation.get("completed_by")),
        choice,
        flagged,
        note="\n".join(lines) if lines else None,
        seconds=annotation.get("lead_time"),
    )


def _annotator(completed_by: Any) -> str:
    """The e-mail address where the export has it, else the user's number in Label Studio."""
    if isinstance(completed_by, dict):
        completed_by = completed_by.get("email") or completed_by.get("id")
    return str(completed_by) if isinstance(completed_by, str) else f"label-studio:{completed_by}"
