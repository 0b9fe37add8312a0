"""What a person sees while a plan is computed."""

import io
import re

import pytest
from rich.console import Console

from drivers import cells_of, tiny
from mcclt.cli.display import PlanDisplay, _title
from mcclt.experiments.units import Unit, split


def console(terminal: bool) -> tuple[Console, io.StringIO]:
    out = io.StringIO()
    return Console(file=out, force_terminal=terminal, width=200, highlight=False, markup=False, emoji=False), out


def play(display: PlanDisplay, units: list[Unit]) -> None:
    steps = units[0].config.whole_steps
    display.begin(sum(len(u.cells) for u in units), sum(len(u.cells) for u in units) * steps)
    for unit in units:
        display.unit_began(unit)
        display.progress(unit.name, steps // 2, "half [bold]way[/]")
        display.progress("somebody else's", 5, "")
        display.progress(unit.name, steps, "over")
        display.unit_ended(unit, len(unit.cells))


def test_plain_lines() -> None:
    to, out = console(terminal=False)
    units = split(cells_of(tiny(), 3), 2, False)
    with PlanDisplay(to, quiet=False) as display:
        play(display, units)
        display.say("A process [died].")
    lines = out.getvalue().splitlines()
    assert lines[0] == "3 cells to compute, 384 steps in all."  # 3 x 128
    assert "2 / 3 cells" in lines[1] and "(2 seeds)" in lines[1] and "ppo-plain@" in lines[1]
    assert "3 / 3 cells" in lines[2] and "(seed 2)" in lines[2] and " 0 s left" in lines[2]
    assert lines[3] == "A process [died]."
    assert "\x1b" not in out.getvalue() and "\r" not in out.getvalue()


def test_lines_now_and_then_while_a_unit_goes_on(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("mcclt.cli.display.EVERY", -1.0)  # at every occasion
    to, out = console(terminal=False)
    with PlanDisplay(to, quiet=False) as display:
        play(display, split(cells_of(tiny(), 2), 2, False))
    lines = out.getvalue().splitlines()
    assert lines[1].split()[:4] == ["128", "/", "256", "steps"] and lines[1].endswith("half [bold]way[/]")
    assert lines[2].split()[0] == "256" and "2 / 2 cells" in lines[3]


@pytest.mark.parametrize(
    ("news", "speed", "left"),
    [
        ([64, 3200, 6400], 128, 50),  # 2 agents x 6,400 steps in 100 s, and half as many to make
        ([3264, 6400], 64, 100),  # 3,200 each were made before
        ([], 0, None),  # all were, and they are only evaluated now
    ],
)
def test_steps_that_were_made_before_a_resume_do_not_count(news: list[int], speed: int, left: int | None) -> None:
    to, out = console(terminal=False)
    first, second = split(cells_of(tiny(steps=6400), 3), 2, False)
    with PlanDisplay(to, quiet=False) as display:
        display.begin(3, 3 * 6400)
        display.began -= 100
        display.unit_began(first)
        for step in news:
            display.progress(first.name, step, "")
        display.unit_ended(first, 2)
        display.unit_began(second)
    words = out.getvalue().splitlines()[-1].split()
    assert float(words[words.index("steps/s") - 1]) == pytest.approx(speed, rel=0.1)
    said = words[words.index("left") - 2]
    assert said == "–" if left is None else float(said) == pytest.approx(left, rel=0.1)


def test_quiet() -> None:
    to, out = console(terminal=False)
    with PlanDisplay(to, quiet=True) as display:
        play(display, split(cells_of(tiny(), 3), 2, False))
    assert out.getvalue() == ""
    display.say("but this")
    assert out.getvalue() == "but this\n", "what must be read is said"


def test_bars() -> None:
    to, out = console(terminal=True)
    with PlanDisplay(to, quiet=False) as display:
        play(display, split(cells_of(tiny(), 3), 2, False))
        (overall,) = display.bars.tasks
        assert (overall.completed, overall.total) == (384, 384), "units' bars are gone, the whole is done"
    assert "3 cells" in out.getvalue()


def test_at_80_columns_bar_share_and_time_left_are_seen() -> None:
    out = io.StringIO()
    (unit,) = split(cells_of(tiny(), 2), 2, False)
    with PlanDisplay(Console(file=out, force_terminal=True, width=80, color_system=None), quiet=False) as display:
        display.begin(2, 256)
        display.unit_began(unit)
        display.progress(unit.name, 64, f"{unit.setups[0].name} return 1234 ± 56 (2 seeds)")
        out.truncate(0)
        display.bars.refresh()
        whole, own = (re.sub("\x1b\\[[0-9;?]*[A-Za-z]", "", line).strip() for line in out.getvalue().splitlines()[-2:])
    assert "2 cells" in whole and "50%" in whole and re.search(r"[━╸]", own) and max(len(whole), len(own)) <= 80
    assert "50% return 1234" in own and re.search(r"[-\d]:[-\d]{2}:[-\d]{2}$", own)


def test_a_unit_that_fails_leaves_no_bar() -> None:
    to, _ = console(terminal=True)
    (unit,) = split(cells_of(tiny(), 2), 2, False)
    with PlanDisplay(to, quiet=False) as display:
        display.begin(2, 256)
        display.unit_began(unit)
        display.progress(unit.name, 64, "")
        display.unit_ended(unit, 0)
        assert [task.completed for task in display.bars.tasks] == [0]


@pytest.mark.parametrize(("setups", "text"), [(1, "ppo-plain"), (4, "4 variants")])
def test_titles(setups: int, text: str) -> None:
    own = [tiny(v) for v in ("plain", "qr", "mcclt", "explore")][:setups]
    assert _title(Unit(tuple(own), (0,))) == f"{text} on InvertedDoublePendulum-v5 (seed 0)"
