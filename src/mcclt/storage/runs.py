"""A run directory: configuration, versions, metrics, TensorBoard events, checkpoints, final evaluation.

config.json        every setting, resolved; `mcclt train --config RUN/config.json` repeats the run
versions.json      this program, Python, libraries, machine, git commit (again, numbered, when resumed)
metrics.jsonl      one line per update and agent, append-only
tensorboard/       the same for TensorBoard
checkpoints/       the last few, newest last
evaluation.json    per agent: returns of the final episodes, and what its critic believes
messages.txt       what a person was told on the way, if anything
"""

import contextlib
import fcntl
import functools
import importlib
import importlib.metadata
import itertools
import json
import os
import platform
import re
import shlex
import shutil
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

from mcclt.config import RunConfig
from mcclt.errors import CheckpointError, ConfigError, InaccessibleError, MccltError
from mcclt.storage import checkpoint, files, metadata, trackers
from mcclt.storage.configuration import from_dict, to_dict
from mcclt.storage.trackers import Row, Tracker

if TYPE_CHECKING:
    from mcclt.training.trainer import Trainer

KEEP = 3
"""Checkpoints kept; older ones are removed once a newer one is safely written."""
_writable = functools.partial(files.refusals, MccltError, "write to")


class Run:
    """One run directory. Also an observer that writes every update's rows."""

    def __init__(self, path: Path, config: RunConfig, trackers: list[Tracker], lock: int) -> None:
        self.path, self.config, self._trackers, self._lock = path, config, trackers, lock
        self._metrics = open(path / "metrics.jsonl", "ab", buffering=0)  # noqa: SIM115 (closed in close)

    @classmethod
    def create(
        cls, path: Path, config: RunConfig, wandb: bool = False, tensorboard: bool = True, engine: str | None = None
    ) -> "Run":
        """Makes a new directory, or says why not."""
        if wandb:
            trackers.require_wandb()
        with _writable(path):
            if path.exists() and (not path.is_dir() or any(path.iterdir())):
                on = f", or continue it with  {resume_command(path)}" if (path / "config.json").exists() else "."
                raise ConfigError(f"{path} is already in use: choose another directory (--out, in Python log_dir){on}")
            path.mkdir(parents=True, exist_ok=True)
            with _locked(path) as lock:
                if any(path.iterdir()):  # another process was faster
                    raise ConfigError(f"{path} is already in use: choose another directory.")
                (path / "checkpoints").mkdir()
                _write_json(path / "config.json", to_dict(config))
                _write_json(path / "versions.json", versions() | {"engine": engine})
                try:
                    made = trackers.trackers(path, config, 0, wandb, tensorboard)
                except ConfigError:  # the same command may be typed again
                    shutil.rmtree(path)
                    raise
                return cls(path, config, made, lock)

    @classmethod
    def resume(cls, path: Path, config: RunConfig, update: int, wandb: bool = False, tensorboard: bool = True) -> "Run":
        """Reopens a directory at a checkpoint; lines logged after it will be written again."""
        with _writable(path), _locked(path) as lock:
            metrics = path / "metrics.jsonl"
            lines = files.read(metrics, None).split(b"\n") if metrics.exists() else []
            updates = [_update_of(line) for line in lines]
            kept = [line for line, at in zip(lines, updates, strict=True) if at is not None and at <= update]
            checkpoint.write_atomically(metrics, b"".join(line + b"\n" for line in kept))
            _write_json(path / "config.json", to_dict(config))
            _write_json(path / f"versions-from-{update:06d}.json", versions())
            step = update * config.steps_per_update
            run = cls(path, config, trackers.trackers(path, config, step, wandb, tensorboard), lock)
            # Whatever follows the last good line was cut off by a crash, and will be written again.
            last = max((i for i, at in enumerate(updates) if at is not None), default=-1)
            if spoilt := updates[:last].count(None):
                run.on_message(f"{metrics}: {spoilt} damaged line(s) were left out.")
            return run

    def on_update(self, trainer: "Trainer", rows: list[Row]) -> None:
        """Appends the rows."""
        now = time.time()
        text = "".join(json.dumps(trackers.finite(row | {"time": now})) + "\n" for row in rows)
        with _writable(self.path):
            files.append(self._metrics, text.encode())
            for _, of_one in itertools.groupby(rows, lambda row: row["update"]):
                update = list(of_one)
                for tracker in self._trackers:
                    tracker.log(update)

    def on_message(self, text: str) -> None:
        """Keeps what a person was told."""
        # Never through a link: the directory may come from a stranger.
        flags = os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_NOFOLLOW
        with _writable(self.path), open(os.open(self.path / "messages.txt", flags, 0o666), "ab", buffering=0) as file:
            files.append(file, (text + "\n").encode())

    def save(self, trainer: "Trainer") -> Path:
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
        """Closes everything; all of it was written at each update."""
        self._metrics.close()
        for tracker in self._trackers:
            tracker.close()
        if self._lock >= 0:
            os.close(self._lock)  # which frees it
            self._lock = -1


def resume_command(path: Path) -> str:
    """What to type to continue a run."""
    return f"mcclt train --resume {shlex.quote(str(path))}"


def checkpoints(path: Path) -> list[Path]:
    """A run's checkpoints, oldest first."""
    named = {p: re.fullmatch(r"update-([0-9]{1,18})", p.stem) for p in path.glob(f"checkpoints/*{checkpoint.SUFFIX}")}
    found = {p: int(m[1]) for p, m in named.items() if m}
    return sorted(found, key=lambda p: found[p])  # by number: the millionth has more digits


def load_latest(path: Path) -> tuple[checkpoint.Arrays, dict[str, Any], Path, list[str]]:
    """The newest checkpoint of a run that can be read; damaged ones are passed over and named.

    Returns:
        Arrays, metadata, the file, and what was said of files passed over.

    Raises:
        InaccessibleError: none can be read, and one of them may be whole, or another process will soon write one.
        CheckpointError: none can be read.
    """
    if not (path / "config.json").is_file():
        raise CheckpointError(f"{path} is not a run directory: it has no config.json.")
    passed: list[CheckpointError] = []
    for file in reversed(checkpoints(path)):
        try:
            arrays, meta = checkpoint.load(file)
            metadata.check(arrays, meta, file)
            return arrays, meta, file, [str(error) for error in passed]
        except CheckpointError as error:
            passed.append(error)
    if passed:
        worst = next((error for error in passed if isinstance(error, InaccessibleError)), passed[0])
        raise type(worst)(f"No checkpoint of {path} can be read. {worst}")
    if _is_locked(path):
        raise InaccessibleError(f"{path} has no checkpoint yet: another process is training it; wait for its first.")
    command = shlex.join(["mcclt", "train", "--config", str(path / "config.json")])
    raise CheckpointError(f"{path} has no checkpoint yet: start it again with  {command}")


def stored_config(path: Path) -> RunConfig:
    """The configuration a run was started with."""
    try:
        return from_dict(json.loads(files.read(path / "config.json")))
    except FileNotFoundError:
        raise CheckpointError(f"{path} is not a run directory: it has no config.json.") from None
    except (OSError, ValueError, RecursionError) as error:
        said = str(getattr(error, "strerror", None) or error)[:500]
        raise CheckpointError(f"{path}/config.json cannot be read: {said}") from None


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
        "started": utc(),
        "command": sys.argv,
    }


def utc(moment: float | None = None) -> str:
    """A moment, by default now: 2026-01-01T00:05:00Z."""
    return time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(moment))


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


def _update_of(line: bytes) -> int | None:
    """The update that a line of metrics is about; None if it is cut off or damaged."""
    try:
        row = json.loads(line)
        known = isinstance(row["group"], str) and all(type(row[k]) is int for k in ("seed", "update", "step"))
        return row["update"] if known else None
    except (ValueError, KeyError, TypeError, RecursionError):
        return None


@contextlib.contextmanager
def _locked(path: Path) -> Iterator[int]:
    """A lock on a directory, which the operating system frees when this process ends; closing the handle frees it.

    Raises:
        ConfigError: another process has it.
    """
    handle = os.open(path, os.O_RDONLY)
    try:
        fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        os.close(handle)
        raise ConfigError(
            f"{path} is being written by another process: wait for it, or choose another --out."
        ) from None
    except OSError:
        pass  # a file system without locks
    try:
        yield handle
    except BaseException:
        os.close(handle)
        raise


def _is_locked(path: Path) -> bool:
    """Whether another process has the lock."""
    try:
        with _locked(path) as handle:
            os.close(handle)
    except ConfigError:
        return True
    return False


def _write_json(path: Path, data: Any) -> None:
    checkpoint.write_atomically(path, (json.dumps(data, indent=2, allow_nan=False) + "\n").encode())
