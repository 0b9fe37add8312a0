from io import StringIO
from types import SimpleNamespace
from typing import Any

import pytest
from rich.console import Console

from mcclt.training.progress import LINES, Display, Quiet, describe


def row(group: str, value: float | None, seed: int = 0) -> dict[str, Any]:
    return {"group": group, "seed": seed} | ({} if value is None else {"rollout/ep_rew_mean": value})


def test_describe() -> None:
    assert describe([]) == []
    assert describe([row("a", None)]) == ["a –"]
    assert describe([row("a", 12.4)]) == ["a return 12"]
    # mean 4, sample standard deviation √((4+0+4)/2) = 2
    assert describe([row("a", 2.0), row("a", 4.0, 1), row("a", 6.0, 2)]) == ["a return 4 ± 2 (3 seeds)"]
    assert describe([row("a", 2.0), row("b", 7.0), row("a", None, 1)]) == ["a return 2", "b return 7"]


class Fake:
    """A trainer as far as a display looks at it."""

    def __init__(self, total: int, agents: int = 2) -> None:
        self.step, self.total, self.agents = 0, total, [("a", i) for i in range(agents)]

    @property
    def finished(self) -> bool:
        return self.step >= self.total


def play(console: Console, total: int, stride: int, start: int = 0) -> None:
    trainer: Any = Fake(total)
    trainer.step = start
    with Display(console, total, start) as display:
        while not trainer.finished:
            trainer.step += stride
            display.on_update(trainer, [row("mcclt", 3.0), row("mcclt", 5.0, 1)])


def test_rows_that_wait_leave_what_was_shown() -> None:
    out, trainer = StringIO(), Fake(2)
    with Display(Console(file=out, highlight=False), 2, 0) as display:
        for rows in ([row("mcclt", 3.0)], []):
            trainer.step += 1
            display.on_update(trainer, rows)  # type: ignore[arg-type]
    assert [line.endswith("mcclt return 3") for line in out.getvalue().splitlines()] == [True, True]


def plain_lines(total: int, stride: int, start: int = 0) -> list[str]:
    out = StringIO()
    play(Console(file=out, highlight=False), total, stride, start)
    assert "\x1b" not in out.getvalue() and "\r" not in out.getvalue()
    return out.getvalue().splitlines()


def test_plain_lines() -> None:
    lines = plain_lines(1_000_000, 4_000)
    assert len(lines) == LINES
    assert lines[0].split() == [*"52,000 / 1,000,000 steps".split(), *lines[0].split()[4:]]
    assert lines[-1].split()[:4] == "1,000,000 / 1,000,000 steps".split()
    for line in lines:
        assert "steps/s" in line and "s left" in line and line.endswith("mcclt return 4 ± 1 (2 seeds)")
    assert " 0 s left" in lines[-1]


@pytest.mark.parametrize(
    "total, stride, start, count", [(64, 16, 0, 4), (32, 16, 0, 2), (1000, 1, 900, 2), (16, 16, 0, 1)]
)
def test_how_many_lines(total: int, stride: int, start: int, count: int) -> None:
    lines = plain_lines(total, stride, start)
    assert len(lines) == count
    assert lines[-1].split()[0] == f"{total:,}"


def test_live_bar() -> None:
    out = StringIO()
    console = Console(file=out, force_terminal=True, width=140, highlight=False)
    play(console, 64, 16)
    text = out.getvalue()
    assert "\x1b[" in text and "━" in text
    assert "64/64" in text and "steps/s" in text and "mcclt return 4 ± 1 (2 seeds)" in text
    assert "\x1b[?25h" in text, "the cursor is shown again"


def test_live_bar_survives_an_interrupt_and_prints_above() -> None:
    out = StringIO()
    console = Console(file=out, force_terminal=True, width=140, highlight=False)
    with pytest.raises(KeyboardInterrupt), Display(console, 64, 0) as display:
        display.on_message("Agent 3 stopped.")
        raise KeyboardInterrupt
    assert "Agent 3 stopped." in out.getvalue() and "\x1b[?25h" in out.getvalue()


@pytest.mark.parametrize("terminal", [False, True])
@pytest.mark.parametrize(
    "text",
    ["raised RuntimeError: the motor [/burns] is [out]", "value [nan] of [bold]", "see runs/a:star:b", "x" * 300],
)
def test_messages_come_through_as_they_are(terminal: bool, text: str) -> None:
    """An environment's message is no markup."""
    for make in (lambda c: Display(c, 64, 0), Quiet):
        out = StringIO()
        make(Console(file=out, force_terminal=terminal, width=80, color_system=None, highlight=False)).on_message(text)
        assert text in out.getvalue()


@pytest.mark.parametrize("terminal", [False, True])
def test_group_names_are_no_markup(terminal: bool) -> None:
    out = StringIO()
    console = Console(file=out, force_terminal=terminal, width=140, color_system=None)
    trainer: Any = SimpleNamespace(step=16, agents=[("[/a]", 0)], finished=True)
    with Display(console, 16, 0) as display:
        display.on_update(trainer, [row("[/a]", 1.0)])
    assert "[/a] return 1" in out.getvalue()


def test_quiet() -> None:
    out = StringIO()
    quiet = Quiet(Console(file=out))
    quiet.on_update(Fake(1), [row("a", 1.0)])  # type: ignore[arg-type]
    assert out.getvalue() == ""
    quiet.on_message("stopped")
    assert out.getvalue() == "stopped\n"
