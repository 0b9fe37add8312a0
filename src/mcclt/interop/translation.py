"""A JAX function as an ONNX graph: it is traced, and each of its operations becomes a node or a few.

Whatever does not depend on the input is computed while the graph is made: parameters, tables and settings become
constants. The first axis of the input is a batch of any size.
"""

from collections.abc import Callable, Sequence
from typing import Any

import jax
import jax.export
import numpy as np
from jax.extend.core import ClosedJaxpr, Literal

from mcclt.errors import MccltError

Equation = Any
"""One operation of a traced function (a `JaxprEqn`): its primitive, params, invars and outvars."""
OF_THE_BATCH = "the number of states in a batch"


class Untranslatable(MccltError):
    """A function needs something that the tables below lack; the message names it."""


class Graph:
    """Nodes, constants and outputs under way. A value is known by its name; a number or array becomes a constant."""

    def __init__(self, function: Callable[[jax.Array], Sequence[jax.Array]], size: int, outputs: Sequence[str]) -> None:
        """Translates a function of `observation` [batch, size] that gives the `outputs`, in order."""
        import onnx

        self._onnx = onnx
        self.nodes: list[Any] = []
        self.constants: list[Any] = []
        (batch,) = jax.export.symbolic_shape("batch")
        try:
            traced = jax.make_jaxpr(function)(jax.ShapeDtypeStruct((batch, size), np.float32))
        except jax.errors.InconclusiveDimensionOperation:
            raise Untranslatable(OF_THE_BATCH) from None
        for name, value in zip(outputs, self.add(traced, ["observation"]), strict=True):
            self.op("Identity", value, name=name)
        self.inputs = [self._info("observation", traced.in_avals[0])]
        self.outputs = [self._info(name, aval) for name, aval in zip(outputs, traced.out_avals, strict=True)]

    def _info(self, name: str, aval: Any) -> Any:
        shape = [n if isinstance(n, int) else str(n) for n in aval.shape]
        return self._onnx.helper.make_tensor_value_info(name, self.type_of(aval.dtype), shape)

    def type_of(self, dtype: Any) -> int:
        """ONNX's number for a type: bool, int64 for whole numbers, else float32."""
        types = self._onnx.TensorProto
        return {"b": types.BOOL, "i": types.INT64, "u": types.INT64}.get(np.dtype(dtype).kind, types.FLOAT)

    def op(
        self, kind: str, *inputs: Any, name: str | None = None, unused: Sequence[str] = (), **attributes: Any
    ) -> str:
        """Adds a node; returns the name of its (first) output."""
        given = [x if isinstance(x, str) else self.constant(x) for x in inputs]
        output = name or f"{kind.lower()}_{len(self.nodes)}"
        outputs = [output, *(f"{output}_{more}" for more in unused)]
        self.nodes.append(self._onnx.helper.make_node(kind, given, outputs, **attributes))
        return output

    def constant(self, value: Any) -> str:
        """Adds a constant."""
        array = np.asarray(value)
        array = array.astype(self._onnx.helper.tensor_dtype_to_np_dtype(self.type_of(array.dtype)))
        name = f"constant_{len(self.constants)}"
        self.constants.append(self._onnx.numpy_helper.from_array(array, name))
        return name

    def add(self, traced: ClosedJaxpr, inputs: Sequence[Any]) -> list[Any]:
        """Adds a traced function; returns its results, each a name or, if it does not depend on the input, an array."""
        jaxpr = traced.jaxpr
        known: dict[Any, Any] = dict(zip([*jaxpr.constvars, *jaxpr.invars], [*traced.consts, *inputs], strict=True))

        def values(variables: Sequence[Any]) -> list[Any]:
            return [x.val if isinstance(x, Literal) else known[x] for x in variables]

        for eqn in jaxpr.eqns:
            known |= zip(eqn.outvars, self._results(eqn, values(eqn.invars)), strict=True)
        return values(jaxpr.outvars)

    def _results(self, eqn: Equation, inputs: Sequence[Any]) -> Sequence[Any]:
        name = eqn.primitive.name
        found: Any
        if name in CALLS:
            return self.add(eqn.params[CALLS[name]], inputs)
        if name == "dim_as_value":
            raise Untranslatable(OF_THE_BATCH)
        if not any(isinstance(x, str) for x in inputs) and all(_fixed(x.aval) for x in eqn.outvars):
            found = eqn.primitive.bind(*inputs, **eqn.params)
        elif name in NODES:
            found = self.op(NODES[name], *inputs)
        elif name in RULES:
            found = RULES[name](self, eqn, *inputs)
        else:
            raise Untranslatable(f"JAX's {name}")
        return found if eqn.primitive.multiple_results else [found]


def _fixed(aval: Any) -> bool:
    """Whether a shape is known before the batch is."""
    return all(isinstance(n, int) for n in aval.shape)


# --- operations that need more than a name ----------------------------------------------------------------------


def _product(graph: Graph, eqn: Equation, a: Any, b: Any) -> str:
    (in_a, in_b), (batch_a, batch_b) = eqn.params["dimension_numbers"]
    rank_a, rank_b = (x.aval.ndim for x in eqn.invars)
    if rank_a == rank_b == 2 and len(in_a) == 1 and not batch_a:
        return graph.op("Gemm", a, b, transA=int(in_a[0] == 0), transB=int(in_b[0] == 1))
    letters = "abcdefghijklmnopqrstuvwxyz"
    of_a, of_b = letters[:rank_a], list(letters[rank_a : rank_a + rank_b])
    for i, j in zip([*batch_a, *in_a], [*batch_b, *in_b], strict=True):
        of_b[j] = of_a[i]
    result = [of_a[i] for i in batch_a] + [x for x in of_a if x not in of_b] + [x for x in of_b if x not in of_a]
    return graph.op("Einsum", a, b, equation=f"{of_a},{''.join(of_b)}->{''.join(result)}")


def _broadcast(graph: Graph, eqn: Equation, x: Any) -> str:
    shape = eqn.params["shape"]
    kept = dict(zip(eqn.params["broadcast_dimensions"], eqn.invars[0].aval.shape, strict=True))
    if new := [i for i in range(len(shape)) if i not in kept]:
        x = graph.op("Unsqueeze", x, np.array(new))
    if all(kept.get(i, 1) == n for i, n in enumerate(shape)):
        return x
    batch = graph.op("Slice", graph.op("Shape", "observation"), np.array([0]), np.array([1]))
    sizes = [np.array([n]) if isinstance(n, int) else batch for n in shape]
    return graph.op("Expand", x, graph.op("Concat", *sizes, axis=0))


def _reshape(graph: Graph, eqn: Equation, x: str) -> str:
    return graph.op("Reshape", x, np.array([n if isinstance(n, int) else -1 for n in eqn.params["new_sizes"]]))


def _stack(graph: Graph, eqn: Equation, *parts: Any) -> str:
    axis = eqn.params["axis"]
    return graph.op("Concat", *(graph.op("Unsqueeze", x, np.array([axis])) for x in parts), axis=axis)


def _slice(graph: Graph, eqn: Equation, x: str) -> str:
    starts, strides = np.array(eqn.params["start_indices"]), eqn.params["strides"]
    ends = np.array([n if isinstance(n, int) else np.iinfo(np.int64).max for n in eqn.params["limit_indices"]])
    return graph.op("Slice", x, starts, ends, np.arange(starts.size), np.array(strides or np.ones_like(starts)))


def _split(graph: Graph, eqn: Equation, x: str) -> list[str]:
    ends, axis = np.cumsum([0, *eqn.params["sizes"]]), np.array([eqn.params["axis"]])
    return [graph.op("Slice", x, ends[i : i + 1], ends[i + 1 : i + 2], axis) for i in range(len(ends) - 1)]


def _gather(graph: Graph, eqn: Equation, x: str, places: Any) -> str:
    """Indexing by constants: a part that begins at `places` [axes], or what is at places [..., 1] along one axis."""
    how, sizes = eqn.params["dimension_numbers"], eqn.params["slice_sizes"]
    axes, dropped = how.start_index_map, how.collapsed_slice_dims
    if isinstance(places, str) or how.operand_batching_dims or (places.ndim > 1 and (len(axes) > 1 or axes != dropped)):
        raise Untranslatable("JAX's gather at computed places or along several axes")
    if places.ndim > 1:
        return graph.op("Gather", x, places[..., 0], axis=axes[0])
    part = graph.op("Slice", x, places, places + np.array([sizes[i] for i in axes]), np.array(axes))
    return graph.op("Squeeze", part, np.array(dropped)) if dropped else part


def _sort(graph: Graph, eqn: Equation, *inputs: Any) -> list[str]:
    axis = eqn.params["dimension"]
    size = eqn.invars[0].aval.shape[axis]
    if len(inputs) > 1 or not isinstance(size, int):
        raise Untranslatable("JAX's sort of several arrays or of the batch")
    return [graph.op("TopK", *inputs, np.array([size]), axis=axis, largest=0, unused=["places"])]


def _reduce(graph: Graph, eqn: Equation, x: str) -> str:
    kind, axes = REDUCTIONS[eqn.primitive.name], eqn.params["axes"]
    if kind == "ReduceSum":  # alone in having its axes as an input
        return graph.op(kind, x, np.array(axes), keepdims=0)
    if eqn.primitive.name not in ("reduce_or", "reduce_and"):
        return graph.op(kind, x, axes=axes, keepdims=0)
    number = graph.op(kind, graph.op("Cast", x, to=graph.type_of(int)), axes=axes, keepdims=0)
    return graph.op("Cast", number, to=graph.type_of(bool))


CALLS = {"jit": "jaxpr", "custom_jvp_call": "call_jaxpr", "custom_vjp_call": "call_jaxpr"}
"""Operations that are functions, and which of their parameters that is."""
NODES = {
    **{x: x.title() for x in "abs add and ceil cos div erf exp floor log max min mul neg not or pow".split()},
    **{x: x.title() for x in "sign sin sqrt sub tan tanh".split()},
    **{"eq": "Equal", "gt": "Greater", "ge": "GreaterOrEqual", "lt": "Less", "le": "LessOrEqual"},
    **{"logistic": "Sigmoid", "copy": "Identity", "stop_gradient": "Identity"},
}
"""Operations that are one node, number by number."""
REDUCTIONS = {
    **{"reduce_sum": "ReduceSum", "reduce_prod": "ReduceProd", "reduce_max": "ReduceMax", "reduce_min": "ReduceMin"},
    **{"reduce_or": "ReduceMax", "reduce_and": "ReduceMin"},
}
RULES: dict[str, Callable[..., Any]] = {
    **dict.fromkeys(REDUCTIONS, _reduce),
    "argmax": lambda graph, eqn, x: graph.op("ArgMax", x, axis=eqn.params["axes"][0], keepdims=0),
    "broadcast_in_dim": _broadcast,
    "clamp": lambda graph, eqn, low, x, high: graph.op("Min", graph.op("Max", x, low), high),
    "concatenate": lambda graph, eqn, *parts: graph.op("Concat", *parts, axis=eqn.params["dimension"]),
    "convert_element_type": lambda graph, eqn, x: graph.op("Cast", x, to=graph.type_of(eqn.params["new_dtype"])),
    "cumsum": lambda graph, eqn, x: graph.op("CumSum", x, eqn.params["axis"], reverse=int(eqn.params["reverse"])),
    "dot_general": _product,
    "erfc": lambda graph, eqn, x: graph.op("Sub", 1.0, graph.op("Erf", x)),
    "expm1": lambda graph, eqn, x: graph.op("Sub", graph.op("Exp", x), 1.0),
    "gather": _gather,
    "integer_pow": lambda graph, eqn, x: graph.op("Pow", x, float(eqn.params["y"])),
    "is_finite": lambda graph, eqn, x: graph.op("Less", graph.op("Abs", x), np.inf),
    "log1p": lambda graph, eqn, x: graph.op("Log", graph.op("Add", x, 1.0)),
    "ne": lambda graph, eqn, a, b: graph.op("Not", graph.op("Equal", a, b)),
    "reshape": _reshape,
    "rsqrt": lambda graph, eqn, x: graph.op("Reciprocal", graph.op("Sqrt", x)),
    "select_n": lambda graph, eqn, which, no, yes: graph.op("Where", which, yes, no),
    "slice": _slice,
    "sort": _sort,
    "split": _split,
    "square": lambda graph, eqn, x: graph.op("Mul", x, x),
    "squeeze": lambda graph, eqn, x: graph.op("Squeeze", x, np.array(eqn.params["dimensions"])),
    "stack": _stack,
    "transpose": lambda graph, eqn, x: graph.op("Transpose", x, perm=eqn.params["permutation"]),
}
"""What adds the nodes of all others, from an operation's parameters and inputs."""
