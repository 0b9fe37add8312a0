"""Gymnasium's own environments, for the tests of ours."""

import contextlib
import functools
import tempfile
from collections.abc import Iterable
from typing import Any

import gymnasium
import pytest


@functools.cache
def gym_env(task_id: str) -> Any:
    """Without its wrappers."""
    with tempfile.TemporaryDirectory() as folder, contextlib.chdir(folder):  # where MuJoCo logs its warnings
        return gymnasium.make(task_id, disable_env_checker=True).unwrapped


def newest(names: Iterable[str]) -> Any:
    """Tasks for what does not depend on their version: those of version 4 are slow."""
    marks = {name: pytest.mark.slow if name.endswith("v4") else () for name in names}
    return pytest.mark.parametrize("task_id", [pytest.param(name, marks=mark) for name, mark in marks.items()])
