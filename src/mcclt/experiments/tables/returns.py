"""Tables 1 and 3: final returns."""

from collections.abc import Sequence
from typing import Any

import numpy as np

from mcclt.experiments.analysis import stats
from mcclt.experiments.analysis.contrasts import ALPHA, Contrast, contrasts
from mcclt.experiments.analysis.missing import few_of, whole
from mcclt.experiments.analysis.texts import number
from mcclt.experiments.filling import fill
from mcclt.experiments.paper import paper_entry, paper_results
from mcclt.experiments.results import NAMES, Results, Series, variant_label
from mcclt.experiments.setups import bare_task
from mcclt.experiments.tables.form import MISSING, Entry, Row, Table, several


def table1(results: Results) -> Table:
    """The ablation, and MC-CLT against the ensemble."""
    return _returns(
        results,
        title="Table 1: ablation, and MC-CLT against the ensemble",
        table="1",
        variants=("plain", "qr", "mcclt-nw", "ensemble", "mcclt"),
        labels=NAMES,
        against="ensemble",
        paper_mark="significant_vs_ensemble",
    )


def table3(results: Results) -> Table:
    """Seeking accuracy (MC-CLT) or exploration."""
    return _returns(
        results,
        title="Table 3: seeking accuracy or exploration",
        table="3",
        variants=("explore", "mcclt"),
        labels={"explore": "exploration-seeking", "mcclt": "accuracy-seeking (MC-CLT)"},
        against="explore",
        paper_mark="",
    )


def _returns(
    results: Results,
    title: str,
    table: str,
    variants: Sequence[str],
    labels: dict[str, str],
    against: str,
    paper_mark: str,
) -> Table:
    """A table of final returns: variants down, tasks across, one section per algorithm, the paper's below ours.

    Args:
        results: the store.
        title: of the table.
        table: the table's number in the paper.
        variants: its rows.
        labels: of the rows.
        against: the variant that MC-CLT is tested against, for the `*`.
        paper_mark: the entry of the paper's data that stands for its own `*`.
    """
    shown = [s for s in results.mains if s.variant in variants]
    if not shown:
        caption = "There are no results for this table yet. This computes them:"
        return Table(title, caption, (), (), (whole(results, "--table", table),))
    tasks = [task for task in results.tasks if any(s.task == task for s in shown)]
    algos = [algo for algo in ("trpo", "ppo") if any(s.algo == algo for s in shown)]  # the paper's order
    tested = {(c.task, c.algo): c for c in contrasts(results, "mcclt", against)}
    rows, records = [], []
    for algo in algos:
        rows.append(Row(algo.upper()))
        best = {task: _best(results, task, algo, variants) for task in tasks}
        for variant in variants:
            label = labels[variant]
            entries = [_entry(results, tested, t, algo, variant, against, variant in best[t]) for t in tasks]
            paper = [_paper_entry(t, algo, variant, paper_mark) for t in tasks]
            rows.append(Row(label, tuple(entries)))
            if not all(e.missing for e in paper):
                rows.append(Row(f"{label}, paper", tuple(paper), paper=True))
            records += [_record(results, tested, t, algo, variant, against) for t in tasks]
    with_paper = any(row.paper for row in rows)
    other = variant_label(against)
    caption = (
        "Ours: mean final return ± standard error over seeds (number of seeds); best in bold. "
        + ("Paper: mean ± standard error pooled over all episodes, not over seeds. " if with_paper else "")
        + f"* on the one of MC-CLT and {other} that is significantly better over seeds (Welch's t-test, Holm over all "
        + f"settings shown, {ALPHA})"
        + ("; in the paper's rows, as it says." if with_paper else ".")
    )
    notes = _notes(results, shown, tasks, algos, variants, list(tested.values()), with_paper)
    return Table(title, caption, tuple(tasks), tuple(rows), tuple(notes), tuple(records))


def _best(results: Results, task: str, algo: str, variants: Sequence[str]) -> set[str]:
    """The variants with the highest mean; none where there is nothing to choose from, or steps differ."""
    found = [s for v in variants if (s := results.main(task, algo, v)) is not None and stats.finite(s.scores).size]
    if len(found) < 2 or len({s.steps for s in found}) > 1:
        return set()
    means = {s.variant: stats.summarise(s.scores).mean for s in found}
    return {variant for variant, mean in means.items() if mean == max(means.values())}


def _entry(
    results: Results,
    tested: dict[tuple[str, str], Contrast],
    task: str,
    algo: str,
    variant: str,
    against: str,
    best: bool,
) -> Entry:
    series = results.main(task, algo, variant)
    summary = stats.summarise(series.scores) if series else None
    if summary is None or summary.n == 0:
        return Entry(MISSING, missing=True)
    contrast = tested.get((task, algo))
    winner = {1: "mcclt", -1: against}.get(contrast.sign) if contrast else None
    spread = f" ± {number(summary.se)}" if summary.n > 1 else ""
    return Entry(f"{number(summary.mean)}{spread} ({summary.n})", best, "*" if variant == winner else "")


def _paper_entry(task: str, algo: str, variant: str, mark: str) -> Entry:
    found = paper_entry(task, algo, variant)
    if found is None:
        return Entry(MISSING, missing=True)
    return Entry(f"{found['mean']:g} ± {found['se']:g}", mark="*" if found.get(mark) else "")


def _record(
    results: Results, tested: dict[tuple[str, str], Contrast], task: str, algo: str, variant: str, against: str
) -> dict[str, Any]:
    """All numbers of a cell. Its p-values are Welch's, alone and Holm-adjusted, and only in MC-CLT's rows."""
    series, paper = results.main(task, algo, variant), paper_entry(task, algo, variant) or {}
    summary = stats.summarise(series.scores if series else np.zeros(0))
    contrast = tested.get((task, algo)) if variant == "mcclt" else None
    comparison = contrast.comparison if contrast else None
    return {
        "task": task,
        "algo": algo,
        "variant": variant,
        "steps": series.steps if series else None,
        "seeds": summary.n,
        "mean": summary.mean,
        "se_seeds": summary.se,
        "low": summary.low,
        "high": summary.high,
        "se_pooled": stats.pooled_se([r.returns for r in series.results] if series else []),
        "paper_mean": paper.get("mean"),
        "paper_se": paper.get("se"),
        f"difference_vs_{against}": comparison.difference if comparison else None,
        f"p_vs_{against}": comparison.p if comparison else None,
        f"p_holm_vs_{against}": contrast.p if contrast else None,
    }


def _notes(
    results: Results,
    shown: Sequence[Series],
    tasks: Sequence[str],
    algos: Sequence[str],
    variants: Sequence[str],
    tested: Sequence[Contrast],
    with_paper: bool,
) -> list[str]:
    """What a reader must know to read the table, and the commands that complete it."""
    steps, seeds = sorted({s.steps for s in shown}), sorted({len(s.results) for s in shown})
    notes = [f"Ours: {several(steps)} environment steps, {several(seeds)} seed{'' if seeds == [1] else 's'}."]
    if with_paper:
        notes.append(f"Paper: {paper_results()['steps']:,} steps, 30 settings of 100 episodes, older task versions.")
    if any(stats.finite(s.scores).size == 1 for s in shown):
        notes.append("(1) is one seed: no spread.")
    failed = sum(len(s.results) - stats.finite(s.scores).size for s in shown)
    if failed:
        notes.append(f"{failed} agent{'s have' if failed > 1 else ' has'} no score, since every final episode failed.")
    versions = [t for t in tasks if any(bare_task(t) == bare_task(u) for u in tasks if u != t)]
    if versions:
        notes.append(f"Versions of a task are different tasks, each with its own column: {', '.join(versions)}.")
    for task in tasks:
        for algo in algos:
            found = [s for s in shown if (s.task, s.algo) == (task, algo)]
            if len({s.steps for s in found}) > 1:
                listed = ", ".join(f"{s.label} {s.steps:,}" for s in found)
                notes.append(f"{algo.upper()} on {task}: steps differ ({listed}), so none is marked best.")
    names = [f"{s.name} on {s.task} " for s in shown]
    notes += [note for note in results.notes if any(note.startswith(name) for name in names)]
    untested = [f"{c.setting}: {c.why}" for c in tested if c.a is not None and c.b is not None and c.p is None]
    notes += [f"Not tested: {reason}" for reason in untested]
    lacking = [(t, a, v) for a in algos for t in tasks for v in variants if results.main(t, a, v) is None]
    if lacking:
        notes += ["Missing cells are filled by:", *few_of([fill(results, [t], a, [v]) for t, a, v in lacking])]
    return notes
