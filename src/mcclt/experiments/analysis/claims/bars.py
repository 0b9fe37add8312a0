"""The claim about the number of bars."""

from collections.abc import Sequence

from mcclt.experiments.analysis import aggregates
from mcclt.experiments.analysis.claims.verdict import Verdict
from mcclt.experiments.analysis.contrasts import Contrast, contrast_text, contrasts, normalised
from mcclt.experiments.analysis.missing import few_of, missing
from mcclt.experiments.analysis.texts import count, interval
from mcclt.experiments.results import Results

MARGIN = 0.1
"""Differences below a tenth of the baseline's score count as none, where a claim is that something does not matter."""


def bars_suffice(results: Results) -> Verdict:
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
        f"{n} − 8 bars: {interval(d.difference, d.low, d.high, '+z.3f')} over {count(d.tasks, 'setting')}."
        for n, d in differences.items()
        if d.p is not None
    ]
    details = (rule, *lines, *(contrast_text(c) for f in found.values() for c in f if c.p is None))
    needs = few_of([x for n, f in found.items() for x in missing(results, f, f"mcclt@n_quantiles={n}", "mcclt")])
    more = [differences[12], differences[20]]
    if any(d.p is None for d in more):
        return Verdict(claim, paper, "12 and 20 bars are not both measured beside 8.", "not measured", details, needs)
    ours = " ".join(["Normalised scores:", *lines])
    if all(d.high < MARGIN for d in more):
        return Verdict(claim, paper, ours, "confirmed", details, needs)
    helps = any(d.low > 0 and d.high >= MARGIN for d in more)
    return Verdict(claim, paper, ours, "opposite" if helps else "not confirmed", details, needs)


def _normalised_difference(results: Results, found: Sequence[Contrast]) -> aggregates.Difference:
    """Mean over the settings that can be tested of the difference of normalised scores."""
    pairs = [(normalised(results, c.a), normalised(results, c.b)) for c in found if c.p is not None and c.a and c.b]
    known = [(a, b) for a, b in pairs if a is not None and b is not None]
    return aggregates.mean_difference([a for a, _ in known], [b for _, b in known])
