"""Several tasks put together: scores come as a list over tasks (or settings: task and algorithm) of arrays [n_t].

Tasks may have different numbers of seeds. Bootstrap intervals resample seeds within each task, as rliable does
(Agarwal et al., 2021). They are too narrow for very few seeds, which is why every verdict of `claims` also asks for a
test that is valid there. What other tasks would say is another question, which `meta` answers.
"""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
from scipy import special

from mcclt.experiments.analysis.stats import LEVEL, finite, t_quantile, vary

Scores = Sequence[np.ndarray]
"""List over tasks of [n_t] scores, one per seed."""


def normalise(scores: np.ndarray, reference: float, floor: float = 0.0) -> np.ndarray:
    """Scores of a task on a scale that tasks share: the baseline's mean is 1.

    1 + (score − reference)/max(|reference|, floor), which is score/reference wherever the reference is positive and
    above the floor. Dividing by |reference| keeps better above worse where returns are negative; the floor (the
    baseline's spread over seeds, say) keeps a reference near zero from blowing noise up. No score of a random policy
    is stored, so zero has no meaning beyond "no return"; the reference is the paper's baseline on that task with that
    algorithm, and our own where the paper has none (`claims.reference`).

    Args:
        scores: [n].
        reference: what becomes 1.
        floor: the smallest scale, in the task's own units.
    """
    scale = max(abs(reference), floor)
    if not scale > 0:
        raise ValueError("a reference of 0 with a floor of 0 gives no scale")
    return 1 + (np.asarray(scores, float) - reference) / scale


def iqm(scores: Scores) -> np.ndarray:
    """Interquartile mean: the mean of the middle half of all runs, each task having the same weight.

    Each run of task t weighs 1/n_t; a quarter of the total weight is cut off at each end, in parts of a run where
    need be. With as many seeds in every task and a multiple of four runs this is the plain 25 % trimmed mean (what
    rliable computes, rounding the cut to whole runs otherwise). Equal weights for tasks matter in a store that is
    partly filled: two variants with different numbers of seeds must not differ by their mix of tasks alone.

    Args:
        scores: list over tasks of [..., n_t], normalised.

    Returns:
        [...].
    """
    x = np.concatenate(scores, axis=-1)
    weight = np.concatenate([np.full(s.shape[-1], 1 / (s.shape[-1] * len(scores))) for s in scores])
    order = np.argsort(x, axis=-1)
    weight = weight[order]
    upto = np.cumsum(weight, axis=-1)
    kept = np.clip(np.minimum(upto, 0.75) - np.maximum(upto - weight, 0.25), 0, None)
    return (np.take_along_axis(x, order, axis=-1) * kept).sum(axis=-1) / kept.sum(axis=-1)


def stratified_bootstrap(
    scores: Scores,
    statistic: Callable[[list[np.ndarray]], np.ndarray],
    rng: np.random.Generator,
    draws: int = 2000,
) -> tuple[float, float]:
    """95 % percentile interval of a statistic, resampling seeds with replacement within each task.

    Args:
        scores: list over tasks of [n_t].
        statistic: maps a list over tasks of [draws, n_t] to [draws], such as `iqm`.
        rng: of the draws.
        draws: how many.

    Returns:
        (low, high); NaN if a task has fewer than two seeds, whose spread no resampling can show.
    """
    scores = [finite(s) for s in scores]
    if not scores or min(s.size for s in scores) < 2:
        return math.nan, math.nan
    low, high = percentiles(statistic([s[rng.integers(s.size, size=(draws, s.size))] for s in scores]))
    return float(low), float(high)


@dataclass(frozen=True)
class Improvement:
    """How often a beats b, over tasks."""

    probability: float
    """Mean over tasks of P(A > B) + ½ P(A = B), A and B random seeds of the two."""
    low: float
    high: float
    """95 % stratified bootstrap interval; NaN if some task has one seed only."""
    p: float | None
    """Stratified Mann-Whitney test of ½, two-sided; None if nothing varies."""
    tasks: int


def wins(a: np.ndarray, b: np.ndarray) -> np.ndarray:
    """[n_a, n_b]: 1 where a seed of a beats one of b, ½ where they are equal."""
    a, b = finite(a)[:, None], finite(b)[None, :]
    return (a > b) + 0.5 * (a == b)


def resampled_wins(win: np.ndarray, draws: int, rng: np.random.Generator) -> np.ndarray:
    """[draws] means of the win matrix W [n_a, n_b] with seeds of both sides drawn with replacement.

    That is the same as drawing how often each one counts: c_aᵀ W c_b/(n_a n_b), with counts c_a and c_b.
    """
    n_a, n_b = win.shape
    return ((_counts(n_a, draws, rng) @ win) * _counts(n_b, draws, rng)).sum(axis=1) / win.size


def probability_of_improvement(a: Scores, b: Scores, rng: np.random.Generator, draws: int = 2000) -> Improvement:
    """The probability that a random seed of a beats one of b on the same task, averaged over tasks.

    On each task it is the mean of the win matrix W [n_a, n_b], 1 where a > b and ½ where equal: Mann and Whitney's
    U/(n_a n_b).

    The test takes the mean over the K tasks of U/(n_a n_b) − ½ as normal, with the variance it has if each task's
    scores are exchangeable: Σ (N + 1 − Σ(τ³ − τ)/(N(N − 1)))/(12 n_a n_b)/K², N = n_a + n_b, τ the sizes of ties; and
    with half a step of continuity correction. Unlike the interval it is sound with few seeds: 3 against 3 on one task
    can never be significant.

    Args:
        a: list over tasks of [n_a].
        b: list over the same tasks of [n_b].
        rng: of the bootstrap.
        draws: of the bootstrap.
    """
    a, b = [finite(x) for x in a], [finite(x) for x in b]
    if not a or min(x.size for x in (*a, *b)) < 1:
        return Improvement(math.nan, math.nan, math.nan, None, len(a))
    values, variance, steps, drawn = [], 0.0, [], np.zeros(draws)
    for x, y in zip(a, b, strict=True):
        win, both = wins(x, y), x.size + y.size
        values.append(float(win.mean()))
        ties = np.unique(np.concatenate([x, y]), return_counts=True)[1].astype(float)
        variance += (both + 1 - (ties**3 - ties).sum() / (both * (both - 1))) / (12 * win.size)
        steps.append(1 / win.size)
        drawn += resampled_wins(win, draws, rng)
    k = len(values)
    probability = float(np.mean(values))
    p = None
    if variance > 1e-12:
        z = max(0.0, abs(probability - 0.5) - min(steps) / (2 * k)) / (math.sqrt(variance) / k)
        p = float(min(1.0, 2 * special.ndtr(-z)))
    low, high = math.nan, math.nan
    if min(x.size for x in (*a, *b)) > 1:
        low, high = map(float, percentiles(drawn / k))
    return Improvement(probability, low, high, p, k)


def performance_profile(scores: Scores, thresholds: np.ndarray) -> np.ndarray:
    """[k] for each threshold τ [k] the fraction of runs with a score above it: mean over tasks of #{x > τ}/n_t.

    Args:
        scores: list over tasks of [n_t], normalised; one that is not a number is above nothing.
        thresholds: [k].
    """
    return np.mean([(np.asarray(s)[:, None] > thresholds).mean(axis=0) for s in scores], axis=0)


@dataclass(frozen=True)
class Difference:
    """Mean difference over tasks, each task having the same weight."""

    difference: float
    low: float
    high: float
    p: float | None
    tasks: int


def mean_difference(a: Scores, b: Scores) -> Difference:
    """Mean over tasks of mean(a_t) − mean(b_t), with its interval and two-sided test.

    Its variance is Σ (s²_at/n_at + s²_bt/n_bt)/K² over the K tasks, with Satterthwaite's degrees of freedom: Welch's
    t for one task, and the same idea for several. NaN and None if a side has one seed somewhere, or nothing varies.

    Args:
        a: list over tasks of [n_a], normalised.
        b: list over the same tasks of [n_b].
    """
    a, b = [finite(x) for x in a], [finite(x) for x in b]
    if not a or min(x.size for x in (*a, *b)) < 1:
        return Difference(math.nan, math.nan, math.nan, None, len(a))
    difference = float(np.mean([x.mean() - y.mean() for x, y in zip(a, b, strict=True)]))
    groups = [*a, *b]
    if min(g.size for g in groups) < 2 or not any(map(vary, groups)):
        return Difference(difference, math.nan, math.nan, None, len(a))
    se, df = _satterthwaite([g.var(ddof=1) / g.size / len(a) ** 2 for g in groups], [g.size - 1 for g in groups])
    half = float(t_quantile(df)) * se
    return Difference(
        difference, difference - half, difference + half, float(2 * special.stdtr(df, -abs(difference) / se)), len(a)
    )


def _satterthwaite(variances: Sequence[float], df: Sequence[int]) -> tuple[float, float]:
    """Standard error of a sum of independent estimates with these variances, and its degrees of freedom."""
    total = sum(variances)
    # Shares of the total, not the variances themselves, so that tiny ones are not squared to zero.
    return math.sqrt(total), 1 / sum((v / total) ** 2 / d for v, d in zip(variances, df, strict=True))


def percentiles(values: np.ndarray) -> np.ndarray:
    """The 95 % interval of draws [draws, ...]: [2, ...]."""
    return np.quantile(values, [(1 - LEVEL) / 2, (1 + LEVEL) / 2], axis=0)


def _counts(n: int, draws: int, rng: np.random.Generator) -> np.ndarray:
    """[draws, n]: how often each of n seeds is drawn in n draws with replacement."""
    return rng.multinomial(n, np.full(n, 1 / n), size=draws)
