"""How many agents fit on a GPU."""

import jax
import jax.numpy as jnp

from mcclt.config import AgentConfig, RunConfig
from mcclt.envs.api import EnvSpec
from mcclt.method.critics import Batch, divide, total_loss
from mcclt.method.learner import Learner

SHARE = 0.5
"""Of the memory that a population may plan with: physics, evaluation and compiled programs need some too."""


def agent_bytes(config: RunConfig, agent: AgentConfig, spec: EnvSpec) -> int:
    """About what one agent of a population needs, whatever its critic.

    Its rollout twice (collected, and flattened to learn from), B (2 O + D + 3) numbers each; and the numbers that the
    loss of its critic keeps for the backward pass, which JAX tells without computing any. On an H200, 300 agents, 100
    of which learn at a time, took 1.9, 2.1 and 3.6 GB on Hopper, HalfCheetah and Ant-v5; this gives 2.0, 2.2 and 4.1.
    """
    batch, critic = config.steps_per_update, Learner(agent, spec).critic

    def backward(key: jax.Array, obs: jax.Array, number: jax.Array) -> object:
        params = critic.init(key, spec.obs_size)
        bars = critic.predict(params, obs).bars
        parts = divide(critic, Batch(obs, number, number, number, number, bars, bars), key)
        return jax.vjp(lambda params: total_loss(critic, params, parts), params)[1]

    kept = jax.eval_shape(backward, jax.random.key(0), jnp.zeros((batch, spec.obs_size)), jnp.zeros(batch))
    learning = sum(x.size for x in jax.tree.leaves(kept) if jnp.issubdtype(x.dtype, jnp.floating))
    return 4 * (2 * batch * (2 * spec.obs_size + spec.action_size + 3) + learning)


def agents_that_fit(largest: int, total: int) -> int:
    """How many agents of `largest` bytes go into a GPU of `total` bytes; at least one, to try."""
    return max(1, int(SHARE * total) // largest)


def gpu_bytes() -> int | None:
    """Memory of the GPU that JAX computes on, as far as it may use it; None if it does not say."""
    return (jax.devices()[0].memory_stats() or {}).get("bytes_limit")
