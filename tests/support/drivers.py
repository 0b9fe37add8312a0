"""Plans so small that a test can run, race and kill them; also as processes:  python drivers.py JOB STORE ..."""

import contextlib
import dataclasses
import json
import os
import shutil
import signal
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterator
from concurrent.futures import Future
from pathlib import Path
from typing import Any

from mcclt.experiments import cells as cell_files
from mcclt.experiments import pack
from mcclt.experiments.results import Result
from mcclt.experiments.runner import Display, Tally, run_cells
from mcclt.experiments.setups import Setup, make_setup
from mcclt.experiments.store import Cell, Store
from mcclt.experiments.units import Outcome, Unit
from synthetic import make_result

PENDULUM = "InvertedDoublePendulum-v5"
SMALL = "critic_hidden=8+critic_iterations=2+policy_hidden=4+policy_iterations=2"
VARIANT = f"plain@{SMALL}"
RUN: dict[str, Any] = {
    "n_envs": 4,
    "steps_per_update": 64,
    "steps": 128,
    "max_episode_steps": 30,
    "final_episodes": 2,
    "checkpoint_freq": 64,
    "eval_freq": 128,
    "eval_episodes": 2,
}

STEPS = 1920
"""Thirty updates of 64, each with its checkpoint: long enough to be killed in."""


def tiny(variant: str = VARIANT, task: str = PENDULUM, **run: Any) -> Setup:
    """A setup that trains in no time once it is compiled."""
    return make_setup(task, "ppo", variant, "fixed", **RUN | run)


def cells_of(setup: Setup, seeds: int) -> list[Cell]:
    return [(setup, seed) for seed in range(seeds)]


def content(result: Result) -> dict[str, Any]:
    """What must not depend on who computed it, when and how often it was cut off."""
    data = json.loads(cell_files.encode(dataclasses.replace(result, cost={}, provenance={})))
    return data | {"checksum": None}


def contents(store: Store) -> dict[tuple[str, str, str, int], dict[str, Any]]:
    """All of a store, which has no problems."""
    loaded = store.load()
    assert loaded.problems == (), loaded.problems
    return {(s.task, s.name, s.digest, r.seed): content(r) for s in loaded.series for r in s.results}


class Recorder(Display):
    """A display that keeps what it is told."""

    def __init__(self, on_progress: Callable[[str, int], None] = lambda name, step: None) -> None:
        self.said: list[str] = []
        self.ended: list[tuple[Unit, int]] = []
        self.steps: dict[str, list[int]] = {}
        self.on_progress = on_progress

    def begin(self, cells: int, steps: int) -> None:
        self.ahead = cells, steps

    def progress(self, name: str, step: int, text: str) -> None:
        self.steps.setdefault(name, []).append(step)
        self.on_progress(name, step)

    def unit_ended(self, unit: Unit, written: int) -> None:
        self.ended.append((unit, written))

    def say(self, text: str) -> None:
        self.said.append(text)


class Pretend:
    """Workers that train nothing: results are made up, and each cell trained is a line of STORE/trained.log."""

    deaths: tuple[type[Exception], ...] = (ChildProcessError,)

    def __init__(self, store: Store, seconds: float = 0.0, capacity: int = 1, apart: bool = True) -> None:
        self.log, self.seconds = store.path / "trained.log", seconds
        self.capacity, self.apart = capacity, apart

    def submit(self, unit: Unit, folder: Path) -> Future[Outcome]:
        folder.mkdir(parents=True, exist_ok=True)
        (folder / "checkpoint").write_text("half")
        time.sleep(self.seconds)
        with open(self.log, "a", encoding="utf-8") as file:
            file.write("".join(f"{json.dumps(key)}\n" for key in unit.keys))
        future: Future[Outcome] = Future()
        future.set_result(Outcome([(s, make_result(s, seed, 1.0, 3, 2)) for s, seed in unit.cells], []))
        return future

    def news(self) -> Iterator[tuple[str, int, str]]:
        return iter(())

    def close(self) -> None: ...


def left(store: Path) -> list[str]:
    """What is left of the work on a store."""
    return [p.name for p in (store / "work").iterdir() if p.name not in ("locks", ".gitignore", "store.lock")]


def trained(store: Store) -> Counter[tuple[Any, ...]]:
    """How often each cell was trained by `Pretend`."""
    log = store.path / "trained.log"
    return Counter(tuple(json.loads(line)) for line in log.read_text().splitlines()) if log.exists() else Counter()


def pretend(path: Path, cells: list[Cell], population: int = 2, seconds: float = 0.0) -> Tally:
    store = Store(path, create=True)
    return run_cells(store, cells, Pretend(store, seconds), Recorder(), population, mix=False)


# --- as a process -----------------------------------------------------------------------------------------------


def race(path: Path, seeds: int, population: int, racers: int) -> None:
    """Computes a plan at the same moment as others do: each says beside the store that it is ready."""
    (path.parent / f"ready-{os.getpid()}").touch()
    while len([*path.parent.glob("ready-*")]) < racers:
        time.sleep(0.01)
    tally = pretend(path, cells_of(tiny(), seeds), population, seconds=0.1)  # time for the others, on a busy machine
    print(json.dumps([tally.done, tally.there, tally.elsewhere, tally.failures]))


def crash(path: Path) -> None:
    """Computes a plan, killed before and after each thing it does to the disk; then computes it again.

    Forks instead of starting programs, which is why no JAX may be imported here.
    """
    assert "jax" not in sys.modules
    cells = cells_of(tiny(), 3)
    for moment in range(1000):
        own = path / str(moment)
        code = _in_child(lambda m=moment, p=own: (_arm(m), pretend(p, cells)))
        before = sorted(str(p.relative_to(own)) for p in own.rglob("seed-*")) if own.exists() else []
        before_problems: list[str] = []
        with contextlib.suppress(cell_files.StoreError):
            before_problems = list(Store(own).load().problems)
        assert _in_child(lambda p=own: pretend(p, cells)) == 0
        store = Store(own)
        loaded = store.load()
        result = {
            "moment": moment,
            "killed": code == -signal.SIGKILL,
            "cells_before": len([p for p in before if Path(p).suffix == ".json"]),
            "problems_before": before_problems,
            "problems": list(loaded.problems),
            "seeds": [s.seeds for s in loaded.series],
            "trained": sorted(trained(store).values()),
        }
        print(json.dumps(result), flush=True)
        if code == 0:
            return


def crash_pack(path: Path) -> None:
    """Packs, adds to the pack and unpacks a store, killed before and after each thing that does to the disk."""
    assert "jax" not in sys.modules
    setup = tiny()
    first, second = (make_result(setup, seed, 1.0, 3, 2) for seed in (0, 1))

    def work(store: Store) -> None:
        pack.pack(store)
        store.write(setup, second)
        pack.pack(store)
        pack.unpack(store)

    for moment in range(1000):
        store = Store(path / str(moment), create=True)
        store.write(setup, first)
        code = _in_child(lambda m=moment, s=store: (_arm(m), work(s)))
        found = [Store(store.path).load()]
        store.write(setup, second)
        problems = pack.pack(store).problems
        found.append(Store(store.path).load())
        result = {
            "killed": code == -signal.SIGKILL,
            "problems": [*problems, *found[0].problems, *found[1].problems],
            "before": found[0].series[0].seeds,
            "after": found[1].series[0].seeds,
            "files": [p.name for p in (store.path / "cells").rglob("*") if p.is_file() and p.name[0] != "."],
        }
        print(json.dumps(result), flush=True)
        if code == 0:
            return


def _in_child(work: Callable[[], Any]) -> int:
    pid = os.fork()
    if pid == 0:
        try:
            work()
        except BaseException as error:
            print(f"{type(error).__name__}: {error}", file=sys.stderr, flush=True)
            os._exit(1)
        os._exit(0)
    return os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])


def _arm(moment: int) -> None:
    """Kills this process at the given moment: before or after a rename, a deletion, a claim."""
    passed = 0

    def tick() -> None:
        nonlocal passed
        if passed == moment:
            os.kill(os.getpid(), signal.SIGKILL)
        passed += 1

    def around(owner: Any, name: str) -> None:
        original = getattr(owner, name)

        def wrapped(*args: Any, **kwargs: Any) -> Any:
            tick()
            found = original(*args, **kwargs)
            tick()
            return found

        setattr(owner, name, wrapped)

    around(os, "replace")
    around(shutil, "rmtree")
    around(Path, "unlink")
    around(Store, "claim")


def train(path: Path, seeds: int, steps: int, workers: int) -> None:
    """Trains in earnest."""
    from mcclt.experiments.workers import InProcess, Processes

    display = Recorder(lambda name, step: print(name, step, flush=True))
    with contextlib.closing(Processes(workers, pin=True) if workers > 1 else InProcess(display.progress)) as own:
        tally = run_cells(
            Store(path, create=True), cells_of(tiny(steps=steps), seeds), own, display, population=1, mix=False
        )
    print(json.dumps([tally.done, tally.there, tally.elsewhere, tally.failures]))


def wait(path: Path, workers: int) -> None:
    """Has idle workers until it is killed; writes nothing."""
    from mcclt.experiments.workers import Processes

    own = Processes(workers, pin=True)
    for pool in own._pools:
        pool.submit(os.getpid).result()
    print("there", flush=True)
    time.sleep(3600)


def ray_here(path: Path) -> None:
    """Trains on a Ray cluster of this machine, started for it; a second unit fails."""
    from mcclt.experiments.workers import RayCluster

    store = Store(path, create=True)
    with contextlib.closing(RayCluster(store, None, None, 0)) as workers:
        cells = [*cells_of(tiny(), 1), (tiny(task="Nope-v0"), 0)]
        tally = run_cells(store, cells, workers, Recorder(), population=1, mix=False)
    _say(path, {"capacity": workers.capacity, "done": tally.done, "failures": tally.failures})


def ray_nodes(path: Path, seeds: int, steps: int) -> None:
    """Trains on a Ray cluster of two nodes with a core each, one of which is killed while both train.

    In a process of its own because Ray leaves threads and open sockets behind.
    """
    from ray.cluster_utils import Cluster

    from mcclt.errors import ConfigError
    from mcclt.experiments.workers import RayCluster

    store = Store(path, create=True)
    cluster = Cluster(initialize_head=True, head_node_args={"num_cpus": 1, "include_dashboard": False})
    victim = cluster.add_node(num_cpus=1)
    killed_at: dict[str, int] = {}

    def kill(name: str, step: int) -> None:
        if len(display.steps) == 2 and not killed_at:
            killed_at.update({unit: seen[-1] for unit, seen in display.steps.items()})
            cluster.remove_node(victim, allow_graceful=False)

    display = Recorder(kill)
    refusal = ""
    try:
        RayCluster(store, cluster.address, 4, 0)
    except ConfigError as error:
        refusal = str(error)
    with contextlib.closing(RayCluster(store, cluster.address, 1, 0)) as workers:
        tally = run_cells(store, cells_of(tiny(steps=steps), seeds), workers, display, population=1, mix=False)
    cluster.shutdown()
    found = {"capacity": workers.capacity, "done": tally.done, "failures": tally.failures, "refusal": refusal}
    _say(path, found | {"said": display.said, "killed_at": killed_at, "steps": display.steps})


def _say(path: Path, data: dict[str, Any]) -> None:
    """To a file: Ray prints, too."""
    (path / "said.json").write_text(json.dumps(data), encoding="utf-8")


if __name__ == "__main__":
    jobs: dict[str, Callable[..., None]] = {
        job.__name__: job for job in (race, crash, crash_pack, ray_here, ray_nodes, train, wait)
    }
    job, store, *numbers = sys.argv[1:]
    jobs[job](Path(store), *map(int, numbers))
