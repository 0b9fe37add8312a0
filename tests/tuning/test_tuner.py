"""A search: its rungs, its places, and going on where it was cut off."""

import dataclasses
import itertools
import json
import math
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Literal

import numpy as np
import pytest

from mcclt.config import RunConfig
from mcclt.errors import ConfigError, MccltError
from mcclt.experiments.runner import Tally
from mcclt.experiments.store import Cell, Store
from mcclt.training.trainer import Trainer
from mcclt.tuning import confirm
from mcclt.tuning.pool import GROUP
from mcclt.tuning.search import FAILED, FINISHED, STOPPED, Plan, Search, Trial, score_of
from mcclt.tuning.space import Space, configured
from mcclt.tuning.tuner import Tuner
from synthetic import make_result

SPACE = Space.of(
    {
        "search": {
            "learning_rate": {"low": 1e-4, "high": 1e-2, "scale": "log"},
            "gamma": {"low": 0.9, "high": 0.999, "scale": "complement"},
        },
        "fixed": {
            "policy_hidden": [8],
            "critic_hidden": [8],
            "n_envs": 4,
            "steps_per_update": 200,
            "policy_iterations": 2,
            "critic_iterations": 2,
        },
    }
)
PLAN = Plan("InvertedDoublePendulum-v5", trials=7, seeds=2, rungs=(400, 800, 1_200))


def settings_and_scores(trials: list[Trial]) -> list[tuple[object, ...]]:
    return [(t.number, t.state, t.settings, t.scores, str(t.curves)) for t in trials]


def test_halving_keeps_one_of_three_of_all_that_came_to_a_rung() -> None:
    search = Search(dataclasses.replace(PLAN, trials=9, seeds=1), SPACE, {})
    for _ in range(9):
        search.ask()
    search.judge({0: 1.0, 1: 2.0, 2: 3.0})  # one of three: the best
    assert [t.state for t in search.trials[:3]] == [STOPPED, STOPPED, "training"]
    search.judge({3: 2.5, 4: 0.0, 5: -math.inf})  # two of six go on: 3 and 2.5
    assert [t.state for t in search.trials[3:6]] == ["training", STOPPED, FAILED]
    search.judge({2: 5.0, 3: 6.0})  # at the second rung one of two, at least
    assert [search.trials[i].state for i in (2, 3)] == [STOPPED, "training"]
    search.judge({3: 7.0})
    assert search.trials[3].state == FINISHED
    order = sorted(search.trials[:4], key=lambda t: t.rank, reverse=True)
    assert [t.number for t in order] == [3, 2, 1, 0]


@pytest.mark.parametrize(("name", "near"), [("strategy", "halving"), ("sampler", "sobol"), ("score", "end")])
def test_a_plan_with_an_unknown_name_is_refused(name: str, near: str) -> None:
    with pytest.raises(ConfigError, match=f"Unknown {name} '{near[:-1]}'.* Allowed: "):
        dataclasses.replace(PLAN, **{name: near[:-1]})  # type: ignore[arg-type]


def test_steps_of_a_search_are_counted_beforehand() -> None:
    plan = Plan("x", trials=300, seeds=1, rungs=(200_000, 400_000, 1_000_000))
    assert plan.expected_steps == round(300 * 2e5 + 100 * 2e5 + 100 / 3 * 6e5)


@pytest.mark.parametrize(("trials", "at_once"), [(4, 4), (20, 10), (300, 75)])
def test_tpe_learns_from_those_before(trials: int, at_once: int) -> None:
    assert dataclasses.replace(PLAN, trials=trials, sampler="tpe").most_at_once == at_once


def test_scores() -> None:
    curves = [[np.nan, 1.0, 3.0], [np.nan, 2.0, 5.0], [np.nan, 0.0, 100.0], [np.nan, 0.0, -100.0]]
    assert score_of(curves, "end") == 4.0  # the middle half of 3, 5, 100, -100
    assert score_of(curves, "area") == np.mean([2.0, 3.5])
    assert score_of([*curves, [np.nan] * 3], "end") == -math.inf


def test_a_search_trains_each_setting_as_if_it_were_alone(tmp_path: Path) -> None:
    tuner = Tuner(PLAN, SPACE, tmp_path / "s", places=6)  # three settings at once, of two seeds
    seen: list[float] = []
    trials = tuner.run(lambda status: seen.append(status.occupancy))
    assert len(trials) == 7 and all(t.state in (STOPPED, FINISHED) for t in trials)
    assert {len(t.scores) for t in trials} >= {1, 3}
    assert 0.5 < seen[-1] <= 1
    late = next(t for t in reversed(trials) if t.number >= 3)  # took another's place
    run, agent = configured(RunConfig(PLAN.task, steps=1_200, eval_freq=0), late.settings)
    alone = Trainer(dataclasses.replace(run, seeds=(10_000, 10_001), groups={GROUP: agent}))
    rows = [row for _ in late.curves[0] for row in alone.advance()]
    alone.close()
    expected = [
        [row.get("rollout/ep_rew_mean", math.nan) for row in rows if row["seed"] == s] for s in (10_000, 10_001)
    ]
    np.testing.assert_array_equal(late.curves, expected)


@pytest.mark.parametrize(("strategy", "trials", "end"), [("halving", 9, 1), ("pbt", 4, 4)])
def test_an_update_that_comes_to_several_rungs_is_judged_at_each(
    tmp_path: Path, strategy: Literal["halving", "pbt"], trials: int, end: int
) -> None:
    plan = Plan(PLAN.task, trials=trials, seeds=1, rungs=(300, 400, 600), strategy=strategy)
    found = Tuner(plan, SPACE, tmp_path / "s", places=9).run()
    assert [(len(t.scores), len(t.curves[0])) for t in found if t.state == FINISHED] == [(3, 3)] * end


@pytest.mark.parametrize(("engine", "after"), [("native", 3), ("gymnasium", 9)])
def test_a_pool_shrinks_with_those_that_go_on(tmp_path: Path, engine: str, after: int) -> None:
    """At a half of its places; at a quarter where episodes start anew."""
    sizes: list[tuple[int, int]] = []
    plan = dataclasses.replace(PLAN, trials=9, seeds=1)
    trials = Tuner(plan, SPACE, tmp_path / "s", places=9, engine=engine).run(
        lambda status: sizes.append((status.places, status.busy))
    )
    assert sizes == [(9, 9)] * 2 + [(after, 3)] * 2 + [(1, 1)] * 2
    assert [trial.state for trial in trials].count(FINISHED) == 1


class Cut(BaseException):
    """Nothing is written after it: as after kill -9."""


def cut_at(*updates: int) -> Callable[[object], None]:
    """Raises it at these updates, counted over all searches that tell it."""
    count = itertools.count(1)

    def tell(status: object) -> None:
        if next(count) in updates:
            raise Cut

    return tell


def test_a_search_that_is_killed_goes_on_exactly(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    whole = Tuner(PLAN, SPACE, tmp_path / "whole", places=6).run()
    monkeypatch.setattr("mcclt.tuning.tuner.SAVE_SECONDS", 0)
    kill = cut_at(3, 7)
    for _ in range(2):
        with pytest.raises(Cut):
            Tuner(PLAN, SPACE, tmp_path / "cut", places=6).run(kill)
    assert settings_and_scores(Tuner(PLAN, SPACE, tmp_path / "cut", places=6).run()) == settings_and_scores(whole)
    again = Tuner(PLAN, SPACE, tmp_path / "cut", places=6).run(kill)  # all is done: nothing is trained
    assert settings_and_scores(again) == settings_and_scores(whole)


def test_population_based_training_copies_the_best(tmp_path: Path) -> None:
    plan = Plan(PLAN.task, trials=4, seeds=1, rungs=(400, 800, 1_200), strategy="pbt")
    trials = Tuner(plan, SPACE, tmp_path / "s").run()
    assert [t.state for t in trials] == [FINISHED] * 4 and all(len(t.scores) == 3 for t in trials)
    begun = Search(plan, SPACE, {})
    points = {begun.ask().number: begun.trials[-1].settings for _ in range(4)}  # type: ignore[union-attr]
    assert sum(t.settings != points[t.number] for t in trials) in (1, 2)  # one of four at each of two rungs


def test_structures_are_searched_one_after_another(tmp_path: Path) -> None:
    space = Space.of({"search": {"gamma": {"low": 0.9, "high": 0.99}, "critic": ["plain", "normal"]},
                      "fixed": dict(SPACE.fixed)})  # fmt: skip
    plan = Plan(PLAN.task, trials=2, seeds=1, rungs=(400,))
    trials = Tuner(plan, space, tmp_path / "s").run()
    assert sorted(t.structure["critic"] for t in trials) == ["normal", "normal", "plain", "plain"]


def test_another_search_in_the_same_place_is_refused(tmp_path: Path) -> None:
    Tuner(PLAN, SPACE, tmp_path / "s")
    assert json.loads((tmp_path / "s/search.json").read_text())["plan"]["trials"] == 7
    assert Tuner(PLAN, SPACE, str(tmp_path / "s")).folder == tmp_path / "s", "a path may be a string"
    with pytest.raises(ConfigError, match="holds another search"):
        Tuner(dataclasses.replace(PLAN, trials=8), SPACE, tmp_path / "s")
    (tmp_path / "t").mkdir()
    (tmp_path / "t/thesis.tex").write_text("mine")
    with pytest.raises(ConfigError, match="is not empty"):
        Tuner(PLAN, SPACE, tmp_path / "t")
    with pytest.raises(ConfigError, match="places = 1"):
        Tuner(PLAN, SPACE, tmp_path / "u", places=1)


def test_a_confirmation_from_python(tmp_path: Path) -> None:
    """The default scores 10 with every seed, the best settings 30 and 20: better, in that order."""
    tuner = Tuner(dataclasses.replace(PLAN, trials=2, rungs=(400,)), SPACE, tmp_path)
    with pytest.raises(ConfigError, match="needs a setting with a score"):
        tuner.confirm()
    tuner.run()
    with pytest.raises(ConfigError, match="Seed 10001 is one of the search's own"):
        tuner.confirm([10_001, 10_002])
    with pytest.raises(MccltError, match=r"Nothing could be confirmed: the disk is full\."):
        tuner.confirm(train=lambda store, cells: Tally(failures=["the disk is full."]))

    def pretend(store: Store, cells: Sequence[Cell]) -> Tally:
        scores = {"default": 10.0, **{confirm.name_of(t): 30.0 - 10 * k for k, t in enumerate(tuner.best())}}
        for setup, seed in cells:
            store.write(setup, make_result(setup, seed, scores[setup.variant] + 0.1 * seed))
        return Tally(done=len(cells))

    default, first, second = tuner.confirm([7, 8, 9], episodes=5, train=pretend)
    assert (default.trial, first.trial, second.trial) == (None, *tuner.best())
    assert [one.scores.mean() for one in (default, first, second)] == pytest.approx([10.8, 30.8, 20.8])
    assert first.against is not None and first.against.difference == pytest.approx(20)
    assert confirm.verdict([default, first, second]) == f"{first.name} is better than the default."
