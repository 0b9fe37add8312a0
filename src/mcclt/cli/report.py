"""`mcclt report`."""

import shlex
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

from tyro.conf import Positional

from mcclt.cli.command import Command
from mcclt.cli.flags import STORE, Spelling, paths
from mcclt.errors import ConfigError

EVERY = 10
"""Seconds between two versions of a page that is followed."""


@dataclass(frozen=True, kw_only=True)
class Report(Command):
    """Report on a store or on runs: one HTML page, and tables and figures as files.

    mcclt report my-results
    """

    store: Annotated[tuple[Path, ...], Spelling("STORE", paths), Positional] = (STORE,)
    """The directory of results, or run directories separated by commas."""
    out: Path | None = None
    """Where to write; unset: report/ in the (first) directory."""
    follow: bool = False
    """Rewrite it every ten seconds while runs go on; an open page updates itself. Waits for a run not yet started."""

    def run(self) -> None:
        """Writes the report, and says what is wrong with the store."""
        if self.follow:
            self._wait([path for path in self.store if not path.exists()])
        trained = [path for path in self.store if (path / "config.json").is_file()]
        if len(trained) < len(self.store) and len(self.store) > 1:
            other = next(path for path in self.store if path not in trained)
            raise ConfigError(f"{other} is not a run directory: give run directories only, or one store.")
        folder = self.out or self.store[0] / "report"
        if trained:
            self._of_runs(trained, folder)
        elif self.follow:
            raise ConfigError(f"--follow is for a run in progress, and {self.store[0]} is not a run directory.")
        else:
            self._of_a_store(folder)

    def _wait(self, paths: Sequence[Path]) -> None:
        """Until all of these runs have begun; a path that leads nowhere is a mistake."""
        for path in paths:
            if not path.parent.is_dir():
                raise ConfigError(
                    f"There is no directory {path.parent} for the run {path} to begin in: "
                    "check the path, or begin the run."
                )
        for path in paths:
            self.say(f"Waiting for the run {path} to begin; Ctrl-C ends that.")
            while not (path / "config.json").is_file():
                time.sleep(1)

    def _of_a_store(self, folder: Path) -> None:
        from mcclt.experiments.store import Store
        from mcclt.pages import report

        path = self.store[0]
        if (path / "search.json").is_file():
            page = path / "search.html"
            raise ConfigError(f"{path} is a search of `mcclt tune`, whose page is {page}.")
        if inside := sorted(config.parent for config in path.glob("*/config.json")):
            command = shlex.join(["mcclt", "report", ",".join(map(str, inside[:2]))])
            raise ConfigError(f"{path} is a folder of runs: name those to report on, as in  {command}")
        results = Store(path).load()
        self.say(*results.problems, *results.notes)
        self.say(f"Report: {report.write(results, folder)}")

    def _of_runs(self, paths: Sequence[Path], folder: Path) -> None:
        """Once, or again and again until the last of them has its final episodes."""
        from mcclt.experiments.runs import read_runs
        from mcclt.pages import training

        told = False
        while True:
            found = read_runs(paths)
            on = self.follow and not all(run.finished for run in found.runs)
            if found.results.series or not on:
                path = training.write(found, folder, EVERY if on else 0)
                if not told:
                    self.say(*found.notes, *found.results.notes, f"Report: {path}")
                    if on:
                        self.say(f"It is written again every {EVERY} seconds until the run ends; Ctrl-C ends that.")
                    told = True
            if not on:
                return
            with self.console.status("" if told else "Waiting for the first update"):
                time.sleep(EVERY)
