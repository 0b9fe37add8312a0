"""Figures 1 and 3 of the paper: the bars of a value distribution, and the normal beside them."""

import re
from collections.abc import Sequence
from typing import Any

import numpy as np
from scipy.special import ndtr

from mcclt.experiments.analysis import beliefs
from mcclt.experiments.analysis.beliefs import error_parts, normality, probed, probed_bars
from mcclt.experiments.curve import evenly
from mcclt.experiments.figures import style
from mcclt.experiments.figures.style import Axes, Figure
from mcclt.experiments.results import Results

BARS_SHOWN = 45
"""As in the paper: 200 bars would be one dark area."""


@style.figure_of(
    "The value distribution that quantile regression learns, at the first, middle and last step of an episode of "
    "one agent: its bars (grey), the CDF they draw (orange) and the CDF of the normal with their mean and spread "
    "(green). r² is the squared correlation of the sorted bars with the normal's quantiles (1: exactly normal), D the "
    "largest distance between the two CDFs (0: exactly normal); in brackets the worst of all seeds."
)
def value_distributions(results: Results) -> Figure | None:
    """Figure 1 of the paper."""
    variant = _many_bars(results)
    chosen = style.one_per_task(results, variant) if variant else []
    rows = [(s, agents) for s in chosen if (agents := [r for r in s.results if probed_bars(r) is not None])]
    if not rows:
        return None
    figure, cells = style.grid(len(rows), 3, 1.75, sharey=True)
    for (series, agents), axes in zip(rows, cells, strict=True):
        for k, (ax, t) in enumerate(zip(axes, probed(agents[0], "bars", "t"), strict=True)):
            every = [normality(probed(r, "bars", "values")[k]) for r in agents]
            _normality_cell(ax, every[0])
            name = f"{series.task} · {style.agent_name(series, agents[0])}" if k == 0 else " "
            style.heading(ax, name, f"step {t:.0f}\n{_normality_text(every)}")
        axes[0].set_ylabel("probability")
    for ax in cells[-1]:
        ax.set_xlabel("return")
    colours = {"bars": style.FAINT, "their CDF": style.CDF, "normal CDF": style.NORMAL}
    style.legend(figure, [(name, {"color": colour}) for name, colour in colours.items()])
    return figure


def _many_bars(results: Results) -> str | None:
    """The QR variant whose bars are drawn: with 200 of them, as in the paper, or else the most from 50 on."""
    found = [m for v in results.variants if (m := re.fullmatch(r"qr@n_quantiles=([0-9]+)", v))]
    number = {m[0]: int(m[1]) for m in found if int(m[1]) >= 50}
    return max(number, key=lambda v: (number[v] == 200, number[v]), default=None)


def _normality_cell(ax: Axes, one: beliefs.Normality) -> None:
    tau, _ = beliefs.normal_bars(len(one.bars))
    some = evenly(len(tau), BARS_SHOWN)
    x, top = np.repeat(one.bars[some], 3), np.repeat(tau[some], 3)
    top[::3], x[2::3] = 0, np.nan  # one broken line from 0 up to each bar's τ
    ax.plot(x, top, color=style.FAINT, linewidth=0.8, solid_capstyle="butt")
    ax.plot(one.bars, tau, color=style.CDF, linewidth=3)
    if one.std:
        wide = np.linspace(min(one.bars[0], one.mean - 3 * one.std), max(one.bars[-1], one.mean + 3 * one.std), 150)
        ax.plot(wide, ndtr((wide - one.mean) / one.std), color=style.NORMAL, linewidth=1.3, linestyle=(0, (3, 1.5)))
    ax.set_ylim(0, 1.02)


def _normality_text(every: Sequence[beliefs.Normality]) -> str:
    """The first, and in brackets the worst of several."""
    known = [n for n in every if np.isfinite(n.distance)]
    if not known:
        return "no spread"
    several = len(every) > 1
    r2 = f" ({min(n.correlation for n in known):.2f})" if several else ""
    d = f" ({max(n.distance for n in known):.2f})" if several else ""
    return f"r² {every[0].correlation:.3f}{r2}   D {every[0].distance:.3f}{d}"


@style.figure_of(
    "How the normality error of a state is measured, on real bars of a trained MC-CLT agent. 1: the bars and their "
    "mean. 2: the spread σᵢ that would put each bar on its quantile, and their mean σ. 3: the bars (filled) against "
    "those of the normal with that mean and spread (hollow, on its CDF); the error E is the sum of the squared gaps."
)
def error_drawing(results: Results) -> Figure | None:
    """Figure 3 of the paper."""
    agents = [(s, r) for s in results.of("mcclt") for r in s.results if probed_bars(r) is not None]
    if not agents:
        return None
    series, agent = agents[0]
    states = zip(probed(agent, "bars", "t"), map(error_parts, probed(agent, "bars", "values")), strict=True)
    t, parts = max(states, key=lambda state: state[1].error)
    n = len(parts.bars)
    figure, ((bars, sigmas, gaps),) = style.grid(1, 3, max(2.6, 0.28 * n + 1.2), sharey=True)
    bars.set_yticks(range(n), [f"q{_subscript(i)}   Z = {z:+.2f}".replace("-", "−") for i, z in enumerate(parts.z)])
    bars.set_ylim(-1, n)
    _lollipops(bars, parts.bars, parts.mean)
    style.heading(bars, "1  Bars and their mean", f"\nmean of the qᵢ = {_short(parts.mean)}")
    _lollipops(sigmas, parts.sigmas, parts.sigma)
    note = f"σᵢ = (qᵢ − mean) / Zᵢ\ntheir mean σ = {_short(parts.sigma)}"
    style.heading(sigmas, "2  The spread of each", note)
    _gaps_panel(gaps, parts)
    note = f"q′ᵢ = mean + σ Zᵢ\nE = Σ (qᵢ − q′ᵢ)² = {_short(parts.error)}"
    style.heading(gaps, "3  Gaps to that normal", note)
    for ax, name in ((bars, "value"), (sigmas, "σᵢ"), (gaps, "value")):
        ax.set_xlabel(name)
        ax.grid(visible=False, axis="x")
    entries: list[tuple[str, dict[str, Any]]] = [
        ("bars qᵢ", {"color": style.colour("mcclt"), "marker": "o", "linewidth": 0}),
        ("the normal and its bars q′ᵢ", {"color": style.NORMAL, "marker": "o", "fillstyle": "none", "linewidth": 1.1}),
        ("gaps, squared on the right", {"color": style.GAP}),
    ]
    style.axis_names(figure, f"{series.task} · {style.agent_name(series, agent)} · step {t:.0f}")
    style.legend(figure, entries)
    return figure


def _lollipops(ax: Axes, values: np.ndarray, middle: float) -> None:
    ax.axvline(middle, **style.REFERENCE)
    ax.hlines(range(len(values)), middle, values, color=style.colour("mcclt"), alpha=0.45, linewidth=2.5)
    ax.plot(values, range(len(values)), "o", color=style.colour("mcclt"))


def _gaps_panel(ax: Axes, parts: beliefs.ErrorParts) -> None:
    """Row i is the probability (i+1)/(N+1), so that the normal's CDF runs through its bars."""
    n = len(parts.bars)
    reach = 2.6 * abs(parts.sigma)
    x = np.linspace(min(parts.bars.min(), parts.mean - reach), max(parts.bars.max(), parts.mean + reach), 200)
    if parts.sigma > 0:
        ax.plot(x, (n + 1) * ndtr((x - parts.mean) / parts.sigma) - 1, color=style.NORMAL, linewidth=1.1)
    ax.hlines(range(n), parts.bars, parts.guide, color=style.GAP, linewidth=2.5)
    ax.plot(parts.guide, range(n), "o", markerfacecolor="none", markeredgecolor=style.NORMAL, markersize=8)
    ax.plot(parts.bars, range(n), "o", color=style.colour("mcclt"), markersize=5)
    beside = ax.get_yaxis_transform()
    for i, gap in enumerate(parts.bars - parts.guide):
        ax.text(1.02, i, _short(gap**2), transform=beside, va="center", color=style.GAP)


def _subscript(i: int) -> str:
    return str(i).translate(str.maketrans("0123456789", "₀₁₂₃₄₅₆₇₈₉"))


def _short(x: float) -> str:
    """Three significant digits, without an exponent where that reads well."""
    return f"{x:,.0f}" if 1000 <= abs(x) < 1e6 else f"{x:.3g}"
