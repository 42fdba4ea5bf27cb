"""The machinery of recipes/evidence and what two recipes read from runs, on handwritten numbers."""

import sys
import xml.etree.ElementTree as ET
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
sys.path.insert(0, str(ROOT))

from kleash.errors import DataError  # noqa: E402
from kleash.runs.records import Event, Sample, Step  # noqa: E402
from kleash.runs.writer import RunWriter  # noqa: E402
from recipes.evidence import __main__ as command  # noqa: E402
from recipes.evidence import numbers, pages, picture  # noqa: E402
from recipes.evidence.origin import Origin, origin_of  # noqa: E402
from recipes.evidence.recipe import Expectation, Run, Section  # noqa: E402
from recipes.posterior import evidence as posterior  # noqa: E402
from recipes.zero_kl import evidence as zero_kl  # noqa: E402

ORIGIN = Origin("abc1234", ("2026-12-01",), (0, 1, 2), "handwritten", "2.13.0", "cpu", "float32", (1.5, 2.25))
SECTION = Section(
    (Expectation("it rises", "above 1", "2.0 ± 0.1", True), Expectation("it falls", "below 1", "3", False)),
    ("A sentence with [a link](run.toml).",),
    "<svg/>",
    "A line",
)
README = f"""\
# A title

The claim, in [two](../sentiment/README.md)
lines.

More.

{pages.BEGIN}
{pages.END}
The end.
"""


def test_a_mean_over_seeds_has_its_standard_error():
    assert numbers.standard_error([1.0, 2.0, 3.0]) == pytest.approx(1 / 3**0.5)
    assert numbers.over_seeds([1.0, 2.0, 3.0]) == "2.00 ± 0.58"
    assert numbers.over_seeds([1.25]) == "1.25"


def test_a_table_escapes_bars():
    assert numbers.table(("a", "b"), [("1", "x|y")]) == "| a | b |\n| --- | --- |\n| 1 | x\\|y |"


def test_what_was_measured_stands_between_the_marks_and_nothing_else_changes():
    text = pages.put(README, pages.block(ORIGIN, SECTION), Path("README.md"))
    before, after = README.split(f"{pages.BEGIN}\n{pages.END}")
    assert text.startswith(before)
    assert text.endswith(after)
    assert "commit `abc1234`, seeds 0, 1, 2; weights: handwritten; torch 2.13.0 on cpu, float32." in text
    assert "| it rises | above 1 | 2.0 ± 0.1 | yes |\n| it falls | below 1 | 3 | **no** |" in text
    assert pages.put(text, pages.block(ORIGIN, SECTION), Path("README.md")) == text


def test_a_readme_without_its_marks_is_refused():
    with pytest.raises(DataError, match=r"recipes/one/README.md lacks the lines .*measured: begin.* Put them back"):
        pages.put("# A title\n", "text", Path("recipes/one/README.md"))


def test_the_page_of_all_recipes_has_title_claim_and_measurements_with_links_from_docs():
    section = pages.excerpt("one", pages.put(README, pages.block(ORIGIN, SECTION), Path("README.md")))
    assert section.startswith(
        "## [A title](../recipes/one/README.md)\n\nThe claim, in [two](../recipes/one/../sentiment"
    )
    assert "![A line](../recipes/one/evidence.svg)" in section
    assert "[a link](../recipes/one/run.toml)" in section
    assert "More." not in section
    assert "The end." not in section


def test_links_to_the_web_and_within_a_page_stay():
    assert pages.relink("[a](https://b.c) [d](#e) [f](g.md)", "../h") == "[a](https://b.c) [d](#e) [f](../h/g.md)"


def test_results_are_kept_as_they_were(tmp_path):
    pages.write_results(tmp_path, ORIGIN, {"runs": [{"kl": 1.5}]})
    assert pages.read_results(tmp_path) == (ORIGIN, {"runs": [{"kl": 1.5}]})


def test_pages_without_results_say_how_to_measure(tmp_path):
    with pytest.raises(DataError, match=f"Measure first: python -m recipes.evidence {tmp_path.name}"):
        pages.read_results(tmp_path)


def test_only_pages_that_changed_are_written(tmp_path):
    same, other = tmp_path / "same.md", tmp_path / "other.md"
    same.write_text("a", encoding="utf-8")
    assert pages.write({same: "a", other: "b"}) == [other]
    assert other.read_text(encoding="utf-8") == "b"


def test_an_unknown_recipe_is_refused_with_the_names_there_are(capsys):
    with pytest.raises(SystemExit) as ended:
        command.main(["zero-kl"])
    assert ended.value.code == 2
    assert (
        "there is no recipe of evidence named zero-kl; there are zero_kl, hold_the_target, " in capsys.readouterr().err
    )


def test_a_picture_draws_every_mark():
    line = picture.Mark([(0, 1.0), (10, 3.0)], "#111111")
    dots = picture.Mark([(5, 2.0)], "#222222", "dots", [(4, 6)], [(1.5, 2.5)])
    root = ET.fromstring(picture.svg("A & B", [("one", "#111111")], [picture.Panel("P", "step", "nats", [line, dots])]))
    name = "{http://www.w3.org/2000/svg}"
    assert root.find(f"{name}title").text == "A & B"
    panel = root.find(f"{name}g")
    assert [one.get("stroke") for one in panel.iter(f"{name}polyline")] == ["#111111", "#222222", "#222222"]
    ((x, y),) = [(float(dot.get("cx")), float(dot.get("cy"))) for dot in panel.iter(f"{name}circle")]
    first, last = [place.split(",") for place in next(panel.iter(f"{name}polyline")).get("points").split()]
    assert x == pytest.approx((float(first[0]) + float(last[0])) / 2, abs=0.1)
    assert y == pytest.approx((float(first[1]) + float(last[1])) / 2, abs=0.1)


def test_a_mean_of_log_reference_is_minus_entropy_minus_kl():
    policy, reference = (0.9, 0.1), (0.5, 0.5)
    assert zero_kl.logprob_under_reference(entropy=0.3250830, kl_per_token=0.3680642) == pytest.approx(
        sum(p * -0.6931472 for p, _ in zip(policy, reference, strict=True))
    )


def test_only_the_first_alarm_of_a_severity_counts():
    events = [
        Event(1, "info", "run/saved", "saved"),
        Event(3, "warning", "kl/far", "far"),
        Event(5, "critical", "kl/far", "farther"),
        Event(7, "info", "kl/far", "over", ends=True),
        Event(9, "critical", "text/repetition", "loops"),
    ]
    assert zero_kl.first_alarms(events) == {
        "kl/far": {"warning": 3, "critical": 5},
        "text/repetition": {"critical": 9},
    }


def held_out(**values):
    return {f"eval/{zero_kl.KEYS[name]}": value for name, value in values.items()}


@pytest.fixture
def run(tmp_path):
    """A finished run of 40 steps: the reward rises by 0.01 a step, the KL by 0.1."""

    def sample(split, index, completion, reward):
        return Sample(0, split, index, 0, f"opener {index}", completion, (), (), reward, None, 1.0, True)

    config = {"training": {"seed": 3}}
    meta = {
        "weights_source": "handwritten",
        "versions": {"torch": "2.13.0"},
        "device": "cpu",
        "dtype": "torch.float32",
    }
    start = {"reward": 0.1, "kl": 0.0, "kl_per_token": 0.0, "entropy": 3.0, "distinct_2": 0.9}
    end = {"reward": 0.9, "kl": 30.0, "kl_per_token": 2.5, "entropy": 0.75, "distinct_2": 0.1}
    rest = {"repeated_4gram": 0.2, "length": 12.0}
    with RunWriter.create(tmp_path / "run", config, meta) as writer:
        for step in range(40):
            metrics = {key: 1.0 for key in zero_kl.KEYS.values()} | {
                "reward/proxy": 0.01 * step,
                "kl/exact_per_sequence": 0.1 * step,
                "time/total": 3.0,
            }
            if step in (0, 39):
                metrics |= held_out(**(start if step == 0 else end), **rest)
            errors = {"eval/kl/exact_per_sequence": 0.5, "eval/reward/proxy": 0.05} if step == 39 else {}
            writer.write_step(Step(step, metrics, errors))
        writer.write_samples([sample("before", 0, "a b", 0.0), sample("before", 1, "c d", 0.4)])
        writer.write_samples([sample("after", index, "so so", 0.9) for index in (0, 1)])
        writer.write_event(Event(12, "warning", "kl/far", "far"))
        writer.set_status("finished")
    return Run({zero_kl.BETA: "0", zero_kl.SEED: "3"}, tmp_path / "run")


def test_what_zero_kl_reads_from_a_run(run):
    found = zero_kl.measure_run(run)
    assert (found["beta"], found["seed"], found["alarms"]) == ("0", 3, {"kl/far": {"warning": 12}})
    assert found["before"] | {"logprob": -3.0, "positive": 0.5, "different": 1.0, "reward": 0.1} == found["before"]
    assert found["after"] | {"logprob": -3.25, "positive": 1.0, "different": 0.5, "kl": 30.0} == found["after"]
    assert found["curves"]["logprob"] == [-2.0] * 40
    assert found["texts"] == [["opener 0", "so so"], ["opener 1", "so so"]]


def test_what_posterior_reads_from_a_run(run):
    found = posterior.measure_run(run)
    assert found["beta"] == 0.0
    assert found["kl"] == pytest.approx([2.95, 0.1322876], abs=1e-6)
    assert found["kl_before"][0] == pytest.approx(0.95)
    assert found["reward"][0] == pytest.approx(0.295)
    assert (found["held_out_kl"], found["held_out_reward"]) == ([30.0, 0.5], [0.9, 0.05])
    assert found["path"] == [[0.45, 0.045], [1.45, 0.145], [2.45, 0.245], [3.45, 0.345]]


def test_what_a_run_leaves_on_the_table():
    run = {"beta": 0.5, "kl": [1.0, 0.1], "reward": [0.6, 0.01]}
    point = {"kl": [0.8, 0.7, 0.9], "reward": [0.7, 0.65, 0.75]}
    assert posterior.gap(run, point) == pytest.approx((0.7 - 0.4) - (0.6 - 0.5))


def test_a_run_outside_of_the_band_is_said_to_be():
    toy = {"start": end(0.0, 1.35), "ends": [end(0.0, 2.0), end(0.5, 1.35, 1e-13)]}
    plan = [{"beta": 0.5, "reason": "", "kl": [0.8, 0.7, 0.9], "reward": [0.7, 0.65, 0.75]}]
    run = {"beta": 0.5, "kl": [0.86, 0.02], "kl_before": [0.8, 0.02], "reward": [0.7, 0.01]}
    run |= {"path": [[0.1, 0.2]], "held_out_kl": [0.65, 0.03], "held_out_reward": [0.68, 0.04]}
    short = run | {"kl": [0.6, 0.02], "reward": [0.5, 0.01]}
    band = "SmolLM2, beta 0.5: the trained run lies in the predicted 95 % band"
    for trained, words, held in (
        (run, "KL inside and reward inside", True),
        (short, "KL below and reward below", False),
    ):
        section = posterior.section({"toy": toy, "plan": plan, "runs": [trained]})
        said = {one.claim: (one.measured, one.held) for one in section.expectations}
        assert said[band] == (words, held)
    assert said["toy: with a penalty, training ends at the posterior, for every beta"] == ("at most 1e-13", True)
    assert said["toy: and that answer is one of the best"][1] is False


def end(beta, odds, from_posterior=None):
    shares = {"likeliest": 0.999, "share_of_best": 1e-5} if beta == 0 else {"likeliest": 0.3, "share_of_best": 0.1}
    return {
        "beta": beta,
        "reward": 0.5,
        "kl": 0.4,
        "from_posterior": from_posterior,
        "entropy": 1.0,
        "odds": odds,
        **shares,
    }


def test_origin_is_read_from_the_runs(run):
    found = origin_of([run])
    assert (found.seeds, found.weights, found.torch, found.dtype) == ((3,), "handwritten", "2.13.0", "float32")
    assert found.minutes == pytest.approx((2.0, 2.0))
    assert "commit `" in found.sentence
