"""Numerical trouble: whatever an environment returns, no agent of any kind ends up with a number that is not finite.

Each kind of agent is compiled once, and then learns from all that follows, several updates of each.
"""

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from mcclt.config import AgentConfig
from mcclt.envs.api import EnvSpec
from mcclt.method.critics import CRITICS
from mcclt.method.learner import Learner, Rollout, TrainState
from mcclt.method.policy_updates import POLICY_UPDATES
from mcclt.method.weighting import WEIGHTINGS

T, E, OBS, UPDATES = 8, 4, 3, 3
SPEC = EnvSpec("Made-Up", "none", OBS, 1, -np.ones(1), np.ones(1), None, False)  # one action dimension


def ordinary(rng: np.random.Generator) -> Rollout:
    def normal(*shape: int) -> np.ndarray:
        return rng.normal(size=(T, E, *shape)).astype(np.float32)

    ends = rng.random((2, T, E)) < 0.1
    return Rollout(normal(OBS), normal(1), normal(), ends[0], ends[1] & ~ends[0], normal(OBS))


def with_reward(reward: Any) -> Callable[[Rollout], Rollout]:
    return lambda r: replace(r, reward=np.broadcast_to(np.asarray(reward, np.float32), (T, E)))


def scaled(scale: float) -> Callable[[Rollout], Rollout]:
    return lambda r: replace(r, reward=r.reward * np.float32(scale))


def seen(scale: float) -> Callable[[Rollout], Rollout]:
    return lambda r: replace(r, obs=r.obs * np.float32(scale), next_obs=r.next_obs * np.float32(scale))


def ends(terminated: bool, truncated: bool) -> Callable[[Rollout], Rollout]:
    return lambda r: replace(r, terminated=np.full((T, E), terminated), truncated=np.full((T, E), truncated))


TROUBLE: dict[str, Callable[[Rollout], Rollout]] = {
    **{f"rewards of {scale:g}": scaled(scale) for scale in (1e-30, 1e-8, 1e-4, 1e4, 1e8, 1e18, 1e30)},
    "no reward at all": with_reward(0),
    "the same reward always": with_reward(1),
    "the same huge reward always": with_reward(-1e8),
    "one reward of 1e8 among zeros": with_reward(1e8 * (np.arange(T * E).reshape(T, E) == 5)),
    "one observation, always": lambda r: replace(r, obs=np.ones_like(r.obs), next_obs=np.ones_like(r.obs)),
    "observations of 1e-8": seen(1e-8),
    "observations of 1e8": seen(1e8),
    "observations of 1e30": seen(1e30),
    "episodes of one step": ends(True, False),
    "episodes cut after one step": ends(False, True),
    "episodes longer than the rollout": ends(False, False),
    "actions that are never drawn": lambda r: replace(r, action=r.action * np.float32(1e6)),
    "the same action always": lambda r: replace(r, action=np.zeros_like(r.action)),
}


def kinds() -> list[Any]:
    """Every critic with every weighting it can serve, by every policy update; most are slow, to compile."""
    found = []
    for algo in POLICY_UPDATES:
        for critic, made in CRITICS.items():
            for weighting, weights in WEIGHTINGS.items():
                if made.has_error or not weights.needs_error:
                    quick = (algo, critic, weighting) == ("ppo", "normal", "accuracy")
                    slow = [] if quick else [pytest.mark.slow]
                    found.append(pytest.param(algo, critic, weighting, marks=slow))
    return found


@pytest.mark.parametrize(("algo", "critic", "weighting"), kinds())
def test_every_number_stays_finite(algo: str, critic: str, weighting: str) -> None:
    config = AgentConfig(algo, critic, weighting, critic_hidden=(8, 8), policy_hidden=(8,), critic_iterations=10)
    learner = Learner(config, SPEC)
    start = jax.jit(learner.init)(np.uint32(0))
    update = jax.jit(learner.update)
    wide = {  # log-std drifted far either way; policies and critics at the edge of float32
        "": lambda state: state,
        "after log-std drifted to -20": lambda state: drifted(state, -20.0),
        "after log-std drifted to +20": lambda state: drifted(state, 20.0),
    }
    for name, spoil in TROUBLE.items():
        for before, drift in wide.items():
            rng, state = np.random.default_rng(0), drift(start)
            for _ in range(UPDATES):
                state, metrics = update(state, spoil(ordinary(rng)))
                what = f"{name} {before}"
                for path, leaf in jax.tree_util.tree_leaves_with_path(state):
                    assert np.isfinite(leaf).all(), f"{what}: {jax.tree_util.keystr(path)}"
                assert 0 <= metrics["train/skipped"] <= 2 * UPDATES, what
            assert int(state.update) == UPDATES
            if name in ("no reward at all", "episodes longer than the rollout") and not before:
                assert state.skipped == 0, f"nothing is wrong with {name}"


def drifted(state: TrainState, log_std: float) -> TrainState:
    return replace(state, policy=state.policy | {"log_std": jnp.full_like(state.policy["log_std"], log_std)})
