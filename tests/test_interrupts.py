"""Ctrl-C waits for a good moment, and is never lost."""

import os
import signal
import threading

import pytest

from mcclt import interrupts


def press() -> None:
    os.kill(os.getpid(), signal.SIGINT)


def test_the_first_waits_for_a_check() -> None:
    before = signal.getsignal(signal.SIGINT)
    passed = []
    with pytest.raises(KeyboardInterrupt), interrupts.deferred():
        press()
        passed.append("went on")
        interrupts.check()
        passed.append("not here")
    assert passed == ["went on"]
    assert signal.getsignal(signal.SIGINT) is before
    interrupts.check()  # nothing is left over


def test_the_second_acts_at_once() -> None:
    with pytest.raises(KeyboardInterrupt), interrupts.deferred():
        press()
        press()
        pytest.fail("the second press was not heard")


def test_one_after_the_last_check_is_not_lost() -> None:
    with pytest.raises(KeyboardInterrupt), interrupts.deferred():
        press()


def test_elsewhere_than_in_the_main_thread_nothing_changes() -> None:
    before = signal.getsignal(signal.SIGINT)
    seen = []

    def work() -> None:
        with interrupts.deferred():
            seen.append(signal.getsignal(signal.SIGINT))

    thread = threading.Thread(target=work)
    thread.start()
    thread.join()
    assert seen == [before]
