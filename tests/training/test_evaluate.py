import gymnasium as gym
import numpy as np
import pytest
from gymnasium import spaces

from mcclt.envs import make_vec
from mcclt.training.evaluate import run_episodes
from probes import Counter, counter_length, factory


def zeros(obs: np.ndarray) -> np.ndarray:
    return np.zeros((*obs.shape[:2], 3), np.float32)


def counter_return(episode: int) -> int:
    return sum(range(1, counter_length(episode) + 1))


@pytest.mark.parametrize("agents, n_envs, episodes", [(1, 1, 1), (2, 3, 7), (3, 2, 2), (1, 4, 5), (2, 2, 8)])
def test_quotas_and_known_returns(agents: int, n_envs: int, episodes: int) -> None:
    env = make_vec(Counter, [(a, 5, 0, e) for a in range(agents) for e in range(n_envs)])
    returns, lengths, faults = run_episodes(env, zeros, agents, episodes)
    env.close()
    assert returns.shape == lengths.shape == (agents, episodes)
    assert faults == []
    # Every environment plays its first episodes, the first environments one more where it does not come out even.
    expected = [k for e in range(n_envs) for k in range(episodes // n_envs + (e < episodes % n_envs))]
    for a in range(agents):
        assert returns[a].tolist() == [counter_return(k) for k in expected]
        assert lengths[a].tolist() == [counter_length(k) for k in expected]


def test_short_episodes_do_not_count_more_often() -> None:
    """Half of the environments end after 1 step with 0, half after 9 with 9: the mean is that of the quotas."""

    class Uneven(gym.Env):
        observation_space = spaces.Box(-1, 1, (1,), np.float32)
        action_space = spaces.Discrete(2)
        made = 0

        def __init__(self) -> None:
            Uneven.made += 1
            self.length = 1 if Uneven.made % 2 else 9

        def reset(self, *, seed=None, options=None):
            super().reset(seed=seed)
            self.t = 0
            return np.zeros(1, np.float32), {}

        def step(self, action):
            self.t += 1
            return np.zeros(1, np.float32), float(self.length == 9), self.t == self.length, False, {}

    env = make_vec(Uneven, [(0, 5, 0, e) for e in range(4)])
    returns, lengths, _ = run_episodes(env, lambda obs: np.zeros(obs.shape[:2], int), 1, 8)
    env.close()
    assert sorted(returns[0].tolist()) == [0] * 4 + [9] * 4
    assert sorted(lengths[0].tolist()) == [1] * 4 + [9] * 4


def test_actions_are_clipped() -> None:
    Counter.actions.clear()
    env = make_vec(Counter, [(0, 5, 0, 0)])
    run_episodes(env, lambda obs: np.full((1, 1, 3), 9.0, np.float32), 1, 1)
    env.close()
    assert np.array(Counter.actions).max() == 0.25


def test_agents_act_for_themselves() -> None:
    seen = []

    def act(obs: np.ndarray) -> np.ndarray:
        seen.append(obs.shape)
        return np.broadcast_to(np.arange(2.0, dtype=np.float32)[:, None, None] / 10, (2, 3, 3))

    Counter.actions.clear()
    env = make_vec(Counter, [(a, 5, 0, e) for a in range(2) for e in range(3)])
    run_episodes(env, act, 2, 3)
    env.close()
    assert set(seen) == {(2, 3, 2)}
    sent = np.array(Counter.actions).reshape(-1, 2, 3, 3)
    assert (sent[:, 0] == 0).all() and (sent[:, 1] == np.float32(0.1)).all()


def test_faults_are_reported_and_are_no_returns() -> None:
    """Of two agents with two environments, the second's second environment returns NaN in its third step."""
    env = make_vec(factory("nan obs", 3, which=(3,)), [(a, 5, 0, e) for a in range(2) for e in range(2)])
    found = run_episodes(env, lambda obs: np.zeros((2, 2, 2), np.float32), 2, 2)
    env.close()
    assert np.isnan(found.returns).tolist() == [[False, False], [False, True]]
    assert [(fault.agent, fault.env) for fault in found.faults] == [(1, 1)]
    assert "nan" in found.faults[0].what


def test_two_faults_of_one_agent_in_one_step_are_no_returns() -> None:
    env = make_vec(factory("nan obs", 3, which=(0, 1)), [(0, 5, 0, e) for e in range(3)])
    found = run_episodes(env, lambda obs: np.zeros((1, 3, 2), np.float32), 1, 3)
    env.close()
    assert np.isnan(found.returns).tolist() == [[True, True, False]]
    assert [(fault.agent, fault.env) for fault in found.faults] == [(0, 0)]


def test_a_fault_after_an_environments_last_episode_does_not_count() -> None:
    """Three episodes in two environments: the first plays two of six steps, the second one, then breaks in another."""
    env = make_vec(factory("raise", 8, which=(1,)), [(0, 5, 0, e) for e in range(2)])
    found = run_episodes(env, lambda obs: np.zeros((1, 2, 2), np.float32), 1, 3)
    env.close()
    assert found.lengths.tolist() == [[6, 6, 6]] and np.isfinite(found.returns).all() and found.faults == []
