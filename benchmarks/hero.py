"""Draws the first picture of README.md: what this library is good at, from what was measured.

    python benchmarks/hero.py

Speed beside other libraries is of `benchmarks/results/peers.json`, on a GPU of `benchmarks/results/bench`, intervals of
the store `results`.
"""

import json
from pathlib import Path
from typing import Any

import numpy as np

from mcclt.experiments import figures
from mcclt.experiments.analysis.calibration import LEVELS, calibration_of
from mcclt.experiments.figures import style
from mcclt.experiments.results import Results, variant_label
from mcclt.experiments.store import Store

ROOT = Path(__file__).resolve().parent.parent
MEASURED = ROOT / "benchmarks" / "results"
PEERS = {
    "stable-baselines3 PPO": "Stable-Baselines3\nPPO",
    "sbx-rl PPO": "SBX PPO\n(JAX)",
    "sb3-contrib TRPO": "sb3-contrib\nTRPO",
}
ON_GPU = ("HalfCheetah-v4", "Hopper-v5", "Ant-v5")
LABELLED: dict[str, tuple[int, tuple[int, int], str]] = {
    "mcclt": (1, (4, -6), "top"),
    "ensemble": (0, (4, -9), "top"),
    "qr": (0, (-4, 7), "bottom"),
}
"""Of each line, which point its name is at, how far from it, and on which side."""
BLUE, GREY = style.colour("mcclt"), style.colour("plain")


@style.figure_of("What mcclt is good at: speed on a CPU, many agents on a GPU, spreads that describe returns.")
def hero(results: Results) -> Any:
    """Three panels: beside other libraries, on a GPU, and the intervals of critics."""
    figure, (fast, many, right) = style.panels([2.7] * 3)
    beside_peers(fast)
    on_gpu(many)
    intervals(right, results)
    return figure


def beside_peers(ax: Any) -> None:
    """Steps per second of each peer and of mcclt at its settings, in the same run."""
    rows = {row["name"]: row for row in json.loads((MEASURED / "peers.json").read_text())["rows"]}
    for y, name in enumerate(PEERS):
        peer = rows[name]
        ours = rows[peer["ours_equal"]]["steps_per_second"]
        ax.barh(y - 0.19, ours, 0.34, color=BLUE)
        ax.barh(y + 0.19, peer["steps_per_second"], 0.34, color=GREY)
        ax.annotate(f"{peer['ours_times_as_fast']:.1f} ×", (ours, y - 0.19), (-4, 0), **INSIDE)
    ax.set_yticks(range(len(PEERS)), PEERS.values())
    ax.set_xlabel("steps per second")
    finish(ax, "Faster on two cores", "at the other's settings")


def on_gpu(ax: Any) -> None:
    """Steps per second of whole trainings of 300 agents."""
    for y, task in enumerate(ON_GPU):
        found = json.loads((MEASURED / "bench" / "warp.json").read_text())[task]
        assert (found["agents"], found["device"]) == (300, "NVIDIA H200"), "the heading says so"
        ax.barh(y, found["steps_per_second"], 0.5, color=BLUE)
        look = {**INSIDE, "ha": "left", "color": style.INK} if found["steps_per_second"] < 4e5 else INSIDE
        place = (4, 0) if look is not INSIDE else (-4, 0)
        ax.annotate(f"{found['steps_per_second'] / 1000:,.0f}k", (found["steps_per_second"], y), place, **look)
    ax.set_yticks(range(len(ON_GPU)), [task.partition("-")[0] for task in ON_GPU])
    ax.set_xlabel("steps per second, all agents")
    ax.xaxis.set_major_formatter(lambda x, _: f"{x / 1000:.0f}k" if x else "0")
    finish(ax, "300 agents at once", "on one NVIDIA H200")


def intervals(ax: Any, results: Results) -> None:
    """Shares of returns inside the intervals that critics predict: means over tasks."""
    ax.axline((0.5, 0.5), slope=1, **style.REFERENCE)
    for variant in LABELLED:
        shares = [list(one.coverage.values()) for s in results.of(variant) if (one := calibration_of(s)) is not None]
        means = np.mean(shares, axis=0)
        ax.plot(LEVELS, means, "o-", color=style.colour(variant), linewidth=1.4, markersize=5)
        at, place, va = LABELLED[variant]
        ax.annotate(
            variant_label(variant) + " (authors' code)" * (variant == "qr"),
            (LEVELS[at], means[at]),
            place,
            textcoords="offset points",
            va=va,
            color=style.colour(variant),
            fontweight="bold",
        )
    ax.set_xticks(LEVELS, [f"{level:.0%}" for level in LEVELS])
    ax.set(ylim=(0, 1.15), xlim=(0.47, 1))
    ax.set_yticks([0, 0.5, 1], ["0", "50%", "100%"])
    ax.set_xlabel("predicted interval")
    style.heading(ax, "Spreads that hold", "share of returns inside")


INSIDE: dict[str, Any] = {
    "textcoords": "offset points",
    "ha": "right",
    "va": "center",
    "color": "white",
    "fontweight": "bold",
}


def finish(ax: Any, title: str, note: str) -> None:
    """A panel of bars."""
    ax.invert_yaxis()
    ax.grid(visible=False, axis="y")
    ax.locator_params(axis="x", nbins=3)
    style.heading(ax, title, note)


def main() -> None:
    path = ROOT / "docs" / "images" / "hero.png"
    path.write_bytes(figures.written(hero(Store(ROOT / "results").load()), "png"))
    print(path)


if __name__ == "__main__":
    main()
