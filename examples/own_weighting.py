"""Your own weighting: inverse-error weights, w = 2 / (1 + E·T), whose mean over every batch is 1.

Where accuracy-seeking weights fall from 1 to `w_min`, these fall from 2 towards 0 as one over the error, in the manner
of inverse-variance weighting; states with a large error count for little, and the batch as a whole for what it
always did. A weighting is one class with two functions and one line that enters it in `WEIGHTINGS`.

    python examples/own_weighting.py
    python examples/own_weighting.py --steps 1000000 --n-seeds 10
    MCCLT_IMPORT=examples/own_weighting.py mcclt train Hopper-v5 --weighting inverse --seeds 0..7
"""

import jax
import jax.numpy as jnp
import numpy as np
import tyro

from mcclt import PPO, evaluate_policy
from mcclt.config import AgentConfig
from mcclt.config.variants import VARIANTS
from mcclt.method.weighting import WEIGHTINGS, Temperature, log_search


class InverseError:
    """w = 2 / (1 + E·T), in (0, 2]. T takes care of the error's scale."""

    needs_error = True

    def __init__(self, config: AgentConfig) -> None:
        del config  # nothing to set: the target is the mean 1

    def raw(self, scaled_error: jax.Array) -> jax.Array:
        """The weight as a function of E·T; falls from 2 to 0, so that a T for the mean 1 exists."""
        return 2 / (1 + scaled_error)

    def search(self, error: jax.Array) -> Temperature:
        """Once per batch: T by the library's scale-free bisection."""
        return log_search(self.raw, error, target=1.0)

    def weights(self, error: jax.Array, temperature: Temperature) -> jax.Array:
        """At any states, with the batch's T; 1 where none was found (all errors 0)."""
        return jnp.where(temperature.found, self.raw(error * temperature.value), 1.0)


WEIGHTINGS["inverse"] = InverseError
VARIANTS["inverse"] = {"critic": "normal", "weighting": "inverse"}  # what `mcclt compare` calls it

SMALL = {"steps_per_update": 1_600, "critic_hidden": (64, 64), "critic_iterations": 20}
"""Less than the paper's settings, so that it is over soon; leave them out for its own."""


def main(
    weightings: tuple[str, ...] = ("accuracy", "inverse"),
    task: str = "InvertedDoublePendulum-v5",
    steps: int = 12_800,
    n_seeds: int = 3,
) -> dict[str, PPO]:
    """Trains MC-CLT's critic with accuracy-seeking and with inverse-error weights, and prints the returns of each.

    Args:
        weightings: what to train with.
        task: any task.
        steps: environment steps of each agent.
        n_seeds: agents per weighting.

    Returns:
        The trained models by weighting.
    """
    models = {}
    for weighting in weightings:
        model = models[weighting] = PPO(task, weighting=weighting, seed=range(n_seeds), **SMALL)
        model.learn(steps)
        returns = [evaluate_policy(model, seed=seed)[0] for seed in model.seeds]
        print(f"{weighting:>8}: mean return {np.mean(returns):.1f}; by seed {np.round(returns, 1)}")
    print("(A few seeds and steps show that it runs and learns, not which is better.)")
    return models


if __name__ == "__main__":
    tyro.cli(main)
