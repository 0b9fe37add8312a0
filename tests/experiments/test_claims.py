"""Verdicts on stores whose truth is known, at each side of every rule."""

import dataclasses
import math
import shlex

import numpy as np
import pytest
from scipy import stats as scipy_stats

from mcclt.config.values import parse_seeds
from mcclt.experiments import filling, plan
from mcclt.experiments.analysis import claims, contrasts, stats
from mcclt.experiments.results import Results, gather
from mcclt.experiments.setups import PAPER_TASKS, make_setup
from synthetic import filled, make_result, make_store

SPREAD = [-2.0, -1.0, 0.0, 1.0, 2.0]
PLACES = ("ensemble", "components", "baseline", "weights", "exploration", "cost", "bars", "bellman", "falls", "normal")


def store_of(path, means: dict[tuple[str, str, str], float], seeds=5, config="authors", steps=1_000_000) -> Results:
    """A store with scores mean + (−2 … 2) for each (task, algo, variant)."""
    setups = [make_setup(*name, config, steps=steps) for name in means]
    scores = [[mean + off for off in SPREAD[:seeds]] for mean in means.values()]
    return filled(path, zip(setups, scores, strict=True), episodes=5, points=3).load()


def verdict(results: Results, name: str) -> claims.Verdict:
    return claims.verdicts(results)[PLACES.index(name)]


def with_probe(results: Results, make) -> Results:
    """The same results with the probe that `make` gives for each seed."""

    def changed(series):
        return dataclasses.replace(
            series, results=tuple(dataclasses.replace(r, probe=make(r.seed)) for r in series.results)
        )

    return Results(tuple(map(changed, results.series)), timings=results.timings)


def cells(command: str) -> list[plan.Cell]:
    """What a command of `needs` would compute."""
    words = shlex.split(command)
    if words[1] == "reproduce":
        options = dict(zip(words[2::2], words[3::2], strict=True))
        names = [[options[o]] if o in options else [] for o in ("--table", "--figure", "--ablation")]
        return plan.cells_of(plan.parts_of(*names), PAPER_TASKS, range(2), "authors")
    assert words[1] == "compare"
    options = dict(zip(words[3::2], words[4::2], strict=True))
    run = {"steps": int(options["--steps"]), "final_episodes": int(options["--episodes"])}
    return [
        (make_setup(task, options["--algo"], variant, options["--settings"], **run), seed)
        for task in words[2].split(",")
        for variant in options["--variants"].split(",")
        for seed in parse_seeds(options["--seeds"])
    ]


# --- returns ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("shifts", "expected"),
    [
        ((50, 50, 0.1), "confirmed"),  # 2 of 3 better
        ((50, 0.1, 0.1), "not confirmed"),  # 1 of 3
        ((50, 50, -50), "not confirmed"),  # 2 of 3, but 1 worse
        ((-50, 0.1, 0.1), "opposite"),
        ((50, -50, 0.1), "not confirmed"),  # as many worse as better
    ],
)
def test_rule_of_the_ensemble(tmp_path, shifts, expected):
    means = {}
    for task, shift in zip(("Hopper", "Ant", "Swimmer"), shifts, strict=True):
        means |= {(task, "ppo", "ensemble"): 100, (task, "ppo", "mcclt"): 100 + shift}
    got = verdict(store_of(tmp_path, means), "ensemble")
    assert got.verdict == expected
    better, worse = sum(s > 1 for s in shifts), sum(s < -1 for s in shifts)
    assert got.ours.startswith(
        f"On 3 of the paper's 16 settings: significantly better in {better}, significantly worse in {worse}, "
        f"undecided in {3 - better - worse}; the mean is higher in {sum(s > 0 for s in shifts)} of 3."
    )
    assert len(got.details) == 4 and got.details[0].startswith("Rule: ")


def test_details_and_seeds_by_scipy(tmp_path):
    results = store_of(tmp_path, {("Hopper", "ppo", "ensemble"): 100, ("Hopper", "ppo", "mcclt"): 101})
    a, b = 101 + np.array(SPREAD), 100 + np.array(SPREAD)
    welch = scipy_stats.ttest_ind(a, b, equal_var=False)
    low, high = welch.confidence_interval()
    got = verdict(results, "ensemble")
    assert f"PPO on Hopper-v4: +1.0 [−{-low:.1f}, +{high:.1f}], p = {welch.pvalue:.3f}" in got.details[1]
    # A difference of 1 with s = √2.5 = 1.5811 is 0.63 standard deviations: 41 seeds (noncentral t).
    assert stats.seeds_needed(1, math.sqrt(2.5)) == 41
    assert any("PPO on Hopper-v4 41." in need for need in got.needs)


def test_exploration_must_lose_everywhere(tmp_path):
    means = {}
    for task, shift in (("Hopper", 50), ("Ant", 50), ("Swimmer", -0.1)):
        means |= {(task, "ppo", "explore"): 100, (task, "ppo", "mcclt"): 100 + shift}
    assert verdict(store_of(tmp_path / "a", means), "exploration").verdict == "not confirmed"
    means["Swimmer", "ppo", "mcclt"] = 100.1
    assert verdict(store_of(tmp_path / "b", means), "exploration").verdict == "confirmed"


@pytest.mark.parametrize(("lift", "expected"), [(100, "confirmed"), (-100, "opposite"), (0, "not confirmed")])
def test_components_baseline_and_weights(tmp_path, lift, expected):
    results = make_store(tmp_path, lift=lift).load()
    for name in ("components", "baseline", "weights"):
        got = verdict(results, name)
        assert got.verdict == expected, got
    # The interquartile means stand in the details, in the paper's order.
    lines = [d for d in verdict(results, "components").details if d.startswith("Interquartile mean")]
    assert [line.split(":")[0] for line in lines] == [
        "Interquartile mean of baseline",
        "Interquartile mean of QR",
        "Interquartile mean of MC-CLT without w",
        "Interquartile mean of MC-CLT",
    ]


def test_two_seeds_confirm_nothing(tmp_path):
    # 2 against 2, however far apart, is one of six arrangements; the bootstrap alone would say [1, 1].
    means = {("Hopper", "ppo", "plain"): 100, ("Hopper", "ppo", "mcclt"): 900}
    got = verdict(store_of(tmp_path, means, seeds=2), "baseline")
    assert got.verdict == "not confirmed"
    assert "1.00 [1.00, 1.00]" in got.ours


def test_the_papers_own_counts():
    # Counted in its table 1: QR is above the baseline in TRPO Bipedal, Hopper, Ant, Lunar (4 of 8) and in PPO
    # Bipedal, Ant, Inverted, Lunar (4 of 8).
    found = {name: verdict(Results(()), name) for name in ("components", "weights", "exploration")}
    assert "baseline → QR: a higher mean in 8 of 16 settings." in found["components"].paper
    # MC-CLT is above "without w" everywhere but in TRPO Swimmer (118 and 118).
    assert found["weights"].paper == "A higher mean in 15 of 16 settings."


@pytest.mark.parametrize(
    ("twelve", "twenty", "expected"),
    [
        (0.0, 0.0, "confirmed"),
        (-500.0, 0.0, "confirmed"),  # worse with more bars: 8 suffice all the more
        (0.0, 600.0, "opposite"),  # 600 of the paper's 2,973 is 0.2
        (0.0, 297.3, "opposite"),  # the margin itself is not ruled out, and 0 is
    ],
)
def test_bars(tmp_path, twelve, twenty, expected):
    means = {("Hopper", "ppo", v): 3000.0 for v in ("mcclt", "mcclt@n_quantiles=4")}
    means |= {("Hopper", "ppo", "mcclt@n_quantiles=12"): 3000 + twelve}
    means |= {("Hopper", "ppo", "mcclt@n_quantiles=20"): 3000 + twenty}
    got = verdict(store_of(tmp_path, means), "bars")
    assert got.verdict == expected
    # Welch's interval of 5 against 5 with s² = 2.5: ± t_{0.975, 8}·√(2.5·2/5) = 2.306004, over 2,973.
    assert f"12 − 8 bars: {twelve / 2973:+.3f} ".replace("-", "−") in got.ours


def test_bars_need_more_than_noise(tmp_path):
    # No significant difference is no proof that eight suffice: a spread as large as the margin leaves it open.
    variants = ("mcclt", "mcclt@n_quantiles=12", "mcclt@n_quantiles=20")
    setups = [make_setup("Hopper", "ppo", variant, "authors") for variant in variants]
    store = filled(tmp_path, [(setup, [3000.0, 3500.0, 4000.0]) for setup in setups], episodes=5, points=3)
    assert verdict(store.load(), "bars").verdict == "not confirmed"


# --- comparability and what is missing -------------------------------------------------------------------------


def test_unequal_steps_are_not_compared(tmp_path):
    store_of(tmp_path, {("Hopper", "ppo", "mcclt"): 900}, steps=2000)
    results = store_of(tmp_path, {("Hopper", "ppo", "ensemble"): 100}, steps=1000)
    got = verdict(results, "ensemble")
    assert got.verdict == "not measured"
    assert "MC-CLT trained for 2,000 steps, ensemble for 1,000" in got.ours


def test_other_configurations_are_not_compared(tmp_path):
    """On Ant the authors' critics are 64 wide, in the one configuration for all tasks 128."""
    store_of(tmp_path, {("Ant", "trpo", "mcclt"): 900}, config="fixed")
    results = store_of(tmp_path, {("Ant", "trpo", "ensemble"): 100}, config="authors")
    got = verdict(results, "ensemble")
    assert got.verdict == "not measured"
    assert "MC-CLT was trained in the configuration 'fixed', ensemble in 'authors'" in got.ours


def test_own_algorithms_are_no_settings_of_the_papers(tmp_path):
    results = store_of(tmp_path, {(t, "ppo", v): 100 for t in PAPER_TASKS for v in ("mcclt", "ensemble")})
    own = [dataclasses.replace(s, algo="mine") for s in results.series]
    found = contrasts.contrasts(dataclasses.replace(results, series=(*results.series, *own)), "mcclt", "ensemble")
    assert contrasts.scope(found) == "8 of the paper's 16 settings and 8 settings outside the paper"


def test_unequal_steps_are_said_step_by_step(tmp_path):
    store_of(tmp_path, {("Hopper", "ppo", v): 100 for v in ("plain", "mcclt-nw", "mcclt")})
    results = store_of(tmp_path, {("Hopper", "ppo", "qr"): 100}, steps=1000)
    got = verdict(results, "components")
    assert got.verdict == "not measured"
    assert any("QR trained for 1,000 steps, baseline for 1,000,000" in line for line in got.details)


def test_one_seed(tmp_path):
    means = {("Hopper", "ppo", "ensemble"): 1, ("Hopper", "ppo", "mcclt"): 2}
    got = verdict(store_of(tmp_path, means, seeds=1), "ensemble")
    assert got.verdict == "not measured"
    assert "needs at least two seeds of each: there is 1 of MC-CLT and 1 of ensemble." in got.ours


def test_nothing_at_all():
    found = claims.verdicts(Results(()))
    assert len(found) == len(PLACES)
    assert all(v.verdict == "not measured" for v in found)
    assert all(v.needs and v.needs[0].startswith("mcclt ") for v in found)
    for v in found:
        assert "nan" not in f"{v.ours} {v.paper} {v.claim}".replace("ensemble", "")


@pytest.mark.parametrize("config", ["authors", "fixed", "modern"])
def test_commands_fill_what_they_say(tmp_path, config):
    """Each command, read as the command line reads it, computes the setup that is missing."""
    results = store_of(tmp_path, {("Ant", "ppo", "plain"): 100}, config=config, steps=5000)
    wanted = {"explore": "exploration", "qr": "components", "qr@qr_target=bellman": "bellman"}
    wanted |= {"qr@n_quantiles=200": "normal", "mcclt": "baseline"}
    for variant in wanted:
        keys = {setup.key for setup, _ in cells(filling.fill(results, ["Ant-v4"], "ppo", [variant]))}
        assert keys == {make_setup("Ant", "ppo", variant, config, steps=5000).key}
    for variant, name in wanted.items():
        commands = [n for n in verdict(results, name).needs if n.startswith("mcclt")]
        assert any(s.variant == variant and s.task == "Ant-v4" for c in commands for s, _ in cells(c)), name


def test_own_tasks(tmp_path):
    means = {("Pendulum-v1", "ppo", v): m for v, m in (("plain", -900.0), ("ensemble", -800.0), ("mcclt", -300.0))}
    results = store_of(tmp_path, means, config="fixed")
    assert verdict(results, "ensemble").verdict == "confirmed"
    assert verdict(results, "ensemble").ours.startswith("On 1 setting outside the paper:")
    assert "--settings fixed" in filling.fill(results, ["Pendulum-v1"], "ppo", ["qr"])
    assert all("compare Pendulum-v1 " in need for need in verdict(results, "bellman").needs)
    plain = store_of(tmp_path / "plain", {("Pendulum-v1", "ppo", "plain"): -900.0}, config="fixed")
    assert [s.variant for need in verdict(plain, "exploration").needs for s, seed in cells(need) if seed == 0] == [
        "mcclt",
        "explore",
    ]
    # 1 + (−300 + 900)/900: better stays better where returns are negative.
    series = results.main("Pendulum-v1", "ppo", "mcclt")
    assert contrasts.normalised(results, series).mean() == pytest.approx(1 + 600 / 900, rel=1e-4)


def test_settings_without_a_number_of_final_episodes():
    """A stranger's store may lack it (found by fuzzing): the paper's 100 stand for it."""
    setup = make_setup("Ant-v4", "ppo", "plain", "fixed", final_episodes=7)
    told, untold = setup.settings, {k: v for k, v in setup.settings.items() if k != "final_episodes"}
    for settings, episodes in ((told, 7), (untold, 100)):
        results = gather([make_result(setup, seed, 1.0) for seed in (0, 1)], {setup.key: settings})
        assert f"--episodes {episodes} " in filling.fill(results, ["Ant-v4"], "ppo", ["qr"])


def test_reference(tmp_path):
    results = store_of(tmp_path, {("Hopper", "ppo", "plain"): 100, ("Hopper-v5", "ppo", "qr"): 1})
    assert contrasts.reference(results, "Hopper-v4", "ppo") == (2973, pytest.approx(math.sqrt(2.5), rel=1e-3))
    assert contrasts.reference(results, "Hopper-v5", "ppo") == (2973, 0)
    assert contrasts.reference(results, "Pendulum-v1", "ppo") is None


def test_normalised_by_hand(tmp_path):
    means = {
        ("Hopper", "ppo", "qr"): 2973 / 2,
        ("Pendulum-v1", "ppo", "plain"): 0.5,
        ("Pendulum-v1", "ppo", "qr"): 10.5,
    }
    results = store_of(tmp_path, means, config="fixed")
    hopper, pendulum = (results.main(task, "ppo", "qr") for task in ("Hopper-v4", "Pendulum-v1"))
    assert contrasts.normalised(results, hopper).mean() == pytest.approx(0.5)  # of the paper's 2973
    # The reference 0.5 is within the baseline's spread, √2.5: 1 + (10.5 − 0.5)/√2.5.
    assert contrasts.normalised(results, pendulum).mean() == pytest.approx(1 + 10 / math.sqrt(2.5))


# --- cost ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("mcclt", "ensemble", "expected"),
    [
        ((1.5, 2100), (3.0, 5000), "confirmed"),
        ((1.5, 2100), (1.2, 5000), "not confirmed"),
        ((1.5, 6000), (1.2, 5000), "opposite"),
    ],
)
def test_cost(mcclt, ensemble, expected):
    rows = [
        {"variant": v, "seconds_per_update": s, "critic_parameters": n, "steps_per_second": 1.0}
        for v, (s, n) in {"plain": (1.0, 1000), "mcclt": mcclt, "ensemble": ensemble}.items()
    ]
    timing = {"task": "Hopper-v4", "algo": "ppo", "machine": {}, "device": "cpu", "measured": "2026", "rows": rows}
    got = verdict(Results((), timings=(timing,)), "cost")
    assert got.verdict == expected
    assert got.ours == (
        f"{mcclt[0]:.2f} times the baseline's time against {ensemble[0]:.2f}, and {mcclt[1] / 1000:.2f} times its "
        f"weights against {ensemble[1] / 1000:.2f}, over 1 timing."
    )
    assert got.paper == ("1.5–1.9 times the baseline's time against 2.8–3.1, and 2.0–2.2 times its weights against 5.")


# --- what critics believe --------------------------------------------------------------------------------------


@pytest.mark.parametrize(("slope", "grows"), [(0.02, "confirmed"), (-0.01, "opposite"), (0.0, "not confirmed")])
def test_trend_of_the_spread(tmp_path, slope, grows):
    variants = ("ensemble", "qr@qr_target=bellman")
    results = store_of(tmp_path, {("Hopper", "ppo", v): 1 for v in variants})
    t = np.arange(0, 1000, 10)

    def probe(seed):  # the slope of each seed differs a little; one value is missing, as a store may give it
        std = list(20 + (slope + 0.001 * (seed - 2)) * t)
        return {"episode": {"t": list(t), "std": [*std[:-1], None]}}

    results = with_probe(results, probe)
    falls = {"confirmed": "opposite", "opposite": "confirmed", "not confirmed": "not confirmed"}[grows]
    assert (verdict(results, "bellman").verdict, verdict(results, "falls").verdict) == (grows, falls)
    if slope > 0:
        # Each seed: slope·980 over the mean 20 + slope·490, with slopes 0.018 … 0.022.
        changes = [s * 980 / (20 + s * 490) for s in (0.018, 0.019, 0.02, 0.021, 0.022)]
        assert f"{np.mean(changes):+.0%} [" in verdict(results, "bellman").ours


@pytest.mark.parametrize(
    ("shape", "expected"),
    [
        (scipy_stats.norm.ppf, "confirmed"),
        (scipy_stats.logistic.ppf, "confirmed"),
        (scipy_stats.expon.ppf, "opposite"),
    ],
)
def test_normality(tmp_path, shape, expected):
    results = store_of(tmp_path, {("Hopper", "ppo", "qr@n_quantiles=200"): 1})
    tau = np.arange(1, 201) / 201

    def probe(seed):
        noise = np.random.default_rng(seed).normal(size=(3, 200)) * 0.01
        return {"bars": {"t": [0, 1, 2], "values": (shape(tau) + noise).tolist()}}

    got = verdict(with_probe(results, probe), "normal")
    assert got.verdict == expected
    assert "0.036 is uniform" in got.ours  # near 1 − 3/π = 0.045, less with 200 bars whose tails are cut


def test_agents_that_were_not_looked_at(tmp_path):
    results = store_of(tmp_path, {("Hopper", "ppo", "ensemble"): 1})
    got = verdict(with_probe(results, lambda _: {}), "falls")
    assert got.verdict == "not measured"


# --- the module ------------------------------------------------------------------------------------------------


def test_same_store_same_verdicts(tmp_path):
    results = make_store(tmp_path, ("Hopper",), seeds=3, lift=20).load()
    assert claims.verdicts(results) == claims.verdicts(results)
