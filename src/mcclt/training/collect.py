"""Collecting: the policies of a whole population act in one vector environment (Algorithm 1, lines 4-6, 10-14).

Only policies run here, in NumPy on the host: for 16 environments of one small network that is several times
cheaper than dispatching a compiled program per step. Values, errors and weights come later, in batch.

With one environment NumPy's own overhead counts: `count_nonzero` asks whether anything is true in a tenth of the time
that `any` and `all` take on a few numbers.
"""

from collections import deque
from dataclasses import dataclass
from typing import Any

import numpy as np

from mcclt import interrupts
from mcclt.envs.api import EnvSpec, VectorEnv
from mcclt.errors import EnvironmentFault
from mcclt.method.learner import Rollout
from mcclt.method.nets import Actor, Params

RECENT = 100
"""Returns are averaged over this many finished episodes, as in Stable-Baselines3."""


@dataclass
class EpisodeStats:
    """Returns and lengths of running and recent episodes of each agent."""

    running: np.ndarray
    """[A, E] float64: return so far."""
    length: np.ndarray
    """[A, E] int64: steps so far."""
    returns: list[deque[float]]
    """[A] the last finished episodes' returns."""
    lengths: list[deque[int]]
    """[A] and their lengths."""
    cut_at: np.ndarray
    """[A, E] int64: the length at which a running episode is cut, to bring environments out of lockstep; 0: not."""
    first_cuts: np.ndarray
    """[E] int64: `cut_at` of episodes that start together; see `staggered`."""

    @classmethod
    def empty(cls, agents: int, n_envs: int, first_cuts: np.ndarray | None = None) -> "EpisodeStats":
        """No episode seen; those of each agent are about to start together, and nothing cuts them unless given."""
        first_cuts = np.zeros(n_envs, np.int64) if first_cuts is None else first_cuts
        return cls(
            np.zeros((agents, n_envs)),
            np.zeros((agents, n_envs), np.int64),
            [deque(maxlen=RECENT) for _ in range(agents)],
            [deque(maxlen=RECENT) for _ in range(agents)],
            np.tile(first_cuts, (agents, 1)),
            first_cuts,
        )

    def due(self) -> np.ndarray:
        """Which running episodes [A, E] are to be cut at the coming step, unless they end there by themselves."""
        return self.length + 1 == self.cut_at

    def add(self, reward: np.ndarray, terminated: np.ndarray, truncated: np.ndarray) -> None:
        """Counts one step: all [A, E], `truncated` also where an episode was cut. A cut one is no whole episode."""
        self.running += reward
        self.length += 1
        done = terminated | truncated
        if np.count_nonzero(done):
            whole = terminated | (self.length != self.cut_at)
            for a, e in np.argwhere(done & whole & np.isfinite(self.running)):  # a fault's reward is not a return
                self.returns[a].append(float(self.running[a, e]))
                self.lengths[a].append(int(self.length[a, e]))
            for array in (self.running, self.length, self.cut_at):
                array[done] = 0

    def start_together(self, agent: int) -> None:
        """Drops the unfinished episodes of one agent, whose environments all start anew."""
        self.running[agent] = 0
        self.length[agent] = 0
        self.cut_at[agent] = self.first_cuts

    def forget(self, agent: int) -> None:
        """For another agent in this one's place: no episode seen, and its environments all start anew."""
        self.start_together(agent)
        self.returns[agent].clear()
        self.lengths[agent].clear()

    def to_arrays(self) -> dict[str, np.ndarray]:
        """As plain arrays, for a checkpoint; unused places are NaN."""
        recent = np.full((2, len(self.returns), RECENT), np.nan)
        for a, (returns, lengths) in enumerate(zip(self.returns, self.lengths, strict=True)):
            recent[0, a, : len(returns)] = returns
            recent[1, a, : len(lengths)] = lengths
        running = {"running": self.running, "length": self.length, "cut_at": self.cut_at}
        return {name: array.copy() for name, array in running.items()} | {"recent": recent}

    @classmethod
    def from_arrays(cls, arrays: dict[str, np.ndarray], first_cuts: np.ndarray) -> "EpisodeStats":
        """Reads what `to_arrays` gave."""
        recent = arrays["recent"]
        finished = [~np.isnan(row) for row in recent[0]]
        return cls(
            arrays["running"].copy(),
            arrays["length"].copy(),
            [deque(row[ok].tolist(), maxlen=RECENT) for row, ok in zip(recent[0], finished, strict=True)],
            [deque(row[ok].astype(int).tolist(), maxlen=RECENT) for row, ok in zip(recent[1], finished, strict=True)],
            arrays["cut_at"].copy(),
            first_cuts,
        )


def staggered(n_envs: int, limit: int | None) -> np.ndarray:
    """Lengths [E] at which to cut the first episodes of environments that start together; 0: not at all.

    Environment e is cut after (E - e)/E of the time limit. Otherwise, where no episode ends before the limit,
    environments would stay in lockstep for ever, and every update see the same part of an episode in all of them.
    """
    if limit is None:
        return np.zeros(n_envs, np.int64)
    lengths = -(-limit * np.arange(n_envs, 0, -1) // n_envs)  # rounded up
    return np.where(lengths < limit, lengths, 0)


@dataclass(frozen=True)
class Fault:
    """An environment that raised or returned a number that is not finite."""

    agent: int
    env: int
    step: int
    """Step of the rollout, from 0."""
    what: str
    """What it did; on further lines, where in the user's code."""

    @property
    def said(self) -> str:
        """What it did, to be put into a sentence."""
        return self.what.partition("\n")[0]

    @property
    def where(self) -> str:
        """Where in the user's code, to be put below a sentence; empty if nothing was raised."""
        return self.what[len(self.said) :]


def to_env_action(action: np.ndarray, low: np.ndarray | None, high: np.ndarray | None) -> np.ndarray:
    """Clips continuous actions [..., D] to the box; leaves indices alone."""
    # What `np.clip` is defined as, in half the time on a few numbers.
    return action if low is None or high is None else np.minimum(np.maximum(action, low), high)


def empty_rollout(xp: Any, spec: EnvSpec, shape: tuple[int, int, int]) -> Rollout:
    """Room for the steps of A agents, T steps of E environments each, in arrays of a library (NumPy or JAX)."""
    obs = (*shape, spec.obs_size)
    action = xp.empty(shape, np.int32) if spec.discrete else xp.empty((*shape, spec.action_size), np.float32)
    return Rollout(
        obs=xp.empty(obs, np.float32),
        action=action,
        reward=xp.empty(shape, np.float32),
        terminated=xp.empty(shape, bool),
        truncated=xp.empty(shape, bool),
        next_obs=xp.empty(obs, np.float32),
    )


def collect(
    env: VectorEnv,
    policy: Actor,
    params: Params,
    obs: np.ndarray,
    noise: np.ndarray,
    stats: EpisodeStats,
    raise_faults: bool,
) -> tuple[Rollout, np.ndarray, list[Fault]]:
    """T steps of every environment of A agents.

    Args:
        env: A·E environments, agent by agent.
        policy: the family all agents share.
        params: policies' parameters as NumPy arrays, stacked [A, ...].
        obs: [A, E, O] what to act on first.
        noise: [A, T, E, D] the randomness of the actions.
        stats: running returns, updated in place; and which episodes to cut.
        raise_faults: raise at the first fault; otherwise the agent's episodes restart, the fault is
            reported, and that agent's rollout must not be learnt from (its numbers are zeros).

    Returns:
        Rollouts stacked [A, T, E, ...], the observations [A, E, O] to act on next, faults (one per agent).
    """
    spec = env.spec
    agents, horizon, n_envs = noise.shape[:3]
    rollout = empty_rollout(np, spec, (agents, horizon, n_envs))
    faults: dict[int, Fault] = {}

    def settle(found: list[Fault]) -> np.ndarray:
        """Raises, or restarts the agents at fault and returns what everybody acts on next."""
        if raise_faults:
            raise FaultError(found[0])
        mask = np.zeros((agents, n_envs), bool)
        for fault in found:
            faults.setdefault(fault.agent, fault)
            stats.start_together(fault.agent)
            mask[fault.agent] = True
        fresh = env.restart(mask.reshape(-1)).reshape(agents, n_envs, -1)
        # A restart may fail as well: its agent acts on zeros, and is not learnt from.
        return np.where(np.isfinite(fresh), fresh, np.float32(0))

    if found := find_faults(env, np.zeros((agents, n_envs)), obs, obs, 0):
        obs = settle(found)
    for t in range(horizon):
        interrupts.check()
        action = policy.sample(params, obs, noise[:, t])
        sent = to_env_action(action, spec.action_low, spec.action_high)
        step = env.step(sent.reshape(agents * n_envs, *sent.shape[2:]))
        reward = step.reward.reshape(agents, n_envs)
        next_obs = step.next_obs.reshape(agents, n_envs, -1)
        terminated = step.terminated.reshape(agents, n_envs)
        truncated = step.truncated.reshape(agents, n_envs)
        cutting = np.count_nonzero(stats.cut_at) > 0  # some first episodes run still
        if cutting:
            due = stats.due() & ~(terminated | truncated)
            cutting = np.count_nonzero(due) > 0
            truncated = truncated | due

        rollout.obs[:, t], rollout.action[:, t], rollout.reward[:, t] = obs, action, reward
        rollout.terminated[:, t], rollout.truncated[:, t], rollout.next_obs[:, t] = terminated, truncated, next_obs
        obs = next_obs if step.obs is step.next_obs else step.obs.reshape(agents, n_envs, -1)
        stats.add(reward, terminated, truncated)
        if found := find_faults(env, reward, next_obs, obs, t):
            obs = settle(found)
        if cutting:
            obs = env.restart(due.reshape(-1)).reshape(agents, n_envs, -1)
            if found := find_faults(env, np.zeros_like(reward), obs, obs, t):
                obs = settle(found)

    for agent in faults:
        for array in (rollout.obs, rollout.next_obs, rollout.reward):
            array[agent] = 0
    return rollout, obs, list(faults.values())


class FaultError(EnvironmentFault):
    """Carries a fault to the caller, which knows the seeds."""

    def __init__(self, fault: Fault) -> None:
        super().__init__(fault.what)
        self.fault = fault


def all_finite(x: np.ndarray) -> bool:
    """Whether all numbers are finite."""
    return np.count_nonzero(np.isfinite(x)) == x.size


def is_fault(env: VectorEnv, reward: np.ndarray, next_obs: np.ndarray, obs: np.ndarray) -> np.ndarray:
    """Which environments [A, E] raised, or returned a number that is not finite, at this step."""
    finite = np.isfinite(reward) & np.isfinite(next_obs).all(axis=-1) & np.isfinite(obs).all(axis=-1)
    bad = ~finite.reshape(-1)
    bad[list(env.faults())] = True
    return bad.reshape(reward.shape)


def find_faults(
    env: VectorEnv,
    reward: np.ndarray,
    next_obs: np.ndarray,
    obs: np.ndarray,
    t: int,
    among: np.ndarray | None = None,
) -> list[Fault]:
    """The first fault of each agent at this step; only of the environments `among` [A, E], if given."""
    raised = env.faults()
    if not raised and all_finite(next_obs) and (obs is next_obs or all_finite(obs)) and all_finite(reward):
        return []
    bad = is_fault(env, reward, next_obs, obs)
    bad = bad if among is None else bad & among
    found = []
    for a in np.flatnonzero(bad.any(axis=1)).tolist():
        e = int(bad[a].argmax())
        if (index := a * bad.shape[1] + e) in raised:
            what = raised[index]
        elif not np.isfinite(reward[a, e]):
            what = f"returned the reward {reward[a, e]}"
        else:
            both = np.concatenate([next_obs[a, e], obs[a, e]])
            k = int(np.flatnonzero(~np.isfinite(both))[0])
            what = f"returned {both[k]} at index {k % obs.shape[-1]} of the observation"
        found.append(Fault(a, e, t, what))
    return found
