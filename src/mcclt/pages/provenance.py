"""What is in a store, what it lacks, and where its results come from."""

import itertools
from collections import Counter
from collections.abc import Callable
from typing import Any

from mcclt.config.variants import PAPER_VARIANTS
from mcclt.experiments.analysis.texts import hardware
from mcclt.experiments.filling import fill
from mcclt.experiments.plan import describe_seconds
from mcclt.experiments.results import Results, grouped

PROPERTIES: dict[str, Callable[[dict[str, Any]], Any]] = {
    "mcclt": lambda p: p.get("version"),
    "Git commit": lambda p: str(p.get("git") or "unknown")[:12],
    "Engine": lambda p: p.get("engine"),
    "Hardware": lambda p: hardware(p.get("device"), p.get("cpu"), p.get("cpu_count")),
    "Platform": lambda p: p.get("platform"),
    "Python": lambda p: p.get("python"),
    "Packages": lambda p: ", ".join(f"{k} {v}" for k, v in sorted((p.get("packages") or {}).items())),
}
"""What is said of the agents, as their provenance has it."""


def seeds(results: Results) -> Counter[tuple[str, str, str]]:
    """How many there are, by (task, algo, variant). A full store has as many of each as of that with most."""
    return Counter({(s.task, s.algo, s.variant): len(s.results) for s in results.mains})


def gaps(results: Results) -> dict[tuple[str, str, str], int]:
    """How many seeds of the paper's variants are missing, by (task, algo, variant)."""
    found = seeds(results)
    grid = itertools.product(results.tasks, results.algos, PAPER_VARIANTS)
    return {cell: n for cell in grid if (n := max(found.values()) - found[cell])}


def commands_that_fill(results: Results) -> list[str]:
    """One command per algorithm that adds what is missing."""
    missing = grouped((algo, (task, variant)) for task, algo, variant in gaps(results))
    return [
        fill(results, list(dict.fromkeys(task for task, _ in own)), algo, list(dict.fromkeys(v for _, v in own)))
        for algo, own in missing.items()
    ]


def properties(results: Results) -> dict[str, list[tuple[str, int]]]:
    """Each property of the results: its values, and how many agents have each; 0: all."""
    members = [r.provenance for s in results.series for r in s.results]
    found = {}
    for name, of in PROPERTIES.items():
        counted = Counter(str(of(p) or "unknown") for p in members).most_common()
        found[name] = [(value, 0 if n == len(members) else n) for value, n in counted]
    started = [str(p["started"]) for p in members if p.get("started")]
    finished = [str(p["finished"]) for p in members if p.get("finished")]
    if started and finished:
        found["Dates"] = [(f"{_moment(min(started))} to {_moment(max(finished))}", 0)]
    seconds = sum(float(r.cost.get("seconds") or 0) for s in results.series for r in s.results)
    return found | {"Training time": [(f"{describe_seconds(seconds)}, all agents together", 0)]}


def _moment(text: str) -> str:
    """2026-01-01T00:05:00Z → 2026-01-01 00:05."""
    return text[:16].replace("T", " ")
