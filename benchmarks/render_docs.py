"""Fills the parts of results.md, glance.md and README.md that come from stores of results, and draws their pictures.

    python benchmarks/render_docs.py

Each part stands between <!-- NAME --> and <!-- /NAME -->.
"""

import re
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import authors_code
import minutes
import modern
import one_environment
import replication
import returns
import searches
import trpo_step
import why

from mcclt.config.variants import VARIANTS
from mcclt.experiments import figures, tables
from mcclt.experiments.analysis import claims
from mcclt.experiments.paper import paper_entry
from mcclt.experiments.results import Results, Series
from mcclt.experiments.store import Store

ROOT = Path(__file__).resolve().parent.parent
PAGE, GLANCE, README = ROOT / "docs" / "results.md", ROOT / "docs" / "glance.md", ROOT / "README.md"
KEPT = ROOT / "benchmarks" / "results"
STORES = {
    "paper": ROOT / "results",
    "tuned": returns.KEPT,
    "lockstep": KEPT / "lockstep",
    "short": KEPT / "short",
}
"""At the paper's scale; with `--preset tuned`; the paper's before environments were out of lockstep; and all eight
tasks at a tenth of it."""
AGAIN = KEPT / "lockstep-seeds-30-59"
"""Two of the columns in lockstep, with other seeds."""
TABLES = {"paper": ("1", "3", "pooled"), "tuned": ("pooled",), "lockstep": ("1", "pooled"), "short": ()}
WIDTH = 900
"""Of a picture, in pixels, at least."""
PICTURES = {
    "paper": ("effects", "learning_curves", "calibration"),
    "tuned": (),
    "lockstep": ("effects",),
    "short": ("value_distributions",),
}


def parts(stores: dict[str, Results]) -> dict[str, str]:
    """What goes between the marks of docs/results.md, by name."""
    verdicts = [
        f"| {v.claim} | {_cell(v.paper)} | {_cell(v.ours)} | **{v.verdict}** |"
        for v in claims.verdicts(stores["paper"])
    ]
    found = {"paper-verdicts": "\n".join(["| claim | paper | here | verdict |", "|---|---|---|---|", *verdicts])}
    for scale, results in stores.items():
        for name in TABLES[scale]:
            text = tables.TABLES[name](results).markdown().split("- Missing cells are filled by:")[0]
            found[f"{scale}-table-{name}"] = text.strip()
    one, warp, float32 = (KEPT / name for name in ("one-environment", "engine-warp", "engine-warp-float32"))
    doubts = why.grouped(why.load(why.RESULTS))
    first, second = (replication.found(path) for path in (STORES["lockstep"], AGAIN))
    return found | {
        "one-environment": one_environment.show(one_environment.one_or_sixteen(one), ("16 × 250", "1 × 4,000")),
        "engines": one_environment.show(one_environment.beside(warp, one), ("Warp", "native")),
        "precision": one_environment.show(one_environment.beside(warp, float32), ("TF32", "float32")),
        "searches": searches.table(),
        "candidates": searches.candidates_table(),
        "modern-trpo": modern.table("trpo"),
        "minutes": minutes.table(KEPT / "minutes"),
        "tuned-returns": returns.table(stores["tuned"]),
        "tuned-returns-before": returns.table(Store(KEPT / "returns-before").load()),
        "authors-code": authors_code.table(stores["paper"]),
        "trpo-step": trpo_step.table(),
        "trpo-step-halfcheetah": trpo_step.on_halfcheetah(),
        "replication": replication.table(first=first, second=second),
        "why": why.table(doubts),
        "why-weights": why.weights_table(doubts),
    }


def pages(stores: dict[str, Results]) -> dict[Path, dict[str, str]]:
    """What goes between the marks of every page."""
    return {PAGE: parts(stores)} | summary(stores["paper"], stores["tuned"])


def summary(results: Results, tuned: Results) -> dict[Path, dict[str, str]]:
    """Of README.md and docs/glance.md: the essence of what was trained at the paper's scale and with tuned settings."""
    known = {series.variant: series.label for series in results.mains}
    labels = {variant: known[variant] for variant in VARIANTS if variant in known}

    def table(variants: Sequence[str], cell: Callable[[Series], str]) -> str:
        lines = [f"| | {' | '.join(labels[variant] for variant in variants)} |", "|---" * (1 + len(variants)) + "|"]
        for task, algo in results.settings:
            found = (results.main(task, algo, variant) for variant in variants)
            cells = " | ".join(cell(series) if series else "–" for series in found)
            lines.append(f"| {task.rpartition('-')[0]}, {algo.upper()} | {cells} |")
        return "\n".join(lines)

    def score(series: Series) -> str:
        entry = paper_entry(series.task, series.algo, series.variant)
        return replication.mean(series.scores) + (f" ({entry['mean']:,.0f})" if entry else "")

    return {
        README: {
            "returns": table(("plain", "ensemble", "mcclt"), score),
            "tuned": returns.short_table(tuned),
        },
        GLANCE: {
            "all-returns": table(list(labels), score),
            "calibration": table(("mcclt", "ensemble", "qr"), returns.calibrated),
        },
    }


def _cell(text: str) -> str:
    return text.replace("|", "\\|").replace("\n", " ")


def filled(page: str, parts: dict[str, str]) -> str:
    """The page with its parts made anew."""
    for name, text in parts.items():
        page, count = re.subn(
            rf"(<!-- {name} -->\n).*?(<!-- /{name} -->)",
            lambda match, text=text: f"{match[1]}{text}\n{match[2]}",
            page,
            flags=re.DOTALL,
        )
        if count != 1:
            raise SystemExit(f"The page needs <!-- {name} --> and <!-- /{name} --> once.")
    return page


def lockstep(out: Results, within: Results) -> Any:
    """Learning curves of PPO with the plain critic, in lockstep and out of it."""
    import matplotlib.pyplot as plt

    figure, axes = plt.subplots(1, 2, figsize=(9, 3.2), layout="constrained")
    for axis, task in zip(axes, ("Swimmer-v4", "HalfCheetah-v4"), strict=True):
        for results, label, colour in ((out, "out of lockstep", "C0"), (within, "in lockstep", "C1")):
            series = results.main(task, "ppo", "plain")
            assert series is not None
            steps, values = series.curve("eval/mean_reward")
            mean, error = values.mean(axis=0), values.std(axis=0, ddof=1) / len(values) ** 0.5
            axis.plot(steps / 1e6, mean, color=colour, label=label)
            axis.fill_between(steps / 1e6, mean - error, mean + error, color=colour, alpha=0.25, linewidth=0)
        axis.set(title=task, xlabel="million steps", ylabel="return")
        axis.spines[["top", "right"]].set_visible(False)
    axes[0].legend(frameon=False)
    return figure


def main() -> None:
    stores = {scale: Store(path).load() for scale, path in STORES.items()}
    for page, found in pages(stores).items():
        page.write_text(filled(page.read_text(encoding="utf-8"), found), encoding="utf-8")
    drawings = {
        f"{scale}_{name}": figures.FIGURES[name](results)
        for scale, results in stores.items()
        for name in PICTURES[scale]
    }
    drawings["lockstep"] = lockstep(stores["paper"], stores["lockstep"])
    drawings["tuned_returns"] = returns.tuned_returns(stores["tuned"])
    drawings["why"] = why.figure(why.grouped(why.load(why.RESULTS)))
    for name, figure in drawings.items():
        if figure is not None:
            picture = figures.written(figure, "png", dpi=max(90, WIDTH / figure.get_figwidth()))
            (PAGE.parent / "images" / f"{name}.png").write_bytes(picture)
    print(f"{PAGE}, {GLANCE}, {README} and {len(drawings)} pictures")


if __name__ == "__main__":
    main()
