"""Values of settings: from text, files and users to the type of a field, and the refusals of what cannot be."""

import dataclasses
import functools
import math
import operator
import re
import types
import typing
from collections.abc import Callable, Mapping
from decimal import Decimal
from typing import Any, Literal

from mcclt.errors import ConfigError, UnknownNameError, shown

UNSET = "unset"
"""The word for a setting without a value, in help, on the command line and in files."""


def fields_of(cls: type) -> list[str]:
    """The names of a configuration's settings."""
    return [f.name for f in dataclasses.fields(cls)]


@functools.cache
def _hints(cls: type) -> dict[str, Any]:
    return typing.get_type_hints(cls)


def require(condition: bool, what: str, allowed: str) -> None:
    """Raises a `ConfigError` of one sentence unless the condition holds."""
    if not condition:
        raise ConfigError(f"{what} is not allowed: it must be {allowed}.")


def require_each(config: Any, names: str, holds: Callable[[Any], bool], allowed: str) -> None:
    """The same for each of the settings named, as far as they are set."""
    for name in names.split():
        value = getattr(config, name)
        require(value is None or holds(value), f"{name} = {value}", allowed)


def check_types(config: Any) -> None:
    """Makes every value what the type of its field says, as `coerce` does; a `ConfigError` where it cannot be."""
    for name in fields_of(type(config)):
        object.__setattr__(config, name, coerce(type(config), name, getattr(config, name)))  # it is frozen


def parse_steps(text: str) -> int:
    """Reads 200000, 200_000, 200k, 1M, 1.5M or 1e6."""
    match = len(text) <= 40 and re.fullmatch(r"([0-9][0-9_]*(?:\.[0-9]+)?(?:e[0-9]{1,2})?)([kKmM]?)", text.strip())
    scale = {"": 1, "k": 1_000, "m": 1_000_000}
    value = Decimal(match[1].replace("_", "")) * scale[match[2].lower()] if match else Decimal("0.5")
    if value != int(value) or value >= 2**63:
        raise ConfigError(f"{shown(text)} is not a number of steps: give a whole number such as 200000, 200k or 1M.")
    return int(value)


def parse_seeds(value: Any) -> tuple[int, ...]:
    """Reads 3, "0,1,2", "0..7" (both ends included), or a sequence of whole numbers."""
    refusal = ConfigError(
        f"seeds = {shown(value)} is not allowed: give 3, a list 0,1,2 or a range 0..7 of at most {MOST_SEEDS:,} seeds."
    )
    if isinstance(value, str):
        seeds: list[int] = []
        for part in value.split(","):
            match = re.fullmatch(r"\s*([0-9]{1,10})(?:\.\.([0-9]{1,10}))?\s*", part)
            if match is None:
                raise refusal
            first, last = int(match[1]), int(match[2] or match[1])
            if not first <= last < first + MOST_SEEDS:
                raise refusal
            seeds += range(first, last + 1)
        return tuple(seeds)
    try:
        values = [value] if not hasattr(value, "__iter__") else list(value)
        if any(isinstance(v, bool) for v in values):
            raise refusal
        return tuple(operator.index(v) for v in values)  # NumPy's integers as well
    except TypeError:
        raise refusal from None


MOST_SEEDS = 10_000
WORDS: dict[Any, str] = {
    bool: "true or false",
    int: "a whole number",
    float: "a finite number",
    str: "a word",
    tuple: "whole numbers such as (64, 64)",
    Mapping: "a table of AgentConfigs, each by the name of its group",
    type(None): UNSET,
}
"""What a setting of each type is, for people."""


def coerce(cls: type, name: str, value: Any) -> Any:
    """A value from a file or a user as the type of field `name`, or a `ConfigError`."""
    value = _plain(value)
    if any(type(v) is int and abs(v) >= 2**63 for v in (value if isinstance(value, list | tuple) else [value])):
        raise ConfigError(f"{name} = {shown(value)} is not allowed: it is beyond any number of steps, seeds or widths.")
    kind = _hints(cls)[name]
    if name == "seeds" and typing.get_origin(kind) is tuple:
        return parse_seeds(value)
    if name in ("steps", "eval_freq", "checkpoint_freq", "decay_steps") and isinstance(value, str):
        return parse_steps(value)
    kinds = typing.get_args(kind) if isinstance(kind, types.UnionType) else (kind,)
    if value == UNSET and type(None) in kinds:  # TOML has no word of its own for it
        return None
    for k in kinds:
        origin = typing.get_origin(k)
        if origin is Literal and value in typing.get_args(k):
            return value
        if origin is tuple and isinstance(value, list | tuple) and all(type(v) is int for v in value):
            return tuple(value)
        if origin is Mapping and isinstance(value, Mapping) and _holds(value, *typing.get_args(k)):
            return value
        if k is float and type(value) in (int, float) and math.isfinite(value):
            return float(value)
        if isinstance(k, type) and k is not float and type(value) is k:
            return value
    if typing.get_origin(kind) is Literal:
        raise UnknownNameError(name, str(value), typing.get_args(kind))
    wanted = " or ".join(WORDS.get(typing.get_origin(k) or k, str(k)) for k in kinds)
    raise ConfigError(f"{name} = {shown(value)} is not allowed: it must be {wanted}.")


def _holds(table: Mapping[Any, Any], names: type, values: type) -> bool:
    """Whether all that is in a table is of these types."""
    return all(isinstance(name, names) and isinstance(value, values) for name, value in table.items())


def _plain(value: Any) -> Any:
    """Python's own numbers and lists for those of NumPy or JAX, also in a list."""
    if isinstance(value, list | tuple):
        return [_plain(v) for v in value]
    return value.tolist() if hasattr(value, "tolist") else value
