"""An engine from outside: entered by one line, it trains, resumes and is listed like any other."""

import json
import sys
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

from commands import TINY, Cli
from mcclt.envs import ENGINES, VectorEnv, list_tasks, make_vec
from mcclt.errors import ConfigError
from mcclt.storage import checkpoint, runs
from mcclt.training import plugins

LAKE = Path(__file__).parents[2] / "examples" / "own_engine.py"
KEYS = [(0, 0, 0, i) for i in range(3)]


@pytest.fixture(autouse=True)
def engines_as_they_were() -> Iterator[None]:
    before = dict(ENGINES)
    yield
    ENGINES.clear()
    ENGINES.update(before)


@pytest.fixture
def lake(monkeypatch: pytest.MonkeyPatch) -> type[VectorEnv]:
    """The example's engine, imported as the command line does it."""
    monkeypatch.setenv(plugins.VARIABLE, str(LAKE))
    monkeypatch.delitem(sys.modules, f"mcclt_import_{LAKE}", raising=False)
    plugins.import_named()
    return ENGINES["lake"]


def test_the_command_line_trains_with_it(
    lake: type[VectorEnv], capsys: pytest.CaptureFixture[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """In one go and in two: its state is in the checkpoint, so both end in the same agent."""
    monkeypatch.chdir(tmp_path)
    mcclt = Cli(capsys)
    out, _ = mcclt("train", "Boat-v0", *TINY, "--steps", "64", "--final-episodes", "1", "--out", "whole")
    assert "Boat-v0 on the lake engine" in out
    mcclt("train", "Boat-v0", *TINY, "--steps", "32", "--out", "parts", "--engine", "lake", "--quiet")
    mcclt("train", "--resume", "parts", "--steps", "64", "--quiet")
    whole, parts = (checkpoint.load(runs.checkpoints(Path(name))[-1])[0] for name in ("whole", "parts"))
    assert whole["env/boats"].any()
    for name, value in whole.items():
        np.testing.assert_array_equal(parts[name], value, err_msg=name)
    row = {row["task"]: row for row in json.loads(mcclt("envs", "--json")[0])}["Boat-v0"]
    assert (row["engine"], row["engines"], row["resumable"], row["version"]) == ("lake", ["lake"], True, "")
    assert "Did you mean 'Boat-v0'" in mcclt.refused("train", "Boat-v1")
    assert "'lake' cannot run 'Hopper-v5'" in mcclt.refused("train", "Hopper-v5", "--engine", "lake")


def test_the_example_keeps_the_contract(lake: type[VectorEnv]) -> None:
    """An ended episode shows its true last observation, and the first of the next; neighbours change nothing."""
    vec, alone = make_vec("Boat-v0", KEYS, max_episode_steps=3), make_vec("Boat-v0", KEYS[1:2], max_episode_steps=3)
    first = vec.reset()
    np.testing.assert_array_equal(alone.reset(), first[1:2])
    for t in range(1, 7):
        step, one = vec.step(np.ones((3, 2), np.float32)), alone.step(np.ones((1, 2), np.float32))
        for ours, theirs in zip(one, step, strict=True):
            np.testing.assert_array_equal(ours, theirs[1:2])
        assert step.truncated.all() == (t % 3 == 0) and not step.terminated.any()
        assert (step.obs != step.next_obs).any() == (t % 3 == 0)
        np.testing.assert_allclose(step.reward, 1 - np.linalg.norm(step.next_obs[:, :2], axis=1), atol=1e-6)


def test_what_an_engine_says_of_itself_is_used(lake: type[VectorEnv], monkeypatch: pytest.MonkeyPatch) -> None:
    """No name is asked for: the same engine with other attributes is treated otherwise."""
    with pytest.raises(ConfigError, match=r"^step_timeout = 1 .* 'lake' steps in this process: leave step_timeout out"):
        make_vec("Boat-v0", KEYS, step_timeout=1.0)
    monkeypatch.setattr(lake, "can_time_out", True)
    make_vec("Boat-v0", KEYS, step_timeout=1.0)

    monkeypatch.setattr(lake, "needs", ("no_such_simulator",))
    assert "Boat-v0" not in {row.task for row in list_tasks()}
    with pytest.raises(ConfigError, match=r"^Engine 'lake' needs no_such_simulator: install what is missing\.$"):
        make_vec("Boat-v0", KEYS, engine="lake")
    monkeypatch.setattr(lake, "needs", ("numpy",))
    rows = {row.task: row for row in list_tasks()}
    assert rows["Boat-v0"].version == f"numpy {np.__version__}"

    class Slow(lake):  # type: ignore[misc, valid-type]
        name, stand_in = "slow", "lake"

    ENGINES["slow"] = Slow
    assert type(make_vec("Boat-v0", KEYS, engine="slow")) is Slow
    assert type(make_vec("Boat-v0", KEYS, engine="slow", brief=True)) is lake
    assert type(make_vec("Boat-v0", KEYS, engine="slow", brief=True, step_timeout=1.0)) is Slow

    monkeypatch.setattr(Slow, "on_device", True)
    monkeypatch.setattr("mcclt.envs._has_gpu", lambda: True)
    assert type(make_vec("Boat-v0", KEYS)) is lake
    assert type(make_vec("Boat-v0", KEYS * 200)) is Slow, "many are worth a GPU"
