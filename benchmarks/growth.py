"""How the cost of an update grows with seeds, environments, bars, members and width, beside its floor.

    python benchmarks/growth.py --out benchmarks/results/growth.json --picture docs/images/growth.png

The floor of an update is raw stepping plus the floating-point operations that cannot be avoided, at the rate of a large
matrix product (see `mcclt bench`). If the time over the floor does not rise along an axis, nothing grows faster than
its work. The floor is measured beside each value, because machines are shared and noisy.
"""

import dataclasses
import json
import os
import statistics
from pathlib import Path
from typing import Any

import tyro
from rich.console import Console
from rich.table import Table

from mcclt.config import AgentConfig, RunConfig
from mcclt.experiments.bench import gemm_peak, necessary_flops, raw_speed, time_update
from mcclt.experiments.figures import style
from mcclt.training.trainer import Trainer

AXES: dict[str, tuple[int, ...]] = {
    "seeds": (1, 2, 4, 8, 16, 32, 64),
    "environments": (1, 4, 16, 64, 256),
    "bars": (4, 8, 20, 50, 200),
    "members": (1, 2, 5, 10, 20),
    "width": (32, 64, 128, 256, 512),
}
STEPS = 1_024
"""Per update: a multiple of every number of environments, and few, so that 64 seeds end in minutes."""
ITERATIONS = 20
"""Of policy and critic: a quarter of the paper's, so that it ends in minutes."""


def config_of(task: str, axis: str, value: int) -> RunConfig:
    """MC-CLT PPO (members: the ensemble) at the paper's settings but for the iterations and the one that varies."""
    agent = AgentConfig(policy_iterations=ITERATIONS, critic_iterations=ITERATIONS, target_kl=1e9)
    run = RunConfig(task, steps=10**9, steps_per_update=STEPS, eval_freq=0, final_episodes=0)
    match axis:
        case "seeds":
            run = dataclasses.replace(run, seeds=tuple(range(value)))
        case "environments":
            run = dataclasses.replace(run, n_envs=value)
        case "bars":
            agent = dataclasses.replace(agent, n_quantiles=value)
        case "members":
            agent = dataclasses.replace(agent, critic="ensemble" if value > 1 else "plain", members=value)
        case _:
            agent = dataclasses.replace(agent, critic_hidden=(value, value))
    return dataclasses.replace(run, groups={"one": agent})


def measure(task: str, axis: str, repeats: int, console: Console) -> list[dict[str, Any]]:
    """One row per value of an axis."""
    rows: list[dict[str, Any]] = []
    for value in AXES[axis]:
        config = config_of(task, axis, value)
        trainer = Trainer(config)
        trainer.advance()  # compiles
        seconds, floors = [], []
        for _ in range(repeats):
            raw, peak = raw_speed(task, config.n_envs * len(config.seeds)), gemm_peak()
            update = time_update(trainer)
            flops = necessary_flops(trainer.learners["one"], STEPS, update["iterations"])
            seconds.append(update["whole"])
            floors.append(len(config.seeds) * (STEPS / raw + flops / peak))
        trainer.close()
        ratios = [took / floor for took, floor in zip(seconds, floors, strict=True)]
        row = {
            "axis": axis,
            "value": value,
            "seconds": statistics.median(seconds),
            "floor": statistics.median(floors),
            "over_floor": statistics.median(ratios),
        }
        console.print(f"{axis} {value}: {row['seconds']:.2f} s, {row['over_floor']:.2f} times its floor")
        rows.append(row)
    return rows


def show(rows: list[dict[str, Any]], console: Console) -> None:
    """The figures as a table."""
    table = Table("axis", "value", "s per update", "against the first", "floor against the first", "over its floor")
    for row in rows:
        first = next(r for r in rows if r["axis"] == row["axis"])
        table.add_row(
            row["axis"],
            str(row["value"]),
            f"{row['seconds']:.3f}",
            f"{row['seconds'] / first['seconds']:.2f}",
            f"{row['floor'] / first['floor']:.2f}",
            f"{row['over_floor']:.2f}",
        )
    console.print(table)


def draw(rows: list[dict[str, Any]], path: Path) -> None:
    """One panel per axis: time and floor, both logarithmic."""
    from matplotlib.ticker import LogLocator, StrMethodFormatter

    figure, panels = style.panels([2.3] * len(AXES))
    for panel, axis in zip(panels, AXES, strict=True):
        own = [row for row in rows if row["axis"] == axis]
        values = [row["value"] for row in own]
        panel.loglog(values, [row["seconds"] for row in own], "o-", color="#0b6e99", label="measured")
        panel.loglog(values, [row["floor"] for row in own], "s--", color="#888888", label="floor")
        panel.set_title(axis)
        panel.set_xticks(values, [str(v) for v in values])
        panel.yaxis.set_major_locator(LogLocator(subs=(1, 2, 5)))
        panel.yaxis.set_major_formatter(StrMethodFormatter("{x:g}"))
        panel.minorticks_off()
        panel.grid(alpha=0.3)
        panel.spines[["top", "right"]].set_visible(False)
    panels[0].set_ylabel("seconds per update")
    panels[0].legend(frameon=False)
    path.parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(path)


def main(
    task: str = "Hopper-v5",
    axes: str = ",".join(AXES),
    repeats: int = 3,
    out: Path | None = None,
    picture: Path | None = None,
) -> None:
    """Measures along some of the axes, prints, writes."""
    console = Console(highlight=False)
    rows = [row for axis in axes.split(",") for row in measure(task, axis, repeats, console)]
    show(rows, console)
    if out:
        result = {"task": task, "cores": os.cpu_count(), "steps": STEPS, "rows": rows}
        out.write_text(json.dumps(result, indent=1) + "\n")
    if picture:
        draw(rows, picture)


if __name__ == "__main__":
    tyro.cli(main, description=__doc__)
