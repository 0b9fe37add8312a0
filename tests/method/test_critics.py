"""Critics against a float64 NumPy derivation: forward pass, loss, gradient, fit, and who sees which sample."""

import dataclasses
import itertools

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy.stats import norm

from mcclt.config import AgentConfig
from mcclt.config.variants import weighting_of
from mcclt.method import optimisers
from mcclt.method.critics import CRITICS, Batch, Critic, Prediction, divide, fit, total_loss
from mcclt.method.nets import count

OBS, BATCH, N = 3, 15, 4
Z = norm.ppf([0.2, 0.4, 0.6, 0.8])
TAU = np.array([0.2, 0.4, 0.6, 0.8])


def critic_of(name, **settings) -> Critic:
    return CRITICS[name](AgentConfig(critic=name, critic_hidden=(4,), **({"n_quantiles": N} | settings)))


def random_sample(seed=0) -> Batch:
    rng = np.random.default_rng(seed)
    arrays = [rng.normal(size=(BATCH, OBS))] + [2 * rng.normal(size=BATCH) for _ in range(3)]
    arrays += [0.9 * (rng.random(BATCH) < 0.7), rng.normal(size=(BATCH, N)), rng.normal(size=(BATCH, N))]
    return Batch(*(a.astype(np.float32) for a in arrays))


def float64(tree):
    return jax.tree.map(lambda x: np.asarray(x, np.float64), tree)


def forward(mlp, x):
    """Two-layer ReLU network in float64."""
    hidden = np.maximum(x @ mlp[0]["w"] + mlp[0]["b"], 0)
    return hidden @ mlp[1]["w"] + mlp[1]["b"]


def huber(u, kappa):
    return np.where(np.abs(u) < kappa, u**2 / 2, kappa * (np.abs(u) - kappa / 2))


def weighed(s, loss):
    """The mean over states, each as much as it counts."""
    each = loss.reshape(len(loss), -1).mean(1)
    return each.mean() if s.weight is None else (s.weight * each).sum() / len(each)


def squared(params, s, frozen, config):
    return weighed(s, (forward(params, s.obs)[:, 0] - s.returns) ** 2)


def shifted(params, s, frozen, config):
    u = s.bars + s.advantage[:, None] - forward(params, s.obs)
    return weighed(s, np.abs(TAU - (u < 0)) * huber(u, config.kappa))


def bellman(params, s, frozen, config):
    bars, total = forward(params, s.obs), np.zeros(BATCH)
    for b in range(BATCH):  # the double loop of eq. 4: every bar i against every atom j
        for i in range(N):
            for j in range(N):
                u = s.reward[b] + s.discount[b] * s.next_bars[b, j] - bars[b, i]
                total[b] += abs(TAU[i] - (u < 0)) * huber(u, config.kappa)
    return weighed(s, total / (N * N))


def parts_of_normal(params, s, config):
    if config.trunk == "shared":
        both = forward(params["both"], s.obs)
        bars, raw = both[:, :N], both[:, N]
    else:
        bars, raw = forward(params["bars"], s.obs), forward(params["variance"], s.obs)[:, 0]
    floor = config.variance_floor
    variance = {
        "variance": np.maximum(raw, floor),
        "log_variance": np.maximum(np.exp(raw), floor),
        "std": np.maximum(raw, floor) ** 2,
    }[config.variance_head]
    return bars, variance


def guided(params, s, frozen, config):
    """Eq. 8 + eq. 6; σ in the guide and the squared error in the NLL are those of `frozen`: no gradient."""
    bars, variance = parts_of_normal(params, s, config)
    frozen_bars, frozen_variance = parts_of_normal(frozen, s, config)
    u = s.returns[:, None] + np.sqrt(frozen_variance)[:, None] * Z - bars
    rho = np.abs(TAU - (u < 0)) if config.guide == "quantile" else 0.5
    error, factor = frozen_bars.mean(-1) - s.returns, 1.0
    if config.variance_scaling:  # DSAC-T: over the state's variance, times the mean one
        factor = frozen_variance.mean()
        u = u / np.sqrt(frozen_variance + 0.1 * factor)[:, None]
    nll = np.mean(error**2 / (2 * variance) + np.log(variance) / 2)
    return factor * (weighed(s, rho * huber(u, config.kappa)) + nll)


def histogram(params, s, frozen, config):
    """Cross-entropy towards the shares of N(G, σ²) in each bin + eq. 6; σ and squared error are those of `frozen`."""
    logits, variance = parts_of_normal(params, s, config)
    frozen_logits, frozen_variance = parts_of_normal(frozen, s, config)
    edges = np.linspace(-config.value_max, config.value_max, N + 1)
    sigma = np.maximum(np.sqrt(frozen_variance), 0.75 * (edges[1] - edges[0]))
    shares = np.diff(norm.cdf(edges, np.clip(s.returns, edges[0], edges[-1])[:, None], sigma[:, None]))
    log_p, frozen_log_p = (x - np.log(np.exp(x).sum(-1, keepdims=True)) for x in (logits, frozen_logits))
    error = np.exp(frozen_log_p) @ ((edges[1:] + edges[:-1]) / 2) - s.returns
    cross_entropy = -(shares / shares.sum(-1, keepdims=True) * log_p).sum(-1)
    return weighed(s, cross_entropy) + np.mean(error**2 / (2 * variance) + np.log(variance) / 2)


def numeric_gradient(function, params, step=1e-6):
    """Central differences in float64, leaf by leaf."""
    leaves, structure = jax.tree.flatten(params)
    gradient = [np.zeros_like(x) for x in leaves]
    for leaf, g in zip(leaves, gradient, strict=True):
        for index in np.ndindex(leaf.shape):
            kept, ends = leaf[index], []
            for sign in (1, -1):
                leaf[index] = kept + sign * step
                ends.append(function(jax.tree.unflatten(structure, leaves)))
            leaf[index] = kept
            g[index] = (ends[0] - ends[1]) / (2 * step)
    return jax.tree.unflatten(structure, gradient)


CASES = {
    "plain": ("plain", squared, {}),
    "ensemble": ("ensemble", squared, {}),
    "shifted": ("quantile", shifted, {}),
    "bellman": ("quantile", bellman, {"qr_target": "bellman", "kappa": 0.5}),
    "normal": ("normal", guided, {}),
    "symmetric": ("normal", guided, {"guide": "symmetric", "kappa": 0.5}),
    "log variance": ("normal", guided, {"variance_head": "log_variance"}),
    "std": ("normal", guided, {"variance_head": "std"}),
    "shared": ("normal", guided, {"trunk": "shared"}),
    "scaled": ("normal", guided, {"variance_scaling": True}),
    "scaled, shared": ("normal", guided, {"variance_scaling": True, "trunk": "shared", "guide": "symmetric"}),
    "histogram": ("hl_gauss", histogram, {"value_bins": N, "value_max": 1.5}),
    "shared histogram": ("hl_gauss", histogram, {"value_bins": N, "value_max": 3.0, "trunk": "shared"}),
}


def floor_half_of_the_states(critic, params, s):
    """Raises the variance head by 1 and puts the floor at the median: some states are floored, some are not."""
    net = "both" if critic.config.trunk == "shared" else "variance"
    *rest, last = params[net]
    params = params | {net: (*rest, last | {"b": last["b"].at[-1].add(1.0)})}
    variance = parts_of_normal(float64(params), s, critic.config)[1]
    low, high = np.sort(variance)[[7, 8]]  # two middle ones of fifteen
    assert low < high - 1e-3
    floor = (low + high) / 2
    if critic.config.variance_head == "std":
        floor = np.sqrt(floor)
    config = dataclasses.replace(critic.config, variance_floor=float(floor))
    return type(critic)(config), params


WEIGHED = ("plain", "normal")
"""Quick with weights: a loss per state, and one per bar."""


@pytest.mark.parametrize(
    ("case", "weights"),
    [
        pytest.param(case, weights, marks=pytest.mark.slow if weights and case not in WEIGHED else ())
        for case in CASES
        for weights in (False, True)
    ],
)
def test_loss_and_gradient_against_float64(case, weights):
    name, expected, settings = CASES[case]
    critic, sample = critic_of(name, **settings), random_sample()
    if weights:
        sample = sample._replace(weight=np.linspace(0.5, 1.5, BATCH, dtype=np.float32))
    params = critic.init_member(jax.random.key(3), OBS)
    s = Batch(*float64(tuple(sample)))
    if name in ("normal", "hl_gauss"):
        critic, params = floor_half_of_the_states(critic, params, s)
    exact = float64(params)
    loss, gradient = jax.jit(jax.value_and_grad(critic.loss))(params, sample)
    np.testing.assert_allclose(loss, expected(exact, s, exact, critic.config), rtol=1e-5)
    numeric = numeric_gradient(lambda p: expected(p, s, float64(params), critic.config), exact)
    jax.tree.map(lambda a, b: np.testing.assert_allclose(a, b, rtol=1e-3, atol=1e-5), gradient, numeric)
    assert any(np.abs(g).max() > 1e-3 for g in jax.tree.leaves(numeric))


@pytest.mark.parametrize("scaling", [True, False])
def test_a_scaled_gradient_knows_no_unit_of_rewards(scaling):
    """Returns, bars and σ a hundredfold: DSAC-T's gradient of the bars is that of before, a hundredfold."""
    critic, sample = critic_of("normal", variance_scaling=scaling, variance_floor=1e-30), random_sample()
    params = critic.init_member(jax.random.key(3), OBS)

    @jax.jit
    def gradient(unit):
        def loss(outputs, sample):
            network = {"bars": unit * outputs, "variance": jnp.full((BATCH, 1), unit**2 * 0.7)}
            own = critic_of("normal", variance_scaling=scaling, variance_floor=1e-30)
            own.network = lambda name, obs: network[name]
            return own.loss({"bars": "bars", "variance": "variance"}, sample)

        # By the outputs before they are brought to the unit: one factor of the unit more.
        outputs = critic.network(params["bars"], sample.obs)
        return jax.grad(loss)(outputs, sample._replace(returns=unit * sample.returns)) / unit**2

    assert np.allclose(gradient(100.0), gradient(1.0), rtol=1e-4) == scaling


def test_a_scaled_gradient_by_hand():
    # Two states, σ² = 1 and 3, mean 2: residuals over √(1 + .2) and √(3 + .2); the bars lie on the guide but for +1.1.
    # Symmetric Huber with κ = 9: d/du ½·½(u/unit)² = ½u/unit²; over 2 states and 4 bars, times 2: 1.1/(8·unit²).
    critic = critic_of("normal", variance_scaling=True, guide="symmetric", kappa=9.0)
    sample = jax.tree.map(lambda x: x[:2], random_sample())
    guide = (sample.returns[:, None] + np.sqrt([[1.0], [3.0]]) * Z).astype(np.float32)
    outputs = {"variance": jnp.array([[1.0], [3.0]])}
    critic.network = lambda name, obs: outputs[name]

    def loss(bars):
        outputs["bars"] = bars
        return critic.loss({"bars": "bars", "variance": "variance"}, sample)

    expected = np.outer(1.1 / (8 * np.array([1.2, 3.2])), np.ones(4))
    np.testing.assert_allclose(jax.jit(jax.grad(loss))(guide + 1.1), expected, rtol=1e-5)


def test_the_two_networks_do_not_touch():
    # The bars' gradient must not feel the NLL, nor the variance's gradient the guide. The guide's κ changes the
    # first and not the second; a variance head far above the floor changes the NLL.
    sample = random_sample()
    loose, tight = critic_of("normal", kappa=1.0), critic_of("normal", kappa=0.01)
    params = loose.init_member(jax.random.key(3), OBS)
    gradient_of = jax.jit(jax.grad(loose.loss))
    a, b = (slope(params, sample) for slope in (gradient_of, jax.jit(jax.grad(tight.loss))))
    jax.tree.map(np.testing.assert_array_equal, a["variance"], b["variance"])
    assert not np.allclose(a["bars"][1]["b"], b["bars"][1]["b"])
    # With the variance floored everywhere (σ² = 1e-4 at raw −9) the variance network gets no gradient at all,
    # though σ enters the guide: the guide sends none.
    dead = params | {"variance": (params["variance"][0], params["variance"][1] | {"b": jnp.full(1, -9.0)})}
    gradient = gradient_of(dead, sample)
    assert all(np.all(np.asarray(g) == 0) for g in jax.tree.leaves(gradient["variance"]))
    assert all(np.any(np.asarray(g) != 0) for g in jax.tree.leaves(gradient["bars"]))


@pytest.mark.parametrize(
    ("head", "expected"),
    # raw −1, 0.005, 2 with floor .01: σ² = max(raw, .01); max(e^raw, .01); max(raw, .01)².
    [("variance", [0.01, 0.01, 2.0]), ("log_variance", [0.367879, 1.005013, 7.389056]), ("std", [1e-4, 1e-4, 4.0])],
)
def test_variance_heads(head, expected):
    critic = critic_of("normal", variance_head=head, variance_floor=0.01)
    np.testing.assert_allclose(critic.variance(jnp.array([-1.0, 0.005, 2.0])), expected, rtol=1e-5)
    assert critic.variance(jnp.array([-99.0]))[0] > 0
    assert AgentConfig().variance_floor == 1e-4  # method §2.1


def test_shared_trunk():
    critic = critic_of("normal", trunk="shared")
    params = critic.init_member(jax.random.key(0), OBS)
    assert [layer["w"].shape for layer in params["both"]] == [(OBS, 4), (4, N + 1)]
    obs = random_sample().obs
    bars, variance = jax.jit(critic.raw_and_variance)(params, obs)
    assert bars.shape == (BATCH, N) and variance.shape == (BATCH,)
    np.testing.assert_array_equal(jax.jit(critic.bars)(params, obs), bars)
    expected = forward(float64(params)["both"], np.asarray(obs, float))[:, :N]
    np.testing.assert_allclose(bars, expected, rtol=1e-4, atol=1e-6)


def test_plain_and_ensemble_predictions():
    obs = random_sample().obs
    for name, members in (("plain", 1), ("ensemble", 5)):
        critic = critic_of(name)
        params = critic.init(jax.random.key(1), OBS)
        assert len(params) == members
        values = np.stack([forward(float64(p), np.asarray(obs, float))[:, 0] for p in params], axis=1)
        got = jax.jit(critic.predict)(params, obs)
        np.testing.assert_allclose(got.bars, values, rtol=1e-4, atol=1e-6)
        np.testing.assert_allclose(got.mean, values.mean(1), rtol=1e-4, atol=1e-6)
        expected = values.std(1, ddof=1) if members > 1 else np.zeros(BATCH)  # ddof 1: divided by K − 1 = 4
        np.testing.assert_allclose(got.error, expected, rtol=1e-4, atol=1e-7)
        np.testing.assert_array_equal(got.std, got.error)


@pytest.mark.parametrize("name", ["quantile", "normal"])
def test_bar_predictions_with_several_members(name):
    # Bars, mean: averages over members. Error: the mean of the members' own errors (not that of the mean bars).
    critic = critic_of(name, members=2)
    obs = random_sample().obs
    params = critic.init(jax.random.key(1), OBS)
    nets = [float64(p["bars"] if name == "normal" else p) for p in params]
    bars = np.stack([forward(p, np.asarray(obs, float)) for p in nets])  # [K, B, N]
    assert np.abs(bars[0] - bars[1]).max() > 0.1  # members start apart
    mean = bars.mean(-1, keepdims=True)
    sigma = ((bars - mean) / Z).mean(-1, keepdims=True)
    errors = ((bars - mean - sigma * Z) ** 2).sum(-1)
    got = jax.jit(critic.predict)(params, obs)
    np.testing.assert_allclose(got.bars, bars.mean(0), rtol=1e-4, atol=1e-6)
    np.testing.assert_allclose(got.mean, mean[..., 0].mean(0), rtol=1e-4, atol=1e-6)
    in_order = np.sort(bars.mean(0), axis=-1)
    np.testing.assert_allclose(got.std, ((in_order - mean.mean(0)) / Z).mean(-1), rtol=1e-3, atol=1e-5)
    np.testing.assert_allclose(got.error, errors.mean(0), rtol=1e-3, atol=1e-5)


def test_fit_is_adam():
    # Three full-batch steps of Adam (β .9, .999, ε 1e-8) by hand, with central differences for the gradient.
    critic, sample = critic_of("plain", critic_iterations=3, critic_learning_rate=0.05), random_sample(5)
    params = critic.init(jax.random.key(4), OBS)
    start = optimisers.ADAM.init(params)
    got, _ = jax.jit(lambda p, o, s: fit(critic, p, o, (s,), 3))(params, start, sample)
    theta, s = float64(params[0]), Batch(*float64(tuple(sample)))
    np.testing.assert_allclose(total_loss(critic, params, (sample,)), squared(theta, s, None, None), rtol=1e-5)
    m = v = jax.tree.map(np.zeros_like, theta)
    for t in (1, 2, 3):
        g = numeric_gradient(lambda p: squared(p, s, None, None), theta)
        m = jax.tree.map(lambda m, g: 0.9 * m + 0.1 * g, m, g)
        v = jax.tree.map(lambda v, g: 0.999 * v + 0.001 * g**2, v, g)
        theta = jax.tree.map(
            lambda p, m, v, t=t: p - 0.05 * (m / (1 - 0.9**t)) / (np.sqrt(v / (1 - 0.999**t)) + 1e-8), theta, m, v
        )
    jax.tree.map(lambda a, b: np.testing.assert_allclose(a, b, rtol=1e-4, atol=1e-5), got[0], theta)


class Recorder(Critic):
    """Marks the rows a member learns from: one parameter per row, pulled from 0 towards 1 where the row is seen."""

    has_error = False
    default_weighting = "uniform"
    default_members = 3

    def init_member(self, key, obs_size):
        return jnp.zeros(13)

    def predict(self, params, obs):
        return Prediction(obs, obs[:, 0], obs[:, 0], obs[:, 0])

    def loss(self, params, sample):
        return jnp.mean((params[sample.obs[:, 0].astype(int)] - sample.returns) ** 2)


def test_members_see_disjoint_parts_redrawn_by_key():
    # 13 rows, 3 members: 4 rows each, one row left over. Row number = observation.
    critic = Recorder(AgentConfig())
    rows = jnp.arange(13.0)
    blank = jnp.zeros((13, 1))
    sample = Batch(rows[:, None], jnp.ones(13), rows, rows, rows, blank, blank)
    params = critic.init(jax.random.key(0), 1)

    @jax.jit
    def program(key):
        parts = divide(critic, sample, key)
        members, _ = fit(critic, params, optimisers.ADAM.init(params), parts, 2)
        return members, total_loss(critic, params, parts)

    def seen(key):
        members, loss = program(jax.random.key(key))
        assert loss == 3.0  # of three members: mean (0 − 1)²
        return np.stack([np.asarray(m) != 0 for m in members])

    a, again, b = seen(0), seen(0), seen(1)
    np.testing.assert_array_equal(a.sum(1), [4, 4, 4])
    assert a.sum(0).max() == 1 and a.sum() == 12
    np.testing.assert_array_equal(a, again)
    assert (a != b).any()
    assert not (a[0, :4].all() and a[1, 4:8].all())  # shuffled, not cut in order


def test_parameter_counts():
    # Width 128, observation 11: plain 11·128+128 + 128·128+128 + 128+1 = 18,177.
    # Normal: bars 18,048 + 129·8 = 19,080, variance 18,177: 37,257 (2.05×; the paper: 2.0 to 2.2×).
    # Ensemble: 5×. Shared: 18,048 + 129·9 = 19,209 (1.06×).
    def size(name, **settings):
        critic = CRITICS[name](AgentConfig(critic=name, **settings))
        return count(jax.eval_shape(lambda: critic.init(jax.random.key(0), 11)))

    plain = size("plain")
    assert plain == 18_177
    assert size("normal") == 37_257 and 2.0 <= size("normal") / plain <= 2.2
    assert size("ensemble") == 5 * plain
    assert size("normal", trunk="shared") == 19_209 <= 1.1 * plain


@pytest.mark.parametrize("name", [pytest.param("quantile", marks=pytest.mark.slow), "normal"])
def test_a_spread_is_never_negative(name: str) -> None:
    """Bars of a fresh network cross at most states; those in order say the same of the spread as shuffled ones."""
    critic = CRITICS[name](AgentConfig(critic=name, critic_hidden=(16,), n_quantiles=4))
    obs = jnp.asarray(np.random.default_rng(0).normal(size=(200, OBS)), jnp.float32)
    prediction = jax.jit(critic.predict)(critic.init(jax.random.key(3), OBS), obs)
    crossed = np.any(np.diff(prediction.bars, axis=1) < 0, axis=1)
    assert crossed.mean() > 0.5 and (np.asarray(prediction.std) >= 0).all()
    in_order = np.sort(prediction.bars, axis=1)
    z = np.array([-0.841621, -0.253347, 0.253347, 0.841621])
    by_hand = ((in_order - in_order.mean(axis=1, keepdims=True)) / z).mean(axis=1)
    np.testing.assert_allclose(prediction.std, by_hand, rtol=1e-4)


# --- networks of other kinds -------------------------------------------------------------------------------


def networks(member):
    """The networks of a member: its layers, or a table of such."""
    return [member] if isinstance(member, tuple) else list(member.values())


@pytest.mark.parametrize(
    ("name", "trunk"),
    [
        pytest.param(*each, marks=() if each in (("ensemble", "separate"), ("normal", "shared")) else pytest.mark.slow)
        for each in itertools.product(CRITICS, ("separate", "shared"))
    ],
)
def test_every_network_of_a_critic_starts_orthogonal(name, trunk):
    critic = critic_of(name, ortho_init=True, trunk=trunk)
    members = critic.init(jax.random.key(0), OBS)
    found = [network for member in members for network in networks(member)]
    guided = 2 if trunk == "separate" else 1
    assert len(found) == {"ensemble": 5, "normal": guided, "hl_gauss": guided}.get(name, 1)
    for hidden, last in found:
        np.testing.assert_allclose(np.linalg.svd(hidden["w"])[1], np.sqrt(2), rtol=1e-5)
        np.testing.assert_allclose(np.linalg.svd(last["w"])[1], 1.0, rtol=1e-5)
        assert not np.any(hidden["b"]) and not np.any(last["b"])


@pytest.mark.parametrize("name", CRITICS)
def test_activation_and_layer_norm_reach_every_network(name):
    """Behind a layer norm whose scale is 0 and whose shift is 1, four tanh of 1 = 0.761594 each come to 3.046377."""
    critic = critic_of(name, critic_activation="tanh", critic_layer_norm=True)
    members = critic.init(jax.random.key(0), OBS)
    for member in members:
        for hidden, last in networks(member):
            hidden["scale"], hidden["shift"] = jnp.zeros(4), jnp.ones(4)
            last["w"], last["b"] = jnp.ones_like(last["w"]), jnp.zeros_like(last["b"])
    obs = random_sample().obs
    if name in ("normal", "hl_gauss"):
        for found in jax.jit(critic.raw_and_variance)(members[0], obs):
            np.testing.assert_allclose(found, np.full_like(found, 3.046377), rtol=1e-5)
    else:
        np.testing.assert_allclose(jax.jit(critic.predict)(members, obs).mean, np.full(BATCH, 3.046377), rtol=1e-5)


# --- HL-Gauss ----------------------------------------------------------------------------------------------


def test_histogram_by_hand():
    # Four bins over [-2, 2] with p = .1, .2, .4, .3: F(-1) = .1, F(0) = .3, F(1) = .7. With N = 4 the bars are at
    # .2, .4, .6, .8: -1 + .1/.2, 0 + .1/.4, 0 + .3/.4, 1 + .1/.3. Mean -1.5(.1) - .5(.2) + .5(.4) + 1.5(.3) = .4.
    critic = critic_of("hl_gauss", value_bins=4, value_max=2.0)
    p = jnp.array([[0.1, 0.2, 0.4, 0.3], [0.0, 0.0, 1.0, 0.0]])
    bars = jax.jit(critic.quantiles_of)(p)
    np.testing.assert_allclose(bars, [[-0.5, 0.25, 0.75, 4 / 3], [0.2, 0.4, 0.6, 0.8]], rtol=1e-5, atol=1e-6)
    mean, std = jax.jit(critic.moments)(p)
    np.testing.assert_allclose(mean, [0.4, 0.5], rtol=1e-6)
    np.testing.assert_allclose(std, [np.sqrt(0.1 * 1.9**2 + 0.2 * 0.9**2 + 0.4 * 0.1**2 + 0.3 * 1.1**2), 0], atol=1e-6)


def test_targets_keep_the_mean_and_take_the_width_of_the_state():
    critic = critic_of("hl_gauss", value_bins=101, value_max=20.0)
    returns, sigma = jnp.array([0.0, 3.21, -7.5, 2.0, 500.0]), jnp.array([1.0, 2.0, 0.8, 1e-3, 1.0])
    mean, std = jax.jit(lambda r, s: critic.moments(critic.target(r, s**2)))(returns, sigma)
    np.testing.assert_allclose(mean[:4], returns[:4], atol=1e-3)
    width = 40 / 101
    wide = np.sqrt(np.maximum(sigma[:3], 0.75 * width) ** 2 + width**2 / 12)  # Sheppard's correction
    np.testing.assert_allclose(std[:3], wide, rtol=1e-3)
    np.testing.assert_allclose(std[3], np.sqrt((0.75 * width) ** 2 + width**2 / 12), rtol=1e-2)
    assert 18 < mean[4] < 20, "cut to the range"


def test_a_histogram_learns_the_distribution_of_returns():
    """Returns N(2, 1²): the mean is theirs; the variance that of the mixture of N(G, σ_ψ²), their own and σ_ψ² = 1."""
    critic = critic_of("hl_gauss", value_bins=51, value_max=10.0, n_quantiles=8, critic_learning_rate=0.03)
    returns = 2 + norm.ppf((np.arange(200) + 0.5) / 200)
    number = jnp.asarray(returns, jnp.float32)
    sample = Batch(jnp.ones((200, OBS)), number, number, number, number, jnp.zeros((200, 8)), jnp.zeros((200, 8)))
    params = critic.init(jax.random.key(1), OBS)
    learn = jax.jit(lambda params: fit(critic, params, optimisers.ADAM.init(params), (sample,), 600)[0])
    told = jax.jit(critic.predict)(learn(params), sample.obs[:1])
    np.testing.assert_allclose(told.mean, [2.0], atol=0.05)
    np.testing.assert_allclose(told.std, [np.sqrt(2)], rtol=0.1)
    assert np.all(np.diff(told.bars) > 0) and told.error < 0.1


@pytest.mark.parametrize("name", list(CRITICS))
def test_the_weighting_of_a_critic_is_that_of_its_variant(name):
    assert weighting_of(AgentConfig(critic=name)) == CRITICS[name].default_weighting
    assert weighting_of(AgentConfig(critic=name, weighting="exploration")) == "exploration"
