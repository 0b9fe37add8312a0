"""Figures of a store: the paper's, and those that judge it. Nothing here imports JAX.

Numbers come from `analysis`; these modules draw them.
"""

from mcclt.experiments.figures import bars, calibration, effects, episodes, scores
from mcclt.experiments.figures.style import COLOURS, INK, MORE_COLOURS, TITLES, Draw, colour, save, svg, written

__all__ = ["COLOURS", "FIGURES", "INK", "MORE_COLOURS", "TITLES", "colour", "save", "svg", "written"]

FIGURES: dict[str, Draw] = {
    draw.__name__: draw
    for draw in (
        effects.effects,
        scores.learning_curves,
        effects.effects_on_speed,
        scores.final_scores,
        scores.changed_scores,
        scores.performance_profiles,
        bars.value_distributions,
        episodes.bellman_std,
        bars.error_drawing,
        episodes.ensemble_std,
        episodes.weights_over_episode,
        calibration.calibration,
    )
}
"""Each draws a figure, or gives None if the store holds nothing to draw it from; in the order of a report."""
