"""A week in miniature: thousands of updates of a small population, with all that a run writes, and nothing piles up."""

import contextlib
import os
import statistics
import time
from pathlib import Path

import pytest

from mcclt.config import AgentConfig, RunConfig
from mcclt.experiments.bench import memory_mib
from mcclt.storage import runs
from mcclt.training.loop import run
from mcclt.training.trainer import Trainer

SETTLED = 200
"""Updates after which everything is compiled, and has happened at least once."""


class Gauge:
    """Looks at this process after every update."""

    def __init__(self) -> None:
        self.memory: list[float] = []
        self.files: list[int] = []
        self.clock: list[float] = []

    def on_update(self, trainer: Trainer, rows: list) -> None:
        del trainer, rows
        self.memory.append(memory_mib())
        self.files.append(len(os.listdir("/proc/self/fd")))
        self.clock.append(time.perf_counter())

    def on_message(self, text: str) -> None:
        raise AssertionError(text)


@pytest.mark.slow
@pytest.mark.skipif(not Path("/proc/self/fd").exists(), reason="reads Linux's /proc")
def test_two_thousand_updates(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    small = {"critic_hidden": (8, 8), "policy_hidden": (8,), "critic_iterations": 2, "policy_iterations": 2}
    groups = {
        "ppo-mcclt": AgentConfig(**small),
        "trpo-ensemble": AgentConfig(algo="trpo", critic="ensemble", **small),
    }
    config = RunConfig(
        "InvertedDoublePendulum-v5",
        seeds=(0, 1),
        steps=32 * 2_000,
        groups=groups,
        n_envs=2,
        steps_per_update=32,
        eval_freq=32 * 20,
        eval_episodes=1,
        checkpoint_freq=32 * 20,
    )
    gauge = Gauge()
    with contextlib.closing(Trainer(config)) as trainer:
        directory = runs.Run.create(tmp_path / "run", trainer.config, tensorboard=True)
        with contextlib.closing(directory):
            run(trainer, [directory, gauge], lambda: directory.save(trainer))
    assert len(gauge.memory) == 2_000
    assert max(gauge.files[SETTLED:]) <= max(gauge.files[:SETTLED]), "files are left open"
    quarters = [gauge.memory[i : i + 450] for i in range(SETTLED, 2_000, 450)]
    middle = [statistics.median(quarter) for quarter in quarters]
    seconds = [(gauge.clock[i + 449] - gauge.clock[i]) / 449 for i in range(SETTLED, 2_000, 450)]
    with capsys.disabled():
        print(
            f"\nMiB {middle}, open files {gauge.files[SETTLED]} to {gauge.files[-1]}, ms per update "
            f"{[round(1000 * s, 1) for s in seconds]}"
        )
    # Metrics of 8,000 rows are in nobody's memory; the allocator's own noise is a few MiB.
    assert middle[-1] - middle[0] < 20, "memory grows"
