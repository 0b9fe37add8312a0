"""What commands print on."""

import os
import sys
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from rich.console import Console

WIDE = 130
"""Columns of text where there is no terminal: tables in a file are not cut."""


def plain_console() -> "Console":
    """A console that prints what it is given: no markup, emoji or colours found in the text."""
    from rich.console import Console

    known = sys.stdout.isatty() or "COLUMNS" in os.environ
    return Console(highlight=False, markup=False, emoji=False, width=None if known else WIDE)
