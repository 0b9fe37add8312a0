"""What claims lack, as commands that would add it."""

import shlex
from collections.abc import Sequence

from mcclt.experiments import plan
from mcclt.experiments.analysis import stats
from mcclt.experiments.analysis.contrasts import Contrast
from mcclt.experiments.filling import fill
from mcclt.experiments.results import Results
from mcclt.experiments.setups import PAPER_TASKS, bare_task

SHOWN = 5
"""Commands listed one by one; a whole part of the paper is one command anyway."""


def settings_of(results: Results) -> list[tuple[str, str]]:
    """(task, algo) that the store has anything of."""
    return list(dict.fromkeys((s.task, s.algo) for s in results.series))


def _part(variant: str) -> tuple[str, str, plan.Part | None]:
    """Which part of the paper holds a variant: its option, its name, and itself."""
    for option, parts in (("--table", plan.TABLES), ("--figure", plan.FIGURES), ("--ablation", plan.ABLATIONS)):
        for name, part in parts.items():
            if variant in part.variants:
                return option, name, part
    return "--table", "1", None


def whole(results: Results, option: str, name: str) -> str:
    """The command for a whole part of the paper."""
    return shlex.join(["mcclt", "reproduce", option, name, "--store", str(results.path or "results")])


def missing(results: Results, found: Sequence[Contrast], a: str, b: str) -> list[str]:
    """Commands for what contrasts lack; the one for the whole part of the paper if some of its settings do."""
    commands = [] if found else [fill(results, [t], algo, [v]) for t, algo in settings_of(results) for v in (a, b)]
    for c in (c for c in found if c.p is None):
        for series, variant in ((c.a, a), (c.b, b)):
            unequal = c.comparison is None and c.a is not None and c.b is not None
            if series is None or stats.finite(series.scores).size < 2 or unequal:
                commands.append(fill(results, [c.task], c.algo, [variant]))
    names = {(bare_task(task), algo) for task in PAPER_TASKS for algo in plan.ALGOS}
    there = {(bare_task(c.task), c.algo) for c in found}
    if names - there and (names & there or not (commands or found)):
        option, name, _ = _part(a if b == "mcclt" else b)
        commands.append(whole(results, option, name))
    return commands


def few_of(commands: Sequence[str]) -> tuple[str, ...]:
    """The first few of many commands or sentences, each once."""
    commands = list(dict.fromkeys(commands))
    more = len(commands) - SHOWN
    return (*commands[:SHOWN], *([f"And {more} more of this kind."] if more > 0 else []))


def probe_needs(results: Results, variant: str, there: set[tuple[str, str]]) -> tuple[str, ...]:
    """Commands for the settings whose critics were not looked at, and are not among those that are there."""
    option, name, part = _part(variant)
    algos = part.algos if part else plan.ALGOS
    lacking = [s for s in settings_of(results) if s not in there and s[1] in algos]
    if not lacking and not there:
        return (whole(results, option, name),)
    return few_of([fill(results, [s[0]], s[1], [variant]) for s in lacking])
