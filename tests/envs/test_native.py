"""The native engine against Gymnasium, and itself with other threads, neighbours or interruptions."""

import contextlib
import itertools
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import gymnasium
import mujoco
import mujoco.rollout
import numpy as np
import pytest

from mcclt.envs.api import Key, Step, rng_of
from mcclt.envs.mujoco import load_model
from mcclt.envs.native import NativeVectorEnv
from mcclt.envs.tasks import TASKS, HalfCheetah, Hopper
from mcclt.errors import CheckpointError, ConfigError
from references import gym_env, newest

EVERY_TASK = pytest.mark.parametrize("task_id", TASKS)
PURE = [name for name, task in TASKS.items() if not task.derived]  # stepped by mujoco.rollout
DERIVED = [name for name, task in TASKS.items() if task.derived]  # stepped by mj_step
ONE_OF_EACH_KIND = pytest.mark.parametrize("task_id", ["Hopper-v5", "InvertedDoublePendulum-v4", "Ant-v5"])


def keys_of(n: int) -> list[Key]:
    return [(7, 1, 0, i) for i in range(n)]


def actions(env: NativeVectorEnv, steps: int, seed: int = 0) -> Iterator[np.ndarray]:
    """Random actions [n, nu], the same for environment i whatever the number of environments."""
    rngs = [np.random.default_rng([seed, i]) for i in range(env.num_envs)]
    low, high = env.spec.action_low, env.spec.action_high
    for _ in range(steps):
        yield np.stack([rng.uniform(low, high).astype(np.float32) for rng in rngs])


def run(env: NativeVectorEnv, acts: Sequence[np.ndarray]) -> list[Step]:
    return [env.step(a) for a in acts]


def assert_same(a: Sequence[Step], b: Sequence[Step], rows: Any = slice(None)) -> None:
    """Bitwise equality; `rows` picks environments of `b`."""
    for x, y in zip(a, b, strict=True):
        for name, left, right in zip(Step._fields, x, y, strict=True):
            np.testing.assert_array_equal(left, right[rows], err_msg=name)


def put(env: NativeVectorEnv, sources: Sequence[dict[str, np.ndarray]]) -> np.ndarray:
    """Puts environment i into the i-th MuJoCo state."""
    state = env.get_state()
    state |= {name: np.stack([source[name] for source in sources]) for name in sources[0]}
    state["elapsed"][:] = 0
    return env.set_state(state)


def take(gym: Any, task_id: str) -> dict[str, np.ndarray]:
    """The MuJoCo state of Gymnasium's environment, as `put` wants it."""
    kind = mujoco.mjtState.mjSTATE_INTEGRATION if TASKS[task_id].derived else mujoco.mjtState.mjSTATE_FULLPHYSICS
    physics = np.empty(mujoco.mj_stateSize(gym.model, kind.value))
    mujoco.mj_getState(gym.model, gym.data, physics, kind.value)
    return {"physics": physics, **{name: getattr(gym.data, name).copy() for name in TASKS[task_id].derived}}


@pytest.mark.parametrize("task_id", PURE)
def test_each_step_is_gymnasiums_from_the_same_state(task_id: str) -> None:
    """Not whole episodes: Gymnasium's solver starts from the last step's solution and ours from zero.

    Both solve to MuJoCo's tolerance of 1e-8 (relative), which chaos would amplify over an episode. Within one
    step the difference stays below float32 rounding; the bound here is a few times that rounding.
    """
    gym, n = gym_env(task_id), 400
    env = NativeVectorEnv(task_id, keys_of(n))
    (action,) = actions(env, 1)
    gym.reset(seed=0)
    sources, outcomes = [], []
    for a in action:
        sources.append(take(gym, task_id))
        outcomes.append(gym.step(a.astype(np.float64))[:3])  # float32 would make its control cost float32
        if outcomes[-1][2]:
            gym.reset()
    obs, reward, terminated = (np.array(column) for column in zip(*outcomes, strict=True))
    put(env, sources)
    step = env.step(action)
    env.close()
    np.testing.assert_allclose(step.next_obs, obs, rtol=3e-7, atol=3e-7)
    np.testing.assert_allclose(step.reward, reward, rtol=1e-6, atol=1e-6)
    np.testing.assert_array_equal(step.terminated, terminated)
    if task_id.startswith(("Hopper", "Walker")):
        assert terminated.any()


@newest(PURE)
def test_what_mujoco_leaves_out_changes_no_bit(task_id: str) -> None:
    env, task = NativeVectorEnv(task_id, keys_of(4)), TASKS[task_id]
    models, data = [load_model(task)] * 4, mujoco.MjData(load_model(task))
    env.reset()
    for action in actions(env, 150):
        before = env.get_state()["physics"]
        step = env.step(action)
        control = np.repeat(action[:, None].astype(np.float64), task.frame_skip, axis=1)
        states, _ = mujoco.rollout.rollout(models, data, before, control)
        same_episode = ~(step.terminated | step.truncated)
        np.testing.assert_array_equal(env.get_state()["physics"][same_episode], states[same_episode, -1])
    env.close()


def test_callbacks_of_others_stay() -> None:
    looks = itertools.count()
    mujoco.set_mjcb_time(lambda: float(next(looks)))
    try:
        env = NativeVectorEnv("Hopper-v5", keys_of(1))
        env.reset()
        before = next(looks)
        env.step(np.zeros((1, 3), np.float32))
        env.close()
    finally:
        mujoco.set_mjcb_time(None)
    assert next(looks) > before + 1


@pytest.mark.parametrize("task_id", DERIVED)
def test_whole_episodes_are_gymnasiums(task_id: str) -> None:
    """The same episodes from the same random stream, to the last bit of the physics.

    Observations and rewards may differ by one unit of float32's last place: Gymnasium computes them one
    environment at a time, where NumPy may use another code path than over a batch.
    """
    gym, key = gym_env(task_id), (7, 1)
    env = NativeVectorEnv(task_id, [key])
    ours, episode, terminations = env.reset(), 0, 0
    gym.np_random = rng_of(key, 0)
    theirs, _ = gym.reset()
    for k, action in enumerate(actions(env, 400)):
        np.testing.assert_array_max_ulp(ours[0], theirs.astype(np.float32), maxulp=1)
        if k == 300 and task_id.startswith("Ant"):  # random actions rarely make the ant jump: throw it up
            gym.data.qvel[2] = 8.0
            put(env, [take(gym, task_id)])
        step = env.step(action)
        theirs, reward, terminated, _, _ = gym.step(action[0].astype(np.float64))
        np.testing.assert_array_max_ulp(step.next_obs[0], theirs.astype(np.float32), maxulp=1)
        np.testing.assert_array_max_ulp(step.reward[0], np.float32(reward), maxulp=1)
        assert step.terminated[0] == terminated
        if terminated:
            terminations, episode = terminations + 1, episode + 1
            gym.np_random = rng_of(key, episode)
            theirs, _ = gym.reset()
        ours = step.obs
        for name, value in take(gym, task_id).items():
            np.testing.assert_array_equal(env.get_state()[name][0], value, err_msg=name)
    env.close()
    assert terminations > 0


@EVERY_TASK
def test_reset_observations_are_gymnasiums(task_id: str) -> None:
    gym, keys = gym_env(task_id), keys_of(5)
    env = NativeVectorEnv(task_id, keys)
    for episode in range(2):
        obs = env.reset()
        for i, key in enumerate(keys):
            gym.np_random = rng_of(key, episode)
            np.testing.assert_array_max_ulp(obs[i], gym.reset()[0].astype(np.float32), maxulp=1)
    env.close()


@EVERY_TASK
def test_the_spec_and_the_model_are_gymnasiums(task_id: str) -> None:
    gym, task = gym_env(task_id), TASKS[task_id]
    env = NativeVectorEnv(task_id, keys_of(2))
    spec = env.spec
    env.close()
    assert (spec.task, spec.engine, spec.resumable, spec.discrete) == (task_id, "native", True, False)
    assert (spec.obs_size,) == gym.observation_space.shape
    assert (spec.action_size,) == gym.action_space.shape
    np.testing.assert_array_equal(spec.action_low, gym.action_space.low)
    np.testing.assert_array_equal(spec.action_high, gym.action_space.high)
    assert spec.max_episode_steps == gymnasium.spec(task_id).max_episode_steps == 1000
    assert (task.frame_skip, task.dt) == (gym.frame_skip, gym.dt)
    model = load_model(task)
    for name in "body_mass body_inertia geom_friction dof_damping dof_armature actuator_gear".split():
        np.testing.assert_array_equal(getattr(model, name), getattr(gym.model, name), err_msg=name)


@pytest.mark.parametrize("task_id", ["Swimmer-v5", "InvertedDoublePendulum-v5"])
def test_the_time_limit_truncates_at_1000(task_id: str) -> None:
    env = NativeVectorEnv(task_id, keys_of(2))
    env.reset()
    state = env.get_state()
    state["elapsed"][:] = [998, 0]
    env.set_state(state)
    still = np.zeros((2, env.spec.action_size), np.float32)
    first, second, third = run(env, [still] * 3)
    env.close()
    assert not first.truncated.any() and not first.terminated.any()
    assert second.truncated.tolist() == [True, False] and not second.terminated.any()
    assert not third.truncated.any()
    assert env._elapsed.tolist() == [1, 3]


@newest(TASKS)
def test_an_ended_episode_gives_its_true_last_observation_and_the_first_of_the_next(task_id: str) -> None:
    keys = keys_of(2)
    short, long = NativeVectorEnv(task_id, keys, max_episode_steps=3), NativeVectorEnv(task_id, keys)
    assert short.spec.max_episode_steps == 3
    np.testing.assert_array_equal(short.reset(), long.reset())
    still = [np.zeros((2, short.spec.action_size), np.float32)] * 3
    cut, uncut = run(short, still), run(long, still)
    assert_same(cut[:2], uncut[:2])
    assert cut[2].truncated.all() and not cut[2].terminated.any() and not uncut[2].truncated.any()
    np.testing.assert_array_equal(cut[2].next_obs, uncut[2].next_obs)
    np.testing.assert_array_equal(cut[2].reward, uncut[2].reward)
    np.testing.assert_array_equal(cut[2].obs, long.reset())  # the second episode of the same streams
    for step in cut[:2]:
        np.testing.assert_array_equal(step.obs, step.next_obs)
    assert all(array.dtype == kind for array, kind in zip(cut[0], ("f4", "f4", "?", "?", "f4"), strict=True))
    short.close()
    long.close()


def test_termination_on_the_last_step_is_not_truncation() -> None:
    env = NativeVectorEnv("Hopper-v5", keys_of(1), max_episode_steps=1)
    env.reset()
    state = env.get_state()
    state["physics"][0, 1 + 2] = 1.0  # the torso leans by more than 0.2
    env.set_state(state)
    step = env.step(np.zeros((1, 3), np.float32))
    env.close()
    assert step.terminated[0] and not step.truncated[0]


@newest(TASKS)
def test_neighbours_and_threads_change_nothing(task_id: str) -> None:
    keys = keys_of(7)
    many, threaded = NativeVectorEnv(task_id, keys, 40, 1), NativeVectorEnv(task_id, keys, 40, 2)
    alone = NativeVectorEnv(task_id, keys[4:5], 40, 1)
    np.testing.assert_array_equal(many.reset(), threaded.reset())
    np.testing.assert_array_equal(many._observe()[4:5], alone.reset())
    acts = list(actions(many, 60))
    reference = run(many, acts)
    assert_same(run(threaded, acts), reference)
    assert_same(run(alone, [a[4:5] for a in acts]), reference, rows=slice(4, 5))
    assert any(step.truncated[4] or step.terminated[4] for step in reference)  # so later episodes agree too
    for env in (many, threaded, alone):
        env.close()


@newest(TASKS)
def test_a_restored_state_continues_bit_for_bit(task_id: str) -> None:
    env = NativeVectorEnv(task_id, keys_of(3), 50)
    env.reset()
    acts = list(actions(env, 75))
    last = run(env, acts[:25])[-1]
    state = env.get_state()
    reference = run(env, acts[25:])  # resets on the way
    assert any(step.truncated.any() or step.terminated.any() for step in reference)

    fresh = NativeVectorEnv(task_id, keys_of(3), 50)
    for other in (fresh, env):  # one that never ran, and one that has moved on
        np.testing.assert_array_equal(other.set_state(state), last.obs)
        assert_same(run(other, acts[25:]), reference)
        other.close()


@ONE_OF_EACH_KIND
def test_restart_starts_only_what_the_mask_says(task_id: str) -> None:
    env, other = NativeVectorEnv(task_id, keys_of(3)), NativeVectorEnv(task_id, keys_of(3))
    env.reset()
    other.reset()
    second = other.reset()
    (step,) = run(env, list(actions(env, 1)))
    obs = env.restart(np.array([False, True, False]))
    np.testing.assert_array_equal(obs[[0, 2]], step.obs[[0, 2]])
    np.testing.assert_array_equal(obs[1], second[1])
    assert env._elapsed.tolist() == [1, 0, 1] and env.faults() == {}
    assert (env.get_state()["physics"][:, 0] > 0).tolist() == [True, False, True]  # MuJoCo's time starts anew
    env.close()
    other.close()


@ONE_OF_EACH_KIND
def test_a_state_of_another_shape_is_refused(task_id: str) -> None:
    env = NativeVectorEnv(task_id, keys_of(2))
    state = env.get_state()
    with pytest.raises(CheckpointError, match="not a state of 2"):
        env.set_state({**state, "physics": state["physics"][:1]})
    with pytest.raises(CheckpointError, match="elapsed"):
        env.set_state({name: value for name, value in state.items() if name != "elapsed"})
    env.close()
    env.close()  # closing twice is no error


def test_the_engine_knows_its_tasks_without_importing_mujoco() -> None:
    code = """
import sys
from mcclt.envs.native import NativeVectorEnv as engine
assert engine.supports("Hopper-v5") and engine.supports("Ant-v4")
assert not any(engine.supports(task) for task in ("CartPole-v1", "Hopper", None, [], 3))
assert "mujoco" not in sys.modules and "gymnasium" not in sys.modules
"""
    subprocess.run([sys.executable, "-c", code], check=True)


def test_the_engine_runs_a_task_of_ones_own() -> None:
    class Gentle(Hopper):
        """A hopper that may lie down."""

        def reward_and_terminated(self, xp: Any, before: Any, after: Any, action: Any) -> tuple[Any, Any]:
            reward, terminated = super().reward_and_terminated(xp, before, after, action)
            return reward, xp.zeros_like(terminated)

    task = Gentle(max_episode_steps=77)
    assert NativeVectorEnv.supports(task)
    env = NativeVectorEnv(task, keys_of(2), None, 1)
    env.reset()
    assert (env.spec.task, env.spec.max_episode_steps) == ("Gentle", 77)
    assert not any(step.terminated.any() for step in run(env, list(actions(env, 60))))
    env.close()


def test_mistakes_are_explained() -> None:
    with pytest.raises(ConfigError, match=r"No MJCF file 'none\.xml'"):
        NativeVectorEnv(replace(TASKS["Hopper-v5"], xml="none.xml"), keys_of(1))
    with pytest.raises(ConfigError, match=r"dt is 0\.1, but"):
        NativeVectorEnv(replace(TASKS["Hopper-v5"], dt=0.1), keys_of(1))


def test_loading_half_cheetah_is_silent(
    capfd: pytest.CaptureFixture[str], recwarn: pytest.WarningsRecorder, tmp_path: Path
) -> None:
    with contextlib.chdir(tmp_path):
        load_model(HalfCheetah())
    assert capfd.readouterr().err == "" and not recwarn.list
    assert not list(tmp_path.iterdir())  # nor a MUJOCO_LOG.TXT


@pytest.mark.parametrize("task_id", ["Hopper-v5", "Ant-v5"])
def test_the_time_of_the_simulator_alone_is_measured(task_id: str) -> None:
    env = NativeVectorEnv(task_id, keys_of(4), None, 1)
    env.reset()
    start = time.perf_counter()
    run(env, list(actions(env, 5)))
    assert 0 < env.physics_seconds < time.perf_counter() - start
    env.close()
