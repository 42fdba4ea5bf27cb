import json
import math
from pathlib import Path

import pytest

from kleash.errors import ConfigError, DataError
from kleash.gauge.lm_eval import read_all, read_scores
from kleash.gauge.records import Estimate


def results(folder, name, tasks, **sections):
    path = folder / name
    path.write_text(json.dumps({"results": tasks, **sections}))
    return path


def arc(value, stderr=0.01):
    return {"arc": {"alias": "arc", "sample_len": 50, "acc,none": value, "acc_stderr,none": stderr}}


def test_a_metric_of_both_has_normal_intervals(tmp_path):
    count = {"n-samples": {"arc": {"original": 1172, "effective": 200}}}
    ours, theirs = results(tmp_path, "a", arc(0.4, 0.03), **count), results(tmp_path, "b", arc(0.5, 0.04), **count)
    (score,) = read_scores(ours, theirs)
    assert score.name == "arc acc"
    # 1.959964 standard errors to each side; 0.05 = sqrt(0.03² + 0.04²)
    assert score.reference == Estimate(0.4, pytest.approx(0.3412011), pytest.approx(0.4587989), 200, 200)
    assert score.tuned == Estimate(0.5, pytest.approx(0.4216014), pytest.approx(0.5783986), 200, 200)
    assert score.difference == Estimate(
        pytest.approx(0.1), pytest.approx(0.1 - 0.0979982), pytest.approx(0.1 + 0.0979982), 200, 200
    )


def test_a_filter_is_part_of_the_name(tmp_path):
    tasks = {"gsm8k": {"match,strict": 0.5, "match,flexible": 0.75}}
    path = results(tmp_path, "a", tasks)
    scores = read_scores(path, path)
    assert [score.name for score in scores] == ["gsm8k match (strict)", "gsm8k match (flexible)"]
    assert [score.tuned.value for score in scores] == [0.5, 0.75]


def test_without_a_standard_error_there_is_no_interval(tmp_path):
    path = results(tmp_path, "a", arc(0.4, "N/A"))
    (score,) = read_scores(path, path)
    assert math.isnan(score.difference.low)
    assert score.difference.value == 0.0


def test_what_is_better_when_less_is_left_out(tmp_path):
    tasks = {"wikitext": {"word_perplexity,none": 20.0, "acc,none": 0.5}}
    path = results(tmp_path, "a", tasks, higher_is_better={"wikitext": {"word_perplexity": False, "acc": True}})
    assert [score.name for score in read_scores(path, path)] == ["wikitext acc"]


def test_models_without_a_task_in_common_are_refused(tmp_path):
    ours, theirs = results(tmp_path, "a", arc(0.4)), results(tmp_path, "b", {"mmlu": {"acc,none": 0.3}})
    with pytest.raises(DataError) as refused:
        read_scores(ours, theirs)
    assert str(refused.value) == (
        f"{theirs} has no score in common with {ours}: it has mmlu acc, the reference's has arc acc. Run both models "
        "on the same tasks."
    )


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("{", "is no JSON"), ("[]", "has no 'results'"), ('{"config": {}}', "has no 'results'"),
        (None, "cannot be read: No such file"),
    ],
)  # fmt: skip
def test_a_file_without_results_is_refused(tmp_path, text, said):
    path = tmp_path / "results.json"
    if text is not None:
        path.write_text(text)
    with pytest.raises(DataError, match=said):
        read_scores(path, path)


def test_there_is_a_file_for_each_model(tmp_path):
    paths = [results(tmp_path, name, arc(value)) for name, value in (("a", 0.25), ("b", 0.5), ("c", 0.75))]
    assert [score.difference.value for (score,) in read_all(paths, 2)] == [0.25, 0.5]
    assert read_all([], 2) == [(), ()]
    with pytest.raises(ConfigError) as refused:
        read_all([Path("a.json")], 2)
    assert str(refused.value) == (
        "--lm-eval is given 1 times for 1 reference and 2 tuned: a results file holds the scores of one model. Give it "
        "once for REFERENCE, then once for each TUNED, in their order."
    )
