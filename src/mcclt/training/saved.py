"""Saved models: where they are read from, and what is left of one for a single group or agent."""

import warnings
from pathlib import Path
from typing import Any

import numpy as np

from mcclt import zoo
from mcclt.config.values import require
from mcclt.errors import CheckpointError, ConfigError, shown
from mcclt.storage import checkpoint, files, metadata, runs

EXPORTED = (".onnx", ".npz")
"""Endings of files that `mcclt export` writes, which nothing here reads."""


def path_of(name: str, value: object) -> Path:
    """A path as a user gave it."""
    if not isinstance(value, str | Path):
        raise ConfigError(f"{name} = {shown(value)} is not allowed: it must be a path.")
    return Path(value)


def with_suffix(path: str | Path) -> Path:
    """`path` with the ending .safetensors, in place of Stable-Baselines3's .zip."""
    path = path_of("path", path)
    require(path.name != "", f"a model called {str(path)!r}", "the path of a file, such as 'model'")
    path = path.with_suffix("") if path.suffix == ".zip" else path
    return path if path.suffix == checkpoint.SUFFIX else path.with_name(path.name + checkpoint.SUFFIX)


def read_model(path: str | Path) -> tuple[checkpoint.Arrays, dict[str, Any], Path]:
    """The arrays and metadata of a saved model, of a run's newest good checkpoint, or of an agent kept elsewhere."""
    path = _kept(zoo.located(path_of("path", path)))
    if path.is_dir():
        arrays, meta, source, passed = runs.load_latest(path)
        for line in passed:
            warnings.warn(f"Skipped: {line} Used instead: {source}", stacklevel=3)
        return arrays, meta, source
    source = path if path.is_file() else with_suffix(path)
    if not source.exists():
        raise CheckpointError(f"There is no run directory and no saved model at {path}.")
    if source.suffix in EXPORTED:
        raise CheckpointError(f"{source} is an exported policy: name the run or the saved model that it came from.")
    arrays, meta = checkpoint.load(source)
    metadata.check(arrays, meta, source)
    return arrays, meta, source


def _kept(path: Path) -> Path:
    """The agent that a store kept beside a cell (STORE/cells/…/seed-0.json); any other path as it is."""
    if path.suffix != ".json" or len(path.parts) < 5 or path.parts[-5] != "cells":
        return path
    agent = path.parents[4].joinpath("agents", *path.parts[-4:-1], f"{path.stem}{checkpoint.SUFFIX}.xz")
    if not agent.is_file():
        raise CheckpointError(f"{path} is a result without its agent: train it with --keep-agents and a new --store.")
    return agent


def only_group(arrays: checkpoint.Arrays, meta: dict[str, Any], name: str) -> tuple[checkpoint.Arrays, dict[str, Any]]:
    """One group of a checkpoint; of several, the environments' state (which is everybody's) is left behind."""
    groups = list(meta["config"]["groups"])
    if len(groups) == 1:
        return arrays, meta
    seeds = len(meta["config"]["seeds"])
    group = {name: meta["config"]["groups"][name]}
    kept = {k: v for k, v in arrays.items() if k.startswith(f"agents/{name}/")}
    return kept, _only_agents(meta, groups.index(name) * seeds, seeds, groups=group)


def only_seed(arrays: checkpoint.Arrays, meta: dict[str, Any], index: int) -> tuple[checkpoint.Arrays, dict[str, Any]]:
    """One agent of a checkpoint with one group; of several, the environments' state is left behind."""
    seeds = meta["config"]["seeds"]
    if len(seeds) == 1:
        return arrays, meta
    kept = {k: v[index : index + 1] for k, v in arrays.items() if k.startswith("agents/")}
    return kept, _only_agents(meta, index, 1, seeds=[seeds[index]])


def keepsake(arrays: checkpoint.Arrays, meta: dict[str, Any]) -> bytes:
    """A compressed model of one agent: what it does and believes; its optimisers would start afresh."""
    kept = {
        name: np.zeros_like(x) if name.split("/")[2] in ("policy_opt", "critic_opt") else x
        for name, x in arrays.items()
        if name.startswith("agents/")
    }
    return files.compress(checkpoint.encode(kept, meta), quickly=True)


def _only_agents(meta: dict[str, Any], first: int, count: int, **changed: Any) -> dict[str, Any]:
    """What a checkpoint says of `count` agents, the first of them at `first`, with some settings of the run changed."""
    last = first + count
    # Alone they may be few enough for another engine: they keep their own.
    return meta | {
        "config": meta["config"] | changed | {"engine": meta["spec"]["engine"]},
        "status": meta["status"][first:last],
        "last_fault": [[a - first, update] for a, update in meta["last_fault"] if first <= a < last],
    }
