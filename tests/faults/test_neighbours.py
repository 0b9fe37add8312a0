"""Other processes, other clocks, other places: two trainings in one directory, locale, time zone, odd names."""

import concurrent.futures
import itertools
import json
import os
import shutil
import subprocess
import sys
import threading
import time
from pathlib import Path
from typing import Any

import pytest

from mcclt.errors import ConfigError, MccltError
from mcclt.storage import checkpoint, runs
from mcclt.training.loop import run
from mcclt.training.trainer import Trainer
from probes import PENDULUM, TINY_FLAGS, agent, run_config
from trees import timeless

CONFIG = run_config(groups={"ppo-plain": agent(critic="plain")}, checkpoint_freq=16)
ODD = "mit Leerzeichen, ünï 名 'und' \"mehr\""


def train(path: Path) -> None:
    trainer = Trainer(CONFIG)
    directory = runs.Run.create(path, trainer.config)
    try:
        run(trainer, [directory], lambda: directory.save(trainer))
    finally:
        directory.close()
        trainer.close()


def outcome(path: Path) -> Any:
    arrays, _ = checkpoint.load(runs.checkpoints(path)[-1])
    rows = map(json.loads, (path / "metrics.jsonl").read_text(encoding="utf-8").splitlines())
    return {k: v.tobytes() for k, v in arrays.items()}, timeless(rows)


@pytest.fixture(scope="module")
def finished(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("neighbours") / "run"
    train(path)
    return path


def test_a_directory_has_one_training(finished: Path, tmp_path: Path) -> None:
    path = tmp_path / "run"
    first = runs.Run.create(path, CONFIG)
    with pytest.raises(ConfigError, match="already in use"):
        runs.Run.create(path, CONFIG)
    with pytest.raises(ConfigError, match="is being written by another process"):
        runs.Run.resume(path, CONFIG, 0)
    first.close()
    second = runs.Run.resume(path, CONFIG, 0)
    with pytest.raises(ConfigError, match="is being written by another process"):
        runs.Run.resume(path, CONFIG, 0)
    second.close()


def test_a_killed_training_frees_its_directory(finished: Path, tmp_path: Path) -> None:
    copy = Path(shutil.copytree(finished, tmp_path / "run"))
    code = f"""
import os
from pathlib import Path
from mcclt.storage import runs
path = Path({str(copy)!r})
run = runs.Run.resume(path, runs.stored_config(path), 4, tensorboard=False)
print("there", flush=True)
input()
"""
    process = subprocess.Popen([sys.executable, "-c", code], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    try:
        assert process.stdout and process.stdout.readline() == "there\n"
        with pytest.raises(ConfigError, match="is being written by another process"):
            runs.Run.resume(copy, CONFIG, 4)
    finally:
        process.kill()
        process.communicate()
    runs.Run.resume(copy, CONFIG, 4).close()


def test_of_many_that_begin_at_once_one_does(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(runs, "versions", dict)
    for attempt in range(20):
        path = tmp_path / str(attempt)
        barrier = threading.Barrier(6)

        def begin(path: Path = path, barrier: threading.Barrier = barrier) -> runs.Run | None:
            barrier.wait()
            try:
                return runs.Run.create(path, CONFIG, tensorboard=False)
            except MccltError:
                return None

        with concurrent.futures.ThreadPoolExecutor(6) as pool:
            begun = [r for r in pool.map(lambda _: begin(), range(6)) if r is not None]
        assert len(begun) == 1
        begun[0].close()
        assert runs.stored_config(path) == CONFIG


def test_a_clock_that_goes_backwards(finished: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """An hour at every look; resumed in the middle, too."""
    clock = itertools.count(2_000_000_000, -3600)
    monkeypatch.setattr(time, "time", lambda: float(next(clock)))
    path = tmp_path / "run"
    train(path)
    assert outcome(path) == outcome(finished)
    for file in runs.checkpoints(path)[1:]:
        file.unlink()
    arrays, meta, file, _ = runs.load_latest(path)
    trainer = Trainer(CONFIG)
    trainer.restore(arrays, meta, file)
    directory = runs.Run.resume(path, CONFIG, trainer.update)
    run(trainer, [directory], lambda: directory.save(trainer))
    directory.close()
    trainer.close()
    assert outcome(path) == outcome(finished)
    events = sorted((path / "tensorboard").rglob("events*"), key=lambda p: p.name)
    assert len(events) == 2 and events[0].stat().st_mtime_ns <= events[1].stat().st_mtime_ns


def elsewhere(path: Path, **environment: str) -> subprocess.CompletedProcess[str]:
    """The training of `finished` by the command line, in another process with another environment."""
    flags = [*TINY_FLAGS, "--critic", "plain", "--checkpoint-freq", "16"]
    return subprocess.run(
        [sys.executable, "-m", "mcclt", "train", PENDULUM, *flags, "--out", str(path)],
        env=os.environ | environment,
        capture_output=True,
        text=True,
        errors="replace",
        timeout=300,
    )


def test_no_locale_another_time_zone_and_an_odd_name(finished: Path, tmp_path: Path) -> None:
    path = tmp_path / ODD / "run"
    done = elsewhere(path, LC_ALL="POSIX", PYTHONUTF8="0", PYTHONCOERCECLOCALE="0", TZ="Pacific/Kiritimati")
    assert done.returncode == 0, done.stderr
    assert outcome(path) == outcome(finished)
    runs.Run.resume(path, CONFIG, 4).close()


@pytest.mark.slow
@pytest.mark.parametrize("name", ["de_DE.UTF-8", "tr_TR.UTF-8"])
def test_comma_decimals_and_turkish_letters(finished: Path, tmp_path: Path, name: str) -> None:
    """Even where the program around us has asked C for the user's locale, which writes 0,5 for a half."""
    language = name.partition(".")[0]
    made = subprocess.run(["localedef", "-i", language, "-f", "UTF-8", str(tmp_path / name)], capture_output=True)
    if not (tmp_path / name).is_dir():
        pytest.skip(f"no {name} here: {made.stderr.decode()}")
    environment = {"LC_ALL": name, "LOCPATH": str(tmp_path), "TZ": "America/St_Johns"}
    done = elsewhere(tmp_path / "run", **environment)
    assert done.returncode == 0, done.stderr
    assert outcome(tmp_path / "run") == outcome(finished)
    flags = [*TINY_FLAGS, "--critic", "plain", "--checkpoint-freq", "16", "--quiet"]
    code = (
        "import locale, sys; locale.setlocale(locale.LC_ALL, ''); assert locale.localeconv()['decimal_point'] == ',';"
        "from mcclt.cli import main; main(sys.argv[1:])"
    )
    done = subprocess.run(
        [sys.executable, "-c", code, "train", PENDULUM, *flags, "--out", str(tmp_path / "set")],
        env=os.environ | environment,
        capture_output=True,
        text=True,
        timeout=300,
    )
    assert done.returncode == 0, done.stderr
    assert outcome(tmp_path / "set") == outcome(finished)
