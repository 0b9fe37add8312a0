"""Ctrl-C waits for a good moment, and is never lost."""

import gc
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
    before = [signal.getsignal(x) for x in interrupts.SIGNALS]
    with pytest.raises(interrupts.Terminated), interrupts.heard():
        press(signal.SIGTERM)
    with pytest.raises(interrupts.Terminated), interrupts.heard(), interrupts.deferred():
        press(signal.SIGTERM)
        interrupts.check()
    assert [signal.getsignal(x) for x in interrupts.SIGNALS] == before


@pytest.mark.parametrize(
    ("number", "kind"), [(signal.SIGINT, KeyboardInterrupt), (signal.SIGTERM, interrupts.Terminated)]
)
@pytest.mark.parametrize("learns", [True, False])
@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")
def test_one_that_python_drops_is_raised_later(number: int, kind: type[KeyboardInterrupt], learns: bool) -> None:
    def collected(phase: str, info: dict[str, int]) -> None:
        if phase == "start":
            press(number)

    passed = []
    with pytest.raises(kind) as caught, interrupts.heard():
        gc.callbacks.append(collected)
        try:
            gc.collect()  # what a callback raises is printed and dropped
        finally:
            gc.callbacks.remove(collected)
        passed.append("went on")
        if learns:
            with interrupts.deferred():
                interrupts.check()
            pytest.fail("it was forgotten")
    assert type(caught.value) is kind and passed
    interrupts.check()  # nothing is left over


def test_what_is_ignored_stays_so() -> None:
    before = signal.signal(signal.SIGINT, signal.SIG_IGN)
    try:
        with interrupts.heard():
            press()
    finally:
        signal.signal(signal.SIGINT, before)


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
