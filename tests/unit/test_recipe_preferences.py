"""The openers that ship are those that the script writes, and hold no opinion of their own."""

import importlib.util
from pathlib import Path

from vaderSentiment.vaderSentiment import SentimentIntensityAnalyzer

RECIPE = Path(__file__).parents[2] / "recipes" / "preferences"


def test_the_openers_are_the_scripts_own_and_neutral():
    spec = importlib.util.spec_from_file_location("make_openers", RECIPE / "make_openers.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    openers = (RECIPE / "openers.txt").read_text(encoding="utf-8").splitlines()
    assert openers == module.openers()
    assert len(set(openers)) == len(openers) == 400
    analyzer = SentimentIntensityAnalyzer()
    assert [opener for opener in openers if analyzer.polarity_scores(opener)["compound"] != 0] == []
