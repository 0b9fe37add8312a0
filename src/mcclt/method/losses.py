"""The losses, element by element: means over bars and batch are taken by the callers."""

import jax
import jax.numpy as jnp
from jax.typing import ArrayLike


def huber(u: jax.Array, kappa: float) -> jax.Array:
    """Eq. 7: ½u² where |u| < κ, else κ(|u| − ½κ)."""
    size = jnp.abs(u)
    return jnp.where(size < kappa, 0.5 * u**2, kappa * (size - 0.5 * kappa))


def quantile_huber(u: jax.Array, tau: ArrayLike, kappa: float) -> jax.Array:
    """Eq. 8: ρ(u) = |τ − 1{u<0}| · Huber_κ(u), with u = target − prediction.

    The paper writes u = prediction − target. Taken literally, the learnt spread of a random return cancels
    against the guide's; the standard direction is this one, which the authors' code uses for MC-CLT.
    """
    return jnp.abs(tau - (u < 0)) * huber(u, kappa)


def symmetric_huber(u: jax.Array, tau: ArrayLike, kappa: float) -> jax.Array:
    """½ · Huber_κ(u): the guide that converges to μ + σ_ψ Z[i], the normal the paper says it wants.

    With the quantile weights of eq. 8, bar i converges to the τ_i-quantile of G + σ_ψ Z[i], which adds the
    spread of the return to the spread of the guide.
    """
    del tau
    return 0.5 * huber(u, kappa)


def gaussian_nll(squared_error: jax.Array, variance: jax.Array) -> jax.Array:
    """Eq. 6: e²/(2σ²) + ½ ln σ². The caller stops the gradient through e²."""
    return squared_error / (2 * variance) + 0.5 * jnp.log(variance)


def ppo_surrogate(ratio: jax.Array, advantage: jax.Array, weight: jax.Array, clip: float) -> jax.Array:
    """W · min(r Â, clip(r, 1±c) Â): to be maximised."""
    clipped = jnp.clip(ratio, 1 - clip, 1 + clip)
    return weight * jnp.minimum(ratio * advantage, clipped * advantage)


def trpo_surrogate(ratio: jax.Array, advantage: jax.Array, weight: jax.Array) -> jax.Array:
    """Eq. 10: w · r · Â: to be maximised."""
    return weight * ratio * advantage
