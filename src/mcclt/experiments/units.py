"""Units: agents that train together, and how a plan is split into them."""

import dataclasses
import hashlib
import json
import math
import shutil
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from mcclt.config import CHANGEABLE, POLICY_SHAPE, RunConfig
from mcclt.experiments.cells import file_name
from mcclt.experiments.results import Result, grouped
from mcclt.experiments.setups import Setup
from mcclt.experiments.store import Cell, Store
from mcclt.storage import files

IN_COMMON = ("steps", "final_episodes", *CHANGEABLE, *POLICY_SHAPE)
"""What agents of one unit must have in common, besides the task."""


@dataclass(frozen=True)
class Unit:
    """Agents that train together in one process: setups x seeds on one task."""

    setups: tuple[Setup, ...]
    seeds: tuple[int, ...]
    keep_agents: bool = False
    """Whether what they have become is wanted, too."""

    @property
    def config(self) -> RunConfig:
        """The run that trains them. An agent whose environment fails is stopped; the others go on."""
        groups = {name: agent for setup in self.setups for name, agent in setup.config.groups.items()}
        return dataclasses.replace(self.setups[0].config, seeds=self.seeds, groups=groups, on_nan="stop")

    @property
    def cells(self) -> list[Cell]:
        """Setup by setup."""
        return [(setup, seed) for setup in self.setups for seed in self.seeds]

    @property
    def keys(self) -> list[tuple[str, str, str, int]]:
        """The cells' names."""
        return [(*setup.key, seed) for setup, seed in self.cells]

    @property
    def name(self) -> str:
        """The same for the same agents: a unit that was cut off is found again by it."""
        digest = hashlib.blake2b(json.dumps(self.keys).encode(), digest_size=4).hexdigest()
        what = self.setups[0].name if len(self.setups) == 1 else f"{len(self.setups)}-variants"
        return f"{file_name(self.setups[0].task)}__{what}__{digest}"

    def folder(self, store: Store) -> Path:
        """Where its training is kept while it is under way."""
        return store.path / "work" / self.name

    def note(self, store: Store) -> None:
        """Says which agents the folder holds, so that another plan that wants them can go on with it."""
        files.write_atomically(_beside(self.folder(store), ".json"), json.dumps(self.keys).encode())

    def discard(self, store: Store) -> None:
        """Removes its training, and what is beside it."""
        folder = self.folder(store)
        shutil.rmtree(folder, ignore_errors=True)
        for file in (_beside(folder, ".json"), lock_of(folder)):
            file.unlink(missing_ok=True)


@dataclass(frozen=True)
class Outcome:
    """What a unit gave."""

    results: list[tuple[Setup, Result]]
    failures: list[str]
    """Why an agent has no result, in one sentence each."""
    agents: list[tuple[Cell, bytes]] = field(default_factory=list)
    """Models, compressed, of those that have one, if they were wanted."""


def _beside(folder: Path, suffix: str) -> Path:
    return folder.with_name(folder.name + suffix)


def lock_of(folder: Path) -> Path:
    """Held by the process that trains in a folder."""
    return _beside(folder, ".lock")


def split(cells: Sequence[Cell], population: int, mix: bool, workers: int = 1) -> list[Unit]:
    """Cells as units of at most `population` agents, in order.

    A unit may hold several setups, where the same seeds are wanted of them, if these may `mix`. With several `workers`
    that train units side by side no unit has more than its share of all agents, and the largest come first.
    """
    seeds = grouped(cells)

    def shared(setup: Setup) -> tuple[Any, ...]:
        common = (setup.task, *(str(setup.settings[name]) for name in IN_COMMON))
        return seeds[setup], common, None if mix else setup

    together = grouped((shared(setup), setup) for setup in seeds)
    units = []
    for setups in together.values():
        for some in _chunks(setups, population):
            share = math.ceil(len(cells) / workers / len(some))
            size = max(1, min(population // len(some), share))
            units += [Unit(some, part) for part in _chunks(seeds[some[0]], size)]
    return units if workers == 1 else sorted(units, key=lambda unit: -len(unit.cells))  # so that they end together


def _chunks(items: Sequence[Any], size: int) -> list[tuple[Any, ...]]:
    return [tuple(items[i : i + size]) for i in range(0, len(items), size)]


def cut_off(store: Store, cells: Sequence[Cell], todo: Sequence[Cell]) -> list[Unit]:
    """Units whose training is in the store half-done, of the setups of a plan; none has a cell of another.

    Each has at least one of those of the plan's cells that have no result, `todo`.
    """
    setups, wanted = {setup.key: setup for setup, _ in cells}, set(todo)
    found: list[Unit] = []
    taken: set[Cell] = set()
    for note in sorted((store.path / "work").glob("*.json")):
        try:
            keys = json.loads(note.read_text(encoding="utf-8"))
            own = [(setups[str(t), str(n), str(d)], int(seed)) for t, n, d, seed in keys]
        except (OSError, ValueError, TypeError, KeyError):
            continue  # another plan's, or not ours to judge; the same unit is found again by its name
        unit = Unit(tuple(dict.fromkeys(setup for setup, _ in own)), tuple(dict.fromkeys(seed for _, seed in own)))
        if not wanted.isdisjoint(own) and taken.isdisjoint(own) and unit.folder(store).is_dir():
            found.append(unit)
            taken.update(own)
    return found
