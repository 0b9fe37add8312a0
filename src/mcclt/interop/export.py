"""A trained policy as one file that runs without this library: ONNX for a runtime, npz for plain arrays.

from mcclt.interop.export import export
export("runs/hopper", "policy.onnx", seed=3)

The graph is what the agent computes, traced and translated, and is compared with the model before the file is written.
"""

import importlib.util
import io
import json
import math
import warnings
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

import mcclt
from mcclt.errors import ConfigError, MccltError, MissingExtraError, UnknownNameError
from mcclt.interop.translation import Graph, Untranslatable
from mcclt.method import normalisation
from mcclt.storage import checkpoint
from mcclt.training.agent import Agent
from mcclt.training.model import Model, load
from mcclt.training.saved import EXPORTED

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
    """Writes a policy in the format that the ending of `path` names.

    `.onnx` is a graph from `observation` [batch, O] to `action`, which is what `model.predict(observation,
    deterministic=True)` gives: [batch, D] within the task's bounds, or the index [batch] of a discrete action. Where
    onnxruntime is installed, the graph is first compared with the model. `.npz` is plain arrays for `numpy.load`, with
    the code that acts in the entry `readme`.

    Args:
        model: a `PPO` or `TRPO`, or the path of a saved one or of a run directory.
        path: the file to write.
        seed: which agent of a population.
        group: which group of a run directory that trained several.
        value_distribution: add the outputs `value_bars` [batch, N] and `value_mean`, `value_std`, `value_error`,
            `value_weight` [batch], as `model.value_distribution` gives them; an npz file has no room for it.

    Returns:
        `path`.

    Raises:
        MissingExtraError: without the package onnx.
        MccltError: if there is no such model or agent, the file cannot be written, or the graph disagrees.
    """
    path = Path(path)
    if path.suffix not in EXPORTED:
        raise UnknownNameError("ending of an exported policy", path.suffix, EXPORTED)
    if path.suffix == ".onnx" and importlib.util.find_spec("onnx") is None:
        raise MissingExtraError("Exporting to ONNX", "onnx")
    if path.suffix == ".npz" and value_distribution:
        raise ConfigError("An npz file holds the policy alone: export to .onnx for the value distribution.")
    agent = one_agent(model, seed, group)
    data = to_npz(agent, path.name) if path.suffix == ".npz" else to_onnx(agent, value_distribution)
    checkpoint.write_atomically(path, data)
    return path


# --- plain arrays ------------------------------------------------------------------------------------------

ACTIVATIONS = {
    "tanh": "numpy.tanh(x)",
    "relu": "numpy.maximum(x, 0)",
    "silu": "x / (1 + numpy.exp(-x))",
    "elu": "numpy.where(x > 0, x, numpy.expm1(numpy.minimum(x, 0)))",
}
"""As NumPy's code, by their names in a configuration."""


def to_npz(agent: Agent, name: str) -> bytes:
    """An npz file of this name: the arrays, and the code that reads and uses them."""
    spec, policy, seen = agent.spec, agent.state.policy, agent.state.norm.obs
    arrays = {f"{part}{i}": array for i, layer in enumerate(policy["mlp"]) for part, array in layer.items()}
    code = [
        "import numpy",
        f'p = numpy.load("{name}")',
        f"x = numpy.asarray(observation, numpy.float32)  # [{spec.obs_size}] or [batch, {spec.obs_size}]",
    ]
    if seen is not None:
        arrays |= {"obs_mean": seen.mean, "obs_scale": normalisation.scale_of(seen)}
        most = normalisation.CLIP
        code.append(f'x = numpy.clip((x - p["obs_mean"]) / p["obs_scale"], -{most}, {most})')
    last = len(policy["mlp"]) - 1
    code += [f"for i in range({last}):", '    x = x @ p[f"w{i}"] + p[f"b{i}"]']
    if agent.config.policy_layer_norm:
        code.append("    x = x - x.mean(-1, keepdims=True)")
        code.append('    x = p[f"scale{i}"] * x / numpy.sqrt((x**2).mean(-1, keepdims=True) + 1e-5) + p[f"shift{i}"]')
    code += [f"    x = {ACTIVATIONS[agent.config.policy_activation]}", f'x = x @ p["w{last}"] + p["b{last}"]']
    if spec.discrete:
        code.append(f"action = x.argmax(-1) + {spec.action_start}")
    else:
        if "log_std" not in policy:
            raise ConfigError(
                "An npz file cannot hold a policy of MultiDiscrete or MultiBinary actions: export to .onnx."
            )
        arrays |= bounds(agent) | {"log_std": policy["log_std"]}
        code.append('action = numpy.clip(x, p["action_low"], p["action_high"])')
    file = io.BytesIO()
    readme = "\n".join([*code, ""])
    np.savez(file, allow_pickle=False, readme=readme, metadata=json.dumps(metadata(agent)), **arrays)
    return file.getvalue()


# --- the agent ---------------------------------------------------------------------------------------------


def one_agent(model: Any, seed: int | None, group: str | None) -> Agent:
    """One agent alone, or a sentence that says how to choose it."""
    if isinstance(model, str | Path):
        model = load(model, group=group)
    if not isinstance(model, Model):
        kind = type(model).__name__
        raise ConfigError(f"An object of type {kind} cannot be exported: give a PPO or TRPO of mcclt, or its path.")
    if seed is None and len(model.seeds) > 1:
        listed = ", ".join(map(str, model.seeds))
        raise ConfigError(f"The model holds several seeds: name one of them as the seed: {listed}.")
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
    facts |= {k: [float(x) if math.isfinite(x) else None for x in bound] for k, bound in bounds(agent).items()}
    log_std = agent.state.policy.get("log_std")
    return facts if log_std is None else facts | {"action_std": np.exp(log_std).tolist()}


def bounds(agent: Agent) -> dict[str, np.ndarray]:
    """The box of continuous actions."""
    low, high = agent.spec.action_low, agent.spec.action_high
    assert low is not None and high is not None
    return {"action_low": low, "action_high": high}


# --- the graph ---------------------------------------------------------------------------------------------


def to_onnx(agent: Agent, value_distribution: bool) -> bytes:
    """An ONNX file, compared with the agent if there is a runtime to do it."""
    data = build(agent, value_distribution)
    if importlib.util.find_spec("onnxruntime") is None:
        warnings.warn("onnxruntime is not installed: the graph was not compared with the model.", stacklevel=3)
    else:
        check(agent, data)
    return data


def build(agent: Agent, value_distribution: bool) -> bytes:
    """The ONNX model of one agent, as the bytes of its file."""
    import onnx

    facts, names = metadata(agent), ["action"]
    if value_distribution:
        names += [f"value_{name}" for name in VALUE_OUTPUTS]
    try:
        graph = Graph(lambda obs: outputs(agent, obs, value_distribution), agent.spec.obs_size, names)
    except Untranslatable as error:
        raise ConfigError(
            f"The value distribution of critic {agent.config.critic!r} with {agent.config.weighting} weights cannot be "
            f"exported: it needs {error}, which cannot be translated to ONNX here. Export the policy alone."
        ) from None
    model = onnx.helper.make_model(
        onnx.helper.make_graph(graph.nodes, "policy", graph.inputs, graph.outputs, graph.constants),
        opset_imports=[onnx.helper.make_opsetid("", OPSET)],
        ir_version=IR_VERSION,
        producer_name="mcclt",
        producer_version=mcclt.__version__,
        doc_string=f"{facts['algo'].upper()} on {facts['task']}, seed {facts['seed']}, after {facts['steps']:,} steps.",
    )
    onnx.helper.set_model_props(model, {k: v if isinstance(v, str) else json.dumps(v) for k, v in facts.items()})
    onnx.checker.check_model(model, full_check=True)
    return model.SerializeToString()


def outputs(agent: Agent, obs: jax.Array, value_distribution: bool) -> tuple[jax.Array, ...]:
    """What `Agent.act` and `Agent.believe` compute at obs [B, O], to be traced."""
    learner, state, spec = agent.learner, agent.state, agent.spec
    action = learner.policy.mode(state.policy, normalisation.normalise_obs(state.norm, obs))
    if spec.discrete:
        action += spec.action_start
    else:
        low, high = map(np.nan_to_num, bounds(agent).values())  # not every runtime knows infinity
        action = jnp.clip(action, low[None], high[None])
    if not value_distribution:
        return (action,)
    found = learner.predict(state, obs)
    return action, found.bars, found.mean, found.std, found.error, learner.weights(state, found.error)


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
        agrees = {"action": same_action(agent, obs, found["action"])}
        if len(found) > 1:
            agrees |= same_values(agent, obs, {k.removeprefix("value_"): v for k, v in found.items()})
    for name, yes in agrees.items():
        if not yes:
            raise MccltError(f"The exported graph disagrees with the model in its {name}: nothing was written.")


def same_action(agent: Agent, obs: np.ndarray, action: np.ndarray) -> bool:
    """Whether it is the model's."""
    if not agent.spec.discrete:
        return near(action, agent.act(obs))
    # Where two actions are as likely as each other, rounding may choose either.
    seen = normalisation.normalise_obs(agent.state.norm, obs)
    log_prob = np.asarray(agent.learner.policy.distribution(agent.state.policy, seen))
    index = action - agent.spec.action_start
    known = bool(((index >= 0) & (index < agent.spec.action_size)).all())
    return known and near(np.take_along_axis(log_prob, index[:, None], 1)[:, 0], log_prob.max(axis=1))


def same_values(agent: Agent, obs: np.ndarray, found: dict[str, np.ndarray]) -> dict[str, bool]:
    """Whether each output is the model's.

    The normality error is the square of a distance between bars, small beside the bars themselves: rounding moves
    its root as far as it moves a bar. The weight can be steep in the error, so it is judged at the graph's own. Bars
    that are interpolated may be a hundred times as far.
    """
    told, returns = agent.believe(obs), agent.state.norm.returns
    bars = max(float(np.abs(told.bars).max()), 1e-6)
    unit = 1.0 if returns is None else float(normalisation.scale_of(returns))  # errors are in the critic's own
    slack = bars * (100 if agent.learner.critic.interpolated else 1)
    far = TOLERANCE * slack / unit * math.sqrt(told.bars.shape[1])
    root = np.sqrt if agent.learner.critic.quantiles else np.asarray
    # At a bar that rounding puts on either side of the mean, `crossing_error` comes or goes.
    few = 0.01 if agent.config.crossing_error is not None else 0.0
    far_errors = np.abs(root(found["error"]) - root(told.error)) > far
    weight = agent.learner.weights(agent.state, jnp.asarray(found["error"]))
    return {
        "bars": near(found["bars"], told.bars, slack),
        "mean": near(found["mean"], told.mean, bars),
        "std": near(found["std"], told.std, bars),
        "error": found["error"].shape == told.error.shape and bool(far_errors.mean() <= few),
        "weight": near(found["weight"], np.asarray(weight)),
    }


def near(a: np.ndarray, b: np.ndarray, scale: float | None = None) -> bool:
    """Whether two arrays are equal within `TOLERANCE` of their scale, by default the largest number."""
    scale = max(float(np.abs(b).max()), 1e-6) if scale is None else scale
    return a.shape == b.shape and a.dtype == b.dtype and bool(np.abs(a - b).max() <= TOLERANCE * scale)
