"""Fills the parts of docs/results.md that come from stores of results, and draws their pictures.

    python benchmarks/render_docs.py

Each part stands between <!-- NAME --> and <!-- /NAME -->.
"""

import re
from pathlib import Path

import replication

from mcclt.experiments import figures, tables
from mcclt.experiments.analysis import claims
from mcclt.experiments.results import Results
from mcclt.experiments.store import Store

ROOT = Path(__file__).resolve().parent.parent
PAGE = ROOT / "docs" / "results.md"
KEPT = ROOT / "benchmarks" / "results"
STORES = {"paper": KEPT / "lockstep", "short": KEPT / "short"}
"""At the paper's scale, and all eight tasks at a tenth of it."""
AGAIN = KEPT / "lockstep-seeds-30-59"
"""Two of the columns at the paper's scale, with other seeds."""
TABLES = {"paper": ("1", "3"), "short": ("1", "2", "3")}
WIDTH = 900
"""Of a picture, in pixels, at least."""
PICTURES = {"paper": ("learning_curves", "calibration"), "short": ("calibration", "value_distributions")}


def parts(scale: str, results: Results) -> dict[str, str]:
    """What goes between the marks, by name."""
    verdicts = [
        f"| {v.claim} | {_cell(v.paper)} | {_cell(v.ours)} | **{v.verdict}** |" for v in claims.verdicts(results)
    ]
    found = {f"{scale}-verdicts": "\n".join(["| claim | paper | here | verdict |", "|---|---|---|---|", *verdicts])}
    for name in TABLES[scale]:
        text = tables.TABLES[name](results).markdown().replace(str(ROOT) + "/", "")
        found[f"{scale}-table-{name}"] = text.strip()
    return found


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


def rendered(page: str, stores: dict[str, Results]) -> str:
    """The page with all that stores say."""
    for scale, results in stores.items():
        page = filled(page, parts(scale, results))
    again = replication.table(first=replication.found(STORES["paper"]), second=replication.found(AGAIN))
    return filled(page, {"replication": again})


def main() -> None:
    stores = {scale: Store(path).load() for scale, path in STORES.items()}
    PAGE.write_text(rendered(PAGE.read_text(encoding="utf-8"), stores), encoding="utf-8")
    drawn = 0
    for scale, results in stores.items():
        for name in PICTURES[scale]:
            figure = figures.FIGURES[name](results)
            if figure is not None:
                dpi = max(90, WIDTH / figure.get_figwidth())
                figure.savefig(PAGE.parent / "images" / f"{scale}_{name}.png", dpi=dpi)
                drawn += 1
    print(f"{PAGE} and {drawn} pictures")


if __name__ == "__main__":
    main()
