import json

from tiny_run import Remembering

from kleash.config.loader import load
from kleash.training.export import export
from kleash.training.observer import Silent
from kleash.training.run import train


def test_the_card_of_a_reward_model_tells_its_accuracy_and_health_and_no_drift(tiny_model_dir, tmp_path):
    pairs = tmp_path / "pairs.jsonl"
    rows = [{"prompt": f"question {i}", "chosen": " yes", "rejected": " no, never"} for i in range(24)]
    pairs.write_text("\n".join(map(json.dumps, rows)), encoding="utf-8")
    given = [
        f"model={tiny_model_dir}",
        "model.dtype=float32",
        "algorithm.type=reward_model",
        f"comparisons={pairs}",
        "comparisons.held_out=12",
        "comparisons.max_completion_length=32",
        f"output_dir={tmp_path / 'runs'}",
        "name=scorer",
        "training.steps=2",
    ]
    run = train(load(None, given).config, observer=Silent())
    export(run, tmp_path / "out", step=None, merge=False, observer=Remembering())
    card = (tmp_path / "out" / "README.md").read_text(encoding="utf-8")
    assert card.startswith(
        f"---\nbase_model: {tiny_model_dir}\nlibrary_name: peft\ntags: [kleash, reward-model]\n---\n"
    )
    assert "# scorer, step 2\n" in card
    assert f"trained by Kleash on the comparisons of `{pairs}`." in card
    assert "Accuracy on held-out comparisons at step 2: " in card
    for row in (
        "| chosen: the answer that was chosen |",
        "| empty: nothing at all |",
        "| Tail index | – | not estimated",
    ):
        assert row in card
    assert "KL" not in card
    export(run, tmp_path / "merged", step=None, merge=True, observer=Remembering())
    assert "library_name: transformers\n" in (tmp_path / "merged" / "README.md").read_text(encoding="utf-8")
