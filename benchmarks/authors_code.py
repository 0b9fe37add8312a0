"""The authors' published code beside ours: the same task, 1M steps, 100 deterministic episodes at the end.

    python benchmarks/authors_code.py

Their code (github.com/shashacks/MC_CLT) was run outside of this project, with its environment calls adapted to
Gymnasium 1.x; `benchmarks/results/authors-code` has what it gave.
"""

import json
from pathlib import Path
from typing import Any

import numpy as np
import replication

from mcclt.experiments.analysis import stats, texts
from mcclt.experiments.paper import paper_entry
from mcclt.experiments.results import Results
from mcclt.experiments.store import Store
from mcclt.presets import bare_task

ROOT = Path(__file__).resolve().parent.parent
THEIRS = ROOT / "benchmarks" / "results" / "authors-code"


def kept() -> list[dict[str, Any]]:
    """Every run of their code: task, algo, variant, final returns by seed, evaluations [seed, step, return]."""
    return [json.loads(path.read_text(encoding="utf-8")) for path in sorted(THEIRS.glob("*.json"))]


def table(results: Results) -> str:
    """In Markdown, given ours at the paper's scale; ± is the standard error over seeds, [ ] Welch's 95 % interval."""
    lines = [
        "| | the authors' code, each seed | mean | ours, 30 seeds | ours − theirs | paper |",
        "|---|---|---:|---:|---:|---:|",
    ]
    for run in kept():
        ours = results.main(run["task"], run["algo"], run["variant"])
        assert ours is not None
        scores = np.sort([*run["final_mean_of_100_episodes"].values()])
        difference = stats.compare(ours.scores, scores)
        cells = [
            f"{bare_task(ours.task)}, {ours.algo.upper()}: {ours.label}",
            ", ".join(f"{score:,.0f}" for score in scores),
            replication.mean(scores),
            replication.mean(ours.scores),
            texts.interval(difference.difference, difference.low, difference.high, "+,.0f"),
            f"{paper_entry(ours.task, ours.algo, ours.variant)['mean']:,.0f}",
        ]
        lines.append(f"| {' | '.join(cells)} |")
    return "\n".join(lines)


if __name__ == "__main__":
    print(table(Store(ROOT / "results").load()))
