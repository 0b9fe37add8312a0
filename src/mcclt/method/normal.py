"""Quantile bars and the normal they stand for (paper §4.4, §4.5, figure 3)."""

import functools

import jax
import jax.numpy as jnp
import numpy as np
from scipy.special import ndtri


@functools.cache
def taus(n: int) -> np.ndarray:
    """τ_i = (i+1)/(N+1), i = 0 … N−1: the probability below each bar. [N] float32."""
    return ((np.arange(n) + 1) / (n + 1)).astype(np.float32)


@functools.cache
def z_table(n: int) -> np.ndarray:
    """Z[i] = Φ⁻¹((i+1)/(N+1)): the standard normal's bars, antisymmetric by construction. [N] float32.

    For N = 4: −0.841, −0.253, 0.253, 0.841.
    """
    z = ndtri((np.arange(n) + 1) / (n + 1))
    return ((z - z[::-1]) / 2).astype(np.float32)  # the middle of an odd N is then exactly 0


def fit_normal(bars: jax.Array) -> tuple[jax.Array, jax.Array, jax.Array]:
    """The normal N(q_avg, σ_avg²) that bars [..., N] stand for.

    σ_i = (q_i − q_avg)/Z[i] is the deviation that puts bar i on its quantile; σ_avg is their mean. Odd N
    has Z = 0 in the middle: that bar says nothing about the spread and is left out of the mean.

    Returns:
        q_avg [...], σ_avg [...], and whether any σ_i is negative [...] (a bar on the wrong side of the mean).
    """
    n = bars.shape[-1]
    z = z_table(n)
    informative = z != 0
    inverse = np.where(informative, 1 / np.where(informative, z, 1), 0).astype(np.float32)
    mean = jnp.mean(bars, axis=-1)
    sigmas = (bars - mean[..., None]) * inverse.reshape((1,) * mean.ndim + (n,))
    return mean, jnp.sum(sigmas, axis=-1) / informative.sum(), jnp.any(sigmas < 0, axis=-1)


def normality_error(bars: jax.Array, crossing_error: float | None = None) -> jax.Array:
    """How far bars [..., N] are from the normal they stand for, [...]: E = Σ_i (q_i − q'_i)².

    q'_i = q_avg + σ_avg Z[i]. E is 0 for exact normal bars, does not change when bars are shifted, and
    scales as c² when they are scaled by c. With `crossing_error`, a state with a bar on the wrong side of
    the mean gets that value instead (1e5 in the authors' code; the paper is silent).
    """
    mean, std, crossed = fit_normal(bars)
    z = z_table(bars.shape[-1]).reshape((1,) * mean.ndim + (-1,))
    error = jnp.sum((bars - mean[..., None] - std[..., None] * z) ** 2, axis=-1)
    return error if crossing_error is None else jnp.where(crossed, crossing_error, error)
