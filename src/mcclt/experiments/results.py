"""What a store holds, as statistics, tables, figures and the report read it. Nothing here imports JAX."""

import collections
import functools
import math
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TypeVar

import numpy as np

from mcclt.config.variants import VARIANTS
from mcclt.errors import MccltError
from mcclt.experiments.analysis.texts import count
from mcclt.experiments.setups import CONFIGS, PAPER_TASKS, make_setup
from mcclt.presets import bare_task

_Key = TypeVar("_Key")
_Value = TypeVar("_Value")

NAMES = {
    "plain": "baseline",
    "qr": "QR",
    "mcclt-nw": "MC-CLT without w",
    "ensemble": "ensemble",
    "mcclt": "MC-CLT",
    "explore": "exploration",
    "inverse-variance": "inverse variance",
    "hl-gauss": "HL-Gauss",
    "hl-gauss-nw": "HL-Gauss without w",
}
"""The variants as people read them."""


@dataclass(frozen=True)
class Result:
    """One trained agent, measured."""

    task: str
    algo: str
    variant: str
    seed: int
    digest: str
    """Of its setup."""
    returns: np.ndarray = field(repr=False)
    """[episodes] final deterministic episodes; NaN where an environment failed."""
    lengths: np.ndarray = field(repr=False)
    """[episodes]."""
    curve: dict[str, np.ndarray] = field(repr=False)
    """Columns of numbers over training, `step` among them; NaN where there is none."""
    probe: dict[str, Any] = field(repr=False)
    """What its critic believes; see `training.probe`. Empty if it was not looked at."""
    cost: dict[str, float] = field(repr=False)
    """`seconds` of training, `steps_per_second`, `critic_parameters`."""
    provenance: dict[str, Any] = field(repr=False)
    """Version, git commit, packages, hardware, engine, times, command."""

    @property
    def score(self) -> float:
        """Mean return over the final episodes: one number per seed, the unit of all statistics."""
        return float(np.nanmean(self.returns)) if np.isfinite(self.returns).any() else math.nan


@dataclass(frozen=True, eq=False)
class Series:
    """All seeds of one setup."""

    task: str
    algo: str
    variant: str
    digest: str
    settings: dict[str, Any] = field(repr=False)
    results: tuple[Result, ...] = field(repr=False)
    """In order of their seeds."""

    @property
    def name(self) -> str:
        """As in a store: ppo-mcclt."""
        return f"{self.algo}-{self.variant}"

    @property
    def key(self) -> tuple[str, str, str]:
        """That of its setup."""
        return self.task, self.name, self.digest

    @property
    def label(self) -> str:
        """For people: MC-CLT, n_quantiles=4."""
        return variant_label(self.variant)

    @property
    def seeds(self) -> list[int]:
        """Which seeds there are."""
        return [r.seed for r in self.results]

    @functools.cached_property
    def scores(self) -> np.ndarray:
        """[seeds] final scores."""
        return np.array([r.score for r in self.results])

    @property
    def steps(self) -> int:
        """Environment steps each agent trained for."""
        return int(self.settings["steps"])

    @functools.cached_property
    def configs(self) -> frozenset[str]:
        """Which of `setups.CONFIGS` it was trained with: one, both where they are the same, none if that is unknown."""
        return frozenset(config for config in CONFIGS if self._made_with(config))

    def _made_with(self, config: str) -> bool:
        run = {name: self.settings[name] for name in ("steps", "final_episodes") if name in self.settings}
        try:
            own = make_setup(self.task, self.algo, self.variant, config, **run)
        except MccltError:  # a task without published settings, or a variant of another version of this library
            return False
        # Settings that only one of the two knows are of another version, and are as the digest takes them.
        return own.digest == self.digest and all(self.settings.get(k, v) == v for k, v in own.settings.items())

    def curve(self, column: str) -> tuple[np.ndarray, np.ndarray]:
        """Steps [T] that all seeds have, and the column's values [seeds, T]; NaN where one has none."""
        curves = [r.curve for r in self.results if column in r.curve]
        if not curves:
            return np.zeros(0), np.zeros((0, 0))
        steps = curves[0]["step"]
        for c in curves[1:]:
            steps = np.intersect1d(steps, c["step"])
        rows = [c[column][np.searchsorted(c["step"], steps)] for c in curves]
        known = np.isfinite(rows).any(axis=0)
        return steps[known], np.array(rows)[:, known]


def provenance_of(versions: dict[str, Any]) -> dict[str, Any]:
    """What `storage.runs.versions` found, as far as a result keeps it."""
    names = ("git", "engine", "cpu", "cpu_count", "platform", "python", "packages", "started")
    return {"device": ", ".join(versions.get("devices", [])), **{name: versions.get(name) for name in names}}


def variant_label(variant: str) -> str:
    """For people: mcclt@n_quantiles=4 is "MC-CLT, n_quantiles=4"."""
    name, _, changes = variant.partition("@")
    return ", ".join([NAMES.get(name, name), *(changes.split("+") if changes else [])])


@dataclass(frozen=True, eq=False)
class Results:
    """A whole store, read. Two of them are never equal, so that what is computed of one can be kept with it."""

    series: tuple[Series, ...]
    """Tasks in the paper's order, PPO before TRPO, variants in the paper's order."""
    problems: tuple[str, ...] = ()
    """Files that could not be read, each in one sentence with its path."""
    timings: tuple[dict[str, Any], ...] = field(default=(), repr=False)
    """Measured costs (table 2), one per machine and task."""
    path: Path | None = None
    reproduction: bool = True
    """Whether they are of the paper, and not somebody's own comparison."""

    @functools.cached_property
    def _main(self) -> dict[tuple[str, str, str], Series]:
        """The series that stands for each (task, algo, variant)."""
        found = {}
        for setting, members in grouped(((s.task, s.algo), s) for s in self.series).items():
            config, steps = _most_trained(members)
            best_last = sorted(
                members,
                key=lambda s: (config in s.configs and s.steps == steps, len(s.results), s.steps, s.digest),
            )
            found.update({(*setting, one.variant): one for one in best_last})
        return found

    def main(self, task: str, algo: str, variant: str) -> Series | None:
        """The series that stands for a variant. `notes` names the others.

        Variants are there to be compared, so all of a task and algorithm have the configuration and the number of steps
        that most training went into; a variant that lacks it has that with most seeds, then most steps.
        """
        return self._main.get((task, algo, variant))

    @property
    def mains(self) -> tuple[Series, ...]:
        """One series per (task, algo, variant)."""
        return tuple(s for s in self.series if self.main(s.task, s.algo, s.variant) is s)

    def of(self, variant: str) -> list[Series]:
        """The series that stand for a variant, one per setting."""
        return [s for s in self.mains if s.variant == variant]

    @property
    def settings(self) -> list[tuple[str, str]]:
        """(task, algo) that there is anything of."""
        return list(dict.fromkeys((s.task, s.algo) for s in self.series))

    @property
    def tasks(self) -> list[str]:
        """In the paper's order, others after."""
        return list(dict.fromkeys(s.task for s in self.series))

    @property
    def algos(self) -> list[str]:
        """PPO first."""
        return sorted({s.algo for s in self.series})

    @property
    def variants(self) -> list[str]:
        """In the paper's order, changed ones after the variant they change."""
        return sorted({s.variant for s in self.series}, key=_variant_order)

    @property
    def notes(self) -> list[str]:
        """What must be said about this store: failed episodes; configurations, versions, engines, devices mixed."""
        return [*_failed_episodes(self), *_mixed_configurations(self), *_mixed_provenance(self)]


def grouped(pairs: Iterable[tuple[_Key, _Value]]) -> dict[_Key, tuple[_Value, ...]]:
    """The values of each key, in order."""
    found: dict[_Key, list[_Value]] = {}
    for key, value in pairs:
        found.setdefault(key, []).append(value)
    return {key: tuple(values) for key, values in found.items()}


def gather(
    results: Iterable[Result],
    settings: dict[tuple[str, str, str], dict[str, Any]],
    problems: Sequence[str] = (),
    timings: Sequence[dict[str, Any]] = (),
    path: Path | None = None,
    reproduction: bool = True,
) -> Results:
    """Puts results together by setup; `settings` by (task, name, digest)."""
    groups = grouped(((r.task, r.algo, r.variant, r.digest), r) for r in sorted(results, key=lambda r: r.seed))
    series = [
        Series(task, algo, variant, digest, settings[task, f"{algo}-{variant}", digest], members)
        for (task, algo, variant, digest), members in groups.items()
    ]
    series.sort(key=lambda s: (_task_order(s.task), s.algo, _variant_order(s.variant), s.digest))
    return Results(tuple(series), tuple(problems), tuple(timings), path, reproduction)


def _most_trained(series: Sequence[Series]) -> tuple[str, int]:
    """The configuration and number of steps that most environment steps went into; of equals the longer training."""
    spent: collections.Counter[tuple[str, int]] = collections.Counter()
    for s in series:
        spent.update({(config, s.steps): s.steps * len(s.results) for config in s.configs})
    return max(spent, key=lambda one: (spent[one], one[1], one[0]), default=("", 0))


def _task_order(task: str) -> tuple[int, str]:
    return _place(bare_task(task), [bare_task(t) for t in PAPER_TASKS]), task


def _variant_order(variant: str) -> tuple[int, str]:
    return _place(variant.partition("@")[0], list(VARIANTS)), variant


def _place(name: str, order: list[str]) -> int:
    """Strangers last."""
    return order.index(name) if name in order else len(order)


def _failed_episodes(results: Results) -> Iterator[str]:
    for s in results.series:
        failed = {r.seed: n for r in s.results if (n := int(np.isnan(r.returns).sum()))}
        if failed:
            yield (
                f"{s.name} on {s.task}: {sum(failed.values())} of {sum(len(r.returns) for r in s.results)} final "
                f"episodes failed in their environment (seed {', '.join(map(str, failed))}) and are left out of the "
                "means."
            )


def _mixed_configurations(results: Results) -> Iterator[str]:
    for main in results.mains:
        same = [s for s in results.series if (s.task, s.algo, s.variant) == (main.task, main.algo, main.variant)]
        differing = [k for k in main.settings if any(s.settings.get(k) != main.settings[k] for s in same)]
        shown, *others = (
            ", ".join(f"{k}={s.settings.get(k)}" for k in differing) + f" ({count(len(s.results), 'seed')})"
            for s in sorted(same, key=lambda s: s is not main)
        )
        if others:
            yield (
                f"{main.name} on {main.task} was trained in {len(same)} configurations, which are never averaged: "
                f"shown is {shown}; left out: {'; '.join(others)}."
            )


def _mixed_provenance(results: Results) -> Iterator[str]:
    for name, what in (("version", "versions of mcclt"), ("engine", "engines"), ("device", "devices")):
        for s in results.series:
            counts = collections.Counter(str(r.provenance.get(name, "unknown")) for r in s.results)
            if len(counts) > 1:
                listed = ", ".join(f"{v} ({count(n, 'seed')})" for v, n in sorted(counts.items()))
                yield f"{s.name} on {s.task} combines seeds of several {what}: {listed}."
