"""Vector environments: one contract (`mcclt.envs.api`), several engines.

Engines are imported when first asked for, so that `import mcclt.envs` loads no simulator.
"""

import importlib
import importlib.metadata
import importlib.util
from collections.abc import Iterator, Mapping, Sequence
from typing import NamedTuple

from mcclt.envs.api import Engine, EnvSpec, Key, Step, VectorEnv
from mcclt.errors import ConfigError, MissingExtraError, UnknownNameError

__all__ = ["ENGINES", "Engine", "EnvSpec", "Key", "Step", "TaskRow", "VectorEnv", "list_tasks", "make_vec"]


class _Engines(Mapping[str, Engine]):
    """A read-only dict of engines that imports each at its first use."""

    def __init__(self, classes: dict[str, str]) -> None:
        self._classes = classes

    def __getitem__(self, name: str) -> Engine:
        module, _, engine = self._classes[name].partition(":")
        return getattr(importlib.import_module(module), engine)()

    def __iter__(self) -> Iterator[str]:
        return iter(self._classes)

    def __len__(self) -> int:
        return len(self._classes)


ENGINES: Mapping[str, Engine] = _Engines(
    {
        "native": "mcclt.envs.native:NativeEngine",
        "warp": "mcclt.envs.warp:WarpEngine",
        "envpool": "mcclt.envs.envpool:EnvPoolEngine",
        "gymnasium": "mcclt.envs.gymnasium:GymnasiumEngine",
        "gymnasium-async": "mcclt.envs.gymnasium:GymnasiumAsyncEngine",
    }
)
"""The engines by name, the one "auto" prefers first; but large populations of a native task go to "warp" where there
is a GPU. "gymnasium-async" only ever runs by name: "gymnasium" runs the same tasks."""

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
) -> VectorEnv:
    """Makes a vector environment with one environment per key.

    Args:
        task: A Gymnasium id ("Hopper-v5", "package.module:Name-v0"), an environment class, or a function
            without arguments that returns an environment.
        keys: What names the randomness of each environment.
        engine: One of `ENGINES`, or "auto" for the first of them that runs the task.
        max_episode_steps: A time limit in place of the task's own.
        num_threads: Threads of the engine; as many as there are cores if not given.
        step_timeout: Seconds that a step or a reset may take; one that takes longer is a fault of its environment.

    Raises:
        UnknownNameError: If there is no such task or engine.
        MissingExtraError: If it needs an optional package.
        UnsupportedSpaceError: If no policy here can handle its observations or actions.
        EnvironmentFault: If the environment cannot be made.
        ConfigError: If the engine cannot run the task, or a number makes no sense.
    """
    if engine != "auto" and engine not in ENGINES:
        raise UnknownNameError("engine", engine, ["auto", *ENGINES])
    if not keys:
        raise ConfigError("A vector environment needs at least one key.")
    for name, value in (("max_episode_steps", max_episode_steps), ("num_threads", num_threads)):
        if value is not None and value < 1:
            raise ConfigError(f"{name} must be at least 1, not {value}.")
    for name, package, extra in (("envpool", "envpool", "envpool"), ("warp", "mujoco_warp", "gpu")):
        if engine == name and importlib.util.find_spec(package) is None:
            raise MissingExtraError(f"Engine {name!r}", extra)

    able = [name for name in ENGINES if ENGINES[name].supports(task)]
    if engine == "auto":
        engine = able[0] if able else "gymnasium"  # which knows best why it cannot
        if "warp" in able and len(keys) >= WORTH_A_GPU and _has_gpu():
            engine = "warp"
    elif able and engine not in able:
        raise ConfigError(f"Engine {engine!r} cannot run {task!r}; use one of: {', '.join(able)}, or 'auto'.")
    if step_timeout is None:
        return ENGINES[engine].make(task, keys, max_episode_steps, num_threads)
    if engine != "gymnasium-async":
        raise ConfigError(
            f"step_timeout = {step_timeout:g} needs an engine whose steps can be ended, and {engine!r} steps in this "
            "process: choose engine gymnasium-async, or leave step_timeout out."
        )
    from mcclt.envs.gymnasium import GymnasiumAsyncEngine

    return GymnasiumAsyncEngine().make(task, keys, max_episode_steps, num_threads, step_timeout)


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
    import gymnasium as gym

    from mcclt.envs import envpool
    from mcclt.envs.tasks import TASKS

    limits: dict[str, int | None] = {name: task.max_episode_steps for name, task in TASKS.items()}
    limits |= envpool.TASKS
    for name, entry in gym.registry.items():
        if str(entry.entry_point).startswith("gymnasium.envs.classic_control"):
            limits[name] = entry.max_episode_steps

    packages = {"native": "mujoco", "envpool": "envpool", "gymnasium": "gymnasium"}
    rows = []
    for name, limit in limits.items():
        engines = tuple(engine for engine in ENGINES if ENGINES[engine].supports(name))
        if engines:
            package = packages[engines[0]]
            version = f"{package} {importlib.metadata.version(package)}"
            rows.append(TaskRow(name, engines[0], engines, version, limit, engines[0] == "native"))
    return rows
