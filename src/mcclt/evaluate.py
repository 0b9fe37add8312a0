"""Deterministic episodes: how good a policy is."""

from collections.abc import Callable

import numpy as np

from mcclt import interrupts
from mcclt.collect import to_env_action
from mcclt.envs.api import VectorEnv
from mcclt.errors import EnvironmentFault

LONGEST = 100_000
"""An episode of more steps than this is taken to have no end."""


def run_episodes(
    env: VectorEnv, act: Callable[[np.ndarray], np.ndarray], agents: int, episodes: int
) -> tuple[np.ndarray, np.ndarray]:
    """Runs exactly `episodes` episodes of each agent.

    Each environment has a quota fixed beforehand, so that short episodes are not counted more often than
    long ones (as they would be if the first to finish were taken).

    Args:
        env: A·E environments, agent by agent; closed by the caller.
        act: from observations [A, E, O] to actions [A, E, ...].
        agents: A.
        episodes: per agent.

    Returns:
        Returns and lengths, each [A, episodes]; a return is NaN where an environment raised or returned it.
    """
    spec = env.spec
    n_envs = env.num_envs // agents
    quota = np.array([episodes // n_envs + (e < episodes % n_envs) for e in range(n_envs)])
    returns = np.zeros((agents, n_envs, quota.max()))
    lengths = np.zeros((agents, n_envs, quota.max()), int)
    done_count = np.zeros((agents, n_envs), int)
    obs = env.reset()
    while (unfinished := done_count < quota).any():
        interrupts.check()
        obs = np.where(np.isfinite(obs), obs, np.float32(0))
        action = to_env_action(act(obs.reshape(agents, n_envs, -1)), spec.action_low, spec.action_high)
        step = env.step(action.reshape(agents * n_envs, *action.shape[2:]))
        obs = step.obs
        a, e = np.nonzero(unfinished)
        returns[a, e, done_count[a, e]] += step.reward.reshape(agents, n_envs)[a, e]
        lengths[a, e, done_count[a, e]] += 1
        if lengths.max() > LONGEST:
            raise EnvironmentFault(
                f"An episode of {spec.task} did not end within {LONGEST:,} steps: give a limit, max_episode_steps."
            )
        done_count += unfinished & (step.terminated | step.truncated).reshape(agents, n_envs)
    finished = np.arange(quota.max())[None, :] < quota[:, None]  # [E, quota]
    return returns[:, finished], lengths[:, finished]
