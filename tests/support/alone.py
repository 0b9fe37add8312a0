"""Updates of agents by the programs that train populations: compiled once for all tests whose agents are alike."""

from dataclasses import replace
from typing import Any

import jax
import numpy as np

from mcclt.method import settings
from mcclt.method.learner import Batches, Learner, Metrics, Rollout, Targets, TrainState
from mcclt.training.fitting import Learnt, fits_of
from mcclt.training.population import Improve, Program


def init(learner: Learner, agents: int) -> TrainState:
    """Fresh agents of the first seeds, stacked."""
    return Program(learner.key("init"), learner.init).mapped()(
        np.arange(agents, dtype=np.uint32), jax.tree.map(lambda x: np.full(agents, x), settings.numbers(learner.config))
    )


def prepare(learner: Learner, state: TrainState, rollout: Rollout) -> Targets:
    """What `Learner.prepare` finds for one, without the key of minibatches."""
    args = jax.tree.map(lambda x: np.asarray(x)[None], (replace(state, policy=None, policy_opt=None), rollout))
    found = Program(learner.key("prepare"), learner.prepare).mapped()(*args)
    return jax.tree.map(lambda x: np.asarray(x)[0], found._replace(policy_batch=found.policy_batch._replace(key=None)))


def fit(learner: Learner, state: TrainState, batches: Batches) -> TrainState:
    """One whose critic has learnt from its batches."""
    states, batches = jax.tree.map(lambda x: np.asarray(x)[None], (state, batches))
    return jax.tree.map(
        lambda x: np.asarray(x)[0], Learnt({"it": states}, {"it": batches}, fits_of({"it": learner}, 1)).states["it"]
    )


def updates(learner: Learner, states: TrainState, rollouts: Rollout) -> tuple[TrainState, Metrics]:
    """What `Learner.update` says to agents stacked, as training does it."""
    own = {"it": learner}
    better, batches, metrics = Improve(own)({"it": states}, {"it": rollouts})["it"]
    return Learnt({"it": better}, {"it": batches}, fits_of(own, 1)).states["it"], metrics


def update(learner: Learner, state: TrainState, rollout: Rollout) -> tuple[TrainState, Metrics]:
    """What it says to one; arrays are NumPy's."""
    stacked = jax.tree.map(lambda x: np.asarray(x)[None], (state, rollout))
    found: Any = updates(learner, *stacked)
    return jax.tree.map(lambda x: np.asarray(x)[0], found)
