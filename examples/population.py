"""A population of seeds: several agents train together in one process, each exactly as if it were alone.

One result says little in reinforcement learning; `seed=[0, 1, 2]` costs one start-up and one compilation, and gives
all of them. Every agent can be asked, saved and trained further by itself.

    python examples/population.py
    python examples/population.py --task Hopper-v5 --steps 1000000 --n-seeds 16
"""

import tempfile
from pathlib import Path

import numpy as np
import tyro

import mcclt
from mcclt import PPO, evaluate_policy
from mcclt.experiments.analysis.aggregates import iqm


def main(task: str = "InvertedDoublePendulum-v5", steps: int = 16_000, n_seeds: int = 4) -> bool:
    """Trains a population, then one of its seeds alone, and compares.

    Args:
        task: any task.
        steps: environment steps of each agent.
        n_seeds: how many agents.

    Returns:
        Whether the agent that trained alone plays exactly the same episodes.
    """
    small = {"steps_per_update": 1_600, "critic_hidden": (64, 64), "critic_iterations": 20}
    model = PPO(task, seed=range(n_seeds), **small).learn(steps)
    returns = np.array([evaluate_policy(model, seed=seed)[0] for seed in model.seeds])
    error = returns.std(ddof=1) / np.sqrt(n_seeds) if n_seeds > 1 else np.nan
    print(f"Returns by seed: {np.round(returns, 1)}")
    print(f"Mean {returns.mean():.1f} ± {error:.1f} (standard error), interquartile mean {iqm([returns]):.1f}.")

    best = int(returns.argmax())
    with tempfile.TemporaryDirectory() as folder:  # one agent taken out, saved and read back
        loaded = mcclt.load(model.for_seed(best).save(Path(folder) / "best"))
    print(f"The best of them, seed {best}, by itself: return {evaluate_policy(loaded)[0]:.1f}.")

    last = model.seeds[-1]
    alone = PPO(task, seed=last, **small).learn(steps)
    played = [evaluate_policy(m, seed=last, return_episode_rewards=True) for m in (model, alone)]
    same = played[0] == played[1]  # returns and lengths of ten episodes, to the last digit
    print(f"Seed {last} trained alone plays {'exactly the same' if same else 'other'} episodes.")
    return same


if __name__ == "__main__":
    tyro.cli(main)
