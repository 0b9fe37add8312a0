"""Quantities over the steps of an episode: the spread (figures 2 and 4 of the paper), and the weights."""

import numpy as np

from mcclt.experiments.analysis.beliefs import probed, std_over_episode, trends
from mcclt.experiments.figures import style
from mcclt.experiments.figures.style import Figure
from mcclt.experiments.results import Results

WEIGHTED = ("mcclt", "ensemble", "explore")

HOW = (
    "smoothed, mean over seeds with a 95 % band (fewer than five seeds: their range). Under each title: the change "
    "over an episode in percent of the mean, with its 95 % interval over seeds, and whether that is significant "
    "(t-test over seeds, Holm over all settings). The paper says that it"
)


@style.figure_of(
    "Standard deviation of the value distribution over the steps of an episode, when quantile bars are trained on the "
    f"distributional Bellman target; {HOW} grows."
)
def bellman_std(results: Results) -> Figure | None:
    """Figure 2 of the paper."""
    return _std_panels(results, "qr@qr_target=bellman")


@style.figure_of(f"Standard deviation over the members of an ensemble, over the steps of an episode; {HOW} falls.")
def ensemble_std(results: Results) -> Figure | None:
    """Figure 4 of the paper."""
    return _std_panels(results, "ensemble")


def _std_panels(results: Results, variant: str) -> Figure | None:
    drawn = [(s, *curve) for s in results.of(variant) if len((curve := std_over_episode(s))[0])]
    if not drawn:
        return None
    changes = trends(results, variant)
    figure, axes = style.panels([1.9] * len(drawn))
    for ax, (series, t, rows) in zip(axes, drawn, strict=True):
        style.line_and_band(ax, t, rows, variant)
        change = changes.get((series.task, series.algo), "too short for a slope")
        style.heading(ax, style.folded(series.task), f"{series.algo.upper()} · {change}".replace(" [", "\n["))
        ax.set_xlim(0, t[-1] or 1)
    style.axis_names(figure, "step of the episode", "standard deviation of the value")
    return figure


@style.figure_of(
    "One episode of one agent per task: the weight its samples get in the policy update, the error that the weight "
    "is made from (normality error; for the ensemble the standard deviation over its members) and the reward."
)
def weights_over_episode(results: Results) -> Figure | None:
    """Whether weights follow what happens in an episode."""
    agents = [
        (series, probed_ones[0])
        for variant in WEIGHTED
        for series in style.one_per_task(results, variant)
        if (probed_ones := [r for r in series.results if r.probe.get("episode")])
    ]
    if not agents:
        return None
    rows = [own for task in results.tasks if (own := [(s, r) for s, r in agents if s.task == task])]
    entries = ("weight", "error", "reward")
    figure, cells = style.grid(len(rows), len(entries), 1.45, sharex="row")
    for axes, drawn in zip(cells, rows, strict=True):
        who = ", ".join(dict.fromkeys(style.agent_name(s, r) for s, r in drawn))
        for ax, entry in zip(axes, entries, strict=True):
            for series, agent in drawn:
                values = probed(agent, "episode", entry)
                if entry == "error":
                    values = np.where(values > 0, values, np.nan)
                    ax.set_yscale("log")
                ax.plot(probed(agent, "episode", "t"), values, color=style.colour(series.variant), linewidth=1)
            ax.margins(x=0)
            style.heading(ax, f"{drawn[0][0].task} · {who}" if entry == entries[0] else " ", entry)
    for ax in cells[-1]:
        ax.set_xlabel("step of the episode")
    style.variant_legend(figure, dict.fromkeys(series.variant for series, _ in agents))
    return figure
