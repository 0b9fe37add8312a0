import dataclasses
import json
import struct
from pathlib import Path
from typing import Any

import pytest

from mcclt.errors import CheckpointError, ConfigError, InaccessibleError, MccltError
from mcclt.storage import checkpoint, runs, trackers
from mcclt.storage.configuration import from_dict
from mcclt.storage.trackers import Row
from mcclt.training.loop import run
from mcclt.training.trainer import Trainer
from probes import TINY, agent, run_config
from trees import timeless

CONFIG = run_config(
    groups={"a": agent(critic="plain"), "b": agent(critic="plain", gamma=0.9)},
    seeds=(0, 5),
    checkpoint_freq=16,
    steps=96,
    eval_freq=48,
    eval_episodes=1,
)


class Stop:
    """Ctrl-C after an update is logged (or, as the first observer, before)."""

    def __init__(self, at: int) -> None:
        self.at = at

    def on_update(self, trainer: Trainer, rows: list[Row]) -> None:
        if trainer.update == self.at:
            raise KeyboardInterrupt

    def on_message(self, text: str) -> None: ...


def train(
    directory: runs.Run, trainer: Trainer, before: list[Any] | None = None, after: list[Any] | None = None
) -> None:
    try:
        run(trainer, [*(before or []), directory, *(after or [])], lambda: directory.save(trainer))
    finally:
        directory.close()
        trainer.close()


def resume(path: Path) -> tuple[runs.Run, Trainer, list[str]]:
    arrays, meta, file, passed = runs.load_latest(path)
    trainer = Trainer(runs.stored_config(path))
    trainer.restore(arrays, meta, file)
    return runs.Run.resume(path, trainer.config, trainer.update), trainer, passed


def metrics(path: Path) -> list[dict[str, Any]]:
    text = (path / "metrics.jsonl").read_text()
    assert text.endswith("\n")
    return [
        json.loads(line, parse_constant=lambda name: pytest.fail(f"{name} is no JSON")) for line in text.splitlines()
    ]


@pytest.fixture(scope="module")
def finished(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """An uninterrupted run of six updates."""
    path = tmp_path_factory.mktemp("runs") / "whole"
    train(runs.Run.create(path, CONFIG), Trainer(CONFIG))
    return path


@pytest.fixture
def copy(finished: Path, tmp_path: Path) -> Path:
    import shutil

    return Path(shutil.copytree(finished, tmp_path / "copy"))


def test_layout(finished: Path) -> None:
    assert sorted(p.name for p in finished.iterdir()) == [
        "checkpoints",
        "config.json",
        "metrics.jsonl",
        "tensorboard",
        "versions.json",
    ]
    assert from_dict(json.loads((finished / "config.json").read_text())) == CONFIG
    assert runs.stored_config(finished) == CONFIG
    versions = json.loads((finished / "versions.json").read_text())
    assert {"mcclt", "jax", "mujoco", "gymnasium", "numpy"} <= set(versions["packages"])
    assert versions["python"] and versions["devices"] and versions["command"] and "git" in versions
    assert not list(finished.rglob(".*")), "no temporary files"


def test_one_line_per_update_and_agent(finished: Path) -> None:
    rows = metrics(finished)
    agents = [("a", 0), ("a", 5), ("b", 0), ("b", 5)]
    assert [(r["update"], r["step"], r["group"], r["seed"]) for r in rows] == [
        (u, 16 * u, *a) for u in range(1, 7) for a in agents
    ]
    assert ["eval/mean_reward" in r for r in rows] == [u in (3, 6) for u in range(1, 7) for _ in agents]


def test_only_the_last_checkpoints_are_kept(finished: Path) -> None:
    assert [p.name for p in runs.checkpoints(finished)] == [f"update-{u:06d}.safetensors" for u in (4, 5, 6)]
    assert runs.KEEP == 3


def test_not_finite_numbers_are_left_out() -> None:
    row = {"group": "a", "x/nan": float("nan"), "x/inf": float("inf"), "x/one": 1.0, "step": 3}
    assert trackers.finite(row) == {"group": "a", "x/one": 1.0, "step": 3}


@pytest.mark.parametrize("order", ["before", "after"])
def test_no_line_is_lost_or_doubled_by_an_interrupt(finished: Path, tmp_path: Path, order: str) -> None:
    path = tmp_path / "run"
    with pytest.raises(KeyboardInterrupt):
        train(runs.Run.create(path, CONFIG), Trainer(CONFIG), **{order: [Stop(3)]})
    directory, trainer, passed = resume(path)
    train(directory, trainer)
    assert passed == []
    assert timeless(metrics(path)) == timeless(metrics(finished))


def test_lines_after_the_checkpoint_are_written_again(finished: Path, copy: Path) -> None:
    """As after a crash: the last checkpoint is older than the last lines, and the last line is cut off."""
    for file in runs.checkpoints(copy)[1:]:
        file.unlink()
    with open(copy / "metrics.jsonl", "a") as file:
        file.write('{"group": "a", "se')
    directory, trainer, _ = resume(copy)
    assert trainer.update == 4
    train(directory, trainer)
    assert timeless(metrics(copy)) == timeless(metrics(finished))
    a, b = (checkpoint.load(runs.checkpoints(p)[-1])[0] for p in (copy, finished))
    assert all((a[k].tobytes() == b[k].tobytes()) for k in b)


@pytest.mark.parametrize("damage", ["truncated", "flipped", "empty", "newer"])
def test_a_damaged_checkpoint_is_passed_over_and_named(finished: Path, copy: Path, damage: str) -> None:
    newest = runs.checkpoints(copy)[-1]
    data = bytearray(newest.read_bytes())
    match damage:
        case "truncated":
            newest.write_bytes(data[: len(data) // 2])
        case "flipped":
            data[-5] ^= 1
            newest.write_bytes(data)
        case "empty":
            newest.write_bytes(b"")
        case "newer":
            newest.write_bytes(data.replace(b'"version":"1"', b'"version":"2"'))
    directory, trainer, passed = resume(copy)
    assert trainer.update == 5
    assert len(passed) == 1 and newest.name in passed[0]
    train(directory, trainer)
    assert timeless(metrics(copy)) == timeless(metrics(finished))
    assert checkpoint.load(newest)[1]["update"] == 6, "written again"


def test_no_readable_checkpoint(copy: Path) -> None:
    for file in runs.checkpoints(copy):
        file.write_bytes(b"x")
    with pytest.raises(CheckpointError, match=r"No checkpoint of .* can be read"):
        runs.load_latest(copy)
    for file in runs.checkpoints(copy):
        file.unlink()
    spaced = copy.rename(copy.with_name("with a space"))
    with pytest.raises(
        CheckpointError, match=r"no checkpoint yet: start it again with  mcclt train --config '.*json'$"
    ):
        runs.load_latest(spaced)
    training = runs.Run.resume(spaced, CONFIG, 0)
    with pytest.raises(InaccessibleError, match="no checkpoint yet: another process is training it"):
        runs.load_latest(spaced)
    training.close()


def test_not_a_run(tmp_path: Path) -> None:
    for path in (tmp_path, tmp_path / "none"):
        with pytest.raises(CheckpointError, match="not a run directory"):
            runs.load_latest(path)
        with pytest.raises(CheckpointError, match="not a run directory"):
            runs.stored_config(path)


@pytest.mark.parametrize(
    "text", ["", "{", "[]", "[1]", "5", "null", '{"task": "x"}', '{"task": "x", "groups": {"a": {"b": 1}}}', "\udcff"]
)
def test_a_spoilt_configuration(copy: Path, text: str) -> None:
    (copy / "config.json").write_bytes(text.encode(errors="surrogateescape"))
    with pytest.raises(CheckpointError, match=r"config.json"):
        runs.stored_config(copy)


def test_spoilt_metrics_do_not_hinder_resuming(copy: Path) -> None:
    with open(copy / "metrics.jsonl", "ab") as file:
        file.write(b"\xff\0\0")
    directory, trainer, _ = resume(copy)
    directory.close(), trainer.close()
    assert len(metrics(copy)) == 24


# --- directories that cannot be used -----------------------------------------------------------------------


def test_refuses_a_directory_in_use(finished: Path, tmp_path: Path) -> None:
    before = {p: p.stat().st_mtime_ns for p in finished.rglob("*")}
    with pytest.raises(ConfigError, match=r"already in use: .*--resume"):
        runs.Run.create(finished, CONFIG)
    assert {p: p.stat().st_mtime_ns for p in finished.rglob("*")} == before
    file = tmp_path / "file"
    file.write_text("mine")
    with pytest.raises(MccltError):
        runs.Run.create(file, CONFIG)
    assert file.read_text() == "mine"


def test_an_empty_directory_is_fine(tmp_path: Path) -> None:
    runs.Run.create(tmp_path, CONFIG).close()
    assert (tmp_path / "config.json").exists()


def test_unwritable(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    for path in (tmp_path / "file" / "run", Path("/proc/mcclt/run"), tmp_path / ("x" * 300)):
        with pytest.raises(MccltError, match="Cannot write"):
            runs.Run.create(path, CONFIG)
    assert [p.name for p in tmp_path.iterdir()] == ["file"]


def test_a_missing_extra_leaves_nothing_behind(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    import sys

    monkeypatch.setitem(sys.modules, "wandb", None)
    with pytest.raises(MccltError, match="wandb>="):
        runs.Run.create(tmp_path / "run", CONFIG, wandb=True)
    assert not (tmp_path / "run").exists()


def test_default_path() -> None:
    many = {f"g{i}": agent(critic="plain") for i in range(5)}
    assert runs.default_path(CONFIG).parts[0] == "runs"
    assert runs.default_path(CONFIG).name.startswith("InvertedDoublePendulum-v5__a+b__2")
    assert "5-groups" in runs.default_path(run_config(groups=many)).name
    assert len(runs.default_path(run_config("pkg/mod:Env-v0")).parts) == 2


@pytest.mark.parametrize("name", ["a/b", "..", "../x", ""])
def test_group_names_stay_in_the_directory(name: str) -> None:
    """They name files: such names are refused, or harmless."""
    try:
        config = run_config(groups={name: agent(critic="plain")})
    except ConfigError:
        return
    assert len(runs.default_path(config).parts) == 2
    curves = trackers._by_curve([{"group": name, "seed": 0, "step": 1}], False)
    assert all(".." not in Path(c).parts and len(Path(c).parts) == 2 for c in curves)


# --- trackers ----------------------------------------------------------------------------------------------


def events(path: Path) -> list[Any]:
    """The events of all files of one curve, in order of their files."""
    from tensorboardX.proto.event_pb2 import Event

    found = []
    for file in sorted(path.glob("events.out.tfevents.*")):
        data, at = file.read_bytes(), 0
        while at < len(data):
            (size,) = struct.unpack("<Q", data[at : at + 8])
            found.append(Event.FromString(data[at + 12 : at + 12 + size]))
            at += 12 + size + 4
    return found


def scalars(path: Path) -> dict[str, list[tuple[int, float]]]:
    curves: dict[str, list[tuple[int, float]]] = {}
    for event in events(path):
        for value in event.summary.value:
            curves.setdefault(value.tag, []).append((event.step, value.simple_value))
    return curves


def test_tensorboard_has_the_same_numbers(finished: Path) -> None:
    rows = metrics(finished)
    for group, seed in (("a", 0), ("b", 5)):
        mine = [r for r in rows if (r["group"], r["seed"]) == (group, seed)]
        curves = scalars(finished / "tensorboard" / group / f"seed-{seed}")
        for name in ("train/value_loss", "rollout/ep_rew_mean", "eval/mean_reward", "time/fps"):
            expected = [(r["step"], r[name]) for r in mine if name in r]
            assert [s for s, _ in curves[name]] == [s for s, _ in expected]
            assert [v for _, v in curves[name]] == pytest.approx([v for _, v in expected])
        assert not {"group", "seed", "step", "update", "time"} & set(curves)


def test_tensorboard_after_resuming(copy: Path) -> None:
    """What was logged up to the checkpoint stays, what came after it is purged."""
    for file in runs.checkpoints(copy)[1:]:
        file.unlink()
    directory, trainer, _ = resume(copy)  # at step 64
    train(directory, trainer)
    path = copy / "tensorboard" / "a" / "seed-0"
    starts = [e.step for e in events(path) if e.HasField("session_log")]
    assert starts == [65], "TensorBoard drops events at or after this step"


def test_many_agents_are_logged_as_means() -> None:
    rows: list[Row] = [
        {"group": g, "seed": s, "update": 1, "step": 16, "x/y": float(s), "x/nan": float("nan")}
        for g in ("a", "b")
        for s in range(3)
    ]
    curves = trackers._by_curve(rows, True)
    assert set(curves) == {"a", "b"}
    assert curves["a"]["x/y"] == 1.0 and curves["a"]["step"] == 16 and "x/nan" not in curves["a"]
    assert set(trackers._by_curve(rows, False)) == {f"{g}/seed-{s}" for g in ("a", "b") for s in range(3)}


@pytest.mark.parametrize("limit", [64, 0], ids=["agents", "means"])
def test_rows_of_several_updates_are_as_many_points(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, limit: int
) -> None:
    """As they come where rows waited for an evaluation; only those of the first update were evaluated."""
    monkeypatch.setattr(trackers, "MOST_CURVES", limit)
    directory = runs.Run.create(tmp_path / "run", CONFIG)
    rows: list[Row] = [
        {"group": "a", "seed": 0, "update": u, "step": 16 * u, "x/y": float(u)} | ({"eval/z": 9.0} if u == 2 else {})
        for u in (2, 3)
    ]
    directory.on_update(None, rows)  # type: ignore[arg-type]
    directory.close()
    curves = scalars(tmp_path / "run" / "tensorboard" / ("a/seed-0" if limit else "a"))
    assert curves == {"x/y": [(32, 2.0), (48, 3.0)], "eval/z": [(32, 9.0)]}


def test_messages_are_kept(tmp_path: Path) -> None:
    directory = runs.Run.create(tmp_path, CONFIG)
    directory.on_message("one")
    directory.on_message("two")
    directory.close()
    assert (tmp_path / "messages.txt").read_text() == "one\ntwo\n"


def test_raised_steps_are_stored(copy: Path) -> None:
    config = dataclasses.replace(CONFIG, steps=128)
    runs.Run.resume(copy, config, 6).close()
    assert runs.stored_config(copy).steps == 128
    assert TINY["critic_hidden"] == runs.stored_config(copy).groups["a"].critic_hidden
