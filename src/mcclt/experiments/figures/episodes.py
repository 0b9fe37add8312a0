"""Quantities over the steps of an episode: the spread (figures 2 and 4 of the paper), and the weights."""

from typing import TYPE_CHECKING

import numpy as np

from mcclt.experiments.analysis.beliefs import probed, std_over_episode, trends
from mcclt.experiments.figures.style import (
    SOFT,
    agent_name,
    colour,
    figure_of,
    folded,
    grid,
    heading,
    line_and_band,
    one_per_task,
    panels,
    variant_legend,
)
from mcclt.experiments.results import Result, Results, Series

if TYPE_CHECKING:
    from matplotlib.figure import Figure

WEIGHTED = ("mcclt", "ensemble", "explore")


@figure_of(
    "Standard deviation of the value distribution over the steps of an episode, when quantile bars are trained on the "
    "distributional Bellman target; smoothed, mean over seeds with a 95 % band (fewer than five seeds: their range). "
    "Under each title: the change over an episode in percent of the mean, with its 95 % interval over seeds, and "
    "whether that is significant (t-test over seeds, Holm over all settings). The paper says that it grows."
)
def bellman_std(results: Results) -> "Figure | None":
    """Figure 2 of the paper."""
    return _std_panels(results, "qr@qr_target=bellman")


@figure_of(
    "Standard deviation over the members of an ensemble, over the steps of an episode; smoothed, mean over seeds with "
    "a 95 % band (fewer than five seeds: their range). Under each title: the change over an episode in percent "
    "of the mean, with its 95 % interval over seeds, and whether that is significant (t-test over seeds, Holm over all "
    "settings). The paper says that it falls."
)
def ensemble_std(results: Results) -> "Figure | None":
    """Figure 4 of the paper."""
    return _std_panels(results, "ensemble")


def _std_panels(results: Results, variant: str) -> "Figure | None":
    mains = [s for s in results.mains if s.variant == variant]
    drawn = [(s, *curve) for s in mains if len((curve := std_over_episode(s))[0])]
    if not drawn:
        return None
    changes = trends(results, variant)
    figure, axes = panels(len(drawn))
    for ax, (series, t, rows) in zip(axes, drawn, strict=True):
        line_and_band(ax, t, rows, variant)
        change = changes.get((series.task, series.algo), "too short for a slope")
        heading(ax, folded(series.task), f"{series.algo.upper()} · {change}".replace(" [", "\n["))
        ax.set_xlim(0, t[-1] or 1)
    figure.supxlabel("step of the episode", fontsize=9, color=SOFT)
    figure.supylabel("standard deviation of the value", fontsize=9, color=SOFT)
    return figure


@figure_of(
    "One episode of one agent per task: the weight its samples get in the policy update, the error that the weight "
    "is made from (normality error; for the ensemble the standard deviation over its members) and the reward."
)
def weights_over_episode(results: Results) -> "Figure | None":
    """Whether weights follow what happens in an episode."""
    found = [one_per_task(results, v) for v in WEIGHTED]
    rows: dict[str, list[tuple[Series, Result]]] = {}
    for task in results.tasks:
        for series in (by_task[task] for by_task in found if task in by_task):
            agents = [r for r in series.results if r.probe.get("episode")]
            if agents:
                rows.setdefault(task, []).append((series, agents[0]))
    if not rows:
        return None
    entries = ("weight", "error", "reward")
    figure, cells = grid(len(rows), len(entries), 3.3, 1.45, sharex="row")
    for axes, (task, drawn) in zip(cells, rows.items(), strict=True):
        who = ", ".join(dict.fromkeys(agent_name(s, r) for s, r in drawn))
        for ax, entry in zip(axes, entries, strict=True):
            for series, agent in drawn:
                values = probed(agent, "episode", entry)
                if entry == "error":
                    values = np.where(values > 0, values, np.nan)
                    ax.set_yscale("log")
                ax.plot(probed(agent, "episode", "t"), values, color=colour(series.variant), linewidth=1)
            ax.margins(x=0)
            heading(ax, f"{task} · {who}" if entry == entries[0] else " ", entry)
    for ax in cells[-1]:
        ax.set_xlabel("step of the episode")
    variant_legend(figure, [v for v in WEIGHTED if any(s.variant == v for drawn in rows.values() for s, _ in drawn)])
    return figure
