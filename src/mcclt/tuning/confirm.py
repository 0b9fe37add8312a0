"""Whether what a search found was luck: the best few and the default, on seeds that no search has seen.

The default is what `mcclt train` takes for the task and the algorithm when nothing else is said.
"""

import json
import shlex
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from mcclt.config import CHANGEABLE, RunConfig
from mcclt.config.values import UNSET
from mcclt.errors import ConfigError
from mcclt.experiments.analysis.stats import Comparison, Summary, compare, summarise
from mcclt.experiments.runner import Display, Tally, run_cells
from mcclt.experiments.setups import Setup
from mcclt.experiments.store import Cell, Store
from mcclt.experiments.workers import InProcess
from mcclt.training.population import on_cpu, usual_size
from mcclt.tuning.search import Plan, Trial, middle_half
from mcclt.tuning.space import configured

DEFAULT = "default"
FIRST_SEED = 1_000
"""Seeds of a confirmation begin here."""


@dataclass(frozen=True)
class Confirmed:
    """What became of a setting on fresh seeds."""

    setup: Setup
    trial: Trial | None
    """None: the default."""
    scores: np.ndarray
    """[n] mean return of each seed's final episodes."""
    summary: Summary
    iqm: float
    against: Comparison | None
    """The difference to the default; None of the default itself."""

    @property
    def name(self) -> str:
        """default, or as `name_of` a trial."""
        return self.setup.variant


def check_fresh(plan: Plan, seeds: Iterable[int]) -> None:
    """Refuses seeds that the search has used."""
    if seen := {*seeds} & {*range(plan.first_seed, plan.first_seed + plan.seeds)}:
        raise ConfigError(f"Seed {min(seen)} is one of the search's own: confirm on others.")


def train(store: Store, cells: Sequence[Cell]) -> Tally:
    """Trains what a store has not, in this process, and shows nothing."""
    gpu = not on_cpu()
    return run_cells(store, cells, InProcess(lambda *_: None), Display(), usual_size(gpu), mix=gpu)


def setups(plan: Plan, best: Sequence[Trial], episodes: int, engine: str) -> list[Setup]:
    """The default and the best few settings, as experiments."""
    # Only the final episodes count: evaluations on the way would be a sixth of all steps.
    run = RunConfig(plan.task, steps=plan.rungs[-1], final_episodes=episodes, engine=engine, eval_freq=0)
    wanted = {DEFAULT: default_of(best[0])} | {name_of(trial): trial.settings for trial in best}
    return [Setup.of(name, *configured(run, settings)) for name, settings in wanted.items()]


def default_of(best: Trial) -> dict[str, Any]:
    """What the default has in common with the best setting: the algorithm, and the time limit.

    With another limit returns could not be compared.
    """
    return {name: best.settings[name] for name in ("algo", "max_episode_steps") if name in best.settings}


def name_of(trial: Trial) -> str:
    """setting-17; with its structure, if it has one: setting-17-normal."""
    return "-".join(["setting", str(trial.number), *(_word(value) for value in trial.structure.values())])


def _word(value: object) -> str:
    return "x".join(map(str, value)) if isinstance(value, tuple) else str(value)


def outcome(store: Store, cells: Sequence[Cell], best: Sequence[Trial]) -> list[Confirmed]:
    """The default first, then the settings by falling interquartile mean over seeds."""
    series = {s.key: s for s in store.load().series}
    trials = {name_of(trial): trial for trial in best}
    setups = dict.fromkeys(setup for setup, _ in cells)
    scores = {setup: series[setup.key].scores for setup in setups if setup.key in series}
    default = next((x for setup, x in scores.items() if setup.variant == DEFAULT), np.zeros(0))
    found = []
    for setup, own in scores.items():
        trial = trials.get(setup.variant)
        against = None if trial is None else compare(own, default, setup.variant, DEFAULT)
        found.append(Confirmed(setup, trial, own, summarise(own), middle_half(own[np.isfinite(own)]), against))
    return sorted(found, key=lambda one: (one.trial is not None, -one.iqm))


def verdict(confirmed: Sequence[Confirmed]) -> str:
    """Whether the best of the settings is better than the default, in a sentence; nothing if there is no test."""
    best = next((one for one in confirmed if one.against is not None and one.against.p is not None), None)
    if best is None or best.against is None:
        return ""
    if best.against.low > 0:
        return f"{best.name} is better than the default."
    if best.against.high < 0:
        return f"The default is better than {best.name}: train with that."
    return f"Whether {best.name} is better than the default is undecided: more seeds (--n-seeds) may tell."


def default_command(confirmed: Sequence[Confirmed]) -> str:
    """What one types to train the default that was confirmed; nothing if none was."""
    for one in confirmed:
        if one.trial is None:
            limit = one.setup.config.max_episode_steps
            flags = [] if limit is None else ["--max-episode-steps", str(limit)]
            return shlex.join(["mcclt", "train", one.setup.task, "--algo", one.setup.algo, *flags])
    return ""


def best_file(plan: Plan, trial: Trial, confirmed: Sequence[Confirmed]) -> str:
    """The settings as a file for `mcclt train --config`; comments say what they gave."""
    lines = [f"# Found by mcclt tune on {plan.task}: {plan.trials} settings, {plan.rungs[-1]:,} steps."]
    for one in confirmed:
        if one.trial is trial or one.trial is None:
            spread = f" ± {one.summary.se:,.1f}" if one.summary.n > 1 else ""
            what = "these settings" if one.trial is trial else f"the default ({default_command(confirmed)})"
            lines.append(
                f"# On {one.summary.n} fresh seeds {what} gave {one.summary.mean:,.1f}{spread} (standard error)."
            )
    if said := verdict(confirmed):
        lines.append(f"# {said}")
    settings = {"task": plan.task} | dict(sorted(trial.settings.items()))
    # Words, numbers and lists are written in TOML as in JSON; what is unset has a word.
    lines += [f"{n} = {json.dumps(UNSET if v is None else v, ensure_ascii=False)}" for n, v in settings.items()]
    return "\n".join([*lines, ""])


def changed(settings: Mapping[str, Any], default: Mapping[str, Any]) -> dict[str, tuple[object, object]]:
    """The settings that are not the default's (see `default_of`), each with the default's value."""
    both = (configured(RunConfig(""), some) for some in (settings, default))
    own, other = ({**vars(agent), **{name: getattr(run, name) for name in CHANGEABLE}} for run, agent in both)
    return {name: (value, other[name]) for name, value in own.items() if value != other[name]}
