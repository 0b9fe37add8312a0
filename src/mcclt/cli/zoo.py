"""`mcclt zoo`."""

import dataclasses
import json
from dataclasses import dataclass

from mcclt.cli.command import Command
from mcclt.console import plain_console


@dataclass(frozen=True, kw_only=True)
class Zoo(Command):
    """List the pretrained agents that come with mcclt; each is named zoo:TASK wherever a model is asked for."""

    json: bool = False
    """Print their cards as JSON: settings, returns of every seed, the command that trains each."""

    def run(self) -> None:
        """Prints the list."""
        from mcclt import zoo

        cards = zoo.cards()
        if self.json:
            print(json.dumps([dataclasses.asdict(card) for card in cards]))
            return
        from mcclt.cli.tables import table_of

        columns = ("agent", "learnt by", "return", "median seed", "size")
        table = table_of(columns, "Pretrained agents (return: mean ± SE over episodes)", left=("learnt by",))
        table.columns[0].no_wrap = True
        for card in cards:
            table.add_row(
                card.task,
                f"{card.algo} {card.critic}",
                card.score,
                f"{card.seed} of {len(card.seeds)}",
                f"{card.model().stat().st_size / 1000:.0f} kB",
            )
        console = plain_console()
        console.print(table)
        if cards:
            console.print(f"For example:  mcclt watch {zoo.PREFIX}{cards[0].task}", soft_wrap=True)
