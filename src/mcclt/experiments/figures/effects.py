"""The effect plot: every claim in every setting, and over all of them."""

from collections.abc import Sequence
from typing import Any

import numpy as np

from mcclt.experiments.analysis import pooled
from mcclt.experiments.analysis.texts import interval
from mcclt.experiments.figures import style
from mcclt.experiments.figures.style import INK, SOFT, Axes, Figure
from mcclt.experiments.results import Results, variant_label

BLUE = style.colour("mcclt")

MARKERS = {"ppo": ("o", BLUE), "trpo": ("s", "white")}
"""By algorithm: shape and filling. All others have a white triangle."""

GAP = 3 * "\u2003"
"""Between words below an axis: em spaces, since browsers make one of many others."""

REACH = (1.0, 1.5)
"""Differences shown, in standard deviations: at least, at most. Arrows stand for what lies beyond."""

HOW = (
    "in standard deviations over seeds (Hedges' g, with its 95 % interval), to the right of the line where MC-CLT is "
    "better. The diamond is the mean over tasks with its 95 % interval (random effects, PPO and TRPO on one task "
    "averaged first), the line below it where another task would lie (95 % prediction interval). Under each column: "
    "that mean, and the probability P that a random seed of MC-CLT beats one of the other, with intervals over tasks."
)


@style.figure_of(f"MC-CLT against each of the others in every setting: the difference of final returns {HOW}")
def effects(results: Results) -> Figure | None:
    """All claims about final returns."""
    return _forest(pooled.answers(results, "final"))


@style.figure_of(f"Speed of learning: the difference of the areas under the learning curves {HOW}")
def effects_on_speed(results: Results) -> Figure | None:
    """The same for the area under the learning curve."""
    return _forest(pooled.answers(results, "area"))


def _forest(answers: Sequence[pooled.Answer]) -> Figure | None:
    """One column per claim, one row per setting, tasks apart; below them the mean over tasks."""
    if not answers:
        return None
    settings = list(dict.fromkeys((e.task, e.algo) for a in answers for e in a.effects))
    rows, names, top = {}, {}, 0.0
    for task in dict.fromkeys(task for task, _ in settings):
        own = [one for one in settings if one[0] == task]
        names[top + (len(own) - 1) / 2] = style.folded(task) if len(own) > 1 else task
        rows.update({one: top + place for place, one in enumerate(own)})
        top += len(own) + 0.6
    figure = style.canvas(0.17 * top + 2.1)
    axes = figure.subplots(1, len(answers), sharex=True, sharey=True, squeeze=False)[0]
    furthest = max(abs(end) for a in answers for e in a.effects for end in e.comparison.effect_ends)
    reach = float(np.clip(furthest, *REACH))
    for ax, answer in zip(axes, answers, strict=True):
        _column(ax, answer, rows, top, reach)
    axes[0].set_yticks([*names, top + 0.4], [*names.values(), "mean over tasks"])
    axes[0].annotate("MC-CLT against", (0, 1), (-6, 6), "axes fraction", "offset points", ha="right", fontweight="bold")
    axes[0].set_ylim(top + 2, -0.9)
    axes[0].set_xlim(-reach * 1.05, reach * 1.05)
    style.axis_names(figure, GAP.join(("← the other is better", "standardised difference", "MC-CLT is better →")))
    points = [(algo.upper(), {**_point(algo), "linewidth": 1.4}) for algo in dict.fromkeys(algo for _, algo in rows)]
    diamond = {"color": INK, "marker": "D", "linewidth": 0, "markersize": 6}
    style.legend(figure, [*points, ("mean over tasks", diamond), ("another task", {"color": SOFT, "linewidth": 1})])
    return figure


def _point(algo: str) -> dict[str, Any]:
    marker, filling = MARKERS.get(algo, ("^", "white"))
    return {"color": BLUE, "markeredgecolor": BLUE, "markersize": 5, "marker": marker, "markerfacecolor": filling}


def _column(ax: Axes, answer: pooled.Answer, rows: dict[tuple[str, str], float], top: float, reach: float) -> None:
    ax.axvline(0, **style.REFERENCE)
    ax.axhline(top - 0.5, color=style.FAINT, linewidth=0.8)
    for e in answer.effects:
        y = rows[e.task, e.algo]
        _line(ax, *e.comparison.effect_ends, y, reach, color=BLUE, linewidth=1.4)
        ax.plot(e.comparison.effect, y, linewidth=0, **_point(e.algo))
    mean, y = answer.mean, top + 0.4
    if np.isfinite(mean.low):
        _line(ax, mean.low, mean.high, y, reach, color=INK, linewidth=0)
        ax.fill([mean.low, mean.mean, mean.high, mean.mean], [y, y - 0.45, y, y + 0.45], color=INK, linewidth=0)
    else:
        ax.plot(mean.mean, y, "D", color=INK, markersize=6)
    if np.isfinite(mean.next_low):
        _line(ax, mean.next_low, mean.next_high, y + 0.95, reach, color=SOFT, linewidth=1)
    ax.set_title(variant_label(answer.b).replace(" without", "\nwithout"), loc="center")
    difference = interval(mean.mean, mean.low, mean.high, "+z.2f")
    probability = f"P = {interval(answer.probability, answer.low, answer.high, '.2f')}"
    ax.set_xlabel("\n".join([difference, probability, answer.verdict]).replace(" [", "\n["), color=INK)
    ax.grid(visible=False, axis="y")
    ax.locator_params(axis="x", nbins=4)


def _line(ax: Axes, low: float, high: float, y: float, reach: float, **look: Any) -> None:
    """From low to high, with an arrow at an end that is out of reach."""
    edge = reach * 1.05
    ax.plot([max(low, -edge), min(high, edge)], [y, y], **look)
    for beyond, x, marker in ((low < -edge, -edge, "<"), (high > edge, edge, ">")):
        if beyond:
            ax.plot(x, y, marker, color=look["color"], markersize=4, clip_on=False)
