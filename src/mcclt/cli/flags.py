"""How values are typed on the command line, and how defaults are shown in its help."""

import re
import types
import typing
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Annotated, Any, Literal, NamedTuple

from mcclt.config.values import MOST_SEEDS, UNSET, parse_seeds, parse_steps, require
from mcclt.errors import ConfigError, UnknownNameError, shown
from mcclt.experiments.settings import typed


class Spelling(NamedTuple):
    """How a value is typed: the word that stands for it in help, what reads it, and what else to say if it cannot.

    Of `several` values, who types the flag twice means both.
    """

    metavar: str
    read: Callable[[str], Any]
    allowed: str = ""
    several: bool = False


def names(text: str, between: str = ",") -> tuple[str, ...]:
    """Words between commas, or between what another pattern finds; each once."""
    found = tuple(part.strip() for part in re.split(between, text) if part.strip())
    if again := [word for word, times in Counter(found).items() if times > 1]:
        raise ConfigError(f"{shown(text)} is not allowed: it names {again[0]} more than once.")
    return found


def paths(text: str) -> tuple[Path, ...]:
    """Paths between commas; one that is there may have commas of its own."""
    return (Path(text),) if Path(text).exists() else tuple(map(Path, names(text)))


def seeds_of(seeds: tuple[int, ...] | None, count: int) -> tuple[int, ...]:
    """The seeds 0 to `count` - 1, unless seeds are named as well."""
    if seeds:
        raise ConfigError("--seeds names seeds and --n-seeds counts them: leave one out.")
    require(1 <= count <= MOST_SEEDS, f"n_seeds = {count}", f"between 1 and {MOST_SEEDS:,}")
    return tuple(range(count))


Comma = Annotated[tuple[str, ...], Spelling("A,B,...", names, several=True)]
Variants = Annotated[tuple[str, ...], Spelling("A,B,...", lambda text: names(text, r",(?!\s*[0-9])"), several=True)]
"""A number goes with the word before it: mcclt@critic_hidden=64,64,plain."""
Widths = Annotated[
    tuple[int, ...], Spelling("N,N,...", lambda text: tuple(map(int, text.split(","))), "widths such as 64,32")
]
Steps = Annotated[int, Spelling("STEPS", parse_steps)]
Seeds = Annotated[tuple[int, ...], Spelling("SEEDS", parse_seeds)]

BASIC: dict[Any, Spelling] = {
    str: Spelling("NAME", str),
    int: Spelling("INT", int, "a whole number"),
    float: Spelling("FLOAT", float, "a number"),
    Path: Spelling("PATH", Path),
}
STORE = Path("my-results")
"""Where results go, and are read, unless another store is named."""


def spelling(kind: Any) -> Spelling:
    """How values of a type are typed."""
    for extra in getattr(kind, "__metadata__", ()):
        if isinstance(extra, Spelling):
            return extra
    if typing.get_origin(kind) is Annotated:
        kind = typing.get_args(kind)[0]
    if typing.get_origin(kind) is Literal:
        return Spelling("{" + ",".join(typing.get_args(kind)) + "}", str)
    if typing.get_origin(kind) in (typing.Union, types.UnionType):
        (some,) = set(typing.get_args(kind)) - {type(None)}
        inner = spelling(some)
        if some is Path:  # may have any name
            return inner
        return inner._replace(read=lambda text: None if text == UNSET else inner.read(text))
    return BASIC[kind]


def read(name: str, kind: Any, text: str) -> Any:
    """A flag's value, or one sentence why it is none."""
    how = spelling(kind)
    choices = how.metavar[1:-1].split(",") if how.metavar.startswith("{") else [text]
    if text not in choices:
        raise UnknownNameError(name, text, choices)
    try:
        value = how.read(text)
    except ConfigError:
        raise
    except ValueError:
        raise ConfigError(f"{name} = {text!r} is not allowed: give {how.allowed}.") from None
    if value == ():  # which would mean all of them
        raise ConfigError(f"{name} = {text!r} is not allowed: name at least one.")
    return value


def show(value: Any, kind: Any) -> str:
    """A default, as one would type it."""
    if isinstance(value, bool):
        return "on" if value else "off"
    if kind == Steps and value:
        for size, letter in ((1_000_000, "M"), (1_000, "k")):
            if value % size == 0:
                return f"{value // size}{letter}"
    return typed(None if value == () else value)
