"""Choosing an engine, and what is said when none will do."""

import importlib.util
import subprocess
import sys

import gymnasium as gym
import numpy as np
import pytest

from mcclt.envs import ENGINES, list_tasks, make_vec
from mcclt.errors import ConfigError, MissingExtraError, UnknownNameError, UnsupportedSpaceError

KEYS = [(0, 0, 0, 0), (0, 0, 0, 1)]
has_envpool = importlib.util.find_spec("envpool") is not None


@pytest.fixture
def without_envpool(monkeypatch):
    """As if EnvPool were not installed."""
    find = importlib.util.find_spec
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None if name == "envpool" else find(name))


def test_import_is_light():
    """`import mcclt.envs` loads no simulator and no JAX."""
    code = "import mcclt.envs, sys; print({'jax', 'gymnasium', 'mujoco', 'envpool'} & set(sys.modules))"
    run = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert run.stdout.strip() == "set()"


@pytest.mark.parametrize(
    ("task", "engine", "action_size"),
    [
        ("Hopper-v5", "native", 3),
        ("Pendulum-v1", "gymnasium", 1),
        ("CartPole-v1", "gymnasium", 2),
        (lambda: gym.make("Pendulum-v1"), "gymnasium", 1),
        pytest.param(
            "LunarLanderContinuous-v3",
            "envpool",
            2,
            marks=pytest.mark.skipif(not has_envpool, reason="EnvPool is not installed"),
        ),
    ],
)
def test_auto_takes_the_fastest(task, engine, action_size):
    """And all engines keep the same contract."""
    vec = make_vec(task, KEYS, max_episode_steps=3, num_threads=1)
    assert vec.spec.engine == engine and vec.num_envs == 2 and vec.spec.max_episode_steps == 3
    obs = vec.reset()
    assert obs.shape == (2, vec.spec.obs_size) and vec.spec.action_size == action_size
    action = np.zeros(2, np.int64) if vec.spec.discrete else np.zeros((2, action_size), np.float32)
    steps = [vec.step(action) for _ in range(4)]
    assert [bool(step.truncated.all()) for step in steps] == [False, False, True, False]
    vec.close()


def test_auto_without_envpool(without_envpool):
    """The lander then runs on Gymnasium."""
    pytest.importorskip("Box2D")
    assert make_vec("LunarLander-v3", KEYS).spec.engine == "gymnasium"


def test_by_name():
    """What "auto" would not take."""
    vec = make_vec("Hopper-v5", KEYS, engine="gymnasium")
    assert vec.spec.engine == "gymnasium" and vec.reset().shape == (2, 11)


def test_envpool_asked_for_but_missing(without_envpool):
    """Says what to install, whatever the task."""
    with pytest.raises(MissingExtraError, match="pip install envpool=="):
        make_vec("LunarLander-v3", KEYS, engine="envpool")


def test_unknown_names():
    """With what was meant."""
    with pytest.raises(UnknownNameError, match=r"Unknown engine 'gymnasum'\. Did you mean 'gymnasium'"):
        make_vec("Pendulum-v1", KEYS, engine="gymnasum")
    for engine in ("auto", "gymnasium", "native"):
        with pytest.raises(UnknownNameError, match=r"Unknown task 'Hoper-v5'\. Did you mean 'Hopper-v5'"):
            make_vec("Hoper-v5", KEYS, engine=engine)


def test_an_engine_that_cannot():
    """Says which can."""
    with pytest.raises(UnsupportedSpaceError, match=r"An object of type int is not a gymnasium\.Env"):
        make_vec(3, KEYS, engine="native")
    with pytest.raises(ConfigError, match=r"'native' cannot run 'Pendulum-v1'.*gymnasium, gymnasium-async"):
        make_vec("Pendulum-v1", KEYS, engine="native")


@pytest.mark.parametrize(
    "wrong",
    [
        *[{"max_episode_steps": 0}, {"max_episode_steps": "3"}, {"num_threads": 0}, {"num_threads": 1.5}],
        *[{"keys": keys} for keys in ([], 4, None, "ab", [0, 1], [(0, 1.5)], [(-1,)])],
    ],
    ids=str,
)
def test_numbers_that_make_no_sense(wrong):
    """Refused before anything is made."""
    (name,) = wrong
    with pytest.raises(ConfigError, match=rf"^{name} .* at least (1|one)"):
        make_vec(**{"task": "Pendulum-v1", "keys": KEYS} | wrong)


def test_list_tasks():
    """Each row is true: checked against the registry, and against the engine itself for one of each."""
    rows = {row.task: row for row in list_tasks()}
    assert {
        "Hopper-v5",
        "Ant-v4",
        "Pendulum-v1",
        "CartPole-v1",
        "MountainCarContinuous-v0",
        "Acrobot-v1",
    } <= set(rows)
    assert rows["Hopper-v5"].engine == "native" and rows["Hopper-v5"].version.startswith("mujoco ")
    assert rows["Hopper-v5"].resumable and not rows["Pendulum-v1"].resumable
    assert rows["Pendulum-v1"].engines == ("gymnasium", "gymnasium-async")
    assert rows["Pendulum-v1"].version == f"gymnasium {gym.__version__}"
    for row in rows.values():
        assert row.engine == row.engines[0] and set(row.engines) <= set(ENGINES)
        if row.task in gym.registry:
            assert row.max_episode_steps == gym.spec(row.task).max_episode_steps
    for task in ("Hopper-v5", "Pendulum-v1"):
        spec = make_vec(task, KEYS).spec
        assert (spec.engine, spec.max_episode_steps, spec.resumable) == (
            rows[task].engine,
            rows[task].max_episode_steps,
            rows[task].resumable,
        )


def test_list_tasks_without_envpool(without_envpool):
    """The Box2D tasks move to Gymnasium, as far as it has them."""
    pytest.importorskip("Box2D")
    rows = {row.task: row for row in list_tasks()}
    assert rows["BipedalWalker-v3"].engine == "gymnasium" and "LunarLander-v2" not in rows
