"""A run directory: configuration, versions, metrics, TensorBoard events, checkpoints, final evaluation.

config.json        every setting, resolved; `mcclt train --config RUN/config.json` repeats the run
versions.json      this program, Python, libraries, machine, git commit (again, numbered, when resumed)
metrics.jsonl      one line per update and agent, append-only
tensorboard/       the same for TensorBoard
checkpoints/       the last few, newest last
evaluation.json    returns of the final episodes, per agent
messages.txt       what a person was told on the way, if anything
"""

import contextlib
import importlib
import importlib.metadata
import json
import math
import os
import platform
import shlex
import subprocess
import sys
import time
from pathlib import Path
from typing import Any, Protocol

from mcclt import checkpoint
from mcclt.config import RunConfig, from_dict, to_dict
from mcclt.errors import CheckpointError, ConfigError, MccltError, MissingExtraError
from mcclt.train import Row, Trainer

KEEP = 3
"""Checkpoints kept; older ones are removed once a newer one is safely written."""
TENSORBOARD_LIMIT = 64
"""Above this many agents TensorBoard gets the groups' means only."""


class Run:
    """One run directory. Also an observer that writes every update's rows."""

    def __init__(self, path: Path, config: RunConfig, trackers: "list[Tracker]") -> None:
        self.path, self.config, self._trackers = path, config, trackers
        self._metrics = open(path / "metrics.jsonl", "a", encoding="utf-8")  # noqa: SIM115 (closed in close)

    @classmethod
    def create(cls, path: Path, config: RunConfig, wandb: bool = False, tensorboard: bool = True) -> "Run":
        """Makes a new directory, or says why not."""
        if wandb:
            require_wandb()
        with _writable(path):
            if path.exists() and (not path.is_dir() or any(path.iterdir())):
                raise ConfigError(
                    f"{path} is already in use: choose another --out, or continue it with  {resume_command(path)}"
                )
            (path / "checkpoints").mkdir(parents=True, exist_ok=True)
        _write_json(path / "config.json", to_dict(config))
        _write_json(path / "versions.json", versions())
        with _writable(path):
            return cls(path, config, _trackers(path, config, 0, wandb, tensorboard))

    @classmethod
    def resume(cls, path: Path, config: RunConfig, update: int, wandb: bool = False, tensorboard: bool = True) -> "Run":
        """Reopens a directory at a checkpoint; lines logged after it will be written again."""
        with _writable(path):
            metrics = path / "metrics.jsonl"
            lines = metrics.read_text(encoding="utf-8", errors="replace").splitlines() if metrics.exists() else []
            kept = [line for line in lines if _update_of(line) <= update]
            checkpoint.write_atomically(metrics, "".join(f"{line}\n" for line in kept).encode())
            _write_json(path / "config.json", to_dict(config))
            _write_json(path / f"versions-from-{update:06d}.json", versions())
            step = update * config.steps_per_update
            return cls(path, config, _trackers(path, config, step, wandb, tensorboard))

    def on_update(self, trainer: Trainer, rows: list[Row]) -> None:
        """Appends the rows."""
        now = time.time()
        with _writable(self.path):
            for row in rows:
                self._metrics.write(json.dumps(finite(row | {"time": now})) + "\n")
            self._metrics.flush()
            for tracker in self._trackers:
                tracker.log(rows)

    def on_message(self, text: str) -> None:
        """Keeps what a person was told."""
        with _writable(self.path), open(self.path / "messages.txt", "a", encoding="utf-8") as file:
            file.write(text + "\n")

    def save(self, trainer: Trainer) -> Path:
        """Writes a checkpoint and removes the oldest beyond `KEEP`."""
        arrays, meta = trainer.to_checkpoint()
        path = self.path / "checkpoints" / f"update-{meta['update']:06d}{checkpoint.SUFFIX}"
        checkpoint.save(path, arrays, meta)
        for old in checkpoints(self.path)[:-KEEP]:
            old.unlink(missing_ok=True)
        return path

    def write_evaluation(self, data: list[dict[str, Any]]) -> None:
        """Stores the final evaluation."""
        _write_json(self.path / "evaluation.json", data)

    def close(self) -> None:
        """Flushes everything."""
        self._metrics.close()
        for tracker in self._trackers:
            tracker.close()


def resume_command(path: Path) -> str:
    """What to type to continue a run."""
    return f"mcclt train --resume {shlex.quote(str(path))}"


def checkpoints(path: Path) -> list[Path]:
    """A run's checkpoints, oldest first."""
    return sorted((path / "checkpoints").glob(f"update-*{checkpoint.SUFFIX}"))


def load_latest(path: Path) -> tuple[checkpoint.Arrays, dict[str, Any], Path, list[str]]:
    """The newest checkpoint of a run that can be read; damaged ones are passed over and named.

    Returns:
        Arrays, metadata, the file, and what was said of files passed over.
    """
    if not (path / "config.json").is_file():
        raise CheckpointError(f"{path} is not a run directory: it has no config.json.")
    passed: list[str] = []
    for file in reversed(checkpoints(path)):
        try:
            return *checkpoint.load(file), file, passed
        except CheckpointError as error:
            passed.append(str(error))
    if passed:
        raise CheckpointError(f"No checkpoint of {path} can be read. {passed[0]}")
    raise CheckpointError(f"{path} has no checkpoint yet: start it again with  mcclt train --config {path}/config.json")


def stored_config(path: Path) -> RunConfig:
    """The configuration a run was started with."""
    try:
        return from_dict(json.loads((path / "config.json").read_text(encoding="utf-8")))
    except FileNotFoundError:
        raise CheckpointError(f"{path} is not a run directory: it has no config.json.") from None
    except (OSError, ValueError) as error:
        raise CheckpointError(f"{path}/config.json cannot be read: {error}") from None


def default_path(config: RunConfig) -> Path:
    """runs/TASK__GROUPS__TIME."""
    name = "+".join(config.groups) if len(config.groups) <= 3 else f"{len(config.groups)}-groups"
    task = config.task.replace("/", "_").replace(":", "_")
    path = Path("runs") / f"{task}__{name}__{time.strftime('%Y%m%d-%H%M%S')}"
    again = 2
    while path.exists():  # another run began in this very second
        path = path.with_name(f"{path.name.split('~')[0]}~{again}")
        again += 1
    return path


def versions() -> dict[str, Any]:
    """What ran where."""
    packages = ["mcclt", "jax", "jaxlib", "optax", "numpy", "mujoco", "gymnasium", "envpool", "safetensors"]
    found = {}
    for name in packages:
        with contextlib.suppress(importlib.metadata.PackageNotFoundError):
            found[name] = importlib.metadata.version(name)
    import jax

    devices = [f"{d.platform}: {d.device_kind}" for d in jax.devices()]
    return {
        "packages": found,
        "python": sys.version.split()[0],
        "platform": platform.platform(),
        "cpu": _cpu_model(),
        "cpu_count": os.cpu_count(),
        "devices": devices,
        "git": _git_commit(),
        "started": time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime()),
        "command": sys.argv,
    }


def _cpu_model() -> str:
    """The processor's name (Linux), or its architecture."""
    with contextlib.suppress(OSError):
        for line in Path("/proc/cpuinfo").read_text(encoding="utf-8", errors="replace").splitlines():
            if line.startswith("model name"):
                return line.partition(":")[2].strip()
    return platform.processor() or platform.machine()


def _git_commit() -> str | None:
    """The commit this program is at, when it runs from a checkout."""
    here = Path(__file__).resolve().parent
    try:
        out = subprocess.run(
            ["git", "-C", str(here), "rev-parse", "HEAD"], capture_output=True, text=True, timeout=5, check=True
        )
    except (OSError, subprocess.SubprocessError):
        return None
    return out.stdout.strip()


def finite(row: Row) -> Row:
    """JSON has no NaN or infinity: such numbers are left out."""
    return {k: v for k, v in row.items() if not (isinstance(v, float) and not math.isfinite(v))}


def _update_of(line: str) -> float:
    try:
        return int(json.loads(line)["update"])
    except (ValueError, KeyError, TypeError):
        return math.inf  # a line cut off by a crash


def _write_json(path: Path, data: Any) -> None:
    checkpoint.write_atomically(path, (json.dumps(data, indent=2, allow_nan=False) + "\n").encode())


@contextlib.contextmanager
def _writable(path: Path):
    try:
        yield
    except OSError as error:
        raise MccltError(f"Cannot write to {path}: {error.strerror or error}.") from None


class Tracker(Protocol):
    """Sends rows to TensorBoard or Weights & Biases, one curve per agent, x = environment steps."""

    def log(self, rows: list[Row]) -> None:
        """One update's rows."""
        ...

    def close(self) -> None:
        """Flushes."""
        ...


class TensorBoard:
    """One event file per agent (or per group, of means, for large populations)."""

    def __init__(self, path: Path, config: RunConfig, step: int) -> None:
        from tensorboardX import SummaryWriter

        self._means = len(config.groups) * len(config.seeds) > TENSORBOARD_LIMIT
        self._open = lambda name: SummaryWriter(logdir=str(path / name), purge_step=step + 1 if step else None)
        self._writers: dict[str, Any] = {}

    def log(self, rows: list[Row]) -> None:
        """Numbers by name."""
        for name, row in _by_curve(rows, self._means).items():
            writer = self._writers.setdefault(name, None) or self._open(name)
            self._writers[name] = writer
            for key, value in row.items():
                if "/" in key:
                    writer.add_scalar(key, value, row["step"])

    def close(self) -> None:
        """Flushes."""
        for writer in self._writers.values():
            writer.close()


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


def _trackers(path: Path, config: RunConfig, step: int, wandb: bool, tensorboard: bool) -> list[Tracker]:
    found: list[Tracker] = [TensorBoard(path / "tensorboard", config, step)] if tensorboard else []
    return [*found, WandB(path, config)] if wandb else found
