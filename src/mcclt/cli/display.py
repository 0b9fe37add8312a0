"""What a person sees while a plan is computed or a search goes on: live bars on a terminal, plain lines elsewhere."""

import dataclasses
import time
from typing import TYPE_CHECKING, Self

from rich.console import Console
from rich.progress import BarColumn, Progress, ProgressColumn, TaskID, TextColumn, TimeRemainingColumn
from rich.table import Column

from mcclt.console import say
from mcclt.experiments.analysis.texts import count
from mcclt.experiments.runner import Display
from mcclt.experiments.units import Unit

if TYPE_CHECKING:
    from mcclt.tuning.tuner import Status

EVERY = 30.0
"""Seconds between lines about what is under way."""


class _Bars:
    """Bars, which are off where there is no terminal or nobody wants them."""

    def __init__(self, console: Console, quiet: bool, *columns: ProgressColumn) -> None:
        self.console, self.lines = console, not quiet and not console.is_terminal
        left = TimeRemainingColumn(table_column=Column(no_wrap=True))
        self.bars = Progress(*columns, left, console=console, expand=True)
        self.bars.disable = quiet or not console.is_terminal
        self.began = self._last = time.perf_counter()

    def __enter__(self) -> Self:
        self.bars.start()
        return self

    def __exit__(self, *_: object) -> None:
        """Leaves the last state on the screen."""
        self.bars.stop()

    def say(self, text: str) -> None:
        """Prints above the bars."""
        say(self.console, text)

    def now_and_then(self, text: str) -> None:
        """Prints a line where there are no bars, but not too often."""
        if self.lines and time.perf_counter() - self._last > EVERY:
            self._last = time.perf_counter()
            self.say(text)


class SearchDisplay(_Bars):
    """One line: how far, how fast, how full, and the best so far."""

    def __init__(self, console: Console, quiet: bool) -> None:
        super().__init__(console, quiet, _words("{task.fields[text]}", console.width - 16), BarColumn(bar_width=None))
        self._task = self.bars.add_task("", total=None, text="compiling…")

    def show(self, status: "Status") -> None:
        """After every update."""
        judged = sum(bool(trial.scores) for trial in status.trials)
        best = f"best {status.best.scores[-1]:,.0f}" if status.best else "no score yet"
        speed = status.steps / max(status.seconds, 1e-9)
        busy = f"{status.busy}/{status.places} busy  " if status.places else ""
        text = f"{judged}/{status.planned} settings  {best}  {busy}{speed:,.0f} steps/s"
        self.bars.update(self._task, completed=status.steps, total=max(status.expected, status.steps), text=text)
        self.now_and_then(f"{status.steps:>12,} / {status.expected:,} steps  {text}")

    def end(self, status: "Status") -> None:
        """Shows what it came to, with a full bar: how many steps it takes is known only now."""
        self.show(dataclasses.replace(status, expected=status.steps))


@dataclasses.dataclass
class _UnderWay:
    """A unit and the step that its agents have come to."""

    unit: Unit
    bar: TaskID
    begun: int
    """The step from which this command trains them: their last, as long as nothing is heard of an update."""
    step: int = 0

    @property
    def made(self) -> int:
        """Steps of all its agents by this command."""
        return len(self.unit.cells) * max(self.step - self.begun, 0)


class PlanDisplay(_Bars, Display):
    """A bar for all of a plan and one for each unit under way; elsewhere lines now and then and per finished unit.

    Bars say how much there is. Speed and time left come from what this command did, without what it continues.
    """

    def __init__(self, console: Console, quiet: bool) -> None:
        room = (console.width - 22) // 2  # beside a bar of a few columns, per cent and time left
        super().__init__(
            console,
            quiet,
            _words("{task.description}", room),
            BarColumn(bar_width=None),
            _words("{task.percentage:>3.0f}%", 4),
            _words("{task.fields[text]}", room),
        )
        self._units: dict[str, _UnderWay] = {}
        self._finished_steps = self._finished_made = self._total = self._cells = self._done = 0
        self._overall = self.bars.add_task("", total=None, text="", visible=False)

    def begin(self, cells: int, steps: int) -> None:
        """The work ahead."""
        self._cells, self._total = cells, steps
        self.began = time.perf_counter()
        self.bars.reset(self._overall, total=steps, description=count(cells, "cell"), visible=True)
        if self.lines:
            self.console.print(f"{count(cells, 'cell')} to compute, {steps:,} steps in all.")

    def unit_began(self, unit: Unit) -> None:
        """A line of its own."""
        bar = self.bars.add_task(_title(unit), total=unit.config.whole_steps, text="compiling…")
        self._units[unit.name] = _UnderWay(unit, bar, begun=unit.config.whole_steps)

    def progress(self, name: str, step: int, text: str) -> None:
        """Moves its bar and that of the whole."""
        if name not in self._units:
            return
        one = self._units[name]
        unit, config = one.unit, one.unit.config
        one.begun = min(one.begun, max(step - config.steps_per_update, 0))  # the first news follow the first update
        one.step = step
        alone = f"{unit.setups[0].name} " if len(unit.setups) == 1 else ""  # which begins the line anyway
        self.bars.update(one.bar, completed=one.step, text=text.removeprefix(alone))
        speed = f"{self._speed():,.0f} steps/s in all"
        self.bars.update(self._overall, completed=self._steps(), text=speed)
        self.now_and_then(f"{self._steps():>12,} / {self._total:,} steps  {speed}  {text}")

    def unit_ended(self, unit: Unit, written: int) -> None:
        """Takes its line away."""
        one = self._units.pop(unit.name)
        self._finished_steps += written * unit.config.whole_steps
        self._finished_made += written * (unit.config.whole_steps - one.begun)
        self._done += written
        self.bars.remove_task(one.bar)
        speed = self._speed()
        text = f"{self._done} done, {speed:,.0f} steps/s in all"
        self.bars.update(self._overall, completed=self._steps(), text=text)
        if self.lines:
            left = f"{max(self._total - self._steps(), 0) / speed:.0f}" if speed else "–"
            self.say(
                f"{self._done:>5} / {self._cells} cells  {speed:>8,.0f} steps/s in all  {left:>6} s left  "
                f"{_title(unit)}"
            )

    def _steps(self) -> int:
        return self._finished_steps + sum(len(one.unit.cells) * one.step for one in self._units.values())

    def _speed(self) -> float:
        made = self._finished_made + sum(one.made for one in self._units.values())
        return made / max(time.perf_counter() - self.began, 1e-9)


def _words(text: str, most: int) -> TextColumn:
    """Words of at most so many letters, on one line: it is the bar that shrinks."""
    column = Column(no_wrap=True, overflow="ellipsis", max_width=max(most, 1))
    return TextColumn(text, markup=False, table_column=column)


def _title(unit: Unit) -> str:
    names = ", ".join(setup.name for setup in unit.setups) if len(unit.setups) <= 3 else f"{len(unit.setups)} variants"
    seeds = f"seed {unit.seeds[0]}" if len(unit.seeds) == 1 else count(len(unit.seeds), "seed")
    return f"{names} on {unit.setups[0].task} ({seeds})"
