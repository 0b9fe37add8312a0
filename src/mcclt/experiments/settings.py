"""Settings of runs as people compare them: a row for each setting, a value for each group."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from mcclt.config import AgentConfig, RunConfig
from mcclt.config.values import UNSET, fields_of

ALWAYS = ("seeds", "steps", "algo", "critic", "weighting")
"""Settings that say what was trained and how much of it: told even at their defaults."""


@dataclass(frozen=True)
class Row:
    """One setting."""

    name: str
    values: tuple[str, ...]
    """For people, of every group of every run, in order."""
    default: str
    telling: bool
    """Whether one of the values is not the default, or it is told anyway."""


def rows(configs: Sequence[RunConfig]) -> list[Row]:
    """Every setting of some runs, those of the run before those of its agents."""
    found = []
    groups = [(config, agent) for config in configs for agent in config.groups.values()]
    for place, default in enumerate((RunConfig(""), AgentConfig())):
        for name in fields_of(type(default)):
            if name in ("task", "groups"):
                continue
            usual, values = getattr(default, name), [getattr(pair[place], name) for pair in groups]
            telling = name in ALWAYS or any(value != usual for value in values)
            found.append(Row(name, tuple(map(text, values)), text(usual), telling))
    return found


def text(value: Any) -> str:
    """A value as one reads it: 0..7, 64,64, 40,000; – where there is none."""
    if isinstance(value, list | tuple) and len(value) > 4 and [*value] == [*range(value[0], value[-1] + 1)]:
        return f"{value[0]}..{value[-1]}"
    return f"{value:,}" if type(value) is int and value >= 10_000 else "–" if value is None else typed(value)


def typed(value: Any) -> str:
    """A value as one types it: 64,64, 40000, true, unset."""
    if isinstance(value, list | tuple):
        return ",".join(map(str, value))
    return UNSET if value is None else str(value).lower() if isinstance(value, bool) else str(value)
