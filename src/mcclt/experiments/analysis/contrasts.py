"""Two variants of a store against each other, setting by setting.

A *setting* is a task with an algorithm; the paper has 16. Only series trained for the same number of steps, in the same
configuration, are compared, and seeds are the unit of every test.
"""

import dataclasses
import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from mcclt.experiments import plan
from mcclt.experiments.analysis import speed, stats
from mcclt.experiments.analysis.texts import count, number, p_text, signed
from mcclt.experiments.paper import paper_entry
from mcclt.experiments.results import Results, Series, variant_label
from mcclt.experiments.setups import PAPER_TASKS
from mcclt.presets import bare_task, has_paper

ALPHA = 0.05
"""The paper's level of significance, and ours."""


@dataclass(frozen=True)
class Contrast:
    """Two variants in one setting."""

    task: str
    algo: str
    a: Series | None
    b: Series | None
    scores: tuple[np.ndarray, np.ndarray]
    """[seeds] of each, more is better; empty if one is not there, or the two trained differently."""
    comparison: stats.Comparison
    """Of these scores."""
    p: float | None = None
    """Welch's, Holm-adjusted over the settings of the store; None where there is no test."""

    @property
    def setting(self) -> str:
        """For people: PPO on Hopper-v4."""
        return f"{self.algo.upper()} on {self.task}"

    @property
    def why(self) -> str:
        """Why there is no test, in one sentence; empty if there is."""
        return self.comparison.why

    @property
    def sign(self) -> int:
        """1 where a is significantly better, −1 where worse, 0 where that is open or not tested."""
        if self.p is None or self.p >= ALPHA:
            return 0
        return 1 if self.comparison.difference > 0 else -1


def contrasts(results: Results, a: str, b: str, measure: str = "final") -> list[Contrast]:
    """Variant a against b by a measure (see `speed.scores_of`) in every setting of the store that has one of them."""
    found = []
    for task, algo in results.settings:
        one, other = results.main(task, algo, a), results.main(task, algo, b)
        if one is None and other is None:
            continue
        scores = _scores(results, one, other, a, b, measure)
        if isinstance(scores, str):
            none = np.zeros(0)
            found.append(Contrast(task, algo, one, other, (none, none), stats.Comparison(math.nan, 0, 0, scores)))
        else:
            comparison = stats.compare(*scores, variant_label(a), variant_label(b))
            found.append(Contrast(task, algo, one, other, scores, comparison))
    adjusted = stats.holm([c.comparison.p for c in found])
    return [dataclasses.replace(c, p=p) for c, p in zip(found, adjusted, strict=True)]


def _scores(
    results: Results, one: Series | None, other: Series | None, a: str, b: str, measure: str
) -> tuple[np.ndarray, np.ndarray] | str:
    """What is compared, or in one sentence why nothing is."""
    if one is None or other is None:
        return f"There are no results for {variant_label(a if one is None else b)}."
    if one.steps != other.steps:
        return (
            f"They are not comparable: {one.label} trained for {one.steps:,} steps, {other.label} for {other.steps:,}."
        )
    if one.configs and other.configs and not one.configs & other.configs:
        first, second = (" or ".join(sorted(s.configs)) for s in (one, other))
        trained = f"{one.label} was trained in the configuration {first!r}, {other.label} in {second!r}"
        return f"They are not comparable: {trained}."
    return speed.scores_of(measure, one, other, results.main(one.task, one.algo, "plain"))


def contrast_text(c: Contrast) -> str:
    """One line: the difference, its interval and tests, or why there is none."""
    if c.p is None:
        return f"{c.setting}: {c.why}"
    found = c.comparison
    difference, low, high = (number(value, True) for value in (found.difference, found.low, found.high))
    return (
        f"{c.setting}: {difference} [{low}, {high}], {p_text(found.p)} (Holm {p_text(c.p)}; ranks "
        f"{p_text(found.p_rank)}), effect {signed(found.effect)}, {found.n_a} and {found.n_b} seeds."
    )


def scope(tested: Sequence[Contrast]) -> str:
    """For people: 4 of the paper's 16 settings and 2 others."""
    total = len(PAPER_TASKS) * len(plan.ALGOS)
    ours = [c for c in tested if has_paper(c.task) and c.algo in plan.ALGOS]
    covered, others = {(bare_task(c.task), c.algo) for c in ours}, len(tested) - len(ours)
    versions = len(tested) - others - len(covered)
    parts = [f"{len(covered)} of the paper's {total} settings"] if covered else []
    parts += [f"{versions} more of other versions"] if versions else []
    parts += [f"{count(others, 'setting')} outside the paper"] if others else []
    return " and ".join(parts)


def reference(results: Results, task: str, algo: str) -> tuple[float, float] | None:
    """What scores of a setting are divided by, and the smallest scale; None if there is neither.

    The reference is the paper's baseline; where the paper has no such task, our own. (No score of a random policy is
    stored, so zero has no meaning beyond "no return".) The smallest scale is our baseline's standard deviation over
    seeds, which keeps a reference near zero from blowing noise up.
    """
    entry, own = paper_entry(task, algo, "plain"), results.main(task, algo, "plain")
    scores = stats.finite(own.scores) if own else np.zeros(0)
    floor = float(scores.std(ddof=1)) if scores.size > 1 else 0.0
    if entry is None and not scores.size:
        return None
    mean = float(entry["mean"]) if entry else float(scores.mean())
    return (mean, floor) if max(abs(mean), floor) > 0 else None


def normalised(results: Results, series: Series) -> np.ndarray | None:
    """[seeds] scores of a series on a scale that tasks share, with the baseline's at 1; None without a reference.

    1 + (score − reference)/max(|reference|, smallest scale), which is score/reference wherever the reference is
    positive and above that scale. Dividing by |reference| keeps better above worse where returns are negative.
    """
    found = reference(results, series.task, series.algo)
    if found is None:
        return None
    mean, floor = found
    return 1 + (stats.finite(series.scores) - mean) / max(abs(mean), floor)
