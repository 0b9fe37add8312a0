"""Exported policies compute what the model does."""

import dataclasses
import importlib.util
import json
import os
from pathlib import Path
from typing import Any

import jax
import numpy as np
import pytest
from gymnasium import spaces

from mcclt import PPO, make_vec
from mcclt.errors import CheckpointError, ConfigError, MccltError, MissingExtraError
from mcclt.interop import export
from mcclt.method.critics import CRITICS, Plain
from mcclt.method.learner import Learner, without_numbers
from mcclt.method.nets import ACTIVATIONS
from mcclt.method.weighting import WEIGHTINGS, AccuracySeeking
from mcclt.storage import checkpoint
from mcclt.storage.configuration import to_dict
from mcclt.storage.metadata import spec_to_dict
from mcclt.training.model import Model
from mcclt.training.trainer import Trainer
from probes import OURS, PENDULUM, Counter, Noisy, ShiftedActions, agent, run_config

HAS = {name: importlib.util.find_spec(name) is not None for name in ("onnx", "onnxruntime")}
needs_onnx = pytest.mark.skipif(not all(HAS.values()), reason="needs pip install 'mcclt[onnx]'")

RNG = np.random.default_rng(0)


def make(env: Any = Noisy, temperature: float = 0.3, seeds: tuple[int, ...] = (0,), **settings: Any) -> PPO:
    """An agent of random numbers, as if it had learnt: it compiles nothing."""
    vec = make_vec(env, [(0, 0, 0, 0)])
    vec.close()
    groups = {"ppo": agent(**({"critic": "plain"} | settings))}
    learner = Learner(groups["ppo"], vec.spec)
    config = run_config(vec.spec.task, {"ppo": learner.config}, seeds=seeds)
    shapes = jax.eval_shape(jax.vmap(learner.init), np.asarray(seeds, np.uint32))
    rng = np.random.default_rng(1)
    states = jax.tree.map(lambda x: rng.normal(size=x.shape).astype(x.dtype), without_numbers(shapes))
    count = len(seeds)
    states = dataclasses.replace(
        states, update=np.full(count, 3, np.int32), temperature=np.full(count, temperature, np.float32)
    )
    meta = {
        "config": to_dict(config),
        "spec": spec_to_dict(vec.spec),
        "update": 3,
        "status": ["training"] * count,
        "last_fault": [],
    }
    return PPO._restored(checkpoint.flatten("agents/ppo", states), meta, "the test", env)


def run(path: Path, obs: np.ndarray) -> dict[str, np.ndarray]:
    import onnxruntime

    session = onnxruntime.InferenceSession(path, providers=["CPUExecutionProvider"])
    return dict(zip([o.name for o in session.get_outputs()], session.run(None, {"observation": obs}), strict=True))


def observations(model: Model, count: int = 50) -> np.ndarray:
    return RNG.normal(size=(count, model._spec.obs_size)).astype(np.float32)


class Unbounded(Noisy):
    action_space = spaces.Box(np.array([-np.inf, -0.1], np.float32), np.inf, (2,), np.float32)


# --- policies ----------------------------------------------------------------------------------------------


class Several(Noisy):
    action_space = spaces.MultiDiscrete([3, 2], start=[5, 0])


@needs_onnx
def test_actions_among_values(tmp_path: Path) -> None:
    model = make(Several)
    obs = observations(model)
    action = run(export.export(model, tmp_path / "policy.onnx"), obs)["action"]
    np.testing.assert_allclose(action, model.predict(obs, deterministic=True)[0], atol=1e-6)
    assert len(np.unique(action)) > 2
    with pytest.raises(ConfigError, match=r"npz file cannot hold a policy of MultiDiscrete or .*: export to \.onnx"):
        export.export(model, tmp_path / "policy.npz")


@needs_onnx
@pytest.mark.parametrize("name", [pytest.param(n, marks=pytest.mark.slow if n != "silu" else ()) for n in ACTIVATIONS])
def test_networks_of_every_kind(name: Any, tmp_path: Path) -> None:
    """Exporting compares the graph with the model."""
    same: dict[str, Any] = {"policy_activation": name, "critic_activation": name}
    for critic in ("plain", "normal"):
        model = make(Noisy, critic=critic, policy_layer_norm=True, critic_layer_norm=True, **same)
        export.export(model, tmp_path / f"{critic}.onnx", value_distribution=True)


@needs_onnx
@pytest.mark.parametrize("env", [Counter, Unbounded, Noisy, ShiftedActions, "CartPole-v1"])
def test_actions(env: Any, tmp_path: Path) -> None:
    model = make(env)
    path = export.export(model, tmp_path / "policy.onnx")
    for count in (1, 50):
        obs = observations(model, count)
        action, told = run(path, obs)["action"], model.predict(obs, deterministic=True)[0]
        assert action.shape == told.shape
        np.testing.assert_allclose(action, told, rtol=1e-5, atol=1e-5)
    if env is Counter:
        assert (np.abs(action) == 0.25).any(), "clipped to the box"
    if model._spec.discrete:
        assert action.dtype == np.int64 and len(set(action.tolist())) > 1
        assert set(action.tolist()) <= ({5, 6, 7} if env is ShiftedActions else {0, 1})


@needs_onnx
def test_the_file(tmp_path: Path) -> None:
    import onnx

    path = export.export(make(Unbounded, seeds=(3, 8)), str(tmp_path / "new" / "policy.onnx"), 8)
    model = onnx.load(path)
    onnx.checker.check_model(model, full_check=True)
    assert model.opset_import[0].version == 13 and model.ir_version == 7 and model.producer_name == "mcclt"
    facts = {p.key: p.value for p in model.metadata_props}
    assert (
        facts["task"] == "Unbounded" and facts["seed"] == "8" and facts["steps"] == "48" and facts["critic"] == "plain"
    )
    assert json.loads(facts["action_low"]) == [None, pytest.approx(-0.1)]
    assert json.loads(facts["action_high"]) == [None, None]
    assert len(json.loads(facts["action_std"])) == 2
    assert [o.name for o in model.graph.output] == ["action"]
    shape = model.graph.input[0].type.tensor_type.shape.dim
    assert shape[0].dim_param == "batch" and shape[1].dim_value == 3


# --- value distributions -----------------------------------------------------------------------------------


@needs_onnx
@pytest.mark.parametrize(
    "settings",
    [
        {"critic": "plain"},
        pytest.param({"critic": "plain", "members": 3}, marks=pytest.mark.slow),
        pytest.param({"critic": "quantile"}, marks=pytest.mark.slow),
        {"critic": "quantile", "members": 2, "weighting": "accuracy"},
        {"critic": "normal"},
        {"critic": "normal", "trunk": "shared", "n_quantiles": 5, "w_min": 0.2},
        pytest.param({"critic": "normal", "members": 3, "weighting": "exploration"}, marks=pytest.mark.slow),
        # Some states cross, some do not.
        {"critic": "normal", "weighting": "uniform", "crossing_error": 1e5, "n_quantiles": 2},
        pytest.param({"critic": "ensemble"}, marks=pytest.mark.slow),
        {"critic": "ensemble", "weighting": "exploration", "temperature_now": 0.0},
    ],
    ids=str,
)
def test_value_distributions(settings: dict[str, Any], tmp_path: Path) -> None:
    settings = dict(settings)
    model = make(temperature=settings.pop("temperature_now", 0.3), **settings)
    obs = observations(model)
    told = model.value_distribution(obs)
    assert (np.abs(told.mean).max() > 0.5 and np.ptp(told.error) > 0) or model._learner.config.critic == "plain"
    found = run(export.export(model, tmp_path / "policy.onnx", value_distribution=True), obs)
    for name in export.VALUE_OUTPUTS:
        value, expected = found[f"value_{name}"], getattr(told, name)
        assert value.shape == expected.shape and value.dtype == expected.dtype
        np.testing.assert_allclose(value, expected, rtol=1e-5, atol=1e-5 * max(1, np.abs(expected).max()))
    if settings.get("crossing_error"):
        assert {*np.unique(told.error > 1e4)} == {True, False}, "both kinds of state are compared"


@needs_onnx
def test_after_learning(tmp_path: Path) -> None:
    model = PPO(PENDULUM, **(OURS | {"critic": "normal", "seed": [3, 8]})).learn(48)
    path = export.export(model, tmp_path / "policy.onnx", seed=8, value_distribution=True)
    saved = export.export(model.save(tmp_path / "model"), tmp_path / "again.onnx", seed=8, value_distribution=True)
    assert path.read_bytes() == saved.read_bytes()
    obs = observations(model)
    told, found = model.value_distribution(obs, seed=8), run(path, obs)
    assert np.ptp(told.weight) > 0
    np.testing.assert_allclose(found["value_weight"], told.weight, atol=1e-5)
    np.testing.assert_allclose(found["action"], model.predict(obs, deterministic=True, seed=8)[0], atol=1e-5)


class Odd(Plain):
    """A critic that needs what a graph has no node for."""

    def predict(self, params: Any, obs: jax.Array) -> Any:
        found = super().predict(params, obs)
        return found._replace(mean=jax.lax.erf_inv(found.mean))


class Inverse(AccuracySeeking):
    """A weighting of somebody else."""

    def raw(self, scaled_error: jax.Array) -> jax.Array:
        return 1 / (1 + scaled_error)


@needs_onnx
def test_an_own_weighting(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(WEIGHTINGS, "inverse", Inverse)
    model = make(critic="ensemble", weighting="inverse")
    obs = observations(model)
    found = run(export.export(model, tmp_path / "policy.onnx", value_distribution=True), obs)
    np.testing.assert_allclose(found["value_weight"], 1 / (1 + 0.3 * found["value_error"]), rtol=1e-5)


@needs_onnx
def test_a_critic_beyond_the_graph_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(CRITICS, "odd", Odd)
    model = make(critic="odd")
    with pytest.raises(ConfigError, match=r"critic 'odd' with uniform weights .* JAX's erf_inv.* the policy alone\.$"):
        export.export(model, tmp_path / "policy.onnx", value_distribution=True)
    assert not list(tmp_path.iterdir())
    assert export.export(model, tmp_path / "policy.onnx").is_file()


# --- the comparison ----------------------------------------------------------------------------------------


@needs_onnx
@pytest.mark.parametrize("env, off", [(Noisy, 1e-3), (ShiftedActions, 10.0)])
def test_another_policy_is_noticed(env: Any, off: float) -> None:
    model, other = make(env), make(env)
    last = other._states.policy["mlp"][-1]
    last["b"] = last["b"].at[0, 0].add(off)
    other._follow(other.config, other._states)
    export.check(model.agent(), export.build(model.agent(), False))
    with pytest.raises(MccltError, match="disagrees with the model in its action"):
        export.check(other.agent(), export.build(model.agent(), False))


@needs_onnx
@pytest.mark.parametrize("wrong", ["bars", "mean", "std", "error", "weight"])
def test_another_value_is_noticed(wrong: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    model, right = make(critic="normal"), export.outputs

    def spoilt(*args: Any) -> tuple[jax.Array, ...]:
        names = ("action", *export.VALUE_OUTPUTS)
        return tuple(x * (1.001 if name == wrong else 1) for name, x in zip(names, right(*args), strict=True))

    monkeypatch.setattr(export, "outputs", spoilt)
    with pytest.raises(MccltError, match=f"in its {wrong}: nothing was written"):
        export.export(model, tmp_path / "policy.onnx", value_distribution=True)
    assert not list(tmp_path.iterdir())


@needs_onnx
def test_without_a_runtime_it_is_written_and_said(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    find = importlib.util.find_spec
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None if name == "onnxruntime" else find(name))
    with pytest.warns(UserWarning, match="not compared"):
        assert export.export(make(), tmp_path / "policy.onnx").is_file()


# --- npz ---------------------------------------------------------------------------------------------------


NETWORKS = [
    {},
    {"policy_activation": "relu", "policy_layer_norm": True},
    *({"policy_activation": a} for a in ACTIVATIONS),
]


@pytest.mark.parametrize("env, network", [(ShiftedActions, {}), *((Counter, network) for network in NETWORKS)], ids=str)
def test_npz_and_its_readme(env: Any, network: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    model = make(env, **network)
    path = export.export(model, tmp_path / "policy.npz")
    monkeypatch.chdir(tmp_path)
    with np.load(path) as file:
        facts, code = json.loads(str(file["metadata"])), str(file["readme"])
    assert facts["seed"] == 0 and facts["observation_size"] == model._spec.obs_size
    for obs in (observations(model), observations(model)[0]):
        names = {"observation": obs}
        exec(code, names)
        np.testing.assert_allclose(names["action"], model.predict(obs, deterministic=True)[0], rtol=1e-5, atol=1e-6)
    with pytest.raises(ConfigError, match="the policy alone"):
        export.export(model, path, value_distribution=True)
    with pytest.raises(CheckpointError, match=r"policy.npz is an exported policy: name the run"):
        Model.load(path)


# --- refusals ----------------------------------------------------------------------------------------------

FORMATS = [pytest.param("onnx", marks=needs_onnx), "npz"]


@pytest.mark.parametrize("ending", FORMATS)
def test_which_agent(ending: str, tmp_path: Path) -> None:
    model, path = make(seeds=(3, 8)), tmp_path / f"policy.{ending}"
    with pytest.raises(ConfigError, match="several seeds: name one of them as the seed: 3, 8"):
        export.export(model, path)
    with pytest.raises(ConfigError, match="no seed 5: it has 3, 8"):
        export.export(model, path, seed=5)
    with pytest.raises(ConfigError, match="An object of type dict cannot be exported"):
        export.export({}, path)  # type: ignore[arg-type]
    with pytest.raises(CheckpointError, match="no saved model at"):
        export.export(tmp_path / "none", path)
    assert not list(tmp_path.iterdir())


def test_which_group(tmp_path: Path) -> None:
    trainer = Trainer(run_config(groups={"a": agent(critic="plain"), "b": agent(critic="plain", algo="trpo")}))
    checkpoint.save(tmp_path / "x.safetensors", *trainer.to_checkpoint())
    trainer.close()
    for ending in [name for name, there in (("onnx", all(HAS.values())), ("npz", True)) if there]:
        path = tmp_path / f"policy.{ending}"
        with pytest.raises(ConfigError, match="several groups: name one of them as the group: a, b"):
            export.export(tmp_path / "x", path)
        assert export.export(tmp_path / "x", path, group="b").stat().st_size > 500


@pytest.mark.parametrize("ending", FORMATS)
def test_where_nothing_can_be_written(ending: str, tmp_path: Path) -> None:
    (tmp_path / f"taken.{ending}").mkdir()
    (tmp_path / "file").write_text("")
    for path in (tmp_path / f"taken.{ending}", tmp_path / "file" / f"policy.{ending}"):
        with pytest.raises(MccltError, match=f"Cannot write {path}"):
            export.export(make(), path)
    assert sorted(os.listdir(tmp_path)) == ["file", f"taken.{ending}"]


def test_unknown_endings(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"'.onx'. Did you mean '.onnx'"):
        export.export(make(), tmp_path / "policy.onx")


def test_without_onnx(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None)
    with pytest.raises(MissingExtraError, match=r"pip install 'onnx>="):
        export.export("anything", tmp_path / "policy.onnx")
