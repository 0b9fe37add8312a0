"""Environments in a file of the user's."""

from pathlib import Path

import pytest

from commands import TINY
from drivers import SMALL
from mcclt import PPO
from mcclt.cli import main
from mcclt.envs import make_vec
from mcclt.envs.own import from_file
from mcclt.errors import ConfigError, EnvironmentFault, UnknownNameError

FILE = """
import gymnasium as gym
import numpy as np

class Walk(gym.Env):
    observation_space = gym.spaces.Box(-1, 1, (9,), np.float32)
    action_space = gym.spaces.Box(-1, 1, (1,), np.float32)

    def reset(self, seed=None, options=None):
        super().reset(seed=seed)
        self.t = 0
        return self.np_random.uniform(-1, 1, 9).astype(np.float32), {}

    def step(self, action):
        self.t += 1
        return self.np_random.uniform(-1, 1, 9).astype(np.float32), float(-abs(action[0])), self.t >= 20, False, {}

class Breaks(Walk):
    def step(self, action):
        return self.deeper(action) if self.t > 10 else super().step(action)

    def deeper(self, action):
        raise ValueError("the motor is on\\nfire")

class Unlicensed(Walk):
    def __init__(self):
        self.check()

    def check(self):
        raise RuntimeError("no licence")

def make():
    return Walk()
"""
"""Its spaces are of the sizes of the double pendulum's, so that programs of other tests serve it."""


@pytest.fixture
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "walk.py").write_text(FILE)
    return tmp_path


@pytest.mark.parametrize("engine", ["auto", "gymnasium-async"])
@pytest.mark.parametrize("name", ["Walk", "make"])
def test_a_class_or_a_function_is_a_task(here: Path, name: str, engine: str) -> None:
    env = make_vec(f"walk.py:{name}", [(0, 0, 0, 0), (0, 0, 0, 1)], engine=engine)
    assert env.reset().shape == (2, 9) and env.spec.action_size == 1
    env.close()


def test_files_of_the_same_name_are_different_files(here: Path) -> None:
    for folder, size in (("one", 3), ("two", 4)):
        (here / folder).mkdir()
        (here / folder / "env.py").write_text(FILE.replace("(9,)", f"({size},)").replace("1, 9)", f"1, {size})"))
        assert make_vec(f"{folder}/env.py:Walk", [(0,)]).reset().shape == (1, size)
    assert from_file("one/env.py:Walk") is from_file(f"{here}/one/env.py:Walk")


def test_every_command_takes_it(here: Path, capsys: pytest.CaptureFixture[str]) -> None:
    task = "walk.py:Walk"
    main(["train", task, *TINY, "--steps", "32", "--final-episodes", "2", "--out", "run", "--quiet"])
    main(["evaluate", "run", "--episodes", "2"])
    main(["train", "--resume", "run", "--steps", "48", "--quiet"])
    once = ["--n-seeds", "1", "--steps", "1", "--episodes", "1"]
    main(["compare", task, "--variants", f"plain@{SMALL}", *once, "--store", "s"])
    assert task in capsys.readouterr().out


def test_what_is_not_there_is_said(here: Path) -> None:
    with pytest.raises(ConfigError, match=r"There is no file nowhere.py to load Walk from"):
        make_vec("nowhere.py:Walk", [(0,)])
    with pytest.raises(UnknownNameError, match="Did you mean 'Walk'"):
        make_vec("walk.py:Wlk", [(0,)])
    (here / "empty.py").write_text("")
    with pytest.raises(UnknownNameError, match=r"in empty.py 'Walk'\. It defines no class"):
        make_vec("empty.py:Walk", [(0,)])
    with pytest.raises(UnknownNameError, match="Allowed: Walk, Breaks, Unlicensed, make"):
        make_vec("walk.py:brakes", [(0,)])
    with pytest.raises(ConfigError, match=r"Which environment of empty.py\? .*: empty.py:MyEnv"):
        make_vec("empty.py", [(0,)])
    assert from_file("Hopper-v5") is None and from_file("package.module:Name-v0") is None


@pytest.mark.parametrize(
    ("name", "text", "said", "line"),
    [
        ("absent", "\nimport nothing_like_this", "ModuleNotFoundError: No module", "    import nothing_like_this"),
        ("unclosed", "\nx = (", "SyntaxError: '(' was never closed", "    x = ("),
    ],
)
def test_a_file_that_cannot_be_imported(here: Path, name: str, text: str, said: str, line: str) -> None:
    """One sentence, then the lines of the file alone."""
    file = here / f"{here.name}_{name}.py"
    file.write_text(text)
    with pytest.raises(ConfigError) as error:
        make_vec(f"{file.name}:Walk", [(0,)])
    sentence, *where = str(error.value).splitlines()
    assert sentence.startswith(f"Importing {file.name} failed: {said}") and sentence.endswith("line 2)")
    assert where[0].startswith(f'  File "{file}", line 2') and where[1] == line
    assert not [x for x in where[2:] if "^" not in x]


@pytest.mark.parametrize("engine", ["gymnasium", "gymnasium-async"])
def test_what_an_environment_raises_is_shown_with_its_line(here: Path, engine: str) -> None:
    model = PPO(from_file("walk.py:Breaks"), n_envs=2, steps_per_update=32, engine=engine, critic="plain")
    with pytest.raises(EnvironmentFault) as error:
        model.learn(64)
    sentence, *where = str(error.value).splitlines()
    assert "raised in step: ValueError: the motor is on fire (walk.py, line 23) at step" in sentence
    assert "on_nan 'restart'" in sentence
    assert 'walk.py", line 23, in deeper' in where[-2] and "the motor is on" in where[-1]


def test_what_is_raised_while_an_environment_is_made_is_shown_with_its_line(here: Path) -> None:
    with pytest.raises(EnvironmentFault) as error:
        make_vec("walk.py:Unlicensed", [(0,)])
    sentence, *where = str(error.value).splitlines()
    assert sentence == (
        "Making an environment of 'walk.py:Unlicensed' failed: RuntimeError: no licence (walk.py, line 30)"
    )
    assert where[0].endswith('walk.py", line 27, in __init__') and where[2].endswith('walk.py", line 30, in check')
