"""A user's own comparison: how each variant differs from the first of its task and algorithm."""

import math
from collections.abc import Sequence
from dataclasses import dataclass

from mcclt.experiments.analysis import stats
from mcclt.experiments.analysis.aggregates import wins
from mcclt.experiments.results import Series, grouped


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


def against_first(series: Sequence[Series]) -> dict[str, tuple[Row, ...]]:
    """Every series by task, in the order given, against the first of its task and algorithm."""
    firsts = {(s.task, s.algo): s for s in reversed(series)}
    pairs = [(s, firsts[s.task, s.algo]) for s in series]
    found = [None if s is base else stats.compare(s.scores, base.scores, s.label, base.label) for s, base in pairs]
    adjusted = stats.holm([None if one is None else one.p for one in found])
    return grouped(
        (s.task, Row(s, stats.summarise(s.scores), against, p, math.nan if s is base else improvement(s, base)))
        for (s, base), against, p in zip(pairs, found, adjusted, strict=True)
    )


def improvement(series: Series, base: Series) -> float:
    """The share of pairs of seeds in which the one scores more than the other, ties counting half."""
    won = wins(series.scores, base.scores)
    return float(won.mean()) if won.size else math.nan
