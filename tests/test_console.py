import sys
from io import StringIO

import pytest

from mcclt.console import WIDE, plain_console


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
