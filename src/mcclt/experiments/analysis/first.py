"""A user's own comparison: how each variant differs from the first of its task and algorithm."""

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import scipy.stats

from mcclt.experiments.analysis import stats
from mcclt.experiments.results import Series


@dataclass(frozen=True)
class Row:
    """One variant on one task."""

    series: Series
    summary: stats.Summary
    against: stats.Comparison | None
    """The difference to the first; None of the first itself."""
    p: float | None
    """Holm's over all comparisons; None where there is no test."""
    improvement: float
    """Probability that a seed of this one scores more than one of the first, ties counting half; NaN of the first."""


def against_first(series: Sequence[Series]) -> dict[str, list[Row]]:
    """Every series by task, in the order given, against the first of its task and algorithm."""
    firsts = {(s.task, s.algo): s for s in reversed(series)}
    pairs = {id(s): firsts[s.task, s.algo] for s in series if s is not firsts[s.task, s.algo]}
    others = [s for s in series if id(s) in pairs]
    found = [stats.compare(s.scores, pairs[id(s)].scores, s.label, pairs[id(s)].label) for s in others]
    adjusted = dict(zip(map(id, others), zip(found, stats.holm([d.p for d in found]), strict=True), strict=True))
    rows: dict[str, list[Row]] = {}
    for s in series:
        against, p = adjusted.get(id(s), (None, None))
        better = improvement(s.scores, pairs[id(s)].scores) if against is not None else math.nan
        rows.setdefault(s.task, []).append(Row(s, stats.summarise(s.scores), against, p, better))
    return rows


def improvement(a: np.ndarray, b: np.ndarray) -> float:
    """The share of pairs in which a is greater than b, ties counting half."""
    a, b = stats.finite(a), stats.finite(b)
    return float(scipy.stats.mannwhitneyu(a, b).statistic / (a.size * b.size)) if a.size and b.size else math.nan
