"""The searches for better settings that docs/returns.md declares: keeps what one found, and shows all.

    python benchmarks/searches.py keep my-search HalfCheetah-v4-trpo-plain
    python benchmarks/searches.py show

What is kept of a search is enough to look at every trial again: in one file what was declared, all settings with their
curves, and the winner; in the store `confirmed`, which all searches share, what their best gave on fresh seeds. The
candidates for `modern`, and what was tried by hand, are in `benchmarks/results/candidates`.
"""

import json
import lzma
import shutil
import tomllib
from pathlib import Path
from typing import Any

import modern
import replication
import tyro
from returns import TO_BEAT, number

from mcclt.config.values import UNSET
from mcclt.experiments import pack
from mcclt.experiments.analysis.aggregates import iqm
from mcclt.experiments.results import Series
from mcclt.experiments.setups import bare_task, make_setup
from mcclt.experiments.store import Store

KEPT = modern.SEARCHES


def keep(folder: Path, name: str, to: Path = KEPT) -> None:
    """Copies a finished search; again once it is confirmed."""
    to.mkdir(parents=True, exist_ok=True)
    texts = {part: (folder / part).read_text(encoding="utf-8") for part in ("search.json", "trials.json", "best.toml")}
    (to / f"{name}.json.xz").write_bytes(lzma.compress(json.dumps(texts).encode(), preset=9))
    if (folder / "confirmed" / "cells").exists():
        confirmed = Store(to / "confirmed", create=True)
        shutil.copytree(folder / "confirmed" / "cells", confirmed.path / "cells", dirs_exist_ok=True)
        pack.pack(confirmed)


def table(kept: Path = KEPT) -> str:
    """A row for each search: how long it took, what its best gave there, and on fresh seeds beside the default."""
    lines = [
        "| search | minutes | its best | ten fresh seeds: IQM | mean ± SE | the default | to beat |",
        "|---|---:|---:|---:|---:|---:|---:|",
    ]
    confirmed = Store(kept / "confirmed").load().series
    for path in sorted(kept.glob("*.json.xz")):
        texts = modern.search(path)
        trials, best = json.loads(texts["trials.json"]), tomllib.loads(texts["best.toml"])
        cells = [
            f"{best['task']}, {best['algo'].upper()}, {best['critic']}",
            f"{trials['seconds'] / 60:.1f}",
            f"{max(trial['scores'][-1] for trial in trials['trials'] if trial['scores']):,.0f}",
            *_again(best, confirmed),
            number(TO_BEAT.get(best["task"])),
        ]
        lines.append(f"| {' | '.join(cells)} |")
    return "\n".join(lines)


def _again(best: dict[str, Any], confirmed: list[Series]) -> tuple[str, str, str]:
    """What the winner gave on fresh seeds, as IQM and mean, and the default."""
    alike = [one for one in confirmed if (one.task, one.algo) == (best["task"], best["algo"])]
    default = [one for one in alike if one.variant == "default"]
    settings = {name: None if value == UNSET else value for name, value in best.items()}
    winner = [one for one in alike if settings.items() <= (one.settings | {"algo": one.algo}).items()]
    if not winner:
        return "not yet", "", ""
    return f"{iqm([winner[0].scores]):,.0f}", replication.mean(winner[0].scores), replication.mean(default[0].scores)


def candidates_table() -> str:
    """A row for each of the settings that were tried by hand, on the seeds that candidates are judged by."""
    others = {(task, variant) for task in modern.TASKS for variant in modern.candidates("trpo").values()}
    lines = ["| | changes to | | IQM | mean ± SE |", "|---|---|---|---:|---:|"]
    for series in Store(modern.KEPT).load().series:
        if (series.task, series.variant) in others:
            continue
        name, _, changes = series.variant.partition("@")
        own = [*([] if name == "plain" else [name]), *filter(None, changes.split("+"))]
        cells = [
            f"{bare_task(series.task)}, {series.algo.upper()}",
            _base(series, name, changes),
            ", ".join(f"`{change}`" for change in own) or "–",
            f"{iqm([series.scores]):,.0f}",
            replication.mean(series.scores),
        ]
        lines.append(f"| {' | '.join(cells)} |")
    return "\n".join(lines)


def _base(series: Series, name: str, changes: str) -> str:
    """What the changes of a candidate were made to."""
    changed = {change.partition("=")[0] for change in changes.split("+")}
    for preset, config in (("modern", "modern"), ("paper", "authors"), ("tuned", "tuned")):
        settings = make_setup(series.task, series.algo, name, config, steps=series.steps).settings
        if all(series.settings.get(name, value) == value for name, value in settings.items() if name not in changed):
            return f"`{preset}`"
    return "`tuned`, as it was"


def show() -> None:
    """Prints both tables."""
    print(table(), candidates_table(), sep="\n\n")


if __name__ == "__main__":
    tyro.extras.subcommand_cli_from_dict({"keep": keep, "show": show}, config=(tyro.conf.PositionalRequiredArgs,))
