"""One trained agent, from within: what it is made for, how it acts, what it believes, and with which parameters."""

import dataclasses
import functools
from dataclasses import dataclass

import jax
import numpy as np

from mcclt.config import AgentConfig
from mcclt.envs.api import EnvSpec
from mcclt.method import normal
from mcclt.method.critics import Prediction
from mcclt.method.learner import Learner, TrainState
from mcclt.method.nets import Params
from mcclt.method.randomness import Purpose, stream
from mcclt.training.collect import to_env_action
from mcclt.training.population import Program


@dataclass(frozen=True)
class ValueDistribution:
    """What a critic believes about a state, or about B states (then every field has a leading axis B)."""

    bars: np.ndarray
    """[N] quantile bars (members for an ensemble, one value for a plain critic)."""
    mean: np.ndarray
    """The value."""
    std: np.ndarray
    """The spread of the normal that the bars, in order, stand for: never below 0, also where they cross."""
    error: np.ndarray
    """Normality error of the bars; the members' deviation for an ensemble; 0 for a plain critic.

    With `normalize_reward` in the unit that the critic learns in; everything else is in the task's own rewards."""
    weight: np.ndarray
    """The weight this state would get in an update, at the temperature of the last one."""

    def __getitem__(self, i: int) -> "ValueDistribution":
        """That of the i-th state of a batch."""
        return ValueDistribution(*(getattr(self, field.name)[i] for field in dataclasses.fields(self)))

    @property
    def taus(self) -> np.ndarray:
        """[N] the probability below each bar (of quantile bars; an ensemble's members have no order)."""
        return normal.taus(self.bars.shape[-1])


@dataclass(frozen=True)
class Agent:
    """One agent of a model (`mcclt.Model.agent`). Nothing in here changes it."""

    task: str
    seed: int
    steps: int
    """Environment steps it has learnt from."""
    spec: EnvSpec
    """Of the task."""
    learner: Learner
    """The critic, weighting and policy update it is made of, chosen by its configuration."""
    state: TrainState
    """Its parameters and statistics, as NumPy arrays."""

    @property
    def config(self) -> AgentConfig:
        """How it learns, with nothing left to be chosen."""
        return self.learner.config

    @functools.cached_property
    def _acting(self) -> Params:
        stacked = jax.tree.map(lambda x: x[None], (self.state.policy, self.state.norm))
        return jax.tree.map(lambda x: x[0], self.learner.acting(*stacked))

    def noise(self, purpose: Purpose, index: int, count: int) -> np.ndarray:
        """The randomness of `count` actions, by name."""
        return np.asarray(self.learner.actor.noise(stream(self.seed, purpose, index), (count,)))

    def act(self, obs: np.ndarray, noise: np.ndarray | None = None) -> np.ndarray:
        """Actions at obs [B, O], within bounds, indices from 0: the most likely ones, or those that `noise` picks."""
        actor = self.learner.actor
        action = actor.mode(self._acting, obs) if noise is None else actor.sample(self._acting, obs, noise)
        return to_env_action(np.asarray(action), self.spec.action_low, self.spec.action_high)

    def believe(self, obs: np.ndarray) -> ValueDistribution:
        """The value distribution at obs [B, O]."""
        learner = self.learner

        def believe(state: TrainState, obs: jax.Array) -> tuple[Prediction, jax.Array]:
            found = learner.predict(state, obs)
            return found, learner.weights(state, found.error)

        program = Program(("believe", learner.key("prepare")), believe).jitted
        with jax.default_matmul_precision("float32"):
            found, weight = program(self.state, np.asarray(obs))
        return ValueDistribution(*(np.asarray(x) for x in (found.bars, found.mean, found.std, found.error, weight)))
