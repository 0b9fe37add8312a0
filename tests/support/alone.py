"""Updates of one agent, by the programs that train populations: compiled once for all tests whose agents are alike."""

from typing import Any

import jax
import numpy as np

from mcclt.method.learner import AgentState, Learner, Metrics, Rollout
from mcclt.training.fitting import Learnt, fits_of
from mcclt.training.population import Improve


def update(learner: Learner, state: AgentState, rollout: Rollout) -> tuple[AgentState, Metrics]:
    """What `Learner.update` says, as training does it; arrays are NumPy's."""
    own = {"it": learner}
    states, rollouts = ({"it": jax.tree.map(lambda x: np.asarray(x)[None], tree)} for tree in (state, rollout))
    better, lesson, metrics = Improve(own)(states, rollouts)["it"]
    found: Any = Learnt({"it": better}, {"it": lesson}, fits_of(own, 1)).states["it"], metrics
    return jax.tree.map(lambda x: np.asarray(x)[0], found)
