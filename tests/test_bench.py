"""What `mcclt bench --engine warp` measures, on Warp's CPU device and in small; tests/test_cli.py has the rest."""

import functools
import io
from dataclasses import dataclass

import pytest
from rich.console import Console

from mcclt import bench
from mcclt.cli import Bench
from mcclt.config import AgentConfig, RunConfig
from mcclt.console import WIDE
from probes import PENDULUM, TINY


@dataclass(frozen=True)
class Small(RunConfig):
    n_envs: int = 2
    steps_per_update: int = 8
    eval_freq: int = 16
    eval_episodes: int = 1
    max_episode_steps: int | None = 5


@pytest.mark.slow
def test_a_population_on_the_device(monkeypatch: pytest.MonkeyPatch) -> None:
    tiny = {name: value for name, value in TINY.items() if name != "critic_hidden"}
    monkeypatch.setattr(bench, "RunConfig", Small)
    monkeypatch.setattr(bench, "AgentConfig", functools.partial(AgentConfig, **tiny))
    command = Bench(task=PENDULUM, engine="warp", agents=7, updates=2, width=8)
    found = bench.time_on_device(command, Console(file=io.StringIO()))
    assert found["agents"] == 6 and found["worlds"] == 12  # plain, MC-CLT and ensemble, PPO and TRPO
    seconds = found["seconds_per_update"]
    assert seconds.keys() == {"physics", "collect", "improve", "fit", "evaluate", "together"}
    assert all(value > 0 for value in seconds.values())
    # 12 worlds x 4 steps in an update.
    assert found["steps_per_second"] == pytest.approx(48 / seconds["together"])
    assert found["collect_over_physics"] == pytest.approx(seconds["physics"] / seconds["collect"])
    out = io.StringIO()
    bench.show_device(Console(file=out, width=WIDE), found)
    assert "6 agents, 12 worlds of InvertedDoublePendulum-v5" in out.getvalue() and "together" in out.getvalue()
