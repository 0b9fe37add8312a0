"""Deterministic episodes: how good a policy is."""

from collections.abc import Callable
from typing import NamedTuple

import numpy as np

from mcclt import interrupts
from mcclt.envs.api import VectorEnv
from mcclt.errors import EnvironmentFault
from mcclt.training.collect import Fault, find_faults, is_fault, to_env_action

LONGEST = 100_000
"""An episode of more steps than this is taken to have no end."""


def check_length(steps: int, task: str) -> None:
    """Raises if an episode of so many steps has no end."""
    if steps > LONGEST:
        raise EnvironmentFault(
            f"An episode of {task} did not end within {LONGEST:,} steps: give a limit, max_episode_steps."
        )


class Episodes(NamedTuple):
    """What `run_episodes` found."""

    returns: np.ndarray
    """[A, episodes]; NaN where an environment raised or returned a number that is not finite."""
    lengths: np.ndarray
    """[A, episodes]."""
    faults: list[Fault]
    """The first fault of each agent."""


def run_episodes(env: VectorEnv, act: Callable[[np.ndarray], np.ndarray], agents: int, episodes: int) -> Episodes:
    """Runs exactly `episodes` episodes of each agent.

    Each environment has a quota fixed beforehand, so that short episodes are not counted more often than
    long ones (as they would be if the first to finish were taken).

    Args:
        env: A·E environments, agent by agent; closed by the caller.
        act: from observations [A, E, O] to actions [A, E, ...].
        agents: A.
        episodes: per agent.
    """
    spec = env.spec
    n_envs = env.num_envs // agents
    quota = np.array([episodes // n_envs + (e < episodes % n_envs) for e in range(n_envs)])
    returns = np.zeros((agents, n_envs, quota.max()))
    lengths = np.zeros((agents, n_envs, quota.max()), int)
    done_count = np.zeros((agents, n_envs), int)
    faults: dict[int, Fault] = {}
    obs = env.reset().reshape(agents, n_envs, -1)
    t = 0
    while (unfinished := done_count < quota).any():
        interrupts.check()
        usable = np.where(np.isfinite(obs), obs, np.float32(0))
        action = to_env_action(act(usable), spec.action_low, spec.action_high)
        step = env.step(action.reshape(agents * n_envs, *action.shape[2:]))
        reward, next_obs = step.reward.reshape(agents, n_envs), step.next_obs.reshape(agents, n_envs, -1)
        if found := find_faults(env, reward, next_obs, obs, t, among=unfinished):
            for fault in found:
                faults.setdefault(fault.agent, fault)
            reward = np.where(is_fault(env, reward, next_obs, obs), np.nan, reward)  # so is the return, then
        obs = step.obs.reshape(agents, n_envs, -1)
        a, e = np.nonzero(unfinished)
        returns[a, e, done_count[a, e]] += reward[a, e]
        lengths[a, e, done_count[a, e]] += 1
        check_length(lengths.max(), spec.task)
        done_count += unfinished & (step.terminated | step.truncated).reshape(agents, n_envs)
        t += 1
    finished = np.arange(quota.max())[None, :] < quota[:, None]  # [E, quota]
    return Episodes(returns[:, finished], lengths[:, finished], list(faults.values()))
