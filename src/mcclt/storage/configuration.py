"""Configurations as plain data and in files: those that people write, and those that are kept with what was trained."""

import dataclasses
import json
import re
import tomllib
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from mcclt.config import UNSTATED, AgentConfig, RunConfig, override
from mcclt.errors import ConfigError
from mcclt.storage import files

LARGEST_FILE = 2**24
"""Bytes of the largest configuration."""


def read_file(path: Path) -> dict[str, Any]:
    """Reads a TOML (or JSON) file: settings of a run and of its agents side by side, and [groups.NAME] tables."""
    try:
        text = files.read(path, LARGEST_FILE, pipes=True).decode()
        if path.suffix == ".json":
            data = json.loads(text, object_pairs_hook=_once)
        else:
            # Python's reader takes hours for a key of very many parts.
            if any(part.count(".") > 100 for part in re.split(r"""[^\w"'. \t-]""", text)):
                raise ValueError("a key has too many parts")
            data = tomllib.loads(text)
    except OSError as error:
        raise ConfigError(f"Cannot read the configuration {path}: {error.strerror}.") from None
    except (UnicodeDecodeError, ValueError, RecursionError) as error:
        raise ConfigError(f"The configuration {path} is not valid TOML or JSON: {str(error)[:200]}.") from None
    if not isinstance(data, dict):
        raise ConfigError(f"The configuration {path} must be a table of settings.")
    return data


def _once(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    """A table of JSON; a setting given twice is refused, as TOML does."""
    data = dict(pairs)
    if len(data) < len(pairs):
        raise ValueError(f"{next(k for i, (k, _) in enumerate(pairs) if k in dict(pairs[:i]))!r} appears twice")
    return data


def to_dict(config: RunConfig) -> dict[str, Any]:
    """A run's configuration as plain data, for JSON; `from_dict` reads it back."""
    return dataclasses.asdict(config)


def from_dict(data: Mapping[str, Any]) -> RunConfig:
    """Reads what `to_dict` wrote."""
    if not isinstance(data, dict):
        raise ConfigError("A run's configuration must be a table of settings.")
    data = UNSTATED | data
    groups = data.pop("groups", None)
    if not isinstance(groups, dict) or not all(isinstance(g, dict) for g in groups.values()):
        raise ConfigError("A run's configuration must have a table of groups.")
    if not isinstance(data.get("task"), str):
        raise ConfigError("A run's configuration must name its task.")
    configs = {name: override(AgentConfig(), group) for name, group in groups.items()}
    base = RunConfig(task=data.pop("task"), groups=configs)
    return override(base, data)
