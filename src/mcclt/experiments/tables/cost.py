"""Table 2: time and number of weights."""

import math

from mcclt.experiments.analysis.claims import cost_ratios, paper_cost
from mcclt.experiments.analysis.missing import whole
from mcclt.experiments.analysis.texts import span
from mcclt.experiments.paper import paper_results
from mcclt.experiments.results import Results, variant_label
from mcclt.experiments.tables.form import MISSING, Entry, Row, Table


def table2(results: Results) -> Table:
    """Time and number of weights relative to the baseline, as ranges over all timings."""
    title = "Table 2: training time and number of weights, relative to the baseline"
    command = whole(results, "--table", "2")
    ratios = [(timing, cost_ratios(timing)) for timing in results.timings]
    usable = [(timing, r) for timing, r in ratios if r["time"]]
    if not usable:
        why = (
            "There are no timings yet."
            if not ratios
            else "No timing has the baseline, so there is nothing to relate to."
        )
        return Table(title, f"{why} This measures them:", (), (), (command,))
    variants = list(dict.fromkeys(["plain", "mcclt", "ensemble", *(v for _, r in usable for v in r["time"])]))
    rows, records = [], []
    for what, label in (("time", "time per update"), ("weights", "weights of the critic")):
        ours, theirs = [], []
        for variant in variants:
            found = [r[what][variant] for _, r in usable if variant in r[what]]
            paper = paper_cost(what, variant)
            ours.append(Entry(span(min(found), max(found), 2)) if found else Entry(MISSING, missing=True))
            theirs.append(Entry(MISSING, missing=True) if paper is None else Entry(paper))
            said = paper_results()["cost"][what].get(variant, (None, None))
            records.append(
                {
                    "cost": what,
                    "variant": variant,
                    "timings": len(found),
                    "low": min(found, default=math.nan),
                    "high": max(found, default=math.nan),
                    "paper_low": said[0],
                    "paper_high": said[1],
                }
            )
        rows += [Row(label, tuple(ours)), Row("paper", tuple(theirs), paper=True)]
    notes = [
        f"{t['algo'].upper()} on {t['task']}, {t['device']}, measured {t['measured'][:10]}: "
        + ", ".join(f"{variant_label(v)} {value:.2f}" for v, value in r["time"].items() if v != "plain")
        + " times the baseline's time."
        for t, r in usable
    ]
    if any(e.missing for row in rows if not row.paper for e in row.entries):
        notes += ["What is missing is measured by:", command]
    caption = (
        f"Ours is the range over {len(usable)} timing{'s' if len(usable) > 1 else ''} on the machines named below; the "
        "paper's is what it prints for its own code and machine."
    )
    return Table(title, caption, tuple(map(variant_label, variants)), tuple(rows), tuple(notes), tuple(records))
