"""Rows to log that wait for an evaluation: those of its update, and all after, so that none is told out of order."""

from collections.abc import Sequence

import numpy as np

from mcclt.storage.runs import Row


class Logbook:
    """Rows of updates that are made, and what evaluations found."""

    def __init__(self, agents: Sequence[tuple[str, int]]) -> None:
        """For agents of these groups and seeds."""
        self._places = {agent: a for a, agent in enumerate(agents)}
        self._rows: list[Row] = []
        self._found: dict[int, np.ndarray] = {}

    def add(self, rows: list[Row]) -> None:
        """After an update."""
        self._rows += rows

    def note(self, update: int, returns: np.ndarray) -> None:
        """What the evaluation of an update found: returns [A, episodes]."""
        self._found[update] = returns

    def waited(self, update: int, seconds: float) -> None:
        """That long was waited for an evaluation, in this update."""
        for row in self._rows:
            if row["update"] == update:
                row["time/evaluate"] += seconds

    def take(self, before: int | None) -> list[Row]:
        """The rows of updates before this one, or all; with what evaluations found."""
        rows = [row for row in self._rows if before is None or row["update"] < before]
        self._rows = self._rows[len(rows) :]
        for row in rows:
            if (found := self._found.get(row["update"])) is not None:
                returns = found[self._places[row["group"], row["seed"]]]
                row |= {"eval/mean_reward": float(returns.mean()), "eval/std_reward": float(returns.std())}
        self._found.clear()
        return rows
