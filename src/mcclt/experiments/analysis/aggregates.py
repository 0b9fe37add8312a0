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
from scipy import stats as scipy_stats

from mcclt.experiments.analysis.stats import LEVEL, finite, t_quantile, vary

Scores = Sequence[np.ndarray]
"""List over tasks of [n_t] scores, one per seed."""

Pairs = Sequence[tuple[np.ndarray, np.ndarray]]
"""List over tasks of the scores of two variants, a [n_a] and b [n_b]."""


@dataclass(frozen=True)
class Estimate:
    """How a compares with b, mean over tasks, each task having the same weight."""

    value: float
    tasks: int
    low: float = math.nan
    high: float = math.nan
    """95 % interval; NaN if some task has one seed only."""
    p: float | None = None
    """Of a two-sided test of "no difference"; None if it cannot be made, or nothing varies."""


def iqm(scores: Scores) -> np.ndarray:
    """Interquartile mean [...] of normalised scores [..., n_t]: that of the middle half of all runs, tasks alike.

    Each run of task t weighs 1/n_t; a quarter of the total weight is cut off at each end, in parts of a run where
    need be. With as many seeds in every task and a multiple of four runs this is the plain 25 % trimmed mean (what
    rliable computes, rounding the cut to whole runs otherwise). Equal weights for tasks matter in a store that is
    partly filled: two variants with different numbers of seeds must not differ by their mix of tasks alone.
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

    The statistic maps a list over tasks of [draws, n_t] to [draws], such as `iqm`. The interval is NaN if a task has
    fewer than two seeds, whose spread no resampling can show.
    """
    scores = [finite(s) for s in scores]
    if not scores or min(s.size for s in scores) < 2:
        return math.nan, math.nan
    return percentiles(statistic([s[rng.integers(s.size, size=(draws, s.size))] for s in scores]))


def wins(a: np.ndarray, b: np.ndarray) -> np.ndarray:
    """[n_a, n_b]: 1 where a seed of a beats one of b, ½ where they are equal."""
    a, b = finite(a)[:, None], finite(b)[None, :]
    return (a > b) + 0.5 * (a == b)


def resampled_wins(win: np.ndarray, draws: int, rng: np.random.Generator) -> np.ndarray:
    """[draws] means of the win matrix W [n_a, n_b] with seeds of both sides drawn with replacement.

    That is the same as drawing how often each one counts: c_aᵀ W c_b/(n_a n_b), with counts c_a and c_b.
    """
    ours, theirs = (rng.multinomial(n, np.full(n, 1 / n), size=draws) for n in win.shape)
    return ((ours @ win) * theirs).sum(axis=1) / win.size


def probability_of_improvement(pairs: Pairs, rng: np.random.Generator, draws: int = 2000) -> Estimate:
    """The probability that a random seed of a beats one of b on the same task, averaged over tasks.

    On each task it is P(A > B) + ½ P(A = B), the mean of the win matrix: Mann and Whitney's U/(n_a n_b). The interval
    is a stratified bootstrap's.

    The test takes the mean over the K tasks of U/(n_a n_b) − ½ as normal, with the variance it has if each task's
    scores are exchangeable: Σ (N + 1) T/(12 n_a n_b)/K², N = n_a + n_b, T the correction for ties; and with half a step
    of continuity correction. Unlike the interval it is sound with few seeds: 3 against 3 on one task can never be
    significant.
    """
    matrices = [wins(a, b) for a, b in pairs]
    k, fewest = len(matrices), min((n for win in matrices for n in win.shape), default=0)
    if fewest < 1:
        return Estimate(math.nan, k)
    value = float(np.mean([win.mean() for win in matrices]))
    drawn = np.mean([resampled_wins(win, draws, rng) for win in matrices], axis=0)
    variance = 0.0
    for pair, win in zip(pairs, matrices, strict=True):
        ties = scipy_stats.tiecorrect(scipy_stats.rankdata(finite(np.concatenate(pair))))
        variance += (sum(win.shape) + 1) * ties / (12 * win.size)
    p = None
    if variance > 1e-12:
        step = min(1 / win.size for win in matrices)
        z = max(0.0, abs(value - 0.5) - step / (2 * k)) / (math.sqrt(variance) / k)
        p = float(min(1.0, 2 * special.ndtr(-z)))
    return Estimate(value, k, *(percentiles(drawn) if fewest > 1 else (math.nan, math.nan)), p)


def mean_difference(pairs: Pairs) -> Estimate:
    """Mean over tasks of mean(a_t) − mean(b_t) of normalised scores, with its interval and two-sided test.

    Its variance is Σ (s²_at/n_at + s²_bt/n_bt)/K² over the K tasks, with Satterthwaite's degrees of freedom: Welch's
    t for one task, and the same idea for several.
    """
    groups, k = [finite(x) for pair in pairs for x in pair], len(pairs)
    fewest = min((g.size for g in groups), default=0)
    if fewest < 1:
        return Estimate(math.nan, k)
    value = float(np.mean([a.mean() - b.mean() for a, b in zip(groups[::2], groups[1::2], strict=True)]))
    if fewest < 2 or not any(map(vary, groups)):
        return Estimate(value, k)
    variances = np.array([g.var(ddof=1) / g.size for g in groups])
    # Shares of the total, not the variances themselves, so that tiny ones are not squared to zero.
    df = 1 / sum((variances / variances.sum()) ** 2 / [g.size - 1 for g in groups])
    se = math.sqrt(variances.sum()) / k
    half = float(t_quantile(df)) * se
    return Estimate(value, k, value - half, value + half, float(2 * special.stdtr(df, -abs(value) / se)))


def performance_profile(scores: Scores, thresholds: np.ndarray) -> np.ndarray:
    """[k] for each threshold τ [k] the fraction of runs with a score above it: mean over tasks of #{x > τ}/n_t.

    Scores are normalised; one that is not a number is above nothing.
    """
    return np.mean([(np.asarray(s)[:, None] > thresholds).mean(axis=0) for s in scores], axis=0)


def percentiles(values: np.ndarray) -> tuple[float, float]:
    """The 95 % interval of draws."""
    low, high = np.quantile(values, [(1 - LEVEL) / 2, (1 + LEVEL) / 2])
    return float(low), float(high)
