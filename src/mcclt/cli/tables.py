"""What commands print about settings and returns, and the records they write."""

import math
from collections.abc import Collection, Sequence
from typing import TYPE_CHECKING, Any

from mcclt.config import AgentConfig, RunConfig, fields_of, to_dict

if TYPE_CHECKING:
    from rich.console import Console
    from rich.table import Table


def table_of(columns: Sequence[str], title: str | None = None, left: Collection[str] = ()) -> "Table":
    """An empty table: numbers to the right, but the first column, and those named, to the left."""
    from rich.table import Table

    table = Table(title=title, title_justify="left")
    for i, column in enumerate(columns):
        if i and column not in left:
            table.add_column(column, justify="right")
        else:  # names differ at their ends: they are folded, never cut
            table.add_column(column, overflow="fold")
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
    """Prints the resolved configuration, a column per group."""
    table = table_of(["setting", *config.groups], f"{config.task} on the {engine} engine", left=config.groups)
    table.columns[0].no_wrap = True
    data = to_dict(config)
    for name in fields_of(RunConfig):
        if name not in ("task", "groups"):
            table.add_row(name, *[_short(data[name])] * len(config.groups))
    table.add_section()
    for name in fields_of(AgentConfig):
        table.add_row(name, *(_short(getattr(agent, name)) for agent in config.groups.values()))
    console.print(table)


def _short(value: Any) -> str:
    if isinstance(value, list | tuple):
        if len(value) > 4 and list(value) == list(range(value[0], value[-1] + 1)):
            return f"{value[0]}..{value[-1]}"
        return ",".join(map(str, value))
    return f"{value:,}" if type(value) is int and value >= 10_000 else "–" if value is None else str(value)


def show_returns(console: "Console", agents: list[tuple[str, int]], returns: Any) -> None:
    """A table of deterministic returns: mean over episodes for each seed, mean ± SE over seeds per group."""
    import numpy as np

    episodes = "1 episode" if returns.shape[1] == 1 else f"{returns.shape[1]} episodes"
    columns = ("group", "seeds", "mean", "± SE over seeds", "lowest seed", "highest seed")
    table = table_of(columns, f"Deterministic returns, {episodes} per seed")
    for group in dict.fromkeys(g for g, _ in agents):
        means = np.array([returns[i].mean() for i, (g, _) in enumerate(agents) if g == group])
        error = f"{means.std(ddof=1) / np.sqrt(len(means)):.1f}" if len(means) > 1 else "–"
        table.add_row(group, str(len(means)), f"{means.mean():.1f}", error, f"{means.min():.1f}", f"{means.max():.1f}")
    console.print(table)
