"""Returns: learning curves, final scores and performance profiles."""

from collections.abc import Sequence
from typing import Any

import numpy as np

from mcclt.config.variants import PAPER_VARIANTS
from mcclt.experiments.analysis import stats
from mcclt.experiments.analysis.aggregates import performance_profile
from mcclt.experiments.analysis.speed import learning_curve
from mcclt.experiments.analysis.texts import count
from mcclt.experiments.figures import style
from mcclt.experiments.figures.style import Axes, Figure
from mcclt.experiments.paper import paper_mean
from mcclt.experiments.results import Results, Series, variant_label

MOST = 6
"""Curves in one picture."""


def main_variants(results: Results) -> list[str]:
    """What is shown at first: of a reproduction the paper's variants, of anything else the first six there are."""
    paper = [v for v in results.variants if v in PAPER_VARIANTS]
    return ((results.reproduction and paper) or results.variants)[:MOST]


@style.figure_of(
    "Learning curves: mean return of evaluation episodes (of the episodes collected, where there were no evaluations) "
    "over environment steps, mean over seeds with a 95 % band (fewer than five seeds: their range). Ticks on the right "
    "edge, where there are any, are the paper's final means."
)
def learning_curves(results: Results) -> Figure | None:
    """All tasks, both algorithms, at most six variants."""
    variants = main_variants(results)
    shown = {s: curve for s in results.mains if s.variant in variants and len((curve := learning_curve(s))[0])}
    if not shown:
        return None
    from matplotlib.ticker import EngFormatter

    cells = style.by_setting(shown)
    published = {s: mean for s in shown if results.reproduction and (mean := paper_mean(s)) is not None}
    figure, axes = style.panels([1.9] * len(cells))
    for ax, ((task, algo), drawn) in zip(axes, cells.items(), strict=True):
        for series in drawn:
            style.line_and_band(ax, *shown[series], series.variant)
            if series in published:
                tick: dict[str, Any] = {"transform": ax.get_yaxis_transform(), "clip_on": False, "linewidth": 2}
                ax.plot([1, 1.035], [published[series]] * 2, color=style.colour(series.variant), **tick)
        style.heading(ax, style.folded(task), algo.upper())
        ax.set_xlim(0, max(shown[series][0][-1] for series in drawn))
        ax.xaxis.set_major_formatter(EngFormatter(sep=""))  # 0, 500k, 1M
    style.axis_names(figure, "environment steps", "return")
    tick = {"color": style.SOFT, "marker": "_", "markersize": 6, "markeredgewidth": 2, "linewidth": 0}
    there = {s.variant for s in shown}
    more = [("paper's final mean", tick)] if published else []
    style.variant_legend(figure, [v for v in variants if v in there], *more)
    return figure


def profiles(results: Results, algo: str) -> tuple[list[str], np.ndarray, dict[str, np.ndarray]]:
    """Per variant, the share of runs whose normalised score is above a threshold: tasks, thresholds [T], shares [T].

    On each task 0 is the lowest and 1 the highest score of any seed shown; every task counts the same. Only
    tasks that all the variants have count: others would compare different tasks.
    """
    thresholds = np.linspace(0, 1, 201)
    found = {v: {s.task: s.scores for s in results.of(v) if s.algo == algo} for v in main_variants(results)}
    found = {v: by_task for v, by_task in found.items() if by_task}
    tasks = [t for t in results.tasks if found and all(t in by_task for by_task in found.values())]
    scaled: dict[str, list[np.ndarray]] = {v: [] for v in found if tasks}
    for task in tasks:
        pooled = stats.finite(np.concatenate([by_task[task] for by_task in found.values()]))
        low, high = (pooled.min(), pooled.max()) if pooled.size else (0, 0)
        for v, by_task in found.items():
            own = by_task[task]
            scaled[v].append((own - low) / (high - low) if high > low else np.where(np.isfinite(own), 1.0, np.nan))
    return tasks, thresholds, {v: performance_profile(own, thresholds) for v, own in scaled.items()}


@style.figure_of(
    "Performance profiles: share of runs (tasks counting the same) with more than a normalised score, where on "
    "each task 0 is the lowest and 1 the highest score of any run shown. Higher is better; where lines cross, neither "
    "variant is better throughout. Only tasks that all these variants have count."
)
def performance_profiles(results: Results) -> Figure | None:
    """The whole distribution of scores, not only its mean."""
    drawn = [(algo, *found) for algo in results.algos if (found := profiles(results, algo))[0]]
    if not drawn:
        return None
    figure, axes = style.panels([2.8] * len(drawn), across=2, sharey=True)
    for ax, (algo, tasks, thresholds, shares) in zip(axes, drawn, strict=True):
        for variant, share in shares.items():
            ax.plot(thresholds, share, **style.line(variant))
        style.heading(ax, f"{algo.upper()} · {count(len(tasks), 'task')}")
        ax.set(xlim=(0, 1), ylim=(0, 1.02), xlabel="normalised score")
        ax.yaxis.set_major_formatter("{x:.0%}")
    axes[0].set_ylabel("runs above it")
    style.variant_legend(figure, dict.fromkeys(v for *_, shares in drawn for v in shares))
    return figure


@style.figure_of(
    "Final scores: every dot is one seed (mean return of its final deterministic episodes), the cross is the mean of "
    "the seeds with its standard error."
)
def final_scores(results: Results) -> Figure | None:
    """Every seed of the paper's variants."""
    variants = main_variants(results)
    cells = style.by_setting(s for s in results.mains if s.variant in variants)
    if not cells:
        return None
    names = [style.wrapped(variant_label(v), 20) for v in variants]
    figure, axes = style.panels([_height(names)] * len(cells), sharey=True)
    for ax, ((task, algo), drawn) in zip(axes, cells.items(), strict=True):
        _seeds(ax, drawn, variants, names)
        style.heading(ax, style.folded(task), algo.upper())
    style.axis_names(figure, "return")
    return figure


@style.figure_of(
    "Changed settings: final scores of variants with a setting changed beside the variant they change, where there are "
    "any; every dot is one seed, the cross is the mean with its standard error."
)
def changed_scores(results: Results) -> Figure | None:
    """Every seed of variants such as mcclt@trunk=shared, and of those that they change."""
    cells: dict[tuple[str, str, str], list[Series]] = {}
    for s in results.mains:
        own, _, changes = s.variant.partition("@")
        base = results.main(s.task, s.algo, own)
        if changes and base is not None:
            cells.setdefault((s.task, s.algo, own), [base]).append(s)
    if not cells:
        return None
    names = [
        [variant_label(own), *(style.wrapped(s.label.partition(", ")[2], 24) for s in drawn[1:])]
        for (*_, own), drawn in cells.items()
    ]
    figure, axes = style.panels([*map(_height, names)], across=2)
    for ax, ((task, algo, _), drawn), called in zip(axes, cells.items(), names, strict=True):
        _seeds(ax, drawn, [s.variant for s in drawn], called)
        style.heading(ax, task, algo.upper())
    style.axis_names(figure, "return")
    return figure


def _height(names: Sequence[str]) -> float:
    """Inches that a cell with rows of such names takes, each row as high as the highest."""
    return 0.9 + len(names) * (0.05 + style.LINE * max(name.count("\n") + 1 for name in names))


def _seeds(ax: Axes, drawn: Sequence[Series], variants: Sequence[str], names: Sequence[str]) -> None:
    """A row of dots for each variant, beside its name."""
    for s in drawn:
        y, scores = variants.index(s.variant), stats.finite(s.scores)
        jitter = 0.5 * (np.arange(len(scores)) * 0.618034 % 1 - 0.5)  # spread evenly without order
        style.dots(ax, scores, y + jitter, s.variant)
        if len(scores) > 1:
            own = stats.summarise(scores)
            ax.plot([own.mean] * 2, [y - 0.38, y + 0.38], color=style.INK, linewidth=1.4)
            ax.plot([own.mean - own.se, own.mean + own.se], [y, y], color=style.INK, linewidth=1.4)
    ax.set_yticks(range(len(variants)), names)
    ax.set_ylim(len(variants) - 0.4, -0.6)
    ax.grid(visible=False, axis="y")
