"""Statistics against SciPy, rliable, closed forms, brute force and numbers worked by hand."""

import itertools
import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import stats as scipy_stats

from mcclt.experiments.analysis import aggregates, stats

# Two matrices [runs, tasks] and what rliable 1.2.0 gives for them (with arch 7.2.0, pandas 2.3.3, NumPy 2.4.6 and
# SciPy 1.17.1, Python 3.11; it does not import with pandas 3). Intervals: 20,000 draws.
A = np.array([[1.0, 0.2, 3.0], [2.0, 0.5, 1.0], [4.0, 0.4, 2.0], [3.5, 0.9, 2.5], [0.3, 0.7, 5.0]])
B = np.array([[1.0, 0.1, 2.0], [1.5, 0.5, 1.5], [2.0, 0.3, 2.0], [0.5, 0.8, 4.0]])
TAU = np.array([0.0, 0.5, 1.0, 2.0, 3.0])
RLIABLE_IQM_B = 1.2166666666666666
RLIABLE_IQM_B_INTERVAL = (0.85, 1.58333333)
RLIABLE_IMPROVEMENT = 0.625
RLIABLE_IMPROVEMENT_INTERVAL = (0.4, 0.83333333)
RLIABLE_PROFILE_A = [1.0, 0.7333333333333333, 0.4666666666666667, 0.3333333333333333, 0.2]


def rng() -> np.random.Generator:
    return np.random.default_rng(0)


def tasks_of(matrix: np.ndarray) -> list[np.ndarray]:
    return list(matrix.T)


def pairs_of(a: np.ndarray, b: np.ndarray) -> list[tuple[np.ndarray, np.ndarray]]:
    return list(zip(a.T, b.T, strict=True))


# --- one group -------------------------------------------------------------------------------------------------


def test_summary_by_hand():
    # 1 2 3 6: mean 3, squares 4 + 1 + 0 + 9 = 14, s² = 14/3, se = √(14/3/4) = 1.080123; t_{0.975, 3} = 3.182446.
    s = stats.summarise(np.array([1.0, 2.0, 3.0, 6.0]))
    assert (s.mean, s.n) == (3.0, 4)
    np.testing.assert_allclose([s.se, s.low, s.high], [1.080123, 3 - 3.437435, 3 + 3.437435], rtol=1e-6)


def test_summary_of_few_and_failed():
    one = stats.summarise(np.array([5.0, math.nan]))
    assert (one.mean, one.n) == (5.0, 1)
    assert all(map(math.isnan, (one.se, one.low, one.high)))
    none = stats.summarise(np.array([math.nan]))
    assert none.n == 0 and math.isnan(none.mean)


def test_pooled_se_is_too_small():
    # Two agents at 0 and 10 with three episodes each, all alike: episodes 0 0 0 10 10 10 have s² = 6·25/5 = 30, so
    # the pooled error is √(30/6) = √5, while that over seeds is |10 − 0|/2 = 5.
    returns = [np.zeros(3), np.array([10.0, 10.0, 10.0, math.nan])]
    np.testing.assert_allclose(stats.pooled_se(returns), math.sqrt(5))
    assert stats.summarise(np.array([0.0, 10.0])).se == pytest.approx(5)
    assert math.isnan(stats.pooled_se([]))


def test_p_zero_against_scipy():
    x = np.array([0.3, -0.1, 0.8, 0.4, 0.2])
    assert stats.p_zero(x) == pytest.approx(scipy_stats.ttest_1samp(x, 0).pvalue, rel=1e-10)
    assert stats.p_zero(np.array([1.0])) is None
    assert stats.p_zero(np.full(3, 0.1)) is None


# --- two groups ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("n", "m", "scale"), [(2, 2, 1.0), (5, 7, 3.0), (30, 10, 0.1)])
def test_comparison_against_scipy(n, m, scale):
    a, b = rng().normal(1, 1, n), rng().normal(0, scale, m)
    got = stats.compare(a, b)
    welch = scipy_stats.ttest_ind(a, b, equal_var=False)
    interval = welch.confidence_interval(0.95)
    np.testing.assert_allclose([got.p, got.low, got.high], [welch.pvalue, interval.low, interval.high], rtol=1e-8)
    assert got.p_rank == scipy_stats.mannwhitneyu(a, b).pvalue
    assert got.difference == pytest.approx(a.mean() - b.mean())
    assert (got.n_a, got.n_b, got.why) == (n, m, "")


def test_effect_by_hand():
    # 1 3 against 4 6 (s² = 2 both): d = −3/√2 = −2.121320; with m = 2 degrees of freedom
    # J = Γ(1)/(√1·Γ(½)) = 1/√π = 0.564190, so g = −1.196827.
    assert stats.compare(np.array([1.0, 3.0]), np.array([4.0, 6.0])).effect == pytest.approx(-1.196827, rel=1e-6)


def test_effect_is_unbiased():
    # 4 against 4 from normals one standard deviation apart: Hedges' g averages 1, Cohen's d would average 1.15.
    a, b = rng().normal(1, 1, (800, 4)), np.random.default_rng(1).normal(0, 1, (800, 4))
    assert np.mean([stats.compare(x, y).effect for x, y in zip(a, b, strict=True)]) == pytest.approx(1, abs=0.09)


@pytest.mark.parametrize(
    ("a", "b", "why"),
    [
        ([1.0], [1.0, 2.0], "A test needs at least two seeds of each: there is 1 of MC-CLT."),
        ([1.0], [], "A test needs at least two seeds of each: there is 1 of MC-CLT and 0 of ensemble."),
        ([1.0, 2.0], [math.nan], "A test needs at least two seeds of each: there are 0 of ensemble."),
        (
            [0.1] * 3,
            [0.3] * 3,
            "A test needs some spread over seeds: all of MC-CLT are equal, and so are all of ensemble.",
        ),
    ],
)
def test_no_test_says_why(a, b, why):
    got = stats.compare(np.array(a), np.array(b), "MC-CLT", "ensemble")
    assert got.why == why
    assert got.p is None and got.p_rank is None
    assert "nan" not in got.why.lower()


def test_holm_by_hand():
    # 0.01 0.04 0.03 sorted 0.01 0.03 0.04: ×3, ×2, ×1 = 0.03, 0.06, 0.04 → 0.06 (never below the one before).
    assert stats.holm([0.01, None, 0.04, 0.03]) == pytest.approx([0.03, None, 0.06, 0.06])
    assert stats.holm([0.6, 0.7]) == [1.0, 1.0]  # capped at 1
    assert stats.holm([None]) == [None]
    assert stats.holm([]) == []


@settings(deadline=None, max_examples=50)
@given(st.lists(st.floats(0, 1), min_size=1, max_size=6))
def test_holm_is_the_closed_test(p):
    # Holm's procedure is the closure of Bonferroni's: adjusted p of i = max over sets with i of min(1, |S|·min(S)).
    places = range(len(p))
    subsets = [s for k in range(1, len(p) + 1) for s in itertools.combinations(places, k)]
    closed = [max(min(1, len(s) * min(p[j] for j in s)) for s in subsets if i in s) for i in places]
    assert stats.holm(p) == pytest.approx(closed)


# --- seeds needed ----------------------------------------------------------------------------------------------


# statsmodels 0.15.0, tt_ind_solve_power(d, power=0.8, alpha=0.05): 16.71, 63.77, 393.41 and 25.52 a side, rounded up.
@pytest.mark.parametrize(("difference", "std", "n"), [(1, 1, 17), (-5, 10, 64), (0.2, 1, 394), (0.8, 1, 26)])
def test_seeds_needed_against_statsmodels(difference, std, n):
    assert stats.seeds_needed(difference, std) == n


def test_seeds_needed_by_simulation():
    n = stats.seeds_needed(1.3, 1.0, power=0.9)
    draws = rng().normal(0, 1, (2, 40_000, n))
    found = np.mean(scipy_stats.ttest_ind(draws[0] + 1.3, draws[1], axis=1).pvalue < 0.05)
    fewer = np.mean(scipy_stats.ttest_ind(draws[0, :, 1:] + 1.3, draws[1, :, 1:], axis=1).pvalue < 0.05)
    assert fewer < 0.9 < found + 0.005  # four standard errors of the simulation are 0.006


def test_seeds_needed_at_the_ends():
    assert stats.seeds_needed(0, 1) is None
    assert stats.seeds_needed(math.nan, 1) is None
    assert stats.seeds_needed(1, 0) == 2
    assert stats.seeds_needed(1e6, 1) == 2
    # 2·(1.959964 + 0.841621)²/0.001² = 15,697,758.
    assert stats.seeds_needed(0.001, 1) == pytest.approx(15_697_758, rel=1e-5)


# --- several tasks ---------------------------------------------------------------------------------------------


def test_iqm_against_rliable_and_scipy():
    assert aggregates.iqm(tasks_of(B)) == pytest.approx(RLIABLE_IQM_B)  # 12 runs
    x = rng().normal(size=(30, 8))
    assert aggregates.iqm(tasks_of(x)) == pytest.approx(scipy_stats.trim_mean(x, 0.25, axis=None))


def test_iqm_cuts_parts_of_runs():
    # 15 runs, 3.75 cut at each end: a quarter of the 4th (0.5) and of the 12th (3) stay:
    # (0.25·0.5 + 0.7 + 0.9 + 1 + 1 + 2 + 2 + 2.5 + 0.25·3)/7.5 = 10.975/7.5.
    assert aggregates.iqm(tasks_of(A)) == pytest.approx(10.975 / 7.5)


def test_iqm_weighs_tasks_alike():
    # Seeds of a task, each there k times, change nothing: brute force for unequal numbers of seeds (2 and 5).
    few, many = np.array([1.0, 2.0]), np.array([2.5, 3.5, 4.5, 9.0, 10.0])
    expected = scipy_stats.trim_mean(np.concatenate([np.repeat(few, 10), np.repeat(many, 4)]), 0.25)
    assert aggregates.iqm([few, many]) == pytest.approx(expected)
    assert aggregates.iqm([few, many]) != pytest.approx(scipy_stats.trim_mean(np.concatenate([few, many]), 0.25))


def test_bootstrap_against_rliable():
    got = aggregates.stratified_bootstrap(tasks_of(B), aggregates.iqm, rng(), draws=20_000)
    np.testing.assert_allclose(got, RLIABLE_IQM_B_INTERVAL, atol=0.04)


def test_bootstrap_is_exact_for_a_small_case():
    # All 3³ · 4⁴ resamples of two tasks, written out; the statistic is the mean over tasks of means.
    x, y = np.array([0.0, 1.3, 1.7]), np.array([0.0, 2.0, 5.1, 5.9])

    def mean(scores):
        return np.mean([s.mean(axis=-1) for s in scores], axis=0)

    means = [np.array(list(itertools.product(s, repeat=s.size))).mean(axis=1) for s in (x, y)]
    every = (means[0][:, None] + means[1][None, :]) / 2
    got = aggregates.stratified_bootstrap([x, y], mean, rng(), draws=50_000)
    np.testing.assert_allclose(got, np.quantile(every, [0.025, 0.975]), atol=0.04)  # a step of the values
    assert got == aggregates.stratified_bootstrap([x, y], mean, rng(), draws=50_000)  # the same draws again


def test_bootstrap_of_one_seed_is_unknown():
    assert all(
        map(math.isnan, aggregates.stratified_bootstrap([np.array([1.0]), np.arange(3.0)], aggregates.iqm, rng()))
    )


def test_improvement_against_rliable():
    got = aggregates.probability_of_improvement(pairs_of(A, B), rng(), draws=20_000)
    assert got.value == pytest.approx(RLIABLE_IMPROVEMENT)
    np.testing.assert_allclose([got.low, got.high], RLIABLE_IMPROVEMENT_INTERVAL, atol=0.02)
    assert got.tasks == 3


def test_improvement_by_hand():
    # 1 3 against 2 3: 1 > nothing; 3 > 2 and 3 = 3: (0 + 0 + 1 + ½)/4.
    got = aggregates.probability_of_improvement([(np.array([1.0, 3.0]), np.array([2.0, 3.0]))], rng())
    assert got.value == 0.375


@pytest.mark.parametrize("step", [1e-9, 0.5])  # without ties, and with
def test_improvement_on_one_task_is_mann_whitney(step):
    a, b = (np.round(rng().normal(m, 1, n) / step) * step for m, n in ((0.5, 12), (0, 9)))
    expected = scipy_stats.mannwhitneyu(a, b, method="asymptotic")
    got = aggregates.probability_of_improvement([(a, b)], rng())
    assert got.p == pytest.approx(expected.pvalue, rel=1e-9)
    assert got.value == pytest.approx(expected.statistic / (12 * 9))


def test_improvement_test_holds_its_level():
    # No difference, three seeds a side, four tasks: at most about 5 % of 1,000 stores may look significant.
    draws = rng().normal(size=(1000, 2, 4, 3))
    p = [aggregates.probability_of_improvement(list(zip(a, b, strict=True)), rng(), draws=1).p for a, b in draws]
    assert 0.02 < np.mean(np.array(p) < 0.05) < 0.065


def test_improvement_of_few():
    # Complete separation of 3 against 3 is the best of 20 arrangements: an exact p of 0.1, and never below 0.05.
    assert aggregates.probability_of_improvement([(np.arange(3.0) + 9, np.arange(3.0))], rng()).p > 0.05
    one = aggregates.probability_of_improvement([(np.array([2.0]), np.array([1.0, 0.0]))], rng())
    assert one.value == 1 and math.isnan(one.low)
    assert aggregates.probability_of_improvement([(np.ones(3), np.ones(3))], rng()).p is None
    assert math.isnan(aggregates.probability_of_improvement([], rng()).value)


def test_profile_against_rliable():
    np.testing.assert_allclose(aggregates.performance_profile(tasks_of(A), TAU), RLIABLE_PROFILE_A)


def test_mean_difference_of_one_task_is_welch():
    a, b = rng().normal(1, 1, 6), np.random.default_rng(1).normal(0, 2, 9)
    got, welch = aggregates.mean_difference([(a, b)]), stats.compare(a, b)
    np.testing.assert_allclose(
        [got.value, got.low, got.high, got.p], [welch.difference, welch.low, welch.high, welch.p], rtol=1e-10
    )


def test_mean_difference_covers_the_truth():
    # Three tasks with spreads 1, 3 and 9, five seeds a side, a true difference of 0: 95 % of intervals hold it.
    scale = np.array([1.0, 3.0, 9.0])[:, None]
    draws = rng().normal(size=(2000, 2, 3, 5)) * scale
    found = [aggregates.mean_difference(list(zip(a, b, strict=True))) for a, b in draws]
    assert np.mean([f.low < 0 < f.high for f in found]) == pytest.approx(0.95, abs=0.015)
