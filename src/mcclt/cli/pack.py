"""`mcclt pack`."""

from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

from tyro.conf import Positional

from mcclt.cli.command import Command
from mcclt.cli.flags import STORE
from mcclt.console import plain_console, say


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
        console = plain_console()
        for sentence in done.problems:
            say(console, sentence)
        say(
            console,
            f"{count(done.cells, 'cell')} {'unpacked' if self.unpack else 'packed'}: "
            f"{done.before / 1e3:,.0f} kB became {done.after / 1e3:,.0f} kB."
            if done.cells
            else f"Nothing to {'unpack' if self.unpack else 'pack'}.",
        )
