"""`mcclt report`."""

import shlex
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

from tyro.conf import Positional

from mcclt.cli.command import Command
from mcclt.cli.flags import STORE, Spelling, names
from mcclt.console import plain_console
from mcclt.errors import ConfigError

if TYPE_CHECKING:
    from mcclt.experiments.results import Results

EVERY = 10
"""Seconds between two versions of a page that is followed."""


def _paths(text: str) -> tuple[Path, ...]:
    return tuple(map(Path, names(text)))


@dataclass(frozen=True, kw_only=True)
class Report(Command):
    """Write the report of a store or of runs: one HTML page, and its tables and figures as files.

    mcclt report my-results
    """

    store: Annotated[tuple[Path, ...], Spelling("STORE", _paths), Positional] = (STORE,)
    """The directory of results, or run directories with commas between them."""
    out: Path | None = None
    """Where to write; unset: report in the (first) directory."""
    follow: bool = False
    """Write it again every ten seconds while runs go on; an open page updates itself."""

    def run(self) -> None:
        """Writes the report, and says what is wrong with the store."""
        from mcclt.experiments.store import Store
        from mcclt.pages import report

        console, first = plain_console(), self.store[0]
        folder = self.out or first / "report"
        trained = [path for path in self.store if (path / "config.json").is_file()]
        if len(trained) < len(self.store) and len(self.store) > 1:
            other = next(path for path in self.store if path not in trained)
            raise ConfigError(f"{other} is not a run directory: a report is of several of these, or of one store.")
        if self.follow and not trained:
            raise ConfigError(f"--follow is for a run that goes on, and {first} is not a run directory.")
        repeat = [f"mcclt train --config {shlex.quote(str(path / 'config.json'))}" for path in trained] or None
        said = False
        while True:
            on = self.follow and not all((path / "evaluation.json").exists() for path in trained)
            results = _of_runs(trained) if trained else Store(first).load()
            if results.series or not on:
                path = report.write(results, folder, repeat, EVERY if on else 0)
                if not said:
                    for sentence in (*results.problems, *results.notes):
                        console.print(sentence, soft_wrap=True)
                    console.print(f"Report: {path}", soft_wrap=True)
                said = True
            if not on:
                return
            time.sleep(EVERY)


def _of_runs(paths: Sequence[Path]) -> "Results":
    from mcclt.experiments.runs import results_of  # with JAX, which a store does not need

    return results_of(paths)
