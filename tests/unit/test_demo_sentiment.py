import sys
from importlib import resources

import pytest

from kleash.demo import sentiment
from kleash.errors import ConfigError


def openers():
    return (resources.files("kleash.demo") / "openers.txt").read_text(encoding="utf-8").splitlines()


def test_openers_are_many_short_and_unfinished():
    lines = openers()
    assert len(lines) >= 64
    assert len({line.lower() for line in lines}) == len(lines)
    for line in lines:
        assert 3 <= len(line.split(" ")) <= 7, line
        assert line == line.strip(), line
        assert line[0].isupper(), line
        assert line[-1].isalpha(), line


def test_every_opener_is_neutral():
    pytest.importorskip("vaderSentiment")
    lines = openers()
    assert sentiment.positive(lines, [""] * len(lines)) == [0.0] * len(lines)


def test_a_completion_is_read_together_with_its_opener():
    pytest.importorskip("vaderSentiment")
    cheerful, gloomy, neutral, negated = sentiment.positive(
        ["The soup", "The soup", "The soup", "The soup was not"],
        [" was wonderful and I love it", " was horrible", " was on the table", " good"],
    )
    assert cheerful > 0.7
    assert gloomy < -0.4
    assert neutral == 0.0
    assert negated < 0  # the completion alone is positive


def test_a_chat_reply_is_scored_alone():
    pytest.importorskip("vaderSentiment")
    prompts = [[{"role": "user", "content": "Was it horrible?"}]]
    assert sentiment.positive(prompts, [[{"role": "assistant", "content": "It was great."}]])[0] > 0.5


def test_without_the_package_it_says_what_to_install(monkeypatch):
    monkeypatch.setitem(sys.modules, "vaderSentiment.vaderSentiment", None)
    sentiment._analyzer.cache_clear()
    with pytest.raises(ConfigError) as caught:
        sentiment.positive(["a"], ["b"])
    assert str(caught.value) == (
        "The sentiment reward needs vaderSentiment, which is not installed: pip install 'kleash[demo]'."
    )
