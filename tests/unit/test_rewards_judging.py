import json
import os
import signal
import subprocess
import sys
from collections import Counter
from dataclasses import replace

import pytest
from judge_server import Act, judge_server

from kleash.errors import ConfigError, ModelError
from kleash.labels.records import Pair
from kleash.labels.store import LabelStore
from kleash.rewards.function import resolve
from kleash.rewards.judge import Answer, JudgeTally, Prices, combine
from kleash.rewards.judge_http import Endpoint, HttpJudge
from kleash.rewards.judging import ScoreTally, judge_queue, score_queue

PRICES = Prices(2.0, 8.0)


@pytest.fixture
def store(tmp_path):
    with LabelStore.open(tmp_path / "labels.db") as opened:
        yield opened


def fill(store, count):
    store.add(Pair(f"prompt {i}", f"good {i}", f"bad {i}") for i in range(count))


def http_judge(server, **options):
    endpoint = replace(Endpoint(server.base_url, "judge-1", retries=2), **options)
    return HttpJudge(endpoint, "Good is better.", prices=PRICES, sleep=lambda seconds: None)


def honest(request):
    a, _ = request.answers
    return Act("A" if a.startswith("good") else "B")


def number_of(request):
    return int(request.answers[0].split()[1])


def votes_of(store, annotator):
    return {vote.pair_id: vote.choice for vote in store.votes() if vote.annotator == annotator}


BAD_DAY = {
    1: [Act(delay=2.0)],  # slow: times out, then answers
    2: [Act(status=429, headers={"Retry-After": "0"})],
    3: [Act(status=500), Act(status=500)],
    4: [Act("I cannot decide."), Act("I cannot decide.")],  # garbage
    5: [Act(body="{")],  # no JSON
    6: [Act(cut=True)],
    7: [Act(status=500), Act(cut=True), Act(status=503)],  # more than the retries
    8: [Act(status=400, body="too long")],
}
"""By the pair's number: what happens to each order's request, in turn, before it is answered honestly."""


def on_a_bad_day(request):
    acts = BAD_DAY.get(number_of(request), [])
    if number_of(request) == 9:
        return Act("A")  # whatever stands there
    return acts[request.tries] if request.tries < len(acts) else honest(request)


def test_on_a_bad_day_the_queue_ends_complete_and_every_count_is_right(store):
    fill(store, 12)
    with judge_server(on_a_bad_day) as server:
        judge = http_judge(server, timeout=1.0)
        first = judge_queue(store, judge, "judge-1")
        asked_first = len(server.requests)
        votes = votes_of(store, "judge-1")
        second = judge_queue(store, judge, "judge-1")
    assert first == JudgeTally(
        asked=12,
        answered=9,
        ties=1,
        agreed=8,
        same_letter=1,
        unparsable=1,
        failed=2,
        retried=2 * (1 + 1 + 2 + 0 + 1 + 1 + 2 + 0),
        input_tokens=100 * 2 * 10,
        output_tokens=2 * 2 * 10,
        prices=PRICES,
    )
    assert first.cost == pytest.approx((2000 * 2.0 + 40 * 8.0) / 1e6)
    assert asked_first == 2 * 12 + first.retried
    assert Counter(votes.values()) == {"first": 8, "tie": 1, None: 1}
    # The failed two stayed in the queue; now the server has no more tricks for them, and nothing else is asked.
    assert (second.asked, second.answered, second.failed) == (2, 2, 0)
    assert {number_of(request) for request in server.requests[asked_first:]} == {7, 8}
    assert len(votes_of(store, "judge-1")) == 12
    assert store.next_task("judge-1") is None


def test_an_unreadable_answer_is_stored_as_it_came(store):
    fill(store, 1)
    with judge_server(lambda request: Act('Neither "A"\nnor B.') if honest(request).content == "A" else Act("B")) as s:
        judge_queue(store, http_judge(s), "judge-1")
    (vote,) = store.votes()
    assert vote.choice is None
    assert json.loads(vote.note) == {"forward": 'Neither "A"\nnor B.', "backward": "B"}


class Killed(BaseException):
    """Ends the process, as far as the code under test can tell."""


def test_a_second_run_asks_nothing_that_the_first_one_stored(store):
    fill(store, 20)

    def kill_after_7(done, total):
        assert total == 20
        if done == 7:
            raise Killed

    with judge_server(honest) as server:
        with pytest.raises(Killed):
            judge_queue(store, http_judge(server), "judge-1", progress=kill_after_7)
        stored = {pair.prompt for pair in store.pairs() if pair.id in votes_of(store, "judge-1")}
        before = len(server.requests)
        assert len(stored) == 7
        assert before <= 2 * (7 + 4)  # what was under way was let finish, the rest was never sent
        tally = judge_queue(store, http_judge(server), "judge-1")
    asked_again = {f"prompt {number_of(request)}" for request in server.requests[before:]}
    assert tally.asked == 13
    assert asked_again == {pair.prompt for pair in store.pairs()} - stored
    assert len(server.requests) == before + 2 * 13
    assert votes_of(store, "judge-1") == {pair.id: "first" for pair in store.pairs()}


DYING = """
import sys
from kleash.labels.store import LabelStore
from kleash.rewards.judge_http import Endpoint, HttpJudge
from kleash.rewards.judging import judge_queue

with LabelStore.open(sys.argv[1]) as store:
    judge_queue(store, HttpJudge(Endpoint(sys.argv[2], "judge-1", concurrency=3), "Good is better."), "judge-1")
"""


def test_kill_9_loses_no_vote_that_was_written_and_asks_only_the_rest(store, tmp_path):
    fill(store, 15)
    killed = []

    def kill_at_16(request):
        if len(server.requests) == 16 and not killed:
            killed.append(True)
            os.kill(process.pid, signal.SIGKILL)
        return honest(request)

    with judge_server(kill_at_16) as server:
        process = subprocess.Popen([sys.executable, "-c", DYING, str(tmp_path / "labels.db"), server.base_url])
        assert process.wait(timeout=60) == -signal.SIGKILL
        stored = votes_of(store, "judge-1")
        before = len(server.requests)
        assert 16 / 2 - 3 <= len(stored) <= 8
        tally = judge_queue(store, http_judge(server), "judge-1")
    assert tally.asked == 15 - len(stored)
    assert len(server.requests) - before == 2 * tally.asked
    asked_again = {f"prompt {number_of(request)}" for request in server.requests[before:]}
    assert asked_again.isdisjoint({pair.prompt for pair in store.pairs() if pair.id in stored})
    assert votes_of(store, "judge-1") == {pair.id: "first" for pair in store.pairs()}


def test_only_pairs_without_a_vote_of_this_annotator_are_asked_about_up_to_the_limit(store):
    fill(store, 6)
    ids = [pair.id for pair in store.pairs()]
    store.vote("judge-1", ids[0], "second")
    store.vote("ann", ids[1], "second")
    calls = []
    with judge_server(honest) as server:
        tally = judge_queue(
            store, http_judge(server), "judge-1", limit=3, progress=lambda done, total: calls.append((done, total))
        )
    assert tally.asked == 3
    assert calls == [(1, 3), (2, 3), (3, 3)]
    assert votes_of(store, "judge-1") == {ids[0]: "second", ids[1]: "first", ids[2]: "first", ids[3]: "first"}
    assert votes_of(store, "ann") == {ids[1]: "second"}


def test_a_judge_that_is_gone_is_not_asked_for_ever(store):
    fill(store, 60)
    with judge_server(lambda request: Act(status=500, body="down")) as server:
        with pytest.raises(ModelError) as caught:
            judge_queue(store, http_judge(server, retries=0, concurrency=1), "judge-1")
        assert len(server.requests) <= 2 * 22
    assert str(caught.value) == (
        "The judge gave no answer to 20 questions in a row. The last: No answer with the order as given:"
        f" {server.base_url} answered 500: down (retries: 0). Mend that and run the same again: what it answered"
        " before is stored, and only the rest is asked."
    )
    assert list(store.votes()) == []


def longer(completions):
    return [float(len(text)) for text in completions]


def test_a_reward_votes_for_what_it_pays_more(store):
    store.add([Pair("p", "long text", "short"), Pair("p", "x", "longer"), Pair("p", "same", "size")])
    assert score_queue(store, resolve(longer), "length") == ScoreTally(scored=3, ties=1)
    assert list(votes_of(store, "length").values()) == ["first", "second", "tie"]


def test_rewards_that_are_close_are_a_tie(store):
    store.add([Pair("p", "12345", "123"), Pair("p", "1234", "123"), Pair("p", "12", "123")])
    assert score_queue(store, resolve(longer), "length", tie_within=1.0, noise=1.0) == ScoreTally(
        scored=3, ties=2, flipped=1
    )
    assert list(votes_of(store, "length").values()) == ["second", "tie", "tie"]


@pytest.mark.parametrize("tie_within", [-0.5, float("nan"), float("inf")])
def test_a_difference_that_is_none_is_refused(store, tie_within):
    with pytest.raises(ConfigError) as caught:
        score_queue(store, resolve(longer), "length", tie_within=tie_within)
    assert str(caught.value) == (
        f"tie_within = {tie_within:g} is no difference of rewards. Give a number of at least 0."
    )


def test_a_side_without_a_score_leaves_the_pair_without_a_choice(store):
    store.add([Pair("p", "a", "b")])
    reward = resolve(lambda completions: [1.0, None], name="half")
    assert score_queue(store, reward, "half") == ScoreTally(unscored=1)
    (vote,) = store.votes()
    assert (vote.choice, vote.note) == (None, "half gave no score: (1.0, None)")


def test_a_chat_prompt_comes_with_the_completions_as_messages(store):
    messages = [{"role": "user", "content": "Hi"}]
    store.add([Pair(messages, "a", "bb")])
    seen = []

    def reward(prompts, completions):
        seen.append((prompts, completions))
        return [0.0, 1.0]

    score_queue(store, resolve(reward), "chat")
    said = [[{"role": "assistant", "content": text}] for text in ("a", "bb")]
    assert seen == [([messages, messages], said)]


def test_noise_turns_a_share_of_the_votes_round_the_same_ones_each_time(store, tmp_path):
    store.add(Pair(f"prompt {i}", "longer", "short") for i in range(200))
    tally = score_queue(store, resolve(longer), "noisy", noise=0.1, seed=3)
    wrong = {pair_id for pair_id, choice in votes_of(store, "noisy").items() if choice == "second"}
    assert tally == ScoreTally(scored=200, flipped=len(wrong))
    assert 7 < len(wrong) < 33  # 20 and three standard deviations of 4.2
    with LabelStore.open(tmp_path / "again.db") as again:  # in another order, and interrupted
        again.add(Pair(f"prompt {i}", "short", "longer") for i in reversed(range(200)))
        score_queue(again, resolve(longer), "noisy", noise=0.1, seed=3, limit=60)
        assert len(votes_of(again, "noisy")) == 60
        score_queue(again, resolve(longer), "noisy", noise=0.1, seed=3)
        choices = votes_of(again, "noisy")
        wrong_again = {pair.prompt for pair in again.pairs() if choices[pair.id] == "first"}
    assert wrong_again == {pair.prompt for pair in store.pairs() if pair.id in wrong}


def test_another_seed_turns_others_round_and_ties_stay(store):
    store.add([*(Pair(f"prompt {i}", "longer", "short") for i in range(40)), Pair("p", "same", "size")])
    for seed in (1, 2):
        score_queue(store, resolve(longer), f"seed {seed}", noise=0.5, seed=seed)
    one, two = votes_of(store, "seed 1"), votes_of(store, "seed 2")
    assert one != two
    assert [votes[41] for votes in (one, two)] == ["tie", "tie"]


@pytest.mark.parametrize("noise", [-0.1, 1.1, float("nan")])
def test_noise_that_is_no_probability_is_refused(store, noise):
    with pytest.raises(ConfigError) as caught:
        score_queue(store, resolve(longer), "noisy", noise=noise, seed=0)
    assert str(caught.value) == (f"noise = {noise:g} is no probability of a wrong vote. Give a number from 0 to 1.")


class NeverFits:
    """A judge that cannot hold some questions, as a local model with a short context."""

    prices = Prices()

    def judge(self, questions):
        for i, question in enumerate(questions):
            fits = "long" not in question.prompt
            answer = Answer("A", "A") if fits else Answer(None, None, "too long", permanent=True)
            back = Answer("B", "B") if fits else answer
            yield i, combine(answer, back)


def test_questions_that_never_fit_are_stored_and_block_nothing(store):
    store.add(Pair(f"long {i}", "a", "b") for i in range(25))
    store.add([Pair("short", "a", "b")])
    tally = judge_queue(store, NeverFits(), "local")
    assert (tally.asked, tally.answered, tally.failed) == (26, 1, 25)
    votes = {vote.pair_id: vote for vote in store.votes()}
    assert Counter(vote.choice for vote in votes.values()) == {None: 25, "first": 1}
    assert sum("too long" in (vote.note or "") for vote in votes.values()) == 25
    assert store.next_task("local") is None
