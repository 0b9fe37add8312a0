from typing import Any

import jax
import numpy as np
import pytest

from mcclt.config import AgentConfig
from mcclt.envs import make_vec
from mcclt.method.nets import Categorical, Gaussian
from mcclt.method.randomness import Purpose, stream
from mcclt.training.collect import EpisodeStats, FaultError, collect, to_env_action
from probes import Counter, NanStart, Noisy, RaisingStart, counter_length, factory
from trees import assert_same, one_of

LONGEST = 30


def keys(seeds: tuple[int, ...], n_envs: int) -> list[tuple[int, ...]]:
    return [(s, 4, 0, e) for s in seeds for e in range(n_envs)]


class Setup:
    """A population with random policies in a vector environment."""

    def __init__(self, task: Any, seeds: tuple[int, ...] = (0, 1), n_envs: int = 2, scale: float = 1.0) -> None:
        self.env = make_vec(task, keys(seeds, n_envs))
        self.seeds, self.n_envs, spec = seeds, n_envs, self.env.spec
        self.policy: Any = Categorical(spec.action_size, (4,)) if spec.discrete else Gaussian(spec.action_size, (4,))
        settings = AgentConfig(log_std_init=float(np.log(scale)))
        each = [self.policy.init(stream(s, Purpose.POLICY_INIT), spec.obs_size, settings) for s in seeds]
        self.params = jax.tree.map(lambda *x: np.stack(x), *each)
        self.stats = EpisodeStats.empty(len(seeds), n_envs)
        self.obs = self.env.reset().reshape(len(seeds), n_envs, -1)
        self.round = 0

    def collect(self, horizon: int, raise_faults: bool = True):
        keys = [stream(s, Purpose.ACTION_NOISE, self.round) for s in self.seeds]
        drawn = np.stack([self.policy.noise(key, (LONGEST, self.n_envs)) for key in keys])  # compiled for one length
        self.round += 1
        rollout, self.obs, faults = collect(
            self.env, self.policy, self.params, self.obs, drawn[:, :horizon], self.stats, raise_faults
        )
        return rollout, faults


# --- what is stored ----------------------------------------------------------------------------------------


def test_transitions_line_up() -> None:
    """Worked out by hand from what `Counter` does: episodes of 3 (terminated) and 5 (truncated) steps in turn."""
    setup = Setup(Counter)
    rollouts = [setup.collect(7)[0], setup.collect(6)[0]]  # 13 steps: the second goes on where the first stopped
    obs, reward, terminated, truncated, next_obs = (
        np.concatenate([getattr(r, name) for r in rollouts], axis=1)
        for name in "obs reward terminated truncated next_obs".split()
    )
    assert obs.shape == next_obs.shape == (2, 13, 2, 2) and reward.shape == (2, 13, 2)
    t, episode = 0, 0
    for i in range(13):
        last = t + 1 == counter_length(episode)
        assert (obs[:, i] == [t, episode]).all()
        assert (next_obs[:, i] == [t + 1, episode]).all(), "the true last observation, not the new episode's first"
        assert (reward[:, i] == t + 1).all()
        assert (terminated[:, i] == (last and episode % 2 == 0)).all()
        assert (truncated[:, i] == (last and episode % 2 == 1)).all()
        t, episode = (0, episode + 1) if last else (t + 1, episode)
    assert (setup.obs == [t, episode]).all()


def test_episode_statistics() -> None:
    setup = Setup(Counter)
    setup.collect(12)  # episodes of 3, 5, 3 steps and 1 step of the next
    for a in range(2):
        # Two environments, each with returns 1+2+3 and 1+...+5.
        assert list(setup.stats.returns[a]) == [6, 6, 15, 15, 6, 6]
        assert list(setup.stats.lengths[a]) == [3, 3, 5, 5, 3, 3]
    assert (setup.stats.running == 1).all() and (setup.stats.length == 1).all()


def test_statistics_survive_a_round_trip() -> None:
    setup = Setup(Counter)
    setup.collect(12)
    again = EpisodeStats.from_arrays(setup.stats.to_arrays(), setup.stats.first_cuts)
    assert again.returns == setup.stats.returns and again.lengths == setup.stats.lengths
    assert type(again.lengths[0][0]) is int
    assert (again.running == setup.stats.running).all() and (again.length == setup.stats.length).all()
    assert again.returns[0].maxlen == setup.stats.returns[0].maxlen
    again.add(np.ones((2, 2)), np.ones((2, 2), bool), np.zeros((2, 2), bool))
    assert setup.stats.running[0, 0] == 1, "not shared memory"


def test_only_recent_episodes_count() -> None:
    stats = EpisodeStats.empty(1, 1)
    for i in range(150):
        stats.add(np.full((1, 1), float(i)), np.ones((1, 1), bool), np.zeros((1, 1), bool))
    assert list(stats.returns[0]) == list(range(50, 150))
    assert EpisodeStats.from_arrays(stats.to_arrays(), stats.first_cuts).returns == stats.returns


def test_actions_are_clipped_towards_the_environment_only() -> None:
    Counter.actions.clear()
    setup = Setup(Counter, scale=3.0)
    rollout, _ = setup.collect(4)
    stored = np.asarray(rollout.action)  # [A, T, E, D]
    assert (np.abs(stored) > 0.25).mean() > 0.5, "stored as drawn"
    sent = np.array(Counter.actions).reshape(4, 2, 2, 3)  # [T, A, E, D]
    np.testing.assert_array_equal(sent, np.clip(stored, -0.25, 0.25).transpose(1, 0, 2, 3))


def test_to_env_action() -> None:
    low, high = np.array([-1.0, -np.inf], np.float32), np.array([1.0, 2.0], np.float32)
    np.testing.assert_array_equal(to_env_action(np.array([[-5.0, -5.0], [5.0, 5.0]]), low, high), [[-1, -5], [1, 2]])
    indices = np.array([7, -3])
    assert to_env_action(indices, None, None) is indices


def test_discrete_actions() -> None:
    rollout, _ = Setup("CartPole-v1").collect(30)
    assert rollout.action.dtype == np.int32 and rollout.action.shape == (2, 30, 2)
    assert set(np.unique(rollout.action)) == {0, 1}


@pytest.mark.parametrize("task", [Counter, "InvertedDoublePendulum-v5", "CartPole-v1"])
def test_an_agent_does_not_know_its_neighbours(task: Any) -> None:
    alone, among = Setup(task, (2,)), Setup(task, (0, 1, 2, 3))
    for _ in range(2):
        a, _ = alone.collect(20)
        b, _ = among.collect(20)
        assert_same(one_of(a, 0), one_of(b, 2))
    assert alone.stats.returns[0] == among.stats.returns[2]


# --- faults ------------------------------------------------------------------------------------------------

SEEDS, N_ENVS, AT = (0, 1, 2), 2, 5  # agent 1, its environment 1 has the number 3
KINDS = {
    "nan reward": "reward nan",
    "inf reward": "reward inf",
    "nan obs": "nan at index 1 of the observation",
    "-inf obs": "-inf at index 2 of the observation",
    "raise": "RuntimeError: the motor [/burns] is [out]",
}


@pytest.mark.parametrize("kind", KINDS)
def test_a_fault_is_raised_with_its_place_and_value(kind: str) -> None:
    setup = Setup(factory(kind, at=AT, which=(3,)), SEEDS, N_ENVS)
    with pytest.raises(FaultError) as caught:
        setup.collect(8)
    fault = caught.value.fault
    assert (fault.agent, fault.env, fault.step) == (1, 1, AT - 1)
    assert KINDS[kind] in fault.what
    assert fault.what.count("raised") <= 1, "says it once"


@pytest.mark.parametrize("kind", KINDS)
def test_a_fault_leaves_the_neighbours_alone(kind: str) -> None:
    healthy, spoilt = Setup(factory(), SEEDS, N_ENVS), Setup(factory(kind, at=AT, which=(3,)), SEEDS, N_ENVS)
    expected, none = healthy.collect(8)
    rollout, faults = spoilt.collect(8, raise_faults=False)
    assert none == []
    assert [(f.agent, f.env, f.step) for f in faults] == [(1, 1, AT - 1)] and KINDS[kind] in faults[0].what
    more, no_more = spoilt.collect(8, raise_faults=False)
    expected_more, _ = healthy.collect(8)
    assert no_more == []
    for got, want in ((rollout, expected), (more, expected_more)):
        for a in (0, 2):
            assert_same(one_of(got, a), one_of(want, a))
    for a in (0, 2):
        assert spoilt.stats.returns[a] == healthy.stats.returns[a]
        assert spoilt.stats.lengths[a] == healthy.stats.lengths[a]
    for buffer in (rollout.obs, rollout.reward, rollout.next_obs):
        assert np.isfinite(buffer).all(), "nothing that is not finite comes near the learner"
    assert all(np.isfinite(x).all() for x in jax.tree.leaves(more)), "the agent goes on in new episodes"


def test_lengths_are_counted_from_the_restart() -> None:
    """`Noisy` is cut after 6 steps: no episode, not even the first after a fault, is longer."""
    setup = Setup(factory("nan obs", at=AT, which=(0,)), (0,), 2)
    setup.collect(30, raise_faults=False)
    assert max(setup.stats.lengths[0]) <= 6
    assert setup.stats.length.max() < 6


def test_the_first_fault_of_each_agent_is_reported() -> None:
    setup = Setup(factory("nan reward", at=3, which=(0, 1, 4)), SEEDS, N_ENVS)
    _, faults = setup.collect(8, raise_faults=False)
    assert [(f.agent, f.env, f.step) for f in faults] == [(0, 0, 2), (2, 0, 2)]


def test_large_numbers_are_no_fault() -> None:
    """Their sum overflows float32; none of them is infinite."""

    class Large(Noisy):
        def step(self, action: np.ndarray):
            obs, _, terminated, truncated, info = super().step(action)
            return obs, 3e38, terminated, truncated, info

    setup = Setup(Large)
    _, faults = setup.collect(4)
    assert faults == []


def test_infinities_of_both_signs() -> None:
    class Both(Noisy):
        def step(self, action: np.ndarray):
            obs, _, terminated, truncated, info = super().step(action)
            return obs, float("inf") if self.np_random.random() < 0.5 else float("-inf"), terminated, truncated, info

    with pytest.raises(FaultError, match="inf"):
        Setup(Both).collect(8)


@pytest.mark.parametrize("env, what", [(NanStart, "nan"), (RaisingStart, "no start")])
def test_a_bad_first_observation_is_a_fault(env: type, what: str) -> None:
    with pytest.raises(FaultError, match=what):
        Setup(env).collect(4)
    rollout, faults = Setup(env).collect(4, raise_faults=False)
    assert {f.agent for f in faults} == {0, 1}
    assert np.isfinite(rollout.obs).all()
