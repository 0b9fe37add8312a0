"""What `mcclt compare` and `mcclt reproduce` share: where cells are computed, and what is said before and after."""

import contextlib
import importlib.util
import os
import shlex
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, ClassVar, Literal

from mcclt import interrupts
from mcclt.cli.command import Command, ended
from mcclt.cli.flags import STORE, Seeds, seeds_of
from mcclt.config import RunConfig
from mcclt.config.values import require, require_each
from mcclt.errors import ConfigError, MccltError, MissingExtraError, UnknownNameError

if TYPE_CHECKING:
    from mcclt.experiments.runner import Tally
    from mcclt.experiments.store import Cell, Store
    from mcclt.experiments.workers import Crew, Workers

LONG = 1_000_000
"""Steps in all, from which on several processes are sooner done than one, although each has to start."""
WORKER_BYTES = 2e9
"""Memory that must be there for each process of those that are not asked for; it takes about half of that."""

SETTINGS = {
    "config": "--config authors and --config fixed are now --settings authors and --settings fixed.",
    "preset": "--preset is --settings here, and --preset paper is --settings authors.",
}
"""What --settings was called, or is by `mcclt train`, and what to say about each."""


@dataclass(frozen=True, kw_only=True)
class Machinery(Command):
    """Which seeds, and where and how they are trained."""

    seeds: Seeds = ()
    """Which seeds: 3 (that one alone), 0,3,7 or 5..14; unset: as many as --n-seeds."""
    n_seeds: int | None = None
    """Number of seeds: 10 trains seeds 0 to 9; unset: the scale's."""
    store: Path = STORE
    """The directory of results; what it already holds is not computed again."""
    engine: str = "auto"
    """What steps the tasks: auto, native, warp (GPU), envpool, gymnasium or gymnasium-async."""
    backend: Literal["local", "ray"] = "local"
    """Where agents train. local: this machine; ray: a Ray cluster (extra: ray), started here unless --address names
    one."""
    workers: int | None = None
    """local: processes that train side by side, each with its share of the cores; unset: on a CPU one per core, for
    plans of a million steps or more. On one GPU several pay off for plans of several tasks, under NVIDIA's MPS."""
    address: str | None = None
    """ray: the cluster to join (auto, or host:port); unset: a local one is started."""
    cpus: float | None = None
    """ray: CPU cores per unit of work; unset: 2."""
    gpus: float = 0
    """ray: GPUs per unit of work; may be a fraction."""
    population: int | None = None
    """Agents that train together in one process; unset: 8 seeds of a variant on a CPU, 360 agents on a GPU."""
    keep_agents: bool = False
    """Keep every trained agent in STORE/agents, as a model for evaluate, watch and export."""
    quiet: bool = False
    """Show no progress."""

    GROUPS: ClassVar = {
        "machine": "store engine backend workers address cpus gpus population keep_agents quiet".split()
    }
    FORMERLY: ClassVar = {"task_engine": "--task-engine is now --engine."}

    def named_seeds(self) -> tuple[int, ...]:
        """The seeds that --seeds names or --n-seeds counts; a single number is pointed out, as it once was a count."""
        if self.n_seeds is not None and ("n_seeds" in self.given or not self.seeds):
            return seeds_of(self.seeds, self.n_seeds)
        if len(self.seeds) == 1 and self.seeds[0] > 1:
            (seed,) = self.seeds
            print(f"mcclt: --seeds {seed} is the single seed {seed}; --n-seeds {seed} trains {seed}.", file=sys.stderr)
        return RunConfig("", seeds=self.seeds).seeds if self.seeds else ()  # refuses repetitions and seeds too large

    def check(self, tasks: Sequence[str]) -> None:
        """Refuses what makes no sense before anything is written; an environment of each task is made for that."""
        from mcclt.envs import ENGINES, make_vec

        require_each(self, "workers population", lambda x: x >= 1, "at least 1")
        require(self.cpus is None or self.cpus > 0, f"cpus = {self.cpus or 0:g}", "more than 0")
        require(self.gpus >= 0, f"gpus = {self.gpus:g}", "0 or more")
        if self.engine in ("local", "ray"):
            raise ConfigError(f"--engine {self.engine} is now --backend {self.engine}.")
        if self.engine not in ("auto", *ENGINES):
            raise UnknownNameError("engine", self.engine, ("auto", *ENGINES))
        for name in ("address", "cpus", "gpus"):
            if self.backend != "ray" and name in self.given:
                raise ConfigError(f"--{name} is for a Ray cluster: add --backend ray.")
        if self.backend == "ray" and "workers" in self.given:
            raise ConfigError("--workers is for this machine: leave it out with --backend ray.")
        if self.backend == "ray" and importlib.util.find_spec("ray") is None:
            raise MissingExtraError("--backend ray", "ray")
        engine = self.engine if self.backend == "local" else "auto"
        for task in tasks:
            slow = engine != "auto" and ENGINES[engine].on_device and ENGINES[engine].supports(task)
            make_vec(task, [(0, 0, 0, 0)], engine="auto" if slow else engine, brief=True).close()

    @property
    def on_gpu(self) -> bool:
        """Whether agents train on a GPU: this machine's, or one that is asked of Ray."""
        from mcclt.training.population import on_cpu

        return not on_cpu() if self.backend == "local" else self.gpus > 0

    def compute(self, store: "Store", cells: Sequence["Cell"]) -> "Tally":
        """Computes what is missing."""
        from mcclt.cli.display import PlanDisplay
        from mcclt.experiments.runner import Tally, run_cells
        from mcclt.experiments.workers import InProcess
        from mcclt.training.compilation import use_cache
        from mcclt.training.population import usual_size

        todo = store.missing(cells)
        bare = self.keep_agents and sum(store.has(cell) and not store.agent_file(cell).exists() for cell in cells)
        if bare:
            self.say(f"{bare} of the results already there were computed without --keep-agents: no agent is kept.")
        if not todo:
            return Tally(there=len(cells))
        use_cache()
        with contextlib.ExitStack() as stack:
            display = stack.enter_context(PlanDisplay(self.console, self.quiet))
            mix, count = self.on_gpu, self.side_by_side(cells)
            workers: Workers = self.crew(store, count) or InProcess(display.progress)
            stack.enter_context(contextlib.closing(workers))
            if advice := self.advice(count):
                self.say(advice)
            population = self.population or (self.gpu_population(cells, count) if mix else usual_size(gpu=False))
            try:
                return run_cells(store, cells, workers, display, population, mix, self.keep_agents)
            except KeyboardInterrupt as error:
                raise self.interrupted(error) from None

    def side_by_side(self, cells: Sequence["Cell"]) -> int:
        """How many processes train a plan: as many when it is continued, because it decides the last bits."""
        from mcclt.envs.api import available_cores

        if self.workers is not None or self.backend != "local":
            return self.workers or 1
        if self.on_gpu or sum(setup.config.steps for setup, _ in cells) < LONG:
            return 1
        memory = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
        return max(1, min(available_cores(), len(cells), int(memory / WORKER_BYTES)))

    def advice(self, count: int) -> str:
        """What is to be known of several processes, if anything."""
        if self.quiet or count == 1 or (self.on_gpu and _has_mps()):
            return ""
        if self.on_gpu:
            return (
                "The processes take turns on the GPU. They would share it, and be faster, under NVIDIA's MPS: start it "
                "first, with `nvidia-cuda-mps-control -d`."
            )
        return f"{count} processes share the cores; --workers sets how many." if self.workers is None else ""

    def gpu_population(self, cells: Sequence["Cell"], count: int) -> int:
        """The usual size, or what fits into the share of the GPU that each of `count` processes has (then said)."""
        from mcclt.envs import make_vec
        from mcclt.experiments import memory
        from mcclt.training.population import usual_size

        total = memory.gpu_bytes()
        usual = usual_size(gpu=True)
        if total is None:
            return usual
        total = int(total * (1 / count if self.backend == "local" else min(1, self.gpus)))
        setups = {setup.key: setup for setup, _ in cells}.values()
        specs = {}
        for task in {setup.task for setup in setups}:
            with contextlib.closing(make_vec(task, [(0, 0, 0, 0)])) as env:
                specs[task] = env.spec
        largest = max(memory.agent_bytes(setup.config, setup.agent, specs[setup.task]) for setup in setups)
        fits = memory.agents_that_fit(largest, total)
        if fits < usual:
            self.say(
                f"At most {fits} agents fit together into {total / 1e9:.0f} GB of the GPU: larger units are split."
            )
        return min(usual, fits)

    def crew(self, store: "Store | None", count: int) -> "Crew | None":
        """Workers beside this process, if it is not to do all itself."""
        from mcclt.experiments import workers

        if self.backend == "ray":
            return workers.RayCluster(store, self.address, self.cpus, self.gpus)
        return workers.Processes(count, pin=not self.on_gpu) if count > 1 else None

    def end(self, store: "Store", tally: "Tally") -> None:
        """Says what became of the cells, and writes the report of what there is."""
        from mcclt.experiments.analysis.texts import count
        from mcclt.pages import report

        if tally.elsewhere:
            self.say(f"Another process is computing {count(tally.elsewhere, 'cell')}; run this again to check.")
        results = store.load()
        done = f"{count(tally.done, 'cell')} computed, {tally.there} already there. Store: {store.path}"
        self.say(*results.problems, *results.notes, done)
        if results.series or results.timings:
            self.say(f"Report: {report.write(results, store.path / 'report')}")
        if tally.failures:
            first, *rest = tally.failures
            more = f" (and {len(rest)} more)" if rest else ""
            raise MccltError(f"{count(len(tally.failures), 'cell')} without a result: {first}{more}")

    def interrupted(self, error: KeyboardInterrupt) -> SystemExit:
        """Says how to continue, with the command that was typed; what to raise."""
        self.say(f"\n{ended(error)}; nothing is lost. Continue with\n  {shlex.join(['mcclt', *sys.argv[1:]])}")
        return SystemExit(interrupts.exit_code(error))


def _has_mps() -> bool:
    """Whether NVIDIA's Multi-Process Service is there: its daemon listens at this place."""
    return Path(os.environ.get("CUDA_MPS_PIPE_DIRECTORY", "/tmp/nvidia-mps"), "control").exists()
