"""The returns that `--preset tuned` gives, on seeds that nothing was chosen by, beside the best that was published.

    mcclt compare HalfCheetah-v4 --settings tuned --variants plain,mcclt --seeds 200..229 --store my-returns
    python benchmarks/returns.py --store my-returns

What docs/returns.md shows is in `benchmarks/results/returns`; what earlier settings gave, in
`benchmarks/results/returns-before`.
"""

from pathlib import Path

import numpy as np
import replication
import tyro

from mcclt.experiments.analysis import aggregates
from mcclt.experiments.analysis.calibration import calibration_of
from mcclt.experiments.figures import style
from mcclt.experiments.results import Results, Series
from mcclt.experiments.store import Store
from mcclt.presets import bare_task

KEPT = Path(__file__).resolve().parent / "results" / "returns"
TO_BEAT = {
    "HalfCheetah-v4": 7185,
    "Hopper-v4": 3450,
    "Walker2d-v4": 4502,
    "Ant-v4": 4362,
    "Swimmer-v4": 359,
    "InvertedDoublePendulum-v4": 9359,
    "LunarLanderContinuous-v3": 278,
    "BipedalWalker-v3": 236,
}
"""The best published on-policy returns at 1M steps; docs/returns.md says whose."""


def reached(series: Series, figure: float) -> int | None:
    """Steps until the interquartile mean of the evaluations of all seeds first reaches a figure."""
    steps, rows = series.curve("eval/mean_reward")
    above = aggregates.iqm([rows.T]) >= figure
    return int(steps[above.argmax()]) if above.any() else None


def table(results: Results) -> str:
    """In Markdown, a row for each task and variant."""
    lines = [
        "| | IQM | mean ± SE | to the baseline | published | reached after | returns inside |",
        "|---|---:|---:|---:|---:|---:|---:|",
    ]
    for series in results.mains:
        baseline = results.main(series.task, series.algo, "plain")
        published = TO_BEAT.get(series.task)
        cells = [
            f"{bare_task(series.task)}, {series.algo.upper()}: {series.label}",
            interquartile_mean(series),
            replication.mean(series.scores),
            replication.difference(series, baseline),
            number(published),
            number(published and reached(series, published)),
            calibrated(series),
        ]
        lines.append(f"| {' | '.join(cells)} |")
    return "\n".join(lines)


def calibrated(series: Series) -> str:
    """Shares of returns inside the central 50, 80 and 95 % intervals; CRPS over that of points. A dash if not known.

    Where some seeds have no known return, the others know those of falls alone, which are lower than what is expected.
    """
    known = calibration_of(series)
    if known is None or not all(result.probe.get("calibration") for result in series.results):
        return "–"
    shares = ", ".join(f"{100 * share:.0f}" for share in known.coverage.values())
    return f"{shares} %; {known.crps:.2f}"


def number(value: int | None) -> str:
    """As tables show it; a dash where there is none."""
    return "–" if value is None else f"{value:,}"


def interquartile_mean(series: Series) -> str:
    """With its 95 % interval."""
    value = float(aggregates.iqm([series.scores]))
    low, high = aggregates.stratified_bootstrap([series.scores], aggregates.iqm, np.random.default_rng(0))
    return f"{value:,.0f} [{low:,.0f}, {high:,.0f}]"


def short_table(results: Results) -> str:
    """In Markdown, a row for each task: both critics beside what was published."""
    lines = ["| | plain | MC-CLT | published |", "|---|---:|---:|---:|"]
    for task, algo in results.settings:
        found = (results.main(task, algo, variant) for variant in ("plain", "mcclt"))
        cells = [interquartile_mean(series) if series else "–" for series in found]
        lines.append(f"| {bare_task(task)}, {algo.upper()} | {' | '.join(cells)} | {number(TO_BEAT.get(task))} |")
    return "\n".join(lines)


@style.figure_of("Returns with tuned settings: interquartile means over seeds, beside the best that was published.")
def tuned_returns(results: Results) -> style.Figure:
    """One panel for each task."""
    from matplotlib.ticker import EngFormatter

    cells = style.by_setting(results.mains)
    drawing, axes = style.panels([1.9] * len(cells))
    for ax, ((task, algo), drawn) in zip(axes, cells.items(), strict=True):
        for series in drawn:
            steps, rows = series.curve("eval/mean_reward")
            ax.plot(steps, aggregates.iqm([rows.T]), **style.line(series.variant))
        if task in TO_BEAT:
            ax.axhline(TO_BEAT[task], **style.REFERENCE)
        style.heading(ax, style.folded(task), algo.upper())
        ax.xaxis.set_major_formatter(EngFormatter(sep=""))
    style.axis_names(drawing, "environment steps", "return")
    published = [("published", style.REFERENCE)] if any(task in TO_BEAT for task, _ in cells) else []
    style.variant_legend(drawing, results.variants, *published)
    return drawing


def show(store: Path = KEPT) -> None:
    """Prints the table."""
    print(table(Store(store).load()))


if __name__ == "__main__":
    tyro.cli(show)
