import sys
from io import StringIO

import pytest
from rich.console import Console

from mcclt.console import WIDE, folded, plain_console, say


@pytest.mark.parametrize(("columns", "width"), [(None, WIDE), ("57", 57)])
def test_a_file_is_wide_unless_told(monkeypatch: pytest.MonkeyPatch, columns: str | None, width: int) -> None:
    monkeypatch.setattr(sys, "stdout", StringIO())
    monkeypatch.delenv("COLUMNS", raising=False)
    if columns is not None:
        monkeypatch.setenv("COLUMNS", columns)
    console = plain_console()
    assert console.width == width
    console.print("[bold]as it is[/bold] :smile:")
    assert sys.stdout.getvalue() == "[bold]as it is[/bold] :smile:\n"


def test_sentences_are_folded_between_words_and_commands_stay_whole() -> None:
    text = "It is saved in a-very-long-name; continue with  mcclt train --resume runs/one  or see `mcclt train --help`."
    lines = folded(text, 40).splitlines()
    assert lines == [
        "It is saved in a-very-long-name;",
        "continue with",
        "mcclt train --resume runs/one  or see",
        "`mcclt train --help`.",
    ]
    assert folded("Interrupted.\n  mcclt train one two three", 10) == "Interrupted.\nmcclt train one two three"
    assert folded("First\n\n  as it is", 40) == "First\n\n  as it is"
    assert folded("a/path/longer/than/the/line", 10) == "a/path/longer/than/the/line"


def test_only_a_terminal_has_folded_lines() -> None:
    for terminal, lines in ((True, ["[one] two", "three"]), (False, ["[one] two three"])):
        out = StringIO()
        say(Console(file=out, force_terminal=terminal, width=10), "[one] two three")
        assert out.getvalue().splitlines() == lines
