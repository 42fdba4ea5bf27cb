"""`linear_kl` against the five bare products that it needs, and the memory it adds: `python benchmarks/linear_kl.py`.

N tokens, H hidden, V vocabulary, a frozen head. Forward makes the logits of policy and reference; backward makes both
again and multiplies the gradient by the head: five products of 2 N H V operations. They are timed alone at the chunk
size that is fastest for them, in turns with `linear_kl` forward and backward. Extra memory is what the highest resident
memory of a full call has above the resident memory after a small one (Linux). Each measurement has its own process.
"""

from __future__ import annotations

import argparse
import json
import multiprocessing
import os
import time
from collections.abc import Callable
from pathlib import Path
from statistics import median

import torch
from torch import Tensor

from kleash.kl.exact import linear_kl

CHUNKS = (64, 128, 256, 512, 1024)


class Problem:
    """Random hidden states, targets and one shared head, of the size of a small model's."""

    def __init__(self, dtype: torch.dtype, sizes: tuple[int, int, int]) -> None:
        """Make the tensors; `sizes` is (N, H, V)."""
        self.num_tokens, hidden, vocabulary = sizes
        generator = torch.Generator().manual_seed(0)

        def normal(*shape: int) -> Tensor:
            return torch.randn(shape, generator=generator, dtype=dtype)

        self.head = normal(vocabulary, hidden).mul_(hidden**-0.5)
        self.reference = normal(self.num_tokens, hidden)
        self.policy = normal(self.num_tokens, hidden).mul_(0.1).add_(self.reference).requires_grad_(True)
        self.targets = torch.randint(vocabulary, (self.num_tokens,), generator=generator)

    def linear_kl(self, num_tokens: int | None = None) -> None:
        """Forward and backward, of what a training step uses: log-probabilities and the reverse KL."""
        part = slice(0, num_tokens)
        measured = linear_kl(self.policy[part], self.head, self.reference[part], self.head, self.targets[part])
        (measured.policy_logprobs.sum() + 0.05 * measured.reverse_kl.sum()).backward()
        self.policy.grad = None

    @torch.no_grad()
    def to_logits(self, chunk: int) -> None:
        """One product hidden @ head.T, into a buffer that is used again."""
        logits = torch.empty(chunk, self.head.shape[0], dtype=self.head.dtype)
        for hidden in self.policy.split(chunk):
            torch.mm(hidden, self.head.T, out=logits[: len(hidden)])

    @torch.no_grad()
    def to_hidden(self, chunk: int) -> None:
        """One product gradient @ head, from a buffer that is used again."""
        of_logits = torch.zeros(chunk, self.head.shape[0], dtype=self.head.dtype)
        grad = torch.empty_like(self.policy)
        for out in grad.split(chunk):
            torch.mm(of_logits[: len(out)], self.head, out=out)


def best_chunk(product: Callable[[int], None]) -> int:
    """Return the chunk size at which a product is fastest."""
    return min(CHUNKS, key=lambda chunk: seconds(lambda: product(chunk))[0])


def seconds(work: Callable[[], None]) -> tuple[float, float]:
    """Return wall seconds, and CPU seconds of all threads."""
    wall, cpu = time.perf_counter(), time.process_time()
    work()
    return time.perf_counter() - wall, time.process_time() - cpu


def compare(problem: Problem, rounds: int) -> dict[str, float]:
    """Return median wall seconds of the five products and of `linear_kl`, and the medians of their ratios."""
    forward, backward = best_chunk(problem.to_logits), best_chunk(problem.to_hidden)

    def products() -> None:
        for _ in range(4):
            problem.to_logits(forward)
        problem.to_hidden(backward)

    problem.linear_kl()
    pairs = [(seconds(products), seconds(problem.linear_kl)) for _ in range(rounds)]
    return {
        "chunk_to_logits": forward,
        "chunk_to_hidden": backward,
        "products_seconds": median(bare for (bare, _), _ in pairs),
        "linear_kl_seconds": median(ours for _, (ours, _) in pairs),
        "wall_ratio": median(ours / bare for (bare, _), (ours, _) in pairs),
        "cpu_ratio": median(ours / bare for (_, bare), (_, ours) in pairs),
    }


def extra_bytes(problem: Problem) -> int:
    """Return what forward and backward add to the resident memory at their peak."""
    problem.linear_kl(1)
    before = _resident("VmRSS")
    Path("/proc/self/clear_refs").write_text("5")  # forget the peak so far: see proc(5)
    problem.linear_kl()
    return _resident("VmHWM") - before


def measure(dtype: str, sizes: tuple[int, int, int], rounds: int) -> dict[str, float]:
    """Return what `compare` and `extra_bytes` find, each in a fresh process."""
    spawn = multiprocessing.get_context("spawn")
    with spawn.Pool(1) as pool:
        extra = pool.apply(_extra_bytes, (dtype, sizes))
    with spawn.Pool(1) as pool:
        return {"extra_bytes": extra, **pool.apply(_compare, (dtype, sizes, rounds))}


def _extra_bytes(dtype: str, sizes: tuple[int, int, int]) -> int:
    return extra_bytes(Problem(getattr(torch, dtype), sizes))


def _compare(dtype: str, sizes: tuple[int, int, int], rounds: int) -> dict[str, float]:
    return compare(Problem(getattr(torch, dtype), sizes), rounds)


def _resident(field: str) -> int:
    """Bytes of a field of /proc/self/status."""
    lines = Path("/proc/self/status").read_text().splitlines()
    return 1024 * next(int(line.split()[1]) for line in lines if line.startswith(field))


def main() -> None:
    options = _options()
    os.environ["OMP_NUM_THREADS"] = str(options.threads)
    os.environ.setdefault("OMP_WAIT_POLICY", "PASSIVE")
    sizes = (options.tokens, options.hidden, options.vocabulary)
    results = {dtype: measure(dtype, sizes, options.rounds) for dtype in options.dtypes}
    if options.json:
        print(json.dumps(results, indent=2))
        return
    print(f"N = {sizes[0]}, H = {sizes[1]}, V = {sizes[2]}; {options.threads} threads; load {os.getloadavg()[0]:.1f}")
    print(f"{'':10}{'linear_kl':>12}{'five products':>16}{'wall ratio':>12}{'CPU ratio':>12}{'extra memory':>15}")
    for name, found in results.items():
        print(
            f"{name:10}{found['linear_kl_seconds']:10.2f} s{found['products_seconds']:14.2f} s"
            f"{found['wall_ratio']:12.2f}{found['cpu_ratio']:12.2f}{found['extra_bytes'] / 1e6:12.0f} MB"
        )


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description="linear_kl against the bare products that it needs.")
    parser.add_argument("--dtypes", nargs="+", choices=("float32", "bfloat16"), default=["float32", "bfloat16"])
    parser.add_argument("--threads", type=int, default=os.cpu_count())
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--tokens", type=int, default=4096)
    parser.add_argument("--hidden", type=int, default=576)
    parser.add_argument("--vocabulary", type=int, default=49152)
    parser.add_argument("--json", action="store_true")
    return parser.parse_args()


if __name__ == "__main__":
    main()
