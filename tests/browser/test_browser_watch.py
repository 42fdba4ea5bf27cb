"""The dashboard in a real browser against a real server: what a run recorded is what one sees, also while it grows."""

import http.client
import json
import math
import re
import shutil
import threading
from urllib.parse import urlsplit

import pytest
import uvicorn
from big_run import make_big_run
from playwright.sync_api import expect, sync_playwright

from kleash.runs.records import Cause, Checkpoint, Event, Sample, Step
from kleash.runs.writer import RunWriter
from kleash.web import shell, watch

CHROMIUM = shutil.which("chromium")
STEPS = 40
HOSTILE = '<img src=x onerror="window.owned=1"><script>window.owned=1</script><b>bold</b>\n &amp;'
SETTINGS = {
    "model": {"name": "tiny"},
    "algorithm": {"type": "rloo", "kl": {"target_nats_per_sequence": 6.0}},
    "training": {"steps": STEPS},
    "monitor": {"ignore": []},
}

pytestmark = pytest.mark.skipif(CHROMIUM is None, reason="Debian's chromium is not installed")


# ---------------------------------------------------------------- runs


def numbers(step):
    """KL rises by a quarter of a nat a step, and the reward by a hundredth."""
    return Step(
        step,
        {
            "kl/exact_per_sequence": 0.25 * step,
            "reward/proxy": 0.01 * step,
            "control/beta": 0.05,
            "control/target": 6.0,
            "entropy/per_token": 3.0,
            "time/total": 1.0,
        },
        {"kl/exact_per_sequence": 0.1},
    )


def sample(step, index, completion, *, kl, reward, split="eval"):
    return Sample(
        step, split, index, 0, f"Question {index}?", completion, (completion[:4], completion[4:]), (0.0, kl),
        reward, None, kl, True,
    )  # fmt: skip


ALARM = Event(
    20, "critical", "hacking/signature", "Reward and KL rise while diversity falls.", {"kl": 5.0}, 16,
    (Cause("The proxy pays for a pattern.", "Read the samples of the highest reward."),), "Go back to step 10.",
)  # fmt: skip


def write_run(folder, steps=STEPS, *, seed=0, learning_rate=0.001, samples=(), events=()):
    settings = SETTINGS | {"training": {"steps": STEPS, "seed": seed, "learning_rate": learning_rate}}
    with RunWriter.create(folder, settings, {}) as writer:
        for step in range(steps):
            writer.write_step(
                numbers(step),
                [one for one in samples if one.step == step],
                [one for one in events if one.step == step],
            )
            if step in (10, 20):
                writer.write_checkpoint(Checkpoint(step, folder / "checkpoints" / f"step_{step}"))
        writer.set_status("finished")


# ---------------------------------------------------------------- server and browser


@pytest.fixture
def runs(tmp_path):
    folder = tmp_path / "runs"
    folder.mkdir()
    return folder


@pytest.fixture
def serve(runs, tmp_path):
    """Return a function that starts the server over `runs` and other logs, and returns its address."""
    imports = tmp_path / "imports"
    imports.mkdir()
    listening = shell.listen("127.0.0.1", 0)
    started = []

    def serve(*logs):
        app = watch.create_app([runs, *logs], imports, token=None)
        config = uvicorn.Config(app, log_level="warning", timeout_graceful_shutdown=3)
        server = app.state.server = uvicorn.Server(config)
        thread = threading.Thread(target=server.run, kwargs={"sockets": [listening]})
        thread.start()
        started.append((server, thread))
        return f"http://127.0.0.1:{listening.getsockname()[1]}/"

    yield serve
    for server, thread in started:
        server.should_exit = True
        thread.join()
    listening.close()


@pytest.fixture(scope="module")
def browser():
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=CHROMIUM, args=["--no-sandbox"])
        yield browser
        browser.close()


@pytest.fixture
def open_page(browser):
    """Open an address; an error in the console, or a request to another server, fails the test."""
    contexts, problems = [], []

    def open_page(address, **options):
        context = browser.new_context(viewport={"width": 1400, "height": 1000}, **options)
        contexts.append(context)
        page = context.new_page()
        page.set_default_timeout(10_000)
        page.expected = ""
        page.on("pageerror", lambda error: problems.append(str(error)))
        page.on(
            "console",
            lambda line: (
                problems.append(line.text)
                if line.type in ("error", "warning") and not (page.expected and page.expected in line.text)
                else None
            ),
        )
        home = urlsplit(address).netloc
        page.on("request", lambda asked: problems.append(asked.url) if urlsplit(asked.url).netloc != home else None)
        page.goto(address)
        return page

    yield open_page
    for context in contexts:
        context.close()
    assert problems == []


def open_run(page, name):
    page.get_by_role("link", name=name, exact=True).click()
    expect(page.get_by_role("heading", name=name, exact=True)).to_be_visible()
    expect(page.locator("#curves canvas").first).to_be_visible()


def chart(page, title):
    return page.locator("figure.chart", has=page.locator("figcaption .name", has_text=title)).first


def cells(page, column):
    """The texts of a column of the samples table."""
    heads = page.locator(".samples thead th").all_inner_texts()
    at = next(index for index, head in enumerate(heads) if head.startswith(column))
    return page.locator(f".samples tr.sample td:nth-child({at + 1})").all_inner_texts()


# ---------------------------------------------------------------- tests


def test_a_run_that_is_being_written_grows_on_the_page_and_moves_nothing_the_reader_set(runs, serve, open_page):
    writer = RunWriter.create(runs / "live", SETTINGS, {})
    for step in range(20):
        writer.write_step(numbers(step), [sample(step, step, f"reply number {step}", kl=0.25 * step, reward=0.0)])
    page = open_page(serve())
    open_run(page, "live")
    page.evaluate("window.unbroken = true")
    kl = chart(page, "KL to the reference, per sequence").get_by_role("slider")
    expect(kl).to_have_attribute("aria-valuemax", "19")
    box = kl.bounding_box()
    page.mouse.move(box["x"] + box["width"] * 0.3, box["y"] + 60)
    page.mouse.down()
    page.mouse.move(box["x"] + box["width"] * 0.7, box["y"] + 60, steps=4)
    page.mouse.up()
    page.mouse.move(2, 2)
    expect(page.get_by_role("button", name="All steps")).to_be_visible()
    zoomed = [kl.get_attribute(f"aria-value{end}") for end in ("min", "max")]
    assert 0 < int(zoomed[0]) < int(zoomed[1]) < 19
    search = page.get_by_role("searchbox", name="Search")
    search.fill("number 1")
    expect(page.locator(".samples tr.sample")).to_have_count(11)  # 1 and 10 to 19
    page.locator(".samples .opener").first.click()
    expect(page.locator(".opened .heat")).to_have_text("reply number 19")
    search.focus()
    scrolled = page.evaluate("scrollY")
    assert scrolled > 0

    for step in range(20, 25):
        writer.write_step(numbers(step), [sample(step, step, f"reply number 1 at {step}", kl=1.0, reward=0.0)])
    writer.write_event(ALARM)
    expect(page.get_by_text("running · 25 of 40")).to_be_visible()
    expect(page.locator(".callout")).to_contain_text("Reward and KL rise while diversity falls.")
    expect(page.get_by_role("button", name="5 new samples: show")).to_be_visible()
    assert [kl.get_attribute(f"aria-value{end}") for end in ("min", "max")] == zoomed
    assert page.locator(".samples tr.sample").count() == 11
    assert page.locator(".opened").count() == 1
    assert search.input_value() == "number 1"
    assert search.evaluate("element => element === document.activeElement")
    page.get_by_role("button", name="5 new samples: show").click()
    expect(page.locator(".samples tr.sample")).to_have_count(16)
    page.get_by_role("button", name="All steps").click()
    expect(kl).to_have_attribute("aria-valuemax", "24")
    expect(kl).to_have_attribute("aria-label", lasts(6, 24))
    writer.set_status("finished")
    writer.close()
    expect(page.get_by_text("finished · 25 of 40")).to_be_visible()
    assert page.evaluate("window.unbroken")


def lasts(value, step):
    return re.compile(rf"last {value} at step {step}, lowest 0 at step 0")


def test_new_steps_leave_the_scroll_position_alone(runs, serve, open_page):
    with RunWriter.create(runs / "live", SETTINGS, {}) as writer:
        for step in range(5):
            writer.write_step(numbers(step))
        page = open_page(serve())
        open_run(page, "live")
        page.evaluate("scrollTo(0, 300)")
        writer.write_step(numbers(5))
        expect(page.get_by_text("running · 6 of 40")).to_be_attached()
        assert page.evaluate("scrollY") == 300


def test_a_run_that_goes_back_to_a_checkpoint_loses_its_later_steps_on_the_page(runs, serve, open_page):
    write_run(runs / "back", steps=20)
    page = open_page(serve())
    open_run(page, "back")
    kl = chart(page, "KL to the reference, per sequence").get_by_role("slider")
    expect(kl).to_have_attribute("aria-label", lasts(4.75, 19))
    with RunWriter.resume(runs / "back", 10) as writer:
        writer.write_step(numbers(11))
        expect(kl).to_have_attribute("aria-label", lasts(2.75, 11))


def test_a_number_that_is_not_finite_is_said_and_ends_no_page(runs, serve, open_page):
    with RunWriter.create(runs / "broken", SETTINGS, {}) as writer:
        for step in range(4):
            spoiled = {"kl/exact_per_sequence": math.nan} if step == 2 else {}
            writer.write_step(Step(step, dict(numbers(step).metrics) | spoiled))
    page = open_page(serve())
    open_run(page, "broken")
    kl = chart(page, "KL to the reference, per sequence")
    expect(kl.get_by_role("slider")).to_have_attribute("aria-label", lasts(0.75, 3))
    kl.get_by_role("button", name="Table").click()
    rows = kl.locator("tbody tr").all_inner_texts()
    assert [row.split("\t")[1] for row in rows] == ["0", "0.25", "not finite", "0.75"]


def test_a_log_of_another_trainer_has_the_charts_of_what_it_measured_and_says_what_that_is(
    runs, serve, open_page, tmp_path
):
    folder = tmp_path / "trl_out" / "checkpoint-3"
    folder.mkdir(parents=True)
    history = [
        {"step": step, "reward": step / 10, "kl": step / 100, "completions/mean_length": 20.0} for step in (1, 2, 3)
    ]
    folder.joinpath("trainer_state.json").write_text(json.dumps({"log_history": history, "global_step": 3}))
    page = open_page(serve(folder.parent))
    open_run(page, "trl_out")
    expect(page.get_by_text("log of TRL")).to_be_visible()
    assert page.locator("#curves figcaption .name").all_inner_texts()[1:3] == [
        "KL to the reference, per token",
        "Reward",
    ]
    assert page.locator("#samples").count() == 0
    measured = page.locator("#measured tbody tr", has=page.locator("th", has_text="kl"))
    expect(measured).to_contain_text("nats per token")


def test_the_list_shows_health_in_words_and_takes_a_new_run_in(runs, serve, open_page):
    write_run(runs / "calm")
    write_run(runs / "bad", events=[ALARM])
    RunWriter.create(runs / "old", {"training": {"steps": STEPS}}, {}).close()
    page = open_page(serve())
    expect(page.locator("[data-run^=old]")).to_contain_text("○Not watched")
    expect(page.locator("#runs-summary")).to_have_text("3 runs, 1 running, 1 with an alarm")
    expect(page.locator("[data-run^=bad]")).to_contain_text("Critical")
    expect(page.locator("[data-run^=bad]")).to_contain_text("Reward and KL rise while diversity falls.")
    expect(page.locator("[data-run^=calm]")).to_contain_text("OK")
    expect(page.locator("[data-run^=calm]")).to_contain_text("nats per sequence")
    box = page.get_by_role("checkbox", name="Overlay calm")
    box.check()
    box.focus()
    write_run(runs / "late", steps=2)
    expect(page.locator("[data-run^=late]")).to_be_visible()
    expect(box).to_be_checked()
    expect(box).to_be_focused()


def test_a_chart_is_a_sentence_a_cursor_and_a_table_as_well(runs, serve, open_page):
    write_run(runs / "calm")
    page = open_page(serve())
    open_run(page, "calm")
    kl = chart(page, "KL to the reference, per sequence")
    slider = kl.get_by_role("slider")
    expect(slider).to_have_attribute(
        "aria-label",
        "KL to the reference, per sequence, nats per sequence. training: first 0 at step 0, last 9.75 at step 39,"
        " lowest 0 at step 0, highest 9.75 at step 39.",
    )
    slider.focus()
    page.keyboard.press("ArrowLeft")
    expect(slider).to_have_attribute("aria-valuetext", "step 38: training 9.50 ± 0.10, target 6")
    page.keyboard.press("Shift+ArrowLeft")
    expect(chart(page, "Reward").locator(".at")).to_have_text("step 28")
    expect(chart(page, "Reward").locator(".reading")).to_have_text("0.28")
    page.keyboard.press("Home")
    expect(slider).to_have_attribute("aria-valuenow", "0")
    page.keyboard.press("Escape")
    expect(chart(page, "Reward").locator(".at")).to_have_text("")
    kl.get_by_role("button", name="Table").click()
    expect(kl.locator("tbody tr")).to_have_count(STEPS)
    assert kl.locator("tbody tr").nth(8).inner_text().split("\t") == ["8", "2.00 ± 0.10"]


def test_the_mouse_moves_one_cursor_through_all_charts(runs, serve, open_page):
    write_run(runs / "calm")
    page = open_page(serve())
    open_run(page, "calm")
    over = chart(page, "KL to the reference, per sequence").locator(".u-over").bounding_box()
    page.mouse.move(over["x"] + over["width"] * 10 / 39, over["y"] + 40)
    expect(chart(page, "Reward").locator(".at")).to_have_text("step 10")
    expect(chart(page, "Reward").locator(".reading")).to_have_text("0.1")
    expect(chart(page, "KL to the reference, per sequence").locator(".reading").first).to_have_text("2.50 ± 0.10")
    page.mouse.move(2, 2)
    expect(chart(page, "Reward").locator(".reading")).to_have_text("0.39")


def test_an_alarm_opens_to_its_causes_and_marks_the_checkpoints_under_it(runs, serve, open_page):
    write_run(runs / "bad", events=[ALARM])
    page = open_page(serve())
    open_run(page, "bad")
    page.locator("#lane .bar-of").click()
    entry = page.locator(".episode")
    expect(entry).to_have_attribute("open", "")
    expect(entry).to_contain_text("from step 16")
    expect(entry).to_contain_text("The proxy pays for a pattern.")
    expect(entry).to_contain_text("Read the samples of the highest reward.")
    expect(entry).to_contain_text("Go back to step 10.")
    checkpoints = page.locator("#checkpoints tbody tr")
    expect(checkpoints.nth(0)).to_contain_text("hacking/signature")
    expect(checkpoints.nth(1)).to_contain_text("none")
    assert page.locator("#lane .save.suspect").count() - page.locator("#lane .legend .suspect").count() == 1


def test_samples_are_sorted_filtered_and_paged(runs, serve, open_page):
    drawn = [
        sample(step, step, f"text {step} words", kl=float((7 * step) % 40), reward=step / 10) for step in range(40)
    ]
    write_run(runs / "calm", samples=drawn)
    page = open_page(serve())
    open_run(page, "calm")
    expect(page.locator("#samples .title .hint")).to_have_text("1–25 of 40")
    page.get_by_role("button", name="KL", exact=True).click()
    expect(page.get_by_role("columnheader", name="KL")).to_have_attribute("aria-sort", "descending")
    expect(page.locator(".samples tr.sample td:nth-child(3)").first).to_have_text("39")
    assert cells(page, "KL") == [str(value) for value in range(39, 14, -1)]
    page.get_by_role("button", name="KL", exact=True).click()
    expect(page.locator(".samples tr.sample td:nth-child(3)").first).to_have_text("0")
    page.get_by_role("button", name="Next", exact=True).click()
    expect(page.locator("#samples .title .hint")).to_have_text("26–40 of 40")
    assert cells(page, "KL") == [str(value) for value in range(25, 40)]
    page.get_by_role("spinbutton", name="KL, at least").fill("30")
    page.get_by_role("spinbutton", name="Step, at most").fill("20")
    expected = sorted((7 * step) % 40 for step in range(21) if (7 * step) % 40 >= 30)
    expect(page.locator("#samples .title .hint")).to_have_text(f"1–{len(expected)} of {len(expected)}")
    assert cells(page, "KL") == [str(value) for value in expected]
    page.get_by_role("button", name="Clear").click()
    page.get_by_role("spinbutton", name="Reward, at least").fill("3.5")
    expect(page.locator(".samples tr.sample")).to_have_count(5)
    page.get_by_role("searchbox", name="Search").fill("no such words")
    expect(page.get_by_text("No sample is like this.")).to_be_visible()


def test_html_in_a_sample_an_event_or_a_setting_stays_text(runs, serve, open_page):
    event = Event(1, "warning", "kl/spike", HOSTILE, {"<b>x</b>": 1.0}, 1, (Cause(HOSTILE, HOSTILE),), HOSTILE)
    settings = SETTINGS | {"model": {"name": HOSTILE}}
    with RunWriter.create(runs / "evil", settings, {}) as writer:
        for step in range(3):
            writer.write_step(
                numbers(step),
                [sample(step, 0, HOSTILE, kl=1.0, reward=1.0)],
                [event] if step == 1 else [],
            )
    page = open_page(serve())
    expect(page.locator("[data-run]")).to_contain_text("<script>")
    open_run(page, "evil")
    page.locator(".episode summary").click()
    page.locator(".opener").first.click()
    expect(page.locator(".opened .heat")).to_contain_text("<script>window.owned=1</script><b>bold</b>")
    page.get_by_role("button", name="This prompt across the steps").click()
    expect(page.get_by_role("dialog")).to_contain_text("<img src=x")
    assert page.locator("main img, main script, main .heat b, .message b, .values b, dialog img").count() == 0
    assert page.evaluate("window.owned") is None


def test_one_prompt_is_shown_before_and_after(runs, serve, open_page):
    drawn = [sample(step, 3, f"reply at {step}", kl=step / 10, reward=0.5) for step in (0, 10, 30)]
    write_run(runs / "calm", samples=drawn)
    page = open_page(serve())
    open_run(page, "calm")
    page.locator(".opener").first.click()
    page.get_by_role("button", name="This prompt across the steps").click()
    dialog = page.get_by_role("dialog")
    expect(dialog.locator(".heat")).to_have_text(["reply at 0", "reply at 30"])
    dialog.get_by_role("button", name="Right: earlier").click()
    expect(dialog.locator(".heat")).to_have_text(["reply at 0", "reply at 10"])
    expect(dialog.get_by_label("Right", exact=True).locator(".hint")).to_have_text(
        "KL 1 nats per sequence · reward 0.5 · 2 tokens"
    )
    assert dialog.locator(".heat span").nth(3).get_attribute("class") == "k5"  # 1 nat
    page.keyboard.press("Escape")
    expect(dialog).to_have_count(0)


def test_a_bar_ends_where_its_alarm_was_last_found(runs, serve, open_page):
    """That it is over is noticed 20 steps later."""
    began = Event(5, "critical", "kl/spike", "KL jumped.", {}, 5)
    over = Event(26, "info", "kl/spike", "KL is calm since step 8.", {"last": 7.0}, 5, ends=True)
    write_run(runs / "calm", events=[began, over])
    page = open_page(serve())
    open_run(page, "calm")
    expect(page.locator(".bar-of")).to_have_attribute("title", re.compile("Critical: .*, steps 5–7$"))
    expect(page.locator(".episode .when")).to_have_text("steps 5–7")


def test_a_number_that_training_does_not_measure_says_where_it_comes_from(runs, serve, open_page):
    with RunWriter.create(runs / "dpo", SETTINGS, {}) as writer:
        writer.write_step(Step(0, {"eval/reward/proxy": 0.5}))
        for step in range(1, 4):
            writer.write_step(Step(step, {"loss/preference": 1.0, "kl/exact_per_sequence": 2.0}))
    page = open_page(serve())
    expect(page.locator("[data-run^=dpo] [data-label=Reward]")).to_contain_text("held out, step 0")
    open_run(page, "dpo")
    tiles = page.locator(".tiles")
    expect(tiles.locator("div", has_text="Reward").locator(".small")).to_have_text("held out, step 0")
    expect(tiles.locator("div", has_text="KL to the reference").locator(".small")).to_have_text(
        "nats per sequence · step 3"
    )


def test_a_very_long_reply_opens_with_its_beginning(runs, serve, open_page):
    many = 310_000
    tokens = tuple("word " if at < many - 1 else "end" for at in range(many))
    long = Sample(3, "eval", 0, 0, "Go on.", "".join(tokens), tokens, (0.5,) * many, 1.0, None, 2.0, True)
    write_run(runs / "calm", steps=5, samples=[long])
    page = open_page(serve())
    open_run(page, "calm")
    assert len(page.locator(".opener").first.inner_text()) <= 240
    page.locator(".opener").first.click()
    expect(page.locator(".opened .heat > span")).to_have_count(20_000)
    page.set_default_timeout(60_000)
    page.get_by_role("button", name="Show the rest: 290").click()
    assert page.evaluate("document.querySelectorAll('.opened .heat > span').length") == many
    assert page.evaluate("document.querySelector('.opened .heat').lastChild.textContent") == "end"
    assert page.get_by_role("button", name="Show the rest").count() == 0


def test_a_malformed_address_shows_the_list(runs, serve, open_page):
    write_run(runs / "calm", steps=2)
    page = open_page(serve() + "#/run/%E0%A4%A")
    expect(page.get_by_role("link", name="calm", exact=True)).to_be_visible()


def test_runs_are_overlaid_and_their_settings_compared(runs, serve, open_page):
    write_run(runs / "one", seed=1)
    write_run(runs / "two", steps=20, seed=2, learning_rate=0.002)
    page = open_page(serve())
    page.get_by_role("checkbox", name="Overlay one").check()
    page.get_by_role("checkbox", name="Overlay two").check()
    page.get_by_role("link", name="Overlay 2 runs").click()
    kl = chart(page, "KL to the reference")
    expect(kl.get_by_role("slider")).to_have_attribute(
        "aria-label",
        "KL to the reference, nats per sequence."
        " one: first 0 at step 0, last 9.75 at step 39, lowest 0 at step 0, highest 9.75 at step 39;"
        " two: first 0 at step 0, last 4.75 at step 19, lowest 0 at step 0, highest 4.75 at step 19.",
    )
    rows = page.locator("#settings tbody tr")
    expect(rows).to_have_count(2)
    assert sorted(row.split("\t") for row in rows.all_inner_texts()) == [
        ["training.learning_rate", "0.001", "0.002"],
        ["training.seed", "1", "2"],
    ]
    page.get_by_role("checkbox", name="show those that are the same").check()
    expect(page.locator("#settings")).to_contain_text("algorithm.kl.target_nats_per_sequence")


def test_the_keyboard_alone_reaches_a_run_a_chart_and_a_sample(runs, serve, open_page):
    write_run(runs / "calm", samples=[sample(5, 0, "the only reply", kl=1.0, reward=0.5)])
    page = open_page(serve())
    expect(page.get_by_role("link", name="calm", exact=True)).to_be_visible()
    tab_to(page, "calm")
    assert page.evaluate("getComputedStyle(document.activeElement).outlineStyle") == "solid"
    page.keyboard.press("Enter")
    expect(page.locator("#curves canvas").first).to_be_visible()
    tab_to(page, "KL to the reference, per sequence")
    page.keyboard.press("ArrowLeft")
    expect(chart(page, "Reward").locator(".at")).to_have_text("step 38")
    expect(page.locator(".opener")).to_be_visible()
    tab_to(page, "Open the sample of step 5")
    page.keyboard.press("Space")
    expect(page.locator(".opened .heat")).to_have_text("the only reply")
    assert page.evaluate("document.activeElement.getAttribute('aria-expanded')") == "true"
    tab_to(page, "This prompt across the steps")
    page.keyboard.press("Escape")
    expect(page.locator(".opened")).to_have_count(0)
    assert page.evaluate("document.activeElement.className").split()[-1] == "opener"


def tab_to(page, name):
    """Press Tab until what has the focus is called so."""
    for _ in range(80):
        page.keyboard.press("Tab")
        called = page.evaluate("(document.activeElement.ariaLabel ?? '') + '|' + document.activeElement.textContent")
        if any(part.startswith(name) for part in called.split("|")):
            return
    raise AssertionError(f"Tab never reached {name!r}.")


def test_dark_follows_the_system_and_the_switch(runs, serve, open_page):
    write_run(runs / "calm")
    page = open_page(serve(), color_scheme="dark")
    open_run(page, "calm")
    paper = "getComputedStyle(document.body).backgroundColor"
    assert page.evaluate(paper) == "rgb(20, 22, 25)"
    page.get_by_role("button", name="Theme: auto").click()
    assert page.evaluate(paper) == "rgb(250, 249, 246)"
    page.reload()
    expect(page.get_by_role("button", name="Theme: light")).to_be_visible()
    assert page.evaluate(paper) == "rgb(250, 249, 246)"
    page.get_by_role("button", name="Theme: light").click()
    assert page.evaluate(paper) == "rgb(20, 22, 25)"


def test_a_narrow_window_needs_no_sideways_scrolling(runs, serve, open_page):
    write_run(runs / "calm", events=[ALARM], samples=[sample(5, 0, "a reply", kl=1.0, reward=0.5)])
    page = open_page(serve())
    page.set_viewport_size({"width": 400, "height": 800})
    width = "document.documentElement.scrollWidth"
    expect(page.get_by_role("link", name="calm", exact=True)).to_be_visible()
    assert page.evaluate(width) <= 400
    open_run(page, "calm")
    expect(page.locator(".opener")).to_be_attached()
    assert page.evaluate(width) <= 400


def test_a_run_that_is_deleted_while_it_is_open_is_a_sentence(runs, serve, open_page):
    write_run(runs / "calm")
    write_run(runs / "doomed")
    page = open_page(serve())
    open_run(page, "doomed")
    page.expected = "Failed to load resource"
    shutil.rmtree(runs / "doomed")
    page.reload()
    expect(page.get_by_role("alert")).to_contain_text("doomed")
    page.get_by_role("link", name="All runs").click()
    expect(page.get_by_role("link", name="calm", exact=True)).to_be_visible()
    expect(page.get_by_role("alert")).to_be_hidden()


def test_another_name_for_this_server_is_refused(serve):
    address = urlsplit(serve())
    for path in ("/", "/api/runs", "/static/watch.js"):
        connection = http.client.HTTPConnection(address.hostname, address.port, timeout=10)
        connection.request("GET", path, headers={"Host": "rebound.example.com"})
        answer = connection.getresponse()
        assert answer.status == 400
        assert b"Host 'rebound.example.com' is not an address of this server." in answer.read()
        connection.close()


FILTER = """async ([field, value]) => {
  const input = document.querySelector(`.filters [name=${field}]`);
  const body = document.querySelector(".samples tbody");
  const drawn = new Promise((done) => new MutationObserver(done).observe(body, { childList: true }));
  const began = performance.now();
  input.value = value;
  input.dispatchEvent(new Event("input", { bubbles: true }));
  await drawn;
  await new Promise(requestAnimationFrame);
  return performance.now() - began;
}"""


@pytest.mark.slow
def test_twenty_thousand_steps_and_fifty_thousand_samples_stay_responsive(runs, serve, open_page, capsys):
    make_big_run(runs / "big")
    home = serve()
    listed = open_page(home).get_by_role("link", name="big", exact=True)
    expect(listed).to_be_visible(timeout=30_000)
    page = open_page(home + listed.get_attribute("href"))
    loads = [load_times(page) for _ in range(3)]
    asked = [
        ("min_kl", "6"),
        ("search", "brothers"),
        ("search", "nowhere"),
        ("min_reward", "1"),
        ("first_step", "9000"),
    ]
    filters = {f"{field} {value}": min(filter_times(page, field, value)) for field, value in asked}
    paint, curve, every = (min(times) for times in zip(*loads, strict=True))
    with capsys.disabled():
        print(f"\nbest of 3: first paint {paint:.0f} ms, KL curve {curve:.0f} ms, every curve {every:.0f} ms; filters:")
        print(", ".join(f"{name} {took:.0f} ms" for name, took in filters.items()))
    assert paint < 2000
    assert curve < 2000
    assert max(filters.values()) < 300


def load_times(page):
    """Milliseconds from a reload to the first paint, the topmost curve, and every curve of the run."""
    page.reload()
    page.wait_for_selector("#curves canvas")
    curve = page.evaluate("performance.now()")
    page.wait_for_selector("#details canvas >> nth=3")
    every = page.evaluate("performance.now()")
    page.wait_for_selector(".samples tr.sample")
    return page.evaluate("performance.getEntriesByName('first-contentful-paint')[0].startTime"), curve, every


def filter_times(page, field, value):
    """Milliseconds from the last key to the rows, three times."""
    times = []
    for _ in range(3):
        times.append(page.evaluate(FILTER, [field, value]))
        page.evaluate(FILTER, [field, ""])
    return times
