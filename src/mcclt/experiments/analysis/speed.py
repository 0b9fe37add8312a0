"""How fast agents learn: their learning curves as one number per seed."""

import numpy as np

from mcclt.experiments.results import Series

FEW_POINTS = 5
"""Evaluations that make a curve."""
SHARE = 0.75
"""Of the baseline's final score: what agents are timed to reach."""


def curve_column(*series: Series) -> str:
    """The return that curves show: of evaluations, or where some have too few, of the episodes collected."""
    enough = all(len(s.curve("eval/mean_reward")[0]) >= FEW_POINTS for s in series)
    return "eval/mean_reward" if enough else "rollout/ep_rew_mean"


def learning_curve(series: Series) -> tuple[np.ndarray, np.ndarray]:
    """Steps [T] and returns [seeds, T]."""
    return series.curve(curve_column(series))


def area(steps: np.ndarray, rows: np.ndarray) -> np.ndarray:
    """[seeds] area under each curve [seeds, T] over the steps [T] it spans: the mean return while learning.

    A missing value is the line between its neighbours, or the next one at an end. NaN for a seed that has none.
    """
    found = np.full(len(rows), np.nan)
    for place, row in enumerate(rows if len(steps) > 1 else ()):
        known = np.isfinite(row)
        if known.any():
            filled = np.interp(steps, steps[known], row[known])
            found[place] = np.trapezoid(filled, steps) / (steps[-1] - steps[0])
    return found


def steps_to(steps: np.ndarray, rows: np.ndarray, threshold: float) -> np.ndarray:
    """[seeds] steps until each curve [seeds, T] first reaches a threshold; the last step for those that never do."""
    reached = rows >= threshold
    return np.where(reached.any(axis=1), steps[reached.argmax(axis=1)], steps[-1])


def threshold_of(baseline: np.ndarray) -> float:
    """`SHARE` of the mean of the baseline's final scores [seeds]; where that is negative, as far below it."""
    mean = float(np.nanmean(baseline))
    return mean - (1 - SHARE) * abs(mean)


def scores_of(measure: str, a: Series, b: Series, baseline: Series | None) -> tuple[np.ndarray, np.ndarray] | str:
    """[seeds] of two series by a measure, more is better; or in one sentence why there are none.

    `final`: their final scores. `area`: that under their learning curves. `threshold`: minus the steps until they reach
    `SHARE` of what the baseline has in the end.
    """
    if measure == "final":
        return a.scores, b.scores
    column = curve_column(a, b)
    one, other = a.curve(column), b.curve(column)
    if min(len(steps) for steps, _ in (one, other)) < FEW_POINTS:
        return "There are too few points for a learning curve."
    if measure == "area":
        return area(*one), area(*other)
    if baseline is None or baseline.steps != a.steps or not np.isfinite(baseline.scores).any():
        return "There is no baseline to take the threshold from."
    threshold = threshold_of(baseline.scores)
    return -steps_to(*one, threshold), -steps_to(*other, threshold)
