"""The paper's claims, each tested on what a store holds.

Verdicts are about the settings that are there, and say how many those are. Only series trained for the same number of
steps are compared, and seeds are the unit of every test. Where one claim makes many tests (one per setting), their
p-values are Holm's.
"""

import numpy as np

from mcclt.experiments.analysis.claims.bars import MARGIN, bars_suffice
from mcclt.experiments.analysis.claims.cost import cost, cost_ratios, paper_cost
from mcclt.experiments.analysis.claims.critics import bellman_grows, close_to_normal, ensemble_falls
from mcclt.experiments.analysis.claims.returns import (
    accuracy_beats_exploration,
    beats_baseline,
    beats_ensemble,
    each_component,
    weights_help,
)
from mcclt.experiments.analysis.claims.verdict import Verdict
from mcclt.experiments.analysis.contrasts import ALPHA, Contrast, contrasts, normalised, reference
from mcclt.experiments.results import Results

__all__ = [
    "ALPHA",
    "MARGIN",
    "Contrast",
    "Verdict",
    "contrasts",
    "cost_ratios",
    "normalised",
    "paper_cost",
    "reference",
    "verdicts",
]


def verdicts(results: Results, seed: int = 0) -> list[Verdict]:
    """All claims; `seed` is that of the bootstrap."""
    rng = np.random.default_rng(seed)
    return [
        beats_ensemble(results),
        each_component(results, rng),
        beats_baseline(results, rng),
        weights_help(results, rng),
        accuracy_beats_exploration(results),
        cost(results),
        bars_suffice(results),
        bellman_grows(results),
        ensemble_falls(results),
        close_to_normal(results),
    ]
