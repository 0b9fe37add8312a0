"""Effects on several tasks put together: their mean, whether they depend on the task, and what would decide them.

A random-effects model: the true effect of a task is drawn from N(μ, τ²), and what is seen of it has a known variance.
μ is the effect on tasks of this kind, not only on those that were tried, so that tasks, not seeds, are its sample.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from scipy import optimize, special
from scipy import stats as scipy_stats

from mcclt.experiments.analysis.aggregates import percentiles, resampled_wins, wins
from mcclt.experiments.analysis.stats import noncentrality, t_quantile

MOST = 10_000
"""No search for a number of tasks goes beyond."""


@dataclass(frozen=True)
class RandomEffects:
    """A mean over tasks, and how much tasks differ. NaN where there are too few tasks to say."""

    tasks: int
    mean: float
    se: float = math.nan
    low: float = math.nan
    high: float = math.nan
    """95 % interval of the mean."""
    p: float = math.nan
    """Two-sided test of "the mean is zero"."""
    tau2: float = math.nan
    """Variance of the true effect over tasks (Paule and Mandel)."""
    q: float = math.nan
    """Cochran's Q."""
    p_q: float = math.nan
    """Test of "the effect is the same on all tasks": Q is χ² with k − 1 degrees of freedom if so."""
    i2: float = math.nan
    """Share of the variance between tasks that is not noise of seeds: max(0, 1 − (k − 1)/Q)."""
    next_low: float = math.nan
    next_high: float = math.nan
    """95 % prediction interval: where the effect on another task would lie."""


def random_effects(effects: Sequence[float], variances: Sequence[float]) -> RandomEffects:
    """Paule and Mandel's τ², and Hartung and Knapp's interval.

    y are the effects [k], one per task, and v > 0 the variances [k] of each around the true effect on its task. With
    w = 1/(v + τ²) and m = Σ w y / Σ w, τ² ≥ 0 solves F(τ²) = Σ w (y − m)² = k − 1, or is 0 where F(0) is below.
    The interval is m ± t·√(h/Σ w), t with k − 1 degrees of freedom; h is Hartung and Knapp's F(τ²)/(k − 1), which is 1
    wherever τ² > 0 and is not let below 1 elsewhere, where it would make few tasks look certain. The prediction
    interval is m ± t·√(τ² + 1/Σ w) with k − 2 degrees of freedom (Higgins, Thompson and Spiegelhalter, 2009).
    """
    y, v = np.asarray(effects, float), np.asarray(variances, float)
    k = y.size
    if k < 2:
        return RandomEffects(k, float(y[0]) if k else math.nan)

    def weighted(tau2: float) -> tuple[np.ndarray, float, float]:
        w = 1 / (v + tau2)
        mean = float(w @ y / w.sum())
        return w, mean, float(w @ (y - mean) ** 2)

    q = weighted(0)[2]
    # F falls, and where τ² is the plain variance of y it is below k − 1.
    tau2 = 0.0 if q <= k - 1 else float(optimize.brentq(lambda t: weighted(t)[2] - (k - 1), 0, y.var(ddof=1)))
    w, mean, _ = weighted(tau2)
    se = float(1 / math.sqrt(w.sum()))
    half = float(t_quantile(k - 1)) * se
    ahead = float(t_quantile(k - 2)) * math.sqrt(tau2 + se**2) if k > 2 else math.nan
    return RandomEffects(
        k,
        mean,
        se,
        mean - half,
        mean + half,
        float(2 * special.stdtr(k - 1, -abs(mean) / se)),
        tau2,
        q,
        float(scipy_stats.chi2.sf(q, k - 1)),
        max(0.0, 1 - (k - 1) / q) if q > 0 else 0.0,
        mean - ahead,
        mean + ahead,
    )


def clustered_improvement(
    tasks: Sequence[Sequence[tuple[np.ndarray, np.ndarray]]], rng: np.random.Generator, draws: int = 2000
) -> tuple[float, float, float]:
    """Probability that a random seed of a beats one of b, mean over tasks, and its cluster bootstrap interval.

    Each draw takes as many tasks as there are, with replacement, and for each of them seeds of each side with
    replacement. k tasks have only C(2k − 1, k) different draws (10 of three, 126 of five, 6,435 of eight), so with few
    of them the interval is a rough one. By simulation it holds the truth in 89, 95 and 93 % of cases (three, five,
    eight tasks) where the effect varies over tasks a third as much as over seeds, and in 78, 85 and 91 % where as much.

    `tasks` lists, for each task, the scores (a [n_a], b [n_b]) of its settings (algorithms). The interval is NaN
    below two tasks or with one seed somewhere.
    """
    matrices = [[wins(a, b) for a, b in settings] for settings in tasks]
    k = len(tasks)
    probability = float(np.mean([np.mean([w.mean() for w in task]) for task in matrices])) if k else math.nan
    if k < 2 or min(min(w.shape) for task in matrices for w in task) < 2:
        return probability, math.nan, math.nan
    chosen = rng.integers(k, size=(draws, k))
    values = np.empty((draws, k))
    for place, task in enumerate(matrices):
        here = chosen == place
        values[here] = np.mean([resampled_wins(w, int(here.sum()), rng) for w in task], axis=0)
    return probability, *percentiles(values.mean(axis=1))


def seeds_to_decide(found: RandomEffects, per_seed: float, power: float = 0.8) -> int | None:
    """Seeds of each side, on the same tasks, with which the mean found would be told from zero with this power.

    The mean of k tasks has variance (τ² + c/n)/k with n seeds a side, c = `per_seed` the variance of a task's effect
    times the number of seeds. Its test is significant with the wanted power if that is at most (mean/δ)², δ the
    `noncentrality` for k − 1 degrees of freedom. So n = c/(k (mean/δ)² − τ²). None where no number suffices, because
    tasks differ too much for so few of them.
    """
    if found.tasks < 2 or found.mean == 0:
        return None
    room = found.tasks * (found.mean / noncentrality(found.tasks - 1, power)) ** 2 - found.tau2
    return max(2, math.ceil(per_seed / room)) if room > 0 else None


def tasks_to_decide(found: RandomEffects, variance: float, power: float = 0.8) -> int | None:
    """Tasks, with as many seeds as now, that would tell the mean found from zero; None beyond `MOST`.

    The smallest k with k (mean/δ)² ≥ τ² + v, v the `variance` of a task's effect now, δ as in `seeds_to_decide`.
    """
    if found.tasks < 2 or found.mean == 0:
        return None
    total = found.tau2 + variance
    start = max(2, math.floor(total * ((special.ndtri(0.975) + special.ndtri(power)) / found.mean) ** 2))
    enough = (k for k in range(start, MOST) if k * (found.mean / noncentrality(k - 1, power)) ** 2 >= total)
    return next(enough, None)
