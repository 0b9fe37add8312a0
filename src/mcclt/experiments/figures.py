"""Figures of a store: the paper's, and those that judge it. Nothing here imports JAX.

The first half computes what is drawn, the second draws it. Ink is one colour, which `svg` turns into the page's
own, so that a figure can be read on light and dark pages.
"""

import contextlib
import functools
import hashlib
import html
import io
import re
import zlib
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

import numpy as np
from scipy.special import ndtr, ndtri, stdtrit

from mcclt.config import VARIANTS
from mcclt.errors import MissingExtraError
from mcclt.experiments.paper import paper_entry, paper_results
from mcclt.experiments.results import Result, Results, Series, variant_label
from mcclt.storage import files

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

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

FEW = 5
"""Below so many seeds, bands show their range: an interval from a handful of numbers would fill the page."""
SMOOTHING = 20.0
"""Time constant, in steps, of the exponential smoothing over an episode."""
BARS_SHOWN = 45
"""As in the paper: 200 bars would be one dark area."""
PIT_SHOWN = 3.0
"""Densities above are cut and written out: far too narrow predictions pile all returns up at the ends."""
CALIBRATED = ("qr", "mcclt-nw", "ensemble", "mcclt", "mcclt@guide=symmetric")
WEIGHTED = ("mcclt", "ensemble", "explore")


def colour(variant: str) -> str:
    """The variant's colour, the same in every figure and every store."""
    return COLOURS.get(variant) or MORE_COLOURS[zlib.crc32(variant.encode()) % len(MORE_COLOURS)]


# --- what is drawn -----------------------------------------------------------------------------------------------


def probed(result: Result, part: str, name: str) -> np.ndarray:
    """An entry of the probe as numbers, NaN where there is none; empty if it was not looked at."""
    return np.array(result.probe.get(part, {}).get(name, []), dtype=np.float64)


def probed_bars(result: Result) -> np.ndarray | None:
    """[3, N] at the first, middle and last step of an episode, if they were looked at and are numbers."""
    bars = probed(result, "bars", "values")
    return bars if bars.size and np.isfinite(bars).all() else None


def mean_band(rows: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Mean of rows [seeds, ...] over the seeds, and a band: 95 % t-interval, or the range of fewer than `FEW`.

    NaN is a seed that has no value there; with one value the band has no width, with none all three are NaN.
    """
    known = np.isfinite(rows)
    n = known.sum(axis=0)
    mean = np.where(known, rows, 0).sum(axis=0) / np.where(n > 0, n, np.nan)
    deviations = np.where(known, rows - mean, 0)
    half = stdtrit(np.maximum(n - 1, 1), 0.975) * np.sqrt(
        (deviations**2).sum(axis=0) / np.maximum(n - 1, 1) / np.maximum(n, 1)
    )
    few = n < FEW
    low = np.where(few, deviations.min(axis=0, initial=0), -half)
    high = np.where(few, deviations.max(axis=0, initial=0), half)
    return mean, mean + low, mean + high


def normal_bars(n: int) -> tuple[np.ndarray, np.ndarray]:
    """τ_i = (i+1)/(N+1) and Z_i = Φ⁻¹(τ_i), with an exact 0 in the middle of an odd N."""
    tau = (np.arange(n) + 1) / (n + 1)
    z = ndtri(tau)
    return tau, (z - z[::-1]) / 2


@dataclass(frozen=True)
class Normality:
    """Bars beside the normal with their mean and spread."""

    bars: np.ndarray
    """[N] in ascending order."""
    mean: float
    std: float
    """That of a normal whose N bars spread as these do: their standard deviation over that of Z."""
    correlation: float
    """Squared correlation of the bars with Z (the W′ of Shapiro and Francia): 1 if they are exactly normal."""
    distance: float
    """Largest difference of the two CDFs at a bar: 0 if they are exactly normal."""


def normality(bars: np.ndarray) -> Normality:
    """How normal bars [N] are. Bars that are all equal have no spread, and NaN for both measures."""
    bars = np.sort(bars)
    tau, z = normal_bars(len(bars))
    mean, std = float(bars.mean()), float(bars.std() / z.std())
    if not std > 1e-9 * abs(mean):
        return Normality(bars, mean, 0.0, np.nan, np.nan)
    distance = float(np.abs(ndtr((bars - mean) / std) - tau).max())
    return Normality(bars, mean, std, float(np.corrcoef(bars, z)[0, 1] ** 2), distance)


def smooth(t: np.ndarray, values: np.ndarray, steps: float = SMOOTHING) -> np.ndarray:
    """Exponential smoothing at times t: what lies `steps` back counts 1/e."""
    share = 1 - np.exp(-np.diff(t) / steps)
    out = values.copy()
    for k, a in enumerate(share):
        out[k + 1] = out[k] + a * (values[k + 1] - out[k])
    return out


def std_over_episode(series: Series, points: int = 200) -> tuple[np.ndarray, np.ndarray]:
    """Steps [T] and the smoothed standard deviations [seeds, T], NaN after a seed's episode has ended.

    It ends where fewer than half of the seeds are left: a mean over survivors says little about the rest.
    """
    found = [curve for r in series.results if len((curve := _std(r))[0])]
    if not found:
        return np.zeros(0), np.zeros((0, 0))
    grid = np.linspace(0, max(t[-1] for t, _ in found), points)
    rows = np.array([np.interp(grid, t, smooth(t, std), right=np.nan) for t, std in found])
    kept = 2 * np.isfinite(rows).sum(axis=0) >= len(rows)
    return grid[kept], rows[:, kept]


def _std(result: Result) -> tuple[np.ndarray, np.ndarray]:
    t, std = probed(result, "episode", "t"), probed(result, "episode", "std")
    known = np.isfinite(std)
    return t[known], std[known]


@dataclass(frozen=True)
class Trend:
    """Slope over an episode, in percent of the mean per 100 steps, with its 95 % t-interval over seeds."""

    slope: float
    low: float
    high: float
    seeds: int

    @property
    def verdict(self) -> str:
        """Whether the interval leaves 0 out. One seed decides nothing."""
        return "grows" if self.low > 0 else "falls" if self.high < 0 else "undecided"

    def __str__(self) -> str:
        interval = f"[{self.low:+.1f}, {self.high:+.1f}]" if self.seeds > 1 else "(one seed)"
        return f"{self.verdict} {self.slope:+.1f} % {interval}".replace("-", "−")


def trend(series: Series) -> Trend | None:
    """How the standard deviation changes over an episode: a line through each seed's, unsmoothed."""
    curves = [_std(r) for r in series.results]
    slopes = [1e4 * np.polyfit(t, std, 1)[0] / std.mean() for t, std in curves if len(t) > 2 and std.mean() > 0]
    n = len(slopes)
    if n == 0:
        return None
    mean = float(np.mean(slopes))
    half = float(stdtrit(n - 1, 0.975) * np.std(slopes, ddof=1) / np.sqrt(n)) if n > 1 else np.inf
    return Trend(mean, mean - half, mean + half, n)


@dataclass(frozen=True)
class ErrorParts:
    """The normality error of one state, step by step."""

    bars: np.ndarray
    """q_i [N]."""
    z: np.ndarray
    """Z_i [N]."""
    mean: float
    sigmas: np.ndarray
    """σ_i = (q_i − mean)/Z_i [N]; NaN in the middle of an odd N."""
    sigma: float
    """Their mean."""
    guide: np.ndarray
    """q′_i = mean + σ Z_i [N]."""

    @property
    def error(self) -> float:
        """E = Σ (q_i − q′_i)²."""
        return float(np.sum((self.bars - self.guide) ** 2))


def error_parts(bars: np.ndarray) -> ErrorParts:
    """As `mcclt.method.normal` computes it."""
    _, z = normal_bars(len(bars))
    mean = float(bars.mean())
    sigmas = np.where(z != 0, (bars - mean) / np.where(z != 0, z, 1), np.nan)
    sigma = float(np.nanmean(sigmas))
    return ErrorParts(bars, z, mean, sigmas, sigma, mean + sigma * z)


FEW_POINTS = 5
"""Evaluations that make a curve."""


def learning_curve(series: Series) -> tuple[np.ndarray, np.ndarray]:
    """Steps [T] and returns [seeds, T]: of evaluations, or where those are too few, of the episodes collected."""
    steps, rows = series.curve("eval/mean_reward")
    return (steps, rows) if len(steps) >= FEW_POINTS else series.curve("rollout/ep_rew_mean")


def paper_mean(series: Series) -> float | None:
    """The paper's final mean return for this cell of its tables, if it was trained for as many steps."""
    cell = paper_entry(series.task, series.algo, series.variant)
    return None if cell is None or series.steps != paper_results()["steps"] else float(cell["mean"])


def calibrations(series: Series) -> list[dict[str, Any]]:
    """Of the seeds that were measured."""
    return [c for r in series.results if (c := r.probe.get("calibration"))]


def coverage(series: Series) -> dict[float, float]:
    """Observed share of returns inside the central interval of each nominal level, mean over seeds."""
    shares: dict[float, list[float]] = {}
    for c in calibrations(series):
        for level, share in c["coverage"].items():
            shares.setdefault(float(level), []).append(share)
    return {level: float(np.mean(found)) for level, found in sorted(shares.items())}


def crps_ratios(series: Series) -> np.ndarray:
    """[seeds] CRPS over that of a point at the mean: below 1 the spread is worth having."""
    return np.array([c["crps"] / c["crps_point"] for c in calibrations(series) if c["crps_point"]])


def pit(series: Series) -> np.ndarray:
    """[bins] density of Φ((return − mean)/std), mean over seeds; 1 everywhere if right."""
    shares = np.array([c["pit"] for c in calibrations(series)], dtype=np.float64)
    return shares.mean(axis=0) * shares.shape[1]


def main_variants(results: Results) -> list[str]:
    """The paper's variants that are there, or if there is none of them, whatever is."""
    return [v for v in results.variants if v in VARIANTS] or results.variants


def profiles(results: Results, algo: str) -> tuple[list[str], np.ndarray, dict[str, np.ndarray]]:
    """Per variant, the share of runs whose normalised score is at least a threshold.

    On each task 0 is the lowest and 1 the highest score of any seed shown; every task counts the same. Only
    tasks that all the variants have count: others would compare different tasks.

    Returns:
        The tasks, thresholds [T], and shares [T] by variant.
    """
    thresholds = np.linspace(0, 1, 201)
    found = {v: {s.task: s for s in results.mains if s.algo == algo and s.variant == v} for v in main_variants(results)}
    found = {v: by_task for v, by_task in found.items() if by_task}
    tasks = [t for t in results.tasks if found and all(t in by_task for by_task in found.values())]
    shares: dict[str, list[np.ndarray]] = {v: [] for v in found if tasks}
    for task in tasks:
        scores = {v: by_task[task].scores for v, by_task in found.items()}
        pooled = np.concatenate(list(scores.values()))
        pooled = pooled[np.isfinite(pooled)]
        low, high = (pooled.min(), pooled.max()) if len(pooled) else (0, 0)
        for v, own in scores.items():  # an agent without a score passes no threshold
            unit = (own - low) / (high - low) if high > low else np.where(np.isfinite(own), 1.0, np.nan)
            shares[v].append((unit[:, None] >= thresholds).mean(axis=0))
    return tasks, thresholds, {v: np.mean(rows, axis=0) for v, rows in shares.items()}


# --- how it is drawn ---------------------------------------------------------------------------------------------

INK = "#010203"
"""A black that nothing else has."""
FAINT, SOFT = f"{INK}38", f"{INK}a8"
CDF, NORMAL, GAP = "#f57f0a", "#2a9d5c", "#d1344b"
REFERENCE: dict[str, Any] = {"color": SOFT, "linewidth": 1, "linestyle": (0, (4, 3))}
"""Lines to compare with."""
DPI = 150
STYLE: dict[str, Any] = {
    "font.family": "sans-serif",
    "font.sans-serif": ["DejaVu Sans", "Verdana", "sans-serif"],
    "font.size": 8,
    "axes.titlesize": 8.5,
    "axes.titleweight": "bold",
    "axes.titlelocation": "left",
    "axes.titley": 1.0,
    "axes.labelsize": 8,
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
    "xtick.labelsize": 7.5,
    "ytick.labelsize": 7.5,
    "xtick.major.size": 0,
    "ytick.major.size": 0,
    "text.color": INK,
    "lines.linewidth": 1.4,
    "legend.frameon": False,
    "legend.fontsize": 8,
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

FIGURES: dict[str, Callable[[Results], "Figure | None"]] = {}
"""Draws a figure, or gives None if the store holds nothing to draw it from."""
TITLES: dict[str, str] = {}
"""What each figure shows and how to read it."""


@contextlib.contextmanager
def _style() -> Iterator[None]:
    try:
        import matplotlib
    except ImportError:
        raise MissingExtraError("Figures", "plots") from None
    with matplotlib.rc_context(cast(Any, STYLE)):
        yield


def _figure(title: str) -> Callable[[Callable[[Results], "Figure | None"]], Callable[[Results], "Figure | None"]]:
    """Lists a drawing in `FIGURES`, gives it the common style, and lays it out once for all formats."""

    def register(draw: Callable[[Results], "Figure | None"]) -> Callable[[Results], "Figure | None"]:
        @functools.wraps(draw)
        def drawn(results: Results) -> "Figure | None":
            with _style():
                figure = draw(results)
                if figure is not None:
                    figure.set_label(title)
                    _lay_out(figure)
                return figure

        FIGURES[draw.__name__], TITLES[draw.__name__] = drawn, title
        return drawn

    return register


def _lay_out(figure: "Figure") -> None:
    """Fixes the layout, which would otherwise be found anew for each file."""
    for axis in (axis for ax in figure.axes for axis in (ax.xaxis, ax.yaxis)):
        if not axis.get_label_text():
            axis.set_label_coords(0, 0)  # or a place is sought for it, for a fifth of all the time
    if (engine := figure.get_layout_engine()) is not None:
        engine.execute(figure)
    figure.set_layout_engine(None)


def _save(figure: "Figure", kind: str, background: str) -> bytes:
    buffer = io.BytesIO()
    with _style():
        figure.savefig(buffer, format=kind, dpi=DPI, facecolor=background, metadata=UNDATED[kind])
    return buffer.getvalue()


def save(figure: "Figure", folder: Path, name: str) -> list[Path]:
    """Writes name.svg, name.png and name.pdf; the same figure gives the same bytes."""
    paths = [folder / f"{name}.{kind}" for kind in UNDATED]
    for path in paths:
        files.write_atomically(path, _save(figure, path.suffix[1:], "white"))
    return paths


def svg(figure: "Figure") -> str:
    """The figure for a page of HTML: without background, in the page's own ink, with ids no other figure has."""
    text = _save(figure, "svg", "none").decode()
    unique = f"f{hashlib.blake2b(text.encode(), digest_size=4).hexdigest()}-"
    text = text[text.index("<svg") :].replace(INK, "currentColor")
    text = re.sub(r"\s*<metadata>.*?</metadata>|\s*<style[^>]*>.*?</style>", "", text, flags=re.DOTALL)
    used = set(re.findall(r'(?:url\(|href=")#([^")]+)', text))
    text = re.sub(r'\bid="([^"]+)"', lambda m: f'id="{unique}{m[1]}"' if m[1] in used else "", text)
    text = re.sub(r'(url\(|href=")#', rf"\1#{unique}", text)
    look = "max-width:100%;height:auto;white-space:pre;stroke-linejoin:round;stroke-linecap:butt"
    label = html.escape(str(figure.get_label()))
    return text.replace("<svg ", f'<svg role="img" aria-label="{label}" style="{look}" ', 1)


def _grid(rows: int, columns: int, width: float, height: float, **shared: Any) -> tuple["Figure", list[list["Axes"]]]:
    """Cells of a width and height in inches, and room for a legend above."""
    from matplotlib.figure import Figure

    figure = Figure(figsize=(max(columns * width, 4.5), rows * height + 0.5), dpi=DPI, layout="constrained")
    cells = figure.subplots(rows, columns, squeeze=False, **shared).tolist()
    for ax in (ax for row in cells for ax in row):
        ax.locator_params(nbins=4)
    return figure, cells


def _panels(n: int, width: float = 2.6, height: float = 1.9, **shared: Any) -> tuple["Figure", list["Axes"]]:
    """The first n cells of a grid of at most four columns."""
    columns = min(n, 4)
    figure, cells = _grid(-(-n // columns), columns, width, height, **shared)
    flat = [ax for row in cells for ax in row]
    for ax in flat[n:]:
        ax.remove()
    return figure, flat[:n]


def _heading(ax: "Axes", title: str, note: str = "") -> None:
    """A title, and a softer line below it."""
    ax.set_title(title, pad=15 if note else 5)
    if note:
        ax.annotate(note, (0, 1), (0, 4), "axes fraction", "offset points", color=SOFT, fontsize=7.5)


def _legend(figure: "Figure", entries: Iterable[tuple[str, dict[str, Any]]], columns: int = 6) -> None:
    """One for all panels, above them; an entry is a label and a line's properties."""
    from matplotlib.lines import Line2D

    handles = [Line2D([], [], label=label, **{"linewidth": 2, **look}) for label, look in entries]
    figure.legend(handles=handles, loc="outside upper left", ncols=columns, handlelength=1.4, columnspacing=1.4)


def _variant_legend(figure: "Figure", variants: Iterable[str], *more: tuple[str, dict[str, Any]], **how: Any) -> None:
    _legend(figure, [*((variant_label(v), {"color": colour(v)}) for v in variants), *more], **how)


def _line_and_band(ax: "Axes", x: np.ndarray, rows: np.ndarray, variant: str) -> None:
    mean, low, high = mean_band(rows)
    ax.fill_between(x, low, high, color=colour(variant), alpha=0.18, linewidth=0)
    ax.plot(x, mean, color=colour(variant), linewidth=2 if variant == "mcclt" else 1.4)


def _step_axis(ax: "Axes") -> None:
    """0, 500k, 1M."""
    from matplotlib.ticker import EngFormatter

    ax.xaxis.set_major_formatter(EngFormatter(sep=""))


def _one_per_task(results: Results, variant: str) -> dict[str, Series]:
    """By task, PPO's if it is there, for drawings of single agents."""
    found: dict[str, Series] = {}
    for s in results.mains:
        if s.variant == variant:
            found.setdefault(s.task, s)
    return found


def _agent(series: Series, result: Result) -> str:
    return f"{series.algo.upper()} · seed {result.seed}"


@_figure(
    "The value distribution that quantile regression learns, at the first, middle and last step of an episode of "
    "one agent: its bars (grey), the CDF they draw (orange) and the CDF of the normal with their mean and spread "
    "(green). r² is the squared correlation of the sorted bars with the normal's quantiles (1: exactly normal), D the "
    "largest distance between the two CDFs (0: exactly normal); in brackets the worst of all seeds."
)
def value_distributions(results: Results) -> "Figure | None":
    """Figure 1 of the paper."""
    variant = _many_bars(results)
    chosen = [] if variant is None else list(_one_per_task(results, variant).values())
    rows = [(s, agents) for s in chosen if (agents := [r for r in s.results if probed_bars(r) is not None])]
    if not rows:
        return None
    figure, cells = _grid(len(rows), 3, 3.1, 1.6, sharey=True)
    for (series, agents), axes in zip(rows, cells, strict=True):
        for k, (ax, t) in enumerate(zip(axes, probed(agents[0], "bars", "t"), strict=True)):
            every = [normality(probed(r, "bars", "values")[k]) for r in agents]
            _normality_cell(ax, every[0])
            name = f"{series.task} · {_agent(series, agents[0])}" if k == 0 else " "
            _heading(ax, name, f"step {t:.0f}   {_normality_text(every)}")
        axes[0].set_ylabel("probability")
    for ax in cells[-1]:
        ax.set_xlabel("return")
    _legend(figure, [("bars", {"color": FAINT}), ("their CDF", {"color": CDF}), ("normal CDF", {"color": NORMAL})])
    return figure


def _many_bars(results: Results) -> str | None:
    """The QR variant whose bars are drawn: with 200 of them, as in the paper, or else the most from 50 on."""
    number = {
        v: int(v.partition("qr@n_quantiles=")[2]) for v in results.variants if re.fullmatch(r"qr@n_quantiles=[0-9]+", v)
    }
    enough = [v for v, n in number.items() if n >= 50]
    return max(enough, key=lambda v: (number[v] == 200, number[v]), default=None)


def _normality_cell(ax: "Axes", one: Normality) -> None:
    tau, _ = normal_bars(len(one.bars))
    some = np.unique(np.linspace(0, len(tau) - 1, BARS_SHOWN).round().astype(int))
    x, top = np.repeat(one.bars[some], 3), np.repeat(tau[some], 3)
    top[::3], x[2::3] = 0, np.nan  # one broken line from 0 up to each bar's τ
    ax.plot(x, top, color=FAINT, linewidth=0.8, solid_capstyle="butt")
    ax.plot(one.bars, tau, color=CDF, linewidth=3)
    if one.std:
        wide = np.linspace(min(one.bars[0], one.mean - 3 * one.std), max(one.bars[-1], one.mean + 3 * one.std), 150)
        ax.plot(wide, ndtr((wide - one.mean) / one.std), color=NORMAL, linewidth=1.3, linestyle=(0, (3, 1.5)))
    ax.set_ylim(0, 1.02)


def _normality_text(every: Sequence[Normality]) -> str:
    """The first, and in brackets the worst of several."""
    known = [n for n in every if np.isfinite(n.distance)]
    if not known:
        return "no spread"
    several = len(every) > 1
    r2 = f" ({min(n.correlation for n in known):.2f})" if several else ""
    d = f" ({max(n.distance for n in known):.2f})" if several else ""
    return f"r² {every[0].correlation:.3f}{r2}   D {every[0].distance:.3f}{d}"


@_figure(
    "Standard deviation of the value distribution over the steps of an episode, when quantile bars are trained on the "
    "distributional Bellman target; smoothed, mean over seeds with a 95 % band (fewer than five seeds: their range). "
    "Under each title: the slope in percent of the mean per 100 steps, with its 95 % interval over seeds. The paper "
    "says that it grows."
)
def bellman_std(results: Results) -> "Figure | None":
    """Figure 2 of the paper."""
    return _std_panels(results, "qr@qr_target=bellman")


@_figure(
    "Standard deviation over the members of an ensemble, over the steps of an episode; smoothed, mean over seeds with "
    "a 95 % band (fewer than five seeds: their range). Under each title: the slope in percent of the mean per 100 "
    "steps, with its 95 % interval over seeds. The paper says that it falls."
)
def ensemble_std(results: Results) -> "Figure | None":
    """Figure 4 of the paper."""
    return _std_panels(results, "ensemble")


def _std_panels(results: Results, variant: str) -> "Figure | None":
    mains = [s for s in results.mains if s.variant == variant]
    drawn = [(s, *curve) for s in mains if len((curve := std_over_episode(s))[0])]
    if not drawn:
        return None
    figure, axes = _panels(len(drawn))
    for ax, (series, t, rows) in zip(axes, drawn, strict=True):
        _line_and_band(ax, t, rows, variant)
        slope = trend(series)
        _heading(ax, series.task, f"{series.algo.upper()} · {slope or 'too short for a slope'}")
        ax.set_xlim(0, t[-1] or 1)
    figure.supxlabel("step of the episode", fontsize=8, color=SOFT)
    figure.supylabel("standard deviation of the value", fontsize=8, color=SOFT)
    return figure


@_figure(
    "How the normality error of a state is measured, on real bars of a trained MC-CLT agent. 1: the bars and their "
    "mean. 2: the spread σᵢ that would put each bar on its quantile, and their mean σ. 3: the bars (filled) against "
    "those of the normal with that mean and spread (hollow, on its CDF); the error E is the sum of the squared gaps."
)
def error_drawing(results: Results) -> "Figure | None":
    """Figure 3 of the paper."""
    mcclt = [s for s in results.mains if s.variant == "mcclt"]
    agents = [(s, r, states) for s in mcclt for r in s.results if (states := probed_bars(r)) is not None]
    if not agents:
        return None
    series, agent, states = agents[0]
    t, parts = max(
        zip(probed(agent, "bars", "t"), map(error_parts, states), strict=True), key=lambda state: state[1].error
    )
    n = len(parts.bars)
    figure, ((bars, sigmas, gaps),) = _grid(1, 3, 3.3, max(2.4, 0.28 * n + 1), sharey=True)
    bars.set_yticks(range(n), [f"q{_subscript(i)}   Z = {z:+.2f}".replace("-", "−") for i, z in enumerate(parts.z)])
    bars.set_ylim(-1, n)
    _lollipops(bars, parts.bars, parts.mean)
    _heading(bars, "1  The bars and their mean", f"mean of the qᵢ = {_short(parts.mean)}")
    _lollipops(sigmas, parts.sigmas, parts.sigma)
    note = f"σᵢ = (qᵢ − mean) / Zᵢ,   their mean σ = {_short(parts.sigma)}"
    _heading(sigmas, "2  The spread that each bar asks for", note)
    _gaps_panel(gaps, parts)
    note = f"q′ᵢ = mean + σ Zᵢ,   E = Σ (qᵢ − q′ᵢ)² = {_short(parts.error)}"
    _heading(gaps, "3  Gaps to the bars of that normal", note)
    for ax, name in ((bars, "value"), (sigmas, "σᵢ"), (gaps, "value")):
        ax.set_xlabel(name)
        ax.grid(visible=False, axis="x")
    entries: list[tuple[str, dict[str, Any]]] = [
        ("bars qᵢ", {"color": colour("mcclt"), "marker": "o", "linewidth": 0}),
        ("the normal and its bars q′ᵢ", {"color": NORMAL, "marker": "o", "fillstyle": "none", "linewidth": 1.1}),
        ("gaps, squared on the right", {"color": GAP}),
        (f"{series.task} · {_agent(series, agent)} · step {t:.0f}", {"alpha": 0}),
    ]
    _legend(figure, entries)
    return figure


def _lollipops(ax: "Axes", values: np.ndarray, middle: float) -> None:
    ax.axvline(middle, **REFERENCE)
    ax.hlines(range(len(values)), middle, values, color=colour("mcclt"), alpha=0.45, linewidth=2.5)
    ax.plot(values, range(len(values)), "o", color=colour("mcclt"))


def _gaps_panel(ax: "Axes", parts: ErrorParts) -> None:
    """Row i is the probability (i+1)/(N+1), so that the normal's CDF runs through its bars."""
    n = len(parts.bars)
    reach = 2.6 * abs(parts.sigma)
    x = np.linspace(min(parts.bars.min(), parts.mean - reach), max(parts.bars.max(), parts.mean + reach), 200)
    if parts.sigma > 0:
        ax.plot(x, (n + 1) * ndtr((x - parts.mean) / parts.sigma) - 1, color=NORMAL, linewidth=1.1)
    ax.hlines(range(n), parts.bars, parts.guide, color=GAP, linewidth=2.5)
    ax.plot(parts.guide, range(n), "o", markerfacecolor="none", markeredgecolor=NORMAL, markersize=8)
    ax.plot(parts.bars, range(n), "o", color=colour("mcclt"), markersize=5)
    beside = ax.get_yaxis_transform()
    for i, gap in enumerate(parts.bars - parts.guide):
        ax.text(1.02, i, _short(gap**2), transform=beside, va="center", fontsize=7.5, color=GAP)


def _subscript(i: int) -> str:
    return str(i).translate(str.maketrans("0123456789", "₀₁₂₃₄₅₆₇₈₉"))


def _short(x: float) -> str:
    """Three significant digits, without an exponent where that reads well."""
    return f"{x:,.0f}" if 1000 <= abs(x) < 1e6 else f"{x:.3g}"


@_figure(
    "Learning curves: mean return of evaluation episodes (of the episodes collected, where there were no evaluations) "
    "over environment steps, mean over seeds with a 95 % band (fewer than five seeds: their range). Ticks on the right "
    "edge are the paper's final means."
)
def learning_curves(results: Results) -> "Figure | None":
    """All tasks, both algorithms, the paper's variants."""
    variants = main_variants(results)
    cells: dict[tuple[str, str], list[tuple[Series, np.ndarray, np.ndarray]]] = {}
    for s in results.mains:
        steps, rows = learning_curve(s)
        if s.variant in variants and len(steps):
            cells.setdefault((s.task, s.algo), []).append((s, steps, rows))
    if not cells:
        return None
    figure, axes = _panels(len(cells))
    for ax, drawn in zip(axes, cells.values(), strict=True):
        for series, steps, rows in drawn:
            _line_and_band(ax, steps, rows, series.variant)
            if (paper := paper_mean(series)) is not None:
                tick: dict[str, Any] = {"transform": ax.get_yaxis_transform(), "clip_on": False, "linewidth": 2}
                ax.plot([1, 1.035], [paper, paper], color=colour(series.variant), **tick)
        _heading(ax, drawn[0][0].task, drawn[0][0].algo.upper())
        ax.set_xlim(0, max(steps[-1] for _, steps, _ in drawn))
        _step_axis(ax)
    figure.supxlabel("environment steps", fontsize=8, color=SOFT)
    figure.supylabel("return", fontsize=8, color=SOFT)
    shown = [v for v in variants if any(s.variant == v for drawn in cells.values() for s, _, _ in drawn)]
    tick = {"color": SOFT, "marker": "_", "markersize": 6, "markeredgewidth": 2, "linewidth": 0}
    _variant_legend(figure, shown, ("paper's final mean", tick), columns=2 * len(axes) if len(axes) < 4 else 7)
    return figure


@_figure(
    "One episode of one agent per task: the weight its samples get in the policy update, the error that the weight "
    "is made from (normality error; for the ensemble the standard deviation over its members) and the reward."
)
def weights_over_episode(results: Results) -> "Figure | None":
    """Whether weights follow what happens in an episode."""
    found = [_one_per_task(results, v) for v in WEIGHTED]
    rows: dict[str, list[tuple[Series, Result]]] = {}
    for task in results.tasks:
        for series in (by_task[task] for by_task in found if task in by_task):
            agents = [r for r in series.results if r.probe.get("episode")]
            if agents:
                rows.setdefault(task, []).append((series, agents[0]))
    if not rows:
        return None
    entries = ("weight", "error", "reward")
    figure, cells = _grid(len(rows), len(entries), 3.3, 1.45, sharex="row")
    for axes, (task, drawn) in zip(cells, rows.items(), strict=True):
        who = ", ".join(dict.fromkeys(_agent(s, r) for s, r in drawn))
        for ax, entry in zip(axes, entries, strict=True):
            for series, agent in drawn:
                values = probed(agent, "episode", entry)
                if entry == "error":
                    values = np.where(values > 0, values, np.nan)
                    ax.set_yscale("log")
                ax.plot(probed(agent, "episode", "t"), values, color=colour(series.variant), linewidth=1)
            ax.margins(x=0)
            _heading(ax, f"{task} · {who}" if entry == entries[0] else " ", entry)
    for ax in cells[-1]:
        ax.set_xlabel("step of the episode")
    _variant_legend(figure, [v for v in WEIGHTED if any(s.variant == v for drawn in rows.values() for s, _ in drawn)])
    return figure


@_figure(
    "Are the predicted normals right? Coverage: share of returns inside the central 50, 80 and 95 % intervals, on the "
    "diagonal if right, below it if too narrow; large dots are means over tasks, small ones single tasks. CRPS over "
    "that of a point at the mean, below 1 if the spread is worth having (mean and 95 % interval over seeds, or their "
    "range below five). PIT: flat if right, ∪ if too narrow, ∩ if too wide; thin lines are single tasks."
)
def calibration(results: Results) -> "Figure | None":
    """Coverage, CRPS and PIT of the critics that predict a spread."""
    found = {v: [s for s in results.mains if s.variant == v and calibrations(s)] for v in CALIBRATED}
    found = {v: series for v, series in found.items() if series}
    if not found:
        return None
    from matplotlib.figure import Figure

    cells = list(dict.fromkeys((s.task, s.algo) for s in results.mains if s in found.get(s.variant, [])))
    top = max(2.8, 0.34 * len(cells) + 0.9)
    figure = Figure(figsize=(10.4, top + 2.2), dpi=DPI, layout="constrained")
    above, below = figure.subfigures(2, 1, height_ratios=[top, 1.8], squeeze=False).flat
    inside, ratio = above.subplots(1, 2, width_ratios=[1, 1.25])
    _coverage_panel(inside, found)
    _crps_panel(ratio, found, cells)
    for ax, (variant, series) in zip(below.subplots(1, len(CALIBRATED), sharey=True), found.items(), strict=False):
        _pit_panel(ax, variant, series)
    for ax in below.axes[len(found) :]:
        ax.remove()
    below.axes[0].set_ylabel("PIT density")
    _variant_legend(figure, found)
    return figure


def _dots(ax: "Axes", x: np.ndarray, y: np.ndarray, variant: str) -> None:
    """Many, faintly."""
    ax.plot(x, y, "o", color=colour(variant), markersize=3, alpha=0.55, markeredgewidth=0)


def _dodge(i: int, n: int, room: float) -> float:
    """Place i of n side by side."""
    return room * ((i + 0.5) / n - 0.5)


def _coverage_panel(ax: "Axes", found: dict[str, list[Series]]) -> None:
    ax.axline((0.5, 0.5), slope=1, **REFERENCE)
    for i, (variant, series) in enumerate(found.items()):
        shift = _dodge(i, len(found), 0.05)
        shares = [coverage(s) for s in series]
        levels = sorted({level for share in shares for level in share})
        for share in shares:
            _dots(ax, np.array(list(share)) + shift, np.array(list(share.values())), variant)
        means = [np.mean([share[level] for share in shares if level in share]) for level in levels]
        ax.plot(np.array(levels) + shift, means, "o-", color=colour(variant), markersize=6, linewidth=1)
        ax.set_xticks(levels, [f"{level:.0%}" for level in levels])
    ax.yaxis.set_major_formatter(lambda y, _: f"{y:.0%}")
    _heading(ax, "Coverage")
    ax.set_xlabel("predicted interval")
    ax.set_ylabel("returns inside it")


def _crps_panel(ax: "Axes", found: dict[str, list[Series]], cells: Sequence[tuple[str, str]]) -> None:
    ax.axvline(1, **REFERENCE)
    means = []
    for i, (variant, series) in enumerate(found.items()):
        for s in series:
            y = cells.index((s.task, s.algo)) + _dodge(i, len(found), 0.7)
            mean, low, high = mean_band(crps_ratios(s))
            means.append(mean)
            ax.plot([low, high], [y, y], color=colour(variant), linewidth=1.2)
            ax.plot(mean, y, "o", color=colour(variant), markersize=4)
    ax.set_yticks(range(len(cells)), [f"{task} · {algo.upper()}" for task, algo in cells])
    ax.set_ylim(len(cells) - 0.5, -0.5)
    ax.grid(visible=False, axis="y")
    for y in range(1, len(cells)):
        ax.axhline(y - 0.5, color=FAINT, linewidth=0.4)
    if max(means) > 10 * min(means):  # one critic far off would press all others into a line
        ax.set_xscale("log")
        ax.xaxis.set_major_formatter(lambda x, _: f"{x:g}")
    _heading(ax, "CRPS, relative to a point prediction")
    ax.set_xlabel("lower is better")


def _pit_panel(ax: "Axes", variant: str, series: Sequence[Series]) -> None:
    rows = [pit(s) for s in series]
    edges = np.linspace(0, 1, len(rows[0]) + 1)
    for row in rows if len(rows) > 1 else []:
        ax.stairs(row, edges, color=colour(variant), alpha=0.25, linewidth=0.8, baseline=None)
    ax.stairs(np.mean(rows, axis=0), edges, color=colour(variant), linewidth=1.8, baseline=None)
    ax.axhline(1, **REFERENCE)
    ax.set_ylim(0, PIT_SHOWN)
    for k in np.flatnonzero(np.mean(rows, axis=0) > PIT_SHOWN):
        x, density = (edges[k] + edges[k + 1]) / 2, np.mean(rows, axis=0)[k]
        ax.annotate(
            f"{density:.1f}",
            (x, PIT_SHOWN),
            (4 if x < 0.5 else -4, -3),
            textcoords="offset points",
            ha="left" if x < 0.5 else "right",
            va="top",
            fontsize=7,
            color=SOFT,
        )
    ax.set_xticks([0, 0.5, 1])
    _heading(ax, variant_label(variant))


@_figure(
    "Performance profiles: share of runs (tasks counting the same) that reach at least a normalised score, where on "
    "each task 0 is the lowest and 1 the highest score of any run shown. Higher is better; where lines cross, neither "
    "variant is better throughout. Only tasks that all these variants have count."
)
def performance_profiles(results: Results) -> "Figure | None":
    """The whole distribution of scores, not only its mean."""
    drawn = [(algo, *found) for algo in results.algos if (found := profiles(results, algo))[0]]
    if not drawn:
        return None
    figure, axes = _panels(len(drawn), width=4, height=2.8, sharey=True)
    for ax, (algo, tasks, thresholds, shares) in zip(axes, drawn, strict=True):
        for variant, share in shares.items():
            ax.plot(thresholds, share, color=colour(variant), linewidth=2 if variant == "mcclt" else 1.4)
        _heading(ax, f"{algo.upper()} · {len(tasks)} task{'s' * (len(tasks) > 1)}")
        ax.set_xlim(0, 1)
        ax.set_ylim(0, 1.02)
        ax.yaxis.set_major_formatter(lambda y, _: f"{y:.0%}")
        ax.set_xlabel("normalised score")
    axes[0].set_ylabel("runs that reach it")
    _variant_legend(figure, dict.fromkeys(v for *_, shares in drawn for v in shares), columns=3)
    return figure


@_figure(
    "Final scores: every dot is one seed (mean return of its final deterministic episodes), the bar is the mean of the "
    "seeds with its standard error."
)
def final_scores(results: Results) -> "Figure | None":
    """Every seed of every variant."""
    cells: dict[tuple[str, str], list[Series]] = {}
    for s in results.mains:
        cells.setdefault((s.task, s.algo), []).append(s)
    if not cells:
        return None
    variants = results.variants
    figure, axes = _panels(len(cells), width=2.6, height=0.19 * len(variants) + 0.8, sharey=True)
    for ax, drawn in zip(axes, cells.values(), strict=True):
        for s in drawn:
            y, scores = variants.index(s.variant), s.scores
            scores = scores[np.isfinite(scores)]
            _dots(ax, scores, y + _jitter(len(scores)), s.variant)
            if len(scores) > 1:
                mean, error = scores.mean(), standard_error(scores)
                ax.plot([mean] * 2, [y - 0.38, y + 0.38], color=INK, linewidth=1.4)
                ax.plot([mean - error, mean + error], [y, y], color=INK, linewidth=1.4)
        _heading(ax, drawn[0].task, drawn[0].algo.upper())
        ax.set_yticks(range(len(variants)), [variant_label(v) for v in variants])
        ax.set_ylim(len(variants) - 0.4, -0.6)
        ax.grid(visible=False, axis="y")
    figure.supxlabel("return", fontsize=8, color=SOFT)
    return figure


def standard_error(scores: np.ndarray) -> float:
    """Of the mean over at least two seeds."""
    return float(scores.std(ddof=1) / np.sqrt(len(scores)))


def _jitter(n: int) -> np.ndarray:
    """Places for n dots, spread evenly without order."""
    return 0.5 * (np.arange(n) * 0.618034 % 1 - 0.5)
