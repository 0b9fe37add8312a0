"""A trained policy as one file that runs without this library: ONNX for a runtime, npz for plain arrays.

from mcclt.interop.export import to_onnx
to_onnx("runs/hopper", "policy.onnx", seed=3)

The graph is written from the parameters, node by node, and compared with the model before the file is.
"""

import importlib.util
import io
import json
import math
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

import mcclt
from mcclt.errors import ConfigError, MccltError, MissingExtraError, UnknownNameError
from mcclt.method import critics, normal, normalisation, weighting
from mcclt.method.nets import Params
from mcclt.storage import checkpoint
from mcclt.training.agent import Agent
from mcclt.training.model import Model, load

OPSET, IR_VERSION = 13, 7
"""ONNX of 2020: what ONNX Runtime, TensorRT, OpenVINO, tract and the browser's runtime have read for years."""
TOLERANCE = 1e-5
"""How far a graph may be from its model, relative to the scale of the numbers."""
VALUE_OUTPUTS = ("bars", "mean", "std", "error", "weight")
"""The fields of `ValueDistribution`, each an output `value_...`."""


def export(
    model: Model | str | Path,
    path: str | Path,
    seed: int | None = None,
    group: str | None = None,
    value_distribution: bool = False,
) -> Path:
    """Writes a policy in the format that the ending of `path` names: .onnx or .npz."""
    formats = {".onnx": to_onnx, ".npz": to_npz}
    suffix = Path(path).suffix
    if suffix not in formats:
        raise UnknownNameError("ending of an exported policy", suffix, formats)
    return formats[suffix](model, path, seed, group, value_distribution)


def to_onnx(
    model: Model | str | Path,
    path: str | Path,
    seed: int | None = None,
    group: str | None = None,
    value_distribution: bool = False,
) -> Path:
    """Writes a policy as an ONNX graph from `observation` [batch, O] to `action`.

    `action` is what `model.predict(observation, deterministic=True)` gives: [batch, D] within the task's bounds, or
    the index [batch] of a discrete action. Where onnxruntime is installed, the graph is first compared with the
    model.

    Args:
        model: a `PPO` or `TRPO`, or the path of a saved one or of a run directory.
        path: the file to write.
        seed: which agent of a population.
        group: which group of a run directory that trained several.
        value_distribution: add the outputs `value_bars` [batch, N] and `value_mean`, `value_std`, `value_error`,
            `value_weight` [batch], as `model.value_distribution` gives them.

    Returns:
        `path`.

    Raises:
        MissingExtraError: without the package onnx.
        MccltError: if there is no such model or agent, the file cannot be written, or the graph disagrees.
    """
    if importlib.util.find_spec("onnx") is None:
        raise MissingExtraError("Exporting to ONNX", "onnx")
    agent = one_agent(model, seed, group)
    data = build(agent, value_distribution)
    if importlib.util.find_spec("onnxruntime") is None:
        warnings.warn("onnxruntime is not installed: the graph was not compared with the model.", stacklevel=2)
    else:
        check(agent, data)
    return write(Path(path), data)


def to_npz(
    model: Model | str | Path,
    path: str | Path,
    seed: int | None = None,
    group: str | None = None,
    value_distribution: bool = False,
) -> Path:
    """Writes a policy as plain arrays for `numpy.load`, with the code that acts in the entry `readme`.

    Args and errors are those of `to_onnx`, but for `value_distribution`, which an npz file has no room for.
    """
    if value_distribution:
        raise ConfigError("An npz file holds the policy alone: export to .onnx for the value distribution.")
    agent = one_agent(model, seed, group)
    spec, policy, norm = agent.spec, agent.state.policy, agent.state.norm
    see = ""
    arrays = {f"{name}{i}": layer[name] for i, layer in enumerate(policy["mlp"]) for name in ("w", "b")}
    if spec.discrete:
        act = f"action = x.argmax(-1) + {spec.action_start}"
    else:
        arrays |= bounds(agent) | {"log_std": policy["log_std"]}
        act = 'action = numpy.clip(x, p["action_low"], p["action_high"])'
    if norm.obs is not None:
        arrays |= {"obs_mean": norm.obs.mean, "obs_scale": normalisation.scale_of(norm.obs)}
        see = f'x = numpy.clip((x - p["obs_mean"]) / p["obs_scale"], -{normalisation.CLIP}, {normalisation.CLIP})\n'
    code = README.format(name=Path(path).name, size=spec.obs_size, last=len(policy["mlp"]) - 1, see=see, act=act)
    with io.BytesIO() as file:
        np.savez(file, allow_pickle=False, readme=code, metadata=json.dumps(metadata(agent)), **arrays)
        return write(Path(path), file.getvalue())


README = """\
import numpy
p = numpy.load("{name}")
x = numpy.asarray(observation, numpy.float32)  # [{size}] or [batch, {size}]
{see}for i in range({last}):
    x = numpy.tanh(x @ p[f"w{{i}}"] + p[f"b{{i}}"])
x = x @ p["w{last}"] + p["b{last}"]
{act}
"""


# --- the agent ---------------------------------------------------------------------------------------------


def one_agent(model: Any, seed: int | None, group: str | None) -> Agent:
    """One agent alone, or a sentence that says how to choose it."""
    if isinstance(model, str | Path):
        model = load(model, group=group)
    if not isinstance(model, Model):
        raise ConfigError(f"A {type(model).__name__} cannot be exported: give a PPO or TRPO of mcclt, or its path.")
    if seed is None and len(model.seeds) > 1:
        raise ConfigError(f"The model holds several seeds: choose seed= one of {', '.join(map(str, model.seeds))}.")
    return model.agent(seed)


def metadata(agent: Agent) -> dict[str, Any]:
    """What a reader of the file should know, as plain data; an open bound is None."""
    spec, config = agent.spec, agent.config
    facts: dict[str, Any] = {
        "mcclt": mcclt.__version__,
        "task": agent.task,
        "algo": config.algo,
        "critic": config.critic,
        "weighting": config.weighting,
        "seed": agent.seed,
        "steps": agent.steps,
        "observation_size": spec.obs_size,
    }
    if spec.discrete:
        return facts | {"actions": spec.action_size, "action_start": spec.action_start}
    std = np.exp(agent.state.policy["log_std"])
    return facts | {
        **{k: [float(x) if math.isfinite(x) else None for x in bound] for k, bound in bounds(agent).items()},
        "action_std": std.tolist(),
    }


def bounds(agent: Agent) -> dict[str, np.ndarray]:
    """The box of continuous actions."""
    low, high = agent.spec.action_low, agent.spec.action_high
    assert low is not None and high is not None
    return {"action_low": low, "action_high": high}


def write(path: Path, data: bytes) -> Path:
    """The file, whole or not at all."""
    checkpoint.write_atomically(path, data)
    return path


# --- the graph ---------------------------------------------------------------------------------------------


class Graph:
    """Nodes and constants under way. A value is known by its name; a number or array becomes a constant."""

    def __init__(self) -> None:
        from onnx import helper, numpy_helper

        self._node, self._tensor = helper.make_node, numpy_helper.from_array
        self.nodes: list[Any] = []
        self.constants: list[Any] = []

    def op(self, kind: str, *inputs: Any, name: str | None = None, **attributes: Any) -> str:
        """Adds a node; returns the name of its output."""
        names = [x if isinstance(x, str) else self.constant(x) for x in inputs]
        output = name or f"{kind.lower()}_{len(self.nodes)}"
        self.nodes.append(self._node(kind, names, [output], **attributes))
        return output

    def constant(self, value: Any) -> str:
        """Adds a constant: int64 for whole numbers, else float32."""
        array = np.asarray(value)
        array = array.astype(np.int64 if np.issubdtype(array.dtype, np.integer) else np.float32)
        name = f"constant_{len(self.constants)}"
        self.constants.append(self._tensor(array, name))
        return name

    def mlp(self, layers: Params, x: str, activation: str) -> str:
        """`nets.apply_mlp`."""
        *hidden, last = layers
        for layer in hidden:
            x = self.op(activation, self.op("Gemm", x, layer["w"], layer["b"]))
        return self.op("Gemm", x, last["w"], last["b"])

    def normalised(self, norm: normalisation.Normaliser, x: str) -> str:
        """`normalisation.normalise_obs`."""
        if norm.obs is None:
            return x
        centred = self.op("Sub", x, norm.obs.mean[None])
        scaled = self.op("Div", centred, normalisation.scale_of(norm.obs)[None])
        return self.op("Min", self.op("Max", scaled, -normalisation.CLIP), normalisation.CLIP)

    def mean(self, x: str, axis: int = 1, keepdims: int = 0) -> str:
        """The mean along one axis."""
        return self.op("ReduceMean", x, axes=[axis], keepdims=keepdims)

    def ordered(self, x: str, n: int) -> str:
        """The n numbers of each row, the smallest first."""
        output = f"topk_{len(self.nodes)}"
        node = self._node("TopK", [x, self.constant(np.array([n]))], [output, f"{output}_places"], axis=1, largest=0)
        self.nodes.append(node)
        return output

    def stack(self, values: list[str]) -> str:
        """Values of equal shape along a new first axis."""
        return self.op("Concat", *(self.op("Unsqueeze", x, np.array([0])) for x in values), axis=0)


def build(agent: Agent, value_distribution: bool) -> bytes:
    """The ONNX model of one agent, as the bytes of its file."""
    import onnx

    graph, spec, facts = Graph(), agent.spec, metadata(agent)
    policy, critic, norm = agent.state.policy, agent.state.critic, agent.state.norm
    float32, int64 = onnx.TensorProto.FLOAT, onnx.TensorProto.INT64

    seen = graph.normalised(norm, "observation")
    out = graph.mlp(policy["mlp"], seen, "Tanh")
    if spec.discrete:
        index = graph.op("ArgMax", out, axis=1, keepdims=0)
        graph.op("Add", index, spec.action_start, name="action")
        outputs = [onnx.helper.make_tensor_value_info("action", int64, ["batch"])]
    else:
        low, high = map(np.nan_to_num, bounds(agent).values())  # not every runtime knows infinity
        graph.op("Min", graph.op("Max", out, low), high, name="action")
        outputs = [onnx.helper.make_tensor_value_info("action", float32, ["batch", spec.action_size])]
    if value_distribution:
        width = jax.eval_shape(agent.learner.predict, agent.state, np.zeros((1, spec.obs_size), np.float32)).bars.shape[
            1
        ]
        for name, value in zip(VALUE_OUTPUTS, add_value(graph, agent, critic, seen), strict=True):
            if norm.returns is not None and name in ("bars", "mean", "std"):  # as `Learner.predict` gives them
                value = graph.op("Mul", value, normalisation.scale_of(norm.returns))
            graph.op("Identity", value, name=f"value_{name}")
            shape = ["batch", width] if name == "bars" else ["batch"]
            outputs.append(onnx.helper.make_tensor_value_info(f"value_{name}", float32, shape))

    inputs = [onnx.helper.make_tensor_value_info("observation", float32, ["batch", spec.obs_size])]
    model = onnx.helper.make_model(
        onnx.helper.make_graph(graph.nodes, "policy", inputs, outputs, graph.constants),
        opset_imports=[onnx.helper.make_opsetid("", OPSET)],
        ir_version=IR_VERSION,
        producer_name="mcclt",
        producer_version=mcclt.__version__,
        doc_string=f"{facts['algo'].upper()} on {facts['task']}, seed {facts['seed']}, after {facts['steps']:,} steps.",
    )
    onnx.helper.set_model_props(model, {k: v if isinstance(v, str) else json.dumps(v) for k, v in facts.items()})
    onnx.checker.check_model(model, full_check=True)
    return model.SerializeToString()


def add_value(graph: Graph, agent: Agent, members: tuple[Params, ...], seen: str) -> tuple[str, str, str, str, str]:
    """The critic's `predict` at what it has `seen`, and the weight; returns bars, mean, std, error, weight by name."""
    critic = agent.learner.critic
    kinds: dict[type, Callable[..., tuple[str, str, str, str]]] = {
        critics.Plain: _plain,
        critics.Ensemble: _ensemble,
        critics.Quantile: _bars,
        critics.Normal: _bars,
    }
    kind, name = type(critic), agent.config.critic
    if kind not in kinds:
        raise ConfigError(f"The value distribution of critic {name!r} cannot be exported: export the policy alone.")
    bars, mean, std, error = kinds[kind](graph, critic, members, seen)
    return bars, mean, std, error, _weight(graph, agent, error)


def _plain(graph: Graph, critic: critics.Plain, members: tuple[Params, ...], seen: str) -> tuple[str, str, str, str]:
    values = _values(graph, members, seen)
    mean = graph.mean(values)
    zero = graph.op("Sub", mean, mean)
    return graph.mean(values, keepdims=1), mean, zero, zero


def _ensemble(
    graph: Graph, critic: critics.Ensemble, members: tuple[Params, ...], seen: str
) -> tuple[str, str, str, str]:
    values = _values(graph, members, seen)
    centred = graph.op("Sub", values, graph.mean(values, keepdims=1))
    squares = graph.op("ReduceSumSquare", centred, axes=[1], keepdims=0)
    std = graph.op("Sqrt", graph.op("Div", squares, float(critic.members - 1)))
    return values, graph.mean(values), std, std


def _values(graph: Graph, members: tuple[Params, ...], seen: str) -> str:
    return graph.op("Concat", *(graph.mlp(layers, seen, "Relu") for layers in members), axis=1)


def _bars(
    graph: Graph, critic: critics.Quantile | critics.Normal, members: tuple[Params, ...], seen: str
) -> tuple[str, str, str, str]:
    n, crossing_error = critic.config.n_quantiles, critic.config.crossing_error
    all_bars, errors = [], []
    for params in members:
        bars = graph.mlp(_bar_layers(params, n), seen, "Relu")
        _, std, sigmas, centred = _fit_normal(graph, bars, n)
        residual = graph.op("Sub", centred, graph.op("Mul", std, normal.z_table(n)[None]))
        error = graph.op("ReduceSumSquare", residual, axes=[1], keepdims=0)
        if crossing_error is not None:
            crossed = graph.op("Less", graph.op("ReduceMin", sigmas, axes=[1], keepdims=0), 0.0)
            error = graph.op("Where", crossed, crossing_error, error)
        all_bars.append(bars)
        errors.append(error)
    bars = graph.mean(graph.stack(all_bars), axis=0)
    mean, std, _, _ = _fit_normal(graph, graph.ordered(bars, n), n)
    return bars, mean, graph.op("Squeeze", std, np.array([1])), graph.mean(graph.stack(errors), axis=0)


def _bar_layers(params: Params, n: int) -> Params:
    """The layers whose outputs are the N bars; of a shared trunk, without the variance's output."""
    if not isinstance(params, dict):
        return params
    *hidden, last = params["bars"] if "bars" in params else params["both"]
    return [*hidden, {"w": last["w"][:, :n], "b": last["b"][:n]}]


def _fit_normal(graph: Graph, bars: str, n: int) -> tuple[str, str, str, str]:
    """`normal.fit_normal`: mean [B], std [B, 1], sigmas [B, N], and the bars less their mean [B, N]."""
    z = normal.z_table(n)
    informative = z != 0
    inverse = np.divide(1, z, out=np.zeros_like(z), where=informative)
    centred = graph.op("Sub", bars, graph.mean(bars, keepdims=1))
    sigmas = graph.op("Mul", centred, inverse[None])
    total = graph.op("ReduceSum", sigmas, np.array([1]), keepdims=1)
    return graph.mean(bars), graph.op("Div", total, float(informative.sum())), sigmas, centred


def _weight(graph: Graph, agent: Agent, error: str) -> str:
    """`Learner.weights`, at the temperature of the last update."""
    scheme, temperature = agent.learner.weighting, float(agent.state.temperature)
    ones = graph.op("Add", graph.op("Sub", error, error), 1.0)
    if isinstance(scheme, weighting.Uniform) or temperature <= 0:
        return ones
    scaled = graph.op("Mul", error, temperature)
    if isinstance(scheme, weighting.AccuracySeeking):
        falling = graph.op("Sigmoid", graph.op("Neg", scaled))
        return graph.op("Add", graph.op("Mul", falling, 2 * (1 - scheme.w_min)), scheme.w_min)
    if isinstance(scheme, weighting.ExplorationSeeking):
        return graph.op("Add", scaled, 0.5)
    name = agent.config.weighting
    raise ConfigError(f"The weights of weighting {name!r} cannot be exported: export the policy alone.")


# --- the comparison ----------------------------------------------------------------------------------------


def check(agent: Agent, data: bytes) -> None:
    """Raises unless ONNX Runtime computes from the file what the model says, at observations of many scales.

    Those of an agent that normalises them are drawn about what it has seen.
    """
    import onnxruntime

    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = 1
    session = onnxruntime.InferenceSession(data, options, providers=["CPUExecutionProvider"])
    rng = np.random.default_rng(0)
    scale = 10 ** rng.uniform(-2, 1, (300, 1))
    obs = (scale * rng.normal(size=(300, agent.spec.obs_size))).astype(np.float32)
    if (seen := agent.state.norm.obs) is not None:
        obs = seen.mean + normalisation.scale_of(seen) * obs
    found = dict(zip([x.name for x in session.get_outputs()], session.run(None, {"observation": obs}), strict=True))
    with jax.default_matmul_precision("highest"):
        wrong = compare_action(agent, obs, found.pop("action"))
        if found:
            wrong = wrong or compare_value(agent, obs, {k.removeprefix("value_"): v for k, v in found.items()})
    if wrong:
        raise MccltError(f"The exported graph disagrees with the model in its {wrong}: nothing was written.")


def compare_action(agent: Agent, obs: np.ndarray, action: np.ndarray) -> str:
    """`"action"` if it is not the model's, else nothing."""
    if not agent.spec.discrete:
        return "" if near(action, agent.act(obs)) else "action"
    # Where two actions are as likely as each other, rounding may choose either.
    policy, norm = agent.state.policy, agent.state.norm
    log_prob = np.asarray(agent.learner.policy.distribution(policy, normalisation.normalise_obs(norm, obs)))
    index = action - agent.spec.action_start
    if not ((index >= 0) & (index < agent.spec.action_size)).all():
        return "action"
    return "" if near(np.take_along_axis(log_prob, index[:, None], 1)[:, 0], log_prob.max(axis=1)) else "action"


def compare_value(agent: Agent, obs: np.ndarray, found: dict[str, np.ndarray]) -> str:
    """The first output that is not the model's, or nothing.

    The normality error is the square of a distance between bars, small beside the bars themselves: rounding moves
    its root as far as it moves a bar. The weight can be steep in the error, so it is judged at the graph's own.
    """
    told = agent.believe(obs)
    bars = max(float(np.abs(told.bars).max()), 1e-6)
    returns = agent.state.norm.returns
    unit = 1.0 if returns is None else float(normalisation.scale_of(returns))  # errors are in the critic's own
    far = TOLERANCE * bars / unit * math.sqrt(told.bars.shape[1])
    is_square = agent.learner.critic.quantiles
    root: Callable[[np.ndarray], np.ndarray] = np.sqrt if is_square else np.asarray
    weight = agent.learner.weights(agent.state, jnp.asarray(found["error"]))
    # At a bar that rounding puts on either side of the mean, `crossing_error` comes or goes.
    few = 0.01 if agent.config.crossing_error is not None else 0.0
    far_errors = np.abs(root(found["error"]) - root(told.error)) > far
    good = {
        "bars": near(found["bars"], told.bars),
        "mean": near(found["mean"], told.mean, bars),
        "std": near(found["std"], told.std, bars),
        "error": found["error"].shape == told.error.shape and far_errors.mean() <= few,
        "weight": near(found["weight"], np.asarray(weight)),
    }
    return next((name for name, ok in good.items() if not ok), "")


def near(a: np.ndarray, b: np.ndarray, scale: float | None = None) -> bool:
    """Whether two arrays are equal within `TOLERANCE` of their scale, by default the largest number."""
    scale = max(float(np.abs(b).max()), 1e-6) if scale is None else scale
    return a.shape == b.shape and a.dtype == b.dtype and bool(np.abs(a - b).max() <= TOLERANCE * scale)
