"""Advantages and returns. Termination (value 0 after it) and truncation (bootstrap) are never merged.

Time is the leading axis, environments the second: every array is [T, E]. `value[t]` is V(s_t) and
`next_value[t]` is V(s_{t+1}) at the *true* successor: the last state of a cut episode, or of the rollout.
"""

import jax
import jax.numpy as jnp


def td_target(reward: jax.Array, next_value: jax.Array, terminated: jax.Array, gamma: float) -> jax.Array:
    """r_t + γ V(s_{t+1}), with V = 0 after termination."""
    return reward + gamma * jnp.where(terminated, 0.0, next_value)


def gae(td_error: jax.Array, terminated: jax.Array, truncated: jax.Array, gamma: float, gae_lambda: float) -> jax.Array:
    """Â_t = δ_t + γλ Â_{t+1}, the sum stopping where the episode ends or is cut.

    Args:
        td_error: δ_t = r_t + γ V(s_{t+1}) − V(s_t), weighted or not.
        terminated: whether the task ended after step t.
        truncated: whether the time limit cut the episode after step t.
        gamma: discount γ.
        gae_lambda: λ.

    Returns:
        Â [T, E].
    """
    decay = gamma * gae_lambda * ~(terminated | truncated)
    return _backward_sum(td_error, decay)


def monte_carlo(
    reward: jax.Array, next_value: jax.Array, terminated: jax.Array, truncated: jax.Array, gamma: float
) -> jax.Array:
    """G_t = r_t + γ G_{t+1}; a cut (time limit or end of rollout) continues with V(s_{t+1})."""
    cut = (truncated & ~terminated).at[-1].set(~terminated[-1])
    reward = reward + gamma * jnp.where(cut, next_value, 0.0)
    decay = gamma * ~(terminated | truncated)
    return _backward_sum(reward, decay)


def normalised(advantage: jax.Array) -> jax.Array:
    """Of mean 0 and deviation 1 over all given."""
    return (advantage - jnp.mean(advantage)) / (jnp.std(advantage) + 1e-8)


def _backward_sum(x: jax.Array, decay: jax.Array) -> jax.Array:
    """y_t = x_t + decay_t y_{t+1}, from the back, with y_T = 0."""

    def step(y, xs):
        x_t, decay_t = xs
        y = x_t + decay_t * y
        return y, y

    return jax.lax.scan(step, jnp.zeros_like(x[0]), (x, decay), reverse=True)[1]
