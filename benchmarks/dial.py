r"""What a dialled adapter costs in reward against a run that was trained to the same KL: `python benchmarks/dial.py`.

For each seed one run is trained to a long leash and one to each short target. Every short run is then met by the long
one at the scale of its adapter where the *measured* KL is the same: same prompts, same number of replies, and the
scale is moved until the two KLs agree. What is compared is the reward there, and gold where the runs have it:

    difference = reward of the dialled run - reward of the trained run, at equal measured KL

Its error within a seed is that of both means over prompts. The line of all seeds is the mean over those whose KLs
could be matched, with its standard error between seeds: the one that counts. Nine runs of recipes/sentiment take hours
on two cores: finished ones are kept in `--out`, and the same command goes on with the rest. On the small model, which
`python -m recipes.small_model.make` makes, twelve runs take minutes:

    python benchmarks/dial.py recipes/hold_the_target/run.toml algorithm.kl.controller.type=target training.steps=60 \
        training.eval_every=60 training.checkpoint_every=60 --long 8 --targets 1.5 3 6

Needs `pip install 'kleash[demo]'`.
"""

from __future__ import annotations

import argparse
import json
import math
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from statistics import fmean, stdev
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from kleash.gauge.dial_search import Point
    from kleash.gauge.records import Estimate

RECIPE = Path(__file__).parents[1] / "recipes" / "sentiment" / "run.toml"
NORMAL_95 = 1.96
"""Standard errors in an arm of a 95 % interval."""
GRID = (0.25, 0.5, 0.75, 1.0)
"""Scales that show where the long run's KL lies, before it is matched."""
MATCHED, MOST_MATCHES = 0.03, 5
"""KLs count as equal within this share of the trained run's, or after so many tries."""


@dataclass(frozen=True)
class Comparison:
    """One seed at one target; KL in nats per sequence, errors are standard errors over prompts."""

    seed: int
    target: float
    scale: float
    trained_kl: float
    dialled_kl: float
    kl_error: float
    trained_reward: float
    dialled_reward: float
    reward_error: float
    trained_gold: float | None
    dialled_gold: float | None

    @property
    def difference(self) -> float:
        """Reward of the dialled run minus that of the trained one."""
        return self.dialled_reward - self.trained_reward

    @property
    def gold_difference(self) -> float | None:
        """The same of gold."""
        if self.trained_gold is None or self.dialled_gold is None:
            return None
        return self.dialled_gold - self.trained_gold


def trained_run(settings: Sequence[str], folder: Path, seed: int, target: float) -> Path:
    """Train a run to a target, or return it where it is finished already."""
    from kleash.config.loader import load
    from kleash.errors import RunDirError
    from kleash.runs.reader import RunReader
    from kleash.training.observer import Silent
    from kleash.training.run import resume, train

    name = f"seed_{seed}_target_{target:g}"
    run = folder / name
    if run.exists():
        with RunReader(run) as reader:
            finished = reader.status == "finished"
        if finished:
            return run
        try:
            return resume(run, observer=Silent())
        except RunDirError as error:
            raise SystemExit(f"{run} can neither be used nor resumed: {error}") from error
    files = [Path(one) for one in settings if "=" not in one]
    overrides = [
        *(one for one in settings if "=" in one),
        f"algorithm.kl.target_nats_per_sequence={target:g}",
        f"training.seed={seed}",
        f"output_dir={folder}",
        f"name={name}",
    ]
    return train(load(files[0] if files else RECIPE, overrides).config, observer=Silent())


def dialled(run: Path) -> Callable[[float], Point]:
    """The newest checkpoint of a run in memory: what is measured at each scale, on the run's held-out prompts."""
    from kleash.models.names import load_tokenizer
    from kleash.training.compare import checkpoint_of
    from kleash.training.dial import DialledRun, check_dial, dial_prompts

    config, folder = checkpoint_of(run, None)
    check_dial(run, config)
    tokenizer = load_tokenizer(config.model.name, config.model.revision)
    prompts = dial_prompts(run, config, tokenizer, None)
    return DialledRun(config, folder, prompts, lambda *_: None, merged=False).point


def matched(at: Callable[[float], Point], grid: Sequence[Point], kl: float) -> Point:
    """The long run where its measured KL is nearest to `kl`: scales are tried until the two agree, or none is left."""
    from kleash.gauge.dial_search import crossing

    points = list(grid)
    for _ in range(MOST_MATCHES):
        scale = min(1.0, crossing([(point.scale, point.kl.value) for point in points], kl))
        if any(_agree(point.kl.value, kl) or point.scale == scale for point in points):
            break
        points.append(at(scale))
    return min(points, key=lambda point: abs(point.kl.value - kl))


def compare(
    settings: Sequence[str], folder: Path, seed: int, long: float, targets: Sequence[float]
) -> list[Comparison]:
    """One seed: the long run, dialled to the measured KL of each short one."""
    at = dialled(trained_run(settings, folder, seed, long))
    grid = [at(scale) for scale in GRID]
    found = []
    for target in targets:
        short = dialled(trained_run(settings, folder, seed, target))(1.0)
        found.append(_comparison(seed, target, short, matched(at, grid, short.kl.value)))
    return found


def table(found: Sequence[Comparison]) -> list[str]:
    """Return the lines: each seed, then each target over all seeds."""
    titles = ("target", "seed", "scale", "KL trained", "dialled", "reward trained", "dialled", "difference")
    lines = ["{:>6} {:>9} {:>6} {:>11} {:>8} {:>15} {:>8} {:>17}".format(*titles)]
    for target in sorted({one.target for one in found}):
        some = [one for one in found if one.target == target]
        lines += [
            f"{target:6g} {one.seed:9d} {one.scale:6.3f} {one.trained_kl:11.2f} {one.dialled_kl:8.2f} "
            f"{one.trained_reward:15.3f} {one.dialled_reward:8.3f} {one.difference:9.3f} ± {one.reward_error:.3f}"
            + ("" if _agree(one.dialled_kl, one.trained_kl) else "  the KLs could not be matched")
            for one in some
        ]
        equal = [one for one in some if _agree(one.dialled_kl, one.trained_kl)]
        gold = [one.gold_difference for one in equal if one.gold_difference is not None]
        lines += [_over_seeds(target, "reward", [one.difference for one in equal])] if equal else []
        lines += [_over_seeds(target, "gold", gold)] if gold else []
    return lines


def _comparison(seed: int, target: float, short: Point, long: Point) -> Comparison:
    assert short.reward is not None, "the runs have a reward"
    assert long.reward is not None, "the runs have a reward"
    return Comparison(
        seed=seed,
        target=target,
        scale=long.scale,
        trained_kl=short.kl.value,
        dialled_kl=long.kl.value,
        kl_error=math.hypot(_error(short.kl), _error(long.kl)),
        trained_reward=short.reward.value,
        dialled_reward=long.reward.value,
        reward_error=math.hypot(_error(short.reward), _error(long.reward)),
        trained_gold=short.gold.value if short.gold else None,
        dialled_gold=long.gold.value if long.gold else None,
    )


def _error(estimate: Estimate) -> float:
    return estimate.half_width / NORMAL_95


def _agree(kl: float, other: float) -> bool:
    return abs(kl - other) <= MATCHED * other


def _over_seeds(target: float, what: str, differences: Sequence[float]) -> str:
    error = stdev(differences) / len(differences) ** 0.5 if len(differences) > 1 else math.nan
    seeds = f"{len(differences)} seeds"
    return f"{target:6g} {seeds:>9} {f'difference in {what}':>51} {fmean(differences):9.3f} ± {error:.3f}"


def _options() -> Any:
    parser = argparse.ArgumentParser(description="A dialled adapter against runs trained to the same KL.")
    parser.add_argument("settings", nargs="*", help="run.toml and key=value settings; default: recipes/sentiment")
    parser.add_argument("--out", type=Path, default=Path("runs/dial"), help="where the runs are kept")
    parser.add_argument("--seeds", type=int, default=3, help="runs of each kind; a difference needs 3 or more")
    parser.add_argument("--long", type=float, default=6.0, help="target of the run that is dialled, nats per sequence")
    parser.add_argument("--targets", type=float, nargs="+", default=[1.5, 3.0], help="targets of the others")
    parser.add_argument("--json", action="store_true")
    return parser.parse_args()


def main() -> None:
    options = _options()
    found = [
        comparison
        for seed in range(options.seeds)
        for comparison in compare(options.settings, options.out, seed, options.long, options.targets)
    ]
    if options.json:
        print(json.dumps([asdict(one) for one in found], indent=1))
        return
    print("\n".join(table(found)))


if __name__ == "__main__":
    main()
