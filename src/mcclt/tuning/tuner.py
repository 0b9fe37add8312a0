"""A search carried out: trials get places in a pool, are judged at the rungs, and make room for others.

Everything is in one directory: `search.json`, what was declared; `checkpoint.safetensors`, agents and trials in one
file, from which a search that was cut off goes on exactly; and at the end `trials.json`, `best.toml` and the page.
"""

import contextlib
import dataclasses
import json
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from mcclt import interrupts
from mcclt.config import RunConfig, with_decay
from mcclt.envs import make_vec
from mcclt.errors import ConfigError, MccltError, MissingExtraError
from mcclt.experiments.cells import plain
from mcclt.experiments.runner import Tally
from mcclt.experiments.store import Cell, Store
from mcclt.storage import checkpoint, files
from mcclt.training.population import on_cpu, usual_size
from mcclt.training.trainer import TRAINING as AGENT_TRAINS
from mcclt.training.trainer import Place, learners_of
from mcclt.tuning import confirm, search
from mcclt.tuning.confirm import Confirmed
from mcclt.tuning.pool import GROUP, Pool
from mcclt.tuning.search import Plan, Search, Trial, score_of
from mcclt.tuning.space import Space, configured

CHECKPOINT = "checkpoint.safetensors"
SHARES = "shares"
"""The folder of a search that goes on in several processes, see `mcclt.tuning.shares`."""
SAVE_SECONDS = 30
"""A checkpoint at most this often (and at every rung)."""


@dataclass(frozen=True)
class Status:
    """Where a search is."""

    steps: int
    """Environment steps of all agents so far."""
    expected: int
    """Of the whole search, about."""
    trials: tuple[Trial, ...]
    """Begun so far."""
    planned: int
    """Settings to try in all."""
    busy: int
    """Places in which an agent trains now."""
    places: int
    occupancy: float
    """Share of all places, over the whole search, in which an agent trained that was wanted."""
    seconds: float
    """So far, compiling included."""
    compiling: float
    """Of them, those up to the end of the first update."""
    best: Trial | None


def searches_of(plan: Plan, spaces: Sequence[Space]) -> list[Search]:
    """One for each structure of each space."""
    return [Search(plan, space, structure) for space in spaces for structure in space.all_structures()]


class Tuner:
    """One search in a directory: begun, or continued."""

    def __init__(
        self,
        plan: Plan,
        space: Space | Sequence[Space],
        folder: str | Path,
        *,
        places: int | None = None,
        engine: str = "auto",
        threads: int | None = None,
        env: object | None = None,
    ) -> None:
        """Opens the directory; refuses that of another search.

        Args:
            plan: what is declared.
            space: where to search; several (see `Space.side_by_side`), one after the other.
            folder: everything is kept there.
            places: agents that train at once; unset: 8 on a CPU, up to 360 on a GPU.
            engine: what steps the task.
            threads: that step the environments.
            env: a `gymnasium.Env` class or factory to use in place of the id `plan.task`.
        """
        self.plan, self.folder, self._env = plan, Path(folder), env
        self.spaces = (space,) if isinstance(space, Space) else tuple(space)
        wanted = places if places is not None else max(usual_size(gpu=not on_cpu()), plan.seeds)
        if wanted < plan.seeds:
            raise ConfigError(f"places = {wanted} is not allowed: each setting needs {plan.seeds}, one for every seed.")
        self.at_once = plan.trials if plan.strategy == "pbt" else min(wanted // plan.seeds, plan.most_at_once)
        self._run = RunConfig(
            plan.task,
            steps=plan.rungs[-1],
            engine=engine,
            threads=threads,
            eval_freq=0,
            final_episodes=0,
            on_nan="stop",
        )
        self.searches = searches_of(plan, self.spaces)
        self._steps = self._given_steps = 0
        self._seconds = self._compiling = 0.0
        self._tick = time.perf_counter()
        self._saved = 0.0
        self._check()
        self._declare()

    @property
    def declared(self) -> dict[str, Any]:
        """What is searched and how, as plain data."""
        spaces = [
            {
                "search": {name: dataclasses.asdict(one) for name, one in space.searched.items()},
                "fixed": space.fixed,
            }
            for space in self.spaces
        ]
        space = spaces[0] if len(spaces) == 1 else spaces
        return json.loads(json.dumps({"plan": dataclasses.asdict(self.plan), "space": space}))

    def _check(self) -> None:
        """Refuses a structure that no agent on this task can have, before anything is written or trained."""
        source = self.plan.task if self._env is None else self._env
        with contextlib.closing(make_vec(source, [(0, 0, 0, 0)])) as env:
            for one in self.searches:
                learners_of(with_decay(self._config(one)), env.spec)

    def _declare(self) -> None:
        path = self.folder / "search.json"
        if path.exists():
            try:
                stored = json.loads(files.read(path))
            except (OSError, ValueError):
                raise ConfigError(f"{path} cannot be read: give another directory, or remove this one.") from None
            if stored != self.declared:
                raise ConfigError(
                    f"{self.folder} holds another search (see search.json in it): repeat that command to continue it, "
                    "or give another --store."
                )
        elif self.folder.is_file():
            raise ConfigError(f"{self.folder} is a file: give a directory as --store.")
        elif self.folder.is_dir() and any(self.folder.iterdir()):
            raise ConfigError(f"{self.folder} is not empty but holds no search: give another --store.")
        else:
            files.write_atomically(path, json.dumps(self.declared, indent=1).encode())

    # --- the search ----------------------------------------------------------------------------------------

    def run(self, tell: Callable[[Status], None] = lambda status: None) -> list[Trial]:
        """Searches to the end, or goes on to it; returns all trials, the best first.

        Whatever ends it early (Ctrl-C, kill -9), the same search goes on from its last checkpoint.
        """
        if (self.folder / SHARES).exists() and self._stored() is None:
            raise ConfigError(
                f"{self.folder} holds a search by several processes: continue it with --workers or --backend ray."
            )
        with interrupts.deferred():
            for which, one in enumerate(self.searches):
                self._search(which, one, tell)
        return self.trials

    @property
    def trials(self) -> list[Trial]:
        """Of all structures, the best first."""
        found = [trial for one in self.searches for trial in one.trials]
        return sorted(found, key=lambda trial: (trial.state != search.FAILED, *trial.rank), reverse=True)

    def best(self) -> list[Trial]:
        """Those with a score so far, the very best first."""
        return [trial for trial in self.trials if trial.scores and trial.state != search.FAILED]

    def confirm(
        self,
        seeds: Sequence[int] = range(confirm.FIRST_SEED, confirm.FIRST_SEED + 10),
        count: int = 3,
        episodes: int = 100,
        train: Callable[[Store, Sequence[Cell]], Tally] = confirm.train,
    ) -> list[Confirmed]:
        """Trains the best few and the default again, on seeds that the search has not seen.

        Args:
            seeds: fresh ones.
            count: how many of the best.
            episodes: deterministic ones of each agent at the end.
            train: what computes the cells that a store has not.

        Returns:
            The default first, then the settings by falling interquartile mean over seeds.
        """
        confirm.check_fresh(self.plan, seeds)
        best = self.best()[:count]
        if not best or self._env is not None:
            lacks = "a setting with a score" if not best else "a task that is named, such as my_env.py:MyEnv"
            raise ConfigError(f"A confirmation needs {lacks}.")
        setups = confirm.setups(self.plan, best, episodes, self._run.engine)
        cells = [(setup, seed) for setup in setups for seed in seeds]
        store = Store(self.folder / "confirmed", create=True)
        tally = train(store, cells)
        if found := confirm.outcome(store, cells, best):
            return found
        raise MccltError(f"Nothing could be confirmed: {next(iter(tally.failures), 'another process is at it.')}")

    def steps_per_update(self, trial: Trial) -> int:
        """Of a trial's agents."""
        return configured(self._run, trial.settings)[0].steps_per_update

    def _search(self, which: int, one: Search, tell: Callable[[Status], None]) -> None:
        """All trials of one structure."""
        pool, seats = self._open(which, one)
        if pool is None:
            return
        try:
            while any(number is not None for number in seats):
                interrupts.check()
                pool.advance()
                self._count(pool, seats)
                self._note(pool, one, seats)
                tell(self._status(seats))
                changed = self._judge(pool, one, seats)
                if changed:
                    pool, seats = self._reseat(pool, one, seats)
                if changed or time.perf_counter() - self._saved > SAVE_SECONDS:
                    self._save(which, pool, seats)
        except KeyboardInterrupt:
            self._save(which, pool, seats)
            raise
        finally:
            pool.close()
        self._save(which + 1, None, [])

    def _places(self, trial: Trial) -> list[Place]:
        agent = configured(self._run, trial.settings)[1]
        return [Place(GROUP, self.plan.first_seed + seed, agent) for seed in range(self.plan.seeds)]

    def _open(self, which: int, one: Search) -> tuple[Pool | None, list[int | None]]:
        """A pool with the first trials, or that of the last checkpoint; None if nothing is left of this structure."""
        stored = self._stored()
        if stored is not None:
            arrays, meta = stored
            about = meta["search"]
            for each, data in zip(self.searches, about["trials"], strict=True):
                each.trials = search.from_data(data)
            self._steps, self._given_steps = about["steps"]
            self._seconds, self._compiling = about["seconds"]
            if which < about["which"]:
                return None, []
            if about["seats"]:
                seats = about["seats"]
                places = [place for number in seats for place in self._stored_places(one, number)]
                begun = [dataclasses.replace(p, begun=b) for p, b in zip(places, about["begun"], strict=True)]
                pool = Pool(self._config(one), begun, self._env)
                pool.restore(arrays, meta, self.folder / CHECKPOINT)
                return pool, seats
        trials = [trial for _ in range(self.at_once) if (trial := one.ask()) is not None]
        if not trials:  # others have them all
            return None, []
        places = [place for trial in trials for place in self._places(trial)]
        return Pool(self._config(one), places, self._env), [trial.number for trial in trials]

    def _stored(self) -> tuple[dict[str, np.ndarray], dict[str, Any]] | None:
        """The last checkpoint, if there is one."""
        path = self.folder / CHECKPOINT
        return checkpoint.load(path) if path.exists() else None

    def _stored_places(self, one: Search, number: int | None) -> list[Place]:
        """Of the trial in a seat; an empty one is filled with any agent, which nobody looks at."""
        return self._places(one.trials[0] if number is None else one.trial(number))

    def _config(self, one: Search) -> RunConfig:
        run, agent = one.space.middle(self._run, one.structure)
        return dataclasses.replace(run, groups={GROUP: agent})

    def _count(self, pool: Pool, seats: list[int | None]) -> None:
        now = time.perf_counter()
        self._seconds, self._tick = self._seconds + now - self._tick, now
        self._compiling = self._compiling or self._seconds
        per_agent = pool.config.steps_per_update
        busy = sum(number is not None for number in seats) * self.plan.seeds
        self._steps += busy * per_agent
        self._given_steps += len(pool.places) * per_agent

    def _note(self, pool: Pool, one: Search, seats: list[int | None]) -> None:
        """Adds this update to the curves; ends trials of which an agent was stopped by its environment."""
        for seat, number in enumerate(seats):
            if number is None:
                continue
            trial, own = one.trial(number), range(seat * self.plan.seeds, (seat + 1) * self.plan.seeds)
            trial.curves = trial.curves or [[] for _ in own]
            for curve, i in zip(trial.curves, own, strict=True):
                curve.append(float(np.mean(pool.stats.returns[i])) if pool.stats.returns[i] else np.nan)
            if stopped := [pool.status[i] for i in own if pool.status[i] != AGENT_TRAINS]:
                one.fail(number, stopped[0])

    def _judge(self, pool: Pool, one: Search, seats: list[int | None]) -> bool:
        """Scores the trials that have come to a rung; whether any of them leaves its seat or goes on with others'."""
        judged: dict[int, float] = {}
        while found := self._due(pool, one, seats):  # an update may reach several rungs
            one.judge(found)
            judged |= found
        if judged and self.plan.strategy == "pbt":
            left = [number for number in judged if one.trial(number).state == search.TRAINING]
            copies = one.exploit(left) if len(left) >= search.QUARTER else {}
            agents = {seats.index(n): (seats.index(m), configured(self._run, s)[1]) for n, (m, s) in copies.items()}
            pool.copy(agents)
        return bool(judged) or any(n is not None and one.trial(n).state != search.TRAINING for n in seats)

    def _due(self, pool: Pool, one: Search, seats: list[int | None]) -> dict[int, float]:
        """The scores of the trials that have come to their next rung."""
        found = {}
        for seat, number in enumerate(seats):
            if number is None or one.trial(number).state != search.TRAINING:
                continue
            trial = one.trial(number)
            step = pool.ages[seat * self.plan.seeds] * pool.config.steps_per_update
            if step >= self.plan.rungs[len(trial.scores)]:
                found[number] = score_of(trial.curves, self.plan.score)
        return found

    def _reseat(self, pool: Pool, one: Search, seats: list[int | None]) -> tuple[Pool, list[int | None]]:
        """Gives the seats of trials that are over to new ones; without any, makes the pool smaller if that pays."""
        seeds = self.plan.seeds
        newcomers: dict[int, Place] = {}
        for seat, number in enumerate(seats):
            if number is not None and one.trial(number).state == search.TRAINING:
                continue
            trial = one.ask() if self.plan.strategy == "halving" else None
            seats[seat] = None if trial is None else trial.number
            if trial is not None:
                newcomers |= {seat * seeds + i: place for i, place in enumerate(self._places(trial))}
        pool.renew(newcomers)
        taken = [seat for seat, number in enumerate(seats) if number is not None]
        few = 2 if pool.spec.resumable else 4  # where episodes start anew and programs are compiled again, it must pay
        if taken and few * len(taken) <= len(seats):
            pool = pool.only([seat * seeds + i for seat in taken for i in range(seeds)])
            seats = [seats[seat] for seat in taken]
        return pool, seats

    # --- what is kept --------------------------------------------------------------------------------------

    def _save(self, which: int, pool: Pool | None, seats: list[int | None]) -> None:
        arrays, meta = ({}, {}) if pool is None else pool.to_checkpoint()
        about = {
            "which": which,
            "seats": seats,
            "begun": [] if pool is None else [place.begun for place in pool.places],
            "trials": [one.to_data() for one in self.searches],
            "steps": [self._steps, self._given_steps],
            "seconds": [self._seconds, self._compiling],
        }
        checkpoint.save(self.folder / CHECKPOINT, arrays, {**meta, "search": about})
        self._saved = time.perf_counter()

    def export(self) -> None:
        """Writes all trials: `trials.json`, and `optuna.log` for Optuna's dashboard, if that is installed."""
        trials = [dataclasses.asdict(trial) | {"curves": plain(trial.curves, 5)} for trial in self.trials]
        found = {"steps": self._steps, "seconds": round(self._seconds, 1), "trials": trials}
        files.write_atomically(self.folder / "trials.json", json.dumps(found).encode())
        try:
            optuna = search.import_optuna("The study")
        except MissingExtraError:
            return
        path = self.folder / "optuna.log"
        path.unlink(missing_ok=True)
        storage = optuna.storages.JournalStorage(optuna.storages.journal.JournalFileBackend(str(path)))
        for one in self.searches:
            words = " ".join(f"{name}={value}" for name, value in one.structure.items())
            one.study(optuna, storage=storage, name=" ".join([self.plan.task, words]).strip())

    @property
    def status(self) -> Status:
        """Where the search is, between two updates or at its end."""
        return self._status([])

    def _status(self, seats: list[int | None]) -> Status:
        best = self.best()
        return Status(
            steps=self._steps,
            expected=self.plan.expected_steps * len(self.searches),
            trials=tuple(trial for each in self.searches for trial in each.trials),
            planned=self.plan.trials * len(self.searches),
            busy=sum(number is not None for number in seats) * self.plan.seeds,
            places=len(seats) * self.plan.seeds,
            occupancy=self._steps / max(self._given_steps, 1),
            seconds=self._seconds,
            compiling=self._compiling,
            best=best[0] if best else None,
        )
