"""What `mcclt bench` measures, in small; `--engine warp` on Warp's CPU device."""

import dataclasses
import functools
import io
import json
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pytest
from rich.console import Console

from mcclt.cli import bench as command
from mcclt.config import AgentConfig, RunConfig
from mcclt.console import WIDE
from mcclt.envs.api import EnvSpec, available_cores
from mcclt.errors import ConfigError
from mcclt.experiments import bench
from mcclt.method.learner import Learner
from mcclt.training.population import on_cpu
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
    found = bench.time_on_device(PENDULUM, agents=7, updates=2, width=8, preset=None)
    assert found["agents"] == 6 and found["worlds"] == 12  # plain, MC-CLT and ensemble, PPO and TRPO
    seconds = found["seconds_per_update"]
    assert seconds.keys() == {"physics", "collect", "improve", "fit", "evaluate", "together"}
    assert all(value > 0 for value in seconds.values())
    # 12 worlds x 4 steps in an update.
    assert found["steps_per_second"] == pytest.approx(48 / seconds["together"])
    assert found["collect_over_physics"] == pytest.approx(seconds["physics"] / seconds["collect"])
    out = io.StringIO()
    command.show_device(Console(file=out, width=WIDE), found)
    assert "6 agents, 12 worlds of InvertedDoublePendulum-v5" in out.getvalue() and "together" in out.getvalue()


def test_a_preset_is_timed_with_its_own_settings() -> None:
    run, agent = bench.configured("Hopper-v4", "trpo", 8, "modern")
    assert run["steps_per_update"] == 2048 and (agent["minibatch_size"], agent["critic_hidden"]) == (128, [64, 64])
    assert bench.configured("Hopper-v4", "trpo", 8, None)[1] == {"critic_hidden": (8, 8)}
    with pytest.raises(ConfigError, match="--width has no effect with --preset modern"):
        command.Bench(preset="modern", width=8, given={"preset": "modern", "width": 8}).run()


def test_necessary_operations_by_hand() -> None:
    """10 states of 3 numbers, critic of 4 and policy of 5 neurons, 2 actions; no gradient below the first layers.

    Critic: 2·10·(3·4 + 4·1) = 320 forward, 3·320 - 2·10·3·4 = 720 with its gradient, twice; and 320 for either values.
    Policy: 2·10·(3·5 + 5·2) = 500 and 3·500 - 2·10·3·5 = 1,200; and 500 twice besides.
    """
    spec = EnvSpec("T", "native", 3, 2, np.zeros(2), np.ones(2), 1000, True)
    agent = AgentConfig(critic="plain", critic_hidden=(4,), policy_hidden=(5,), critic_iterations=2, cg_max_steps=7)
    critic = 2 * 720 + 2 * 320
    assert bench.necessary_flops(Learner(agent, spec), 10, 3) == critic + 3 * 1200 + 2 * 500
    halves = dataclasses.replace(agent, minibatch_size=5)  # critic_iterations are passes, the policy's are steps
    assert bench.necessary_flops(Learner(halves, spec), 10, 6) == critic + 6 * 600 + 2 * 500
    trpo = dataclasses.replace(agent, algo="trpo")
    assert bench.necessary_flops(Learner(trpo, spec), 10, 1) == critic + 1200 + 7 * 3 * 500 + 2 * 500
    two = dataclasses.replace(agent, critic="ensemble", members=2)  # share the batch, but both are asked for values
    assert bench.necessary_flops(Learner(two, spec), 10, 3) == 2 * 720 + 4 * 320 + 3 * 1200 + 2 * 500


@pytest.mark.skipif(not on_cpu(), reason="processes are for cores")
@pytest.mark.parametrize("population", [0, pytest.param(2, marks=pytest.mark.slow)])
def test_the_whole_bench(
    population: int, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture, tmp_path: Path
) -> None:
    monkeypatch.setattr(bench, "RunConfig", functools.partial(RunConfig, steps_per_update=16, n_envs=2))
    few = {"policy_hidden": (4,), "policy_iterations": 2, "critic_iterations": 2}
    monkeypatch.setattr(bench, "AgentConfig", functools.partial(AgentConfig, **few))
    monkeypatch.setattr(bench, "GEMM", 64)
    monkeypatch.setattr(bench, "TIMED", {"mcclt": {"critic": "plain"}})  # which compiles sooner
    command.Bench(task=PENDULUM, updates=1, width=8, population=population, out=tmp_path / "bench.json").run()
    found = json.loads((tmp_path / "bench.json").read_text())
    names = [row["variant"] for row in found["variants"]]
    assert names == list(bench.TIMED)
    for row in found["variants"]:
        assert row["whole_over_floor"] == pytest.approx(row["seconds"]["whole"] / row["floor_seconds"])
    out = capsys.readouterr().out
    assert "{" not in out, "figures are for people"
    if population:
        processes = found["processes"]
        assert found["population"]["seeds"] == 2 and processes["count"] == min(2, available_cores())
        assert f"in {processes['count']} processes that share the cores" in out
        for row in found["variants"]:
            own = processes["seconds_all"][row["variant"]]
            assert own > 0
            assert processes["whole_over_floor"][row["variant"]] == pytest.approx(own / (2 * row["floor_seconds"]))
    monkeypatch.setattr(bench, "measure", lambda *_: found)
    command.Bench(task=PENDULUM, json=True).run()
    assert json.loads(capsys.readouterr().out) == found
