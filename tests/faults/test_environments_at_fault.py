"""Environments that raise, crash, hang or return nonsense, at random steps, in one of many.

Each is named (environment, seed, step, what); with `on_nan` the agents beside it end bit for bit as without it.
"""

import functools
import warnings
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from mcclt.config import RunConfig
from mcclt.envs.processes import LIVES
from mcclt.errors import ConfigError, EnvironmentFault
from mcclt.storage import checkpoint, runs
from mcclt.training.loop import run
from mcclt.training.trainer import TRAINING, Trainer
from misbehaviour import DEADLY, IN_RESET, IN_STEP, AlwaysHangs, Walk, factory
from probes import run_config

SEEDS = (0, 1, 2)
ENVS = 2
STEPS = 16
"""Of an agent per update, in all its environments."""
UPDATES = 4
ASYNC: dict[str, Any] = {"engine": "gymnasium-async", "step_timeout": 2.0}
ALL_HANG = ASYNC | {"step_timeout": 0.5}
"""Where no environment is healthy, and none must have the time that a busy machine may need."""


def config(**settings: Any) -> RunConfig:
    return run_config("Walk", **{"seeds": SEEDS, "n_envs": ENVS, "steps_per_update": STEPS} | settings)


def learnt(trainer: Trainer, seed: int) -> list[bytes]:
    """Everything one agent knows."""
    arrays, _ = trainer.to_checkpoint()
    index = SEEDS.index(seed)
    return [arrays[name][index].tobytes() for name in sorted(arrays) if name.startswith("agents/")]


def train(env: object, **settings: Any) -> Trainer:
    trainer = Trainer(config(**settings), env)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", RuntimeWarning)  # numbers beyond float32
            run(trainer, [])
    finally:
        trainer.close()
    return trainer


@pytest.fixture(scope="module")
def undisturbed() -> dict[int, list[bytes]]:
    trainer = train(Walk)
    return {seed: learnt(trainer, seed) for seed in SEEDS}


def places(kinds: dict[str, Any], seed: int, quick: tuple[str, ...] = ()) -> list[Any]:
    """For each way to misbehave a random agent, environment and step; slow but for those that are `quick`, if any."""
    rng = np.random.default_rng(seed)
    last = UPDATES * STEPS // ENVS
    found = [(k, int(rng.integers(2, last - 8)), SEEDS[rng.integers(3)], int(rng.integers(ENVS))) for k in kinds]
    return [pytest.param(*p, id=p[0], marks=pytest.mark.slow if quick and p[0] not in quick else ()) for p in found]


@pytest.mark.parametrize(("kind", "at", "seed", "env"), places(IN_STEP | IN_RESET, 20260101))
def test_named(kind: str, at: int, seed: int, env: int) -> None:
    with pytest.raises(EnvironmentFault) as caught:
        train(factory(kind, at, seed, env))
    text, *where = str(caught.value).splitlines()
    assert f"Environment {env} of seed {seed} (group 'plain')" in text
    assert all("mcclt" not in line for line in where if "File" in line and "/src/" in line), "their own code alone"
    step = int(text.partition(" at step ")[2].partition(".")[0].replace(",", ""))
    if kind in IN_STEP:
        assert step == (at - 1) * ENVS
    else:
        assert at * ENVS - ENVS <= step <= (at + 6) * ENVS


QUICK = "raises", "NaN reward", "short observation", "four values", "reset raises"


@pytest.mark.parametrize(("kind", "at", "seed", "env"), places(IN_STEP | IN_RESET, 20260101, QUICK))
def test_survived(kind: str, at: int, seed: int, env: int, undisturbed: dict[int, list[bytes]]) -> None:
    for on_nan in ("restart", "stop"):
        trainer = train(factory(kind, at, seed, env), on_nan=on_nan)
        index = SEEDS.index(seed)
        assert [s == TRAINING for s in trainer.status] == [on_nan == "restart" or i != index for i in range(3)]
        for other in SEEDS:
            assert (learnt(trainer, other) == undisturbed[other]) == (other != seed)


@pytest.mark.slow
@pytest.mark.parametrize("block", range(20))
def test_many_random_places(block: int, undisturbed: dict[int, list[bytes]]) -> None:
    """Twenty times every way to misbehave, each time elsewhere: 800 faults."""
    for place in places(IN_STEP | IN_RESET, block):
        kind, at, seed, env = place.values
        test_named(kind, at, seed, env)
        test_survived(kind, at, seed, env, undisturbed)


IN_PROCESSES = {"raises": 0, "NaN observation": 0} | DEADLY


@pytest.mark.parametrize(("kind", "at", "seed", "env"), places(IN_PROCESSES, 7, ("raises", "crashes", "hangs")))
def test_processes(kind: str, at: int, seed: int, env: int, undisturbed: dict[int, list[bytes]]) -> None:
    """In processes of their own, environments may also crash and hang."""
    trainer = train(factory(kind, at, seed, env), on_nan="restart", **ASYNC)
    assert trainer.status == [TRAINING] * 3
    assert {s: learnt(trainer, s) == undisturbed[s] for s in SEEDS} == {s: s != seed for s in SEEDS}


@pytest.mark.parametrize(
    ("kind", "said"),
    [
        ("hangs", "did not answer within 2 s in step, and its process was ended"),
        ("is killed", "ended its process with signal 9 in step"),
        ("exits", "ended its process with exit code 3 in step"),
    ],
)
def test_a_crash_or_hang_is_named(kind: str, said: str) -> None:
    with pytest.raises(EnvironmentFault, match=rf"^Environment 1 of seed 2 \(group 'plain'\) {said} at step 10\."):
        train(factory(kind, 6, 2, 1), **ASYNC)


def test_training_goes_on_after_a_hang(tmp_path: Path) -> None:
    """With on_nan = raise too: what was learnt before it is saved, and `learn` may be called again."""
    trainer = Trainer(config(**ASYNC), factory("hangs", STEPS // ENVS + 3, 1, 0))
    saved = tmp_path / f"model{checkpoint.SUFFIX}"
    try:
        with pytest.raises(EnvironmentFault, match="did not answer"):
            run(trainer, [], lambda: checkpoint.save(saved, *trainer.to_checkpoint()))
        assert checkpoint.load(saved)[1]["update"] == trainer.update == 1
        run(trainer, [])
        assert trainer.update == UPDATES
    finally:
        trainer.close()


def test_one_that_always_hangs_is_given_up(tmp_path: Path) -> None:
    """Otherwise everybody would wait for it in every step, some 28 times."""
    trainer = train(functools.partial(AlwaysHangs, tmp_path / "log"), on_nan="stop", seeds=(0,), **ALL_HANG)
    assert len((tmp_path / "log").read_text().splitlines()) <= ENVS * LIVES
    assert trainer.status[0].startswith("stopped: Environment 0 of seed 0 (group 'plain') did not answer")


def test_a_hang_in_an_evaluation_is_found(tmp_path: Path) -> None:
    env = factory("hangs", 3, 1, 0)
    trainer = Trainer(config(**ASYNC), env)
    try:
        found = trainer.evaluate(2, 0)[0]  # other seeds than in training: nobody hangs
        assert np.isfinite(found).all()
    finally:
        trainer.close()
    trainer = Trainer(config(on_nan="stop", **ALL_HANG), functools.partial(AlwaysHangs, tmp_path / "log"))
    try:
        returns = trainer.evaluate(2, 0)[0]
        assert np.isnan(returns).all() and any("did not answer within 0.5 s" in m for m in trainer.messages)
    finally:
        trainer.close()


@pytest.mark.parametrize(("task", "engine"), [("Hopper-v5", "auto"), ("Noisy-v0", "auto"), ("Noisy-v0", "gymnasium")])
def test_a_timeout_that_cannot_be_kept_is_refused(task: str, engine: str) -> None:
    with pytest.raises(ConfigError, match="step_timeout = 5 needs an engine whose steps can be interrupted"):
        Trainer(run_config(task, engine=engine, step_timeout=5.0))


@pytest.mark.parametrize("seconds", [0, -1, float("nan"), float("inf")])
def test_timeouts_that_make_no_sense(seconds: float) -> None:
    with pytest.raises(ConfigError, match="step_timeout"):
        config(step_timeout=seconds)


def test_no_process_is_left(tmp_path: Any) -> None:
    import multiprocessing

    trainer = Trainer(config(**ASYNC), factory("hangs for signals too", 2, 0, 0))
    with pytest.raises(EnvironmentFault):
        run(trainer, [])
    trainer.close()
    assert not [p for p in multiprocessing.active_children() if p.is_alive()]


def test_through_the_run_directory(tmp_path: Any) -> None:
    """What a person was told is kept with the run."""
    trainer = Trainer(config(on_nan="restart", **ASYNC), factory("is killed", 5, 1, 1))
    directory = runs.Run.create(tmp_path / "run", trainer.config)
    try:
        run(trainer, [directory], lambda: directory.save(trainer))
    finally:
        directory.close()
        trainer.close()
    said = (tmp_path / "run" / "messages.txt").read_text()
    assert "Environment 1 of seed 1 (group 'plain') ended its process with signal 9" in said
