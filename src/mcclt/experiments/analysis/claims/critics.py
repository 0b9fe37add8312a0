"""Claims about what critics believe."""

import math

import numpy as np

from mcclt.experiments.analysis import stats
from mcclt.experiments.analysis.beliefs import normal_distance, probed, trends
from mcclt.experiments.analysis.claims.verdict import Verdict
from mcclt.experiments.analysis.missing import probe_needs
from mcclt.experiments.analysis.texts import count, interval, means, p_text
from mcclt.experiments.results import Result, Results, variant_label


def bellman_grows(results: Results) -> Verdict:
    """Confirmed if the spread grows significantly in more than half of the settings and falls so in none."""
    return _trend(
        results,
        "qr@qr_target=bellman",
        1,
        claim="Under the distributional Bellman operator the standard deviation of the values grows over an episode.",
        paper="Shown in figure 2, without numbers.",
    )


def ensemble_falls(results: Results) -> Verdict:
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
    tested = {setting: trend for setting, trend in trends(results, variant).items() if trend.p is not None}
    needs = probe_needs(results, variant, set(tested))
    if not tested:
        ours = f"No setting has two seeds or more of {variant_label(variant)} whose critic was looked at."
        return Verdict(claim, paper, ours, "not measured", (), needs)
    word = "growing" if sign > 0 else "falling"
    rule = (
        "Rule: per seed, the slope of the standard deviation over timesteps, as a share of its mean over the episode; "
        f"confirmed if significantly {word} (t-test over seeds, Holm over settings, 0.05) in more than half of the "
        "settings and significantly the other way in none; opposite if more go the other way."
    )
    with_it, against = (sum(trend.sign == way for trend in tested.values()) for way in (sign, -sign))
    changes = [trend.change for trend in tested.values()]
    details = [rule] + [
        f"{algo.upper()} on {task}: {interval(s.mean, s.low, s.high, '+z.0%')} over the episode, {p_text(trend.p)} "
        f"(Holm), {count(s.n, 'seed')}."
        for ((task, algo), trend), s in zip(tested.items(), changes, strict=True)
    ]
    ours = (
        f"Significantly {word} in {with_it} of {count(len(tested), 'setting')}, the other way in {against}; "
        f"the trend over an episode, against the mean, is {means(changes, '+z.0%')}."
    )
    if 2 * with_it > len(tested) and not against:
        return Verdict(claim, paper, ours, "confirmed", tuple(details), needs)
    return Verdict(claim, paper, ours, "opposite" if against > with_it else "not confirmed", tuple(details), needs)


def close_to_normal(results: Results) -> Verdict:
    """Confirmed if bars are closer to a normal than a uniform distribution's in more than half of the settings.

    Bars are not samples, so there is no test of normality, only a distance (`beliefs.normal_distance`), whose interval
    is over seeds. "Close" needs a yardstick: a uniform distribution with as many bars, which nobody calls normal.
    """
    variant = "qr@n_quantiles=200"
    claim = "Learnt value distributions are close to normal."
    paper = "Shown in figure 1 (200 bars; first, middle and last timestep), without numbers."
    probed_series = [s for s in results.mains if s.variant == variant]
    found = {(s.task, s.algo): stats.summarise(np.array(list(map(_bar_distance, s.results)))) for s in probed_series}
    tested = {setting: summary for setting, summary in found.items() if summary.n > 1}
    needs = probe_needs(results, variant, set(tested))
    if not tested:
        ours = f"No setting has two seeds or more of {variant_label(variant)} whose critic was looked at."
        return Verdict(claim, paper, ours, "not measured", (), needs)
    yardstick = float(normal_distance(np.arange(1.0, 201.0)))
    rule = (
        "Rule: per seed, the share of the bars' variance that the best-fitting normal leaves unexplained (a distance, "
        "not a test: bars are no samples), mean over the states looked at; confirmed if its 95 % interval over seeds "
        f"lies below that of a uniform distribution ({yardstick:.3f}) in more than half of the settings and above in "
        "none; opposite if more lie above."
    )
    close = sum(s.high < yardstick for s in tested.values())
    far = sum(s.low > yardstick for s in tested.values())
    details = [rule] + [
        f"{algo.upper()} on {task}: {interval(s.mean, s.low, s.high, '.4f')}, {count(s.n, 'seed')}."
        for (task, algo), s in tested.items()
    ]
    ours = (
        f"Closer to normal than a uniform distribution in {close} of {count(len(tested), 'setting')}, "
        f"farther in {far}; the distance is {means(list(tested.values()), '.4f')} (0 is exactly normal, "
        f"{yardstick:.3f} is uniform)."
    )
    verdict = "confirmed" if 2 * close > len(tested) and not far else "opposite" if far > close else "not confirmed"
    return Verdict(claim, paper, ours, verdict, tuple(details), needs)


def _bar_distance(result: Result) -> float:
    """Mean over the states looked at."""
    bars = probed(result, "bars", "values")
    distances = stats.finite(normal_distance(bars)) if bars.size else bars
    return float(distances.mean()) if distances.size else math.nan
