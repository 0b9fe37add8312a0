"""One answer over all settings: against statsmodels, closed forms, brute force, simulation and numbers by hand."""

import itertools
import math

import numpy as np
import pytest
from scipy import stats as scipy_stats

from mcclt.experiments import tables
from mcclt.experiments.analysis import meta, pooled, speed, stats
from mcclt.experiments.results import Results
from mcclt.experiments.setups import make_setup
from mcclt.experiments.store import Store
from synthetic import filled, make_result, make_store

EFFECTS, VARIANCES = np.array([0.6, -0.2, 0.9, 0.1, 0.35]), np.array([0.04, 0.09, 0.05, 0.07, 0.03])

THREE = ("Hopper", "HalfCheetah", "Ant")


def rng() -> np.random.Generator:
    return np.random.default_rng(0)


# --- random effects --------------------------------------------------------------------------------------------


def test_random_effects_against_statsmodels():
    # statsmodels 0.15.0, combine_effects(EFFECTS, VARIANCES, method_re="iterated", use_t=True), which seeks τ² to 1e-5.
    got = meta.random_effects(EFFECTS, VARIANCES)
    assert got.tau2 == pytest.approx(0.11599263, rel=1e-4)
    np.testing.assert_allclose([got.mean, got.se], [0.38055671, 0.18406611], rtol=1e-5)
    np.testing.assert_allclose([got.low, got.high], [-0.13049274, 0.89160617], rtol=1e-5)  # Hartung and Knapp's
    np.testing.assert_allclose([got.q, got.p_q, got.i2], [11.31439684, 0.02324885, 0.64646812], rtol=1e-7)
    assert got.p == pytest.approx(2 * scipy_stats.t.sf(got.mean / got.se, 4))
    assert got.tasks == 5


def test_tasks_that_agree():
    # The same for 0.2, 0.25, 0.3 with variances 0.05, 0.06, 0.07: τ² = 0, mean 0.24439252, error 0.14009343.
    # Hartung and Knapp's error would be 0.02872977, as if three tasks that happen to agree were certain.
    got = meta.random_effects([0.2, 0.25, 0.3], [0.05, 0.06, 0.07])
    np.testing.assert_allclose([got.tau2, got.mean, got.se], [0, 0.24439252, 0.14009343], atol=1e-8)
    np.testing.assert_allclose([got.q, got.p_q, got.i2], [0.08411215, 0.95881601, 0], atol=1e-7)


def test_equal_variances_in_closed_form():
    # Then τ² = s² − v, the mean is the plain one, and the interval that of a t-test over tasks, whatever the seeds say.
    y = np.array([0.1, 0.5, 1.2, -0.3])
    got = meta.random_effects(y, np.full(4, 0.02))
    assert got.tau2 == pytest.approx(y.var(ddof=1) - 0.02)
    test = scipy_stats.ttest_1samp(y, 0)
    np.testing.assert_allclose([got.mean, got.p], [y.mean(), test.pvalue])
    np.testing.assert_allclose([got.low, got.high], test.confidence_interval())
    ahead = scipy_stats.t.ppf(0.975, 2) * math.sqrt(got.tau2 + y.var(ddof=1) / 4)
    np.testing.assert_allclose([got.next_low, got.next_high], [y.mean() - ahead, y.mean() + ahead])


def test_few_tasks():
    one = meta.random_effects([0.3], [0.1])
    assert (one.mean, one.tasks) == (0.3, 1) and math.isnan(one.low) and math.isnan(one.tau2)
    assert math.isnan(meta.random_effects([], []).mean)
    two = meta.random_effects([0.3, 0.5], [0.1, 0.1])
    assert math.isfinite(two.low) and math.isnan(two.next_low)


@pytest.mark.parametrize("tau", [0.0, 0.5])
def test_random_effects_cover_the_truth(tau):
    # Five tasks with unequal noise: at least about 95 % of 1,000 intervals hold the truth.
    v = np.array([0.02, 0.05, 0.1, 0.03, 0.2])
    y = 0.4 + rng().normal(size=(1000, 5)) * np.sqrt(tau**2 + v)
    found = [meta.random_effects(row, v) for row in y]
    assert np.mean([f.low < 0.4 < f.high for f in found]) > 0.935


def test_variance_of_hedges_g():
    # 8 against 12 seeds, 0.8 standard deviations apart: 1/8 + 1/12 + 0.64/40 = 0.224333, and that is how g varies.
    assert stats.hedges_variance(0.8, 8, 12) == pytest.approx(0.224333, rel=1e-5)
    a, b = rng().normal(0.8, 1, (20_000, 8)), np.random.default_rng(1).normal(0, 1, (20_000, 12))
    spread = np.sqrt((7 * a.var(axis=1, ddof=1) + 11 * b.var(axis=1, ddof=1)) / 18)
    g = (a.mean(axis=1) - b.mean(axis=1)) / spread * 0.957646  # J = Γ(9)/(√9·Γ(8.5))
    assert stats.compare(a[0], b[0]).effect == pytest.approx(g[0], rel=1e-5)
    assert g.var() == pytest.approx(0.2243, rel=0.1)


# --- what would decide it --------------------------------------------------------------------------------------


def significant(mean: float, variance: float, k: int) -> float:
    """How often a t-test over k tasks finds the mean."""
    y = mean + rng().normal(size=(40_000, k)) * math.sqrt(variance)
    return float(np.mean(scipy_stats.ttest_1samp(y, 0, axis=1).pvalue < 0.05))


def test_seeds_to_decide_by_simulation():
    found = meta.RandomEffects(8, 0.3, tau2=0.02)
    n = meta.seeds_to_decide(found, per_seed=1.0)
    # δ = 3.2 for 7 degrees of freedom (SciPy's noncentral t): n = 1/(8·(0.3/3.2)² − 0.02) = 19.9.
    assert n is not None and 18 <= n <= 22
    assert significant(0.3, 0.02 + 1 / n, 8) == pytest.approx(0.8, abs=0.02)


def test_tasks_that_differ_too_much_for_any_number_of_seeds():
    found = meta.RandomEffects(5, 0.2, tau2=0.3)
    assert meta.seeds_to_decide(found, per_seed=1.0) is None
    k = meta.tasks_to_decide(found, 0.05)
    assert k is not None and significant(0.2, 0.35, k) == pytest.approx(0.8, abs=0.01)
    assert significant(0.2, 0.35, k - 5) < 0.79


def test_nothing_to_decide():
    for found in (meta.RandomEffects(1, 0.2), meta.RandomEffects(5, 0.0, tau2=0.1)):
        assert meta.seeds_to_decide(found, 1.0) is None and meta.tasks_to_decide(found, 1.0) is None
    assert meta.tasks_to_decide(meta.RandomEffects(5, 0.001, tau2=0.1), 1.0) is None  # millions of tasks


# --- tasks as clusters -----------------------------------------------------------------------------------------


def test_cluster_bootstrap_is_exact_for_a_small_case():
    # All draws of two tasks, one with two settings, and of two seeds a side, written out.
    first = [(np.array([1.0, 3.0]), np.array([0.0, 2.0])), (np.array([0.0, 1.0]), np.array([0.5, 5.0]))]
    second = [(np.array([4.0, 1.0]), np.array([2.0, 3.0]))]

    def every(a, b):
        pairs = list(itertools.product(itertools.product(a, repeat=2), itertools.product(b, repeat=2)))
        return np.array([np.mean([(x > y) + (x == y) / 2 for x in xs for y in ys]) for xs, ys in pairs])

    one, other = every(*first[0]), every(*first[1])
    values = [((one[:, None] + other[None, :]) / 2).ravel(), np.repeat(every(*second[0]), 16)]  # 256 draws of each task
    draws = np.concatenate([((x[:, None] + y[None, :]) / 2).ravel() for x in values for y in values])
    p, low, high = meta.clustered_improvement([first, second], rng(), draws=50_000)
    assert p == pytest.approx((((3 / 4) + (1 / 4)) / 2 + 0.5) / 2)  # 3 of 4, 1 of 4 and 2 of 4 pairs won
    np.testing.assert_allclose([low, high], np.quantile(draws, [0.025, 0.975]), atol=0.04)


def test_one_task_has_no_cluster_interval():
    p, low, high = meta.clustered_improvement([[(np.array([2.0, 3.0]), np.array([1.0, 0.0]))]], rng())
    assert p == 1 and math.isnan(low) and math.isnan(high)
    assert math.isnan(meta.clustered_improvement([], rng())[0])


def test_tasks_that_differ_widen_the_interval():
    # a wins everything on two tasks and nothing on two others: within tasks nothing varies, over tasks all does.
    high, low = np.arange(5.0) + 10, np.arange(5.0)
    tasks = [[(high, low)], [(high, low)], [(low, high)], [(low, high)]]
    _, lowest, highest = meta.clustered_improvement(tasks, rng())
    assert (lowest, highest) == (0, 1)


# --- speed -----------------------------------------------------------------------------------------------------


def test_speed_by_hand():
    steps = np.array([10.0, 20.0, 40.0])
    rows = np.array([[0.0, 10.0, 30.0], [0.0, np.nan, 30.0], [np.nan] * 3, [30.0, 0.0, 30.0]])
    # (10·5 + 20·20)/30 = 15; with a line from 0 to 30 also 15; nothing; (10·15 + 20·15)/30 = 15.
    np.testing.assert_allclose(speed.area(steps, rows), [15, 15, np.nan, 15])
    np.testing.assert_array_equal(speed.steps_to(steps, rows, 10), [20, 40, 40, 10])
    np.testing.assert_array_equal(speed.steps_to(steps, rows, 31), 40)  # none reaches it: the last step
    assert math.isnan(speed.area(np.array([1.0]), np.array([[5.0]]))[0])
    assert speed.threshold_of(np.array([90.0, np.nan, 110.0])) == 75
    assert speed.threshold_of(np.array([-100.0])) == -125  # worse than the baseline, as 75 is worse than 100


# --- a store ---------------------------------------------------------------------------------------------------


def answer(results: Results, b: str, measure: str = "final") -> pooled.Answer:
    return next(a for a in pooled.answers(results, measure) if a.b == b)


@pytest.mark.parametrize(("lift", "verdict"), [(400, "better"), (-400, "worse"), (0, "undecided")])
def test_verdicts(tmp_path, lift, verdict):
    results = make_store(tmp_path, tasks=THREE, variants=("plain", "mcclt", "explore"), lift=lift).load()
    for measure in ("final", "area"):
        got = answer(results, "plain", measure)
        assert got.verdict == verdict
        assert (len(got.effects), got.mean.tasks, got.left_out) == (6, 3, ())
        assert (got.tasks is None) == (verdict != "undecided")
    assert answer(results, "explore").verdict == {"better": "worse", "worse": "better"}.get(verdict, verdict)


def test_answer_by_numpy(tmp_path):
    results = make_store(tmp_path, tasks=("Hopper", "Ant"), lift=5, seeds=4).load()
    got = answer(results, "plain")
    tasks = []
    for task in ("Hopper-v4", "Ant-v4"):
        effects = []
        for algo in ("ppo", "trpo"):
            a, b = (results.main(task, algo, v).scores for v in ("mcclt", "plain"))
            d = (a.mean() - b.mean()) / np.sqrt((a.var(ddof=1) + b.var(ddof=1)) / 2)
            g = d * math.gamma(3) / (math.sqrt(3) * math.gamma(2.5))  # six degrees of freedom
            effects.append((g, 1 / 4 + 1 / 4 + g**2 / 16, (a[:, None] > b).mean()))
        tasks.append(np.mean(effects, axis=0) * [1, 0.5, 1])  # the mean of two variances, halved
    y, v, p = np.transpose(tasks)
    expected = meta.random_effects(y, v)
    np.testing.assert_allclose([got.mean.mean, got.mean.se, got.mean.tau2], [expected.mean, expected.se, expected.tau2])
    assert got.probability == pytest.approx(p.mean())
    e = got.effects[0].comparison
    half = 1.959964 * math.sqrt(e.effect_variance)
    np.testing.assert_allclose(e.effect_ends, [e.effect - half, e.effect + half], rtol=1e-6)
    n = got.seeds or got.tasks
    assert got.verdict == "undecided" and n is not None


def test_steps_to_the_threshold(tmp_path):
    # Curves rise to the score: those that end higher pass three quarters of the baseline's 1,000 earlier.
    results = make_store(tmp_path, tasks=THREE, variants=("plain", "mcclt", "explore"), lift=400).load()
    got = answer(results, "plain", "threshold")
    assert got.mean.mean > 0 and got.verdict == "better"
    a, b = got.effects[0].scores
    assert (a <= 0).all() and a.mean() > b.mean()  # fewer steps are more


def test_what_cannot_be_compared_is_said(tmp_path):
    store = Store(tmp_path, create=True)
    for task, variants in (("Hopper", ("mcclt", "qr")), ("Ant", ("mcclt",)), ("Swimmer", ("mcclt", "qr"))):
        for variant in variants:
            setup = make_setup(task, "ppo", variant, "authors")
            for seed in range(3):
                store.write(setup, make_result(setup, seed, 100.0 + seed, points=3 if task == "Hopper" else 20))
    results = store.load()
    assert [a.b for a in pooled.answers(results)] == ["qr"]
    assert answer(results, "qr").left_out == ("PPO on Ant-v4: There are no results for QR.",)
    area = answer(results, "qr", "area")
    assert any("Hopper-v4: There are too few points" in why for why in area.left_out)
    assert pooled.answers(results, "threshold") == ()  # there is no baseline
    notes = [note for note in tables.pooled_table(results).notes if note.startswith("Left out")]
    assert notes[0] == "Left out: PPO on Ant-v4: There are no results for QR."
    assert notes[1].startswith("Left out, area under the learning curve: PPO on Hopper-v4: There are too few points")


def test_versions_of_a_task_are_one_cluster(tmp_path):
    names = itertools.product(("Hopper-v4", "Hopper-v5", "Ant-v4"), ("ppo",), ("mcclt", "plain"))
    store = filled(tmp_path, [(make_setup(*name, "authors"), [100.0, 101.0, 102.0]) for name in names])
    got = answer(store.load(), "plain")
    assert (len(got.effects), got.mean.tasks) == (3, 2)


def test_table(tmp_path):
    results = make_store(tmp_path, tasks=THREE, variants=("plain", "mcclt", "explore"), lift=400).load()
    table = tables.pooled_table(results)
    assert [row.label for row in table.rows if not row.entries] == list(pooled.MEASURES.values())
    row = next(row for row in table.rows if row.label == "baseline")
    got = answer(results, "plain")
    assert row.entries[0].text == f"{got.probability:.2f} [{got.low:.2f}, {got.high:.2f}]"
    assert row.entries[1].text == f"+{got.mean.mean:.2f} [+{got.mean.low:.2f}, +{got.mean.high:.2f}]"
    assert [e.text for e in row.entries[3:]] == ["better", "–"]
    record = table.records[0]
    assert record["effect_tau2"] == got.mean.tau2 and record["settings"] == 6 and record["seeds_needed"] is None
    assert "6 settings of 1 to 3 tasks" in table.caption and any(note.startswith("Few tasks") for note in table.notes)
