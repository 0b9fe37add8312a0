"""Networks and policies: initialisation, NumPy against JAX, densities against SciPy, sampling frequencies."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy import stats

from mcclt.config import AgentConfig
from mcclt.method.nets import ACTIVATIONS, Bins, Categorical, Gaussian, apply_mlp, count, init_mlp

OBS, ACTIONS, BATCH = 3, 2, 7
GAUSSIAN = Gaussian(ACTIONS, (5, 4))
CATEGORICAL = Categorical(4, (5,))
BINS = Bins.over((3, 2), np.array([-1.0, 5.0]), np.array([1.0, 6.0]), hidden=(5,))
"""Of the values -1, 0, 1 and of 5, 6."""


def to_numpy(tree):
    return jax.tree.map(np.asarray, tree)


def observations(seed=0, *shape):
    return np.random.default_rng(seed).normal(size=(*shape, BATCH, OBS)).astype(np.float32)


def test_init_bounds():
    # Uniform in ±1/√fan_in, for weights and biases. 100 inputs: bound 0.1; 64 inputs: bound 0.125.
    params = to_numpy(init_mlp(jax.random.key(0), (100, 64, 50)))
    assert [p["w"].shape for p in params] == [(100, 64), (64, 50)]
    assert [p["b"].shape for p in params] == [(64,), (50,)]
    for layer, bound in zip(params, (0.1, 0.125), strict=True):
        for x in (layer["w"], layer["b"]):
            assert np.abs(x).max() <= bound
            assert stats.kstest(x.ravel(), stats.uniform(-bound, 2 * bound).cdf).pvalue > 0.01
    assert not np.allclose(params[0]["w"][0, :50], params[1]["w"][0] * 0.8)  # layers have their own streams
    assert count(params) == 100 * 64 + 64 + 64 * 50 + 50


def test_orthogonal_start():
    # WᵀW = gain² I where columns are the fewer, else WWᵀ: √2² = 2 in hidden layers, in the last the gain that is given.
    sizes = (30, 8, 20, 20)
    start = jax.jit(lambda key: init_mlp(key, sizes, orthogonal=0.01))
    params = to_numpy(start(jax.random.key(0)))
    for layer, squared, outputs in zip(params, (2.0, 2.0, 1e-4), sizes[1:], strict=True):
        w = layer["w"].astype(np.float64)
        gram = w.T @ w if w.shape[0] >= w.shape[1] else w @ w.T
        np.testing.assert_allclose(gram, squared * np.eye(len(gram)), rtol=1e-5, atol=1e-5 * squared)
        np.testing.assert_array_equal(layer["b"], np.zeros(outputs))


def test_orthogonal_starts_are_uniform():
    # Haar: an entry of a 4 x 4 matrix times its gain has mean 0 and mean square gain²/4, whatever its place.
    draw = jax.jit(jax.vmap(lambda key: init_mlp(key, (4, 4), orthogonal=1.0)[0]["w"]))
    w = np.asarray(draw(jax.random.split(jax.random.key(1), 4000)))
    np.testing.assert_allclose(w.mean(0), np.zeros((4, 4)), atol=0.04)  # five standard errors of 0.5/√4000
    np.testing.assert_allclose((w**2).mean(0), np.full((4, 4), 0.25), atol=0.02)
    assert not np.array_equal(w[0], w[1])


def test_policies_start_orthogonal():
    *hidden, last = to_numpy(GAUSSIAN.init(jax.random.key(0), OBS, AgentConfig(ortho_init=True))["mlp"])
    for layer in hidden:
        np.testing.assert_allclose(np.linalg.svd(layer["w"])[1], np.sqrt(2), rtol=1e-5)
    np.testing.assert_allclose(np.linalg.svd(last["w"])[1], 0.01, rtol=1e-5)


FORMULAS = {
    "tanh": np.tanh,
    "relu": lambda x: x * (x > 0),
    "silu": lambda x: x / (1 + np.exp(-x)),
    "elu": lambda x: np.where(x > 0, x, np.exp(x) - 1),
}


@pytest.mark.parametrize("name", ACTIVATIONS)
def test_activations_against_their_formulas(name):
    x = np.linspace(-20, 20, 81).astype(np.float32)
    on_host, on_device = ACTIVATIONS[name]
    assert on_host(x).dtype == np.float32
    np.testing.assert_allclose(on_host(x), FORMULAS[name](x.astype(np.float64)), rtol=1e-5, atol=1e-6)
    np.testing.assert_allclose(on_device(x), FORMULAS[name](x.astype(np.float64)), rtol=1e-5, atol=1e-6)
    with np.errstate(all="raise", under="ignore"):
        assert np.isfinite(on_host(np.array([-1e6, 1e6], np.float32))).all()


@pytest.mark.parametrize("name", ACTIVATIONS)
def test_layer_norm_against_numpy(name):
    # In float64: every hidden layer's sums, before the activation, to mean 0 and deviation 1, then scale and shift.
    rng = np.random.default_rng(0)
    params = to_numpy(init_mlp(jax.random.key(1), (OBS, 6, 5, 2), layer_norm=True))
    assert [sorted(layer) for layer in params] == [["b", "scale", "shift", "w"]] * 2 + [["b", "w"]]
    for layer in params[:-1]:
        np.testing.assert_array_equal(layer["scale"], np.ones_like(layer["b"]))
        np.testing.assert_array_equal(layer["shift"], np.zeros_like(layer["b"]))
        for part in ("scale", "shift"):
            layer[part] = rng.normal(size=layer["b"].shape).astype(np.float32)
    x = observations()
    expected = x.astype(np.float64)
    for layer in params[:-1]:
        expected = expected @ layer["w"] + layer["b"]
        deviation = np.sqrt(expected.var(-1, keepdims=True) + 1e-5)
        expected = FORMULAS[name](
            layer["scale"] * (expected - expected.mean(-1, keepdims=True)) / deviation + layer["shift"]
        )
    expected = expected @ params[-1]["w"] + params[-1]["b"]
    on_device = jax.jit(lambda params, x: apply_mlp(params, x, ACTIVATIONS[name][1]))
    for found in (apply_mlp(params, x, ACTIVATIONS[name][0]), on_device(params, jnp.asarray(x))):
        np.testing.assert_allclose(found, expected, rtol=1e-4, atol=1e-5)


def test_gaussian_starts_at_its_log_std():
    params = GAUSSIAN.init(jax.random.key(0), OBS, AgentConfig())
    np.testing.assert_array_equal(params["log_std"], np.full(ACTIONS, -0.5))
    assert [layer["w"].shape for layer in params["mlp"]] == [(3, 5), (5, 4), (4, 2)]


def test_mlp_against_a_loop():
    params = to_numpy(init_mlp(jax.random.key(1), (OBS, 4, 2)))
    x = observations()
    expected = np.zeros((BATCH, 2))
    for b in range(BATCH):
        hidden = [np.tanh(sum(float(x[b, i]) * float(params[0]["w"][i, j]) for i in range(OBS)) + params[0]["b"][j])
                  for j in range(4)]  # fmt: skip
        for k in range(2):
            expected[b, k] = sum(hidden[j] * float(params[1]["w"][j, k]) for j in range(4)) + params[1]["b"][k]
    np.testing.assert_allclose(apply_mlp(params, x, np.tanh), expected, rtol=1e-5, atol=1e-6)


KINDS = {
    "gaussian": (GAUSSIAN, AgentConfig()),
    "categorical": (CATEGORICAL, AgentConfig()),
    "bins": (BINS, AgentConfig()),
    "normed": (Gaussian(ACTIONS, (5, 4), "silu"), AgentConfig(policy_layer_norm=True)),
}
every_kind = pytest.mark.parametrize(("policy", "settings"), KINDS.values(), ids=KINDS)


@every_kind
def test_numpy_path_is_the_jax_path(policy, settings):
    params = policy.init(jax.random.key(2), OBS, settings)
    obs = observations(1)
    noise = policy.noise(jax.random.key(3), (BATCH,))
    sampled = policy.sample(to_numpy(params), obs, np.asarray(noise))
    best = policy.mode(to_numpy(params), obs)
    assert isinstance(sampled, np.ndarray) and isinstance(best, np.ndarray)
    np.testing.assert_allclose(sampled, jax.jit(policy.sample)(params, obs, noise), rtol=1e-5, atol=1e-6)
    np.testing.assert_allclose(best, jax.jit(policy.mode)(params, obs), rtol=1e-5, atol=1e-6)


@every_kind
def test_stacked_agents_act_as_alone(policy, settings):
    agents = [to_numpy(policy.init(jax.random.key(k), OBS, settings)) for k in range(3)]
    stack = jax.tree.map(lambda *leaves: np.stack(leaves), *agents)
    obs = observations(2, 3)
    noise = np.asarray(policy.noise(jax.random.key(9), (3, BATCH)))
    sampled, best = policy.sample(stack, obs, noise), policy.mode(stack, obs)
    for k, params in enumerate(agents):  # bit for bit
        np.testing.assert_array_equal(sampled[k], policy.sample(params, obs[k], noise[k]))
        np.testing.assert_array_equal(best[k], policy.mode(params, obs[k]))


# --- Gaussian ----------------------------------------------------------------------------------------------


def gaussians():
    rng = np.random.default_rng(4)
    make = lambda: (rng.normal(size=(BATCH, ACTIONS)), rng.uniform(-1, 0.5, ACTIONS))  # noqa: E731
    p, q = make(), make()
    single = jax.tree.map(lambda x: jnp.asarray(x, jnp.float32), (p, q))
    return p, q, single, rng.normal(size=(BATCH, ACTIONS))


def test_gaussian_log_prob_and_entropy():
    (mean, log_std), _, (p, _), action = gaussians()
    dist = stats.norm(mean, np.exp(log_std))
    got = GAUSSIAN.log_prob(p, jnp.asarray(action, jnp.float32))
    np.testing.assert_allclose(got, dist.logpdf(action).sum(-1), rtol=1e-4, atol=1e-5)
    np.testing.assert_allclose(GAUSSIAN.entropy(p), dist.entropy().sum(-1), rtol=1e-5)


def test_gaussian_kl():
    # By hand in one dimension: KL(N(0, 1) ‖ N(1, 2²)) = ln 2 + (1 + 1)/8 − ½ = 0.443147; the other way 1.306853.
    a, b = (jnp.zeros((1, 1)), jnp.zeros(1)), (jnp.ones((1, 1)), jnp.log(jnp.full(1, 2.0)))
    np.testing.assert_allclose(GAUSSIAN.kl(a, b), [0.443147], rtol=1e-5)
    np.testing.assert_allclose(GAUSSIAN.kl(b, a), [1.306853], rtol=1e-5)  # −ln 2 + (4 + 1)/2 − ½
    # Independent: ∫ p (ln p − ln q) on a grid, dimension by dimension.
    (mean_p, log_p), (mean_q, log_q), (p, q), _ = gaussians()
    x = np.linspace(-15, 15, 20_001)[:, None, None]
    dist_p, dist_q = stats.norm(mean_p, np.exp(log_p)), stats.norm(mean_q, np.exp(log_q))
    integrand = dist_p.pdf(x) * (dist_p.logpdf(x) - dist_q.logpdf(x))
    np.testing.assert_allclose(GAUSSIAN.kl(p, q), np.trapezoid(integrand, dx=30 / 20_000, axis=0).sum(-1), rtol=1e-4)
    np.testing.assert_allclose(GAUSSIAN.kl(p, p), np.zeros(BATCH), atol=1e-6)


def test_gaussian_sample_is_the_mean_plus_scaled_noise():
    params = to_numpy(GAUSSIAN.init(jax.random.key(5), OBS, AgentConfig()))
    obs = observations(6)
    zero, one = np.zeros((BATCH, ACTIONS), np.float32), np.ones((BATCH, ACTIONS), np.float32)
    mean = GAUSSIAN.mode(params, obs)
    np.testing.assert_array_equal(GAUSSIAN.sample(params, obs, zero), mean)
    # One unit of noise is one σ = e^−½ = 0.606531.
    np.testing.assert_allclose(GAUSSIAN.sample(params, obs, one) - mean, np.full((BATCH, ACTIONS), 0.606531), rtol=1e-5)
    noise = np.asarray(GAUSSIAN.noise(jax.random.key(0), (500,)))
    assert noise.shape == (500, ACTIONS)
    assert stats.kstest(noise.ravel(), stats.norm.cdf).pvalue > 0.01


# --- Categorical -------------------------------------------------------------------------------------------


def test_categorical_against_scipy():
    params = CATEGORICAL.init(jax.random.key(6), OBS, AgentConfig())
    obs = observations(7)
    dist = CATEGORICAL.distribution(params, jnp.asarray(obs))
    p = np.exp(np.asarray(dist, np.float64))
    np.testing.assert_allclose(p.sum(-1), np.ones(BATCH), rtol=1e-6)
    action = np.arange(BATCH) % 4
    np.testing.assert_allclose(
        CATEGORICAL.log_prob(dist, jnp.asarray(action)), np.log(p[np.arange(BATCH), action]), rtol=1e-5
    )
    np.testing.assert_allclose(CATEGORICAL.entropy(dist), stats.entropy(p, axis=-1), rtol=1e-5)
    other = CATEGORICAL.distribution(CATEGORICAL.init(jax.random.key(7), OBS, AgentConfig()), jnp.asarray(obs))
    q = np.exp(np.asarray(other, np.float64))
    np.testing.assert_allclose(CATEGORICAL.kl(dist, other), stats.entropy(p, q, axis=-1), rtol=1e-3, atol=1e-6)
    np.testing.assert_array_equal(CATEGORICAL.mode(params, jnp.asarray(obs)), p.argmax(-1))


def test_gumbel_draws_have_the_right_frequencies():
    # The logits come from the bias alone (weights 0): p = softmax(0, 1, 2, −1) for every one of 20,000 draws.
    logits = np.array([0.0, 1.0, 2.0, -1.0])
    policy = Categorical(4, (2,))
    params = {
        "mlp": (
            {"w": np.zeros((1, 2), np.float32), "b": np.zeros(2, np.float32)},
            {"w": np.zeros((2, 4), np.float32), "b": logits.astype(np.float32)},
        )
    }
    n = 20_000
    noise = np.asarray(policy.noise(jax.random.key(8), (n,)))
    drawn = policy.sample(params, np.zeros((n, 1), np.float32), noise)
    expected = n * np.exp(logits) / np.exp(logits).sum()
    assert stats.chisquare(np.bincount(drawn, minlength=4), expected).pvalue > 0.01


# --- bins --------------------------------------------------------------------------------------------------


def test_bins_against_scipy():
    params = BINS.init(jax.random.key(6), OBS, AgentConfig())
    obs = observations(7)
    dist = BINS.distribution(params, jnp.asarray(obs))
    assert dist.shape == (BATCH, 2, 3) and BINS.size == 6 and BINS.kl_terms == 2
    out = np.asarray(BINS.outputs(params, obs), np.float64).reshape(BATCH, 2, 3)
    p, q = (np.exp(x) / np.exp(x).sum(-1, keepdims=True) for x in (out[:, 0], out[:, 1, :2]))
    np.testing.assert_allclose(np.exp(dist[:, 0]), p, rtol=1e-5)
    np.testing.assert_allclose(np.exp(dist[:, 1]), np.c_[q, np.zeros(BATCH)], rtol=1e-5, atol=1e-30)
    first, second = np.arange(BATCH) % 3, np.arange(BATCH) % 2
    action = np.stack([first - 1, second + 5], -1).astype(np.float32)
    rows = np.arange(BATCH)
    np.testing.assert_allclose(
        BINS.log_prob(dist, jnp.asarray(action)), np.log(p[rows, first] * q[rows, second]), rtol=1e-4, atol=1e-6
    )
    np.testing.assert_allclose(BINS.entropy(dist), stats.entropy(p, axis=-1) + stats.entropy(q, axis=-1), rtol=1e-5)
    other = BINS.distribution(BINS.init(jax.random.key(7), OBS, AgentConfig()), jnp.asarray(obs))
    told = np.exp(np.asarray(other, np.float64))
    expected = stats.entropy(p, told[:, 0], axis=-1) + stats.entropy(q, told[:, 1, :2], axis=-1)
    np.testing.assert_allclose(BINS.kl(dist, other), expected, rtol=1e-3, atol=1e-6)
    np.testing.assert_array_equal(
        BINS.mode(params, jnp.asarray(obs)), np.stack([p.argmax(-1) - 1, q.argmax(-1) + 5], -1)
    )


def test_bins_are_drawn_with_the_right_frequencies():
    logits = np.array([0.0, 1.0, -1.0, 0.5, -0.5, 9.0])  # the last is of a value that the second dimension has not
    params = {
        "mlp": (
            {"w": np.zeros((1, 5), np.float32), "b": np.zeros(5, np.float32)},
            {"w": np.zeros((5, 6), np.float32), "b": logits.astype(np.float32)},
        )
    }
    n = 20_000
    noise = np.array(BINS.noise(jax.random.key(8), (n,)))
    noise[0], noise[1] = 0.0, np.nextafter(np.float32(1), np.float32(0))
    drawn = BINS.sample(params, np.zeros((n, 1), np.float32), noise)
    assert drawn.dtype == np.float32
    np.testing.assert_array_equal(drawn[:2], [[-1, 5], [1, 6]])
    for column, first, own in ((drawn[:, 0], -1, logits[:3]), (drawn[:, 1], 5, logits[3:5])):
        assert set(np.unique(column)) == set(range(first, first + len(own)))
        expected = n * np.exp(own) / np.exp(own).sum()
        assert stats.chisquare(np.bincount((column - first).astype(int)), expected).pvalue > 0.01


def test_bins_of_a_box_are_evenly_spread():
    bins = Bins.over((5,) * 2, np.array([-0.4, 0.0]), np.array([0.4, 1.0]), hidden=(4,))
    values = bins.values(np.tile(np.arange(5)[:, None], (1, 2)))
    np.testing.assert_allclose(values, [[-0.4, 0], [-0.2, 0.25], [0, 0.5], [0.2, 0.75], [0.4, 1]], atol=1e-7)
    # Every value is known again as what it was, also among many.
    many = Bins.over((41,), np.array([-0.4]), np.array([0.4]), hidden=(4,))
    dist = jnp.log(jnp.arange(1, 42) / 861.0)[None, None] * jnp.ones((41, 1, 1))
    found = many.log_prob(dist, jnp.asarray(many.values(np.arange(41)[:, None])))
    np.testing.assert_allclose(np.exp(found) * 861, np.arange(1, 42), rtol=1e-4)
