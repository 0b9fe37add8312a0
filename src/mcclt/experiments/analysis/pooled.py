"""One answer to each claim over all settings of a store, with tasks as the unit.

PPO and TRPO on one task share the task, and so are not two independent witnesses: the standardised differences of a
task's settings are averaged first, and tasks are drawn as a whole in the bootstrap. An answer is "better" or "worse"
where the 95 % intervals of the mean difference and of the probability of improvement both say so. Each claim stands by
itself, without correction for the other four; Holm's is for single settings (`contrasts`).
"""

import dataclasses
import functools
import math
from dataclasses import dataclass

import numpy as np
from scipy import special

from mcclt.experiments.analysis import meta, speed, stats
from mcclt.experiments.analysis.contrasts import Contrast, contrasts
from mcclt.experiments.results import Results
from mcclt.experiments.setups import bare_task

CLAIMS = (("mcclt", "plain"), ("mcclt", "qr"), ("mcclt", "mcclt-nw"), ("mcclt", "ensemble"), ("mcclt", "explore"))
"""Which variant should beat which."""

MEASURES = {
    "final": "final return",
    "area": "area under the learning curve",
    "threshold": f"steps to {speed.SHARE:.0%} of the baseline's final return".replace("%", " %"),
}
"""What is compared, seed by seed; more is better, and fewer steps are."""


@dataclass(frozen=True)
class Effect:
    """Variant a against b in one setting."""

    task: str
    algo: str
    a: np.ndarray
    b: np.ndarray
    """[seeds] of each, more is better."""
    g: float
    """Hedges' g: the difference in standard deviations over seeds."""
    variance: float
    low: float
    high: float
    """95 % interval of g (normal)."""


@dataclass(frozen=True)
class Answer:
    """Variant a against b over all settings."""

    a: str
    b: str
    measure: str
    """A key of `MEASURES`."""
    effects: tuple[Effect, ...]
    left_out: tuple[str, ...]
    """Settings that have one of the two, but no comparison, with the reason."""
    probability: float
    """That a random seed of a beats one of b, mean over tasks."""
    low: float
    high: float
    """Its 95 % cluster bootstrap interval (`meta.clustered_improvement`)."""
    mean: meta.RandomEffects
    """Of the standardised differences."""
    seeds: int | None = None
    """Of each side, on these tasks, that would decide it with power 0.8 if the mean found is the true one; None if no
    number would, or it is decided."""
    tasks: int | None = None
    """The same for the number of tasks, with as many seeds as now."""

    @property
    def verdict(self) -> str:
        """better, worse or undecided: where both intervals agree."""
        if self.mean.low > 0 and self.low > 0.5:
            return "better"
        return "worse" if self.mean.high < 0 and self.high < 0.5 else "undecided"


@functools.lru_cache(maxsize=len(MEASURES))
def answers(results: Results, measure: str = "final", seed: int = 0) -> tuple[Answer, ...]:
    """All claims that a store says something about; `seed` is that of the bootstrap."""
    rng = np.random.default_rng(seed)
    found = (answer(results, a, b, measure, rng) for a, b in CLAIMS)
    return tuple(one for one in found if one.effects)


def answer(results: Results, a: str, b: str, measure: str, rng: np.random.Generator) -> Answer:
    """One claim: variant a against b by a measure."""
    effects, left_out = [], []
    for contrast in contrasts(results, a, b):
        one = _effect(results, contrast, measure)
        if isinstance(one, Effect):
            effects.append(one)
        else:
            left_out.append(f"{contrast.setting}: {one}")
    names = dict.fromkeys(bare_task(e.task) for e in effects)
    tasks = [[e for e in effects if bare_task(e.task) == name] for name in names]
    variances = [sum(e.variance for e in task) / len(task) ** 2 for task in tasks]
    mean = meta.random_effects([float(np.mean([e.g for e in task])) for task in tasks], variances)
    probability = meta.clustered_improvement([[(e.a, e.b) for e in task] for task in tasks], rng)
    found = Answer(a, b, measure, tuple(effects), tuple(left_out), *probability, mean)
    if found.verdict != "undecided" or len(tasks) < 2:
        return found
    per_seed = meta.hedges_variance(mean.mean, 1, 1) * float(np.mean([1 / len(task) for task in tasks]))
    seeds = meta.seeds_to_decide(mean, per_seed)
    more = meta.tasks_to_decide(mean, float(np.mean(variances)))
    return dataclasses.replace(found, seeds=seeds, tasks=more)


def _effect(results: Results, contrast: Contrast, measure: str) -> Effect | str:
    """The effect in one setting, or why there is none."""
    if contrast.comparison is None or contrast.a is None or contrast.b is None:
        return contrast.why
    if measure == "final":
        a, b = contrast.a.scores, contrast.b.scores
    else:
        column = speed.curve_column(contrast.a, contrast.b)
        curves = [series.curve(column) for series in (contrast.a, contrast.b)]
        if min(len(steps) for steps, _ in curves) < speed.FEW_POINTS:
            return "There are too few points for a learning curve."
        if measure == "area":
            a, b = (speed.area(*curve) for curve in curves)
        else:
            baseline = results.main(contrast.task, contrast.algo, "plain")
            if baseline is None or baseline.steps != contrast.a.steps or not stats.finite(baseline.scores).size:
                return "There is no baseline to take the threshold from."
            threshold = speed.threshold_of(baseline.scores)
            a, b = (-speed.steps_to(*curve, threshold) for curve in curves)
    compared = stats.compare(a, b, contrast.a.label, contrast.b.label)
    if compared.p is None:
        return compared.why
    variance = meta.hedges_variance(compared.effect, compared.n_a, compared.n_b)
    half = special.ndtri((1 + stats.LEVEL) / 2) * math.sqrt(variance)
    g = compared.effect
    return Effect(contrast.task, contrast.algo, a, b, g, variance, g - half, g + half)
