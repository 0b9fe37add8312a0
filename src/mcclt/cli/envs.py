"""`mcclt envs`."""

import json
from dataclasses import dataclass

from mcclt.cli.command import Command
from mcclt.console import plain_console


@dataclass(frozen=True, kw_only=True)
class Envs(Command):
    """List the tasks, the engine that steps each, and its version."""

    json: bool = False
    """Print JSON instead of a table."""

    def run(self) -> None:
        """Prints the list."""
        from mcclt.envs import list_tasks

        rows = list_tasks()
        if self.json:
            print(json.dumps([row._asdict() for row in rows]))
            return
        from mcclt.cli.tables import table_of

        columns = ("task", "engine", "version", "limit", "exact resume", "other engines")
        table = table_of(columns, "Tasks (any other Gymnasium id works too)", left=columns)
        table.columns[0].no_wrap = True
        for row in rows:
            others = ", ".join(e for e in row.engines if e != row.engine)
            exact = "yes" if row.resumable else "new episodes"
            table.add_row(row.task, row.engine, row.version, str(row.max_episode_steps or "–"), exact, others)
        plain_console().print(table)
