"""Which settings are tried, for how long, and which of them are good: the part of a search that knows no agents.

Everything is plain data and a pure function of what was found so far, so that a search goes on exactly where it was
cut off.
"""

import dataclasses
import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

import numpy as np
from scipy.stats import qmc

from mcclt.config.values import check_types, require_each
from mcclt.errors import ConfigError, MissingExtraError
from mcclt.experiments.analysis import aggregates
from mcclt.tuning.space import Space

Sampler = Literal["sobol", "random", "tpe"]
Strategy = Literal["halving", "pbt"]
Score = Literal["end", "area"]

WAITING, TRAINING, STOPPED, FINISHED, FAILED = "waiting", "training", "stopped", "finished", "failed"
NO_EPISODE = "no episode ended"
"""Why a trial has failed that has no score."""
QUARTER = 4
"""Population-based training: the worst of so many parts copy the best."""
TPE_STARTS = 10
"""Settings that Optuna's tpe draws at random before it learns from scores."""
PERTURBED = 0.1
"""And go this far from each number they copy, up or down, as a share of its range."""


@dataclass(frozen=True)
class Plan:
    """A search as it is declared before it begins."""

    task: str
    trials: int
    """Settings to try."""
    seeds: int
    """Agents of each."""
    rungs: tuple[int, ...]
    """Steps at which agents are judged; the last is the end."""
    keep: int = 3
    """At every rung one in this many continues."""
    strategy: Strategy = "halving"
    sampler: Sampler = "sobol"
    score: Score = "end"
    first_seed: int = 10_000
    """Seeds of a search begin here: nothing that is reported is trained with them."""

    def __post_init__(self) -> None:
        check_types(self)
        require_each(self, "trials seeds", lambda x: x >= 1, "at least 1")
        require_each(self, "keep", lambda x: x >= 2, "at least 2")
        if not self.rungs or list(self.rungs) != sorted({*self.rungs}) or self.rungs[0] < 1:
            raise ConfigError(f"rungs = {self.rungs} is not allowed: give growing numbers of steps.")
        if self.strategy == "pbt" and (self.trials < QUARTER or self.seeds > 1):
            raise ConfigError(f"pbt needs at least {QUARTER} settings, with one agent each: --seeds-per-setting 1.")

    @property
    def most_at_once(self) -> int:
        """Settings that may train together: with tpe a part, because the others are to learn from their scores."""
        return min(max(TPE_STARTS, self.trials // 4), self.trials) if self.sampler == "tpe" else self.trials

    @property
    def expected_steps(self) -> int:
        """Environment steps in all, if one of `keep` goes on at every rung."""
        agents, total, before = float(self.trials), 0.0, 0
        for rung in self.rungs:
            total += agents * (rung - before)
            agents, before = (agents if self.strategy == "pbt" else max(agents / self.keep, 1.0)), rung
        return round(total * self.seeds)


def rungs_of(steps: int, strategy: Strategy) -> tuple[int, ...]:
    """The rungs of a search in which the last agents make so many steps."""
    shares = [i / 20 for i in range(1, 21)] if strategy == "pbt" else (0.2, 0.4, 1.0)
    return tuple(sorted({max(1, round(steps * share)) for share in shares}))


@dataclass
class Trial:
    """One setting: where it is in the space, and what became of its agents."""

    number: int
    structure: dict[str, Any]
    point: dict[str, float]
    """In the unit cube, by setting."""
    settings: dict[str, Any]
    state: str = WAITING
    scores: list[float] = field(default_factory=list)
    """At each rung so far: the interquartile mean of its agents."""
    curves: list[list[float]] = field(default_factory=list)
    """Of each agent the mean return of its recent episodes after every update; NaN before any ended."""
    why: str = ""
    """What failed."""

    @property
    def rank(self) -> tuple[int, float]:
        """Greater is better: who came further, then who scored more there."""
        return len(self.scores), self.scores[-1] if self.scores else -math.inf


class Search:
    """The trials of a plan in one structure of its space."""

    def __init__(self, plan: Plan, space: Space, structure: Mapping[str, Any]) -> None:
        self.plan, self.space, self.structure = plan, space, dict(structure)
        self.trials: list[Trial] = []

    # --- which settings ------------------------------------------------------------------------------------

    def ask(self) -> Trial | None:
        """The next setting to try; None when all have been."""
        number = len(self.trials)
        return None if number >= self.plan.trials else self.begin(number, self.sample(number))

    def begin(self, number: int, point: dict[str, float]) -> Trial:
        """A trial at this point of the space."""
        trial = Trial(number, self.structure, point, self.space.settings(self.structure, point), TRAINING)
        self.trials.append(trial)
        return trial

    def trial(self, number: int) -> Trial:
        """By its number."""
        return self.trials[number]

    def sample(self, number: int) -> dict[str, float]:
        """The point of the unit cube where the trial of this number is to be."""
        names = [*self.space.numbers]
        if self.plan.sampler == "sobol":
            size = 2 ** math.ceil(math.log2(max(self.plan.trials, 2)))
            return dict(zip(names, qmc.Sobol(len(names), seed=0).random(size)[number].tolist(), strict=True))
        if self.plan.sampler == "random":
            return dict(zip(names, np.random.default_rng([0, number]).random(len(names)).tolist(), strict=True))
        optuna = import_optuna("--sampler tpe")
        study = self.study(optuna, optuna.samplers.TPESampler(seed=number, multivariate=True, constant_liar=True))
        cube = {name: optuna.distributions.FloatDistribution(0.0, 1.0) for name in names}
        return dict(study.ask(cube).params)

    def study(self, optuna: Any, sampler: Any = None, storage: Any = None, name: str | None = None) -> Any:
        """The trials so far as a study of Optuna's, over the unit cube."""
        study = optuna.create_study(direction="maximize", sampler=sampler, storage=storage, study_name=name)
        states = {STOPPED: "PRUNED", FINISHED: "COMPLETE", FAILED: "FAIL"}
        for trial in self.trials:
            state = optuna.trial.TrialState[states.get(trial.state, "RUNNING")]
            rungs = dict(zip(self.plan.rungs, trial.scores, strict=False))
            study.add_trial(
                optuna.trial.create_trial(
                    state=state,
                    value=trial.scores[-1] if trial.state == FINISHED else None,
                    params=trial.point,
                    distributions={name: optuna.distributions.FloatDistribution(0.0, 1.0) for name in trial.point},
                    intermediate_values={step: score for step, score in rungs.items() if math.isfinite(score)},
                    user_attrs={name: str(value) for name, value in trial.settings.items()},
                )
            )
        return study

    # --- which go on ---------------------------------------------------------------------------------------

    def judge(self, found: Mapping[int, float]) -> None:
        """Trials have reached their next rung, each with this score: says which go on.

        Asynchronous successive halving: one of `keep` goes on of all that have ever come to that rung, those that come
        together being judged together. Who is stopped does not come back.
        """
        for number, score in found.items():
            self.trials[number].scores.append(score)
        for number in found:
            trial = self.trials[number]
            rung = len(trial.scores) - 1
            scores = sorted((t.scores[rung] for t in self.trials if len(t.scores) > rung), reverse=True)
            places = max(len(scores) // self.plan.keep, 1)
            if not math.isfinite(trial.scores[-1]):
                trial.state, trial.why = FAILED, NO_EPISODE
            elif rung == len(self.plan.rungs) - 1:
                trial.state = FINISHED
            elif self.plan.strategy == "halving" and trial.scores[-1] < scores[places - 1]:
                trial.state = STOPPED

    def exploit(self, numbers: Sequence[int]) -> dict[int, tuple[int, dict[str, Any]]]:
        """Population-based training: which of these trials copy which, and the settings they go on with."""
        order = sorted(numbers, key=lambda n: self.trials[n].scores[-1])
        few = len(order) // QUARTER
        rng = np.random.default_rng([1, len(self.trials[order[-1]].scores)])
        copies = {}
        for loser in order[:few]:
            best = self.trials[int(rng.choice(order[-few:]))]
            point = {
                name: float(np.clip(u + PERTURBED * rng.choice((-1, 1)), 0.0, 1.0)) for name, u in best.point.items()
            }
            own = self.trials[loser]
            own.point, own.settings = point, self.space.settings(self.structure, point)
            copies[loser] = best.number, own.settings
        return copies

    def fail(self, number: int, why: str) -> None:
        """A trial whose environment failed."""
        self.trials[number].state, self.trials[number].why = FAILED, why

    def to_data(self) -> list[dict[str, Any]]:
        """The trials as plain data, for `from_data`."""
        return [dataclasses.asdict(trial) for trial in self.trials]


def from_data(data: Iterable[Mapping[str, Any]]) -> list[Trial]:
    """Reads what `Search.to_data` gave; lists of a file become the tuples that settings have."""

    def settled(values: Mapping[str, Any]) -> dict[str, Any]:
        return {name: tuple(value) if isinstance(value, list) else value for name, value in values.items()}

    found = [Trial(**one) for one in data]
    for trial in found:
        trial.structure, trial.settings = settled(trial.structure), settled(trial.settings)
    return found


def score_of(curves: Sequence[Sequence[float]], score: Score) -> float:
    """The score of a setting from its agents' learning curves: their interquartile mean.

    Args:
        curves: as in `Trial`.
        score: `end`: the last value; `area`: the mean over the whole curve, so that learning early counts.
    """
    ends = [curve[-1] if score == "end" else np.nanmean(curve) for curve in curves if np.isfinite(curve).any()]
    if len(ends) < len(curves):
        return -math.inf
    return middle_half(ends)


def middle_half(scores: Sequence[Any] | np.ndarray) -> float:
    """The interquartile mean of agents' scores; NaN of none."""
    return float(aggregates.iqm([np.asarray(scores, float)])) if len(scores) else math.nan


def import_optuna(what: str) -> Any:
    """Optuna, or one sentence about what needs it."""
    try:
        import optuna
    except ImportError:
        raise MissingExtraError(what, "optuna") from None
    optuna.logging.set_verbosity(optuna.logging.WARNING)
    return optuna
