"""What the engines of MuJoCo tasks share, wherever the physics runs.

MuJoCo is imported when an environment is made, so that asking what is supported costs nothing.
"""

import importlib.util
import warnings
from abc import abstractmethod
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from mcclt.envs.api import State, VectorEnv
from mcclt.envs.tasks import TASKS, Array, Physics, Task
from mcclt.errors import CheckpointError, ConfigError

if TYPE_CHECKING:
    import mujoco


class MujocoVectorEnv(VectorEnv):
    """The environments of one task; a subclass moves their physics."""

    resumable = True

    @classmethod
    def runs(cls, task: object) -> bool:
        """Whether it is one of `TASKS` or a `Task`."""
        return task in TASKS if isinstance(task, str) else isinstance(task, Task)

    @classmethod
    def tasks(cls) -> Mapping[str, int | None]:
        """All of `TASKS`."""
        return {name: task.max_episode_steps for name, task in TASKS.items()}

    def make(self, task: str | Task, limit: int | None, threads: int, timeout: float | None) -> dict[str, Any]:
        """Compiles the model, which says all that there is to know of the task."""
        del timeout
        import mujoco

        self._task = TASKS[task] if isinstance(task, str) else task
        self._limit = limit or self._task.max_episode_steps
        model = load_model(self._task)
        self._start(model, threads)
        limited, bounds = model.actuator_ctrllimited.astype(bool), model.actuator_ctrlrange.astype(np.float32)
        data = mujoco.MjData(model)
        now = self._task.physics(*(getattr(data, name)[None] for name in self._task.fields))
        return {
            "obs_size": self._task.observe(np, now).shape[1],
            "max_episode_steps": self._limit,
            "action_size": model.nu,
            "action_low": np.where(limited, bounds[:, 0], -np.inf).astype(np.float32),
            "action_high": np.where(limited, bounds[:, 1], np.inf).astype(np.float32),
        }

    @abstractmethod
    def _start(self, model: "mujoco.MjModel", threads: int) -> None:
        """Makes what moves the physics."""

    def _check(self, state: State) -> None:
        """Raises unless the state has all that `get_state` gives, in the same shapes."""
        for name, value in self.get_state().items():
            if name not in state or np.shape(state[name]) != value.shape:
                raise CheckpointError(
                    f"This is not a state of {self.num_envs} {self.spec.task}: {name!r} should be {value.shape}."
                )


def load_model(task: Task) -> "mujoco.MjModel":
    """Compiles the task's MJCF file."""
    import mujoco

    gymnasium = importlib.util.find_spec("gymnasium")  # to find it is enough; to import it is slow
    folders = (gymnasium.submodule_search_locations if gymnasium else None) or []
    candidates = [Path(task.xml), *(Path(folder, "envs/mujoco/assets", task.xml) for folder in folders)]
    path = next((path for path in candidates if path.is_file()), None)
    if path is None:
        raise ConfigError(f"No MJCF file {task.xml!r}: give a path, or a name among Gymnasium's assets.")
    with warnings.catch_warnings():
        # Half Cheetah fixes its mass this way. By way of MjSpec the complaint is a Python warning.
        warnings.filterwarnings("ignore", message=".*settotalmass.*deprecated")
        model = mujoco.MjSpec.from_file(str(path)).compile()
    if not np.isclose(task.dt, task.frame_skip * model.opt.timestep, rtol=1e-12, atol=0):
        raise ConfigError(
            f"{type(task).__name__}.dt is {task.dt}, but frame_skip {task.frame_skip} times the time step "
            f"{model.opt.timestep} of {task.xml} is {task.frame_skip * model.opt.timestep}: make them agree."
        )
    return model


def outcome(
    xp: Any, task: Task, limit: int, before: Physics, after: Physics, action: Array, elapsed: Array
) -> tuple[Array, Array, Array, Array]:
    """What the actions [n, nu] taken between two moments amount to, the `elapsed`-th [n] of their episodes.

    Returns:
        Reward, terminated and truncated, [n] each, and the true successor [n, O].
    """
    reward, terminated = task.reward_and_terminated(xp, before, after, action)
    return reward, terminated, (elapsed >= limit) & ~terminated, task.observe(xp, after)
