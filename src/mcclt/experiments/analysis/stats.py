"""Statistics over seeds: summaries, tests, and how many seeds a test needs.

The unit is the seed: one trained agent gives one score. A score that is not a number (an agent whose environment failed
in every episode) is left out everywhere.
"""

import math
import warnings
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from scipy import special
from scipy import stats as scipy_stats

LEVEL = 0.95
"""Of all intervals."""

FEW = 5
"""Below so many seeds, bands show their range: an interval from a handful of numbers would fill the page."""


def t_quantile(df: Any) -> Any:
    """The 0.975 quantile of Student's t, by which every interval is so many standard errors wide on each side."""
    return special.stdtrit(df, (1 + LEVEL) / 2)


def finite(scores: np.ndarray) -> np.ndarray:
    """The scores [n] that are numbers."""
    scores = np.asarray(scores, float)
    return scores[np.isfinite(scores)]


def vary(values: np.ndarray) -> bool:
    """Whether values differ at all; the variance of equal numbers may come out as 1e-33 instead of 0."""
    x = finite(values)
    return bool(x.size and np.ptp(x) > 0)


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


def summarise(scores: np.ndarray) -> Summary:
    """Mean, standard error and 95 % interval of scores [n]."""
    x = finite(scores)
    if x.size < 2:
        return Summary(float(x[0]) if x.size else math.nan, math.nan, x.size, math.nan, math.nan)
    mean, se = float(x.mean()), float(scipy_stats.sem(x))
    half = float(t_quantile(x.size - 1)) * se
    return Summary(mean, se, x.size, mean - half, mean + half)


def mean_band(rows: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Mean of rows [seeds, ...] over the seeds, and a band: 95 % t-interval, or the range of fewer than `FEW`.

    NaN is a seed that has no value there; with one value the band has no width, with none all three are NaN.
    """
    known = np.isfinite(rows)
    n = known.sum(axis=0)
    mean = np.where(known, rows, 0).sum(axis=0) / np.where(n > 0, n, np.nan)
    deviations = np.where(known, rows - mean, 0)
    df = np.maximum(n - 1, 1)
    half = t_quantile(df) * np.sqrt((deviations**2).sum(axis=0) / df / np.maximum(n, 1))
    few = n < FEW
    low = np.where(few, deviations.min(axis=0, initial=0), -half)
    high = np.where(few, deviations.max(axis=0, initial=0), half)
    return mean, mean + low, mean + high


def pooled_se(returns: Sequence[np.ndarray]) -> float:
    """The paper's ±: s/√M over all M episodes of all seeds (a list of [episodes]), as if they were one sample.

    It says how well the mean of *these* agents is known, not how well the algorithm's is: the episodes of one agent
    share its training, so M episodes of n agents carry the information of about n samples, and this number shrinks
    with more episodes of the same agents. It is shown only beside the paper's.
    """
    x = finite(np.concatenate([np.zeros(0), *returns]))
    return float(scipy_stats.sem(x)) if x.size > 1 else math.nan


def p_zero(values: np.ndarray) -> float | None:
    """Two-sided one-sample t-test of "the mean of values [n] is zero"; None below two values or without spread."""
    x = finite(values)
    return float(scipy_stats.ttest_1samp(x, 0).pvalue) if vary(x) else None


# --- two groups of seeds ---------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Comparison:
    """Group a against group b; NaN and None where there is no test."""

    difference: float
    """mean(a) − mean(b)."""
    n_a: int
    n_b: int
    why: str = ""
    """One sentence on why there is no test; empty if there is."""
    low: float = math.nan
    high: float = math.nan
    """95 % Welch interval of the difference."""
    p: float | None = None
    """Welch's t-test, two-sided: may the two setups differ in spread? Yes, so variances are not pooled."""
    p_rank: float | None = None
    """Mann-Whitney test, two-sided: exact for few seeds without ties."""
    effect: float = math.nan
    """Hedges' g: the difference in standard deviations over seeds, corrected for few seeds."""

    @property
    def effect_variance(self) -> float:
        """Sampling variance of the effect."""
        return hedges_variance(self.effect, self.n_a, self.n_b)

    @property
    def effect_ends(self) -> tuple[float, float]:
        """95 % interval of the effect (normal)."""
        half = special.ndtri((1 + LEVEL) / 2) * math.sqrt(self.effect_variance)
        return self.effect - half, self.effect + half


def compare(a: np.ndarray, b: np.ndarray, name_a: str = "the first", name_b: str = "the second") -> Comparison:
    """Welch's interval and test, a rank test and an effect size of scores [n_a] and [n_b]; the names are for `why`."""
    a, b = finite(a), finite(b)
    n_a, n_b = a.size, b.size
    difference = float(a.mean() - b.mean()) if n_a and n_b else math.nan
    few = [f"{n} of {name}" for n, name in ((n_a, name_a), (n_b, name_b)) if n < 2]
    if few:
        verb = "is" if few[0].startswith("1 ") else "are"
        why = f"A test needs at least two seeds of each: there {verb} {' and '.join(few)}."
        return Comparison(difference, n_a, n_b, why)
    if not (vary(a) or vary(b)):
        why = f"A test needs some spread over seeds: all of {name_a} are equal, and so are all of {name_b}."
        return Comparison(difference, n_a, n_b, why)
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", "Precision loss", RuntimeWarning)  # one side may well be constant
        welch = scipy_stats.ttest_ind(a, b, equal_var=False)
    low, high = map(float, welch.confidence_interval(LEVEL))
    m = n_a + n_b - 2
    pooled = math.sqrt(((n_a - 1) * a.var(ddof=1) + (n_b - 1) * b.var(ddof=1)) / m)
    unbiased = math.exp(special.gammaln(m / 2) - special.gammaln((m - 1) / 2)) / math.sqrt(m / 2)
    p_rank = float(scipy_stats.mannwhitneyu(a, b).pvalue)
    return Comparison(difference, n_a, n_b, "", low, high, float(welch.pvalue), p_rank, difference / pooled * unbiased)


def hedges_variance(g: float, n_a: int, n_b: int) -> float:
    """Sampling variance of Hedges' g: 1/n_a + 1/n_b + g²/(2(n_a + n_b))."""
    return 1 / n_a + 1 / n_b + g**2 / (2 * (n_a + n_b))


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


def seeds_needed(difference: float, std: float, power: float = 0.8) -> int | None:
    """Seeds of each of two variants with which a t-test (0.05) would find their difference with this power.

    The smallest n with d·√(n/2) ≥ δ, where d = |difference|/std and δ is the `noncentrality` for 2n − 2 degrees of
    freedom. The search starts just below the normal approximation 2·(z_{0.975} + z_power)²/d², which never asks for
    more. `std` is over seeds, of one variant (the root mean square of both, if they differ). None if there is no
    difference to find, or no number to tell.
    """
    if difference == 0 or not math.isfinite(difference) or not math.isfinite(std):
        return None
    d = abs(difference) / std if std > 0 else math.inf
    normal = 2 * (special.ndtri((1 + LEVEL) / 2) + special.ndtri(power)) ** 2 / d**2
    if normal > 10_000:  # the two differ by less than one seed in ten thousand
        return math.ceil(normal)
    n = max(2, math.floor(normal))
    while d * math.sqrt(n / 2) < noncentrality(2 * n - 2, power):
        n += 1
    return n


def noncentrality(df: int, power: float) -> float:
    """Standard errors of an effect that Student's two-sided test (0.05) finds with this power.

    The share of it that the test finds on the wrong side is negligible.
    """
    return float(special.nctdtrinc(df, 1 - power, t_quantile(df)))
