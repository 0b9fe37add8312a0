"""Running plans: what is skipped, continued, retried, reported; and real drivers that are killed."""

import contextlib
import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from concurrent.futures import Future
from pathlib import Path
from typing import Any

import pytest

import drivers
from drivers import STEPS, Pretend, Recorder, cells_of, contents, left, pretend, tiny, trained
from mcclt.errors import MccltError
from mcclt.experiments import runner
from mcclt.experiments.runner import Tally, run_cells
from mcclt.experiments.store import Cell, Store
from mcclt.experiments.units import Outcome, Unit
from mcclt.experiments.workers import ATTEMPTS, InProcess
from synthetic import make_result

DRIVERS = Path(drivers.__file__)


@pytest.fixture
def store(tmp_path: Path) -> Store:
    return Store(tmp_path / "store", create=True)


class Scripted(Pretend):
    """Workers that do what is written for a unit's first seed: a list, an entry per try."""

    def __init__(self, store: Store, script: dict[int, list[Any]], capacity: int = 1) -> None:
        super().__init__(store, capacity=capacity)
        self.script, self.tries = script, dict.fromkeys(script, 0)

    def submit(self, unit: Unit, folder: Path) -> Future[Outcome]:
        first = unit.seeds[0]
        if first in self.script:
            self.tries[first] += 1
            what = self.script[first].pop(0) if self.script[first] else None
            if isinstance(what, KeyboardInterrupt):
                raise what
            if what is not None:
                future: Future[Outcome] = Future()
                folder.mkdir(parents=True, exist_ok=True)
                future.set_exception(what) if isinstance(what, BaseException) else future.set_result(what)
                return future
        return super().submit(unit, folder)


def go(store: Store, cells: list[Cell], workers: Pretend, population: int = 1) -> tuple[Tally, Recorder]:
    display = Recorder()
    return run_cells(store, cells, workers, display, population, mix=False), display


def free(store: Store, cells: list[Cell]) -> bool:
    """Whether nobody holds any claim."""
    claims = [store.claim(cell) for cell in cells]
    for claim in claims:
        if claim is not None:
            claim.release()
    return None not in claims


# --- deaths and failures ---------------------------------------------------------------------------------------


@pytest.mark.parametrize("capacity", [1, 2])
def test_a_dead_worker_is_tried_again(store: Store, capacity: int) -> None:
    cells = cells_of(tiny(), 3)
    workers = Scripted(store, {1: [ChildProcessError()] * (ATTEMPTS - 1)}, capacity)
    tally, display = go(store, cells, workers)
    assert (tally.done, tally.failures) == (3, []) and workers.tries == {1: ATTEMPTS}
    assert len(display.said) == ATTEMPTS - 1 and all("continues from its last checkpoint" in s for s in display.said)
    assert set(trained(store).values()) == {1} and free(store, cells)


def test_a_worker_that_always_dies_is_given_up(store: Store) -> None:
    cells = cells_of(tiny(), 3)
    workers = Scripted(store, {1: [ChildProcessError()] * 99})
    tally, display = go(store, cells, workers)
    assert workers.tries == {1: 3} and tally.done == 2
    (failure,) = tally.failures
    assert failure.endswith(": its process died 3 times. Is it running out of memory?") and "ppo-plain" in failure
    assert [(u.seeds, n) for u, n in display.ended] == [((0,), 1), ((1,), 0), ((2,), 1)]
    assert store.load().series[0].seeds == [0, 2] and free(store, cells)


@pytest.mark.parametrize(
    ("error", "sentence"),
    [
        (MccltError("The motor burns."), "The motor burns."),
        (RuntimeError("out of memory\n  a long trace"), "RuntimeError: out of memory"),
        (ZeroDivisionError(), "ZeroDivisionError:"),
    ],
)
def test_a_unit_that_fails_does_not_end_the_others(store: Store, error: Exception, sentence: str) -> None:
    cells = cells_of(tiny(), 3)
    tally, display = go(store, cells, Scripted(store, {1: [error]}))
    assert tally.done == 2 and len(tally.failures) == 1
    assert tally.failures[0].endswith(f": {sentence}") and "\n" not in tally.failures[0]
    assert len(display.ended) == 3 and free(store, cells)
    again, _ = go(store, cells, Scripted(store, {}))
    assert (again.done, again.there, again.failures) == (1, 2, [])


def test_an_agent_without_a_result_is_reported(store: Store) -> None:
    setup = tiny()
    half = Outcome([(setup, make_result(setup, 1, 1.0))], ["ppo-plain, seed 0, has no result (stopped)."])
    cells = cells_of(setup, 2)
    tally, _ = go(store, cells, Scripted(store, {0: [half]}), population=2)
    assert tally.done == 1 and tally.failures == ["ppo-plain, seed 0, has no result (stopped)."]
    assert free(store, cells) and store.missing(cells) == [(setup, 0)]


def test_an_interrupt_frees_the_claims(store: Store) -> None:
    cells = cells_of(tiny(), 3)
    with pytest.raises(KeyboardInterrupt):
        go(store, cells, Scripted(store, {1: [KeyboardInterrupt()]}))
    assert free(store, cells)
    assert go(store, cells, Scripted(store, {}))[0].done == 2


def test_an_interrupt_while_waiting_frees_the_claims(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    def interrupted(*_: object, **__: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr("mcclt.experiments.runner.concurrent.futures.wait", interrupted)
    cells = cells_of(tiny(), 3)
    with pytest.raises(KeyboardInterrupt):
        go(store, cells, Scripted(store, {}, capacity=3))
    assert free(store, cells)


def test_a_store_that_cannot_be_written_is_reported(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(*_: object) -> None:
        raise OSError(28, "No space left on device")

    cells = cells_of(tiny(), 2)
    with monkeypatch.context() as patch:
        patch.setattr("mcclt.experiments.store.encode", full)
        tally, _ = go(store, cells, Scripted(store, {}))
    assert tally.done == 0 and len(tally.failures) == 2 and "No space left" in tally.failures[0]
    assert go(store, cells, Scripted(store, {}))[0].done == 2


# --- what is skipped, shared, continued ------------------------------------------------------------------------


def test_cells_of_others_are_left_to_them(store: Store) -> None:
    cells = cells_of(tiny(), 4)
    claims = [store.claim(cells[1]), store.claim(cells[2])]
    tally, _ = go(store, cells, Scripted(store, {}), population=4)
    assert (tally.done, tally.there, tally.elsewhere) == (2, 0, 2)
    assert store.load().series[0].seeds == [0, 3] and set(trained(store).values()) == {1}
    for claim in claims:
        assert claim is not None
        claim.release()
    assert go(store, cells, Scripted(store, {}), population=4)[0].done == 2


def test_a_cell_finished_between_the_look_and_the_claim(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    """Another process writes seed 0 just before we claim it: it must not be trained again."""
    setup, claim = tiny(), Store.claim
    cells = cells_of(setup, 2)

    def late(self: Store, cell: Cell):
        if cell[1] == 0:
            self.write(setup, make_result(setup, 0, 5.0))
        return claim(self, cell)

    monkeypatch.setattr(Store, "claim", late)
    tally, _ = go(store, cells, Scripted(store, {}), population=2)
    assert tally.done == 1 and trained(store) == {(*setup.key, 1): 1}
    assert store.load().series[0].results[0].score == pytest.approx(5.0, abs=1e-3)


def test_a_cell_asked_for_twice_is_computed_once(store: Store) -> None:
    cells = cells_of(tiny(), 2)
    tally, display = go(store, [*cells, *cells], Scripted(store, {}), population=8)
    assert (tally.done, tally.there) == (2, 0) and display.ahead == (2, 256)
    assert set(trained(store).values()) == {1}


@pytest.mark.parametrize(("apart", "sizes"), [(True, [2, 2]), (False, [4])])
def test_units_are_cut_only_for_workers_that_are_apart(store: Store, apart: bool, sizes: list[int]) -> None:
    """Where all share one GPU, it takes as long for a part as for the whole."""
    display = Recorder()
    run_cells(store, cells_of(tiny(), 4), Pretend(store, capacity=2, apart=apart), display, 8, False)
    assert [len(unit.cells) for unit, _ in display.ended] == sizes


def test_what_was_cut_off_goes_on_in_its_folder(store: Store) -> None:
    """Seeds 0 and 1 were under way, and seed 0 is written; a larger plan goes on in the same folder."""
    setup = tiny()
    unit = Unit((setup,), (0, 1))
    unit.folder(store).mkdir(parents=True)
    unit.note(store)
    store.write(setup, make_result(setup, 0, 7.0))
    began: list[Unit] = []

    class Watch(Recorder):
        def unit_began(self, unit: Unit) -> None:
            began.append(unit)
            assert unit.folder(store).is_dir() == (unit.seeds == (0, 1))

    tally = run_cells(store, cells_of(setup, 5), Scripted(store, {}), Watch(), 8, False)
    assert [u.seeds for u in began] == [(0, 1), (2, 3, 4)]
    assert (tally.done, tally.there) == (4, 1)
    assert store.load().series[0].results[0].score == pytest.approx(7.0, abs=1e-3), "what was written stays"
    assert not unit.folder(store).exists() and not list((store.path / "work").glob("*.json"))


def test_a_unit_under_way_elsewhere_is_left_alone(store: Store) -> None:
    setup = tiny()
    unit = Unit((setup,), (0, 1))
    unit.folder(store).mkdir(parents=True)
    unit.note(store)
    claim = store.claim((setup, 1))
    tally, _ = go(store, cells_of(setup, 3), Scripted(store, {}), population=8)
    assert (tally.done, tally.elsewhere) == (1, 2) and unit.folder(store).is_dir()
    assert claim is not None
    claim.release()


def test_the_folder_is_gone_before_its_claims_are(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    """Or another process could begin a cell without result in a folder that is being deleted."""
    order: list[str] = []
    release = runner._Running.release
    monkeypatch.setattr(runner._Running, "release", lambda self: (order.append("release"), release(self))[1])
    monkeypatch.setattr("mcclt.experiments.units.shutil.rmtree", lambda path, **_: order.append("delete"))
    go(store, cells_of(tiny(), 1), Scripted(store, {}))
    assert order[:2] == ["delete", "release"]


def test_changed_defaults_stop_a_plan_before_it_begins(store: Store) -> None:
    setup = tiny()
    pretend(store.path, [(setup, 0)])
    (store.folder(setup) / "settings.json").write_text(json.dumps(setup.settings | {"gamma": 0.5}))
    with pytest.raises(MccltError, match="gamma"):
        go(store, cells_of(setup, 2), Scripted(store, {}))


# --- real drivers, killed --------------------------------------------------------------------------------------


def start(path: Path, workers: int) -> subprocess.Popen:
    args = [sys.executable, str(DRIVERS), "train", str(path), "3", str(STEPS), str(workers)]
    return subprocess.Popen(args, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)


def steps_of(driver: subprocess.Popen) -> Iterator[tuple[str, int]]:
    """What it says of its units, as it says it."""
    assert driver.stdout is not None
    for line in driver.stdout:
        if line.startswith("["):
            return
        name, _, step = line.strip().rpartition(" ")
        assert step.isdecimal(), line
        yield name, int(step)


def descendants(pid: int) -> list[int]:
    children = Path(f"/proc/{pid}/task/{pid}/children").read_text().split()
    return [int(c) for c in children] + [d for c in children for d in descendants(int(c))]


def gone(pids: list[int], seconds: float) -> bool:
    def alive(pid: int) -> bool:
        try:
            return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
        except (FileNotFoundError, ProcessLookupError):
            return False

    end = time.monotonic() + seconds
    while any(map(alive, pids)) and time.monotonic() < end:
        time.sleep(0.05)
    return not any(map(alive, pids))


def finish(path: Path, undisturbed: dict) -> Recorder:
    """Runs the plan again, here, and compares."""
    display = Recorder()
    store = Store(path)
    tally = run_cells(store, cells_of(tiny(steps=STEPS), 3), InProcess(display.progress), display, 1, False)
    assert tally.done + tally.there == 3 and tally.failures == [] and tally.elsewhere == 0
    assert contents(store) == undisturbed, "returns, curves and probes to the last digit"
    assert left(path) == []
    return display


needs_proc = pytest.mark.skipif(not Path("/proc/self/task").exists(), reason="looks for processes in /proc")


@needs_proc
def test_workers_end_with_their_driver(tmp_path: Path) -> None:
    driver = subprocess.Popen([sys.executable, str(DRIVERS), "wait", tmp_path, "2"], stdout=subprocess.PIPE, text=True)
    assert driver.stdout is not None and driver.stdout.readline() == "there\n"
    family = descendants(driver.pid)
    driver.kill()
    driver.communicate()
    assert len(family) >= 3 and gone(family, 10)


@needs_proc
@pytest.mark.slow
def test_a_killed_driver_with_workers(tmp_path: Path, undisturbed: dict) -> None:
    """kill -9 of a driver with two worker processes: they end with it, and its cells go on where they were."""
    driver = start(tmp_path / "store", workers=2)
    seen: dict[str, int] = {}
    for name, step in steps_of(driver):
        seen[name] = step
        if len(seen) == 2 and min(seen.values()) >= 192:
            break
    family = descendants(driver.pid)
    assert len(family) >= 3  # two workers and the manager
    driver.kill()
    driver.wait()
    try:
        assert gone(family, 10), "no orphans, which would hold memory and locks"
    finally:
        for pid in family:
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        driver.communicate()
    display = finish(tmp_path / "store", undisturbed)
    continued = [steps[0] for name, steps in display.steps.items() if name in seen]
    assert continued and min(continued) > 64, f"from its checkpoint, not from the beginning: {display.steps}"


@pytest.mark.slow
def test_an_interrupted_driver_with_workers(tmp_path: Path, undisturbed: dict) -> None:
    """SIGINT to the driver alone: its workers save their state after their update, and all end soon."""
    driver = start(tmp_path / "store", workers=2)
    name, step = next((name, step) for name, step in steps_of(driver) if step >= 128)
    family = descendants(driver.pid)
    driver.send_signal(signal.SIGINT)
    out, _ = driver.communicate(timeout=30)
    assert driver.returncode == -signal.SIGINT and "KeyboardInterrupt" in out
    assert gone(family, 5)
    display = finish(tmp_path / "store", undisturbed)
    assert display.steps[name][0] > step, "nothing of what was said to be done is done again"


@pytest.mark.slow
def test_a_driver_killed_again_and_again(tmp_path: Path, undisturbed: dict) -> None:
    """Killed at ten moments, at some of which it was about to begin or to write."""
    path = tmp_path / "store"
    for delay in (0.3, 1.1, 1.9, 2.4, 2.8, 3.1, 3.4, 3.8, 4.2, 4.9):
        driver = start(path, workers=1)
        try:
            driver.communicate(timeout=delay)
        except subprocess.TimeoutExpired:
            os.kill(driver.pid, signal.SIGKILL)
            driver.communicate()
        if path.exists() and (path / "store.json").exists():
            assert Store(path).load().problems == ()
    if not path.exists():
        Store(path, create=True)
    finish(path, undisturbed)


@pytest.mark.slow
def test_two_real_drivers_race(tmp_path: Path, undisturbed: dict) -> None:
    path = tmp_path / "store"
    drivers = [start(path, workers=1) for _ in range(2)]
    lines = [d.communicate()[0].splitlines() for d in drivers]
    tallies = [json.loads(out[-1]) for out in lines]
    assert sum(t[0] for t in tallies) == 3 and all(t[3] == [] for t in tallies), tallies
    # Each unit was trained by one of them, from its first update to its last, once.
    updates = [line for out in lines for line in out if not line.startswith("[")]
    assert len(updates) == len(set(updates)) == 3 * STEPS // 64
    assert contents(Store(path)) == undisturbed
