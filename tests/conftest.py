"""Strict numerics for every test: arrays of different rank never broadcast by accident.

What is compiled is kept in the user's cache directory, for the processes that tests start and for the next run: most of
the time of a first run is compilation.
"""

import os
from pathlib import Path

import jax
import pytest

CACHE = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "mcclt" / "tests"

jax.config.update("jax_numpy_rank_promotion", "raise")
for _name, _value in {
    "jax_compilation_cache_dir": str(CACHE),
    "jax_persistent_cache_min_compile_time_secs": 0.0,
    "jax_persistent_cache_min_entry_size_bytes": -1,
}.items():
    jax.config.update(_name, _value)
    os.environ[_name.upper()] = str(_value)


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """One worker runs all of a file, and one all that compiles for Warp: what is made for a test serves the next."""
    for item in items:
        if item.get_closest_marker("xdist_group") is None:
            item.add_marker(pytest.mark.xdist_group(item.path.as_posix()))
