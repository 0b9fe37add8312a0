"""Critics fitted in pieces, later, come to the same as critics fitted at once."""

import dataclasses
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import alone
from mcclt.envs.api import EnvSpec
from mcclt.method.critics import CRITICS
from mcclt.method.learner import Learner, Rollout, TrainState
from mcclt.training.fitting import Fit, Learnt
from mcclt.training.population import Improve
from probes import agent
from trees import assert_close, assert_same, one_of

SPEC = EnvSpec("toy", "none", 3, 2, np.full(2, -1, np.float32), np.full(2, 1, np.float32), 100, False)
AGENTS, T, E = 2, 8, 2
EVERY_CRITIC = pytest.mark.parametrize(
    "critic", [pytest.param(name, marks=pytest.mark.slow if name != "plain" else ()) for name in CRITICS]
)


def learner_of(**settings: Any) -> Learner:
    return Learner(agent(**({"critic_iterations": 6} | settings)), SPEC, E, T * E)


def rollouts() -> Rollout:
    rng = np.random.default_rng(0)

    def draw(*shape: int) -> np.ndarray:
        return rng.normal(size=(AGENTS, T, E, *shape)).astype(np.float32)

    none = np.zeros((AGENTS, T, E), bool)
    return Rollout(draw(3), draw(2), draw(), none, none, draw(3))


def improved(learner: Learner) -> tuple[TrainState, Any, TrainState]:
    """Agents between the halves of an update, their batches, and the same update in one go."""
    agents = alone.init(learner, AGENTS)
    state, batches, _ = Improve({"a": learner})({"a": agents}, {"a": rollouts()})["a"]
    return state, batches, alone.updates(learner, agents, rollouts())[0]


@EVERY_CRITIC
def test_pieces_come_to_the_same_as_the_whole(critic: str) -> None:
    learner = learner_of(critic=critic)
    state, batches, whole = improved(learner)
    fit = Fit.of(learner, ("a",), 3)
    learnt = Learnt({"a": state}, {"a": batches}, [fit])
    assert_close(learnt.policies[0], whole.policy, rtol=1e-5)  # at once
    learnt.go_on()
    moved = [
        np.abs(x - y).max()
        for x, y in zip(jax.tree.leaves(learnt.under_way[0].now.critic), jax.tree.leaves(state.critic), strict=True)
    ]
    assert max(moved) > 0 and learnt.under_way[0].left == 2
    assert_close(learnt.states["a"], whole, rtol=1e-5)
    learnt.go_on()  # nothing is left to do
    assert_close(learnt.states["a"], whole, rtol=1e-5)


@pytest.mark.parametrize(
    ("iterations", "most", "pieces"), [(80, 1, 1), (80, 20, 20), (80, 83, 80), (80, 41, 40), (7, 3, 1)]
)
def test_pieces_are_of_equal_size(iterations: int, most: int, pieces: int) -> None:
    assert Fit.of(learner_of(critic_iterations=iterations), ("a",), most).pieces == pieces


def test_groups_are_fitted_in_any_order() -> None:
    learner = learner_of(critic="plain")
    state, batches, whole = improved(learner)
    fits = [Fit.of(learner, ("a",), 2), Fit.of(learner, ("b",), 3)]
    learnt = Learnt({"a": state, "b": state}, {"a": batches, "b": batches}, fits)
    learnt.go_on(learnt.under_way[1])
    learnt.go_on()
    assert [work.left for work in learnt.under_way] == [1, 2]
    assert_close(learnt.states, {"a": whole, "b": whole}, rtol=1e-5)


@EVERY_CRITIC
def test_a_critic_that_would_not_be_finite_is_dropped_and_counted(critic: str) -> None:
    learner = learner_of(critic=critic)
    state, batches, _ = improved(learner)
    returns = [part.returns.at[1].set(jnp.inf) for part in batches]  # of the second agent
    advantage = [part.advantage.at[1].set(jnp.inf) for part in batches]
    spoilt = tuple(p._replace(returns=r, advantage=a) for p, r, a in zip(batches, returns, advantage, strict=True))
    got = Learnt({"a": state}, {"a": spoilt}, [Fit.of(learner, ("a",), 3)]).states["a"]
    assert got.skipped.tolist() == [0, 1]
    old, new = ((one.critic, one.critic_opt) for one in (state, got))
    assert_same(one_of(old, 1), one_of(new, 1))
    assert all(np.isfinite(leaf).all() for leaf in jax.tree.leaves(new))


@pytest.mark.parametrize("algo", ["ppo", pytest.param("trpo", marks=pytest.mark.slow)])
def test_a_policy_that_would_not_be_finite_is_dropped_and_counted(algo: str) -> None:
    learner = learner_of(algo=algo)
    agents = alone.init(learner, AGENTS)
    good = rollouts()
    reward = good.reward.copy()
    reward[1] = 1e38  # advantages overflow
    spoilt = dataclasses.replace(good, reward=reward)
    state, _, metrics = Improve({"a": learner})({"a": agents}, {"a": spoilt})["a"]
    assert all(np.isfinite(leaf).all() for leaf in jax.tree.leaves(state.policy))
    assert metrics["train/skipped"].tolist() == [0, 1] if algo == "ppo" else metrics["train/skipped"][0] == 0
    assert_same(one_of(agents.policy, 1), one_of(state.policy, 1))
