"""Trackers: rows of metrics for TensorBoard and Weights & Biases."""

import functools
import importlib
import math
import re
import socket
import struct
import sys
import time
from pathlib import Path
from typing import Any, Protocol

from mcclt.config import RunConfig, to_dict
from mcclt.errors import MissingExtraError
from mcclt.storage import files

Row = dict[str, Any]
"""Metrics of one agent after one update: `group`, `seed`, `update`, `step` and named numbers."""

TENSORBOARD_LIMIT = 64
"""Above this many agents TensorBoard gets the groups' means only."""


def finite(row: Row) -> Row:
    """JSON has no NaN or infinity: such numbers are left out."""
    return {k: v for k, v in row.items() if not (isinstance(v, float) and not math.isfinite(v))}


class Tracker(Protocol):
    """Sends rows to TensorBoard or Weights & Biases, one curve per agent, x = environment steps."""

    def log(self, rows: list[Row]) -> None:
        """One update's rows."""
        ...

    def close(self) -> None:
        """Flushes."""
        ...


class TensorBoard:
    """One event file per agent (or per group, of means, for large populations).

    Written here rather than by tensorboardX's SummaryWriter, whose thread dies where a disk is full, and then has
    `close` wait for it for ever.
    """

    def __init__(self, path: Path, config: RunConfig, step: int) -> None:
        self._means = len(config.groups) * len(config.seeds) > TENSORBOARD_LIMIT
        self._path, self._step = path, step
        self._files: dict[str, Any] = {}

    def log(self, rows: list[Row]) -> None:
        """Numbers by name."""
        _import_tensorboard()
        from tensorboardX.proto.event_pb2 import Event
        from tensorboardX.proto.summary_pb2 import Summary

        for name, row in _by_curve(rows, self._means).items():
            if name not in self._files:
                self._files[name] = self._open(self._path / name)
            values = [Summary.Value(tag=k, simple_value=v) for k, v in row.items() if "/" in k]
            event = Event(wall_time=time.time(), step=int(row["step"]), summary=Summary(value=values))
            files.append(self._files[name], _record(event))

    def _open(self, folder: Path) -> Any:
        """A new file; later ones come later in the alphabet too, whatever the clock says."""
        from tensorboardX.proto.event_pb2 import Event, SessionLog

        folder.mkdir(parents=True, exist_ok=True)
        names = [re.match(r"events\.out\.tfevents\.([0-9]{10})\.", p.name) for p in folder.iterdir()]
        second = max([int(time.time()), *(int(m[1]) + 1 for m in names if m)])
        file = open(folder / f"events.out.tfevents.{second:010d}.{socket.gethostname()}", "xb", buffering=0)  # noqa: SIM115
        first = [Event(wall_time=time.time(), file_version="brain.Event:2")]
        if self._step:  # what was logged after the checkpoint is not shown
            first.append(Event(step=self._step + 1, session_log=SessionLog(status=SessionLog.START)))
        try:
            files.append(file, b"".join(map(_record, first)))
        except OSError:
            file.close()
            raise
        return file

    def close(self) -> None:
        """Nothing is kept back."""
        for file in self._files.values():
            file.close()


@functools.cache
def _import_tensorboard() -> None:
    """Loads tensorboardX without PyTorch, which it would load where there is one: four seconds, for nothing we need."""
    absent = "torch" not in sys.modules
    if absent:
        sys.modules["torch"] = None  # type: ignore[assignment]
    try:
        importlib.import_module("tensorboardX")
    finally:
        if absent:
            del sys.modules["torch"]


def _record(event: Any) -> bytes:
    """An event as TensorBoard's files hold it (a TFRecord)."""
    from tensorboardX.record_writer import masked_crc32c

    data = event.SerializeToString()
    length = struct.pack("<Q", len(data))
    return length + struct.pack("<I", masked_crc32c(length)) + data + struct.pack("<I", masked_crc32c(data))


class WandB:
    """One W&B run; agents are told apart by prefix."""

    def __init__(self, path: Path, config: RunConfig) -> None:
        wandb = require_wandb()
        self._run = wandb.init(project="mcclt", name=path.name, dir=str(path), config=to_dict(config))

    def log(self, rows: list[Row]) -> None:
        """Numbers by `group/seed/name`."""
        if rows:
            flat = {
                f"{name}/{k}": v for name, row in _by_curve(rows, False).items() for k, v in row.items() if "/" in k
            }
            self._run.log(flat | {"global_step": rows[0]["step"]})

    def close(self) -> None:
        """Ends the run."""
        self._run.finish()


def require_wandb() -> Any:
    """The wandb module, or what to install."""
    try:
        return importlib.import_module("wandb")
    except ImportError:
        raise MissingExtraError("Weights & Biases logging", "wandb") from None


def _by_curve(rows: list[Row], means: bool) -> dict[str, Row]:
    """Rows by the name of their curve: one per agent, or the mean per group."""
    if not means:
        return {f"{row['group']}/seed-{row['seed']}": finite(row) for row in rows}
    curves = {}
    for group in dict.fromkeys(row["group"] for row in rows):
        members = [finite(row) for row in rows if row["group"] == group]
        keys = [k for k in members[0] if all(k in m for m in members) and not isinstance(members[0][k], str)]
        curves[group] = {k: sum(m[k] for m in members) / len(members) for k in keys}
    return curves


def trackers(path: Path, config: RunConfig, step: int, wandb: bool, tensorboard: bool) -> list[Tracker]:
    """Those of a run directory, at a step."""
    found: list[Tracker] = [TensorBoard(path / "tensorboard", config, step)] if tensorboard else []
    return [*found, WandB(path, config)] if wandb else found
