"""Rows to log that wait for an evaluation: those of its update and all later ones, so that they are logged in order."""

from collections.abc import Mapping

import numpy as np

from mcclt.storage.trackers import Row


class Logbook:
    """Rows of updates that are made, and what evaluations found. Updates are the population's."""

    def __init__(self) -> None:
        self._rows: list[tuple[int, int, Row]] = []
        self._found: dict[int, np.ndarray] = {}

    def add(self, update: int, rows: Mapping[int, Row]) -> None:
        """After an update: the row of each agent, by its place in the population."""
        self._rows += [(update, place, row) for place, row in rows.items()]

    def note(self, update: int, returns: np.ndarray) -> None:
        """What the evaluation of an update found: returns [A, episodes]."""
        self._found[update] = returns

    def waited(self, update: int, seconds: float) -> None:
        """That long was waited for an evaluation, in this update."""
        for made, _, row in self._rows:
            if made == update:
                row["time/evaluate"] += seconds

    def take(self, before: int | None) -> list[Row]:
        """The rows of updates before this one, or all; with what evaluations found."""
        ready = [entry for entry in self._rows if before is None or entry[0] < before]
        self._rows = self._rows[len(ready) :]
        for update, place, row in ready:
            if update in self._found:
                returns = self._found[update][place]
                row |= {"eval/mean_reward": float(returns.mean()), "eval/std_reward": float(returns.std())}
        self._found.clear()
        return [row for _, _, row in ready]
