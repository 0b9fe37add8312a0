"""`mcclt compare`, `mcclt reproduce` and `mcclt report`."""

import contextlib
import importlib.util
import itertools
import os
import shlex
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from mcclt.cli.options import Compare, Machinery, Report, Reproduce
from mcclt.console import plain_console
from mcclt.errors import ConfigError, MccltError, MissingExtraError, UnknownNameError
from mcclt.experiments import plan
from mcclt.experiments.setups import make_setup, parse_variant
from mcclt.experiments.store import Cell, Store

if TYPE_CHECKING:
    from rich.console import Console

    from mcclt.experiments.runner import Tally
    from mcclt.experiments.workers import Workers


# --- mcclt compare ----------------------------------------------------------------------------------------------


def compare(command: Compare) -> None:
    """`mcclt compare`."""
    run = {
        "steps": command.steps,
        "final_episodes": command.episodes,
        "engine": command.machinery.task_engine,
    }
    names = itertools.product(command.tasks, command.algo, command.variants)
    setups = [make_setup(task, algo, variant, command.config, **run) for task, algo, variant in names]
    cells = [(setup, seed) for setup in setups for seed in command.seeds]
    if not cells:
        raise ConfigError("Nothing to compare: name at least one variant and one algorithm.")
    if command.episodes < 1:
        raise ConfigError(f"episodes = {command.episodes} is not allowed: it must be at least 1.")
    _check_machinery(command.machinery)
    _check_tasks(*dict.fromkeys(setup.task for setup in setups))
    console = plain_console()
    store = Store(command.machinery.store, create=True)
    tally = _run(store, cells, command.machinery, console)
    _show_comparison(store, cells, console)
    _end(store, tally, console)


def _show_comparison(store: Store, cells: Sequence[Cell], console: "Console") -> None:
    """Each variant, and how it differs from the first of its task and algorithm; p-values are Holm's over them all."""
    from rich.table import Table

    from mcclt.experiments.analysis import stats

    wanted = {setup.key: setup for setup, _ in cells}
    results = {(s.task, s.name, s.digest): s for s in store.load().series}
    found = [results[key] for key in wanted if key in results]
    firsts = {(s.task, s.algo): s for s in reversed(found)}
    pairs = [(s, firsts[s.task, s.algo]) for s in found if s is not firsts[s.task, s.algo]]
    differences = [stats.compare(a.scores, b.scores, a.label, b.label) for a, b in pairs]
    adjusted = stats.holm([d.p for d in differences])
    known = {id(a): (d, p) for (a, _), d, p in zip(pairs, differences, adjusted, strict=True)}
    for task in dict.fromkeys(s.task for s in found):
        table = Table(title=f"{task}, {cells[0][0].config.steps:,} steps", title_justify="left")
        for column in ("variant", "seeds", "mean", "± SE over seeds", "against the first", "95 % interval", "p (Holm)"):
            first = column == "variant"  # names differ at their ends: they are folded, never cut
            table.add_column(column, justify="left" if first else "right", overflow="fold" if first else "ellipsis")
        for s in (s for s in found if s.task == task):
            summary = stats.summarise(s.scores)
            row = [s.name, str(summary.n), f"{summary.mean:,.1f}", f"{summary.se:,.1f}" if summary.n > 1 else "–"]
            if id(s) in known:
                d, p = known[id(s)]
                interval = f"{d.low:+,.1f} … {d.high:+,.1f}" if d.p is not None else "–"
                row += [f"{d.difference:+,.1f}", interval, f"{p:.3f}" if p is not None else "–"]
            table.add_row(*row)
        console.print(table)
    for sentence in dict.fromkeys(d.why for d in differences if d.why):
        console.print(sentence, soft_wrap=True)


# --- mcclt reproduce --------------------------------------------------------------------------------------------


def reproduce(command: Reproduce) -> None:
    """`mcclt reproduce`."""
    console = plain_console()
    parts = plan.parts_of(command.table, command.figure, command.ablation)
    tasks, algos = plan.check_names(command.tasks, command.algo)
    known = {variant for part in parts for variant in part.variants}
    variants = [parse_variant(variant)[0] for variant in command.variants]
    for variant in variants:
        if variant not in known:
            raise UnknownNameError("variant", variant, sorted(known), "These are in the parts you chose.")
    _check_machinery(command.machinery)

    def cells_at(scale: plan.Scale) -> list[Cell]:
        return plan.cells_of(
            parts,
            tasks,
            command.seeds or range(scale.seeds),
            command.config,
            algos,
            variants,
            seeds_fixed=bool(command.seeds),
            steps=command.steps or scale.steps,
            final_episodes=scale.episodes,
            engine=command.machinery.task_engine,
        )

    nothing = not cells_at(plan.SCALES["paper"])
    if nothing and plan.TABLES["2"] not in parts:
        raise ConfigError("Nothing to compute: the parts you chose do not have these algorithms and variants together.")
    _check_tasks(*tasks)
    path = command.machinery.store
    enough = "paper" if nothing or (command.steps and command.seeds) else None  # nothing is left for a scale to say
    scale = plan.SCALES[command.scale or enough or _ask(path, parts, tasks, cells_at, console)]
    store = Store(path, create=True)
    tally = _run(store, cells_at(scale), command.machinery, console)
    if plan.TABLES["2"] in parts:
        _measure_costs(store, tasks, console)
    _end(store, tally, console)


def _ask(path: Path, parts: Sequence[plan.Part], tasks: Sequence[str], cells_at: Any, console: "Console") -> str:
    """Prints what each scale would cost, and asks which."""
    from rich.table import Table

    console.print("The plan:")
    for part in parts:
        console.print(f"  {part.title}")
    console.print(f"on {', '.join(tasks)}.\n", soft_wrap=True)
    table = Table()
    for column in ("scale", "steps", "seeds", "cells", "to do", "about", ""):
        table.add_column(column, justify="left" if column in ("scale", "") else "right")
    store = Store(path) if (path / "store.json").exists() else None
    known = store.load() if store else None
    for name, scale in plan.SCALES.items():
        cells = cells_at(scale)
        todo = [cell for cell in cells if store is None or not store.has(cell)]
        seconds = sum(plan.seconds_of(cell, known) for cell in todo)
        steps = f"{cells[0][0].config.steps:,}" if cells else "–"
        seeds = str(len({seed for _, seed in cells}))
        table.add_row(name, steps, seeds, str(len(cells)), str(len(todo)), plan.describe_seconds(seconds), scale.what)
    console.print(table)
    console.print("(For two cores, or as such cells took on a machine like this; --workers and Ray divide it.)")
    if not sys.stdin.isatty():
        raise ConfigError("Which scale? Give --scale smoke, short or paper.")
    answer = input("Which scale (smoke, short, paper; empty: none)? ").strip()
    if not answer:
        raise SystemExit(0)
    if answer not in plan.SCALES:
        raise UnknownNameError("scale", answer, plan.SCALES)
    return answer


COSTED = ("plain", "qr", "mcclt", "mcclt@trunk=shared", "ensemble")
"""What table 2 times."""


def _measure_costs(store: Store, tasks: Sequence[str], console: "Console") -> None:
    """Times updates of the variants side by side on each task, at one width, and stores it."""
    import dataclasses

    from mcclt.experiments.bench import time_variants
    from mcclt.storage import runs

    for task in tasks:
        setups = {variant: make_setup(task, "ppo", variant, "fixed") for variant in COSTED}
        base = dataclasses.replace(setups["plain"].config, steps=10**9, eval_freq=0, final_episodes=0)
        console.print(f"Timing {', '.join(COSTED)} on {task} …", soft_wrap=True)
        raw, peak, rows = time_variants(base, {name: s.agent for name, s in setups.items()}, updates=4)
        known = runs.versions()
        timing = {
            "task": task,
            "algo": "ppo",
            "machine": {"cpu": known["cpu"], "cores": known["cpu_count"]},
            "device": ", ".join(known["devices"]),
            "raw_steps_per_second": raw,
            "gemm_gflops": peak / 1e9,
            "rows": [
                {
                    "variant": row["variant"],
                    "seconds_per_update": row["seconds"]["whole"],
                    "critic_parameters": row["critic_parameters"],
                    "steps_per_second": row["steps_per_second"],
                }
                for row in rows
            ],
            "measured": known["started"],
        }
        store.write_timing(f"{task}__ppo", timing)


# --- mcclt report -----------------------------------------------------------------------------------------------


def report(command: Report) -> None:
    """`mcclt report`."""
    from mcclt.pages import report as pages

    results = Store(command.store).load()
    path = pages.write(results, command.out or command.store / "report")
    console = plain_console()
    for sentence in (*results.problems, *results.notes):
        console.print(sentence, soft_wrap=True)
    console.print(f"Report: {path}", soft_wrap=True)


# --- what they share --------------------------------------------------------------------------------------------


CPU_POPULATION = 8
"""Seeds of one setup that train together on a CPU: few, so that little is lost with a worker."""
GPU_POPULATION = 360
"""Agents, of several setups, that train together on a GPU, which many small networks fill better."""


def _check_tasks(*tasks: str) -> None:
    """Makes an environment of each, so that a wrong name or a missing extra is found before anything is written."""
    from mcclt.envs import make_vec

    for task in tasks:
        make_vec(task, [(0, 0, 0, 0)]).close()


def _check_machinery(machinery: Machinery) -> None:
    """Refuses what makes no sense before anything is written."""
    for name in ("workers", "population"):
        value = getattr(machinery, name)
        if value is not None and value < 1:
            raise ConfigError(f"{name} = {value} is not allowed: it must be at least 1.")
    if machinery.cpus is not None and not machinery.cpus > 0:
        raise ConfigError(f"cpus = {machinery.cpus:g} is not allowed: it must be more than 0.")
    if not machinery.gpus >= 0:
        raise ConfigError(f"gpus = {machinery.gpus:g} is not allowed: it must be 0 or more.")
    if machinery.engine != "ray" and machinery.address is not None:
        raise ConfigError("--address is for a Ray cluster: add --engine ray.")
    if machinery.engine == "ray" and importlib.util.find_spec("ray") is None:
        raise MissingExtraError("The ray engine", "ray")


def _run(store: Store, cells: Sequence[Cell], machinery: Machinery, console: "Console") -> "Tally":
    """Computes what is missing."""
    from mcclt.cli.display import PlanDisplay
    from mcclt.experiments.runner import Tally, run_cells
    from mcclt.experiments.units import cut_off
    from mcclt.training.compilation import use_cache

    todo = store.missing(cells)
    if not todo:
        return Tally(there=len(cells))
    use_cache()
    with contextlib.ExitStack() as stack:
        display = stack.enter_context(PlanDisplay(console, machinery.quiet))
        mix = _has_gpu() if machinery.engine == "local" else machinery.gpus > 0
        workers = stack.enter_context(contextlib.closing(_workers(store, machinery, display, pin=not mix)))
        if (advice := _advice(machinery, mix, todo)) and not cut_off(store, cells, todo):  # those stay whole
            console.print(advice, soft_wrap=True)
        population = machinery.population or (_gpu_population(cells, machinery, console) if mix else CPU_POPULATION)
        try:
            return run_cells(store, cells, workers, display, population, mix)
        except KeyboardInterrupt:
            console.print("\nInterrupted; nothing is lost. Continue with\n  " + _again(), soft_wrap=True)
            raise SystemExit(130) from None


LONG = 1_000_000
"""Steps in all, from which on it is worth saying how they would be done sooner."""


def _advice(machinery: Machinery, mix: bool, todo: Sequence[Cell]) -> str:
    """How the same would be done sooner on this machine, if there is a way."""
    from mcclt.envs.api import available_cores

    if machinery.quiet or machinery.engine != "local" or sum(setup.config.steps for setup, _ in todo) < LONG:
        return ""
    if mix and machinery.workers > 1 and not _has_mps():
        return (
            "The processes use the GPU in turns. Start NVIDIA's MPS first (`nvidia-cuda-mps-control -d`), and they use "
            "it together: faster."
        )
    count = min(available_cores(), len(todo))
    if not mix and machinery.workers == 1 and count > 1:
        return f"With --workers {count}, processes of about 1 GB that share the cores, this would be faster."
    return ""


def _gpu_population(cells: Sequence[Cell], machinery: Machinery, console: "Console") -> int:
    """`GPU_POPULATION`, or what fits into each process's share of this machine's GPU, which is said beforehand."""
    from mcclt.envs import make_vec
    from mcclt.experiments import memory

    total = memory.gpu_bytes()
    if total is None:
        return GPU_POPULATION
    total = int(total * (1 / machinery.workers if machinery.engine == "local" else min(1, machinery.gpus)))
    setups = {setup.key: setup for setup, _ in cells}.values()
    specs = {}
    for task in {setup.task for setup in setups}:
        with contextlib.closing(make_vec(task, [(0, 0, 0, 0)])) as env:
            specs[task] = env.spec
    largest = max(memory.agent_bytes(setup.config, setup.agent, specs[setup.task]) for setup in setups)
    fits = memory.agents_that_fit(largest, total)
    if fits < GPU_POPULATION:
        console.print(
            f"At most {fits} agents fit together into {total / 1e9:.0f} GB of the GPU: larger units are split."
        )
    return min(GPU_POPULATION, fits)


def _again() -> str:
    return shlex.join(["mcclt", *sys.argv[1:]])


def _has_gpu() -> bool:
    import jax

    return jax.default_backend() != "cpu"


def _has_mps() -> bool:
    """Whether NVIDIA's Multi-Process Service is there: its daemon listens at this place."""
    return Path(os.environ.get("CUDA_MPS_PIPE_DIRECTORY", "/tmp/nvidia-mps"), "control").exists()


def _workers(store: Store, machinery: Machinery, display: Any, pin: bool) -> "Workers":
    from mcclt.experiments import workers

    if machinery.engine == "ray":
        return workers.RayCluster(store, machinery.address, machinery.cpus, machinery.gpus)
    if machinery.workers > 1:
        return workers.Processes(machinery.workers, pin)
    return workers.InProcess(display.progress)


def _end(store: Store, tally: "Tally", console: "Console") -> None:
    """Says what became of the cells, and writes the report of what there is."""
    from mcclt.cli.display import count
    from mcclt.pages import report as pages

    if tally.elsewhere:
        console.print(f"Another process is computing {count(tally.elsewhere)}; run this again to check.")
    results = store.load()
    for sentence in (*results.problems, *results.notes):
        console.print(sentence, soft_wrap=True)
    console.print(f"{count(tally.done)} computed, {tally.there} were there. Store: {store.path}", soft_wrap=True)
    if results.series or results.timings:
        console.print(f"Report: {pages.write(results, store.path / 'report')}", soft_wrap=True)
    if tally.failures:
        first, *rest = tally.failures
        more = f" (and {len(rest)} more)" if rest else ""
        raise MccltError(f"{len(tally.failures)} without a result: {first}{more}")
