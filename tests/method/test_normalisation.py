"""Normalised observations and rewards: the statistics, when they change, and that everything which acts uses them."""

import dataclasses
import functools
import importlib.util
from pathlib import Path
from typing import Any

import gymnasium as gym
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from gymnasium import spaces

import alone
import mcclt
from mcclt import PPO, evaluate_policy
from mcclt.config import AgentConfig
from mcclt.envs.api import EnvSpec
from mcclt.errors import EnvironmentFault
from mcclt.experiments.setups import make_setup
from mcclt.experiments.training import probe
from mcclt.interop import export
from mcclt.method import normalisation
from mcclt.method.critics import CRITICS
from mcclt.method.learner import Learner, Rollout
from mcclt.method.nets import Gaussian
from mcclt.method.normalisation import CLIP, Moments, Normaliser
from mcclt.method.policy_updates import POLICY_UPDATES
from mcclt.pages import watch
from mcclt.training.collect import EpisodeStats, collect
from mcclt.training.trainer import Trainer
from probes import OURS, PENDULUM, TINY, Noisy, agent, factory, run_config
from trees import assert_close, assert_same, one_of, timeless

T, E, OBS, ACTIONS, GAMMA = 8, 2, 3, 2, 0.9
BOTH = {"normalize_obs": True, "normalize_reward": True}
SPEC = EnvSpec("Made-Up", "none", OBS, ACTIONS, -np.ones(ACTIONS), np.ones(ACTIONS), None, False)
RNG = np.random.default_rng(0)
STATES = RNG.normal(size=(7, OBS)).astype(np.float32)
MERGE, ABSORB_REWARDS = jax.jit(normalisation.merge), jax.jit(normalisation.absorb_rewards)


def rollout_of(seed: int = 0, scale: float = 1.0) -> Rollout:
    rng = np.random.default_rng(seed)
    terminated = rng.random((T, E)) < 0.2
    truncated = (rng.random((T, E)) < 0.2) & ~terminated
    obs, next_obs = (5 + 2 * rng.normal(size=(2, T, E, OBS))).astype(np.float32)
    action = rng.normal(size=(T, E, ACTIONS)).astype(np.float32)
    reward = (scale * rng.normal(size=(T, E))).astype(np.float32)
    return jax.device_put(Rollout(obs, action, reward, terminated, truncated, next_obs))


def learner_of(**settings: Any) -> Learner:
    return Learner(AgentConfig(**(TINY | BOTH | {"gamma": GAMMA} | settings)), SPEC, E, T * E)


def updated(learner: Learner, *rollouts: Rollout) -> tuple[Any, dict[str, Any]]:
    """The agent after some updates."""
    state, metrics = learner.init(jnp.uint32(0)), {}
    for rollout in rollouts:
        state, metrics = alone.update(learner, state, rollout)
    return state, metrics


# --- statistics --------------------------------------------------------------------------------------------


def test_two_batches_by_hand() -> None:
    """1, 3 have mean 2 and variance 1; with 8, 8: mean 5, variance (16 + 4 + 9 + 9) / 4 = 9.5."""
    nothing = Moments(*(np.array(x, np.float32) for x in ([0], [1], 0)))
    one = MERGE(nothing, np.array([[1], [3]], np.float32))
    assert [x.item() for x in one] == [2, 1, 2]
    two = MERGE(one, np.array([[8], [8]], np.float32))
    assert [x.item() for x in two] == [5, 9.5, 4]


def batches(count: int = 40, size: int = 64) -> np.ndarray:
    """[count, size, 6] of very different scales, about means that wander; the last column is constant."""
    rng = np.random.default_rng(1)
    x = rng.normal(size=(count, size, 6)) + rng.normal(size=(count, 1, 6))
    mean, std = np.array([0, 0, 5, 300, 1e3, 1.7]), np.array([1e-3, 1e3, 1, 0.5, 1e-1, 0])
    return (mean + std * x).astype(np.float32)


def test_statistics_are_those_of_everything_seen() -> None:
    x = batches()
    moments = Moments(np.zeros(6, np.float32), np.ones(6, np.float32), np.zeros((), np.float32))
    for batch in x:
        moments = MERGE(moments, batch)
    everything = x.reshape(-1, 6).astype(np.float64)
    std = everything.std(axis=0)
    assert moments.count == len(everything)
    assert (np.abs(moments.mean - everything.mean(axis=0))[:5] < 3e-3 * std[:5]).all()
    np.testing.assert_allclose(np.sqrt(moments.var)[:5], std[:5], rtol=1e-3)
    assert moments.mean[5] == np.float32(1.7) and moments.var[5] < 1e-12, "a constant stays one"


def test_statistics_are_stable_baselines3s() -> None:
    rms = pytest.importorskip("stable_baselines3.common.running_mean_std")
    x = batches()[..., :3]
    reference = rms.RunningMeanStd(epsilon=1e-9, shape=(3,))  # they begin as if something had been seen
    moments = Moments(jnp.zeros(3), jnp.ones(3), jnp.zeros(()))
    for batch in x:
        moments = normalisation.merge(moments, jnp.asarray(batch))
        reference.update(batch.astype(np.float64))
    np.testing.assert_allclose(moments.mean, reference.mean, rtol=1e-4, atol=1e-6)
    np.testing.assert_allclose(moments.var, reference.var, rtol=1e-4)


def test_returns_are_discounted_across_rollouts_and_end_with_episodes() -> None:
    norm, running, seen = normalisation.init(None, E), np.zeros(E), []
    for seed in range(4):
        rollout = rollout_of(seed)
        done = np.asarray(rollout.terminated | rollout.truncated)
        assert done.any()
        norm = ABSORB_REWARDS(norm, rollout.reward, done, GAMMA)
        for t in range(T):
            running = GAMMA * running + np.asarray(rollout.reward[t], np.float64)
            seen.append(running.copy())
            running[done[t]] = 0
        np.testing.assert_allclose(norm.running, running, atol=1e-5)
        assert norm.returns is not None and norm.returns.count == len(seen) * E
        np.testing.assert_allclose(norm.returns.mean, np.mean(seen), atol=1e-5)
        np.testing.assert_allclose(norm.returns.var, np.var(seen), rtol=1e-4)
    np.testing.assert_allclose(normalisation.scale_of(norm.returns), np.std(seen), rtol=1e-4)


def test_what_is_seen_and_learnt_from() -> None:
    norm = Normaliser(
        Moments(jnp.array([1.0, 0.0, 0.0]), jnp.array([4.0, 1.0, 0.0]), jnp.array(9.0)),
        Moments(jnp.array(7.0), jnp.array(25.0), jnp.array(9.0)),
        jnp.zeros(1),
    )
    seen = normalisation.normalise_obs(norm, jnp.array([[5.0, 20.0, 1e-5]]))
    np.testing.assert_allclose(seen, [[2, CLIP, 0.1]], rtol=1e-5)  # (5 − 1)/2; clipped; 1e-5/√1e-8
    np.testing.assert_allclose(normalisation.normalise_reward(norm, jnp.array([10.0, -80.0])), [2, -CLIP])
    nothing = normalisation.init(None, None)
    assert jax.tree.leaves(nothing) == [] and normalisation.normalise_obs(nothing, STATES) is STATES
    assert normalisation.normalise_reward(nothing, STATES) is STATES


def test_numbers_beyond_float32_are_left_out() -> None:
    absorb = jax.jit(normalisation.absorb_obs)
    old = absorb(normalisation.init(2, 1), np.array([[[1, 2]], [[3, 2]]], np.float32))
    assert_same(absorb(old, np.full((2, 1, 2), 3e38, np.float32)), old)
    new = ABSORB_REWARDS(old, np.full((2, 1), 3e38, np.float32), np.zeros((2, 1), bool), 0.99)
    assert_same(new.returns, old.returns)
    assert new.running is not None and np.isfinite(new.running).all()


# --- learning ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("critic", "algo"),
    [
        pytest.param(critic, algo, marks=() if (critic, algo) == ("normal", "ppo") else pytest.mark.slow)
        for critic in CRITICS
        for algo in POLICY_UPDATES
    ],
)
def test_every_critic_and_policy_update_learns(critic: str, algo: str) -> None:
    state, metrics = updated(learner_of(critic=critic, algo=algo), rollout_of(0), rollout_of(1))
    assert all(np.isfinite(np.asarray(x, float)).all() for x in jax.tree.leaves((state, metrics)))
    assert metrics["train/skipped"] == 0 and state.norm.obs.count == state.norm.returns.count == 2 * T * E
    assert metrics["value/reward_unit"] == normalisation.scale_of(state.norm.returns)


def test_an_update_sees_what_was_acted_on_and_then_absorbs_it() -> None:
    """Observations by the old statistics, for the policy and the critic; rewards by the new ones."""
    learner = learner_of(critic="plain", policy_iterations=1)
    first, second = rollout_of(0), rollout_of(1)
    (fresh, _), (once, _), (state, metrics) = (updated(learner, *some) for some in ((), (first,), (first, second)))
    prepare, predict = functools.partial(alone.prepare, learner), jax.jit(learner.predict)
    seen = [prepare(agent, rollout).policy_batch for agent, rollout in ((fresh, first), (once, second))]
    assert metrics["train/approx_kl"] == 0, "at the first iteration the policy is the one that acted"
    np.testing.assert_allclose(seen[0].obs, np.asarray(first.obs).reshape(-1, OBS).clip(-CLIP, CLIP), rtol=1e-6)
    before = np.asarray(first.obs, np.float64).reshape(-1, OBS)
    expected = (np.asarray(second.obs).reshape(-1, OBS) - before.mean(0)) / np.sqrt(before.var(0) + 1e-8)
    np.testing.assert_allclose(seen[1].obs, expected.clip(-CLIP, CLIP), rtol=1e-4, atol=1e-5)
    both = np.concatenate([before, np.asarray(second.obs).reshape(-1, OBS)])
    np.testing.assert_allclose(state.norm.obs.mean, both.mean(0), rtol=1e-5)

    batches = prepare(state, second).critic_batches
    norm = normalisation.absorb_rewards(state.norm, second.reward, second.terminated | second.truncated, GAMMA)
    unit = float(normalisation.scale_of(norm.returns))
    assert unit != normalisation.scale_of(state.norm.returns)
    np.testing.assert_allclose(batches[0].reward, np.asarray(second.reward).reshape(-1) / unit, rtol=1e-5)
    # The old critic's values, in the unit of this update; the true successor's, by the same statistics, as well.
    for bars, obs in ((batches[0].bars, second.obs), (batches[0].next_bars, second.next_obs)):
        believed = predict(state, obs.reshape(-1, OBS))
        np.testing.assert_allclose(bars, believed.bars / unit, rtol=1e-4, atol=1e-6)


EVERY_CRITIC = pytest.mark.parametrize(
    "critic", [pytest.param(name, marks=() if name == "normal" else pytest.mark.slow) for name in CRITICS]
)


@EVERY_CRITIC
def test_the_scale_of_rewards_does_not_matter(critic: str) -> None:
    """Rewards 1024 times as large: the same agent, which predicts values 1024 times as large."""
    learner = learner_of(critic=critic)
    small, large = (updated(learner, *(rollout_of(k, scale) for k in range(3)))[0] for scale in (1.0, 1024.0))
    assert_close(*((state.policy, state.critic) for state in (small, large)), rtol=1e-3, atol=1e-5)
    predict = jax.jit(learner.predict)
    few, many = predict(small, STATES), predict(large, STATES)
    for name in ("bars", "mean", "std"):
        np.testing.assert_allclose(1024 * getattr(few, name), getattr(many, name), rtol=2e-2, atol=2e-2)
    np.testing.assert_allclose(few.error, many.error, rtol=2e-2, atol=1e-4)  # in the critic's own unit


class Scales(gym.Env):
    """Act like a number that is seen a thousand times too small, beside one that is a thousand times too large."""

    observation_space = spaces.Box(-np.inf, np.inf, (2,), np.float32)
    action_space = spaces.Box(-2, 2, (1,), np.float32)

    def reset(self, *, seed: int | None = None, options: Any = None):
        super().reset(seed=seed)
        self.t = 0
        return self._look(), {}

    def step(self, action: np.ndarray):
        reward, self.t = -float((action[0] - self.target) ** 2), self.t + 1
        return self._look(), reward, False, self.t >= 8, {}

    def _look(self) -> np.ndarray:
        self.target, other = self.np_random.uniform(-1, 1, 2)
        return np.array([1e-3 * self.target, 1e3 * (1 + other)], np.float32)


@pytest.mark.slow
def test_scales_that_networks_cannot_bear() -> None:
    """Rewards per step: −1/3 for the best action that looks at nothing, 0 for the best of all. All of three seeds."""
    settings = {"critic": "plain", "policy_hidden": (16,), "critic_hidden": (16,), "gamma": 0.0, "target_kl": 0.05}
    settings |= {"policy_iterations": 20, "critic_iterations": 10, "learning_rate": 3e-3}
    settings |= {"n_envs": 8, "steps_per_update": 512, "threads": 1}
    found = {}
    for normalize in (False, True):
        model = PPO(Scales, seed=[0, 1, 2], normalize_obs=normalize, **settings).learn(20 * 512)
        found[normalize] = [evaluate_policy(model, n_eval_episodes=20, seed=s)[0] / 8 for s in (0, 1, 2)]
    assert min(found[True]) > -0.01
    assert max(found[False]) < -0.2


# --- acting ------------------------------------------------------------------------------------------------


def test_host_and_vmap_act_alike_and_others_are_left_alone() -> None:
    """One agent that normalises and one that does not, stacked, by NumPy and by `vmap`."""
    policy = Gaussian(ACTIONS, (4,))
    fresh = [policy.init(jax.random.key(k), OBS, AgentConfig()) for k in range(2)]
    agents = [jax.tree.map(lambda x: np.asarray(x)[None], params) for params in fresh]
    mean, var = np.array([[3.0, 0, -1]], np.float32), np.array([[1e6, 1, 1e-6]], np.float32)
    norm = Normaliser(Moments(mean, var, np.ones(1, np.float32)), None, None)
    nothing = normalisation.init(None, None)
    parts = [normalisation.acting(a, n, OBS) for a, n in zip(agents, (norm, nothing), strict=True)]
    params = jax.tree.map(lambda *x: np.concatenate(x), *parts)
    assert all(leaf.dtype == np.float32 for leaf in jax.tree.leaves(params))
    actor = normalisation.Normalised(policy)
    obs = RNG.normal(size=(2, 5, OBS)).astype(np.float32)
    noise = np.asarray(actor.noise(jax.random.key(3), (2, 5)))
    for host, mapped in (
        (actor.sample(params, obs, noise), jax.jit(jax.vmap(actor.sample))(params, obs, noise)),
        (actor.mode(params, obs), jax.jit(jax.vmap(actor.mode))(params, obs)),
    ):
        assert isinstance(host, np.ndarray)
        np.testing.assert_allclose(host, mapped, rtol=1e-5, atol=1e-6)
    np.testing.assert_array_equal(actor.mode(params, obs)[1], policy.mode(agents[1], obs[1:])[0])
    seen = np.clip((obs[:1] - mean) / np.sqrt(var + np.float32(1e-8)), -CLIP, CLIP)
    np.testing.assert_allclose(actor.mode(params, obs)[0], policy.mode(agents[0], seen)[0], atol=1e-6)


def test_statistics_of_stacked_agents_are_those_of_each() -> None:
    rollouts = [rollout_of(k) for k in range(2)]
    stack = jax.tree.map(lambda *x: np.stack(x), *rollouts)
    norm = normalisation.init(OBS, E)

    @jax.jit
    def absorb(r: Rollout) -> Normaliser:
        new = normalisation.absorb_rewards(norm, r.reward, r.terminated | r.truncated, GAMMA)
        return normalisation.absorb_obs(new, r.obs)

    together = jax.jit(jax.vmap(absorb))(stack)
    for k, rollout in enumerate(rollouts):
        assert_close(one_of(together, k), absorb(rollout), rtol=1e-5)


# --- whole agents ------------------------------------------------------------------------------------------


def make(env: Any = Noisy, **settings: Any) -> PPO:
    return PPO(env, **(OURS | BOTH | {"critic": "normal", "seed": [3, 8]} | settings))


@pytest.fixture(scope="module")
def model() -> PPO:
    """A small population that has learnt; tests must not change it."""
    return make().learn(32)


def test_actions_are_of_normalised_observations(model: PPO) -> None:
    """In training, too: the action less its noise is the policy's mode at what the statistics make of the state."""
    trainer = model._trainer
    assert trainer is not None and trainer.policy is not trainer.learners["ppo-mcclt"].policy
    env = trainer.make_env(mcclt.method.randomness.Purpose.PROBE, 0, 2)
    noise = np.asarray(trainer.policy.noise(jax.random.key(0), (2, 5, 2)))
    stats = EpisodeStats.empty(2, 2)
    obs = env.reset().reshape(2, 2, -1)
    rollout, _, _ = collect(env, trainer.policy, trainer.policies(), obs, noise, stats, True)
    env.close()
    for i in range(2):
        state = one_of(model._states, i)
        flat = rollout.obs[i].reshape(-1, OBS)
        mean = jax.jit(model._learner.policy.mode)(state.policy, normalisation.normalise_obs(state.norm, flat))
        drawn = mean + np.exp(state.policy["log_std"])[None] * noise[i].reshape(-1, ACTIONS)
        np.testing.assert_allclose(rollout.action[i].reshape(-1, ACTIONS), drawn, rtol=1e-4, atol=1e-5)
        predicted = model.predict(flat, deterministic=True, seed=model.seeds[i])[0]
        np.testing.assert_allclose(predicted, np.clip(mean, -1, 1), rtol=1e-5, atol=1e-6)
        plain = model._learner.policy.mode(state.policy, flat)
        assert np.abs(predicted - np.clip(plain, -1, 1)).max() > 1e-2, "it matters"


def test_using_an_agent_changes_nothing(model: PPO) -> None:
    before = jax.tree.map(np.array, model._states)
    trainer = model._trainer
    assert trainer is not None
    evaluate_policy(model, n_eval_episodes=3, seed=8)
    trainer.evaluate(2, 0)
    model.predict(STATES, seed=8)
    model.value_distribution(STATES)
    recording = watch.record(model, 8, max_steps=5, render=False)
    probed = probe(trainer)
    assert_same(model._states, before)
    assert_same(next(iter(trainer.states.values())), before)
    # What they say of values is in the task's own rewards, and the same.
    believed = model.value_distribution(recording.observations, seed=8)
    np.testing.assert_allclose(recording.mean, believed.mean, rtol=1e-5)
    state = one_of(model._states, 1)
    seen = normalisation.normalise_obs(state.norm, recording.observations)
    own = jax.jit(model._learner.critic.predict)(state.critic, seen)
    unit = float(normalisation.scale_of(state.norm.returns))
    assert unit > 1.2
    np.testing.assert_allclose(believed.mean, unit * own.mean, rtol=1e-4, atol=1e-5)
    np.testing.assert_allclose(believed.error, own.error, rtol=1e-3, atol=1e-5)
    weight = model._learner.weights(state, own.error)
    np.testing.assert_allclose(believed.weight, weight, rtol=1e-4)
    assert probed[1]["bars"]["values"].shape == (3, 8)


def test_saved_and_loaded(model: PPO, tmp_path: Path) -> None:
    loaded = mcclt.load(model.save(tmp_path / "model"))
    assert_same(loaded._states, model._states)
    for seed in model.seeds:
        alone = model.for_seed(seed)
        for one, kept in ((loaded, {"seed": seed}), (alone, {})):
            expected = model.predict(STATES, deterministic=True, seed=seed)[0]
            np.testing.assert_array_equal(one.predict(STATES, deterministic=True, **kept)[0], expected)
            for a, b in zip(
                dataclasses.astuple(model.value_distribution(STATES, seed=seed)),
                dataclasses.astuple(one.value_distribution(STATES, **kept)),
                strict=True,
            ):
                np.testing.assert_array_equal(a, b)


@pytest.mark.skipif(importlib.util.find_spec("onnxruntime") is None, reason="needs pip install 'mcclt[onnx]'")
@EVERY_CRITIC
def test_exported(critic: str, tmp_path: Path) -> None:
    """With statistics far from 0 and 1; `to_onnx` makes its own comparison as well."""
    import onnxruntime

    model = make(critic=critic, seed=0)
    rng = np.random.default_rng(2)
    obs = Moments(np.array([[1e3, 0, -5]]), np.array([[1e4, 1e-6, 1]]), np.ones(1))
    norm = Normaliser(obs, Moments(np.zeros(1), np.full(1, 2500.0), np.ones(1)), np.zeros((1, 2)))
    norm = jax.tree.map(lambda x: jnp.asarray(x, jnp.float32), norm)
    model._follow(model.config, dataclasses.replace(model._states, norm=norm))
    path = tmp_path / "policy"
    states = (obs.mean + np.sqrt(obs.var) * 3 * rng.normal(size=(50, OBS))).astype(np.float32)
    states[0] *= 1e3  # clipped
    model.for_seed = lambda seed: model  # type: ignore[method-assign]  # its numbers are not a checkpoint's
    session = onnxruntime.InferenceSession(export.export(model, path.with_suffix(".onnx"), value_distribution=True))
    found = dict(zip([o.name for o in session.get_outputs()], session.run(None, {"observation": states}), strict=True))
    action, told = model.predict(states, deterministic=True)[0], model.value_distribution(states)
    np.testing.assert_allclose(found["action"], action, rtol=1e-5, atol=1e-5)
    for name in export.VALUE_OUTPUTS:
        expected = getattr(told, name)
        np.testing.assert_allclose(found[f"value_{name}"], expected, rtol=1e-4, atol=1e-5 * np.abs(expected).max())
    assert np.abs(told.mean).max() > 1, "in the task's own rewards"
    arrays = np.load(export.export(model, path.with_suffix(".npz")))
    scope: dict[str, Any] = {"observation": states}
    exec(str(arrays["readme"]).replace("policy.npz", str(path.with_suffix(".npz"))), scope)
    np.testing.assert_allclose(scope["action"], action, rtol=1e-5, atol=1e-5)


def run_updates(trainer: Trainer, count: int) -> Any:
    return timeless(row for _ in range(count) for row in trainer.advance())


def test_a_resumed_run_is_the_same_bit_for_bit(trainer_of: Any) -> None:
    config = run_config(PENDULUM, {"norm": agent(critic="plain", **BOTH)}, seeds=(0, 1), max_episode_steps=5)
    whole, first, second = (trainer_of(config) for _ in range(3))
    rows = run_updates(whole, 4)
    run_updates(first, 2)
    arrays, meta = first.to_checkpoint()
    assert "agents/norm/norm/obs/mean" in arrays and arrays["agents/norm/norm/running"].any()
    assert second.restore(arrays, meta, "the test")
    assert run_updates(second, 2) == rows[4:]
    assert_same(second.states, whole.states)


def test_in_a_mixed_population_everybody_is_as_if_alone(trainer_of: Any) -> None:
    groups = {"off": agent(critic="plain"), "on": agent(critic="plain", **BOTH)}
    both = trainer_of(run_config(PENDULUM, groups, max_episode_steps=5))
    alone = {name: trainer_of(run_config(PENDULUM, {name: groups[name]}, max_episode_steps=5)) for name in groups}
    assert alone["off"].policy is alone["off"].learners["off"].policy, "nothing is between them"
    assert jax.tree.leaves(alone["off"].states["off"].norm) == []
    run_updates(both, 3)
    returns = both.evaluate(2, 0)[0]
    for k, (name, trainer) in enumerate(alone.items()):
        run_updates(trainer, 3)
        assert_same(both.states[name], trainer.states[name])
        np.testing.assert_array_equal(returns[k], trainer.evaluate(2, 0)[0][0])


def test_an_agent_whose_environment_failed_keeps_its_statistics_in_new_episodes(trainer_of: Any) -> None:
    config = run_config("Noisy-v0", {"norm": agent(critic="normal", **BOTH)}, seeds=(0, 1), on_nan="restart")
    trainer = trainer_of(config, factory("nan obs", at=12, which=(2,)))  # of the second agent, in its second update
    trainer.advance()
    before = jax.tree.map(np.array, trainer.states["norm"].norm)
    assert before.running[1].any()
    trainer.advance()
    after = trainer.states["norm"].norm
    for old, new in zip(*(jax.tree.leaves((norm.obs, norm.returns)) for norm in (before, after)), strict=True):
        np.testing.assert_array_equal(old[1], new[1])
        assert (old[0] != new[0]).any()
    assert not np.asarray(after.running[1]).any() and after.obs.count.tolist() == [32, 16]
    trainer.advance()
    assert trainer.states["norm"].norm.obs.count.tolist() == [48, 32]


def test_an_update_that_is_undone_leaves_no_trace(trainer_of: Any) -> None:
    config = run_config("Noisy-v0", {"norm": agent(critic="normal", **BOTH)})
    trainer = trainer_of(config, factory("nan obs", at=12, which=(0,)))
    trainer.advance()
    before = jax.tree.map(np.array, trainer.states["norm"])
    with pytest.raises(EnvironmentFault):
        trainer.advance()
    after = trainer.states["norm"]
    assert before.norm.running.any() and not np.asarray(after.norm.running).any(), "new episodes"
    assert_same(dataclasses.replace(after, norm=before.norm), before)
    assert_same((after.norm.obs, after.norm.returns), (before.norm.obs, before.norm.returns))
    trainer.advance()
    assert trainer.states["norm"].norm.obs.count.tolist() == [32]


def test_new_episodes_after_loading_start_new_returns(model: PPO, tmp_path: Path) -> None:
    """The environments' state is not kept (a Gymnasium class): running returns are not of those that follow."""
    assert np.asarray(model._states.norm.running).any()
    loaded = PPO.load(model.save(tmp_path / "model"), env=Noisy)
    with pytest.warns(UserWarning, match="new episodes"):
        trainer = loaded._make_trainer(loaded.num_timesteps)
    norm = trainer.states["ppo-mcclt"].norm
    trainer.close()
    assert not np.asarray(norm.running).any()
    assert_same((norm.obs, norm.returns), (model._states.norm.obs, model._states.norm.returns))


def test_a_variant_of_an_experiment() -> None:
    setup = make_setup("Hopper", "ppo", "mcclt@normalize_obs=True", "fixed")
    assert setup.variant == "mcclt@normalize_obs=true" and setup.agent.normalize_obs
    assert setup.digest != make_setup("Hopper", "ppo", "mcclt", "fixed").digest
