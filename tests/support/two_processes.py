"""One rank of a run under `torchrun`: `two_processes.py MODEL FOLDER [own-samples] [alarms] [key=value ...]`.

Unless it is to draw samples of its own, each sequence's random numbers depend on its prompt alone, so that any number
of processes draws the same. With `alarms` a rule finds something critical in steps 1 and 3, begun in step 1.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parent))

from scripted_rules import Scripted
from tiny_run import settings

from kleash.monitor import monitor
from kleash.rollout.decoding import DecodingSampler
from kleash.rollout.sampler import Completion
from kleash.training import loop, run
from kleash.training.observer import Silent
from kleash.training.seeds import seed_for


def _by_prompt(inner: Any) -> Any:
    def sample(self: DecodingSampler, prompts: Sequence[Sequence[int]], **how: Any) -> list[Completion]:
        return [done for prompt in prompts for done in inner(self, [prompt], **how | {"seed": seed_for(0, *prompt)})]

    return sample


def _main() -> None:
    model, folder, *overrides = sys.argv[1:]
    if "own-samples" in overrides:
        overrides.remove("own-samples")
    else:
        DecodingSampler.sample = _by_prompt(DecodingSampler.sample)  # type: ignore[method-assign]
    if "alarms" in overrides:
        overrides.remove("alarms")
        monitor.make_rules = lambda: [Scripted({1: "critical", 3: "critical"}, began=1)]
    loops: list[Any] = []
    inner = loop.Loop.__init__

    def remember(self: Any, job: Any, *rest: Any) -> None:
        loops.append(job)
        inner(self, job, *rest)

    loop.Loop.__init__ = remember  # type: ignore[method-assign]
    run.train(settings(Path(model), Path(folder), "algorithm.kl.beta=0.2", *overrides), observer=Silent())
    (job,) = loops
    session = job.session
    weights = [value for _, p in session.policy.trained() for value in p.detach().flatten().tolist()]
    rank = session.accelerator.process_index
    (Path(folder) / f"rank_{rank}.json").write_text(json.dumps({"weights": weights}), encoding="utf-8")


if __name__ == "__main__":
    _main()
