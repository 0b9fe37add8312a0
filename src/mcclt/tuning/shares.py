"""A search in several processes, on one machine or many: each trains a share of the agents, one desk judges them all.

A share is a `Tuner` of its own, with its pool and its checkpoint, which asks the desk (a coordinator) for settings and
which of them continue; it never waits for another. The desk writes down every answer before it gives it, and repeats it
if asked again: so a share that dies, or a whole search that is killed, continues from its last checkpoint (or, on a
machine that cannot see the search's directory, from its beginning) as if nothing had happened.
"""

import collections
import concurrent.futures
import dataclasses
import json
import math
import os
import shutil
import tempfile
import threading
import uuid
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import filelock

from mcclt import interrupts
from mcclt.errors import ConfigError, MccltError
from mcclt.experiments.runner import sentence
from mcclt.experiments.workers import ATTEMPTS, Crew, in_a_worker
from mcclt.storage import files
from mcclt.tuning import search
from mcclt.tuning.search import TRAINING, Plan, Search, Trial
from mcclt.tuning.space import Space
from mcclt.tuning.tuner import SHARES, Status, Tuner, searches_of

LOOK_SECONDS = 1.0
"""How often the desk is asked how far the shares are."""
SAVE_SECONDS = 60
"""How long a search that is interrupted waits for its shares to save."""

Found = tuple[int, float, list[list[float]]]
"""Of a trial at a rung: which rung, its score there, and its agents' curves."""


class Count(NamedTuple):
    """How far a share is."""

    steps: int
    given: int
    """Steps of all its places, busy or not."""
    busy: int
    places: int
    seconds: float
    compiling: float


class Desk:
    """Says which settings are tried next and which go on, to all shares of a search; remembers across its own death."""

    def __init__(self, plan: Plan, spaces: Sequence[Space], folder: Path) -> None:
        """Begins, or goes on with what `folder` has written down."""
        self.searches = searches_of(plan, spaces)
        self._given: dict[tuple[int, int], list[int]] = collections.defaultdict(list)
        self._counts: dict[int, Count] = {}
        self._stop, self._lock = False, threading.Lock()
        folder.mkdir(parents=True, exist_ok=True)
        self._journal = folder / "journal.jsonl"
        self._journal.touch()
        *lines, cut_short = self._journal.read_bytes().splitlines(keepends=True) or [b""]
        if cut_short.endswith(b"\n"):
            lines.append(cut_short)
        for line in lines:
            self._enter(json.loads(line))
        os.truncate(self._journal, sum(map(len, lines)))  # what was cut short has not been answered

    def ask(self, share: int, which: int, have: int) -> tuple[int, dict[str, float]] | None:
        """The next setting of a structure for a share that has had so many: its number and its point; None: no more."""
        with self._lock:
            given, one = self._given[share, which], self.searches[which]
            if have == len(given):
                number = len(one.trials)
                if number >= one.plan.trials:
                    return None
                self._note({"share": share, "which": which, "number": number, "point": one.sample(number)})
            return given[have], one.trials[given[have]].point

    def judge(self, which: int, found: Mapping[int, Found]) -> dict[int, tuple[str, str]]:
        """Trials of a share have come to a rung: the state of each from then on, and why."""
        with self._lock:
            trials = self.searches[which].trials
            new = {n: f for n, f in found.items() if trials[n].state == TRAINING and len(trials[n].scores) == f[0]}
            if new:
                self._note({"which": which, "found": new})
            gone_on = {n: len(trials[n].scores) > rung + 1 for n, (rung, _, _) in found.items()}
            return {n: (TRAINING, "") if gone_on[n] else (trials[n].state, trials[n].why) for n in found}

    def fail(self, which: int, number: int, why: str) -> None:
        """The environment of a trial failed."""
        with self._lock:
            if self.searches[which].trials[number].state == TRAINING:
                self._note({"which": which, "failed": number, "why": why})

    def count(self, share: int, count: Count) -> bool:
        """A share is so far; whether it is to stop."""
        self._counts[share] = count
        return self._stop

    def stop(self) -> None:
        """Has every share save its state and end."""
        self._stop = True

    def look(self) -> tuple[list[list[Trial]], dict[int, Count]]:
        """All trials, without their curves, and how far the shares are."""
        with self._lock:
            return [[dataclasses.replace(t, curves=[]) for t in one.trials] for one in self.searches], {**self._counts}

    def trials(self) -> list[list[Trial]]:
        """All trials of each structure."""
        with self._lock:
            return [one.trials for one in self.searches]

    def _note(self, event: dict[str, Any]) -> None:
        line = json.dumps(event)
        with self._journal.open("ab", buffering=0) as file:
            files.append(file, f"{line}\n".encode(), durably=True)
        self._enter(json.loads(line))

    def _enter(self, event: dict[str, Any]) -> None:
        one = self.searches[event["which"]]
        if "point" in event:
            self._given[event["share"], event["which"]].append(one.begin(event["number"], event["point"]).number)
        elif "failed" in event:
            one.fail(event["failed"], event["why"])
        else:
            found = {int(number): value for number, value in event["found"].items()}
            for number, (_, _, curves) in found.items():
                one.trials[number].curves = curves
            one.judge({number: score for number, (_, score, _) in found.items()})


class _Asking(Search):
    """The trials of one structure that a share has been given."""

    def __init__(self, one: Search, desk: Any, share: int, which: int) -> None:
        super().__init__(one.plan, one.space, one.structure)
        self._desk, self._share, self._which = desk, share, which

    def trial(self, number: int) -> Trial:
        return next(trial for trial in self.trials if trial.number == number)

    def ask(self) -> Trial | None:
        given = self._desk.ask(self._share, self._which, len(self.trials))
        return None if given is None else self.begin(*given)

    def judge(self, found: Mapping[int, float]) -> None:
        if not found:
            return
        trials = {number: self.trial(number) for number in found}
        told = {number: (len(t.scores), found[number], t.curves) for number, t in trials.items()}
        for number, (state, why) in self._desk.judge(self._which, told).items():
            trials[number].scores.append(found[number])
            trials[number].state, trials[number].why = state, why

    def fail(self, number: int, why: str) -> None:
        self._desk.fail(self._which, number, why)
        self.trial(number).state, self.trial(number).why = search.FAILED, why


class Share(Tuner):
    """One of `shares` parts of the places of a search, in a directory of its own."""

    def __init__(
        self, plan: Plan, spaces: Sequence[Space], folder: Path, desk: Any, share: int, shares: int, **how: Any
    ) -> None:
        """See `Tuner`."""
        super().__init__(plan, spaces, folder, **how)
        self.at_once = min(self.at_once, math.ceil(plan.trials / shares))
        self._desk, self._share = desk, share
        self.searches = [_Asking(one, desk, share, i) for i, one in enumerate(self.searches)]

    def run(self, tell: Callable[[Status], None] = lambda status: None) -> list[Trial]:
        """Until the desk has no more settings; tells it how far it is."""

        def count(status: Status) -> None:
            tell(status)
            own = Count(self._steps, self._given_steps, status.busy, status.places, self._seconds, self._compiling)
            if self._desk.count(self._share, own):
                raise KeyboardInterrupt

        found = super().run(count)
        count(self.status)
        return found


def search_share(
    plan: Plan,
    spaces: Sequence[Space],
    folder: Path,
    name: str,
    desk: Any,
    share: int,
    shares: int,
    how: dict[str, Any],
) -> None:
    """Works at a share in a process of its own; in the search's directory, if this machine sees it."""
    with in_a_worker(), tempfile.TemporaryDirectory() as own:
        named = folder / "name"
        there = folder if named.exists() and named.read_text() == name else Path(own)
        with filelock.FileLock(there / f"{share}.lock"):  # whoever had it before may not have noticed its end yet
            Share(plan, spaces, there / str(share), desk, share, shares, **how).run()


class SharedTuner(Tuner):
    """A search whose places are with several workers."""

    def __init__(self, plan: Plan, space: Space | Sequence[Space], folder: str | Path, crew: Crew, **how: Any) -> None:
        """Opens the directory; see `Tuner`. `places` are those of each worker."""
        if plan.strategy == "pbt":
            raise ConfigError("pbt copies agents between places, so it needs a single process: use halving.")
        super().__init__(plan, space, folder, **how)
        self._crew, self._how = crew, how
        self._shares = min(crew.capacity, plan.trials)
        self.at_once = min(self.at_once * self._shares, plan.trials)
        self._counts: dict[int, Count] = {}

    def run(self, tell: Callable[[Status], None] = lambda status: None) -> list[Trial]:
        """Has the shares worked at to the end; returns all trials, the best first."""
        folder = (self.folder / SHARES).absolute()
        if (stored := self._stored()) is not None:
            if stored[1]["search"]["which"] < len(self.searches):
                raise ConfigError(
                    f"{self.folder} holds a search in one process: continue without --workers and --backend ray."
                )
            shutil.rmtree(folder, ignore_errors=True)
            return super().run(tell)
        name, self._shares = self._name(folder)
        desk = self._crew.host(Desk, self.plan, self.spaces, folder)
        with interrupts.deferred():
            try:
                self._work(desk, tell, folder, name)
            finally:
                for one, trials in zip(self.searches, desk.trials(), strict=True):
                    one.trials = trials
        self._save(len(self.searches), None, [])
        shutil.rmtree(folder, ignore_errors=True)
        return self.trials

    def _name(self, folder: Path) -> tuple[str, int]:
        """What tells this directory from any other of that path, and how many shares it was begun with."""
        path = folder / "name"
        if not path.exists():
            files.write_atomically(path, f"{self._shares} {uuid.uuid4().hex}".encode())
        name = path.read_text()
        return name, int(name.split()[0])

    def _work(self, desk: Any, tell: Callable[[Status], None], folder: Path, name: str) -> None:
        waiting, attempts = collections.deque(range(self._shares)), collections.Counter[int]()
        running: dict[concurrent.futures.Future[None], int] = {}
        try:
            while waiting or running:
                interrupts.check()
                while waiting and len(running) < self._crew.capacity:
                    share = waiting.popleft()
                    attempts[share] += 1
                    work = (self.plan, self.spaces, folder, name, desk, share, self._shares, self._how)
                    running[self._crew.call(search_share, *work)] = share
                ended = concurrent.futures.wait(running, LOOK_SECONDS, concurrent.futures.FIRST_COMPLETED)
                self._look(desk, tell)
                for future in ended.done:
                    share = running.pop(future)
                    try:
                        future.result()
                    except self._crew.deaths:
                        if attempts[share] == ATTEMPTS:
                            raise MccltError(
                                f"A process of the search died {ATTEMPTS} times. Is it running out of memory?"
                            ) from None
                        waiting.append(share)
                    except Exception as error:
                        raise MccltError(sentence(error)) from None
        finally:
            desk.stop()
            concurrent.futures.wait(running, SAVE_SECONDS)

    def _look(self, desk: Any, tell: Callable[[Status], None]) -> None:
        """Says how far all shares are together, if any has come further."""
        trials, counts = desk.look()
        if counts == self._counts:
            return
        for one, own in zip(self.searches, trials, strict=True):
            one.trials = own
        self._counts = counts
        self._steps, self._given_steps = (sum(column) for column in list(zip(*counts.values(), strict=True))[:2])
        self._seconds, self._compiling = (max(column) for column in list(zip(*counts.values(), strict=True))[4:])
        tell(self.status)

    @property
    def status(self) -> Status:
        """Of all shares together."""
        busy, places = (sum(getattr(count, name) for count in self._counts.values()) for name in ("busy", "places"))
        return dataclasses.replace(super().status, busy=busy, places=places)
