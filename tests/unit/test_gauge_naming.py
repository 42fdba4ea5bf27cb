import pytest

from kleash.gauge.naming import checkpoint_steps, short_name, short_names


@pytest.mark.parametrize(
    ("name", "short"),
    [("org/model", "model"), ("runs/a/checkpoints/step_20/", "step_20"), ("runs/a@20", "a@20"), ("demo", "demo")],
)
def test_a_short_name_is_the_last_part(name, short):
    assert short_name(name) == short


def test_names_that_would_be_the_same_stay_whole():
    assert short_names(["a/x", "b/y"]) == ["x", "y"]
    assert short_names(["a/x", "b/x"]) == ["a/x", "b/x"]


@pytest.mark.parametrize(
    ("names", "steps"),
    [
        (["runs/a@10", "runs/a@40"], [10, 40]),
        (["runs/a/checkpoints/step_10", "runs/a@40"], [10, 40]),
        (["runs/a@10", "runs/b@40"], None),
        (["runs/a@10", "org/model"], None),
    ],
)
def test_steps_are_those_of_one_run(names, steps):
    assert checkpoint_steps(names) == steps
