"""The claim about cost."""

from typing import Any

from mcclt.experiments.analysis.claims.verdict import Verdict
from mcclt.experiments.analysis.missing import whole
from mcclt.experiments.analysis.texts import count, span
from mcclt.experiments.paper import paper_results
from mcclt.experiments.results import Results


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


def cost(results: Results) -> Verdict:
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
    ours = f"{text.format(*(span(min(v), max(v), 2) for v in values))}, over {count(len(complete), 'timing')}."
    verdict = "confirmed" if all(cheaper) else "not confirmed" if any(cheaper) else "opposite"
    return Verdict(claim, paper, ours, verdict, (rule, *details))
