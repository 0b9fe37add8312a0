"""Learning curves: the metrics of a run, a few columns of them at a few updates."""

import json
import math
from collections.abc import Iterable, Sequence
from pathlib import Path

import numpy as np

from mcclt.storage import files
from mcclt.storage.trackers import Row

POINTS = 50
"""Points of a stored learning curve, about; evaluations are kept besides."""
COLUMNS = (
    "eval/mean_reward",
    "rollout/ep_rew_mean",
    "value/std",
    "value/normality_error",
    "weight/mean",
    "weight/temperature",
    "train/explained_variance",
)
"""What is kept of the metrics."""
PARTS = ("collect", "learn", "evaluate")
"""What the time of an update is spent on."""


def read_rows(path: Path) -> list[Row]:
    """The metrics of a run, one row per update and agent; a last line that is being written is left out."""
    if not path.exists():
        return []
    return [json.loads(line) for line in files.read(path, None).decode().split("\n")[:-1]]


def seconds_of(rows: Iterable[Row]) -> dict[str, float]:
    """By `PARTS`: what the whole population took over all updates; every row of an update has it."""
    updates = {row["update"]: row for row in rows}.values()
    return {part: sum(float(row.get(f"time/{part}", 0)) for row in updates) for part in PARTS}


def evenly(count: int, most: int) -> np.ndarray:
    """Places of at most so many of `count` things, evenly spread, the first and the last among them."""
    return np.unique(np.linspace(0, count - 1, min(count, most)).round().astype(int))


def thin(rows: Sequence[Row], columns: Iterable[str] = COLUMNS) -> dict[str, np.ndarray]:
    """One agent's rows as columns, at about `POINTS` updates, the last among them, and at every evaluation."""
    stride = max(1, len(rows) // POINTS)
    last = len(rows) - 1
    kept = [row for i, row in enumerate(rows) if (last - i) % stride == 0 or "eval/mean_reward" in row]
    columns = [name for name in columns if any(name in row for row in kept)]
    curve = {name: np.array([row.get(name, math.nan) for row in kept], float) for name in columns}
    return {"step": np.array([row["step"] for row in kept], float), **curve}
