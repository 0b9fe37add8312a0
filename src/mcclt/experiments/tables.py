"""The paper's tables from a store, ours beside the paper's, as Markdown, LaTeX and CSV; the report shows them.

Two errors are told apart everywhere: ours is over seeds, and the paper's is pooled over episodes, which is not an
error of the algorithm (see `stats.pooled_se`). The CSV has both for our results.
"""

import csv
import io
import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from mcclt.experiments.analysis import stats
from mcclt.experiments.analysis.claims import (
    ALPHA,
    Contrast,
    contrasts,
    cost_ratios,
    few_of,
    fill,
    number,
    paper_cost,
    span,
    whole,
)
from mcclt.experiments.paper import paper_entry, paper_results
from mcclt.experiments.results import NAMES, Results, Series, variant_label
from mcclt.experiments.setups import bare_task

MISSING = "–"
BLOCK = 4
"""Columns of numbers side by side in LaTeX, as in the paper."""


@dataclass(frozen=True)
class Entry:
    """One cell."""

    text: str
    bold: bool = False
    mark: str = ""
    """Behind the text, raised: `*`."""
    missing: bool = False


@dataclass(frozen=True)
class Row:
    """One line: a section's name without entries, or a label with one entry per column."""

    label: str
    entries: tuple[Entry, ...] = ()
    paper: bool = False
    """Whether these are the paper's numbers."""


@dataclass(frozen=True)
class Table:
    """A table that can be written in several forms."""

    title: str
    caption: str
    columns: tuple[str, ...]
    """Above the entries; the labels of rows have none."""
    rows: tuple[Row, ...]
    notes: tuple[str, ...] = ()
    """Sentences, and commands (they start with `mcclt`)."""
    records: tuple[dict[str, Any], ...] = ()
    """The raw numbers, one record per cell, for `csv`."""

    def markdown(self) -> str:
        """As GitHub reads it: best in bold, the paper's in italics."""
        lines = [f"**{self.title}**", "", self.caption, ""]
        if self.columns:
            lines += [_line(["", *self.columns]), _line(["---", *["---:"] * len(self.columns)])]
        for row in self.rows:
            if not row.entries:
                lines.append(_line([f"**{row.label}**", *[""] * len(self.columns)]))
                continue
            style = "*{}*" if row.paper else "{}"
            cells = [_markdown(e) if e.missing or not row.paper else style.format(_markdown(e)) for e in row.entries]
            lines.append(_line([style.format(row.label), *cells]))
        notes = [f"- `{note}`" if _is_command(note) else f"- {note}" for note in self.notes]
        return "\n".join([*lines, *(["", *notes] if notes else [])]) + "\n"

    def latex(self) -> str:
        """A `table` environment; needs the package booktabs. Wide tables go in blocks, as in the paper."""
        title = self.title.partition(": ")[2] or self.title  # LaTeX numbers its tables itself
        lines = [r"\begin{table}[t]", r"\centering", rf"\caption{{{_latex(title)}. {_latex(self.caption)}}}"]
        if self.columns:
            lines += [r"\small", rf"\begin{{tabular}}{{l{'r' * min(BLOCK, len(self.columns))}}}"]
            for start in range(0, len(self.columns), BLOCK):
                lines += [r"\toprule", *self._block(start), r"\bottomrule"]
            lines.append(r"\end{tabular}")
        for note in self.notes:
            text = rf"\texttt{{{_latex(note)}}}" if _is_command(note) else _latex(note)
            lines.append(rf"\par\smallskip{{\footnotesize {text}}}")
        return "\n".join([*lines, r"\end{table}"]) + "\n"

    def _block(self, start: int) -> list[str]:
        width = min(BLOCK, len(self.columns))

        def line(label: str, cells: Sequence[str]) -> str:
            return " & ".join([label, *cells, *[""] * (width - len(cells))]) + r" \\"

        lines = [line("", [_latex(c) for c in self.columns[start : start + BLOCK]]), r"\midrule"]
        for place, row in enumerate(self.rows):
            if not row.entries:
                lines += [
                    *([r"\midrule"] if place else []),
                    rf"\multicolumn{{{width + 1}}}{{l}}{{\textbf{{{_latex(row.label)}}}}} \\",
                ]
                continue
            label = rf"\quad\textit{{{_latex(row.label)}}}" if row.paper else _latex(row.label)
            cells = []
            for entry in row.entries[start : start + BLOCK]:
                text = rf"\textbf{{{_latex(entry.text)}}}" if entry.bold else _latex(entry.text)
                text = rf"\textit{{{text}}}" if row.paper and not entry.missing else text
                cells.append(text + (rf"$^{{{entry.mark}}}$" if entry.mark else ""))
            lines.append(line(label, cells))
        return lines

    def csv(self) -> str:
        """The raw numbers, one line per cell; nothing between commas where there is no number."""
        columns = list(dict.fromkeys(name for record in self.records for name in record))
        out = io.StringIO()
        writer = csv.DictWriter(out, columns, lineterminator="\n")
        writer.writeheader()
        for record in self.records:
            known = {k: v for k, v in record.items() if not (isinstance(v, float) and math.isnan(v))}
            writer.writerow(known)
        return out.getvalue()


# --- the tables ------------------------------------------------------------------------------------------------


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


TABLES: dict[str, Callable[[Results], Table]] = {"1": table1, "2": table2, "3": table3}


# --- tables of returns -----------------------------------------------------------------------------------------


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
    notes = [f"Ours: {_several(steps)} environment steps, {_several(seeds)} seed{'' if seeds == [1] else 's'}."]
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


def _several(values: Sequence[int]) -> str:
    return f"{values[0]:,}" if len(values) == 1 else f"{values[0]:,} to {values[-1]:,}"


# --- forms -----------------------------------------------------------------------------------------------------


def _is_command(note: str) -> bool:
    return note.startswith("mcclt ")


def _line(cells: Sequence[str]) -> str:
    return "| " + " | ".join(cell.replace("|", r"\|") for cell in cells) + " |"


def _markdown(entry: Entry) -> str:
    text = f"**{entry.text}**" if entry.bold else entry.text
    return text + (rf"\{entry.mark}" if entry.mark else "")


LATEX = {
    "\\": r"\textbackslash{}",
    "{": r"\{",
    "}": r"\}",
    "~": r"\textasciitilde{}",
    "^": r"\textasciicircum{}",
    "−": "$-$",
    "–": "--",
    "±": r"$\pm$",
    "→": r"$\to$",
    "½": r"$\frac12$",
    "<": r"$<$",
    ">": r"$>$",
    **{character: "\\" + character for character in "&%$#_"},
}


def _latex(text: str) -> str:
    """Text with every special character written so that LaTeX prints it."""
    parts = ["".join(LATEX.get(character, character) for character in part) for part in text.split("--")]
    return "-{}-".join(parts)  # two hyphens in a row, as in --table, would become one dash
