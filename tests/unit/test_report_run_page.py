import os
import re
import tempfile
from html.parser import HTMLParser
from pathlib import Path

import pytest

from kleash.errors import RunDirError
from kleash.report.run_page import write_report
from kleash.report.run_samples import pair_up
from kleash.runs.reader import RunReader
from kleash.runs.records import Event, Sample, Step
from kleash.runs.writer import RunWriter

NAN = float("nan")
HOSTILE = "</title></script><script>alert(1)</script><img src=x onerror=alert(2)>"
KEYS = (
    "reward/proxy", "reward/shaped", "reward/gold", "kl/exact_per_sequence", "kl/exact_per_token",
    "kl/class_word", "kl/token_max", "kl/token_p99", "entropy/per_token", "length/mean",
    "length/stop_rate", "text/distinct_2", "text/repeated_4gram", "control/beta", "control/target",
    "time/rollout", "time/total", "eval/reward/proxy", "throughput/tokens_per_second",
)  # fmt: skip
VOID = {"meta", "br", "path", "circle", "rect"}


class Balance(HTMLParser):
    """Checks that every element that opens closes, in order."""

    def __init__(self):
        super().__init__()
        self.open, self.seen, self.text = [], [], []

    def handle_starttag(self, tag, attrs):
        self.seen.append((tag, dict(attrs)))
        if tag not in VOID:
            self.open.append(tag)

    def handle_endtag(self, tag):
        if tag not in VOID:
            assert self.open.pop() == tag

    def handle_data(self, data):
        self.text.append(data)


def parse(path):
    page = Balance()
    page.feed(path.read_text(encoding="utf-8"))
    page.close()
    assert page.open == []
    return page


def sample(step, split, prompt=0, text=" fine", kl=0.5):
    return Sample(step, split, prompt, 0, f"Prompt {prompt}", text, (text,), (kl,), 0.25, None, kl, False)


def report(folder, steps=(), samples=(), events=(), config=None, status="finished"):
    with RunWriter.create(folder, config or {}, {"kleash": "0.1.0"}) as writer:
        for step in steps:
            writer.write_step(step)
        writer.write_samples(samples)
        for event in events:
            writer.write_event(event)
        writer.set_status(status)
    return parse(write_report(folder))


def test_a_whole_run_is_shown(tmp_path):
    steps = [
        Step(step, {key: 0.1 * step + 1 for key in KEYS}, {"reward/proxy": 0.1}, {"beta": "KL above target"})
        for step in range(1, 6)
    ]
    samples = [sample(0, "before", text=" dull", kl=0.0), sample(5, "after", text=" great", kl=2.0)]
    page = report(
        tmp_path / "demo", steps, samples, [Event(3, "warning", "overshoot", "too far", {"kl": 9.5})],
        {"model": "toy-model", "algorithm": {"kl": {"target_nats_per_sequence": 6.0}}},
    )  # fmt: skip
    text = " ".join(page.text)
    for shown in (
        "demo", "finished", "toy-model", "Reward on training prompts",
        "KL to the reference, per sequence", "KL to the reference, per token",
        "Beta, the price of a nat", "Step 5: KL above target", "Reply length", "by writing less",
        "Entropy of the next token", "Distinct word pairs", "Repeated runs of four", "Prompt 0",
        "dull", "great", "overshoot", "kl 9.50", "algorithm.kl.target_nats_per_sequence", "0.1.0",
    ):  # fmt: skip
        assert shown in text
    drawings = [attrs for tag, attrs in page.seen if tag == "svg"]
    assert len(drawings) >= 14
    assert all(attrs["role"] == "img" for attrs in drawings)
    assert ("span", {"class": "k5", "title": "2 nats · ' great'"}) in page.seen
    assert [attrs.get("class") for _, attrs in page.seen].count("target-line") == 1


def test_a_target_per_token_is_drawn_on_the_chart_per_token(tmp_path):
    steps = [
        Step(step, {"kl/exact_per_sequence": 5.0, "kl/exact_per_token": 0.1, "control/target": 0.1}) for step in (1, 2)
    ]
    report(tmp_path / "run", steps, config={"kl": {"target_nats_per_token": 0.1}})
    html = (tmp_path / "run" / "report.html").read_text(encoding="utf-8")
    (figure,) = [part for part in html.split("<figure") if 'class="target-line"' in part]
    assert "KL to the reference, per token" in figure


ODD_RUNS = {
    "empty": ([], "No step has been recorded yet."),
    "one step": ([Step(1, dict.fromkeys(KEYS, 0.5))], "with nothing yet to compare it to."),
    "no metrics": ([Step(1), Step(2)], "No reward was recorded. No KL was recorded."),
    "one metric": (
        [Step(step, {"kl/exact_per_sequence": 2.0}) for step in (1, 2)],
        "No reward was recorded.",
    ),
    "nan": (
        [Step(step, dict.fromkeys(KEYS, NAN), {"reward/proxy": NAN}) for step in (1, 2)],
        "cannot be compared",
    ),
    "inf": ([Step(step, dict.fromkeys(KEYS, float("inf"))) for step in (1, 2)], "cannot be compared"),
    "unmeasured": ([Step(step, dict.fromkeys(KEYS)) for step in (1, 2)], "No reward was recorded."),
    "zeros": ([Step(step, dict.fromkeys(KEYS, 0.0), {KEYS[0]: 0.0}) for step in (1, 2)], "no change"),
}


@pytest.mark.parametrize("name", ODD_RUNS)
def test_every_run_can_be_shown(tmp_path, name):
    steps, words = ODD_RUNS[name]
    page = report(tmp_path / "run", steps, status="failed")
    assert "failed" in page.text
    assert words in "".join(page.text)


def test_nothing_that_people_or_models_wrote_becomes_markup(tmp_path):
    folder = tmp_path / "<b>run"
    hostile = Sample(1, "after", 0, 0, HOSTILE, HOSTILE, (HOSTILE,), (0.5,), 1.0, None, 0.5, True)
    step = Step(1, {HOSTILE: 1.0, "reward/proxy": 1.0}, {}, {"beta": HOSTILE, "worst_tokens": HOSTILE})
    page = report(folder, [step], [hostile], [Event(1, "info", HOSTILE, HOSTILE, {HOSTILE: 1.0})], {HOSTILE: HOSTILE})
    assert {tag for tag, _ in page.seen}.isdisjoint({"script", "img", "b run"})
    assert not any(name.startswith("on") for _, attrs in page.seen for name in attrs)
    assert HOSTILE in " ".join(page.text)


def test_the_page_opens_offline(tmp_path):
    report(tmp_path / "run", [Step(1, dict.fromkeys(KEYS, 0.5))])
    html = (tmp_path / "run" / "report.html").read_text(encoding="utf-8")
    assert not re.search(r"<script|<link|src=|@import|url\(|https?://", html)


def test_a_run_that_goes_on_shows_its_newest_replies(tmp_path):
    page = report(tmp_path / "run", [Step(1), Step(2)], [sample(1, "train", 0, " old"), sample(2, "train", 1, " new")])
    assert " new" in page.text
    assert " old" not in page.text


def test_replies_pair_up_by_prompt_and_the_newest_count():
    before = [sample(0, "before", 1), sample(0, "before", 0)]
    after = [sample(9, "after", 1, " newer"), sample(5, "after", 1, " older"), sample(9, "after", 2)]
    assert pair_up(before, after) == [
        (before[1], None), (before[0], after[0]), (None, after[2]),
    ]  # fmt: skip


def test_a_missing_run_is_said(tmp_path):
    with pytest.raises(RunDirError, match="There is no run directory"):
        write_report(tmp_path / "gone")


def test_a_folder_that_cannot_be_written_is_said():
    root = os.geteuid() == 0
    with tempfile.TemporaryDirectory() as parent:
        Path(parent).chmod(0o755)
        RunWriter.create(Path(parent) / "run", {}, {}).close()
        (Path(parent) / "run").chmod(0o555)
        if root:
            os.seteuid(65534)
        try:
            with pytest.raises(RunDirError, match=r"report\.html cannot be written: Permission denied"):
                write_report(Path(parent) / "run")
            with RunReader(Path(parent) / "run") as reader:
                assert reader.steps() == []
        finally:
            if root:
                os.seteuid(0)
