"""Weights & Biases without a network: what it would be sent is read back from the files that it keeps."""

import json
import struct
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from mcclt.errors import ConfigError
from mcclt.storage import runs, trackers
from probes import agent, run_config

wandb = pytest.importorskip("wandb")

CONFIG = run_config(groups={"a": agent(critic="plain"), "b": agent(critic="plain", gamma=0.9)}, seeds=(0, 5))
BLOCK = 32768


@pytest.fixture(autouse=True)
def offline(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.setenv("WANDB_MODE", "offline")
    monkeypatch.setenv("HOME", str(tmp_path))  # whoever runs this may be logged in
    yield
    wandb.teardown()  # it would remember the mode


def rows(step: int) -> list[dict[str, Any]]:
    return [
        {"group": g, "seed": s, "update": step // 8, "step": step, "value/mean": step + s, "train/x": float("nan")}
        for g in CONFIG.groups
        for s in CONFIG.seeds
    ]


def log(directory: runs.Run, *steps: int) -> None:
    for step in steps:
        directory.on_update(None, rows(step))
    directory.close()
    wandb.teardown()  # as at the end of a process: its own, which writes the files, has then ended


def sent(path: Path) -> dict[str, list[Any]]:
    """What each W&B run says of itself, and its history, by its id."""
    from wandb.proto.wandb_internal_pb2 import Record

    found: dict[str, list[Any]] = {}
    for file in sorted(path.glob("wandb/offline-run-*/run-*.wandb")):  # the time is in the name
        data, at, whole = file.read_bytes(), 7, b""
        while at + 7 <= len(data):  # LevelDB's log: pieces of records, none of them across the end of a block
            _, size, kind = struct.unpack_from("<IHB", data, at)
            whole += data[at + 7 : at + 7 + size]
            at += 7 + size
            at += BLOCK - at % BLOCK if BLOCK - at % BLOCK < 7 else 0
            if kind in (1, 4):  # the whole of a record, or its last piece
                record, whole = Record.FromString(whole), b""
                if record.HasField("run"):
                    found.setdefault(record.run.run_id, []).append(record.run)
                if record.HasField("history"):
                    items = {(i.key or i.nested_key[0]): json.loads(i.value_json) for i in record.history.item}
                    found[file.stem.removeprefix("run-")].append(items)
    return found


def test_one_run_per_seed_grouped_and_continued_when_resumed(tmp_path: Path) -> None:
    path = tmp_path / "pendulum"
    log(runs.Run.create(path, CONFIG, wandb=True, tensorboard=False), 8, 16)
    found = sent(path)
    made = [history[0] for history in found.values()]
    names = sorted((run.display_name, run.job_type, run.run_group, run.project) for run in made)
    assert names == [(f"{g}/seed-{s}", g, "pendulum", "mcclt") for g in "ab" for s in (0, 5)]
    for run, *history in found.values():
        config = {item.key: json.loads(item.value_json) for item in run.config.update}
        assert config["gamma"] == CONFIG.groups[run.job_type].gamma and "groups" not in config
        assert run.display_name.endswith(f"seed-{config['seed']}")
        numbers = [{k: v for k, v in one.items() if not k.startswith("_")} for one in history]
        assert numbers == [{"value/mean": step + config["seed"], "global_step": step} for step in (8, 16)]
    log(runs.Run.resume(path, CONFIG, 2, wandb=True, tensorboard=False), 24)
    again = sent(path)
    assert set(again) == set(found)
    assert all(history[-1]["global_step"] == 24 for history in again.values())


def test_large_populations_send_means(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(trackers, "MOST_CURVES", 3)
    path = tmp_path / "run"
    log(runs.Run.create(path, CONFIG, wandb=True, tensorboard=False), 8)
    found = {history[0].display_name: history[1]["value/mean"] for history in sent(path).values()}
    assert found == {"a": 10.5, "b": 10.5}


def test_without_an_account_nothing_is_left_behind(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("WANDB_MODE", "online")
    monkeypatch.delenv("WANDB_API_KEY", raising=False)
    with pytest.raises(ConfigError, match=r"cannot be used: No API key configured.* WANDB_MODE=offline in front of"):
        runs.Run.create(tmp_path / "run", CONFIG, wandb=True)
    assert not (tmp_path / "run").exists()
