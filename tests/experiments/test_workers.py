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
from drivers import Recorder, cells_of, content, contents, tiny

import probes  # noqa: F401  (keeps compiled programs for subprocesses too)
from mcclt.errors import ConfigError, MissingExtraError
from mcclt.experiments import training
from mcclt.experiments.runner import run_cells
from mcclt.experiments.store import Store
from mcclt.experiments.units import Unit
from mcclt.experiments.workers import InProcess, Processes, RayCluster

STEPS = 1280
DRIVERS = Path(__file__).with_name("drivers.py")
needs_ray = pytest.mark.skipif(importlib.util.find_spec("ray") is None, reason="Ray is not installed: mcclt[ray]")


@pytest.fixture(scope="module")
def undisturbed(tmp_path_factory: pytest.TempPathFactory) -> dict:
    """Three seeds, trained one by one in this process."""
    store = Store(tmp_path_factory.mktemp("undisturbed"), create=True)
    display = Recorder()
    assert run_cells(store, cells_of(tiny(steps=STEPS), 3), InProcess(display.progress), display, 1, False).done == 3
    return contents(store)


def test_in_process_passes_on_what_goes_wrong(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(*_: object) -> None:
        raise MemoryError("no more")

    monkeypatch.setattr(training, "train_unit", broken)
    future = InProcess(lambda *_: None).submit(Unit((tiny(),), (0,)), tmp_path / "unit")
    assert isinstance(future.exception(), MemoryError)


def test_processes_that_die(tmp_path: Path, undisturbed: dict) -> None:
    """Two processes, four units: killed once; killing its process each time; of no known task; and a good one."""
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
    cells = [*cells_of(setup, 2), (tiny(task="trouble:Killer-v0"), 0), (tiny(task="Nope-v0"), 0)]
    with contextlib.closing(Processes(2, pin=True)) as workers:
        tally = run_cells(store, cells, workers, display, population=1, mix=False)
    assert killed, "it was training when it was killed"
    assert tally.done == 2
    dead, unknown = sorted(tally.failures)
    assert dead.startswith("Nope-v0__") and "Unknown task 'Nope-v0'." in dead
    assert unknown.startswith("trouble_Killer-v0__") and "its process died 3 times" in unknown
    deaths = [said.split()[3] for said in display.said]
    assert sorted(d.split("__")[0] for d in deaths) == [
        "InvertedDoublePendulum-v5",
        "trouble_Killer-v0",
        "trouble_Killer-v0",
    ]
    assert victim.name in deaths and fine.name not in deaths, "a neighbour's death is not one's own"
    assert display.steps[fine.name] == list(range(64, STEPS + 1, 64)), "nor does it start again"
    steps = display.steps[victim.name]
    again = next(i for i in range(1, len(steps)) if steps[i] <= steps[i - 1] or i == len(steps) - 1)
    assert steps[-1] == STEPS and 64 not in steps[again:], f"from its checkpoint: {steps}"
    own = {key: value for key, value in undisturbed.items() if key[3] < 2}
    assert contents(store) == own


def test_processes_share_the_cores() -> None:
    cores = sorted(os.sched_getaffinity(0))
    with contextlib.closing(Processes(2, pin=True)) as workers:
        shares = [pool.submit(os.sched_getaffinity, 0).result() for pool in workers._pools]
    if len(cores) >= 2:
        assert sorted(core for share in shares for core in share) == cores, "each core once"
    else:
        assert all(sorted(share) == cores for share in shares)
    assert sorted(os.sched_getaffinity(0)) == cores, "this process keeps them all"


def test_processes_without_pinning() -> None:
    with contextlib.closing(Processes(2, pin=False)) as workers:
        assert workers._pools[1].submit(os.sched_getaffinity, 0).result() == os.sched_getaffinity(0)


# --- Ray -------------------------------------------------------------------------------------------------------


@needs_ray
def test_a_node_that_dies(tmp_path: Path, undisturbed: dict) -> None:
    """A local cluster first; then two nodes, one killed while it trains: everything is computed, nothing twice."""
    done = subprocess.run(
        [sys.executable, str(DRIVERS), "ray", str(tmp_path), "3", str(STEPS)],
        capture_output=True,
        text=True,
        timeout=300,
    )
    assert done.returncode == 0, done.stderr[-2000:]
    local, refusal, killed = [json.loads(line) for line in done.stdout.splitlines() if line[0] in '["']

    capacity, computed, failures = local
    assert capacity >= 1 and computed == 1
    assert len(failures) == 1 and "Unknown task 'Nope-v0'." in failures[0] and "\n" not in failures[0]

    assert refusal == "Each unit needs 4 cores and 0 GPUs, more than this Ray cluster has."

    capacity, computed, failures, said, at, steps = killed
    assert (capacity, computed, failures) == (2, 3, [])
    assert len(at) == 2 and min(at.values()) < STEPS, "a node was killed while both were training"
    assert said and all("goes on from its last checkpoint" in s for s in said)
    (victim,) = {s.split()[3] for s in said}
    others = [name for name in steps if name != victim]
    assert all(s == sorted(set(s)) for name, s in steps.items() if name in others), "the others trained once"
    store = Store(tmp_path / "cluster")
    assert contents(store) == undisturbed, "as if nothing had happened"
    left = [p.name for p in (store.path / "work").iterdir() if p.name not in ("locks", ".gitignore", "store.lock")]
    assert left == []


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
    with pytest.raises(MissingExtraError, match=r"mcclt\[ray\]"):
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
