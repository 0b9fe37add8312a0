"""The page of a search: the best settings, their confirmation, what mattered, every setting, and what it cost."""

import math
import shlex
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from mcclt.errors import MissingExtraError
from mcclt.experiments.analysis.texts import count
from mcclt.experiments.curve import evenly
from mcclt.experiments.settings import typed
from mcclt.pages.rendering import render, score, short, strips
from mcclt.storage import files
from mcclt.tuning.confirm import Confirmed, changed, default_command, default_of, name_of, verdict
from mcclt.tuning.search import Plan, Search, Trial, import_optuna
from mcclt.tuning.space import Space
from mcclt.tuning.tuner import Tuner

WIDTH, HEIGHT = 960, 340
"""Of a drawing."""
POINTS = 80
"""Of a drawn learning curve, at most."""


def write(tuner: Tuner, confirmed: Sequence[Confirmed], winner: Trial, folder: Path) -> Path:
    """Writes search.html, which needs no other file, into a folder; returns its path."""
    plan, status = tuner.plan, tuner.status
    trials = tuner.best()
    path = folder / "search.html"
    differences = changed(winner.settings, default_of(trials[0]))
    states = Counter(trial.state for trial in tuner.trials)
    page = render(
        "tune",
        {},
        task=plan.task,
        summary=_summary(tuner, confirmed, winner),
        winner=name_of(winner),
        settings=[(name, typed(value), typed(default)) for name, (value, default) in differences.items()],
        confirmed=strips(confirmed, [one.scores for one in confirmed]),
        default=default_command(confirmed),
        curves=_curves(tuner, trials),
        spaces=[_space(tuner, space) for space in tuner.spaces],
        cost=[
            ("Settings tried", ", ".join(f"{number:,} {state}" for state, number in states.items())),
            ("Seeds of each", str(plan.seeds)),
            ("Compared at", ", ".join(short(rung) for rung in plan.rungs) + " steps"),
            ("Steps of all agents", f"{status.steps:,}"),
            (
                "Time",
                f"{status.seconds / 60:.1f} min, of which {status.compiling:.0f} s until the first update was made",
            ),
            ("Speed", f"{status.steps / max(status.seconds, 1e-9):,.0f} steps/s, all counted"),
            ("Places taken", f"{100 * status.occupancy:.0f} %"),
            ("Structures", str(len(tuner.searches))),
        ],
        command=f"mcclt train --config {shlex.quote(str(folder / 'best.toml'))}",
        width=WIDTH,
        height=HEIGHT,
    )
    files.write_atomically(path, page.encode())
    return path


def _summary(tuner: Tuner, confirmed: Sequence[Confirmed], winner: Trial) -> str:
    tried = count(len(tuner.trials), "setting")
    own = next((one for one in confirmed if one.trial is winner), None)
    if own is None or own.against is None:
        return f"{tried} tried on {tuner.plan.task}. The best scored {score(winner.scores[-1])}; nothing was confirmed."
    ends = (score(own.against.low, "+"), score(own.against.high, "+"))
    known = f" (95 % interval {ends[0]} to {ends[1]})" if own.against.p is not None else ""
    seeds = count(own.summary.n, "fresh seed")
    return (
        f"{tried} tried on {tuner.plan.task}. On {seeds} the best gave {score(own.summary.mean)}, "
        f"{score(own.against.difference, '+')} against the default{known}. {verdict(confirmed)}".rstrip()
    )


def _space(tuner: Tuner, space: Space) -> dict[str, Any]:
    """What mattered in one of the spaces that were searched, and its settings; with a name if there are others."""
    searches = [one for one in tuner.searches if one.space is space]
    own = {id(trial) for one in searches for trial in one.trials}
    return {
        "name": str(searches[0].structure.get("algo", "")).upper() if len(tuner.spaces) > 1 else "",
        "importance": _importance(searches),
        "parallel": _parallel(space, [trial for trial in tuner.best() if id(trial) in own], tuner.plan),
    }


def _importance(searches: Sequence[Search]) -> list[tuple[str, float]] | None:
    """How much each number mattered for the score at the first rung (PED-ANOVA); None without Optuna."""
    try:
        optuna = import_optuna("Importance")
    except MissingExtraError:
        return None
    study = optuna.create_study(direction="maximize")
    for one in searches:
        cube = {name: optuna.distributions.FloatDistribution(0.0, 1.0) for name in one.space.numbers}
        for trial in one.trials:
            if trial.scores and math.isfinite(trial.scores[0]):
                study.add_trial(
                    optuna.trial.create_trial(params=trial.point, distributions=cube, value=trial.scores[0])
                )
    if len({trial.value for trial in study.trials}) < 4:
        return []
    evaluator = optuna.importance.PedAnovaImportanceEvaluator()
    return list(optuna.importance.get_param_importances(study, evaluator=evaluator).items())


# --- drawings: places on a canvas of WIDTH x HEIGHT --------------------------------------------------------------


def _across(value: float, low: float, high: float, length: float) -> float:
    return round(length * (value - low) / max(high - low, 1e-12), 1)


def _tone(trials: Sequence[Trial]) -> dict[int, float]:
    """Where each trial stands among all, from 0 (the worst) to 1; `trials` are in order, the best first."""
    return {id(trial): 1 - i / max(len(trials) - 1, 1) for i, trial in enumerate(trials)}


def _curves(tuner: Tuner, trials: Sequence[Trial]) -> dict[str, Any]:
    """A line for each setting, from its first to its last update."""
    lines, values = [], []
    for trial in trials:
        stride = tuner.steps_per_update(trial)
        curve = np.array(trial.curves)
        known = np.isfinite(curve).any(axis=0)
        steps = stride * (1 + np.flatnonzero(known))
        mean = np.nanmean(curve[:, known], axis=0)
        pick = evenly(len(steps), POINTS)
        lines.append((trial, steps[pick], mean[pick]))
        values += mean[pick].tolist()
    low, high = (float(np.percentile(values, 1)), float(np.max(values))) if values else (0.0, 1.0)
    tone, last = _tone(trials), max([tuner.plan.rungs[-1], *(int(steps[-1]) for _, steps, _ in lines)])
    drawn = [
        {
            "points": " ".join(
                f"{_across(s, 0, last, WIDTH)},{HEIGHT - _across(max(v, low), low, high, HEIGHT)}"
                for s, v in zip(steps, mean, strict=True)
            ),
            "tone": tone[id(trial)],
            "title": f"{name_of(trial)}: {trial.scores[-1]:,.0f}",
        }
        for trial, steps, mean in reversed(lines)
    ]
    rungs = [(_across(rung, 0, last, WIDTH), short(rung)) for rung in tuner.plan.rungs]
    marks = [(HEIGHT - _across(mark, low, high, HEIGHT), score(mark)) for mark in _round_numbers(low, high)]
    return {"lines": drawn, "rungs": rungs, "marks": marks}


def _round_numbers(low: float, high: float) -> list[float]:
    """Some four between two numbers."""
    rough = max(high - low, 1e-12) / 4
    size = 10.0 ** math.floor(math.log10(rough))
    step = size * next(m for m in (1, 2, 5, 10) if m * size >= rough)
    return [k * step for k in range(math.ceil(low / step), math.floor(high / step) + 1)]


def _parallel(space: Space, trials: Sequence[Trial], plan: Plan) -> dict[str, Any]:
    """A line for each setting, through its place on the axis of every number; the last axis is the score."""
    names = [*space.numbers]
    gap = WIDTH / max(len(names), 1)
    first = [trial.scores[0] for trial in trials]
    low, high = (float(np.percentile(first, 5)), max(first)) if first else (0.0, 1.0)
    tone = _tone(sorted(trials, key=lambda trial: trial.scores[0], reverse=True))
    lines = []
    for trial in sorted(trials, key=lambda trial: trial.scores[0]):
        heights = [trial.point[name] for name in names]
        heights.append(min(max((trial.scores[0] - low) / max(high - low, 1e-12), 0.0), 1.0))
        points = " ".join(f"{round(i * gap, 1)},{round(HEIGHT * (1 - u), 1)}" for i, u in enumerate(heights))
        words = ", ".join(f"{name} {typed(trial.settings[name])}" for name in names)
        lines.append({"points": points, "tone": tone[id(trial)], "title": f"{name_of(trial)}: {words}"})
    axes = [
        (round(i * gap, 1), name, typed(space.numbers[name].at(1.0)), typed(space.numbers[name].at(0.0)))
        for i, name in enumerate(names)
    ]
    axes.append((WIDTH, f"score at {short(plan.rungs[0])}", f"{high:,.0f}", f"{low:,.0f}"))
    return {"lines": lines, "axes": axes}
