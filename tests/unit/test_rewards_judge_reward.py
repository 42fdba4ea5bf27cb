import pytest
from judge_server import Act, judge_server

from kleash.config.schema import Judge as JudgeSettings
from kleash.errors import DataError, ModelError
from kleash.rewards.function import accepted_columns, resolve, score
from kleash.rewards.judge import Answer, JudgeTally, Prices, Question, combine
from kleash.rewards.judge_reward import Preference, WinRate, make_judge


class Prefers:
    """A judge that prefers the longer answer, and cannot read one with a question mark; the last question first."""

    prices = Prices()

    def __init__(self):
        self.asked = []

    def judge(self, questions):
        self.asked += questions
        for i in reversed(range(len(questions))):
            yield i, combine(self.answer(questions[i]), self.answer(questions[i].exchanged()))

    def answer(self, question):
        if "?" in question.first + question.second:
            return Answer("hm", None)
        margin = len(question.first) - len(question.second)
        letter = "tie" if margin == 0 else "A" if margin > 0 else "B"
        return Answer(letter, letter)


def test_win_rate_is_against_the_references_completion():
    judge = Prefers()
    reward = WinRate(judge)
    scores = reward(["p", "q", "r", "s"], ["long", "x", "even", "why?"], ["no", "longer", "same", "because"])
    assert scores == [1.0, 0.0, 0.5, None]
    assert judge.asked[0] == Question("p", "long", "no")
    assert reward.tally == JudgeTally(asked=4, answered=3, ties=1, agreed=3, unparsable=1, unmetered=8)
    reward(["p"], ["long"], ["no"])
    assert reward.tally.asked == 5


def test_win_rate_reads_chat_completions():
    said = [[{"role": "assistant", "content": "long"}]]
    messages = [[{"role": "user", "content": "Hi"}]]
    judge = Prefers()
    assert WinRate(judge)(messages, said, ["no"]) == [1.0]
    assert judge.asked == [Question(messages[0], "long", "no")]


class Down(Prefers):
    """A judge that is down for every question but those about `up`."""

    def __init__(self, *up):
        super().__init__()
        self.up = up

    def answer(self, question):
        if question.prompt in self.up:
            return super().answer(question)
        return Answer(None, None, failure="connection refused.")


def test_a_judge_that_answers_nothing_ends_the_run():
    with pytest.raises(ModelError) as caught:
        WinRate(Down())(["p", "q"], ["long", "x"], ["no", "longer"])
    assert str(caught.value) == (
        "The judge answered none of 2 questions. The last: No answer with the order as given: connection refused. Bring"
        " it back, and resume from the last checkpoint."
    )
    with pytest.raises(ModelError, match="answered none of 1 questions"):
        Preference(Down())(["p", "p"], ["long", "x"])
    assert WinRate(Down("p"))(["p", "q"], ["long", "x"], ["no", "longer"]) == [1.0, None]


def test_win_rate_is_a_reward_that_asks_for_reference_completions():
    reward = resolve(WinRate(Prefers()))
    assert reward.name == "WinRate"
    assert accepted_columns(reward, {"reference_completions": [], "other": []}) == [
        "prompts",
        "completions",
        "reference_completions",
    ]
    with pytest.raises(DataError, match="Reward 'WinRate' requires 'reference_completions'"):
        accepted_columns(reward, {"other": []})
    scores = score([reward], [2.0], ["p"], ["long"], {"reference_completions": ["no"]})
    assert scores.total == [2.0]


def test_preference_is_between_two_completions_of_a_prompt():
    reward = Preference(Prefers())
    prompts = ["p", "p", "q", "q", "r", "r", "p", "p"]
    completions = ["long", "x", "x", "longer", "even", "same", "why?", "so"]
    assert reward(prompts, completions) == [1.0, 0.0, 0.0, 1.0, 0.5, 0.5, None, None]
    assert reward.tally.asked == 4


def test_preference_refuses_an_odd_number():
    with pytest.raises(DataError) as caught:
        Preference(Prefers())(["p"] * 3, ["a", "b", "c"])
    assert str(caught.value) == (
        "3 completions cannot be compared in pairs: one is left over. Sample an even number for each prompt."
    )


def test_preference_refuses_neighbours_of_different_prompts():
    with pytest.raises(DataError) as caught:
        Preference(Prefers())(["p", "p", "q", "r"], ["a", "b", "c", "d"])
    assert str(caught.value) == (
        "Completions 2 and 3 answer different prompts ('q' and 'r'), so neither can be the better one. Put the two"
        " completions of a prompt next to each other."
    )


def test_the_judge_table_makes_a_judge_at_an_endpoint(monkeypatch):
    monkeypatch.setenv("JUDGE_KEY", "sk-123")
    with judge_server(lambda request: Act("A" if request.answers[0] == "long" else "B")) as server:
        settings = JudgeSettings(
            model="judge-1",
            base_url=server.base_url,
            api_key_env="JUDGE_KEY",
            rubric="Longer is better.",
            max_tokens=3,
            price_per_million_input=1.0,
            price_per_million_output=2.0,
        )
        reward = WinRate(make_judge(settings))
        assert reward(["p"], ["long"], ["no"]) == [1.0]
    request = server.requests[0]
    assert (request.body["model"], request.body["max_tokens"]) == ("judge-1", 3)
    assert request.headers["authorization"] == "Bearer sk-123"
    assert "Longer is better." in request.message
    assert reward.tally.cost == pytest.approx((200 * 1.0 + 4 * 2.0) / 1e6)


def test_the_judge_table_makes_a_local_judge(tiny_model_dir):
    judge = make_judge(JudgeSettings(model=str(tiny_model_dir), concurrency=2))
    ((_, verdict),) = judge.judge([Question("p", "long", "no")])
    assert verdict.failed  # its context of 512 bytes is too short for the instructions
    assert "more than the 512 of" in verdict.reason
