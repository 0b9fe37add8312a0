"""The command line, run within a test."""

from pathlib import Path
from typing import Any

import pytest

from mcclt.cli import main
from probes import TINY_FLAGS

TINY = [*TINY_FLAGS, "--critic", "plain"]


class Cli:
    """Runs commands in this process, in a directory of their own."""

    def __init__(self, capsys: pytest.CaptureFixture[str]) -> None:
        self.capsys = capsys

    def __call__(self, *args: object, code: int = 0) -> tuple[str, str]:
        self.capsys.readouterr()
        got: Any = 0
        try:
            main([str(a) for a in args])
        except SystemExit as end:
            got = end.code or 0
        except KeyboardInterrupt:  # would end the tests
            got = "KeyboardInterrupt"
        out, err = self.capsys.readouterr()
        assert got == code, f"exit code {got}\n{out}\n{err}"
        assert "Traceback" not in out + err and "\x1b" not in out + err
        return out, err

    def refused(self, *args: object) -> str:
        """What is said of bad input: exit code 2, one line, nothing on stdout, nothing written."""
        before = sorted(Path.cwd().rglob("*"))
        out, err = self(*args, code=2)
        assert out == "" and err.count("\n") == 1 and err.startswith("mcclt: ")
        assert sorted(Path.cwd().rglob("*")) == before, "nothing is written"
        return err
