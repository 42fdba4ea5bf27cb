"""What every test gets: one thread a worker, no hub, the same random numbers each time, and a tiny model."""

from __future__ import annotations

import os
import random
import sys
from pathlib import Path

os.environ["OMP_NUM_THREADS"] = "1"
os.environ["HF_HUB_OFFLINE"] = "1"
os.environ["TOKENIZERS_PARALLELISM"] = "false"

import hypothesis
import pytest

hypothesis.settings.register_profile("repeatable", derandomize=True, deadline=None, database=None)
hypothesis.settings.load_profile("repeatable")


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Skip the tests marked `gpu` where there is none."""
    for_gpu = [item for item in items if item.get_closest_marker("gpu")]
    if not for_gpu:
        return
    import torch

    if not torch.cuda.is_available():
        for item in for_gpu:
            item.add_marker(pytest.mark.skip(reason="needs a GPU"))


@pytest.fixture(autouse=True)
def _seeds() -> None:
    """Seed the generators that are loaded: a test of a room without torch does not wait for torch."""
    random.seed(0)
    if "numpy" in sys.modules:
        sys.modules["numpy"].random.seed(0)
    if "torch" in sys.modules:
        sys.modules["torch"].manual_seed(0)


@pytest.fixture(scope="session")
def tiny_model_dir(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder to give as `model`: 2 layers, 261 tokens; BOS, EOS, PAD and end of turn differ; a chat template."""
    from tiny_model import save_tiny_model

    return save_tiny_model(tmp_path_factory.mktemp("tiny_model"))
