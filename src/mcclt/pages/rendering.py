"""Pages from templates: each is one file with its style, its script and its data inside, and needs no network.

Templates, the style sheet and the scripts are in templates/. Whatever is put into a template is escaped, and a page
forbids itself every script but its own and every request.
"""

import base64
import functools
import hashlib
import importlib.resources
import itertools
import math
import re
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Any

import jinja2
from markupsafe import Markup

from mcclt.experiments.analysis.texts import count, signed

if TYPE_CHECKING:
    from mcclt.experiments.analysis.first import Row
    from mcclt.tuning.confirm import Confirmed


def render(name: str, data: Any, script: str = "", /, **values: Any) -> str:
    """A whole page.

    Args:
        name: of the template.
        data: what the script shows: anything that JSON can hold.
        script: its name, where it is not the template's.
        values: what the template shows; text in it is escaped unless it is `Markup`.
    """
    source = _asset("library.js") + _asset(f"{script or name}.js")
    template = _templates().get_template(f"{name}.html")
    return template.render(
        digest=base64.b64encode(hashlib.sha256(source.encode()).digest()).decode(),
        style=Markup(_asset("style.css")),
        script=Markup(source),
        data=data,
        **values,
    )


@functools.cache
def _templates() -> jinja2.Environment:
    environment = jinja2.Environment(
        loader=jinja2.PackageLoader("mcclt.pages"),
        autoescape=True,
        undefined=jinja2.StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    environment.policies["json.dumps_kwargs"] = {"separators": (",", ":"), "ensure_ascii": False, "allow_nan": False}
    environment.filters |= {"signed": signed, "count": count, "score": score, "pieces": re.compile(r"(?<=[,+])").split}
    return environment


def _asset(name: str) -> str:
    return (importlib.resources.files("mcclt.pages") / "templates" / name).read_text(encoding="utf-8")


# --- places on a line from 0 to 100 ----------------------------------------------------------------------------


def places(values: Iterable[float], among: Sequence[float]) -> list[float]:
    """Where numbers are between the least and the greatest of others, in per cent; those that are not known are not."""
    low, high = min(among, default=0.0), max(among, default=1.0)
    return [round(100 * (float(x) - low) / max(high - low, 1e-12), 2) for x in values if math.isfinite(x)]


def strips(rows: "Sequence[Row | Confirmed]", dots: Sequence[Iterable[float]]) -> list[dict[str, Any]]:
    """Rows of a comparison, each with where its dots, its mean and its difference are, on lines that all share."""
    ends = [x for row in rows for x in (row.summary.low, row.summary.high)]
    scores = [x for x in itertools.chain(*dots, ends) if math.isfinite(x)]
    against = [row.against for row in rows if row.against is not None]
    differences = [x for found in against for x in (found.low, found.high, 0.0) if math.isfinite(x)]
    return [
        {
            "row": row,
            "scale": (min(scores, default=0.0), max(scores, default=0.0)),
            "dots": places(own, scores),
            "mean": places([row.summary.mean, row.summary.low, row.summary.high], scores),
            "difference": places([d.difference, d.low, d.high], differences) if (d := row.against) else [],
            "zero": places([0.0], differences),
        }
        for row, own in zip(rows, dots, strict=True)
    ]


# --- numbers ---------------------------------------------------------------------------------------------------


def score(number: float, sign: str = "") -> str:
    """A return: 9,184, 31.4, 0.213; with its sign for a difference."""
    return f"{number:{sign}{',.0f' if abs(number) >= 100 else '.3g'}}".replace("-", "−")


def short(number: float) -> str:
    """1000000 → 1M, 50000 → 50k."""
    for size, letter in ((1_000_000, "M"), (1_000, "k")):
        if number >= size:
            return f"{number / size:.3g}{letter}"
    return f"{number:g}"


def listed(words: Sequence[str]) -> str:
    """One, two and three."""
    return " and ".join([", ".join(words[:-1]), words[-1]] if len(words) > 1 else words)
