"""The loop: a trainer to its end, telling observers, saving where it is due."""

import contextlib
import itertools
from collections.abc import Callable, Iterable
from typing import Protocol

from mcclt import interrupts
from mcclt.storage.trackers import Row
from mcclt.training.trainer import Trainer, crossed


class Observer(Protocol):
    """Watches a training: progress bars, run directories, trackers. All methods may do nothing."""

    def on_update(self, trainer: "Trainer", rows: list[Row]) -> None:
        """After every update, with one row per agent that is still training.

        On engine `warp` rows wait for the evaluation of their update: then there are none, or those of several updates.
        If training is ended meanwhile, there is one more call, with those that waited.
        """
        ...

    def on_message(self, text: str) -> None:
        """Something a person should read."""
        ...


def pass_messages(trainer: Trainer, observers: Iterable[Observer]) -> None:
    """Tells observers what people should read."""
    for text, observer in itertools.product(trainer.messages, observers):
        observer.on_message(text)
    trainer.messages.clear()


def run(trainer: Trainer, observers: list[Observer], save: Callable[[], object] | None = None) -> None:
    """Trains to the end, telling observers, saving where it is due.

    Whatever interrupts it (Ctrl-C, a broken environment), `save` is called before the error goes on, with
    the state at the last boundary between updates. An evaluation that is under way is ended first; a second Ctrl-C
    does without it.
    """
    config = trainer.config

    def tell(rows: list[Row]) -> None:
        pass_messages(trainer, observers)
        # Everybody is told, in order, even if one of them raises: no line of a log is lost.
        with contextlib.ExitStack() as stack:
            for observer in reversed(observers):
                stack.callback(observer.on_update, trainer, rows)

    def keep() -> None:
        """A checkpoint, and in the log all that led to it: whoever continues from it writes only what follows."""
        try:
            try:
                rows = trainer.flush()
            except BaseException:  # the evaluation failed, or somebody will not wait for it: the rows are good
                tell(trainer.flush(abandon=True))
                raise
            if rows or trainer.messages:
                tell(rows)
        finally:
            if save is not None:
                save()

    try:
        with interrupts.deferred():
            late = False
            while not trainer.finished:
                interrupts.check()
                rows = trainer.advance()
                due = crossed(trainer.step, config.steps_per_update, config.checkpoint_freq)
                # A checkpoint would end an evaluation that goes on beside training: it waits, until the next is due.
                wait = trainer.evaluating and not (due and late)
                late = late or due
                ending = trainer.finished or (late and not wait and save is not None)
                try:
                    if ending:
                        rows += trainer.flush()
                finally:
                    tell(rows)
                if ending or trainer.finished:  # an observer may have ended it
                    keep()
                    late = False
    except KeyboardInterrupt:
        keep()
        raise
    except Exception:  # a broken environment, an observer that fails, a full disk: tell that, even if saving fails too
        with contextlib.suppress(Exception):
            keep()
        raise
