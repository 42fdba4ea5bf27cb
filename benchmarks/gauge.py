"""`kleash gauge` against the script that one writes by hand, on the same prompts: `python benchmarks/gauge.py`.

Three sides measure both directions of the KL between a model and a copy of it with noise in its weights: replies are
sampled from each, and both models score them over the whole vocabulary.

plain    one prompt at a time: Hugging Face `generate`, then two forward passes and the KL of their logits
batched  the same by 16 prompts of like length, with the logits of the replies alone
kleash   `kleash.gauge.measure`, which also computes its intervals; its scale and cache are off

Each side runs in a process of its own, one after another, with the same dtype and threads. Time is that of the whole
measurement after imports, the loading of both models included; memory is the process's peak. Replies are random, so
that the numbers of tokens differ a little: time per token is given too.
"""

from __future__ import annotations

import argparse
import json
import multiprocessing
import os
import resource
import tempfile
import time
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from importlib.resources import files
from pathlib import Path
from statistics import fmean, median, stdev
from typing import Any

BATCH = 16
NOISE = 0.03
"""Of the tuned model's weights, in standard deviations of each weight matrix."""


@dataclass(frozen=True)
class Task:
    """What every side is given."""

    reference: str
    tuned: str
    conversations: tuple[str, ...]
    """What the user says, a string a prompt."""
    max_length: int
    dtype: str
    threads: int
    seed: int


@dataclass(frozen=True)
class Result:
    """What a side took, and what it found. CPU seconds are those of all threads."""

    wall_seconds: float
    cpu_seconds: float
    peak_bytes: int
    tokens: int
    reverse: tuple[float, ...]
    """KL(tuned ‖ reference) of each reply of the tuned model, nats."""
    forward: tuple[float, ...]
    """KL(reference ‖ tuned) of each reply of the reference, nats."""


Measured = tuple[list[float], int]
"""Nats a reply, and how many tokens there were."""


def plain(task: Task) -> tuple[Measured, Measured]:
    return _by_hand(task, _one_at_a_time)


def batched(task: Task) -> tuple[Measured, Measured]:
    return _by_hand(task, _by_batches)


def kleash(task: Task) -> tuple[Measured, Measured]:
    from kleash.gauge.measuring import measure

    prompts = [{"prompt": [{"role": "user", "content": text}]} for text in task.conversations]
    found = measure(
        task.reference,
        task.tuned,
        prompts,
        max_length=task.max_length,
        seed=task.seed,
        dtype=task.dtype,
        scale=False,
        cache=False,
    )
    assert found.reverse is not None
    assert found.forward is not None
    reverse, forward = found.reverse.replies, found.forward.replies
    return (
        ([reply.kl for reply in reverse], sum(len(reply.tokens) for reply in reverse)),
        ([reply.kl for reply in forward], sum(len(reply.tokens) for reply in forward)),
    )


SIDES: dict[str, Callable[[Task], tuple[Measured, Measured]]] = {"plain": plain, "batched": batched, "kleash": kleash}


def _by_hand(task: Task, measure: Callable[..., Measured]) -> tuple[Measured, Measured]:
    """Load both models and measure both directions."""
    import torch
    from transformers import AutoModelForCausalLM, AutoTokenizer

    torch.manual_seed(task.seed)
    device = "cuda" if torch.cuda.is_available() else "cpu"
    tokenizer = AutoTokenizer.from_pretrained(task.reference)
    models = [
        AutoModelForCausalLM.from_pretrained(name, dtype=getattr(torch, task.dtype)).to(device).eval()
        for name in (task.reference, task.tuned)
    ]
    prompts = [
        tokenizer.apply_chat_template(
            [{"role": "user", "content": text}], add_generation_prompt=True, tokenize=True, return_dict=False
        )
        for text in task.conversations
    ]
    reference, tuned = models
    with torch.inference_mode():
        return (
            measure(prompts, tuned, reference, tokenizer, task.max_length),
            measure(prompts, reference, tuned, tokenizer, task.max_length),
        )


def _one_at_a_time(prompts: Sequence[list[int]], writer: Any, other: Any, tokenizer: Any, max_length: int) -> Measured:
    """KL(writer ‖ other) on replies of `writer`."""
    import torch

    nats, tokens = [], 0
    for prompt in prompts:
        ids = torch.tensor([prompt], device=writer.device)
        whole = _generate(writer, tokenizer, ids, torch.ones_like(ids), max_length)
        logits, other_logits = (model(whole).logits[:, len(prompt) - 1 : -1] for model in (writer, other))
        kl = _kl(logits, other_logits)
        nats.append(float(kl.sum()))
        tokens += kl.numel()
    return nats, tokens


def _by_batches(prompts: Sequence[list[int]], writer: Any, other: Any, tokenizer: Any, max_length: int) -> Measured:
    """The same, padded on the left; what stands behind a reply's end is not counted."""
    import torch

    stops = torch.tensor(_stops(writer, tokenizer), device=writer.device)
    order = sorted(range(len(prompts)), key=lambda at: len(prompts[at]))
    nats, tokens = [0.0] * len(prompts), 0
    for start in range(0, len(order), BATCH):
        rows = order[start : start + BATCH]
        width = max(len(prompts[at]) for at in rows)
        padded = [[tokenizer.pad_token_id] * (width - len(prompts[at])) + prompts[at] for at in rows]
        ids = torch.tensor(padded, device=writer.device)
        lengths = torch.tensor([len(prompts[at]) for at in rows], device=writer.device)
        mask = (torch.arange(width, device=ids.device) >= width - lengths[:, None]).long()
        whole = _generate(writer, tokenizer, ids, mask, max_length)
        reply = whole[:, width:]
        ended = torch.isin(reply, stops).cumsum(dim=1)
        counts = (ended - torch.isin(reply, stops).long()) == 0
        mask = torch.cat([mask, counts.long()], dim=1)
        position = (mask.cumsum(dim=1) - 1).clamp(min=0)
        keep = reply.shape[1] + 1
        logits, other_logits = (
            model(whole, attention_mask=mask, position_ids=position, logits_to_keep=keep).logits[:, :-1]
            for model in (writer, other)
        )
        kl = _kl(logits, other_logits) * counts
        for at, value in zip(rows, kl.sum(dim=1).tolist(), strict=True):
            nats[at] = value
        tokens += int(counts.sum())
    return nats, tokens


def _generate(model: Any, tokenizer: Any, ids: Any, mask: Any, max_length: int) -> Any:
    """Prompts with replies sampled from the model's whole distribution."""
    return model.generate(
        ids,
        attention_mask=mask,
        do_sample=True,
        temperature=1.0,
        top_k=0,
        top_p=1.0,
        max_new_tokens=max_length,
        pad_token_id=tokenizer.pad_token_id,
    )


def _kl(logits: Any, other_logits: Any) -> Any:
    logprobs, other_logprobs = (some.float().log_softmax(dim=-1) for some in (logits, other_logits))
    return (logprobs.exp() * (logprobs - other_logprobs)).sum(dim=-1)


def _stops(model: Any, tokenizer: Any) -> list[int]:
    found = model.generation_config.eos_token_id
    if found is None:
        found = tokenizer.eos_token_id
    return found if isinstance(found, list) else [found]


def run_side(name: str, task: Task) -> Result:
    """Run one side in this process, and count what it takes."""
    import torch
    import transformers

    import kleash.gauge.measuring  # noqa: F401 - imports are not timed

    transformers.utils.logging.disable_progress_bar()
    torch.set_num_threads(task.threads)
    began, cpu_began = time.perf_counter(), _cpu_seconds()
    (reverse, reverse_tokens), (forward, forward_tokens) = SIDES[name](task)
    wall, cpu = time.perf_counter() - began, _cpu_seconds() - cpu_began
    return Result(wall, cpu, _peak_bytes(), reverse_tokens + forward_tokens, tuple(reverse), tuple(forward))


def run_all(task: Task, rounds: int) -> dict[str, list[Result]]:
    """Run the sides in turns, each time in a fresh process."""
    os.environ["OMP_NUM_THREADS"] = str(task.threads)
    spawn = multiprocessing.get_context("spawn")
    found: dict[str, list[Result]] = {name: [] for name in SIDES}
    for _ in range(rounds):
        for name in SIDES:
            with spawn.Pool(1) as pool:
                found[name].append(pool.apply(run_side, (name, task)))
    return found


def save_noisy_copy(name: str, folder: Path) -> str:
    """Write `name` with noise in its weight matrices to `folder`: a tuned model that needs no training."""
    import torch
    from transformers import AutoModelForCausalLM, AutoTokenizer

    model = AutoModelForCausalLM.from_pretrained(name, dtype=torch.float32)
    torch.manual_seed(0)
    with torch.no_grad():
        for parameter in model.parameters():
            if parameter.dim() == 2:
                parameter.add_(NOISE * parameter.std() * torch.randn_like(parameter))
    model.save_pretrained(folder)
    AutoTokenizer.from_pretrained(name).save_pretrained(folder)
    return str(folder)


def table(found: dict[str, list[Result]]) -> list[str]:
    """Return the lines of the table; a ratio is the median over rounds of a side by kleash."""
    rows: list[tuple[str, Callable[[Result], float]]] = [
        ("wall, s", lambda one: one.wall_seconds),
        ("CPU, s", lambda one: one.cpu_seconds),
        ("wall, ms a token", lambda one: 1000 * one.wall_seconds / one.tokens),
        ("CPU, ms a token", lambda one: 1000 * one.cpu_seconds / one.tokens),
        ("peak memory, MB", lambda one: one.peak_bytes / 1e6),
        ("reply tokens", lambda one: float(one.tokens)),
    ]
    lines = [
        f"{'median':20}" + "".join(f"{name:>12}" for name in found) + f"{'plain/kleash':>16}{'batched/kleash':>16}"
    ]
    for title, value in rows:
        cells = "".join(f"{median(map(value, side)):12.1f}" for side in found.values())
        ratios = "".join(f"{_ratio(found[name], found['kleash'], value):16.2f}" for name in ("plain", "batched"))
        lines.append(f"{title:20}{cells}{ratios}")
    for title, nats in (("reverse KL, nats", lambda one: one.reverse), ("forward KL, nats", lambda one: one.forward)):
        cells = "".join(f"{_mean(nats(side[0])):>12}" for side in found.values())
        lines.append(f"{title:20}{cells}   per reply ± one standard error, first round: the sides measure the same")
    return lines


def _ratio(theirs: Sequence[Result], ours: Sequence[Result], value: Callable[[Result], float]) -> float:
    return median(value(one) / value(other) for one, other in zip(theirs, ours, strict=True))


def _mean(nats: Sequence[float]) -> str:
    return f"{fmean(nats):.2f}±{stdev(nats) / len(nats) ** 0.5:.2f}"


def _conversations(path: Path | None, limit: int) -> tuple[str, ...]:
    """The prompts as the user's words: those built in, or the lines of a text file."""
    if path is None:
        lines = (files("kleash.gauge") / "prompts.jsonl").read_text(encoding="utf-8").splitlines()
        texts = [json.loads(line)["prompt"] for line in lines if line.strip()]
    else:
        texts = [line for line in path.read_text(encoding="utf-8").splitlines() if line.strip()]
    return tuple(texts[:limit])


def _cpu_seconds() -> float:
    usage = resource.getrusage(resource.RUSAGE_SELF)
    return usage.ru_utime + usage.ru_stime


def _peak_bytes() -> int:
    """Highest resident memory; on a GPU, the highest that tensors took there."""
    import torch

    if torch.cuda.is_available():
        return torch.cuda.max_memory_allocated()
    return 1024 * resource.getrusage(resource.RUSAGE_SELF).ru_maxrss


def main() -> None:
    from kleash.models.names import resolve

    options = _options()
    reference = resolve(options.model)
    load_before = os.getloadavg()[0]
    with tempfile.TemporaryDirectory() as folder:
        task = Task(
            reference=reference,
            tuned=options.tuned or save_noisy_copy(reference, Path(folder)),
            conversations=_conversations(options.prompts, options.limit),
            max_length=options.max_length,
            dtype=options.dtype,
            threads=options.threads,
            seed=0,
        )
        found = run_all(task, options.rounds)
    if options.json:
        raw = {name: [asdict(one) for one in side] for name, side in found.items()}
        print(json.dumps({"settings": asdict(task), "results": raw}, indent=1))
        return
    print(
        f"{len(task.conversations)} prompts, at most {task.max_length} tokens, {task.dtype}, {task.threads} threads, "
        f"{options.rounds} rounds; load average {load_before:.1f} before, {os.getloadavg()[0]:.1f} after"
    )
    print("\n".join(table(found)))


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description="kleash gauge against the script that one writes by hand.")
    parser.add_argument("--model", default="demo", help="hub id or folder; demo is SmolLM2-135M-Instruct")
    parser.add_argument("--tuned", help="hub id or folder; default: the model with noise in its weights")
    parser.add_argument("--prompts", type=Path, help="a text file, one prompt a line; default: those built in")
    parser.add_argument("--limit", type=int, default=100, help="prompts at most")
    parser.add_argument("--max-length", type=int, default=64, help="new tokens at most")
    parser.add_argument("--dtype", choices=("float32", "bfloat16"), default="float32")
    parser.add_argument("--threads", type=int, default=os.cpu_count())
    parser.add_argument("--rounds", type=int, default=1, help="times that each side runs")
    parser.add_argument("--json", action="store_true")
    return parser.parse_args()


if __name__ == "__main__":
    main()
