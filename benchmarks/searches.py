"""The searches for better settings that docs/results.md declares: keeps what one found, and shows all.

    python benchmarks/searches.py keep my-search HalfCheetah-v4-trpo-plain
    python benchmarks/searches.py show

What is kept of a search is enough to look at every trial again: what was declared, all settings with their curves, the
winner, and the agents of the confirmation, packed. What was tried by hand, and the candidates for
`modern`, are in `benchmarks/results/candidates`.
"""

import json
import lzma
import shutil
from pathlib import Path

import modern
import replication
import tyro
from returns import TO_BEAT, number

from mcclt import presets
from mcclt.experiments import pack
from mcclt.experiments.analysis.aggregates import iqm
from mcclt.experiments.analysis.stats import summarise
from mcclt.experiments.results import Series
from mcclt.experiments.setups import bare_task
from mcclt.experiments.store import Store
from mcclt.tuning.search import middle_half

KEPT = Path(__file__).resolve().parent / "results" / "searches"


def keep(folder: Path, name: str) -> None:
    """Copies a finished search; again once it is confirmed."""
    to = KEPT / name
    shutil.rmtree(to, ignore_errors=True)
    to.mkdir(parents=True)
    for file in ("search.json", "best.toml"):
        shutil.copy(folder / file, to / file)
    (to / "trials.json.xz").write_bytes(lzma.compress((folder / "trials.json").read_bytes(), preset=9))
    if (folder / "confirmed" / "cells").exists():
        ignored = shutil.ignore_patterns("work", "agents", "report")
        shutil.copytree(folder / "confirmed", to / "confirmed", ignore=ignored)
        pack.pack(Store(to / "confirmed"))


def table() -> str:
    """A row for each search: how long it took, what its best gave there, and on fresh seeds beside the default."""
    lines = [
        "| search | minutes | its best | fresh seeds: IQM | mean ± SE | the default | to beat |",
        "|---|---:|---:|---:|---:|---:|---:|",
    ]
    for path in sorted(KEPT.iterdir()):
        declared = json.loads((path / "search.json").read_text(encoding="utf-8"))
        plan, fixed = declared["plan"], declared["space"]["fixed"]
        found = json.loads(lzma.decompress((path / "trials.json.xz").read_bytes()))
        cells = [
            f"{plan['task']}, {fixed['algo'].upper()}, {fixed['critic']}",
            f"{found['seconds'] / 60:.1f}",
            f"{max(trial['scores'][-1] for trial in found['trials'] if trial['scores']):,.0f}",
            *_again(path / "confirmed"),
            number(TO_BEAT.get(plan["task"])),
        ]
        lines.append(f"| {' | '.join(cells)} |")
    return "\n".join(lines)


def _again(confirmed: Path) -> tuple[str, str, str]:
    """What the best of the candidates gave on fresh seeds, as IQM and mean, and the default."""
    if not confirmed.exists():
        return "not yet", "", ""
    series = Store(confirmed).load().series
    default = next(one for one in series if one.variant == "default")
    best = max((one for one in series if one is not default), key=lambda one: middle_half(one.scores))
    mean, base = summarise(best.scores), summarise(default.scores)
    return (
        f"{middle_half(best.scores):,.0f}",
        f"{mean.mean:,.0f} ± {mean.se:,.0f} ({mean.n})",
        f"{base.mean:,.0f} ± {base.se:,.0f}",
    )


def candidates_table() -> str:
    """A row for each of the settings that were tried by hand, on the seeds that candidates are judged by."""
    others = {(task, variant) for task in modern.TASKS for variant in modern.candidates("trpo").values()}
    lines = ["| | changes to | | IQM | mean ± SE |", "|---|---|---|---:|---:|"]
    for series in Store(modern.KEPT).load().series:
        if (series.task, series.variant) in others:
            continue
        changes = series.variant.partition("@")[2]
        cells = [
            f"{bare_task(series.task)}, {series.algo.upper()}",
            _base(series, changes),
            ", ".join(f"`{change}`" for change in changes.split("+")) if changes else "–",
            f"{iqm([series.scores]):,.0f}",
            replication.mean(series),
        ]
        lines.append(f"| {' | '.join(cells)} |")
    return "\n".join(lines)


def _base(series: Series, changes: str) -> str:
    """What the changes of a candidate were made to."""
    changed = {change.partition("=")[0] for change in changes.split("+")}
    modern = presets.modern(series.task, series.algo, "plain")
    same = all(series.settings[name] == value for name, value in modern.items() if name not in changed)
    return "`modern`" if same else "`tuned`, as it was"


def show() -> None:
    """Prints both tables."""
    print(table(), candidates_table(), sep="\n\n")


if __name__ == "__main__":
    tyro.extras.subcommand_cli_from_dict({"keep": keep, "show": show}, config=(tyro.conf.PositionalRequiredArgs,))
