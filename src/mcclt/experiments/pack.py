"""Packs: all cells of a task in one compressed file, with each setup's settings and each provenance once.

STORE/cells/TASK.json.xz

Beside the folder TASK of loose cells, which may be there too. Unpacked, a cell has the very bytes it had.
"""

import contextlib
import itertools
import json
from collections.abc import Callable, Iterable
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
class Packed:
    """What a pack holds of one setup."""

    settings: dict[str, Any] = field(default_factory=dict)
    """As they were stored."""
    results: dict[int, Result] = field(default_factory=dict)
    """By seed."""


Pack = dict[Path, Packed]
"""Setups by the folder where their loose cells are, or would be."""


def pack_of(folder: Path) -> Path:
    """The pack that belongs to a folder of a setup's loose cells."""
    task = folder.parent.parent
    return task.with_name(task.name + SUFFIX)


def encode(pack: Pack) -> bytes:
    """The same bytes for the same results, a line for each."""
    provenance: list[dict[str, Any]] = []
    setups = []
    for _, packed in sorted(pack.items()):
        lines = []
        for data in (cells.to_data(result) for _, result in sorted(packed.results.items())):
            own = {name: value for name, value in data.items() if name not in ("format", *COMMON)}
            if data["provenance"] not in provenance:
                provenance.append(data["provenance"])
            lines.append(compact(own | {"provenance": provenance.index(data["provenance"])}))
        head = {name: data[name] for name in COMMON} | {"settings": packed.settings}
        setups.append(_with_list(head, "cells", lines))
    text = _with_list({"format": FORMAT, "provenance": provenance}, "setups", setups)
    return files.compress(f"{text}\n".encode())


def _with_list(head: dict[str, Any], name: str, lines: list[str]) -> str:
    """A table whose last entry is a list, a line for each of it."""
    return compact(head)[:-1] + f',"{name}":[\n' + ",\n".join(lines) + "\n]}"


def decode(data: bytes, path: Path) -> Pack:
    """Reads what `encode` gave, or says what is wrong with it; `path` is where it is, or will be."""
    pack: Pack = {}
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
            if any(Path(name).name != name or name.startswith(".") for name in names):
                raise ValueError  # it would lead out of the store
            if path.name != task + SUFFIX:
                raise StoreError(f"{path} is not in its place: it has results of {task}.")
            settings = cells.checked_settings(setup["settings"])
            pack[path.parent.joinpath(*names)] = Packed(settings, {result.seed: result for result in found})
    return pack


def read(path: Path) -> Pack:
    """Reads a pack, or says what is wrong with it."""
    with cells.refusals("read", path):
        return decode(files.read(path), path)


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
    folders = {target: list(own) for target, own in itertools.groupby(store.folders(), pack_of)}
    return _one_by_one(store, folders, lambda target, done: _pack(store, target, folders[target], done))


def unpack(store: "Store") -> Done:
    """Makes all packed cells loose again, and removes the packs."""
    return _one_by_one(store, store.packs(), lambda target, done: _unpack(store, target, done))


def _one_by_one(store: "Store", targets: Iterable[Path], work: Callable[[Path, Done], None]) -> Done:
    """Pack by pack, while nobody else changes the store; what goes wrong with one is noted."""
    done = Done()
    for target in targets:
        with store.changing(target):
            try:
                work(target, done)
            except StoreError as error:
                done.problems.append(str(error))
    return done


def _pack(store: "Store", target: Path, folders: list[Path], done: Done) -> None:
    old = store.pack(target)
    new: Pack = dict(old)
    loose: dict[Path, Result] = {}
    for folder in folders:
        found, problems = store.loose(folder)
        done.problems += problems
        if found:
            try:
                settings = store.settings(folder)
            except StoreError as error:
                done.problems.append(str(error))
                continue
            here = old.get(folder, Packed()).results
            new[folder] = Packed(settings, {result.seed: result for result in found.values()} | here)
            loose |= found
    size = target.stat().st_size if old else 0
    if _count(new) > _count(old):
        data = encode(new)
        decode(data, target)  # before it takes the place of what is there
        files.write_atomically(target, data)
    packed = store.pack(target)
    for path, result in loose.items():
        data = files.read(path)
        if data == cells.encode(packed[path.parent].results[result.seed]):
            path.unlink()
            done.cells += 1
            done.before += len(data)
        else:
            done.problems.append(f"{path} stays: {target.name} has another result of this seed.")
    for folder in folders:
        if folder.exists() and not any(folder.glob("seed-*")):
            (folder / "settings.json").unlink(missing_ok=True)
            with contextlib.suppress(OSError):  # as far as they are empty
                folder.rmdir()
                folder.parent.rmdir()
                folder.parent.parent.rmdir()
    done.after += (target.stat().st_size if packed else 0) - size


def _count(pack: Pack) -> int:
    return sum(len(packed.results) for packed in pack.values())


def _unpack(store: "Store", target: Path, done: Done) -> None:
    pack = store.pack(target)
    encoded: dict[Path, bytes] = {}
    for folder, packed in pack.items():
        encoded |= {folder / f"seed-{seed}.json": cells.encode(result) for seed, result in packed.results.items()}
        for path, result in store.loose(folder)[0].items():
            if encoded.get(path, cells.encode(result)) != cells.encode(result):
                raise StoreError(f"{target} stays: {path} is another result of the same seed.")
    for folder, packed in pack.items():
        files.write_atomically(folder / "settings.json", cells.encode_settings(packed.settings))
    for path, data in encoded.items():
        files.write_atomically(path, data)
    done.before += target.stat().st_size
    target.unlink()
    done.after += sum(map(len, encoded.values()))
    done.cells += len(encoded)
