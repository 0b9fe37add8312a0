"""Returns: learning curves, final scores and performance profiles."""

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from mcclt.config import VARIANTS
from mcclt.experiments.analysis import stats
from mcclt.experiments.analysis.aggregates import performance_profile
from mcclt.experiments.analysis.speed import learning_curve
from mcclt.experiments.figures.style import (
    INK,
    SOFT,
    colour,
    dots,
    figure_of,
    folded,
    heading,
    line_and_band,
    panels,
    step_axis,
    variant_legend,
)
from mcclt.experiments.paper import paper_entry, paper_results
from mcclt.experiments.results import Results, Series, variant_label

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure


def main_variants(results: Results) -> list[str]:
    """The paper's variants that are there, or if there is none of them, whatever is."""
    return [v for v in results.variants if v in VARIANTS] or results.variants


def paper_mean(series: Series) -> float | None:
    """The paper's final mean return for this cell of its tables, if it was trained for as many steps."""
    cell = paper_entry(series.task, series.algo, series.variant)
    return None if cell is None or series.steps != paper_results()["steps"] else float(cell["mean"])


@figure_of(
    "Learning curves: mean return of evaluation episodes (of the episodes collected, where there were no evaluations) "
    "over environment steps, mean over seeds with a 95 % band (fewer than five seeds: their range). Ticks on the right "
    "edge are the paper's final means."
)
def learning_curves(results: Results) -> "Figure | None":
    """All tasks, both algorithms, the paper's variants."""
    variants = main_variants(results)
    cells: dict[tuple[str, str], list[tuple[Series, np.ndarray, np.ndarray]]] = {}
    for s in results.mains:
        steps, rows = learning_curve(s)
        if s.variant in variants and len(steps):
            cells.setdefault((s.task, s.algo), []).append((s, steps, rows))
    if not cells:
        return None
    figure, axes = panels(len(cells))
    for ax, drawn in zip(axes, cells.values(), strict=True):
        for series, steps, rows in drawn:
            line_and_band(ax, steps, rows, series.variant)
            if (paper := paper_mean(series)) is not None:
                tick: dict[str, Any] = {"transform": ax.get_yaxis_transform(), "clip_on": False, "linewidth": 2}
                ax.plot([1, 1.035], [paper, paper], color=colour(series.variant), **tick)
        heading(ax, folded(drawn[0][0].task), drawn[0][0].algo.upper())
        ax.set_xlim(0, max(steps[-1] for _, steps, _ in drawn))
        step_axis(ax)
    figure.supxlabel("environment steps", fontsize=9, color=SOFT)
    figure.supylabel("return", fontsize=9, color=SOFT)
    shown = [v for v in variants if any(s.variant == v for drawn in cells.values() for s, _, _ in drawn)]
    tick = {"color": SOFT, "marker": "_", "markersize": 6, "markeredgewidth": 2, "linewidth": 0}
    variant_legend(figure, shown, ("paper's final mean", tick))
    return figure


def profiles(results: Results, algo: str) -> tuple[list[str], np.ndarray, dict[str, np.ndarray]]:
    """Per variant, the share of runs whose normalised score is above a threshold.

    On each task 0 is the lowest and 1 the highest score of any seed shown; every task counts the same. Only
    tasks that all the variants have count: others would compare different tasks.

    Returns:
        The tasks, thresholds [T], and shares [T] by variant.
    """
    thresholds = np.linspace(0, 1, 201)
    found = {v: {s.task: s for s in results.mains if s.algo == algo and s.variant == v} for v in main_variants(results)}
    found = {v: by_task for v, by_task in found.items() if by_task}
    tasks = [t for t in results.tasks if found and all(t in by_task for by_task in found.values())]
    scaled: dict[str, list[np.ndarray]] = {v: [] for v in found if tasks}
    for task in tasks:
        scores = {v: by_task[task].scores for v, by_task in found.items()}
        pooled = stats.finite(np.concatenate(list(scores.values())))
        low, high = (pooled.min(), pooled.max()) if pooled.size else (0, 0)
        for v, own in scores.items():
            scaled[v].append((own - low) / (high - low) if high > low else np.where(np.isfinite(own), 1.0, np.nan))
    return tasks, thresholds, {v: performance_profile(own, thresholds) for v, own in scaled.items()}


@figure_of(
    "Performance profiles: share of runs (tasks counting the same) with more than a normalised score, where on "
    "each task 0 is the lowest and 1 the highest score of any run shown. Higher is better; where lines cross, neither "
    "variant is better throughout. Only tasks that all these variants have count."
)
def performance_profiles(results: Results) -> "Figure | None":
    """The whole distribution of scores, not only its mean."""
    drawn = [(algo, *found) for algo in results.algos if (found := profiles(results, algo))[0]]
    if not drawn:
        return None
    figure, axes = panels(len(drawn), width=4, height=2.8, sharey=True)
    for ax, (algo, tasks, thresholds, shares) in zip(axes, drawn, strict=True):
        for variant, share in shares.items():
            ax.plot(thresholds, share, color=colour(variant), linewidth=2 if variant == "mcclt" else 1.4)
        heading(ax, f"{algo.upper()} · {len(tasks)} task{'s' * (len(tasks) > 1)}")
        ax.set_xlim(0, 1)
        ax.set_ylim(0, 1.02)
        ax.yaxis.set_major_formatter(lambda y, _: f"{y:.0%}")
        ax.set_xlabel("normalised score")
    axes[0].set_ylabel("runs above it")
    variant_legend(figure, dict.fromkeys(v for *_, shares in drawn for v in shares))
    return figure


@figure_of(
    "Final scores: every dot is one seed (mean return of its final deterministic episodes), the cross is the mean of "
    "the seeds with its standard error."
)
def final_scores(results: Results) -> "Figure | None":
    """Every seed of the paper's variants."""
    shown = main_variants(results)
    cells: dict[tuple[str, str], list[Series]] = {}
    for s in results.mains:
        if s.variant in shown:
            cells.setdefault((s.task, s.algo), []).append(s)
    if not cells:
        return None
    variants = [v for v in shown if any(s.variant == v for drawn in cells.values() for s in drawn)]
    figure, axes = panels(len(cells), height=0.2 * len(variants) + 0.9, sharey=True)
    for ax, drawn in zip(axes, cells.values(), strict=True):
        _seeds(ax, drawn, variants)
        heading(ax, folded(drawn[0].task), drawn[0].algo.upper())
    figure.supxlabel("return", fontsize=9, color=SOFT)
    return figure


@figure_of(
    "Changed settings: final scores of variants with a setting changed beside the variant they change, where there are "
    "any; every dot is one seed, the cross is the mean with its standard error."
)
def changed_scores(results: Results) -> "Figure | None":
    """Every seed of variants such as mcclt@trunk=shared, and of those that they change."""
    cells: dict[tuple[str, str, str], list[Series]] = {}
    for s in results.mains:
        own, _, changes = s.variant.partition("@")
        base = results.main(s.task, s.algo, own)
        if changes and base is not None:
            cells.setdefault((s.task, s.algo, own), [base]).append(s)
    if not cells:
        return None
    most = max(map(len, cells.values()))
    figure, axes = panels(len(cells), width=5, height=0.2 * most + 0.9, columns=(2,))
    for ax, ((task, algo, own), drawn) in zip(axes, cells.items(), strict=True):
        _seeds(ax, drawn, [s.variant for s in drawn])
        ax.set_yticks(range(len(drawn)), [variant_label(own), *(s.label.partition(", ")[2] for s in drawn[1:])])
        heading(ax, task, algo.upper())
    figure.supxlabel("return", fontsize=9, color=SOFT)
    return figure


def _seeds(ax: "Axes", drawn: Sequence[Series], variants: Sequence[str]) -> None:
    """A row of dots for each variant."""
    for s in drawn:
        y, scores = variants.index(s.variant), stats.finite(s.scores)
        dots(ax, scores, y + _jitter(len(scores)), s.variant)
        if len(scores) > 1:
            own = stats.summarise(scores)
            ax.plot([own.mean] * 2, [y - 0.38, y + 0.38], color=INK, linewidth=1.4)
            ax.plot([own.mean - own.se, own.mean + own.se], [y, y], color=INK, linewidth=1.4)
    ax.set_yticks(range(len(variants)), [variant_label(v) for v in variants])
    ax.set_ylim(len(variants) - 0.4, -0.6)
    ax.grid(visible=False, axis="y")


def _jitter(n: int) -> np.ndarray:
    """Places for n dots, spread evenly without order."""
    return 0.5 * (np.arange(n) * 0.618034 % 1 - 0.5)
