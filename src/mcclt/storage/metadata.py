"""What a checkpoint says of itself beside its arrays: a task's spec as data, and whether all of it makes sense."""

import dataclasses
from typing import Any

import numpy as np

from mcclt.envs.api import EnvSpec
from mcclt.errors import CheckpointError, ConfigError
from mcclt.storage.checkpoint import Arrays
from mcclt.storage.configuration import from_dict


def spec_to_dict(spec: EnvSpec) -> dict[str, Any]:
    """A spec as plain data."""
    data = dataclasses.asdict(spec)
    return {k: v.tolist() if isinstance(v, np.ndarray) else v for k, v in data.items()}


def spec_from_dict(data: dict[str, Any]) -> EnvSpec:
    """Reads what `spec_to_dict` wrote."""
    with np.errstate(over="raise"):  # a number that is none in float32 is nobody's bound
        bounds = {
            k: None if data[k] is None else np.asarray(data[k], np.float32) for k in ("action_low", "action_high")
        }
    counts = data.get("action_counts")
    return EnvSpec(**(data | bounds | {"action_counts": None if counts is None else tuple(counts)}))


def check(arrays: Arrays, meta: dict[str, Any], source: object) -> None:
    """Raises unless a checkpoint says what `Trainer.to_checkpoint` writes: it may come from a stranger.

    What it says must also be no larger than what it holds, before anything is made of that size.
    """
    try:
        config, spec, status = from_dict(meta["config"]), spec_from_dict(meta["spec"]), meta["status"]
        agents = len(config.groups) * len(config.seeds)
        bounds = [x for x in (spec.action_low, spec.action_high) if x is not None]
        counts = spec.action_counts or ()
        sizes = [spec.obs_size, spec.action_size, agents, *counts]
        for agent in config.groups.values():
            bins = agent.value_bins if agent.critic == "hl_gauss" else 1
            sizes += [agent.n_quantiles, agent.members or 1, bins, *agent.policy_hidden, *agent.critic_hidden]
        elements = sum(x.size for x in arrays.values())
        faults = [number for pair in meta["last_fault"] for number in pair]
        whole = [spec.obs_size, spec.action_size, meta["update"], *faults, *counts]
        limit = spec.max_episode_steps
        sound = (
            all(type(x) is int and 0 <= x < 2**63 for x in whole)
            and type(spec.action_start) is int
            and -(2**63) <= spec.action_start < 2**63
            and (limit is None or type(limit) is int)
            and all(isinstance(x, str) for x in (spec.task, spec.engine))
            and isinstance(spec.resumable, bool)
            and len(bounds) in (0, 2)
            and all(x.shape == (spec.action_size,) for x in bounds)
            and (not counts or len(counts) * len(bounds) == spec.action_size * 2)
            and all(1 <= size <= max(elements, 64) for size in sizes)
            and all(len(a.policy_hidden) + len(a.critic_hidden) <= len(arrays) for a in config.groups.values())
            and isinstance(status, list)
            and len(status) == agents
            and all(isinstance(x, str) for x in status)
            and all(len(pair) == 2 for pair in meta["last_fault"])
        )
    except (ConfigError, KeyError, TypeError, ValueError, ArithmeticError):
        sound = False
    if not sound:
        raise CheckpointError(f"{source} is not a checkpoint of a training run: its metadata is inconsistent.")
