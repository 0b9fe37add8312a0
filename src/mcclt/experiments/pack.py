"""Packs: all cells of a task in one compressed file, with each setup's settings and each provenance once.

STORE/cells/TASK.json.xz

Beside the folder TASK of loose cells, which may be there too. Unpacked, a cell has the very bytes it had.
"""

import contextlib
import itertools
import json
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from mcclt.experiments import cells
from mcclt.experiments.cells import StoreError, compact
from mcclt.experiments.results import Result
from mcclt.storage import files

if TYPE_CHECKING:
    from mcclt.experiments.store import Store

FORMAT = "mcclt-pack 1"
SUFFIX = ".json.xz"
COMMON = ("task", "algo", "variant", "setup")
"""What all cells of a setup say of themselves."""


@dataclass(frozen=True)
class Pack:
    """What a pack holds of a task's setups."""

    settings: dict[Path, dict[str, Any]] = field(default_factory=dict)
    """As they were stored, by the folder where the setup's loose cells are, or would be."""
    results: dict[Path, Result] = field(default_factory=dict)
    """By the file that each would be, loose."""


def pack_of(task: Path) -> Path:
    """The pack that belongs to the folder of a task's loose cells."""
    return task.with_name(task.name + SUFFIX)


def encode(pack: Pack) -> bytes:
    """The same bytes for the same results, a line for each."""
    provenance: list[dict[str, Any]] = []
    setups = []
    in_order = sorted(pack.results.items(), key=lambda item: (item[0].parent, item[1].seed))
    for folder, members in itertools.groupby(in_order, lambda item: item[0].parent):
        lines = []
        for data in (cells.to_data(result) for _, result in members):
            own = {name: value for name, value in data.items() if name not in ("format", *COMMON)}
            if data["provenance"] not in provenance:
                provenance.append(data["provenance"])
            lines.append(compact(own | {"provenance": provenance.index(data["provenance"])}))
        head = {name: data[name] for name in COMMON} | {"settings": pack.settings[folder]}
        setups.append(_with_list(head, "cells", lines))
    text = _with_list({"format": FORMAT, "provenance": provenance}, "setups", setups)
    return files.compress(f"{text}\n".encode())


def _with_list(head: dict[str, Any], name: str, lines: list[str]) -> str:
    """A table whose last entry is a list, a line for each of it."""
    return compact(head)[:-1] + f',"{name}":[\n' + ",\n".join(lines) + "\n]}"


def decode(data: bytes, path: Path) -> Pack:
    """Reads what `encode` gave, or says what is wrong with it; `path` is where it is, or will be."""
    pack = Pack()
    with cells.reading(path, f"remove it and {cells.AGAIN}"):
        table = json.loads(files.decompress(data))
        cells.check_format(path, table["format"], FORMAT)
        for setup in table["setups"]:
            common = {name: setup[name] for name in COMMON}
            found = [
                cells.from_data(own | common | {"provenance": table["provenance"][own["provenance"]]})
                for own in setup["cells"]
            ]
            names = task, *_ = cells.place(found[0])
            if any(not name or Path(name).name != name or name.startswith(".") for name in names):
                raise ValueError  # it would lead elsewhere
            if path.name != task + SUFFIX:
                raise StoreError(f"{path} is not in its place: it has results of {task}.")
            folder = path.parent.joinpath(*names)
            pack.settings[folder] = cells.checked_settings(setup["settings"])
            pack.results.update({folder / f"seed-{result.seed}.json": result for result in found})
    return pack


def read(path: Path) -> Pack:
    """Reads a pack, or says what is wrong with it."""
    with cells.refusals("read", path):
        return decode(files.read(path), path)


def clashes(some: dict[Path, Result], others: dict[Path, Result]) -> list[Path]:
    """The files of which there are two that differ."""
    return [path for path in some if path in others and cells.encode(some[path]) != cells.encode(others[path])]


# --- packing a store -------------------------------------------------------------------------------------------


@dataclass
class Done:
    """What packing or unpacking did."""

    cells: int = 0
    before: int = 0
    """Bytes of the files that went."""
    after: int = 0
    """Bytes of the files that came."""
    problems: list[str] = field(default_factory=list)
    """What stayed as it was, and why, in one sentence each."""


def pack(store: "Store") -> Done:
    """Moves all loose cells that are undamaged into packs.

    Killed at any moment, it has lost nothing: a file is removed when its bytes were read back from the pack.
    """
    return _task_by_task(store, _pack)


def unpack(store: "Store") -> Done:
    """Makes all packed cells loose again, and removes the packs."""
    return _task_by_task(store, _unpack)


def _task_by_task(store: "Store", work: Callable[["Store", Path, Done], None]) -> Done:
    """While nobody else changes the store; what goes wrong with one task is noted."""
    done = Done()
    for task in store.tasks():
        with store.changing(pack_of(task)):
            try:
                work(store, task, done)
            except StoreError as error:
                done.problems.append(str(error))
    return done


def _pack(store: "Store", task: Path, done: Done) -> None:
    target, old = pack_of(task), store.pack(task)
    found, problems = store.loose(task)
    done.problems += problems
    settings = {}
    for folder in dict.fromkeys(path.parent for path in found):
        try:
            settings[folder] = store.settings(folder)
        except StoreError as error:
            done.problems.append(str(error))
    loose = {path: result for path, result in found.items() if path.parent in settings}
    new = Pack(old.settings | settings, loose | old.results)
    size = target.stat().st_size if old.results else 0
    if len(new.results) > len(old.results):
        data = encode(new)
        decode(data, target)  # before it takes the place of what is there
        files.write_atomically(target, data)
    packed = store.pack(task).results
    for path in loose:
        data = files.read(path)
        if data == cells.encode(packed[path]):
            path.unlink()
            done.cells += 1
            done.before += len(data)
        else:
            done.problems.append(f"{path} stays: {target.name} has another result of this seed.")
    for folder in [folder for folder in task.glob("*/*") if folder.is_dir() and not any(folder.glob("seed-*"))]:
        (folder / "settings.json").unlink(missing_ok=True)
        with contextlib.suppress(OSError):  # as far as they are empty
            folder.rmdir()
            folder.parent.rmdir()
            task.rmdir()
    done.after += (target.stat().st_size if packed else 0) - size


def _unpack(store: "Store", task: Path, done: Done) -> None:
    target, pack = pack_of(task), store.pack(task)
    for path in clashes(pack.results, store.loose(task)[0]):
        raise StoreError(f"{target} stays: {path} is another result of the same seed.")
    for folder, settings in pack.settings.items():
        files.write_atomically(folder / "settings.json", cells.encode_settings(settings))
    for path, result in pack.results.items():
        data = cells.encode(result)
        files.write_atomically(path, data)
        done.after += len(data)
    if pack.results:
        done.before += target.stat().st_size
        target.unlink()
        done.cells += len(pack.results)
