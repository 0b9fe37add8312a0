"""How flags are spelt: types for the command line that our own functions read."""

import re
from collections.abc import Callable
from typing import Annotated, Any

import tyro

from mcclt.config import parse_seeds, parse_steps
from mcclt.errors import ConfigError


def as_text(metavar: str, parse: Callable[[str], Any]) -> Any:
    """A flag of one word that our own function reads; sequences are shown with commas."""
    return tyro.constructors.PrimitiveConstructorSpec(
        nargs=1,
        metavar=metavar,
        instance_from_str=lambda args: parse(args[0]),
        is_instance=lambda x: isinstance(x, int | tuple),
        str_from_instance=lambda x: [",".join(map(str, x)) if isinstance(x, tuple) else str(x)],
    )


def names(text: str) -> tuple[str, ...]:
    """Words between commas."""
    return tuple(part.strip() for part in text.split(",") if part.strip())


def variants(text: str) -> tuple[str, ...]:
    """Words between commas, where a number goes with the word before it: mcclt@critic_hidden=64,64,plain."""
    return tuple(part.strip() for part in re.split(r",(?!\s*[0-9])", text) if part.strip())


def widths(text: str) -> tuple[int, ...]:
    """Whole numbers between commas."""
    try:
        return tuple(int(part) for part in text.split(","))
    except ValueError:
        raise ConfigError(f"{text!r} is not allowed: give widths such as 64,32.") from None


Comma = Annotated[tuple[str, ...], as_text("A,B,...", names)]
Variants = Annotated[tuple[str, ...], as_text("A,B,...", variants)]
Widths = Annotated[tuple[int, ...], as_text("N,N,...", widths)]
Steps = Annotated[int, as_text("STEPS", parse_steps)]
Seeds = Annotated[tuple[int, ...], as_text("SEEDS", parse_seeds)]
