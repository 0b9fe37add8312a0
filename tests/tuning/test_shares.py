"""A search in several processes: what each is told, what is remembered, and that agents do not notice."""

import contextlib
import dataclasses
import importlib.util
import json
import math
import os
import shutil
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from test_tuner import PLAN, SPACE, Cut, cut_at, settings_and_scores

from mcclt.errors import ConfigError
from mcclt.experiments.cells import plain
from mcclt.experiments.workers import Processes
from mcclt.tuning.search import FAILED, FINISHED, STOPPED, TRAINING, Trial, from_data
from mcclt.tuning.shares import Count, Desk, Share, SharedTuner, search_share
from mcclt.tuning.tuner import Tuner

NINE = dataclasses.replace(PLAN, trials=9, seeds=1)


def test_the_desk_judges_over_all_shares(tmp_path: Path) -> None:
    desk = Desk(NINE, [SPACE], tmp_path)
    numbers = [desk.ask(share, 0, have)[0] for have in range(3) for share in (0, 1)]  # type: ignore[index]
    assert numbers == [0, 1, 2, 3, 4, 5], "each to one of them"
    judged = desk.judge(0, {n: (0, float(n), [[1.0]]) for n in (0, 2, 4)})
    assert [judged[n][0] for n in (0, 2, 4)] == [STOPPED, STOPPED, TRAINING]
    judged = desk.judge(0, {n: (0, float(n) - 0.5, [[1.0]]) for n in (1, 3, 5)})  # two of six: 4.5 and 4
    assert [judged[n][0] for n in (1, 3, 5)] == [STOPPED, STOPPED, TRAINING]
    desk.fail(0, 5, "it fell")
    assert [desk.ask(0, 0, 3 + have) is None for have in range(4)] == [False, False, False, True], "nine in all"


def test_the_desk_gives_the_same_answers_after_its_death(tmp_path: Path) -> None:
    desk = Desk(NINE, [SPACE], tmp_path)
    given = [desk.ask(0, 0, have) for have in range(3)]
    first = {n: (0, float(n), [[math.nan, 1.0]]) for n in range(3)}
    told = desk.judge(0, first)
    desk.judge(0, {2: (1, 9.0, [[math.nan, 1.0, 9.0]])})
    desk.fail(0, 2, "it fell")
    with (tmp_path / "journal.jsonl").open("ab") as file:
        file.write(b'{"which": 0, "fou')  # cut short: nobody was told
    again = Desk(NINE, [SPACE], tmp_path)
    assert [again.ask(0, 0, have) for have in range(3)] == given
    assert again.judge(0, first) == told, "as of then, though one has failed since"
    assert again.judge(0, {2: (1, 9.0, [[1.0]])}) == {2: (FAILED, "it fell")}
    assert str(again.trials()) == str(desk.trials()), "and nothing is judged twice"
    assert again.ask(1, 0, 0) == (3, desk.searches[0].sample(3))
    assert [again.trials()[0][3].number, Desk(NINE, [SPACE], tmp_path).trials()[0][3].number] == [3, 3]


def test_the_desk_says_how_far_all_are(tmp_path: Path) -> None:
    desk, count = Desk(NINE, [SPACE], tmp_path), Count(10, 20, 1, 2, 3.0, 1.0)
    assert not desk.count(1, count) and desk.look()[1] == {1: count}
    desk.stop()
    assert desk.count(1, count)


# --- agents ----------------------------------------------------------------------------------------------------


def work(folder: Path, share: int, kill: Any = None) -> None:
    """A share of two, by a desk that knows only what is written down."""
    desk = Desk(PLAN, [SPACE], folder)
    Share(PLAN, [SPACE], folder / str(share), desk, share, 2, places=6).run(kill or (lambda status: None))


def trials_of(folder: Path) -> list[Trial]:
    return Desk(PLAN, [SPACE], folder).trials()[0]


@pytest.fixture(scope="module")
def alone(tmp_path_factory: pytest.TempPathFactory) -> list[Trial]:
    """The same search in one process."""
    return Tuner(PLAN, SPACE, tmp_path_factory.mktemp("alone") / "s", places=6).run()


def assert_the_same_agents(found: list[Trial], alone: list[Trial]) -> None:
    """Each setting is at the same point and learns the same, as far as it goes in both."""
    others = {trial.number: trial for trial in alone}
    assert sorted(t.number for t in found) == sorted(others)
    for trial in found:
        other = others[trial.number]
        assert trial.settings == other.settings and trial.state in (STOPPED, FINISHED)
        for one, two in zip(trial.curves, other.curves, strict=True):
            both = min(len(one), len(two))
            assert both >= 2 and str(one[:both]) == str(two[:both])


def test_agents_do_not_notice_which_share_they_are_in(tmp_path: Path, alone: list[Trial]) -> None:
    for share in (0, 1):
        work(tmp_path, share)
    assert_the_same_agents(trials_of(tmp_path), alone)


def test_a_share_that_is_killed_goes_on_exactly(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Also where its directory is lost, as on another machine: then from its beginning, by the same answers."""
    for share in (1, 0):
        work(tmp_path / "whole", share)
    monkeypatch.setattr("mcclt.tuning.tuner.SAVE_SECONDS", 0)
    kill = cut_at(3, 7)
    for lost in (True, False):
        with pytest.raises(Cut):
            work(tmp_path / "cut", 1, kill)
        if lost:
            shutil.rmtree(tmp_path / "cut/1")
    for share in (1, 0):
        work(tmp_path / "cut", share)
    assert settings_and_scores(trials_of(tmp_path / "cut")) == settings_and_scores(trials_of(tmp_path / "whole"))


def test_a_machine_that_does_not_see_the_directory(tmp_path: Path) -> None:
    (tmp_path / "name").write_text("2 another")
    desk = Desk(NINE, [SPACE], tmp_path)
    search_share(NINE, [SPACE], tmp_path, "2 this", desk, 0, 2, {"places": 6})
    assert not (tmp_path / "0").exists() and all(t.scores for t in desk.trials()[0])


@pytest.mark.slow
def test_processes_one_of_which_is_killed(tmp_path: Path, alone: list[Trial]) -> None:
    """kill -9: its share goes on in another process. Then all is done, also for a search in one process."""
    killed: list[int] = []

    def kill(status: Any) -> None:
        if not killed and len(status.trials) >= 4 and status.steps > 0:
            (pid,) = crew._pools[0]._processes
            killed.append(pid)
            os.kill(pid, signal.SIGKILL)

    with contextlib.closing(Processes(2, pin=True)) as crew:
        tuner = SharedTuner(PLAN, SPACE, tmp_path / "s", crew, places=4)
        assert tuner.at_once == 4
        with pytest.raises(ConfigError, match="holds a search by several processes"):
            tuner._name(tmp_path / "s/shares")
            Tuner(PLAN, SPACE, tmp_path / "s").run()
        assert_the_same_agents(tuner.run(kill), alone)
    assert killed and tuner.status.seconds > 0 and tuner.status.steps >= 7 * 2 * 400
    assert not (tmp_path / "s/shares").exists()
    assert settings_and_scores(Tuner(PLAN, SPACE, tmp_path / "s").run()) == settings_and_scores(tuner.trials)


@pytest.mark.slow
def test_processes_that_are_interrupted_go_on(tmp_path: Path, alone: list[Trial]) -> None:
    """All shares save what they have; another number of workers may go on with them."""

    def interrupt(status: Any) -> None:
        if status.best is not None:
            raise KeyboardInterrupt

    for workers, tell in ((2, interrupt), (3, lambda status: None)):
        with contextlib.closing(Processes(workers, pin=True)) as crew:
            tuner = SharedTuner(PLAN, SPACE, tmp_path / "s", crew, places=4)
            if tell is interrupt:
                with pytest.raises(KeyboardInterrupt):
                    tuner.run(tell)
                assert tuner.best() and all(
                    (tmp_path / f"s/shares/{i}/checkpoint.safetensors").exists() for i in (0, 1)
                )
            else:
                assert_the_same_agents(tuner.run(tell), alone)


@pytest.mark.skipif(importlib.util.find_spec("ray") is None, reason="Ray is not installed: mcclt[ray]")
@pytest.mark.slow
def test_a_search_on_a_ray_cluster(tmp_path: Path, alone: list[Trial]) -> None:
    """As it is typed, in a process of its own because Ray leaves threads and open sockets behind."""
    fixed = "\n".join(f"{name} = {list(v) if isinstance(v, tuple) else v}" for name, v in SPACE.fixed.items())
    (tmp_path / "space.toml").write_text(
        "[search]\nlearning_rate = { low = 1e-4, high = 1e-2, scale = 'log' }\n"
        f"gamma = {{ low = 0.9, high = 0.999, scale = 'complement' }}\n[fixed]\n{fixed}\n"
    )
    flags = "--trials 7 --seeds-per-setting 2 --rungs 400,800,1200 --confirm 0 --backend ray --cpus 1 --population 4"
    task = [sys.executable, "-m", "mcclt", "tune", PLAN.task, "--space", str(tmp_path / "space.toml")]
    done = subprocess.run(
        [*task, "--store", str(tmp_path / "s"), *flags.split()], capture_output=True, text=True, timeout=500
    )
    assert done.returncode == 0, done.stderr[-2000:]
    assert "fork" not in done.stderr
    trials = from_data(json.loads((tmp_path / "s/trials.json").read_text())["trials"])
    assert_the_same_agents(trials, [dataclasses.replace(t, curves=plain(t.curves, 5)) for t in alone])


def test_what_does_not_fit_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    class Nobody:
        capacity = 2

    crew: Any = Nobody()
    pbt = dataclasses.replace(NINE, strategy="pbt")
    with pytest.raises(ConfigError, match="needs a single process: use halving"):
        SharedTuner(pbt, SPACE, tmp_path / "p", crew)
    monkeypatch.setattr("mcclt.tuning.tuner.SAVE_SECONDS", 0)

    def kill(status: object) -> None:
        if (tmp_path / "s/checkpoint.safetensors").exists():
            raise Cut

    with pytest.raises(Cut):
        Tuner(PLAN, SPACE, tmp_path / "s", places=6).run(kill)
    with pytest.raises(ConfigError, match="holds a search in one process"):
        SharedTuner(PLAN, SPACE, tmp_path / "s", crew).run()
