"""The demo: plain PPO and MC-CLT PPO on InvertedDoublePendulum-v5, several seeds each, side by side.

Prints the returns, and what MC-CLT believes about one state, as text and as a picture; and writes a report of the
comparison, as `mcclt compare` does. Settings are smaller than the paper's so that it ends within about three
minutes on two cores.

    python examples/demo.py
    python examples/demo.py --steps 1000000 --n-seeds 10 --out runs/demo
"""

import dataclasses
import shutil
import time
from pathlib import Path

import gymnasium as gym
import numpy as np
import tyro
from rich.console import Console
from rich.table import Table

import mcclt
from mcclt.cli.display import PlanDisplay
from mcclt.cli.tables import show_returns
from mcclt.config import AgentConfig, RunConfig
from mcclt.config.variants import VARIANTS
from mcclt.experiments.setups import Setup
from mcclt.experiments.store import Store
from mcclt.experiments.training import train_unit
from mcclt.experiments.units import Unit
from mcclt.pages import report

TASK = "InvertedDoublePendulum-v5"


def setup(variant: str, steps: int) -> Setup:
    agent = AgentConfig(**VARIANTS[variant], critic_hidden=(64, 64), critic_iterations=40)
    run = RunConfig(TASK, steps=steps, steps_per_update=2_000, eval_freq=20_000, eval_episodes=5, final_episodes=20)
    return Setup(variant, dataclasses.replace(run, groups={f"ppo-{variant}": agent}))


def main(steps: int = 80_000, n_seeds: int = 4, out: Path = Path("demo")) -> None:
    """The whole demo.

    Args:
        steps: environment steps of each agent.
        n_seeds: agents per variant.
        out: where run, picture and report go; what a demo left there before is removed.
    """
    console = Console(highlight=False)
    started = time.perf_counter()
    for old in ("run", "store", "report"):
        shutil.rmtree(out / old, ignore_errors=True)
    unit = Unit((setup("plain", steps), setup("mcclt", steps)), tuple(range(n_seeds)))
    console.print(f"Training plain PPO and MC-CLT PPO on {TASK}: {n_seeds} seeds each, all in one population.")
    store = Store(out / "store", create=True)
    with PlanDisplay(console, quiet=False) as display:
        display.begin(len(unit.cells), len(unit.cells) * unit.config.steps)
        display.unit_began(unit)
        outcome = train_unit(unit, out / "run", lambda step, text: display.progress(unit.name, step, text))
        for own, result in outcome.results:
            store.write(own, result)
        display.unit_ended(unit, len(outcome.results))
    returns = np.array([result.returns for _, result in outcome.results])
    show_returns(console, [(own.name, result.seed) for own, result in outcome.results], returns)
    console.print("(Few steps and seeds: a first look, not a result. docs/results.md has those.)\n")

    best = int(np.argmax(returns[n_seeds:].mean(axis=1)))
    model = mcclt.load(out / "run", group="ppo-mcclt")
    state, true_return = play(model, best)
    distribution = model.value_distribution(state, seed=best)
    describe(console, distribution, true_return)
    picture = draw(distribution, true_return, out / "value_distribution.png")
    page = report.write(store.load(), out / "report")
    console.print(f"Picture: {picture}   Run directory: {out / 'run'}")
    console.print(f"Report: {page}   (open it in a browser)   {time.perf_counter() - started:.0f} s")


def play(model: mcclt.PPO, seed: int) -> tuple[np.ndarray, np.ndarray]:
    """A first state of an episode, and the discounted returns that really follow it, over 100 episodes.

    All episodes start from the same state and differ by the policy's noise alone.
    """
    count, gamma = 100, model.config.groups["ppo-mcclt"].gamma
    envs = gym.make_vec(TASK, num_envs=count, vectorization_mode="sync")
    first, _ = envs.reset(seed=[12] * count)
    obs, total, running, discount = first, np.zeros(count), np.ones(count, bool), 1.0
    for _ in range(400):  # γ^400 < 2 %
        action, _ = model.predict(obs, seed=seed)
        obs, reward, terminated, truncated, _ = envs.step(action)
        total += discount * reward * running
        running &= ~(terminated | truncated)
        discount *= gamma
    envs.close()
    return first[0], total


def describe(console: Console, distribution: mcclt.ValueDistribution, returns: np.ndarray) -> None:
    """The bars as text, longest for the largest."""
    table = Table(title="What MC-CLT believes about the first state of an episode", title_justify="left")
    for column in ("quantile", "bar", ""):
        table.add_column(column, justify="left" if column == "" else "right")
    low, high = distribution.bars.min(), distribution.bars.max()
    for tau, bar in zip(distribution.taus, distribution.bars, strict=True):
        table.add_row(f"{tau:.2f}", f"{bar:.1f}", "█" * int(1 + 40 * (bar - low) / (high - low + 1e-9)))
    console.print(table)
    console.print(
        f"mean {distribution.mean:.1f}, std {distribution.std:.1f}, normality error {distribution.error:.3g}, "
        f"weight {distribution.weight:.2f}; {len(returns)} real episodes from this state: "
        f"mean {np.mean(returns):.1f}, std {np.std(returns):.1f}"
    )


def draw(distribution: mcclt.ValueDistribution, returns: np.ndarray, path: Path) -> Path:
    """Bars, the normal they stand for, and the returns that really followed."""
    import matplotlib

    matplotlib.use("Agg")
    import matplotlib.pyplot as plt
    from scipy.stats import norm

    figure, (left, right) = plt.subplots(1, 2, figsize=(7.8, 3.2), layout="constrained")
    mean, std = float(distribution.mean), float(distribution.std)
    left.bar(distribution.taus, distribution.bars, width=0.08, color="#446fff", alpha=0.8)
    left.set(xlabel="quantile", ylabel="discounted return", title=f"The {len(distribution.bars)} quantile bars")
    left.set_ylim(*_around([*distribution.bars, mean]))
    left.axhline(mean, color="black", linewidth=1, linestyle=":")
    grid = np.linspace(*_around([mean - 3 * std, mean + 3 * std, *returns]), 400)
    right.hist(returns, bins=25, density=True, color="#adb5bd", label=f"{len(returns)} real episodes")
    right.plot(grid, norm.pdf(grid, mean, std), color="#446fff", label=f"believed: {mean:.0f} ± {std:.0f}")
    right.set(xlabel="discounted return", ylabel="density", title="The normal they stand for")
    figure.legend(loc="outside lower right", ncols=2, frameon=False)
    for axis in (left, right):
        axis.spines[["top", "right"]].set_visible(False)
    figure.savefig(path, dpi=150)
    return path


def _around(values: list[float]) -> tuple[float, float]:
    low, high = min(values), max(values)
    margin = 0.15 * (high - low) + 1e-3
    return low - margin, high + margin


if __name__ == "__main__":
    tyro.cli(main)
