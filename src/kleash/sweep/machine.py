"""How many points run at once, and what part of the machine each has.

A GPU holds one point. On a CPU a point has the threads of OMP_NUM_THREADS, or where that is not set, its share of the
cores. Memory is not divided: each point loads its own model.
"""

from __future__ import annotations

import os
import subprocess
from dataclasses import dataclass

NVIDIA_SMI = ("nvidia-smi", "--query-gpu=uuid", "--format=csv,noheader")


@dataclass(frozen=True)
class Share:
    """What the points of a sweep have of the machine.

    Attributes:
        jobs: points at once.
        cores: of this machine that this process may use.
        threads: of each point's process.
        gpus: as CUDA_VISIBLE_DEVICES names them; empty without one.
    """

    jobs: int
    cores: int
    threads: int
    gpus: tuple[str, ...]

    def environment(self, place: int) -> dict[str, str]:
        """Return the environment of the process at a place, from 0 up to `jobs`."""
        given = {"OMP_NUM_THREADS": str(self.threads)}
        if self.gpus:
            given["CUDA_VISIBLE_DEVICES"] = self.gpus[place % len(self.gpus)]
        return dict(os.environ) | given

    @property
    def sentence(self) -> str:
        """In words, for the user."""
        where = f"{len(self.gpus)} GPU{'s' if len(self.gpus) > 1 else ''}" if self.gpus else f"{self.cores} cores"
        threads = f"{self.threads} thread{'s' if self.threads > 1 else ''} each"
        if self.jobs == 1:
            return f"1 at a time on {where}, {threads}"
        return (
            f"{self.jobs} at a time on {where}, {threads}; each loads its own model, so if memory runs short: --jobs 1"
        )


def share_machine(points: int, jobs: int | None) -> Share:
    """Divide the machine among so many points; `jobs` is how many run at once, or None for as many as it has room for.

    More than one job a GPU, or more jobs than cores, are only had by asking for them.
    """
    gpus = find_gpus()
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    wished = os.environ.get("OMP_NUM_THREADS", "")
    threads = int(wished) if wished.isdecimal() and int(wished) > 0 else None
    room = len(gpus) or max(1, cores // (threads or 1))
    at_once = min(points, room if jobs is None else jobs)
    return Share(at_once, cores, threads or max(1, cores // at_once), gpus)


def find_gpus() -> tuple[str, ...]:
    """Return the GPUs that this process may use, without torch: CUDA_VISIBLE_DEVICES, else what NVIDIA lists."""
    visible = os.environ.get("CUDA_VISIBLE_DEVICES")
    if visible is not None:
        names = [name.strip() for name in visible.split(",")]
        return tuple(name for name in names if name and name != "-1")
    try:
        listed = subprocess.run(NVIDIA_SMI, capture_output=True, text=True, check=False, timeout=30)
    except (OSError, subprocess.TimeoutExpired):
        return ()
    return tuple(listed.stdout.split()) if listed.returncode == 0 else ()
