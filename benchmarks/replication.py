"""Do the findings of one store come again with other seeds? Two stores of the same variants, side by side.

    python benchmarks/replication.py benchmarks/results/lockstep benchmarks/results/lockstep-seeds-30-59

For each setting that both have: the mean and its standard error over seeds, and how far MC-CLT is above it, with
Welch's 95 % interval, in the first, the second, and both as one; and the smallest p of a mean in the first against the
same in the second.
"""

import argparse
import dataclasses
import functools
from pathlib import Path

from mcclt.experiments.analysis import stats
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
            cells += [mean(store[key]) for store in stores.values()]
            cells += [_advantage(store.get((task, algo, "mcclt")), store[key]) for store in stores.values()]
            lines.append(f"| {' | '.join(cells)} |")
    return "\n".join(lines)


def mean(series: Series) -> str:
    """With its standard error over seeds."""
    summary = stats.summarise(series.scores)
    return f"{summary.mean:,.0f} ± {summary.se:,.0f}"


def _advantage(ours: Series | None, other: Series) -> str:
    if ours is None or ours is other:
        return ""
    d = stats.compare(ours.scores, other.scores)
    return f"{d.difference:+,.0f} [{d.low:+,.0f}, {d.high:+,.0f}]".replace("-", "−")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("first", type=Path, help="a directory of results")
    parser.add_argument("second", type=Path, help="another, with other seeds")
    stores = parser.parse_args()
    first, second = found(stores.first), found(stores.second)
    both = pooled(first, second)
    print(table(first=first, second=second, both=both))
    p = [p for key in both if (p := stats.compare(first[key].scores, second[key].scores).p) is not None]
    if p:
        print(f"\nThe first against the second: the smallest p of {len(p)} is {min(p):.2f}.")


if __name__ == "__main__":
    main()
