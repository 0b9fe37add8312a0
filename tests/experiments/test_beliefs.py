"""What critics believe: bars beside normals, and spreads over an episode."""

import dataclasses
import math

import numpy as np
import pytest
from scipy import stats as scipy_stats

from mcclt.experiments.analysis import beliefs, stats
from mcclt.experiments.results import Results, gather
from mcclt.experiments.setups import make_setup
from synthetic import make_result, make_series


def rng() -> np.random.Generator:
    return np.random.default_rng(0)


def episode(t: list[float], std: list[float | None]) -> dict:
    return {"episode": {"t": t, "std": std}}


def test_exactly_normal_bars():
    _, z = beliefs.normal_bars(200)
    found = beliefs.normality(50 - 7 * z)  # in any order
    np.testing.assert_allclose([found.mean, found.std, found.correlation], [50, 7, 1])
    assert found.distance < 1e-12


def test_uneven_bars_by_hand():
    # N = 3: τ = ¼, ½, ¾ and Z = ∓0.67449, 0; the bars 0, 1, 5 have mean 2 and standard deviation √(14/3).
    found = beliefs.normality(np.array([5.0, 0.0, 1.0]))
    std = np.sqrt(14 / 3) / (0.6744898 * np.sqrt(2 / 3))
    np.testing.assert_allclose([found.mean, found.std], [2, std], rtol=1e-6)
    np.testing.assert_allclose(found.correlation, 25 / 28)  # (5 z)² / (14 · 2 z²)
    np.testing.assert_allclose(found.distance, 0.10061, atol=1e-5)  # at the bar 1: ½ − Φ(−1/3.92261)


def test_bars_without_spread():
    found = beliefs.normality(np.full(8, 3.0))
    assert found.mean == 3 and found.std == 0 and np.isnan([found.correlation, found.distance]).all()


def test_smoothing_forgets_by_time():
    t = np.array([0.0, 10, 30])
    out = beliefs.smooth(t, np.array([1.0, 0, 0]), steps=10)
    np.testing.assert_allclose(out, [1, np.exp(-1), np.exp(-3)])


def test_std_over_episode_ends_with_half_of_the_seeds():
    series = make_series("ensemble", [episode([0, 50, 100], [2, 2, 2]), episode([0, 400], [4, 4]), {}])
    t, rows = beliefs.std_over_episode(series, points=5)
    np.testing.assert_array_equal(t, [0, 100, 200, 300, 400])
    np.testing.assert_array_equal(rows, [[2, 2, np.nan, np.nan, np.nan], [4, 4, 4, 4, 4]])
    three = make_series("ensemble", [episode([0, 100], [1, 1])] * 2 + [episode([0, 400], [1, 1])])
    assert beliefs.std_over_episode(three, points=5)[0][-1] == 100
    assert len(beliefs.std_over_episode(make_series("ensemble", [{}]))[0]) == 0


def test_trend():
    # Lines with means 10 and 20 that rise by 2 and 12 over the episode: 20 % and 60 % of the mean.
    t = np.arange(0, 300, 100)
    rising = [episode(t, 9 + 0.01 * t), episode(t, 14 + 0.06 * t)]

    def trend(*probes):
        return beliefs.trends(Results((make_series("ensemble", list(probes)),)), "ensemble").get(("Hopper-v4", "ppo"))

    found = trend(*rising)
    half = 12.7062 * np.std([0.2, 0.6], ddof=1) / np.sqrt(2)
    np.testing.assert_allclose([found.change.mean, found.change.low], [0.4, 0.4 - half], rtol=1e-4)
    assert found.sign == 0 and str(found).startswith("undecided +40%")
    nearly = [episode(t, std + 0.001 * np.sin(k * t)) for k, std in enumerate([9 + 0.01 * t] * 3)]
    assert trend(*nearly).sign == 1 and str(trend(*nearly)).startswith("grows +20%")
    assert trend(*(episode(p["episode"]["t"], 20 - p["episode"]["std"]) for p in nearly)).sign == -1
    one = trend(rising[0])
    assert one.sign == 0 and str(one) == "undecided +20%"
    assert trend(episode([0, 1, 2], [None] * 3)) is None


def test_trends_are_holms():
    # p = 0.03 by itself is nothing among eight settings of the same kind.
    rng, t = np.random.default_rng(0), np.arange(0, 300, 100)
    tasks = ("Hopper", "Ant", "Swimmer", "Walker2d")
    series = []
    for task in tasks:
        setup = make_setup(task, "ppo", "ensemble", "authors")
        slopes = 0.01 + 0.012 * rng.normal(size=5)
        made = [make_result(setup, seed, 1.0) for seed in range(5)]
        probed = [dataclasses.replace(r, probe=episode(t, 10 + s * t)) for r, s in zip(made, slopes, strict=True)]
        series += gather(probed, {setup.key: setup.settings}).series
    found = beliefs.trends(Results(tuple(series)), "ensemble")
    alone = [beliefs.trends(Results((s,)), "ensemble")[s.task, "ppo"].p for s in series]
    np.testing.assert_allclose([f.p for f in found.values()], stats.holm(alone))


@pytest.mark.parametrize("n", [4, 5, 8])
def test_error_is_the_projects_own(n):
    from mcclt.method.normal import fit_normal, normality_error

    bars = np.sort(np.random.default_rng(n).normal(size=n)) * 20 + 100
    parts = beliefs.error_parts(bars)
    mean, sigma, _ = fit_normal(bars.astype(np.float32))
    np.testing.assert_allclose([parts.mean, parts.sigma], [mean, sigma], rtol=1e-4)
    np.testing.assert_allclose(parts.error, normality_error(bars.astype(np.float32)), rtol=1e-2)


def test_error_by_hand():
    # N = 3, Z = −z, 0, z with z = 0.67449: the bars −1, 0, 4 have mean 1, σ = 2/z and 3/z, 2.5/z on average,
    # so that the normal's bars are −1.5, 1, 3.5 and E = ¼ + 1 + ¼.
    parts = beliefs.error_parts(np.array([-1.0, 0.0, 4.0]))
    np.testing.assert_allclose(parts.sigmas * 0.6744898, [2, np.nan, 3], rtol=1e-6)
    np.testing.assert_allclose(parts.guide, [-1.5, 1, 3.5])
    assert parts.error == pytest.approx(1.5)


def test_relative_change_by_hand():
    # 10 → 30 in a straight line: slope·range = 20, mean 20, so 1; the point that is no number is left out.
    assert beliefs.relative_change(np.array([0, 1, 2, 3, 4]), np.array([10, 15, 20, math.nan, 30])) == pytest.approx(
        20 / 18.75
    )
    t = np.arange(50.0)
    y = 5 - 0.05 * t + rng().normal(size=50)
    assert beliefs.relative_change(t, y) == pytest.approx(np.polyfit(t, y, 1)[0] * 49 / y.mean())
    assert math.isnan(beliefs.relative_change(t[:2], y[:2]))
    assert math.isnan(beliefs.relative_change(np.zeros(5), np.ones(5)))


def test_normal_distance_in_closed_form():
    n = 200
    tau = np.arange(1, n + 1) / (n + 1)
    assert beliefs.normal_distance(5 + 3 * scipy_stats.norm.ppf(tau)) == pytest.approx(0, abs=1e-12)
    many = np.arange(1, 200_001) / 200_001
    assert beliefs.normal_distance(many) == pytest.approx(1 - 3 / math.pi, abs=1e-4)
    # Exponential: cov(Z, −ln(1 − Φ(Z))) = ∫ φ²/(1 − Φ) dz = 0.903197, variance 1.
    assert beliefs.normal_distance(-np.log(1 - many)) == pytest.approx(1 - 0.903197**2, abs=2e-3)


def test_normal_distance_against_scipy_and_shapes():
    bars = rng().normal(size=(2, 3, 8))
    z = scipy_stats.norm.ppf(np.arange(1, 9) / 9)
    expected = [[1 - scipy_stats.pearsonr(np.sort(b), z).statistic ** 2 for b in row] for row in bars]
    np.testing.assert_allclose(beliefs.normal_distance(bars), expected)
    assert math.isnan(beliefs.normal_distance(np.full(8, 2.0)))
    assert math.isnan(beliefs.normal_distance(np.array([1.0, math.nan, 2.0])))
