"""What commands print on, and how they say a sentence."""

import os
import re
import sys
import textwrap
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from rich.console import Console

WIDE = 130
"""Columns of text where there is no terminal: tables in a file are not cut."""

TYPED = re.compile(r"  (\S.*?)(?:  |$)|(`[^`]*`)", re.MULTILINE)
"""What is to be typed, or shown as it is: between two spaces, or between backticks."""


def plain_console() -> "Console":
    """A console that prints what it is given: no markup, emoji or colours found in the text."""
    from rich.console import Console

    known = sys.stdout.isatty() or "COLUMNS" in os.environ
    return Console(highlight=False, markup=False, emoji=False, width=None if known else WIDE)


def say(console: "Console", *texts: str) -> None:
    """Prints sentences, each text on lines of its own: folded on a terminal, as they are elsewhere."""
    for text in texts:
        shown = folded(text, console.width) if console.is_terminal else text
        console.print(shown, soft_wrap=True, markup=False, emoji=False, highlight=False)


def folded(text: str, width: int) -> str:
    """Lines of so many columns, broken between words; what is to be typed, and a long word, stay whole to be copied."""
    whole = TYPED.sub(lambda m: m[0].replace(typed := m[1] or m[2], typed.replace(" ", "\xa0")), text)
    lines = (textwrap.fill(line, width, break_long_words=False, break_on_hyphens=False) for line in whole.split("\n"))
    return "\n".join(lines).replace("\xa0", " ")
