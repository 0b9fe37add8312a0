"""Your own MuJoCo model as a native task: keep a ball on a plate that two servos tilt.

The model is an MJCF file (ball_on_plate.xml, beside this script). The task around it is a few array functions, written
once: engine "native" calls them with NumPy on all CPU cores, engine "warp" with JAX on a GPU, thousands at a time.

    python examples/own_mjcf_task.py
    python examples/own_mjcf_task.py --steps 1000000 --n-seeds 8
    python examples/own_mjcf_task.py --engine warp --n-seeds 64     (on an NVIDIA GPU; pip install '.[gpu]')
    MCCLT_IMPORT=examples/own_mjcf_task.py mcclt compare BallOnPlate-v0 --variants plain,mcclt --steps 100k
"""

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import tyro

from mcclt import PPO, evaluate_policy
from mcclt.envs.tasks import TASKS, Array, Physics, Task

# qpos = roll, pitch, then the ball's place (x, y, z) and orientation (a quaternion).
# qvel = their rates, the ball's velocity and its spin.
PLACE, VELOCITY = slice(2, 4), slice(2, 4)
START = np.array([0, 0, 0.3, 0.3, 0, 0, 0, 0, 0])
"""How far from the model's own start an episode may begin: anywhere on the plate within 0.3 m of its middle."""


@dataclass(frozen=True, kw_only=True)
class BallOnPlate(Task):
    """Observation [8]: roll, pitch, their rates; x, y of the ball, its velocity. Action [2]: the servos' angles."""

    xml: str = str(Path(__file__).with_name("ball_on_plate.xml"))
    frame_skip: int = 4
    dt: float = 0.02
    max_episode_steps: int = 200
    max_contacts: int = 8  # of a ball with a box: room on the GPU, where buffers have a fixed size
    max_constraints: int = 48  # six rows per contact with sliding and spinning friction (condim 4)

    def observe(self, xp: Any, physics: Physics) -> Array:
        """[n, 8], laid out as above. `xp` is NumPy or `jax.numpy`; n environments at once."""
        qpos, qvel = physics.qpos, physics.qvel
        return xp.concatenate([qpos[:, :2], qvel[:, :2], qpos[:, PLACE], qvel[:, VELOCITY]], axis=-1)

    def reward_and_terminated(self, xp: Any, before: Physics, after: Physics, action: Array) -> tuple[Array, Array]:
        """1 in the middle, less the distance in half widths; ends when the ball has left the plate."""
        distance = xp.sqrt(xp.square(after.qpos[:, PLACE]).sum(axis=-1)) / 0.5
        on_plate = (abs(after.qpos[:, PLACE]) < 0.5).all(axis=-1)  # what holds, so that NaN counts as fallen
        return 1.0 - distance, ~on_plate

    def reset(self, rng: np.random.Generator, qpos0: np.ndarray, qvel0: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """At rest, the ball somewhere around the middle. Nothing is changed in place: JAX draws starts, too."""
        return qpos0 + START * rng.uniform(-1, 1, qpos0.shape), qvel0


TASK = "BallOnPlate-v0"
TASKS[TASK] = BallOnPlate()  # from here on an id like any other (`PPO(BallOnPlate())` would do as well)


def main(steps: int = 40_000, n_seeds: int = 1, engine: str = "auto") -> tuple[float, float]:
    """Trains on the plate.

    Args:
        steps: environment steps of each agent.
        n_seeds: how many agents.
        engine: native (CPU), warp (GPU), or auto.

    Returns:
        The mean return over seeds before and after training.
    """
    model = PPO(TASK, seed=range(n_seeds), engine=engine, gamma=0.98, steps_per_update=1_600, critic_iterations=40)

    def mean_return() -> float:
        # To name the task lets "auto" choose: a few episodes run on the CPU, wherever the agents were trained.
        return float(np.mean([evaluate_policy(model, TASK, n_eval_episodes=20, seed=s)[0] for s in model.seeds]))

    before = mean_return()
    model.learn(steps)
    after = mean_return()
    print(f"Mean return: {before:.1f} before, {after:.1f} after {model.num_timesteps:,} steps (at most 200).")
    return before, after


if __name__ == "__main__":
    tyro.cli(main)
