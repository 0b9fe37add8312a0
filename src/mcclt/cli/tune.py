"""`mcclt tune`."""

import contextlib
import shlex
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, ClassVar, Literal

from tyro.conf import Positional

from mcclt.cli.flags import Comma, Spelling, Steps, names, seeds_of
from mcclt.cli.machinery import Machinery
from mcclt.cli.tables import table_of
from mcclt.config import RunConfig
from mcclt.config.effects import refuse_unread
from mcclt.config.values import parse_steps, require
from mcclt.errors import ConfigError

if TYPE_CHECKING:
    from mcclt.experiments.runner import Tally
    from mcclt.experiments.store import Cell, Store
    from mcclt.tuning.confirm import Confirmed
    from mcclt.tuning.search import Trial
    from mcclt.tuning.tuner import Status, Tuner

CPU_TRIALS, GPU_TRIALS = 24, 300
LOOK = 4
"""Updates after which the speed is known."""


Rungs = Annotated[tuple[int, ...], Spelling("STEPS,...", lambda text: tuple(map(parse_steps, text.split(","))))]
Fixes = Annotated[
    tuple[str, ...], Spelling("NAME=VALUE,...", lambda text: names(text, r",(?=\s*[a-z_]+=)"), several=True)
]
"""Changes such as gamma=0.99,policy_hidden=64,64."""


@dataclass(frozen=True, kw_only=True)
class Tune(Machinery):
    """Search for the best settings on a task, and confirm them on fresh seeds.

    mcclt tune HalfCheetah-v5 --algo ppo --fix critic=plain,gamma=0.99
    """

    task: Annotated[str, Positional]
    """A task id such as Hopper-v5."""
    algo: Comma = ("ppo",)
    """ppo, trpo or both, which are then searched one after the other and confirmed together."""
    trials: int | None = None
    """Settings to try (of each structure); unset: 300 on a GPU, 24 on a CPU."""
    seeds_per_setting: int = 1
    """Agents per setting in the search; their score is the interquartile mean."""
    steps: Steps = 1_000_000
    """Environment steps of settings that survive to the end."""
    rungs: Rungs = ()
    """Steps at which settings are compared; unset: a fifth, two fifths and all of --steps (pbt: every twentieth)."""
    keep: int = 3
    """At every rung one in this many settings continues."""
    strategy: Literal["halving", "pbt"] = "halving"
    """halving: bad settings make room for new ones (ASHA); pbt: they copy good ones and perturb them."""
    sampler: Literal["sobol", "random", "tpe"] = "sobol"
    """How settings are sampled; tpe learns from earlier ones (extra: optuna)."""
    score: Literal["end", "area"] = "end"
    """end: mean return of the last episodes; area: of all episodes, so that learning early counts."""
    space: Path | None = None
    """A TOML file with [search], [fixed] and, if you like, a preset as base; unset: the algorithm's own, on modern."""
    fix: Fixes = ()
    """Settings to fix rather than search."""
    confirm: int = 3
    """How many of the best to train again on fresh seeds, beside the defaults of `mcclt train`; 0: none."""
    n_seeds: int | None = 10
    """Number of fresh seeds in the confirmation, from 1000 on."""
    episodes: int = 100
    """Deterministic episodes of each agent at the end of the confirmation."""
    store: Path = field(default=Path("my-search"))
    """The directory of this search; the same command continues it."""
    plan: bool = False
    """Only estimate the cost, from a few timed updates."""
    workers: int | None = None
    """local: processes that search and confirm, each with its share of the cores; unset: one searches, and on a CPU one
    per core confirms a million steps or more."""
    population: int | None = None
    """Agents that train at once in one process; unset: 8 on a CPU, 360 on a GPU."""
    keep_agents: bool = False
    """Keep every agent of the confirmation in STORE/confirmed/agents, as a model for evaluate, watch and export."""

    GROUPS: ClassVar = {
        "": "algo trials seeds_per_setting steps rungs keep strategy sampler score space fix plan".split(),
        "confirmation": "confirm seeds n_seeds episodes".split(),
        **Machinery.GROUPS,
    }

    def run(self) -> None:
        """Searches, confirms, and writes the best settings and a page."""
        from mcclt.training.compilation import use_cache
        from mcclt.training.population import usual_size
        from mcclt.tuning import SharedTuner, Tuner, confirm

        if self.plan and (self.backend == "ray" or (self.workers or 1) > 1):
            raise ConfigError("--plan measures one process of this machine: leave out --workers and --backend ray.")
        if self.strategy == "pbt" and "population" in self.given:
            raise ConfigError("pbt trains all settings at once: leave out --population, and give --trials.")
        require(self.confirm >= 0, f"confirm = {self.confirm}", "0 or more")
        require(not self.confirm or self.episodes >= 1, f"episodes = {self.episodes}", "at least 1")
        first = confirm.FIRST_SEED
        seeds = self.named_seeds() if self.seeds else tuple(first + s for s in seeds_of(None, self.n_seeds or 0))
        plan, spaces = self.declared()
        confirm.check_fresh(plan, seeds)
        self.check([self.task])
        use_cache()
        places = self.population or max(usual_size(self.on_gpu), self.seeds_per_setting)
        how: dict[str, Any] = {"places": places, "engine": self.engine}
        if self.plan:
            with tempfile.TemporaryDirectory() as folder:
                self._measure(Tuner(plan, spaces, Path(folder) / "plan", **how), len(seeds))
            return
        with contextlib.ExitStack() as stack:
            crew = self.crew(None, self.workers or 1) if self.strategy != "pbt" else None
            if crew is None:
                tuner = Tuner(plan, spaces, self.store, **how)
            else:
                tuner = SharedTuner(plan, spaces, self.store, stack.enter_context(contextlib.closing(crew)), **how)
            self.say(self._cost(tuner, len(seeds)))
            self._search(tuner, len(seeds))
        self._end(tuner, seeds)

    def declared(self) -> tuple[Any, Any]:
        """The plan and the spaces that the flags speak of."""
        from mcclt.experiments.setups import literal
        from mcclt.tuning import Plan, Space
        from mcclt.tuning.search import rungs_of

        given: dict[str, Any] = {}
        for text in self.fix:
            name, equals, value = text.partition("=")
            if not equals:
                raise ConfigError(f"--fix {text} is not allowed: write name=value, such as gamma=0.99.")
            given[name] = literal(name, value)
        spaces = []
        for algo in self.algo:
            if self.space:
                space = Space.read(self.space, self.task)
                fixed = given | {"algo": algo} if "algo" in self.given else given
            else:
                space, fixed = Space.default(algo), given
            spaces.append(space.fixing(fixed) if fixed else space)
        stated = {name: name for space in spaces for name in (*space.searched, *space.own)}
        if len(spaces) > 1:
            spaces = [space.side_by_side(algo) for algo, space in zip(self.algo, spaces, strict=True)]
        agents = [space.middle(RunConfig(""), each)[1] for space in spaces for each in space.all_structures()]
        refuse_unread(stated, agents)
        plan = Plan(
            self.task,
            trials=self.trials if self.trials is not None else GPU_TRIALS if self.on_gpu else CPU_TRIALS,
            seeds=self.seeds_per_setting,
            rungs=self.rungs or rungs_of(self.steps, self.strategy),
            keep=self.keep,
            strategy=self.strategy,
            sampler=self.sampler,
            score=self.score,
        )
        if {"steps", "rungs"} <= {*self.given} and self.rungs[-1] != self.steps:
            raise ConfigError(
                f"--rungs ends at {self.rungs[-1]:,} steps and --steps says {self.steps:,}: let both be the same, or"
                " leave out --steps."
            )
        return plan, spaces

    # --- the search ----------------------------------------------------------------------------------------

    def _cost(self, tuner: "Tuner", seeds: int) -> str:
        from mcclt.experiments.analysis.texts import count

        plan, programs = tuner.plan, len(tuner.searches)
        settings = plan.trials * programs
        each = "" if plan.seeds == 1 else f" of {plan.seeds} seeds"
        rungs = ", ".join(f"{rung:,}" for rung in plan.rungs)
        how = ", where the worst quarter copies the best" if plan.strategy == "pbt" else ""
        if plan.strategy == "halving" and len(plan.rungs) > 1:
            how = f", where one in {plan.keep} continues"
        confirmed = self._confirmed_steps(tuner, seeds)
        after = f" The confirmation takes {confirmed:,} more." if confirmed else ""
        return (
            f"{count(settings, 'setting')}{each}, {count(tuner.at_once * plan.seeds, 'agent')} at once; compared at "
            f"{rungs} steps{how}: about {plan.expected_steps * programs:,} steps.{after} "
            f"{count(programs, 'structure')} to compile.{self._early(tuner)}"
        )

    def _confirmed_steps(self, tuner: "Tuner", seeds: int) -> int:
        settings = tuner.plan.trials * len(tuner.searches)
        return (min(self.confirm, settings) + 1) * seeds * tuner.plan.rungs[-1] if self.confirm else 0

    def _early(self, tuner: "Tuner") -> str:
        """A warning where agents are judged before an episode must have ended."""
        from mcclt.envs import make_vec

        with contextlib.closing(make_vec(self.task, [(0, 0, 0, 0)])) as env:
            limit = env.spec.max_episode_steps
        for one in tuner.searches:
            run, _ = one.space.middle(RunConfig(self.task, steps=tuner.plan.rungs[0]), one.structure)
            steps, longest = run.updates * run.horizon, run.max_episode_steps or limit
            if longest is not None and steps < longest:
                return (
                    f"\nAn episode may take {longest:,} steps, and each environment makes {steps:,} before agents are"
                    " first compared: those without a whole episode are given up. Raise --steps, or the first of"
                    " --rungs, if that is too early."
                )
        return ""

    @property
    def _longest(self) -> int:
        """Steps of the longest trial, where that decides on the time."""
        return (self.rungs or (self.steps,))[-1] if self.on_gpu else 0

    def _measure(self, tuner: "Tuner", seeds: int) -> None:
        """The cost of a search, measured and not begun."""
        seen: list[Status] = []

        def look(status: "Status") -> None:
            seen.append(status)
            if len(seen) == LOOK:
                raise _Enough

        with contextlib.suppress(_Enough):
            tuner.run(look)
        self.say(self._cost(tuner, seeds))
        steps = tuner.plan.expected_steps * len(tuner.searches)
        self.say(_duration(seen, steps, self._confirmed_steps(tuner, seeds), self._longest))

    def _search(self, tuner: "Tuner", seeds: int) -> None:
        from mcclt.cli.display import SearchDisplay
        from mcclt.tuning import SharedTuner

        seen: list[Status] = []

        def tell(status: "Status") -> None:
            display.show(status)
            if len(seen) < LOOK:
                seen.append(status)
                if len(seen) == LOOK and not self.quiet and not isinstance(tuner, SharedTuner):
                    left, after = status.expected - status.steps, self._confirmed_steps(tuner, seeds)
                    display.say(_duration(seen, left, after, self._longest))

        try:
            with SearchDisplay(self.console, self.quiet) as display:
                tuner.run(tell)
                display.end(tuner.status)
        except KeyboardInterrupt as error:
            if best := tuner.best():
                self._show_best(tuner)
                path, _ = self._write(tuner, best[0], [])
                self.say(f"Best so far: {path}")
            raise self.interrupted(error) from None

    # --- what it found -------------------------------------------------------------------------------------

    def _end(self, tuner: "Tuner", seeds: tuple[int, ...]) -> None:
        from mcclt.tuning.search import NO_EPISODE

        best = tuner.best()
        if not best:
            first = next((trial.why for trial in tuner.trials if trial.why), "no setting was tried")
            longer = " Raise --steps or --rungs, in another --store." if first == NO_EPISODE else ""
            raise ConfigError(f"No setting of {self.task} gave a return: {first.rstrip('.')}.{longer}")
        self._show_best(tuner)
        found: list[Confirmed] = []
        path, page = self._write(tuner, best[0], found)
        if self.confirm:
            found = tuner.confirm(seeds, self.confirm, self.episodes, self._train)
            self._show_confirmed(found)
            winner = next((one.trial for one in found if one.trial is not None), best[0])
            path, page = self._write(tuner, winner, found)
        command = f"mcclt train --config {shlex.quote(str(path))}"
        self.say(f"Best settings: {path}", f"Train with them:  {command}", f"Page: {page}")

    def _train(self, store: "Store", cells: "Sequence[Cell]") -> "Tally":
        tally = self.compute(store, cells)
        self.say(*tally.failures)
        return tally

    def _write(self, tuner: "Tuner", winner: "Trial", found: "list[Confirmed]") -> tuple[Path, Path]:
        """What is known so far: all trials, the best settings and the page; the paths of these two."""
        from mcclt.pages import tuning
        from mcclt.storage import files
        from mcclt.tuning import confirm

        path = self.store / "best.toml"
        files.write_atomically(path, confirm.best_file(tuner.plan, winner, found).encode())
        tuner.export()
        return path, tuning.write(tuner, found, winner, self.store)

    def _show_best(self, tuner: "Tuner") -> None:
        from mcclt.pages.rendering import score
        from mcclt.tuning.confirm import changed, default_of
        from mcclt.tuning.search import FAILED

        columns = ("setting", "rungs", "score", "what it changes")
        table = table_of(columns, "Best settings of the search", left=("what it changes",))
        for trial in tuner.best()[:5]:
            differences = changed(trial.settings, default_of(trial))
            point = {name: value for name, (value, _) in differences.items() if name in trial.point}
            words = " ".join(f"{name}={value}" for name, value in {**trial.structure, **point}.items())
            table.add_row(str(trial.number), str(len(trial.scores)), score(trial.scores[-1]), words)
        self.console.print(table)
        if failed := [trial.why for trial in tuner.trials if trial.state == FAILED]:
            self.say(f"{len(failed)} of {len(tuner.trials)} settings failed; the first: {failed[0]}")

    def _show_confirmed(self, found: "list[Confirmed]") -> None:
        from mcclt.pages.rendering import score
        from mcclt.tuning.confirm import default_command, verdict

        columns = ("setting", "seeds", "IQM", "mean", "± SE", "to the default", "95 % interval")
        table = table_of(columns, "On fresh seeds", whole=columns[-1:])
        for one in found:
            row = [one.name, str(one.summary.n), score(one.iqm), score(one.summary.mean)]
            row.append(score(one.summary.se) if one.summary.n > 1 else "–")
            if one.against is not None:
                known = one.against.p is not None
                row += [score(one.against.difference, "+")]
                row += [f"{score(one.against.low, '+')} … {score(one.against.high, '+')}" if known else "–"]
            table.add_row(*row)
        self.console.print(table)
        self.say(*filter(None, [verdict(found)]))
        if command := default_command(found):
            self.say(f"The default is what this trains:  {command}")


class _Enough(Exception):
    """The speed is known."""


def _duration(seen: "list[Status]", steps: int, after: int, longest: int) -> str:
    """How long so many steps take, and those of the confirmation, at the speed of the last updates: the first compile.

    With `longest`, as on a GPU, a few agents take as long as many: no less than all of these for so many steps each.
    Fewer than three updates are a whole search.
    """
    from mcclt.experiments.plan import describe_seconds

    if len(seen) < 3:
        return f"The whole search took {describe_seconds(seen[-1].seconds)} here, compiling included."
    _, first, *_, last = seen
    speed = (last.steps - first.steps) / max(last.seconds - first.seconds, 1e-9)
    minutes, then = (describe_seconds(max(some, last.busy * longest, 0) / speed) for some in (steps, after))
    return (
        f"{speed:,.0f} steps/s here after {last.compiling:.0f} s of compiling: the search takes about {minutes}, if "
        f"every place stays in use{f', the confirmation at that speed {then}' if after else ''}."
    )
