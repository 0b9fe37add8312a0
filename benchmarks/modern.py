"""Which settings `--preset modern` takes, by the rule that docs/returns.md declares.

    python benchmarks/modern.py train trpo Hopper-v4 my-candidates
    python benchmarks/modern.py show trpo --store my-candidates

Candidates are the current preset, the winners of all searches of the algorithm (`benchmarks/results/searches`), their
mean, and that with a `target_kl` that decays to 0. Each is trained with seeds 1000 to 1009 on every task that was
searched. The one whose interquartile mean return is the largest share of the published figure, mean over tasks, is
taken.
"""

import json
import lzma
import statistics
import tomllib
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import tyro
from returns import TO_BEAT

from mcclt import presets
from mcclt.cli import main
from mcclt.experiments.analysis.aggregates import iqm
from mcclt.experiments.setups import change
from mcclt.experiments.store import Store

SEARCHES = Path(__file__).resolve().parent / "results" / "searches"
KEPT = SEARCHES.parent / "candidates"
TASKS = ("HalfCheetah-v4", "Hopper-v4", "Walker2d-v4", "Ant-v4")
SEEDS = "1000..1009"
GIVEN = ("task", "algo", "critic")
PLAIN_MEAN = ("log_std_init",)
"""Settings whose mean is the arithmetic one; of the others it is geometric."""
COMPLEMENTS = ("gamma", "gae_lambda")
"""Settings x whose 1 − x is what is searched."""


def search(path: Path) -> dict[str, str]:
    """The files of a search that is kept (`searches.py`), by their names."""
    return json.loads(lzma.decompress(path.read_bytes()))


def candidates(algo: str) -> dict[str, str]:
    """Variants of plain agents, as `mcclt compare --settings modern` takes them, by what a table calls them."""
    won: dict[str, dict[str, Any]] = {}
    for path in sorted(SEARCHES.glob(f"*-{algo}-plain.json.xz")):
        best = tomllib.loads(search(path)["best.toml"])
        now = presets.modern(best["task"], algo, "plain")
        won[best["task"]] = {k: v for k, v in best.items() if k not in GIVEN and now.get(k) != v}
    mean = mean_of([*won.values()])
    found = {"`modern` now": {}, **{f"won on {task}": own for task, own in won.items()}, "their mean": mean}
    if "target_kl" in mean:
        found["their mean, `target_kl` to 0"] = mean | {"target_kl_end": 0.0}
    return {name: change("plain", own) for name, own in found.items()}


def mean_of(winners: Sequence[dict[str, Any]]) -> dict[str, float]:
    """The mean of the numbers that all of them change."""
    shared = [name for name in winners[0] if all(isinstance(own.get(name), float) for own in winners)]
    return {name: _mean(name, [own[name] for own in winners]) for name in shared}


def _mean(name: str, values: list[float]) -> float:
    if name in COMPLEMENTS:
        return round(1 - float(f"{statistics.geometric_mean(1 - value for value in values):.2g}"), 6)
    mean = statistics.mean if name in PLAIN_MEAN else statistics.geometric_mean
    return float(f"{mean(values):.3g}")


def train(algo: str, task: str, store: Path, engine: str = "auto", steps: str = "1M", seeds: str = SEEDS) -> None:
    """Trains all candidates on a task, or those that the store has not."""
    variants = ",".join(candidates(algo).values())
    plan = ["compare", task, "--algo", algo, "--settings", "modern", "--variants", variants, "--seeds", seeds]
    main([*plan, "--steps", steps, "--engine", engine, "--store", str(store), "--keep-agents"])


def table(algo: str, store: Path = KEPT) -> str:
    """In Markdown: of each candidate the interquartile mean on each task, and its share of what was published."""
    results, mean = Store(store).load(), candidates(algo)["their mean"]
    tasks = [task for task in TASKS if results.main(task, algo, mean)]
    lines = [f"| settings | {' | '.join(tasks)} | share of what was published |", "|---|" + "---:|" * (len(tasks) + 1)]
    for name, variant in candidates(algo).items():
        series = [results.main(task, algo, variant) for task in tasks]
        scores = [None if one is None else float(iqm([one.scores])) for one in series]
        pairs = zip(scores, tasks, strict=True)
        shares = [score / TO_BEAT[task] for score, task in pairs if score is not None]
        share = f"{np.mean(shares):.2f}" if len(shares) == len(tasks) else "–"
        cells = ["–" if score is None else f"{score:,.0f}" for score in scores]
        lines.append(f"| {name} | {' | '.join(cells)} | {share} |")
    return "\n".join(lines)


def show(algo: str, store: Path = KEPT) -> None:
    """Prints the table."""
    print(table(algo, store))


if __name__ == "__main__":
    tyro.extras.subcommand_cli_from_dict({"train": train, "show": show}, config=(tyro.conf.PositionalRequiredArgs,))
