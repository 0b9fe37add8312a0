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

import argparse
from pathlib import Path

import numpy as np

from mcclt.experiments.analysis import stats
from mcclt.experiments.results import Series
from mcclt.experiments.setups import make_setup
from mcclt.experiments.store import Store

TASKS = {"Swimmer-v4": ("ppo",), "HalfCheetah-v4": ("ppo", "trpo"), "Walker2d-v4": ("ppo", "trpo")}
VARIANTS = ("plain", "mcclt")
TOLERANCE = 0.1
STEPS, SEEDS, EPISODES = 500_000, range(100, 110), 20


def train(store: Path, task: str, n_envs: int, threads: int | None, engine: str, seeds: range) -> None:
    """All agents of one task that collect alike, as one population."""
    from mcclt.cli.display import PlanDisplay
    from mcclt.console import plain_console
    from mcclt.experiments.runner import run_cells
    from mcclt.experiments.workers import InProcess
    from mcclt.training.compilation import use_cache

    use_cache()
    run = {"steps": STEPS, "final_episodes": EPISODES, "eval_episodes": 5, "threads": threads, "engine": engine}
    names = [v if n_envs == 16 else f"{v}@n_envs={n_envs}" for v in VARIANTS]
    setups = [make_setup(task, algo, name, "authors", **run) for algo in TASKS[task] for name in names]
    cells = [(setup, seed) for setup in setups for seed in seeds]
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


def show(rows: list[tuple[str, Series, Series]], arms: tuple[str, str]) -> str:
    """The table in Markdown, and what is found over all settings."""
    lines = [f"| | {arms[0]} | {arms[1]} | difference | p (Holm) |", "|---|---|---|---|---|"]
    compared = [stats.compare(a.scores, b.scores) for _, a, b in rows]
    adjusted = stats.holm([d.p for d in compared])
    for (name, a, b), d, p in zip(rows, compared, adjusted, strict=True):
        means = [stats.summarise(x.scores) for x in (a, b)]
        texts = [f"{m.mean:,.0f} ± {m.se:,.0f} ({m.n})" for m in means]
        relative = relative_difference(a.scores, b.scores)
        lines.append(f"| {name} | {texts[0]} | {texts[1]} | {d.difference:+,.0f} ({relative:+.0%}) | {p:.2f} |")
    pairs = [(a.scores, b.scores) for _, a, b in rows]
    mean, (low, high) = float(np.mean([relative_difference(*pair) for pair in pairs])), interval(pairs)
    same = low >= -TOLERANCE and high <= TOLERANCE and min(p for p in adjusted if p is not None) > 0.05
    verdict = "the same within the tolerance" if same else "undecided" if low <= 0 <= high else "different"
    lines.append(f"\nMean relative difference {mean:+.1%}, 90 % interval {low:+.1%} to {high:+.1%}: {verdict}.")
    return "\n".join(lines).replace("-", "−").replace("|−−−", "|---")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    commands = parser.add_subparsers(dest="command", required=True)
    one = commands.add_parser("train")
    one.add_argument("store", type=Path)
    one.add_argument("task", choices=TASKS)
    one.add_argument("--n-envs", type=int, choices=(1, 16), required=True)
    one.add_argument("--threads", type=int)
    one.add_argument("--engine", default="native")
    one.add_argument("--more-seeds", action="store_true", help="110 to 129, in place of 100 to 109")
    commands.add_parser("show").add_argument("store", type=Path)
    two = commands.add_parser("beside")
    two.add_argument("store", type=Path)
    two.add_argument("another", type=Path)
    args = parser.parse_args()
    if args.command == "train":
        seeds = range(110, 130) if args.more_seeds else SEEDS
        train(args.store, args.task, args.n_envs, args.threads, args.engine, seeds)
        return
    ours = found(args.store)
    others = found(args.another) if args.command == "beside" else ours
    rows = []
    for (task, algo, variant), series in ours.items():
        other = others.get((task, algo, variant if args.command == "beside" else f"{variant}@n_envs=1"))
        if other is not None:
            rows.append((f"{algo.upper()} on {task}: {series.label}", series, other))
    arms = (str(args.store), str(args.another)) if args.command == "beside" else ("16 x 250", "1 x 4,000")
    print(show(rows, arms))


if __name__ == "__main__":
    main()
