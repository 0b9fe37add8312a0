"""Are the predicted normals right?"""

from collections.abc import Sequence
from typing import Any

import numpy as np

from mcclt.experiments.analysis import stats
from mcclt.experiments.analysis.calibration import LEVELS, Calibration, calibration_of, over
from mcclt.experiments.figures import style
from mcclt.experiments.figures.scores import main_variants
from mcclt.experiments.figures.style import Axes, Figure
from mcclt.experiments.results import Results, variant_label

Found = dict[str, dict[tuple[str, str], Calibration]]
"""By variant, and by task and algorithm."""

PIT_SHOWN = 3.0
"""Densities above are cut and written out: far too narrow predictions pile all returns up at the ends."""

CALIBRATED = ("qr", "mcclt-nw", "ensemble", "mcclt", "mcclt@guide=symmetric")
"""Of a reproduction; of a comparison, those that its other figures show."""


@style.figure_of(
    "Are the predicted normals right? Coverage: share of returns inside the central 50, 80 and 95 % intervals, on the "
    "diagonal if right, below it if too narrow; large dots are means over tasks, small ones single tasks. CRPS over "
    "that of a point at the mean, below 1 if the spread helps (mean and 95 % interval over seeds, or their "
    "range below five). PIT: flat if right, ∪ if too narrow, ∩ if too wide; thin lines are single tasks."
)
def calibration(results: Results) -> Figure | None:
    """Coverage, CRPS and PIT of the critics that predict a spread."""
    found: Found = {}
    for variant in CALIBRATED if results.reproduction else main_variants(results):
        own = {(s.task, s.algo): one for s in results.of(variant) if (one := calibration_of(s)) is not None}
        if own:
            found[variant] = own
    if not found:
        return None
    cells = [setting for setting in results.settings if any(setting in own for own in found.values())]
    top = max(2.8, 0.34 * len(cells) + 0.9)
    names = [style.wrapped(variant_label(v), int(0.85 * style.WIDTH / style.LETTER / len(found))) for v in found]
    under = 1.6 + style.LINE * max(name.count("\n") + 1 for name in names)
    figure = style.canvas(top + under)
    above, below = figure.subfigures(2, 1, height_ratios=[top, under], squeeze=False).flat
    inside, ratio = above.subplots(1, 2, width_ratios=[1, 1.25])
    _coverage_panel(inside, found)
    _crps_panel(ratio, found, cells)
    panels = below.subplots(1, len(found), sharey=True, squeeze=False)[0]
    for ax, name, (variant, measured) in zip(panels, names, found.items(), strict=True):
        _pit_panel(ax, variant, list(measured.values()))
        style.heading(ax, name)
    panels[0].set_yticks(range(4))
    panels[0].set_ylabel("PIT density")
    style.variant_legend(figure, found)
    return figure


def _coverage_panel(ax: Axes, found: Found) -> None:
    ax.axline((0.5, 0.5), slope=1, **style.REFERENCE)
    for i, (variant, measured) in enumerate(found.items()):
        x = np.array(LEVELS) + style.dodge(i, len(found), 0.05)
        for one in measured.values():
            style.dots(ax, x, np.array([*one.coverage.values()]), variant)
        means = [*over([*measured.values()]).coverage.values()]
        ax.plot(x, means, "o-", color=style.colour(variant), markersize=6, linewidth=1)
    ax.set_xticks(LEVELS, [f"{level:.0%}" for level in LEVELS])
    ax.yaxis.set_major_formatter("{x:.0%}")
    style.heading(ax, "Coverage")
    ax.set(xlabel="predicted interval", ylabel="returns inside it")


def _crps_panel(ax: Axes, found: Found, cells: Sequence[tuple[str, str]]) -> None:
    ax.axvline(1, **style.REFERENCE)
    means = []
    for i, (variant, measured) in enumerate(found.items()):
        for cell, one in measured.items():
            y = cells.index(cell) + style.dodge(i, len(found), 0.7)
            mean, low, high = stats.mean_band(one.ratios)
            means.append(mean)
            ax.plot([low, high], [y, y], color=style.colour(variant), linewidth=1.2)
            ax.plot(mean, y, "o", color=style.colour(variant), markersize=4)
    ax.set_yticks(range(len(cells)), [f"{style.folded(task)} · {algo.upper()}" for task, algo in cells])
    ax.set_ylim(len(cells) - 0.5, -0.5)
    ax.grid(visible=False, axis="y")
    for y in range(1, len(cells)):
        ax.axhline(y - 0.5, color=style.FAINT, linewidth=0.4)
    if max(means) > 10 * min(means):  # one critic far off would press all others into a line
        ax.set_xscale("log")
        ax.xaxis.set_major_formatter("{x:g}")
    style.heading(ax, "CRPS, relative to a point prediction")
    ax.set_xlabel("lower is better")


def _pit_panel(ax: Axes, variant: str, measured: Sequence[Calibration]) -> None:
    rows = [len(one.pit) * one.pit for one in measured]  # densities: 1 everywhere if right
    mean, edges = len(rows[0]) * over(measured).pit, np.linspace(0, 1, len(rows[0]) + 1)
    for row in rows if len(rows) > 1 else []:
        ax.stairs(row, edges, color=style.colour(variant), alpha=0.25, linewidth=0.8, baseline=None)
    ax.stairs(mean, edges, color=style.colour(variant), linewidth=1.8, baseline=None)
    ax.axhline(1, **style.REFERENCE)
    ax.set_ylim(0, PIT_SHOWN)
    for k in np.flatnonzero(mean > PIT_SHOWN):
        middle = (edges[k] + edges[k + 1]) / 2
        right = middle < 0.25 or 0.5 < middle < 0.75  # away from the middle, but inside
        x = edges[k + 1] if right else edges[k]  # beside the line, not across it
        place: dict[str, Any] = {"xytext": (4, -3), "ha": "left"} if right else {"xytext": (-4, -3), "ha": "right"}
        look: dict[str, Any] = {"va": "top", "fontsize": 9, "color": style.SOFT}
        ax.annotate(f"{mean[k]:.1f}", (x, PIT_SHOWN), textcoords="offset points", **place, **look)
    ax.set_xticks([0, 0.5, 1], ["0", "½", "1"])
