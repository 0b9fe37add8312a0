"""One result as a file: JSON with a checksum. Files may come from strangers, and are read with care."""

import contextlib
import dataclasses
import functools
import hashlib
import json
import math
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np

from mcclt.config import AgentConfig, RunConfig
from mcclt.config.values import coerce, fields_of
from mcclt.errors import MccltError
from mcclt.experiments.results import Result
from mcclt.experiments.setups import Setup
from mcclt.storage import files

FORMAT = "mcclt-store 1"
AGAIN = "run its command again to replace it"


class StoreError(MccltError):
    """A directory that is no store, or cannot be used as one; a file of it that cannot be read."""


refusals = functools.partial(files.refusals, StoreError)
"""What the operating system refuses to do (such as "read") with a file."""


@contextlib.contextmanager
def reading(path: Path, remedy: str = AGAIN) -> Iterator[None]:
    """The same while a file is read; whatever else goes wrong, it is damaged."""
    try:
        with refusals("read", path):
            yield
    except (ValueError, KeyError, IndexError, TypeError, AttributeError, OverflowError, RecursionError):
        raise StoreError(f"{path} is damaged: {remedy}.") from None


def file_name(text: str) -> str:
    """A task's id as the name of a directory."""
    return re.sub(r"[^\w.@+=,-]", "_", text)


def place(one: Setup | Result) -> tuple[str, str, str]:
    """Where the results of a setup are, below a store's `cells`."""
    return file_name(one.task), f"{one.algo}-{one.variant}", one.digest


# --- a result as data ------------------------------------------------------------------------------------------

NAMES = {field.name: "setup" if field.name == "digest" else field.name for field in dataclasses.fields(Result)}
"""Of a result's fields in a file."""


def to_data(result: Result) -> dict[str, Any]:
    """A result as plain data; returns keep six significant digits, curves four."""
    data = {"format": FORMAT} | {name: getattr(result, field) for field, name in NAMES.items()}
    data["curve"] = {name: plain(column, 7 if name == "step" else 4) for name, column in result.curve.items()}
    data["probe"] = plain(result.probe, 4)
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
    """The reverse of `to_data`; any error if it is not what `training` makes."""
    own = {field: data[name] for field, name in NAMES.items()}
    own["seed"], own["returns"] = int(own["seed"]), numbers(own["returns"])
    own["lengths"] = np.array(own["lengths"], int)
    own["curve"] = {name: numbers(column) for name, column in own["curve"].items()}
    result = Result(**own)
    check(result)
    return result


def check(result: Result) -> None:
    """Raises an error where a result is not as `training` makes it: a checksum is no signature.

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


def numbers(values: list[float | None]) -> np.ndarray:
    """Numbers as JSON holds them; null becomes NaN."""
    return np.array(values, dtype=np.float64)


# --- files -----------------------------------------------------------------------------------------------------


def encode(result: Result) -> bytes:
    """A result as JSON, with a checksum of the rest."""
    text = compact(to_data(result))
    return (text[:-1] + f',"checksum":"{checksum(text)}"}}\n').encode()


def compact(data: Any) -> str:
    """JSON without spaces."""
    return json.dumps(data, separators=(",", ":"))


def checksum(text: str) -> str:
    """Of a cell."""
    return hashlib.blake2b(text.encode(), digest_size=8).hexdigest()


def read(path: Path) -> Result:
    """Reads what `encode` gave, or says what is wrong with it."""
    with reading(path):
        data = json.loads(files.read(path))
        if data.pop("checksum", None) != checksum(compact(data)):
            raise StoreError(f"{path} is damaged (its checksum does not match): {AGAIN}.")
        check_format(path, data["format"], FORMAT)
        return from_data(data)


def check_format(path: Path, found: Any, known: str) -> None:
    """Refuses what a newer version wrote."""
    if found != known:
        raise StoreError(f"{path} is of another format, {found!r}: update mcclt to read it.")


def read_in_place(path: Path) -> Result:
    """Reads a cell, unless it is another's than its path says: copied or moved, it would count twice."""
    found = read(path)
    own = (*place(found), f"seed-{found.seed}.json")
    if path.parts[-4:] != own:
        raise StoreError(f"{path} is not in its place: it is the result of {'/'.join(own)}.")
    return found


def read_settings(path: Path) -> dict[str, Any]:
    """The settings of a setup, as they were stored."""
    with reading(path):
        return checked_settings(json.loads(files.read(path)))


def checked_settings(data: dict[str, Any]) -> dict[str, Any]:
    """The same, or an error if one is not of its type."""
    for cls in (AgentConfig, RunConfig):
        for name in set(fields_of(cls)) & set(data):
            coerce(cls, name, data[name])
    if int(data["steps"]) < 1:
        raise ValueError
    return data


def encode_settings(settings: dict[str, Any]) -> bytes:
    """A setup's settings as the file beside its loose cells."""
    return (json.dumps(settings, indent=1) + "\n").encode()


def read_timing(path: Path) -> dict[str, Any]:
    """A measurement of costs, with all that a report says of it."""
    with reading(path):
        data = json.loads(files.read(path))
        rows = data["rows"]
        texts = [data[name] for name in ("task", "algo", "device", "measured")] + [row["variant"] for row in rows]
        costs = numbers([row[name] for row in rows for name in ("seconds_per_update", "critic_parameters")])
        if not all(isinstance(x, str) for x in texts) or not (costs > 0).all() or not np.isfinite(costs).all():
            raise ValueError
        return data
