import numpy as np
import pytest
from rich.console import Console

from mcclt.cli.machinery import Machinery
from mcclt.config import AgentConfig, RunConfig
from mcclt.envs.api import EnvSpec
from mcclt.experiments import memory
from mcclt.experiments.setups import make_setup

CONFIG = RunConfig("Hopper-v5")


def spec(obs: int, action: int) -> EnvSpec:
    return EnvSpec("T", "warp", obs, action, np.zeros(action), np.ones(action), 1000, True)


def test_bytes_of_an_agent():
    # Rollout: 4,000 x (2·11 + 3 + 3) = 112,000 numbers, twice.
    # Activations: 2 x 4,000 x 2 nets x (128 + 128) = 4,096,000.
    # 4 bytes x (224,000 + 4,096,000) = 17,280,000.
    assert memory.agent_bytes(CONFIG, AgentConfig(critic="normal"), spec(11, 3)) == 17_280_000
    # One network: 4 x (224,000 + 2,048,000).
    for agent in (AgentConfig(critic="plain"), AgentConfig(critic="normal", trunk="shared")):
        assert memory.agent_bytes(CONFIG, agent, spec(11, 3)) == 9_088_000
    # 200 bars against 200 atoms: 4,000 x 200 x 200 numbers more.
    bellman = AgentConfig(critic="quantile", n_quantiles=200, qr_target="bellman")
    assert memory.agent_bytes(CONFIG, bellman, spec(11, 3)) == 9_088_000 + 4 * 4_000 * 40_000


@pytest.mark.parametrize(("obs", "action", "measured"), [(11, 3, 1.90), (17, 6, 2.13), (105, 8, 3.64)])
def test_agrees_with_what_was_measured(obs, action, measured):
    """300 agents hold their rollouts, 100 of MC-CLT learn at a time (peak GB of JAX on an H200)."""
    one = memory.agent_bytes(CONFIG, AgentConfig(critic="normal"), spec(obs, action))
    rollout = 4 * 2 * 4_000 * (2 * obs + action + 3)
    assert (300 * rollout + 100 * (one - rollout)) / 1e9 == pytest.approx(measured, rel=0.1)


def test_how_many_fit():
    assert memory.agents_that_fit(17_280_000, 8 * 10**9) == 231  # 4e9 / 17.28e6 = 231.5
    assert memory.agents_that_fit(10**12, 8 * 10**9) == 1


@pytest.mark.parametrize(
    ("machinery", "share"),
    [(Machinery(), 1), (Machinery(workers=3), 1 / 3), (Machinery(backend="ray", gpus=0.25), 1 / 4),
     (Machinery(backend="ray", gpus=2), 1)],
)  # fmt: skip
def test_processes_share_a_gpu(monkeypatch: pytest.MonkeyPatch, machinery: Machinery, share: float) -> None:
    """Half of each one's share of 6 GB, by the 17.28 MB of an agent of MC-CLT on Hopper: 173 alone, 57 of three."""
    monkeypatch.setattr(memory, "gpu_bytes", lambda: 6 * 10**9)
    cells = [(make_setup("Hopper-v5", "ppo", "mcclt", "fixed"), 0)]
    found = machinery.gpu_population(cells, Console(quiet=True))
    assert found == int(share * 6e9 / 2 // 17_280_000)
