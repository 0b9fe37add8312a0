"""What a person sees while agents learn: a live bar on a terminal, plain lines elsewhere."""

import time
import warnings

import numpy as np
from rich.console import Console, Group
from rich.live import Live
from rich.progress import BarColumn, Progress, TextColumn, TimeRemainingColumn
from rich.text import Text

from mcclt.console import say
from mcclt.storage.trackers import Row
from mcclt.training.trainer import Trainer

LINES = 20
"""How many plain lines a whole run prints."""


class Display:
    """A `rich` bar with steps/s and time left; below it for each group the mean return with its spread over seeds."""

    def __init__(self, console: Console, total: int, start: int, every: int | None = None) -> None:
        """For a training of `total` steps; with a line after `every` so many updates, in place of the bar."""
        self.console, self.total, self._every = console, total, every
        self._live = console.is_terminal and every is None
        self._began, self._start = time.perf_counter(), start
        self._printed = start * LINES // total
        self._groups: list[str] = []
        if self._live:
            self._bar = Progress(
                BarColumn(bar_width=None),
                TextColumn("{task.completed:,.0f}/{task.total:,.0f} steps  {task.fields[fps]}"),
                TimeRemainingColumn(elapsed_when_finished=True),
                console=console,
                expand=True,
            )
            self._task = self._bar.add_task("training", total=total, completed=start, fps="compiling…")
            self._screen = Live(self._bar, console=console)

    def __enter__(self) -> "Display":
        """Starts the bar."""
        if self._live:
            self._screen.start()
        return self

    def __exit__(self, *_: object) -> None:
        """Leaves the last state of the bar on the screen."""
        if self._live:
            self._screen.stop()

    def on_update(self, trainer: Trainer, rows: list[Row]) -> None:
        """Moves the bar, or prints one of about `LINES` lines."""
        step = trainer.step
        elapsed = time.perf_counter() - self._began
        fps = (step - self._start) * len(trainer.agents) / max(elapsed, 1e-9)
        self._groups = describe(rows) if rows else self._groups
        if self._live:
            self._bar.update(self._task, completed=step, fps=f"{fps:,.0f} steps/s in all")
            lines = (Text(line, overflow="ellipsis", no_wrap=True) for line in self._groups)
            self._screen.update(Group(self._bar, *lines))
        elif self._due(step, trainer) or trainer.finished:
            self._printed = step * LINES // self.total
            left = elapsed / max(step - self._start, 1) * (self.total - step)
            text = "  ".join(self._groups)
            say(
                self.console,
                f"{step:>11,} / {self.total:,} steps  {fps:>8,.0f} steps/s in all  {left:>5.0f} s left  {text}",
            )

    def _due(self, step: int, trainer: Trainer) -> bool:
        return trainer.update % self._every == 0 if self._every else step * LINES // self.total > self._printed

    def on_message(self, text: str) -> None:
        """Prints above the bar."""
        say(self.console, text)


def describe(rows: list[Row]) -> list[str]:
    """`mcclt 3021 ± 150 (8 seeds)` for each group at the last update: mean and standard deviation over seeds."""
    rows = [row for row in rows if row.get("update") == rows[-1].get("update")]
    parts = []
    for group in dict.fromkeys(row["group"] for row in rows):
        returns = [r["rollout/ep_rew_mean"] for r in rows if r["group"] == group and "rollout/ep_rew_mean" in r]
        if not returns:
            parts.append(f"{group} –")
        elif len(returns) == 1:
            parts.append(f"{group} return {returns[0]:.0f}")
        else:
            spread = np.std(returns, ddof=1)
            parts.append(f"{group} return {np.mean(returns):.0f} ± {spread:.0f} ({len(returns)} seeds)")
    return parts


class Quiet:
    """Shows nothing but what must be read."""

    def __init__(self, console: Console) -> None:
        self.console = console

    def on_update(self, trainer: Trainer, rows: list[Row]) -> None:
        """Nothing."""

    def on_message(self, text: str) -> None:
        """Prints."""
        say(self.console, text)


class Warner:
    """Shows nothing; what must be read is a warning of Python."""

    def on_update(self, trainer: Trainer, rows: list[Row]) -> None:
        """Nothing."""

    def on_message(self, text: str) -> None:
        """Warns."""
        warnings.warn(text, stacklevel=2)
