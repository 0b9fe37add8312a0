"""Packs: all cells of a task in one compressed file, with each setup's settings and each provenance once.

STORE/cells/TASK.json.xz

Beside the folder TASK of loose cells, which may be there too. Unpacked, a cell has the very bytes it had.
"""

import contextlib
import itertools
import json
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

    settings: dict[str, Any]
    """As they were stored."""
    results: dict[int, Result]
    """By seed."""


Pack = dict[tuple[str, ...], Packed]
"""Setups by (name, digest), as in the paths of their loose cells."""


def pack_of(folder: Path) -> Path:
    """The pack that belongs to a folder of a setup's loose cells."""
    task = folder.parent.parent
    return task.with_name(task.name + SUFFIX)


def folder_of(path: Path, key: tuple[str, ...]) -> Path:
    """The reverse: where the loose cells of a setup are, or would be."""
    return path.with_name(path.name.removesuffix(SUFFIX)).joinpath(*key)


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
    try:
        table = json.loads(files.decompress(data))
        if table["format"] != FORMAT:
            raise StoreError(f"{path} is of another format, {table['format']!r}: update mcclt to read it.")
        for setup in table["setups"]:
            common = {name: setup[name] for name in COMMON}
            found = [
                cells.from_data(common | own | {"provenance": table["provenance"][own["provenance"]]})
                for own in setup["cells"]
            ]
            cells.check_settings(setup["settings"])
            task, *key = cells.place(*common.values())
            if any(Path(name).name != name or name.startswith(".") for name in (task, *key)):
                raise ValueError  # it would lead out of the store
            if path.name != task + SUFFIX:
                raise StoreError(f"{path} is not in its place: it has results of {task}.")
            pack[tuple(key)] = Packed(setup["settings"], {result.seed: result for result in found})
    except (ValueError, KeyError, IndexError, TypeError, AttributeError, RecursionError):
        raise StoreError(f"{path} is damaged: remove it and run its command again to replace it.") from None
    return pack


def read(path: Path) -> Pack:
    """Reads a pack, or says what is wrong with it."""
    try:
        return decode(files.read(path), path)
    except OSError as error:
        raise StoreError(f"Cannot read {path}: {error.strerror or error}.") from None


# --- packing a store -------------------------------------------------------------------------------------------


@dataclass
class Done:
    """What packing or unpacking did."""

    cells: int = 0
    setups: int = 0
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
    done = Done()
    for target, folders in itertools.groupby(store.folders(), pack_of):
        with store.changing(target):
            try:
                _pack(store, target, list(folders), done)
            except StoreError as error:
                done.problems.append(str(error))
    return done


def _pack(store: "Store", target: Path, folders: list[Path], done: Done) -> None:
    old = store.pack(target)
    new, known = dict(old), 0
    loose: dict[Path, Result] = {}
    for folder in folders:
        found, problems = store.loose(folder)
        done.problems += problems.values()
        if found:
            here = old[folder.parts[-2:]].results if folder.parts[-2:] in old else {}
            try:
                settings = store.settings(folder)
            except StoreError as error:
                done.problems.append(str(error))
                continue
            new[folder.parts[-2:]] = Packed(settings, {result.seed: result for result in found.values()} | here)
            known += sum(result.seed in here for result in found.values())
            loose |= found
    size = target.stat().st_size if old else 0
    if known < len(loose):
        data = encode(new)
        decode(data, target)  # before it takes the place of what is there
        files.write_atomically(target, data)
    packed = store.pack(target)
    for path, result in loose.items():
        data = files.read(path)
        if data == cells.encode(packed[path.parts[-3:-1]].results[result.seed]):
            path.unlink()
            done.cells += 1
            done.before += len(data)
        else:
            done.problems.append(f"{path} stays: {target.name} has another result of this seed.")
    done.setups += len({path.parent for path in loose})
    for folder in folders:
        if folder.exists() and not any(folder.glob("seed-*")):
            (folder / "settings.json").unlink(missing_ok=True)
            with contextlib.suppress(OSError):  # as far as they are empty
                folder.rmdir()
                folder.parent.rmdir()
                folder.parent.parent.rmdir()
    done.after += (target.stat().st_size if packed else 0) - size


def unpack(store: "Store") -> Done:
    """Makes all packed cells loose again, and removes the packs."""
    done = Done()
    for target in store.packs():
        with store.changing(target):
            try:
                _unpack(store, target, done)
            except StoreError as error:
                done.problems.append(str(error))
    return done


def _unpack(store: "Store", target: Path, done: Done) -> None:
    pack = {folder_of(target, key): packed for key, packed in store.pack(target).items()}
    encoded: dict[Path, bytes] = {}
    for folder, packed in pack.items():
        encoded |= {folder / f"seed-{seed}.json": cells.encode(result) for seed, result in packed.results.items()}
        for path, result in store.loose(folder)[0].items():
            if encoded.get(path, cells.encode(result)) != cells.encode(result):
                raise StoreError(f"{target} stays: {path} is another result of the same seed.")
    for folder, packed in pack.items():
        files.write_atomically(folder / "settings.json", encode_settings(packed.settings))
    for path, data in encoded.items():
        files.write_atomically(path, data)
    done.before += target.stat().st_size
    target.unlink()
    done.after += sum(map(len, encoded.values()))
    done.cells += len(encoded)
    done.setups += len(pack)


def encode_settings(settings: dict[str, Any]) -> bytes:
    """A setup's settings as the file beside its loose cells."""
    return (json.dumps(settings, indent=1) + "\n").encode()
