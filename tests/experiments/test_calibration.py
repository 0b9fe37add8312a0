"""Returns by hand and by brute force; CRPS, coverage and PIT against numerical integration and known normals."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.integrate import quad
from scipy.stats import norm

from mcclt.experiments.analysis import calibration


def column(*values) -> np.ndarray:
    return np.array(values)[:, None]


def test_returns_by_hand() -> None:
    # γ = ½. Steps 0-2 end in a termination: G₂ = 3, G₁ = 2 + 3/2 = 3.5, G₀ = 1 + 3.5/2 = 2.75.
    # Steps 3-4 are cut by the time limit: G₄ = 5, G₃ = 4 + 5/2 = 6.5. Step 5 by the end: G₅ = 6.
    reward = column(1.0, 2, 3, 4, 5, 6)
    terminated = column(False, False, True, False, False, False)
    truncated = column(False, False, False, False, True, False)
    returns, known = calibration.monte_carlo(reward, terminated, truncated, 0.5)
    np.testing.assert_allclose(returns[:, 0], [2.75, 3.5, 3, 6.5, 5, 6])
    np.testing.assert_array_equal(known[:, 0], [True, True, True, False, False, False])  # ½ and ¼ are not negligible


def test_when_a_cut_return_is_known() -> None:
    # γ = 0.09: what is missing weighs 0.09 at the last step, 0.0081 (negligible) one step before.
    nothing = np.zeros((4, 1), bool)
    _, known = calibration.monte_carlo(np.ones((4, 1)), nothing, nothing, 0.09)
    np.testing.assert_array_equal(known[:, 0], [True, True, True, False])
    # γ = 1: nothing is known unless the task ends.
    _, known = calibration.monte_carlo(np.ones((4, 1)), nothing, nothing, 1.0)
    assert not known.any()
    # γ = 0: all is known.
    returns, known = calibration.monte_carlo(np.arange(4.0)[:, None], nothing, nothing, 0.0)
    assert known.all() and returns[:, 0].tolist() == [0, 1, 2, 3]


@settings(deadline=None, max_examples=100)
@given(st.integers(0, 2**31), st.integers(1, 30), st.integers(1, 3), st.sampled_from([0.0, 0.3, 0.9, 0.99, 1.0]))
def test_returns_by_brute_force(seed: int, steps: int, envs: int, gamma: float) -> None:
    rng = np.random.default_rng(seed)
    reward = rng.normal(size=(steps, envs))
    terminated, truncated = (rng.random((steps, envs)) < 0.15 for _ in range(2))
    returns, known = calibration.monte_carlo(reward, terminated, truncated, gamma)
    for t in range(steps):
        for e in range(envs):
            total, k, whole = 0.0, 0, False
            for u in range(t, steps):
                total += gamma**k * reward[u, e]
                k += 1
                if terminated[u, e] or truncated[u, e]:
                    whole = terminated[u, e]
                    break
            assert returns[t, e] == pytest.approx(total, abs=1e-9)
            weight = gamma**k
            if abs(weight - calibration.NEGLIGIBLE) > 1e-9:
                assert known[t, e] == (whole or weight <= calibration.NEGLIGIBLE)


@pytest.mark.parametrize(("x", "mean", "std"), [(0, 0, 1), (3, 1, 0.5), (-2, 1, 4), (100, 0, 1)])
def test_crps_against_its_definition(x: float, mean: float, std: float) -> None:
    # ∫ (F(y) − 1[y ≥ x])² dy
    low, high = min(x, mean) - 12 * std, max(x, mean) + 12 * std
    points = sorted({x, mean})
    expected, _ = quad(lambda y: (norm.cdf(y, mean, std) - (y >= x)) ** 2, low, high, points=points, limit=500)
    assert calibration.crps_normal(np.array(x), np.array(mean), np.array(std)) == pytest.approx(expected, rel=1e-6)


def test_crps_of_a_narrow_normal_is_the_distance() -> None:
    assert calibration.crps_normal(np.array(5.0), np.array(2.0), np.array(1e-9)) == pytest.approx(3)


def made_up(scale: float = 1.0, shift: float = 0.0) -> dict:
    """Returns of N(μ, σ²) with various μ, σ, and predictions with `scale` times the spread, shifted by σ·shift."""
    rng = np.random.default_rng(0)
    mean, std = rng.normal(size=20_000) * 10, rng.uniform(0.5, 5, 20_000)
    return calibration.measure(rng.normal(mean, std), mean + shift * std, scale * std)


def test_right_normals() -> None:
    got = made_up()
    # Standard error of a share p over 20,000: √(p(1 − p)/20,000) ≤ 0.0036.
    for level in calibration.LEVELS:
        assert got["coverage"][str(level)] == pytest.approx(level, abs=0.012)
    assert got["states"] == 20_000
    np.testing.assert_allclose(got["pit"], 1 / 20, atol=0.007)
    assert sum(got["pit"]) == pytest.approx(1)
    assert got["bias"] == pytest.approx(0, abs=0.1)
    assert got["spread"] == pytest.approx(2.75, abs=0.03)
    # E CRPS of a right normal is σ/√π, E|G − μ| is σ·√(2/π): their ratio is 1/√2.
    assert got["crps"] / got["crps_point"] == pytest.approx(1 / np.sqrt(2), abs=0.01)


def test_wrong_spreads() -> None:
    right, narrow, wide = made_up(), made_up(0.5), made_up(2.0)
    # Half the spread: the 95 % interval is ±0.98 σ, which has 67.3 %; twice: ±3.92 σ, nearly all.
    assert narrow["coverage"]["0.95"] == pytest.approx(0.673, abs=0.012)
    assert wide["coverage"]["0.95"] > 0.999
    assert narrow["pit"][0] > 2 / 20 > 1 / 20 > narrow["pit"][10], "∪"
    assert wide["pit"][0] < 1 / 20 < wide["pit"][10], "∩"
    assert right["crps"] < min(narrow["crps"], wide["crps"])


def test_wrong_means() -> None:
    high = made_up(shift=1.0)
    assert high["bias"] == pytest.approx(2.75, abs=0.1)  # the mean σ
    assert high["coverage"]["0.5"] < 0.35 and high["crps"] > made_up()["crps"]
    assert high["pit"][0] > 3 / 20 > high["pit"][-1]


def test_nothing_to_judge() -> None:
    x = np.ones(3)
    assert calibration.measure(x[:0], x[:0], x[:0]) == {}
    assert calibration.measure(x, x, np.zeros(3)) == {}, "a prediction without spread"


def test_states_without_a_spread_are_left_out_and_counted():
    returns, mean = np.array([1.0, 2.0, 9.0, 9.0]), np.zeros(4)
    found = calibration.measure(returns, mean, np.array([1.0, 1.0, 0.0, 0.0]))
    assert (found["states"], found["without_normal"]) == (2, 0.5)  # 2 of 4
    assert found["crps_point"] == 1.5  # (1 + 2) / 2


def test_several_setups_count_alike_however_many_seeds_they_have() -> None:
    """CRPS: (0.5 + 0.7)/2 = 0.6 of the one, 1 of the other, in which no seed has a ratio; 0.8 of both."""
    flat, corner = np.full(20, 1 / 20), np.eye(20)[0]
    one = calibration.Calibration(dict.fromkeys(calibration.LEVELS, 0.4), np.array([0.5, 0.7]), 0.1, flat)
    other = calibration.Calibration(dict.fromkeys(calibration.LEVELS, 0.9), np.zeros(0), -0.3, corner)
    both = calibration.over([one, other])
    assert both.coverage == pytest.approx(dict.fromkeys(calibration.LEVELS, 0.65))
    assert (both.crps, both.bias) == pytest.approx((0.8, -0.1))
    assert both.pit[0] == pytest.approx(0.525) and both.pit.sum() == pytest.approx(1)
