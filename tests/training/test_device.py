"""Collecting, evaluating and training where environments live on the device: as on the host, and without waste."""

import contextlib
import functools
import importlib.util
from typing import Any

import jax
import numpy as np
import pytest

from mcclt.config import AgentConfig, RunConfig
from mcclt.envs.api import Key
from mcclt.envs.warp import WarpVectorEnv
from mcclt.errors import EnvironmentFault
from mcclt.method.nets import Gaussian, Params
from mcclt.method.normalisation import Moments, Normalised, Normaliser, acting
from mcclt.method.randomness import Purpose, stream
from mcclt.storage import checkpoint
from mcclt.storage.trackers import Row
from mcclt.training import device, evaluate
from mcclt.training.collect import EpisodeStats, FaultError, collect
from mcclt.training.evaluate import run_episodes
from mcclt.training.loop import run
from mcclt.training.trainer import Trainer
from probes import agent, run_config
from trees import assert_same, one_of, timeless

pytestmark = pytest.mark.skipif(
    importlib.util.find_spec("mujoco_warp") is None, reason="MuJoCo Warp is not installed: pip install 'mcclt[gpu]'"
)

AGENTS, ENVS, LIMIT = 2, 2, 5
OBS, ACTIONS = 17, 6
POLICY = Gaussian(ACTIONS, (4,))
TASK = "HalfCheetah-v5"
"""The fastest here, and no episode ends before its limit."""


def keys_of(seed: int = 0) -> list[Key]:
    return [(seed + a, int(Purpose.TRAIN_RESET), 0, e) for a in range(AGENTS) for e in range(ENVS)]


@functools.cache
def _cheetahs() -> WarpVectorEnv:
    return WarpVectorEnv(TASK, keys_of(), LIMIT)


@pytest.fixture
def cheetahs() -> WarpVectorEnv:
    """Short episodes of two agents with two environments each, as good as new."""
    env = _cheetahs()
    env.rekey(keys_of(), np.ones(env.num_envs, bool))
    return env


@functools.cache
def params() -> Params:
    def init(seed: jax.Array) -> Params:
        return POLICY.init(stream(seed, Purpose.POLICY_INIT), OBS, AgentConfig())

    return jax.jit(jax.vmap(init))(np.arange(AGENTS, dtype=np.uint32))


def noise(horizon: int, seed: int = 0) -> np.ndarray:
    return np.random.default_rng(seed).standard_normal((AGENTS, horizon, ENVS, ACTIONS)).astype(np.float32)


class Poisoned:
    """The environments, but one of them stops being a number in step `at`."""

    def __init__(self, env: WarpVectorEnv, at: int, which: int) -> None:
        self._env, self._at, self._which, self._t = env, at, which, 0

    def __getattr__(self, name: str) -> Any:
        return getattr(self._env, name)

    def send(self, action: Any) -> None:
        if self._t == self._at:
            state = self._env.get_state()
            state["qvel"][self._which] = np.nan
            self._env.set_state(state)
        self._t += 1
        self._env.send(action)


# --- collecting --------------------------------------------------------------------------------------------


def normalised_params() -> Params:
    """The second agent sees its observations a little smaller than they are, about another mean."""
    mean, var = np.full((AGENTS, OBS), 0.1, np.float32), np.full((AGENTS, OBS), 4.0, np.float32)
    seen = Moments(jax.numpy.asarray(mean), jax.numpy.asarray(var), jax.numpy.ones(AGENTS))
    found = acting(params(), Normaliser(seen, None, None), OBS)
    plain = acting(params(), Normaliser(None, None, None), OBS)
    return jax.tree.map(lambda a, b: jax.numpy.concatenate([a[:1], b[1:]]), plain, found)


@pytest.mark.parametrize("normalised", [True, pytest.param(False, marks=pytest.mark.slow)])
def test_collecting_is_the_hosts(cheetahs: WarpVectorEnv, normalised: bool) -> None:
    policy, ours = (Normalised(POLICY), normalised_params()) if normalised else (POLICY, params())
    numpy_params = jax.tree.map(np.asarray, ours)
    found = []
    for gather, parameters in ((collect, numpy_params), (device.collect, ours)):
        cheetahs.rekey(keys_of(), np.ones(cheetahs.num_envs, bool))
        obs, stats = cheetahs.reset().reshape(AGENTS, ENVS, -1), EpisodeStats.empty(AGENTS, ENVS)
        rollouts = []
        for k in range(2):
            rollout, obs, faults = gather(cheetahs, policy, parameters, obs, noise(8, k), stats, True)
            assert faults == []
            rollouts.append(rollout)
        found.append((rollouts, obs, stats))
    (host, host_obs, host_stats), (here, our_obs, our_stats) = found
    for a, b in zip(jax.tree.leaves(host), jax.tree.leaves(here), strict=True):
        assert a.dtype == b.dtype and a.shape == b.shape
        np.testing.assert_allclose(a, b, rtol=0, atol=1e-3)
    np.testing.assert_allclose(host_obs, our_obs, rtol=0, atol=1e-3)
    assert host[0].truncated.any(), "episodes ended on the way"
    assert host_stats.lengths == our_stats.lengths and (host_stats.length == our_stats.length).all()
    np.testing.assert_allclose(host_stats.returns, our_stats.returns, atol=1e-3)
    np.testing.assert_allclose(host_stats.running, our_stats.running, atol=1e-3)


def test_a_fault_is_raised_with_agent_environment_and_step(cheetahs: WarpVectorEnv) -> None:
    obs = cheetahs.reset().reshape(AGENTS, ENVS, -1)
    stats = EpisodeStats.empty(AGENTS, ENVS)
    with pytest.raises(FaultError, match="not a finite number") as caught:
        device.collect(Poisoned(cheetahs, 3, 3), POLICY, params(), obs, noise(6), stats, True)
    assert (caught.value.fault.agent, caught.value.fault.env, caught.value.fault.step) == (1, 1, 3)


def test_a_fault_leaves_the_other_agents_alone(cheetahs: WarpVectorEnv) -> None:
    obs = cheetahs.reset().reshape(AGENTS, ENVS, -1)
    healthy_stats, stats = EpisodeStats.empty(AGENTS, ENVS), EpisodeStats.empty(AGENTS, ENVS)
    healthy, after, _ = device.collect(cheetahs, POLICY, params(), obs, noise(6), healthy_stats, True)
    cheetahs.rekey(keys_of(), np.ones(cheetahs.num_envs, bool))
    obs = cheetahs.reset().reshape(AGENTS, ENVS, -1)
    poisoned = Poisoned(cheetahs, 1, 2)
    spoilt, obs, faults = device.collect(poisoned, POLICY, params(), obs, noise(6), stats, False)
    assert [(fault.agent, fault.env, fault.step) for fault in faults] == [(1, 0, 1)]
    assert_same(one_of(spoilt, 0), one_of(healthy, 0))
    np.testing.assert_array_equal(obs[0], after[0])
    assert stats.returns[0] == healthy_stats.returns[0]
    assert all(np.isfinite(x).all() for x in jax.tree.leaves((spoilt.obs, spoilt.reward, spoilt.next_obs, obs)))
    assert not np.asarray(spoilt.reward[1]).any() and not stats.length[1].any() and stats.length[0].any()
    _, obs, faults = device.collect(poisoned, POLICY, params(), obs, noise(6), stats, False)
    assert faults == [] and np.isfinite(obs).all(), "the agent goes on in new episodes"


# --- evaluating --------------------------------------------------------------------------------------------


def test_evaluating_is_the_hosts_and_repeats(cheetahs: WarpVectorEnv) -> None:
    numpy_params = jax.tree.map(np.asarray, params())
    host = run_episodes(cheetahs, lambda obs: POLICY.mode(numpy_params, obs), AGENTS, ENVS)
    ours = []
    for _ in range(2):
        cheetahs.rekey(keys_of(), np.ones(cheetahs.num_envs, bool))
        ours.append(device.Evaluation(cheetahs, POLICY, params(), AGENTS).finish())
    np.testing.assert_allclose(host.returns, ours[0].returns, atol=1e-3)
    np.testing.assert_array_equal(host.lengths, ours[0].lengths)
    np.testing.assert_array_equal(ours[0].returns, ours[1].returns)
    assert host.faults == ours[0].faults == [] and ours[0].returns.shape == (AGENTS, ENVS)


def test_a_fault_in_an_evaluation_is_reported(cheetahs: WarpVectorEnv) -> None:
    found = device.Evaluation(Poisoned(cheetahs, 2, 3), POLICY, params(), AGENTS).finish()
    assert [(fault.agent, fault.env) for fault in found.faults] == [(1, 1)]
    assert np.isnan(found.returns).tolist() == [[False, False], [False, True]]


def test_an_endless_episode_is_an_error(cheetahs: WarpVectorEnv, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(evaluate, "LONGEST", LIMIT - 1)
    with pytest.raises(EnvironmentFault, match="did not end within 4 steps"):
        device.Evaluation(cheetahs, POLICY, params(), AGENTS).finish()


# --- training ----------------------------------------------------------------------------------------------


def warp_config(**settings: Any) -> RunConfig:
    settings = {"seeds": (0, 1), "engine": "warp", "max_episode_steps": LIMIT, "steps_per_update": 8} | settings
    return run_config(TASK, **settings)


@pytest.fixture
def trainers(trainer_of: Any) -> Any:
    return lambda **settings: trainer_of(warp_config(**settings))


NORMALISED = agent(critic="plain", normalize_obs=True, normalize_reward=True)
MIXED = {"plain": agent(critic="plain"), "normalised": NORMALISED}
GROUPS = pytest.mark.parametrize(
    "groups", [pytest.param(None, id="plain"), pytest.param(MIXED, id="mixed", marks=pytest.mark.slow)]
)


@GROUPS
def test_training_resumes_to_the_same_numbers_and_evaluations_repeat(trainers: Any, groups: Any) -> None:
    settings = {"eval_freq": 16, "eval_episodes": 2, "groups": groups}
    whole = trainers(**settings)
    rows = whole.advance()
    saved = whole.to_checkpoint()
    rows += whole.advance() + whole.advance() + whole.flush()
    length = np.asarray(whole.stats.length)
    assert (length[:, 0] != length[:, 1]).all(), "environments are out of lockstep"
    second = rows[len(whole.agents)]
    assert "eval/mean_reward" in second and "rollout/ep_rew_mean" in second
    assert all(np.isfinite(value) for row in rows for name, value in row.items() if isinstance(value, float))
    resumed = trainers(**settings)
    assert resumed.restore(*saved, "here"), "continues its episodes"
    for _ in range(2):
        resumed.advance()
    (expected, meta), (arrays, resumed_meta) = whole.to_checkpoint(), resumed.to_checkpoint()
    assert meta == resumed_meta and arrays.keys() == expected.keys()
    for name, value in expected.items():
        np.testing.assert_array_equal(arrays[name], value, err_msg=name)
    once, again = whole.evaluate(2, 7)[0], resumed.evaluate(2, 7)[0]
    np.testing.assert_array_equal(once, again)
    assert (whole.evaluate(2, 8)[0] != once).all()


EVALUATED: dict[str, Any] = {"eval_freq": 16, "eval_episodes": 2, "max_episode_steps": 20}
"""Every other update; episodes of 20 steps, so that an evaluation lasts beyond the next two updates of 8 each."""


def test_an_evaluation_goes_on_beside_training_and_finds_the_same(trainers: Any) -> None:
    beside, at_once = trainers(**EVALUATED), trainers(**EVALUATED)
    found = [beside.advance() for _ in range(5)]
    expected = [at_once.advance() + at_once.flush() for _ in range(5)]
    agents = len(beside.agents)
    assert [len(rows) for rows in expected] == [agents] * 5
    waiting = "the second update's rows, and the third's, wait until the fourth's evaluation is due"
    assert [len(rows) for rows in found] == [agents, 0, 0, 2 * agents, 0], waiting
    late = [row for rows in found for row in rows] + beside.flush()
    assert timeless(late) == timeless([row for rows in expected for row in rows])
    assert [row["update"] for row in late if "eval/mean_reward" in row] == [2] * agents + [4] * agents
    assert beside.flush() == []


class Log:
    """An observer, and its run directory: what was saved has all that led to it in the log, once and in order."""

    def __init__(self, interrupt: int | None = None) -> None:
        self.rows: list[Row] = []
        self.saved: list[int] = []
        self.interrupt = interrupt

    def on_update(self, trainer: Trainer, rows: list[Row]) -> None:
        self.rows.extend(rows)
        if trainer.update == self.interrupt:
            raise KeyboardInterrupt

    def on_message(self, text: str) -> None: ...

    def save(self, trainer: Trainer) -> None:
        assert trainer.boundary is not None
        update = trainer.boundary.update
        assert [row["update"] for row in self.rows] == [u for u in range(1, update + 1) for _ in trainer.agents]
        self.saved.append(update)

    @property
    def evaluated(self) -> list[int]:
        return [row["update"] for row in self.rows if "eval/mean_reward" in row]


@pytest.mark.parametrize(
    ("every", "interrupt", "expected"),
    [
        pytest.param(
            6,
            None,
            [11, 12],
            id="the sixth update's waits for its evaluation, which lasts five",
            marks=pytest.mark.slow,
        ),
        pytest.param(
            2,
            None,
            [6, 12],
            id="one is always under way: the third's waits until the next is due",
            marks=pytest.mark.slow,
        ),
        pytest.param(2, 5, [5], id="interrupted"),
    ],
)
def test_a_checkpoint_has_its_lines_in_the_log(
    trainers: Any, every: int, interrupt: int | None, expected: list[int]
) -> None:
    """Whatever was saved: what was logged until then is all that led to it, each update once and in order."""
    freq = {"eval_freq": 8 * every, "checkpoint_freq": 48 if every == 6 else 24}
    trainer, log = trainers(**EVALUATED | freq, steps=96), Log(interrupt)
    with pytest.raises(KeyboardInterrupt) if interrupt else contextlib.nullcontext():
        run(trainer, [log], lambda: log.save(trainer))
    assert log.saved == expected
    assert log.evaluated == [u for u in range(every, expected[-1] + 1, every) for _ in trainer.agents]


BROKEN = EnvironmentFault("an environment of the evaluation broke")


@pytest.mark.parametrize(
    ("errors", "raised", "evaluated"),
    [
        pytest.param([KeyboardInterrupt], KeyboardInterrupt, True, id="Ctrl-C: it is finished before the end"),
        pytest.param(
            [KeyboardInterrupt, KeyboardInterrupt],
            KeyboardInterrupt,
            False,
            id="Ctrl-C twice: it is not",
            marks=pytest.mark.slow,
        ),
        pytest.param([BROKEN], EnvironmentFault, False, id="it fails", marks=pytest.mark.slow),
        pytest.param([KeyboardInterrupt, BROKEN], EnvironmentFault, False, id="Ctrl-C, and then it fails"),
    ],
)
def test_an_evaluation_that_does_not_end_takes_no_line_with_it(
    trainers: Any, monkeypatch: pytest.MonkeyPatch, errors: list[Any], raised: type[BaseException], evaluated: bool
) -> None:
    """Three updates, the second evaluated; at the end what finishes that evaluation goes wrong."""
    finish, left = device.Evaluation.finish, list(errors)

    def broken(evaluation: device.Evaluation) -> Any:
        if left:
            raise left.pop(0)
        return finish(evaluation)

    monkeypatch.setattr(device.Evaluation, "finish", broken)
    trainer, log = trainers(**EVALUATED, steps=24), Log()
    with pytest.raises(raised):
        run(trainer, [log], lambda: log.save(trainer))
    assert not left
    assert log.saved == [3]
    assert log.evaluated == ([2] * len(trainer.agents) if evaluated else [])


def test_nothing_is_ended_for_a_checkpoint_that_nobody_writes(trainers: Any) -> None:
    """One would be due at every update; the rows of the fifth come when its evaluation ends, here with the training."""
    log, calls = Log(), []
    trainer = trainers(**EVALUATED | {"eval_freq": 40}, steps=56, checkpoint_freq=8)
    log.on_update = lambda trainer, rows: calls.append([row["update"] for row in rows])  # type: ignore[method-assign]
    run(trainer, [log])
    assert [sorted(set(updates)) for updates in calls] == [[1], [2], [3], [4], [], [], [5, 6, 7]]


def test_waiting_for_an_evaluation_is_counted(trainers: Any) -> None:
    trainer = trainers(**EVALUATED)
    trainer.advance()
    trainer.advance()
    before = trainer.timing["evaluate"]
    for row in trainer.flush():
        assert row["time/evaluate"] > before


def test_a_fault_rewinds_to_the_last_update(trainers: Any, tmp_path: Any) -> None:
    trainer, reference = trainers(), trainers()
    trainer.advance()
    reference.advance()
    healthy = trainer.env
    trainer.env = Poisoned(healthy, 1, 2)
    with pytest.raises(EnvironmentFault, match=r"Environment 0 of seed 1 \(group 'plain'\) .* at step 10\."):
        trainer.advance()
    trainer.env = healthy
    rows, expected = trainer.advance(), reference.advance()
    assert [row["train/value_loss"] for row in rows] == [row["train/value_loss"] for row in expected]
    checkpoint.save(tmp_path / "saved", *trainer.to_checkpoint())


@GROUPS
def test_later_updates_compile_nothing(trainers: Any, groups: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """On the path of a GPU. What comes from Warp is committed to a device, and must not meet what is not."""
    monkeypatch.setattr(jax, "default_backend", lambda: "gpu")
    lowered = []
    jax.monitoring.register_event_duration_secs_listener(
        lambda name, _, **__: lowered.append(name) if "jaxpr_to_mlir_module" in name else None
    )
    trainer = trainers(eval_freq=8, eval_episodes=2, groups=groups)
    trainer.advance()
    trainer.advance()  # its rollout goes on beside the first fit and the first evaluation
    trainer.flush()
    assert lowered, "compiling is noticed"
    lowered.clear()
    trainer.advance()
    trainer.advance()
    assert not lowered
    resumed = trainers(eval_freq=8, eval_episodes=2, groups=groups)
    resumed.restore(*trainer.to_checkpoint(), "here")
    resumed.advance()
    resumed.advance()
    resumed.flush()
    lowered.clear()
    resumed.advance()
    assert not lowered, "nor after a resumption"
