"""What a store holds: series that are never mixed, notes that say so, curves that line up."""

import dataclasses
import math
from pathlib import Path

import numpy as np
import pytest

from drivers import tiny
from mcclt.config.variants import VARIANTS
from mcclt.experiments.results import Result, Series, gather, variant_label
from mcclt.experiments.setups import PAPER_TASKS, Setup, make_setup
from mcclt.experiments.store import Store
from synthetic import filled, make_result, make_store


def store_of(path: Path, *parts: tuple[Setup, int, float]) -> Store:
    """Setups with so many seeds, all of one score."""
    return filled(path, [(setup, [score] * seeds) for setup, seeds, score in parts])


def hopper(variant: str = "mcclt", config: str = "authors", **run: int) -> Setup:
    return make_setup("Hopper", "ppo", variant, config, **run)


def test_a_store_is_shown_in_a_few_lines(tmp_path: Path) -> None:
    """As a notebook shows what it is given: names, not the arrays of all curves."""
    (series,) = (results := store_of(tmp_path, (hopper(), 3, 10.0)).load()).series
    digest = hopper().digest
    assert repr(series) == f"Series(task='Hopper-v4', algo='ppo', variant='mcclt', digest='{digest}')"
    assert repr(series) in repr(results) and len(repr(results)) < 1000
    assert "seed=1" in repr(series.results[1]) and len(repr(series.results[1])) < 200


# --- mixed configurations --------------------------------------------------------------------------------------


def test_configurations_are_never_averaged_together(tmp_path: Path) -> None:
    few, many = hopper(steps=1000), hopper(steps=2000)
    results = store_of(tmp_path, (many, 2, 10.0), (few, 3, 50.0)).load()
    by_steps = {s.steps: s for s in results.series}
    assert {steps: len(s.results) for steps, s in by_steps.items()} == {1000: 3, 2000: 2}
    np.testing.assert_allclose(by_steps[1000].scores, [50.0] * 3, atol=1e-3)
    np.testing.assert_allclose(by_steps[2000].scores, [10.0] * 2, atol=1e-3)
    assert results.main("Hopper-v4", "ppo", "mcclt") is by_steps[2000], "2 x 2000 is more than 3 x 1000"
    assert results.mains == (by_steps[2000],)
    (note,) = results.notes
    assert note == (
        "ppo-mcclt on Hopper-v4 was trained in 2 configurations, which are never averaged: "
        "shown is steps=2000 (2 seeds); left out: steps=1000 (3 seeds)."
    )


def test_the_main_series_has_most_training_then_most_steps(tmp_path: Path) -> None:
    """2 x 3,000 and 3 x 2,000 steps are as much, 3 x 1,000 less."""
    setups = [hopper(steps=n) for n in (3000, 1000, 2000)]
    results = store_of(tmp_path, (setups[0], 2, 0.0), (setups[1], 3, 0.0), (setups[2], 3, 0.0)).load()
    main = results.main("Hopper-v4", "ppo", "mcclt")
    assert main is not None and main.steps == 3000
    assert "3 configurations" in results.notes[0] and results.notes[0].count("(3 seeds)") == 2


def test_variants_of_a_setting_are_shown_in_one_configuration(tmp_path: Path) -> None:
    """Whatever the digests: with as many seeds of both, all are of one; the other is noted."""
    names = ("plain", "qr", "mcclt-nw", "ensemble", "mcclt", "explore")
    for task in PAPER_TASKS:
        for algo in ("ppo", "trpo"):
            setups = [make_setup(task, algo, v, config) for v in names for config in ("authors", "fixed")]
            settings = {(s.task, s.name, s.digest): s.settings for s in setups}
            results = gather([make_result(s, seed, 1.0) for s in setups for seed in range(2)], settings)
            shared = frozenset.intersection(*(s.configs for s in results.mains))
            assert shared and len(results.mains) == 6, (task, algo)


def test_a_variant_is_shown_as_its_neighbours_were_trained(tmp_path: Path) -> None:
    """Not by its own number of seeds: 30 short trainings are not comparable with the others' 10 long ones."""
    results = store_of(
        tmp_path, (hopper(steps=1000), 30, 0.0), (hopper(steps=9000), 10, 0.0), (hopper("plain", steps=9000), 10, 0.0)
    ).load()
    assert [(s.variant, s.steps) for s in results.mains] == [("plain", 9000), ("mcclt", 9000)]


@pytest.mark.parametrize(
    ("task", "algo", "config", "expected"),
    [
        ("Ant-v4", "ppo", "authors", {"authors"}),
        ("Ant-v4", "ppo", "fixed", {"fixed"}),
        ("Walker2d-v4", "ppo", "fixed", {"authors", "fixed"}),  # the same width and weights
        ("Walker2d-v4", "trpo", "fixed", {"fixed"}),  # but TRPO's step is another
        ("Pendulum-v1", "ppo", "fixed", {"fixed"}),  # the authors have published none
    ],
)
def test_the_configurations_of_a_series(task: str, algo: str, config: str, expected: set[str]) -> None:
    setup = make_setup(task, algo, "plain", config)
    (series,) = gather([make_result(setup, 0, 1.0)], {setup.key: setup.settings}).series
    assert series.configs == expected


def test_settings_that_a_result_does_not_know_are_no_other_configuration() -> None:
    """One that only one version knows has the default that the digest takes; one that both know counts as it is."""
    setup = make_setup("Ant-v4", "ppo", "mcclt", "authors")
    older = {name: value for name, value in setup.settings.items() if name != "trunk"}
    newer, other = setup.settings | {"colour": "blue"}, setup.settings | {"trunk": "another"}
    for stored, expected in ((older, {"authors"}), (newer, {"authors"}), (other, set())):
        (series,) = gather([make_result(setup, 0, 1.0)], {setup.key: stored}).series
        assert series.configs == expected


def test_failed_final_episodes_are_noted(tmp_path: Path) -> None:
    setup = hopper()
    good, bad = make_result(setup, 0, 1.0, episodes=4), make_result(setup, 7, 1.0, episodes=4)
    bad.returns[1:] = np.nan
    (note,) = gather([good, bad], {setup.key: setup.settings}).notes
    assert note == (
        "ppo-mcclt on Hopper-v4: 3 of 8 final episodes failed in their environment (seed 7) "
        "and are left out of the means."
    )


def test_the_choice_of_the_main_series_does_not_depend_on_the_order() -> None:
    setups = [hopper(n_envs=8), hopper(n_envs=10)]
    settings = {(s.task, s.name, s.digest): s.settings for s in setups}
    found = [make_result(s, seed, 1.0) for s in setups for seed in range(2)]
    a, b = gather(found, settings), gather(found[::-1], settings)
    assert [s.digest for s in a.mains] == [s.digest for s in b.mains]
    assert [s.seeds for s in a.series] == [s.seeds for s in b.series] == [[0, 1], [0, 1]]


def test_one_configuration_needs_no_note(tmp_path: Path) -> None:
    store = make_store(tmp_path, tasks=("Hopper",), seeds=2)
    assert store.load().notes == [] and len(store.load().series) == 12


def test_other_variants_and_tasks_are_no_mixture(tmp_path: Path) -> None:
    other = make_setup("Ant", "ppo", "mcclt", "authors")
    results = store_of(tmp_path, (hopper(), 1, 1.0), (hopper("plain"), 1, 1.0), (other, 1, 1.0)).load()
    assert results.notes == [] and len(results.mains) == 3
    assert results.main("Hopper-v4", "trpo", "mcclt") is None


@pytest.mark.parametrize(
    ("field", "what"), [("version", "versions of mcclt"), ("engine", "engines"), ("device", "devices")]
)
def test_mixed_provenance_is_named(tmp_path: Path, field: str, what: str) -> None:
    store, setup = store_of(tmp_path, (hopper(), 2, 1.0)), hopper()
    odd = make_result(setup, 2, 1.0)
    store.write(setup, dataclasses.replace(odd, provenance=odd.provenance | {field: "odd"}))
    unknown = {k: v for k, v in odd.provenance.items() if k != field}
    store.write(setup, dataclasses.replace(odd, seed=3, provenance=unknown))
    (note,) = store.load().notes
    known = odd.provenance[field]
    assert f"ppo-mcclt on Hopper-v4 combines seeds of several {what}" in note
    assert "odd (1 seed)" in note and f"{known} (2 seeds)" in note and "unknown (1 seed)" in note


# --- order and names -------------------------------------------------------------------------------------------


def test_the_papers_order(tmp_path: Path) -> None:
    store = make_store(tmp_path, tasks=("Ant", "Hopper", "Hopper-v5"), variants=("mcclt", "plain"), seeds=1)
    own = make_setup("CartPole-v1", "ppo", "mcclt@n_quantiles=4", "fixed")
    store.write(own, make_result(own, 0, 1.0))
    results = store.load()
    assert results.tasks == ["Hopper-v4", "Hopper-v5", "Ant-v4", "CartPole-v1"]
    assert results.algos == ["ppo", "trpo"]
    assert results.variants == ["plain", "mcclt", "mcclt@n_quantiles=4"]
    assert [s.name for s in results.series[:4]] == ["ppo-plain", "ppo-mcclt", "trpo-plain", "trpo-mcclt"]
    assert [t.rsplit("-v", 1)[0] for t in PAPER_TASKS][:2] == ["BipedalWalker", "Hopper"]
    assert next(iter(VARIANTS)) == "plain"


def test_labels() -> None:
    assert variant_label("mcclt") == "MC-CLT"
    assert variant_label("mcclt@guide=symmetric+n_quantiles=4") == "MC-CLT, guide=symmetric, n_quantiles=4"
    assert variant_label("plain") == "baseline"


# --- numbers ---------------------------------------------------------------------------------------------------


def with_curve(seed: int, **columns: list[float]) -> Result:
    curve = {name: np.array(values) for name, values in columns.items()}
    return dataclasses.replace(make_result(tiny(), seed, 1.0), curve=curve)


def series(*results: Result) -> Series:
    setup = tiny()
    return Series(setup.task, setup.algo, setup.variant, setup.digest, setup.settings, results)


def test_curves_line_up() -> None:
    a = with_curve(0, step=[10, 20, 30, 40], x=[1, 2, math.nan, 4])
    b = with_curve(1, step=[20, 30, 40, 50], x=[20, math.nan, math.nan, 50])
    steps, values = series(a, b).curve("x")
    np.testing.assert_array_equal(steps, [20, 40])  # 30 is known of none, 10 and 50 not of both
    np.testing.assert_array_equal(values, [[2, 4], [20, math.nan]])


def test_curves_that_are_missing() -> None:
    a, b = with_curve(0, step=[10, 20], x=[1, 2]), with_curve(1, step=[10, 20])
    steps, values = series(a, b).curve("x")
    np.testing.assert_array_equal(values, [[1, 2]])
    np.testing.assert_array_equal(steps, [10, 20])
    assert [x.shape for x in series(a, b).curve("nothing")] == [(0,), (0, 0)]
    disjoint = series(a, with_curve(1, step=[11, 21], x=[1, 2])).curve("x")
    assert disjoint[0].size == 0 and disjoint[1].shape == (2, 0)


def test_score_is_the_mean_of_what_was_measured() -> None:
    result = make_result(tiny(), 0, 1.0)
    assert dataclasses.replace(result, returns=np.array([1.0, math.nan, 4.0])).score == 2.5
    assert math.isnan(dataclasses.replace(result, returns=np.array([math.nan])).score)
    assert math.isnan(dataclasses.replace(result, returns=np.array([])).score)
