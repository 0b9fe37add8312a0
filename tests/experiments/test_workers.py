"""Where units are trained: processes that die, and a real Ray cluster that loses a node."""

import contextlib
import importlib.util
import json
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

import drivers
from drivers import STEPS, Recorder, cells_of, content, contents, left, tiny
from mcclt.errors import ConfigError, MissingExtraError
from mcclt.experiments import training
from mcclt.experiments.runner import run_cells
from mcclt.experiments.store import Store
from mcclt.experiments.units import Unit
from mcclt.experiments.workers import InProcess, Processes, RayCluster

DRIVERS = Path(drivers.__file__)
needs_ray = pytest.mark.skipif(importlib.util.find_spec("ray") is None, reason="Ray is not installed: mcclt[ray]")


def test_in_process_passes_on_what_goes_wrong(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(*_: object) -> None:
        raise MemoryError("no more")

    monkeypatch.setattr(training, "train_unit", broken)
    future = InProcess(lambda *_: None).submit(Unit((tiny(),), (0,)), tmp_path / "unit")
    assert isinstance(future.exception(), MemoryError)


def test_closing_after_an_answer_was_cut_short() -> None:
    """Ctrl-C between a question to the manager and its answer, which the next one asked by this thread would get."""
    workers = Processes(1, pin=False)
    assert list(workers.news()) == []  # connects
    connection = workers._queue._tls.connection  # type: ignore[attr-defined]
    connection.send((workers._queue._id, "get_nowait", (), {}))  # type: ignore[attr-defined]
    workers.close()


def test_the_manager_leaves_signals_to_its_parent() -> None:
    """Schedulers send SIGTERM to all processes of a job, a terminal SIGINT."""
    with contextlib.closing(Processes(1, pin=False)) as workers:
        for number in (signal.SIGTERM, signal.SIGINT):
            os.kill(workers.manager._process.pid, number)  # type: ignore[attr-defined]
            assert list(workers.news()) == []


@pytest.mark.slow
def test_a_process_that_is_killed(tmp_path: Path, undisturbed: dict) -> None:
    """kill -9 of one of two: its unit goes on from its checkpoint, its neighbour's does not notice."""
    store = Store(tmp_path / "store", create=True)
    setup = tiny(steps=STEPS)
    victim, fine = (Unit((setup,), (seed,)) for seed in (0, 1))
    killed: list[int] = []

    def kill(name: str, step: int) -> None:
        if name == victim.name and step >= 192 and not killed:
            (pid,) = workers._pools[0]._processes  # the first unit is in the first place
            killed.append(step)
            os.kill(pid, signal.SIGKILL)

    display = Recorder(kill)
    with contextlib.closing(Processes(2, pin=True)) as workers:
        tally = run_cells(store, cells_of(setup, 2), workers, display, population=1, mix=False)
    assert killed, "it was training when it was killed"
    assert (tally.done, tally.failures) == (2, [])
    assert display.said == [f"A process died; {victim.name} continues from its last checkpoint."]
    assert display.steps[fine.name] == list(range(64, STEPS + 1, 64))
    steps = display.steps[victim.name]
    assert steps[-1] == STEPS and steps.count(64) == 1, f"not from the beginning: {steps}"
    assert contents(store) == {key: value for key, value in undisturbed.items() if key[3] < 2}


@pytest.mark.slow
def test_a_unit_that_kills_its_process_each_time(tmp_path: Path, undisturbed: dict) -> None:
    """It is given up after three; its neighbours, and one of no known task, have nothing to do with it."""
    store = Store(tmp_path / "store", create=True)
    setup = tiny(steps=STEPS)
    display = Recorder()
    cells = [(tiny(task="trouble:Killer-v0"), 0), *cells_of(setup, 2), (tiny(task="Nope-v0"), 0)]
    with contextlib.closing(Processes(2, pin=True)) as workers:
        tally = run_cells(store, cells, workers, display, population=1, mix=False)
    assert tally.done == 2
    unknown, dead = sorted(tally.failures)
    assert unknown.startswith("Nope-v0__") and "Unknown task 'Nope-v0'. Did you mean 'Hopper-v5'?" in unknown
    assert dead.startswith("trouble_Killer-v0__") and "its process died 3 times" in dead
    assert [said.split()[3].split("__")[0] for said in display.said] == ["trouble_Killer-v0"] * 2
    for unit in (Unit((setup,), (seed,)) for seed in (0, 1)):
        assert display.steps[unit.name] == list(range(64, STEPS + 1, 64))
    assert contents(store) == {key: value for key, value in undisturbed.items() if key[3] < 2}


def test_processes_share_the_cores() -> None:
    cores = sorted(os.sched_getaffinity(0))
    with contextlib.closing(Processes(2, pin=True)) as workers:
        shares = [pool.submit(os.sched_getaffinity, 0).result() for pool in workers._pools]
        assert workers.apart
    if len(cores) >= 2:
        assert sorted(core for share in shares for core in share) == cores, "each core once"
    else:
        assert all(sorted(share) == cores for share in shares)
    assert sorted(os.sched_getaffinity(0)) == cores, "this process keeps them all"


@pytest.mark.slow
def test_processes_without_pinning() -> None:
    with contextlib.closing(Processes(2, pin=False)) as workers:
        assert workers._pools[1].submit(os.sched_getaffinity, 0).result() == os.sched_getaffinity(0)
        assert not workers.apart


# --- Ray -------------------------------------------------------------------------------------------------------


def ray(job: str, path: Path, *numbers: int) -> dict:
    """A job of `drivers`."""
    args = [sys.executable, str(DRIVERS), job, str(path), *map(str, numbers)]
    done = subprocess.run(args, capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stderr[-2000:]
    return json.loads((path / "said.json").read_text())


@needs_ray
@pytest.mark.slow
def test_a_node_that_dies(tmp_path: Path, undisturbed: dict) -> None:
    """Two nodes, one killed while it trains: everything is computed, and nothing twice."""
    got = ray("ray_nodes", tmp_path, 2, STEPS)
    assert got["refusal"] == "Each unit needs 4 cores and 0 GPUs, more than this Ray cluster has."
    assert (got["capacity"], got["done"], got["failures"]) == (2, 2, [])
    assert len(got["killed_at"]) == 2 and min(got["killed_at"].values()) < STEPS, "both were training"
    assert got["said"] and all("continues from its last checkpoint" in s for s in got["said"])
    (victim,) = {s.split()[3] for s in got["said"]}
    for name, steps in got["steps"].items():
        if name != victim:
            assert steps == sorted(set(steps)), "the others trained once"
    store = Store(tmp_path)
    own = {key: value for key, value in undisturbed.items() if key[3] < 2}
    assert contents(store) == own, "as if nothing had happened"
    assert left(store.path) == []


@needs_ray
@pytest.mark.slow
def test_a_cluster_started_here(tmp_path: Path, undisturbed: dict) -> None:
    got = ray("ray_here", tmp_path)
    assert got["capacity"] >= 1 and got["done"] == 1 and len(contents(Store(tmp_path))) == 1
    (failure,) = got["failures"]
    assert failure.startswith("Nope-v0__") and "Unknown task 'Nope-v0'." in failure and "\n" not in failure


@needs_ray
@pytest.mark.parametrize(
    "address", ["127.0.0.1:1", "no.such.host.invalid:6379", "ray://127.0.0.1:1", "127.0.0.1:99999"]
)
def test_a_wrong_address(tmp_path: Path, address: str) -> None:
    with pytest.raises(ConfigError) as error:
        RayCluster(Store(tmp_path, create=True), address, None, 0)
    assert str(error.value).startswith(f"No Ray cluster at {address!r}: ") and "\n" not in str(error.value)


def test_without_ray(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "ray", None)
    with pytest.raises(MissingExtraError, match="ray>="):
        RayCluster(Store(tmp_path, create=True), None, None, 0)


@needs_ray
def test_a_node_with_another_file_system(tmp_path: Path) -> None:
    """Where the store is not to be seen, a unit is trained in a directory of its own; only its results come back."""
    from mcclt.experiments.workers import _train_in_cluster

    store = Store(tmp_path / "store", create=True)
    unit = Unit((tiny(),), (0,))
    for path, name in ((tmp_path / "elsewhere", store.id), (store.path, "another store of that name")):
        outcome = _train_in_cluster(unit, unit.folder(store), path, name, news=None)
        assert [seed for _, seed in unit.cells] == [r.seed for _, r in outcome.results]
        assert not unit.folder(store).exists()
    shared = _train_in_cluster(unit, unit.folder(store), store.path, store.id, news=None)
    assert unit.folder(store).is_dir()
    assert content(shared.results[0][1]) == content(outcome.results[0][1])
