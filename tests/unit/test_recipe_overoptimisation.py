"""What the recipe of overoptimisation reads from paths and says of them, on handwritten numbers."""

import math
import sys
import xml.etree.ElementTree as ET
from dataclasses import replace
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
sys.path.insert(0, str(ROOT))

from kleash.frontier.points import BEST_OF_N, EXACT, Mean, Point, Source  # noqa: E402
from kleash.runs.records import Sample  # noqa: E402
from recipes.overoptimisation import human, paths, said  # noqa: E402

SOURCE = Source("run", "RLOO", EXACT, "model runs/one", "lexicon")


def point(at, kl, gold, proxy, source=SOURCE):
    return Point(source, at, Mean(kl, 0.01), Mean(proxy, 0.2), Mean(gold, 0.02))


def sample(step, prompt, index, completion, reward=0.0):
    split = "before" if step == 0 else "eval"
    return Sample(step, split, prompt, index, f"opener {prompt}", completion, (), (), reward, None, 1.0, True)


def test_the_proxy_is_counted_from_the_start_in_sd_there():
    samples = [sample(0, 0, 0, "a", 1.0), sample(0, 0, 1, "b", 5.0), sample(9, 0, 0, "c", 100.0)]
    assert paths.spread(samples) == 2.0
    found = paths.in_sd([point(0, 0.0, 0.1, 3.0), point(9, 4.0, 0.2, 8.0)], 2.0, "250 comparisons")
    assert [one.proxy for one in found] == [Mean(0.0, 0.1), Mean(2.5, 0.1)]
    assert [one.gold for one in found] == [Mean(0.1, 0.02), Mean(0.2, 0.02)]
    assert {one.source.proxy for one in found} == {"250 comparisons"}


def test_a_second_gold_has_its_error_over_prompts():
    texts = {(0, 0): ("xx", ""), (0, 1): ("x", "x"), (5, 0): ("xx", "xx"), (5, 1): ("x", "x")}
    samples = [
        sample(step, prompt, index, text) for (step, prompt), both in texts.items() for index, text in enumerate(both)
    ]
    found = paths.by_judge(
        [point(0, 0.0, 0.1, 0.0), point(5, 1.0, 0.1, 0.0)],
        samples,
        lambda prompts, texts: [len(text) for text in texts],
    )
    sd = math.sqrt(0.5)
    assert found[0].gold.value == pytest.approx(0.0)
    assert found[1].gold.value == pytest.approx(0.5 / sd)
    assert found[1].gold.stderr == pytest.approx(0.5 / sd)


def test_people_judge_opener_and_completion_as_one_snippet():
    asked = []
    human.scores(lambda prompts, texts: asked.append((prompts, texts)), ["the film"], [" is good."])
    assert asked == [(["Someone wrote:"], [" the film is good."])]


def test_paths_are_compared_at_equal_drift():
    free = [point(0, 0.0, 0.0, 0.0), point(1, 4.0, 0.4, 2.0), point(2, 16.0, 0.0, 4.0)]
    priced = [point(0, 0.0, 0.0, 0.0), point(1, 1.0, 0.3, 2.0), point(2, 9.0, 0.4, 3.0), point(3, 25.0, 9.0, 9.0)]
    # at d = 1 the free path has 0.2 of gold and 1 of the proxy, at d = 3 it has 0.2 and 3; d = 5 is beyond it
    assert paths.lead_at_equal_drift(priced, free, "gold", 0.5) == pytest.approx((0.1 + 0.2) / 2)
    assert paths.lead_at_equal_drift(priced, free, "proxy", 0.5) == pytest.approx((1.0 + 0.0) / 2)
    assert paths.lead_at_equal_drift(priced, free, "gold", 2.0) == pytest.approx(0.2)
    assert paths.lead_at(priced, free, "gold", 1.0) == pytest.approx(0.1)


def test_a_start_below_zero_by_rounding_is_at_zero():
    assert paths.root(point(0, -1e-9, 0.0, 0.0)) == 0.0
    assert paths.root(point(0, 2.25, 0.0, 0.0)) == 1.5


def test_seeds_are_pooled_by_the_frontier():
    kls = [0.0, 0.25, 1.0, 2.25, 4.0, 6.25, 9.0]

    def peaked(kl):
        return 0.4 * math.sqrt(kl) - 0.13 * kl  # best at d = 0.4 / 0.26

    seeds = [
        [
            point(step, kl, start + peaked(kl), kl, replace(SOURCE, name=f"seed {seed}", proxy="pooled"))
            for step, kl in enumerate(kls)
        ]
        for seed, start in enumerate((0.1, 0.12))
    ]
    found = {strand["by"]: strand for strand in paths.strands([one for points in seeds for one in points])}
    assert list(found) == ["gold", "proxy"]
    assert found["gold"]["smooth"]["turns_over"]
    low, high = (found["gold"]["smooth"]["peak_kl"][end] for end in ("low", "high"))
    assert low < (0.4 / 0.26) ** 2 < high
    assert not found["proxy"]["smooth"]["turns_over"]


def test_numbers_are_kept_in_four_digits():
    assert paths.rounded({"a": [0.123456, 7, None], "b": 12345.6}) == {"a": [0.1235, 7, None], "b": 12350.0}


def test_what_the_proxy_gains_after_gold_was_best():
    points = [{"gold": gold, "proxy": proxy} for gold, proxy in ((0.1, 0.0), (0.5, 1.0), (0.2, 2.5))]
    assert said.proxy_after_peak(points) == 1.5


def test_a_difference_counts_from_two_standard_errors():
    assert said.is_above([1.0, 1.1, 0.9])
    assert not said.is_above([1.0, -1.0, 0.5])
    assert said.is_nothing([1.0, -1.0, 0.5])
    assert not said.is_nothing([1.0, 1.1, 0.9])
    assert not said.is_nothing([-1.0, -1.1, -0.9])


def test_sizes_must_be_in_order():
    assert said.rising([1.0, 2.0, 2.5])
    assert not said.rising([1.0, 2.0, 2.0])


def strand_of(of, count, turns_over, best_kl, p_value):
    ends = {"value": 4.0, "low": 3.0, "high": 5.0}
    smooth = {"kl": [0.0, 1.0, 4.0], "reward": [0.1, 0.3, 0.2], "best_kl": best_kl, "turns_over": turns_over}
    smooth |= {"peak_kl": {"low": 0.5, "high": 2.0 if turns_over else None}}
    fit = {"alpha": ends, "beta": ends, "peak_kl": ends | {"high": None}, "p_value": p_value}
    return [{"of": of, "count": count, "by": by, "fit": fit, "smooth": smooth} for by in ("gold", "proxy")]


@pytest.fixture
def measured():
    """Two sizes with two seeds: 250 comparisons turn over at 1 nat, 1000 do not and reach more gold."""

    def path(of, count, seed):
        gold = (0.1, 0.3, 0.2) if count == 250 else (0.1, 0.4, 0.5)
        points = [
            {"at": at, "kl": kl, "gold": one + 0.01 * seed, "proxy": kl}
            for at, kl, one in zip((0, 5, 10), (0.0, 1.0, 4.0), gold, strict=True)
        ]
        return {"of": of, "count": count, "seed": seed, "points": points}

    of = (said.FREE, said.PRICED, said.BEST_OF_N, said.PEOPLE)
    keys = [(count, seed) for count in (250, 1000) for seed in (0, 1)]
    return {
        "accuracy": [{"count": count, "seed": seed, "value": 0.6} for count, seed in keys],
        "accuracy_of_people": 0.68,
        "paths": [path(one, *key) for one in of for key in keys],
        "strands": [
            strand
            for one in of
            for strand in (*strand_of(one, 250, True, 1.0, 0.5), *strand_of(one, 1000, False, 4.0, 0.01))
        ],
        "differences": [
            {
                "gold_of_best_of_n": 0.1 + 0.01 * i,
                "gold_of_penalty": 0.1 * (-1) ** i,
                "proxy_of_penalty": -0.2 + 0.01 * i,
            }
            for i in range(4)
        ],
        "texts": [
            {"count": count, "seed": 0, "step": step, "kl": 1.0, "text": "a *film*"}
            for count in (250, 1000)
            for step in (0, 5, 10)
        ],
    }


def test_what_held_is_said_and_what_did_not(measured):
    found = {one.claim: one for one in said.section(measured).expectations}
    assert found["RL without a penalty, 250 comparisons: gold turns over"].held
    assert found["RL without a penalty, 250 comparisons: gold turns over"].measured == "best between 0.500 and 2 nats"
    assert not found["RL without a penalty, 1000 comparisons: gold turns over"].held
    rise = found["from gold's best to the end the proxy rises, sd"]
    assert (rise.measured, rise.held) == ("1.50 ± 0.87", False)
    assert found["more comparisons give more gold at its best"].held
    assert found["and a later peak, nats per sequence"].measured == "1; 4"
    assert found["best of 16 has more gold than RL at its KL"].held
    assert not found["at one KL, a penalty buys more proxy, sd"].held
    assert found["but no gold"].held
    assert found["gold of RL follows d (α − β log d)"].measured == "0.5, 0.01"
    assert not found["gold of RL follows d (α − β log d)"].held


def test_the_page_has_its_tables_texts_and_picture(measured):
    section = said.section(measured)
    assert "| RL, gold after the last step | 0.2050 ± 0.0050 | 0.5050 ± 0.0050 |" in section.parts[1]
    assert (
        "| beta 0 | 250 | 4.0 [3.0, 5.0] | 4.0 [3.0, 5.0] | 3 or more | 0.5 | best between 0.500 and 2 nats |"
        in section.parts[3]
    )
    assert "> *step 5, 1 nats:* a \\*film\\*" in section.parts[5]
    name = "{http://www.w3.org/2000/svg}"
    panels = ET.fromstring(section.picture).findall(f"{name}g")
    assert len(panels) == 8
    assert sum(line.get("stroke-width") == "1.4" for line in panels[0].iter(f"{name}polyline")) == 4


def test_best_of_n_has_a_method_of_its_own():
    chosen = Point(replace(SOURCE, method=BEST_OF_N), 1, Mean(0.0, 0.0), Mean(0.0, 0.1), Mean(0.1, 0.02))
    assert paths.in_sd([chosen], 2.0, "250 comparisons")[0].source.method == "best-of-n"
