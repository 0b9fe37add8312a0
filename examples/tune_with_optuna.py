"""Tuning with Optuna: every trial trains several seeds together, and bad trials are stopped early.

The objective is the mean evaluation return over a population of seeds, because a setting that is good for one seed may
be luck. Each evaluation during training is reported to Optuna, which prunes the trials that fall behind the others.

    python examples/tune_with_optuna.py                                             (pip install '.[optuna]')
    python examples/tune_with_optuna.py --task Hopper-v5 --steps 300000 --n-seeds 5 --trials 100 --storage sqlite:///tune.db

With --storage a study is kept, continued by the same command, and shared by all processes that are given it.
"""

import itertools
from typing import Any

import numpy as np
import tyro

from mcclt import PPO
from mcclt.errors import MissingExtraError

try:
    import optuna
except ImportError:
    raise MissingExtraError("Tuning", "optuna") from None


class ReportToOptuna:
    """An observer of the training: tells a trial of every evaluation, and ends the training if it is to be pruned."""

    def __init__(self, trial: optuna.Trial) -> None:
        self.trial = trial
        self.value = -np.inf

    def on_update(self, trainer: Any, rows: list[dict[str, Any]]) -> None:
        """`rows` has one row per seed (and update); those of an evaluation have its mean return."""
        evaluated = (row for row in rows if "eval/mean_reward" in row)
        for step, seeds in itertools.groupby(evaluated, lambda row: row["step"]):
            self.value = float(np.mean([row["eval/mean_reward"] for row in seeds]))
            self.trial.report(self.value, step)
            if self.trial.should_prune():
                raise optuna.TrialPruned

    def on_message(self, text: str) -> None:
        """Something a person should read, such as an environment that failed."""
        print(text)


def main(
    task: str = "InvertedDoublePendulum-v5",
    steps: int = 12_800,
    n_seeds: int = 2,
    trials: int = 5,
    storage: str | None = None,
    steps_per_update: int = 1_600,
) -> optuna.Study:
    """Tunes PPO's step sizes, trust region and discount, and how much the weights may differ.

    Args:
        task: any task.
        steps: environment steps of each agent.
        n_seeds: agents per trial.
        trials: how many settings to try.
        storage: a database that keeps the study, such as sqlite:///tune.db; unset: memory.
        steps_per_update: steps an agent collects before it learns.

    Returns:
        The study.
    """

    def objective(trial: optuna.Trial) -> float:
        model = PPO(
            task,
            seed=range(n_seeds),
            learning_rate=trial.suggest_float("learning_rate", 1e-4, 3e-3, log=True),
            critic_learning_rate=trial.suggest_float("critic_learning_rate", 3e-4, 1e-2, log=True),
            target_kl=trial.suggest_float("target_kl", 0.003, 0.05, log=True),
            gamma=1 - trial.suggest_float("one_minus_gamma", 0.003, 0.05, log=True),
            w_min=trial.suggest_float("w_min", 0.2, 0.8),
            steps_per_update=steps_per_update,
            critic_hidden=(64, 64),
            critic_iterations=20,
            eval_freq=max(steps // 4, 1),  # four reports, the last one at the end
        )
        report = ReportToOptuna(trial)
        model.learn(steps, callback=report)
        return report.value

    optuna.logging.set_verbosity(optuna.logging.WARNING)
    study = optuna.create_study(
        study_name=f"mcclt-{task}",
        storage=storage,
        load_if_exists=True,
        direction="maximize",
        sampler=optuna.samplers.TPESampler(seed=0),
        pruner=optuna.pruners.MedianPruner(n_startup_trials=2),
    )

    def say(study: optuna.Study, trial: optuna.trial.FrozenTrial) -> None:
        last = max(trial.intermediate_values)
        print(f"trial {trial.number}: {trial.state.name.lower():8} {trial.value:8.1f} at step {last:,}")

    study.optimize(objective, n_trials=trials, callbacks=[say])
    print(f"Best mean return over {n_seeds} seeds: {study.best_value:.1f} with")
    for name, value in study.best_params.items():
        print(f"  {name} = {value:.3g}")
    print("(Its own seeds chose it: train the best settings with new ones before you believe the figure.)")
    return study


if __name__ == "__main__":
    tyro.cli(main)
