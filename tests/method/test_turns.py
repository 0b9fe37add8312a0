"""Advantages recomputed before every pass: policy and critic learn by turns."""

import dataclasses
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from test_learner import E, learner_of, rollout_of

import alone
from mcclt.config import AgentConfig
from mcclt.errors import ConfigError
from mcclt.method import optimisers
from mcclt.method.policy_updates import Ppo
from mcclt.training.trainer import Trainer
from probes import agent, run_config
from trees import assert_close, one_of

TURNS: dict[str, Any] = {"recompute_advantages": True, "policy_iterations": 2, "critic_iterations": 4}
OFF = 1e9
"""A `target_kl` that never stops anything."""


def leaves(*trees: Any) -> list[np.ndarray]:
    return [np.asarray(x) for x in jax.tree.leaves(trees)]


@pytest.mark.parametrize("critic", ["normal", pytest.param("plain", marks=pytest.mark.slow)])
def test_two_turns_by_hand(critic: str) -> None:
    """Each a study of the rollout by the critic so far, a gradient step of the policy on it, two of the critic."""
    same = {"critic": critic, "learning_rate": 0.05, "critic_learning_rate": 0.05, "target_kl": OFF}
    learner, halves = learner_of(**same, **TURNS), learner_of(**same)
    state, rollout = learner.init(jnp.uint32(0)), rollout_of()
    found, metrics = alone.update(learner, state, rollout)

    ppo, policy, opt, now, prepared = Ppo(halves.config, halves.policy), state.policy, state.policy_opt, state, []
    slope, step = jax.jit(jax.grad(lambda p, s: ppo.loss(p, s)[0])), jax.jit(optimisers.step)
    old = None
    for _ in range(2):
        prepared.append(targets := alone.prepare(halves, now, rollout))
        sample = targets.policy_batch
        old = ppo.log_prob(policy, sample.obs, sample.action) if old is None else old
        policy, opt = step(policy, slope(policy, sample._replace(log_prob=old)), opt, 0.05, None)
        now = alone.fit(halves, now, targets.critic_batches)
    assert_close((found.policy, found.policy_opt), (policy, opt))
    assert_close((found.critic, found.critic_opt), (now.critic, now.critic_opt))
    assert found.update == 1 and found.temperature == prepared[1].temperature
    for name, value in prepared[0].metrics.items():
        np.testing.assert_allclose(metrics[name], value, rtol=1e-5)
    first, second = (targets.policy_batch.advantage for targets in prepared)
    assert np.abs(first - second).max() > 1e-3, "they were recomputed"
    once, _ = alone.update(halves, state, rollout)
    assert any((a != b).any() for a, b in zip(leaves(found.policy), leaves(once.policy), strict=True))


@pytest.mark.slow
def test_one_turn_is_an_update() -> None:
    same = {"policy_iterations": 1, "critic_iterations": 3, "minibatch_size": 5, "critic": "plain"}
    same |= {"normalize_obs": True, "normalize_reward": True, "learning_rate_end": 0.0, "decay_steps": 100}
    one, other = learner_of(recompute_advantages=True, **same), learner_of(**same)
    one.n_envs = other.n_envs = E
    state = one.init(jnp.uint32(3))
    for seed in range(2):
        found, metrics = alone.update(one, state, rollout_of(seed))
        assert_close((found, metrics), alone.update(other, state, rollout_of(seed)))
        state = found


def test_the_policy_stops_and_the_critic_goes_on() -> None:
    learner = learner_of(**TURNS, critic="normal", learning_rate=0.1, target_kl=1e-6)
    state, metrics = alone.update(learner, learner.init(jnp.uint32(0)), rollout_of(3))
    assert metrics["train/policy_iterations"] == 1 == state.policy_opt[0].count
    assert state.critic_opt[0].count == 4


def test_what_is_not_finite_is_not_learnt() -> None:
    learner, rollout = learner_of(**TURNS, critic="normal", target_kl=OFF), rollout_of()
    state = learner.init(jnp.uint32(0))
    broken = dataclasses.replace(rollout, reward=rollout.reward.at[0, 0].set(jnp.nan))
    found, metrics = alone.update(learner, state, broken)
    assert_close((found.policy, found.critic), (state.policy, state.critic))
    assert found.skipped == 2 == metrics["train/skipped"]


# --- among others ----------------------------------------------------------------------------------------------

GROUPS = {
    "turns": agent(critic="plain", recompute_advantages=True, minibatch_size=4),
    "plain": agent(critic="plain", minibatch_size=4),
}


def learnt(trainer: Trainer, group: str) -> list[bytes]:
    arrays, _ = trainer.to_checkpoint()
    return [arrays[name].tobytes() for name in sorted(arrays) if name.startswith(f"agents/{group}/")]


@pytest.mark.slow
def test_each_agent_is_what_it_would_be_alone_and_resumed(trainer_of: Any) -> None:
    together = trainer_of(run_config(groups=GROUPS, seeds=(5,)))
    for _ in range(2):
        together.advance()
    arrays, meta = together.to_checkpoint()
    resumed = trainer_of(run_config(groups=GROUPS, seeds=(5,)))
    assert resumed.restore(arrays, meta, "it")
    alone = {name: trainer_of(run_config(groups={name: one}, seeds=(5,))) for name, one in GROUPS.items()}
    for trainer in alone.values():
        trainer.advance()
        trainer.advance()
    for trainer in (together, resumed, *alone.values()):
        trainer.advance()
    for name in GROUPS:
        assert learnt(together, name) == learnt(resumed, name) == learnt(alone[name], name)
    assert learnt(together, "turns") != learnt(together, "plain")


@pytest.mark.slow
def test_agents_mapped_are_agents_alone() -> None:
    learner = learner_of(**TURNS, critic="normal", target_kl=OFF)
    states, rollouts = [learner.init(jnp.uint32(k)) for k in range(2)], [rollout_of(k) for k in range(2)]
    stacked = [jax.tree.map(lambda *x: np.stack(x), *trees) for trees in (states, rollouts)]
    found = jax.jit(jax.vmap(learner.update))(*stacked)
    for k, pair in enumerate(zip(states, rollouts, strict=True)):
        assert_close(one_of(found, k), alone.update(learner, *pair), rtol=2e-3, atol=2e-5)


# --- refusals --------------------------------------------------------------------------------------------------


def test_refusals() -> None:
    with pytest.raises(ConfigError, match=r"^critic_iterations = 5 .* a multiple of policy_iterations \(2\) with"):
        AgentConfig(recompute_advantages=True, critic_iterations=5, policy_iterations=2)
    with pytest.raises(ConfigError, match="recompute_advantages needs an algo that learns in epochs, and 'trpo' does"):
        learner_of(algo="trpo", recompute_advantages=True)
