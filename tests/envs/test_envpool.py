"""The EnvPool engine: no dummy steps, own seeds, and Gymnasium's dynamics."""

import gymnasium as gym
import numpy as np
import pytest

pytest.importorskip("envpool")

from mcclt.envs.envpool import TASKS, EnvPoolVectorEnv
from mcclt.envs.gymnasium import GymnasiumVectorEnv
from mcclt.errors import CheckpointError

LANDER = "LunarLanderContinuous-v3"
KEYS = [(agent, 0, 0, i) for agent in (3, 4) for i in range(4)]


def make(task: str = LANDER, keys=KEYS, limit: int | None = None) -> EnvPoolVectorEnv:
    return EnvPoolVectorEnv(task, keys, limit, 2)


def run(vec, steps: int, seed: int = 0):
    """The first observation and all steps under the same random actions for each environment."""
    rng = np.random.default_rng(seed)
    first = vec.reset()
    actions = rng.uniform(-1, 1, (steps, 1, vec.spec.action_size)).astype(np.float32)
    return first, [vec.step(np.repeat(action, vec.num_envs, axis=0)) for action in actions]


@pytest.mark.parametrize("task", TASKS)
def test_spec_agrees_with_gymnasium(task):
    """Sizes, bounds and time limit."""
    pytest.importorskip("Box2D")
    spec = make(task, KEYS[:1]).spec
    theirs = GymnasiumVectorEnv(task.replace("-v2", "-v3"), KEYS[:1]).spec
    assert (spec.obs_size, spec.action_size) == (theirs.obs_size, theirs.action_size)
    assert spec.max_episode_steps == theirs.max_episode_steps == TASKS[task]
    np.testing.assert_array_equal(spec.action_low, theirs.action_low)
    np.testing.assert_array_equal(spec.action_high, theirs.action_high)


def test_no_dummy_steps():
    """Episodes follow each other without EnvPool's step of reward 0 in between."""
    vec = make()
    first, steps = run(vec, 400)
    ended = np.array([s.terminated | s.truncated for s in steps])
    assert (ended.sum(axis=0) >= 2).all()  # else this tests nothing
    rewards = np.array([s.reward for s in steps])
    assert (rewards[1:][ended[:-1]] != 0).all()  # the step after an end is a real one
    obs = first
    for step, end in zip(steps, ended, strict=True):
        np.testing.assert_array_equal(step.obs[~end], step.next_obs[~end])
        # A lander starts at the middle of the top, and falls or flies less than 0.1 in a step.
        assert (np.abs(step.obs[end, 0]) < 0.02).all() and (step.obs[end, 1] > 1.38).all()
        assert (np.abs(step.next_obs[:, :2] - obs[:, :2]) < 0.1).all()
        assert (np.abs(step.next_obs[end, :2] - step.obs[end, :2]).max(axis=1) > 0.3).all()
        obs = step.obs
    assert {str(a.dtype) for s in steps for a in (s.obs, s.reward, s.next_obs)} == {"float32"}


def test_order_and_memory():
    """Rows stay with their environments through partial resets, and arrays given out never change."""
    vec = make()
    rng = np.random.default_rng(0)
    vec.reset()
    given, copies = [], []
    for _ in range(300):
        step = vec.step(rng.uniform(-1, 1, (8, 2)).astype(np.float32))
        given.append(step)
        copies.append([a.copy() for a in step])
    for step, copy in zip(given, copies, strict=True):
        for a, b in zip(step, copy, strict=True):
            np.testing.assert_array_equal(a, b)
    np.testing.assert_array_equal(vec._pool.step(np.zeros((8, 2), np.float32))[-1]["env_id"], np.arange(8))


def test_an_agent_does_not_know_its_neighbours():
    """Agent 4 alone is agent 4 after agent 3, bit for bit, over many episodes."""
    first, steps = run(make(), 300)
    first_alone, alone = run(make(keys=KEYS[4:]), 300)
    np.testing.assert_array_equal(first[4:], first_alone)
    for ours, theirs in zip(steps, alone, strict=True):
        for a, b in zip(ours, theirs, strict=True):
            np.testing.assert_array_equal(a[4:], b)
    assert len(np.unique(first[:, 2])) == 8  # and all differ


def test_time_limit():
    """Truncated after as many steps as asked, at the true last observation; then again."""
    _, steps = run(make(limit=10), 25)
    truncated = np.array([s.truncated for s in steps])
    assert np.flatnonzero(truncated.all(axis=1)).tolist() == [9, 19] and truncated.sum() == 16
    assert not np.array([s.terminated for s in steps]).any()
    assert (steps[9].next_obs[:, 1] != steps[9].obs[:, 1]).all()


def test_termination_at_the_limit_is_termination():
    """EnvPool itself would call it a truncation."""
    _, steps = run(make(keys=KEYS[:1]), 300)
    length = 1 + next(t for t, s in enumerate(steps) if s.terminated[0])
    _, steps = run(make(keys=KEYS[:1], limit=length), length)
    assert steps[-1].terminated[0] and not steps[-1].truncated[0]
    _, steps = run(make(keys=KEYS[:1], limit=length - 1), length - 1)
    assert steps[-1].truncated[0] and not steps[-1].terminated[0]


def test_restart_of_some():
    """In the middle of an episode; the others go on."""
    vec, same = make(limit=20), make(limit=20)
    for v in (vec, same):
        _, steps = run(v, 5)
    which = np.arange(8) == 2
    obs = vec.restart(which)
    np.testing.assert_array_equal(obs[~which], steps[-1].obs[~which])
    assert obs[2, 1] > 1.38
    np.testing.assert_array_equal(vec.restart(np.zeros(8, bool)), obs)
    zeros = np.zeros((8, 2), np.float32)
    ours, theirs = ([v.step(zeros) for _ in range(20)] for v in (vec, same))
    for a, b in zip(ours, theirs, strict=True):
        np.testing.assert_array_equal(a.next_obs[~which], b.next_obs[~which])
    assert [int(np.argmax([s.truncated[i] for s in ours])) for i in (1, 2)] == [14, 19]


def test_discrete_actions():
    """Indices, as the learner gives them."""
    vec = make("LunarLander-v3")
    assert vec.spec.discrete and vec.spec.action_size == 4
    vec.reset()
    assert np.isfinite(vec.step(np.arange(8, dtype=np.int64) % 4).obs).all()


def test_what_it_cannot_do():
    """Each in a sentence."""
    assert not EnvPoolVectorEnv.supports("Hopper-v5") and not EnvPoolVectorEnv.supports(gym.Env)
    vec = make()
    assert vec.faults() == {} and not vec.spec.resumable
    with pytest.raises(CheckpointError, match="cannot be saved"):
        vec.get_state()
    with pytest.raises(CheckpointError, match="cannot be restored"):
        vec.set_state({})


def landing(obs: np.ndarray) -> np.ndarray:
    """A lander that lands: Gymnasium's own heuristic for continuous actions, on a batch."""
    x, y, vx, vy, angle, spin, left, right = obs.T
    legs = (left + right) > 0
    turn = np.where(legs, 0, (np.clip(0.5 * x + vx, -0.4, 0.4) - angle) * 0.5 - spin)
    push = np.where(legs, -vy * 0.5, (0.55 * np.abs(x) - y) * 0.5 - vy * 0.5)
    return np.clip(np.stack([push * 20 - 1, -turn * 20], axis=1), -1, 1)


def walking():
    """Gymnasium's own heuristic for the walker; it remembers, so there is one per environment."""
    from gymnasium.envs.box2d.bipedal_walker import BipedalWalkerHeuristics

    walkers = [BipedalWalkerHeuristics() for _ in range(COUNT)]
    return lambda obs: np.stack([walker.step_heuristic(row) for walker, row in zip(walkers, obs, strict=True)])


COUNT = 24


def episodes(vec, policy) -> tuple[np.ndarray, np.ndarray]:
    """Return and length of each environment's first episode (the first to end would favour short ones)."""
    obs = vec.reset()
    total, length, alive = np.zeros(COUNT), np.zeros(COUNT), np.ones(COUNT, bool)
    while alive.any():
        step = vec.step(policy(obs).astype(np.float32))
        total += np.where(alive, step.reward, 0)
        length += alive
        alive &= ~(step.terminated | step.truncated)
        obs = step.obs
    return total, length


@pytest.mark.parametrize(("task", "policy"), [(LANDER, lambda: landing), ("BipedalWalker-v3", walking)])
def test_dynamics_agree_with_gymnasium(task, policy):
    """Return and length under the same feedback policy, their means within four standard errors."""
    pytest.importorskip("Box2D")
    keys = [(0, 0, 0, i) for i in range(COUNT)]
    ours = episodes(make(task, keys, 300), policy())
    theirs = episodes(GymnasiumVectorEnv(task, keys, 300), policy())
    for a, b in zip(ours, theirs, strict=True):
        assert abs(a.mean() - b.mean()) < 4 * np.sqrt((a.var(ddof=1) + b.var(ddof=1)) / COUNT)
