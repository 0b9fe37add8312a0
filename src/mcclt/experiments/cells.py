"""One result as a file: JSON with a checksum. Files may come from strangers, and are read with care."""

import hashlib
import json
import math
import re
from pathlib import Path
from typing import Any

import numpy as np

from mcclt.config import AgentConfig, RunConfig, coerce, fields_of
from mcclt.errors import MccltError
from mcclt.experiments.results import Result
from mcclt.storage import files

FORMAT = "mcclt-store 1"


class StoreError(MccltError):
    """A directory that is no store, or cannot be used as one; a file of it that cannot be read."""


def file_name(text: str) -> str:
    """A task's id as the name of a directory."""
    return re.sub(r"[^\w.@+=,-]", "_", text)


def place(task: str, algo: str, variant: str, digest: str) -> tuple[str, str, str]:
    """Where the results of a setup are, below a store's `cells`."""
    return file_name(task), f"{algo}-{variant}", digest


def to_data(result: Result) -> dict[str, Any]:
    """A result as plain data; returns keep six significant digits, curves four."""
    data = {
        "format": FORMAT,
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
    return plain(data)


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


def from_data(data: dict[str, Any]) -> Result:
    """The reverse of `to_data`.

    Raises:
        ValueError: it is not what `training` makes.
    """
    try:
        result = Result(
            task=data["task"],
            algo=data["algo"],
            variant=data["variant"],
            seed=int(data["seed"]),
            digest=data["setup"],
            returns=numbers(data["returns"]),
            lengths=np.array(data["lengths"], int),
            curve={name: numbers(column) for name, column in data["curve"].items()},
            probe=data["probe"],
            cost=data["cost"],
            provenance=data["provenance"],
        )
        _check(result)
    except (KeyError, TypeError, ValueError, AttributeError, OverflowError, RecursionError):
        raise ValueError("not a result") from None
    return result


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
    episode = {name: numbers(column) for name, column in result.probe.get("episode", {}).items()}
    require(all(column.ndim == 1 and len(column) == len(episode["t"]) for column in episode.values()))
    if bars := result.probe.get("bars", {}):
        require(numbers(bars["values"]).ndim == 2 and len(bars["values"]) == len(numbers(bars["t"])))
    if calibration := result.probe.get("calibration", {}):
        names = ("crps", "crps_point", "bias", "spread")
        found = numbers([calibration[n] for n in names] + [calibration["coverage"][n] for n in ("0.5", "0.8", "0.95")])
        require(found.ndim == 1 and bool(np.isfinite(found).all()) and calibration["spread"] > 0)
        require(all(0 < float(level) < 1 for level in calibration["coverage"]))
        require(numbers(list(calibration["coverage"].values())).ndim == 1)
        require(numbers(calibration["pit"]).shape == (20,))


def encode(result: Result) -> bytes:
    """A result as JSON, with a checksum of the rest."""
    text = compact(to_data(result))
    return (text[:-1] + f',"checksum":"{checksum(text)}"}}\n').encode()


def read(path: Path) -> Result:
    """Reads what `encode` gave, or says what is wrong with it."""
    data = read_json(path)
    try:
        if data.pop("checksum", None) != checksum(compact(data)):
            raise StoreError(f"{path} is damaged (its checksum does not match): run its command again to replace it.")
        if data["format"] != FORMAT:
            raise StoreError(f"{path} is of another format, {data['format']!r}: update mcclt to read it.")
        return from_data(data)
    except (KeyError, ValueError, RecursionError):
        raise StoreError(f"{path} is not a result of mcclt: run its command again to replace it.") from None


def read_in_place(path: Path) -> Result:
    """Reads a cell, unless it is another's than its path says: copied or moved, it would count twice."""
    found = read(path)
    own = (*place(found.task, found.algo, found.variant, found.digest), f"seed-{found.seed}.json")
    if path.parts[-4:] != own:
        raise StoreError(f"{path} is not in its place: it is the result of {'/'.join(own)}.")
    return found


def read_json(path: Path) -> dict[str, Any]:
    """A table from a file of JSON."""
    try:
        data = json.loads(files.read(path))
    except OSError as error:
        raise StoreError(f"Cannot read {path}: {error.strerror or error}.") from None
    except (ValueError, RecursionError):
        raise StoreError(f"{path} is damaged (not JSON): run its command again to replace it.") from None
    if not isinstance(data, dict):
        raise StoreError(f"{path} is damaged (not a table): run its command again to replace it.")
    return data


def read_settings(path: Path) -> dict[str, Any]:
    """The settings of a setup, as they were stored."""
    data = read_json(path)
    try:
        check_settings(data)
    except (KeyError, TypeError, ValueError):
        raise StoreError(f"{path} is damaged: run its command again to replace it.") from None
    return data


def check_settings(data: dict[str, Any]) -> None:
    """Raises an error unless each setting is of its type."""
    for cls in (AgentConfig, RunConfig):
        for name in set(fields_of(cls)) & set(data):
            coerce(cls, name, data[name])
    if int(data["steps"]) < 1:
        raise ValueError


def numbers(values: list[float | None]) -> np.ndarray:
    """Numbers as JSON holds them; null becomes NaN."""
    return np.array(values, dtype=np.float64)


def compact(data: Any) -> str:
    """JSON without spaces."""
    return json.dumps(data, separators=(",", ":"))


def checksum(text: str) -> str:
    """Of a cell."""
    return hashlib.blake2b(text.encode(), digest_size=8).hexdigest()
