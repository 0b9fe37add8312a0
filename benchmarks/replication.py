"""Do the findings of one store come again with other seeds? Two stores of the same variants, side by side.

    python benchmarks/replication.py benchmarks/results/lockstep benchmarks/results/lockstep-seeds-30-59

For each setting that both have: the mean and its standard error over seeds, and how far MC-CLT is above it, with
Welch's 95 % interval, in the first, the second, and both as one; and the smallest p of a mean in the first against the
same in the second.
"""

import dataclasses
import functools
from pathlib import Path

import numpy as np
import tyro

from mcclt.experiments.analysis import stats, texts
from mcclt.experiments.results import Series
from mcclt.experiments.store import Store

Found = dict[tuple[str, str, str], Series]
"""By task, algorithm and variant."""


@functools.cache
def found(store: Path) -> Found:
    """What a store has; read once."""
    return {(series.task, series.algo, series.variant): series for series in Store(store).load().mains}


def pooled(first: Found, second: Found) -> Found:
    """All seeds of what both have."""
    return {
        key: dataclasses.replace(series, results=series.results + second[key].results)
        for key, series in first.items()
        if key in second
    }


def table(**stores: Found) -> str:
    """In Markdown, one line per setting that all stores have."""
    names = [*(f"mean, {name}" for name in stores), *(f"MC-CLT above it, {name}" for name in stores)]
    lines = [f"| | {' | '.join(names)} |", "|---" * (1 + len(names)) + "|"]
    for key, series in next(iter(stores.values())).items():
        if all(key in store for store in stores.values()):
            task, algo, _ = key
            cells = [f"{algo.upper()} on {task}: {series.label}"]
            cells += [mean(store[key].scores) for store in stores.values()]
            cells += [difference(store.get((task, algo, "mcclt")), store[key]) for store in stores.values()]
            lines.append(f"| {' | '.join(cells)} |")
    return "\n".join(lines)


def mean(scores: np.ndarray) -> str:
    """With its standard error over seeds."""
    summary = stats.summarise(scores)
    return f"{summary.mean:,.0f} ± {summary.se:,.0f}"


def difference(a: Series | None, b: Series | None) -> str:
    """Of their means, with Welch's 95 % interval; nothing where there are no two."""
    if a is None or b is None or a is b:
        return ""
    d = stats.compare(a.scores, b.scores)
    return texts.interval(d.difference, d.low, d.high, "+,.0f")


def main(first: tyro.conf.Positional[Path], second: tyro.conf.Positional[Path]) -> None:
    """Prints the table of two stores, the second one with other seeds."""
    a, b = found(first), found(second)
    both = pooled(a, b)
    print(table(first=a, second=b, both=both))
    p = [p for key in both if (p := stats.compare(a[key].scores, b[key].scores).p) is not None]
    if p:
        print(f"\nThe first against the second: the smallest p of {len(p)} is {min(p):.2f}.")


if __name__ == "__main__":
    tyro.cli(main, description=__doc__)
