"""Figures of a store: the paper's, and those that judge it. Nothing here imports JAX.

Numbers come from `analysis`; these modules draw them.
"""

from mcclt.experiments.analysis.speed import FEW_POINTS, learning_curve
from mcclt.experiments.analysis.stats import mean_band
from mcclt.experiments.figures.bars import BARS_SHOWN, error_drawing, value_distributions
from mcclt.experiments.figures.calibration import calibration
from mcclt.experiments.figures.effects import effects, effects_on_speed
from mcclt.experiments.figures.episodes import bellman_std, ensemble_std, weights_over_episode
from mcclt.experiments.figures.scores import (
    changed_scores,
    final_scores,
    learning_curves,
    paper_mean,
    performance_profiles,
    profiles,
)
from mcclt.experiments.figures.style import COLOURS, INK, MORE_COLOURS, TITLES, Draw, colour, save, svg, written

__all__ = [
    "BARS_SHOWN",
    "COLOURS",
    "FEW_POINTS",
    "FIGURES",
    "INK",
    "MORE_COLOURS",
    "TITLES",
    "colour",
    "learning_curve",
    "mean_band",
    "paper_mean",
    "profiles",
    "save",
    "svg",
    "written",
]

FIGURES: dict[str, Draw] = {
    draw.__name__: draw
    for draw in (
        effects,
        learning_curves,
        effects_on_speed,
        final_scores,
        changed_scores,
        performance_profiles,
        value_distributions,
        bellman_std,
        error_drawing,
        ensemble_std,
        weights_over_episode,
        calibration,
    )
}
"""Each draws a figure, or gives None if the store holds nothing to draw it from; in the order of a report."""
