"""`mcclt pack`."""

from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

from tyro.conf import Positional

from mcclt.cli.command import Command
from mcclt.cli.flags import STORE
from mcclt.errors import MccltError


@dataclass(frozen=True, kw_only=True)
class Pack(Command):
    """Pack the finished cells of a store into one compressed file per task.

    mcclt pack my-results
    """

    store: Annotated[Path, Positional] = STORE
    """The directory of results; all commands read it as before, and may add to it."""
    unpack: bool = False
    """The reverse: one JSON file per agent again."""

    def run(self) -> None:
        """Packs or unpacks, and says what stays as it is."""
        from mcclt.experiments import pack
        from mcclt.experiments.analysis.texts import count
        from mcclt.experiments.store import Store

        done = (pack.unpack if self.unpack else pack.pack)(Store(self.store))
        word = "unpack" if self.unpack else "pack"
        sizes = f"{done.before / 1e3:,.0f} kB became {done.after / 1e3:,.0f} kB"
        outcome = f"{count(done.cells, 'cell')} {word}ed: {sizes}." if done.cells else f"Nothing to {word}."
        self.say(*done.problems, outcome)
        if done.problems:
            raise MccltError(f"{count(len(done.problems), 'file')} could not be {word}ed: see above.")
