"""Statistics over seeds: summaries, tests, intervals over tasks, and how many seeds a test needs.

The unit is the seed: one trained agent gives one score. Where several tasks are put together, scores come as a list
over tasks (or settings: task and algorithm) of arrays [n_t], since tasks may have different numbers of seeds. A
score that is not a number (an agent whose environment failed in every episode) is left out everywhere.

Bootstrap intervals resample seeds within each task, as rliable does (Agarwal et al., 2021). They are too narrow for
very few seeds, which is why every verdict of `claims` also asks for a test that is valid there.
"""

import math
import warnings
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
from scipy import special
from scipy import stats as scipy_stats

Scores = Sequence[np.ndarray]
"""List over tasks of [n_t] scores, one per seed."""

LEVEL = 0.95
"""Of all intervals."""


# --- one group of seeds ----------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Summary:
    """Seeds of one setup in a few numbers. NaN where there are too few."""

    mean: float
    se: float
    """s/√n, with s the standard deviation over seeds (n − 1 in its denominator)."""
    n: int
    """Seeds that have a score."""
    low: float
    high: float
    """mean ± t·se, t the 0.975 quantile of Student's t with n − 1 degrees of freedom."""


def finite(scores: np.ndarray) -> np.ndarray:
    """The scores [n] that are numbers."""
    scores = np.asarray(scores, float)
    return scores[np.isfinite(scores)]


def summarise(scores: np.ndarray) -> Summary:
    """Mean, standard error and 95 % interval of scores [n]."""
    x = finite(scores)
    if x.size < 2:
        return Summary(float(x[0]) if x.size else math.nan, math.nan, x.size, math.nan, math.nan)
    mean, se = float(x.mean()), float(x.std(ddof=1) / math.sqrt(x.size))
    half = _t_quantile(x.size - 1) * se
    return Summary(mean, se, x.size, mean - half, mean + half)


def pooled_se(returns: Sequence[np.ndarray]) -> float:
    """The paper's ±: s/√M over all M episodes of all seeds, as if they were one sample.

    It says how well the mean of *these* agents is known, not how well the algorithm's is: the episodes of one agent
    share its training, so M episodes of n agents carry the information of about n samples, and this number shrinks
    with more episodes of the same agents. It is shown only beside the paper's.

    Args:
        returns: list over seeds of [episodes].
    """
    x = finite(np.concatenate([np.zeros(0), *returns]))
    return float(x.std(ddof=1) / math.sqrt(x.size)) if x.size > 1 else math.nan


def p_zero(values: np.ndarray) -> float | None:
    """Two-sided one-sample t-test of "the mean of values [n] is zero"; None below two values or without spread."""
    x = finite(values)
    return float(scipy_stats.ttest_1samp(x, 0).pvalue) if _vary(x) else None


# --- two groups of seeds ---------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Comparison:
    """Group a against group b."""

    difference: float
    """mean(a) − mean(b)."""
    low: float
    high: float
    """95 % Welch interval of the difference; NaN where there is no test."""
    p: float | None
    """Welch's t-test, two-sided: may the two setups differ in spread? Yes, so variances are not pooled."""
    p_rank: float | None
    """Mann-Whitney test, two-sided: exact for few seeds without ties."""
    effect: float
    """Hedges' g: the difference in standard deviations over seeds, corrected for few seeds; NaN without a test."""
    n_a: int
    n_b: int
    why: str = ""
    """One sentence on why there is no test; empty if there is."""


def compare(a: np.ndarray, b: np.ndarray, name_a: str = "the first", name_b: str = "the second") -> Comparison:
    """Welch's interval and test, a rank test and an effect size.

    Args:
        a: [n_a] scores.
        b: [n_b] scores.
        name_a: of a, for `Comparison.why`.
        name_b: of b.
    """
    a, b = finite(a), finite(b)
    n_a, n_b = a.size, b.size
    difference = float(a.mean() - b.mean()) if n_a and n_b else math.nan
    few = [f"{n} of {name}" for n, name in ((n_a, name_a), (n_b, name_b)) if n < 2]
    if few:
        verb = "is" if few[0].startswith("1 ") else "are"
        why = f"A test needs at least two seeds of each: there {verb} {' and '.join(few)}."
        return Comparison(difference, math.nan, math.nan, None, None, math.nan, n_a, n_b, why)
    if not (_vary(a) or _vary(b)):
        why = f"A test needs some spread over seeds: all of {name_a} are equal, and all of {name_b}."
        return Comparison(difference, math.nan, math.nan, None, None, math.nan, n_a, n_b, why)
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", "Precision loss", RuntimeWarning)  # one side may well be constant
        welch = scipy_stats.ttest_ind(a, b, equal_var=False)
    interval = welch.confidence_interval(LEVEL)
    m = n_a + n_b - 2
    pooled = math.sqrt(((n_a - 1) * a.var(ddof=1) + (n_b - 1) * b.var(ddof=1)) / m)
    unbiased = math.exp(special.gammaln(m / 2) - special.gammaln((m - 1) / 2)) / math.sqrt(m / 2)
    return Comparison(
        difference,
        float(interval.low),
        float(interval.high),
        float(welch.pvalue),
        float(scipy_stats.mannwhitneyu(a, b).pvalue),
        difference / pooled * unbiased,
        n_a,
        n_b,
    )


def holm(p: Sequence[float | None]) -> list[float | None]:
    """Holm's p-values: each below α bounds the chance of any false finding in the family by α.

    In rising order p₍₁₎ ≤ … ≤ p₍ₘ₎: adjusted p₍ᵢ₎ = max over j ≤ i of min(1, (m − j + 1)·p₍ⱼ₎). Tests that could not
    be made (None) stay None and do not count in m.
    """
    known = [(value, place) for place, value in enumerate(p) if value is not None]
    adjusted: list[float | None] = [None] * len(p)
    running = 0.0
    for rank, (value, place) in enumerate(sorted(known)):
        running = max(running, min(1.0, (len(known) - rank) * value))
        adjusted[place] = running
    return adjusted


def seeds_needed(difference: float, std: float, power: float = 0.8, alpha: float = 0.05) -> int | None:
    """Seeds of each of two variants with which a t-test would find their difference with this power.

    The smallest n with P(|T| > t) ≥ power, where t is the 1 − α/2 quantile of Student's t with ν = 2n − 2 and T is
    noncentral t with the same ν and noncentrality d·√(n/2), d = |difference|/std. The search starts just below the
    normal approximation 2·(z_{1−α/2} + z_power)²/d², which never asks for more.

    Args:
        difference: of the two means.
        std: over seeds, of one variant (the root mean square of both, if they differ).
        power: chance to find it.
        alpha: of the two-sided test.

    Returns:
        The number, or None if there is no difference to find (or no number to tell).
    """
    if difference == 0 or not math.isfinite(difference) or not math.isfinite(std):
        return None
    # Beyond d = 30 two seeds are plenty, and SciPy's noncentral t loses its digits.
    d = min(abs(difference) / std, 30.0) if std > 0 else 30.0
    normal = 2 * (special.ndtri(1 - alpha / 2) + special.ndtri(power)) ** 2 / d**2
    if normal > 10_000:  # the two differ by less than one seed in ten thousand
        return math.ceil(normal)
    n = max(2, math.floor(normal))
    while power_at(d * math.sqrt(n / 2), 2 * n - 2, alpha) < power:
        n += 1
    return n


def power_at(shift: float, df: int, alpha: float = 0.05) -> float:
    """Chance that Student's two-sided test with df degrees of freedom finds an effect of `shift` standard errors."""
    t = special.stdtrit(df, 1 - alpha / 2)
    return float(1 - special.nctdtr(df, shift, t) + np.nan_to_num(special.nctdtr(df, shift, -t)))  # NaN: below 1e-15


# --- several tasks ---------------------------------------------------------------------------------------------


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


@dataclass(frozen=True)
class Profile:
    """A performance profile, pointwise over thresholds."""

    thresholds: np.ndarray
    """[k]."""
    fraction: np.ndarray
    """[k] share of runs above each threshold, mean over tasks."""
    low: np.ndarray
    """[k]."""
    high: np.ndarray
    """[k] 95 % bootstrap band."""


def performance_profile(scores: Scores, thresholds: np.ndarray, rng: np.random.Generator, draws: int = 2000) -> Profile:
    """For each threshold τ the fraction of runs with a score above it: mean over tasks of #{x > τ}/n_t.

    The band is pointwise: each of its points holds with 95 %, not all of them at once. NaN if a task has fewer than
    two seeds.

    Args:
        scores: list over tasks of [n_t], normalised.
        thresholds: [k].
        rng: of the bootstrap.
        draws: of the bootstrap.
    """
    thresholds = np.asarray(thresholds, float)
    scores = [finite(s) for s in scores]
    above = [(s[:, None] > thresholds[None, :]).astype(float) for s in scores]
    fraction = np.mean([x.mean(axis=0) for x in above], axis=0)
    if min(s.size for s in scores) < 2:
        nothing = np.full(thresholds.shape, math.nan)
        return Profile(thresholds, fraction, nothing, nothing)
    resampled = sum(_counts(len(x), draws, rng) @ x / len(x) for x in above) / len(above)
    low, high = percentiles(resampled)
    return Profile(thresholds, fraction, low, high)


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
    if min(g.size for g in groups) < 2 or not any(map(_vary, groups)):
        return Difference(difference, math.nan, math.nan, None, len(a))
    se, df = _satterthwaite([g.var(ddof=1) / g.size / len(a) ** 2 for g in groups], [g.size - 1 for g in groups])
    half = _t_quantile(df) * se
    return Difference(difference, difference - half, difference + half, _two_sided(difference / se, df), len(a))


# --- what a critic believes ------------------------------------------------------------------------------------


def relative_change(t: np.ndarray, values: np.ndarray) -> float:
    """How much a quantity changes over an episode: slope·(t_last − t_first)/mean(values).

    The slope is that of the least-squares line through (t, values), [T] each. NaN with fewer than three points, at
    one single t, or with a mean that is not positive.
    """
    t, values = np.asarray(t, float), np.asarray(values, float)
    known = np.isfinite(t) & np.isfinite(values)
    t, values = t[known], values[known]
    if t.size < 3 or np.ptp(t) == 0 or not values.mean() > 0:
        return math.nan
    centred = t - t.mean()
    slope = (centred @ values) / (centred @ centred)
    return float(slope * np.ptp(t) / values.mean())


def normal_distance(bars: np.ndarray) -> np.ndarray:
    """How far quantile bars are from those of a normal: 1 − r², between 0 (exactly normal) and 1.

    r is the correlation of the bars, sorted, with z_i = Φ⁻¹(i/(N + 1)), i = 1 … N, so r² is the share of the bars'
    variance that the best-fitting normal explains. Shapiro and Francia's W′ has the same form, but its p-values are
    for samples. Bars are a critic's quantiles, not samples, so this is a distance and no test. For many bars a uniform
    distribution has 1 − 3/π = 0.045 and an exponential one 0.18.

    Args:
        bars: [..., N].

    Returns:
        [...]; NaN where a bar is not a number or all are equal.
    """
    bars = np.sort(np.asarray(bars, float), axis=-1)
    n = bars.shape[-1]
    z = special.ndtri(np.arange(1, n + 1) / (n + 1))
    centred = bars - bars.mean(axis=-1, keepdims=True)
    total = (centred**2).sum(axis=-1) * (z @ z)
    explained = (centred @ z) ** 2
    return np.where(total > 0, 1 - explained / np.where(total > 0, total, 1), math.nan)


# --- helpers ---------------------------------------------------------------------------------------------------


def _t_quantile(df: float) -> float:
    return float(special.stdtrit(df, (1 + LEVEL) / 2))


def _vary(values: np.ndarray) -> bool:
    """Whether values differ at all; the variance of equal numbers may come out as 1e-33 instead of 0."""
    x = finite(values)
    return bool(x.size and np.ptp(x) > 0)


def _two_sided(t: float, df: float) -> float:
    return float(2 * special.stdtr(df, -abs(t)))


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
