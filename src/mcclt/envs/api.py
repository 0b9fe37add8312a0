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

import importlib.util
import os
from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, NamedTuple

import numpy as np

from mcclt.errors import CheckpointError

State = dict[str, np.ndarray]
"""What `VectorEnv.get_state` gives: all that is needed to continue exactly."""
Key = tuple[int, ...]
"""Names one environment's stream of randomness: (agent seed, purpose, round, environment index)."""


def rng_of(key: Key, episode: int) -> np.random.Generator:
    """The generator of one episode of one environment: a pure function of its names (counter-based)."""
    return np.random.default_rng([*key, episode])


def seed_of(*names: int) -> int:
    """A seed of 32 bits from names alone, for those that bring their own generator."""
    return int(np.random.SeedSequence(names).generate_state(1)[0])


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
    """The name of the engine that steps it."""
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
    action_counts: tuple[int, ...] | None = None
    """How many whole numbers, from `action_low` on, each dimension of an action may be; None: any number."""

    @property
    def discrete(self) -> bool:
        """Whether actions are indices rather than vectors."""
        return self.action_low is None

    @property
    def spaces(self) -> tuple[object, ...]:
        """What tasks that one agent can act in have in common."""
        return self.obs_size, self.action_size, self.discrete, self.action_counts


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
    """[n, O] float32: the true successor; equals `obs` except where an episode ended. Where none did, it may be the
    same array."""


class VectorEnv(ABC):
    """The environments of a whole population, and the contract of an engine.

    An engine is one subclass, entered in `mcclt.envs.ENGINES`. What it says of itself below, and nothing else, decides
    how it is used: nobody asks for its name.
    """

    name: ClassVar[str]
    """What users call it: its name in `ENGINES`."""
    needs: ClassVar[tuple[str, ...]] = ()
    """Packages that it imports; `mcclt envs` shows the version of the first."""
    extra: ClassVar[str] = ""
    """The extra of this library that installs them, if they are optional."""
    on_device: ClassVar[bool] = False
    """Whether its arrays stay on the device: then it is a `DeviceVectorEnv`."""
    resumable: ClassVar[bool] = False
    """Whether `get_state` and `set_state` restore it exactly."""
    can_time_out: ClassVar[bool] = False
    """Whether it can end a step or a reset that takes longer than `step_timeout`."""
    stand_in: ClassVar[str] = ""
    """An engine of the same tasks that is sooner made, for a few episodes; if empty, this one is soon made."""

    spec: EnvSpec
    num_envs: int
    keys: list[Key]
    """[n] names of the environments' random streams."""
    starts: np.ndarray
    """[n] int64: how often each stream was drawn from; with `keys`, all that a start depends on."""
    physics_seconds: float = 0.0
    """Seconds spent in the simulator alone so far, if the engine measures them."""

    def __init__(
        self,
        task: object,
        keys: Sequence[Key],
        max_episode_steps: int | None = None,
        num_threads: int | None = None,
        step_timeout: float | None = None,
    ) -> None:
        """Makes one environment per key, of a task that it `supports`; see `mcclt.envs.make_vec`."""
        self.num_envs, self.keys, self.starts = len(keys), list(keys), np.zeros(len(keys), np.int64)
        threads = min(num_threads or available_cores(), self.num_envs)
        found = self.make(task, max_episode_steps, threads, step_timeout)
        self.spec = EnvSpec(task=task_name(task), engine=self.name, resumable=self.resumable, **found)

    @abstractmethod
    def make(self, task: Any, limit: int | None, threads: int, timeout: float | None) -> dict[str, Any]:
        """Makes the environments; returns what `EnvSpec` has of sizes, bounds and the time limit.

        Args:
            task: An id, or whatever else the engine runs.
            limit: A time limit in place of the task's own.
            threads: How many to step with; results must not depend on it.
            timeout: Seconds that a step or a reset may take; only given if it `can_time_out`.
        """

    @classmethod
    @abstractmethod
    def runs(cls, task: object) -> bool:
        """Whether it can run the task, if what it needs is installed (never raises)."""

    @classmethod
    def tasks(cls) -> Mapping[str, int | None]:
        """The ids that it is known for and their time limits, for `mcclt envs`."""
        return {}

    @classmethod
    def installed(cls) -> bool:
        """Whether all that it needs is there; nothing is imported."""
        return all(importlib.util.find_spec(package) is not None for package in cls.needs)

    @classmethod
    def supports(cls, task: object) -> bool:
        """Whether it can run the task here (never raises)."""
        return cls.installed() and cls.runs(task)

    def reset(self) -> np.ndarray:
        """Starts a new episode everywhere; returns observations [n, O]."""
        return self.restart(np.ones(self.num_envs, bool))

    @abstractmethod
    def step(self, action: np.ndarray) -> Step:
        """Steps all environments: float32 [n, action_size] within bounds, or int64 [n]."""

    @abstractmethod
    def restart(self, which: np.ndarray) -> np.ndarray:
        """Abandons the episodes where the mask [n] is true, starts new ones; returns all observations."""

    def rekey(self, keys: Sequence[Key], which: np.ndarray) -> None:
        """Names the environments where the mask [n] is true anew: their next `restart` is that of new ones.

        Those of an engine that asks for keys only when it is made (EnvPool) go on with the streams they have.
        """
        self.keys = [new if changed else old for old, new, changed in zip(self.keys, keys, which, strict=True)]
        self.starts[which] = 0

    def faults(self) -> dict[int, str]:
        """What environments raised in the last step or reset, by index; nothing, unless an engine says otherwise.

        Such an environment returns NaN in that step, in place of stopping the others, and starts a new episode.
        """
        return {}

    def get_state(self) -> State:
        """Everything needed to continue exactly, if it is `resumable`."""
        raise CheckpointError(f"{self.spec.task!r} cannot be saved: engine {self.name!r} does not expose its state.")

    def set_state(self, state: State) -> np.ndarray:
        """Restores what `get_state` gave; returns the observations at that moment."""
        raise CheckpointError(f"{self.spec.task!r} cannot be restored: engine {self.name!r} does not accept a state.")

    def close(self) -> None:  # noqa: B027
        """Frees processes, threads and memory; again is no error."""


class DeviceVectorEnv(VectorEnv):
    """Environments that live on the device: the same in JAX arrays that stay there, and so on the host."""

    on_device = True

    @abstractmethod
    def send(self, action: Any) -> None:
        """Begins a step of all environments under the actions [n, action_size]; `receive` ends it."""

    @abstractmethod
    def receive(self) -> Any:
        """The outcome of the step that is under way: a `Step` of JAX arrays."""

    @abstractmethod
    def restart_device(self, which: Any) -> Any:
        """Abandons the episodes where the mask [n] is true, starts new ones; returns all observations."""

    def reset_device(self) -> Any:
        """Starts a new episode everywhere; returns observations [n, O]."""
        return self.restart_device(np.ones(self.num_envs, bool))

    def check_room(self) -> None:
        """Raises if the simulation ran out of room since the last call, and so went wrong."""

    def step(self, action: np.ndarray) -> Step:
        """Steps all environments; see `VectorEnv.step`."""
        self.send(np.asarray(action, np.float32))
        step = self.receive()
        self.check_room()
        return Step(*(np.asarray(x) for x in step))

    def restart(self, which: np.ndarray) -> np.ndarray:
        """Starts new episodes where the mask [n] is true; see `VectorEnv.restart`."""
        return np.asarray(self.restart_device(which))
