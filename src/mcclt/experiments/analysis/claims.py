"""The paper's claims, each tested on what a store holds.

Verdicts are about the settings that are there, and say how many those are. Only series trained for the same number of
steps are compared, and seeds are the unit of every test. Where one claim makes many tests (one per setting), their
p-values are Holm's.
"""

import itertools
import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from mcclt.experiments import plan
from mcclt.experiments.analysis import aggregates, stats
from mcclt.experiments.analysis.beliefs import normal_distance, probed, trends
from mcclt.experiments.analysis.contrasts import ALPHA, Contrast, contrast_text, contrasts, normalised, scope
from mcclt.experiments.analysis.texts import count, interval, means, p_text, span
from mcclt.experiments.filling import few_of, fill, part_of, whole
from mcclt.experiments.paper import paper_results
from mcclt.experiments.results import Result, Results, variant_label
from mcclt.experiments.setups import PAPER_TASKS
from mcclt.presets import bare_task

MARGIN = 0.1
"""Differences below a tenth of the baseline's score count as none, where a claim is that something does not matter."""


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


def verdicts(results: Results) -> list[Verdict]:
    """All claims."""
    rng = np.random.default_rng(0)
    return [
        _by_settings(
            results,
            "ensemble",
            claim="MC-CLT beats the ensemble: significantly in 10 of 16 settings.",
            paper="Significantly better (0.05) in 10 of 16 settings; the errors are pooled over episodes.",
        ),
        _each_component(results, rng),
        _by_probability(results, "plain", rng, "MC-CLT beats the baseline."),
        _by_probability(results, "mcclt-nw", rng, "The uncertainty weights help: MC-CLT beats MC-CLT without w."),
        _by_settings(
            results,
            "explore",
            claim="Seeking accuracy beats seeking exploration in all experiments.",
            paper="A higher mean in 16 of 16 settings (table 3).",
            everywhere=True,
        ),
        _cost(results),
        _bars_suffice(results),
        _trend(
            results,
            "qr@qr_target=bellman",
            1,
            "Under the distributional Bellman operator the standard deviation of the values grows over an episode.",
            "Shown in figure 2, without numbers.",
        ),
        _trend(
            results,
            "ensemble",
            -1,
            "The standard deviation of the ensemble falls over an episode.",
            "Shown in figure 4, without numbers.",
        ),
        _close_to_normal(results),
    ]


def _majority(settings: int, in_favour: int, against: int, accepted: bool) -> str:
    """Confirmed if more than half of the settings are in favour, and what is asked besides is so."""
    if 2 * in_favour > settings and accepted:
        return "confirmed"
    return "opposite" if against > in_favour else "not confirmed"


# --- returns: which variant is better than which -----------------------------------------------------------------


def _by_settings(results: Results, b: str, claim: str, paper: str, everywhere: bool = False) -> Verdict:
    """Counts the settings in which MC-CLT beats b significantly."""
    also = "better on average in every one" if everywhere else "significantly worse in none"
    rule = (
        "Rule: confirmed if significantly better (Welch's t-test, Holm over these settings, 0.05) in more than half of "
        f"the settings and {also}; opposite if significantly worse in more settings than better."
    )
    found, tested, needs = _against(results, b)
    details = (rule, *map(contrast_text, found))
    if not tested:
        return Verdict(claim, paper, _nothing(found), "not measured", details if found else (), needs)
    better, worse = (sum(c.sign == sign for c in tested) for sign in (1, -1))
    highest = sum(c.comparison.difference > 0 for c in tested)
    ours = (
        f"On {scope(tested)}: significantly better in {better}, significantly worse in {worse}, undecided in "
        f"{len(tested) - better - worse}; the mean is higher in {highest} of {len(tested)}."
    )
    accepted = highest == len(tested) if everywhere else not worse
    return Verdict(claim, paper, ours, _majority(len(tested), better, worse, accepted), details, needs)


STEP_RULE = (
    "over settings, the probability that a random seed of the one beats a random seed of the other must be above ½: "
    "its 95 % bootstrap interval and a stratified rank test (0.05) must both say so"
)


def _by_probability(results: Results, b: str, rng: np.random.Generator, claim: str) -> Verdict:
    """Confirmed if a random seed of MC-CLT beats one of b more often than not, over settings."""
    rule = f"Rule: {STEP_RULE}; opposite if both say that it is below."
    found, tested, needs = _against(results, b)
    paper = _paper_higher("mcclt", b)
    if not tested:
        return Verdict(claim, paper, _nothing(found), "not measured", (rule,) if found else (), needs)
    step = aggregates.probability_of_improvement([c.scores for c in tested], rng)
    verdict = {1: "confirmed", 0: "not confirmed", -1: "opposite"}[_direction(step, step.p)]
    ours = f"On {scope(tested)}: {_improvement_text(step, step.p)}."
    return Verdict(claim, paper, ours, verdict, (rule, *map(contrast_text, found)), needs)


def _each_component(results: Results, rng: np.random.Generator) -> Verdict:
    """Confirmed if each of the three steps improves; opposite if more steps harm than improve."""
    claim = (
        "Each component adds: from the baseline over QR and MC-CLT without w to MC-CLT there is a trend of improvement."
    )
    rule = (
        f"Rule: for each of the three steps, {STEP_RULE} (Holm over the steps); opposite if more steps harm than help."
    )
    chain = ("plain", "qr", "mcclt-nw", "mcclt")
    pairs = {f"{variant_label(b)} → {variant_label(a)}": (a, b) for b, a in itertools.pairwise(chain)}
    paper = " ".join(f"{name}: {_paper_higher(*pair).lower()}" for name, pair in pairs.items())
    found = {name: contrasts(results, *pair) for name, pair in pairs.items()}
    tested = {name: [c for c in own if c.p is not None] for name, own in found.items()}
    untested = tuple(dict.fromkeys(contrast_text(c) for own in found.values() for c in own if c.p is None))
    needs = few_of([line for name, own in found.items() for line in _missing(results, own, *pairs[name])])
    if lacking := [name for name, own in tested.items() if not own]:
        ours = f"Not all steps can be tested: results are missing for {', '.join(lacking)}."
        return Verdict(claim, paper, ours, "not measured", untested, needs)
    steps = {n: aggregates.probability_of_improvement([c.scores for c in own], rng) for n, own in tested.items()}
    adjusted = dict(zip(steps, stats.holm([s.p for s in steps.values()]), strict=True))
    signs = [_direction(step, adjusted[name]) for name, step in steps.items()]
    details = [
        f"{name} ({scope(tested[name])}): {_improvement_text(step, adjusted[name], 'Holm ')}."
        for name, step in steps.items()
    ]
    improve, harm = signs.count(1), signs.count(-1)
    listed = "; ".join(f"{name} {interval(s.value, s.low, s.high, '.2f')}" for name, s in steps.items())
    ours = f"{improve} of 3 steps improve significantly, {harm} harm: {listed} (probability of improvement)."
    verdict = "confirmed" if improve == 3 else "opposite" if harm > improve else "not confirmed"
    return Verdict(
        claim, paper, ours, verdict, (rule, *details, *_interquartile_means(results, chain, rng), *untested), needs
    )


def _interquartile_means(results: Results, variants: Sequence[str], rng: np.random.Generator) -> Iterator[str]:
    """IQM of each variant over the settings where all are there with two seeds or more and equal steps."""
    rows = []
    for task, algo in results.settings:
        series = [s for v in variants if (s := results.main(task, algo, v)) is not None]
        scores = [x for s in series if (x := normalised(results, s)) is not None and x.size > 1]
        if len(scores) == len(variants) and len({s.steps for s in series}) == 1:
            rows.append(scores)
    for variant, scores in zip(variants, zip(*rows, strict=True), strict=False):
        ends = aggregates.stratified_bootstrap(scores, aggregates.iqm, rng)
        yield (
            f"Interquartile mean of {variant_label(variant)}: {interval(float(aggregates.iqm(scores)), *ends, '.3f')} "
            f"over {count(len(rows), 'setting')} (the paper's baseline, or ours on other tasks, is 1)."
        )


def _against(results: Results, b: str) -> tuple[list[Contrast], list[Contrast], tuple[str, ...]]:
    """MC-CLT against b: all contrasts, those with a test, and what they need."""
    found = contrasts(results, "mcclt", b)
    tested = [c for c in found if c.p is not None]
    return found, tested, (*few_of(_missing(results, found, "mcclt", b)), *_more_seeds(tested))


def _direction(step: aggregates.Estimate, p: float | None) -> int:
    """1 or −1 where both interval and test say so, otherwise 0."""
    if p is None or p >= ALPHA:
        return 0
    return 1 if step.low > 0.5 else -1 if step.high < 0.5 else 0


def _improvement_text(step: aggregates.Estimate, p: float | None, kind: str = "") -> str:
    test = f"{kind}{p_text(p)}" if p is not None else "no test, since nothing varies"
    return f"probability of improvement {interval(step.value, step.low, step.high, '.2f')}, {test}"


def _nothing(found: Sequence[Contrast]) -> str:
    """Why no setting could be tested, in one sentence: that of the first."""
    if not found:
        return "There are no results for either."
    several = len({c.why for c in found}) > 1 or len(found) == 1
    return f"{found[0].setting}: {found[0].why}" if several else found[0].why


def _paper_higher(a: str, b: str) -> str:
    """In how many settings the paper's mean of a is above that of b."""
    entries = [e for algos in paper_results()["returns"].values() for e in algos.values()]
    return f"A higher mean in {sum(e[a]['mean'] > e[b]['mean'] for e in entries)} of {len(entries)} settings."


# --- what is missing ---------------------------------------------------------------------------------------------


def _missing(results: Results, found: Sequence[Contrast], a: str, b: str) -> list[str]:
    """Commands for what contrasts lack; the one for the whole part of the paper if some of its settings do."""
    commands = [] if found else [fill(results, [t], algo, [v]) for t, algo in results.settings for v in (a, b)]
    for c in (c for c in found if c.p is None):
        unequal = c.a is not None and c.b is not None and not c.scores[0].size
        for series, variant in ((c.a, a), (c.b, b)):
            if series is None or stats.finite(series.scores).size < 2 or unequal:
                commands.append(fill(results, [c.task], c.algo, [variant]))
    names = {(bare_task(task), algo) for task in PAPER_TASKS for algo in plan.ALGOS}
    there = {(bare_task(c.task), c.algo) for c in found}
    if names - there and (names & there or not (commands or found)):
        option, name, _ = part_of(a if b == "mcclt" else b)
        commands.append(whole(results, option, name))
    return commands


def _more_seeds(tested: Sequence[Contrast]) -> Iterator[str]:
    """How many seeds undecided settings would need, if what is seen were the truth."""
    wanted = []
    for c in (c for c in tested if not c.sign):
        spread = math.sqrt(sum(stats.finite(scores).var(ddof=1) for scores in c.scores) / 2)
        n = stats.seeds_needed(c.comparison.difference, spread)
        if n is not None:
            wanted.append(f"{c.setting} {n:,}" if n <= 10_000 else f"{c.setting} more than 10,000")
    if wanted:
        yield (
            "Seeds of each that would show the observed difference, were it the true one (power 0.8, one test alone at "
            f"0.05): {'; '.join(wanted)}."
        )


# --- cost --------------------------------------------------------------------------------------------------------


def cost_ratios(timing: dict[str, Any]) -> dict[str, dict[str, float]]:
    """Costs of one timing relative to its baseline: {"time" or "weights": {variant: ratio}}; empty without one."""
    rows = {row["variant"]: row for row in timing["rows"]}
    if "plain" not in rows:
        return {"time": {}, "weights": {}}
    columns = {"time": "seconds_per_update", "weights": "critic_parameters"}
    return {what: {v: row[c] / rows["plain"][c] for v, row in rows.items()} for what, c in columns.items()}


def paper_cost(what: str, variant: str) -> str | None:
    """The paper's range of `time` or `weights` relative to the baseline, as it prints it."""
    found = paper_results()["cost"][what].get(variant)
    return None if found is None else span(found[0], found[1], 0 if found[0] == found[1] else 1)


def _cost(results: Results) -> Verdict:
    """Confirmed if MC-CLT takes less time and fewer weights than the ensemble in every timing."""
    pairs = [(what, variant) for what in ("time", "weights") for variant in ("mcclt", "ensemble")]
    text = "{} times the baseline's time against {}, and {} times its weights against {}"
    said = text.format(*(paper_cost(*pair) for pair in pairs))
    claim, paper = f"MC-CLT costs less than the ensemble: {said}.", f"{said[0].upper()}{said[1:]}."
    complete = [(t, r) for t in results.timings if {"mcclt", "ensemble"} <= (r := cost_ratios(t))["time"].keys()]
    if not complete:
        ours = "No timing has the baseline, MC-CLT and the ensemble."
        return Verdict(claim, paper, ours, "not measured", (), (whole(results, "--table", "2"),))
    rule = (
        "Rule: confirmed if MC-CLT takes less time and fewer weights than the ensemble in every timing, opposite if in "
        "none; the factors themselves depend on the code and the machine, and are shown beside the paper's."
    )
    details = [
        f"{timing['algo'].upper()} on {timing['task']}, {timing['device']}: "
        f"{text.format(*(f'{r[what][variant]:.2f}' for what, variant in pairs))}."
        for timing, r in complete
    ]
    values = [[r[what][variant] for _, r in complete] for what, variant in pairs]
    ours = f"{text.format(*(span(min(v), max(v), 2) for v in values))}, over {count(len(complete), 'timing')}."
    cheaper = [r[what]["mcclt"] < r[what]["ensemble"] for _, r in complete for what in ("time", "weights")]
    verdict = "confirmed" if all(cheaper) else "not confirmed" if any(cheaper) else "opposite"
    return Verdict(claim, paper, ours, verdict, (rule, *details))


# --- the number of bars ------------------------------------------------------------------------------------------


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
        f"{n} − 8 bars: {interval(d.value, d.low, d.high, '+z.3f')} over {count(d.tasks, 'setting')}."
        for n, d in differences.items()
        if d.p is not None
    ]
    details = (rule, *lines, *(contrast_text(c) for f in found.values() for c in f if c.p is None))
    needs = few_of([x for n, f in found.items() for x in _missing(results, f, f"mcclt@n_quantiles={n}", "mcclt")])
    more = [differences[12], differences[20]]
    if any(d.p is None for d in more):
        return Verdict(claim, paper, "8, 12 and 20 bars are not all measured.", "not measured", details, needs)
    helps = any(d.low > 0 and d.high >= MARGIN for d in more)
    verdict = "confirmed" if all(d.high < MARGIN for d in more) else "opposite" if helps else "not confirmed"
    return Verdict(claim, paper, " ".join(["Normalised scores:", *lines]), verdict, details, needs)


def _normalised_difference(results: Results, found: Sequence[Contrast]) -> aggregates.Estimate:
    """Mean over the settings that can be tested of the difference of normalised scores."""
    pairs = [(normalised(results, c.a), normalised(results, c.b)) for c in found if c.p is not None and c.a and c.b]
    return aggregates.mean_difference([(a, b) for a, b in pairs if a is not None and b is not None])


# --- what critics believe ----------------------------------------------------------------------------------------

Measured = dict[tuple[str, str], tuple[stats.Summary, int, str]]
"""By setting: a quantity over seeds, 1 where it is as claimed and −1 where the other way, and what its test says."""


def _trend(results: Results, variant: str, sign: int, claim: str, paper: str) -> Verdict:
    """Whether the critic's standard deviation changes over an episode in the direction of a sign."""
    word = "growing" if sign > 0 else "falling"
    rule = (
        "Rule: per seed, the slope of the standard deviation over timesteps, as a share of its mean over the episode; "
        f"confirmed if significantly {word} (t-test over seeds, Holm over settings, 0.05) in more than half of the "
        "settings and significantly the other way in none; opposite if more go the other way."
    )
    trend = "the trend over an episode, relative to the mean, is {}."
    ours = f"Significantly {word} in {{}}, the other way in {{}}; {trend}"
    measured = {
        setting: (t.change, sign * t.sign, f" over the episode, {p_text(t.p)} (Holm)")
        for setting, t in trends(results, variant).items()
        if t.p is not None
    }
    return _of_critics(results, variant, claim, paper, rule, ours, "+z.0%", measured)


def _close_to_normal(results: Results) -> Verdict:
    """Confirmed if bars are closer to a normal than a uniform distribution's in more than half of the settings.

    Bars are not samples, so there is no test of normality, only a distance (`beliefs.normal_distance`), whose interval
    is over seeds. "Close" needs a yardstick: a uniform distribution with as many bars, which nobody calls normal.
    """
    variant = "qr@n_quantiles=200"
    uniform = float(normal_distance(np.arange(1.0, 201.0)))
    rule = (
        "Rule: per seed, the share of the bars' variance that the best-fitting normal leaves unexplained (a distance, "
        "not a test: bars are no samples), mean over the probed states; confirmed if its 95 % interval over seeds "
        f"lies below that of a uniform distribution ({uniform:.3f}) in more than half of the settings and above in "
        "none; opposite if more lie above."
    )
    ours = (
        "Closer to normal than a uniform distribution in {}, farther in {}; the distance is {} (0 is exactly normal, "
        f"{uniform:.3f} is uniform)."
    )
    found = {(s.task, s.algo): stats.summarise(np.array([*map(_bar_distance, s.results)])) for s in results.of(variant)}
    measured = {
        setting: (s, int(s.high < uniform) - int(s.low > uniform), "") for setting, s in found.items() if s.n > 1
    }
    claim = "Learnt value distributions are close to normal."
    paper = "Shown in figure 1 (200 bars; first, middle and last timestep), without numbers."
    return _of_critics(results, variant, claim, paper, rule, ours, ".4f", measured)


def _bar_distance(result: Result) -> float:
    """Mean over the states looked at."""
    bars = probed(result, "bars", "values")
    distances = stats.finite(normal_distance(bars)) if bars.size else bars
    return float(distances.mean()) if distances.size else math.nan


def _of_critics(
    results: Results, variant: str, claim: str, paper: str, rule: str, ours: str, form: str, measured: Measured
) -> Verdict:
    """Confirmed if a quantity of a variant's critics is as claimed in more than half of the settings, and never not."""
    option, name, part = part_of(variant)
    lacking = [s for s in results.settings if s not in measured and (part is None or s[1] in part.algos)]
    needs = few_of([fill(results, [task], algo, [variant]) for task, algo in lacking])
    if not measured:
        ours = f"No setting has two or more seeds of {variant_label(variant)} whose critic was probed."
        return Verdict(claim, paper, ours, "not measured", (), needs or (whole(results, option, name),))
    in_favour, against = (sum(way == sign for _, way, _ in measured.values()) for sign in (1, -1))
    details = [
        f"{algo.upper()} on {task}: {interval(s.mean, s.low, s.high, form)}{test}, {count(s.n, 'seed')}."
        for (task, algo), (s, _, test) in measured.items()
    ]
    settings = count(len(measured), "setting")
    ours = ours.format(f"{in_favour} of {settings}", against, means([s for s, _, _ in measured.values()], form))
    verdict = _majority(len(measured), in_favour, against, not against)
    return Verdict(claim, paper, ours, verdict, (rule, *details), needs)
