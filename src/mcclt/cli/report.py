"""`mcclt report`."""

from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

from tyro.conf import Positional

from mcclt.cli.command import Command
from mcclt.cli.flags import STORE
from mcclt.console import plain_console


@dataclass(frozen=True, kw_only=True)
class Report(Command):
    """Write the report of a store: one HTML page, and its tables and figures as files.

    mcclt report my-results
    """

    store: Annotated[Path, Positional] = STORE
    """The directory of results."""
    out: Path | None = None
    """Where to write; unset: STORE/report."""

    def run(self) -> None:
        """Writes the report, and says what is wrong with the store."""
        from mcclt.experiments.store import Store
        from mcclt.pages import report

        results = Store(self.store).load()
        path = report.write(results, self.out or self.store / "report")
        console = plain_console()
        for sentence in (*results.problems, *results.notes):
            console.print(sentence, soft_wrap=True)
        console.print(f"Report: {path}", soft_wrap=True)
