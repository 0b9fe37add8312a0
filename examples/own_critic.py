"""Your own critic: a Gaussian one, with one network that puts out a mean and a log-variance for every state.

A critic is one class with three functions (fresh parameters, prediction, loss) and one line that enters it in
`CRITICS`. Every weighting, policy update, population, checkpoint and command then knows it by its name.

    python examples/own_critic.py
    python examples/own_critic.py --steps 1000000 --n-seeds 10
    MCCLT_IMPORT=examples/own_critic.py mcclt compare Hopper-v5 --variants plain,gaussian --n-seeds 10
"""

import jax
import jax.numpy as jnp
import numpy as np
import tyro

from mcclt import PPO, evaluate_policy
from mcclt.config.variants import VARIANTS
from mcclt.method import losses, normal
from mcclt.method.critics import CRITICS, Batch, Critic, Prediction
from mcclt.method.nets import Params


class Gaussian(Critic):
    """The return from a state is N(μ(s), σ²(s)); its error is σ: trust states whose return is nearly certain."""

    has_error = True
    error_name = "Predicted deviation"
    default_weighting = "accuracy"

    def init_member(self, key: jax.Array, obs_size: int) -> Params:
        """One network with two outputs."""
        return self.init_network(key, obs_size, 2)

    def mean_and_variance(self, params: Params, obs: jax.Array) -> tuple[jax.Array, jax.Array]:
        """[B] each. The log-variance is kept where its exponential is a sensible number."""
        out = self.network(params, obs)
        return out[:, 0], jnp.exp(jnp.clip(out[:, 1], -10.0, 20.0))

    def predict(self, params: tuple[Params, ...], obs: jax.Array) -> Prediction:
        """The mixture of the members' normals (of one, by default), shown as quantile bars."""
        means, variances = map(jnp.stack, zip(*(self.mean_and_variance(p, obs) for p in params), strict=True))
        mean = jnp.mean(means, axis=0)
        std = jnp.sqrt(jnp.mean(variances, axis=0) + jnp.var(means, axis=0))
        bars = mean[:, None] + std[:, None] * normal.z_table(self.config.n_quantiles)[None, :]
        return Prediction(bars, mean, std, error=std)

    def loss(self, params: Params, batch: Batch) -> jax.Array:
        """Squared error for the mean, negative log-likelihood for the variance.

        The likelihood alone would divide the mean's error by σ², and so neglect the states it knows least.
        """
        mean, variance = self.mean_and_variance(params, batch.obs)
        squared = (mean - batch.returns) ** 2
        return jnp.mean(squared + losses.gaussian_nll(jax.lax.stop_gradient(squared), variance))


CRITICS["gaussian"] = Gaussian
VARIANTS["gaussian"] = {"critic": "gaussian", "weighting": "accuracy"}  # what `mcclt compare` calls it

SMALL = {"steps_per_update": 1_600, "critic_hidden": (64, 64), "critic_iterations": 20}
"""Less than the paper's settings, so that it is over soon; leave them out for its own."""


def main(
    critics: tuple[str, ...] = ("plain", "gaussian"),
    task: str = "InvertedDoublePendulum-v5",
    steps: int = 12_800,
    n_seeds: int = 3,
) -> dict[str, PPO]:
    """Trains the built-in scalar critic and the Gaussian one, and prints the returns of each.

    Args:
        critics: what to train.
        task: any task.
        steps: environment steps of each agent.
        n_seeds: agents per critic.

    Returns:
        The trained models by critic.
    """
    models = {}
    for critic in critics:
        model = models[critic] = PPO(task, critic=critic, seed=range(n_seeds), **SMALL)
        model.learn(steps)
        returns = [evaluate_policy(model, seed=seed)[0] for seed in model.seeds]
        print(f"{critic:>8}: mean return {np.mean(returns):.1f}; by seed {np.round(returns, 1)}")
    print("(A few seeds and steps show that it runs and learns, not which is better.)")
    return models


if __name__ == "__main__":
    tyro.cli(main)
