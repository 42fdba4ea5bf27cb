import logging
import sys
import threading
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from email.utils import format_datetime

import pytest
from judge_server import Act, judge_server

from kleash.errors import ConfigError, ModelError
from kleash.rewards.judge import JudgeTally, Question
from kleash.rewards.judge_http import Endpoint, HttpJudge, key_from_environment

QUESTION = Question("Name a fruit.", "An apple.", "A stone.")
KEY = "sk-very-secret-0123456789"


def prefers_apples(request):
    a, _ = request.answers
    return Act("A" if "apple" in a else "B")


def at_first(*acts):
    """Do these in turn to each message, then answer."""
    return lambda request: acts[request.tries] if request.tries < len(acts) else prefers_apples(request)


def ask(act, questions=(QUESTION,), *, api_key=None, **options):
    """Return verdicts in the questions' order, the requests that came, and the waits that were asked for."""
    waits = []
    with judge_server(act) as server:
        endpoint = replace(Endpoint(server.base_url, "judge-1", concurrency=1), **options)
        judge = HttpJudge(endpoint, "Be right.", api_key=api_key, sleep=waits.append, jitter=lambda: 0.5)
        verdicts = dict(judge.judge(questions))
    return [verdicts[i] for i in range(len(questions))], server.requests, waits


def test_a_question_is_two_chat_completions_with_the_answers_exchanged():
    (verdict,), requests, waits = ask(prefers_apples, max_tokens=7, temperature=0.5)
    assert verdict.choice == "first"
    assert [request.answers for request in requests] == [("An apple.", "A stone."), ("A stone.", "An apple.")]
    assert [request.path for request in requests] == ["/v1/chat/completions"] * 2
    assert requests[0].body == {
        "model": "judge-1",
        "messages": [{"role": "user", "content": requests[0].message}],
        "max_tokens": 7,
        "temperature": 0.5,
    }
    assert "Be right." in requests[0].message
    assert waits == []
    assert JudgeTally().plus(verdict).input_tokens == 200


def test_a_judge_that_follows_the_position_has_called_a_tie():
    (verdict,), _, _ = ask(lambda request: Act("A"))
    assert verdict.choice == "tie"
    assert verdict.same_letter


@pytest.mark.parametrize(
    "act",
    [
        Act(status=429),
        Act(status=500),
        Act(status=503, body="<html>bad gateway</html>"),
        Act(cut=True),
        Act(body="{not json"),
        Act(body='{"choices": []}'),
        Act(delay=1.0),
    ],
    ids=lambda act: str(act.status) if act.status != 200 else act.body or ("cut" if act.cut else "slow"),
)
def test_what_passes_by_itself_is_tried_again(act):
    (verdict,), requests, waits = ask(at_first(act, act), timeout=0.7 if act.delay else 5.0)
    assert verdict.choice == "first"
    assert (verdict.forward.retries, verdict.backward.retries) == (2, 2)
    assert len(requests) == 6
    assert waits == [0.75, 1.5, 0.75, 1.5]


def test_a_wait_doubles_until_the_retries_are_used_up():
    (verdict,), requests, waits = ask(lambda request: Act(status=500, body="down"), retries=7)
    assert verdict.choice is None
    assert verdict.failed
    assert len(requests) == 16
    assert waits[:7] == [0.75, 1.5, 3.0, 6.0, 12.0, 24.0, 45.0]
    assert verdict.reason.startswith("No answer with the order as given: http://127.0.0.1:")
    assert verdict.reason.endswith("/v1 answered 500: down (retries: 7).")


def test_retry_after_in_seconds_is_waited_for():
    _, _, waits = ask(at_first(Act(status=429, headers={"Retry-After": "7"})))
    assert waits[0] == 0.75
    assert waits[1] == pytest.approx(7, abs=0.5)


def test_retry_after_as_a_date_is_waited_for():
    then = format_datetime(datetime.now(UTC) + timedelta(seconds=90), usegmt=True)
    _, _, waits = ask(at_first(Act(status=503, headers={"Retry-After": then})))
    assert waits[1] == pytest.approx(90, abs=3)


def test_retry_after_that_says_nothing_is_left_aside():
    _, _, waits = ask(at_first(Act(status=429, headers={"Retry-After": "soon"})))
    assert waits == [0.75, 0.75]


def test_another_4xx_fails_at_once_with_the_servers_message():
    refusal = Act(status=400, body='{"error": {"message": "max_tokens is not supported"}}')
    (verdict,), requests, waits = ask(lambda request: refusal)
    assert verdict.failed
    assert verdict.reason.endswith("/v1 answered 400: max_tokens is not supported.")
    assert len(requests) == 2
    assert waits == []


@pytest.mark.parametrize("status", [401, 403, 404])
def test_a_wrong_key_or_name_ends_it_all(status):
    with pytest.raises(ModelError) as caught:
        ask(lambda request: Act(status=status, body='{"error": {"message": "no such model."}}'), [QUESTION] * 50)
    assert str(caught.value).startswith("Judge 'judge-1': http://127.0.0.1:")
    assert str(caught.value).endswith(
        f"/v1 answered {status}: no such model. Every question would end so: check base_url, the model's name and the"
        " environment variable that holds the key."
    )


def test_garbage_is_kept_as_it_came():
    (verdict,), requests, _ = ask(lambda request: Act("I would say A, mostly."))
    assert verdict.choice is None
    assert not verdict.failed
    assert verdict.forward.text == "I would say A, mostly."
    assert len(requests) == 2


def test_a_reply_without_content_or_usage_is_unparsable_and_unmetered():
    (verdict,), _, _ = ask(lambda request: Act(None, usage=None))
    assert (verdict.forward.text, verdict.forward.parse, verdict.forward.usage) == ("", None, None)


@pytest.mark.parametrize("usage", ["null", '"none"', "{}", '{"prompt_tokens": 3}'])
def test_usage_that_is_none_is_not_counted(usage):
    body = f'{{"choices": [{{"message": {{"content": "A"}}}}], "usage": {usage}}}'
    (verdict,), _, _ = ask(lambda request: Act(body=body))
    assert (verdict.forward.parse, verdict.forward.usage) == ("A", None)


def test_so_many_questions_are_under_way_at_once():
    together = threading.Barrier(4, timeout=20)

    def answer_when_4_are_here(request):
        together.wait()
        return prefers_apples(request)

    verdicts, requests, _ = ask(answer_when_4_are_here, [QUESTION] * 8, concurrency=4, timeout=20)
    assert [verdict.choice for verdict in verdicts] == ["first"] * 8
    assert len(requests) == 16


def test_requests_keep_the_pace():
    with judge_server(prefers_apples) as server:
        endpoint = Endpoint(server.base_url, "judge-1", requests_per_minute=1200, concurrency=4)
        list(HttpJudge(endpoint, "").judge([QUESTION._replace(prompt=str(i)) for i in range(4)]))
    times = [request.time for request in server.requests]
    assert times[-1] - times[0] >= 7 * 0.05 - 0.04


def test_a_caller_that_stops_asks_nothing_more():
    with judge_server(prefers_apples) as server:
        judge = HttpJudge(Endpoint(server.base_url, "judge-1", concurrency=1), "")
        verdicts = judge.judge([QUESTION._replace(prompt=str(i)) for i in range(100)])
        next(verdicts)
        verdicts.close()
        assert len(server.requests) <= 6


@pytest.mark.parametrize("act", [Act(status=400), Act(status=500), Act("garbage"), Act(cut=True)], ids=str)
def test_the_key_is_sent_and_appears_nowhere_else(act, caplog, capfd):
    def echo(request):
        """A server that shows what it was sent, in its text and in its error."""
        said = request.headers["authorization"]
        if act.status != 200:
            return replace(act, body=f'{{"error": {{"message": "incorrect key: {said}"}}}}')
        return replace(act, content=f"{act.content} {said}")

    caplog.set_level(logging.DEBUG)
    (verdict,), requests, _ = ask(echo, api_key=KEY, retries=1)
    assert requests[0].headers["authorization"] == f"Bearer {KEY}"
    judge = HttpJudge(Endpoint("http://localhost/v1", "judge-1"), "", api_key=KEY)
    shown = (caplog.text, *capfd.readouterr(), repr(verdict), repr(judge), str(judge))
    assert not any(KEY in text for text in shown)
    assert caplog.text


def test_the_key_is_not_in_the_error_that_ends_it_all():
    with pytest.raises(ModelError, match=r"incorrect key: Bearer \[key\]\.") as caught:
        ask(lambda request: Act(status=401, body=f"incorrect key: {request.headers['authorization']}"), api_key=KEY)
    assert KEY not in str(caught.value)


def test_without_a_key_there_is_no_authorization_header():
    _, requests, _ = ask(prefers_apples)
    assert "authorization" not in requests[0].headers


def test_the_key_is_read_from_the_environment(monkeypatch):
    monkeypatch.setenv("JUDGE_KEY", f" {KEY}\n")
    assert key_from_environment("JUDGE_KEY") == KEY
    monkeypatch.setenv("JUDGE_KEY", "")
    assert key_from_environment("JUDGE_KEY") is None
    monkeypatch.delenv("JUDGE_KEY")
    assert key_from_environment("JUDGE_KEY") is None


def test_a_key_that_cannot_be_sent_is_refused_unseen(monkeypatch):
    monkeypatch.setenv("JUDGE_KEY", "sk-one\nsk-two")
    with pytest.raises(ConfigError) as caught:
        key_from_environment("JUDGE_KEY")
    assert str(caught.value) == (
        "The key in the environment variable JUDGE_KEY holds a space or a character that is not plain ASCII, so it"
        " cannot be sent in a header. Set it anew, without quotes or line breaks."
    )


@pytest.mark.parametrize("url", ["localhost:8000/v1", "ftp://host/v1", "http://", "http://host:port/v1"])
def test_an_address_that_is_none_is_refused(url):
    with pytest.raises(ConfigError) as caught:
        Endpoint(url, "judge-1")
    assert str(caught.value) == (
        f"base_url = '{url}' is no address of an endpoint. Write one such as http://localhost:8000/v1, without"
        " /chat/completions."
    )


@pytest.mark.parametrize("url", ["https://me:hunter2@host/v1", "https://hunter2@host/v1"])
def test_an_address_with_a_password_is_refused_unseen(url):
    with pytest.raises(ConfigError, match="base_url for host holds a name or password") as caught:
        Endpoint(url, "judge-1")
    assert "hunter2" not in str(caught.value)


def test_without_httpx_the_message_says_how_to_get_it(monkeypatch):
    monkeypatch.setitem(sys.modules, "httpx", None)
    with pytest.raises(ConfigError) as caught:
        HttpJudge(Endpoint("http://localhost/v1", "judge-1"), "")
    assert str(caught.value) == (
        "A judge at base_url = 'http://localhost/v1' is asked with httpx, which is not installed. Install it with"
        " `pip install 'kleash[judge]'`, or leave base_url out for a local model."
    )
