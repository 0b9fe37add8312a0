"""What a person sees while a plan is computed: one bar for all of it, and a line for each unit under way."""

import time

from rich.console import Console
from rich.progress import BarColumn, Progress, TaskID, TextColumn, TimeRemainingColumn

from mcclt.experiments.units import Unit
from mcclt.pages.rendering import count


class PlanDisplay:
    """Live bars on a terminal, a plain line per finished unit elsewhere."""

    def __init__(self, console: Console, quiet: bool) -> None:
        self.console = console
        self._units: dict[str, tuple[Unit, int]] = {}
        self._finished_steps = self._total = self._cells = self._done = 0
        self._began = time.perf_counter()
        self._lines = not quiet and not console.is_terminal
        self._bars = Progress(
            TextColumn("{task.description}", markup=False),
            BarColumn(),
            TextColumn("{task.percentage:>3.0f}%"),
            TextColumn("{task.fields[text]}", markup=False),
            TimeRemainingColumn(),
            console=console,
            disable=quiet or not console.is_terminal,
        )
        self._overall = self._bars.add_task("", total=None, text="", visible=False)
        self._tasks: dict[str, TaskID] = {}

    def __enter__(self) -> "PlanDisplay":
        """Starts the bars."""
        self._bars.start()
        return self

    def __exit__(self, *_: object) -> None:
        """Leaves the last state on the screen."""
        self._bars.stop()

    def begin(self, cells: int, steps: int) -> None:
        """The work ahead."""
        self._cells, self._total = cells, steps
        self._began = time.perf_counter()
        self._bars.reset(self._overall, total=steps, description=count(cells, "cell"), visible=True)
        if self._lines:
            self.console.print(f"{count(cells, 'cell')} to compute, {steps:,} steps in all.")

    def unit_began(self, unit: Unit) -> None:
        """A line of its own."""
        self._units[unit.name] = (unit, 0)
        self._tasks[unit.name] = self._bars.add_task(_title(unit), total=unit.config.steps, text="compiling…")

    def progress(self, name: str, step: int, text: str) -> None:
        """Moves its bar and that of the whole."""
        if name not in self._units:
            return
        unit, _ = self._units[name]
        step = min(step, unit.config.steps)
        self._units[name] = (unit, step)
        self._bars.update(self._tasks[name], completed=step, text=text)
        self._bars.update(self._overall, completed=self._steps(), text=f"{self._speed():,.0f} steps/s in all")

    def unit_ended(self, unit: Unit, written: int) -> None:
        """Takes its line away."""
        self._units.pop(unit.name, None)
        self._finished_steps += written * unit.config.steps
        self._done += written
        self._bars.remove_task(self._tasks.pop(unit.name))
        text = f"{self._done} done, {self._speed():,.0f} steps/s in all"
        self._bars.update(self._overall, completed=self._steps(), text=text)
        if self._lines:
            spent = time.perf_counter() - self._began
            left = spent / max(self._finished_steps, 1) * (self._total - self._finished_steps)
            self.console.print(
                f"{self._done:>5} / {self._cells} cells  {self._speed():>8,.0f} steps/s in all  {left:>6.0f} s left  "
                f"{_title(unit)}",
                soft_wrap=True,
            )

    def say(self, text: str) -> None:
        """Prints above the bars."""
        self.console.print(text, soft_wrap=True)

    def _steps(self) -> int:
        return self._finished_steps + sum(len(unit.cells) * step for unit, step in self._units.values())

    def _speed(self) -> float:
        return self._steps() / max(time.perf_counter() - self._began, 1e-9)


def _title(unit: Unit) -> str:
    names = ", ".join(setup.name for setup in unit.setups) if len(unit.setups) <= 3 else f"{len(unit.setups)} variants"
    seeds = f"seed {unit.seeds[0]}" if len(unit.seeds) == 1 else f"{len(unit.seeds)} seeds"
    return f"{unit.setups[0].task} {names} ({seeds})"
