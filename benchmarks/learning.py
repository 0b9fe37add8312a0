"""Final returns of finished runs beside the paper's, as a Markdown table and a picture of the curves.

    python benchmarks/learning.py runs/A runs/B ... --picture docs/images/learning.png

Runs of the same task are joined over their seeds. The unit of every spread is the seed: ± is the standard
error of the seeds' means (each over 100 deterministic episodes). The paper's ± seems to be pooled over
30 settings x 100 episodes, so the two are not comparable.
"""

import argparse
import json
from pathlib import Path

import numpy as np

from mcclt.config import VARIANTS
from mcclt.experiments.paper import paper_entry

NAMES = {"plain": "plain", "mcclt": "MC-CLT", "ensemble": "ensemble", "qr": "QR", "mcclt-nw": "MC-CLT w/o w"}


def cells_of(run: Path) -> tuple[str, dict[str, tuple[str, str]]]:
    """The task of a run, and the algorithm and variant of each of its groups (its own name if it is none)."""
    config = json.loads((run / "config.json").read_text())
    cells = {}
    for name, agent in config["groups"].items():
        pair = {"critic": agent["critic"], "weighting": agent["weighting"]}
        variant = next((v for v, parts in VARIANTS.items() if parts == pair and name.endswith(v)), name)
        cells[name] = (agent["algo"], variant)
    return config["task"], cells


def final_returns(runs: list[Path]) -> dict[tuple[str, str, str], dict[int, float]]:
    """(task, algorithm, variant) → seed → mean final return."""
    found: dict[tuple[str, str, str], dict[int, float]] = {}
    for run in runs:
        task, cells = cells_of(run)
        for record in json.loads((run / "evaluation.json").read_text()):
            cell = found.setdefault((task, *cells[record["group"]]), {})
            if record["seed"] in cell:
                raise SystemExit(f"{run}: seed {record['seed']} of {record['group']} on {task} appears twice.")
            cell[record["seed"]] = float(np.mean([x for x in record["returns"] if x is not None]))
    return found


def table(found: dict[tuple[str, str, str], dict[int, float]]) -> str:
    """Markdown: ours, the paper's, and every seed."""
    lines = [
        "| task | algorithm | variant | seeds | ours, mean ± SE over seeds | paper | each seed |",
        "|---|---|---|---|---|---|---|",
    ]
    for (task, algo, variant), cell in found.items():
        x = np.array(list(cell.values()))
        digits = 0 if abs(x.mean()) >= 1000 else 1
        error = x.std(ddof=1) / np.sqrt(len(x)) if len(x) > 1 else float("nan")
        theirs = paper_entry(task, algo, variant)
        quoted = f"{theirs['mean']:.0f} ± {theirs['se']:g}" if theirs else "–"
        seeds = ", ".join(f"{v:.0f}" for _, v in sorted(cell.items()))
        lines.append(
            f"| {task} | {algo.upper()} | {NAMES.get(variant, variant)} | {len(x)} "
            f"| {x.mean():.{digits}f} ± {error:.{digits}f} | {quoted} | {seeds} |"
        )
    return "\n".join(lines)


def draw(runs: list[Path], path: Path) -> None:
    """Deterministic evaluations during training: mean over seeds, with a band of ± one standard error."""
    import matplotlib

    matplotlib.use("Agg")
    import matplotlib.pyplot as plt

    curves: dict[tuple[str, str], dict[str, dict[int, dict[int, float]]]] = {}
    for run in runs:
        task, cells = cells_of(run)
        for line in (run / "metrics.jsonl").read_text().splitlines():
            row = json.loads(line)
            if "eval/mean_reward" in row:
                algo, variant = cells[row["group"]]
                seeds = curves.setdefault((task, algo), {}).setdefault(variant, {})
                seeds.setdefault(row["step"], {})[row["seed"]] = row["eval/mean_reward"]
    tasks = list(dict.fromkeys(task for task, _ in curves))
    figure, axes = plt.subplots(2, len(tasks), figsize=(4.2 * len(tasks), 6), squeeze=False, layout="constrained")
    colours = {"plain": "#7f7f7f", "mcclt": "#d6336c", "ensemble": "#1c7ed6"}
    for (task, algo), variants in curves.items():
        axis = axes[0 if algo == "ppo" else 1, tasks.index(task)]
        for variant, points in variants.items():
            steps = sorted(points)
            values = [np.array(list(points[s].values())) for s in steps]
            mean = np.array([v.mean() for v in values])
            error = np.array([v.std(ddof=1) / np.sqrt(len(v)) if len(v) > 1 else 0.0 for v in values])
            millions = np.array(steps) / 1e6
            colour = colours.get(variant)
            axis.plot(millions, mean, color=colour, label=f"{NAMES.get(variant, variant)} ({len(values[-1])} seeds)")
            axis.fill_between(millions, mean - error, mean + error, color=colour, alpha=0.2, linewidth=0)
        axis.set_title(f"{task}, {algo.upper()}")
        axis.grid(alpha=0.3)
        axis.spines[["top", "right"]].set_visible(False)
        axis.legend(frameon=False, fontsize=8)
    for axis in axes[-1]:
        axis.set_xlabel("million steps")
    for axis in axes[:, 0]:
        axis.set_ylabel("deterministic return")
    path.parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(path, dpi=110)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("runs", nargs="+", type=Path)
    parser.add_argument("--picture", type=Path)
    args = parser.parse_args()
    print(table(final_returns(args.runs)))
    if args.picture:
        draw(args.runs, args.picture)


if __name__ == "__main__":
    main()
