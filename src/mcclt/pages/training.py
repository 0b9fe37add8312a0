"""The page of run directories: what `mcclt train` learnt, how well, how fast, and with which settings."""

import os
import shlex
from pathlib import Path
from typing import Any

from mcclt.errors import ConfigError
from mcclt.experiments import settings
from mcclt.experiments.cells import refusals
from mcclt.experiments.curve import PARTS
from mcclt.experiments.plan import describe_seconds
from mcclt.experiments.runs import Trained, Training
from mcclt.pages import report
from mcclt.pages.curves import curves
from mcclt.pages.rendering import render
from mcclt.storage import files


def write(training: Training, folder: Path, refresh: int = 0) -> Path:
    """Writes report.html and figures/ into a folder.

    Args:
        training: runs, finished or not.
        folder: made if need be; an earlier report there is replaced.
        refresh: seconds after which an open page reads itself again; 0: never, and figures are drawn only then.

    Returns:
        The path of report.html, which needs no other file.

    Raises:
        ConfigError: nothing has been logged yet.
        StoreError: the folder cannot be written.
    """
    if not training.results.series:
        raise ConfigError(f"{training.runs[0].path} has no metrics yet: its first update is not done.")
    path = folder / "report.html"
    with refusals("write the report to", folder):
        drawings = {} if refresh else report.draw(training.results, folder / "figures")
        files.write_atomically(path, page(training, folder, drawings, refresh).encode())
    return path


def page(training: Training, folder: Path, drawings: dict[str, str] | None, refresh: int = 0) -> str:
    """The whole page; see `write`. Its links are from this folder."""
    results, runs = training.results, training.runs
    finished = all(run.finished for run in runs)
    values = report.shared(results, drawings, finished)
    if training.notes:
        values["notices"] = [("note", "Not finished", training.notes), *values["notices"]]
    return render(
        "training",
        curves(results, training=True),
        "report",
        **values,
        title=report.title_of(results),
        kicker="A training" if len(runs) == 1 else "Trainings",
        comparison=report.comparison(results),
        watched=[_watched(run.path, folder) for run in runs],
        speeds=[_speed(run) for run in runs],
        groups=[name if len(runs) == 1 else f"{name}, {run.path.name}" for run in runs for name in run.config.groups],
        settings=settings.rows([run.config for run in runs]),
        repeat=[f"mcclt train --config {shlex.quote(str(run.path / 'config.json'))}" for run in runs],
        refresh=refresh,
        finished=finished,
    )


def _watched(run: Path, folder: Path) -> tuple[str, str]:
    """A run as it is typed, and the address of its watch page, if there is one."""
    page = run / "watch.html"
    return shlex.quote(str(run)), Path(os.path.relpath(page, folder)).as_posix() if page.is_file() else ""


def _speed(run: Trained) -> dict[str, Any]:
    """A row of the table of speeds."""
    total = sum(run.seconds.values())
    return {
        "name": str(run.path),
        "agents": run.agents,
        "steps": f"{run.step:,}",
        "per_second": f"{run.steps_per_second:,.0f}" if run.steps_per_second else "–",
        "shares": [run.seconds[part] / total if total else 0.0 for part in PARTS],
        "first": describe_seconds(run.first),
        "total": describe_seconds(total),
    }
