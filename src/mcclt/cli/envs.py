"""`mcclt envs`."""

import json
from dataclasses import dataclass

from mcclt.cli.command import Command
from mcclt.cli.tables import table_of

EVERYWHERE = "gymnasium-async"
"""The engine that almost every task has."""


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
        columns = ("task", "engine", "limit", "exact resume", "also")
        title = "Tasks (any other Gymnasium id works too)"
        table = table_of(columns, title, left=("engine", "exact resume", "also"), whole=("task", "also"))
        for row in rows:
            others = ", ".join(e for e in row.engines if e not in (row.engine, EVERYWHERE))
            exact = "yes" if row.resumable else "no"
            table.add_row(row.task, row.engine, str(row.max_episode_steps or "–"), exact, others)
        self.console.print(table)
        versions = ", ".join(dict.fromkeys(row.version for row in rows if row.version))
        but = ", ".join(row.task for row in rows if EVERYWHERE not in row.engines)
        self.say(f"{EVERYWHERE} steps all of them{f' but {but}' if but else ''}, too. Here: {versions}.")
        self.say("Exact resume: a checkpoint continues in the middle of an episode; elsewhere, with new episodes.")
