"""Box2D tasks on EnvPool's C++ threads: several times Gymnasium's speed, with the same dynamics.

Two things EnvPool does otherwise are put right here. After the end of an episode it would spend a step on the
reset, whose action is ignored and whose reward is 0: the ended environments are reset on their own at once
instead. And it calls a termination on the very last allowed step a truncation: so its own limit is set one
step later, where it never strikes, and steps are counted here.
"""

from collections.abc import Mapping
from typing import Any

import numpy as np

from mcclt.envs.api import Step, VectorEnv, seed_of
from mcclt.envs.gymnasium import actions_of
from mcclt.errors import ConfigError

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


class EnvPoolVectorEnv(VectorEnv):
    """One synchronous pool, in which each environment has its own seed and so does not know the others."""

    name = "envpool"
    needs = ("envpool",)
    extra = "envpool"

    @classmethod
    def runs(cls, task: object) -> bool:
        """Whether it is one of `TASKS`."""
        return isinstance(task, str) and task in TASKS

    @classmethod
    def tasks(cls) -> Mapping[str, int | None]:
        """All that it runs."""
        return TASKS

    def make(self, task: str, limit: int | None, threads: int, timeout: float | None) -> dict[str, Any]:
        """Makes the pool, with at most a thread per core."""
        del timeout
        try:
            import envpool
        except (ImportError, OSError) as error:  # e.g. a wheel that misses a system library
            raise ConfigError(
                f"EnvPool is installed but cannot be imported ({error}): use engine='gymnasium'."
            ) from error

        self._limit = limit or TASKS[task]
        self._pool: Any = envpool.make_gymnasium(
            task,
            num_envs=self.num_envs,
            seed=[seed_of(*key) >> 1 for key in self.keys],  # 31 bits
            max_episode_steps=self._limit + 1,
            num_threads=threads,
        )
        (obs_size,) = self._pool.single_observation_space.shape
        self._obs = np.zeros((self.num_envs, obs_size), np.float32)
        size = {"obs_size": obs_size, "max_episode_steps": self._limit}
        return size | actions_of(self._pool.single_action_space)

    def restart(self, which: np.ndarray) -> np.ndarray:
        """Starts a new episode where the mask [n] is true, each with its own generator as it stands."""
        self._obs = self._reset(self._obs, which)
        return self._obs

    def step(self, action: np.ndarray) -> Step:
        """Steps all environments; see `mcclt.envs.api.VectorEnv.step`."""
        next_obs, reward, terminated, _, info = self._pool.step(action)
        truncated = (info["elapsed_step"] >= self._limit) & ~terminated
        self._obs = self._reset(next_obs, terminated | truncated)
        return Step(self._obs, reward, terminated, truncated, next_obs)

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
