"""Advantages and returns against plain NumPy loops and closed forms."""

import jax
import numpy as np
import pytest

from mcclt.method import advantages

gae, monte_carlo, td_target = map(jax.jit, (advantages.gae, advantages.monte_carlo, advantages.td_target))
GAMMA, LAMBDA = 0.9, 0.8


def random_rollout(seed=0, t=12, e=3):
    """Values of a rollout whose inner successors are the next rows' states, as in a real one."""
    rng = np.random.default_rng(seed)
    reward, value = rng.normal(size=(2, t, e))
    terminated = rng.random((t, e)) < 0.2
    truncated = (rng.random((t, e)) < 0.2) & ~terminated
    next_value = np.where(
        terminated | truncated, rng.normal(size=(t, e)), np.roll(value, -1, axis=0)
    )  # a cut state's value is that of its true successor, not of the next row
    next_value[-1] = rng.normal(size=e)
    assert terminated.any() and truncated.any() and not (terminated | truncated)[-1].all()
    return reward, value, next_value, terminated, truncated


def loop(reward, value, next_value, terminated, truncated, gamma, lam):
    """GAE by the book, one environment and one step at a time, in float64."""
    advantage = np.zeros_like(reward)
    for j in range(reward.shape[1]):
        running = 0.0
        for i in reversed(range(reward.shape[0])):
            bootstrap = 0.0 if terminated[i, j] else next_value[i, j]
            delta = reward[i, j] + gamma * bootstrap - value[i, j]
            if terminated[i, j] or truncated[i, j]:
                running = 0.0
            running = delta + gamma * lam * running
            advantage[i, j] = running
    return advantage


def float32(*arrays):
    return tuple(a if a.dtype == bool else a.astype(np.float32) for a in arrays)


def full(shape, value):
    return np.full(shape, value, np.float32)


@pytest.mark.parametrize("lam", [0.0, LAMBDA, 1.0])
def test_gae_against_a_loop(lam):
    data = random_rollout()
    reward, value, next_value, terminated, truncated = float32(*data)
    td_error = np.asarray(td_target(reward, next_value, terminated, GAMMA)) - value
    got = gae(td_error, terminated, truncated, GAMMA, lam)
    np.testing.assert_allclose(got, loop(*data, GAMMA, lam), rtol=1e-5, atol=1e-5)


def test_td_target():
    # r + γV' = 1 + 0.9·10 = 10 alive; 1 after termination, even where the network says 10.
    got = td_target(full((1, 2), 1), full((1, 2), 10), np.array([[False, True]]), GAMMA)
    np.testing.assert_allclose(got, [[10.0, 1.0]], rtol=1e-6)


def test_closed_form_of_a_constant_task():
    # r = 1, V = v everywhere, no end: δ = 1 + γv − v = 1 − 0.1·4 = 0.6, and with k = T − t steps left
    # Â_t = δ (1 − (γλ)^k)/(1 − γλ) = 0.6 (1 − 0.72^k)/0.28.
    t, v = 6, 4.0
    reward, off = full((t, 1), 1), np.zeros((t, 1), bool)
    td_error = np.asarray(td_target(reward, full((t, 1), v), off, GAMMA)) - np.float32(v)
    left = t - np.arange(t)
    np.testing.assert_allclose(gae(td_error, off, off, GAMMA, LAMBDA)[:, 0], 0.6 * (1 - 0.72**left) / 0.28, rtol=1e-5)
    # v = r/(1 − γ) = 10 is the true value: no advantage anywhere, and the Monte-Carlo return is 10 everywhere,
    # because the end of the rollout bootstraps.
    np.testing.assert_allclose(monte_carlo(reward, full((t, 1), 10), off, off, GAMMA), full((t, 1), 10), rtol=1e-5)


def test_ends_by_hand():
    # Three steps, reward 1, V = 2 everywhere, V' = 5; γ = .9, λ = .8, γλ = .72. The middle step ends.
    # Columns: termination, truncation, no end.
    # δ alive = 1 + 4.5 − 2 = 3.5; δ terminated = 1 − 2 = −1.
    # Â_2 = 3.5; Â_1 = −1 | 3.5 | 3.5 + .72·3.5 = 6.02; Â_0 = 3.5 + .72·Â_1 = 2.78 | 6.02 | 7.8344.
    terminated, truncated = np.zeros((2, 3, 3), bool)
    terminated[1, 0] = truncated[1, 1] = True
    reward, next_value = full((3, 3), 1), full((3, 3), 5)
    td_error = np.asarray(td_target(reward, next_value, terminated, GAMMA)) - np.float32(2)
    np.testing.assert_allclose(
        gae(td_error, terminated, truncated, GAMMA, LAMBDA),
        [[2.78, 6.02, 7.8344], [-1.0, 3.5, 6.02], [3.5, 3.5, 3.5]],
        rtol=1e-5,
    )
    # G_2 = 1 + .9·5 = 5.5; G_1 = 1 | 5.5 | 1 + .9·5.5 = 5.95; G_0 = 1 + .9·G_1 = 1.9 | 5.95 | 6.355.
    np.testing.assert_allclose(
        monte_carlo(reward, next_value, terminated, truncated, GAMMA),
        [[1.9, 5.95, 6.355], [1.0, 5.5, 5.95], [5.5, 5.5, 5.5]],
        rtol=1e-5,
    )


def test_both_ends_at_once_is_a_termination():
    both = np.ones((1, 1), bool)
    got = monte_carlo(full((1, 1), 1), full((1, 1), 5), both, both, GAMMA)
    np.testing.assert_allclose(got, [[1.0]])


def test_monte_carlo_is_gae_one_plus_value():
    # With λ = 1 the values telescope: Â_t + V_t = r_t + γ r_{t+1} + … + γᵏ V(last).
    for seed in range(3):
        data = random_rollout(seed)
        reward, _, next_value, terminated, truncated = float32(*data)
        expected = loop(*data, GAMMA, 1.0) + data[1]
        got = monte_carlo(reward, next_value, terminated, truncated, GAMMA)
        np.testing.assert_allclose(got, expected, rtol=1e-4, atol=1e-5)
