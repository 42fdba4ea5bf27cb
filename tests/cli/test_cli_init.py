import tomllib

import pytest

from kleash.cli.init import run
from kleash.config.loader import load
from kleash.errors import ConfigError, RunDirError
from kleash.rewards.loading import load_function


def test_the_template_loads_and_is_on_a_leash(tmp_path):
    path = tmp_path / "run.toml"
    run(path)
    loaded = load(path)
    assert loaded.warnings == ()
    assert (loaded.config.model.name, loaded.config.prompts.path) == ("demo", "demo")
    assert loaded.config.algorithm.kl.target_nats_per_sequence == 6
    (reward,) = loaded.config.reward.functions
    assert callable(load_function(reward))


def test_every_setting_has_its_meaning_above_it(tmp_path):
    path = tmp_path / "mine.toml"
    run(path)
    lines = path.read_text().splitlines()
    settings = [index for index, line in enumerate(lines) if " = " in line and not line.startswith("#")]
    assert len(settings) == sum(len(table) for table in _tables(tomllib.loads(path.read_text())))
    assert all(lines[index - 1].startswith("# ") for index in settings)
    assert "# Peak, AdamW. The default suits LoRA; full fine-tuning wants about 1e-5." in lines
    assert max(len(line) for line in lines) <= 100
    assert "`kleash train mine.toml`" in lines[0]


def _tables(data):
    yield {key: value for key, value in data.items() if not isinstance(value, dict)}
    for value in data.values():
        if isinstance(value, dict):
            yield from _tables(value)


def test_a_file_that_is_there_stays(tmp_path):
    path = tmp_path / "run.toml"
    path.write_text("mine")
    with pytest.raises(ConfigError) as caught:
        run(path)
    assert str(caught.value) == (f"{path} exists and is left as it is. Give another name, or --force to replace it.")
    assert path.read_text() == "mine"
    run(path, force=True)
    assert path.read_text().startswith("# A run of Kleash.")


def test_a_path_that_cannot_be_written(tmp_path):
    path = tmp_path / "absent" / "run.toml"
    with pytest.raises(RunDirError) as caught:
        run(path)
    assert str(caught.value) == (
        f"{path} cannot be written: No such file or directory. Give a path in a folder that exists and is yours."
    )
