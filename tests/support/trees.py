"""What tests compare: trees of arrays, and logs."""

from collections.abc import Iterable
from typing import Any

import jax
import numpy as np


def assert_same(a: Any, b: Any) -> None:
    """Bit for bit."""
    assert jax.tree.structure(a) == jax.tree.structure(b)
    for x, y in zip(jax.tree.leaves(a), jax.tree.leaves(b), strict=True):
        np.testing.assert_array_equal(x, y)


def assert_close(a: Any, b: Any, rtol: float = 1e-4, atol: float = 1e-6) -> None:
    for x, y in zip(jax.tree.leaves(a), jax.tree.leaves(b), strict=True):
        np.testing.assert_allclose(x, y, rtol=rtol, atol=atol)


def one_of(stacked: Any, i: int) -> Any:
    """The i-th of agents, rollouts, ... that are stacked."""
    return jax.tree.map(lambda x: np.asarray(x)[i], stacked)


def timeless(rows: Iterable[dict[str, Any]]) -> list[dict[str, Any]]:
    """What was logged, but for when, and how long it took."""
    return [{k: v for k, v in row.items() if not k.startswith("time")} for row in rows]
