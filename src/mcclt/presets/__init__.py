"""Presets: settings by one name, as overrides of the defaults.

`paper`: the authors' best for one of their tasks. `modern`: one set for every task. `tuned`: the best known for each of
the eight tasks. The last two are data, in the files beside this one.
"""

import functools
import tomllib
from collections.abc import Callable
from importlib import resources
from typing import Any

from mcclt.config import RunConfig
from mcclt.config.values import fields_of
from mcclt.errors import UnknownNameError

# (critic width, w_tar, w_min): MC-CLT PPO, MC-CLT TRPO, ensemble PPO, ensemble TRPO.
_BEST = {
    "Hopper": ((128, 0.90, 0.6), (128, 0.85, 0.4), (128, 0.85, 0.4), (128, 0.90, 0.6)),
    "BipedalWalker": ((128, 0.90, 0.6), (64, 0.90, 0.6), (128, 0.85, 0.5), (64, 0.90, 0.5)),
    "HalfCheetah": ((128, 0.90, 0.6), (128, 0.90, 0.4), (64, 0.85, 0.4), (128, 0.85, 0.4)),
    "Ant": ((64, 0.85, 0.5), (64, 0.90, 0.5), (64, 0.85, 0.4), (64, 0.90, 0.5)),
    "Swimmer": ((128, 0.90, 0.5), (64, 0.90, 0.5), (128, 0.90, 0.4), (64, 0.90, 0.6)),
    "Walker2d": ((128, 0.90, 0.6), (128, 0.90, 0.6), (64, 0.90, 0.6), (64, 0.85, 0.5)),
    "InvertedDoublePendulum": ((128, 0.90, 0.6), (64, 0.90, 0.6), (128, 0.90, 0.5), (128, 0.90, 0.6)),
    "LunarLanderContinuous": ((128, 0.85, 0.5), (128, 0.90, 0.4), (128, 0.90, 0.6), (128, 0.85, 0.5)),
}


def bare_task(task: str) -> str:
    """Hopper-v4 → Hopper: the name in the paper's tables."""
    return task.rsplit("-v", 1)[0]


def paper(task: str, algo: str, critic: str) -> dict[str, Any]:
    """The authors' best configuration for a task of the paper.

    The widths of the baseline and of QR are not published; they take the MC-CLT column's. TRPO's step is as long as in
    the authors' code, which the published returns come from: see `kl_over_actions`.
    """
    name = bare_task(task)
    if name not in _BEST:
        raise UnknownNameError("task of the paper", task, _BEST, "The preset paper exists only for these.")
    column = {"ppo": 0, "trpo": 1}.get(algo, 0) + (2 if critic == "ensemble" else 0)
    width, w_tar, w_min = _BEST[name][column]
    step = {"kl_over_actions": "mean"} if algo == "trpo" else {}
    return {"critic_hidden": (width, width), "w_tar": w_tar, "w_min": w_min} | step


def has_paper(task: str) -> bool:
    """Whether the authors publish a configuration for a task."""
    return bare_task(task) in _BEST


def modern(task: str, algo: str, critic: str) -> dict[str, Any]:
    """One set of settings for every task, as tuned PPO and TRPO of today have them in common."""
    del task, critic
    found = dict(_file("modern"))
    both = found.pop("both")
    if algo not in found:
        raise UnknownNameError("algorithm", algo, found, "The preset modern exists only for these.")
    return both | found[algo]


def tuned(task: str, algo: str, critic: str) -> dict[str, Any]:
    """The best known settings of an algorithm on one of the eight tasks: another preset, and what differs from it."""
    found, name = _file("tuned").get(algo, {}), bare_task(task)
    if name not in found:
        if best := algorithm("tuned", task, ""):
            hint = f"On {name} take {best.upper()} (--algo {best})."
            raise UnknownNameError(f"task with tuned settings of {algo.upper()}", task, found, hint)
        hint = "Take modern, or search with `mcclt tune`."
        raise UnknownNameError("task with tuned settings", task, _file("tuned")["best"], hint)
    own = dict(found[name])
    return PRESETS[own.pop("base", "modern")](task, algo, critic) | own


def has_tuned(task: str) -> bool:
    """Whether there are tuned settings for a task."""
    return bare_task(task) in _file("tuned")["best"]


PRESETS: dict[str, Callable[[str, str, str], dict[str, Any]]] = {"paper": paper, "modern": modern, "tuned": tuned}
"""By name: overrides of an agent's settings and of its run's, as a function of (task, algo, critic)."""


def settings(name: str | None, task: str, algo: str, critic: str) -> tuple[dict[str, Any], dict[str, Any]]:
    """The overrides of a preset: of the run, and of the agent; none without a name."""
    if name is None:
        return {}, {}
    if not isinstance(name, str) or name not in PRESETS:
        raise UnknownNameError("preset", name, PRESETS)
    found, of_run = PRESETS[name](task, algo, critic), fields_of(RunConfig)
    return {k: v for k, v in found.items() if k in of_run}, {k: v for k, v in found.items() if k not in of_run}


def algorithm(name: str | None, task: str, default: str) -> str:
    """The algorithm of a run that names none: with `tuned` the better one on the task."""
    return _file("tuned")["best"].get(bare_task(task), default) if name == "tuned" else default


@functools.cache
def _file(name: str) -> dict[str, Any]:
    return tomllib.loads(resources.files(__package__).joinpath(f"{name}.toml").read_text(encoding="utf-8"))
