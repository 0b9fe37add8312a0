"""A store: one directory of results, one file per agent, each written once and whole.

STORE/store.json                              what this directory is
STORE/cells/TASK/ALGO-VARIANT/DIGEST/
    settings.json                             every setting of the setup
    seed-0.json                               one agent: returns, curve, probe, cost, provenance, checksum
STORE/timings/*.json                          measured costs (table 2)
STORE/work/                                   trainings under way and locks; may be deleted when nothing runs

Any number of processes may share a store: a cell is computed by whoever holds its lock (`claim`), which the
operating system frees when that process ends, however it ends.
"""

import hashlib
import json
import math
import re
import secrets
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import filelock
import numpy as np

from mcclt.config import UNSTATED, AgentConfig, RunConfig, coerce, fields_of
from mcclt.errors import MccltError
from mcclt.experiments.results import Result, Results, gather
from mcclt.experiments.setups import Setup
from mcclt.storage import files

FORMAT = "mcclt-store"
VERSION = 1
Cell = tuple[Setup, int]
"""A setup and a seed."""


class StoreError(MccltError):
    """A directory that is no store, or cannot be used as one."""


class Store:
    """A directory of results."""

    def __init__(self, path: str | Path, create: bool = False) -> None:
        """Opens a store, or makes one.

        Args:
            path: its directory.
            create: make it if it is not there.
        """
        self.path = path = Path(path)
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
        files.write_atomically(self.path / "work" / ".gitignore", b"*\n")
        with filelock.FileLock(self.path / "work" / "store.lock"):
            if not marker.exists():
                data = {"format": FORMAT, "version": VERSION, "id": secrets.token_hex(8)}
                files.write_atomically(marker, (json.dumps(data) + "\n").encode())

    # --- cells ---------------------------------------------------------------------------------------------

    def folder(self, setup: Setup) -> Path:
        """Where the results of a setup are."""
        task, name, digest = setup.key
        return self.path / "cells" / file_name(task) / name / digest

    def file(self, cell: Cell) -> Path:
        """Where a cell's result is, or will be."""
        setup, seed = cell
        return self.folder(setup) / f"seed-{seed}.json"

    def has(self, cell: Cell) -> bool:
        """Whether the cell is there and undamaged."""
        path = self.file(cell)
        if not path.exists():
            return False
        try:
            _read_in_place(path)
        except StoreError:
            return False
        return True

    def missing(self, cells: Sequence[Cell]) -> list[Cell]:
        """Those cells that are not there, or damaged; their setups' settings are checked."""
        for setup in {setup.key: setup for setup, _ in cells}.values():
            self.check_settings(setup)
        return [cell for cell in cells if not self.has(cell)]

    def write(self, setup: Setup, result: Result) -> Path:
        """Stores a result, once: one that is there and undamaged is kept."""
        cell = (setup, result.seed)
        if self.has(cell):
            return self.file(cell)
        self.check_settings(setup)
        try:
            path = self.file(cell)
            if path.is_dir():  # not ours; it is not deleted
                path.rename(path.with_name(f"{path.name}.damaged"))
            self._write_settings(setup)
            files.write_atomically(path, encode(result))
        except OSError as error:
            raise StoreError(f"Cannot write {self.file(cell)}: {error.strerror or error}.") from None
        return self.file(cell)

    def check_settings(self, setup: Setup) -> None:
        """Refuses a setup whose results here were made with other defaults than this version's.

        Damaged or lost settings are written again.
        """
        if not self.folder(setup).exists():
            return
        path = self._write_settings(setup)
        stored, own = _json(path), setup.settings
        changed = [name for name in own if name in stored and stored[name] != own[name]]
        if changed:
            raise StoreError(
                f"{path} has {changed[0]} = {stored[changed[0]]!r}, and this version of mcclt takes "
                f"{own[changed[0]]!r} for the same setup: choose another --store."
            )

    def _write_settings(self, setup: Setup) -> Path:
        """Writes a setup's settings, unless they are there."""
        path = self.folder(setup) / "settings.json"
        try:
            _json(path)
        except StoreError:
            try:
                files.write_atomically(path, (json.dumps(setup.settings, indent=1) + "\n").encode())
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

    # --- reading -------------------------------------------------------------------------------------------

    def load(self) -> Results:
        """Reads everything; what cannot be read is named in `Results.problems`."""
        results, problems, settings = [], [], {}
        for folder in self._folders():
            cells = sorted(folder.glob("seed-*.json"))
            if not cells:
                continue  # the first is being written, or was not finished
            try:
                settings[folder.parent.parent.name, folder.parent.name, folder.name] = _settings(folder)
            except StoreError as error:
                problems.append(f"{error} Its results are left out.")
                continue
            for path in cells:
                try:
                    results.append(_read_in_place(path))
                except StoreError as error:
                    problems.append(str(error))
        by_task = {(r.task, f"{r.algo}-{r.variant}", r.digest): file_name(r.task) for r in results}
        known = {key: settings[file, key[1], key[2]] for key, file in by_task.items()}
        timings = []
        for path in sorted((self.path / "timings").glob("*.json")):
            try:
                timings.append(_timing(path))
            except StoreError as error:
                problems.append(str(error))
        return gather(results, known, problems, timings, self.path)

    def _folders(self) -> Iterator[Path]:
        cells = self.path / "cells"
        return (p for p in sorted(cells.glob("*/*/*")) if p.is_dir())

    def write_timing(self, name: str, data: dict[str, Any]) -> Path:
        """Stores a measurement of costs, in place of an earlier one of that name."""
        path = self.path / "timings" / f"{file_name(name)}.json"
        try:
            files.write_atomically(path, (json.dumps(data, indent=1) + "\n").encode())
        except OSError as error:
            raise StoreError(f"Cannot write {path}: {error.strerror or error}.") from None
        return path


def file_name(text: str) -> str:
    """A task's id as the name of a directory."""
    return re.sub(r"[^\w.@+=,-]", "_", text)


# --- one result as a file --------------------------------------------------------------------------------------


def encode(result: Result) -> bytes:
    """A result as JSON, with a checksum of the rest; returns keep six significant digits, curves four."""
    data = {
        "format": f"{FORMAT} {VERSION}",
        "task": result.task,
        "algo": result.algo,
        "variant": result.variant,
        "seed": result.seed,
        "setup": result.digest,
        "returns": plain(result.returns, 6),
        "lengths": result.lengths,
        "curve": {name: plain(column, 7 if name == "step" else 4) for name, column in result.curve.items()},
        "probe": plain(result.probe, 4),
        "cost": result.cost,
        "provenance": result.provenance,
    }
    text = json.dumps(plain(data), separators=(",", ":"), allow_nan=False)
    return (text[:-1] + f',"checksum":"{_checksum(text)}"}}\n').encode()


def plain(value: Any, digits: int = 6) -> Any:
    """Plain data that JSON can hold: arrays as lists, floats rounded, NaN and infinity as null."""
    if isinstance(value, dict):
        return {str(k): plain(v, digits) for k, v in value.items()}
    if isinstance(value, np.ndarray):
        return plain(value.tolist(), digits)
    if isinstance(value, list | tuple):
        return [plain(v, digits) for v in value]
    if isinstance(value, float | np.floating):
        if not math.isfinite(value):
            return None
        rounded = float(f"{value:.{digits}g}")
        return int(rounded) if rounded.is_integer() and abs(rounded) < 1e15 else rounded
    return int(value) if isinstance(value, np.integer) else value


def read(path: Path) -> Result:
    """Reads what `encode` gave, or says what is wrong with it."""
    data = _json(path)
    try:
        checksum = data.pop("checksum")
        if checksum != _checksum(json.dumps(data, separators=(",", ":"))):
            raise StoreError(f"{path} is damaged (its checksum does not match): run its command again to replace it.")
        if data["format"] != f"{FORMAT} {VERSION}":
            raise StoreError(f"{path} is of another format, {data['format']!r}: update mcclt to read it.")
        result = Result(
            task=data["task"],
            algo=data["algo"],
            variant=data["variant"],
            seed=int(data["seed"]),
            digest=data["setup"],
            returns=_numbers(data["returns"]),
            lengths=np.array(data["lengths"], int),
            curve={name: _numbers(column) for name, column in data["curve"].items()},
            probe=data["probe"],
            cost=data["cost"],
            provenance=data["provenance"],
        )
        _check(result)
        return result
    except (KeyError, TypeError, ValueError, AttributeError, OverflowError, RecursionError):
        raise StoreError(f"{path} is not a result of mcclt: run its command again to replace it.") from None


def _check(result: Result) -> None:
    """Raises a `ValueError` where a result is not as `training` makes it: a checksum is no signature.

    What reads a store relies on this, so that no file, wherever it comes from, can keep the others from being read.
    """

    def require(condition: bool) -> None:
        if not condition:
            raise ValueError

    require(all(isinstance(x, str) for x in (result.task, result.algo, result.variant, result.digest)))
    require(0 <= result.seed < 2**63 and result.returns.ndim == 1 and result.returns.size > 0)
    require(result.lengths.ndim == 1)
    steps = result.curve["step"]
    require(steps.ndim == 1 and bool(np.isfinite(steps).all()) and bool((np.diff(steps) > 0).all()))
    require(all(column.shape == steps.shape for column in result.curve.values()))
    for table in (result.probe, result.cost, result.provenance):
        require(isinstance(table, dict))
    require(all(isinstance(x, int | float | None) for x in result.cost.values()))
    require(isinstance(result.provenance.get("packages") or {}, dict))
    require(isinstance(result.provenance.get("command") or [], list))
    episode = {name: _numbers(column) for name, column in result.probe.get("episode", {}).items()}
    require(all(column.ndim == 1 and len(column) == len(episode["t"]) for column in episode.values()))
    if bars := result.probe.get("bars", {}):
        require(_numbers(bars["values"]).ndim == 2 and len(bars["values"]) == len(_numbers(bars["t"])))
    if calibration := result.probe.get("calibration", {}):
        names = ("crps", "crps_point", "bias", "spread")
        found = _numbers([calibration[n] for n in names] + [calibration["coverage"][n] for n in ("0.5", "0.8", "0.95")])
        require(found.ndim == 1 and bool(np.isfinite(found).all()) and calibration["spread"] > 0)
        require(all(0 < float(level) < 1 for level in calibration["coverage"]))
        require(_numbers(list(calibration["coverage"].values())).ndim == 1)
        require(_numbers(calibration["pit"]).shape == (20,))


def _settings(folder: Path) -> dict[str, Any]:
    """The settings of a setup, each of its type."""
    path = folder / "settings.json"
    data = UNSTATED | _json(path)
    try:
        for cls in (AgentConfig, RunConfig):
            for name in set(fields_of(cls)) & set(data):
                coerce(cls, name, data[name])
        if int(data["steps"]) < 1:
            raise ValueError
    except (KeyError, TypeError, ValueError):
        raise StoreError(f"{path} is damaged: run its command again to replace it.") from None
    return data


def _timing(path: Path) -> dict[str, Any]:
    """A measurement of costs, with all that a report says of it."""
    data = _json(path)
    try:
        texts = [data[name] for name in ("task", "algo", "device", "measured")] + [
            row["variant"] for row in data["rows"]
        ]
        costs = _numbers([row[n] for row in data["rows"] for n in ("seconds_per_update", "critic_parameters")])
        if not all(isinstance(x, str) for x in texts) or not (costs > 0).all() or not np.isfinite(costs).all():
            raise ValueError
    except (KeyError, TypeError, ValueError, OverflowError):
        raise StoreError(f"{path} is no measurement of mcclt: run its command again to replace it.") from None
    return data


def _read_in_place(path: Path) -> Result:
    """Reads a cell, unless it is another's than its path says: copied or moved, it would count twice."""
    found = read(path)
    place = (file_name(found.task), f"{found.algo}-{found.variant}", found.digest, f"seed-{found.seed}.json")
    if path.parts[-4:] != place:
        raise StoreError(f"{path} is not in its place: it is the result of {'/'.join(place)}.")
    return found


def _numbers(values: list[float | None]) -> np.ndarray:
    return np.array(values, dtype=np.float64)  # null becomes NaN


def _checksum(text: str) -> str:
    return hashlib.blake2b(text.encode(), digest_size=8).hexdigest()


def _json(path: Path) -> dict[str, Any]:
    try:
        data = json.loads(files.read(path))
    except OSError as error:
        raise StoreError(f"Cannot read {path}: {error.strerror or error}.") from None
    except (ValueError, RecursionError):
        raise StoreError(f"{path} is damaged (not JSON): run its command again to replace it.") from None
    if not isinstance(data, dict):
        raise StoreError(f"{path} is damaged (not a table): run its command again to replace it.")
    return data
