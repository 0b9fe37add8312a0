"""Runs a plan: claims cells, has them trained in units, writes what comes back.

The driver (this module) holds the claims and is the only one to write results; workers are functions from a
unit to its results. So nothing is done twice, whoever dies: a dead driver's claims are freed by the operating
system, a dead worker's unit is tried again from its last checkpoint.
"""

import concurrent.futures
import contextlib
import dataclasses
from collections.abc import Sequence
from concurrent.futures import Future
from dataclasses import dataclass, field

import filelock

from mcclt.errors import MccltError
from mcclt.experiments.store import Cell, Store
from mcclt.experiments.units import Outcome, Unit, cut_off, split
from mcclt.experiments.workers import ATTEMPTS, Workers


@dataclass
class Tally:
    """What became of a plan's cells."""

    done: int = 0
    """Computed now."""
    there: int = 0
    """In the store already."""
    elsewhere: int = 0
    """Being computed by another process."""
    failures: list[str] = field(default_factory=list)
    """Why cells have no result, in one sentence each."""


class Display:
    """What a person sees: here, nothing."""

    def begin(self, cells: int, steps: int) -> None:
        """The work ahead: cells, and environment steps of them all."""

    def unit_began(self, unit: Unit) -> None:
        """A unit is under way."""

    def progress(self, name: str, step: int, text: str) -> None:
        """A unit has come to `step` (of each agent)."""

    def unit_ended(self, unit: Unit, written: int) -> None:
        """A unit is over, and gave so many results."""

    def say(self, text: str) -> None:
        """Something to read."""


@dataclass
class _Running:
    """A unit under way, and the claims on those of its cells that are to be written."""

    unit: Unit
    claims: dict[Cell, filelock.BaseFileLock]
    attempts: int = 0

    def release(self) -> None:
        for claim in self.claims.values():
            claim.release()


def run_cells(
    store: Store,
    cells: Sequence[Cell],
    workers: Workers,
    display: Display,
    population: int,
    mix: bool,
    keep_agents: bool = False,
) -> Tally:
    """Computes every cell that is not in the store and that nobody else is computing.

    At most `population` agents train together, of several setups if they may `mix` (worth it on a GPU). The agents
    themselves are stored, too, if `keep_agents`.
    """
    cells = list(dict.fromkeys(cells))
    todo = store.missing(cells)
    tally = Tally(there=len(cells) - len(todo))
    display.begin(len(todo), sum(setup.config.whole_steps for setup, _ in todo))
    pending = cut_off(store, cells, todo)
    known = {cell for unit in pending for cell in unit.cells}
    shares = workers.capacity if workers.apart else 1
    pending += split([cell for cell in todo if cell not in known], population, mix, shares)
    running: dict[Future[Outcome], _Running] = {}

    def submit(one: _Running) -> None:
        one.attempts += 1
        unit = dataclasses.replace(one.unit, keep_agents=keep_agents)
        running[workers.submit(unit, unit.folder(store))] = one

    def fail(one: _Running, why: str) -> None:
        tally.failures.append(f"{one.unit.name}: {why}")
        one.release()
        display.unit_ended(one.unit, 0)

    with contextlib.ExitStack() as stack:
        while pending or running:
            while pending and len(running) < workers.capacity:
                began, again = _begin(store, pending.pop(0), tally, mix)
                pending[:0] = again
                if began is not None:
                    stack.callback(began.release)
                    display.unit_began(began.unit)
                    submit(began)
            finished = concurrent.futures.wait(running, timeout=0.3, return_when=concurrent.futures.FIRST_COMPLETED)
            for name, step, text in workers.news():
                display.progress(name, step, text)
            for future in finished.done:
                one = running.pop(future)
                try:
                    _finish(store, one, future.result(), tally, display)
                except workers.deaths:
                    if one.attempts < ATTEMPTS:
                        display.say(f"A process died; {one.unit.name} continues from its last checkpoint.")
                        submit(one)
                    else:
                        fail(one, f"its process died {ATTEMPTS} times. Is it running out of memory?")
                except Exception as error:  # whatever it is, the other units go on
                    fail(one, sentence(error))
    return tally


def _begin(store: Store, unit: Unit, tally: Tally, mix: bool) -> tuple[_Running | None, list[Unit]]:
    """Claims a unit's cells.

    Returns:
        The unit with its claims; or, if only some of its cells are to be had, smaller units in its place.
    """
    missing = [cell for cell in unit.cells if not store.has(cell)]
    running, taken = _Running(unit, {}), 0
    for cell in missing:
        if (claim := store.claim(cell)) is None:
            taken += 1
        elif store.has(cell):  # finished between the look and the claim
            claim.release()
        else:
            running.claims[cell] = claim
    own, begun = list(running.claims), unit.folder(store).is_dir()
    if own and (len(own) == len(unit.cells) or (begun and not taken)):
        # Whole; or cut off earlier, with some cells written since, which go along because the checkpoint has them.
        unit.note(store)
        return running, []
    running.release()
    if begun and taken:  # somebody is at it, or at some of its cells: leave it to them
        tally.elsewhere += len(missing)
        return None, []
    tally.elsewhere += taken
    return None, split(own, len(unit.cells), mix)


def _finish(store: Store, one: _Running, outcome: Outcome, tally: Tally, display: Display) -> None:
    wanted = [(setup, result) for setup, result in outcome.results if (setup, result.seed) in one.claims]
    for cell, model in outcome.agents:
        if cell in one.claims:
            store.write_agent(cell, model)
    for setup, result in wanted:  # last: a cell that is there is not computed again
        store.write(setup, result)
    one.unit.discard(store)
    one.release()  # last: whoever claims a cell that got no result does not meet the old folder
    tally.done += len(wanted)
    tally.failures += outcome.failures
    display.unit_ended(one.unit, len(wanted))


def sentence(error: Exception) -> str:
    """What went wrong: our own errors speak for themselves, of others the first line."""
    error = getattr(error, "cause", None) or error  # Ray wraps it
    if isinstance(error, MccltError):
        return str(error)
    return " ".join([f"{type(error).__name__}:", *str(error).splitlines()[:1]])
