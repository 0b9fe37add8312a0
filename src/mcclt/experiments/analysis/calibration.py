"""Are predicted normals right? Coverage, CRPS and PIT of N(mean, std²) against returns that really followed.

A value function describes the discounted return of the policy that collects, noise included, so it is compared
with episodes of that policy. Everything is NumPy.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from scipy.stats import norm

from mcclt.experiments.results import Results, Series

LEVELS = (0.5, 0.8, 0.95)
BINS = 20
NEGLIGIBLE = 0.01
"""A return is known once what is missing of it weighs at most this much."""


def monte_carlo(
    reward: np.ndarray, terminated: np.ndarray, truncated: np.ndarray, gamma: float | np.ndarray
) -> tuple[np.ndarray, np.ndarray]:
    """Discounted returns G_t = r_t + γ G_{t+1} within each episode, and where they are known: [T, ...] like all given.

    After a termination nothing follows. Where an episode was cut, by the time limit or the end of the recording,
    k steps on, the rest is missing with weight γ^k: G_t counts as known where γ^k ≤ `NEGLIGIBLE`.
    """
    total, missing = np.zeros(reward.shape[1:]), np.ones(reward.shape[1:])
    returns, weight = np.empty(reward.shape), np.empty(reward.shape)
    for t in reversed(range(len(reward))):
        ended = terminated[t] | truncated[t]
        total = reward[t] + gamma * np.where(ended, 0.0, total)
        missing = gamma * np.where(terminated[t], 0.0, np.where(truncated[t], 1.0, missing))
        returns[t], weight[t] = total, missing
    return returns, weight <= NEGLIGIBLE


def crps_normal(returns: np.ndarray, mean: np.ndarray, std: np.ndarray) -> np.ndarray:
    """CRPS of N(mean, std²) at the returns: σ (z (2Φ(z) − 1) + 2φ(z) − 1/√π), z = (G − μ)/σ. Lower is better."""
    z = (returns - mean) / std
    return std * (z * (2 * norm.cdf(z) - 1) + 2 * norm.pdf(z) - 1 / np.sqrt(np.pi))


def measure(returns: np.ndarray, mean: np.ndarray, std: np.ndarray) -> dict[str, Any]:
    """How the normals N(mean, std²) [B] describe the returns [B]; nothing if there is no spread to judge.

    States without a spread (std = 0: all bars are the same) are left out and counted: `without_normal` is their share.

    `coverage`: share of returns within the central 50/80/95 % intervals. `crps`, and `crps_point` = mean |G − μ|,
    that of a prediction without spread: a ratio below 1 means that the spread is worth having. `pit`: shares of
    Φ(z) in 20 bins, flat if right, ∪ if too narrow, ∩ if too wide.
    """
    proper = std > 0
    if not proper.any():
        return {}
    without = float(np.mean(~proper))
    returns, mean, std = returns[proper], mean[proper], std[proper]
    z = (returns - mean) / std
    counts, _ = np.histogram(norm.cdf(z), bins=BINS, range=(0, 1))
    return {
        "states": len(returns),
        "without_normal": without,
        "coverage": {str(p): float(np.mean(np.abs(z) <= norm.ppf((1 + p) / 2))) for p in LEVELS},
        "crps": float(np.mean(crps_normal(returns, mean, std))),
        "crps_point": float(np.mean(np.abs(returns - mean))),
        "bias": float(np.mean(mean - returns)),
        "spread": float(np.mean(std)),
        "pit": (counts / len(returns)).tolist(),
    }


@dataclass(frozen=True)
class Calibration:
    """All seeds of one setup that were looked at."""

    coverage: dict[float, float]
    """Share of returns inside the central interval of each nominal level, mean over seeds."""
    ratios: np.ndarray
    """[seeds] CRPS over that of a point at the mean: below 1 the spread is worth having. No seed whose points are exact
    is among them."""
    bias: float
    """Mean over seeds, in spreads."""
    pit: np.ndarray
    """[20] shares of Φ((return − mean)/std) in equal bins, mean over seeds; all alike if right."""

    @property
    def crps(self) -> float:
        """The mean of `ratios`; 1, neither gain nor loss, where there is none."""
        return float(self.ratios.mean()) if self.ratios.size else 1.0


def calibration_of(series: Series) -> Calibration | None:
    """The calibration of a setup's critics; None if none has a spread that was looked at."""
    found = [c for r in series.results if (c := r.probe.get("calibration"))]
    if not found:
        return None
    return Calibration(
        {level: float(np.mean([c["coverage"][str(level)] for c in found])) for level in LEVELS},
        np.array([c["crps"] / c["crps_point"] for c in found if c["crps_point"]]),
        float(np.mean([c["bias"] / c["spread"] for c in found])),
        np.mean([c["pit"] for c in found], axis=0),
    )


def over(found: Sequence[Calibration]) -> Calibration:
    """Of several setups together, each counting alike."""
    return Calibration(
        {level: float(np.mean([one.coverage[level] for one in found])) for level in LEVELS},
        np.array([one.crps for one in found]),
        float(np.mean([one.bias for one in found])),
        np.mean([one.pit for one in found], axis=0),
    )


def why_unmeasured(results: Results) -> str:
    """Why nothing is known of the calibration of any critic, in a sentence."""
    probes = [r.probe for s in results.mains for r in s.results if r.probe.get("episode")]
    if not probes:
        return "No critic with a spread has been probed yet: that is done after the final episodes."
    if not any(std for probe in probes for std in probe["episode"]["std"]):
        return "These critics have no spread that could be judged."
    steps = max(int(probe["episode"]["t"][-1]) + 1 for probe in probes)
    gamma = min(float(probe["gamma"]) for probe in probes)
    return (
        f"No return is known: episodes are cut off after {steps:,} steps, and by γ = {gamma:g} what would have followed"
        f" still counts for {gamma**steps:.0%} (to be judged, it must be below {NEGLIGIBLE:.0%})."
    )
