"""One update of one agent: the contract of every combination, every switch, and tasks whose values are known.

Most updates here are made of the programs that train populations (`alone.update`), which agents of one structure
share; `test_one_program_...` compares them with the whole as one program, and slowly with running it op by op.
"""

import dataclasses
import itertools

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy.optimize import brentq

import alone
from mcclt.config import AgentConfig
from mcclt.envs.api import EnvSpec
from mcclt.errors import ConfigError, UnknownNameError
from mcclt.method.critics import CRITICS, Prediction
from mcclt.method.learner import Learner, Rollout, advantages_and_returns
from mcclt.method.policy_updates import POLICY_UPDATES
from mcclt.method.weighting import WEIGHTINGS
from mcclt.training.population import map_agents
from probes import TINY
from trees import assert_close, assert_same, one_of

T, E, OBS, ACTIONS = 8, 2, 3, 2
"""Those of `SMALL` runs on `Noisy`, whose programs serve here, too."""


def spec_of(discrete=False, obs_size=OBS) -> EnvSpec:
    bound = None if discrete else np.ones(ACTIONS)
    return EnvSpec("Made-Up", "none", obs_size, ACTIONS, None if discrete else -np.ones(ACTIONS), bound, None, False)


def rollout_of(seed=0, discrete=False) -> Rollout:
    rng = np.random.default_rng(seed)
    terminated = rng.random((T, E)) < 0.2
    truncated = (rng.random((T, E)) < 0.2) & ~terminated
    action = rng.integers(0, ACTIONS, (T, E)) if discrete else rng.normal(size=(T, E, ACTIONS)).astype(np.float32)
    obs, next_obs = rng.normal(size=(2, T, E, OBS)).astype(np.float32)
    reward = rng.normal(size=(T, E)).astype(np.float32)
    return jax.device_put(Rollout(obs, action, reward, terminated, truncated, next_obs))


def learner_of(discrete=False, **settings) -> Learner:
    return Learner(AgentConfig(**(TINY | settings)), spec_of(discrete), E, T * E)


def changed(a, b) -> bool:
    pairs = zip(jax.tree.leaves(a), jax.tree.leaves(b), strict=True)
    return any(np.any(np.asarray(x) != np.asarray(y)) for x, y in pairs)


def assert_finite(*trees) -> None:
    for leaf in jax.tree.leaves(trees):
        assert np.all(np.isfinite(np.asarray(leaf, np.float64)))


def one_update(learner, rollout=None, seed=0):
    state = learner.init(jnp.uint32(seed))
    new, metrics = alone.update(learner, state, rollout_of() if rollout is None else rollout)
    assert_finite(new, metrics)
    return state, new, metrics


def assert_same_update(found, expected) -> None:
    assert found[1].keys() == expected[1].keys()
    assert_close(tuple(found), tuple(expected), rtol=2e-3, atol=2e-5)


# --- the contract ------------------------------------------------------------------------------------------


QUICK = (
    ("plain", "uniform", "ppo"),
    ("quantile", "exploration", "ppo"),
    ("normal", "accuracy", "trpo"),
    ("hl_gauss", "inverse_variance", "ppo"),
    ("ensemble", "accuracy", "ppo"),
)
"""Every critic, every weighting and every policy update is in one."""
SENSIBLE = [
    pytest.param(*names, marks=() if names in QUICK else pytest.mark.slow)
    for names in itertools.product(CRITICS, WEIGHTINGS, POLICY_UPDATES)
    if names[:2] == ("plain", "uniform") or names[0] != "plain"
]


def test_every_part_is_in_a_quick_combination():
    assert [set(names) for names in zip(*QUICK, strict=True)] == [set(CRITICS), set(WEIGHTINGS), set(POLICY_UPDATES)]


@pytest.mark.parametrize(("critic", "weighting", "algo"), SENSIBLE)
def test_every_combination_learns(critic, weighting, algo):
    learner = learner_of(critic=critic, weighting=weighting, algo=algo, members=2 if critic == "ensemble" else None)
    state, new, metrics = one_update(learner)
    assert changed(state.critic, new.critic)
    assert changed(state.policy, new.policy) == (metrics.get("train/line_search_accepted", 1) == 1)
    assert state.update == 0 and new.update == 1 and new.seed == state.seed
    assert jax.tree.structure(state) == jax.tree.structure(new)
    for a, b in zip(jax.tree.leaves(state), jax.tree.leaves(new), strict=True):
        assert a.shape == b.shape and a.dtype == b.dtype
    assert all(m.shape == () for m in metrics.values())
    if weighting == "uniform":
        assert metrics["weight/mean"] == 1 and metrics["weight/min"] == 1 and new.temperature == 0
    else:
        assert abs(metrics["weight/mean"] - 0.9) <= 1e-3
        assert new.temperature == metrics["weight/temperature"] > 0
    assert metrics["weight/search_failed"] == 0


@pytest.mark.parametrize("weighting", ["accuracy", "exploration"])
def test_plain_has_no_error_to_weight_by(weighting):
    with pytest.raises(ConfigError, match="plain"):
        learner_of(critic="plain", weighting=weighting)


def test_names_and_members_are_checked():
    for kind in ("critic", "weighting", "algo"):
        with pytest.raises(UnknownNameError, match="nonsense"):
            learner_of(**{kind: "nonsense"})
    with pytest.raises(ConfigError, match="members"):
        learner_of(critic="ensemble", members=1)


@pytest.mark.parametrize(
    ("critic", "weighting"),
    [("plain", "uniform"), ("quantile", "uniform"), ("normal", "accuracy"), ("ensemble", "accuracy")],
)
def test_the_paper_pairs_critics_with_weightings(critic, weighting):
    assert learner_of(critic=critic).config.weighting == weighting


@pytest.mark.parametrize(
    ("critic", "algo", "discrete"),
    [("normal", "ppo", False), pytest.param("ensemble", "trpo", True, marks=pytest.mark.slow)],
)
def test_one_program_is_the_same_and_compiles_once(critic, algo, discrete):
    learner = learner_of(discrete, critic=critic, algo=algo)
    rollout, later = rollout_of(1, discrete), rollout_of(2, discrete)
    state, by_parts, metrics_by_parts = one_update(learner, rollout)
    update = jax.jit(learner.update)
    once, metrics = update(state, rollout)
    assert_same_update((once, metrics), (by_parts, metrics_by_parts))
    twice, metrics = update(once, later)
    assert update._cache_size() == 1
    assert_finite(twice, metrics)
    assert twice.update == 2
    assert changed(once.critic, twice.critic) and changed(once.policy, twice.policy)


@pytest.mark.slow
@pytest.mark.parametrize(("critic", "algo", "discrete"), [("normal", "ppo", False), ("ensemble", "trpo", True)])
def test_op_by_op_is_the_same(critic, algo, discrete):
    learner = learner_of(discrete, critic=critic, algo=algo, policy_iterations=2, critic_iterations=2)
    state, *compiled = one_update(learner, rollout_of(1, discrete))
    with jax.disable_jit():
        assert_same_update(compiled, learner.update(state, rollout_of(1, discrete)))


def test_map_agents_is_each_agent_alone():
    # Bit for bit, whatever the neighbours (test_every_... above are about what is mapped; this is about mapping).
    learner = learner_of(critic="plain")
    states = [learner.init(jnp.uint32(k)) for k in range(3)]
    stack = jax.tree.map(lambda *leaves: np.stack(leaves), *states)
    obs = np.random.default_rng(0).normal(size=(3, T * E, OBS)).astype(np.float32)
    predict, by_itself = map_agents(learner.predict), jax.jit(learner.predict)
    together = predict(stack, obs)
    assert together.mean.shape == (3, T * E)
    for k in range(3):
        alone = predict(*jax.tree.map(lambda x, k=k: x[k : k + 1], (stack, obs)))
        assert_same(one_of(together, k), one_of(alone, 0))
        np.testing.assert_allclose(together.mean[k], by_itself(states[k], obs[k]).mean, rtol=1e-5, atol=1e-6)
    assert changed(together.mean[0], together.mean[1])


# --- every switch of the ledger ----------------------------------------------------------------------------

SWITCHES = {
    "weight_site": {"weight_site": "td_error"},
    "weight_site, quantile": {"weight_site": "td_error", "critic": "quantile", "weighting": "accuracy"},
    "members": {"members": 5},
    "members, plain": {"critic": "plain", "members": 5},
    "std head": {"variance_head": "std"},
    "log-variance head": {"variance_head": "log_variance"},
    "symmetric guide": {"guide": "symmetric"},
    "scaled gradient": {"variance_scaling": True},
    "weights in the critic's loss": {"critic_w_tar": 0.7, "members": 2},
    "bellman": {"critic": "quantile", "qr_target": "bellman"},
    "crossing error": {"crossing_error": 1e5},
    "paper temperature": {"temperature": "paper"},
    "paper temperature, exploration": {"temperature": "paper", "weighting": "exploration"},
    "monte carlo": {"value_target": "monte_carlo"},
    "td": {"value_target": "td"},
    "kl_direction": {"algo": "trpo", "kl_direction": "new_old"},
    "shared trunk": {"trunk": "shared"},
    "odd N": {"n_quantiles": 5},
    "kappa": {"kappa": 0.1},
    "gamma and lambda at their ends": {"gamma": 1.0, "gae_lambda": 0.0},
}


@pytest.mark.parametrize(
    "name",
    [pytest.param(name, marks=() if name == "shared trunk" else pytest.mark.slow) for name in SWITCHES],
)
def test_every_switch_trains(name):
    state, new, _ = one_update(learner_of(**SWITCHES[name]))
    assert changed(state.critic, new.critic)


@pytest.mark.slow
@pytest.mark.parametrize("algo", POLICY_UPDATES)
def test_discrete_actions(algo):
    learner = learner_of(True, algo=algo, critic="plain", line_search_max_iter=10)
    state, new, _ = one_update(learner, rollout_of(0, True))
    assert changed(state.policy, new.policy)


@pytest.mark.parametrize(
    "critic", ["quantile", *(pytest.param(name, marks=pytest.mark.slow) for name in ("normal", "hl_gauss", "ensemble"))]
)
def test_a_critic_is_told_how_much_states_count(critic):
    """1/(1 + vT) over its mean, v the variance it predicted before the update, T by a root search in float64."""
    learner, rollout = learner_of(critic=critic, critic_w_tar=0.6, members=2), rollout_of()
    state = learner.init(jnp.uint32(0))
    batches = alone.prepare(learner, state, rollout).critic_batches
    without = jax.eval_shape(learner_of(critic=critic, members=2).prepare, state, rollout).critic_batches
    assert [part.weight for part in without] == [None] * 2
    variance = np.asarray(learner.critic.predict(state.critic, rollout.obs.reshape(-1, OBS)).std, np.float64) ** 2
    t = brentq(lambda t: np.mean(1 / (1 + variance * t)) - 0.6, 1e-12, 1e12, xtol=1e-15)
    expected = dict(
        zip(map(bytes, np.asarray(rollout.obs).reshape(-1, OBS)), 1 / (1 + variance * t) / 0.6, strict=True)
    )
    for part in batches:  # each member's own part has the weights of its own states
        own = [expected[bytes(obs)] for obs in np.asarray(part.obs)]
        np.testing.assert_allclose(part.weight, own, rtol=3e-3)


def test_failed_search_is_reported():
    # A critic of zeros has bars of zeros, so all errors are 0 and no temperature exists.
    learner = learner_of()
    state = learner.init(jnp.uint32(0))
    state = dataclasses.replace(state, critic=jax.tree.map(jnp.zeros_like, state.critic))
    new, metrics = alone.update(learner, state, rollout_of())
    assert metrics["weight/search_failed"] == 1 and metrics["weight/mean"] == 1
    assert metrics["weight/temperature"] == 0 == new.temperature
    np.testing.assert_array_equal(learner.weights(new, jnp.array([1.0, 5.0])), [1.0, 1.0])


# --- advantages and targets --------------------------------------------------------------------------------


def numpy_targets(rollout, value, next_value, factor, gae_lambda):
    """Â and the three targets in float64, step by step, with γ = 0.99; `factor` [T, E] multiplies δ."""
    reward, terminated, truncated = (np.asarray(x) for x in (rollout.reward, rollout.terminated, rollout.truncated))
    advantage, monte_carlo, td = np.zeros((3, T, E))
    for e in range(E):
        running, total = 0.0, 0.0
        for t in reversed(range(T)):
            alive = 0.0 if terminated[t, e] else 1.0
            cut = terminated[t, e] or truncated[t, e]
            td[t, e] = reward[t, e] + 0.99 * alive * next_value[t, e]
            carried = 0.0 if cut else 0.99 * gae_lambda * running
            running = factor[t, e] * (td[t, e] - value[t, e]) + carried
            ends = cut or t == T - 1
            total = td[t, e] if ends else reward[t, e] + 0.99 * total
            advantage[t, e], monte_carlo[t, e] = running, total
    return advantage, {"lambda": advantage + value, "monte_carlo": monte_carlo, "td": td}


@pytest.mark.parametrize("site", ["objective", "td_error"])
@pytest.mark.parametrize("target", ["lambda", "monte_carlo", "td"])
@pytest.mark.parametrize("own", [None, 0.5])
def test_advantages_and_targets_against_numpy(site, target, own):
    rng = np.random.default_rng(3)
    rollout = rollout_of(3)
    learner = learner_of(weight_site=site, value_target=target, critic_gae_lambda=own)
    value, next_value = rng.normal(size=(2, T, E))
    weight, next_weight = rng.uniform(0.6, 1.0, size=(2, T, E))
    # δ_t · (γ w_{t+1} + w_t)/2 with weight_site = td_error; δ_t otherwise.
    factor = (0.99 * next_weight + weight) / 2 if site == "td_error" else np.ones((T, E))
    advantage, _ = numpy_targets(rollout, value, next_value, factor, 0.97)
    critics_own, targets = numpy_targets(rollout, value, next_value, factor, 0.97 if own is None else own)
    flat = lambda x: jnp.asarray(x.reshape(-1), jnp.float32)  # noqa: E731
    now, after = (Prediction(flat(v)[:, None], flat(v), flat(v), flat(v)) for v in (value, next_value))
    got = advantages_and_returns(learner.config, rollout, now, after, flat(weight), flat(next_weight))
    np.testing.assert_allclose(got[0], advantage.ravel(), rtol=1e-4, atol=1e-5)
    np.testing.assert_allclose(got[1], critics_own.ravel(), rtol=1e-4, atol=1e-5)
    np.testing.assert_allclose(got[2], targets[target].ravel(), rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize(
    ("site", "weighting"),
    [
        pytest.param("objective", "uniform", marks=pytest.mark.slow),
        ("objective", "accuracy"),
        ("td_error", "uniform"),
        ("td_error", "accuracy"),
    ],
)
def test_where_weights_act(site, weighting):
    # What the policy is given, rebuilt in NumPy from the critic's predictions.
    learner = learner_of(critic="quantile", weighting=weighting, weight_site=site)
    rollout = rollout_of(4)
    state = learner.init(jnp.uint32(0))
    targets, predict = alone.prepare(learner, state, rollout), jax.jit(learner.predict)
    now, after = (predict(state, x.reshape(-1, OBS)) for x in (rollout.obs, rollout.next_obs))
    raw = lambda e: 0.8 / (1 + np.exp(np.asarray(e, np.float64) * float(targets.temperature))) + 0.6  # noqa: E731
    w, w_next = (raw(p.error).reshape(T, E) if weighting == "accuracy" else np.ones((T, E)) for p in (now, after))
    # After a termination there is no state to weigh: w_{t+1} = 1, as in the authors' code. With w = 1 everywhere δ is
    # scaled by (γ + 1)/2 = .995: what the authors' code does "without w".
    factor = (0.99 * np.where(rollout.terminated, 1.0, w_next) + w) / 2 if site == "td_error" else np.ones((T, E))
    if weighting == "uniform" and site == "td_error":
        np.testing.assert_allclose(factor, 0.995)
    value, next_value = (np.asarray(p.mean, np.float64).reshape(T, E) for p in (now, after))
    advantage, _ = numpy_targets(rollout, value, next_value, factor, 0.97)
    sample = targets.policy_batch
    normalised = (advantage - advantage.mean()) / advantage.std()
    np.testing.assert_allclose(sample.advantage, normalised.ravel(), rtol=1e-3, atol=1e-4)
    np.testing.assert_allclose(sample.weight, w.ravel() if site == "objective" else np.ones(T * E), rtol=1e-3)
    np.testing.assert_array_equal(sample.obs, rollout.obs.reshape(-1, OBS))


# --- probes: tasks whose values are known (γ = ½) ----------------------------------------------------------

PT, PE = 4, 8


def probe(name, rng) -> tuple[Rollout, dict[float, float]]:
    """A rollout of a one-dimensional task, and its true value by observation."""
    obs = np.zeros((PT, PE))
    off, on = np.zeros((PT, PE), bool), np.ones((PT, PE), bool)
    match name:
        case "one step, reward 1":  # V(0) = 1: a value network that learns at all
            reward, next_obs, terminated, truncated = np.ones((PT, PE)), obs, on, off
            truth = {0.0: 1.0}
        case "one step, reward = observation":  # V(±1) = ±1: gradients reach the input
            obs = rng.choice([-1.0, 1.0], (PT, PE))
            reward, next_obs, terminated, truncated = obs, obs, on, off
            truth = {-1.0: -1.0, 1.0: 1.0}
        case "two steps, delayed reward":  # 0 → 1 → end with reward 1: V(1) = 1, V(0) = γ. Half the environments
            # start in the middle, so their last row is cut by the end of the rollout and bootstraps.
            obs = (np.arange(PT)[:, None] + np.arange(PE)[None, :]) % 2 * 1.0
            reward, next_obs, terminated, truncated = obs, np.ones((PT, PE)), obs == 1, off
            truth = {0.0: 0.5, 1.0: 1.0}
        case _:  # "truncated every step": 0 → 0 with reward 1 for ever, V = 1/(1 − γ) = 2 (1 if it were a termination)
            reward, next_obs, terminated, truncated = np.ones((PT, PE)), obs, off, on
            truth = {0.0: 2.0}
    action = rng.normal(size=(PT, PE, ACTIONS))
    arrays = (obs[..., None], action, reward, terminated, truncated, next_obs[..., None])
    return Rollout(*(a if a.dtype == bool else a.astype(np.float32) for a in arrays)), truth


class Spy:
    """Stands in for the policy update: changes nothing."""

    def init(self, params):
        return ()

    def update(self, params, opt_state, sample):
        return params, opt_state, {}


PROBES = ["one step, reward 1", "one step, reward = observation", "two steps, delayed reward", "truncated every step"]
PROBED = {
    "plain": {},
    "quantile": {},
    "quantile, bellman": {"critic": "quantile", "qr_target": "bellman"},
    "normal": {},
    "ensemble": {"members": 3},
}


@pytest.mark.parametrize(
    "critic", [pytest.param(name, marks=() if name == "normal" else pytest.mark.slow) for name in PROBED]
)
def test_probes(critic):
    settings = {"critic": critic, "weighting": "uniform", "gamma": 0.5, "n_quantiles": 4} | PROBED[critic]
    config = AgentConfig(
        **(settings | {"policy_hidden": (2,), "critic_hidden": (16,)}),
        critic_iterations=40,
        critic_learning_rate=0.01,
    )
    learner = Learner(config, spec_of(obs_size=1))
    learner._policy_update = lambda config, policy: Spy()  # values only: half the program to compile
    update, predict = jax.jit(learner.update), jax.jit(learner.predict)
    start = jax.jit(learner.init)(jnp.uint32(1))
    for name in PROBES:
        state, rng = start, np.random.default_rng(0)
        for _ in range(30):
            rollout, truth = probe(name, rng)
            state, metrics = update(state, rollout)
        assert_finite(state, metrics)
        states, values = np.zeros((2, 1), np.float32), np.array(list(truth.values()))
        states[: len(truth), 0] = list(truth)
        np.testing.assert_allclose(predict(state, states).mean[: len(truth)], values, atol=0.05, err_msg=name)
    assert update._cache_size() == 1
