"""`mcclt compare`."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated, ClassVar, Literal

from tyro.conf import Positional

from mcclt import presets
from mcclt.cli.flags import Comma, Spelling, Steps, Variants, names
from mcclt.cli.machinery import SETTINGS, Machinery
from mcclt.cli.tables import table_of
from mcclt.config.effects import refuse_unread
from mcclt.config.values import require

if TYPE_CHECKING:
    from mcclt.experiments.store import Cell, Store


@dataclass(frozen=True, kw_only=True)
class Compare(Machinery):
    """Compare variants on one or more tasks, over seeds, with statistics.

    mcclt compare Hopper-v5 --variants plain,mcclt --algo ppo,trpo --n-seeds 10
    """

    tasks: Annotated[tuple[str, ...], Spelling("TASK,...", names), Positional]
    """Task ids such as Hopper-v5."""
    variants: Variants = ("plain", "mcclt", "ensemble")
    """Variants of the paper (plain, qr, mcclt-nw, ensemble, mcclt, explore) or ours (inverse-variance, hl-gauss,
    hl-gauss-nw); other settings follow an @: mcclt@n_quantiles=4+guide=symmetric."""
    algo: Comma = ("ppo",)
    """ppo, trpo or both; with --settings tuned the default is the better one on each task."""
    n_seeds: int | None = 10
    """Number of seeds: 10 trains seeds 0 to 9."""
    steps: Steps = 1_000_000
    """Environment steps per agent, rounded up to whole updates."""
    settings: Literal["authors", "fixed", "modern", "tuned"] = "fixed"
    """fixed: the paper's, the same on every task; authors: the authors' best for each task; modern: today's PPO and
    TRPO; tuned: the best known for each task."""
    episodes: int = 100
    """Deterministic episodes of each agent at the end."""

    FORMERLY: ClassVar = Machinery.FORMERLY | SETTINGS

    def run(self) -> None:
        """Trains what is missing, and shows the statistics."""
        from mcclt.experiments.setups import make_setup, parse_variant
        from mcclt.experiments.store import Store

        self.check(self.tasks)
        run = {"steps": self.steps, "final_episodes": self.episodes, "engine": self.engine}
        seeds = self.named_seeds()
        setups = [
            make_setup(task, algo, variant, self.settings, **run)
            for task in self.tasks
            for algo in self._algos(task)
            for variant in self.variants
        ]
        for text in self.variants:
            variant, changes = parse_variant(text)
            agents = [setup.agent for setup in setups if setup.variant == variant]
            refuse_unread({f"{name} in {variant}": name for name in changes}, agents)
        cells = [(setup, seed) for setup in setups for seed in seeds]
        require(self.episodes >= 1, f"episodes = {self.episodes}", "at least 1")
        store = Store(self.store, create=True)
        tally = self.compute(store, cells)
        self._show(store, cells)
        self.end(store, tally)

    def _algos(self, task: str) -> tuple[str, ...]:
        """Those that were named; otherwise the one that the settings have for the task."""
        from mcclt.experiments.setups import PRESET_OF

        if "algo" in self.given:
            return self.algo
        return tuple(presets.algorithm(PRESET_OF[self.settings], task, algo) for algo in self.algo)

    def _show(self, store: "Store", cells: Sequence["Cell"]) -> None:
        """Each variant, and how it differs from the first of its task and algorithm."""
        from mcclt.experiments.analysis.first import against_first
        from mcclt.experiments.analysis.texts import count
        from mcclt.pages.rendering import score

        wanted = {setup.key: setup for setup, _ in cells}
        results = {s.key: s for s in store.load().series}
        found = against_first([results[key] for key in wanted if key in results])
        columns = ("variant", "mean", "± SE", "to the\nfirst", "95 %\ninterval", "P\n(better)", "p\n(Holm)")
        for task, rows in found.items():
            seeds = {row.summary.n for row in rows}
            each = f", {count(min(seeds), 'seed')} each" if len(seeds) == 1 else ""
            table = table_of(columns, f"{task}, {cells[0][0].config.steps:,} steps{each}", whole=columns[1:])
            for row in rows:
                n, d = row.summary.n, row.against
                name = row.series.name if each else f"{row.series.name} ({count(n, 'seed')})"
                words = [name, score(row.summary.mean), score(row.summary.se) if n > 1 else "–"]
                if d is not None:
                    words.append(score(d.difference, "+"))
                if d is not None and row.p is not None:
                    words += [f"{score(d.low, '+')} … {score(d.high, '+')}", f"{row.improvement:.2f}", f"{row.p:.3f}"]
                table.add_row(*words)
            self.console.print(table)
        why = (r.against.why for rows in found.values() for r in rows if r.against and r.against.why)
        self.say(*dict.fromkeys(why))
