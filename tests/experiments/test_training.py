"""Training units: what a result holds, what is continued, what a probe sees, how curves are thinned."""

import contextlib
import dataclasses
import errno
import itertools
import math
import shutil
from pathlib import Path
from typing import Any

import filelock
import gymnasium as gym
import jax
import numpy as np
import pytest
from gymnasium import spaces
from hypothesis import given
from hypothesis import strategies as st

import mcclt
import probes
from drivers import SMALL, Recorder, cells_of, content, tiny
from mcclt.config import AgentConfig, RunConfig
from mcclt.errors import CheckpointError
from mcclt.experiments import training
from mcclt.experiments.curve import POINTS, read_rows, thin
from mcclt.experiments.results import Result
from mcclt.experiments.runner import run_cells
from mcclt.experiments.store import Store
from mcclt.experiments.training import PROBE_EPISODES, probe, recorded_steps, train_unit
from mcclt.experiments.units import Outcome, Unit, lock_of
from mcclt.experiments.workers import InProcess
from mcclt.method.critics import CRITICS
from mcclt.storage import runs
from mcclt.training import population
from mcclt.training.trainer import Trainer


def silent(step: int, text: str) -> None: ...


def only(outcome: Outcome) -> Result:
    assert outcome.failures == []
    ((_, result),) = outcome.results
    return result


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A unit of one seed, trained; its folder has the checkpoints of both updates."""
    path = tmp_path_factory.mktemp("unit") / "unit"
    train_unit(Unit((tiny(),), (1,)), path, silent)
    return path


# --- results ---------------------------------------------------------------------------------------------------


def test_what_a_result_holds(folder: Path) -> None:
    setup, steps = tiny(), []
    unit = Unit((setup,), (1,))
    result = only(train_unit(unit, folder, lambda step, text: steps.append(step)))
    assert steps == [], "all was trained: only the final episodes are run again"
    assert (result.task, result.algo, result.variant) == (setup.task, "ppo", setup.variant)
    assert (result.seed, result.digest) == (1, setup.digest)
    assert result.returns.shape == result.lengths.shape == (2,) and np.isfinite(result.returns).all()
    assert (result.lengths <= 30).all()
    np.testing.assert_array_equal(result.curve["step"], [64, 128])
    np.testing.assert_array_equal(np.isfinite(result.curve["eval/mean_reward"]), [False, True])
    rows = read_rows(folder / "metrics.jsonl")
    seconds = sum(row[f"time/{part}"] for row in rows for part in ("collect", "learn", "evaluate"))
    assert result.cost["seconds"] == pytest.approx(seconds)
    assert result.cost["steps_per_second"] == pytest.approx(128 / seconds)
    assert result.cost["agents_together"] == 1
    # The critic: 9 observations → 8 units → 1 value, with biases: 9·8 + 8 + 8 + 1.
    assert result.cost["critic_parameters"] == 89
    known = result.provenance
    assert known["engine"] == "native" and known["packages"]["jax"] and known["python"] and known["git"] != ""
    assert known["started"] <= known["finished"] and known["version"] == known["packages"]["mcclt"]


def test_agents_that_are_kept(folder: Path, tmp_path: Path) -> None:
    """They do and believe what the trained ones do, bit for bit; only what their optimisers knew is gone."""
    setup = tiny()
    store = Store(tmp_path, create=True)
    tally = run_cells(store, cells_of(setup, 2), InProcess(lambda *_: None), Recorder(), 2, False, keep_agents=True)
    assert (tally.done, tally.failures) == (2, []) and (tmp_path / "agents" / ".gitignore").read_text() == "*\n"
    kept, trained = mcclt.load(store.agent_file((setup, 1))), mcclt.load(folder)
    obs = np.random.default_rng(0).normal(size=(64, 9)).astype(np.float32)
    for deterministic in (True, False):
        actions = [model.predict(obs, deterministic=deterministic)[0] for model in (kept, trained)]
        np.testing.assert_array_equal(*actions)
    beliefs = [dataclasses.astuple(model.value_distribution(obs)) for model in (kept, trained)]
    for ours, theirs in zip(*beliefs, strict=True):
        np.testing.assert_array_equal(ours, theirs)
    assert kept.seeds == (1,) and kept.num_timesteps == 128
    assert store.agent_file((setup, 1)).stat().st_size < runs.checkpoints(folder)[-1].stat().st_size / 2
    with pytest.warns(UserWarning, match="continues with new episodes"):
        kept.learn(64)
    assert kept.num_timesteps == 192
    assert not store.agent_file((setup, 2)).exists()
    whole = store.agent_file((setup, 0)).read_bytes()
    for damage in (b"", whole[:-9], whole[:200] + bytes([whole[200] ^ 1]) + whole[201:]):
        store.agent_file((setup, 0)).write_bytes(damage)
        with pytest.raises(CheckpointError, match="truncated or damaged"):
            mcclt.load(store.agent_file((setup, 0)))


def test_agents_of_several_variants_are_kept(tmp_path: Path) -> None:
    setups = (tiny(), tiny(f"mcclt@{SMALL}"))
    outcome = train_unit(Unit(setups, (3, 5), keep_agents=True), tmp_path / "unit", silent)
    obs = np.random.default_rng(0).normal(size=(16, 9)).astype(np.float32)
    store = Store(tmp_path / "store", create=True)
    assert [(s.key, seed) for (s, seed), _ in outcome.agents] == [(s.key, seed) for s in setups for seed in (3, 5)]
    for (setup, seed), model in outcome.agents:
        store.write_agent((setup, seed), model)
        kept, trained = mcclt.load(store.agent_file((setup, seed))), mcclt.load(tmp_path / "unit", group=setup.name)
        ours, theirs = kept.value_distribution(obs), trained.value_distribution(obs, seed=seed)
        np.testing.assert_array_equal(ours.bars, theirs.bars)
        np.testing.assert_array_equal(ours.weight, theirs.weight)
        np.testing.assert_array_equal(
            kept.predict(obs, deterministic=True)[0], trained.predict(obs, deterministic=True, seed=seed)[0]
        )


def test_a_seed_among_others_is_the_seed_alone(folder: Path, tmp_path: Path) -> None:
    """So it does not matter how a plan is split into units."""
    alone = only(train_unit(Unit((tiny(),), (1,)), folder, silent))
    outcome = train_unit(Unit((tiny(),), (0, 1)), tmp_path / "both", silent)
    (_, first), (_, among) = outcome.results
    assert content(among) == content(alone)
    assert content(first)["returns"] != content(among)["returns"]
    assert among.cost["agents_together"] == 2 and among.cost["critic_parameters"] == 89


@pytest.mark.parametrize("damage", ["newest", "all", "no configuration", "empty", "other settings"])
def test_what_is_left_of_a_folder_is_used(folder: Path, tmp_path: Path, damage: str) -> None:
    """A damaged checkpoint is passed over; where none is left, it begins again. The result is the same."""
    copy = tmp_path / "unit"
    shutil.copytree(folder, copy)
    files = runs.checkpoints(copy)
    match damage:
        case "newest":
            files[-1].write_bytes(files[-1].read_bytes()[:1000])
        case "all":
            for file in files:
                file.write_bytes(b"")
        case "no configuration":
            (copy / "config.json").unlink()
        case "empty":
            shutil.rmtree(copy)
            copy.mkdir()
    setup = tiny(steps=64) if damage == "other settings" else tiny()
    steps: list[int] = []
    result = only(train_unit(Unit((setup,), (1,)), copy, lambda step, text: steps.append(step)))
    if damage == "other settings":
        return  # of a unit of another name, which the runner never puts there; it must not fail
    assert steps == ([128] if damage == "newest" else [64, 128])
    assert content(result) == content(only(train_unit(Unit((setup,), (1,)), folder, silent)))


@pytest.mark.parametrize("trouble", ["full disk", "cannot be read", "newer version", "other engine"])
def test_what_is_not_damaged_is_never_given_up(
    folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, trouble: str
) -> None:
    """The disk, another version or another engine are no reason to throw a training away, nor to begin it anew."""
    copy = tmp_path / "unit"
    shutil.copytree(folder, copy)
    newest = runs.checkpoints(copy)[-1]
    before = {file: file.read_bytes() for file in copy.rglob("*") if file.is_file()}
    unit = Unit((tiny(),), (1,))

    def fail(*_: object, **__: object) -> None:
        raise OSError(errno.ENOSPC if trouble == "full disk" else errno.EIO, "no")

    with monkeypatch.context() as patched:
        match trouble:
            case "full disk":
                patched.setattr("mcclt.storage.files.write_atomically", fail)
            case "cannot be read":
                patched.setattr("safetensors.safe_open", fail)
            case "newer version":
                patched.setattr("mcclt.storage.checkpoint.VERSION", 0)
            case "other engine":
                unit = Unit((tiny(engine="gymnasium"),), (1,))
        expected = {"full disk": "Cannot write", "cannot be read": "Cannot read", "newer version": "update mcclt"}
        with pytest.raises(CheckpointError, match=expected.get(trouble, "continue with --engine native")):
            train_unit(unit, copy, silent)
    assert newest.read_bytes() == before[newest]
    assert {file: file.read_bytes() for file in before} == before
    steps: list[int] = []
    result = only(train_unit(Unit((tiny(),), (1,)), copy, lambda step, text: steps.append(step)))
    assert steps == [], "it was at its end, and only had to be evaluated"
    assert content(result) == content(only(train_unit(Unit((tiny(),), (1,)), folder, silent)))


def test_an_interrupted_unit_saves_its_state(tmp_path: Path, folder: Path) -> None:
    def interrupt(step: int, text: str) -> None:
        raise KeyboardInterrupt

    unit = Unit((tiny(checkpoint_freq=10**9),), (1,))
    with pytest.raises(KeyboardInterrupt):
        train_unit(unit, tmp_path / "unit", interrupt)
    steps: list[int] = []
    result = only(train_unit(unit, tmp_path / "unit", lambda step, text: steps.append(step)))
    assert steps == [128], "though no checkpoint was due"
    assert content(result) == content(only(train_unit(Unit((tiny(),), (1,)), folder, silent)))


def test_a_folder_belongs_to_one_process(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    held: list[bool] = []

    def look(*_: object) -> None:
        with contextlib.suppress(filelock.Timeout), filelock.FileLock(lock_of(tmp_path / "unit"), timeout=0):
            held.append(False)
        raise ZeroDivisionError

    monkeypatch.setattr(training, "_job", look)
    with pytest.raises(ZeroDivisionError):
        train_unit(Unit((tiny(),), (0,)), tmp_path / "unit", silent)
    assert held == [], "the lock was held"
    filelock.FileLock(lock_of(tmp_path / "unit"), timeout=0).acquire().lock.release()


class Wide(probes.Noisy):
    """Of the pendulum's sizes, so that nothing new is compiled."""

    observation_space = spaces.Box(-np.inf, np.inf, (9,), np.float32)
    action_space = spaces.Box(-1, 1, (1,), np.float32)

    def reset(self, **given):
        obs, info = super().reset(**given)
        return np.tile(obs, 3), info

    def step(self, action: np.ndarray):
        obs, *rest = super().step(action)
        return np.tile(obs, 3), *rest


def test_an_agent_that_fails_is_reported_and_the_other_kept(tmp_path: Path) -> None:
    """The first agent's environment raises at its third step: the second agent's times still count."""
    numbers = itertools.count()

    def make() -> gym.Env:
        # The engine looks at one environment first; then come four for each of the two agents.
        return Wide(probes.make_trouble("raise", 3) if next(numbers) == 1 else None)

    gym.register("FirstFails-v0", make)
    try:
        setup = tiny(task="FirstFails-v0", eval_freq=0)
        outcome = train_unit(Unit((setup,), (0, 1)), tmp_path / "unit", silent)
    finally:
        gym.registry.pop("FirstFails-v0")
    (failure,) = outcome.failures
    assert failure.startswith(f"{setup.name} on FirstFails-v0, seed 0, has no result (stopped: ")
    assert "the motor [/burns] is [out]" in failure and "\n" not in failure
    ((_, result),) = outcome.results
    assert result.seed == 1 and result.cost["seconds"] > 0 and np.isfinite(result.cost["steps_per_second"])


# --- curves ----------------------------------------------------------------------------------------------------


@given(st.integers(1, 400), st.integers(0, 40))
def test_thinning(length: int, every: int) -> None:
    rows = [
        {"step": 10 * i, "value/std": float(i), "unknown": 1.0}
        | ({"eval/mean_reward": float(i)} if every and i % every == 0 else {})
        for i in range(1, length + 1)
    ]
    curve = thin(rows)
    assert curve["step"][-1] == 10 * length, "the last is there"
    assert (np.diff(curve["step"]) > 0).all()
    np.testing.assert_array_equal(curve["value/std"], curve["step"] / 10)
    assert "unknown" not in curve and "weight/mean" not in curve
    evaluations = [i for i in range(1, length + 1) if every and i % every == 0]
    if evaluations:
        known = np.isfinite(curve["eval/mean_reward"])
        np.testing.assert_array_equal(curve["eval/mean_reward"][known], evaluations)
    else:
        assert "eval/mean_reward" not in curve
    assert min(length, POINTS) <= len(curve["step"]) <= 2 * POINTS + len(evaluations)


def test_thinning_by_hand() -> None:
    # 100 rows: every second, counted from the last: 1, 3, …, 99 (from 0), and row 4, an evaluation.
    rows = [{"step": i} | ({"eval/mean_reward": 7.0} if i == 4 else {}) for i in range(100)]
    curve = thin(rows)
    np.testing.assert_array_equal(curve["step"], sorted([*range(1, 100, 2), 4]))
    np.testing.assert_array_equal(curve["eval/mean_reward"], [7.0 if i == 4 else math.nan for i in curve["step"]])


# --- probes ----------------------------------------------------------------------------------------------------


def counting(critic: str) -> Trainer:
    """Two agents in `probes.Counter`: it observes (step, episode) and rewards the step's number."""
    agent = AgentConfig(critic=critic, gamma=0.9, critic_hidden=(8,), policy_hidden=(4,), n_quantiles=4)
    config = RunConfig("Counter", (3, 5), groups={"one": agent}, n_envs=2, steps_per_update=16, max_episode_steps=12,
                       threads=1)  # fmt: skip
    trainer = Trainer(config, probes.Counter)
    state = trainer.states["one"]

    def rise(x: jax.Array) -> jax.Array:
        """Bars in order, as a critic has that learnt a little: a fresh one's spread is 0, or the wrong way round."""
        return x + np.broadcast_to(np.arange(4), x.shape) if x.shape[-1] == 4 else x + 0.05

    trainer.states["one"] = dataclasses.replace(state, critic=jax.tree.map(rise, state.critic))
    return trainer


def test_what_a_probe_sees() -> None:
    """All eight environments go through the same twelve steps: 3 that end, 5 that are cut, 3 that end, and 1.

    So everything is known: the observations (step, episode), the rewards, and which returns can be judged.
    """
    with contextlib.closing(counting("normal")) as trainer:
        found = probe(trainer)
        learner, states = trainer.learners["one"], trainer.states["one"]
    assert len(found) == 2
    predict, weigh = jax.jit(learner.predict), jax.jit(learner.weights)
    # γ = 0.9: G₂ = 3, G₁ = 2 + 2.7 = 4.7, G₀ = 1 + 4.23 = 5.23.
    followed = np.array([5.23, 4.7, 3])
    for i, one in enumerate(found):
        own = jax.tree.map(lambda x, i=i: np.asarray(x)[i], states)
        first, third = (predict(own, np.array([[t, e] for t in range(3)], np.float32)) for e in (0, 2))
        episode = one["episode"]  # the first, as long as any
        np.testing.assert_array_equal(episode["t"], [0, 1, 2])
        np.testing.assert_array_equal(episode["reward"], [1, 2, 3])
        np.testing.assert_allclose(episode["return"], followed, rtol=1e-6)
        for name in ("mean", "std", "error"):
            np.testing.assert_allclose(episode[name], getattr(first, name), rtol=1e-4, atol=1e-5)
        np.testing.assert_allclose(episode["weight"], weigh(own, first.error), rtol=1e-3)
        np.testing.assert_allclose(one["bars"]["values"], first.bars, rtol=1e-4, atol=1e-5)
        assert one["bars"]["t"] == [0, 1, 2] and one["gamma"] == 0.9
        # Known are the returns of the two episodes that ended: of the cut one's first step 0.9⁵ = 0.59 is missing.
        got = one["calibration"]
        assert got["states"] == PROBE_EPISODES * (3 + 3)
        mean, std = (np.concatenate([getattr(first, k), getattr(third, k)]) for k in ("mean", "std"))
        distance = mean - np.tile(followed, 2)
        assert got["bias"] == pytest.approx(distance.mean(), rel=1e-4)
        assert got["crps_point"] == pytest.approx(np.abs(distance).mean(), rel=1e-4)
        assert got["spread"] == pytest.approx(std.mean(), rel=1e-4)
        assert got["coverage"]["0.95"] == pytest.approx(np.mean(np.abs(distance) <= 1.959964 * std))
    assert not np.allclose(found[0]["episode"]["mean"], found[1]["episode"]["mean"]), "each agent its own critic"


def test_a_probe_looks_beyond_the_time_limit() -> None:
    """Pendulum never ends by itself: of 12 steps 0.9¹² = 0.28 of a return would be missing. Known it is 44 steps on."""
    agent = AgentConfig(critic="normal", gamma=0.9, critic_hidden=(8,), policy_hidden=(4,), n_quantiles=4)
    config = RunConfig(
        "Pendulum-v1", groups={"one": agent}, n_envs=2, steps_per_update=16, max_episode_steps=12, threads=1
    )
    with contextlib.closing(Trainer(config)) as trainer:
        (found,) = probe(trainer)
    np.testing.assert_array_equal(found["episode"]["t"], np.arange(12))
    np.testing.assert_array_equal(np.isfinite(found["episode"]["return"]), np.arange(12) < 6 + 1)
    assert found["calibration"]["states"] == 7 * PROBE_EPISODES


@pytest.mark.parametrize(
    ("limit", "gamma", "steps"),
    [
        (1000, 0.99, 1000),  # 0.99⁴⁵⁹ < 0.01: more than half is known as it is
        (1000, 0.9955, 500 + 1022),  # ln 0.01 / ln 0.9955 = 1021.08
        (1000, 0.9999, 1000),  # 46,050 steps would be needed
        (1000, 1.0, 1000),
        (1000, 0.0, 1000),
    ],
)
def test_how_far_a_probe_looks(limit: int, gamma: float, steps: int) -> None:
    assert recorded_steps(limit, gamma) == steps


@pytest.mark.parametrize(
    ("algos", "critics"),
    [(("ppo",), ("quantile", "normal")), pytest.param(("ppo", "trpo"), tuple(CRITICS), marks=pytest.mark.slow)],
    ids=["two critics", "every critic"],
)
def test_a_population_is_probed_on_a_gpus_path_as_on_a_cpus(
    monkeypatch: pytest.MonkeyPatch, algos: tuple[str, ...], critics: tuple[str, ...]
) -> None:
    """There like groups predict in one program; critics of every kind, by two algorithms. Without weights, quantile and
    normal critics believe by the same program, from parameters of another form.
    """
    small: dict[str, Any] = {"critic_hidden": (8,), "policy_hidden": (4,), "n_quantiles": 4}
    groups = {
        f"{algo}-{critic}": AgentConfig(critic=critic, algo=algo, weighting="uniform", **small)
        for algo in algos
        for critic in critics
    }
    config = RunConfig("Counter", (3, 5), groups=groups, n_envs=2, steps_per_update=16, max_episode_steps=12, threads=1)
    with contextlib.closing(Trainer(config, probes.Counter)) as trainer:
        expected = probe(trainer)
        monkeypatch.setattr(population, "on_cpu", lambda: False)
        found = probe(trainer)
    assert len(found) == len(expected) == 2 * len(groups)
    for one, other in zip(found, expected, strict=True):
        for a, b in zip(jax.tree.leaves(one), jax.tree.leaves(other), strict=True):
            np.testing.assert_allclose(a, b, rtol=1e-4, atol=1e-5)


def test_a_critic_without_spread() -> None:
    with contextlib.closing(counting("plain")) as trainer:
        found = probe(trainer)
    assert all(one["calibration"] == {} and one["bars"]["values"].shape == (3, 1) for one in found)
    assert all((one["episode"]["std"] == 0).all() for one in found)


def test_a_probe_of_an_agent_that_fails() -> None:
    numbers = itertools.count()

    def make() -> gym.Env:
        # One is looked at, 2 x 2 train, one is looked at again; then come eight for each agent.
        n = next(numbers)
        return probes.Noisy(probes.make_trouble("nan reward", 2) if n in made else None)

    made: set[int] = set()
    agent = AgentConfig(critic="plain", critic_hidden=(8,), policy_hidden=(4,))
    config = RunConfig("Noisy", (3, 5), groups={"one": agent}, n_envs=2, steps_per_update=16, max_episode_steps=12,
                       on_nan="stop", threads=1)  # fmt: skip
    with contextlib.closing(Trainer(config, make)) as trainer:
        begun = next(numbers)
        made.update(range(begun + 1, begun + 1 + PROBE_EPISODES))
        failed, good = probe(trainer)
    assert failed == {} and good["episode"]["t"][0] == 0
