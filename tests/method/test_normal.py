"""Quantile bars and the normal they stand for, against numbers worked by hand and against SciPy."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.stats import norm

from mcclt.method import normal
from mcclt.method.normal import taus, z_table

fit_normal, normality_error = jax.jit(normal.fit_normal), jax.jit(normal.normality_error)
SIZES = (2, 5, 8)
quick = settings(deadline=None, max_examples=40)
whole_bars = st.sampled_from(SIZES).flatmap(
    lambda n: st.lists(st.integers(-100, 100).map(float), min_size=n, max_size=n)
)


def error_of(bars, **options) -> float:
    return float(normality_error(jnp.asarray([bars], jnp.float32), **options)[0])


def test_z_of_the_paper():
    # N = 4: Φ⁻¹(0.2, 0.4, 0.6, 0.8), figure 3 of the paper.
    # The paper cuts the decimals off: 0.8416 is printed as 0.841.
    np.testing.assert_allclose(np.trunc(z_table(4) * 1000) / 1000, [-0.841, -0.253, 0.253, 0.841], rtol=1e-6)
    np.testing.assert_allclose(taus(4), [0.2, 0.4, 0.6, 0.8], rtol=1e-6)


@pytest.mark.parametrize("n", [1, 2, 3, 4, 5, 8, 12, 20, 51])
def test_z_against_scipy(n):
    z = z_table(n)
    np.testing.assert_allclose(z, norm.ppf((np.arange(n) + 1) / (n + 1)), rtol=1e-6, atol=1e-7)
    np.testing.assert_array_equal(z, -z[::-1])  # antisymmetric exactly
    if n % 2:
        assert z[n // 2] == 0


def test_asymmetric_bars_by_hand():
    # bars 0 1 2 5: mean 2, deviations −2 −1 0 3; Z = ∓0.841621, ∓0.253347.
    # σ_i = 2/0.841621, 1/0.253347, 0, 3/0.841621 = 2.376366, 3.947155, 0, 3.564550; mean 9.888071/4 = 2.472018.
    # q'  = 2 ∓ 2.472018·(0.841621, 0.253347) = −0.080503, 1.373722, 2.626278, 4.080503.
    # E   = 0.080503² + 0.373722² + 0.626278² + 0.919497² = 0.006481 + 0.139668 + 0.392224 + 0.845475 = 1.383848.
    mean, std, crossed = fit_normal(jnp.array([[0.0, 1.0, 2.0, 5.0]]))
    assert mean[0] == 2.0
    np.testing.assert_allclose(std[0], 2.472018, rtol=1e-5)
    assert not crossed[0]  # the bar on the mean has σ_i = 0, which is not negative
    np.testing.assert_allclose(error_of([0, 1, 2, 5]), 1.383848, rtol=1e-5)


def test_odd_bars_by_hand():
    # bars 0 1 5: mean 2, Z = ∓0.674490 and 0. The middle is left out: σ = (2 + 3)/(2·0.674490) = 3.706504.
    # q' = 2 − 2.5, 2, 2 + 2.5 = −0.5, 2, 4.5; E = 0.25 + 1 + 0.25 = 1.5 (exactly, whatever Z is).
    mean, std, _ = fit_normal(jnp.array([[0.0, 1.0, 5.0]]))
    np.testing.assert_allclose([mean[0], std[0]], [2.0, 3.706504], rtol=1e-5)
    np.testing.assert_allclose(error_of([0, 1, 5]), 1.5, rtol=1e-5)


def test_crossing():
    # 1 0 2 3 has mean 1.5: bars 0 and 1 are swapped but both lie below the mean, so nothing is crossed.
    # 0 2 1 3 has mean 1.5: bar 1 (Z < 0) lies above it, σ_1 < 0.  3 2 1 0: all four are on the wrong side.
    bars = jnp.array([[1.0, 0.0, 2.0, 3.0], [0.0, 2.0, 1.0, 3.0], [3.0, 2.0, 1.0, 0.0]])
    np.testing.assert_array_equal(fit_normal(bars)[2], [False, True, True])
    plain, marked = normality_error(bars), normality_error(bars, crossing_error=1e5)
    assert plain[0] == marked[0]
    np.testing.assert_array_equal(marked[1:], [1e5, 1e5])
    assert float(jnp.max(plain)) < 100


def test_leading_axes():
    bars = np.random.default_rng(0).normal(size=(2, 3, 8)).astype(np.float32)
    flat = normality_error(jnp.asarray(bars.reshape(6, 8)))
    np.testing.assert_allclose(normality_error(jnp.asarray(bars)), flat.reshape(2, 3), rtol=1e-5)
    np.testing.assert_allclose(normality_error(jnp.asarray(bars[1, 2])), flat[5], rtol=1e-5)


@quick
@given(st.sampled_from(SIZES), st.integers(-1000, 1000), st.floats(1e-3, 1e3))
def test_exact_normal_bars_have_no_error(n, mean, std):
    bars = (mean + std * norm.ppf((np.arange(n) + 1) / (n + 1))).astype(np.float32)
    # Rounding the bars to float32 moves each by at most 6e-8·size, and E is a sum of n squares.
    size = abs(mean) + 3 * std
    assert error_of(bars) <= n * (5e-7 * size) ** 2
    got_mean, got_std, _ = fit_normal(jnp.asarray(bars[None]))
    np.testing.assert_allclose([got_mean[0], got_std[0]], [mean, std], atol=3e-6 * size)


@quick
@given(whole_bars, st.integers(-1000, 1000))
def test_shift_changes_nothing(bars, shift):
    # In exact arithmetic equal; in float32 each residual is off by about 1e-7·(|bar| + |shift|).
    residual = 1e-6 * (100 + abs(shift))
    tolerance = len(bars) * (2 * residual * 250 + residual**2)
    assert abs(error_of(np.array(bars) + shift) - error_of(bars)) <= tolerance


@quick
@given(whole_bars, st.integers(-10, 10))
def test_scales_as_the_square(bars, power):
    c = 2.0**power  # a power of two: float32 scales exactly
    assert error_of(np.array(bars) * c) == error_of(bars) * c * c


@quick
@given(whole_bars)
def test_finite_and_against_float64(bars):
    # Independent: the definition in float64 with SciPy's quantiles; odd N skips its middle bar.
    n, q = len(bars), np.array(bars)
    z = norm.ppf((np.arange(n) + 1) / (n + 1))
    if n % 2:
        z[n // 2] = 0.0  # ppf(0.5)
    keep = z != 0
    sigmas = (q - q.mean())[keep] / z[keep]
    expected = np.sum((q - q.mean() - sigmas.mean() * z) ** 2)
    got = error_of(bars)
    assert np.isfinite(got) and got >= 0
    np.testing.assert_allclose(got, expected, rtol=1e-4, atol=1e-5)
    crossed = fit_normal(jnp.asarray([bars], jnp.float32))[2][0]
    if np.abs(sigmas).min() > 1e-3:  # clear of rounding
        assert bool(crossed) == bool((sigmas < 0).any())
