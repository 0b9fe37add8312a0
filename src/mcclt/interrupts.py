"""Ctrl-C and SIGTERM that are never lost, and never strike at a bad moment.

Python raises `KeyboardInterrupt` between any two instructions, and drops it when that is in a destructor or in
a callback of the garbage collector (JAX has one). While `deferred()` is active the first Ctrl-C only sets a flag,
and `check()`, called once per step of the environments and per group that learns, raises; the second acts at once.
A command also sets the flag before (`heard`), so that one that was dropped is raised by the next `check()`.
SIGTERM, which schedulers send before they kill, is treated alike.
"""

import contextlib
import multiprocessing
import os
import signal
import threading
from collections.abc import Callable, Iterator, Sequence
from types import FrameType

SIGNALS = (signal.SIGINT, signal.SIGTERM)
_requested: int | None = None


class Terminated(KeyboardInterrupt):
    """SIGTERM, where Ctrl-C would be a `KeyboardInterrupt`."""


def exit_code(error: KeyboardInterrupt) -> int:
    """What a program that was ended so answers, as shells count it: 130, or 143 for SIGTERM."""
    return 128 + (signal.SIGTERM if isinstance(error, Terminated) else signal.SIGINT)


def check() -> None:
    """Raises `KeyboardInterrupt` if one was asked for."""
    global _requested
    if _requested is not None:
        number, _requested = _requested, None
        raise _error(number)


def _error(number: int) -> KeyboardInterrupt:
    return Terminated() if number == signal.SIGTERM else KeyboardInterrupt()


@contextlib.contextmanager
def heard() -> Iterator[None]:
    """Within this block, a command, Ctrl-C and SIGTERM raise; if Python drops that, the next `check()` does."""
    global _requested

    def end(number: int, frame: FrameType | None) -> None:
        global _requested
        _requested = number
        raise _error(number)

    with _handling(end, [number for number in SIGNALS if signal.getsignal(number) is not signal.SIG_IGN]):  # nohup
        try:
            yield
            check()
        finally:
            _requested = None


@contextlib.contextmanager
def _handling(handler: Callable[[int, FrameType | None], None], signals: Sequence[int]) -> Iterator[Callable[[], None]]:
    """Handles signals so within this block; gives what ends that before."""
    before = {number: signal.getsignal(number) for number in signals}

    def restore() -> None:
        for number, old in before.items():
            signal.signal(number, old)

    for number in signals:
        signal.signal(number, handler)
    try:
        yield restore
    finally:
        restore()


@contextlib.contextmanager
def deferred() -> Iterator[None]:
    """Within this block Ctrl-C and SIGTERM wait for the next `check()` (in the main thread; elsewhere as before)."""
    global _requested
    if threading.current_thread() is not threading.main_thread():
        yield
        return

    def request(number: int, frame: FrameType | None) -> None:
        global _requested
        if _requested is not None:
            restore()
            raise _error(number)
        _requested = number

    with _handling(request, SIGNALS) as restore:
        try:
            yield
            check()  # asked for after the last step
        finally:
            _requested = None


def end_with_parent() -> None:
    """Ends this process when its parent dies, even if it hangs: nobody would listen to it any more."""
    parent = multiprocessing.parent_process()
    assert parent is not None

    def wait() -> None:
        parent.join()
        os._exit(1)

    threading.Thread(target=wait, daemon=True).start()
