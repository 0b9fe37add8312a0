"""Fills the parts of README.md and docs/ that come from stores of results, and draws their pictures.

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
DOCS, README = ROOT / "docs", ROOT / "README.md"
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
TABLES = {"paper": ("1", "3", "pooled"), "tuned": ("pooled",), "lockstep": ("1", "pooled")}
WIDTH = 900
"""Of a picture, in pixels, at least."""
PICTURES = {
    "paper": ("effects", "learning_curves", "calibration", "value_distributions"),
    "tuned": (),
    "lockstep": ("effects",),
    "short": ("value_distributions",),
}


def pages(stores: dict[str, Results]) -> dict[Path, dict[str, str]]:
    """What goes between the marks of every page, by name."""
    return {
        DOCS / "results.md": of_the_paper(stores["paper"]),
        DOCS / "returns.md": of_returns(stores["tuned"]),
        DOCS / "decisions.md": of_decisions(stores),
    } | summary(stores["paper"], stores["tuned"])


def of_the_paper(results: Results) -> dict[str, str]:
    """What was trained at the paper's scale."""
    verdicts = [
        f"| {v.claim} | {_cell(v.paper)} | {_cell(v.ours)} | **{v.verdict}** |" for v in claims.verdicts(results)
    ]
    doubts = why.grouped(why.load(why.RESULTS))
    return _tables("paper", results) | {
        "paper-verdicts": "\n".join(["| claim | paper | here | verdict |", "|---|---|---|---|", *verdicts]),
        "why": why.table(doubts),
        "why-weights": why.weights_table(doubts),
    }


def of_returns(results: Results) -> dict[str, str]:
    """What tuned settings give, and how they were found."""
    return _tables("tuned", results) | {
        "tuned-returns": returns.table(results),
        "tuned-returns-before": returns.table(Store(KEPT / "returns-before").load()),
        "minutes": minutes.table(KEPT / "minutes"),
        "searches": searches.table(),
        "candidates": searches.candidates_table(),
        "modern-trpo": modern.table("trpo"),
    }


def of_decisions(stores: dict[str, Results]) -> dict[str, str]:
    """What settings of the paper's tables were decided by."""
    one, warp, float32 = (KEPT / name for name in ("one-environment", "engine-warp", "engine-warp-float32"))
    first, second = (replication.found(path) for path in (STORES["lockstep"], AGAIN))
    return _tables("lockstep", stores["lockstep"]) | {
        "one-environment": one_environment.show(one_environment.one_or_sixteen(one), ("16 × 250", "1 × 4,000")),
        "engines": one_environment.show(one_environment.beside(warp, one), ("Warp", "native")),
        "precision": one_environment.show(one_environment.beside(warp, float32), ("TF32", "float32")),
        "authors-code": authors_code.table(stores["paper"]),
        "trpo-step": trpo_step.table(),
        "trpo-step-halfcheetah": trpo_step.on_halfcheetah(),
        "replication": replication.table(first=first, second=second),
    }


def _tables(scale: str, results: Results) -> dict[str, str]:
    """Those of a store that are shown whole."""
    found = {name: tables.TABLES[name](results).markdown() for name in TABLES[scale]}
    return {f"{scale}-table-{k}": text.split("- Missing cells are filled by:")[0].strip() for k, text in found.items()}


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
        DOCS / "glance.md": {
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
    filling = pages(stores)
    for page, found in filling.items():
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
            (DOCS / "images" / f"{name}.png").write_bytes(picture)
    print(f"{len(filling)} pages and {len(drawings)} pictures")


if __name__ == "__main__":
    main()
