"""Your own Gymnasium environment: a boat that has to find its mooring in a cross-wind, and stay there.

Anything with Gymnasium's interface trains as it is: give the class (or a function that makes one) in place of an id.
Only the observation and action spaces matter: vectors in, a Box or a Discrete out.

    python examples/own_environment.py
    python examples/own_environment.py --steps 200000
"""

from typing import Any

import gymnasium as gym
import numpy as np
import tyro

from mcclt import PPO, evaluate_policy


class Boat(gym.Env[np.ndarray, np.ndarray]):
    """A boat on a lake. It sees where it is, how fast it goes and what wind blows; it steers two thrusters."""

    observation_space = gym.spaces.Box(-10.0, 10.0, (5,))
    action_space = gym.spaces.Box(-1.0, 1.0, (2,))

    def reset(
        self, *, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[np.ndarray, dict[str, Any]]:
        """Somewhere within two lengths of the mooring, at rest. All randomness comes from `self.np_random`."""
        super().reset(seed=seed)
        self.place, self.speed = self.np_random.uniform(-2, 2, 2), np.zeros(2)
        self.wind = self.np_random.uniform(-0.5, 0.5)
        return self.observe(), {}

    def step(self, action: np.ndarray) -> tuple[np.ndarray, float, bool, bool, dict[str, Any]]:
        """A tenth of a second; the wind blows along x, the water brakes. Ends (terminated) when lost on the lake."""
        self.speed = 0.9 * self.speed + 0.1 * (2 * action + [self.wind, 0.0])
        self.place = self.place + 0.1 * self.speed
        distance = float(np.linalg.norm(self.place))
        return self.observe(), 1.0 - distance, distance > 4, False, {}

    def observe(self) -> np.ndarray:
        """Place, speed and wind."""
        return np.array([*self.place, *self.speed, self.wind], np.float32)


def main(steps: int = 40_000, seed: int = 0) -> tuple[float, float]:
    """Trains on the boat.

    Args:
        steps: environment steps.
        seed: of the agent and its environments.

    Returns:
        The mean return before and after training.
    """
    # The class has no time limit of its own, so it is given one; the value after the limit is still estimated.
    model = PPO(Boat, seed=seed, max_episode_steps=100, steps_per_update=1_600, critic_iterations=20)
    before, _ = evaluate_policy(model, n_eval_episodes=20)
    model.learn(steps)
    after, _ = evaluate_policy(model, n_eval_episodes=20)
    print(f"Mean return: {before:.1f} before, {after:.1f} after {model.num_timesteps:,} steps (at most 100).")
    return before, after


if __name__ == "__main__":
    tyro.cli(main)
