import re
from concurrent.futures import ThreadPoolExecutor
from importlib.resources import files

import pytest
from starlette.testclient import TestClient

from kleash.errors import ConfigError
from kleash.labels.records import Pair
from kleash.labels.store import LabelStore
from kleash.web import label_page

CHAT = [{"role": "system", "content": "Be kind."}, {"role": "user", "content": "How was it?"}]
STATIC = files("kleash.web").joinpath("static")
PAGE_FILES = ["label.html", "label.css", "label.js", "icon.svg"]


def plain_pairs(count):
    return [Pair(f"prompt {n}", f"good {n}", f"bad {n}") for n in range(count)]


@pytest.fixture
def store(tmp_path):
    with LabelStore.open(tmp_path / "labels.db") as store:
        yield store


@pytest.fixture
def page(store, tmp_path):
    app = label_page.create_app(tmp_path / "labels.db", token=None)
    with TestClient(app, base_url="http://localhost:8765") as client:
        yield client


def task(page, annotator="Ada"):
    answer = page.get("/api/task", params={"annotator": annotator})
    assert answer.status_code == 200, answer.text
    return answer.json()["task"]


def side_of(shown, text):
    """Return the mark of the completion that reads so."""
    return next(shown[side]["mark"] for side in ("left", "right") if shown[side]["text"] == text)


def vote(page, shown, choice, annotator="Ada", **more):
    return page.post("/api/vote", json={"annotator": annotator, "pair": shown["pair"], "choice": choice, **more})


def said(store):
    return [
        (vote.annotator, vote.pair_id, vote.choice, vote.strength, vote.flagged, vote.note) for vote in store.votes()
    ]


def test_a_task_has_the_prompt_as_turns_and_two_marked_texts(page, store):
    store.add([Pair(CHAT, "Fine.", "Bad.", source="secret-model")])
    answer = page.get("/api/task", params={"annotator": "Ada"})
    shown = answer.json()["task"]
    assert shown["prompt"] == CHAT
    assert {shown["left"]["text"], shown["right"]["text"]} == {"Fine.", "Bad."}
    assert shown["left"]["mark"] != shown["right"]["mark"]
    assert not re.search("first|second|secret-model", answer.text)


def test_a_plain_prompt_is_one_turn_and_a_content_that_is_no_text_is_json(page, store):
    parts = [{"type": "text", "text": "Look"}]
    store.add([Pair("Once", "a", "b"), Pair([{"role": "user", "content": parts}], "a", "b")])
    shown = task(page)
    assert shown["prompt"] == [{"role": "prompt", "content": "Once"}]
    vote(page, shown, "tie")
    assert '"text": "Look"' in task(page)["prompt"][0]["content"]


def test_a_vote_means_the_text_that_was_read_whatever_side_it_stood_on(page, store):
    store.add(plain_pairs(12))
    left_was_first = set()
    for annotator in ("Ada", "Ben"):
        for _ in range(12):
            shown = task(page, annotator)
            number = shown["prompt"][0]["content"].removeprefix("prompt ")
            wanted = f"good {number}" if int(number) % 3 else f"bad {number}"
            left_was_first.add(shown["left"]["text"].startswith("good"))
            assert vote(page, shown, side_of(shown, wanted), annotator).status_code == 200
    assert left_was_first == {True, False}
    assert len(said(store)) == 24
    prompts = {pair.id: int(pair.prompt.removeprefix("prompt ")) for pair in store.pairs()}
    assert all(choice == ("first" if prompts[pair] % 3 else "second") for _, pair, choice, _, _, _ in said(store))


def test_ties_skips_strength_and_time_arrive(page, store):
    store.add(plain_pairs(3))
    vote(page, task(page), "tie", seconds=1.5)
    vote(page, task(page), "skip")
    shown = task(page)
    vote(page, shown, side_of(shown, "bad 2"), strength=2, seconds=0.1)
    assert [row[2:4] for row in said(store)] == [("tie", None), ("skip", None), ("second", 2.0)]
    assert [vote.seconds for vote in store.votes()] == [1.5, None, 0.1]


def test_a_vote_that_is_sent_twice_counts_once_and_a_later_one_replaces_it(page, store):
    store.add(plain_pairs(2))
    shown = task(page)
    good, bad = side_of(shown, "good 0"), side_of(shown, "bad 0")
    following = [vote(page, shown, good).json() for _ in range(2)]
    assert following[0] == following[1]
    assert following[0]["task"]["pair"] != shown["pair"]
    assert [row[2] for row in said(store)] == ["first"]
    vote(page, shown, bad)
    assert [row[2] for row in said(store)] == ["second"]


def test_a_vote_still_arrives_after_the_server_started_again(store, tmp_path, page):
    store.add(plain_pairs(2))
    shown = task(page)
    app = label_page.create_app(tmp_path / "labels.db", token=None)
    with TestClient(app, base_url="http://localhost:8765") as restarted:
        assert vote(restarted, shown, shown["left"]["mark"]).status_code == 200
    assert len(said(store)) == 1


def test_many_votes_at_once_are_all_kept(page, store):
    store.add(plain_pairs(4))
    names = [f"annotator {n}" for n in range(8)]

    def work(name):
        for _ in range(4):
            assert vote(page, task(page, name), "tie", name).status_code == 200

    with ThreadPoolExecutor(8) as pool:
        list(pool.map(work, names))
    assert sorted(row[:2] for row in said(store)) == [(name, pair.id) for name in names for pair in store.pairs()]


@pytest.mark.parametrize(
    ("sent", "status", "message"),
    [
        ({"pair": 99, "choice": "tie"}, 400, "There is no pair 99"),
        ({"choice": "left"}, 400, "The choice 'left' is neither a completion that Ada was shown in pair 1"),
        ({"choice": "tie", "strength": 1}, 400, "only a vote for one of the two completions has one"),
        ({"choice": "tie", "strength": 3}, 422, "strength"),
        ({"choice": "tie", "seconds": -1}, 422, "seconds"),
        ({"choice": "tie", "annotator": "  "}, 422, "annotator"),
        ({"choice": "tie", "annotator": "a" * 81}, 422, "annotator"),
        ({"choice": "tie", "annotator": "a\u0000b"}, 400, "annotator's name"),
        ({"choice": "tie", "colour": "red"}, 422, "colour"),
    ],
)
def test_a_vote_that_cannot_be_meant_is_refused_with_a_reason(page, store, sent, status, message):
    store.add(plain_pairs(1))
    answer = page.post("/api/vote", json={"annotator": "Ada", "pair": 1, **sent})
    assert answer.status_code == status
    assert message in answer.text
    assert said(store) == []


def test_a_mark_is_only_good_for_the_annotator_who_was_shown_it(page, store):
    store.add(plain_pairs(1))
    shown = task(page, "Ada")
    assert vote(page, shown, shown["left"]["mark"], "Ben").status_code == 400


def test_a_name_is_the_same_with_spaces_around_it(page, store):
    store.add(plain_pairs(1))
    assert vote(page, task(page), "tie", " Ada ").json()["task"] is None
    assert said(store)[0][0] == "Ada"


def test_undo_brings_the_last_pair_back(page, store):
    store.add(plain_pairs(2))
    shown = task(page)
    vote(page, shown, "tie")
    screen = page.post("/api/undo", json={"annotator": "Ada"}).json()
    assert (screen["undone"], screen["task"]) == (True, shown)
    assert screen["progress"]["done"] == 0
    assert said(store) == []
    screen = page.post("/api/undo", json={"annotator": "Ada"}).json()
    assert (screen["undone"], screen["task"]) == (False, shown)


def test_a_flag_takes_the_pair_out_of_the_queue_and_keeps_the_note(page, store):
    store.add(plain_pairs(2))
    shown = task(page)
    screen = page.post("/api/flag", json={"annotator": "Ada", "pair": shown["pair"], "note": " cut off "}).json()
    assert screen["task"]["pair"] != shown["pair"]
    assert screen["progress"]["flagged"] == 1
    page.post("/api/flag", json={"annotator": "Ada", "pair": screen["task"]["pair"], "note": ""})
    assert [row[2:] for row in said(store)] == [(None, None, True, "cut off"), (None, None, True, None)]


def test_progress_counts_ones_own_pairs_and_everyones_answers(page, store):
    store.add(plain_pairs(4))
    vote(page, task(page, "Ben"), "tie", "Ben")
    vote(page, task(page), "tie")
    vote(page, task(page), "skip")
    progress = page.get("/api/progress", params={"annotator": "Ada"}).json()
    assert progress == {
        "done": 1,
        "skipped": 1,
        "flagged": 0,
        "remaining": 2,
        "total": 4,
        "by_annotator": {"Ada": 1, "Ben": 1},
    }


def test_agreement_is_cohens_kappa(page, store):
    """Three of four agree; chance gives 1/2 * 3/4 + 1/2 * 1/4 = 1/2, so kappa = (3/4 - 1/2) / (1 - 1/2)."""
    store.add(plain_pairs(4))
    for pair, (ada, ben) in enumerate(
        [("first", "first"), ("first", "first"), ("second", "first"), ("second",) * 2], 1
    ):
        store.vote("Ada", pair, ada)
        store.vote("Ben", pair, ben)
    answer = page.get("/api/agreement").json()
    assert answer["kappa"] == pytest.approx(0.5)
    assert answer["raw"] == pytest.approx(0.75)
    assert (answer["pairs"], answer["statistic"]) == (4, "Cohen's kappa")
    assert answer["low"] <= 0.5 <= answer["high"]


def test_an_empty_queue_has_no_task(page):
    screen = page.get("/api/task", params={"annotator": "Ada"}).json()
    assert screen["task"] is None
    assert screen["progress"]["total"] == 0


def test_the_page_is_behind_the_token(tmp_path):
    token = "a-token-of-some-length"
    with TestClient(label_page.create_app(tmp_path / "labels.db", token=token), base_url="http://localhost") as page:
        assert page.get("/").status_code == 401
        assert page.get("/api/agreement").status_code == 401
        assert page.get("/", headers={"authorization": f"Bearer {token}"}).status_code == 200


def test_the_page_comes_whole_from_this_server(page):
    html = page.get("/").text
    addresses = re.findall(r'(?:src|href)="([^"]+)"', html)
    assert len(addresses) == 4
    kinds = {address: page.get(address).headers["content-type"].partition(";")[0] for address in addresses}
    assert kinds == {
        "/static/icon.svg": "image/svg+xml",
        "/static/style.css": "text/css",
        "/static/label.css": "text/css",
        "/static/label.js": "text/javascript",
    }


@pytest.mark.parametrize("name", PAGE_FILES)
def test_a_file_of_the_page_names_no_other_server(name):
    text = STATIC.joinpath(name).read_text(encoding="utf-8").replace("http://www.w3.org/2000/svg", "")
    assert not re.search(r"https?:|//[a-z]+\.", text)


def test_the_page_has_no_inline_script_or_style():
    html = STATIC.joinpath("label.html").read_text(encoding="utf-8")
    assert not re.search(r"<style|\sstyle=|\son[a-z]+=|<script(?![^>]*\ssrc=)", html)
    assert "innerHTML" not in STATIC.joinpath("label.js").read_text(encoding="utf-8")


def test_an_open_address_without_a_token_is_refused_before_a_store_is_made(tmp_path, monkeypatch):
    monkeypatch.delenv("KLEASH_TOKEN", raising=False)
    with pytest.raises(ConfigError, match=r"host = '0\.0\.0\.0' can be reached from other machines"):
        label_page.serve(tmp_path / "labels.db", host="0.0.0.0")
    assert list(tmp_path.iterdir()) == []
