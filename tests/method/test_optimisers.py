"""Adam, falling rates and shortened gradients, against a NumPy re-derivation in float64."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from mcclt.method import optimisers

START = {"w": np.array([[1.0, -2.0], [0.5, 3.0]]), "b": np.array([0.1, -0.1])}
GRADS = [
    {"w": np.array([[3.0, 0.0], [4.0, 0.0]]), "b": np.array([0.0, 12.0])},  # of length 13
    {"w": np.array([[-0.3, 0.0], [0.0, 0.0]]), "b": np.array([0.0, 0.4])},  # of length 0.5
]


def numpy_adam(rates: list[float], max_norm: float | None) -> dict[str, np.ndarray]:
    """Kingma and Ba's algorithm 1, with β₁ = .9, β₂ = .999, ε = 1e-8; gradients clipped as PyTorch does it."""
    x = {k: v.copy() for k, v in START.items()}
    m, v = ({k: np.zeros_like(a) for k, a in START.items()} for _ in range(2))
    for t, (grads, rate) in enumerate(zip(GRADS, rates, strict=True), 1):
        length = np.sqrt(sum((g**2).sum() for g in grads.values()))
        scale = 1.0 if max_norm is None else min(1.0, max_norm / length)
        for k, g in grads.items():
            m[k] = 0.9 * m[k] + 0.1 * scale * g
            v[k] = 0.999 * v[k] + 0.001 * (scale * g) ** 2
            x[k] -= rate * (m[k] / (1 - 0.9**t)) / (np.sqrt(v[k] / (1 - 0.999**t)) + 1e-8)
    return x


@pytest.mark.parametrize("max_norm", [None, 1.0, 100.0])
def test_steps(max_norm: float | None) -> None:
    rates = [0.1, 0.02]
    params = jax.tree.map(jnp.float32, START)
    state = optimisers.ADAM.init(params)
    for k, (grads, rate) in enumerate(zip(GRADS, rates, strict=True)):
        assert optimisers.steps_taken(state) == k
        params, state = optimisers.step(params, jax.tree.map(jnp.float32, grads), state, rate, max_norm)
    expected = numpy_adam(rates, max_norm)
    for k in START:
        np.testing.assert_allclose(params[k], expected[k], rtol=1e-5, atol=1e-6)
    if max_norm == 1.0:
        assert any(np.abs(expected[k] - numpy_adam(rates, None)[k]).max() > 1e-3 for k in START), "it matters"


def test_no_gradient_is_not_divided_by_its_length() -> None:
    params = jax.tree.map(jnp.float32, START)
    new, _ = optimisers.step(params, jax.tree.map(jnp.zeros_like, params), optimisers.ADAM.init(params), 0.1, 1.0)
    for k in START:
        np.testing.assert_array_equal(new[k], params[k])


def test_rates_fall_linearly() -> None:
    # 1,000 steps in updates of 250: updates 0 to 3 at 0, 1/4, 1/2 and 3/4 of the way from 0.4 to 0.
    found = [float(optimisers.progress(jnp.int32(u), 250, 1000)) for u in range(6)]
    assert found == [0, 0.25, 0.5, 0.75, 1, 1], "and it stays at its end"
    np.testing.assert_allclose([optimisers.decayed(0.4, 0.0, p) for p in found[:4]], [0.4, 0.3, 0.2, 0.1])
    assert optimisers.decayed(0.4, None, 0.5) == 0.4
    assert optimisers.progress(jnp.int32(3), 250, None) == 0
