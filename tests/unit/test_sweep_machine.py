"""How the machine is divided among points."""

import pytest

from kleash.sweep import machine
from kleash.sweep.machine import Share, find_gpus, share_machine


@pytest.fixture
def eight_cores(monkeypatch):
    monkeypatch.setattr(machine.os, "sched_getaffinity", lambda pid: set(range(8)), raising=False)
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "")
    monkeypatch.delenv("OMP_NUM_THREADS", raising=False)


@pytest.mark.parametrize(
    ("points", "jobs", "threads", "divided"),
    [
        (20, None, None, (8, 1)),
        (3, None, None, (3, 2)),
        (20, None, "4", (2, 4)),
        (20, None, "16", (1, 16)),
        (20, 4, None, (4, 2)),
        (20, 12, None, (12, 1)),
        (2, 12, "3", (2, 3)),
    ],
)
def test_cores_are_divided(eight_cores, monkeypatch, points, jobs, threads, divided):
    if threads is not None:
        monkeypatch.setenv("OMP_NUM_THREADS", threads)
    share = share_machine(points, jobs)
    assert (share.jobs, share.threads) == divided
    assert share.environment(0)["OMP_NUM_THREADS"] == str(divided[1])


def test_a_gpu_has_one_point_unless_more_are_asked_for(eight_cores, monkeypatch):
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "3,5")
    share = share_machine(20, None)
    assert (share.jobs, share.threads, share.gpus) == (2, 4, ("3", "5"))
    assert [share.environment(place)["CUDA_VISIBLE_DEVICES"] for place in range(2)] == ["3", "5"]
    assert [share_machine(20, 4).environment(place)["CUDA_VISIBLE_DEVICES"] for place in range(4)] == list("3535")


def test_without_a_gpu_the_variable_is_left_alone(eight_cores):
    assert share_machine(2, None).environment(0)["CUDA_VISIBLE_DEVICES"] == ""


@pytest.mark.parametrize(("visible", "found"), [("", ()), ("-1", ()), ("0, GPU-1", ("0", "GPU-1"))])
def test_visible_gpus(monkeypatch, visible, found):
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", visible)
    assert find_gpus() == found


def test_gpus_are_asked_of_nvidia(monkeypatch, tmp_path):
    tool = tmp_path / "nvidia-smi"
    tool.write_text("#!/bin/sh\necho GPU-a\necho GPU-b\n")
    tool.chmod(0o755)
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)
    monkeypatch.setenv("PATH", str(tmp_path))
    assert find_gpus() == ("GPU-a", "GPU-b")
    tool.write_text("#!/bin/sh\necho no driver\nexit 9\n")
    assert find_gpus() == ()
    tool.unlink()
    assert find_gpus() == ()


def test_it_is_said_in_words():
    assert Share(1, 2, 2, ()).sentence == "1 at a time on 2 cores, 2 threads each"
    assert Share(2, 8, 4, ("0", "1")).sentence.startswith("2 at a time on 2 GPUs, 4 threads each; each loads its own")
    assert "if memory runs short: --jobs 1" in Share(2, 8, 4, ("0", "1")).sentence
