"""Fills the parts of docs/results.md that come from the store `results/`, and draws its pictures.

    python benchmarks/render_docs.py

Each part stands between <!-- NAME --> and <!-- /NAME -->.
"""

import re
from pathlib import Path

from mcclt.experiments import claims, figures, tables
from mcclt.experiments.store import Store

ROOT = Path(__file__).resolve().parent.parent
PAGE = ROOT / "docs" / "results.md"
PICTURES = ("learning_curves", "calibration", "value_distributions")


def parts() -> dict[str, str]:
    """What goes between the marks, by name."""
    results = Store(ROOT / "results").load()
    verdicts = [
        f"| {v.claim} | {_cell(v.paper)} | {_cell(v.ours)} | **{v.verdict}** |" for v in claims.verdicts(results)
    ]
    found = {"verdicts": "\n".join(["| claim | paper | here | verdict |", "|---|---|---|---|", *verdicts])}
    for name in ("1", "2", "3"):
        found[f"table-{name}"] = tables.TABLES[name](results).markdown().replace(str(ROOT) + "/", "").strip()
    return found


def _cell(text: str) -> str:
    return text.replace("|", "\\|").replace("\n", " ")


def filled(page: str) -> str:
    """The page with its parts made anew."""
    for name, text in parts().items():
        page, count = re.subn(
            rf"(<!-- {name} -->\n).*?(<!-- /{name} -->)",
            lambda match, text=text: f"{match[1]}{text}\n{match[2]}",
            page,
            flags=re.DOTALL,
        )
        if count != 1:
            raise SystemExit(f"{PAGE} needs <!-- {name} --> and <!-- /{name} --> once.")
    return page


def main() -> None:
    PAGE.write_text(filled(PAGE.read_text(encoding="utf-8")), encoding="utf-8")
    results = Store(ROOT / "results").load()
    for name in PICTURES:
        figure = figures.FIGURES[name](results)
        if figure is not None:
            figure.savefig(PAGE.parent / "images" / f"{name}.png", dpi=90)
    print(f"{PAGE} and {len(PICTURES)} pictures")


if __name__ == "__main__":
    main()
