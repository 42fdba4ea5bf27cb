"""`kleash label candidates` fills a store with samples of a model, each in one pair, on training prompts alone."""

import pytest
from tiny_jobs import settings_of, write_data

from kleash.cli.main import main
from kleash.labels.store import LabelStore


@pytest.fixture
def fill(tiny_model_dir, tmp_path, capsys):
    write_data(tmp_path)
    store = tmp_path / "labels.db"

    def fill(pairs):
        settings = settings_of("mixed", tiny_model_dir, tmp_path)
        code = main(["label", "candidates", *settings, "--store", str(store), "--pairs", str(pairs)])
        return code, capsys.readouterr(), store

    return fill


def test_pairs_are_added_once_and_held_out_prompts_are_left_alone(fill):
    code, said, store = fill(18)
    assert code == 0
    with LabelStore.open(store) as labels:
        pairs = list(labels.pairs())
    assert 16 <= len(pairs) <= 18
    assert f"{len(pairs)} pairs added to {store}; {len(pairs)} in all" in said.out
    assert len({pair.prompt for pair in pairs}) == 9  # 12 prompts, 3 held out
    texts = [(pair.prompt, text) for pair in pairs for text in (pair.first, pair.second)]
    assert len(set(texts)) > 0.9 * len(texts)
    again, said, _ = fill(18)
    assert again == 0
    assert f"0 pairs added to {store}, {len(pairs)} were there already; {len(pairs)} in all" in said.out


@pytest.mark.parametrize("pairs", [0, -3])
def test_no_pairs_are_refused(fill, pairs):
    code, said, _ = fill(pairs)
    assert code == 2
    assert f"--pairs {pairs} asks for nothing to compare. Give 1 or more." in said.err
