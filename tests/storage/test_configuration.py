"""Configurations as plain data and in files."""

import json
from pathlib import Path
from typing import Any

import pytest

from mcclt.config import AgentConfig, RunConfig
from mcclt.errors import ConfigError
from mcclt.storage.configuration import from_dict, read_file, to_dict


def test_round_trip_through_json() -> None:
    run = RunConfig(
        "Hopper-v5",
        seeds=(3, 1),
        steps=5_000,
        groups={
            "a": AgentConfig(critic="plain", members=None, crossing_error=1e5),
            "trpo:b": AgentConfig(algo="trpo", weighting="exploration", critic_hidden=(8, 9), members=3),
        },
        n_envs=4,
        steps_per_update=8,
        threads=None,
        max_episode_steps=77,
        on_nan="restart",
    )
    again = from_dict(json.loads(json.dumps(to_dict(run))))
    assert again == run
    assert type(again.seeds) is tuple and type(again.groups["trpo:b"].critic_hidden) is tuple


def test_round_trip_of_numbers_is_exact() -> None:
    run = RunConfig("x", groups={"a": AgentConfig(gamma=0.1 + 0.2, learning_rate=1 / 3)})
    assert from_dict(json.loads(json.dumps(to_dict(run)))).groups == run.groups


@pytest.mark.parametrize(
    "data",
    [{}, {"task": "a"}, {"task": 3, "groups": {}}, {"task": "a", "groups": {"b": 1}}, {"task": "a", "groups": []}],
)
def test_from_dict_refuses(data: Any) -> None:
    with pytest.raises(ConfigError):
        from_dict(data)


def test_from_dict_refuses_unknown_settings() -> None:
    data = to_dict(RunConfig("Hopper-v5"))
    with pytest.raises(ConfigError, match="Unknown setting 'colour'"):
        from_dict(data | {"colour": "red"})


def test_a_setting_that_is_no_more_is_read_where_it_changed_nothing() -> None:
    data = to_dict(run := RunConfig("Hopper-v5"))
    own = data["groups"]["agent"]
    assert from_dict(data | {"groups": {"agent": own | {"policy_head": "gaussian", "policy_bins": 41}}}) == run
    with pytest.raises(ConfigError, match="Unknown setting 'policy_head'"):
        from_dict(data | {"groups": {"agent": own | {"policy_head": "bins"}}})


def test_read_file(tmp_path: Path) -> None:
    toml = tmp_path / "a.toml"
    toml.write_text('task = "Hopper-v5"\nsteps = "2k"\ncritic_hidden = [8]\n[groups.x]\ngamma = 0.5\n')
    assert read_file(toml) == {
        "task": "Hopper-v5",
        "steps": "2k",
        "critic_hidden": [8],
        "groups": {"x": {"gamma": 0.5}},
    }
    stored = tmp_path / "a.json"
    stored.write_text('{"gamma": 0.5}')
    assert read_file(stored) == {"gamma": 0.5}


@pytest.mark.parametrize(
    "name, content",
    [
        ("a.toml", b"gamma = "),
        ("a.toml", b"gamma = 1\ngamma = 2"),
        ("a.toml", b"\xff\xfe"),
        ("a.json", b"{"),
        ("a.json", b"[1]"),
        ("a.json", b"3"),
        ("a.json", b""),
        ("a.json", b"[" * 100_000),
    ],
)
def test_bad_files(tmp_path: Path, name: str, content: bytes) -> None:
    path = tmp_path / name
    path.write_bytes(content)
    with pytest.raises(ConfigError, match=name):
        read_file(path)


def test_missing_file_and_directory(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"Cannot read the configuration .*none.toml: No such file"):
        read_file(tmp_path / "none.toml")
    with pytest.raises(ConfigError, match="Cannot read"):
        read_file(tmp_path)
