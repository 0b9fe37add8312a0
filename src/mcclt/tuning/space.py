"""What is searched: a range or choices for some settings, and what all agents have in common.

A space is a TOML file with two tables, and perhaps a base:

    base = "modern"

    [search]
    learning_rate = { low = 1e-5, high = 1e-3, scale = "log" }
    critic_learning_rate = { low = 0.3, high = 10, scale = "log", times = "learning_rate" }
    gamma = { low = 0.97, high = 0.9999, scale = "complement" }
    steps_per_update = [2048, 4096]

    [fixed]
    minibatch_size = 128

A setting that is only a number has a range (`linear`, `log`, or `complement`: 1 minus the setting on a logarithmic
scale) or choices; any other has choices. Each combination of those others is a structure: a program of its own. What is
neither searched nor fixed is as the base has it, a preset; without one, at its default.
"""

import importlib.resources
import itertools
import math
import tomllib
from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import Any

from mcclt import presets
from mcclt.config import CHANGEABLE, NUMBERS, WHOLE, AgentConfig, RunConfig, override
from mcclt.config.effects import reads
from mcclt.config.values import coerce
from mcclt.errors import ConfigError, UnknownNameError, shown
from mcclt.experiments.setups import owner_of
from mcclt.storage.configuration import read_file

SCALES = ("linear", "log", "complement")


@dataclass(frozen=True)
class Range:
    """The values a number may take, from `low` to `high`."""

    low: float
    high: float
    scale: str = "linear"
    times: str | None = None
    """The setting that the number is a multiple of."""

    def at(self, u: float) -> float:
        """The value at u in [0, 1], in three digits: more would only make settings hard to read."""
        match self.scale:
            case "log":
                value = self.low * (self.high / self.low) ** u
            case "complement":
                value = 1 - (1 - self.low) * ((1 - self.high) / (1 - self.low)) ** u
                return round(1 - float(f"{1 - value:.3g}"), 12)
            case _:
                value = self.low + (self.high - self.low) * u
        return float(f"{value:.3g}")


@dataclass(frozen=True)
class Choices:
    """The values a setting may take."""

    values: tuple[Any, ...]

    def at(self, u: float) -> Any:
        """The value at u in [0, 1]: each has an equal part."""
        return self.values[min(int(u * len(self.values)), len(self.values) - 1)]


@dataclass(frozen=True)
class Space:
    """What is searched; see above."""

    numbers: Mapping[str, Range | Choices]
    structures: Mapping[str, Choices]
    own: Mapping[str, Any]
    """Settings that it fixes itself."""
    base: str | None = None
    """The preset that it takes all others from."""
    task: str = ""
    """What is searched on, where presets differ by task."""

    @classmethod
    def of(cls, data: Mapping[str, Any], task: str = "", source: object = "The space") -> "Space":
        """Reads the two tables and the base, or raises a `ConfigError` of one sentence."""
        if unknown := [name for name in data if name not in ("base", "search", "fixed")]:
            raise ConfigError(f"{source} has {shown(unknown[0])}: it may have a base, and tables [search] and [fixed].")
        tables = [data.get(name, {}) for name in ("search", "fixed")]
        if not all(isinstance(table, Mapping) for table in tables):
            raise ConfigError(f"{source} must have tables [search] and [fixed].")
        search, fixed = tables
        if both := [name for name in search if name in fixed]:
            raise ConfigError(f"{source} both searches and fixes {both[0]}: leave one out.")
        found = {name: _read(name, value) for name, value in search.items()}
        numbers = {name: one for name, one in found.items() if name in NUMBERS}
        others = {name: one for name, one in found.items() if isinstance(one, Choices) and name not in NUMBERS}
        base = str(data["base"]) if "base" in data else None
        space = cls(numbers, others, {name: _value(name, value) for name, value in fixed.items()}, base, task)
        space._check(source)
        return space

    @classmethod
    def read(cls, path: Path, task: str = "") -> "Space":
        """From a TOML file."""
        return cls.of(read_file(path), task, path)

    @classmethod
    def default(cls, algo: str) -> "Space":
        """The space for an algorithm unless another is given."""
        if algo not in ("ppo", "trpo"):
            raise ConfigError(f"There is no search space for algorithm {algo!r}: give your own, as a TOML file.")
        text = (importlib.resources.files("mcclt.tuning") / f"{algo}.toml").read_text(encoding="utf-8")
        return cls.of(tomllib.loads(text), source=f"The space of {algo}")

    @cached_property
    def fixed(self) -> dict[str, Any]:
        """What all agents have in common."""
        bases = []
        for structure in self.all_structures():
            algo, critic = ({**self.own, **structure}.get(n, getattr(AgentConfig, n)) for n in ("algo", "critic"))
            of_run, of_agent = presets.settings(self.base, self.task, algo, critic)
            bases.append(of_run | of_agent)
        if any(base != bases[0] for base in bases):
            raise ConfigError(
                f"base = {self.base!r} differs between what is searched: fix critic, and name algorithms with --algo."
            )
        free = {name: _value(name, value) for name, value in bases[0].items() if name not in self.searched}
        return free | dict(self.own)

    @property
    def searched(self) -> dict[str, Range | Choices]:
        """All settings that differ."""
        return {**self.numbers, **self.structures}

    def fixing(self, values: Mapping[str, Any]) -> "Space":
        """The same, with these settings given, and so not searched."""
        left = {name: one for name, one in self.numbers.items() if name not in values}
        others = {name: one for name, one in self.structures.items() if name not in values}
        own = {**self.own, **{name: _value(name, value) for name, value in values.items()}}
        space = replace(self, numbers=left, structures=others, own=own)
        space._check("The space")
        return space

    def side_by_side(self, algo: str) -> "Space":
        """The same for one of several algorithms that are searched beside each other.

        The algorithm is in the name of each setting then, and what it does not read is left out.
        """
        space = self.fixing({"algo": algo})
        agents = [space.middle(RunConfig(""), structure)[1] for structure in space.all_structures()]
        unread = {name for name in (*space.searched, *space.own) if not any(reads(agent, name) for agent in agents)}
        space = replace(
            space,
            numbers={name: one for name, one in space.numbers.items() if name not in unread},
            structures={"algo": Choices((algo,))}
            | {name: one for name, one in space.structures.items() if name not in unread},
            own={name: value for name, value in space.own.items() if name not in unread | {"algo"}},
        )
        space._check(f"The space of {algo}")
        return space

    def _check(self, source: object) -> None:
        """Both ends of every range must be settings that an agent can have."""
        if not self.numbers:
            raise ConfigError(
                f"{source} searches no number: give a range, such as gamma = {{low = 0.9, high = 0.999}}."
            )
        for name, one in self.numbers.items():
            times = one.times if isinstance(one, Range) else None
            factors = self.numbers.get(times or "")
            if times is not None and (times not in NUMBERS or (isinstance(factors, Range) and factors.times)):
                raise ConfigError(
                    f"{name} cannot be a multiple of {times}: name one setting that is a number of its own."
                )
        for structure in self.all_structures():
            for u in (0.0, 1.0):
                self.settings(structure, dict.fromkeys(self.numbers, u))

    def all_structures(self) -> list[dict[str, Any]]:
        """Every combination of the settings that are not numbers."""
        values = [one.values for one in self.structures.values()]
        return [dict(zip(self.structures, each, strict=True)) for each in itertools.product(*values)]

    def settings(self, structure: Mapping[str, Any], point: Mapping[str, float]) -> dict[str, Any]:
        """All settings of an agent at a point of the unit cube, checked."""
        found = {**self.fixed, **structure, **{name: one.at(point[name]) for name, one in self.numbers.items()}}
        for name, one in self.numbers.items():
            if not isinstance(one, Range):
                continue
            if one.times is not None:
                base = found.get(one.times, getattr(AgentConfig, one.times))
                if base is None:
                    raise ConfigError(f"{name} cannot be a multiple of {one.times}, which is unset: fix or search it.")
                found[name] = float(f"{found[name] * base:.3g}")
            if name in WHOLE:
                found[name] = round(found[name])
        configured(RunConfig(""), found)
        return found

    def middle(self, run: RunConfig, structure: Mapping[str, Any]) -> tuple[RunConfig, AgentConfig]:
        """A run and an agent of this structure, every number in the middle of its range."""
        return configured(run, self.settings(structure, dict.fromkeys(self.numbers, 0.5)))


def configured(run: RunConfig, settings: Mapping[str, Any]) -> tuple[RunConfig, AgentConfig]:
    """A run and an agent with these settings; a `ConfigError` where they make no sense."""
    own = {name: value for name, value in settings.items() if name in CHANGEABLE}
    agent = override(AgentConfig(), {name: value for name, value in settings.items() if name not in own})
    return override(run, own), agent


def _value(name: str, value: Any) -> Any:
    return coerce(owner_of(name), name, value)


def _read(name: str, value: Any) -> Range | Choices:
    """A range or choices, as a file or a program gives them."""
    owner_of(name)
    if isinstance(value, list | tuple):
        if not value:
            raise ConfigError(f"{name} = [] leaves nothing to choose: give at least one value.")
        values = tuple(_value(name, one) for one in value)
        if name in NUMBERS and None in values and {*values} != {None}:
            raise ConfigError(
                f"{name} cannot be unset for some agents and a number for others, which share one program: search its"
                " numbers here, and fix it as unset in a search of its own."
            )
        return Choices(values)
    if not isinstance(value, Mapping) or not {"low", "high"} <= {*value} <= {"low", "high", "scale", "times"}:
        raise ConfigError(
            f"{name} = {shown(value)} is not allowed: give choices, such as [8, 16], or a range, such as"
            ' {low = 1e-5, high = 1e-3, scale = "log"}.'
        )
    if name not in NUMBERS:
        raise ConfigError(f"{name} is not a plain number, and has no range: give choices, such as {name} = [...].")
    low, high = value["low"], value["high"]
    numbers = all(type(x) in (int, float) and math.isfinite(x) for x in (low, high))
    if not numbers or not low < high:
        raise ConfigError(f"{name} has no range from {shown(low)} to {shown(high)}: low must be less than high.")
    scale = value.get("scale", "linear")
    if scale not in SCALES:
        raise UnknownNameError("scale", str(scale), SCALES)
    if (scale == "log" and low <= 0) or (scale == "complement" and high >= 1):
        bound = "more than 0" if scale == "log" else "less than 1"
        raise ConfigError(f"{name} cannot have the scale {scale} here: its values must be {bound}.")
    times = value.get("times")
    return Range(float(low), float(high), scale, None if times is None else str(times))
