"""The same command gives the same bits on the same machine, whatever the threads and, with NPROC, the cores.

XLA divides its sums by the number of cores it counts when it compiles, and sums in another order differ in the last
digits: the number of cores is part of the command. `NPROC` says it, on any machine. See `docs/reliability.md`.
"""

import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from mcclt.envs.api import available_cores
from mcclt.storage import checkpoint, runs

PENDULUM = "InvertedDoublePendulum-v5"


def train(path: Path, cores: set[int], threads: int, nproc: int, *flags: str) -> dict[str, Any]:
    """Every array of the last checkpoint of a training in a process that may use only these cores."""
    shape = ["--steps", "12000", "--eval-freq", "0", "--final-episodes", "0", "--threads", str(threads), "--quiet"]
    own = os.sched_getaffinity(0)
    os.sched_setaffinity(0, cores)  # a child inherits it
    try:
        done = subprocess.run(
            [sys.executable, "-m", "mcclt", "train", *flags, *shape, "--out", str(path)],
            env=os.environ | {"NPROC": str(nproc)},
            capture_output=True,
            text=True,
            timeout=600,
        )
    finally:
        os.sched_setaffinity(0, own)
    assert done.returncode == 0, done.stderr
    return {k: v.tobytes() for k, v in checkpoint.load(runs.checkpoints(path)[-1])[0].items()}


@pytest.mark.slow
@pytest.mark.skipif(available_cores() < 2, reason="one core")
@pytest.mark.parametrize(
    "flags",
    [
        [PENDULUM],
        [PENDULUM, "--algo", "trpo", "--seeds", "0..2"],
        ["Hopper-v5", "--variants", "plain,mcclt,ensemble", "--seeds", "0,1"],
    ],
    ids=["one agent", "trpo", "a population"],
)
def test_cores_and_threads_do_not_matter(tmp_path: Path, flags: list[str]) -> None:
    """At the paper's sizes: 4,000 steps per update, networks of width 128."""
    every = sorted(os.sched_getaffinity(0))
    reference = train(tmp_path / "reference", set(every), 2, 2, *flags)
    assert train(tmp_path / "again", set(every), 2, 2, *flags) == reference
    assert train(tmp_path / "one thread", set(every), 1, 2, *flags) == reference
    assert train(tmp_path / "one core", {every[0]}, 4, 2, *flags) == reference
