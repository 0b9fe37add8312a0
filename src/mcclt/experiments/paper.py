"""The paper's tables as data."""

import functools
import importlib.resources
import json
from typing import Any

from mcclt.experiments.results import Series
from mcclt.presets import bare_task


@functools.cache
def paper_results() -> dict[str, Any]:
    """Tables 1 to 3: `steps`, `returns` by task, algorithm and variant, and `cost`."""
    text = (importlib.resources.files("mcclt.experiments") / "data" / "paper_results.json").read_text(encoding="utf-8")
    return json.loads(text)


def paper_entry(task: str, algo: str, variant: str) -> dict[str, Any] | None:
    """The paper's entry (mean, se, perhaps significant_vs_ensemble) for a task of whatever version."""
    return paper_results()["returns"].get(bare_task(task), {}).get(algo, {}).get(variant)


def paper_mean(series: Series) -> float | None:
    """The paper's final mean return for this cell of its tables, if it was trained for as many steps."""
    cell = paper_entry(series.task, series.algo, series.variant)
    return None if cell is None or series.steps != paper_results()["steps"] else float(cell["mean"])
