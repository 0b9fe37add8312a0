"""Checkpoints: one safetensors file with arrays and JSON, checksummed, written atomically. No pickle.

The same format serves a run's checkpoints (with the environments' state) and a saved model (without).
"""

import hashlib
import json
import os
import zipfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import jax
import numpy as np
import safetensors
import safetensors.numpy

from mcclt.errors import CheckpointError, InaccessibleError
from mcclt.storage import files

FORMAT = "mcclt-checkpoint"
VERSION = 1
SUFFIX = ".safetensors"
COMPRESSED = ".safetensors.xz"
Arrays = dict[str, np.ndarray]


def save(path: Path, arrays: Mapping[str, np.ndarray], meta: Mapping[str, Any]) -> None:
    """Writes arrays and JSON-able `meta`; either the whole file is there afterwards, or the old one."""
    write_atomically(path, encode(arrays, meta))


def encode(arrays: Mapping[str, np.ndarray], meta: Mapping[str, Any]) -> bytes:
    """Arrays and JSON-able `meta` as the contents of a file; compressed, it ends in `COMPRESSED`."""
    contiguous = {name: np.asarray(x, order="C") for name, x in arrays.items()}
    text = json.dumps(meta, sort_keys=True)
    header = {
        "format": FORMAT,
        "version": str(VERSION),
        "meta": text,
        "digest": _digest(contiguous, str(VERSION) + text),
    }
    return safetensors.numpy.save(contiguous, metadata=header)


def load(path: Path) -> tuple[Arrays, dict[str, Any]]:
    """Reads what `save` wrote, or raises a `CheckpointError` that says what is wrong."""
    try:
        if not path.is_file():
            raise CheckpointError(f"There is no checkpoint at {path}.")
        if path.stat().st_size > _memory():  # it may be sparse: a small file that says to be a large one
            raise InaccessibleError(f"{path} is larger than this machine's memory and cannot be read here.")
        header, arrays = (_unpack if path.name.endswith(COMPRESSED) else _open)(path)
    except CheckpointError:
        raise
    except OSError as error:
        raise InaccessibleError(f"Cannot read {path}: {error.strerror or error}.") from None
    except Exception as error:  # the reader's own error types are not public
        if zipfile.is_zipfile(path):
            other = "a zip file, such as a model of Stable-Baselines3"
            raise CheckpointError(f"{path} was not written by mcclt: it is {other}.") from None
        if _is_foreign(path):
            raise CheckpointError(
                f"{path} is not a checkpoint or a model of mcclt: give a run directory, or a file that mcclt saved."
            ) from None
        raise CheckpointError(f"{path} is truncated or damaged ({error}); use an earlier one.") from None
    if header.get("format") != FORMAT:
        raise CheckpointError(f"{path} was not written by mcclt: it is a safetensors file of another program.")
    version = header.get("version", "")
    if version != str(VERSION):
        raise InaccessibleError(
            f"{path} has format version {version[:20]!r}, newer than this program's {VERSION}: update mcclt to read it."
        )
    if header.get("digest") != _digest(arrays, version + header.get("meta", "")):
        raise CheckpointError(f"{path} is damaged: its checksum does not match; use an earlier one.")
    try:
        meta = json.loads(header["meta"])
    except (KeyError, ValueError, RecursionError):  # a checksum is no signature: anybody can make one
        meta = None
    if not isinstance(meta, dict):
        raise CheckpointError(f"{path} was not written by mcclt: its metadata is not a table.")
    return arrays, meta


def _open(path: Path) -> tuple[dict[str, str], Arrays]:
    with safetensors.safe_open(path, framework="np") as file:
        return file.metadata() or {}, {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118 (no mapping)


def _unpack(path: Path) -> tuple[dict[str, str], Arrays]:
    data = files.decompress(files.read(path))
    arrays = safetensors.numpy.load(data)  # which has looked at the header
    return json.loads(data[8 : 8 + int.from_bytes(data[:8], "little")]).get("__metadata__", {}), arrays


def _is_foreign(path: Path) -> bool:
    """Whether a file that is not empty does not even begin as ours do: with a length and JSON, or as xz does."""
    with path.open("rb") as file:
        start = file.read(9)
    begins = start.startswith(b"\xfd7zXZ\0") if path.name.endswith(COMPRESSED) else start[8:] == b"{"
    return start != b"" and not begins


def _memory() -> int:
    """Bytes of memory that this machine has."""
    return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")


def _digest(arrays: Mapping[str, np.ndarray], text: str) -> str:
    """A checksum of everything that is stored."""
    digest = hashlib.blake2b(text.encode(), digest_size=16)
    for name in sorted(arrays):
        x = arrays[name]
        digest.update(f"{name}|{x.dtype.str}|{x.shape}|".encode())
        digest.update(x.tobytes())
    return digest.hexdigest()


def write_atomically(path: Path, data: bytes) -> None:
    """`files.write_atomically`, with an error for people."""
    with files.refusals(InaccessibleError, "write", path):
        files.write_atomically(path, data)


def flatten(prefix: str, tree: Any) -> Arrays:
    """A pytree as arrays named by their path, e.g. `agents/mcclt/policy/mlp/0/w`."""
    leaves = jax.tree_util.tree_leaves_with_path(tree)
    return {f"{prefix}/{_name(path)}": np.asarray(leaf) for path, leaf in leaves}


def fitting(prefix: str, template: Mapping[str, np.ndarray], arrays: Arrays, source: object) -> Arrays:
    """The arrays named by the keys of `template` behind `prefix`, which must have its shapes and types."""
    found = {}
    for name, like in template.items():
        x = arrays.get(prefix + name)
        if x is None or x.shape != like.shape or x.dtype != like.dtype:
            raise CheckpointError(
                f"{source} does not match its configuration: {prefix}{name} is missing or has a wrong shape."
            )
        found[name] = x
    return found


def unflatten(prefix: str, template: Any, arrays: Arrays, source: object) -> Any:
    """The reverse, into the structure, shapes and types of `template`."""
    leaves, form = jax.tree_util.tree_flatten_with_path(template)
    found = fitting(f"{prefix}/", {_name(path): leaf for path, leaf in leaves}, arrays, source)
    return jax.tree.unflatten(form, found.values())


def _name(path: Any) -> str:
    return "/".join(str(getattr(k, "key", getattr(k, "name", getattr(k, "idx", k)))) for k in path)
