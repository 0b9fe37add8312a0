"""What a vector environment is, whatever engine steps it.

One vector environment holds the environments of a whole population, agent by agent: environment
`a * n_envs + e` is the e-th of agent a. Engines differ in speed, never in meaning:

- An episode that ends is reset within the same step. `Step.obs` is then the first observation of the new
  episode (to act on), and `Step.next_obs` the true last one of the old (to bootstrap from). No sample is
  ever a dummy, so nothing needs a mask.
- `terminated` (the task ended) and `truncated` (the time limit) are never merged.
- The randomness of environment i comes from `keys[i]` alone (agent seed, purpose, index), so that an
  agent does not know its neighbours.
"""

import os
from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple, Protocol

import numpy as np

Key = tuple[int, ...]
"""Names one environment's stream of randomness: (agent seed, purpose, round, environment index)."""


def rng_of(key: Key, episode: int) -> np.random.Generator:
    """The generator of one episode of one environment: a pure function of its names (counter-based)."""
    return np.random.default_rng([*key, episode])


def task_name(task: object) -> str:
    """How to call a task in messages and results: its id, or the name of the class or function."""
    return task if isinstance(task, str) else getattr(task, "__qualname__", type(task).__name__)


def available_cores() -> int:
    """Cores that this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


@dataclass(frozen=True)
class EnvSpec:
    """What the learner needs to know of a task."""

    task: str
    """The id as the user gave it, e.g. "Hopper-v5"."""
    engine: str
    """Which engine steps it: "native", "envpool", "gymnasium" or "gymnasium-async"."""
    obs_size: int
    """Length O of the (flattened) observation vector."""
    action_size: int
    """Length of a continuous action, or the number of discrete ones."""
    action_low: np.ndarray | None
    """[action_size] lower bounds (may be -inf); None for discrete actions."""
    action_high: np.ndarray | None
    """[action_size] upper bounds; None for discrete actions."""
    max_episode_steps: int | None
    """The time limit in force, after which an episode is truncated."""
    resumable: bool
    """Whether `get_state`/`set_state` restore the environment exactly."""
    action_start: int = 0
    """The task's name for discrete action 0 (Gymnasium's `Discrete.start`); engines add it when stepping."""

    @property
    def discrete(self) -> bool:
        """Whether actions are indices rather than vectors."""
        return self.action_low is None


class Step(NamedTuple):
    """The outcome of one step of all n environments."""

    obs: np.ndarray
    """[n, O] float32: what to act on next (a fresh episode's first observation where one ended)."""
    reward: np.ndarray
    """[n] float32."""
    terminated: np.ndarray
    """[n] bool: the task itself ended; the value after it is 0."""
    truncated: np.ndarray
    """[n] bool: the time limit cut the episode; the value after it is that of `next_obs`. Never true
    together with `terminated`."""
    next_obs: np.ndarray
    """[n, O] float32: the true successor; equals `obs` except where an episode ended."""


class VectorEnv(Protocol):
    """The contract of every engine."""

    spec: EnvSpec
    num_envs: int
    on_device: bool
    """Whether it is also a `mcclt.training.device.DeviceVectorEnv`, whose arrays stay on the device."""

    def reset(self) -> np.ndarray:
        """Starts a new episode everywhere; returns observations [n, O]."""
        ...

    def step(self, action: np.ndarray) -> Step:
        """Steps all environments: float32 [n, action_size] within bounds, or int64 [n]."""
        ...

    def restart(self, which: np.ndarray) -> np.ndarray:
        """Abandons the episodes where the mask [n] is true, starts new ones; returns all observations."""
        ...

    def rekey(self, keys: Sequence[Key], which: np.ndarray) -> None:
        """Names the environments where the mask [n] is true anew: their next `restart` is that of new ones.

        Where streams of randomness cannot be changed (EnvPool), they go on with those they have.
        """
        ...

    def faults(self) -> dict[int, str]:
        """What environments raised in the last step or reset, by index.

        Such an environment returns NaN in that step, in place of stopping the others, and starts a new episode.
        """
        ...

    def get_state(self) -> dict[str, np.ndarray]:
        """Everything needed to continue exactly; only called where `spec.resumable`."""
        ...

    def set_state(self, state: dict[str, np.ndarray]) -> np.ndarray:
        """Restores what `get_state` gave; returns the observations at that moment."""
        ...

    def close(self) -> None:
        """Frees processes and threads."""
        ...


class Engine(Protocol):
    """A way to make vector environments; one class in one file, listed in `ENGINES`."""

    name: str

    def supports(self, task: object) -> bool:
        """Whether this engine, as installed, can run the task (never raises)."""
        ...

    def make(
        self, task: object, keys: Sequence[Key], max_episode_steps: int | None, num_threads: int | None
    ) -> VectorEnv:
        """Makes one environment per key. `max_episode_steps` replaces the task's own limit."""
        ...
