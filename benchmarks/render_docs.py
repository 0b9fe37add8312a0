"""Fills the parts of docs/results.md that come from stores of results, and draws their pictures.

    python benchmarks/render_docs.py

Each part stands between <!-- NAME --> and <!-- /NAME -->.
"""

import re
from pathlib import Path
from typing import Any

import one_environment
import replication
import trpo_step

from mcclt.experiments import figures, tables
from mcclt.experiments.analysis import claims
from mcclt.experiments.results import Results
from mcclt.experiments.store import Store

ROOT = Path(__file__).resolve().parent.parent
PAGE = ROOT / "docs" / "results.md"
KEPT = ROOT / "benchmarks" / "results"
STORES = {"paper": ROOT / "results", "lockstep": KEPT / "lockstep", "short": KEPT / "short"}
"""At the paper's scale; the same before environments were out of lockstep; and all eight tasks at a tenth of it."""
AGAIN = KEPT / "lockstep-seeds-30-59"
"""Two of the columns in lockstep, with other seeds."""
TABLES = {"paper": ("1", "3", "pooled"), "lockstep": ("1", "pooled"), "short": ()}
WIDTH = 900
"""Of a picture, in pixels, at least."""
PICTURES = {"paper": ("learning_curves", "calibration"), "lockstep": ("effects",), "short": ("value_distributions",)}


def parts(stores: dict[str, Results]) -> dict[str, str]:
    """What goes between the marks, by name."""
    verdicts = [
        f"| {v.claim} | {_cell(v.paper)} | {_cell(v.ours)} | **{v.verdict}** |"
        for v in claims.verdicts(stores["paper"])
    ]
    found = {"paper-verdicts": "\n".join(["| claim | paper | here | verdict |", "|---|---|---|---|", *verdicts])}
    for scale, results in stores.items():
        for name in TABLES[scale]:
            text = tables.TABLES[name](results).markdown().replace(str(ROOT) + "/", "")
            found[f"{scale}-table-{name}"] = text.strip()
    one, warp, float32 = (KEPT / name for name in ("one-environment", "engine-warp", "engine-warp-float32"))
    first, second = (replication.found(path) for path in (STORES["lockstep"], AGAIN))
    return found | {
        "one-environment": one_environment.show(one_environment.one_or_sixteen(one), ("16 × 250", "1 × 4,000")),
        "engines": one_environment.show(one_environment.beside(warp, one), ("Warp", "native")),
        "precision": one_environment.show(one_environment.beside(warp, float32), ("TF32", "float32")),
        "trpo-step": trpo_step.table(),
        "replication": replication.table(first=first, second=second),
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
            raise SystemExit(f"{PAGE} needs <!-- {name} --> and <!-- /{name} --> once.")
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
    PAGE.write_text(filled(PAGE.read_text(encoding="utf-8"), parts(stores)), encoding="utf-8")
    drawings = {
        f"{scale}_{name}": figures.FIGURES[name](results)
        for scale, results in stores.items()
        for name in PICTURES[scale]
    }
    drawings["lockstep"] = lockstep(stores["paper"], stores["lockstep"])
    for name, figure in drawings.items():
        if figure is not None:
            picture = figures.written(figure, "png", dpi=max(90, WIDTH / figure.get_figwidth()))
            (PAGE.parent / "images" / f"{name}.png").write_bytes(picture)
    print(f"{PAGE} and {len(drawings)} pictures")


if __name__ == "__main__":
    main()
