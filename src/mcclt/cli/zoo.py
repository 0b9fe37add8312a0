"""`mcclt zoo`."""

import dataclasses
import json
from dataclasses import dataclass

from mcclt import zoo
from mcclt.cli.command import Command
from mcclt.cli.tables import table_of


@dataclass(frozen=True, kw_only=True)
class Zoo(Command):
    """List the pretrained agents; zoo:TASK names one wherever a model is expected."""

    json: bool = False
    """Print their cards as JSON: settings, returns of every seed, the command that trains each."""

    def run(self) -> None:
        """Prints the list."""
        cards = zoo.cards()
        if self.json:
            print(json.dumps([dataclasses.asdict(card) for card in cards]))
            return
        columns = ("agent", "learnt by", "return", "seed", "of", "size")
        title = "Pretrained agents, the median of all seeds (return: mean ± SE over episodes)"
        table = table_of(columns, title, left=("learnt by",), whole=columns)
        for card in cards:
            table.add_row(
                card.task,
                f"{card.algo} {card.critic}",
                card.score,
                str(card.seed),
                str(len(card.seeds)),
                f"{card.model().stat().st_size / 1000:.0f} kB",
            )
        self.console.print(table)
        if cards:
            self.say(f"For example:  mcclt watch {zoo.PREFIX}{cards[0].task}")
