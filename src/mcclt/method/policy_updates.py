"""Policy updates: PPO and TRPO, with a weight per state as an ordinary argument (paper §4.6).

To add one, write a class with the contract of `PolicyUpdate` and enter it in `POLICY_UPDATES`.
"""

from collections.abc import Callable
from typing import Any, NamedTuple, Protocol, final

import jax
import jax.numpy as jnp
from jax.flatten_util import ravel_pytree
from jax.typing import ArrayLike

from mcclt.config import AgentConfig
from mcclt.method import advantages, losses, minibatches, optimisers
from mcclt.method.nets import Params, Policy


class PolicyBatch(NamedTuple):
    """What a policy learns from: one row per state of the batch."""

    obs: jax.Array
    """[B, O]."""
    action: jax.Array
    """[B, D] as drawn (unclipped), or [B] indices."""
    advantage: jax.Array
    """[B] normalised over the batch."""
    weight: jax.Array
    """[B]."""
    key: jax.Array | None = None
    """[] for an update that draws something: what it draws with."""
    progress: ArrayLike | None = 0.0
    """[] how far the decay of learning rates and of the KL has come, 0 to 1."""
    log_prob: jax.Array | None = None
    """[B] of the actions when they were drawn, for a pass of PPO."""


class PolicyUpdate(Protocol):
    """The contract."""

    def init(self, params: Params) -> Any:
        """The optimiser's state."""
        ...

    def update(self, params: Params, opt_state: Any, batch: PolicyBatch) -> tuple[Params, Any, dict[str, jax.Array]]:
        """New parameters, new optimiser state, metrics."""
        ...


class Passes(NamedTuple):
    """PPO under way."""

    steps: jax.Array
    params: Params
    opt_state: Any
    stopped: jax.Array
    """[] whether it is over, for the KL."""
    loss: jax.Array
    """[] before the first step."""
    kl: jax.Array
    """[] before the last step."""
    clipped: jax.Array
    """[] likewise."""


@final
class Ppo:
    """Adam on w · min(r Â, clip(r) Â) + c · entropy, stopped when the mean logp_old − logp exceeds 1.5 · KL.

    Every step takes the whole batch; with `minibatch_size` that many states, whose mean then decides on stopping.
    """

    def __init__(self, config: AgentConfig, policy: Policy) -> None:
        self.config, self.policy = config, policy

    def init(self, params: Params) -> Any:
        """Adam's moments; they live on across updates, as in Spinning Up."""
        return optimisers.ADAM.init(params)

    def loss(self, params: Params, batch: PolicyBatch) -> tuple[jax.Array, tuple[jax.Array, jax.Array, jax.Array]]:
        """(What is minimised, (−mean surrogate, approximate KL, share of clipped ratios))."""
        dist = self.policy.distribution(params, batch.obs)
        log_ratio = self.policy.log_prob(dist, batch.action) - batch.log_prob
        ratio = jnp.exp(log_ratio)
        advantage, clip = batch.advantage, self.config.clip_range
        if self.config.normalize_advantage == "minibatch":
            advantage = advantages.normalised(advantage)
        loss = -jnp.mean(losses.ppo_surrogate(ratio, advantage, batch.weight, clip))
        bonus = self.config.ent_coef * jnp.mean(self.policy.entropy(dist))
        return loss - bonus, (loss, jnp.mean(-log_ratio), jnp.mean(jnp.abs(ratio - 1) > clip))

    def update(self, params: Params, opt_state: Any, batch: PolicyBatch) -> tuple[Params, Any, dict[str, jax.Array]]:
        """At most `policy_iterations` steps or passes."""
        batch = batch._replace(log_prob=self.log_prob(params, batch.obs, batch.action))
        passes, start = self.config.policy_iterations, self.start(params, opt_state)
        return self.finish(self._repeat(passes, lambda i, now: self.one_pass(now, batch), start))

    def log_prob(self, params: Params, obs: jax.Array, action: jax.Array) -> jax.Array:
        """[B] of the actions."""
        return self.policy.log_prob(self.policy.distribution(params, obs), action)

    def start(self, params: Params, opt_state: Any) -> Passes:
        """Before the first pass."""
        zero = jnp.zeros(())
        return Passes(jnp.array(0), params, opt_state, jnp.array(False), zero, zero, zero)

    def finish(self, now: Passes) -> tuple[Params, Any, dict[str, jax.Array]]:
        """What `update` gives, after the last."""
        metrics = {
            "train/policy_loss": now.loss,
            "train/approx_kl": now.kl,
            "train/clip_fraction": now.clipped,
            "train/policy_iterations": now.steps.astype(jnp.float32),
        }
        return now.params, now.opt_state, metrics

    def one_pass(self, now: Passes, batch: PolicyBatch) -> Passes:
        """One pass over a batch with its `log_prob`, or one step on all of it; stops where the KL says so."""
        config, size = self.config, self.config.minibatch_size
        rate = optimisers.decayed(config.learning_rate, config.learning_rate_end, batch.progress)
        limit = None if config.target_kl is None else 1.5 * decayed_kl(config, batch)
        if size is None:
            return self._step(now, batch, rate, limit)
        assert batch.key is not None
        key = jax.random.fold_in(batch.key, now.steps)
        batches = minibatches.shuffled(key, batch._replace(key=None, progress=None), size)
        steps = batch.obs.shape[0] // size
        return self._repeat(
            steps, lambda j, now: self._step(now, jax.tree.map(lambda x: x[j], batches), rate, limit), now
        )

    def _repeat(self, times: int, body: Callable[[Any, Passes], Passes], now: Passes) -> Passes:
        """`body` so many times, but no longer than the KL allows: most updates of the paper use 10 to 70 of 80.

        Without such a limit the number is known beforehand, and a GPU need not ask the host after every step.
        """
        if self.config.target_kl is None:
            return jax.lax.fori_loop(0, times, body, now)
        return jax.lax.while_loop(
            lambda state: (state[0] < times) & ~state[1].stopped,
            lambda state: (state[0] + 1, body(*state)),
            (0, now),
        )[1]

    def _step(self, now: Passes, batch: PolicyBatch, rate: ArrayLike, limit: jax.Array | None) -> Passes:
        config, before = self.config, (now.params, now.opt_state)
        (_, (loss, kl, clipped)), grads = jax.value_and_grad(self.loss, has_aux=True)(now.params, batch)
        # Found before the step: this gradient is not used.
        stopped = jnp.array(False) if limit is None else kl > limit
        after = optimisers.step(now.params, grads, now.opt_state, rate, config.max_grad_norm)
        params, opt_state = jax.tree.map(lambda a, b: jnp.where(stopped, a, b), before, after)
        first = jnp.where(now.steps == 0, loss, now.loss)
        return Passes(now.steps + ~stopped, params, opt_state, stopped, first, kl, clipped)


@final
class Trpo:
    """The natural step of mean(w · r · Â) within mean KL ≤ δ (eq. 10), by conjugate gradients and backtracking.

    One step per update, always on the whole batch: `minibatch_size` concerns the critic alone.
    """

    def __init__(self, config: AgentConfig, policy: Policy) -> None:
        self.config, self.policy = config, policy

    def init(self, params: Params) -> Any:
        """TRPO carries nothing over."""
        del params
        return ()

    def update(self, params: Params, opt_state: Any, batch: PolicyBatch) -> tuple[Params, Any, dict[str, jax.Array]]:
        """One step, or exactly the old parameters where none satisfies the constraint and improves."""
        config, policy = self.config, self.policy
        delta = decayed_kl(config, batch)
        theta, unravel = ravel_pytree(params)
        dist_old = policy.distribution(params, batch.obs)
        log_prob_old = policy.log_prob(dist_old, batch.action)

        def look(theta: jax.Array) -> tuple[jax.Array, Params]:
            """All that the distributions depend on: the network's outputs, and parameters beside it."""
            params = unravel(theta)
            return policy.outputs(params, batch.obs), params

        def gain(theta: jax.Array) -> jax.Array:
            dist = policy.distribution_of(*look(theta))
            ratio = jnp.exp(policy.log_prob(dist, batch.action) - log_prob_old)
            return jnp.mean(losses.trpo_surrogate(ratio, batch.advantage, batch.weight))

        def kl(seen: tuple[jax.Array, Params]) -> jax.Array:
            dist = policy.distribution_of(*seen)
            pair = (dist_old, dist) if config.kl_direction == "old_new" else (dist, dist_old)
            terms = policy.kl_terms if config.kl_over_actions == "mean" else 1
            return jnp.mean(policy.kl(*pair)) / terms

        gain_old, g = jax.value_and_grad(gain)(theta)
        hessian = at_minimum(kl, look, theta)

        def fisher(v: jax.Array) -> jax.Array:
            return hessian(v) + config.cg_damping * v

        x, _ = jax.scipy.sparse.linalg.cg(fisher, g, tol=1e-10, maxiter=config.cg_max_steps)
        curvature = jnp.dot(x, fisher(x))  # xᵀHx; ½ scale² xᵀHx = δ
        scale = jnp.sqrt(2 * delta / (curvature + 1e-8))
        usable = jnp.all(jnp.isfinite(x)) & (curvature > 0)
        full_step = jnp.where(usable, scale, 0.0) * jnp.where(usable, x, 0.0)

        def searching(carry):
            i, _, _, _, accepted = carry
            return (i < config.line_search_max_iter) & ~accepted & usable

        def try_step(carry):
            i, _, _, _, _ = carry
            candidate = theta + config.line_search_shrinking_factor**i * full_step
            new_gain, new_kl = gain(candidate), kl(look(candidate))
            return i + 1, candidate, new_gain, new_kl, (new_kl <= delta) & (new_gain >= gain_old)

        start = (jnp.array(0), theta, gain_old, jnp.zeros(()), jnp.array(False))
        tries, candidate, _, new_kl, accepted = jax.lax.while_loop(searching, try_step, start)
        new_params = unravel(jnp.where(accepted, candidate, theta))
        metrics = {
            "train/policy_loss": -gain_old,
            "train/approx_kl": jnp.where(accepted, new_kl, 0.0),
            "train/policy_iterations": tries.astype(jnp.float32),
            "train/line_search_accepted": accepted.astype(jnp.float32),
        }
        return new_params, opt_state, metrics


def at_minimum(
    function: Callable[[Any], jax.Array], of: Callable[[jax.Array], Any], theta: jax.Array
) -> Callable[[jax.Array], jax.Array]:
    """Products of vectors with the Hessian of function(of(θ)) at a θ where `function` has no gradient.

    There it is JᵀMJ, with J the Jacobian of `of` and M the Hessian of `function`: a third to a half of the time of
    differentiating the gradient, which carries terms that are zero. All is linearised once.
    """
    here, push = jax.linearize(of, theta)
    pull = jax.linear_transpose(push, theta)
    _, curve = jax.linearize(jax.grad(function), here)
    return lambda v: pull(curve(push(v)))[0]


def decayed_kl(config: AgentConfig, batch: PolicyBatch) -> jax.Array:
    """[] target_kl at this update."""
    assert config.target_kl is not None
    return jnp.asarray(optimisers.decayed(config.target_kl, config.target_kl_end, batch.progress))


POLICY_UPDATES: dict[str, type] = {"ppo": Ppo, "trpo": Trpo}
"""Every policy update by the name a user gives it."""
