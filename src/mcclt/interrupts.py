"""Ctrl-C that is never lost, and never strikes at a bad moment.

Python raises `KeyboardInterrupt` between any two instructions, and drops it when that is in a destructor or in
a callback of the garbage collector (JAX has one). While `deferred()` is active the first Ctrl-C only sets a flag,
and `check()`, called once per step of the environments and per group that learns, raises; the second acts at once.
"""

import contextlib
import multiprocessing
import os
import signal
import threading
from collections.abc import Iterator
from types import FrameType

_requested = False


def check() -> None:
    """Raises `KeyboardInterrupt` if one was asked for."""
    global _requested
    if _requested:
        _requested = False
        raise KeyboardInterrupt


@contextlib.contextmanager
def deferred() -> Iterator[None]:
    """Within this block Ctrl-C waits for the next `check()` (main thread only: elsewhere nothing changes)."""
    global _requested
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    before = signal.getsignal(signal.SIGINT)

    def request(number: int, frame: FrameType | None) -> None:
        global _requested
        if _requested:
            signal.signal(signal.SIGINT, before)
            raise KeyboardInterrupt
        _requested = True

    _requested = False
    signal.signal(signal.SIGINT, request)
    try:
        yield
        check()  # asked for after the last step
    finally:
        _requested = False
        signal.signal(signal.SIGINT, before)


def end_with_parent() -> None:
    """Ends this process when its parent dies, even if it hangs: nobody would listen to it any more."""
    parent = multiprocessing.parent_process()
    assert parent is not None

    def wait() -> None:
        parent.join()
        os._exit(1)

    threading.Thread(target=wait, daemon=True).start()
