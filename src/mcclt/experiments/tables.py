"""Tables of a store, ours beside the paper's, as Markdown, LaTeX and CSV; the report shows them.

Two errors are told apart everywhere: ours is over seeds, and the paper's is pooled over episodes, which is not an
error of the algorithm (see `stats.pooled_se`). The CSV has both for our results.
"""

import csv
import dataclasses
import functools
import io
import itertools
import math
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from mcclt.experiments.analysis import pooled, stats
from mcclt.experiments.analysis.claims import cost_ratios, paper_cost
from mcclt.experiments.analysis.contrasts import ALPHA, Contrast, contrasts
from mcclt.experiments.analysis.texts import count, hardware, interval, number, p_text, several, span
from mcclt.experiments.filling import few_of, fills, whole
from mcclt.experiments.paper import paper_entry, paper_results
from mcclt.experiments.results import NAMES, Results, Series, grouped, variant_label
from mcclt.presets import bare_task

ALGOS = ("trpo", "ppo")
"""In the paper's order."""

MISSING = "–"

FITTED = r"\resizebox{\ifdim\width>\linewidth\linewidth\else\width\fi}{!}{%"
"""Begins what LaTeX makes smaller where it is wider than the page."""

LATEX = {
    "\\": r"\textbackslash{}",
    "~": r"\textasciitilde{}",
    "^": r"\textasciicircum{}",
    "−": "$-$",
    "–": "--",
    "±": r"$\pm$",
    "→": r"$\to$",
    "½": r"$\frac12$",
    "²": r"$^2$",
    "τ": r"$\tau$",
    "<": r"$<$",
    ">": r"$>$",
    **{character: "\\" + character for character in "&%$#_{}"},
}


@dataclass(frozen=True)
class Entry:
    """One cell."""

    text: str = MISSING
    bold: bool = False
    mark: str = ""
    """Behind the text, raised: `*`."""

    @property
    def missing(self) -> bool:
        """Whether there is nothing to show."""
        return self.text == MISSING


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
    block: int = 4
    """Columns of numbers side by side in LaTeX, as in the paper."""

    def markdown(self) -> str:
        """As GitHub reads it: best in bold, the paper's in italics."""
        lines = [f"**{self.title}**", "", self.caption, ""]
        if self.columns:
            lines += [_line(["", *self.columns]), _line(["---", *["---:"] * len(self.columns)])]
        for row in self.rows:
            if not row.entries:
                lines.append(_line([f"**{row.label}**", *[""] * len(self.columns)]))
                continue
            cells = []
            for entry in row.entries:
                text = (f"**{entry.text}**" if entry.bold else entry.text) + (rf"\{entry.mark}" if entry.mark else "")
                cells.append(f"*{text}*" if row.paper and not entry.missing else text)
            lines.append(_line([f"*{row.label}*" if row.paper else row.label, *cells]))
        notes = [f"- `{note}`" if _is_command(note) else f"- {note}" for note in self.notes]
        return "\n".join([*lines, *(["", *notes] if notes else [])]) + "\n"

    def latex(self) -> str:
        """A `table` environment; needs the packages booktabs and graphicx. Wide ones go in blocks, as in the paper."""
        title = self.title.partition(": ")[2] or self.title  # LaTeX numbers its tables itself
        lines = [r"\begin{table}[t]", r"\centering", rf"\caption{{{_latex(title)}. {_latex(self.caption)}}}"]
        if self.columns:
            lines += [r"\footnotesize\setlength{\tabcolsep}{3.5pt}", FITTED]
            lines.append(rf"\begin{{tabular}}{{l{'r' * min(self.block, len(self.columns))}}}")
            for start in range(0, len(self.columns), self.block):
                lines += [r"\toprule", *self._block(start), r"\bottomrule"]
            lines.append(r"\end{tabular}}")
        for note in self.notes:
            text = rf"\texttt{{{_latex(note)}}}" if _is_command(note) else _latex(note)
            lines.append(rf"\par\smallskip{{\footnotesize {text}}}")
        return "\n".join([*lines, r"\end{table}"]) + "\n"

    def _block(self, start: int) -> Iterator[str]:
        width, shown = min(self.block, len(self.columns)), slice(start, start + self.block)

        def line(label: str, cells: Sequence[str]) -> str:
            return " & ".join([label, *cells, *[""] * (width - len(cells))]) + r" \\"

        yield line("", [_latex(c) for c in self.columns[shown]])
        yield r"\midrule"
        for place, row in enumerate(self.rows):
            if not row.entries:
                yield from [r"\midrule"] if place else []
                yield rf"\multicolumn{{{width + 1}}}{{l}}{{\textbf{{{_latex(row.label)}}}}} \\"
                continue
            cells = []
            for entry in row.entries[shown]:
                text = rf"\textbf{{{_latex(entry.text)}}}" if entry.bold else _latex(entry.text)
                text = rf"\textit{{{text}}}" if row.paper and not entry.missing else text
                cells.append(text + (rf"$^{{{entry.mark}}}$" if entry.mark else ""))
            yield line(r"\quad\textit{paper}" if row.paper else _latex(row.label), cells)

    def csv(self) -> str:
        """The raw numbers, one line per cell; nothing between commas where there is no number."""
        out = io.StringIO()
        columns = list(dict.fromkeys(name for record in self.records for name in record))
        writer = csv.DictWriter(out, columns, lineterminator="\n")
        writer.writeheader()
        for record in self.records:
            writer.writerow({k: v for k, v in record.items() if not (isinstance(v, float) and math.isnan(v))})
        return out.getvalue()


def _is_command(note: str) -> bool:
    return note.startswith("mcclt ")


def _line(cells: Sequence[str]) -> str:
    return "| " + " | ".join(cell.replace("|", r"\|") for cell in cells) + " |"


def _latex(text: str) -> str:
    """Text with every special character written so that LaTeX prints it."""
    parts = ["".join(LATEX.get(character, character) for character in part) for part in text.split("--")]
    return "-{}-".join(parts)  # two hyphens in a row, as in --table, would become one dash


# --- tables 1 and 3: final returns -----------------------------------------------------------------------------


def table1(results: Results) -> Table:
    """The ablation, and MC-CLT against the ensemble."""
    labels = {v: NAMES[v] for v in ("plain", "qr", "mcclt-nw", "ensemble", "mcclt")}
    title = "Table 1: ablation, and MC-CLT against the ensemble"
    return _returns(results, "1", title, labels, "ensemble", "significant_vs_ensemble")


def table3(results: Results) -> Table:
    """Seeking accuracy (MC-CLT) or exploration."""
    labels = {"explore": "exploration-seeking", "mcclt": "accuracy-seeking (MC-CLT)"}
    return _returns(results, "3", "Table 3: seeking accuracy or exploration", labels, "explore", "")


@dataclass(frozen=True)
class _Cell:
    """A variant in one setting, in a table that tests MC-CLT against another variant."""

    task: str
    algo: str
    variant: str
    series: Series | None
    contrast: Contrast | None
    against: str

    @functools.cached_property
    def summary(self) -> stats.Summary:
        return stats.summarise(self.series.scores if self.series else np.zeros(0))

    @property
    def paper(self) -> dict[str, Any]:
        return paper_entry(self.task, self.algo, self.variant) or {}

    def entry(self, rivals: Sequence["_Cell"]) -> Entry:
        """Ours, in bold if it is the best of the rivals; none is where there is no choice, or steps differ."""
        own = self.summary
        if not own.n:
            return Entry()
        scored = [cell for cell in rivals if cell.summary.n]
        ranked = len(scored) > 1 and len({cell.series.steps for cell in scored if cell.series}) == 1
        winner = {1: "mcclt", -1: self.against}.get(self.contrast.sign) if self.contrast else None
        spread = f" ± {number(own.se)}" if own.n > 1 else ""
        return Entry(
            f"{number(own.mean)}{spread} ({own.n})",
            bold=ranked and own.mean == max(cell.summary.mean for cell in scored),
            mark="*" if self.variant == winner else "",
        )

    def paper_entry(self, mark: str) -> Entry:
        """The paper's, with a `*` where its data has this mark."""
        found = self.paper
        return Entry(f"{found['mean']:g} ± {found['se']:g}", mark="*" if found.get(mark) else "") if found else Entry()

    def record(self) -> dict[str, Any]:
        """All numbers. The p-values are Welch's, alone and Holm-adjusted, and only in MC-CLT's rows."""
        own, contrast = self.summary, self.contrast if self.variant == "mcclt" else None
        return {
            "task": self.task,
            "algo": self.algo,
            "variant": self.variant,
            "steps": self.series.steps if self.series else None,
            "seeds": own.n,
            "mean": own.mean,
            "se_seeds": own.se,
            "low": own.low,
            "high": own.high,
            "se_pooled": stats.pooled_se([r.returns for r in self.series.results] if self.series else []),
            "paper_mean": self.paper.get("mean"),
            "paper_se": self.paper.get("se"),
            f"difference_vs_{self.against}": contrast.comparison.difference if contrast else None,
            f"p_vs_{self.against}": contrast.comparison.p if contrast else None,
            f"p_holm_vs_{self.against}": contrast.p if contrast else None,
        }


def _returns(results: Results, table: str, title: str, labels: dict[str, str], against: str, paper_mark: str) -> Table:
    """A table of final returns: variants down, tasks across, one section per algorithm, the paper's below ours.

    `labels` are those of the rows, by variant. MC-CLT is tested `against` a variant for the `*`; the paper's own `*` is
    where its data has `paper_mark`.
    """
    shown = [s for s in results.mains if s.variant in labels]
    if not shown:
        caption = "There are no results for this table yet. This computes them:"
        return Table(title, caption, (), (), (whole(results, "--table", table),))
    tasks = [task for task in results.tasks if any(s.task == task for s in shown)]
    algos = [algo for algo in ALGOS if any(s.algo == algo for s in shown)]
    tested = {(c.task, c.algo): c for c in contrasts(results, "mcclt", against)}
    rows, records = [], []
    for algo in algos:
        rows.append(Row(algo.upper()))
        lines = [
            [_Cell(t, algo, v, results.main(t, algo, v), tested.get((t, algo)), against) for t in tasks] for v in labels
        ]
        columns = list(zip(*lines, strict=True))
        for label, line in zip(labels.values(), lines, strict=True):
            rows.append(Row(label, tuple(cell.entry(rivals) for cell, rivals in zip(line, columns, strict=True))))
            if any(cell.paper for cell in line):
                rows.append(Row(f"{label}, paper", tuple(cell.paper_entry(paper_mark) for cell in line), paper=True))
            records += [cell.record() for cell in line]
    with_paper = any(row.paper for row in rows)
    caption = (
        "Ours: mean final return ± standard error over seeds (number of seeds); best in bold. "
        + ("Paper: mean ± standard error pooled over all episodes, not over seeds. " if with_paper else "")
        + f"* marks whichever of MC-CLT and {variant_label(against)} is significantly better over seeds (Welch's "
        + f"t-test, Holm over all settings shown, {ALPHA})"
        + ("; in the paper's rows, the paper's own marks." if with_paper else ".")
    )
    notes = [*_about(results, shown, with_paper)]
    untested = [c for c in tested.values() if c.a is not None and c.b is not None and c.p is None]
    notes += [f"Not tested: {c.setting}: {c.why}" for c in untested]
    lacking = [(t, a, v) for a in algos for t in tasks for v in labels if results.main(t, a, v) is None]
    if lacking:
        notes += ["Missing cells are filled by:", *few_of(fills(results, lacking))]
    return Table(title, caption, tuple(tasks), tuple(rows), tuple(notes), tuple(records))


def _about(results: Results, shown: Sequence[Series], with_paper: bool) -> Iterator[str]:
    """What a reader must know of the series shown."""
    steps, seeds = {s.steps for s in shown}, {len(s.results) for s in shown}
    yield f"Ours: {several(steps)} environment steps, {several(seeds)} seed{'' if seeds == {1} else 's'}."
    if with_paper:
        yield f"Paper: {paper_results()['steps']:,} steps, 30 settings of 100 episodes, older task versions."
    scored = [stats.finite(s.scores).size for s in shown]
    if 1 in scored:
        yield "(1) is one seed: no spread."
    if failed := sum(len(s.results) for s in shown) - sum(scored):
        yield f"{failed} agent{'s have' if failed > 1 else ' has'} no score, since every final episode failed."
    versions = Counter(bare_task(task) for task in {s.task for s in shown})
    if several_of := [t for t in dict.fromkeys(s.task for s in shown) if versions[bare_task(t)] > 1]:
        yield f"Versions of a task are different tasks, each with its own column: {', '.join(several_of)}."
    for task, algo in itertools.product(results.tasks, ALGOS):
        found = [s for s in shown if (s.task, s.algo) == (task, algo)]
        if len({s.steps for s in found}) > 1:
            listed = ", ".join(f"{s.label} {s.steps:,}" for s in found)
            yield f"{algo.upper()} on {task}: steps differ ({listed}), so none is marked best."
    names = tuple(f"{s.name} on {s.task} " for s in shown)
    yield from (note for note in results.notes if note.startswith(names))


# --- table 2: time and number of weights -----------------------------------------------------------------------


def table2(results: Results) -> Table:
    """Time and number of weights relative to the baseline, as ranges over all timings."""
    title = "Table 2: training time and number of weights, relative to the baseline"
    command = whole(results, "--table", "2")
    usable = [(timing, ratios) for timing in results.timings if (ratios := cost_ratios(timing))["time"]]
    if not usable:
        none = "No timing has the baseline, so there is nothing to compare with."
        why = none if results.timings else "There are no timings yet."
        return Table(title, f"{why} This measures them:", (), (), (command,))
    variants = list(dict.fromkeys(["plain", "mcclt", "ensemble", *(v for _, r in usable for v in r["time"])]))
    rows, records = [], []
    for what, label in (("time", "time per update"), ("weights", "weights of the critic")):
        found = {v: [r[what][v] for _, r in usable if v in r[what]] for v in variants}
        ours = [Entry(span(min(x), max(x), 2)) if x else Entry() for x in found.values()]
        theirs = [Entry(paper) if (paper := paper_cost(what, v)) else Entry() for v in variants]
        rows += [Row(label, tuple(ours)), Row("paper", tuple(theirs), paper=True)]
        for variant, values in found.items():
            said = paper_results()["cost"][what].get(variant, (None, None))
            ends = {"low": min(values, default=math.nan), "high": max(values, default=math.nan)}
            ends |= {"paper_low": said[0], "paper_high": said[1]}
            records.append({"cost": what, "variant": variant, "timings": len(values), **ends})
    notes = [
        f"{t['algo'].upper()} on {t['task']}, {_machine(t)}, measured {t['measured'][:10]}: "
        + "; ".join(f"{variant_label(v)} {value:.2f}" for v, value in r["time"].items() if v != "plain")
        + " times the baseline's time."
        for t, r in usable
    ]
    if any(e.missing for row in rows if not row.paper for e in row.entries):
        notes += ["What is missing is measured by:", command]
    caption = (
        f"Ours is the range over {count(len(usable), 'timing')} on the machines named below; the paper's is what it "
        "prints for its own code and machine."
    )
    return Table(title, caption, tuple(map(variant_label, variants)), tuple(rows), tuple(notes), tuple(records))


def _machine(timing: dict[str, Any]) -> str:
    """What a cost was measured on; a stranger's file may lack it."""
    machine = timing.get("machine") or {}
    return hardware(timing["device"], machine.get("cpu"), machine.get("cores"))


# --- one answer to each claim over all settings ----------------------------------------------------------------


def pooled_table(results: Results) -> Table:
    """One answer to each claim over all settings."""
    title = "All settings together: MC-CLT against each of the others"
    found = {measure: pooled.answers(results, measure) for measure in pooled.MEASURES}
    shown = [answer for answers in found.values() for answer in answers]
    if not shown:
        caption = "There are no two variants to compare yet. This computes them:"
        return Table(title, caption, (), (), (whole(results, "--table", "1"),))
    rows = []
    for measure, answers in found.items():
        if answers:
            rows.append(Row(pooled.MEASURES[measure]))
            rows += [Row(variant_label(answer.b), _pooled_entries(answer)) for answer in answers]
    tasks, settings = {a.mean.tasks for a in shown}, {len(a.effects) for a in shown}
    caption = (
        f"{several(settings)} settings of {several(tasks)} tasks; tasks are the unit, since PPO and TRPO on one task "
        "are not independent. Probability of improvement: that a random seed of MC-CLT beats one of the other (95 % "
        "bootstrap interval over tasks, and seeds within them). Difference: Hedges' g, in standard deviations over "
        "seeds, above 0 where MC-CLT is better; random-effects mean over tasks with Hartung and Knapp's 95 % interval. "
        "Over tasks: whether that depends on the task; I² is the share of the variation between tasks that is not "
        "noise, p is that of Cochran's Q. Better or worse only where both intervals say so."
    )
    notes = [
        "To decide it: how many seeds of each variant on these tasks (if any number would do), or how many tasks with "
        "as many seeds as now, would detect the difference found, were it the true one, with power 0.8.",
        "Steps are counted to the first evaluation that reaches the threshold, or to the last one if none does.",
    ]
    if min(tasks) < 6:
        notes.append(
            "Few tasks: if they differ much, the bootstrap interval is too narrow; the other one keeps its level."
        )
    measured = sum(map(bool, found.values()))
    left_out = grouped((why, pooled.MEASURES[answer.measure]) for answer in shown for why in answer.left_out)
    notes += few_of(
        [f"Left out{'' if len(of) == measured else ', ' + ', '.join(of)}: {why}" for why, of in left_out.items()]
    )
    columns = ("P(improvement)", "difference (g)", "over tasks", "answer", "to decide it")
    return Table(title, caption, columns, tuple(rows), tuple(notes), tuple(map(_pooled_record, shown)), len(columns))


def _pooled_entries(answer: pooled.Answer) -> tuple[Entry, ...]:
    mean = answer.mean
    differs = "one task" if mean.tasks < 2 else f"I² {mean.i2:.0%}, {p_text(mean.p_q)}"
    needs = [f"{n:,} {what}" for n, what in ((answer.seeds, "seeds"), (answer.tasks, "tasks")) if n is not None]
    return (
        Entry(interval(answer.probability, answer.low, answer.high, ".2f")),
        Entry(interval(mean.mean, mean.low, mean.high, "+z.2f")),
        Entry(differs.replace("%", " %")),
        Entry(answer.verdict, bold=answer.verdict != "undecided"),
        Entry(" or ".join(needs) or MISSING),
    )


def _pooled_record(answer: pooled.Answer) -> dict[str, Any]:
    own = {name: getattr(answer, name) for name in ("measure", "a", "b", "verdict", "probability", "low", "high")}
    effect = {f"effect_{name}": value for name, value in dataclasses.asdict(answer.mean).items()}
    needed = {"seeds_needed": answer.seeds, "tasks_needed": answer.tasks}
    return own | {"settings": len(answer.effects)} | effect | needed


TABLES: dict[str, Callable[[Results], Table]] = {"pooled": pooled_table, "1": table1, "2": table2, "3": table3}
