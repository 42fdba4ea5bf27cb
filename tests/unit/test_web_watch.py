import shutil
import sqlite3
from importlib.resources import files

import pytest
from starlette.testclient import TestClient

from kleash.errors import ConfigError
from kleash.runs.reader import RunReader
from kleash.runs.records import Cause, Checkpoint, Event, Sample, Step
from kleash.runs.samples import FoundSamples, SampleQuery
from kleash.runs.writer import RunWriter
from kleash.web import watch
from kleash.web.watch_views import settings_diff

HOSTILE = "</script><img src=x onerror=alert(1)>"
SETTINGS = {
    "model": {"name": "tiny"},
    "algorithm": {"type": "rloo", "kl": {"target_nats_per_token": 0.5}},
    "training": {"steps": 10},
}


def sample(step, split, index, kl, text="a b", **more):
    return Sample(step, split, index, 0, "Why?", text, ("a", " b"), (kl, 0.0), kl, None, kl, True, **more)


@pytest.fixture
def runs(tmp_path):
    """A folder with a run under two alarms, one of which is over."""
    path = tmp_path / "runs" / "first"
    cause = Cause("The rate is high.", "Halve it.")
    with RunWriter.create(path, SETTINGS, {"versions": {"kleash": "1"}}) as writer:
        for step in range(3):
            metrics = {"kl/exact_per_token": 0.25 * step, "control/target": 0.5, "control/beta": 0.1}
            metrics |= {"eval/reward/proxy": 1.0, "reward/function/length": 2.0, "mine": 3.0, "time/total": 1.0}
            writer.write_step(Step(step, metrics, {"kl/exact_per_token": 0.125}))
        writer.write_event(Event(1, "warning", "kl/odd", "Odd.", {"kl": float("nan")}, 1, (cause,), "Look."))
        writer.write_event(Event(2, "info", "kl/odd", "over", began=1, ends=True))
        writer.write_event(Event(2, "critical", "kl/worse", "Worse.", began=2))
        writer.write_event(Event(2, "warning", "once", "It has no duration."))
        for step in range(3):
            writer.write_checkpoint(Checkpoint(step, path / "checkpoints" / f"step_{step}"))
        (path / "checkpoints" / "step_2").mkdir(parents=True)
        writer.write_samples([sample(0, "before", 3, 0.0), sample(2, "eval", 3, float("inf"), HOSTILE)])
        writer.write_samples([sample(2, "eval", 4, 2.0, "50% _done_")])
        writer.set_status("stopped", "KL limit")
    return tmp_path / "runs"


@pytest.fixture
def page(runs, tmp_path):
    (tmp_path / "imports").mkdir()
    with TestClient(watch.create_app([runs], tmp_path / "imports", token=None), base_url="http://localhost") as client:
        yield client


def ask(page, path, **query):
    answer = page.get(path, params=query)
    assert answer.status_code == 200, answer.text
    return answer.json()


@pytest.fixture
def run(page):
    """The address of the run."""
    return f"/api/runs/{ask(page, '/api/runs')['runs'][0]['id']}"


def problem(page, path, **query):
    answer = page.get(path, params=query or None)
    assert list(answer.json()) == ["problem"]
    return answer.status_code, answer.json()["problem"]


def test_the_list_says_how_each_run_stands(page, runs):
    (line,) = ask(page, "/api/runs")["runs"]
    assert line["id"].startswith("first-")
    assert line["updated"] >= line["started"]
    assert {key: line[key] for key in line if key not in ("id", "started", "updated")} == {
        "name": "first",
        "path": str(runs / "first"),
        "source": "kleash",
        "status": "stopped",
        "reason": "KL limit",
        "algorithm": "rloo",
        "model": "tiny",
        "steps": 3,
        "planned": 10,
        "health": "critical",
        "alarms": [{"name": "kl/worse", "title": "kl/worse", "severity": "critical", "message": "Worse.", "began": 2}],
        "latest": {
            "kl": 0.5,
            "kl_key": "kl/exact_per_token",
            "kl_step": 2,
            "kl_unit": "nats per token",
            "reward": 1.0,
            "reward_key": "eval/reward/proxy",
            "reward_step": 2,
            "beta": 0.1,
        },
        "problem": None,
    }


def test_a_run_tells_its_settings_events_windows_and_suspect_checkpoints(page, run, runs):
    found = ask(page, run)
    assert found["settings"] == {
        "model.name": "tiny",
        "algorithm.type": "rloo",
        "algorithm.kl.target_nats_per_token": 0.5,
        "training.steps": 10,
    }
    assert (found["versions"], found["target_key"]) == ({"kleash": "1"}, "kl/exact_per_token")
    assert (found["splits"], found["notes"], found["columns"]) == ({"before": 1, "eval": 2}, [], [])
    assert found["events"][0] == {
        "step": 1,
        "severity": "warning",
        "name": "kl/odd",
        "title": "kl/odd",
        "message": "Odd.",
        "values": {"kl": None},
        "began": 1,
        "ends": False,
        "causes": [{"text": "The rate is high.", "check": "Halve it."}],
        "advice": "Look.",
    }
    assert found["windows"] == [
        {"first": 1, "last": 1, "name": "kl/odd", "severity": "warning"},
        {"first": 2, "last": None, "name": "kl/worse", "severity": "critical"},
    ]
    folder = runs / "first" / "checkpoints"
    assert found["checkpoints"] == [
        {"step": 0, "path": str(folder / "step_0"), "exists": False, "suspicions": []},
        {"step": 1, "path": str(folder / "step_1"), "exists": False, "suspicions": ["kl/odd"]},
        {"step": 2, "path": str(folder / "step_2"), "exists": True, "suspicions": ["kl/worse"]},
    ]


def test_keys_come_in_the_order_of_the_catalogue_with_their_words(page, run):
    keys = {key.pop("key"): key for key in ask(page, run)["keys"]}
    assert list(keys) == [
        "eval/reward/proxy",
        "kl/exact_per_token",
        "control/beta",
        "control/target",
        "time/total",
        "mine",
        "reward/function/length",
    ]
    assert keys["eval/reward/proxy"]["title"] == "Reward, held out"
    assert keys["control/beta"] == {
        "title": "beta",
        "unit": "reward per nat",
        "meaning": "Price of drift in this step.",
        "high": "a short leash",
    }
    assert keys["mine"] == {"title": "mine", "unit": "", "meaning": "", "high": ""}
    assert keys["reward/function/length"]["title"] == "Reward of length"


def test_series_are_those_that_are_asked_for(page, run):
    found = ask(page, f"{run}/series", keys="kl/exact_per_token,mine", after=0)
    assert (found["last_step"], found["reduced"]) == (2, False)
    assert found["series"] == {
        "kl/exact_per_token": {"steps": [1, 2], "values": [0.25, 0.5], "stderr": [0.125, 0.125]},
        "mine": {"steps": [1, 2], "values": [3.0, 3.0], "stderr": [None, None]},
    }


def test_samples_are_filtered_and_their_text_stays_text(page, run):
    found = ask(page, f"{run}/samples", split="eval", sort="kl", order="desc")
    assert found["total"] == 2
    assert found["samples"][0] == {
        "step": 2,
        "split": "eval",
        "prompt_index": 3,
        "sample_index": 0,
        "prompt": "Why?",
        "completion": HOSTILE,
        "reward": None,
        "gold": None,
        "kl": None,
        "stopped": True,
        "num_tokens": 2,
    }
    assert [one["completion"] for one in ask(page, f"{run}/samples", search="% _D")["samples"]] == ["50% _done_"]
    assert ask(page, f"{run}/samples", min_kl=1, max_kl=3, min_reward=2, first_step=2, offset=1)["samples"] == []


def test_the_query_reaches_the_samples_whole(page, run, monkeypatch):
    asked = []

    def find(_, query):
        asked.append(query)
        return FoundSamples(0, [])

    monkeypatch.setattr(RunReader, "find_samples", find)
    given = {"split": "eval", "sort": "gold", "search": "x", "min_kl": 1.5, "max_kl": 2.5, "min_reward": -1.0}
    given |= {"max_reward": 3.0, "first_step": 4, "last_step": 5, "offset": 6, "limit": 7}
    ask(page, f"{run}/samples", **given, order="desc")
    assert asked == [SampleQuery(**given, descending=True)]


def test_one_sample_has_its_tokens_and_their_kl(page, run):
    found = ask(page, f"{run}/sample", split="eval", step=2, prompt_index=3, sample_index=0)
    assert (found["tokens"], found["token_kl"], found["kl"]) == (["a", " b"], [None, 0.0], None)
    status, text = problem(page, f"{run}/sample", split="eval", step=2, prompt_index=3, sample_index=9)
    assert status == 404
    assert "has no eval sample 3.9 of step 2. It may have been dropped when the run was resumed" in text


def test_a_prompt_is_followed_across_steps_by_places_and_numbers(page, run):
    place = {"prompt_index": 3, "sample_index": 0, "gold": None, "stopped": True, "num_tokens": 2}
    assert ask(page, f"{run}/prompt", split="before", prompt_index=3)["samples"] == [
        place | {"step": 0, "split": "before", "reward": 0.0, "kl": 0.0},
        place | {"step": 2, "split": "eval", "reward": None, "kl": None},
    ]
    assert ask(page, f"{run}/prompt", split="train", prompt_index=3) == {"samples": []}


def test_a_number_from_long_ago_comes_with_its_step(page, runs):
    with RunWriter.create(runs / "dpo", {"monitor": {}}, {}) as writer:
        writer.write_step(Step(0, {"eval/reward/proxy": 0.5}))
        writer.write_step(Step(1, {"loss/preference": 1.0}))
    latest = next(one for one in ask(page, "/api/runs")["runs"] if one["name"] == "dpo")["latest"]
    assert (latest["reward"], latest["reward_key"], latest["reward_step"]) == (0.5, "eval/reward/proxy", 0)
    assert (latest["kl"], latest["kl_key"], latest["kl_step"], latest["kl_unit"]) == (None, None, None, None)


def test_the_address_of_a_webhook_is_secret(page, runs):
    hook = "https://me:word@hooks.example.com:8443/services/"
    for name, secret in (("one", "SECRET1"), ("two", "SECRET2")):
        settings = {"monitor": {"webhook": hook + secret}, "callback": {"webhook": None}}
        RunWriter.create(runs / name, settings, {}).close()
    ids = {one["name"]: one["id"] for one in ask(page, "/api/runs")["runs"]}
    shown = "https://hooks.example.com:8443/…"
    answer = page.get(f"/api/runs/{ids['one']}")
    assert answer.json()["settings"] == {"monitor.webhook": shown, "callback.webhook": None}
    assert "SECRET" not in answer.text
    assert ask(page, "/api/compare", runs=f"{ids['one']},{ids['two']}")["settings"] == [
        {"key": "monitor.webhook", "values": [shown, shown], "differs": True},
        {"key": "callback.webhook", "values": [None, None], "differs": False},
    ]


def test_settings_are_compared_key_by_key(page, run, runs):
    RunWriter.create(runs / "second", {"model": {"name": "tiny"}, "training": {"steps": 20}}, {}).close()
    ids = [one["id"] for one in ask(page, "/api/runs")["runs"]]
    assert ask(page, "/api/compare", runs=",".join(ids))["settings"] == [
        {"key": "model.name", "values": ["tiny", "tiny"], "differs": False},
        {"key": "algorithm.type", "values": ["rloo", None], "differs": True},
        {"key": "algorithm.kl.target_nats_per_token", "values": [0.5, None], "differs": True},
        {"key": "training.steps", "values": [10, 20], "differs": True},
    ]


def test_of_one_run_no_setting_differs():
    assert settings_diff([{"a": 1}]) == [{"key": "a", "values": [1], "differs": False}]


def test_another_trainers_log_is_a_run_with_its_source(runs, tmp_path):
    (tmp_path / "imports").mkdir()
    log = tmp_path / "log.csv"
    log.write_text("step,reward/proxy,kl/k3_per_token\n" + "".join(f"{n},{n},0.25\n" for n in range(4)))
    app = watch.create_app([log], tmp_path / "imports", token=None)
    with TestClient(app, base_url="http://localhost") as page:
        (line,) = ask(page, "/api/runs")["runs"]
        assert (line["name"], line["status"], line["started"]) == ("log.csv", "imported", None)
        assert line["source"] not in ("", "kleash")
        assert line["latest"]["kl_unit"] == "nats per token"
        found = ask(page, f"/api/runs/{line['id']}")
        assert {column["key"] for column in found["columns"]} >= {"reward/proxy", "kl/k3_per_token"}
        assert found["target_key"] is None
        log.write_bytes(b"\x00\x01")
        fresh = watch.create_app([log], tmp_path / "imports", token=None)
    with TestClient(fresh, base_url="http://localhost") as page:
        (line,) = ask(page, "/api/runs")["runs"]
        assert line["health"] == "unreadable"
        assert "log.csv" in line["problem"]
        assert problem(page, f"/api/runs/{line['id']}") == (409, line["problem"])


def change_version(run):
    with sqlite3.connect(run / "run.db") as database:
        database.execute("PRAGMA user_version = 99")
    database.close()


def damage(run):
    (run / "run.db").write_bytes(b"no database" * 1000)


@pytest.mark.parametrize(
    ("spoil", "status", "text"),
    [
        (shutil.rmtree, 404, "is gone: the run was deleted or moved"),
        (change_version, 409, "has schema version 99"),
        (damage, 409, "cannot be read as a run"),
    ],
)
def test_a_run_that_goes_bad_while_it_is_open_stays_in_the_list_with_its_reason(page, run, runs, spoil, status, text):
    spoil(runs / "first")
    (line,) = ask(page, "/api/runs")["runs"]
    assert (line["name"], line["health"], line["alarms"], line["latest"]) == ("first", "unreadable", [], {})
    assert text in line["problem"]
    paths = ["", "/series?keys=mine", "/samples", "/prompt?split=eval&prompt_index=0"]
    for path in [*(run + path for path in paths), f"/api/compare?runs={line['id']}"]:
        assert problem(page, path) == (status, line["problem"])


@pytest.mark.parametrize(
    "path", ["", "/series?keys=a", "/samples", "/stream", "/sample?split=eval&step=0&prompt_index=0&sample_index=0"]
)
def test_an_unknown_id_is_not_found(page, path):
    assert problem(page, f"/api/runs/nope{path}") == (
        404,
        "No run here has the id 'nope'. Go back to the list of runs.",
    )


@pytest.mark.parametrize("path", ["/api/runs/..%2F..%2Fetc%2Fpasswd", "/static/../watch.py", "/api/nothing"])
def test_a_path_that_is_none_is_a_sentence(page, path):
    assert problem(page, path)[0] == 404


@pytest.mark.parametrize(
    ("path", "text"),
    [
        ("/samples?sort=size", "sort: Input should be 'step', 'kl', 'reward', 'gold' or 'length'"),
        ("/samples?split=all", "split: Input should be"),
        ("/samples?limit=0", "limit: Input should be greater than or equal to 1"),
        ("/samples?limit=100000", "limit: "),
        ("/samples?min_kl=nan", "min_kl: "),
        ("/samples?offset=-1", "offset: "),
        ("/samples?order=up", "order: "),
        ("/series", "keys: Field required"),
        ("/series?keys=a&points=1", "points: "),
        ("/series?keys=a&after=x", "after: "),
        ("/prompt?split=eval", "prompt_index: Field required"),
    ],
)
def test_a_question_that_makes_no_sense_is_a_sentence(page, run, path, text):
    status, said = problem(page, run + path)
    assert status == 422
    assert said.startswith("The question cannot be read. ")
    assert text in said


def test_the_page_and_all_its_files_come_from_the_package(page):
    static = files("kleash.web").joinpath("static")
    assert page.get("/").text == static.joinpath("watch.html").read_text(encoding="utf-8")
    for name, kind in [("watch.js", "text/javascript"), ("vendor/uplot/uPlot.min.css", "text/css")]:
        answer = page.get(f"/static/{name}")
        assert answer.headers["content-type"].startswith(kind)
        assert answer.text == static.joinpath(*name.split("/")).read_text(encoding="utf-8")


def test_no_route_writes(page):
    methods = {method for route in page.app.routes for method in getattr(route, "methods", None) or ()}
    assert methods <= {"GET", "HEAD"}
    assert page.post("/api/runs", json={}).status_code == 405


def test_a_foreign_host_is_refused_and_a_token_asked_for(page, runs, tmp_path):
    answer = page.get("/api/runs", headers={"Host": "evil.example"})
    assert (answer.status_code, "not an address of this server" in answer.text) == (400, True)
    locked = TestClient(
        watch.create_app([runs], tmp_path / "imports", token="a-token-of-16-characters"), base_url="http://localhost"
    )
    assert locked.get("/api/runs").status_code == 401
    opened = locked.get("/api/runs", headers={"Authorization": "Bearer a-token-of-16-characters"})
    assert opened.status_code == 200
    assert "default-src 'none'" in opened.headers["content-security-policy"]


def test_an_address_open_to_others_needs_a_token(runs, monkeypatch):
    monkeypatch.delenv("KLEASH_TOKEN", raising=False)
    with pytest.raises(ConfigError, match="reached from other machines"):
        watch.serve([runs], host="0.0.0.0", port=0)
