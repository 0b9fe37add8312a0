"""Disks that are full or read-only, and files that rot: nothing half-written, nothing lost but what had no room."""

import contextlib
import json
import resource
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from mcclt.cli import app as cli
from mcclt.errors import CheckpointError, MccltError
from mcclt.experiments import setups
from mcclt.experiments.store import Store, StoreError
from mcclt.pages import report
from mcclt.storage import checkpoint, runs
from mcclt.training.loop import run
from mcclt.training.trainer import Trainer
from probes import PENDULUM, TINY_FLAGS, agent, run_config
from synthetic import make_result, make_store
from trees import timeless

STEPS = 640
FLAGS = [PENDULUM, *TINY_FLAGS, "--critic", "plain", "--quiet", "--steps", str(STEPS), "--checkpoint-freq", "64"]
PLACES = 40


class Disk:
    """A small file system of its own in memory."""

    def __init__(self, path: Path, kib: int) -> None:
        self.path = path
        path.mkdir()
        done = subprocess.run(["mount", "-t", "tmpfs", "-o", f"size={kib}k", "tmpfs", path], capture_output=True)
        if done.returncode:
            pytest.skip("needs the right to mount")

    def remount(self, options: str) -> None:
        subprocess.run(["mount", "-o", f"remount,{options}", self.path], check=True)

    def remove(self) -> None:
        subprocess.run(["umount", "-l", self.path], check=True)


@contextlib.contextmanager
def disk(path: Path, kib: int) -> Iterator[Disk]:
    made = Disk(path, kib)
    try:
        yield made
    finally:
        made.remove()


def command(*args: str) -> int:
    """The exit code of a command."""
    try:
        cli.main(list(args))
    except SystemExit as end:
        return int(end.code or 0)
    return 0


def whole(path: Path) -> None:
    """Every file of a run directory can be read, and there is no other."""
    for file in path.rglob("*"):
        if file.suffix == ".json":
            json.loads(file.read_text())
        elif file.suffix == ".jsonl":
            text = file.read_text()
            assert not text or text.endswith("\n")
            rows = [json.loads(line) for line in text.splitlines()]
            assert [row["update"] for row in rows] == list(range(1, len(rows) + 1))
        elif file.suffix == checkpoint.SUFFIX:
            checkpoint.load(file)
        else:
            assert file.is_dir() or "tfevents" in file.name, file


def outcome(path: Path) -> Any:
    """What must come out of a training, however often it was stopped."""
    arrays, meta = checkpoint.load(runs.checkpoints(path)[-1])
    rows = map(json.loads, (path / "metrics.jsonl").read_text().splitlines())
    return {k: v.tobytes() for k, v in arrays.items()}, meta["update"], timeless(rows)


@pytest.fixture(scope="module")
def undisturbed(tmp_path_factory: pytest.TempPathFactory) -> Any:
    path = tmp_path_factory.mktemp("disks") / "whole"
    assert command("train", *FLAGS, "--out", str(path)) == 0
    return outcome(path)


@pytest.mark.parametrize("kib", [8, 60, *(pytest.param(n, marks=pytest.mark.slow) for n in (4, 12, 20, 92))])
def test_a_full_disk(tmp_path: Path, undisturbed: Any, capfd: pytest.CaptureFixture[str], kib: int) -> None:
    """The run ends with a sentence; with more room it goes on, and ends as if nothing had been."""
    with disk(tmp_path / "disk", kib) as small:
        path = small.path / "run"
        assert command("train", *FLAGS, "--out", str(path)) == 2
        said = capfd.readouterr().err
        assert said.startswith("mcclt: Cannot write") and "No space left on device." in said and str(path) in said
        assert said.count("\n") == 1 and "Traceback" not in said
        whole(path)
        small.remount("size=10m")
        if runs.checkpoints(path):
            assert f"mcclt train --resume {path}" in said
            assert command("train", "--resume", str(path), "--quiet") == 0
            assert outcome(path) == undisturbed


def test_a_disk_that_becomes_read_only(tmp_path: Path, undisturbed: Any, capfd: pytest.CaptureFixture[str]) -> None:
    with disk(tmp_path / "disk", 10_000) as some:
        path = some.path / "run"
        trainer = Trainer(_config())
        directory = runs.Run.create(path, trainer.config)
        try:
            for _ in range(8):
                directory.on_update(trainer, trainer.advance())
            directory.save(trainer)
            before = {p: p.read_bytes() for p in path.rglob("*") if p.is_file()}
        finally:
            directory.close()
            trainer.close()
        some.remount("ro")
        for args in (["--resume", str(path), "--quiet"], [*FLAGS, "--out", str(some.path / "other")]):
            assert command("train", *args) == 2
            said = capfd.readouterr().err
            assert "Cannot write" in said and "Read-only file system" in said and said.count("\n") == 1
        assert {p: p.read_bytes() for p in path.rglob("*") if p.is_file()} == before
        some.remount("rw")
        assert command("train", "--resume", str(path), "--quiet") == 0
        assert outcome(path) == undisturbed


def _config() -> Any:
    return run_config(groups={"ppo-plain": agent(critic="plain")}, steps=STEPS, checkpoint_freq=64)


@contextlib.contextmanager
def file_limit(size: int) -> Iterator[None]:
    """No file may grow beyond `size` bytes: a write that fails half-way, without any privilege."""
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (size, before[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)


def test_a_write_that_fails_half_way(tmp_path: Path) -> None:
    trainer = Trainer(_config())
    directory = runs.Run.create(tmp_path / "run", trainer.config)
    try:
        rows = trainer.advance()
        directory.on_update(trainer, rows)
        directory.save(trainer)
        size = (tmp_path / "run" / "metrics.jsonl").stat().st_size
        with file_limit(size + 100):
            for action in (lambda: directory.on_update(trainer, rows), lambda: directory.save(trainer)):
                with pytest.raises(MccltError, match=r"Cannot write.*File too large"):
                    action()
            with pytest.raises(MccltError, match="File too large"):
                directory.on_message("x" * 5000)
        assert (tmp_path / "run" / "metrics.jsonl").stat().st_size == size
    finally:
        directory.close()
        trainer.close()
    assert (tmp_path / "run" / "messages.txt").read_text() == ""
    checkpoint.load(runs.checkpoints(tmp_path / "run")[-1])
    assert not list((tmp_path / "run").rglob(".*"))


def test_a_full_disk_under_a_store(tmp_path: Path) -> None:
    """What was there stays; what does not fit is refused; the rest is written when there is room."""
    with disk(tmp_path / "disk", 90) as small:
        store = Store(small.path / "store", create=True)
        setup = setups.make_setup("Hopper", "ppo", "plain", "authors")
        written = 0
        with pytest.raises(StoreError, match=r"Cannot write .*seed-.*No space left on device"):
            for seed in range(100):
                store.write(setup, make_result(setup, seed, 1.0))
                written += 1
        loaded = store.load()
        assert loaded.problems == () and loaded.series[0].seeds == list(range(written)) and written > 1
        assert not [p for p in store.path.rglob(".*") if p.name != ".gitignore"]
        with pytest.raises(StoreError, match=r"Cannot write the report to .*No space left on device"):
            report.write(loaded, store.path / "report")
        assert not (store.path / "report" / "report.html").exists()
        small.remount("size=10m")
        store.write(setup, make_result(setup, written, 1.0))
        assert len(store.load().series[0].seeds) == written + 1
        small.remount("size=10m,ro")
        with pytest.raises(StoreError, match="Read-only file system"):
            store.write(setup, make_result(setup, 99, 1.0))
        with pytest.raises(StoreError, match="Read-only file system"):
            report.write(store.load(), store.path / "report")
        assert len(store.load().series[0].seeds) == written + 1, "it can still be read"


def test_a_directory_that_is_taken(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    """A file where a directory should be stops root, too."""
    (tmp_path / "taken").write_text("mine")
    assert command("train", *FLAGS, "--out", str(tmp_path / "taken" / "run")) == 2
    assert "Cannot write" in capfd.readouterr().err
    store = make_store(tmp_path / "store", ("Hopper",), ("ppo",), ("plain",), 1)
    with pytest.raises(StoreError, match="Cannot write the report"):
        report.write(store.load(), tmp_path / "taken" / "report")
    assert (tmp_path / "taken").read_text() == "mine"


# --- rot ---------------------------------------------------------------------------------------------------------


def damaged(data: bytes, rng: np.random.Generator) -> tuple[bytes, str]:
    """A file truncated, or with one bit flipped, at a random place."""
    at = int(rng.integers(len(data)))
    if rng.random() < 0.5:
        return data[:at], f"cut off at {at}"
    bit = int(rng.integers(8))
    return data[:at] + bytes([data[at] ^ 1 << bit]) + data[at + 1 :], f"bit {bit} of byte {at} flipped"


@pytest.fixture(scope="module")
def trained(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("rot") / "run"
    trainer = Trainer(_config())
    directory = runs.Run.create(path, trainer.config)
    run(trainer, [directory], lambda: directory.save(trainer))
    directory.close()
    trainer.close()
    return path


def test_checkpoints_that_rot(trained: Path, tmp_path: Path) -> None:
    """At each of many places: found by the checksum, the one before is used, and it is said."""
    path = Path(shutil.copytree(trained, tmp_path / "run"))
    newest, before = runs.checkpoints(path)[-1], runs.checkpoints(path)[-2]
    good = newest.read_bytes()
    rng = np.random.default_rng(2)
    for _ in range(PLACES):
        data, what = damaged(good, rng)
        newest.write_bytes(data)
        with pytest.raises(CheckpointError):
            checkpoint.load(newest)
        _, meta, used, passed = runs.load_latest(path)
        assert used == before and meta["update"] == STEPS // 16 - 4, what
        assert len(passed) == 1 and newest.name in passed[0], what
    from mcclt import load

    with pytest.warns(UserWarning, match=rf"Skipped: .*{newest.name}.* Used instead: .*{before.name}"):
        load(path)


def test_stores_that_rot(tmp_path: Path) -> None:
    """At each of many places: what is read is what was written, or named as damaged and computed again."""
    store = make_store(tmp_path / "store", ("Hopper",), ("ppo",), ("plain",), 2)
    setup = setups.make_setup("Hopper", "ppo", "plain", "authors")
    path = store.file((setup, 1))
    good, other = path.read_bytes(), store.file((setup, 0)).read_bytes()
    rng = np.random.default_rng(3)
    found = 0
    for _ in range(PLACES):
        data, what = damaged(good, rng)
        path.write_bytes(data)
        loaded = store.load()
        if store.has((setup, 1)):  # white space, or another spelling of the same number
            assert json.loads(data) == json.loads(good), what
            continue
        found += 1
        assert loaded.series[0].seeds == [0] and path.name in loaded.problems[0], what
        assert store.missing([(setup, 0), (setup, 1)]) == [(setup, 1)], what
    assert found > PLACES * 0.9
    store.write(setup, make_result(setup, 1, 5.0))
    assert store.load().problems == () and store.file((setup, 0)).read_bytes() == other


def test_metrics_that_rot(trained: Path, tmp_path: Path) -> None:
    """A line that cannot be read any more is left out, and that is said."""
    path = Path(shutil.copytree(trained, tmp_path / "run"))
    lines = (path / "metrics.jsonl").read_bytes().splitlines(keepends=True)
    lines[3] = b"\xff" + lines[3][1:]
    (path / "metrics.jsonl").write_bytes(b"".join(lines) + b'{"group": "ppo-pl')
    config = runs.stored_config(path)
    runs.Run.resume(path, config, STEPS // 16, tensorboard=False).close()
    assert (path / "metrics.jsonl").read_bytes() == b"".join(lines[:3] + lines[4:])
    assert "1 damaged line(s) were left out" in (path / "messages.txt").read_text()


def test_the_millionth_checkpoint_is_the_newest(tmp_path: Path) -> None:
    (tmp_path / "checkpoints").mkdir()
    for update in (999_999, 1_000_000, 7):
        (tmp_path / "checkpoints" / f"update-{update:06d}{checkpoint.SUFFIX}").touch()
    (tmp_path / "checkpoints" / f"update-x{checkpoint.SUFFIX}").touch()
    assert [p.stem for p in runs.checkpoints(tmp_path)] == ["update-000007", "update-999999", "update-1000000"]
