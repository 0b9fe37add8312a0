"""`kill -9` of real processes at random moments: what goes on afterwards ends as if it had not happened, to the bit."""

import json
import os
import random
import shutil
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from mcclt.storage import checkpoint, runs
from trees import timeless

TASK = "InvertedDoublePendulum-v5"
QUICK = "policy_iterations=2+critic_iterations=2"
UPDATES = 40
KILLS = int(os.environ.get("MCCLT_KILLS", 25))


def command(*arguments: object) -> list[str]:
    return [sys.executable, "-m", "mcclt", *map(str, arguments)]


def environment(tmp_path: Path) -> dict[str, str]:
    """One compilation cache for all processes of a test: they start sooner."""
    return os.environ | {"XDG_CACHE_HOME": str(tmp_path / "cache")}


def finish(arguments: list[str], env: dict[str, str]) -> None:
    done = subprocess.run(arguments, env=env, capture_output=True, text=True, timeout=600)
    assert done.returncode == 0, done.stderr


def kill_when(arguments: list[str], env: dict[str, str], ready: Callable[[], bool]) -> bool:
    """Starts a process, and kills it as soon as `ready`; False if it ended before."""
    process = subprocess.Popen(arguments, env=env, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    try:
        while process.poll() is None:
            if ready():
                process.kill()
                break
            time.sleep(0.003)
    finally:
        process.kill()
        process.wait()
    return process.returncode != 0


def moment(rng: random.Random, folder: Path) -> Callable[[], bool]:
    """Either a random time after the folder's metrics have grown, or in the middle of the next checkpoint."""
    delay, state = rng.uniform(0, 0.4), {"size": -1, "at": 0.0}

    def grown_and_late() -> bool:
        files = list(folder.glob("**/metrics.jsonl"))
        size = sum(file.stat().st_size for file in files)
        if state["size"] < 0:
            state["size"] = size
        elif size > state["size"] and not state["at"]:
            state["at"] = time.monotonic() + delay
        return bool(state["at"]) and time.monotonic() > state["at"]

    def writing() -> bool:
        return any(p.suffix != checkpoint.SUFFIX for p in folder.glob("**/checkpoints/*"))

    return writing if rng.random() < 0.5 else grown_and_late


def learnt(folder: Path) -> tuple[dict[str, bytes], list[dict[str, Any]], Any]:
    """All that a run ends with, but for times: arrays, metrics, evaluation."""
    arrays, meta = checkpoint.load(runs.checkpoints(folder)[-1])
    kept = timeless(map(json.loads, (folder / "metrics.jsonl").read_text().splitlines()))
    assert meta["update"] == UPDATES
    return {k: v.tobytes() for k, v in arrays.items()}, kept, json.loads((folder / "evaluation.json").read_text())


@pytest.mark.slow
def test_a_training_killed_again_and_again(tmp_path: Path) -> None:
    env, rng = environment(tmp_path), random.Random(0)
    settings = {
        "variants": "plain,mcclt",
        "seeds": "0,1",
        "n-envs": 2,
        "steps-per-update": 64,
        "steps": 64 * UPDATES,
        "critic-hidden": "8,8",
        "critic-iterations": 2,
        "policy-iterations": 2,
        "checkpoint-freq": 64,
        "eval-freq": 640,
        "eval-episodes": 1,
        "final-episodes": 2,
    }
    flags = [f"--{name}={value}" for name, value in settings.items()]
    finish(command("train", TASK, *flags, "--quiet", "--out", tmp_path / "straight"), env)
    folder, done = tmp_path / "killed", 0

    def next_command() -> list[str]:
        """Goes on, or begins (again) where nothing was kept yet."""
        if runs.checkpoints(folder):
            return command("train", "--resume", folder, "--quiet")
        shutil.rmtree(folder, ignore_errors=True)
        return command("train", TASK, *flags, "--quiet", "--out", folder)

    while done < KILLS:
        if kill_when(next_command(), env, moment(rng, folder)):
            done += 1
        else:  # it was quicker: once more from the start
            assert learnt(folder) == learnt(tmp_path / "straight")
            shutil.rmtree(folder)
    finish(next_command(), env)
    assert learnt(folder) == learnt(tmp_path / "straight")


@pytest.mark.slow
def test_a_comparison_killed_again_and_again(tmp_path: Path) -> None:
    env, rng = environment(tmp_path), random.Random(0)
    variants = f"plain@{QUICK},mcclt@{QUICK}"
    flags = ("--variants", variants, "--n-seeds", 2, "--steps", "240k", "--episodes", 2)
    finish(command("compare", TASK, *flags, "--store", tmp_path / "straight"), env)
    store = tmp_path / "killed"
    go_on = command("compare", TASK, *flags, "--store", store)
    done = 0
    while done < KILLS:
        if kill_when(go_on, env, moment(rng, store / "work")):
            done += 1
            continue
        assert cells(store) == cells(tmp_path / "straight")
        shutil.rmtree(store)
    finish(go_on, env)
    assert cells(store) == cells(tmp_path / "straight")


def cells(store: Path) -> dict[str, Any]:
    """What a store's cells say about learning, without costs and provenance."""
    found = {}
    for path in sorted(store.glob("cells/**/seed-*.json")):
        cell = json.loads(path.read_text())
        dated = ("cost", "provenance", "checksum")
        found[str(path.relative_to(store))] = {k: v for k, v in cell.items() if k not in dated}
    assert len(found) == 4 and all(np.isfinite(cell["returns"]).all() for cell in found.values())
    return found
