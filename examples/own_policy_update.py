"""Your own policy update: PPO with a penalty on the KL divergence in place of clipping, adapted as it goes.

The surrogate is mean(w · r · Â) − β · KL(old, new). After an update that went too far β doubles, after one that hardly
moved it is halved (Schulman et al. 2017, section 4). A policy update is one class with two functions and one line that
enters it in `POLICY_UPDATES`; a subclass of `Model` of two lines gives it a name in Python.

    python examples/own_policy_update.py
    python examples/own_policy_update.py --steps 1000000 --n-seeds 10
    MCCLT_IMPORT=examples/own_policy_update.py mcclt compare Hopper-v5 --algo ppo,kl --variants mcclt
"""

from typing import Any, Literal

import jax
import jax.numpy as jnp
import numpy as np
import optax
import tyro

from mcclt import PPO, TRPO, Model, evaluate_policy
from mcclt.config import AgentConfig
from mcclt.method.nets import Params, Policy
from mcclt.method.policy_updates import POLICY_UPDATES, PolicyBatch


class KlPenalty:
    """Full-batch Adam on the penalised surrogate. β lives in the optimiser's state, so checkpoints have it."""

    def __init__(self, config: AgentConfig, policy: Policy) -> None:
        self.config, self.policy = config, policy
        self.optimiser = optax.adam(config.learning_rate)

    def init(self, params: Params) -> Any:
        """Adam's moments and the first β."""
        return self.optimiser.init(params), jnp.ones(())

    def update(self, params: Params, opt_state: Any, batch: PolicyBatch) -> tuple[Params, Any, dict[str, jax.Array]]:
        """`policy_iterations` steps, then a new β."""
        moments, beta = opt_state
        old = self.policy.distribution(params, batch.obs)
        log_prob_old = self.policy.log_prob(old, batch.action)

        def loss(params: Params) -> tuple[jax.Array, jax.Array]:
            new = self.policy.distribution(params, batch.obs)
            ratio = jnp.exp(self.policy.log_prob(new, batch.action) - log_prob_old)
            kl = jnp.mean(self.policy.kl(old, new))
            return beta * kl - jnp.mean(batch.weight * ratio * batch.advantage), kl

        def step(_: int, carry: tuple[Params, Any]) -> tuple[Params, Any]:
            params, moments = carry
            grads, _ = jax.grad(loss, has_aux=True)(params)
            updates, moments = self.optimiser.update(grads, moments)
            return optax.apply_updates(params, updates), moments

        params, moments = jax.lax.fori_loop(0, self.config.policy_iterations, step, (params, moments))
        last, kl = loss(params)
        factor = jnp.where(kl > 1.5 * self.config.target_kl, 2.0, jnp.where(kl < self.config.target_kl / 1.5, 0.5, 1.0))
        metrics = {"train/policy_loss": last, "train/approx_kl": kl, "train/kl_penalty": beta}
        return params, (moments, beta * factor), metrics


POLICY_UPDATES["kl"] = KlPenalty


class KL(Model):
    """Agents that learn by `KlPenalty`."""

    algo = "kl"


SMALL = {"steps_per_update": 1_600, "critic_hidden": (64, 64), "critic_iterations": 20}
"""Less than the paper's settings, so that it is over soon; leave them out for its own."""


def main(
    updates: tuple[Literal["ppo", "trpo", "kl"], ...] = ("ppo", "kl"),
    task: str = "InvertedDoublePendulum-v5",
    steps: int = 12_800,
    n_seeds: int = 3,
) -> dict[str, Model]:
    """Trains with clipping and with the penalty, and prints the returns of each.

    Args:
        updates: the policy updates to train with.
        task: any task.
        steps: environment steps of each agent.
        n_seeds: agents per policy update.

    Returns:
        The trained models by policy update.
    """
    models: dict[str, Model] = {}
    for name in updates:
        cls: type[Model] = {"ppo": PPO, "trpo": TRPO, "kl": KL}[name]
        model = models[name] = cls(task, critic="plain", seed=range(n_seeds), **SMALL)
        model.learn(steps)
        returns = [evaluate_policy(model, seed=seed)[0] for seed in model.seeds]
        print(f"{name:>4}: mean return {np.mean(returns):.1f}; by seed {np.round(returns, 1)}")
    print("(A few seeds and steps show that it runs and learns, not which is better.)")
    return models


if __name__ == "__main__":
    tyro.cli(main)
