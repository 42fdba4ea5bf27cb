"""Alarms in a report: their steps, causes and advice, the shaded charts, the suspect checkpoints."""

import re
from html import unescape
from xml.etree import ElementTree

import pytest

from kleash.report.charts import Series, Shade, line_chart
from kleash.report.run_events import events_section, shades
from kleash.report.run_page import write_report
from kleash.runs.reader import RunReader
from kleash.runs.records import Cause, Checkpoint, Event, Step
from kleash.runs.writer import RunWriter

ALARM = Event(
    8, "critical", "kl/spike", "KL is 40 nats.", {"kl": 40.0}, 6,
    (Cause("a rate that is too high", "the learning rate"), Cause("a bug", "the code")), "Lower it.",
)  # fmt: skip
OVER = Event(32, "info", "kl/spike", "over since step 13.", {"last": 12}, 6, ends=True)
ACTION = Event(8, "warning", "action/tighten", "target 6 -> 4.2 nats per sequence.", {"before": 6.0, "after": 4.2})
OPEN = Event(35, "warning", "kl/ramp", "KL doubles.", {}, 30)


@pytest.fixture
def run(tmp_path):
    def make(*events, settings=None):
        with RunWriter.create(tmp_path / "run", settings or {}, {}) as writer:
            for step in range(41):
                writer.write_step(Step(step, {"kl/exact_per_sequence": 0.1 * step}))
            for event in events:
                writer.write_event(event)
            for step in (0, 10, 20, 30, 40):
                writer.write_checkpoint(Checkpoint(step, tmp_path / "run" / "checkpoints" / f"step_{step}"))
        return tmp_path / "run"

    return make


def section(path):
    with RunReader(path) as reader:
        return events_section(reader).body


def cells(html):
    """The text of each row of each table."""
    rows = re.findall(r"<tr>(.*?)</tr>", html, re.DOTALL)
    return [[re.sub("<[^>]+>", " ", cell).split() for cell in re.findall(r"<td.*?>(.*?)</td>", row)] for row in rows]


def said(html):
    return [[unescape(" ".join(cell)) for cell in row] for row in cells(html) if row]


def test_an_alarm_has_its_steps_its_causes_in_order_and_what_to_do(run):
    html = section(run(ALARM, ACTION, OVER, OPEN))
    first, second, action = said(html)
    assert first == [
        "6 to 12", "critical", "kl/spike", "KL is 40 nats. kl 40",
        "a rate that is too high: the learning rate a bug: the code", "Lower it.",
    ]  # fmt: skip
    assert second[:4] == ["30 to the end", "warning", "kl/ramp", "KL doubles."]
    assert action == ["8", "warning", "action/tighten", "target 6 -> 4.2 nats per sequence. before 6, after 4.20"]
    assert '<ol class="causes"><li>a rate' in html


def test_suspect_checkpoints_are_named_with_their_alarms(run):
    html = section(run(ALARM, OVER, OPEN))
    assert (
        "Suspect checkpoints, by step: 10 (kl/spike), 30 (kl/ramp), 40 (kl/ramp). "
        "The newest without an alarm is that of step 20." in html
    )


def test_a_checkpoint_of_the_callback_is_measured_in_the_next_step_as_well(run):
    alarm = Event(11, "critical", "kl/spike", "KL is 40 nats.", {}, 11)
    over = Event(32, "info", "kl/spike", "over since step 13.", {"last": 12}, 11, ends=True)
    assert "Suspect checkpoints, by step: 10 (kl/spike)." in section(run(alarm, over, settings={"callback": {}}))


def test_of_a_webhook_the_page_shows_the_host_alone(run):
    page = write_report(run(settings={"monitor": {"webhook": "https://example.org/S3CRET", "notify": "warning"}}))
    html = page.read_text(encoding="utf-8")
    assert "S3CRET" not in html
    assert "https://example.org/…" in html


def test_without_alarms_there_is_no_word_of_suspects(run):
    html = section(run(ACTION))
    assert "Suspect" not in html
    assert len(said(html)) == 1


def test_the_charts_of_a_report_shade_the_steps_under_alarms(run):
    path = run(ALARM, OVER, OPEN)
    with RunReader(path) as reader:
        assert shades(reader) == [Shade(6, 12, "kl/spike", "critical"), Shade(30, None, "kl/ramp", "warning")]
    html = write_report(path).read_text(encoding="utf-8")
    assert html.count('<g class="shade critical">') == html.count('<g class="shade warning">') >= 1


HOSTILE = '<script>alert("x")</script>'


def test_what_an_alarm_says_stays_text(run):
    event = Event(3, "warning", HOSTILE, HOSTILE, {HOSTILE: 1.0}, 2, (Cause(HOSTILE, HOSTILE),), HOSTILE)
    html = write_report(run(event)).read_text(encoding="utf-8")
    assert "<script" not in html
    assert "&lt;script&gt;" in html


def drawn(*shaded):
    series = [Series("kl", [(0, 0.0, None), (10, 2.0, None)])]
    return ElementTree.fromstring(line_chart("KL", series, shaded=shaded))


def rectangles(figure):
    groups = [node for node in figure.iter() if node.get("class", "").startswith("shade ")]
    return [
        (group.get("class"), float(rect.get("x")), float(rect.get("width")))
        for group in groups
        for rect in group.iter("rect")
    ]


def test_a_shade_reaches_from_its_first_to_its_last_step():
    """The plot is 422 units wide, from 46 to 468."""
    figure = drawn(Shade(2, 5, "kl/spike", "critical"), Shade(8, None, "kl/ramp", "warning"))
    (first, second) = rectangles(figure)
    assert first == ("shade critical", pytest.approx(130.4), pytest.approx(126.6))
    assert second == ("shade warning", pytest.approx(383.6), pytest.approx(84.4))
    titles = [node.text for node in figure.iter("title")]
    assert "kl/spike (critical): steps 2 to 5" in titles
    assert "kl/ramp (warning): steps 8 to the end" in titles


def test_a_shade_of_one_step_can_be_seen_and_none_leaves_the_plot():
    one, beyond = rectangles(drawn(Shade(5, 5, "a", "warning"), Shade(-3, 99, "b", "warning")))
    assert one[2] == 3.0
    assert beyond[1:] == (46.0, 422.0)


def test_words_and_legend_tell_of_alarms():
    figure = drawn(Shade(2, 5, "kl/spike", "critical"), Shade(8, None, "kl/ramp", "warning"))
    assert figure.find("svg/desc").text.endswith(
        "kl/spike (critical) from step 2 to step 5. kl/ramp (warning) from step 8 to the end."
    )
    keys = [node for node in figure.iter("span") if node.get("class", "").startswith("key shade")]
    assert [(node.text, node.get("class")) for node in keys] == [("alarm", "key shade critical")]
    assert not [node for node in drawn().iter("span") if "shade" in node.get("class", "")]
