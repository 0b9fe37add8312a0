"""PPO and TRPO against float64 NumPy: gradients by central differences, Adam and conjugate gradients by hand."""

from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.flatten_util import ravel_pytree

from mcclt.config import AgentConfig
from mcclt.method.nets import Bins, Categorical, Gaussian
from mcclt.method.policy_updates import PolicyBatch, Ppo, Trpo, at_minimum

BATCH, OBS = 15, 3


def problem(policy, seed=0):
    """Parameters and a batch drawn from the policy itself, with random advantages and weights in [.6, 1]."""
    rng = np.random.default_rng(seed)
    params = policy.init(jax.random.key(seed), OBS, AgentConfig())
    obs = rng.normal(size=(BATCH, OBS)).astype(np.float32)
    action = policy.sample(params, obs, policy.noise(jax.random.key(seed + 1), (BATCH,)))
    advantage = rng.normal(size=BATCH)
    advantage = (advantage - advantage.mean()) / advantage.std()
    weight = rng.uniform(0.6, 1.0, BATCH)
    return params, jax.device_put(PolicyBatch(obs, action, *(x.astype(np.float32) for x in (advantage, weight))))


class Exact:
    """The same policy on a float64 vector of parameters, written out in NumPy."""

    def __init__(self, params, sample):
        leaves, self.structure = jax.tree.flatten(params)
        self.shapes = [x.shape for x in leaves]
        self.start = self.flat(params)
        self.obs = np.asarray(sample.obs, np.float64)
        self.action = np.asarray(sample.action)
        self.advantage = np.asarray(sample.advantage, np.float64)
        self.weight = np.asarray(sample.weight, np.float64)
        self.gaussian = "log_std" in params
        self.old = self.log_prob(self.start)

    def flat(self, params):
        return np.concatenate([np.asarray(x, np.float64).ravel() for x in jax.tree.leaves(params)])

    def tree(self, theta):
        cuts = np.cumsum([int(np.prod(s)) for s in self.shapes])[:-1]
        leaves = [p.reshape(s) for p, s in zip(np.split(theta, cuts), self.shapes, strict=True)]
        return jax.tree.unflatten(self.structure, leaves)

    def output(self, theta):
        a, b = self.tree(theta)["mlp"]
        return np.tanh(self.obs @ a["w"] + a["b"]) @ b["w"] + b["b"]

    def log_p(self, theta):
        out = self.output(theta)
        return out - np.log(np.exp(out).sum(-1, keepdims=True))

    def log_prob(self, theta):
        if not self.gaussian:
            return self.log_p(theta)[np.arange(BATCH), self.action]
        log_std = self.tree(theta)["log_std"]
        z = (self.action - self.output(theta)) / np.exp(log_std)
        return (-(z**2) / 2 - log_std - np.log(2 * np.pi) / 2).sum(-1)

    def entropy(self, theta):
        if not self.gaussian:
            return -np.mean((np.exp(self.log_p(theta)) * self.log_p(theta)).sum(-1))
        return np.sum(self.tree(theta)["log_std"] + np.log(2 * np.pi * np.e) / 2)

    def ppo_loss(self, theta, clip=0.2, ent_coef=0.0):
        r = np.exp(self.log_prob(theta) - self.old)
        gain = self.weight * np.minimum(r * self.advantage, np.clip(r, 1 - clip, 1 + clip) * self.advantage)
        return -np.mean(gain) - ent_coef * self.entropy(theta)

    def gain(self, theta):
        return np.mean(self.weight * np.exp(self.log_prob(theta) - self.old) * self.advantage)

    def kl(self, p, q):
        """Mean KL between the policies of two parameter vectors."""
        if not self.gaussian:
            a, b = self.log_p(p), self.log_p(q)
            return np.mean((np.exp(a) * (a - b)).sum(-1))
        s, t = np.exp(self.tree(p)["log_std"]), np.exp(self.tree(q)["log_std"])
        gap = self.output(p) - self.output(q)
        return np.mean((np.log(t / s) + (s**2 + gap**2) / (2 * t**2) - 0.5).sum(-1))

    def fisher(self):
        """Explicit: mean JᵀMJ, with J of the outputs by central differences and M the outputs' own Fisher matrix."""
        size, h = len(self.start), 1e-6
        jacobian = np.stack(
            [(self.output(self.start + h * e) - self.output(self.start - h * e)) / (2 * h) for e in np.eye(size)], -1
        )  # [B, outputs, parameters]
        if not self.gaussian:
            p = np.exp(self.log_p(self.start))
            inner = np.stack([np.diag(x) - np.outer(x, x) for x in p])
            return np.einsum("bip,bij,bjq->pq", jacobian, inner, jacobian) / BATCH
        log_std = self.tree(self.start)["log_std"]
        fisher = np.einsum("bip,i,biq->pq", jacobian, np.exp(-2 * log_std), jacobian) / BATCH
        d = len(log_std)  # `log_std` comes first in the vector; its Fisher information is 2
        fisher[np.arange(d), np.arange(d)] += 2
        return fisher


def slope(function, theta, h=1e-6):
    return np.array([(function(theta + h * e) - function(theta - h * e)) / (2 * h) for e in np.eye(len(theta))])


def bits(tree):
    return [np.asarray(x).tobytes() for x in jax.tree.leaves(tree)]


GAUSSIAN = Gaussian(2, (4,))
CATEGORICAL = Categorical(2, (4,))
POLICIES = {"gaussian": GAUSSIAN, "categorical": CATEGORICAL}


# --- PPO ---------------------------------------------------------------------------------------------------


def run_ppo(policy, params, sample, **settings):
    ppo = Ppo(AgentConfig(**settings), policy)
    with jax.disable_jit():  # op by op is quicker than compiling once per case; test_learner.py compares the two
        return ppo.update(params, ppo.init(params), sample)


@pytest.mark.parametrize("ent_coef", [0.0, 0.3])
@pytest.mark.parametrize("name", POLICIES)
def test_ppo_against_float64(name, ent_coef):
    # Four steps, large enough that ratios leave the clip range: gradient by central differences, Adam by hand.
    lr, steps = 0.05, 4
    params, sample = problem(POLICIES[name], 1)
    exact = Exact(params, sample)
    theta, m, v = exact.start.copy(), 0.0, 0.0
    for t in range(1, steps + 1):
        before = theta
        g = slope(lambda x: exact.ppo_loss(x, ent_coef=ent_coef), theta)
        m, v = 0.9 * m + 0.1 * g, 0.999 * v + 0.001 * g**2
        theta = theta - lr * (m / (1 - 0.9**t)) / (np.sqrt(v / (1 - 0.999**t)) + 1e-8)
    ratio = np.exp(exact.log_prob(before) - exact.old)
    assert np.any(np.abs(ratio - 1) > 0.2)
    got, opt_state, metrics = run_ppo(
        POLICIES[name], params, sample, learning_rate=lr, policy_iterations=steps, target_kl=None, ent_coef=ent_coef
    )
    np.testing.assert_allclose(exact.flat(got), theta, rtol=1e-3, atol=2e-4)
    assert metrics["train/policy_iterations"] == steps and opt_state[0].count == steps
    # At ratio 1 the loss is −mean(w Â); KL and clip share are those seen before the last step.
    np.testing.assert_allclose(metrics["train/policy_loss"], -np.mean(exact.weight * exact.advantage), rtol=1e-4)
    np.testing.assert_allclose(metrics["train/approx_kl"], np.mean(exact.old - exact.log_prob(before)), rtol=1e-2)
    np.testing.assert_allclose(metrics["train/clip_fraction"], np.mean(np.abs(ratio - 1) > 0.2), rtol=1e-5)


@pytest.mark.parametrize("size", [None, 5])
def test_without_a_target_nothing_stops_ppo(size):
    params, sample = problem(GAUSSIAN, 2)
    sample = sample._replace(key=jax.random.key(0))

    def run(target_kl):
        config = AgentConfig(learning_rate=0.1, minibatch_size=size, policy_iterations=6, target_kl=target_kl)
        ppo = Ppo(config, GAUSSIAN)
        return jax.jit(ppo.update)(params, ppo.init(params), sample)  # op by op, minibatches take long

    (free, _, metrics), (high, _, _) = run(None), run(1e9)
    per_pass = 1 if size is None else len(sample.obs) // size
    assert metrics["train/policy_iterations"] == 6 * per_pass and metrics["train/approx_kl"] > 0.015
    np.testing.assert_allclose(flat(free), flat(high), rtol=1e-4, atol=1e-5)


def test_ppo_normalises_advantages_within_a_minibatch():
    # The minibatch is the whole batch here, so shifted and stretched advantages come to the normalised ones.
    params, sample = problem(GAUSSIAN, 4)
    moved = sample._replace(advantage=3 * sample.advantage + 5)
    settings = {"learning_rate": 0.05, "policy_iterations": 3, "target_kl": None}
    plain, _, _ = run_ppo(GAUSSIAN, params, sample, **settings)
    again, _, metrics = run_ppo(GAUSSIAN, params, moved, normalize_advantage="minibatch", **settings)
    other, _, _ = run_ppo(GAUSSIAN, params, moved, **settings)
    np.testing.assert_allclose(flat(again), flat(plain), rtol=1e-4, atol=1e-5)
    assert np.abs(flat(other) - flat(plain)).max() > 1e-3
    np.testing.assert_allclose(metrics["train/policy_loss"], -np.mean(sample.weight * sample.advantage), rtol=1e-4)


def flat(tree):
    return np.concatenate([np.ravel(x) for x in jax.tree.leaves(tree)])


def test_ppo_stops_before_the_offending_step():
    # The limit is passed right after the first step, so exactly one step is kept, and Adam's state with it.
    params, sample = problem(GAUSSIAN, 2)
    exact = Exact(params, sample)
    stopped, stopped_opt, metrics = run_ppo(GAUSSIAN, params, sample, learning_rate=0.1, target_kl=1e-6)
    single, single_opt, _ = run_ppo(GAUSSIAN, params, sample, learning_rate=0.1, target_kl=100.0, policy_iterations=1)
    assert np.mean(exact.old - exact.log_prob(exact.flat(single))) > 1.5e-6
    assert metrics["train/policy_iterations"] == 1 and metrics["train/approx_kl"] > 1.5e-6
    for a, b in zip(jax.tree.leaves((stopped, stopped_opt)), jax.tree.leaves((single, single_opt)), strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-6, atol=1e-8)


def test_ppo_ignores_samples_of_weight_zero():
    params, sample = problem(GAUSSIAN, 3)
    off = sample._replace(weight=sample.weight.at[:4].set(0.0))
    other = off._replace(advantage=off.advantage.at[:4].set(9.0), action=off.action.at[:4].add(1.0))
    ppo = Ppo(AgentConfig(policy_iterations=3, target_kl=1e6), GAUSSIAN)
    update = jax.jit(ppo.update)
    a, b, c = (update(params, ppo.init(params), s)[0] for s in (off, other, sample))
    assert bits(a) == bits(b) != bits(c)


def test_the_kl_limit_decays():
    # Three quarters of the way from 0.02 to 0 the limit is 0.005, for PPO's stop and for TRPO's step.
    params, sample = problem(GAUSSIAN, 4)
    late, decay = sample._replace(progress=jnp.float32(0.75)), {"target_kl": 0.02, "target_kl_end": 0.0}
    for run in (partial(run_ppo, learning_rate=0.02), run_trpo):
        then, begin, first = (
            run(GAUSSIAN, params, now, **settings)
            for now, settings in ((late, decay), (sample, decay), (late, {"target_kl": 0.02}))
        )
        assert bits(then) == bits(run(GAUSSIAN, params, sample, target_kl=0.005))
        assert bits(begin) == bits(first) != bits(then)


# --- TRPO --------------------------------------------------------------------------------------------------


def run_trpo(policy, params, sample, **settings):
    with jax.disable_jit():
        return Trpo(AgentConfig(algo="trpo", **settings), policy).update(params, (), sample)


TRPO = jax.jit(Trpo(AgentConfig(algo="trpo", target_kl=0.01), GAUSSIAN).update)


def natural_step(exact, delta, damping, x=None):
    """x = (F + damping)⁻¹ g scaled to the quadratic bound ½ sᵀ(F + damping)s = δ."""
    matrix = exact.fisher() + damping * np.eye(len(exact.start))
    g = slope(exact.gain, exact.start)
    x = np.linalg.solve(matrix, g) if x is None else x(matrix, g)
    return np.sqrt(2 * delta / (x @ matrix @ x)) * x


def backtrack(exact, step, delta, kl):
    for i in range(10):
        candidate = exact.start + 0.8**i * step
        if kl(candidate) <= delta and exact.gain(candidate) >= exact.gain(exact.start):
            return candidate, i + 1
    return exact.start, 10


@pytest.mark.parametrize(
    ("name", "direction"), [("gaussian", "old_new"), ("gaussian", "new_old"), ("categorical", "old_new")]
)
def test_trpo_against_float64(name, direction):
    # 28 and 26 parameters; 40 iterations of conjugate gradients solve the system, so np.linalg.solve is the judge.
    params, sample = problem(POLICIES[name], 4)
    exact = Exact(params, sample)
    kl = (lambda t: exact.kl(exact.start, t)) if direction == "old_new" else (lambda t: exact.kl(t, exact.start))
    theta, tries = backtrack(exact, natural_step(exact, 0.01, 0.1), 0.01, kl)
    assert theta is not exact.start
    got, opt_state, metrics = run_trpo(POLICIES[name], params, sample, cg_max_steps=40, kl_direction=direction)
    np.testing.assert_allclose(exact.flat(got), theta, rtol=1e-3, atol=2e-4)
    assert opt_state == () and metrics["train/line_search_accepted"] == 1
    assert metrics["train/policy_iterations"] == tries
    np.testing.assert_allclose(metrics["train/approx_kl"], kl(exact.flat(got)), rtol=2e-2)
    if name == "gaussian":  # the other direction is a clearly different number
        assert abs(exact.kl(exact.start, theta) - exact.kl(theta, exact.start)) > 4e-2 * kl(theta)
    np.testing.assert_allclose(metrics["train/policy_loss"], -exact.gain(exact.start), rtol=1e-4)


@pytest.mark.parametrize("direction", ["old_new", "new_old"])
@pytest.mark.parametrize(
    "policy",
    [Gaussian(2, (5, 4)), Categorical(3, (5,)), Bins.over((3, 2), np.zeros(2), np.array([2.0, 1.0]), hidden=(4,))],
)
def test_products_with_the_hessian_of_the_kl(policy, direction):
    params, sample = problem(policy)
    theta, unravel = ravel_pytree(params)
    old = policy.distribution(params, sample.obs)

    def look(theta):
        return policy.outputs(unravel(theta), sample.obs), unravel(theta)

    def kl(seen):
        new = policy.distribution_of(*seen)
        return jnp.mean(policy.kl(*((old, new) if direction == "old_new" else (new, old))))

    product = at_minimum(kl, look, theta)
    expected = jax.hessian(lambda theta: kl(look(theta)))(theta)
    found = jax.vmap(product)(jnp.eye(theta.size))
    np.testing.assert_allclose(found, expected, atol=1e-6 * np.abs(expected).max())


def test_a_kl_averaged_over_actions_is_a_longer_step():
    # With F/D for F: (F/D + c)x = g is (F + cD)x = Dg, and ½ sᵀ(F/D + c)s = δ is ½ sᵀ(F + cD)s = Dδ. Here D = 2.
    params, sample = problem(GAUSSIAN, 4)
    mean, _, metrics = run_trpo(GAUSSIAN, params, sample, kl_over_actions="mean", target_kl=1e-3, cg_damping=0.1)
    twice, _, real = run_trpo(GAUSSIAN, params, sample, target_kl=2e-3, cg_damping=0.2)
    np.testing.assert_allclose(*(Exact(params, sample).flat(p) for p in (mean, twice)), rtol=1e-4, atol=1e-6)
    np.testing.assert_allclose(2 * metrics["train/approx_kl"], real["train/approx_kl"], rtol=1e-3)
    once, _, _ = run_trpo(GAUSSIAN, params, sample, target_kl=1e-3, cg_damping=0.1)
    assert bits(once) != bits(mean)
    params, sample = problem(CATEGORICAL, 4)  # one term: nothing to average
    assert bits(run_trpo(CATEGORICAL, params, sample, kl_over_actions="mean")[0]) == bits(
        run_trpo(CATEGORICAL, params, sample)[0]
    )


def test_one_conjugate_gradient_iteration():
    # From x = 0 the first iteration gives x = g·(gᵀg)/(gᵀAg): steepest ascent.
    params, sample = problem(GAUSSIAN, 5)
    exact = Exact(params, sample)
    step = natural_step(exact, 1e-4, 0.1, x=lambda a, g: g * (g @ g) / (g @ a @ g))
    got, _, metrics = run_trpo(GAUSSIAN, params, sample, cg_max_steps=1, target_kl=1e-4)
    assert metrics["train/policy_iterations"] == 1
    np.testing.assert_allclose(exact.flat(got) - exact.start, step, rtol=5e-3, atol=2e-6)


def test_trpo_keeps_the_constraint_and_improves():
    # 40 random problems; KL and gain judged in float64. Where none was accepted, nothing moved.
    delta, accepted = 0.01, []
    for old, sample in (problem(GAUSSIAN, seed) for seed in range(40)):
        exact = Exact(old, sample)
        new, _, metrics = TRPO(old, (), sample)
        theta = exact.flat(new)
        accepted.append(metrics["train/line_search_accepted"])
        assert exact.kl(exact.start, theta) <= delta * (1 + 1e-3)
        if accepted[-1]:
            assert exact.gain(theta) > exact.gain(exact.start)
            assert exact.kl(exact.start, theta) > 0.1 * delta  # a real step, not a token one
        else:
            assert bits(new) == bits(old)
    assert np.mean(accepted) > 0.8


def test_failed_line_search_keeps_the_parameters_bit_for_bit():
    params, sample = problem(GAUSSIAN, 6)
    exact = Exact(params, sample)
    # δ = 20 is far outside the quadratic model: the one try allowed breaks the constraint or loses.
    step = natural_step(exact, 20.0, 0.1)
    assert exact.kl(exact.start, exact.start + step) > 20 or exact.gain(exact.start + step) < exact.gain(exact.start)
    got, _, metrics = run_trpo(GAUSSIAN, params, sample, target_kl=20.0, line_search_max_iter=1)
    assert bits(got) == bits(params)
    assert metrics["train/line_search_accepted"] == 0 and metrics["train/approx_kl"] == 0


def test_trpo_on_degenerate_samples_and_weights():
    params, sample = problem(GAUSSIAN, 7)
    run = lambda s: TRPO(params, (), s)[0]  # noqa: E731
    base = run(sample)
    assert bits(base) != bits(params)
    # No advantage, no gradient: nothing moves. Not a number: nothing moves either.
    assert bits(run(sample._replace(advantage=jnp.zeros(BATCH)))) == bits(params)
    assert bits(run(sample._replace(advantage=sample.advantage.at[0].set(jnp.nan)))) == bits(params)
    # Twice the weights: g and x double, the scale halves, the step is the same.
    double = run(sample._replace(weight=2 * sample.weight))
    for a, b in zip(jax.tree.leaves(base), jax.tree.leaves(double), strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-4, atol=1e-6)
    # Samples of weight 0: their action and advantage have no influence (their states still enter the KL).
    off = sample._replace(weight=sample.weight.at[:4].set(0.0))
    other = off._replace(advantage=off.advantage.at[:4].set(9.0), action=off.action.at[:4].add(1.0))
    assert bits(run(off)) == bits(run(other)) != bits(base)
