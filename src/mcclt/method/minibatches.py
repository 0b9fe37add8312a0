"""Minibatches: a pass over a batch, some of its states at a time, in an order drawn anew for every pass."""

from typing import Any

import jax

from mcclt.method.randomness import permutation


def shuffled(key: jax.Array, batch: Any, size: int) -> Any:
    """The rows of a batch (a pytree of [B, ...]) in random order, as minibatches [B // size, size, ...].

    Rows are gathered once for the whole pass: to gather them at every step costs more than the step's arithmetic.
    What does not fill a last minibatch is left out; the next pass leaves out others.
    """
    rows = jax.tree.leaves(batch)[0].shape[0]
    count = rows // size
    order = permutation(key, rows)[: count * size]
    return jax.tree.map(lambda x: x[order].reshape(count, size, *x.shape[1:]), batch)
