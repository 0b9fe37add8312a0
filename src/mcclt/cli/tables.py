"""What commands print about settings and returns, and the records they write."""

import math
from collections.abc import Collection, Sequence
from typing import TYPE_CHECKING, Any

from mcclt.config import RunConfig
from mcclt.console import say
from mcclt.experiments import settings

if TYPE_CHECKING:
    from rich.console import Console
    from rich.table import Table


def table_of(
    columns: Sequence[str], title: str | None = None, left: Collection[str] = (), whole: Collection[str] = ()
) -> "Table":
    """An empty table: numbers to the right, but the first column, and those named, to the left; some never broken."""
    from rich.table import Table

    table = Table(title=title, title_justify="left")
    for i, column in enumerate(columns):
        if i and column not in left:
            table.add_column(column, justify="right", no_wrap=column in whole)
        else:  # names differ at their ends: they are folded, never cut
            table.add_column(column, overflow="fold", no_wrap=column in whole)
    return table


def evaluation_data(agents: list[tuple[str, int]], returns: Any, lengths: Any) -> list[dict[str, Any]]:
    """One record per agent."""
    return [
        # JSON has no NaN: an episode that failed is null
        {
            "group": g,
            "seed": s,
            "returns": [float(x) if math.isfinite(x) else None for x in r],
            "lengths": [int(x) for x in n],
        }
        for (g, s), r, n in zip(agents, returns, lengths, strict=True)
    ]


def show_config(console: "Console", config: RunConfig, engine: str) -> None:
    """Prints the settings that are not the defaults, a column per group; but always how much is trained."""
    say(console, f"{config.task} on the {engine} engine")
    table = table_of(["setting", *config.groups], left=config.groups, whole=["setting"])
    for row in settings.rows([config]):
        if row.telling and row.name != "engine":
            table.add_row(row.name, *row.values)
    console.print(table)
    say(console, "All other settings are the defaults; config.json in the run directory has them all.")


def show_returns(console: "Console", agents: list[tuple[str, int]], returns: Any) -> None:
    """A table of deterministic returns: over seeds, mean ± SE of each seed's mean; of one seed, over its episodes."""
    import numpy as np

    episodes = "1 episode" if returns.shape[1] == 1 else f"{returns.shape[1]} episodes"
    groups = {group: [i for i, (g, _) in enumerate(agents) if g == group] for group, _ in agents}
    alone = all(len(own) == 1 for own in groups.values())
    unit = "episode" if alone else "seed"
    spread = "deviation of episodes" if alone else "± SE over seeds"
    columns = ("group", "seeds", "mean", spread, f"lowest {unit}", f"highest {unit}")
    table = table_of(columns, f"Deterministic returns, {episodes} per seed")
    for group, own in groups.items():
        values = returns[own[0]] if alone else np.array([returns[i].mean() for i in own])
        deviation = values.std(ddof=1) / (1 if alone else np.sqrt(len(values))) if len(values) > 1 else None
        row = (values.mean(), deviation, values.min(), values.max())
        table.add_row(group, str(len(own)), *("–" if x is None else f"{x:,.1f}".replace("-", "−") for x in row))
    console.print(table)
