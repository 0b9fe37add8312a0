"""The commands that add what a store lacks, or that make it again."""

import shlex
from collections.abc import Iterable, Sequence
from typing import Any

from mcclt import presets
from mcclt.errors import MccltError
from mcclt.experiments import plan
from mcclt.experiments.results import Results, Series, grouped
from mcclt.experiments.setups import CONFIGS, change, make_setup

SHOWN = 5
"""Commands listed one by one; a whole part of the paper is one command anyway."""


def _command(name: str, *what: str, **options: Any) -> str:
    """Mcclt NAME WHAT --option value: options without a value are left out, several values are joined by commas."""
    joined = {k: ",".join(v) if isinstance(v, list | tuple) else str(v) for k, v in options.items() if v != ""}
    return shlex.join(["mcclt", name, *what, *(word for k, v in joined.items() for word in (f"--{k}", v))])


def whole(results: Results, option: str, name: str) -> str:
    """The command for a whole part of the paper, such as --table 1."""
    return _command("reproduce", option, name, store=_store(results))


def part_of(variant: str) -> tuple[str, str, plan.Part | None]:
    """Which part of the paper holds a variant: its option, its name, and itself."""
    for option, parts in (("--table", plan.TABLES), ("--figure", plan.FIGURES), ("--ablation", plan.ABLATIONS)):
        for name, part in parts.items():
            if variant in part.variants:
                return option, name, part
    return "--table", "1", None


def few_of(commands: Sequence[str]) -> tuple[str, ...]:
    """The first few of many commands or sentences, each once."""
    commands = list(dict.fromkeys(commands))
    more = len(commands) - SHOWN
    return (*commands[:SHOWN], *([f"And {more} more of this kind."] if more > 0 else []))


def _store(results: Results) -> str:
    return str(results.path or "results")


def _episodes(series: Series) -> int:
    """Final episodes of each agent; a stranger's store may lack the number."""
    return int(series.settings.get("final_episodes", plan.SCALES["paper"].episodes))


# --- what a store lacks ----------------------------------------------------------------------------------------


def fill(results: Results, tasks: Sequence[str], algo: str, variants: Sequence[str]) -> str:
    """The command that adds variants, as their neighbours were trained, or as in the paper if there are none."""
    near = [s for s in results.mains if s.task in tasks and s.algo == algo] or list(results.mains)
    scale = plan.SCALES["paper"]
    seeds, steps, episodes = scale.seeds, scale.steps, scale.episodes
    if near:
        like = max(near, key=lambda s: (len(s.results), s.steps))
        seeds, steps, episodes = max(2, len(like.results)), like.steps, _episodes(like)
    parts = [part for v in variants if (part := part_of(v)[2]) is not None]
    limits = [part.most_seeds for part in parts if part.most_seeds is not None]
    if len(limits) == len(variants):  # only drawings show them
        seeds = min(seeds, *limits)
    told = {config for s in near if len(s.configs) == 1 for config in s.configs}
    published = "authors" if all(map(presets.has_paper, tasks)) else "fixed"
    config = next((config for config in ("fixed", "modern", "tuned") if config in told), published)
    how = {"settings": config, "seeds": _spelt(range(seeds)), "steps": steps, "episodes": episodes}
    return _command("compare", ",".join(tasks), variants=variants, algo=algo, **how, store=_store(results))


def fills(results: Results, cells: Iterable[tuple[str, str, str]]) -> list[str]:
    """As few commands as add these (task, algo, variant)."""
    return [fill(results, tasks, algo, variants) for tasks, algos, variants in _products(cells) for algo in algos]


# --- all of it again -------------------------------------------------------------------------------------------


def repeat(results: Results) -> list[str]:
    """The commands that train exactly the agents of a store in an empty one, and measure its costs.

    Agents of a version with other defaults get a name that says what differs, such as mcclt@stagger=false. Where no
    command trains an agent, a sentence says so.
    """
    recipes = [(s, _recipes(s)) for s in results.series]
    often = sorted(CONFIGS, key=lambda config: -sum(config in found for _, found in recipes))
    groups: list[tuple[tuple[Any, ...], tuple[str, str, str]]] = []
    sentences = []
    for s, found in recipes:
        if not found:
            sentences.append(f"No command of this version trains {s.name} on {s.task} as it was trained here.")
            continue
        config = next(config for config in often if config in found)
        engines = grouped((str(r.provenance.get("engine") or ""), r.seed) for r in s.results)
        for engine, seeds in engines.items():
            how = {"settings": config, "seeds": _spelt(seeds), "steps": s.steps, "episodes": _episodes(s)}
            groups.append((tuple((how | {"engine": engine}).items()), (s.task, s.algo, found[config])))
    commands = [
        _command("compare", ",".join(tasks), variants=variants, algo=algos, **dict(how), store=_store(results))
        for how, members in grouped(groups).items()
        for tasks, algos, variants in _products(members)
    ]
    if timed := dict.fromkeys(str(timing["task"]) for timing in results.timings):
        commands.append(_command("reproduce", table=2, tasks=list(timed), store=_store(results)))
    return commands + sentences


def _recipes(series: Series) -> dict[str, str]:
    """The variant that makes this setup, by configuration: with as few changed settings as can be."""
    run = {"steps": series.steps, "final_episodes": _episodes(series)}
    found: dict[str, tuple[int, str]] = {}
    for config in CONFIGS:
        try:
            setup = make_setup(series.task, series.algo, series.variant, config, **run)
            own = setup.settings
            changes = {k: v for k, v in series.settings.items() if k in own and own[k] != v}
            if changes:
                setup = make_setup(series.task, series.algo, change(series.variant, changes), config, **run)
            if setup.digest == series.digest:
                found[config] = len(changes), setup.variant
        except MccltError:  # a setup of another version, or of a stranger
            continue
    fewest = min((n for n, _ in found.values()), default=0)
    return {config: variant for config, (n, variant) in found.items() if n == fewest}


def _products(members: Iterable[tuple[str, str, str]]) -> list[tuple[Any, Any, Any]]:
    """A few (tasks, algos, variants) whose combinations are exactly these (task, algo, variant)."""
    variants = grouped(((task, algo), variant) for task, algo, variant in members)
    tasks = grouped(((algo, some), task) for (task, algo), some in variants.items())
    algos = grouped(((some, names), algo) for (algo, names), some in tasks.items())
    return [(some, together, names) for (some, names), together in algos.items()]


def _spelt(seeds: Sequence[int]) -> str:
    """0, 1, 2, 7 → 0..2,7."""
    ends: list[list[int]] = []
    for seed in seeds:
        if ends and seed == ends[-1][1] + 1:
            ends[-1][1] = seed
        else:
            ends.append([seed, seed])
    return ",".join(f"{first}..{last}" if last > first else str(first) for first, last in ends)
