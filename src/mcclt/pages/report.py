"""The report: a store's results as one page that needs nothing else, with its tables and figures as files beside it."""

import shlex
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from markupsafe import Markup

from mcclt.config.variants import PAPER_VARIANTS
from mcclt.errors import MissingExtraError
from mcclt.experiments import figures, filling, tables
from mcclt.experiments.analysis import calibration, claims, first, pooled
from mcclt.experiments.analysis.texts import count, several
from mcclt.experiments.cells import StoreError, refusals
from mcclt.experiments.results import Results, variant_label
from mcclt.pages import provenance
from mcclt.pages.curves import curves
from mcclt.pages.rendering import listed, render, short, strips
from mcclt.storage import files

COMPARED = ("learning_curves", "calibration")
"""Figures that say something of a user's own comparison."""
VERDICTS = {"confirmed": "✓", "not confirmed": "≈", "opposite": "✕", "not measured": "○"}
"""A sign for each, so that none is told by its colour alone."""


def write(results: Results, folder: Path) -> Path:
    """Writes report.html, tables/ and figures/ into a folder.

    Args:
        results: of a store, complete or not.
        folder: made if need be; earlier reports there are replaced.

    Returns:
        The path of report.html, which needs none of the other files.

    Raises:
        StoreError: the store holds no results, or the folder cannot be written.
    """
    if not results.series:
        if results.problems:
            raise StoreError(f"No result of {results.path} can be read: run again the command that filled it.")
        command = "reproduce --scale smoke" if results.reproduction else "compare TASK"
        store = shlex.quote(str(results.path or "results"))
        raise StoreError(f"There are no results yet: run  mcclt {command} --store {store}  first.")
    path = folder / "report.html"
    with refusals("write the report to", folder):
        if results.reproduction:  # they are the paper's
            _write_tables(results, folder / "tables")
        files.write_atomically(path, page(results, draw(results, folder / "figures")).encode())
    return path


def page(results: Results, drawings: dict[str, str] | None) -> str:
    """The whole page; see `write`.

    Args:
        results: of a store; at least one.
        drawings: figures as inline SVG, by name; None if there was nothing to draw them with.
    """
    store = str(results.path or "results")
    values = shared(results, drawings) | {
        "store": store,
        "finished": max(str(r.provenance.get("finished", "")) for s in results.series for r in s.results)[:10],
        "repeat": [*filling.repeat(results), shlex.join(["mcclt", "report", store])],
    }
    if not results.reproduction:
        values |= {"title": title_of(results), "comparison": comparison(results)}
        return render("comparison", curves(results), "report", **values)
    verdicts = claims.verdicts(results)
    tally = Counter(v.verdict for v in verdicts)
    seeds = provenance.seeds(results)
    wanted = max(seeds.values())
    variants = list(dict.fromkeys([*PAPER_VARIANTS, *results.variants]))  # the paper's, there or not, and others
    return render(
        "reproduction",
        curves(results),
        "report",
        **values,
        title="Normality-guided reinforcement learning, reproduced",
        missing=sum(provenance.gaps(results).values()),
        planned=wanted * len(results.tasks) * len(results.algos) * len(PAPER_VARIANTS),
        answer=answer_of(results),
        signs=VERDICTS,
        tally={name: tally[name] for name in VERDICTS if tally[name]},
        verdicts=verdicts,
        tables={name: make(results) for name, make in tables.TABLES.items()},
        variants=[variant_label(v) for v in variants],
        seeds={a.upper(): {t: [seeds[t, a, v] for v in variants] for t in results.tasks} for a in results.algos},
        wanted=wanted,
        paper=len(PAPER_VARIANTS),
        fill=provenance.commands_that_fill(results),
    )


def shared(results: Results, drawings: dict[str, str] | None, finished: bool = True) -> dict[str, Any]:
    """What the template of every page about results shows; of agents that still train if not `finished`."""
    return {
        "summary": _summary(results, finished),
        "notices": _notices(results),
        "drawings": None if drawings is None else {name: Markup(svg) for name, svg in drawings.items()},
        "titles": figures.TITLES,
        "calibration": [(algo.upper(), *found) for algo in results.algos if (found := _calibration(results, algo))],
        "uncalibrated": calibration.why_unmeasured(results),
        "tasks": len(results.tasks),
        "several_seeds": any(len(s.results) > 1 for s in results.mains),
        "properties": provenance.properties(results),
    }


def _write_tables(results: Results, folder: Path) -> None:
    for name, make in tables.TABLES.items():
        table = make(results)
        for ending, text in {"md": table.markdown(), "tex": table.latex(), "csv": table.csv()}.items():
            files.write_atomically(folder / f"table-{name}.{ending}", text.encode())


def draw(results: Results, folder: Path) -> dict[str, str] | None:
    """Draws each figure once, saves it, and gives it as SVG; None without matplotlib."""
    drawings = {}
    try:
        for name, make in figures.FIGURES.items():
            if not results.reproduction and name not in COMPARED:
                continue
            figure = make(results)
            if figure is not None:
                figures.save(figure, folder, name)
                drawings[name] = figures.svg(figure)
    except MissingExtraError:
        return None
    return drawings


def title_of(results: Results) -> str:
    """What was trained, and on what."""
    names = [variant_label(variant) for variant in results.variants]
    who = listed(names) if len(names) < 5 else f"{len(names)} variants"
    where = listed(results.tasks) if len(results.tasks) < 4 else count(len(results.tasks), "task")
    return f"{who[0].upper()}{who[1:]} on {where}"


def comparison(results: Results) -> dict[str, list[dict[str, Any]]]:
    """Every variant of each task: its seeds and how it differs from the first, as places on a line from 0 to 100.

    The dots of a single seed are its episodes.
    """
    return {
        task: strips(rows, [s.scores if len(s.scores) > 1 else s.results[0].returns for s in (r.series for r in rows)])
        for task, rows in first.against_first(results.mains).items()
    }


def _summary(results: Results, finished: bool) -> str:
    agents = sum(len(s.results) for s in results.mains)
    algos = " and ".join(a.upper() for a in results.algos)
    seeds = several([len(s.results) for s in results.mains])
    steps = several([s.steps for s in results.mains], short)
    if agents == 1:
        return f"One agent, {'trained' if finished else 'to be trained'} by {algos} for {steps} environment steps."
    return (
        f"{count(agents, 'trained agent' if finished else 'agent')}: {count(len(results.tasks), 'task')}, "
        f"{count(len(results.variants), 'variant')} of {algos}, {seeds} {'seed' if seeds == '1' else 'seeds'}, "
        f"{steps} environment steps each{'' if finished else ' in the end'}."
    )


def answer_of(results: Results) -> str:
    """The pooled answers about final returns in one sentence; nothing if there are none."""
    found = pooled.answers(results, "final")
    if not found:
        return ""
    words = {"better": "better than", "worse": "worse than", "undecided": "not decidedly better or worse than"}
    parts = []
    for verdict, said in words.items():
        if names := [variant_label(a.b) for a in found if a.verdict == verdict]:
            parts.append(f"{said} those of {listed(names)}")
    tasks, settings = max(a.mean.tasks for a in found), max(len(a.effects) for a in found)
    scope = f"{count(tasks, 'task')} ({count(settings, 'setting')})"
    return f"Over {scope} MC-CLT's final returns are {', and '.join(parts)}."


def _notices(results: Results) -> list[tuple[str, str, Sequence[str]]]:
    """What a reader must know before believing anything below: kind, title and sentences of each box."""
    boxes: list[tuple[str, str, Sequence[str]]] = []
    if problems := results.problems:
        verb = "is" if len(problems) == 1 else "are"
        boxes.append(("problem", f"{count(len(problems), 'file')} could not be read and {verb} left out", problems))
    if results.notes:
        boxes.append(("note", "About this store", results.notes))
    return boxes


# --- calibration -----------------------------------------------------------------------------------------------


def _calibration(results: Results, algo: str) -> tuple[list[Any], list[Any]] | None:
    """Rows of (names, what was measured): each variant over all tasks, and each on each task."""
    own = [(s, c) for s in results.mains if s.algo == algo and (c := calibration.calibration_of(s))]
    variants = []
    for variant in results.variants:
        if measured := [c for s, c in own if s.variant == variant]:
            variants.append(([variant_label(variant)], _plain(calibration.over(measured))))
    return (variants, [([s.task, s.label], _plain(c)) for s, c in own]) if own else None


def _plain(found: calibration.Calibration) -> dict[str, Any]:
    """As lists and numbers."""
    coverage, pit = list(found.coverage.values()), found.pit.tolist()
    return {"coverage": coverage, "crps": found.crps, "bias": found.bias, "pit": pit}
