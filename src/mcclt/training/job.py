"""One life cycle: a training is begun, or continued from its last checkpoint, run to its end, and saved on the way.

The command line, the Python classes and experiments all train by a `Job`; they differ in who watches.
"""

from collections.abc import Sequence
from pathlib import Path
from typing import Any, Self

import numpy as np

from mcclt import interrupts
from mcclt.config import RunConfig
from mcclt.errors import ConfigError
from mcclt.storage import runs
from mcclt.storage.configuration import from_dict
from mcclt.training.boundary import new_episodes
from mcclt.training.loop import Observer, pass_messages, run
from mcclt.training.trainer import Trainer


class Job:
    """A trainer, and the run directory that what it does is kept in, if there is one."""

    def __init__(self, trainer: Trainer, directory: runs.Run | None = None, notes: Sequence[str] = ()) -> None:
        """Takes over a trainer; `close` frees both."""
        self.trainer, self.directory = trainer, directory
        self.notes = list(notes)
        """What a person should know of how it was continued."""

    @classmethod
    def begin(cls, config: RunConfig, path: Path, wandb: bool = False, tensorboard: bool = True) -> Self:
        """A new training in a new directory. Bad names and tasks are found before anything is written."""
        trainer = Trainer(config)
        try:
            return cls(trainer, runs.Run.create(path, trainer.config, wandb, tensorboard, trainer.spec.engine))
        except BaseException:
            trainer.close()
            raise

    @classmethod
    def resume(cls, config: RunConfig, path: Path, wandb: bool = False, tensorboard: bool = True) -> Self:
        """Continues a directory's training from its newest good checkpoint.

        Raises:
            InaccessibleError: none can be read, and one of them may be whole.
            CheckpointError: there is none, none can be read, or it does not fit the configuration.
            ConfigError: more steps are wanted of it than before, and it would learn nothing more.
        """
        arrays, meta, file, passed = runs.load_latest(path)
        trainer = Trainer(config)
        try:
            exact = trainer.restore(arrays, meta, file)
            if config.steps > from_dict(meta["config"]).steps and trainer.spent:
                raise ConfigError(trainer.spent)
            directory = runs.Run.resume(path, trainer.config, trainer.update, wandb, tensorboard)
        except BaseException:
            trainer.close()
            raise
        notes = [f"Skipped: {line}" for line in passed]
        return cls(trainer, directory, notes if exact else [*notes, new_episodes(trainer.spec)])

    def run(self, observers: Sequence[Observer]) -> None:
        """Trains to the end; see `mcclt.training.loop.run`. Whatever ends it early, a checkpoint is written first."""
        directory, trainer = self.directory, self.trainer
        if directory is None:
            run(trainer, list(observers))
        else:
            run(trainer, [directory, *observers], lambda: directory.save(trainer))

    def evaluate(self, observers: Sequence[Observer]) -> tuple[np.ndarray, np.ndarray]:
        """The final episodes: returns and lengths, each [A, episodes]."""
        trainer = self.trainer
        with interrupts.deferred():
            found = trainer.evaluate(trainer.config.final_episodes, 0)
        pass_messages(trainer, [self.directory, *observers] if self.directory else observers)
        return found

    def close(self) -> None:
        """Frees the environments and the directory; all of it was written at each update."""
        self.trainer.close()
        if self.directory is not None:
            self.directory.close()

    def __enter__(self) -> Self:
        """Closed at the end of the block."""
        return self

    def __exit__(self, *_: Any) -> None:
        """Closes it."""
        self.close()
