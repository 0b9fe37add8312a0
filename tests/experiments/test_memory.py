import numpy as np
import pytest

from mcclt.cli.reproduce import Reproduce
from mcclt.config import AgentConfig, RunConfig
from mcclt.envs.api import EnvSpec
from mcclt.experiments import memory
from mcclt.experiments.setups import make_setup
from mcclt.method.critics import CRITICS

CONFIG = RunConfig("Hopper-v5")


def spec(obs: int, action: int) -> EnvSpec:
    return EnvSpec("T", "warp", obs, action, np.zeros(action), np.ones(action), 1000, True)


def test_bytes_of_an_agent(own_critic):
    # Rollout: 4,000 x (2·11 + 3 + 3) = 112,000 numbers, twice.
    # Kept of one network: observations 4,000 x 11, both layers before and after their ReLU 4 x 4,000 x 128, the weights
    # behind them 128 x 128 + 128, and 4,000 errors: 2,112,512 numbers. 4 bytes x (224,000 + 2,112,512) = 9,346,048.
    assert memory.agent_bytes(CONFIG, AgentConfig(critic="plain"), spec(11, 3)) == 9_346_048
    # Members share the batch: five have five times the weights, and no more besides.
    assert memory.agent_bytes(CONFIG, AgentConfig(critic="ensemble"), spec(11, 3)) == 9_346_048 + 4 * 4 * 16_512
    # About the same of one network, whatever it puts out; also of one that the library does not know.
    for agent in (AgentConfig(critic="normal", trunk="shared"), AgentConfig(critic="gaussian")):
        assert memory.agent_bytes(CONFIG, agent, spec(11, 3)) == pytest.approx(9_346_048, rel=0.05)
    # 200 bars against 200 atoms: their distances and their losses, 4,000 x 200 x 200 numbers each.
    shifted = AgentConfig(critic="quantile", n_quantiles=200)
    bellman = AgentConfig(critic="quantile", n_quantiles=200, qr_target="bellman")
    one, other = (memory.agent_bytes(CONFIG, agent, spec(11, 3)) for agent in (shifted, bellman))
    assert other - one == 4 * 2 * 4_000 * (40_000 - 200)


@pytest.mark.parametrize("critic", CRITICS)
def test_every_critic_can_be_asked(critic):
    """None has less to keep than two layers of 128 neurons on 4,000 states, after their activation."""
    assert memory.agent_bytes(CONFIG, AgentConfig(critic=critic), spec(11, 3)) > 4 * (224_000 + 2 * 4_000 * 128)


@pytest.mark.parametrize(("obs", "action", "measured"), [(11, 3, 1.90), (17, 6, 2.13), (105, 8, 3.64)])
def test_agrees_with_what_was_measured(obs, action, measured):
    """300 agents hold their rollouts, 100 of MC-CLT learn at a time (peak GB of JAX on an H200)."""
    one = memory.agent_bytes(CONFIG, AgentConfig(critic="normal"), spec(obs, action))
    rollout = 4 * 2 * 4_000 * (2 * obs + action + 3)
    assert measured < (300 * rollout + 100 * (one - rollout)) / 1e9 < 1.15 * measured


def test_how_many_fit():
    assert memory.agents_that_fit(17_280_000, 8 * 10**9) == 231  # 4e9 / 17.28e6 = 231.5
    assert memory.agents_that_fit(10**12, 8 * 10**9) == 1


@pytest.mark.parametrize(
    ("machinery", "share"),
    [(Reproduce(), 1), (Reproduce(workers=3), 1 / 3), (Reproduce(backend="ray", gpus=0.25), 1 / 4),
     (Reproduce(backend="ray", gpus=2), 1)],
)  # fmt: skip
def test_processes_share_a_gpu(
    monkeypatch: pytest.MonkeyPatch, own_critic: None, machinery: Reproduce, share: float
) -> None:
    """Half of each one's share of 6 GB, by the 18.09 MB of an agent of MC-CLT on Hopper: 165 alone, 55 of three."""
    monkeypatch.setattr(memory, "gpu_bytes", lambda: 6 * 10**9)
    cells = [(make_setup("Hopper-v5", "ppo", variant, "fixed"), 0) for variant in ("gaussian", "mcclt")]
    found = machinery.gpu_population(cells, machinery.workers or 1)
    assert found == int(share * 6e9 / 2 // 18_087_696)
