"""Trackers: rows of metrics for TensorBoard and Weights & Biases."""

import functools
import hashlib
import importlib
import math
import re
import socket
import struct
import sys
import time
from pathlib import Path
from typing import Any, Protocol

from mcclt.config import RunConfig
from mcclt.errors import ConfigError, MissingExtraError
from mcclt.storage import files
from mcclt.storage.configuration import to_dict

Row = dict[str, Any]
"""Metrics of one agent after one update: `group`, `seed`, `update`, `step` and named numbers."""

MOST_CURVES = 64
"""Above this many agents trackers get the groups' means only."""


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
        self._means = _too_many(config)
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
    """One W&B run per agent (or per group, of means, for large populations), together a group named as the directory.

    A training that is resumed goes on in the same W&B runs.
    """

    def __init__(self, path: Path, config: RunConfig) -> None:
        self._means = _too_many(config)
        self._runs: dict[str, Any] = {}
        try:
            for group in config.groups:
                for seed in [None] if self._means else config.seeds:
                    self._runs[_curve(group, seed)] = self._begin(path, config, group, seed)
        except BaseException:
            self.close()
            raise

    def _begin(self, path: Path, config: RunConfig, group: str, seed: int | None) -> Any:
        wandb = require_wandb()
        name, settings = _curve(group, seed), to_dict(config)
        agent = settings.pop("groups")[group]
        digest = hashlib.blake2b(files.read(path / "versions.json") + name.encode(), digest_size=8).hexdigest()
        try:
            run = wandb.init(
                project="mcclt",
                group=path.name,
                job_type=group,
                name=name,
                id=digest,
                resume="allow",
                reinit="create_new",
                dir=str(path),
                config=settings | agent | {"seed": seed},
                settings=wandb.Settings(quiet=True, console="off"),
            )
        except wandb.Error as error:
            said = str(error).partition("\n")[0].rstrip(".")
            raise ConfigError(
                f"Weights & Biases cannot be used: {said}. WANDB_MODE=offline in front of the command needs no account."
            ) from None
        run.define_metric("*", step_metric="global_step")
        return run

    def log(self, rows: list[Row]) -> None:
        """Numbers by name."""
        for name, row in _by_curve(rows, self._means).items():
            self._runs[name].log({k: v for k, v in row.items() if "/" in k} | {"global_step": row["step"]})

    def close(self) -> None:
        """Ends the runs."""
        for run in self._runs.values():
            run.finish()


def require_wandb() -> Any:
    """The wandb module, or what to install."""
    try:
        return importlib.import_module("wandb")
    except ImportError:
        raise MissingExtraError("Weights & Biases logging", "wandb") from None


def _too_many(config: RunConfig) -> bool:
    """Agents, for a curve each."""
    return len(config.groups) * len(config.seeds) > MOST_CURVES


def _curve(group: str, seed: int | None) -> str:
    """The name of an agent's curve, or of its group's."""
    return group if seed is None else f"{group}/seed-{seed}"


def _by_curve(rows: list[Row], means: bool) -> dict[str, Row]:
    """Rows by the name of their curve: one per agent, or the mean per group."""
    if not means:
        return {_curve(row["group"], row["seed"]): finite(row) for row in rows}
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
