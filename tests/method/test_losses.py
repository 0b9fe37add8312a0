"""The losses against numbers worked by hand, SciPy, and the fixed points that method §2.1 states."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy.stats import norm

from mcclt.method import losses
from mcclt.method.normal import fit_normal, taus, z_table


def test_huber():
    # κ = 2: inside ½u²; outside 2(|u| − 1). At |u| = 2 both are 2.
    u = jnp.array([0.0, 1.0, -1.0, 2.0, 3.0, -5.0])
    np.testing.assert_allclose(losses.huber(u, 2.0), [0.0, 0.5, 0.5, 2.0, 4.0, 8.0])
    # κ = 1: ½·0.25 inside, |u| − ½ outside; the slope is u inside and ±κ outside.
    np.testing.assert_allclose(losses.huber(jnp.array([0.5, 3.0]), 1.0), [0.125, 2.5])
    slope = jax.vmap(jax.grad(lambda x: losses.huber(x, 2.0)))(u)
    np.testing.assert_allclose(slope, [0.0, 1.0, -1.0, 2.0, 2.0, -2.0])


def test_quantile_huber():
    # u = target − prediction. u ≥ 0 (prediction too low) costs τ·H, u < 0 costs (1 − τ)·H. H(±3) = 2.5, H(±.5) = .125.
    u, tau = jnp.array([3.0, -3.0, 0.5, -0.5, 0.0]), jnp.full(5, 0.9)
    np.testing.assert_allclose(
        losses.quantile_huber(u, tau, 1.0), [0.9 * 2.5, 0.1 * 2.5, 0.9 * 0.125, 0.1 * 0.125, 0.0], rtol=1e-6
    )


def test_symmetric_huber():
    # ½H whatever the sign and τ.
    u = jnp.array([3.0, -3.0, 0.5, -0.5])
    np.testing.assert_allclose(losses.symmetric_huber(u, jnp.full(4, 0.9), 1.0), [1.25, 1.25, 0.0625, 0.0625])


def test_gaussian_nll():
    # e = 3, σ² = 4: 9/8 + ½ ln 4 = 1.125 + 0.693147 = 1.818147.
    np.testing.assert_allclose(losses.gaussian_nll(jnp.array(9.0), jnp.array(4.0)), 1.818147, rtol=1e-6)
    rng = np.random.default_rng(0)
    e, variance = rng.normal(size=20), rng.uniform(0.1, 9, size=20)
    expected = -norm.logpdf(e, scale=np.sqrt(variance)) - 0.5 * np.log(2 * np.pi)
    np.testing.assert_allclose(
        losses.gaussian_nll(jnp.asarray(e**2, jnp.float32), jnp.asarray(variance, jnp.float32)),
        expected,
        rtol=1e-5,
        atol=1e-6,
    )
    # Its minimum over σ² is at σ² = e²: the derivative −e²/(2σ⁴) + 1/(2σ²) is 0 there.
    assert abs(jax.grad(losses.gaussian_nll, argnums=1)(9.0, 9.0)) < 1e-7


@pytest.mark.parametrize(
    ("ratio", "advantage", "expected"),
    [
        (1.5, 2.0, 1.2 * 2.0),  # good action, ratio already high: cut at 1.2
        (0.5, 2.0, 0.5 * 2.0),  # good action, ratio low: not cut (min takes the smaller)
        (1.5, -2.0, 1.5 * -2.0),  # bad action, ratio high: not cut
        (0.5, -2.0, 0.8 * -2.0),  # bad action, ratio already low: cut at 0.8
        (1.1, 2.0, 2.2),
        (1.1, -2.0, -2.2),  # inside the clip range nothing is cut
    ],
)
def test_ppo_surrogate(ratio, advantage, expected):
    args = jnp.array(ratio), jnp.array(advantage)
    np.testing.assert_allclose(losses.ppo_surrogate(*args, jnp.array(1.0), 0.2), expected, rtol=1e-6)
    np.testing.assert_allclose(losses.ppo_surrogate(*args, jnp.array(0.7), 0.2), 0.7 * expected, rtol=1e-6)


def test_trpo_surrogate():
    # w·r·Â = 0.5 · 1.5 · (−4) = −3: no clipping.
    np.testing.assert_allclose(losses.trpo_surrogate(jnp.array(1.5), jnp.array(-4.0), jnp.array(0.5)), -3.0)


def test_spread_that_each_guide_learns():
    # Returns G ~ N(100, 20²) as 4,001 equally likely quantiles, σ_ψ = 20, N = 8, κ = 1. The losses are convex in
    # each bar, so the bar is where the mean slope changes sign: bisection, all bars at once.
    # Method §2.1: implied σ 39.6 with u = q' − q, 0.35 with the paper's literal u = q − q', 20.0 symmetric.
    # With variance_scaling κ is 1 in units of √(σ_ψ² + .1·mean σ_ψ²) = 20√1.1: 34.9, between quantiles and expectiles.
    returns = jnp.asarray(norm.ppf((np.arange(4001) + 0.5) / 4001, 100, 20), jnp.float32)
    guide = returns[None, :] + 20.0 * z_table(8)[:, None]
    tau = jnp.asarray(taus(8)[:, None])
    kinds = {
        "quantile": lambda q: losses.quantile_huber(guide - q[:, None], tau, 1.0),
        "literal": lambda q: losses.quantile_huber(q[:, None] - guide, tau, 1.0),
        "symmetric": lambda q: losses.symmetric_huber(guide - q[:, None], tau, 1.0),
        "scaled": lambda q: losses.quantile_huber((guide - q[:, None]) / (20 * 1.1**0.5), tau, 1.0),
    }
    implied = {}
    for name, loss in kinds.items():
        slope = jax.jit(jax.grad(lambda q, loss=loss: jnp.sum(jnp.mean(loss(q), axis=1))))
        low, high = jnp.full(8, 0.0), jnp.full(8, 200.0)
        for _ in range(30):
            middle = (low + high) / 2
            up = slope(middle) < 0
            low, high = jnp.where(up, middle, low), jnp.where(up, high, middle)
        mean, std, _ = fit_normal(low)
        assert abs(mean - 100) < 0.05
        implied[name] = float(std)
    assert abs(implied["quantile"] - 39.6) < 0.1
    assert abs(implied["literal"] - 0.35) < 0.05
    assert abs(implied["symmetric"] - 20.0) < 0.05
    assert abs(implied["scaled"] - 34.9) < 0.1
