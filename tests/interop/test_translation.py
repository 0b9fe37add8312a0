"""Traced functions become graphs that compute the same."""

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from mcclt.interop.export import IR_VERSION, OPSET
from mcclt.interop.translation import CALLS, NODES, RULES, Graph, Untranslatable

onnx, onnxruntime = pytest.importorskip("onnx"), pytest.importorskip("onnxruntime")

RNG = np.random.default_rng(0)
W = RNG.normal(size=(4, 3)).astype(np.float32)
MANY = RNG.normal(size=(5, 4, 3)).astype(np.float32)


def translated(function: Callable[..., Any], columns: int) -> Callable[[np.ndarray], np.ndarray]:
    """A function's graph, as ONNX Runtime computes it."""
    graph = Graph(lambda x: [function(x)], columns, ["y"])
    model = onnx.helper.make_model(
        onnx.helper.make_graph(graph.nodes, "g", graph.inputs, graph.outputs, graph.constants),
        opset_imports=[onnx.helper.make_opsetid("", OPSET)],
        ir_version=IR_VERSION,
    )
    onnx.checker.check_model(model, full_check=True)
    session = onnxruntime.InferenceSession(model.SerializeToString())
    return lambda x: session.run(None, {"observation": x})[0]


@jax.custom_vjp
def _doubled(x: jax.Array) -> jax.Array:
    return 2 * x


_doubled.defvjp(lambda x: (2 * x, None), lambda _, g: (2 * g,))

FUNCTIONS: dict[str, Callable[[jax.Array], jax.Array]] = {
    # networks
    "a product": lambda x: x @ W,
    "a product of transposed ones": lambda x: (W.T @ x.T).T,
    "products of many": lambda x: jax.vmap(lambda w: x @ w)(MANY),
    "products by einsum": lambda x: jnp.einsum("bi,kij->bkj", x, MANY),
    "row by row": lambda x: jax.vmap(lambda row: row[0] * jnp.dot(row, row))(x),
    "tanh": jnp.tanh,
    "relu": jax.nn.relu,
    "leaky relu": jax.nn.leaky_relu,
    "elu": jax.nn.elu,
    "gelu": lambda x: jax.nn.gelu(x, approximate=False),
    "softplus": jax.nn.softplus,
    "silu": jax.nn.silu,
    "softmax": jax.nn.softmax,
    "log-softmax": jax.nn.log_softmax,
    "own derivative": _doubled,
    # distributions
    "normal's probabilities": lambda x: jax.scipy.stats.norm.cdf(x),
    "normal's density": lambda x: jax.scipy.stats.norm.logpdf(x, 1.0, 2.0),
    "deviation": lambda x: jnp.std(x, axis=1),
    "median": lambda x: jnp.median(x, axis=1),
    "quantile": lambda x: jnp.quantile(x, 0.3, axis=1),
    "bars that never cross": lambda x: jnp.cumsum(jax.nn.softplus(x), axis=1),
    "in order": lambda x: jnp.sort(x, axis=1),
    "moments": lambda x: jnp.stack([x.mean(axis=1), x.max(axis=1), x.min(axis=1), x.prod(axis=1)], axis=1),
    "logsumexp": lambda x: jax.nn.logsumexp(x, axis=1),
    # numbers
    "powers": lambda x: x**3 + x**2 + jnp.abs(x) ** 1.5 + 1 / (1 + x**2),
    "roots": lambda x: jnp.sqrt(jnp.abs(x)) + jax.lax.rsqrt(1 + x * x) + jnp.log1p(jnp.abs(x)) + jnp.expm1(x),
    "waves": lambda x: jnp.sin(x) + jnp.cos(x) - jnp.tan(x / 9),
    "steps": lambda x: jnp.floor(x) + jnp.ceil(x) * jnp.sign(x),
    "clipped": lambda x: jnp.clip(x, -0.5, 0.5) + jax.lax.clamp(-1.0, x, 0.1),
    "choices": lambda x: jnp.where((x > 0) & (x <= 1) | ~(x >= -1) | (x == 9), x, -x),
    "any and all": lambda x: jnp.where(jnp.any(x < -1, axis=1) & ~jnp.all(x != 0, axis=1), 1.0, x[:, 0]),
    "whole numbers": lambda x: jnp.argmax(x, axis=1) + 5,
    "from whole numbers": lambda x: (x > 0).astype(jnp.int32).sum(axis=1) / 2,
    # shapes
    "one column": lambda x: x[:, -1],
    "columns": lambda x: x[:, 1:3],
    "chosen columns": lambda x: x[:, np.array([2, 0, 2])],
    "sliced": lambda x: jax.lax.slice_in_dim(x, 0, 4, 2, axis=1),
    "halves": lambda x: jnp.split(x, 2, axis=1)[1],
    "joined": lambda x: jnp.concatenate([x, 2 * x], axis=1),
    "reshaped": lambda x: x.reshape(-1, 2, 2).sum(axis=-1),
    "repeated": lambda x: jnp.repeat(x, 2, axis=1),
    "constant": lambda x: jnp.full((x.shape[0], 3), jnp.exp(1.0)),
    "as it is": lambda x: x,
}


@pytest.mark.parametrize("name", FUNCTIONS)
def test_computes_the_same(name: str) -> None:
    graph, function = translated(FUNCTIONS[name], 4), jax.jit(FUNCTIONS[name])
    for batch in (1, 6):
        x = RNG.normal(size=(batch, 4)).astype(np.float32)
        found, told = graph(x), np.asarray(function(x))
        assert found.shape == told.shape and found.dtype.kind == told.dtype.kind
        np.testing.assert_allclose(found, told, rtol=1e-5, atol=1e-6)


def test_every_operation_is_tried() -> None:
    seen: set[str] = set()

    def walk(jaxpr: Any) -> None:
        for eqn in jaxpr.eqns:
            seen.add(eqn.primitive.name)
            if eqn.primitive.name in CALLS:
                walk(eqn.params[CALLS[eqn.primitive.name]].jaxpr)

    (batch,) = jax.export.symbolic_shape("batch")
    for function in FUNCTIONS.values():
        walk(jax.make_jaxpr(function)(jax.ShapeDtypeStruct((batch, 4), np.float32)).jaxpr)
    assert {*CALLS, *NODES, *RULES} <= seen


@pytest.mark.parametrize(
    "function, what",
    [
        (lambda x: jax.scipy.special.ndtri(x), "JAX's"),
        (lambda x: jax.lax.fori_loop(0, 3, lambda _, y: 2 * y, x), "JAX's (while|scan)"),
        (lambda x: jnp.sort(x, axis=0), "sort of several arrays or of the batch"),
        (lambda x: x[:, jnp.argmax(jnp.sum(x, axis=0))], "gather at computed places"),
        (lambda x: x - jnp.mean(x), "the number of states in a batch"),
        (lambda x: x if x.shape[0] > 3 else -x, "the number of states in a batch"),
    ],
)
def test_what_it_has_no_nodes_for_is_named(function: Callable[..., Any], what: str) -> None:
    with pytest.raises(Untranslatable, match=what):
        Graph(lambda x: [function(x)], 4, ["y"])
