"""Do critics know where they are wrong? Rank correlations of what they say with how far off they were.

    python benchmarks/trust.py results

For each agent of a store: Spearman's ρ, over the recorded states of its longest probed episode, between the critic's
error E (from which weights are made), or its spread σ, and |mean − return that followed|. Printed: mean ± standard
error over seeds. 0: it says nothing about where it is wrong; 1: it ranks states by it.
"""

from collections import defaultdict
from pathlib import Path

import numpy as np
import tyro
from why import rho

from mcclt.experiments.analysis.stats import summarise
from mcclt.experiments.results import Result
from mcclt.experiments.store import Store


def rank(result: Result, name: str) -> float:
    """ρ between `error` or `std` and the distance of the mean from the return, where that is known; or NaN."""
    episode = result.probe.get("episode")
    if not episode:
        return np.nan
    said, mean, followed = (np.asarray(episode[k], float) for k in (name, "mean", "return"))
    known = np.isfinite(followed)
    return rho(said[known], np.abs(mean - followed)[known])  # a critic without errors has no ranks


def cell(values: list[float]) -> str:
    """Mean ± standard error over seeds, of those that have a value."""
    found = summarise(np.array(values))
    return f"{found.mean:.2f} ± {found.se:.2f} ({found.n})" if found.n > 1 else "–"


def main(store: tyro.conf.Positional[Path]) -> None:
    """Prints the table of a store."""
    rows: dict[tuple[str, str, str], dict[str, list[float]]] = defaultdict(lambda: {"error": [], "std": []})
    for series in Store(store).load().series:
        for result in series.results:
            for name, values in rows[series.task, series.algo, series.name].items():
                values.append(rank(result, name))
    print("| task | algorithm | variant | ρ of E (seeds) | ρ of σ (seeds) |\n|---|---|---|---|---|")
    for (task, algo, variant), found in rows.items():
        if (error := cell(found["error"])) != "–":
            print(f"| {task} | {algo.upper()} | {variant} | {error} | {cell(found['std'])} |")


if __name__ == "__main__":
    tyro.cli(main, description=__doc__)
