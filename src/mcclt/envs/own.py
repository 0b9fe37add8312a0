"""Environments in a file of the user's: the task `my_env.py:MyEnv`."""

import importlib.util
import re
import sys
from collections.abc import Callable
from pathlib import Path
from types import ModuleType
from typing import Any

import cloudpickle

from mcclt.errors import ConfigError, UnknownNameError

FORM = re.compile(r"(.+\.py):(\w+)")
"""How such a task is written: a path, and the name of a class or of a function that makes one."""


def parts(task: str) -> re.Match[str] | None:
    """The path and the name in such a task; None if it is not written like one."""
    if task.endswith(".py"):
        raise ConfigError(f"Which environment of {task}? Add its class, or a function that makes one: {task}:MyEnv.")
    return FORM.fullmatch(task)


def from_file(task: str) -> Callable[[], Any] | None:
    """What makes the environments of such a task; None if it is not written like one."""
    match = parts(task)
    if match is None:
        return None
    path, name = Path(match[1]), match[2]
    if not path.is_file():
        raise ConfigError(f"There is no file {path} to load {name} from.")
    module = import_file(path)
    if not hasattr(module, name):
        own = [key for key, value in vars(module).items() if getattr(value, "__module__", "") == module.__name__]
        raise UnknownNameError(f"name in {path}", name, own, "" if own else "It defines no class and no function.")
    return getattr(module, name)


def import_file(path: Path) -> ModuleType:
    """Imports a file, once; another of the same name elsewhere is another. What it raises is the user's to see."""
    path = path.absolute()
    name = f"mcclt_import_{path}"
    if name in sys.modules:
        return sys.modules[name]
    spec = importlib.util.spec_from_file_location(name, path)
    assert spec is not None and spec.loader is not None  # it is a .py file
    module = sys.modules[name] = importlib.util.module_from_spec(spec)
    try:
        spec.loader.exec_module(module)
    except BaseException:
        del sys.modules[name]
        raise
    cloudpickle.register_pickle_by_value(module)  # other processes cannot import it by its name
    return module
