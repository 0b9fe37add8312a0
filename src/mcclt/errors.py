"""Errors that speak to people: one sentence with what was wrong, what is allowed and what to do."""

import difflib
import importlib.metadata
import re
import shlex
from collections.abc import Iterable


def shown(value: object) -> str:
    """A value in a message: those from files may be endless, and Python refuses to write very large numbers."""
    try:
        text = repr(value)
    except (ValueError, RecursionError):
        return f"a very large {type(value).__name__}"
    return text if len(text) <= 200 else f"{text[:197]}..."


class MccltError(Exception):
    """Base of every error this library raises on purpose. The command line prints it and exits with 2."""


class ConfigError(MccltError, ValueError):
    """A setting that makes no sense, or two that contradict each other."""


class UnknownNameError(ConfigError):
    """A name that is in no table; the message lists what is, and suggests the nearest."""

    def __init__(self, kind: str, name: object, allowed: Iterable[str], hint: str = "") -> None:
        allowed = list(allowed)
        folded = {a.lower(): a for a in allowed}  # "hopper-v5" means "Hopper-v5"
        wanted = str(name).lower()
        close = difflib.get_close_matches(wanted, folded)
        # Versions are alike in any two ids.
        near = [a for a in close if difflib.get_close_matches(_bare(wanted), [_bare(a)])]
        meant = f" Did you mean {folded[near[0]]!r}?" if near else ""
        listed = f" Allowed: {', '.join(allowed)}." if 0 < len(allowed) <= 20 else ""
        super().__init__(f"Unknown {kind} {shown(name)}.{meant}{listed}{' ' + hint if hint else ''}")


def _bare(task: str) -> str:
    """An id without its version."""
    return re.sub(r"-v[0-9]+$", "", task)


class MissingExtraError(MccltError, ImportError):
    """An optional package is needed and not installed."""

    def __init__(self, what: str, extra: str) -> None:
        super().__init__(f"{what} needs an optional package: install it with  {install(extra)}")


def install(extra: str) -> str:
    """What to type for an extra: its packages by name, since this one may have come from anywhere."""
    try:
        required = importlib.metadata.requires("mcclt") or []
    except importlib.metadata.PackageNotFoundError:  # it runs from its source, uninstalled
        required = []
    found = [line.partition(";") for line in required]
    names = [name.strip() for name, _, when in found if f'extra == "{extra}"' in when]
    return f"pip install {' '.join(map(shlex.quote, names)) if names else shlex.quote(f'mcclt[{extra}]')}"


class UnsupportedSpaceError(MccltError, TypeError):
    """An observation or action space that no policy here can handle."""


class CheckpointError(MccltError):
    """A checkpoint that is truncated, damaged, from a newer version, or not ours."""


class InaccessibleError(CheckpointError):
    """Cannot be read or written here, though it may be whole: a disk, permissions, memory, a newer version."""


class EnvironmentFault(MccltError, RuntimeError):
    """An environment raised, or returned a number that is not finite."""
