"""Ctrl-C and SIGTERM that are never lost, and never strike at a bad moment.

Python raises `KeyboardInterrupt` between any two instructions, and drops it when that is in a destructor or in
a callback of the garbage collector (JAX has one). While `deferred()` is active the first Ctrl-C only sets a flag,
and `check()`, called once per step of the environments and per group that learns, raises; the second acts at once.
SIGTERM, which schedulers send before they kill, is treated alike.
"""

import contextlib
import multiprocessing
import os
import signal
import threading
from collections.abc import Iterator
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


def hear_sigterm() -> None:
    """From now on SIGTERM raises in the main thread, as Ctrl-C does: what is under way is saved before the end."""

    def end(number: int, frame: FrameType | None) -> None:
        raise _error(number)

    signal.signal(signal.SIGTERM, end)


@contextlib.contextmanager
def deferred() -> Iterator[None]:
    """Within this block Ctrl-C and SIGTERM wait for the next `check()` (in the main thread; elsewhere as before)."""
    global _requested
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    before = {number: signal.getsignal(number) for number in SIGNALS}

    def restore() -> None:
        for number, handler in before.items():
            signal.signal(number, handler)

    def request(number: int, frame: FrameType | None) -> None:
        global _requested
        if _requested is not None:
            restore()
            raise _error(number)
        _requested = number

    _requested = None
    for number in SIGNALS:
        signal.signal(number, request)
    try:
        yield
        check()  # asked for after the last step
    finally:
        _requested = None
        restore()


def end_with_parent() -> None:
    """Ends this process when its parent dies, even if it hangs: nobody would listen to it any more."""
    parent = multiprocessing.parent_process()
    assert parent is not None

    def wait() -> None:
        parent.join()
        os._exit(1)

    threading.Thread(target=wait, daemon=True).start()
