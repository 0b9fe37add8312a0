"""The report: a store's results as one page that needs nothing else, with its tables and figures as files beside it.

The page is data/report.html with report.css, report.js and the learning curves put into it. Whatever comes from a
store is escaped, and the page forbids itself every script but its own and every request to a network.
"""

import base64
import hashlib
import html
import json
import math
import re
import shlex
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from mcclt.config import VARIANTS
from mcclt.errors import MissingExtraError
from mcclt.experiments.filling import fill
from mcclt.experiments.results import Results, Series, variant_label
from mcclt.experiments.store import StoreError
from mcclt.storage import files

POINTS = 100
"""Most points of a curve in the page."""
QUANTITIES = {
    "eval/mean_reward": "Return of the deterministic policy (evaluation)",
    "rollout/ep_rew_mean": "Return while training",
    "value/std": "Predicted spread of the return",
    "value/normality_error": "Distance from normal, E",
    "weight/mean": "Mean weight of a state, w",
}
"""Columns of a learning curve that can be looked at, the likeliest first: its seeds are in the page too."""
VERDICTS = {"confirmed": "✓", "not confirmed": "≈", "opposite": "✕", "not measured": "○"}
"""A sign for each, so that none is told by its colour alone."""
HERE = "mcclt.pages"
NO_FIGURES = "The figures need matplotlib: pip install 'mcclt[plots]', then make this report again."


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
        store = shlex.quote(str(results.path or "results"))
        raise StoreError(f"There are no results yet: run  mcclt reproduce --scale smoke --store {store}  first.")
    path = folder / "report.html"
    try:
        _write_tables(results, folder / "tables")
        drawings = _draw(results, folder / "figures")
        files.write_atomically(path, page(results, drawings).encode())
    except OSError as error:
        raise StoreError(f"Cannot write the report to {folder}: {error.strerror or error}.") from None
    return path


def page(results: Results, drawings: dict[str, str] | None) -> str:
    """The whole page.

    Args:
        results: of a store; at least one.
        drawings: figures as inline SVG, by name; None if there was nothing to draw them with.
    """
    script = files.asset("mcclt.pages", "page.js") + files.asset(HERE, "report.js")
    digest = base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()
    parts = {
        "policy": f"default-src 'none'; style-src 'unsafe-inline'; img-src data:; script-src 'sha256-{digest}'",
        "style": files.asset(HERE, "report.css"),
        "script": script,
        "summary": _summary(results),
        "origin": _origin(results),
        "notices": _notices(results),
        "verdicts": _verdicts(results),
        "tables": _tables(results),
        "figures": _figures(drawings),
        "calibration": _calibration(results) + _figure("calibration", (drawings or {}).get("calibration", "")),
        "coverage": _coverage(results),
        "provenance": _provenance(results),
        "commands": _commands(results),
        "data": embed(curves(results)),
    }
    return re.sub(r"\{\{(\w+)\}\}", lambda match: parts[match[1]], files.asset(HERE, "report.html"))


# --- tables and figures ----------------------------------------------------------------------------------------


def _write_tables(results: Results, folder: Path) -> None:
    from mcclt.experiments import tables

    for name, make in tables.TABLES.items():
        table = make(results)
        for ending, text in {"md": table.markdown(), "tex": table.latex(), "csv": table.csv()}.items():
            files.write_atomically(folder / f"table-{name}.{ending}", text.encode())


def _draw(results: Results, folder: Path) -> dict[str, str] | None:
    """Draws each figure once, saves it, and gives it as SVG; None without matplotlib."""
    from mcclt.experiments import figures

    drawings = {}
    try:
        for name, make in figures.FIGURES.items():
            figure = make(results)
            if figure is not None:
                figures.save(figure, folder, name)
                drawings[name] = figures.svg(figure)
    except MissingExtraError:
        return None
    return drawings


def _tables(results: Results) -> str:
    from mcclt.experiments import tables

    def show(name: str, table: Any) -> str:
        notes = "".join(map(_need, table.notes))
        return (
            f'<article class="table" id="table-{name}"><h3>{_heading(table.title)}</h3>'
            f'<p class="caption">{html.escape(table.caption)}</p>'
            + (_scroll(table.html(), table.title) if table.rows else "")
            + (f'<div class="notes">{notes}</div>' if notes else "")
            + "</article>"
        )

    return "".join(show(name, make(results)) for name, make in tables.TABLES.items())


def _figures(drawings: dict[str, str] | None) -> str:
    """All but the one that belongs to another section."""
    if drawings is None:
        return f'<p class="empty">{html.escape(NO_FIGURES)}</p>'
    shown = "".join(_figure(name, svg) for name, svg in drawings.items() if name != "calibration")
    return shown or '<p class="empty">The results that the figures need are not there yet.</p>'


def _figure(name: str, svg: str) -> str:
    from mcclt.experiments import figures

    if not svg:
        return ""
    title = figures.TITLES[name]
    said = f"<figcaption>{html.escape(title)}</figcaption>"
    return f'<figure class="drawing" id="figure-{name}">{_scroll(svg, title.partition(":")[0])}{said}</figure>'


# --- the top of the page ---------------------------------------------------------------------------------------


def _summary(results: Results) -> str:
    agents = sum(len(s.results) for s in results.mains)
    algos = " and ".join(a.upper() for a in results.algos)
    seeds = _range([len(s.results) for s in results.mains], str)
    steps = _range([s.steps for s in results.mains], short)
    return html.escape(
        f"{_count(agents, 'trained agent')}: {_count(len(results.tasks), 'task')}, "
        f"{_count(len(results.variants), 'variant')} of {algos}, {seeds} {'seed' if seeds == '1' else 'seeds'}, "
        f"{steps} environment steps each."
    )


def _origin(results: Results) -> str:
    finished = max(str(r.provenance.get("finished", "")) for s in results.series for r in s.results)
    until = f", with results until {html.escape(finished[:10])}" if finished else ""
    return f"From the store <code>{html.escape(str(results.path or 'results'))}</code>{until}."


def _notices(results: Results) -> str:
    """What a reader must know before believing anything below."""
    boxes = []
    if results.problems:
        title = f"{_count(len(results.problems), 'file')} could not be read and {_is(results.problems)} left out"
        boxes.append(_notice("problem", title, [html.escape(p) for p in results.problems]))
    if results.notes:
        boxes.append(_notice("note", "About this store", [html.escape(n) for n in results.notes]))
    gaps = _gaps(results)
    if gaps:
        planned = _wanted(results) * len(results.tasks) * len(results.algos) * len(VARIANTS)
        title = f"{sum(gaps.values()):,} of {planned:,} agents (the paper’s variants on these tasks) are not there yet"
        what = 'They are shown as missing. <a href="#coverage">What is there, and the commands that add the rest</a>'
        boxes.append(_notice("note", title, [what]))
    return "".join(boxes)


def _notice(kind: str, title: str, items: Sequence[str]) -> str:
    """A box; a long list folds behind its first three items."""
    shown = "".join(f"<li>{item}</li>" for item in items[:3])
    rest = "".join(f"<li>{item}</li>" for item in items[3:])
    more = f"<details><summary>{len(items) - 3} more</summary><ul>{rest}</ul></details>" if rest else ""
    return f'<div class="notice {kind}"><h2>{html.escape(title)}</h2><ul>{shown}</ul>{more}</div>'


def _verdicts(results: Results) -> str:
    from mcclt.experiments.analysis import claims

    found = claims.verdicts(results)
    counts = Counter(v.verdict for v in found)
    tally = "".join(f'<li class="{_slug(name)}"><b>{counts[name]}</b> {name}</li>' for name in VERDICTS if counts[name])
    return f'<ul class="tally">{tally}</ul><ol class="verdicts">{"".join(map(_verdict, found))}</ol>'


def _verdict(verdict: Any) -> str:
    rows = "".join(f"<li>{html.escape(row)}</li>" for row in verdict.details)
    needs = "".join(_need(need) for need in verdict.needs)
    return (
        f'<li class="verdict {_slug(verdict.verdict)}">'
        f'<p class="badge"><span aria-hidden="true">{VERDICTS[verdict.verdict]}</span> {verdict.verdict}</p>'
        f'<div class="body"><h3>{_heading(verdict.claim)}</h3>'
        f"<dl><div><dt>Paper</dt><dd>{html.escape(verdict.paper)}</dd></div>"
        f"<div><dt>Here</dt><dd>{html.escape(verdict.ours)}</dd></div></dl>"
        + (f"<details><summary>Details</summary><ul>{rows}</ul></details>" if rows else "")
        + (f"<details><summary>What is missing</summary>{needs}</details>" if needs else "")
        + "</div></li>"
    )


def _need(text: str) -> str:
    """A command to copy, or a sentence."""
    return command(text) if text.startswith("mcclt ") else f"<p>{html.escape(text)}</p>"


# --- learning curves -------------------------------------------------------------------------------------------


def curves(results: Results) -> dict[str, Any]:
    """Everything the page draws by itself, as plain data: means over seeds with 95 % intervals, and the seeds.

    `series` refer to `tasks`, `algos`, `variants` and `steps` by their places. In a curve `x` is a place in `steps`,
    `mean`, `low` and `high` are the mean and its interval (null: none); the first quantity also has its `seeds`.
    """
    from mcclt.experiments import figures

    columns = {column for s in results.mains for r in s.results for column in r.curve}
    quantities = [column for column in QUANTITIES if column in columns]
    evaluations = max((len(one.curve("eval/mean_reward")[0]) for one in results.mains), default=0)
    if evaluations < figures.FEW_POINTS:  # no curve to open the page with
        quantities.sort(key=lambda column: column == "eval/mean_reward")
    steps: dict[tuple[int, ...], int] = {}
    series = []
    for one in results.mains:
        drawn = {}
        for column in quantities:
            x, rows = one.curve(column)
            if len(x):
                keep = np.unique(np.linspace(0, len(x) - 1, min(len(x), POINTS)).round().astype(int))
                place = steps.setdefault(tuple(x[keep].astype(int).tolist()), len(steps))
                drawn[column] = {"x": place} | _band(rows[:, keep])
                if column == quantities[0]:
                    drawn[column]["seeds"] = [rounded(row, 4) for row in rows[:, keep]]
        series.append(
            {
                "task": results.tasks.index(one.task),
                "algo": results.algos.index(one.algo),
                "variant": results.variants.index(one.variant),
                "paper": figures.paper_mean(one),
                "curves": drawn,
            }
        )
    return {
        "tasks": results.tasks,
        "algos": [algo.upper() for algo in results.algos],
        "variants": [
            {"label": variant_label(v), "colour": figures.colour(v), "changed": "@" in v} for v in results.variants
        ],
        "quantities": [{"key": column, "title": QUANTITIES[column]} for column in quantities],
        "steps": [list(x) for x in steps],
        "series": series,
    }


def _band(rows: np.ndarray) -> dict[str, Any]:
    """As in the figures; no interval where fewer than two of the seeds [seeds, T] have a value."""
    from mcclt.experiments import figures

    mean, low, high = figures.mean_band(rows)
    several = np.isfinite(rows).sum(axis=0) > 1
    edges = {"low": np.where(several, low, np.nan), "high": np.where(several, high, np.nan)}
    return {name: rounded(values, 5) for name, values in ({"mean": mean} | edges).items()}


def rounded(values: np.ndarray, digits: int) -> list[float | int | None]:
    """Numbers with few digits, as JSON is written: whole ones without a point, unknown ones as None."""
    floats = [float(f"{v:.{digits}g}") if math.isfinite(v) else None for v in values.tolist()]
    return [int(v) if v is not None and v.is_integer() else v for v in floats]


def embed(data: Any) -> str:
    """JSON that can stand inside a script element, whatever its texts are."""
    text = json.dumps(data, separators=(",", ":"), ensure_ascii=False, allow_nan=False)
    return text.replace("&", "\\u0026").replace("<", "\\u003c").replace(">", "\\u003e")


# --- calibration -----------------------------------------------------------------------------------------------


def _calibration(results: Results) -> str:
    """Per algorithm: one row per variant, over all tasks, and the tasks one by one behind a fold."""
    sections = []
    for algo in results.algos:
        own = [(s, c) for s in results.mains if s.algo == algo and (c := calibration_of(s))]
        if not own:
            continue
        rows = []
        for variant in results.variants:
            measured = [c for s, c in own if s.variant == variant]
            if measured:
                over = {k: np.mean([c[k] for c in measured], axis=0) for k in measured[0]}
                rows.append(_calibration_row([variant_label(variant)], over))
        head = _calibration_table(["Variant"], rows)
        by_task = _calibration_table(["Task", "Variant"], [_calibration_row([s.task, s.label], c) for s, c in own])
        sections.append(
            f"<article><h3>{html.escape(algo.upper())}</h3>{_scroll(head, f'Calibration, {algo.upper()}')}"
            f"<details><summary>Each task</summary>{_scroll(by_task, f'Calibration by task, {algo.upper()}')}</details>"
            "</article>"
        )
    return "".join(sections) or '<p class="empty">No critic with a spread has been looked at yet.</p>'


def calibration_of(series: Series) -> dict[str, Any]:
    """Means over the seeds that were looked at: `coverage` [3], `gain` in CRPS, `bias` in spreads, `pit` [20]."""
    found = [r.probe["calibration"] for r in series.results if r.probe.get("calibration", {}).get("coverage")]
    if not found:
        return {}
    return {
        "coverage": np.mean([[c["coverage"][level] for level in ("0.5", "0.8", "0.95")] for c in found], axis=0),
        "gain": float(np.mean([1 - c["crps"] / c["crps_point"] for c in found])),
        "bias": float(np.mean([c["bias"] / c["spread"] for c in found])),
        "pit": np.mean([c["pit"] for c in found], axis=0),
    }


def _calibration_table(names: Sequence[str], rows: Sequence[str]) -> str:
    columns = [
        *(f'<th scope="col">{name}</th>' for name in names),
        '<th scope="col">50 % interval</th><th scope="col">80 %</th><th scope="col">95 %</th>',
        '<th scope="col" class="number">CRPS gain</th><th scope="col" class="number">Bias</th>',
        '<th scope="col">Where returns fall (PIT)</th>',
    ]
    return (
        f'<table class="calibration"><thead><tr>{"".join(columns)}</tr></thead><tbody>{"".join(rows)}</tbody></table>'
    )


def _calibration_row(names: Sequence[str], measured: dict[str, Any]) -> str:
    heads = "".join(f'<th scope="row">{html.escape(name)}</th>' for name in names)
    covered = "".join(
        f'<td><span class="meter" style="--value:{share:.3f};--right:{level}"></span>{share:.0%}</td>'
        for share, level in zip(measured["coverage"], (0.5, 0.8, 0.95), strict=True)
    )
    return (
        f'<tr>{heads}{covered}<td class="number">{_signed(measured["gain"], ".0%")}</td>'
        f'<td class="number">{_signed(measured["bias"], ".2f")}</td><td>{_histogram(measured["pit"])}</td></tr>'
    )


def _histogram(shares: np.ndarray) -> str:
    """A little bar chart; the line across is where all bars would end if the spread were right."""
    width, height, top = 120, 30, max(2 / len(shares), float(max(shares)))
    bar = width / len(shares)
    bars = "".join(
        f"M{i * bar:.4g} {height}v{-height * share / top:.4g}h{bar - 1:.4g}V{height}z" for i, share in enumerate(shares)
    )
    right = height * (1 - 1 / len(shares) / top)
    label = f"shares in {len(shares)} equal bins: " + " ".join(f"{share:.2f}" for share in shares)
    return (
        f'<svg class="histogram" viewBox="0 0 {width} {height}" width="{width}" height="{height}" role="img" '
        f'aria-label="{label}"><path d="{bars}"/><line x2="{width}" y1="{right:.4g}" y2="{right:.4g}"/></svg>'
    )


# --- what is there, and where it comes from --------------------------------------------------------------------


def _wanted(results: Results) -> int:
    """Seeds of a full store: as many as the variant with most has."""
    return max(len(s.results) for s in results.mains)


def _gaps(results: Results) -> dict[tuple[str, str, str], int]:
    """How many seeds of the paper's variants are missing, by (task, algo, variant)."""
    grid = [(t, a, v) for t in results.tasks for a in results.algos for v in VARIANTS]
    missing = {cell: _wanted(results) - _there(results, *cell) for cell in grid}
    return {cell: n for cell, n in missing.items() if n}


def _there(results: Results, task: str, algo: str, variant: str) -> int:
    series = results.main(task, algo, variant)
    return len(series.results) if series else 0


def _coverage(results: Results) -> str:
    """Seeds per task and variant, and one command per algorithm that adds what is missing."""
    variants = list(dict.fromkeys([*VARIANTS, *results.variants]))
    head = "".join(f'<th scope="col" class="number">{html.escape(variant_label(v))}</th>' for v in variants)
    articles = []
    for algo in results.algos:
        rows = "".join(
            f'<tr><th scope="row">{html.escape(task)}</th>'
            + "".join(_seeds(_there(results, task, algo, v), _wanted(results)) for v in variants)
            + "</tr>"
            for task in results.tasks
        )
        table = f'<table class="seeds"><thead><tr><th scope="col">Task</th>{head}</tr></thead><tbody>{rows}</tbody>'
        label = f"Seeds that are there, {algo.upper()}"
        articles.append(f"<article><h3>{html.escape(algo.upper())}</h3>{_scroll(table + '</table>', label)}</article>")
    return "".join(articles) + _fill(results)


def _fill(results: Results) -> str:
    gaps = _gaps(results)
    commands = [
        _repeat(results, algo, [t for t, a, _ in gaps if a == algo], [v for _, a, v in gaps if a == algo])
        for algo in dict.fromkeys(algo for _, algo, _ in gaps)
    ]
    said = "<p>To add what is missing (what is there is kept):</p>"
    return f'<div class="fill">{said}{"".join(commands)}</div>' if commands else ""


def _repeat(results: Results, algo: str, tasks: Iterable[str], variants: Iterable[str]) -> str:
    """The command that trains these."""
    return command(fill(results, list(dict.fromkeys(tasks)), algo, list(dict.fromkeys(variants))))


def _seeds(there: int, wanted: int) -> str:
    kind = "" if there == wanted else ' class="missing"' if not there else ' class="partial"'
    return f"<td{kind}>{there or '–'}</td>"


def _provenance(results: Results) -> str:
    """Each property of the results with its values, and how many agents have each."""
    members = [r.provenance for s in results.series for r in s.results]
    hours = sum(float(r.cost.get("seconds") or 0) for s in results.series for r in s.results) / 3600
    properties: dict[str, Callable[[dict[str, Any]], Any]] = {
        "mcclt": lambda p: p.get("version"),
        "Git commit": lambda p: str(p.get("git") or "unknown")[:12],
        "Engine": lambda p: p.get("engine"),
        "Hardware": lambda p: f"{p.get('device') or 'unknown'}, {p.get('cpu_count') or 'unknown'} CPU cores",
        "Platform": lambda p: p.get("platform"),
        "Python": lambda p: p.get("python"),
        "Packages": lambda p: ", ".join(f"{k} {v}" for k, v in sorted((p.get("packages") or {}).items())),
    }
    rows = {
        name: "".join(f"<li>{html.escape(value)} {_share(n, len(members))}</li>" for value, n in counted)
        for name, of in properties.items()
        if (counted := Counter(str(of(p) or "unknown") for p in members).most_common())
    }
    started = [str(p["started"]) for p in members if p.get("started")]
    finished = [str(p["finished"]) for p in members if p.get("finished")]
    if started and finished:
        rows["Dates"] = f"<li>{html.escape(_moment(min(started)))} to {html.escape(_moment(max(finished)))}</li>"
    rows["Training time"] = f"<li>{hours:,.1f} hours, all agents together</li>"
    return "<dl>" + "".join(f"<div><dt>{n}</dt><dd><ul>{v}</ul></dd></div>" for n, v in rows.items()) + "</dl>"


def _share(n: int, of: int) -> str:
    return "" if n == of else f'<span class="aside">{_count(n, "agent")}</span>'


def _moment(text: str) -> str:
    """2026-01-01T00:05:00Z → 2026-01-01 00:05."""
    return text[:16].replace("T", " ")


def _commands(results: Results) -> str:
    """What repeats everything: the trainings of the paper's variants, this page, and whatever else was typed."""
    own = [v for v in results.variants if v in VARIANTS]
    train = [_repeat(results, algo, results.tasks, own) for algo in results.algos if own]
    report = command(shlex.join(["mcclt", "report", str(results.path or "results")]))
    lines = [r.provenance["command"] for s in results.series for r in s.results if r.provenance.get("command")]
    typed = "".join(command(text) for text in dict.fromkeys(shlex.join(map(str, line)) for line in lines))
    return (
        "<p>Train again in an empty store, or go on in this one; then make this page:</p>"
        + "".join([*train, report])
        + (f"<details><summary>As typed when these results were made</summary>{typed}</details>" if typed else "")
    )


# --- small pieces ----------------------------------------------------------------------------------------------


def command(text: str) -> str:
    """Something to type, with a button that copies it."""
    return (
        f'<div class="command"><code>{html.escape(text)}</code>'
        '<button type="button" class="copy" aria-label="Copy this command">Copy</button></div>'
    )


def _scroll(content: str, label: str) -> str:
    """A box in which wide content scrolls, with the keyboard too."""
    return f'<div class="scroll" tabindex="0" role="region" aria-label="{html.escape(label)}">{content}</div>'


def _heading(text: str) -> str:
    """Escaped; the method's name is not broken at its hyphen."""
    return html.escape(text).replace("MC-CLT", '<span class="whole">MC-CLT</span>')


def _signed(number: float, digits: str) -> str:
    return f"{number:+{digits}}".replace("-", "−")


def short(number: float) -> str:
    """1000000 → 1M, 50000 → 50k."""
    for size, letter in ((1_000_000, "M"), (1_000, "k")):
        if number >= size:
            return f"{number / size:.3g}{letter}"
    return f"{number:g}"


def _range(numbers: Sequence[int], say: Callable[[int], str]) -> str:
    low, high = min(numbers), max(numbers)
    return say(low) if low == high else f"{say(low)} to {say(high)}"


def _count(number: int, noun: str) -> str:
    return f"{number:,} {noun}{'' if number == 1 else 's'}"


def _is(items: Collection[Any]) -> str:
    return "is" if len(items) == 1 else "are"


def _slug(text: str) -> str:
    return text.replace(" ", "-")
