"""Where things happen: environments that the host steps, or that live on the device. Chosen once for a trainer.

On the host policies act in NumPy, fits of critics run beside whatever the host does next, and an evaluation is made at
once. On the device everything is launched ahead: pieces of the fits and of an evaluation go between the steps of a
rollout, beside which they run.
"""

import abc
from collections.abc import Callable
from typing import Any, Protocol

import jax.numpy as jnp
import numpy as np

from mcclt.envs.api import Key, VectorEnv
from mcclt.method.learner import Rollout
from mcclt.method.nets import Actor, Params
from mcclt.training import device
from mcclt.training.collect import EpisodeStats, Fault, collect
from mcclt.training.evaluate import Episodes, run_episodes
from mcclt.training.fitting import Learnt

MakeEnv = Callable[[int], VectorEnv]
"""Makes that many environments for each agent."""


class Evaluation(Protocol):
    """Deterministic episodes that are under way, or over."""

    ended: bool

    def go_on(self) -> None:
        """Makes the next step; does not wait for it."""
        ...

    def finish(self) -> Episodes:
        """What was found, when all episodes have ended."""
        ...


class Backend(abc.ABC):
    """The contract."""

    xp: Any
    """The library of arrays that policies act with: NumPy or `jax.numpy`."""

    @abc.abstractmethod
    def collect(
        self,
        env: VectorEnv,
        actor: Actor,
        params: Params,
        obs: Any,
        noise: Any,
        stats: EpisodeStats,
        raise_faults: bool,
        meanwhile: Callable[[], None],
    ) -> tuple[Rollout, Any, list[Fault]]:
        """See `mcclt.training.collect.collect`; `meanwhile` gives the device work to do beside the physics."""

    @abc.abstractmethod
    def evaluation(
        self, make: MakeEnv, keys: Callable[[int], list[Key]], actor: Actor, params: Params, agents: int, episodes: int
    ) -> Evaluation:
        """Begins deterministic episodes of each agent, on environments of their own.

        Args:
            make: makes the environments.
            keys: their names, for so many of each agent.
            actor: the family all agents share.
            params: their parameters, stacked.
            agents: how many.
            episodes: of each.
        """

    def pieces(self, horizon: int) -> int:
        """In how many pieces critics are fitted during a rollout of so many steps."""
        del horizon
        return 1

    def learnt(self, learnt: Learnt) -> None:
        """Agents have learnt: has their critics fitted, if that is not done on the way."""
        learnt.finish()

    def close(self) -> None:  # noqa: B027 (most keep nothing)
        """Frees what it keeps."""


class Host(Backend):
    """The host steps the environments; each critic fit runs alongside in one piece."""

    xp = np

    def __init__(self, n_envs: int) -> None:
        """Evaluates in at most `n_envs` environments per agent at a time."""
        self._n_envs = n_envs

    def collect(self, env, actor, params, obs, noise, stats, raise_faults, meanwhile):
        """There is nothing to do meanwhile."""
        return collect(env, actor, params, obs, np.asarray(noise), stats, raise_faults)

    def evaluation(self, make, keys, actor, params, agents, episodes):
        """Makes them all now, in fresh environments, which have their names."""
        env = make(min(episodes, self._n_envs))
        try:
            return _Ended(run_episodes(env, lambda obs: actor.mode(params, obs), agents, episodes))
        finally:
            env.close()


class _Ended:
    """An evaluation that is over."""

    ended = True

    def __init__(self, episodes: Episodes) -> None:
        self._episodes = episodes

    def go_on(self) -> None:
        """Nothing is left."""

    def finish(self) -> Episodes:
        """What was found."""
        return self._episodes


class Device(Backend):
    """The environments live on the device: nothing comes to the host but what is logged."""

    xp = jnp

    def __init__(self) -> None:
        self._evaluators: dict[int, Any] = {}

    def collect(self, env, actor, params, obs, noise, stats, raise_faults, meanwhile):
        """With `meanwhile` between any two steps."""
        return device.collect(env, actor, params, obs, noise, stats, raise_faults, meanwhile)

    def evaluation(self, make, keys, actor, params, agents, episodes):
        """One environment per episode; they are kept, because there they take seconds to make."""
        if episodes not in self._evaluators:
            self._evaluators[episodes] = make(episodes)
        env = self._evaluators[episodes]
        env.rekey(keys(episodes), np.ones(env.num_envs, bool))
        return device.Evaluation(env, actor, params, agents)

    def pieces(self, horizon: int) -> int:
        """One between any two steps."""
        return horizon

    def learnt(self, learnt: Learnt) -> None:
        """Nothing: pieces of the fits are done on the way."""

    def close(self) -> None:
        """Frees the environments of evaluations."""
        for env in self._evaluators.values():
            env.close()


def backend_of(env: VectorEnv, n_envs: int) -> Backend:
    """For training environments, `n_envs` of each agent."""
    return Device() if env.on_device else Host(n_envs)
