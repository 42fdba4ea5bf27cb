"""What names mean, and the sentences for those that mean nothing."""

import json
from pathlib import Path

import pytest
from gauge_files import save_adapter, save_run, unknown_gguf

from kleash.errors import ModelError, RunDirError
from kleash.gauge.sources import checkpoints, identify, tokenizer_of


def test_a_folder_is_a_model_and_an_adapter_is_its_base_with_something_on_top(tiny_model_dir, tmp_path):
    base = identify(tiny_model_dir)
    assert (base.kind, base.weights, base.adapter) == ("model", str(tiny_model_dir), None)
    adapter = identify(save_adapter(tiny_model_dir, tmp_path / "adapter"), base)
    assert (adapter.kind, adapter.weights, adapter.adapter) == (
        "adapter",
        str(tiny_model_dir),
        str(tmp_path / "adapter"),
    )
    assert adapter.key == base.key


def test_a_run_is_its_newest_checkpoint_and_each_can_be_named(tiny_model_dir, tmp_path):
    run = save_run(tiny_model_dir, tmp_path / "run", steps=(2, 10))
    base = identify(tiny_model_dir)
    assert identify(run, base).adapter == f"{run}/checkpoints/step_10"
    assert identify(f"{run}@2", base).adapter == f"{run}/checkpoints/step_2"
    assert identify(run / "checkpoints" / "step_2", base).adapter == f"{run}/checkpoints/step_2"
    assert {identify(name, base).kind for name in (run, f"{run}@2", run / "checkpoints" / "step_2")} == {"run"}
    assert checkpoints(run) == [f"{run}@2", f"{run}@10"]


def test_a_checkpoint_that_is_not_there_is_refused(tiny_model_dir, tmp_path):
    run = save_run(tiny_model_dir, tmp_path / "run", steps=(2, 10))
    with pytest.raises(RunDirError, match=r"has no checkpoint of step 3; there are \[2, 10\]"):
        identify(f"{run}@3")
    empty = save_run(tiny_model_dir, tmp_path / "empty", steps=())
    for ask in (identify, checkpoints):
        with pytest.raises(RunDirError, match="has no checkpoint on disk"):
            ask(empty)
    with pytest.raises(RunDirError, match="is not a run"):
        checkpoints(tiny_model_dir)


def test_an_adapter_of_another_base_is_refused(tiny_model_dir, tmp_path):
    adapter = save_adapter(tiny_model_dir, tmp_path / "adapter", named="org/Other-1B")
    with pytest.raises(ModelError, match=r"is an adapter for 'org/Other-1B', but the reference is .*merge it first"):
        identify(adapter, identify(tiny_model_dir))


def test_an_adapter_whose_base_lay_elsewhere_is_taken_by_its_name(tiny_model_dir, tmp_path):
    adapter = save_adapter(tiny_model_dir, tmp_path / "adapter", named=f"/gone/{Path(tiny_model_dir).name}")
    assert identify(adapter, identify(tiny_model_dir)).weights == str(tiny_model_dir)


def test_a_base_of_that_name_that_is_there_is_not_taken_for_the_reference(tiny_model_dir, tmp_path):
    """Two folders of one name: only the one the adapter names is its base."""
    namesake = tmp_path / tiny_model_dir.name
    namesake.mkdir()
    adapter = save_adapter(tiny_model_dir, tmp_path / "adapter", named=str(namesake))
    with pytest.raises(ModelError, match="is an adapter for"):
        identify(adapter, identify(tiny_model_dir))


def test_an_adapter_can_be_the_reference_if_it_names_its_base(tiny_model_dir, tmp_path):
    assert identify(save_adapter(tiny_model_dir, tmp_path / "a")).weights == str(tiny_model_dir)
    with pytest.raises(ModelError, match="does not name its base"):
        identify(save_adapter(tiny_model_dir, tmp_path / "b", named=""))


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda folder: folder.mkdir(), "holds neither config.json nor adapter_config.json"),
        (lambda folder: folder.write_text("x"), "is a file of no kind that is known"),
    ],
)
def test_what_is_no_model_is_refused(tmp_path, make, message):
    make(tmp_path / "thing")
    with pytest.raises(ModelError, match=message):
        identify(tmp_path / "thing")


def test_a_folder_with_a_gguf_file_asks_for_the_file(tmp_path):
    (tmp_path / "model.Q4_0.gguf").write_bytes(b"GGUF")
    with pytest.raises(ModelError, match=r"Name the GGUF file in it: model\.Q4_0\.gguf"):
        identify(tmp_path)


def test_a_gguf_file_that_cannot_be_read_says_why_in_one_sentence(tmp_path):
    with pytest.raises(ModelError, match="there is no such file"):
        identify(tmp_path / "missing.gguf")
    unknown = identify(unknown_gguf(tmp_path / "new.gguf"))
    with pytest.raises(ModelError, match=r"new\.gguf cannot be read by transformers: .*wondernet.*Gauge the Hugging"):
        tokenizer_of(unknown)
    (tmp_path / "broken.gguf").write_bytes(b"nonsense, not a model" * 10)
    with pytest.raises(ModelError, match=r"broken\.gguf cannot be read by transformers"):
        tokenizer_of(identify(tmp_path / "broken.gguf"))


def test_a_path_that_is_not_there_is_refused_with_the_nearest_name(tiny_model_dir, tmp_path):
    (tmp_path / "model").mkdir()
    for place in (tmp_path / "modle", tmp_path / "modle@3"):
        with pytest.raises(ModelError, match=r"there is no such local folder\. Did you mean 'model'\? Check the path"):
            identify(place)
    with pytest.raises(ModelError, match=r"there is no such local folder\. Check the path"):
        identify("./no/such/folder")
    with pytest.raises(RunDirError, match="is not a run"):
        identify(f"{tmp_path / 'model'}@3")


def test_an_unknown_name_is_refused(tiny_model_dir):
    with pytest.raises(ModelError, match="no such local folder, and the hub gave nothing"):
        tokenizer_of(identify("nobody/no-such-model"))


def test_the_config_of_an_adapter_is_what_decides(tiny_model_dir, tmp_path):
    adapter = save_adapter(tiny_model_dir, tmp_path / "adapter")
    assert json.loads((adapter / "adapter_config.json").read_text())["base_model_name_or_path"] == str(tiny_model_dir)
