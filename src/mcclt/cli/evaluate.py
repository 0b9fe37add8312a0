"""`mcclt evaluate`."""

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

from tyro.conf import Positional

from mcclt.cli.agents import chosen
from mcclt.cli.command import Command
from mcclt.cli.flags import Comma, Seeds
from mcclt.cli.tables import evaluation_data, show_returns
from mcclt.config.values import require


@dataclass(frozen=True, kw_only=True)
class Evaluate(Command):
    """Run deterministic episodes with a trained model.

    mcclt evaluate runs/Hopper-v5__ppo-mcclt__20260101-120000 --episodes 100
    """

    model: Annotated[Path, Positional]
    """A saved model, a run directory, or a pretrained agent, zoo:TASK (`mcclt zoo` lists them)."""
    seeds: Seeds = ()
    """Agents to evaluate; unset: all."""
    groups: Comma = ()
    """Groups to evaluate; unset: all."""
    episodes: int = 100
    """Episodes per agent."""
    task: str | None = None
    """Another task with the same spaces; unset: the one it was trained on."""
    json: bool = False
    """Print JSON instead of a table."""

    def run(self) -> None:
        """Evaluates the agents, and prints their returns."""
        require(self.episodes >= 1, f"episodes = {self.episodes}", "at least 1")
        import numpy as np

        from mcclt.training.model import evaluate_policy

        agents, rows, steps = [], [], []
        for _, group, model, seed in chosen([self.model], self.groups, self.seeds):
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
