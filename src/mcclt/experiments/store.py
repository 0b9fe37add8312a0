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
import json
import os
import secrets
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any, TypeVar

import filelock
import numpy as np

from mcclt.config import UNSTATED
from mcclt.experiments import pack
from mcclt.experiments.cells import (
    StoreError,
    encode,
    file_name,
    numbers,
    place,
    read_in_place,
    read_json,
    read_settings,
)
from mcclt.experiments.pack import Pack, Packed, pack_of
from mcclt.experiments.results import Result, Results, gather
from mcclt.experiments.setups import Setup
from mcclt.storage import files

FORMAT = "mcclt-store"
VERSION = 1
Cell = tuple[Setup, int]
"""A setup and a seed."""
SETTLED = 2.0
"""Seconds after which another write of a file is sure to be seen in its time."""
_Found = TypeVar("_Found")


class Store:
    """A directory of results."""

    def __init__(self, path: str | Path, create: bool = False) -> None:
        """Opens a store, or makes one.

        Args:
            path: its directory.
            create: make it if it is not there.
        """
        self.path = path = Path(path)
        self._known: dict[Path, tuple[tuple[int, ...], Any]] = {}  # what was read, and from which version of a file
        marker = path / "store.json"
        try:
            if create and not marker.exists():
                self._make(marker)
            text = files.read(marker)
        except FileNotFoundError:
            raise StoreError(f"{path} is not a store of results: it has no store.json.") from None
        except OSError as error:
            raise StoreError(f"Cannot use the store {path}: {error.strerror or error}.") from None
        try:
            data = json.loads(text)
            if data["format"] != FORMAT:
                raise ValueError
            self.id = str(data["id"])
            newer = int(data["version"]) > VERSION
        except (ValueError, KeyError, TypeError, OverflowError, RecursionError):
            raise StoreError(f"{marker} was not written by mcclt: choose another --store.") from None
        if newer:
            raise StoreError(f"{path} was written by a newer version of mcclt: update it to use this store.")

    def _make(self, marker: Path) -> None:
        """Makes an empty directory a store; if several processes do so at once, one of them."""

        def foreign(name: str) -> bool:
            """Whether it was not left here by one who is making a store, or was killed while doing so."""
            return name not in ("work", marker.name) and not name.startswith(f".{marker.name}.")

        if self.path.exists() and (not self.path.is_dir() or any(foreign(p.name) for p in self.path.iterdir())):
            if marker.exists():
                return  # by another process, since we looked
            raise StoreError(f"{self.path} is not a store of results, and not empty: choose another --store.")
        with self._lock():
            if not marker.exists():
                data = {"format": FORMAT, "version": VERSION, "id": secrets.token_hex(8)}
                files.write_atomically(marker, (json.dumps(data) + "\n").encode())

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
        try:
            with self._lock():
                yield
        except OSError as error:
            raise StoreError(f"Cannot write {path}: {error.strerror or error}.") from None

    # --- cells ---------------------------------------------------------------------------------------------

    def folder(self, setup: Setup) -> Path:
        """Where the loose results of a setup are; its pack is beside it."""
        return self.path.joinpath("cells", *place(setup.task, setup.algo, setup.variant, setup.digest))

    def file(self, cell: Cell) -> Path:
        """Where a cell's result is, or will be, while it is loose."""
        setup, seed = cell
        return self.folder(setup) / f"seed-{seed}.json"

    def has(self, cell: Cell) -> bool:
        """Whether the cell is there and undamaged."""
        setup, seed = cell
        with contextlib.suppress(StoreError):
            self._once(self.file(cell), read_in_place)
            return True
        packed = self.packed(self.folder(setup))
        return packed is not None and seed in packed.results

    def missing(self, cells: Sequence[Cell]) -> list[Cell]:
        """Those cells that are not there, or damaged; their setups' settings are checked."""
        for setup in {setup.key: setup for setup, _ in cells}.values():
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
        stored = {}
        if packed := self.packed(folder):
            stored[pack_of(folder)] = packed.settings
        if folder.exists():
            path = self._write_settings(setup)
            stored[path] = self._once(path, read_settings)
        for path, settings in stored.items():
            if changed := _differing(setup.settings, settings):
                name, own, other = changed
                raise StoreError(
                    f"{path} has {name} = {other!r}, and this version of mcclt takes {own!r} for the same setup: "
                    "choose another --store."
                )

    def _write_settings(self, setup: Setup) -> Path:
        """Writes a setup's settings, unless they are there."""
        path = self.folder(setup) / "settings.json"
        try:
            self._once(path, read_settings)
        except StoreError:
            try:
                files.write_atomically(path, pack.encode_settings(setup.settings))
            except OSError as error:
                raise StoreError(f"Cannot write {path}: {error.strerror or error}.") from None
        return path

    def claim(self, cell: Cell) -> filelock.BaseFileLock | None:
        """The right to compute a cell, until it is released or this process ends; None if somebody has it."""
        task, name, digest = cell[0].key
        path = self.path / "work" / "locks" / f"{file_name(task)}__{name}__{digest}__seed-{cell[1]}.lock"
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
            lock = filelock.FileLock(path, thread_local=False)
            lock.acquire(timeout=0)
        except filelock.Timeout:
            return None
        except OSError as error:
            raise StoreError(f"Cannot write {path}: {error.strerror or error}.") from None
        return lock

    # --- agents --------------------------------------------------------------------------------------------

    def agent_file(self, cell: Cell) -> Path:
        """Where a cell's agent is, if it was kept."""
        setup, seed = cell
        where = place(setup.task, setup.algo, setup.variant, setup.digest)
        return self.path.joinpath("agents", *where, f"seed-{seed}.safetensors.xz")

    def agent(self, cell: Cell) -> Path:
        """The model of a cell's agent, which `mcclt.load` and all commands that take a model read.

        Raises:
            StoreError: it was not kept.
        """
        path = self.agent_file(cell)
        if not path.exists():
            raise StoreError(f"{path} is not there: that agent was trained without --keep-agents.")
        return path

    def write_agent(self, cell: Cell, model: bytes) -> None:
        """Keeps an agent, outside of what git sees."""
        path, ignored = self.agent_file(cell), self.path / "agents" / ".gitignore"
        try:
            if not ignored.exists():
                files.write_atomically(ignored, b"*\n")
            files.write_atomically(path, model)
        except OSError as error:
            raise StoreError(f"Cannot write {path}: {error.strerror or error}.") from None

    # --- reading -------------------------------------------------------------------------------------------

    def load(self) -> Results:
        """Reads everything; what cannot be read is named in `Results.problems`."""
        results: list[Result] = []
        problems: list[str] = []
        settings: dict[tuple[str, str, str], dict[str, Any]] = {}
        for path in self.packs():
            try:
                self.pack(path)
            except StoreError as error:
                problems.append(str(error))
        for folder in self.folders():
            loose, damaged = self.loose(folder)  # first: whoever packs them meanwhile writes the pack before they go
            packed = self.packed(folder)
            found = {result.seed: result for result in loose.values()}
            for seed, result in (packed.results if packed else {}).items():
                if seed in found and encode(found[seed]) != encode(result):
                    problems.append(f"{folder}/seed-{seed}.json is another result than its pack's, which counts.")
                found[seed] = result
            problems += [text for path, text in damaged.items() if path.exists() or not packed]
            if not found:
                continue  # the first is being written, or was not finished
            try:
                known = UNSTATED | self.settings(folder)
            except StoreError as error:
                problems.append(f"{error} Its results are left out.")
                continue
            results += found.values()
            settings |= {(r.task, f"{r.algo}-{r.variant}", r.digest): known for r in found.values()}
        timings = []
        for path in sorted((self.path / "timings").glob("*.json")):
            try:
                timings.append(_timing(path))
            except StoreError as error:
                problems.append(str(error))
        return gather(results, settings, problems, timings, self.path)

    def packs(self) -> list[Path]:
        """The files of packs."""
        return sorted((self.path / "cells").glob(f"*{pack.SUFFIX}"))

    def pack(self, path: Path) -> Pack:
        """What a pack holds; nothing if there is none."""
        return self._once(path, pack.read) if path.exists() else {}

    def packed(self, folder: Path) -> Packed | None:
        """What a pack holds of a setup, if there is one and it is undamaged."""
        with contextlib.suppress(StoreError):
            return self.pack(pack_of(folder)).get(folder.parts[-2:])
        return None

    def folders(self) -> list[Path]:
        """Of each setup that has results the place of its loose ones, whether it has some or all are packed."""
        found = {p for p in (self.path / "cells").glob("*/*/*") if p.is_dir()}
        for path in self.packs():
            with contextlib.suppress(StoreError):
                found |= {pack.folder_of(path, key) for key in self.pack(path)}
        return sorted(found)

    def loose(self, folder: Path) -> tuple[dict[Path, Result], dict[Path, str]]:
        """The loose results of a setup by file, and what is wrong with others."""
        found, problems = {}, {}
        for path in sorted(folder.glob("seed-*.json")):
            try:
                found[path] = self._once(path, read_in_place)
            except StoreError as error:
                problems[path] = str(error)
        return found, problems

    def settings(self, folder: Path) -> dict[str, Any]:
        """The settings of a setup as they were stored; those of its loose results and of its pack must agree."""
        path, packed = folder / "settings.json", self.packed(folder)
        try:
            settings = self._once(path, read_settings)
        except StoreError:
            if packed is None:
                raise
            return packed.settings
        if packed and (changed := _differing(settings, packed.settings)):
            name, own, other = changed
            raise StoreError(f"{path} has {name} = {own!r}, and the setup's pack {other!r}.")
        return packed.settings if packed else settings

    def _once(self, path: Path, read: Callable[[Path], _Found]) -> _Found:
        """Reads a file, once as long as it stays the same."""
        try:
            stat = os.stat(path)
        except OSError as error:
            raise StoreError(f"Cannot read {path}: {error.strerror or error}.") from None
        version = (stat.st_ino, stat.st_size, stat.st_mtime_ns)
        if path not in self._known or self._known[path][0] != version:
            began = time.time()
            found = read(path)
            if began - stat.st_mtime < SETTLED:
                return found  # it may be written again without a new time
            self._known[path] = version, found
        return self._known[path][1]

    def write_timing(self, name: str, data: dict[str, Any]) -> Path:
        """Stores a measurement of costs, in place of an earlier one of that name."""
        path = self.path / "timings" / f"{file_name(name)}.json"
        try:
            files.write_atomically(path, (json.dumps(data, indent=1) + "\n").encode())
        except OSError as error:
            raise StoreError(f"Cannot write {path}: {error.strerror or error}.") from None
        return path


def _differing(own: dict[str, Any], other: dict[str, Any]) -> tuple[str, Any, Any] | None:
    """A setting that both have, not alike, with its two values."""
    return next(((name, own[name], other[name]) for name in own if name in other and own[name] != other[name]), None)


def _timing(path: Path) -> dict[str, Any]:
    """A measurement of costs, with all that a report says of it."""
    data = read_json(path)
    try:
        texts = [data[name] for name in ("task", "algo", "device", "measured")] + [
            row["variant"] for row in data["rows"]
        ]
        costs = numbers([row[n] for row in data["rows"] for n in ("seconds_per_update", "critic_parameters")])
        if not all(isinstance(x, str) for x in texts) or not (costs > 0).all() or not np.isfinite(costs).all():
            raise ValueError
    except (KeyError, TypeError, ValueError, OverflowError):
        raise StoreError(f"{path} is not a measurement of mcclt: run its command again to replace it.") from None
    return data
