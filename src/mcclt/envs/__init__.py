"""Vector environments: one contract (`mcclt.envs.api`), several engines.

Engines are imported when first asked for, so that `import mcclt.envs` loads no simulator.
"""

import importlib
import importlib.metadata
from collections import UserDict
from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np

from mcclt.envs.api import DeviceVectorEnv, EnvSpec, Key, Step, VectorEnv
from mcclt.errors import ConfigError, MissingExtraError, UnknownNameError, shown

__all__ = ["ENGINES", "DeviceVectorEnv", "EnvSpec", "Key", "Step", "TaskRow", "VectorEnv", "list_tasks", "make_vec"]


class _Engines(UserDict[str, Any]):
    """A dict of engines in which "module:class" is imported at its first use."""

    def __getitem__(self, name: str) -> type[VectorEnv]:
        if isinstance(engine := self.data[name], str):
            module, _, engine = engine.partition(":")
            engine = self.data[name] = getattr(importlib.import_module(module), engine)
        return engine


ENGINES = _Engines(
    {
        "native": "mcclt.envs.native:NativeVectorEnv",
        "warp": "mcclt.envs.warp:WarpVectorEnv",
        "envpool": "mcclt.envs.envpool:EnvPoolVectorEnv",
        "gymnasium": "mcclt.envs.gymnasium:GymnasiumVectorEnv",
        "gymnasium-async": "mcclt.envs.gymnasium:AsyncVectorEnv",
    }
)
"""The engines by name, the one "auto" prefers first. One of your own is entered as `ENGINES["name"] = Class`."""

ANYTHING = "gymnasium"
"""The engine of whatever is in no table: it knows best why it cannot run something."""
WORTH_A_GPU = 512
"""Environments from which a GPU steps faster than the cores beside it."""


def make_vec(
    task: object,
    keys: Sequence[Key],
    *,
    engine: str = "auto",
    max_episode_steps: int | None = None,
    num_threads: int | None = None,
    step_timeout: float | None = None,
    brief: bool = False,
) -> VectorEnv:
    """Makes a vector environment with one environment per key.

    Args:
        task: A Gymnasium id ("Hopper-v5", "package.module:Name-v0"), an environment class, or a function
            without arguments that returns an environment.
        keys: What names the randomness of each environment.
        engine: One of `ENGINES`, or "auto" for the first of them that runs the task; large populations go to one on
            the device, where there is a GPU.
        max_episode_steps: A time limit in place of the task's own.
        num_threads: Threads of the engine; as many as there are cores if not given.
        step_timeout: Seconds that a step or a reset may take; one that takes longer is a fault of its environment.
        brief: It is for a few episodes: the engine may have another stand in that is sooner made.

    Raises:
        UnknownNameError: If there is no such task or engine.
        MissingExtraError: If it needs an optional package.
        UnsupportedSpaceError: If no policy here can handle its observations or actions.
        EnvironmentFault: If the environment cannot be made.
        ConfigError: If the engine cannot run the task, or a number makes no sense.
    """
    if engine != "auto" and engine not in ENGINES:
        raise UnknownNameError("engine", engine, ["auto", *ENGINES])
    if not isinstance(keys, Sequence) or not keys or not all(_is_key(key) for key in keys):
        raise ConfigError(
            f"keys = {shown(keys)} is not allowed: give each environment, at least one, a key of its own: a tuple of "
            "whole numbers such as (seed, 0)."
        )
    for name, value in (("max_episode_steps", max_episode_steps), ("num_threads", num_threads)):
        if value is not None and not (isinstance(value, int | np.integer) and value >= 1):
            raise ConfigError(f"{name} must be a whole number, at least 1, not {shown(value)}.")
    if engine != "auto" and not ENGINES[engine].installed():
        if extra := ENGINES[engine].extra:
            raise MissingExtraError(f"Engine {engine!r}", extra)
        raise ConfigError(f"Engine {engine!r} needs {' and '.join(ENGINES[engine].needs)}: install what is missing.")

    able = _able(task)
    if not able:
        engine = ANYTHING
    elif engine == "auto":
        engine = _preferred(able, len(keys))
    elif engine not in able:
        raise ConfigError(f"Engine {engine!r} cannot run {task!r}; use one of: {', '.join(able)}, or 'auto'.")
    chosen = ENGINES[engine]
    if step_timeout is None:
        chosen = ENGINES[chosen.stand_in] if brief and chosen.stand_in else chosen
    elif not chosen.can_time_out:
        others = " or ".join(name for name in able if ENGINES[name].can_time_out)
        raise ConfigError(
            f"step_timeout = {step_timeout:g} needs an engine whose steps can be interrupted, and {engine!r} steps in "
            f"this process: {f'choose engine {others}, or ' if others else ''}leave step_timeout out."
        )
    return chosen(task, keys, max_episode_steps, num_threads, step_timeout)


def _is_key(key: object) -> bool:
    return isinstance(key, tuple) and all(isinstance(part, int | np.integer) and part >= 0 for part in key)


def _able(task: object) -> list[str]:
    """The engines that run a task here, in the order of the table."""
    return [name for name, engine in ENGINES.items() if engine.supports(task)]


def _preferred(able: Sequence[str], count: int) -> str:
    """The first of these engines: of those on the device, if `count` environments are worth a GPU and there is one."""
    worth_it = count >= WORTH_A_GPU and any(ENGINES[name].on_device for name in able) and _has_gpu()
    return min(able, key=lambda name: ENGINES[name].on_device != worth_it)


def _has_gpu() -> bool:
    """Whether JAX computes on an NVIDIA GPU."""
    import jax

    return jax.default_backend() == "gpu"


class TaskRow(NamedTuple):
    """One task, as `mcclt envs` lists it."""

    task: str
    """Its id."""
    engine: str
    """The engine "auto" takes."""
    engines: tuple[str, ...]
    """All engines that run it."""
    version: str
    """The package behind `engine` and its version, e.g. "mujoco 3.3.0"."""
    max_episode_steps: int | None
    """Its time limit."""
    resumable: bool
    """Whether a checkpoint continues its episodes exactly."""


def list_tasks() -> list[TaskRow]:
    """The tasks that run here without further code: ours, Box2D and Gymnasium's classic control.

    Nothing is instantiated. Any other Gymnasium id, class or function runs as well (`make_vec`).
    """
    limits = {task: limit for engine in ENGINES.values() for task, limit in engine.tasks().items()}
    rows = []
    for task, limit in limits.items():
        if able := _able(task):
            name = _preferred(able, 1)
            versions = [f"{package} {importlib.metadata.version(package)}" for package in ENGINES[name].needs[:1]]
            rows.append(TaskRow(task, name, tuple(able), "".join(versions), limit, ENGINES[name].resumable))
    return rows
