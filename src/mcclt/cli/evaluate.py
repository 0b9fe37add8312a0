"""`mcclt evaluate`."""

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

from tyro.conf import Positional

from mcclt.cli.command import Command
from mcclt.cli.tables import evaluation_data, show_returns
from mcclt.config.values import require


@dataclass(frozen=True, kw_only=True)
class Evaluate(Command):
    """Run deterministic episodes with a trained model.

    mcclt evaluate runs/Hopper-v5__ppo-mcclt__20260101-120000 --episodes 100
    """

    model: Annotated[Path, Positional]
    """A saved model, a run directory, or a pretrained agent, zoo:TASK (`mcclt zoo` lists them)."""
    episodes: int = 100
    """Episodes per agent."""
    task: str | None = None
    """Another task with the same spaces; unset: the one it was trained on."""
    json: bool = False
    """Print JSON instead of a table."""

    def run(self) -> None:
        """Evaluates every agent of every group."""
        require(self.episodes >= 1, f"episodes = {self.episodes}", "at least 1")
        import numpy as np

        from mcclt.training.model import evaluate_policy, load
        from mcclt.training.saved import read_model

        _, meta, _ = read_model(self.model)
        agents, rows, steps = [], [], []
        for group in meta["config"]["groups"]:
            model = load(self.model, group=group)
            for seed in model.seeds:
                returns, lengths = evaluate_policy(
                    model, self.task, self.episodes, return_episode_rewards=True, seed=seed, n_envs=model.config.n_envs
                )
                agents.append((group, seed))
                rows.append(returns)
                steps.append(lengths)
        if self.json:
            print(json.dumps(evaluation_data(agents, rows, steps)))
        else:
            show_returns(self.console, agents, np.array(rows))
