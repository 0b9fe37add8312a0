"""How many agents fit on a GPU."""

from mcclt.config import AgentConfig, RunConfig
from mcclt.envs.api import EnvSpec

SHARE = 0.5
"""Of the memory that a population may plan with: physics, evaluation and compiled programs need some too."""


def agent_bytes(config: RunConfig, agent: AgentConfig, spec: EnvSpec) -> int:
    """About what one agent of a population needs.

    Its rollout twice (collected, and flattened to learn from), B (2 O + D + 3) numbers each; and the activations of
    its critic's layers on the whole batch, forward and backward, 2 B Σ width. Members share the batch, so they count
    as one; a variance network of its own counts as much as the bars'. On an H200, 300 agents, 100 of which learn at a
    time, took 1.9, 2.1 and 3.6 GB on Hopper, HalfCheetah and Ant-v5; this gives 1.9, 2.0 and 3.7.
    """
    batch = config.steps_per_update
    rollout = batch * (2 * spec.obs_size + spec.action_size + 3)
    networks = 2 if agent.critic == "normal" and agent.trunk == "separate" else 1
    activations = 2 * batch * networks * sum(agent.critic_hidden)
    if agent.critic == "quantile":  # all bars against all target atoms, or against their own
        activations += batch * agent.n_quantiles * (agent.n_quantiles if agent.qr_target == "bellman" else 2)
    return 4 * (2 * rollout + activations)


def agents_that_fit(largest: int, total: int) -> int:
    """How many agents of `largest` bytes go into a GPU of `total` bytes; at least one, to try."""
    return max(1, int(SHARE * total) // largest)


def gpu_bytes() -> int | None:
    """Memory of the GPU that JAX computes on, as far as it may use it; None if it does not say."""
    import jax

    stats = jax.devices()[0].memory_stats() or {}
    return stats.get("bytes_limit")
