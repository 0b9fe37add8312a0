"""Every pair of the paper's variants in a store: differences of means, and ranks, with Holm's correction over all.

    python benchmarks/pairs.py results

By means: Welch's t-test and its 95 % interval. By ranks: the probability that a seed of the first ends above one of the
second, and the Mann–Whitney test. Those with the smallest p come first.
"""

import argparse
from itertools import combinations

import numpy as np

from mcclt.config.variants import VARIANTS
from mcclt.experiments.analysis import stats
from mcclt.experiments.analysis.aggregates import wins
from mcclt.experiments.store import Store


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("store", help="a directory of results")
    found: dict[tuple[str, str], dict[str, np.ndarray]] = {}
    for series in Store(parser.parse_args().store).load().mains:
        if series.variant in VARIANTS:
            found.setdefault((series.task, series.algo), {})[series.variant] = series.scores
    rows = []
    for (task, algo), scores in found.items():
        for a, b in combinations(scores, 2):
            d = stats.compare(scores[a], scores[b], a, b)
            if d.p is not None:  # at least two seeds
                rows.append((f"{algo.upper()} on {task}: {a} − {b}", d, wins(scores[a], scores[b]).mean()))
    means, ranks = stats.holm([d.p for _, d, _ in rows]), stats.holm([d.p_rank for _, d, _ in rows])
    print(f"{len(rows)} pairs\n")
    print("| pair | difference, 95 % interval | p | by Holm's | seeds above | p | by Holm's |")
    print("|---|---|---|---|---|---|---|")
    for (name, d, above), m, r in sorted(zip(rows, means, ranks, strict=True), key=lambda row: row[0][1].p):
        difference = f"{d.difference:+,.0f} [{d.low:+,.0f}, {d.high:+,.0f}]"
        print(f"| {name} | {difference} | {d.p:.2g} | {m:.2g} | {above:.2f} | {d.p_rank:.2g} | {r:.2g} |")


if __name__ == "__main__":
    main()
