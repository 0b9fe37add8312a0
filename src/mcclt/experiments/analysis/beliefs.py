"""What critics believe: their bars beside normals, and their spread over an episode."""

import math
from dataclasses import dataclass

import numpy as np
from scipy.special import ndtr, ndtri

from mcclt.experiments.analysis import stats
from mcclt.experiments.analysis.contrasts import ALPHA
from mcclt.experiments.analysis.texts import interval
from mcclt.experiments.results import Result, Results, Series

SMOOTHING = 20.0
"""Time constant, in steps, of the exponential smoothing over an episode."""


def probed(result: Result, part: str, name: str) -> np.ndarray:
    """An entry of the probe as numbers, NaN where there is none; empty if it was not looked at."""
    return np.array(result.probe.get(part, {}).get(name, []), dtype=np.float64)


def probed_bars(result: Result) -> np.ndarray | None:
    """[3, N] at the first, middle and last step of an episode, if they were looked at and are numbers."""
    bars = probed(result, "bars", "values")
    return bars if bars.size and np.isfinite(bars).all() else None


# --- bars --------------------------------------------------------------------------------------------------------


def normal_bars(n: int) -> tuple[np.ndarray, np.ndarray]:
    """τ_i = (i+1)/(N+1) and Z_i = Φ⁻¹(τ_i), with an exact 0 in the middle of an odd N."""
    tau = (np.arange(n) + 1) / (n + 1)
    z = ndtri(tau)
    return tau, (z - z[::-1]) / 2


def normal_distance(bars: np.ndarray) -> np.ndarray:
    """How far quantile bars are from those of a normal: 1 − r², between 0 (exactly normal) and 1.

    r is the correlation of the bars [..., N], sorted, with z_i = Φ⁻¹(i/(N + 1)), i = 1 … N, so r² is the share of their
    variance that the best-fitting normal explains. Shapiro and Francia's W′ has the same form, but its p-values are
    for samples. Bars are a critic's quantiles, not samples, so this is a distance and no test. For many bars a uniform
    distribution has 1 − 3/π = 0.045 and an exponential one 0.18. NaN where a bar is not a number or all are equal.
    """
    bars = np.sort(np.asarray(bars, float), axis=-1)
    _, z = normal_bars(bars.shape[-1])
    centred = bars - bars.mean(axis=-1, keepdims=True)
    total = (centred**2).sum(axis=-1) * (z @ z)
    explained = (centred @ z) ** 2
    return np.where(total > 0, 1 - explained / np.where(total > 0, total, 1), math.nan)


@dataclass(frozen=True)
class Normality:
    """Bars beside the normal with their mean and spread."""

    bars: np.ndarray
    """[N] in ascending order."""
    mean: float
    std: float
    """That of a normal whose N bars spread as these do: their standard deviation over that of Z."""
    correlation: float
    """Squared correlation of the bars with Z (the W′ of Shapiro and Francia): 1 if they are exactly normal."""
    distance: float
    """Largest difference of the two CDFs at a bar: 0 if they are exactly normal."""


def normality(bars: np.ndarray) -> Normality:
    """How normal bars [N] are. Bars that are all equal have no spread, and NaN for both measures."""
    bars = np.sort(bars)
    tau, z = normal_bars(len(bars))
    mean, std = float(bars.mean()), float(bars.std() / z.std())
    if not std > 1e-9 * abs(mean):
        return Normality(bars, mean, 0.0, np.nan, np.nan)
    distance = float(np.abs(ndtr((bars - mean) / std) - tau).max())
    return Normality(bars, mean, std, 1 - float(normal_distance(bars)), distance)


@dataclass(frozen=True)
class ErrorParts:
    """The normality error of one state, step by step."""

    bars: np.ndarray
    """q_i [N]."""
    z: np.ndarray
    """Z_i [N]."""
    mean: float
    sigmas: np.ndarray
    """σ_i = (q_i − mean)/Z_i [N]; NaN in the middle of an odd N."""
    sigma: float
    """Their mean."""
    guide: np.ndarray
    """q′_i = mean + σ Z_i [N]."""

    @property
    def error(self) -> float:
        """E = Σ (q_i − q′_i)²."""
        return float(np.sum((self.bars - self.guide) ** 2))


def error_parts(bars: np.ndarray) -> ErrorParts:
    """As `mcclt.method.normal` computes it."""
    _, z = normal_bars(len(bars))
    mean = float(bars.mean())
    sigmas = np.where(z != 0, (bars - mean) / np.where(z != 0, z, 1), np.nan)
    sigma = float(np.nanmean(sigmas))
    return ErrorParts(bars, z, mean, sigmas, sigma, mean + sigma * z)


# --- spread over an episode --------------------------------------------------------------------------------------


def smooth(t: np.ndarray, values: np.ndarray, steps: float = SMOOTHING) -> np.ndarray:
    """Exponential smoothing at times t: what lies `steps` back counts 1/e."""
    share = 1 - np.exp(-np.diff(t) / steps)
    out = values.copy()
    for k, a in enumerate(share):
        out[k + 1] = out[k] + a * (values[k + 1] - out[k])
    return out


def std_over_episode(series: Series, points: int = 200) -> tuple[np.ndarray, np.ndarray]:
    """Steps [T] and the smoothed standard deviations [seeds, T], NaN after a seed's episode has ended.

    It ends where fewer than half of the seeds are left: a mean over survivors says little about the rest.
    """
    found = []
    for r in series.results:
        t, std = probed(r, "episode", "t"), probed(r, "episode", "std")
        known = np.isfinite(std)
        if known.any():
            found.append((t[known], std[known]))
    if not found:
        return np.zeros(0), np.zeros((0, 0))
    grid = np.linspace(0, max(t[-1] for t, _ in found), points)
    rows = np.array([np.interp(grid, t, smooth(t, std), right=np.nan) for t, std in found])
    kept = 2 * np.isfinite(rows).sum(axis=0) >= len(rows)
    return grid[kept], rows[:, kept]


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
    return float(np.polyfit(t, values, 1)[0] * np.ptp(t) / values.mean())


@dataclass(frozen=True)
class Trend:
    """How the spread of a setting's critics changes over an episode."""

    change: stats.Summary
    """Over seeds, of the change over an episode as a share of the mean (`relative_change`)."""
    p: float | None
    """That of "no change", Holm's over the settings of the store; None with one seed or without spread."""

    @property
    def sign(self) -> int:
        """1 where it grows significantly, −1 where it falls, 0 where that is open."""
        return int(np.sign(self.change.mean)) if self.p is not None and self.p < ALPHA else 0

    def __str__(self) -> str:
        """For people: grows +20 % [+12, +28]."""
        word = {1: "grows", 0: "undecided", -1: "falls"}[self.sign]
        return f"{word} {interval(self.change.mean, self.change.low, self.change.high, '+z.0%')}"


def trends(results: Results, variant: str) -> dict[tuple[str, str], Trend]:
    """{(task, algo): trend} of the settings where a variant's critics were looked at."""
    found = {}
    for s in results.of(variant):
        changes = np.array([relative_change(probed(r, "episode", "t"), probed(r, "episode", "std")) for r in s.results])
        if np.isfinite(changes).any():
            found[s.task, s.algo] = changes
    adjusted = stats.holm([stats.p_zero(x) for x in found.values()])
    return {key: Trend(stats.summarise(x), p) for (key, x), p in zip(found.items(), adjusted, strict=True)}
