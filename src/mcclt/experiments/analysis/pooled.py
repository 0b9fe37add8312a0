"""One answer to each claim over all settings of a store, with tasks as the unit.

PPO and TRPO on one task share the task, and so are not two independent witnesses: the standardised differences of a
task's settings are averaged first, and tasks are drawn as a whole in the bootstrap. An answer is "better" or "worse"
where the 95 % intervals of the mean difference and of the probability of improvement both say so. Each claim stands by
itself, without correction for the other four; Holm's is for single settings (`contrasts`).
"""

import dataclasses
import functools
from dataclasses import dataclass

import numpy as np

from mcclt.experiments.analysis import meta, speed, stats
from mcclt.experiments.analysis.contrasts import Contrast, contrasts
from mcclt.experiments.results import Results, grouped
from mcclt.presets import bare_task

CLAIMS = (("mcclt", "plain"), ("mcclt", "qr"), ("mcclt", "mcclt-nw"), ("mcclt", "ensemble"), ("mcclt", "explore"))
"""Which variant should beat which."""

MEASURES = {
    "final": "final return",
    "area": "area under the learning curve",
    "threshold": f"steps to {speed.SHARE:.0%} of the baseline's final return".replace("%", " %"),
}
"""What is compared, seed by seed; more is better, and fewer steps are."""


@dataclass(frozen=True)
class Answer:
    """Variant a against b over all settings."""

    a: str
    b: str
    measure: str
    """A key of `MEASURES`."""
    effects: tuple[Contrast, ...]
    """One per setting that has a comparison."""
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
def answers(results: Results, measure: str = "final") -> tuple[Answer, ...]:
    """All claims that a store says something about."""
    rng = np.random.default_rng(0)
    found = (answer(results, a, b, measure, rng) for a, b in CLAIMS)
    return tuple(one for one in found if one.effects)


def answer(results: Results, a: str, b: str, measure: str, rng: np.random.Generator) -> Answer:
    """One claim: variant a against b by a measure."""
    found = contrasts(results, a, b, measure)
    effects = [c for c in found if not c.why]
    tasks = list(grouped((bare_task(c.task), c) for c in effects).values())
    variances = [sum(c.comparison.effect_variance for c in task) / len(task) ** 2 for task in tasks]
    mean = meta.random_effects([float(np.mean([c.comparison.effect for c in task])) for task in tasks], variances)
    probability = meta.clustered_improvement([[c.scores for c in task] for task in tasks], rng)
    left_out = tuple(f"{c.setting}: {c.why}" for c in found if c.why)
    one = Answer(a, b, measure, tuple(effects), left_out, *probability, mean)
    if one.verdict != "undecided" or len(tasks) < 2:
        return one
    per_seed = stats.hedges_variance(mean.mean, 1, 1) * float(np.mean([1 / len(task) for task in tasks]))
    seeds = meta.seeds_to_decide(mean, per_seed)
    more = meta.tasks_to_decide(mean, float(np.mean(variances)))
    return dataclasses.replace(one, seeds=seeds, tasks=more)
