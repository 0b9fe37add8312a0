"""What a person sees while a search goes on: a bar on a terminal, a line now and then elsewhere."""

import time
from typing import TYPE_CHECKING, Self

from rich.console import Console
from rich.progress import BarColumn, Progress, TextColumn, TimeRemainingColumn

if TYPE_CHECKING:
    from mcclt.tuning.tuner import Status

EVERY = 30.0
"""Seconds between lines where there is no terminal."""


class SearchDisplay:
    """One line: how far, how fast, how full, and the best so far."""

    def __init__(self, console: Console, quiet: bool) -> None:
        self._console, self._lines = console, not quiet and not console.is_terminal
        columns = (TextColumn("{task.fields[text]}"), BarColumn(bar_width=None), TimeRemainingColumn())
        self._bar = Progress(*columns, console=console, expand=True, disable=quiet or not console.is_terminal)
        self._task = self._bar.add_task("", total=None, text="compiling…")
        self._last = time.perf_counter()

    def __enter__(self) -> Self:
        """Starts the bar."""
        self._bar.start()
        return self

    def __exit__(self, *_: object) -> None:
        """Leaves the last state on the screen."""
        self._bar.stop()

    def show(self, status: "Status") -> None:
        """After every update."""
        now = time.perf_counter()
        judged = sum(bool(trial.scores) for trial in status.trials)
        best = f"best {status.best.scores[-1]:,.0f}" if status.best else "no score yet"
        speed = status.steps / max(status.seconds, 1e-9)
        text = f"{judged}/{status.planned} settings  {best}  {status.busy}/{status.places} busy  {speed:,.0f} steps/s"
        self._bar.update(self._task, completed=status.steps, total=max(status.expected, status.steps), text=text)
        if self._lines and now - self._last > EVERY:
            self._last = now
            self._console.print(f"{status.steps:>12,} / {status.expected:,} steps  {text}", soft_wrap=True)

    def say(self, text: str) -> None:
        """A sentence above the bar."""
        self._console.print(text, soft_wrap=True)
