"""The user's own code: environments in a file, as the task `my_env.py:MyEnv`, and what it raises, in words."""

import contextlib
import importlib.util
import os
import re
import sys
import traceback
from collections.abc import Callable, Iterator
from pathlib import Path
from types import ModuleType
from typing import Any

import cloudpickle

from mcclt.errors import ConfigError, UnknownNameError

FORM = re.compile(r"(.+\.py):(\w+)")
"""How such a task is written: a path, and the name of a class or of a function that makes one."""

HERE = f"{Path(__file__).parent}{os.sep}"
"""Where what calls and imports the user's code is: its lines say nothing."""
LIBRARY = f"{Path(__file__).parents[1]}{os.sep}"


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
    """Imports a file, once; another of the same name elsewhere is another."""
    name = f"mcclt_import_{path.absolute()}"
    if name in sys.modules:
        return sys.modules[name]
    spec = importlib.util.spec_from_file_location(name, path.absolute())
    assert spec is not None and spec.loader is not None  # it is a .py file
    module = sys.modules[name] = importlib.util.module_from_spec(spec)
    try:
        with _importing(path):
            spec.loader.exec_module(module)
    except BaseException:
        del sys.modules[name]
        raise
    cloudpickle.register_pickle_by_value(module)  # other processes cannot import it by its name
    return module


def import_module(name: str) -> ModuleType:
    """Imports a module by its name."""
    with _importing(name):
        return importlib.import_module(name)


@contextlib.contextmanager
def _importing(what: object) -> Iterator[None]:
    try:
        yield
    except Exception as error:
        raise ConfigError(f"Importing {what} failed: {told(error)}") from error


def told(error: BaseException) -> str:
    """What was raised and where in the user's code, in a sentence; then all lines, and what it was raised from."""
    frames = [f for f in _shown(traceback.extract_tb(error.__traceback__)) if not f.filename.startswith(LIBRARY)]
    place = f" ({Path(frames[-1].filename).name}, line {frames[-1].lineno})" if frames else ""
    return f"{type(error).__name__}: {' '.join(str(error).split())}{place}{_trace(error)}"


def _shown(stack: traceback.StackSummary) -> list[traceback.FrameSummary]:
    """The part of a stack that says something."""
    return [f for f in stack if not f.filename.startswith((HERE, importlib.__file__, "<frozen ", "<string>"))]


def _trace(error: BaseException) -> str:
    """Where it was raised, and what it was raised from, on lines of their own."""
    raised: traceback.TracebackException | None = traceback.TracebackException.from_exception(error)
    lines: list[str] = []
    while raised is not None:
        lines += traceback.format_list(_shown(raised.stack))
        if issubclass(raised.exc_type, SyntaxError):  # no frame has its line
            lines += [*raised.format_exception_only()][:-1]
        link = "from" if raised.__cause__ else "while handling"
        raised = raised.__cause__ or (None if raised.__suppress_context__ else raised.__context__)
        lines += [f"{link} ", *raised.format_exception_only()] if raised else []
    return ("\n" + "".join(lines)).rstrip()
