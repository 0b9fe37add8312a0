"""Strict numerics for every test: arrays of different rank never broadcast by accident.

What is compiled is kept in the user's cache directory, for the processes that tests start and for the next run: most of
the time of a first run is compilation.
"""

import contextlib
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

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


@pytest.fixture
def trainer_of() -> Iterator[Any]:
    """Makes trainers, and closes them in the end."""
    from mcclt.training.trainer import Trainer

    with contextlib.ExitStack() as stack:
        yield lambda *args: stack.enter_context(contextlib.closing(Trainer(*args)))


FOR_WARP = ("test_warp.py", "test_warp_contacts.py", "test_device.py")
"""Of these one worker runs all: what Warp compiles for one serves the next."""
LONG = ("training", "method", "tuning", "experiments", "tests")
"""Directories whose own files come first, so that in the end no worker waits for the other."""


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Those that take long first."""
    items.sort(key=lambda item: (item.path.name not in FOR_WARP, item.path.parent.name not in LONG))


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: Any) -> Any:
    """One worker runs all of a file: what is made for a test serves the next. (`loadgroup` groups nothing.)"""
    from xdist.scheduler import LoadScopeScheduling

    class Files(LoadScopeScheduling):
        def _split_scope(self, nodeid: str) -> str:
            path = nodeid.partition("::")[0]
            return "warp" if path.endswith(FOR_WARP) else path

    config.option.loadscopereorder = False  # the order above
    return Files(config, log)
