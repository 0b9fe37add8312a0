"""A store: one directory of results, each written once and whole.

STORE/store.json                              what this directory is
STORE/cells/TASK/ALGO-VARIANT/DIGEST/
    settings.json                             every setting of the setup
    seed-0.json                               one agent: returns, curve, probe, cost, provenance, checksum
STORE/cells/TASK.json.xz                      the same of any number of a task's agents in one file; see `pack`
STORE/agents/…/seed-0.safetensors.xz          agents that were kept (--keep-agents), each a model
STORE/timings/*.json                          measured costs (table 2)
STORE/work/                                   trainings under way and locks; may be deleted when nothing runs

Any number of processes may share a store: a cell is computed by whoever holds its lock (`claim`), which the
operating system frees when that process ends, however it ends.
"""

import contextlib
import itertools
import json
import os
import re
import secrets
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any, TypeVar

import filelock

from mcclt.config import UNSTATED
from mcclt.experiments import cells as cell_files
from mcclt.experiments import pack
from mcclt.experiments.cells import StoreError, encode, file_name, place, refusals
from mcclt.experiments.pack import Pack, clashes, pack_of
from mcclt.experiments.results import Result, Results, gather
from mcclt.experiments.setups import Setup
from mcclt.storage import files

FORMAT = "mcclt-store"
VERSION = 1
Cell = tuple[Setup, int]
"""A setup and a seed."""
SETTLED = 2.0
"""Seconds after which another write of a file is sure to be seen in its time."""
_LEFT = re.compile(r"work|store\.json|\.store\.json\..*")
_Found = TypeVar("_Found")


class Store:
    """A directory of results."""

    def __init__(self, path: str | Path, create: bool = False) -> None:
        """Opens a store; if there is none, makes one (`create`) or says so."""
        self.path = path = Path(path)
        self._known: dict[Path, tuple[tuple[int, ...], Any]] = {}  # what was read, and from which version of a file
        marker = path / "store.json"
        with refusals("use the store", path):
            if create and not marker.exists():
                self._make(marker)
            try:
                text = files.read(marker)
            except FileNotFoundError:
                why = "it has no store.json" if path.exists() else "there is no such directory"
                raise StoreError(f"{path} is not a store of results: {why}.") from None
        try:
            data = json.loads(text)
            if data["format"] != FORMAT:
                raise ValueError
            self.id = str(data["id"])
            self.reproduction = data.get("reproduction") is True
            """Whether it is of the paper, and not somebody's own comparison."""
            newer = int(data["version"]) > VERSION
        except (ValueError, KeyError, TypeError, OverflowError, RecursionError):
            raise StoreError(f"{marker} was not written by mcclt: choose another --store.") from None
        if newer:
            raise StoreError(f"{path} was written by a newer version of mcclt: update it to use this store.")

    def _make(self, marker: Path) -> None:
        """Makes an empty directory a store; if several processes do so at once, one of them.

        Empty is also what is left by one who is making a store, or was killed while doing so.
        """
        if self.path.exists():
            empty = self.path.is_dir() and all(_LEFT.fullmatch(inside.name) for inside in self.path.iterdir())
            if not empty and not marker.exists():  # nor has another process made it since we looked
                raise StoreError(f"{self.path} is not a store of results, and not empty: choose another --store.")
        with self._lock():
            if not marker.exists():
                data = {"format": FORMAT, "version": VERSION, "id": secrets.token_hex(8)}
                files.write_atomically(marker, (json.dumps(data) + "\n").encode())

    def mark_reproduction(self) -> None:
        """Notes that it is one: its report then looks at the paper's claims."""
        if not self.reproduction:
            marker = self.path / "store.json"
            with self.changing(marker):
                data = json.loads(files.read(marker)) | {"reproduction": True}
                files.write_atomically(marker, (json.dumps(data) + "\n").encode())
            self.reproduction = True

    @contextlib.contextmanager
    def _lock(self) -> Iterator[None]:
        """Only one process at a time makes or changes a store; the operating system frees it when that ends."""
        work = self.path / "work"
        if not (work / ".gitignore").exists():
            files.write_atomically(work / ".gitignore", b"*\n")
        with filelock.FileLock(work / "store.lock"):
            yield

    @contextlib.contextmanager
    def changing(self, path: Path) -> Iterator[None]:
        """While cells are written or moved to or from `path`, which an error names."""
        with refusals("write", path), self._lock():
            yield

    # --- cells ---------------------------------------------------------------------------------------------

    def folder(self, setup: Setup) -> Path:
        """Where the loose results of a setup are; its pack is beside it."""
        return self.path.joinpath("cells", *place(setup))

    def file(self, cell: Cell) -> Path:
        """Where a cell's result is, or will be, while it is loose."""
        setup, seed = cell
        return self.folder(setup) / f"seed-{seed}.json"

    def has(self, cell: Cell) -> bool:
        """Whether the cell is there and undamaged."""
        path = self.file(cell)
        with contextlib.suppress(StoreError):
            self._once(path, cell_files.read_in_place)
            return True
        return path in self.packed(path.parents[2]).results

    def missing(self, cells: Sequence[Cell]) -> list[Cell]:
        """Those cells that are not there, or damaged; their setups' settings are checked."""
        for setup in dict.fromkeys(setup for setup, _ in cells):
            self.check_settings(setup)
        return [cell for cell in cells if not self.has(cell)]

    def write(self, setup: Setup, result: Result) -> Path:
        """Stores a result, once: one that is there and undamaged is kept."""
        cell = (setup, result.seed)
        path = self.file(cell)
        with self.changing(path):
            if self.has(cell):
                return path
            self.check_settings(setup)
            if path.is_dir():  # not ours; it is not deleted
                path.rename(path.with_name(f"{path.name}.damaged"))
            self._write_settings(setup)
            files.write_atomically(path, encode(result))
        return path

    def check_settings(self, setup: Setup) -> None:
        """Refuses a setup whose results here were made with other defaults than this version's.

        Damaged or lost settings are written again.
        """
        folder = self.folder(setup)
        stored = {pack_of(folder.parents[1]): self._packed_settings(folder)}
        if folder.exists():
            stored |= self._write_settings(setup)
        for path, settings in stored.items():
            if changed := _differing(setup.settings, settings):
                name, own, other = changed
                raise StoreError(
                    f"{path} has {name} = {other!r}, and this version of mcclt uses {own!r} for the same setup: "
                    "choose another --store."
                )

    def _write_settings(self, setup: Setup) -> dict[Path, dict[str, Any]]:
        """A setup's settings by their file, which is written unless it is there."""
        path = self.folder(setup) / "settings.json"
        try:
            return {path: self._once(path, cell_files.read_settings)}
        except StoreError:
            _write(path, cell_files.encode_settings(setup.settings))
            return {path: setup.settings}

    def claim(self, cell: Cell) -> filelock.BaseFileLock | None:
        """The right to compute a cell, until it is released or this process ends; None if somebody has it."""
        setup, seed = cell
        path = self.path / "work" / "locks" / f"{'__'.join(place(setup))}__seed-{seed}.lock"
        with refusals("write", path):
            path.parent.mkdir(parents=True, exist_ok=True)
            lock = filelock.FileLock(path, thread_local=False)
            try:
                lock.acquire(timeout=0)
            except filelock.Timeout:
                return None
        return lock

    # --- agents, timings -----------------------------------------------------------------------------------

    def agent_file(self, cell: Cell) -> Path:
        """Where a cell's agent is, if it was kept: a model, which `mcclt.load` and all commands that take one read."""
        setup, seed = cell
        return self.path.joinpath("agents", *place(setup), f"seed-{seed}.safetensors.xz")

    def write_agent(self, cell: Cell, model: bytes) -> None:
        """Keeps an agent, outside of what git sees."""
        ignored = self.path / "agents" / ".gitignore"
        if not ignored.exists():
            _write(ignored, b"*\n")
        _write(self.agent_file(cell), model)

    def write_timing(self, name: str, data: dict[str, Any]) -> None:
        """Stores a measurement of costs, in place of an earlier one of that name."""
        _write(self.path / "timings" / f"{file_name(name)}.json", (json.dumps(data, indent=1) + "\n").encode())

    # --- reading -------------------------------------------------------------------------------------------

    def load(self) -> Results:
        """Reads everything; what cannot be read is named in `Results.problems`."""
        results: list[Result] = []
        problems: list[str] = []
        settings: dict[tuple[str, str, str], dict[str, Any]] = {}
        for task in self.tasks():
            loose, damaged = self.loose(task)  # first: whoever packs them meanwhile writes the pack before they go
            packs, broken = self._all([pack_of(task)], pack.read)
            packed = packs[pack_of(task)].results if packs else {}
            problems += [*broken, *damaged]
            problems += [f"{path} differs from its pack's result, which is used." for path in clashes(loose, packed)]
            found = loose | packed
            for folder, files_of_one in itertools.groupby(sorted(found), lambda path: path.parent):
                try:
                    known = UNSTATED | self.settings(folder)
                except StoreError as error:
                    problems.append(f"{error} Its results are left out.")
                    continue
                own = [found[path] for path in files_of_one]
                results += own
                settings |= {(r.task, f"{r.algo}-{r.variant}", r.digest): known for r in own}
        timings, damaged = self._all((self.path / "timings").glob("*.json"), cell_files.read_timing)
        return gather(results, settings, [*problems, *damaged], [*timings.values()], self.path, self.reproduction)

    def tasks(self) -> list[Path]:
        """Of each task that has results the folder of its loose ones, whether it has some or all are packed."""
        names = {path: path.name.removesuffix(pack.SUFFIX) for path in (self.path / "cells").glob("*")}
        return sorted({path.with_name(name) for path, name in names.items() if path.is_dir() or name != path.name})

    def pack(self, task: Path) -> Pack:
        """What the pack of a task holds; nothing if there is none."""
        path = pack_of(task)
        return self._once(path, pack.read) if path.exists() else Pack()

    def packed(self, task: Path) -> Pack:
        """The same; nothing if it is damaged."""
        with contextlib.suppress(StoreError):
            return self.pack(task)
        return Pack()

    def loose(self, task: Path) -> tuple[dict[Path, Result], list[str]]:
        """The loose results of a task by file, and what is wrong with others."""
        return self._all(task.glob("*/*/seed-*.json"), cell_files.read_in_place)

    def _packed_settings(self, folder: Path) -> dict[str, Any]:
        return self.packed(folder.parents[1]).settings.get(folder, {})

    def settings(self, folder: Path) -> dict[str, Any]:
        """The settings of a setup as they were stored; those of its loose results and of its pack must agree."""
        path, packed = folder / "settings.json", self._packed_settings(folder)
        try:
            settings = self._once(path, cell_files.read_settings)
        except StoreError:
            if not packed:
                raise
            return packed
        if changed := _differing(settings, packed):
            name, own, other = changed
            raise StoreError(f"{path} has {name} = {own!r}, and the setup's pack {other!r}.")
        return packed or settings

    def _all(self, paths: Iterable[Path], read: Callable[[Path], _Found]) -> tuple[dict[Path, _Found], list[str]]:
        """What files hold, and what is wrong with those that cannot be read."""
        found, problems = {}, []
        for path in sorted(paths):
            try:
                found[path] = self._once(path, read)
            except StoreError as error:
                if os.path.lexists(path):  # else it was packed or unpacked since we looked
                    problems.append(str(error))
        return found, problems

    def _once(self, path: Path, read: Callable[[Path], _Found]) -> _Found:
        """Reads a file, once as long as it stays the same."""
        with refusals("read", path):
            stat = os.stat(path)
        version = (stat.st_ino, stat.st_size, stat.st_mtime_ns)
        if path not in self._known or self._known[path][0] != version:
            began = time.time()
            found = read(path)
            if began - stat.st_mtime < SETTLED:
                return found  # it may be written again without a new time
            self._known[path] = version, found
        return self._known[path][1]


def _write(path: Path, data: bytes) -> None:
    with refusals("write", path):
        files.write_atomically(path, data)


def _differing(own: dict[str, Any], other: dict[str, Any]) -> tuple[str, Any, Any] | None:
    """A setting that both have, not alike, with its two values."""
    return next(((name, own[name], other[name]) for name in own if name in other and own[name] != other[name]), None)
