"""Runs that are interrupted, and go on."""

import json
import os
import shlex
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from commands import TINY, Cli
from mcclt.storage import checkpoint, runs
from mcclt.training.trainer import Trainer
from probes import PENDULUM, SMALL, flags
from probes import TINY as TINY_AGENT
from trees import timeless


def arrays_of(path: Path) -> dict[str, np.ndarray]:
    return checkpoint.load(runs.checkpoints(path)[-1])[0]


def same(a: Path, b: Path) -> None:
    x, y = arrays_of(a), arrays_of(b)
    assert x.keys() == y.keys()
    for name in x:
        np.testing.assert_array_equal(x[name], y[name], err_msg=name)


def logged(path: Path) -> list[dict[str, Any]]:
    return timeless(map(json.loads, (path / "metrics.jsonl").read_text().splitlines()))


def test_an_interrupted_run(mcclt: Cli, finished: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Ctrl-C in the middle of the third update; what it prints is typed; nothing is lost."""
    flags = [*TINY, "--seeds", "0,4", "--checkpoint-freq", "16", "--final-episodes", "3", "--eval-freq", "32"]
    advance = Trainer.advance

    def interrupted(trainer: Trainer):
        if trainer.update == 2:
            step, calls = trainer.env.step, []

            def interrupt(action: np.ndarray):
                calls.append(0)
                if len(calls) == 5:
                    raise KeyboardInterrupt
                return step(action)

            trainer.env.step = interrupt  # type: ignore[method-assign]
        return advance(trainer)

    where = Path("a directory with a rather long name and spaces", "so that lines would be wrapped", "run")
    with monkeypatch.context() as patch:
        patch.setattr(Trainer, "advance", interrupted)
        out, err = mcclt("train", PENDULUM, *flags, "--eval-episodes", "2", "--out", where, code=130)
    assert err == "" and "Interrupted at 32 steps; a checkpoint is saved" in out
    command = out.strip().splitlines()[-1].strip()
    assert shlex.split(command) == ["mcclt", "train", "--resume", str(where)], "can be copied and pasted"
    out, _ = mcclt(*shlex.split(command)[1:])
    assert "at 32 steps" in out and "new episodes" not in out
    same(where, finished)
    assert logged(where) == logged(finished)
    assert (where / "evaluation.json").read_text() == (finished / "evaluation.json").read_text()


@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")
def test_an_interrupt_is_never_lost(mcclt: Cli, monkeypatch: pytest.MonkeyPatch) -> None:
    """Python drops a KeyboardInterrupt that strikes in a destructor or in a callback of the garbage collector, and
    JAX has one: seen as Ctrl-C that did nothing."""

    class Unlucky:
        def __del__(self) -> None:
            os.kill(os.getpid(), signal.SIGINT)

    advance = Trainer.advance

    def interrupted(trainer: Trainer):
        if trainer.update == 2:
            Unlucky()
        return advance(trainer)

    handler = signal.getsignal(signal.SIGINT)
    monkeypatch.setattr(Trainer, "advance", interrupted)
    out, _ = mcclt("train", PENDULUM, *TINY, "--steps", "3200", "--out", "run", code=130)
    assert "mcclt train --resume run" in out
    assert signal.getsignal(signal.SIGINT) is handler, "as it was before"


def test_an_interrupt_while_evaluating_in_the_end(mcclt: Cli, monkeypatch: pytest.MonkeyPatch) -> None:
    def interrupt(*_: Any) -> None:
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(Trainer, "evaluate", interrupt)
        out, _ = mcclt("train", PENDULUM, *TINY, "--final-episodes", "1", "--out", "run", code=130)
    assert "mcclt train --resume run" in out
    mcclt("train", "--resume", "run", "--quiet")
    assert Path("run/evaluation.json").exists()


def test_an_interrupt_of_another_command(mcclt: Cli, finished: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def interrupt(*_: Any, **__: Any) -> None:
        raise KeyboardInterrupt

    import mcclt.training.model as module

    monkeypatch.setattr(module, "evaluate_policy", interrupt)
    mcclt("evaluate", finished, code=130)


def test_resuming_a_finished_run_with_more_steps(mcclt: Cli, copy: Path) -> None:
    out, _ = mcclt("train", "--resume", "copy", "--steps", "96")
    assert "at 64 steps" in out
    assert runs.stored_config(copy).steps == 96
    assert checkpoint.load(runs.checkpoints(copy)[-1])[1]["update"] == 6
    assert len((copy / "metrics.jsonl").read_text().splitlines()) == 12
    mcclt("evaluate", "copy", "--episodes", "1")


@pytest.mark.parametrize("algo, end", [("ppo", "--learning-rate-end"), ("trpo", "--target-kl-end")])
def test_a_run_whose_policy_has_decayed_to_0_takes_no_more_steps(mcclt: Cli, algo: str, end: str) -> None:
    small = flags(**{k: v for k, v in TINY_AGENT.items() if k != "policy_iterations" or algo == "ppo"}, **SMALL)
    plain = [*small, "--critic", "plain", "--algo", algo, end, "0", "--final-episodes", "1"]
    mcclt("train", PENDULUM, *plain, "--out", "run", "--quiet")
    assert f"The {end[2:-4].replace('-', '_')} of '{algo}-plain' has decayed to 0 after 64 steps" in mcclt.refused(
        "train", "--resume", "run", "--steps", "96"
    )
    out, _ = mcclt("train", "--resume", "run")
    assert "run is finished, at 64 steps. The " in out and "--decay-steps" in out and "To train on" not in out


def test_a_decay_that_is_not_over_goes_on(mcclt: Cli) -> None:
    mcclt("train", PENDULUM, *TINY, "--learning-rate-end", "0", "--decay-steps", "96", "--out", "run", "--quiet")
    mcclt("train", "--resume", "run", "--steps", "96", "--quiet")


def test_resuming_a_finished_run_changes_nothing(mcclt: Cli, copy: Path, finished: Path) -> None:
    mcclt("train", "--resume", "copy", "--quiet")
    same(copy, finished)
    assert logged(copy) == logged(finished)
    assert (copy / "evaluation.json").read_text() == (finished / "evaluation.json").read_text()


def test_a_damaged_final_evaluation_is_repeated(mcclt: Cli, copy: Path, finished: Path) -> None:
    (copy / "evaluation.json").write_text("")
    assert "copy/evaluation.json is damaged: repair it with  mcclt train --resume copy" in mcclt.refused("report", copy)
    mcclt("train", "--resume", "copy", "--quiet")
    assert (copy / "evaluation.json").read_text() == (finished / "evaluation.json").read_text()


@pytest.mark.parametrize(
    "flags, message",
    [
        (["--gamma", "0.5"], "copy was started with gamma = 0.99: resuming"),
        (["--seeds", "0..3"], "copy was started with seeds = 0,4: resuming"),
        (["--n-seeds", "2"], "with seeds = 0,4: resuming"),
        (["--critic", "normal"], "with critic = plain: resuming"),
        (["--n-envs", "4"], "with n_envs = "),
        (["Hopper-v5"], f"with task = {PENDULUM}"),
        (["--steps", "32"], "can only be raised"),
        (["--preset", "paper"], "leave out"),
        (["--variants", "mcclt"], "leave out"),
        (["--out", "other"], "leave out"),
        (["--config", "x.toml"], "leave out"),
    ],
)
def test_resuming_with_another_configuration(mcclt: Cli, copy: Path, flags: list[str], message: str) -> None:
    assert message in mcclt.refused("train", "--resume", "copy", *flags)


def test_the_same_flags_again_are_fine(mcclt: Cli, copy: Path) -> None:
    mcclt("train", PENDULUM, "--resume", "copy", "--gamma", "0.99", "--seeds", "0,4", "--quiet")


def test_resuming_past_a_truncated_checkpoint(mcclt: Cli, copy: Path, finished: Path) -> None:
    newest = runs.checkpoints(copy)[-1]
    newest.write_bytes(newest.read_bytes()[:1000])
    out, _ = mcclt("train", "--resume", "copy")
    assert "Skipped" in out and newest.name in out and "at 48 steps" in out
    same(copy, finished)


def test_resuming_where_nothing_is_left(mcclt: Cli, copy: Path) -> None:
    for file in runs.checkpoints(copy):
        file.write_bytes(file.read_bytes()[:-1])
    assert "can be read" in mcclt.refused("train", "--resume", "copy")
    assert "can be read" in mcclt.refused("evaluate", "copy")


@pytest.mark.parametrize("text", ["", "[1]", "null", "{}"])
def test_resuming_with_a_spoilt_configuration(mcclt: Cli, copy: Path, text: str) -> None:
    (copy / "config.json").write_text(text)
    assert "config.json" in mcclt.refused("train", "--resume", "copy")


def test_other_engines_say_that_episodes_start_anew(mcclt: Cli) -> None:
    mcclt("train", "probes:Noisy-v0", *TINY, "--out", "run", "--quiet")
    out, _ = mcclt("train", "--resume", "run", "--steps", "80")
    assert "new episodes" in out and "gymnasium" in out


@pytest.mark.parametrize(
    ("number", "said", "code"),
    [
        (signal.SIGTERM, "Terminated", 143),  # as of a scheduler before it kills
        pytest.param(signal.SIGINT, "Interrupted", 130, marks=pytest.mark.slow),
    ],
)
def test_resuming_in_another_process_is_exact(mcclt: Cli, number: int, said: str, code: int) -> None:
    """Ended by a real signal in one process, resumed in another: bit for bit the uninterrupted run."""
    args = ["train", PENDULUM, *TINY, "--steps", "960", "--seeds", "0,5", "--checkpoint-freq", "320", "--out"]
    mcclt(*args, "whole")
    command = [sys.executable, "-m", "mcclt", *args, "cut"]
    cut = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
    metrics = Path("cut/metrics.jsonl")
    while cut.poll() is None and not (metrics.exists() and metrics.stat().st_size > 0):
        time.sleep(0.01)
    cut.send_signal(number)
    out, _ = cut.communicate()
    assert cut.returncode == code and "Traceback" not in out, out
    assert said in out and "a checkpoint is saved" in out and "mcclt train --resume cut" in out
    last = json.loads(metrics.read_text().splitlines()[-1])
    assert runs.checkpoints(Path("cut"))[-1].stem == f"update-{last['update']:06d}"
    mcclt("train", "--resume", "cut")
    same(Path("whole"), Path("cut"))


def test_a_changed_config_file_is_not_resumed(mcclt: Cli, copy: Path) -> None:
    stored = json.loads((copy / "config.json").read_text())
    next(iter(stored["groups"].values()))["gamma"] = 0.5
    (copy / "config.json").write_text(json.dumps(stored))
    assert "other settings (groups)" in mcclt.refused("train", "--resume", "copy", "--steps", "10k")
