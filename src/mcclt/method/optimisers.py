"""Optimisers: Adam, with a limit on the gradient's length, and settings that decay while an agent learns."""

from typing import Any

import jax
import jax.numpy as jnp
import optax
from jax.typing import ArrayLike

from mcclt.method.nets import Params

ADAM = optax.chain(optax.scale_by_adam())
"""Without a rate inside, so that its state is the same whatever the rate. (A chain: so it is named in checkpoints.)"""


def progress(update: jax.Array, steps_per_update: int, decay_steps: ArrayLike | None) -> jax.Array:
    """How far the decay of settings has come when an agent makes its update number `update` (from 0): 0 to 1.

    The first update is made at the full value; the last of `decay_steps` steps is one update away from the end.
    """
    if decay_steps is None:
        return jnp.zeros(())
    return jnp.clip(update * steps_per_update / decay_steps, 0.0, 1.0)


def decayed(first: ArrayLike, last: ArrayLike | None, progress: ArrayLike | None) -> ArrayLike:
    """A setting that falls (or grows) linearly from `first` to `last`, or stays."""
    return first if last is None else first + (last - first) * progress  # type: ignore[operator]


def step(params: Params, grads: Params, state: Any, rate: ArrayLike, max_norm: ArrayLike | None) -> tuple[Params, Any]:
    """One step of Adam against the gradients; those longer than `max_norm`, all together, are shortened to it."""
    if max_norm is not None:
        norm = optax.tree.norm(grads)
        grads = jax.tree.map(lambda g: g * jnp.minimum(1.0, max_norm / jnp.maximum(norm, 1e-20)), grads)
    updates, state = ADAM.update(grads, state)
    return jax.tree.map(lambda p, u: p - rate * u, params, updates), state


def steps_taken(state: Any) -> jax.Array:
    """How many steps led to a state of `ADAM`."""
    return optax.tree_utils.tree_get(state, "count")
