"""Which settings `--preset modern` takes, by the rule that docs/results.md declares.

    python benchmarks/modern.py train trpo Hopper-v4 my-candidates
    python benchmarks/modern.py show trpo my-candidates

Candidates are the current preset and the winners of all searches of the algorithm (`benchmarks/results/searches`), each
trained with seeds 1000 to 1009 on every task that was searched. The one whose interquartile mean return is the largest
share of the published figure, mean over tasks, is taken.
"""

import tomllib
from pathlib import Path

import numpy as np
import tyro
from returns import TO_BEAT

from mcclt import presets
from mcclt.cli import main
from mcclt.experiments.analysis.aggregates import iqm
from mcclt.experiments.setups import change
from mcclt.experiments.store import Store

SEARCHES = Path(__file__).resolve().parent / "results" / "searches"
CURRENT = "modern"
SEEDS = "1000..1009"
GIVEN = ("task", "algo", "critic")


def candidates(algo: str) -> dict[str, str]:
    """Variants of plain agents, as `mcclt compare --settings modern` takes them, by where they won."""
    found = {CURRENT: "plain"}
    for path in sorted(SEARCHES.glob(f"*-{algo}-plain")):
        best = tomllib.loads((path / "best.toml").read_text(encoding="utf-8"))
        now = presets.modern(best["task"], algo, "plain")
        found[best["task"]] = change("plain", {k: v for k, v in best.items() if k not in GIVEN and now.get(k) != v})
    return found


def train(algo: str, task: str, store: Path, engine: str = "auto", steps: str = "1M", seeds: str = SEEDS) -> None:
    """Trains all candidates on a task, or those that the store has not."""
    variants = ",".join(candidates(algo).values())
    plan = ["compare", task, "--algo", algo, "--settings", "modern", "--variants", variants, "--seeds", seeds]
    main([*plan, "--steps", steps, "--engine", engine, "--store", str(store), "--keep-agents"])


def table(algo: str, store: Path) -> str:
    """In Markdown: of each candidate the interquartile mean on each task, and its share of what was published."""
    results = Store(store).load()
    tasks = [task for task, of in results.settings if of == algo]
    lines = [f"| settings | {' | '.join(tasks)} | share of what was published |", "|---|" + "---:|" * (len(tasks) + 1)]
    for name, variant in candidates(algo).items():
        series = [results.main(task, algo, variant) for task in tasks]
        scores = [None if one is None else float(iqm([one.scores])) for one in series]
        pairs = zip(scores, tasks, strict=True)
        shares = [score / TO_BEAT[task] for score, task in pairs if score is not None and task in TO_BEAT]
        mean = f"{np.mean(shares):.2f}" if len(shares) == len(tasks) else "–"
        cells = ["–" if score is None else f"{score:,.0f}" for score in scores]
        where = "`modern` now" if name == CURRENT else f"won on {name}"
        lines.append(f"| {where} | {' | '.join(cells)} | {mean} |")
    return "\n".join(lines)


def show(algo: str, store: Path) -> None:
    """Prints the table."""
    print(table(algo, store))


if __name__ == "__main__":
    tyro.extras.subcommand_cli_from_dict({"train": train, "show": show}, config=(tyro.conf.PositionalRequiredArgs,))
