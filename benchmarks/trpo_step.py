"""How far TRPO's step explains what the paper has and we had not.

    python benchmarks/trpo_step.py

Plain TRPO on Walker2d-v4 at 400,000 steps: the authors' published code with its own settings (environment calls adapted
to today's Gymnasium; four seeds) beside ours with the KL of an action's dimensions summed, as the paper has it, and
averaged, as their code does (`kl_over_actions`; with D = 6 that is target_kl = .06 and cg_damping = .6); ours by 10
final episodes, or an evaluation of 5. Then every variant on HalfCheetah-v4 after 1M steps, 30 seeds, both ways.
"""

import json
from pathlib import Path

import numpy as np
import replication

from mcclt.experiments.analysis import stats
from mcclt.experiments.paper import paper_entry
from mcclt.experiments.store import Store

RESULTS = Path(__file__).resolve().parent / "results"
AVERAGED, SUMMED = RESULTS.parent.parent / "results", RESULTS / "trpo-kl-sum"
"""Stores of the same variants with either KL."""
AT = 400_000
NAMES = {
    "plain@cg_damping=0.6+target_kl=0.06": "ours, averaged",
    "plain@cg_damping=0.6+critic_hidden=64,64+kl_direction=new_old+target_kl=0.06+value_target=monte_carlo": (
        "ours, averaged, and KL(new‖old), Monte-Carlo targets and critic width as theirs"
    ),
}


def rows() -> dict[str, np.ndarray]:
    """Scores [seeds] at 400,000 steps."""
    theirs = json.loads((RESULTS / "authors-code" / "walker2d-trpo-plain.json").read_text(encoding="utf-8"))
    found = {"the authors' code": np.array([value for _, step, value in theirs["evaluations"] if step == AT])}
    for series in Store(RESULTS / "one-environment").load().series:
        if (series.task, series.algo, series.variant) == ("Walker2d-v4", "trpo", "plain"):
            steps, values = series.curve("eval/mean_reward")
            found["ours, summed"] = values[:, np.flatnonzero(steps == AT)[0]]
    for series in Store(RESULTS / "trpo-step").load().series:
        found[NAMES[series.variant]] = series.scores
    return found


def table() -> str:
    """In Markdown."""
    lines = ["| plain TRPO on Walker2d-v4 | each seed | mean |", "|---|---|---|"]
    for name, scores in rows().items():
        each = ", ".join(f"{x:,.0f}" for x in np.sort(scores))
        lines.append(f"| {name} | {each} | {scores.mean():,.0f} |")
    return "\n".join(lines)


def on_halfcheetah() -> str:
    """Every variant with the KL summed and averaged beside the paper, in Markdown; Welch's 95 % intervals."""
    summed, averaged = replication.found(SUMMED), replication.found(AVERAGED)
    lines = ["| TRPO on HalfCheetah-v4 | summed | averaged | difference | paper |", "|---|---|---|---|---|"]
    for key, series in averaged.items():
        if key[:2] == ("HalfCheetah-v4", "trpo"):
            entry, difference = paper_entry(*key), stats.compare(series.scores, summed[key].scores)
            assert entry is not None
            change = f"{difference.difference:+,.0f} [{difference.low:+,.0f}, {difference.high:+,.0f}]"
            means = f"{replication.mean(summed[key].scores)} | {replication.mean(series.scores)}"
            lines.append(f"| {series.label} | {means} | {change} | {entry['mean']:,.0f} |")
    return "\n".join(lines)


if __name__ == "__main__":
    print(table(), on_halfcheetah(), sep="\n\n")
