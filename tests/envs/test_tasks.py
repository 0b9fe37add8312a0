"""The tasks' array functions against Gymnasium's own, state by state."""

import functools
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy import stats

from mcclt.envs.tasks import TASKS, Physics, Task
from references import gym_env, newest

EVERY_TASK = pytest.mark.parametrize("task_id", TASKS)


def physics_of(env: Any, task: Task) -> Physics:
    """What Gymnasium's environment sees now, as a batch of one."""
    data = env.data
    return Physics(
        data.qpos[None].copy(),
        data.qvel[None].copy(),
        {k: getattr(data, k)[None].copy() for k in task.derived},
    )


def batch(rows: list[Physics]) -> Physics:
    return jax.tree.map(lambda *leaves: np.concatenate(leaves), *rows)


def gym_terminated(env: Any) -> bool:
    """Whether Gymnasium would end the episode here."""
    if hasattr(env, "is_healthy"):
        return not env.is_healthy
    return bool("Pendulum" in type(env).__name__ and env.data.site_xpos[0][2] <= 1)


def random_states(task_id: str, n: int, seed: int = 0) -> tuple[Physics, np.ndarray, np.ndarray]:
    """States near and far from the start: their physics, Gymnasium's observations and terminations."""
    env, task, rng = gym_env(task_id), TASKS[task_id], np.random.default_rng(seed)
    rows, obs, terminated = [], [], []
    env.reset(seed=seed)
    for k in range(n):
        far = rng.choice([0.05, 0.5, 2.0])  # healthy ranges are narrow for some tasks and wide for others
        env.set_state(
            env.init_qpos + far * rng.standard_normal(env.model.nq),
            rng.choice([1, 15, 60]) * rng.standard_normal(env.model.nv),
        )
        if k % 2:  # forces and stale kinematics as after a step
            env._step_mujoco_simulation(rng.uniform(-1, 1, env.model.nu), 1)
        rows.append(physics_of(env, task))
        obs.append(env._get_obs())
        terminated.append(gym_terminated(env))
    return batch(rows), np.array(obs), np.array(terminated)


@EVERY_TASK
def test_observation_and_termination_of_any_state_are_gymnasiums(task_id: str) -> None:
    physics, obs, terminated = random_states(task_id, 200)
    task, action = TASKS[task_id], np.zeros((200, gym_env(task_id).model.nu))
    np.testing.assert_allclose(task.observe(np, physics), obs, rtol=1e-15, atol=1e-15)
    np.testing.assert_array_equal(task.reward_and_terminated(np, physics, physics, action)[1], terminated)
    if not task_id.startswith(("HalfCheetah", "Swimmer")):
        assert 0 < terminated.sum() < 200, "the states should try both outcomes"


@pytest.mark.parametrize("version", [4, 5])
@pytest.mark.parametrize(
    ("name", "field", "index", "edge"),
    [
        ("Hopper", "qpos", 1, 0.7),
        ("Hopper", "qpos", 2, 0.2),
        ("Hopper", "qpos", 2, -0.2),
        ("Hopper", "qpos", 3, 100.0),
        ("Hopper", "qvel", 0, -100.0),
        ("Walker2d", "qpos", 1, 0.8),
        ("Walker2d", "qpos", 1, 2.0),
        ("Walker2d", "qpos", 2, 1.0),
        ("Walker2d", "qpos", 2, -1.0),
        ("Ant", "qpos", 2, 0.2),
        ("Ant", "qpos", 2, 1.0),
        ("InvertedDoublePendulum", "site_xpos", (0, 2), 1.0),
    ],
)
def test_the_edges_of_health_are_gymnasiums(name: str, version: int, field: str, index: Any, edge: float) -> None:
    env, task = gym_env(f"{name}-v{version}"), TASKS[f"{name}-v{version}"]
    env.reset(seed=0)
    outcomes = []
    for value in (np.nextafter(edge, -np.inf), edge, np.nextafter(edge, np.inf)):
        getattr(env.data, field)[index] = value
        physics = physics_of(env, task)
        ended = task.reward_and_terminated(np, physics, physics, np.zeros((1, env.model.nu)))[1][0]
        assert ended == gym_terminated(env), value
        outcomes.append(bool(ended))
    assert len(set(outcomes)) == 2, "the edge should be one"


@EVERY_TASK
def test_a_state_that_is_no_number_ends_an_episode_as_in_gymnasium(task_id: str) -> None:
    env, task = gym_env(task_id), TASKS[task_id]
    env.reset(seed=0)
    physics = physics_of(env, task)
    env.data.qvel[-1] = physics.qvel[0, -1] = np.nan
    action = np.zeros((1, env.model.nu))
    assert task.reward_and_terminated(np, physics, physics, action)[1][0] == gym_terminated(env)


@newest(TASKS)
def test_jax_and_numpy_agree(task_id: str) -> None:
    before, _, _ = random_states(task_id, 50, seed=1)
    after, _, _ = random_states(task_id, 50, seed=2)
    task = TASKS[task_id]
    action = np.random.default_rng(0).uniform(-1, 1, (50, gym_env(task_id).model.nu))
    obs = task.observe(np, after)
    reward, terminated = task.reward_and_terminated(np, before, after, action)

    single = jax.tree.map(lambda x: jnp.asarray(x, jnp.float32), (before, after, action))
    jax_obs = jax.jit(functools.partial(task.observe, jnp))(single[1])
    jax_reward, jax_terminated = jax.jit(functools.partial(task.reward_and_terminated, jnp))(*single)
    np.testing.assert_allclose(jax_obs, obs, rtol=1e-5, atol=1e-5)
    # A velocity is a difference of positions over dt, so float32 loses about eps |x| / dt.
    np.testing.assert_allclose(jax_reward, reward, rtol=1e-5, atol=1e-6 * (1 + abs(before.qpos).max()) / task.dt)
    np.testing.assert_array_equal(jax_terminated, terminated)
    assert jax_terminated.dtype == bool


@newest(TASKS)
def test_resets_are_distributed_as_gymnasiums(task_id: str) -> None:
    env, task, rng = gym_env(task_id), TASKS[task_id], np.random.default_rng(0)
    env.reset(seed=1)
    theirs, ours = [], []
    for _ in range(500):
        env.reset_model()
        theirs.append(env.state_vector())
        ours.append(np.concatenate(task.reset(rng, env.init_qpos, env.init_qvel)))
    theirs, ours = np.array(theirs), np.array(ours)
    p_values = stats.ks_2samp(ours, theirs, axis=0).pvalue
    assert p_values.min() > 0.001 / ours.shape[1]  # Bonferroni over the coordinates
    # Positions are uniform: both fill the same interval and never leave it.
    nq = env.model.nq
    scale = 5e-3 if task_id.startswith(("Hopper", "Walker")) else 0.1
    for sample in (ours, theirs):
        offset = abs(sample[:, :nq] - env.init_qpos)
        assert (offset <= scale).all()
        assert (offset.max(axis=0) > 0.95 * scale).all()


@EVERY_TASK
def test_resets_equal_gymnasiums_draw_for_draw(task_id: str) -> None:
    env, task = gym_env(task_id), TASKS[task_id]
    env.np_random = np.random.default_rng([3, 4])
    env.reset()
    qpos, qvel = task.reset(np.random.default_rng([3, 4]), env.init_qpos, env.init_qvel)
    np.testing.assert_array_equal(np.concatenate([qpos, qvel]), env.state_vector())
