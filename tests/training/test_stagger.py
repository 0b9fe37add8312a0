"""Environments of an agent are out of lockstep: on every engine, and after every common start."""

import dataclasses
from pathlib import Path
from typing import Any

import gymnasium as gym
import numpy as np
import pytest
from gymnasium import spaces

from mcclt.config import RunConfig
from mcclt.envs import ENGINES
from mcclt.errors import EnvironmentFault
from mcclt.experiments.setups import make_setup
from mcclt.experiments.store import Store
from mcclt.method.randomness import Purpose
from mcclt.storage.configuration import from_dict, to_dict
from mcclt.training.collect import EpisodeStats, collect, staggered
from mcclt.training.trainer import Trainer
from probes import agent, run_config

LIMIT, ENVS, HORIZON = 12, 4, 5
CUTS = [0, 9, 6, 3]  # after (E - e)/E of the limit; environment 0 has its whole first episode


class Endless(gym.Env):
    """Never ends by itself; rewards 1 a step. Observes how long the episode is and how many there were before.

    Its spaces are of the sizes of Swimmer's, so that one program trains on both.
    """

    observation_space = spaces.Box(-np.inf, np.inf, (8,), np.float32)
    action_space = spaces.Box(-1, 1, (2,), np.float32)
    spoilt_at = -1
    made = 0

    def __init__(self) -> None:
        self.episode, self.t, self.life = -1, 0, 0
        self.number = Endless.made
        Endless.made += 1

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None):
        self.episode, self.t = self.episode + 1, 0
        return self._obs(), {}

    def step(self, action: np.ndarray):
        self.t, self.life = self.t + 1, self.life + 1
        if self.number == 2 and self.life == Endless.spoilt_at:
            raise RuntimeError("broken")
        return self._obs(), 1.0, False, False, {}

    def _obs(self) -> np.ndarray:
        return np.array([self.t, self.episode, *[0] * 6], np.float32)


@pytest.fixture(autouse=True)
def _fresh() -> None:
    Endless.made, Endless.spoilt_at = -1, -1  # the engine makes one to look at first


def config(**settings: Any) -> RunConfig:
    """Updates of five steps; without evaluations, which need no phases."""
    own = {"n_envs": ENVS, "steps_per_update": HORIZON * ENVS, "max_episode_steps": LIMIT, "steps": 10**6}
    return run_config(**({"task": "Endless", "seeds": (0, 1)} | own | settings))


def elapsed(steps: int, cuts: list[int] = CUTS) -> list[int]:
    """How old the environments' episodes are `steps` after a common start, by hand."""
    ages = [0] * ENVS
    pending = list(cuts)
    for _ in range(steps):
        for e in range(ENVS):
            ages[e] += 1
            if ages[e] in (LIMIT, pending[e]):
                ages[e] = pending[e] = 0
    return ages


def check_phases(trainer: Trainer, steps: int, agents: tuple[int, ...] = (0, 1)) -> None:
    for a in agents:
        assert trainer.stats.length[a].tolist() == elapsed(steps)
    if steps > LIMIT:
        assert len(set(elapsed(steps))) == ENVS, "the test's own arithmetic"


def advance(trainer: Trainer, updates: int) -> None:
    for _ in range(updates):
        trainer.advance()


# --- the cuts themselves ---------------------------------------------------------------------------------------


def test_first_cuts() -> None:
    assert staggered(4, 12).tolist() == CUTS
    assert staggered(16, 1000).tolist()[:4] == [0, 938, 875, 813]  # 937.5, 875, 812.5
    assert staggered(1, 1000).tolist() == [0]
    assert staggered(4, None).tolist() == [0, 0, 0, 0]
    assert staggered(4, 2).tolist() == [0, 0, 1, 1], "never an episode of no step"


def test_cut_episodes_are_truncated_and_no_returns(trainer_of: Any) -> None:
    trainer = trainer_of(config(seeds=(0,)), Endless)
    seen: list[Any] = []
    act_in = trainer.act_in

    def recording(*args: Any) -> Any:
        seen.append(act_in(*args))
        return seen[-1]

    trainer.act_in = recording  # type: ignore[method-assign]
    advance(trainer, 3)
    rollout = [np.concatenate([getattr(r, name)[0] for r, _, _ in seen]) for name in ("truncated", "next_obs", "obs")]
    truncated, next_obs, obs = rollout
    assert np.argwhere(truncated).tolist() == [[2, 3], [5, 2], [8, 1], [11, 0], [14, 3]]
    assert next_obs[2, 3, :2].tolist() == [3, 0] and obs[3, 3, :2].tolist() == [0, 1], (
        "the true last one, then a new episode"
    )
    assert list(trainer.stats.lengths[0]) == [LIMIT, LIMIT], "of environments 0 and 3, whole ones"
    assert list(trainer.stats.returns[0]) == [12.0, 12.0]


def test_an_episode_that_ends_before_its_cut_is_whole_and_is_not_cut_again() -> None:
    stats = EpisodeStats.empty(1, 3, np.array([0, 4, 2]))
    no = np.zeros((1, 3), bool)
    stats.add(np.ones((1, 3)), np.array([[False, True, False]]), no)
    assert list(stats.lengths[0]) == [1] and stats.cut_at.tolist() == [[0, 0, 2]]
    assert stats.due().tolist() == [[False, False, True]]
    stats.add(np.ones((1, 3)), np.array([[False, False, True]]), no)  # ends by itself where it was due: whole
    assert list(stats.lengths[0]) == [1, 2]
    for _ in range(5):
        assert not stats.due().any()
        stats.add(np.ones((1, 3)), no, no)


def test_off_means_lockstep(trainer_of: Any) -> None:
    trainer = trainer_of(config(stagger=False), Endless)
    advance(trainer, 3)
    assert (trainer.stats.length == 15 - LIMIT).all()


def test_no_limit_no_cut(trainer_of: Any) -> None:
    trainer = trainer_of(config(max_episode_steps=None), Endless)
    advance(trainer, 3)
    assert (trainer.stats.length == 15).all()


def test_evaluations_have_no_cuts(trainer_of: Any) -> None:
    trainer = trainer_of(config(), Endless)
    advance(trainer, 1)
    assert (trainer.evaluate(6, 1)[1] == LIMIT).all()


# --- on every engine -------------------------------------------------------------------------------------------

TASKS: dict[str, Any] = {
    "native": "Swimmer-v4",
    "warp": "Swimmer-v4",
    "envpool": "BipedalWalker-v3",
    "gymnasium": "Swimmer-v4",
    "gymnasium-async": "Swimmer-v4",
}
"""For each engine a task in which nobody fails within twelve steps."""


@pytest.mark.parametrize("engine", [pytest.param(n, marks=pytest.mark.slow if n == "warp" else ()) for n in ENGINES])
def test_phases(trainer_of: Any, engine: str) -> None:
    if engine == "envpool":
        pytest.importorskip("envpool")
    trainer = trainer_of(config(task=TASKS[engine], engine=engine))
    for update in range(1, 6):
        trainer.advance()
        check_phases(trainer, update * HORIZON)


@pytest.mark.parametrize("engine", ["native", "gymnasium", pytest.param("warp", marks=pytest.mark.slow)])
@pytest.mark.parametrize("before", [1, 3])
def test_resuming(trainer_of: Any, engine: str, before: int) -> None:
    """Exactly where the engine can; where episodes begin anew, from a common start again."""
    settings = config(task="Swimmer-v4", engine=engine)
    whole, first, second = (trainer_of(settings) for _ in range(3))
    advance(whole, before + 2)
    advance(first, before)
    exact = second.restore(*first.to_checkpoint(), "it")
    assert exact == (engine != "gymnasium")
    advance(second, 2)
    check_phases(second, (before + 2) * HORIZON if exact else 2 * HORIZON)
    if engine == "native":
        a, b = (t.to_checkpoint()[0] for t in (whole, second))
        assert all(a[k].tobytes() == b[k].tobytes() for k in a)


def test_a_fault_starts_one_agent_together_again(trainer_of: Any) -> None:
    trainer = trainer_of(config(on_nan="restart"), Endless)
    Endless.spoilt_at = HORIZON + 2  # of environment 2, the first agent's
    advance(trainer, 2)
    assert trainer.messages and "Environment 2 of seed 0" in trainer.messages[0]
    check_phases(trainer, 2 * HORIZON - 7, (0,))
    check_phases(trainer, 2 * HORIZON, (1,))
    advance(trainer, 2)
    check_phases(trainer, 4 * HORIZON - 7, (0,))
    check_phases(trainer, 4 * HORIZON, (1,))


def test_rewinding_to_new_episodes_starts_together_again(trainer_of: Any) -> None:
    trainer = trainer_of(config(), Endless)
    advance(trainer, 3)
    Endless.spoilt_at = 3 * HORIZON + 2
    with pytest.raises(EnvironmentFault):
        trainer.advance()
    Endless.spoilt_at = -1
    advance(trainer, 3)
    check_phases(trainer, 3 * HORIZON)


def test_rewinding_exactly(trainer_of: Any) -> None:
    trainer = trainer_of(config(task="Swimmer-v4"))
    advance(trainer, 2)
    step = trainer.env.step
    trainer.env.step = lambda action: 1 / 0  # type: ignore[method-assign,assignment,return-value]
    with pytest.raises(ZeroDivisionError):
        trainer.advance()
    trainer.env.step = step  # type: ignore[method-assign]
    advance(trainer, 2)
    check_phases(trainer, 4 * HORIZON)


def test_an_agent_does_not_know_its_neighbours(trainer_of: Any) -> None:
    alone, among = (trainer_of(config(task="Swimmer-v4", seeds=seeds)) for seeds in ((1,), (0, 1)))
    for trainer in (alone, among):
        advance(trainer, 3)
    (a, _), (b, _) = alone.to_checkpoint(), among.to_checkpoint()
    for name in a:
        if name.startswith("agents/"):
            assert a[name][0].tobytes() == b[name][1].tobytes(), name


# --- what was stored before there was stagger ------------------------------------------------------------------


def test_unstated_means_lockstep(tmp_path: Path) -> None:
    before = to_dict(config())
    del before["stagger"]
    assert from_dict(before).stagger is False
    now, lockstep = (make_setup("Swimmer", "ppo", v, "authors") for v in ("plain", "plain@stagger=false"))
    assert now.config.stagger and not lockstep.config.stagger
    assert now.digest != dataclasses.replace(now, config=dataclasses.replace(now.config, stagger=False)).digest
    # As computed by the version before: eight digits of what differs from its defaults.
    old = dataclasses.replace(lockstep, variant="plain")
    assert old.digest == "33f1924e"
    store = Store(tmp_path / "store", create=True)
    assert store.folder(now) != store.folder(old)


def test_an_old_checkpoint_goes_on_in_lockstep(trainer_of: Any) -> None:
    settings = config(task="Swimmer-v4", stagger=False, groups={"plain": agent(critic="plain")})
    first = trainer_of(settings)
    advance(first, 1)
    arrays, meta = first.to_checkpoint()
    del arrays["stats/cut_at"], meta["config"]["stagger"]
    second = trainer_of(from_dict(meta["config"]))
    assert second.restore(arrays, meta, "it")
    advance(second, 3)
    assert (second.stats.length == 4 * HORIZON - LIMIT).all()


def test_a_probe_has_no_cuts(trainer_of: Any) -> None:
    """Whoever collects with statistics of its own."""
    trainer = trainer_of(config(seeds=(0,)), Endless)
    env = trainer.make_env(Purpose.PROBE, 0, ENVS)
    stats = EpisodeStats.empty(1, ENVS)
    noise = np.zeros((1, LIMIT, ENVS, 2), np.float32)
    obs = env.reset().reshape(1, ENVS, -1)
    rollout, _, _ = collect(env, trainer.policy, trainer.policies(), obs, noise, stats, True)
    assert not rollout.truncated[:, :-1].any() and rollout.truncated[:, -1].all()
    env.close()
