"""Box2D tasks on EnvPool's C++ threads: several times Gymnasium's speed, with the same dynamics.

Two things EnvPool does otherwise are put right here. After the end of an episode it would spend a step on the
reset, whose action is ignored and whose reward is 0: the ended environments are reset on their own at once
instead. And it calls a termination on the very last allowed step a truncation: so its own limit is set one
step later, where it never strikes, and steps are counted here.
"""

import importlib.util
from collections.abc import Sequence
from typing import Any

import numpy as np

from mcclt.envs.api import EnvSpec, Key, Step, available_cores
from mcclt.errors import CheckpointError, ConfigError, MissingExtraError

TASKS = {
    "LunarLander-v3": 1000,
    "LunarLander-v2": 1000,
    "LunarLanderContinuous-v3": 1000,
    "LunarLanderContinuous-v2": 1000,
    "BipedalWalker-v3": 1600,
    "BipedalWalkerHardcore-v3": 2000,
}
"""Id -> time limit. EnvPool runs the lander's v2 and v3 as one: in Gymnasium they differ in wind, which is
off, in the declared bounds of observations, which nothing here uses, and in a repaired non-determinism."""


class EnvPoolEngine:
    """Steps Box2D tasks in EnvPool's thread pool."""

    name = "envpool"

    def supports(self, task: object) -> bool:
        """Whether it is one of `TASKS` and EnvPool is installed (not imported yet: that takes seconds)."""
        return isinstance(task, str) and task in TASKS and importlib.util.find_spec("envpool") is not None

    def make(
        self, task: object, keys: Sequence[Key], max_episode_steps: int | None, num_threads: int | None
    ) -> "EnvPoolVectorEnv":
        """Makes one pool for all keys."""
        if importlib.util.find_spec("envpool") is None:
            raise MissingExtraError("Engine 'envpool'", "envpool")
        if not (isinstance(task, str) and task in TASKS):
            raise ConfigError(f"Engine 'envpool' cannot run {task!r}, only {', '.join(TASKS)}.")
        return EnvPoolVectorEnv(task, keys, max_episode_steps or TASKS[task], num_threads)


class EnvPoolVectorEnv:
    """One synchronous pool, in which each environment has its own seed and so does not know the others."""

    on_device = False

    def __init__(self, task: str, keys: Sequence[Key], max_episode_steps: int, num_threads: int | None) -> None:
        """Makes the pool, with at most a thread per core."""
        try:
            import envpool
        except (ImportError, OSError) as error:  # e.g. a wheel that misses a system library
            raise ConfigError(
                f"EnvPool is installed but cannot be imported ({error}): use engine='gymnasium'."
            ) from error

        self._pool: Any = envpool.make_gymnasium(
            task,
            num_envs=len(keys),
            seed=[_seed(key) for key in keys],
            max_episode_steps=max_episode_steps + 1,
            num_threads=min(num_threads or available_cores(), len(keys)),
        )
        space = self._pool.single_action_space
        discrete = hasattr(space, "n")
        self.num_envs = len(keys)
        self.spec = EnvSpec(
            task=task,
            engine="envpool",
            obs_size=self._pool.single_observation_space.shape[0],
            action_size=int(space.n) if discrete else space.shape[0],
            action_low=None if discrete else space.low.astype(np.float32),
            action_high=None if discrete else space.high.astype(np.float32),
            max_episode_steps=max_episode_steps,
            resumable=False,
        )
        self._limit = max_episode_steps
        self._obs = np.zeros((len(keys), self.spec.obs_size), np.float32)

    def reset(self) -> np.ndarray:
        """Starts a new episode everywhere; returns observations [n, O]."""
        return self.restart(np.ones(self.num_envs, bool))

    def restart(self, which: np.ndarray) -> np.ndarray:
        """Starts a new episode where the mask [n] is true, each with its own generator as it stands."""
        self._obs = self._reset(self._obs, which)
        return self._obs

    def rekey(self, keys: Sequence[Key], which: np.ndarray) -> None:
        """Not possible: EnvPool seeds its environments when they are made; they go on with their generators."""

    def step(self, action: np.ndarray) -> Step:
        """Steps all environments; see `mcclt.envs.api.VectorEnv.step`."""
        next_obs, reward, terminated, _, info = self._pool.step(action)
        truncated = (info["elapsed_step"] >= self._limit) & ~terminated
        self._obs = self._reset(next_obs, terminated | truncated)
        return Step(self._obs, reward, terminated, truncated, next_obs)

    def faults(self) -> dict[int, str]:
        """None: these environments raise nothing."""
        return {}

    def get_state(self) -> dict[str, np.ndarray]:
        """Not possible: EnvPool keeps the state of its environments to itself."""
        raise CheckpointError(f"{self.spec.task!r} cannot be saved: EnvPool does not expose its state.")

    def set_state(self, state: dict[str, np.ndarray]) -> np.ndarray:
        """Not possible, as for `get_state`."""
        raise CheckpointError(f"{self.spec.task!r} cannot be restored: EnvPool does not accept a state.")

    def close(self) -> None:
        """Ends the threads."""
        self._pool.close()

    def _reset(self, obs: np.ndarray, which: np.ndarray) -> np.ndarray:
        """`obs` [n, O] with first observations of new episodes where the mask [n] is true."""
        ids = np.flatnonzero(which).astype(np.int32)
        if ids.size == 0:
            return obs
        obs = obs.copy()
        obs[ids] = self._pool.reset(ids)[0]  # in the order of the ids
        return obs


def _seed(key: Key) -> int:
    """A seed from the environment's names alone, in the range EnvPool takes (int32, not negative)."""
    return int(np.random.SeedSequence(key).generate_state(1)[0] >> 1)
