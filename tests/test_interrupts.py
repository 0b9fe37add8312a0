"""Ctrl-C waits for a good moment, and is never lost."""

import os
import signal
import threading

import pytest

from mcclt import interrupts


def press(number: int = signal.SIGINT) -> None:
    os.kill(os.getpid(), number)


@pytest.mark.parametrize(
    ("number", "kind", "code"),
    [(signal.SIGINT, KeyboardInterrupt, 130), (signal.SIGTERM, interrupts.Terminated, 143)],
)
def test_the_first_waits_for_a_check(number: int, kind: type[KeyboardInterrupt], code: int) -> None:
    before = [signal.getsignal(x) for x in interrupts.SIGNALS]
    passed = []
    with pytest.raises(KeyboardInterrupt) as caught, interrupts.deferred():
        press(number)
        passed.append("went on")
        interrupts.check()
        passed.append("not here")
    assert passed == ["went on"]
    assert type(caught.value) is kind and interrupts.exit_code(caught.value) == code
    assert [signal.getsignal(x) for x in interrupts.SIGNALS] == before
    interrupts.check()  # nothing is left over


def test_the_second_acts_at_once() -> None:
    with pytest.raises(KeyboardInterrupt), interrupts.deferred():
        press()
        press()
        pytest.fail("the second press was not heard")


def test_one_after_the_last_check_is_not_lost() -> None:
    with pytest.raises(KeyboardInterrupt), interrupts.deferred():
        press()


def test_sigterm_is_heard_like_ctrl_c() -> None:
    before = signal.getsignal(signal.SIGTERM)
    try:
        interrupts.hear_sigterm()
        with pytest.raises(interrupts.Terminated):
            press(signal.SIGTERM)
        with pytest.raises(interrupts.Terminated), interrupts.deferred():
            press(signal.SIGTERM)
            interrupts.check()
    finally:
        signal.signal(signal.SIGTERM, before)


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
