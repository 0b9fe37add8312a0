"""A table that can be written in several forms."""

import csv
import io
import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

MISSING = "–"

FITTED = r"\resizebox{\ifdim\width>\linewidth\linewidth\else\width\fi}{!}{%"
"""Begins what LaTeX makes smaller where it is wider than the page."""


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
            style = "*{}*" if row.paper else "{}"
            cells = [_markdown(e) if e.missing or not row.paper else style.format(_markdown(e)) for e in row.entries]
            lines.append(_line([style.format(row.label), *cells]))
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

    def _block(self, start: int) -> list[str]:
        width = min(self.block, len(self.columns))

        def line(label: str, cells: Sequence[str]) -> str:
            return " & ".join([label, *cells, *[""] * (width - len(cells))]) + r" \\"

        lines = [line("", [_latex(c) for c in self.columns[start : start + self.block]]), r"\midrule"]
        for place, row in enumerate(self.rows):
            if not row.entries:
                lines += [
                    *([r"\midrule"] if place else []),
                    rf"\multicolumn{{{width + 1}}}{{l}}{{\textbf{{{_latex(row.label)}}}}} \\",
                ]
                continue
            label = r"\quad\textit{paper}" if row.paper else _latex(row.label)
            cells = []
            for entry in row.entries[start : start + self.block]:
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
    "²": r"$^2$",
    "τ": r"$\tau$",
    "<": r"$<$",
    ">": r"$>$",
    **{character: "\\" + character for character in "&%$#_"},
}


def _latex(text: str) -> str:
    """Text with every special character written so that LaTeX prints it."""
    parts = ["".join(LATEX.get(character, character) for character in part) for part in text.split("--")]
    return "-{}-".join(parts)  # two hyphens in a row, as in --table, would become one dash


def several(values: Sequence[int]) -> str:
    """For people: 30, or 10 to 30; in rising order."""
    return f"{values[0]:,}" if len(values) == 1 else f"{values[0]:,} to {values[-1]:,}"
