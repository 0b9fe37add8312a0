"""What a checkpoint says of itself: there and back, and what is refused. tests/faults/test_strangers.py forges more."""

from typing import Any

import numpy as np
import pytest

from mcclt.envs.api import EnvSpec
from mcclt.errors import CheckpointError
from mcclt.storage import metadata
from mcclt.storage.configuration import to_dict
from probes import run_config

SPEC = EnvSpec("toy", "native", 3, 2, np.full(2, -np.inf, np.float32), np.array([1, 0.1], np.float32), 100, True)
ARRAYS = {name: np.zeros(100, np.float32) for name in "abcdefgh"}


def meta_of(**spec: Any) -> dict[str, Any]:
    config = run_config()
    agents = len(config.groups) * len(config.seeds)
    told = metadata.spec_to_dict(SPEC) | spec
    return {"config": to_dict(config), "spec": told, "update": 0, "status": ["training"] * agents, "last_fault": []}


def test_a_spec_comes_back_as_it_was() -> None:
    back = metadata.spec_from_dict(metadata.spec_to_dict(SPEC))
    assert metadata.spec_to_dict(back) == metadata.spec_to_dict(SPEC)
    assert back.action_high is not None and back.action_high.dtype == np.float32
    metadata.check(ARRAYS, meta_of(), "here")
    metadata.check(ARRAYS, meta_of(action_start=-1), "here")


@pytest.mark.parametrize(
    "wrong",
    [
        {"action_low": [1e308, 0.0]},  # none in float32; found by fuzzing
        {"action_low": [0.0]},
        {"action_high": None},
        {"obs_size": -1},
        {"obs_size": 10**12},
        {"action_size": 2.0},
        {"action_start": -1.0},
        {"action_start": 2**63},
        {"task": 7},
        {"resumable": "yes"},
        {"color": "blue"},
    ],
    ids=str,
)
def test_nonsense_is_refused(wrong: dict[str, Any]) -> None:
    with pytest.raises(
        CheckpointError, match=r"here is not a checkpoint of a training run: its metadata is inconsistent\."
    ):
        metadata.check(ARRAYS, meta_of(**wrong), "here")
