"""Claims about returns: which variant is better than which."""

import math
from collections.abc import Sequence

import numpy as np

from mcclt.experiments.analysis import aggregates, stats
from mcclt.experiments.analysis.claims.verdict import Verdict
from mcclt.experiments.analysis.contrasts import ALPHA, Contrast, contrast_text, contrasts, normalised, scope
from mcclt.experiments.analysis.missing import few_of, missing
from mcclt.experiments.analysis.texts import count, interval, p_text
from mcclt.experiments.paper import paper_results
from mcclt.experiments.results import Results, variant_label


def beats_ensemble(results: Results) -> Verdict:
    """Confirmed if significantly better in more than half of the settings and significantly worse in none."""
    return _by_settings(
        results,
        "mcclt",
        "ensemble",
        claim="MC-CLT beats the ensemble: significantly in 10 of 16 settings.",
        paper="Significantly better (0.05) in 10 of 16 settings; the errors are pooled over episodes.",
        everywhere=False,
    )


def accuracy_beats_exploration(results: Results) -> Verdict:
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
    details = (rule, *map(contrast_text, found))
    needs = (*few_of(missing(results, found, a, b)), *_more_seeds(tested))
    if not tested:
        return Verdict(claim, paper, _nothing(found), "not measured", details if found else (), needs)
    better, worse = sum(c.sign > 0 for c in tested), sum(c.sign < 0 for c in tested)
    highest = sum(c.comparison is not None and c.comparison.difference > 0 for c in tested)
    ours = (
        f"On {scope(tested)}: significantly better in {better}, significantly worse in {worse}, undecided in "
        f"{len(tested) - better - worse}; the mean is higher in {highest} of {len(tested)}."
    )
    accepted = highest == len(tested) if everywhere else worse == 0
    if 2 * better > len(tested) and accepted:
        return Verdict(claim, paper, ours, "confirmed", details, needs)
    return Verdict(claim, paper, ours, "opposite" if worse > better else "not confirmed", details, needs)


def beats_baseline(results: Results, rng: np.random.Generator) -> Verdict:
    """Confirmed if a random seed of MC-CLT beats one of the baseline more often than not, over settings."""
    return _by_probability(
        results, "mcclt", "plain", rng, "MC-CLT beats the baseline.", _paper_higher("mcclt", "plain")
    )


def weights_help(results: Results, rng: np.random.Generator) -> Verdict:
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
    needs = (*few_of(missing(results, found, a, b)), *_more_seeds(tested))
    if not tested:
        return Verdict(claim, paper, _nothing(found), "not measured", (rule,) if found else (), needs)
    step = _improvement(tested, rng)
    verdict = {1: "confirmed", 0: "not confirmed", -1: "opposite"}[_direction(step, step.p)]
    ours = f"On {scope(tested)}: {_improvement_text(step, step.p)}."
    return Verdict(claim, paper, ours, verdict, (rule, *map(contrast_text, found)), needs)


def each_component(results: Results, rng: np.random.Generator) -> Verdict:
    """Confirmed if each of the three steps improves; opposite if more steps harm than improve."""
    claim = (
        "Each component adds: from the baseline over QR and MC-CLT without w to MC-CLT there is a trend of improvement."
    )
    chain = ("plain", "qr", "mcclt-nw", "mcclt")
    pairs = list(zip(chain[1:], chain, strict=False))
    paper = " ".join(f"{variant_label(b)} → {variant_label(a)}: {_paper_higher(a, b).lower()}" for a, b in pairs)
    found = {pair: contrasts(results, *pair) for pair in pairs}
    tested = {pair: [c for c in f if c.p is not None] for pair, f in found.items()}
    untested = tuple(dict.fromkeys(contrast_text(c) for f in found.values() for c in f if c.p is None))
    needs = few_of([line for (a, b), f in found.items() for line in missing(results, f, a, b)])
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
            f"{variant_label(b)} → {variant_label(a)} ({scope(tested[a, b])}): {_improvement_text(step, p, 'Holm ')}."
        )
    details += [*_aggregates(results, chain, rng), *untested]
    ours = f"{signs.count(1)} of 3 steps improve significantly, {signs.count(-1)} harm: " + "; ".join(
        f"{variant_label(b)} → {variant_label(a)} {interval(s.probability, s.low, s.high, '.2f')}"
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
        ends = aggregates.stratified_bootstrap(scores, aggregates.iqm, rng)
        lines.append(
            f"Interquartile mean of {variant_label(variant)}: {interval(float(aggregates.iqm(scores)), *ends, '.3f')} "
            f"over {count(len(rows), 'setting')} (the paper's baseline, or ours on other tasks, is 1)."
        )
    return lines


def _improvement(tested: Sequence[Contrast], rng: np.random.Generator) -> aggregates.Improvement:
    pairs = [(c.a.scores, c.b.scores) for c in tested if c.a and c.b]
    return aggregates.probability_of_improvement([a for a, _ in pairs], [b for _, b in pairs], rng)


def _direction(step: aggregates.Improvement, p: float | None) -> int:
    """1 or −1 where both interval and test say so, otherwise 0."""
    if p is None or p >= ALPHA:
        return 0
    return 1 if step.low > 0.5 else -1 if step.high < 0.5 else 0


def _improvement_text(step: aggregates.Improvement, p: float | None, kind: str = "") -> str:
    test = f"{kind}{p_text(p)}" if p is not None else "no test, since nothing varies"
    return f"probability of improvement {interval(step.probability, step.low, step.high, '.2f')}, {test}"


def _nothing(found: Sequence[Contrast]) -> str:
    """Why no setting could be tested, in one sentence: that of the first."""
    if not found:
        return "There are no results of either."
    reasons = list(dict.fromkeys(c.why for c in found))
    return f"{found[0].setting}: {found[0].why}" if len(reasons) > 1 or len(found) == 1 else reasons[0]


def _paper_higher(a: str, b: str) -> str:
    """In how many settings the paper's mean of a is above that of b."""
    entries = [e for algos in paper_results()["returns"].values() for e in algos.values()]
    return f"A higher mean in {sum(e[a]['mean'] > e[b]['mean'] for e in entries)} of {len(entries)} settings."


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
