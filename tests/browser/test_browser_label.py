"""The labelling page in a real browser against a real server: what an annotator means is what the store holds."""

import random
import shutil
import socket
import subprocess
import sys
import threading
import time
from contextlib import contextmanager

import pytest
import uvicorn
from playwright.sync_api import sync_playwright
from postgres_server import postgres_server

from kleash.labels.records import Pair
from kleash.labels.store import LabelStore
from kleash.web import label_page

CHROMIUM = shutil.which("chromium")
SERVE = "import sys; from kleash.web import label_page; label_page.serve(sys.argv[1], port=int(sys.argv[2]))"
START_SECONDS = 20
PAIRS = 20

pytestmark = pytest.mark.skipif(CHROMIUM is None, reason="Debian's chromium is not installed")


@pytest.fixture(scope="module")
def browser():
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=CHROMIUM, args=["--no-sandbox"])
        yield browser
        browser.close()


@pytest.fixture
def open_page(browser):
    """Open the page in a browser profile of its own; a script error or a breach of the policy fails the test."""
    contexts, problems = [], []

    def open_page(address, name):
        context = browser.new_context()
        contexts.append(context)
        page = context.new_page()
        page.set_default_timeout(10_000)
        page.on("pageerror", lambda error: problems.append(str(error)))
        page.on("console", lambda line: problems.append(line.text) if "Content Security Policy" in line.text else None)
        page.goto(address)
        page.keyboard.type(name)
        page.keyboard.press("Enter")
        settle(page)
        return page

    yield open_page
    for context in contexts:
        context.close()
    assert problems == []


@contextmanager
def serving(location, port):
    """Run the server as a user does, in a process of its own, and end it with Ctrl-C's signal."""
    process = subprocess.Popen(
        [sys.executable, "-c", SERVE, str(location), str(port)],
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        text=True,
    )
    try:
        wait_for(lambda: process.poll() is None, port)
        yield f"http://127.0.0.1:{port}/"
    finally:
        process.send_signal(subprocess.signal.SIGINT)
        _, errors = process.communicate(timeout=START_SECONDS)
    assert (process.returncode, errors) == (0, "")


@contextmanager
def serving_here(location, port, token=None):
    """Run the server in a thread, which starts sooner."""
    app = label_page.create_app(location, token=token)
    server = uvicorn.Server(uvicorn.Config(app, port=port, log_level="warning"))
    thread = threading.Thread(target=server.run)
    thread.start()
    try:
        wait_for(thread.is_alive, port)
        yield f"http://127.0.0.1:{port}/"
    finally:
        server.should_exit = True
        thread.join()


def wait_for(alive, port):
    end = time.monotonic() + START_SECONDS
    while alive() and time.monotonic() < end:
        with socket.socket() as probe:
            if probe.connect_ex(("127.0.0.1", port)) == 0:
                return
        time.sleep(0.05)
    raise AssertionError("The server did not start.")


@pytest.fixture
def port():
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


def settle(page):
    """Wait until the page takes the next vote, or has nothing left."""
    page.wait_for_selector("body[data-state=ready], body[data-state=end]")


def at_the_end(page):
    return page.locator("body").get_attribute("data-state") == "end"


def reads(page, part):
    return page.locator(f"#{part}").text_content()


def fill(location, pairs):
    with LabelStore.open(location) as store:
        assert store.add(pairs) == len(pairs)


def numbered_pairs(count):
    return [Pair(f"question {n}", f"answer A{n}", f"answer B{n}") for n in range(count)]


def held_votes(location):
    """Return (annotator, prompt, the text that was chosen or what else was said, strength, note) of every vote."""
    with LabelStore.open(location) as store:
        pairs = {pair.id: pair for pair in store.pairs()}
        rows = []
        for vote in store.votes():
            pair = pairs[vote.pair_id]
            meant = {"first": pair.first, "second": pair.second}.get(vote.choice, vote.choice)
            rows.append((vote.annotator, pair.prompt, "flag" if vote.flagged else meant, vote.strength, vote.note))
    return sorted(rows, key=str)


KEYS = {
    "ArrowLeft": ("left", 1.0),
    "1": ("left", 1.0),
    "Shift+ArrowLeft": ("left", 2.0),
    "ArrowRight": ("right", 1.0),
    "2": ("right", 1.0),
    "Shift+ArrowRight": ("right", 2.0),
    "ArrowDown": ("tie", None),
    "t": ("tie", None),
    "0": ("tie", None),
    "s": ("skip", None),
}


class Annotator:
    """Someone at a keyboard, who remembers what they meant."""

    def __init__(self, name, page, seed):
        self.name = name
        self.page = page
        self.meant = {}
        self._chance = random.Random(seed)

    @property
    def rows(self):
        return [(self.name, prompt, *meant) for prompt, meant in self.meant.items()]

    def vote(self):
        key = self._chance.choice(list(KEYS))
        side, strength = KEYS[key]
        self._meant_now(reads(self.page, f"{side}-text") if side in ("left", "right") else side, strength)
        self.page.keyboard.press(key)

    def hammer(self):
        """Press a key and others before the next pair can be seen; then hold one down."""
        self._meant_now(reads(self.page, "left-text"), 1.0)
        for key in ("ArrowLeft", "ArrowRight", "2", "t"):
            self.page.keyboard.press(key)
        settle(self.page)
        self._meant_now(reads(self.page, "right-text"), 1.0)
        for _ in range(12):
            self.page.keyboard.down("ArrowRight")
            self.page.wait_for_timeout(50)
        self.page.keyboard.up("ArrowRight")

    def flag(self):
        self._meant_now("flag", None, "cut off")
        self.page.keyboard.press("f")
        self.page.keyboard.type("cut off")
        self.page.keyboard.press("Enter")

    def undo(self, key):
        prompt, _ = self.meant.popitem()
        self.page.keyboard.press(key)
        settle(self.page)
        assert self._prompt() == prompt

    def _prompt(self):
        return self.page.locator("#prompt .content").text_content()

    def _meant_now(self, text, strength, note=None):
        assert self._prompt() not in self.meant
        self.meant[self._prompt()] = (text, strength, note)


def label_together(location, port, open_page):
    """Two annotators label all pairs at once, with the keyboard alone."""
    fill(location, numbered_pairs(PAIRS))
    with serving(location, port) as address:
        annotators = [Annotator(name, open_page(address, name), seed) for seed, name in enumerate(("Ada", "Ben"))]
        interludes = {
            3: lambda one: one.undo("u"),
            5: lambda one: one.page.reload(),
            7: lambda one: one.flag(),
            9: lambda one: one.hammer(),
            12: lambda one: (one.undo("Backspace"), one.undo("u")),
            14: lambda one: (one.undo("u"), one.page.reload()),
        }
        for step in range(PAIRS + 1):  # 4 votes are taken back, and 3 of the interludes' own stand
            for one in annotators:
                settle(one.page)
                interludes.get(step, lambda _: None)(one)
                settle(one.page)
                one.vote()
        for one in annotators:
            settle(one.page)
            assert at_the_end(one.page)
            assert reads(one.page, "counts").startswith(f"{PAIRS} of {PAIRS}")
    assert held_votes(location) == sorted((row for one in annotators for row in one.rows), key=str)
    assert len(held_votes(location)) == 2 * PAIRS


def test_two_annotators_lose_and_double_no_vote(tmp_path, port, open_page):
    label_together(tmp_path / "labels.db", port, open_page)


def test_two_annotators_lose_and_double_no_vote_on_postgresql(port, open_page):
    with postgres_server() as location:
        label_together(location, port, open_page)


def test_a_vote_survives_a_server_that_is_gone(tmp_path, port, open_page):
    location = tmp_path / "labels.db"
    fill(location, numbered_pairs(3))
    with serving(location, port) as address:
        page = open_page(address, "Ada")
        page.keyboard.press("t")
        settle(page)
    meant = reads(page, "right-text")
    page.keyboard.press("Shift+ArrowRight")
    page.wait_for_selector("#trouble:not([hidden])")
    assert reads(page, "trouble-text").startswith("The server does not answer. Your vote is kept in this browser")
    assert page.locator("#drop").is_hidden()
    page.keyboard.press("ArrowLeft")
    page.keyboard.press("u")
    assert reads(page, "right-text") == meant
    with serving(location, port):
        settle(page)
        assert page.locator("#trouble").is_hidden()
        assert page.evaluate("Object.keys(localStorage)") == ["kleash.annotator"]
    assert held_votes(location) == [
        ("Ada", "question 0", "tie", None, None),
        ("Ada", "question 1", meant, 2.0, None),
    ]


def test_an_unsent_vote_survives_a_reload_and_a_lost_answer(tmp_path, port, open_page):
    location = tmp_path / "labels.db"
    fill(location, numbered_pairs(2))
    with serving_here(location, port) as address:
        page = open_page(address, "Ada")
        arrived = []

        def lose_the_answer(route):
            arrived.append(route.fetch().status)
            route.abort()

        page.route("**/api/vote", lose_the_answer)
        meant = reads(page, "left-text")
        page.keyboard.press("1")
        page.wait_for_selector("#trouble:not([hidden])")
        assert arrived[0] == 200
        page.unroute("**/api/vote")
        page.reload()
        settle(page)
        assert page.locator("#prompt .content").text_content() == "question 1"
    assert held_votes(location) == [("Ada", "question 0", meant, 1.0, None)]


def test_a_refused_vote_says_why_and_is_kept_until_it_is_sent_or_discarded(tmp_path, port, open_page):
    location = tmp_path / "labels.db"
    fill(location, numbered_pairs(2))
    with serving_here(location, port) as address:
        page = open_page(address, "Ada")
        page.route("**/api/vote", lambda route: route.fulfill(status=400, body="This vote is refused."))
        page.keyboard.press("ArrowDown")
        page.wait_for_selector("#drop:not([hidden])")
        assert reads(page, "trouble-text").startswith("This vote is refused. Your vote is kept")
        page.unroute("**/api/vote")
        page.get_by_role("button", name="Send again now").click()
        settle(page)
        page.route("**/api/vote", lambda route: route.fulfill(status=400, body="This vote is refused."))
        page.keyboard.press("s")
        page.get_by_role("button", name="Discard this vote").click()
        settle(page)
        assert page.locator("#prompt .content").text_content() == "question 1"
        assert reads(page, "said").startswith("The vote was discarded.")
    assert held_votes(location) == [("Ada", "question 0", "tie", None, None)]


def test_html_in_a_prompt_or_a_completion_stays_text(tmp_path, port, open_page):
    location = tmp_path / "labels.db"
    hostile = '<img src=x onerror="window.owned=1"><script>window.owned=1</script><b>bold</b>\n  & &amp;'
    fill(location, [Pair([{"role": "user", "content": hostile}], hostile, f"{hostile} too")])
    with serving_here(location, port) as address:
        page = open_page(address, "<i>Ada</i>")
        assert page.locator("#prompt .content").text_content() == hostile
        assert {reads(page, "left-text"), reads(page, "right-text")} == {hostile, f"{hostile} too"}
        assert page.locator("main img, main b, main script, #who i").count() == 0
        assert page.evaluate("window.owned") is None
        assert reads(page, "who") == "Voting as <i>Ada</i>"


def test_buttons_do_what_keys_do_and_a_held_enter_votes_once(tmp_path, port, open_page):
    location = tmp_path / "labels.db"
    fill(location, numbered_pairs(4))
    with serving_here(location, port) as address:
        page = open_page(address, "Ada")
        meant = reads(page, "left-text")
        page.get_by_role("button", name="Left, clearly").click()
        settle(page)
        page.keyboard.press("Space")  # scrolls: the button that was clicked has no focus any more
        page.wait_for_timeout(400)
        assert reads(page, "counts") == "1 of 4"
        page.get_by_role("button", name="Tie").focus()
        for _ in range(10):
            page.keyboard.down("Enter")
            page.wait_for_timeout(60)
        page.keyboard.up("Enter")
        settle(page)
        assert reads(page, "counts") == "2 of 4"
        page.get_by_role("button", name="Skip").click()
        settle(page)
        page.keyboard.press("?")
        assert page.get_by_role("dialog", name="Keys").is_visible()
        page.keyboard.press("t")  # a dialog is open: no vote
        page.get_by_role("button", name="Close").click()
        page.get_by_role("button", name="Flag").click()
        page.keyboard.press("Escape")
        page.get_by_role("dialog", name="Flag this pair").wait_for(state="hidden")
        assert reads(page, "counts") == "3 of 4 · 1 skipped"
        page.get_by_role("button", name="Undo").first.click()
        settle(page)
        assert reads(page, "said").startswith("Taken back")
    assert held_votes(location) == [
        ("Ada", "question 0", meant, 2.0, None),
        ("Ada", "question 1", "tie", None, None),
    ]


PRESS_WHEN_A_PAIR_APPEARS = """() => {
  const press = () => document.body.dispatchEvent(new KeyboardEvent("keydown", { key: "t", bubbles: true }));
  new MutationObserver(() => { press(); setTimeout(press, 50); })
    .observe(document.getElementById("prompt"), { childList: true });
}"""


def test_a_key_that_comes_before_a_pair_can_have_been_read_is_no_vote(tmp_path, port, open_page):
    location = tmp_path / "labels.db"
    fill(location, numbered_pairs(3))
    with serving_here(location, port) as address:
        page = open_page(address, "Ada")
        page.evaluate(PRESS_WHEN_A_PAIR_APPEARS)
        page.keyboard.press("s")
        page.wait_for_timeout(500)
        settle(page)
        assert reads(page, "counts") == "1 of 3 · 1 skipped"
    assert held_votes(location) == [("Ada", "question 0", "skip", None, None)]


def test_the_name_is_asked_once_and_can_be_changed(tmp_path, port, open_page):
    location = tmp_path / "labels.db"
    fill(location, numbered_pairs(1))
    with serving_here(location, port) as address:
        page = open_page(address, "Ada")
        page.reload()
        settle(page)
        assert reads(page, "who") == "Voting as Ada"
        page.keyboard.press("t")
        settle(page)
        assert at_the_end(page)
        assert reads(page, "end-text") == "You compared 1 pair. Thank you."
        page.locator("#who").click()
        page.keyboard.type("Ben")
        page.keyboard.press("Enter")
        settle(page)
        assert not at_the_end(page)
        assert reads(page, "others") == "Ada 1"


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_nothing_is_cut_off_on_a_narrow_screen(tmp_path, port, open_page, scheme):
    location = tmp_path / "labels.db"
    fill(location, [Pair("question", "word " * 400, "x" * 2000)])
    with serving_here(location, port) as address:
        page = open_page(address, "Ada")
        page.emulate_media(color_scheme=scheme)
        page.set_viewport_size({"width": 360, "height": 640})
        assert page.evaluate("document.documentElement.scrollWidth") == 360
        assert page.get_by_role("button", name="Tie").bounding_box()["y"] < 640


def test_a_link_with_the_token_opens_the_page_from_another_site(browser, tmp_path, port):
    """A strict cookie does not come along on the other site's click; the page opens all the same."""
    location, token = tmp_path / "labels.db", "a-token-of-some-length"
    fill(location, numbered_pairs(1))
    with serving_here(location, port, token) as address, browser.new_context() as context:
        page = context.new_page()
        link = f'<a href="{address}?token={token}">label with me</a>'
        page.route("http://mail.example/", lambda route: route.fulfill(body=link, content_type="text/html"))
        page.goto("http://mail.example/")
        page.get_by_text("label with me").click()
        page.get_by_label("Your name").fill("Ada")
        page.keyboard.press("Enter")
        settle(page)
        assert page.url == address
        page.keyboard.press("t")
        settle(page)
        assert at_the_end(page)
    assert held_votes(location) == [("Ada", "question 0", "tie", None, None)]
