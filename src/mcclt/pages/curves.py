"""Learning curves as the report's page draws them."""

from collections.abc import Sequence
from typing import Any

import numpy as np

from mcclt.experiments import figures
from mcclt.experiments.analysis.speed import FEW_POINTS
from mcclt.experiments.analysis.stats import mean_band
from mcclt.experiments.cells import plain
from mcclt.experiments.curve import evenly
from mcclt.experiments.figures.scores import main_variants
from mcclt.experiments.paper import paper_mean
from mcclt.experiments.results import Results, variant_label

POINTS = 100
"""Most points of a curve in the page."""
DIGITS = 5
"""Significant digits of the numbers in a page."""
QUANTITIES = {
    "eval/mean_reward": "Return of the deterministic policy (evaluation)",
    "rollout/ep_rew_mean": "Return while training",
    "value/mean": "Predicted value",
    "value/std": "Predicted spread of the return",
    "value/normality_error": "Distance from normal, E",
    "weight/mean": "Mean weight of a state, w",
    "weight/min": "Smallest weight of a state",
    "train/explained_variance": "Explained variance of the returns",
    "train/approx_kl": "Change of the policy (KL)",
    "train/entropy": "Entropy of the policy",
}
"""Columns of a learning curve that can be looked at, the likeliest first: its seeds are in the page too."""
OF_A_TRAINING = ("value/mean", "weight/min", "train/explained_variance", "train/approx_kl", "train/entropy")
"""Those that only the page of a training shows, with all seeds."""


def curves(results: Results, training: bool = False) -> dict[str, Any]:
    """Everything the page draws by itself, as plain data: means over seeds with 95 % intervals, and the seeds.

    `series` refer to `tasks`, `algos`, `variants` and `steps` by their places. In a curve `x` is a place in `steps`,
    `mean`, `low` and `high` are the mean and its interval (null: none); the first quantity also has its `seeds`, and
    of a `training` every one.
    """
    columns = {column for s in results.mains for r in s.results for column in r.curve}
    quantities = [c for c in QUANTITIES if c in columns and (training or c not in OF_A_TRAINING)]
    evaluations = max((len(one.curve("eval/mean_reward")[0]) for one in results.mains), default=0)
    if evaluations < FEW_POINTS:  # no curve to open the page with
        quantities.sort(key=lambda column: column == "eval/mean_reward")
    # A changed variant is its own, dashed; what was trained in several runs has a colour for each.
    variants, shown = results.variants, main_variants(results)
    colours = distinct_colours(variants) if training else [figures.colour(v) for v in variants]
    steps: dict[tuple[int, ...], int] = {}
    series = []
    for one in results.mains:
        drawn = {}
        for column in quantities:
            x, rows = one.curve(column)
            if len(x):
                keep = evenly(len(x), POINTS)
                place = steps.setdefault(tuple(x[keep].astype(int).tolist()), len(steps))
                drawn[column] = {"x": place} | _band(rows[:, keep])
                if training or column == quantities[0]:
                    drawn[column]["seeds"] = plain(rows[:, keep], DIGITS)
        series.append(
            {
                "task": results.tasks.index(one.task),
                "algo": results.algos.index(one.algo),
                "variant": results.variants.index(one.variant),
                "paper": paper_mean(one),
                "curves": drawn,
            }
        )
    return {
        "tasks": results.tasks,
        "algos": [algo.upper() for algo in results.algos],
        "variants": [
            {"label": variant_label(v), "colour": colour, "changed": "@" in v and not training, "shown": v in shown}
            for v, colour in zip(variants, colours, strict=True)
        ],
        "training": training,
        "quantities": [{"key": column, "title": QUANTITIES[column]} for column in quantities],
        "steps": [list(x) for x in steps],
        "series": series,
    }


def distinct_colours(variants: Sequence[str]) -> list[str]:
    """A colour each: the variant's own, while no other before it has it."""
    found: list[str] = []
    spare = [*figures.MORE_COLOURS, *figures.COLOURS.values()]
    for variant in variants:
        own = figures.colour(variant)
        free = [c for c in spare if c not in found] or spare
        found.append(own if own not in found else free[0])
    return found


def _band(rows: np.ndarray) -> dict[str, Any]:
    """As in the figures; no interval where fewer than two of the seeds [seeds, T] have a value."""
    mean, low, high = mean_band(rows)
    several = np.isfinite(rows).sum(axis=0) > 1
    low, high = (np.where(several, edge, np.nan) for edge in (low, high))
    return plain({"mean": mean, "low": low, "high": high}, DIGITS)
