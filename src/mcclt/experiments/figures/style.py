"""How figures look, and how they are listed and written. Ink is one colour, which `svg` turns into the page's own."""

import contextlib
import functools
import hashlib
import io
import itertools
import math
import re
import textwrap
import zlib
from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

import numpy as np

from mcclt.errors import MissingExtraError
from mcclt.experiments.analysis import stats
from mcclt.experiments.results import Result, Results, Series, grouped, variant_label
from mcclt.storage import files

if TYPE_CHECKING:
    from matplotlib.axes import Axes as Axes
    from matplotlib.figure import Figure as Figure
else:
    Axes = Figure = Any  # Matplotlib is an extra, imported where something is drawn

COLOURS = {
    "plain": "#6b7575",
    "qr": "#f57f0a",
    "mcclt-nw": "#12aee4",
    "ensemble": "#6bb083",
    "mcclt": "#446fff",
    "explore": "#b25d9e",
    "mcclt@guide=symmetric": "#8a3cb9",
}
"""One colour per variant: told apart with any colour vision, seen on white and on black."""

MORE_COLOURS = ("#a6761d", "#c2415b", "#2a8f8a", "#7a8b2c", "#c05ad1", "#5f7fa8", "#b0704f", "#4c9f38")
"""For variants with changed settings."""

INK = "#010203"
"""A black that nothing else has."""

FAINT, SOFT = f"{INK}38", f"{INK}a8"

CDF, NORMAL, GAP = "#f57f0a", "#2a9d5c", "#d1344b"

REFERENCE: dict[str, Any] = {"color": SOFT, "linewidth": 1, "linestyle": (0, (4, 3))}
"""Lines to compare with."""

DPI = 150

WIDTH = 7.8
"""Of every figure, in inches: about that of a page's text, so that type is as large in one as in the other."""

LETTER, LINE = 0.075, 0.16
"""Inches that a letter takes, on average at most, and a line."""

STYLE: dict[str, Any] = {
    "font.family": "sans-serif",
    "font.sans-serif": ["DejaVu Sans", "Verdana", "sans-serif"],
    "font.size": 9,
    "axes.titlesize": 9.5,
    "axes.titleweight": "bold",
    "axes.titlelocation": "left",
    "axes.titley": 1.0,
    "axes.labelsize": 9,
    "axes.labelcolor": SOFT,
    "axes.edgecolor": FAINT,
    "axes.facecolor": "none",
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.linewidth": 0.8,
    "axes.grid": True,
    "axes.axisbelow": True,
    "axes.formatter.useoffset": False,
    "grid.color": f"{INK}18",
    "grid.linewidth": 0.6,
    "xtick.color": FAINT,
    "ytick.color": FAINT,
    "xtick.labelcolor": SOFT,
    "ytick.labelcolor": SOFT,
    "xtick.labelsize": 9,
    "ytick.labelsize": 9,
    "xtick.major.size": 0,
    "ytick.major.size": 0,
    "text.color": INK,
    "lines.linewidth": 1.4,
    "legend.frameon": False,
    "legend.fontsize": 9,
    "figure.facecolor": "none",
    "figure.autolayout": False,
    "figure.constrained_layout.use": False,
    "figure.constrained_layout.h_pad": 0.06,
    "figure.constrained_layout.w_pad": 0.06,
    "text.hinting": "none",
    "svg.fonttype": "none",
    "svg.hashsalt": "mcclt",
    "pdf.fonttype": 42,
}

UNDATED: dict[str, dict[str, Any]] = {
    "svg": {"Date": None, "Creator": None},
    "png": {"Software": None},
    "pdf": {"CreationDate": None, "Creator": None, "Producer": None},
}

Draw = Callable[[Results], Figure | None]
"""Draws a figure, or gives None if the store holds nothing to draw it from."""
TITLES: dict[str, str] = {}
"""What each figure shows and how to read it."""


def colour(variant: str) -> str:
    """The variant's colour, the same in every figure and every store."""
    return COLOURS.get(variant) or MORE_COLOURS[zlib.crc32(variant.encode()) % len(MORE_COLOURS)]


@contextlib.contextmanager
def _style() -> Iterator[None]:
    try:
        import matplotlib
    except ImportError:
        raise MissingExtraError("Figures", "plots") from None
    with matplotlib.rc_context(cast(Any, STYLE)):
        yield


def figure_of(title: str) -> Callable[[Draw], Draw]:
    """Gives a drawing its title and the common style, and lays it out once for all formats."""

    def titled(draw: Draw) -> Draw:
        @functools.wraps(draw)
        def drawn(results: Results) -> Figure | None:
            with _style():
                figure = draw(results)
                if figure is not None:
                    figure.set_label(title)
                    _lay_out(figure)
                return figure

        TITLES[draw.__name__] = title
        return drawn

    return titled


def _lay_out(figure: Figure) -> None:
    """Fixes the layout, which would otherwise be found anew for each file."""
    for axis in (axis for ax in figure.axes for axis in (ax.xaxis, ax.yaxis)):
        if not axis.get_label_text():
            axis.set_label_coords(0, 0)  # or a place is sought for it, for a fifth of all the time
    if (engine := figure.get_layout_engine()) is not None:
        engine.execute(figure)
    figure.set_layout_engine(None)


def written(figure: Figure, kind: str, background: str = "white", dpi: float = DPI) -> bytes:
    """The figure as a file: svg, png or pdf."""
    buffer = io.BytesIO()
    with _style():
        figure.savefig(buffer, format=kind, dpi=dpi, facecolor=background, metadata=UNDATED[kind])
    return buffer.getvalue()


def save(figure: Figure, folder: Path, name: str) -> list[Path]:
    """Writes name.svg, name.png and name.pdf; the same figure gives the same bytes."""
    paths = [folder / f"{name}.{kind}" for kind in UNDATED]
    for path in paths:
        files.write_atomically(path, written(figure, path.suffix[1:]))
    return paths


def svg(figure: Figure) -> str:
    """The figure for a page of HTML: without background, in the page's own ink, with ids no other figure has."""
    text = written(figure, "svg", "none").decode()
    unique = f"f{hashlib.blake2b(text.encode(), digest_size=4).hexdigest()}-"
    text = text[text.index("<svg") :].replace(INK, "currentColor")
    text = re.sub(r"\s*<metadata>.*?</metadata>|\s*<style[^>]*>.*?</style>", "", text, flags=re.DOTALL)
    used = set(re.findall(r'(?:url\(|href=")#([^")]+)', text))
    text = re.sub(r'\bid="([^"]+)"', lambda m: f'id="{unique}{m[1]}"' if m[1] in used else "", text)
    return re.sub(r'(url\(|href=")#', rf"\1#{unique}", text)


# --- pieces of figures -------------------------------------------------------------------------------------------


def canvas(height: float) -> Figure:
    """An empty figure, so many inches high."""
    from matplotlib.figure import Figure

    return Figure(figsize=(WIDTH, height), dpi=DPI, layout="constrained")


def grid(rows: int, columns: int, height: float, **shared: Any) -> tuple[Figure, list[list[Axes]]]:
    """Cells of a height in inches."""
    figure = canvas(rows * height + 0.2)
    cells = figure.subplots(rows, columns, squeeze=False, **shared).tolist()
    for ax in (ax for row in cells for ax in row):
        ax.locator_params(nbins=4)
    return figure, cells


def panels(heights: Sequence[float], across: int = 3, sharey: bool = False) -> tuple[Figure, list[Axes]]:
    """Cells that need so many inches, in as few rows as hold them; no row has an empty place, some wider cells."""
    rows = np.array_split(np.arange(len(heights)), -(-len(heights) // across))
    high = [max(0.4 * WIDTH / len(row), *(heights[i] for i in row)) for row in rows]
    figure = canvas(sum(high) + 0.2)
    places = math.lcm(*map(len, rows))
    mosaic: list[Any] = [np.repeat(row, places // len(row)).tolist() for row in rows]
    axes = [*figure.subplot_mosaic(mosaic, height_ratios=high, sharey=sharey).values()]
    for ax in axes:
        ax.locator_params(nbins=4)
    return figure, axes


def heading(ax: Axes, title: str, note: str = "") -> None:
    """A title, and softer lines below it."""
    lines = note.count("\n") + 1 if note else 0
    ax.set_title(title, pad=5 + 11.5 * lines)
    if note:
        ax.annotate(note, (0, 1), (0, 4), "axes fraction", "offset points", color=SOFT, linespacing=1.05)


def folded(name: str) -> str:
    """A long name on two lines: InvertedDouble, Pendulum-v4."""
    breaks = [m.start() for m in re.finditer(r"(?<=[a-z])(?=[A-Z])", name)]
    if len(name) <= 16 or not breaks:
        return name
    place = min(breaks, key=lambda b: abs(b - len(name) / 2))
    return f"{name[:place]}\n{name[place:]}"


def wrapped(label: str, letters: int = 28) -> str:
    """A variant's name in lines, broken between its settings, and within the name of one that is too long."""
    lines = textwrap.wrap(label, letters, break_long_words=False, break_on_hyphens=False)
    return "\n".join(_broken(line, letters) for line in lines)


def _broken(line: str, letters: int) -> str:
    end = 1 + max(line.rfind(sign, 0, letters) for sign in "_=")
    return line if len(line) <= letters or not end else f"{line[:end]}\n{_broken(line[end:], letters)}"


def legend(figure: Figure, entries: Iterable[tuple[str, dict[str, Any]]]) -> None:
    """One for all panels, in room of its own above them; an entry is a label and a line's properties."""
    from matplotlib.lines import Line2D

    handles = [Line2D([], [], label=label, **{"linewidth": 2, **look}) for label, look in entries]
    labels = [str(handle.get_label()).splitlines() for handle in handles]
    longest = max(len(text) for lines in labels for text in lines)
    rows = -(-len(handles) // max(1, int(WIDTH / (0.45 + LETTER * longest))))
    columns = -(-len(handles) // rows)
    figure.set_figheight(figure.get_figheight() + 0.15 + rows * (LINE * max(map(len, labels)) + 0.05))
    figure.legend(handles=handles, loc="outside upper left", ncols=columns, handlelength=1.4, columnspacing=1.4)


def variant_legend(figure: Figure, variants: Iterable[str], *more: tuple[str, dict[str, Any]]) -> None:
    """A legend of variants, and more entries after them."""
    legend(figure, [*((wrapped(variant_label(v)), {"color": colour(v)}) for v in variants), *more])


def axis_names(figure: Figure, x: str, y: str = "") -> None:
    """What all panels have along their axes."""
    figure.supxlabel(x, fontsize=9, color=SOFT)
    if y:
        figure.supylabel(y, fontsize=9, color=SOFT)


def line(variant: str) -> dict[str, Any]:
    """How the line of a variant looks."""
    return {"color": colour(variant), "linewidth": 2 if variant == "mcclt" else 1.4}


def line_and_band(ax: Axes, x: np.ndarray, rows: np.ndarray, variant: str) -> None:
    """A variant's mean over seeds, and its band."""
    mean, low, high = stats.mean_band(rows)
    ax.fill_between(x, low, high, color=colour(variant), alpha=0.18, linewidth=0)
    ax.plot(x, mean, **line(variant))


def dots(ax: Axes, x: np.ndarray, y: np.ndarray, variant: str) -> None:
    """Many, faintly."""
    ax.plot(x, y, "o", color=colour(variant), markersize=3, alpha=0.55, markeredgewidth=0)


def dodge(i: int, n: int, room: float) -> float:
    """Place i of n side by side."""
    return room * ((i + 0.5) / n - 0.5)


def by_setting(series: Iterable[Series]) -> dict[tuple[str, str], tuple[Series, ...]]:
    """Those of each task and algorithm, in order."""
    return grouped(((s.task, s.algo), s) for s in series)


def one_per_task(results: Results, variant: str) -> list[Series]:
    """PPO's if it is there, for drawings of single agents."""
    return [next(own) for _, own in itertools.groupby(results.of(variant), key=lambda s: s.task)]


def agent_name(series: Series, result: Result) -> str:
    """For people: PPO · seed 3."""
    return f"{series.algo.upper()} · seed {result.seed}"
