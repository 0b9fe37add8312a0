"""`mcclt reproduce`."""

import dataclasses
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar, Literal

from mcclt.cli.flags import Comma, Steps, Variants
from mcclt.cli.machinery import SETTINGS, Machinery
from mcclt.cli.tables import table_of
from mcclt.errors import ConfigError, UnknownNameError

if TYPE_CHECKING:
    from mcclt.experiments.plan import Part, Scale
    from mcclt.experiments.store import Cell, Store

COSTED = ("plain", "qr", "mcclt", "mcclt@trunk=shared", "ensemble")
"""What table 2 times."""


@dataclass(frozen=True, kw_only=True)
class Reproduce(Machinery):
    """Reproduce the paper's results; without flags, show the plan and its cost.

    mcclt reproduce --table 1 --tasks Hopper,HalfCheetah --scale short
    """

    table: Comma = ()
    """1 (ablation and ensemble), 2 (time and weights), 3 (exploration); unset: none, or the whole paper if --figure and
    --ablation are unset, too."""
    figure: Comma = ()
    """1 (value distributions), 2 (spread under the Bellman operator), 4 (spread of the ensemble); unset: as
    --table."""
    ablation: Comma = ()
    """quantiles, variance-head, weight-site, guide, crossing, trunk; unset: as --table."""
    tasks: Comma = ()
    """The paper's names (Hopper) or ids (Hopper-v5); unset: all eight."""
    algo: Comma = ()
    """Only this algorithm: ppo or trpo; unset: both."""
    variants: Variants = ()
    """Only these variants; unset: all."""
    scale: Literal["smoke", "short", "paper"] | None = None
    """smoke: 8k steps, 2 seeds; short: 100k steps, 3 seeds; paper: 1M steps, 30 seeds; unset: it shows what each would
    cost, and asks."""
    steps: Steps | None = None
    """Environment steps per agent; unset: the scale's."""
    settings: Literal["authors", "fixed"] = "authors"
    """authors: their best settings for each task; fixed: the same on every task."""

    FORMERLY: ClassVar = Machinery.FORMERLY | SETTINGS

    def run(self) -> None:
        """Shows the plan, or trains what it lacks."""
        from mcclt.experiments import plan
        from mcclt.experiments.setups import parse_variant
        from mcclt.experiments.store import Store

        parts = plan.parts_of(self.table, self.figure, self.ablation)
        tasks, algos = plan.check_names(self.tasks, self.algo)
        known = {variant for part in parts for variant in part.variants}
        variants = [parse_variant(variant)[0] for variant in self.variants]
        for variant in variants:
            if variant not in known:
                raise UnknownNameError("variant", variant, sorted(known), "These are in the parts you chose.")
        seeds = self.named_seeds()

        def cells_at(scale: "Scale") -> list["Cell"]:
            return plan.cells_of(
                parts,
                tasks,
                seeds or range(scale.seeds),
                self.settings,
                algos,
                variants,
                # A GPU trains more seeds of a drawing's variants beside the others sooner than fewer on their own.
                seeds_fixed=bool(seeds) or self.on_gpu,
                steps=scale.steps if self.steps is None else self.steps,
                final_episodes=scale.episodes,
                engine=self.engine,
            )

        nothing = not cells_at(plan.SCALES["paper"])
        if nothing and plan.TABLES["2"] not in parts:
            raise ConfigError(
                "Nothing to compute: the parts you chose do not have these algorithms and variants together."
            )
        self.check(tasks)
        enough = "paper" if nothing or (self.steps and seeds) else None  # nothing is left for a scale to say
        scale = plan.SCALES[self.scale or enough or self._ask(parts, tasks, cells_at)]
        store = Store(self.store, create=True)
        store.mark_reproduction()
        tally = self.compute(store, cells_at(scale))
        if plan.TABLES["2"] in parts:
            self._measure_costs(store, tasks)
        self.end(store, tally)

    def _ask(self, parts: Sequence["Part"], tasks: Sequence[str], cells_at: Callable[["Scale"], list["Cell"]]) -> str:
        """Prints what each scale would cost, and asks which."""
        from mcclt.experiments import plan
        from mcclt.experiments.store import Store

        self.say("The plan:", *(f"  {part.title}" for part in parts), f"on {', '.join(tasks)}.\n")
        table = table_of(("scale", "steps", "seeds", "cells", "to do", "about", ""), left=("",))
        store = Store(self.store) if (self.store / "store.json").exists() else None
        known = store.load() if store else None
        for name, scale in plan.SCALES.items():
            cells = cells_at(scale)
            todo = [cell for cell in cells if store is None or not store.has(cell)]
            about = plan.describe_seconds(sum(plan.seconds_of(cell, known) for cell in todo))
            steps = f"{cells[0][0].config.steps:,}" if cells else "–"
            seeds = str(len({seed for _, seed in cells}))
            table.add_row(name, steps, seeds, str(len(cells)), str(len(todo)), about, scale.what)
        self.console.print(table)
        self.say("(Estimated for two cores, or from such cells on a machine like this; --workers and Ray divide it.)")
        if not sys.stdin.isatty():
            raise ConfigError("Which scale? Give --scale smoke, short or paper.")
        try:
            answer = input("Which scale (smoke, short, paper; empty: none)? ").strip()
        except EOFError:  # Ctrl-D
            self.console.print()
            answer = ""
        if not answer:
            raise SystemExit(0)
        if answer not in plan.SCALES:
            raise UnknownNameError("scale", answer, plan.SCALES)
        return answer

    def _measure_costs(self, store: "Store", tasks: Sequence[str]) -> None:
        """Times updates of the variants side by side on each task, at one width, and stores it."""
        from mcclt.experiments.bench import time_variants
        from mcclt.experiments.setups import make_setup
        from mcclt.storage import runs

        for task in tasks:
            setups = {variant: make_setup(task, "ppo", variant, "fixed") for variant in COSTED}
            base = dataclasses.replace(setups["plain"].config, steps=10**9, eval_freq=0, final_episodes=0)
            self.say(f"Timing {', '.join(COSTED)} on {task} …")
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
