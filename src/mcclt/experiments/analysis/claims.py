"""The paper's claims, each tested on what a store holds.

A *setting* is a task with an algorithm; the paper has 16. Verdicts are about the settings that are there, and say
how many those are. Only series trained for the same number of steps are compared, and seeds are the unit of every
test. Where one claim makes many tests (one per setting), their p-values are Holm's.
"""

import dataclasses
import math
import shlex
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from mcclt.experiments import plan
from mcclt.experiments.analysis import stats
from mcclt.experiments.filling import fill
from mcclt.experiments.paper import paper_entry, paper_results
from mcclt.experiments.results import Results, Series, variant_label
from mcclt.experiments.setups import PAPER_TASKS, bare_task

ALPHA = 0.05
"""The paper's level of significance, and ours."""

MARGIN = 0.1
"""Differences below a tenth of the baseline's score count as none, where a claim is that something does not matter."""

SHOWN = 5
"""Commands listed one by one; a whole part of the paper is one command anyway."""


@dataclass(frozen=True)
class Verdict:
    """What a store says about a claim."""

    claim: str
    """The paper's statement, in one sentence."""
    paper: str
    """Its numbers."""
    ours: str
    """Our numbers, with intervals."""
    verdict: str
    """confirmed, not confirmed, opposite or not measured."""
    details: tuple[str, ...] = ()
    """The rule of the verdict, then one line per setting or step."""
    needs: tuple[str, ...] = ()
    """What would fill what is missing: commands (they start with `mcclt`), and numbers of seeds in a sentence."""


def verdicts(results: Results, seed: int = 0) -> list[Verdict]:
    """All claims; `seed` is that of the bootstrap."""
    rng = np.random.default_rng(seed)
    return [
        _beats_ensemble(results),
        _each_component(results, rng),
        _beats_baseline(results, rng),
        _weights_help(results, rng),
        _accuracy_beats_exploration(results),
        _cost(results),
        _bars_suffice(results),
        _bellman_grows(results),
        _ensemble_falls(results),
        _close_to_normal(results),
    ]


# --- comparing two variants ------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Contrast:
    """Two variants in one setting."""

    task: str
    algo: str
    a: Series | None
    b: Series | None
    comparison: stats.Comparison | None
    """a against b; None if one is not there, or the two trained differently (steps, configuration)."""
    p: float | None
    """Welch's, Holm-adjusted over the settings of the store; None where there is no test."""
    why: str
    """Why there is no test, in one sentence; empty if there is."""

    @property
    def setting(self) -> str:
        """For people: PPO on Hopper-v4."""
        return f"{self.algo.upper()} on {self.task}"

    @property
    def sign(self) -> int:
        """1 where a is significantly better, −1 where worse, 0 where that is open or not tested."""
        if self.comparison is None or self.p is None or self.p >= ALPHA:
            return 0
        return 1 if self.comparison.difference > 0 else -1


def contrasts(results: Results, a: str, b: str) -> list[Contrast]:
    """Variant a against b in every setting of the store that has one of them."""
    found = []
    for task in results.tasks:
        for algo in results.algos:
            one, other = results.main(task, algo, a), results.main(task, algo, b)
            if one is not None or other is not None:
                comparison, why = _compared(one, other, a, b)
                p = comparison.p if comparison else None
                found.append(Contrast(task, algo, one, other, comparison, p, why))
    adjusted = stats.holm([c.p for c in found])
    return [dataclasses.replace(c, p=p) for c, p in zip(found, adjusted, strict=True)]


def _compared(one: Series | None, other: Series | None, a: str, b: str) -> tuple[stats.Comparison | None, str]:
    if one is None or other is None:
        return None, f"There are no results of {variant_label(a if one is None else b)}."
    if one.steps != other.steps:
        return None, (
            f"They are not comparable: {one.label} trained for {one.steps:,} steps, {other.label} for {other.steps:,}."
        )
    if one.configs and other.configs and not one.configs & other.configs:
        return None, (
            f"They are not comparable: {one.label} was trained in the configuration {_either(one.configs)!r}, "
            f"{other.label} in {_either(other.configs)!r}."
        )
    comparison = stats.compare(one.scores, other.scores, one.label, other.label)
    return comparison, comparison.why


def _either(configs: frozenset[str]) -> str:
    return " or ".join(sorted(configs))


def reference(results: Results, task: str, algo: str) -> tuple[float, float] | None:
    """What scores of a setting are divided by (see `stats.normalise`): the reference and the smallest scale.

    The reference is the paper's baseline; where the paper has no such task, our own. The smallest scale is our
    baseline's standard deviation over seeds. None if there is neither.
    """
    entry, own = paper_entry(task, algo, "plain"), results.main(task, algo, "plain")
    scores = stats.finite(own.scores) if own else np.zeros(0)
    floor = float(scores.std(ddof=1)) if scores.size > 1 else 0.0
    if entry is None and not scores.size:
        return None
    mean = float(entry["mean"]) if entry else float(scores.mean())
    return (mean, floor) if max(abs(mean), floor) > 0 else None


def normalised(results: Results, series: Series) -> np.ndarray | None:
    """[seeds] scores of a series with the baseline's at 1; None without a reference."""
    scale = reference(results, series.task, series.algo)
    return None if scale is None else stats.normalise(stats.finite(series.scores), *scale)


# --- claims about returns --------------------------------------------------------------------------------------


def _beats_ensemble(results: Results) -> Verdict:
    """Confirmed if significantly better in more than half of the settings and significantly worse in none."""
    return _by_settings(
        results,
        "mcclt",
        "ensemble",
        claim="MC-CLT beats the ensemble: significantly in 10 of 16 settings.",
        paper="Significantly better (0.05) in 10 of 16 settings; the errors are pooled over episodes.",
        everywhere=False,
    )


def _accuracy_beats_exploration(results: Results) -> Verdict:
    """Confirmed if better in every setting, significantly so in more than half of them."""
    return _by_settings(
        results,
        "mcclt",
        "explore",
        claim="Seeking accuracy beats seeking exploration in all experiments.",
        paper="A higher mean in 16 of 16 settings (table 3).",
        everywhere=True,
    )


def _by_settings(results: Results, a: str, b: str, claim: str, paper: str, everywhere: bool) -> Verdict:
    """A claim that counts settings in which a beats b significantly."""
    also = "better on average in every one" if everywhere else "significantly worse in none"
    rule = (
        "Rule: confirmed if significantly better (Welch's t-test, Holm over these settings, 0.05) in more than half of "
        f"the settings and {also}; opposite if significantly worse in more settings than better."
    )
    found = contrasts(results, a, b)
    tested = [c for c in found if c.p is not None]
    details = (rule, *map(_contrast_text, found))
    needs = (*few_of(_missing(results, found, a, b)), *_more_seeds(tested))
    if not tested:
        return Verdict(claim, paper, _nothing(found), "not measured", details if found else (), needs)
    better, worse = sum(c.sign > 0 for c in tested), sum(c.sign < 0 for c in tested)
    highest = sum(c.comparison is not None and c.comparison.difference > 0 for c in tested)
    ours = (
        f"On {_scope(tested)}: significantly better in {better}, significantly worse in {worse}, undecided in "
        f"{len(tested) - better - worse}; the mean is higher in {highest} of {len(tested)}."
    )
    accepted = highest == len(tested) if everywhere else worse == 0
    if 2 * better > len(tested) and accepted:
        return Verdict(claim, paper, ours, "confirmed", details, needs)
    return Verdict(claim, paper, ours, "opposite" if worse > better else "not confirmed", details, needs)


def _beats_baseline(results: Results, rng: np.random.Generator) -> Verdict:
    """Confirmed if a random seed of MC-CLT beats one of the baseline more often than not, over settings."""
    return _by_probability(
        results, "mcclt", "plain", rng, "MC-CLT beats the baseline.", _paper_higher("mcclt", "plain")
    )


def _weights_help(results: Results, rng: np.random.Generator) -> Verdict:
    """Confirmed if a random seed of MC-CLT beats one without weights more often than not, over settings."""
    return _by_probability(
        results,
        "mcclt",
        "mcclt-nw",
        rng,
        "The uncertainty weights help: MC-CLT beats MC-CLT without w.",
        _paper_higher("mcclt", "mcclt-nw"),
    )


STEP_RULE = (
    "over settings, the probability that a random seed of the one beats a random seed of the other must be above ½: "
    "its 95 % bootstrap interval and a stratified rank test (0.05) must both say so"
)


def _by_probability(results: Results, a: str, b: str, rng: np.random.Generator, claim: str, paper: str) -> Verdict:
    found = contrasts(results, a, b)
    tested = [c for c in found if c.p is not None]
    rule = f"Rule: {STEP_RULE}; opposite if both say that it is below."
    needs = (*few_of(_missing(results, found, a, b)), *_more_seeds(tested))
    if not tested:
        return Verdict(claim, paper, _nothing(found), "not measured", (rule,) if found else (), needs)
    step = _improvement(tested, rng)
    verdict = {1: "confirmed", 0: "not confirmed", -1: "opposite"}[_direction(step, step.p)]
    ours = f"On {_scope(tested)}: {_improvement_text(step, step.p)}."
    return Verdict(claim, paper, ours, verdict, (rule, *map(_contrast_text, found)), needs)


def _each_component(results: Results, rng: np.random.Generator) -> Verdict:
    """Confirmed if each of the three steps improves; opposite if more steps harm than improve."""
    claim = (
        "Each component adds: from the baseline over QR and MC-CLT without w to MC-CLT there is a trend of improvement."
    )
    chain = ("plain", "qr", "mcclt-nw", "mcclt")
    pairs = list(zip(chain[1:], chain, strict=False))
    paper = " ".join(f"{variant_label(b)} → {variant_label(a)}: {_paper_higher(a, b).lower()}" for a, b in pairs)
    found = {pair: contrasts(results, *pair) for pair in pairs}
    tested = {pair: [c for c in f if c.p is not None] for pair, f in found.items()}
    untested = tuple(dict.fromkeys(_contrast_text(c) for f in found.values() for c in f if c.p is None))
    needs = few_of([line for (a, b), f in found.items() for line in _missing(results, f, a, b)])
    rule = (
        f"Rule: for each of the three steps, {STEP_RULE} (Holm over the steps); opposite if more steps harm than help."
    )
    if not all(tested.values()):
        lacking = [f"{variant_label(b)} → {variant_label(a)}" for (a, b), f in tested.items() if not f]
        ours = f"Not all steps can be tested; there is nothing for {', '.join(lacking)}."
        return Verdict(claim, paper, ours, "not measured", untested, needs)
    steps = {pair: _improvement(f, rng) for pair, f in tested.items()}
    adjusted = stats.holm([s.p for s in steps.values()])
    signs = [_direction(s, p) for s, p in zip(steps.values(), adjusted, strict=True)]
    details = [rule]
    for ((a, b), step), p in zip(steps.items(), adjusted, strict=True):
        details.append(
            f"{variant_label(b)} → {variant_label(a)} ({_scope(tested[a, b])}): {_improvement_text(step, p, 'Holm ')}."
        )
    details += [*_aggregates(results, chain, rng), *untested]
    ours = f"{signs.count(1)} of 3 steps improve significantly, {signs.count(-1)} harm: " + "; ".join(
        f"{variant_label(b)} → {variant_label(a)} {_interval(s.probability, s.low, s.high, '.2f')}"
        for (a, b), s in steps.items()
    )
    verdict = (
        "confirmed" if signs.count(1) == 3 else "opposite" if signs.count(-1) > signs.count(1) else "not confirmed"
    )
    return Verdict(claim, paper, f"{ours} (probability of improvement).", verdict, tuple(details), needs)


def _aggregates(results: Results, variants: Sequence[str], rng: np.random.Generator) -> list[str]:
    """IQM of each variant over the settings where all are there with two seeds or more and equal steps."""
    rows: list[list[np.ndarray]] = []
    for task in results.tasks:
        for algo in results.algos:
            series = [s for v in variants if (s := results.main(task, algo, v)) is not None]
            if len(series) < len(variants) or len({s.steps for s in series}) > 1:
                continue
            scores = [x for s in series if (x := normalised(results, s)) is not None and x.size > 1]
            if len(scores) == len(variants):
                rows.append(scores)
    lines = []
    for place, variant in enumerate(variants if rows else ()):
        scores = [row[place] for row in rows]
        low, high = stats.stratified_bootstrap(scores, stats.iqm, rng)
        lines.append(
            f"Interquartile mean of {variant_label(variant)}: {_interval(float(stats.iqm(scores)), low, high, '.3f')} "
            f"over {_count(len(rows), 'setting')} (the paper's baseline, or ours on other tasks, is 1)."
        )
    return lines


def _bars_suffice(results: Results) -> Verdict:
    """Confirmed if 12 and 20 bars are better than 8 by less than the margin, with 95 % confidence.

    That something suffices is no absence of significance (which a few seeds always give) but an upper bound: the whole
    interval of "more bars minus 8" must lie below the margin. Opposite if more bars help significantly, and a gain
    beyond the margin is not ruled out.
    """
    claim = "Eight quantile bars suffice: 8 or more give similar performance."
    paper = "Stated for N = 4, 8, 12 and 20, without numbers."
    rule = (
        f"Rule: confirmed if the 95 % intervals of 12 − 8 and 20 − 8 bars lie below +{MARGIN} of the baseline's score; "
        "opposite if one lies above 0 and reaches beyond that."
    )
    found = {n: contrasts(results, f"mcclt@n_quantiles={n}", "mcclt") for n in (4, 12, 20)}
    differences = {n: _normalised_difference(results, f) for n, f in found.items()}
    lines = [
        f"{n} − 8 bars: {_interval(d.difference, d.low, d.high, '+z.3f')} over {_count(d.tasks, 'setting')}."
        for n, d in differences.items()
        if d.p is not None
    ]
    details = (rule, *lines, *(_contrast_text(c) for f in found.values() for c in f if c.p is None))
    needs = few_of([x for n, f in found.items() for x in _missing(results, f, f"mcclt@n_quantiles={n}", "mcclt")])
    more = [differences[12], differences[20]]
    if any(d.p is None for d in more):
        return Verdict(claim, paper, "12 and 20 bars are not both measured beside 8.", "not measured", details, needs)
    ours = " ".join(["Normalised scores:", *lines])
    if all(d.high < MARGIN for d in more):
        return Verdict(claim, paper, ours, "confirmed", details, needs)
    helps = any(d.low > 0 and d.high >= MARGIN for d in more)
    return Verdict(claim, paper, ours, "opposite" if helps else "not confirmed", details, needs)


def _normalised_difference(results: Results, found: Sequence[Contrast]) -> stats.Difference:
    """Mean over the settings that can be tested of the difference of normalised scores."""
    pairs = [(normalised(results, c.a), normalised(results, c.b)) for c in found if c.p is not None and c.a and c.b]
    known = [(a, b) for a, b in pairs if a is not None and b is not None]
    return stats.mean_difference([a for a, _ in known], [b for _, b in known])


# --- the claim about cost --------------------------------------------------------------------------------------


def cost_ratios(timing: dict[str, Any]) -> dict[str, dict[str, float]]:
    """Costs of one timing relative to its baseline: {"time" or "weights": {variant: ratio}}; empty without one."""
    rows = {row["variant"]: row for row in timing["rows"]}
    if "plain" not in rows:
        return {"time": {}, "weights": {}}
    columns = {"time": "seconds_per_update", "weights": "critic_parameters"}
    return {what: {v: row[c] / rows["plain"][c] for v, row in rows.items()} for what, c in columns.items()}


def _cost(results: Results) -> Verdict:
    """Confirmed if MC-CLT takes less time and fewer weights than the ensemble in every timing."""
    pairs = [(what, variant) for what in ("time", "weights") for variant in ("mcclt", "ensemble")]
    text = "{} times the baseline's time against {}, and {} times its weights against {}"
    said = text.format(*(paper_cost(*pair) for pair in pairs))
    claim, paper = f"MC-CLT costs less than the ensemble: {said}.", f"{said[0].upper()}{said[1:]}."
    complete = [t for t in results.timings if {"plain", "mcclt", "ensemble"} <= {row["variant"] for row in t["rows"]}]
    if not complete:
        ours = "No timing has the baseline, MC-CLT and the ensemble."
        return Verdict(claim, paper, ours, "not measured", (), (whole(results, "--table", "2"),))
    ratios = [cost_ratios(timing) for timing in complete]
    cheaper = [r[what]["mcclt"] < r[what]["ensemble"] for r in ratios for what in ("time", "weights")]
    rule = (
        "Rule: confirmed if MC-CLT takes less time and fewer weights than the ensemble in every timing, opposite if in "
        "none; the factors themselves depend on the code and the machine, and are shown beside the paper's."
    )
    details = [
        f"{timing['algo'].upper()} on {timing['task']}, {timing['device']}: "
        f"{text.format(*(f'{r[what][variant]:.2f}' for what, variant in pairs))}."
        for timing, r in zip(complete, ratios, strict=True)
    ]
    values = [[r[what][variant] for r in ratios] for what, variant in pairs]
    ours = f"{text.format(*(span(min(v), max(v), 2) for v in values))}, over {_count(len(complete), 'timing')}."
    verdict = "confirmed" if all(cheaper) else "not confirmed" if any(cheaper) else "opposite"
    return Verdict(claim, paper, ours, verdict, (rule, *details))


# --- claims about what critics believe -------------------------------------------------------------------------


def _bellman_grows(results: Results) -> Verdict:
    """Confirmed if the spread grows significantly in more than half of the settings and falls so in none."""
    return _trend(
        results,
        "qr@qr_target=bellman",
        1,
        claim="Under the distributional Bellman operator the standard deviation of the values grows over an episode.",
        paper="Shown in figure 2, without numbers.",
    )


def _ensemble_falls(results: Results) -> Verdict:
    """Confirmed if the spread falls significantly in more than half of the settings and grows so in none."""
    return _trend(
        results,
        "ensemble",
        -1,
        claim="The standard deviation of the ensemble falls over an episode.",
        paper="Shown in figure 4, without numbers.",
    )


def _trend(results: Results, variant: str, sign: int, claim: str, paper: str) -> Verdict:
    """A claim about the sign of the change of the critic's standard deviation over an episode."""
    values = _per_seed(results, variant, _spread_change)
    adjusted = stats.holm([stats.p_zero(x) for x in values.values()])
    tested = [(s, stats.summarise(x), p) for (s, x), p in zip(values.items(), adjusted, strict=True) if p is not None]
    needs = _probe_needs(results, variant, {setting for setting, *_ in tested})
    if not tested:
        ours = f"No setting has two seeds or more of {variant_label(variant)} whose critic was looked at."
        return Verdict(claim, paper, ours, "not measured", (), needs)
    word = "growing" if sign > 0 else "falling"
    rule = (
        "Rule: per seed, the slope of the standard deviation over timesteps, as a share of its mean over the episode; "
        f"confirmed if significantly {word} (t-test over seeds, Holm over settings, 0.05) in more than half of the "
        "settings and significantly the other way in none; opposite if more go the other way."
    )
    with_it = sum(p < ALPHA and s.mean * sign > 0 for _, s, p in tested)
    against = sum(p < ALPHA and s.mean * sign < 0 for _, s, p in tested)
    details = [rule] + [
        f"{algo.upper()} on {task}: {_interval(s.mean, s.low, s.high, '+z.0%')} over the episode, {_p(p)} (Holm), "
        f"{_count(s.n, 'seed')}."
        for (task, algo), s, p in tested
    ]
    ours = (
        f"Significantly {word} in {with_it} of {_count(len(tested), 'setting')}, the other way in {against}; "
        f"the trend over an episode, against the mean, is {_means([s for _, s, _ in tested], '+z.0%')}."
    )
    if 2 * with_it > len(tested) and not against:
        return Verdict(claim, paper, ours, "confirmed", tuple(details), needs)
    return Verdict(claim, paper, ours, "opposite" if against > with_it else "not confirmed", tuple(details), needs)


def _close_to_normal(results: Results) -> Verdict:
    """Confirmed if bars are closer to a normal than a uniform distribution's in more than half of the settings.

    Bars are not samples, so there is no test of normality, only a distance (`stats.normal_distance`), whose interval
    is over seeds. "Close" needs a yardstick: a uniform distribution with as many bars, which nobody calls normal.
    """
    variant = "qr@n_quantiles=200"
    claim = "Learnt value distributions are close to normal."
    paper = "Shown in figure 1 (200 bars; first, middle and last timestep), without numbers."
    values = _per_seed(results, variant, _bar_distance)
    tested = {setting: stats.summarise(x) for setting, x in values.items() if stats.finite(x).size > 1}
    needs = _probe_needs(results, variant, set(tested))
    if not tested:
        ours = f"No setting has two seeds or more of {variant_label(variant)} whose critic was looked at."
        return Verdict(claim, paper, ours, "not measured", (), needs)
    yardstick = float(stats.normal_distance(np.arange(1.0, 201.0)))
    rule = (
        "Rule: per seed, the share of the bars' variance that the best-fitting normal leaves unexplained (a distance, "
        "not a test: bars are no samples), mean over the states looked at; confirmed if its 95 % interval over seeds "
        f"lies below that of a uniform distribution ({yardstick:.3f}) in more than half of the settings and above in "
        "none; opposite if more lie above."
    )
    close = sum(s.high < yardstick for s in tested.values())
    far = sum(s.low > yardstick for s in tested.values())
    details = [rule] + [
        f"{algo.upper()} on {task}: {_interval(s.mean, s.low, s.high, '.4f')}, {_count(s.n, 'seed')}."
        for (task, algo), s in tested.items()
    ]
    ours = (
        f"Closer to normal than a uniform distribution in {close} of {_count(len(tested), 'setting')}, "
        f"farther in {far}; the distance is {_means(list(tested.values()), '.4f')} (0 is exactly normal, "
        f"{yardstick:.3f} is uniform)."
    )
    verdict = "confirmed" if 2 * close > len(tested) and not far else "opposite" if far > close else "not confirmed"
    return Verdict(claim, paper, ours, verdict, tuple(details), needs)


def _per_seed(
    results: Results, variant: str, measure: Callable[[dict[str, Any]], float]
) -> dict[tuple[str, str], np.ndarray]:
    """{(task, algo): [seeds] a number that each agent's probe gives}, where the variant was probed."""
    found = {}
    for task, algo in _settings(results):
        series = results.main(task, algo, variant)
        values = [measure(r.probe) for r in series.results if r.probe] if series else []
        if values:
            found[task, algo] = np.array(values)
    return found


def _spread_change(probe: dict[str, Any]) -> float:
    episode = probe.get("episode", {})
    return stats.relative_change(*(np.array(episode.get(name, []), float) for name in ("t", "std")))


def _bar_distance(probe: dict[str, Any]) -> float:
    bars = np.array(probe.get("bars", {}).get("values", []), float)
    distances = stats.finite(stats.normal_distance(bars)) if bars.size else np.zeros(0)
    return float(distances.mean()) if distances.size else math.nan


# --- what is missing -------------------------------------------------------------------------------------------


def _settings(results: Results) -> list[tuple[str, str]]:
    """(task, algo) that the store has anything of."""
    return list(dict.fromkeys((s.task, s.algo) for s in results.series))


def _part(variant: str) -> tuple[str, str, plan.Part | None]:
    """Which part of the paper holds a variant: its option, its name, and itself."""
    for option, parts in (("--table", plan.TABLES), ("--figure", plan.FIGURES), ("--ablation", plan.ABLATIONS)):
        for name, part in parts.items():
            if variant in part.variants:
                return option, name, part
    return "--table", "1", None


def whole(results: Results, option: str, name: str) -> str:
    """The command for a whole part of the paper."""
    return shlex.join(["mcclt", "reproduce", option, name, "--store", str(results.path or "results")])


def _missing(results: Results, found: Sequence[Contrast], a: str, b: str) -> list[str]:
    """Commands for what contrasts lack; the one for the whole part of the paper if some of its settings do."""
    commands = [] if found else [fill(results, [t], algo, [v]) for t, algo in _settings(results) for v in (a, b)]
    for c in (c for c in found if c.p is None):
        for series, variant in ((c.a, a), (c.b, b)):
            unequal = c.comparison is None and c.a is not None and c.b is not None
            if series is None or stats.finite(series.scores).size < 2 or unequal:
                commands.append(fill(results, [c.task], c.algo, [variant]))
    names = {(bare_task(task), algo) for task in PAPER_TASKS for algo in plan.ALGOS}
    there = {(bare_task(c.task), c.algo) for c in found}
    if names - there and (names & there or not (commands or found)):
        option, name, _ = _part(a if b == "mcclt" else b)
        commands.append(whole(results, option, name))
    return commands


def few_of(commands: Sequence[str]) -> tuple[str, ...]:
    """The first few of many commands, each once."""
    commands = list(dict.fromkeys(commands))
    more = len(commands) - SHOWN
    return (*commands[:SHOWN], *([f"And {more} more of this kind."] if more > 0 else []))


def _probe_needs(results: Results, variant: str, there: set[tuple[str, str]]) -> tuple[str, ...]:
    option, name, part = _part(variant)
    algos = part.algos if part else plan.ALGOS
    lacking = [s for s in _settings(results) if s not in there and s[1] in algos]
    if not lacking and not there:
        return (whole(results, option, name),)
    return few_of([fill(results, [s[0]], s[1], [variant]) for s in lacking])


def _more_seeds(tested: Sequence[Contrast]) -> list[str]:
    """How many seeds undecided settings would need, if what is seen were the truth."""
    wanted = []
    for c in tested:
        if c.sign or c.comparison is None or c.a is None or c.b is None:
            continue
        spread = math.sqrt((stats.finite(c.a.scores).var(ddof=1) + stats.finite(c.b.scores).var(ddof=1)) / 2)
        n = stats.seeds_needed(c.comparison.difference, spread)
        if n is not None:
            wanted.append(f"{c.setting} {n:,}" if n <= 10_000 else f"{c.setting} more than 10,000")
    if not wanted:
        return []
    return [
        "Seeds of each that would show the observed difference, were it the true one (power 0.8, one test alone at "
        f"0.05): {'; '.join(wanted)}."
    ]


# --- texts -----------------------------------------------------------------------------------------------------


def _improvement(tested: Sequence[Contrast], rng: np.random.Generator) -> stats.Improvement:
    pairs = [(c.a.scores, c.b.scores) for c in tested if c.a and c.b]
    return stats.probability_of_improvement([a for a, _ in pairs], [b for _, b in pairs], rng)


def _direction(step: stats.Improvement, p: float | None) -> int:
    """1 or −1 where both interval and test say so, otherwise 0."""
    if p is None or p >= ALPHA:
        return 0
    return 1 if step.low > 0.5 else -1 if step.high < 0.5 else 0


def _improvement_text(step: stats.Improvement, p: float | None, kind: str = "") -> str:
    test = f"{kind}{_p(p)}" if p is not None else "no test, since nothing varies"
    return f"probability of improvement {_interval(step.probability, step.low, step.high, '.2f')}, {test}"


def _contrast_text(c: Contrast) -> str:
    if c.comparison is None or c.comparison.p is None or c.p is None:
        return f"{c.setting}: {c.why}"
    low, high = number(c.comparison.low, True), number(c.comparison.high, True)
    return (
        f"{c.setting}: {number(c.comparison.difference, True)} [{low}, {high}], {_p(c.comparison.p)} (Holm "
        f"{_p(c.p)}; ranks {_p(c.comparison.p_rank)}), effect {_signed(c.comparison.effect)}, "
        f"{c.comparison.n_a} and {c.comparison.n_b} seeds."
    )


def _signed(value: float) -> str:
    return f"{value:+z.2f}".replace("-", "−")


def _nothing(found: Sequence[Contrast]) -> str:
    """Why no setting could be tested, in one sentence: that of the first."""
    if not found:
        return "There are no results of either."
    reasons = list(dict.fromkeys(c.why for c in found))
    return f"{found[0].setting}: {found[0].why}" if len(reasons) > 1 or len(found) == 1 else reasons[0]


def _scope(tested: Sequence[Contrast]) -> str:
    """For people: 4 of the paper's 16 settings and 2 others."""
    names = {bare_task(task) for task in PAPER_TASKS}
    total = len(names) * len(plan.ALGOS)
    ours = [c for c in tested if bare_task(c.task) in names and c.algo in plan.ALGOS]
    covered, others = {(bare_task(c.task), c.algo) for c in ours}, len(tested) - len(ours)
    versions = len(tested) - others - len(covered)
    parts = [f"{len(covered)} of the paper's {total} settings"] if covered else []
    parts += [f"{versions} more of other versions"] if versions else []
    parts += [f"{_count(others, 'setting')} outside the paper"] if others else []
    return " and ".join(parts)


def _paper_higher(a: str, b: str) -> str:
    """In how many settings the paper's mean of a is above that of b."""
    entries = [e for algos in paper_results()["returns"].values() for e in algos.values()]
    return f"A higher mean in {sum(e[a]['mean'] > e[b]['mean'] for e in entries)} of {len(entries)} settings."


def number(value: float, sign: bool = False) -> str:
    """A score as people read it: 2724, 31.4, 0.21; a real minus sign."""
    size = abs(value)
    text = f"{size:.0f}" if size >= 99.95 else f"{size:.1f}" if size >= 0.95 else f"{size:.2g}"
    return ("−" if value < 0 else "+" if sign else "") + text


def _interval(value: float, low: float, high: float, form: str) -> str:
    text = f"{value:{form}}" if math.isnan(low) else f"{value:{form}} [{low:{form}}, {high:{form}}]"
    return text.replace("-", "−")


def _means(summaries: Sequence[stats.Summary], form: str) -> str:
    """The mean of one setting with its interval, or the range of several."""
    if len(summaries) == 1:
        return _interval(summaries[0].mean, summaries[0].low, summaries[0].high, form)
    ends = [f"{end(s.mean for s in summaries):{form}}".replace("-", "−") for end in (min, max)]
    return ends[0] if ends[0] == ends[1] else " to ".join(ends)


def _p(p: float | None) -> str:
    return "no p" if p is None else "p < 0.001" if p < 0.001 else f"p = {p:.3f}"


def span(low: float, high: float, digits: int) -> str:
    """1.5–1.9, or one number where both look alike."""
    ends = [f"{low:.{digits}f}", f"{high:.{digits}f}"]
    return ends[0] if ends[0] == ends[1] else "–".join(ends)


def paper_cost(what: str, variant: str) -> str | None:
    """The paper's range of `time` or `weights` relative to the baseline, as it prints it."""
    found = paper_results()["cost"][what].get(variant)
    return None if found is None else span(found[0], found[1], 0 if found[0] == found[1] else 1)


def _count(n: int, what: str) -> str:
    return f"{n} {what}" if n == 1 else f"{n} {what}s"
