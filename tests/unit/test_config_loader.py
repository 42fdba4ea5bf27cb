import json

import pytest

from kleash.config.loader import load, to_dict
from kleash.errors import ConfigError

REQUIRED = ["model=demo", "prompts=demo", "reward=rewards:score"]

EVERYTHING = """
name = "long"
mirrors = ["wandb", "tensorboard"]
skip_checks = ["padding"]

[model]
name = "org/base"
revision = "abc"
dtype = "bfloat16"
lora = false
reference_ema = 0.01

[prompts]
path = "org/questions:train"
held_out_path = "held_out.jsonl"
as_chat = true

[reward]
functions = ["a:b", "c:d"]
weights = [1, 0.5]
clip = [-1, 1]
length_penalty = 0.1
length_penalty_from = 20

[algorithm]
type = "grpo"
num_generations = 6
epsilon_high = 0.28

[algorithm.kl]
target_nats_per_token = 0.2
controller.horizon = 500
controller.type = "ziegler"
max_weight = 5

[rollout]
batch_size = 16

[training]
num_epochs = 2
gradient_accumulation_steps = 4
"""


def write(tmp_path, text, name="run.toml"):
    path = tmp_path / name
    path.write_text(text, encoding="utf-8")
    return path


def failure(*args, **kwargs):
    with pytest.raises(ConfigError) as caught:
        load(*args, **kwargs)
    return str(caught.value)


def test_class_defaults_then_base_then_file_then_overrides(tmp_path):
    path = write(tmp_path, 'model = "demo"\n[training]\nsteps = 30\nseed = 3\n')
    base = {
        "prompts": "demo",
        "reward": "a:b",
        "training": {"steps": 20, "seed": 2, "eval_every": 7},
    }
    loaded = load(path, ["training.seed=4", "training.seed=5"], base)
    training = loaded.config.training
    assert (training.prompts_per_step, training.eval_every, training.steps, training.seed) == (8, 7, 30, 5)
    assert loaded.explicit == {"model.name", "training.steps", "training.seed"}
    assert loaded.source == f"{path} and the command line"
    assert loaded.warnings == ()


def test_short_forms_go_together_with_dotted_overrides(tmp_path):
    path = write(tmp_path, 'model = "org/base"\nprompts = "p.txt"\nreward = "a:b"\n')
    config = load(path, ["model.dtype=float32", "reward.gold=c:d", "prompts.held_out=4"]).config
    assert (config.model.name, config.model.dtype) == ("org/base", "float32")
    assert (config.reward.functions, config.reward.gold) == (("a:b",), "c:d")
    assert (config.prompts.path, config.prompts.held_out) == ("p.txt", 4)


def test_a_short_form_on_the_command_line_keeps_the_rest_of_the_table(tmp_path):
    path = write(tmp_path, '[model]\nname = "org/base"\ndtype = "float32"\n')
    config = load(path, REQUIRED).config
    assert (config.model.name, config.model.dtype) == ("demo", "float32")


@pytest.mark.parametrize(
    ("override", "value"),
    [
        ("training.learning_rate=1e-4", 1e-4),
        ("reward.functions=['a:b', 'c:d']", ("a:b", "c:d")),
        ("rollout.batch_size=auto", "auto"),
        ("rollout.batch_size = 8", 8),
        ("model.lora=false", False),
        ("model.revision=1234567", "1234567"),
        ("model.revision='1234567'", "1234567"),
        ("name=2026-01-02", "2026-01-02"),
        ("name=a=b", "a=b"),
        ("prompts.system_prompt=Be brief.\nBe kind.", "Be brief.\nBe kind."),
        ("prompts.system_prompt=1\nother = 2", "1\nother = 2"),
    ],
)
def test_override_values(override, value):
    found = load(None, [*REQUIRED, override]).config
    for name in override.partition("=")[0].strip().split("."):
        found = getattr(found, name)
    assert found == value


def test_a_table_over_false_and_false_over_a_table(tmp_path):
    path = write(tmp_path, '[model]\nname = "x"\nlora.r = 4\n')
    assert load(path, [*REQUIRED, "model.lora=false"]).config.model.lora is False
    path = write(tmp_path, '[model]\nname = "x"\nlora = false\n')
    loaded = load(path, [*REQUIRED, "model.lora.r=4"])
    assert loaded.config.model.lora.r == 4
    assert "model.lora" not in loaded.explicit


def test_an_algorithm_without_type_is_rloo():
    assert load(None, [*REQUIRED, "algorithm.num_generations=6"]).config.algorithm.type == "rloo"


def test_a_controller_without_type_goes_by_the_target():
    target = "algorithm.kl.target_nats_per_sequence=6"
    kl = load(None, [*REQUIRED, target, "algorithm.kl.controller.ramp_steps=3"]).config.algorithm.kl
    assert (kl.controller.type, kl.controller.ramp_steps) == ("target", 3)
    assert "exists only with algorithm.kl.controller.type = 'target'" in failure(
        None, [*REQUIRED, "algorithm.kl.controller.ramp_steps=3"]
    )


def test_paths_that_exist_beside_the_file_are_made_absolute(tmp_path, monkeypatch):
    folder = tmp_path / "recipe"
    (folder / "base").mkdir(parents=True)
    (folder / "demo").mkdir()
    for name in ("prompts.txt", "held.txt", "score.py"):
        (folder / name).touch()
    monkeypatch.chdir(tmp_path)
    text = (
        'model = "base"\n[prompts]\npath = "prompts.txt"\nheld_out_path = "held.txt"\n'
        '[reward]\nfunctions = ["score.py:f", "other.py:f", "score:f"]\ngold = "score.py:g"\n'
    )
    config = load(write(folder, text).relative_to(tmp_path)).config
    assert config.model.name == str(folder / "base")
    assert config.prompts.path == str(folder / "prompts.txt")
    assert config.prompts.held_out_path == str(folder / "held.txt")
    assert config.reward.functions == (f"{folder}/score.py:f", "other.py:f", "score:f")
    assert config.reward.gold == f"{folder}/score.py:g"
    demo = load(write(folder, 'model = "demo"\nprompts = "absent.txt"\nreward = "score:f"'))
    assert (demo.config.model.name, demo.config.prompts.path) == ("demo", "absent.txt")
    assert load(write(folder, text), ["prompts.path=held.txt"]).config.prompts.path == "held.txt"


@pytest.mark.parametrize("text", [EVERYTHING, 'model = "x"\nprompts = "y"\nreward = "a:b"\n'])
def test_to_dict_is_json_and_loads_back(tmp_path, text):
    config = load(write(tmp_path, text)).config
    stored = json.loads(json.dumps(to_dict(config)))
    again = load(None, base=stored)
    assert again.config == config
    assert again.explicit == frozenset()
    assert again.warnings == ()


def test_a_missing_file(tmp_path):
    write(tmp_path, "", "train.toml")
    path = tmp_path / "trian.toml"
    assert failure(path) == (
        f"There is no file {path}. Did you mean 'train.toml'? `kleash init {path}` writes one to start from."
    )


def test_a_folder_and_a_binary_file(tmp_path):
    assert failure(tmp_path) == f"{tmp_path} cannot be read: Is a directory. Give the TOML file of a run."
    path = tmp_path / "weights.toml"
    path.write_bytes(b"ab\xff")
    assert failure(path) == (
        f"{path} is not UTF-8 text (byte 2), which TOML must be. Save it as UTF-8, or give the TOML file of the run."
    )


def test_a_syntax_error_shows_its_line(tmp_path):
    path = write(tmp_path, 'model = "demo"\nprompts = demo\n')
    message = failure(path)
    assert message.startswith(f"{path}, line 2, column 11, is not TOML: ")
    assert "\n    prompts = demo\n" in message
    assert message.endswith("Strings need quotes, and each key = value a line of its own.")


def test_a_syntax_error_at_the_end(tmp_path):
    path = write(tmp_path, "model = [")
    assert failure(path).startswith(f"{path} is not TOML: Invalid value (at end of document).")


@pytest.mark.parametrize("override", ["training.steps", "=3", "training..steps=3"])
def test_an_override_of_another_form(override):
    assert failure(None, [*REQUIRED, override]) == (
        f"'{override}' on the command line is not of the form key=value. Write a dotted key and its value,"
        " such as algorithm.kl.target_nats_per_sequence=6."
    )
