"""Minibatches: who is in which, two passes against float64 NumPy, and that nothing else changes."""

import dataclasses
import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import alone
from mcclt.config import AgentConfig, RunConfig
from mcclt.envs.api import EnvSpec
from mcclt.errors import ConfigError
from mcclt.method import optimisers
from mcclt.method.critics import CRITICS, Batch, fit
from mcclt.method.learner import Learner, Rollout
from mcclt.method.minibatches import shuffled
from mcclt.method.nets import Gaussian
from mcclt.method.policy_updates import POLICY_UPDATES, PolicyBatch, Ppo
from mcclt.method.randomness import permutation
from mcclt.method.settings import Structure, numbers
from mcclt.training.fitting import Fit, Learnt
from mcclt.training.population import Improve
from mcclt.training.trainer import Trainer
from probes import TINY, agent
from trees import assert_close, one_of

T, E, OBS, ACTIONS = 8, 2, 3, 2
SPEC = EnvSpec("Made-Up", "none", OBS, ACTIONS, -np.ones(ACTIONS), np.ones(ACTIONS), None, False)
OFF = 1e9
"""A `target_kl` that never stops anything."""


def learner_of(**settings) -> Learner:
    return Learner(AgentConfig(**({"minibatch_size": 4} | TINY | settings)), SPEC, E, T * E)


def rollout_of(*leading: int) -> Rollout:
    rng = np.random.default_rng(0)

    def draw(*shape: int) -> np.ndarray:
        return rng.normal(size=(*leading, T, E, *shape)).astype(np.float32)

    none = np.zeros((*leading, T, E), bool)
    return jax.device_put(Rollout(draw(OBS), draw(ACTIONS), draw(), none, none, draw(OBS)))


# --- one pass ----------------------------------------------------------------------------------------------


def test_a_pass_has_every_row_once():
    batch = {"a": jnp.arange(12), "b": jnp.arange(24).reshape(12, 2)}
    got = shuffled(jax.random.key(0), batch, 4)
    assert got["a"].shape == (3, 4) and got["b"].shape == (3, 4, 2)
    assert sorted(got["a"].ravel().tolist()) == list(range(12))
    np.testing.assert_array_equal(got["b"][..., 0], 2 * got["a"])  # rows stay together
    assert (got["a"] != shuffled(jax.random.key(1), batch, 4)["a"]).any()


def test_the_rest_that_fills_no_minibatch_is_left_out_and_another_time_it_is_others():
    left_out = set()
    for seed in range(20):
        got = shuffled(jax.random.key(seed), jnp.arange(11), 4).ravel().tolist()
        assert len(got) == len(set(got)) == 8
        left_out |= set(range(11)) - set(got)
    assert left_out == set(range(11))


# --- the critic --------------------------------------------------------------------------------------------


def test_two_passes_of_a_plain_critic_are_adam_in_float64():
    """11 states in minibatches of 4: two passes of two steps, gradients by central differences."""
    config = AgentConfig(critic="plain", critic_hidden=(4,), critic_learning_rate=0.05, minibatch_size=4)
    critic = CRITICS["plain"](config)
    rng = np.random.default_rng(0)
    obs, returns = rng.normal(size=(11, OBS)).astype(np.float32), rng.normal(size=11).astype(np.float32)
    none = jnp.zeros(11)
    sample = Batch(jnp.asarray(obs), jnp.asarray(returns), none, none, none, none[:, None], none[:, None])
    params, key = critic.init(jax.random.key(1), OBS), jax.random.key(2)
    got, _ = fit(critic, params, optimisers.ADAM.init(params), (sample,), 2, key)

    leaves, structure = jax.tree.flatten(params)
    cuts = np.cumsum([x.size for x in leaves])[:-1]

    def loss(theta, rows):
        parts = [p.reshape(x.shape) for p, x in zip(np.split(theta, cuts), leaves, strict=True)]
        first, last = jax.tree.unflatten(structure, parts)[0]
        value = np.maximum(obs[rows].astype(np.float64) @ first["w"] + first["b"], 0) @ last["w"] + last["b"]
        return float(np.mean((value[:, 0] - returns[rows]) ** 2))

    theta = np.concatenate([np.asarray(x, np.float64).ravel() for x in leaves])
    m, v, steps, h = np.zeros_like(theta), np.zeros_like(theta), 0, 1e-6
    for _ in range(2):
        own_key = jax.random.split(jax.random.fold_in(key, steps), 1)[0]  # a pass is named by the steps before it
        order = np.asarray(permutation(own_key, 11))
        for rows in (order[:4], order[4:8]):  # the other three are left out
            steps += 1
            g = np.array(
                [(loss(theta + h * e, rows) - loss(theta - h * e, rows)) / (2 * h) for e in np.eye(len(theta))]
            )
            m, v = 0.9 * m + 0.1 * g, 0.999 * v + 0.001 * g**2
            theta = theta - 0.05 * (m / (1 - 0.9**steps)) / (np.sqrt(v / (1 - 0.999**steps)) + 1e-8)
    flat = np.concatenate([np.asarray(x).ravel() for x in jax.tree.leaves(got)])
    np.testing.assert_allclose(flat, theta, rtol=1e-3, atol=1e-5)


@pytest.mark.slow
@pytest.mark.parametrize("critic", ["plain", "ensemble"])
def test_pieces_come_to_the_same_as_the_whole(critic):
    learner = learner_of(critic=critic, members={"plain": 1, "ensemble": 2}[critic])
    agents = jax.tree.map(lambda x: np.asarray(x)[None], learner.init(jnp.uint32(0)))
    state, batches, _ = Improve({"a": learner})({"a": agents}, {"a": rollout_of(1)})["a"]
    whole = Learnt({"a": state}, {"a": batches}, [Fit.of(learner, ("a",), 1)]).states["a"]
    halves = Learnt({"a": state}, {"a": batches}, [Fit.of(learner, ("a",), 2)]).states["a"]
    assert_close(halves, whole)


# --- the policy --------------------------------------------------------------------------------------------


def ppo_problem():
    policy = Gaussian(ACTIONS, (4,))
    rng = np.random.default_rng(0)
    params = policy.init(jax.random.key(0), OBS, AgentConfig())
    obs = jnp.asarray(rng.normal(size=(12, OBS)), jnp.float32)
    action = policy.sample(params, obs, policy.noise(jax.random.key(1), (12,)))
    advantage, weight = (jnp.asarray(x, jnp.float32) for x in (rng.normal(size=12), rng.uniform(0.6, 1, 12)))
    return policy, params, PolicyBatch(obs, action, advantage, weight, jax.random.key(3))


@functools.cache
def program(structure: Structure, policy: Gaussian):
    """One for all numbers."""

    def update(numbers, params, sample):
        ppo = Ppo(structure.settings(numbers), policy)
        return ppo.update(params, ppo.init(params), sample)

    return jax.jit(update)


def run_ppo(size: int | None, sample: PolicyBatch | None = None, **settings):
    policy, params, own = ppo_problem()
    config = AgentConfig(**({"minibatch_size": size, "policy_iterations": 5} | settings))
    update = program(Structure.of(config, "policy"), policy)
    return update(numbers(config), params, own if sample is None else sample)


@pytest.mark.parametrize("settings", [{"target_kl": OFF}, {"target_kl": 1e-3, "learning_rate": 0.1}])
def test_one_minibatch_that_is_the_whole_batch_is_the_full_batch_step(settings):
    one, whole = run_ppo(12, **settings), run_ppo(None, **settings)
    assert_close(one, whole)
    assert (one[2]["train/policy_iterations"] == 5) == (settings["target_kl"] == OFF)


def test_a_pass_is_a_step_per_minibatch_and_the_kl_stops_before_the_step_that_finds_it():
    _, opt_state, metrics = run_ppo(4, target_kl=OFF)
    assert metrics["train/policy_iterations"] == opt_state[0].count == 15  # 5 passes of 12 / 4 steps
    _, opt_state, metrics = run_ppo(4, target_kl=1e-3, learning_rate=0.1)
    assert 0 < metrics["train/policy_iterations"] == opt_state[0].count < 15
    assert metrics["train/approx_kl"] > 1.5e-3


def test_advantages_normalised_within_each_minibatch():
    # Three minibatches of a pass: as if every four states' advantages had been normalised beforehand.
    order = np.asarray(permutation(jax.random.fold_in(jax.random.key(3), 0), 12))
    sample = ppo_problem()[2]
    advantage = np.asarray(sample.advantage, np.float64)
    own = np.zeros(12)
    for rows in order.reshape(3, 4):
        own[rows] = (advantage[rows] - advantage[rows].mean()) / advantage[rows].std()
    by_hand = sample._replace(advantage=jnp.asarray(own, jnp.float32))

    once = {"policy_iterations": 1, "learning_rate": 0.05}
    expected = run_ppo(4, by_hand, **once)[0]
    assert_close(run_ppo(4, normalize_advantage="minibatch", **once)[0], expected)
    with pytest.raises(AssertionError):
        assert_close(run_ppo(4, **once)[0], expected)


# --- whole updates -----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("critic", "algo"),
    [
        pytest.param(critic, algo, marks=() if (critic, algo) == ("plain", "ppo") else pytest.mark.slow)
        for critic in CRITICS
        for algo in POLICY_UPDATES
    ],
)
def test_every_critic_and_policy_update_learns(algo, critic):
    learner = learner_of(algo=algo, critic=critic, target_kl=OFF if algo == "ppo" else 0.01)
    state, metrics = alone.update(learner, learner.init(jnp.uint32(0)), rollout_of())
    for leaf in jax.tree.leaves((state, metrics)):
        assert np.isfinite(np.asarray(leaf, np.float64)).all()
    share = T * E // learner.critic.members
    assert state.critic_opt[0].count == learner.config.critic_iterations * (share // 4)
    if algo == "ppo":
        assert metrics["train/policy_iterations"] == learner.config.policy_iterations * (T * E // 4)


@pytest.mark.slow
@pytest.mark.parametrize(("critic", "members"), [("plain", 1), ("ensemble", 2)])
def test_agents_mapped_are_agents_alone(critic, members):
    learner = learner_of(critic=critic, members=members, target_kl=OFF)
    agents = jax.tree.map(lambda *x: np.stack(x), *(learner.init(jnp.uint32(k)) for k in range(2)))
    rollouts = rollout_of(2)
    together = jax.jit(jax.vmap(learner.update))(agents, rollouts)
    for k in range(2):
        own, rollout, found = one_of((agents, rollouts, together), k)
        assert_close(found, alone.update(learner, own, rollout), rtol=2e-3, atol=2e-5)


def test_the_order_depends_on_seed_and_update():
    learner = learner_of(critic="plain", target_kl=OFF)
    fresh = learner.init(jnp.uint32(0))

    def policy(**changed) -> np.ndarray:
        new, _ = alone.update(learner, dataclasses.replace(fresh, **changed), rollout_of())
        return np.concatenate([np.ravel(x) for x in jax.tree.leaves((new.policy, new.critic))])

    same = policy()
    np.testing.assert_array_equal(same, policy())
    assert (same != policy(seed=jnp.uint32(1))).any() and (same != policy(update=jnp.int32(1))).any()


# --- refusals ----------------------------------------------------------------------------------------------


def test_sizes_that_cannot_be():
    with pytest.raises(ConfigError, match="minibatch_size = 0 is not allowed: it must be at least 1"):
        AgentConfig(minibatch_size=0)

    def trainer(**settings) -> Trainer:
        groups = {"a": agent(**({"critic": "plain"} | settings))}
        return Trainer(RunConfig("InvertedDoublePendulum-v5", groups=groups, n_envs=2, steps_per_update=40))

    with pytest.raises(ConfigError, match=r"minibatch_size = 41 .* at most 40, steps_per_update"):
        trainer(minibatch_size=41)
    with pytest.raises(ConfigError, match=r"minibatch_size = 9 .* at most 8, each of 5 members' share"):
        trainer(minibatch_size=9, critic="ensemble")
    trainer(minibatch_size=40).close()
