"""Packs: the cells of one setup in one compressed file, with their settings and what else they have in common once.

STORE/cells/TASK/ALGO-VARIANT/DIGEST.json.xz

Beside the folder DIGEST of loose cells, which may be there too. Unpacked, a cell has the very bytes it had.
"""

import contextlib
import json
from collections.abc import Iterable
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
"""What all cells of a pack say of themselves."""


@dataclass(frozen=True)
class Pack:
    """What a pack holds."""

    settings: dict[str, Any]
    """Of the setup, as they were stored."""
    results: dict[int, Result]
    """By seed."""


def pack_of(folder: Path) -> Path:
    """The pack of the setup whose loose cells are in a folder."""
    return folder.with_name(folder.name + SUFFIX)


def encode(settings: dict[str, Any], results: Iterable[Result]) -> bytes:
    """Results of one setup as a pack: the same bytes for the same results, a line for each."""
    provenance: list[dict[str, Any]] = []
    lines = []
    for data in (cells.to_data(r) for r in sorted(results, key=lambda r: r.seed)):
        own = {name: value for name, value in data.items() if name not in ("format", *COMMON)}
        if data["provenance"] not in provenance:
            provenance.append(data["provenance"])
        lines.append(compact(own | {"provenance": provenance.index(data["provenance"])}))
    head = {"format": FORMAT} | {name: data[name] for name in COMMON}
    head |= {"settings": settings, "provenance": provenance}
    text = compact(head)[:-1] + ',"cells":[\n' + ",\n".join(lines) + "\n]}\n"
    return files.compress(text.encode())


def read(path: Path) -> Pack:
    """Reads what `encode` gave, or says what is wrong with it."""
    try:
        data = json.loads(files.decompress(files.read(path)))
        if data["format"] != FORMAT:
            raise StoreError(f"{path} is of another format, {data['format']!r}: update mcclt to read it.")
        common = {name: data[name] for name in COMMON}
        found = [
            cells.from_data(common | own | {"provenance": data["provenance"][own["provenance"]]})
            for own in data["cells"]
        ]
        pack = Pack(dict(data["settings"]), {result.seed: result for result in found})
        cells.check_settings(pack.settings)
        own = cells.place(*common.values())
    except OSError as error:
        raise StoreError(f"Cannot read {path}: {error.strerror or error}.") from None
    except (ValueError, KeyError, IndexError, TypeError, AttributeError, RecursionError):
        raise StoreError(f"{path} is damaged: remove it and run its command again to replace it.") from None
    if path.parts[-3:] != (*own[:2], own[2] + SUFFIX):
        raise StoreError(f"{path} is not in its place: it has the results of {'/'.join(own)}.")
    return pack


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
    for folder in store.folders():
        with store.changing(pack_of(folder)):
            _pack(store, folder, done)
    return done


def _pack(store: "Store", folder: Path, done: Done) -> None:
    loose, problems = store.loose(folder)
    done.problems += problems.values()
    if not loose:
        return
    target = pack_of(folder)
    try:
        old = store.packed(folder)
        settings = store.settings(folder)
    except StoreError as error:
        done.problems.append(str(error))
        return
    known, size = (old.results, target.stat().st_size) if old else ({}, 0)
    new = [result for result in loose.values() if result.seed not in known]
    if new:
        files.write_atomically(target, encode(settings, [*known.values(), *new]))
    packed = read(target).results
    removed = 0
    for path, result in loose.items():
        data = files.read(path)
        if result.seed in packed and data == cells.encode(packed[result.seed]):
            path.unlink()
            removed += 1
            done.before += len(data)
        else:
            done.problems.append(f"{path} stays: its pack, {target.name}, has another result of this seed.")
    if removed == len(loose) and not problems:
        (folder / "settings.json").unlink(missing_ok=True)
        with contextlib.suppress(OSError):  # something of somebody else is in it
            folder.rmdir()
    done.cells += removed
    done.setups += removed > 0
    done.after += target.stat().st_size - size


def unpack(store: "Store") -> Done:
    """Makes all packed cells loose again, and removes the packs."""
    done = Done()
    for folder in store.folders():
        with store.changing(folder):
            _unpack(store, folder, done)
    return done


def _unpack(store: "Store", folder: Path, done: Done) -> None:
    try:
        packed = store.packed(folder)
    except StoreError as error:
        done.problems.append(str(error))
        return
    if packed is None:
        return
    encoded = {folder / f"seed-{seed}.json": cells.encode(result) for seed, result in packed.results.items()}
    loose, _ = store.loose(folder)
    for path in (path for path in loose if path in encoded and cells.encode(loose[path]) != encoded[path]):
        done.problems.append(f"{pack_of(folder)} stays: {path.name} is another result of the same seed.")
        return
    files.write_atomically(folder / "settings.json", encode_settings(packed.settings))
    for path, data in encoded.items():
        files.write_atomically(path, data)
        done.after += len(data)
    done.before += pack_of(folder).stat().st_size
    pack_of(folder).unlink()
    done.cells += len(encoded)
    done.setups += 1


def encode_settings(settings: dict[str, Any]) -> bytes:
    """A setup's settings as the file beside its loose cells."""
    return (json.dumps(settings, indent=1) + "\n").encode()
