"""Does it matter that an agent collects in 16 environments out of lockstep, and not in one as the paper's?

    python benchmarks/one_environment.py train STORE Swimmer-v4 --n-envs 16      # one of six trainings; then
    python benchmarks/one_environment.py show STORE                              # the table and the verdict
    python benchmarks/one_environment.py beside STORE ANOTHER                    # the same setups trained otherwise

The rule, said before anything was trained: ten settings (plain and MC-CLT; PPO on three tasks, TRPO on two), 500,000
steps, seeds 100 to 109, 20 deterministic episodes at the end, native engine. For each setting the difference of means,
16 x 250 steps less 1 x 4,000, over the mean of 1 x 4,000. Sixteen suffice if the mean of the ten relative differences
has a 90 % interval (bootstrap over seeds, within each setting and arm) inside +-10 %, and none of the ten differs by
Welch's test after Holm (5 %). If the interval is wider than that and holds 0, seeds 110 to 129 are added. Otherwise the
paper's preset takes one environment.
"""

import json
from pathlib import Path
from typing import Literal

import numpy as np
import tyro

from mcclt.experiments.analysis import stats
from mcclt.experiments.results import Series
from mcclt.experiments.setups import make_setup
from mcclt.experiments.store import Store

Row = tuple[str, np.ndarray, np.ndarray]
"""What is compared, and the scores [seeds] of both sides."""
TASKS = {"Swimmer-v4": ("ppo",), "HalfCheetah-v4": ("ppo", "trpo"), "Walker2d-v4": ("ppo", "trpo")}
VARIANTS = ("plain", "mcclt")
TOLERANCE = 0.1
STEPS, SEEDS, MORE_SEEDS, EPISODES = 500_000, range(100, 110), range(110, 130), 20


def train(
    store: tyro.conf.Positional[Path],
    task: tyro.conf.Positional[Literal["Swimmer-v4", "HalfCheetah-v4", "Walker2d-v4"]],
    n_envs: Literal[1, 16],
    threads: int | None = None,
    engine: str = "native",
    more_seeds: bool = False,
) -> None:
    """All agents of one task that collect alike, as one population; more seeds: 110 to 129, in place of 100 to 109."""
    from mcclt.cli.display import PlanDisplay
    from mcclt.console import plain_console
    from mcclt.experiments.runner import run_cells
    from mcclt.experiments.workers import InProcess
    from mcclt.training.compilation import use_cache

    use_cache()
    run = {"steps": STEPS, "final_episodes": EPISODES, "eval_episodes": 5, "threads": threads, "engine": engine}
    names = [v if n_envs == 16 else f"{v}@n_envs={n_envs}" for v in VARIANTS]
    setups = [make_setup(task, algo, name, "authors", **run) for algo in TASKS[task] for name in names]
    cells = [(setup, seed) for setup in setups for seed in (MORE_SEEDS if more_seeds else SEEDS)]
    with PlanDisplay(plain_console(), quiet=True) as display:
        tally = run_cells(Store(store, create=True), cells, InProcess(display.progress), display, len(cells), mix=True)
    print(f"{tally.done} computed, {tally.there} already there.", *tally.failures)


def found(store: Path) -> dict[tuple[str, str, str], Series]:
    """What a store has, by task, algorithm and variant."""
    return {(s.task, s.algo, s.variant): s for s in Store(store).load().series}


def relative_difference(a: np.ndarray, b: np.ndarray) -> float:
    """Of the means of scores [n]."""
    return float((a.mean() - b.mean()) / b.mean())


def interval(
    pairs: list[tuple[np.ndarray, np.ndarray]], level: float = 0.9, draws: int = 20_000
) -> tuple[float, float]:
    """Of the mean relative difference over settings, by the percentiles of a bootstrap over seeds."""
    rng = np.random.default_rng(0)

    def means(x: np.ndarray) -> np.ndarray:
        return x[rng.integers(x.size, size=(draws, x.size))].mean(axis=1)

    sampled = []
    for a, b in pairs:
        of_a, of_b = means(a), means(b)
        sampled.append((of_a - of_b) / of_b)
    low, high = np.quantile(np.mean(sampled, axis=0), [(1 - level) / 2, (1 + level) / 2])
    return float(low), float(high)


def show(rows: list[Row], arms: tuple[str, str]) -> str:
    """The table in Markdown, and what is found over all settings."""
    lines = [f"| | {arms[0]} | {arms[1]} | difference | p (Holm) |", "|---|---|---|---|---|"]
    compared = [stats.compare(a, b) for _, a, b in rows]
    adjusted = stats.holm([d.p for d in compared])
    for (name, a, b), d, p in zip(rows, compared, adjusted, strict=True):
        texts = [f"{m.mean:,.0f} ± {m.se:,.0f}" for m in (stats.summarise(a), stats.summarise(b))]
        change = f"{d.difference:+,.0f} ({relative_difference(a, b):+.0%})".replace("-", "−")
        lines.append(f"| {name} | {texts[0]} | {texts[1]} | {change} | {p:.2f} |")
    pairs = [(a, b) for _, a, b in rows]
    mean, (low, high) = float(np.mean([relative_difference(*pair) for pair in pairs])), interval(pairs)
    same = low >= -TOLERANCE and high <= TOLERANCE and min(p for p in adjusted if p is not None) > 0.05
    verdict = "the same within the tolerance" if same else "undecided" if low <= 0 <= high else "different"
    found = f"Mean relative difference {mean:+.1%}, 90 % interval {low:+.1%} to {high:+.1%}: {verdict}."
    return "\n".join([*lines, "", found.replace("-", "−")])


def one_or_sixteen(store: Path) -> list[Row]:
    """Sixteen environments beside one.

    Of Walker2d with one there are only evaluations during training: there both sides are the last of these, of 5
    episodes.
    """
    ours, rows = found(store), []
    unfinished: dict[tuple[str, int], float] = {}
    if (file := store / "walker2d-one-environment.json").exists():
        for group, seed, step, value in json.loads(file.read_text(encoding="utf-8"))["rows"]:
            if step == STEPS:
                unfinished[group, seed] = value
    for (task, algo, variant), series in ours.items():
        name = f"{algo.upper()} on {task}: {series.label}"
        if other := ours.get((task, algo, f"{variant}@n_envs=1")):
            rows.append((name, series.scores, other.scores))
        elif single := [v for (group, _), v in unfinished.items() if group == f"{algo}-{variant}@n_envs=1"]:
            _, values = series.curve("eval/mean_reward")
            rows.append((f"{name} (evaluations during training)", values[:, -1], np.array(single)))
    return rows


def beside(store: Path, another: Path) -> list[Row]:
    """The same setups in two stores."""
    ours, others = found(store), found(another)
    return [
        (f"{algo.upper()} on {task}: {series.label}", series.scores, others[task, algo, variant].scores)
        for (task, algo, variant), series in ours.items()
        if (task, algo, variant) in others
    ]


def show_arms(store: tyro.conf.Positional[Path]) -> None:
    """Prints the table and the verdict on sixteen environments beside one."""
    print(show(one_or_sixteen(store), ("16 x 250", "1 x 4,000")))


def show_stores(store: tyro.conf.Positional[Path], another: tyro.conf.Positional[Path]) -> None:
    """Prints the same of two stores with the same setups."""
    print(show(beside(store, another), (store.name, another.name)))


if __name__ == "__main__":
    commands = {"train": train, "show": show_arms, "beside": show_stores}
    tyro.extras.subcommand_cli_from_dict(commands, description=__doc__)
