"""A run directory of any size, made in seconds: what a page, a query or a table must stand up to.

Its numbers tell a story that charts can show: reward and KL rise, one KL spike, two alarms, a checkpoint every tenth
of the run. They depend on the size and the seed alone.
"""

from __future__ import annotations

import sqlite3
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import numpy as np

from kleash.runs import rows
from kleash.runs.encoding import dump, dump_numbers
from kleash.runs.records import Cause, Checkpoint, Event, Split
from kleash.runs.schema import DATABASE
from kleash.runs.writer import RunWriter

KEYS = (
    "reward/proxy",
    "reward/gold",
    "reward/group_sd",
    "kl/exact_per_sequence",
    "kl/exact_per_token",
    "kl/k1_per_sequence",
    "kl/sequence_p90",
    "kl/token_p99",
    "kl/class_stop",
    "kl/class_special",
    "kl/class_whitespace",
    "kl/class_digit",
    "kl/class_punctuation",
    "kl/class_word",
    "entropy/per_token",
    "length/mean",
    "length/stop_rate",
    "text/distinct_2",
    "text/repeated_4gram",
    "control/beta",
    "control/target",
    "optim/grad_norm",
    "sampler/mismatch_mean",
    "ratio/max",
    "time/total",
)
"""25 metrics of an on-policy run."""

WITH_ERROR = ("reward/proxy", "reward/gold", "kl/exact_per_sequence")

SETTINGS = {
    "model": {"name": "HuggingFaceTB/SmolLM2-135M"},
    "algorithm": {"type": "rloo", "num_generations": 8, "kl": {"target_nats_per_sequence": 6.0}},
    "monitor": {"ignore": []},
}

SENTENCE = "the film was a slow warm story about rain and two brothers who never quite said what they meant"
WORDS = SENTENCE.split()
PROMPTS = 40
INSERT_METRIC = "INSERT INTO metrics (step, key, value, stderr) VALUES (?, ?, ?, ?)"
INSERT_SAMPLE = f"INSERT INTO samples ({rows.SAMPLE_COLUMNS}, num_tokens) VALUES ({', '.join('?' * 13)})"


def make_big_run(path: Path, *, steps: int = 20_000, samples: int = 50_000, tokens: int = 64, seed: int = 0) -> Path:
    """Write a finished run and return its folder.

    Args:
        path: the folder, which must not exist.
        steps: training steps, each with all of `KEYS`.
        samples: completions: 40 before, 40 after, and 40 at each of as many evaluations between as it takes.
        tokens: of a completion, of some four letters each.
        seed: of the numbers and words.
    """
    noise = np.random.default_rng(seed)
    with RunWriter.create(path, SETTINGS | {"training": {"steps": steps}}, {"versions": {"kleash": "0.1.0"}}) as writer:
        for event in _events(steps):
            writer.write_event(event)
        for step in range(0, steps, max(1, steps // 10)):
            writer.write_checkpoint(Checkpoint(step, path / "checkpoints" / f"step_{step}"))
        writer.set_status("finished")
    connection = sqlite3.connect(path / DATABASE)
    with connection:
        connection.executemany("INSERT INTO steps (step, notes) VALUES (?, '{}')", ((step,) for step in range(steps)))
        for key in KEYS:
            connection.executemany(INSERT_METRIC, _metric(key, steps, noise))
        connection.executemany(INSERT_SAMPLE, _samples(steps, samples, tokens, noise))
    connection.close()
    return path


def _metric(key: str, steps: int, noise: np.random.Generator) -> Iterator[tuple[int, str, float, float | None]]:
    """Yield the rows of a metric: a rise that levels off, noise, and a spike of the KL at a third of the run."""
    values = 6 * (1 - np.exp(-np.arange(steps) / (steps / 5))) * np.exp(0.1 * noise.standard_normal(steps))
    if key == "kl/exact_per_sequence":
        values[steps // 3] = 30
    stderr = 0.1 if key in WITH_ERROR else None
    return ((step, key, value, stderr) for step, value in enumerate(values.tolist()))


def _samples(steps: int, samples: int, tokens: int, noise: np.random.Generator) -> Iterator[tuple[object, ...]]:
    rounds = max(2, -(-samples // PROMPTS))
    drawn: Counter[tuple[str, int, int]] = Counter()
    for number in range(samples):
        turn, prompt = divmod(number, PROMPTS)
        split: Split = "before" if turn == 0 else "after" if turn == rounds - 1 else "eval"
        step = round(turn * steps / (rounds - 1))
        place = (split, step, prompt)
        drawn[place] += 1
        words = [f" {WORDS[index]}" for index in noise.integers(0, len(WORDS), tokens).tolist()]
        token_kl = (noise.random(tokens) * 12 / tokens).tolist()
        reward = float(noise.standard_normal())
        yield (
            step, split, prompt, drawn[place] - 1, f"Review {prompt} of the film:", "".join(words), dump(words),
            dump_numbers(token_kl), reward, reward / 2, sum(token_kl), 1, tokens,
        )  # fmt: skip


def _events(steps: int) -> list[Event]:
    causes = (Cause("The learning rate is too high.", "Halve optim.learning_rate and look whether the ramp is gone."),)
    spike, ramp = steps // 3, steps * 3 // 4
    return [
        Event(
            spike, "warning", "kl/spike", "KL rose to 30 nats per sequence within a step.",
            {"kl": 30.0}, spike, causes, "Look at the samples of this step.",
        ),
        Event(spike + 20, "info", "kl/spike", "over since the step after it.", began=spike, ends=True),
        Event(
            ramp, "critical", "hacking/signature", "Reward and KL rise while diversity falls.",
            {"reward": 6.0, "kl": 6.0}, ramp - steps // 20, causes, "Go back to the last trusted checkpoint.",
        ),
    ]  # fmt: skip
