"""A population whose places are given from one agent to the next while it trains.

All agents have one structure, so that nothing is compiled for a newcomer: its numbers are data. It trains as if it
were alone (bit for bit on a CPU): its own count of updates, schedule, optimisers, statistics and environments.
"""

import dataclasses
from collections.abc import Mapping, Sequence
from typing import Self

import jax
import jax.numpy as jnp
import numpy as np

from mcclt.config import AgentConfig, RunConfig, settled
from mcclt.errors import ConfigError
from mcclt.method.learner import STEPS, Learner, TrainState
from mcclt.method.randomness import Purpose
from mcclt.method.settings import stacked_numbers
from mcclt.training.collect import EpisodeStats
from mcclt.training.environments import keys_of
from mcclt.training.fitting import Learnt
from mcclt.training.population import choose
from mcclt.training.trainer import TRAINING, Place, Trainer

GROUP = "trial"


class Pool(Trainer):
    """A trainer of one group, with a place for each agent."""

    def __init__(self, config: RunConfig, places: Sequence[Place], env: object | None = None) -> None:
        """Makes fresh agents.

        Args:
            config: the run of each, whose one group is any agent of that structure; its seeds are not used.
            places: the first agents, all of one structure.
            env: a `gymnasium.Env` class or factory to use in place of the id `config.task`.
        """
        places = [dataclasses.replace(place, config=settled(place.config, config.steps)) for place in places]
        super().__init__(dataclasses.replace(config, seeds=tuple(range(len(places)))), env, places)
        for place in places:
            self._check(place.config)

    @property
    def _state(self) -> TrainState:
        return self.states[GROUP]

    def _check(self, agent: AgentConfig) -> None:
        """Raises unless the pool's programs serve this agent."""
        config, own = self.config, self.learners[GROUP]
        learner = Learner(agent, self.spec, config.n_envs, config.steps_per_update)
        if any(learner.key(step) != own.key(step) for step in STEPS):
            raise ConfigError("The agents of a pool must be of one structure: they may differ in numbers only.")

    def renew(self, newcomers: Mapping[int, Place]) -> None:
        """Gives places to new agents, which begin now; who was there before is gone."""
        if not newcomers:
            return
        which = np.zeros(len(self.places), bool)
        for i, place in newcomers.items():
            agent = settled(place.config, self.config.steps)
            self._check(agent)
            self.places[i] = Place(GROUP, place.seed, agent, self.update)
            self.status[i] = TRAINING
            self._last_fault.pop(i, None)
            self.stats.forget(i)
            which[i] = True
        self._learnt = Learnt({GROUP: choose(which, self._fresh()[GROUP], self._state)})
        if self._obs is not None:  # otherwise all environments are about to be reset
            mask = np.repeat(which, self.config.n_envs)
            self.env.rekey(keys_of(self.seeds, Purpose.TRAIN_RESET, 0, self.config.n_envs), mask)
            self._obs = np.array(self.env.restart(mask)).reshape(self._obs.shape)
            self.boundary = self._capture()

    def copy(self, pairs: Mapping[int, tuple[int, AgentConfig]]) -> None:
        """Each place takes over what the agent in another has learnt, and goes on with these settings.

        Its seed, its count of updates and its environments stay its own.
        """
        source = np.arange(len(self.places))
        for i, (other, agent) in pairs.items():
            agent = settled(agent, self.config.steps)
            self._check(agent)
            source[i] = other
            self.places[i] = dataclasses.replace(self.places[i], config=agent)
        old = self._state
        new = jax.tree.map(lambda x: x[source], old)
        norm = dataclasses.replace(new.norm, running=old.norm.running)
        numbers = {k: jnp.asarray(v) for k, v in stacked_numbers([place.config for place in self.places]).items()}
        self._learnt = Learnt({GROUP: dataclasses.replace(new, seed=old.seed, numbers=numbers, norm=norm)})
        if self._obs is not None:
            self.boundary = self._capture()

    def only(self, keep: Sequence[int]) -> Self:
        """A smaller pool in which the agents of these places train on; this one is closed.

        Where the engine cannot be restored, their episodes start anew.
        """
        index = np.asarray(keep)
        env = None if self.source == self.config.task else self.source
        smaller = type(self)(self.config, [self.places[i] for i in keep], env)
        smaller.update, smaller.status = self.update, [self.status[i] for i in keep]
        smaller._last_fault = {new: self._last_fault[old] for new, old in enumerate(keep) if old in self._last_fault}
        smaller._learnt = Learnt({GROUP: jax.tree.map(lambda x: jnp.asarray(np.asarray(x)[index]), self._state)})
        arrays = self.stats.to_arrays()
        arrays = {k: x[:, index] if k == "recent" else x[index] for k, x in arrays.items()}
        smaller.stats = EpisodeStats.from_arrays(arrays, self.stats.first_cuts)
        if self._obs is not None and self.spec.resumable:
            rows = (index[:, None] * self.config.n_envs + np.arange(self.config.n_envs)).reshape(-1)
            smaller.env.set_state({k: x[rows] for k, x in self.env.get_state().items()})
            smaller._obs = np.array(self._obs)[index]
            smaller.boundary = smaller._capture()
        else:
            smaller._start_together()
        self.close()
        return smaller
