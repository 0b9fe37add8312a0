"""Your own engine: the lake of own_environment.py with all its boats in one array, stepped all at once.

An engine is one class of vector environments (here of one task; a simulator of yours may run many) and one line that
enters it in `ENGINES`. What it says of itself is all that the rest of the library asks: whether checkpoints continue
its episodes exactly, whether it lives on the device, which packages it needs.

    python examples/own_engine.py
    python examples/own_engine.py --steps 200000
    MCCLT_IMPORT=examples/own_engine.py mcclt train Boat-v0 --seeds 0..7
"""

from collections.abc import Mapping
from typing import Any

import numpy as np
import tyro

from mcclt import PPO, evaluate_policy
from mcclt.envs import ENGINES, Step, VectorEnv
from mcclt.envs.api import State, rng_of

TASK, LIMIT = "Boat-v0", 100


class Lake(VectorEnv):
    """Boats that have to find their moorings in a cross-wind, and stay there."""

    name = "lake"
    resumable = True

    @classmethod
    def runs(cls, task: object) -> bool:
        """One task."""
        return task == TASK

    @classmethod
    def tasks(cls) -> Mapping[str, int | None]:
        """What `mcclt envs` lists."""
        return {TASK: LIMIT}

    def make(self, task: str, limit: int | None, threads: int, timeout: float | None) -> dict[str, Any]:
        """Boats that see five numbers each, and steer with two in [-1, 1]."""
        del threads, timeout
        self._limit, full = limit or LIMIT, np.ones(2, np.float32)
        self._boats = np.zeros((self.num_envs, 5))  # place (2), speed (2), wind
        self._elapsed = np.zeros(self.num_envs, int)
        actions = {"action_size": 2, "action_low": -full, "action_high": full}
        return {"obs_size": 5, "max_episode_steps": self._limit} | actions

    def restart(self, which: np.ndarray) -> np.ndarray:
        """New episodes where the mask [n] is true: somewhere within two lengths of the mooring, at rest."""
        for i in np.flatnonzero(which):
            rng = rng_of(self.keys[i], self.starts[i])  # all that is random here
            self._boats[i] = [*rng.uniform(-2, 2, 2), 0, 0, rng.uniform(-0.5, 0.5)]
        self.starts[which] += 1
        self._elapsed[which] = 0
        return self._boats.astype(np.float32)

    def step(self, action: np.ndarray) -> Step:
        """A tenth of a second of all boats [n, 2]; those whose episode ended start anew at once."""
        place, speed, wind = self._boats[:, :2], self._boats[:, 2:4], self._boats[:, 4:]
        speed[:] = 0.9 * speed + 0.1 * (2 * action + wind * [1, 0])
        place += 0.1 * speed
        self._elapsed += 1
        distance = np.linalg.norm(place, axis=1)
        lost = distance > 4
        late = (self._elapsed >= self._limit) & ~lost
        successor = self._boats.astype(np.float32)
        obs = self.restart(lost | late)
        return Step(obs, (1 - distance).astype(np.float32), lost, late, successor)

    def get_state(self) -> State:
        """All that the next step depends on."""
        return {"boats": self._boats.copy(), "counters": np.stack([self.starts, self._elapsed])}

    def set_state(self, state: State) -> np.ndarray:
        """The same again."""
        self._boats = np.array(state["boats"])
        self.starts, self._elapsed = np.array(state["counters"])
        return self._boats.astype(np.float32)


ENGINES["lake"] = Lake  # "auto" takes it for the tasks that no engine before it runs


def main(steps: int = 40_000) -> tuple[float, float]:
    """Trains a boat and prints its return before and after.

    Args:
        steps: environment steps.

    Returns:
        The mean return before and after training.
    """
    model = PPO(TASK, gamma=0.95, n_envs=64, steps_per_update=1_600, critic_iterations=40)
    before, _ = evaluate_policy(model, n_eval_episodes=20)
    model.learn(steps)
    after, _ = evaluate_policy(model, n_eval_episodes=20)
    print(f"Mean return: {before:.0f} before, {after:.0f} after {model.num_timesteps:,} steps (at most {LIMIT}).")
    return before, after


if __name__ == "__main__":
    tyro.cli(main)
