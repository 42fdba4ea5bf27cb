"""Which settings of a command line are swept, and the points that they make."""

from pathlib import Path

import pytest

from kleash.config.loader import load
from kleash.errors import ConfigError
from kleash.sweep.grid import read_grid, split_values
from kleash.sweep.points import check_points, short_keys

BASE = ["model=demo", "prompts=demo", "reward=json:dumps"]


@pytest.mark.parametrize(
    ("text", "values"),
    [
        ("0,0.02,0.05", ["0", "0.02", "0.05"]),
        ("0, 0.02", ["0", "0.02"]),
        ("[-1,1]", ["[-1,1]"]),
        ("[-1,1],[0, 2]", ["[-1,1]", "[0, 2]"]),
        ("{r = 8, alpha = 16},{r = 4, alpha = 8}", ["{r = 8, alpha = 16}", "{r = 4, alpha = 8}"]),
        ('"a, b"', ['"a, b"']),
        ("'a, b',c", ["'a, b'", "c"]),
        (r'"a\", b",c', [r'"a\", b"', "c"]),
        (r"'a\',b", [r"'a\'", "b"]),
        ('["a,b", "c"],["d"]', ['["a,b", "c"]', '["d"]']),
        ("it's,that", ["it's", "that"]),
        ("0,", ["0", ""]),
        ("", [""]),
    ],
)
def test_commas_cut_outside_of_quotes_lists_and_tables(text, values):
    assert split_values(text) == values


def test_a_grid_is_every_combination_the_last_key_fastest():
    grid = read_grid(["run.toml", "training.seed=0,1", "training.steps=5", "algorithm.kl.beta = 0, 0.1"])
    assert grid.file == Path("run.toml")
    assert grid.fixed == ("training.steps=5",)
    assert grid.combinations() == [
        {"training.seed": "0", "algorithm.kl.beta": "0"},
        {"training.seed": "0", "algorithm.kl.beta": "0.1"},
        {"training.seed": "1", "algorithm.kl.beta": "0"},
        {"training.seed": "1", "algorithm.kl.beta": "0.1"},
    ]


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["run.toml"], "Nothing is swept: there is no setting with several"),
        (["training.steps=5"], "Nothing is swept: training.steps=5 gives one value to each"),
        (["reward.clip=[-1,1]"], "Nothing is swept"),
        (["a.toml", "b.toml", "training.seed=0,1"], r"2 files on the command line \(a.toml, b.toml\)"),
        (["training.seed=0,,1"], "'training.seed=0,,1' on the command line has an empty value"),
        (["name=a,b"], "'name=a,b' on the command line cannot be swept"),
        (["training.seed=0,1", "training.seed=3"], "training.seed is given 2 times"),
    ],
)
def test_what_makes_no_grid_is_refused(words, said):
    with pytest.raises(ConfigError, match=said):
        read_grid(words)


def points_of(*words):
    return check_points(read_grid([*BASE, *words]))


def test_points_have_readable_names_and_their_settings():
    checked = points_of("algorithm.kl.beta=0,0.02", "training.seed=1,2", "reward.clip=[-1,1]")
    assert [point.name for point in checked.points] == [
        "beta_0-seed_1", "beta_0-seed_2", "beta_0.02-seed_1", "beta_0.02-seed_2",
    ]  # fmt: skip
    assert checked.points[3].label == "beta=0.02 seed=2"
    assert checked.points[3].settings == {
        "algorithm.kl.beta": 0.02,
        "model.name": "demo",
        "prompts.path": "demo",
        "reward.clip": [-1.0, 1.0],
        "reward.functions": ["json:dumps"],
        "training.seed": 2,
    }
    assert (checked.output_dir, checked.name) == ("runs", "rloo-beta-seed")


def test_a_sweep_has_the_name_and_folder_that_are_set_or_that_of_its_file(tmp_path):
    file = tmp_path / "mine.toml"
    file.write_text('model = "demo"\nprompts = "demo"\nreward = "json:dumps"\n')
    assert check_points(read_grid([str(file), "training.seed=0,1"])).name == "mine-seed"
    checked = points_of("training.seed=0,1", "name=wide", "output_dir=elsewhere")
    assert (checked.output_dir, checked.name) == ("elsewhere", "wide")
    assert not {"name", "output_dir"} & checked.points[0].settings.keys()


def test_names_hold_no_odd_characters_and_are_told_apart():
    checked = points_of('prompts.system_prompt="be kind, be brief",be kind be brief,"../up"')
    names = [point.name for point in checked.points]
    assert names == ["system_prompt_be_kind_be_brief", "system_prompt_be_kind_be_brief-2", "system_prompt_.._up"]


def test_the_settings_file_of_a_point_loads_to_the_same_run(tmp_path):
    words = [*BASE, "algorithm.kl.controller.horizon=50", "algorithm.kl.controller.type=ziegler",
             "algorithm.kl.target_nats_per_sequence=4", 'prompts.system_prompt="say \\"hi\\""']  # fmt: skip
    (point, _) = points_of("training.seed=3,4", *words[3:]).points
    file = tmp_path / "point.toml"
    file.write_text(point.toml)
    frozen = load(file)
    assert frozen.config == load(None, [*words, "training.seed=3"]).config
    assert frozen.explicit == load(None, [*words, "training.seed=3"]).explicit


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["algorithm.kl.betta=0,1"], "2 of the 2 points cannot work.*\nbetta=0: .*Did you mean 'algorithm.kl.beta'"),
        (["algorithm.kl.beta=0,-1,0.1"], "1 of the 3 points cannot work, so none was started.\nbeta=-1: "),
        (["training.seed=0,1", "algorithm.kl.beta=-1"], "2 of the 2 points .*\nseed=0, seed=1: algorithm.kl.beta = -1"),
        (["training.steps=-1,-2,-3,-4,-5"], "5 of the 5 points .*\n(.*\n){3}and 2 more$"),
        (["algorithm.kl.beta=0.02,0.020"], "beta=0.02 and beta=0.020 are one and the same run"),
    ],
)
def test_points_that_cannot_work_are_named_before_any_starts(words, said):
    with pytest.raises(ConfigError, match=said):
        points_of(*words)


def test_short_keys_are_the_shortest_endings_that_differ():
    assert short_keys(dict.fromkeys(["algorithm.kl.beta", "training.seed"])) == {
        "algorithm.kl.beta": "beta",
        "training.seed": "seed",
    }
    assert short_keys(dict.fromkeys(["prompts.path", "comparisons.path"])) == {
        "prompts.path": "prompts.path",
        "comparisons.path": "comparisons.path",
    }


def test_what_is_worth_a_note_is_said_once():
    warnings = points_of("training.seed=0,1,2").warnings
    assert len(warnings) == len(set(warnings))
