"""Observations and rewards on a common scale, by running statistics that are part of the agent.

Networks learn best from inputs and targets of size about 1; tasks give angles beside forces, and rewards of 0.001
or of 1000. With `normalize_obs` an agent sees

    x = clip((s − mean) / √(var + ε), ±CLIP),

mean and var those of every observation that it has acted on; with `normalize_reward` it learns from

    r' = clip(r / √(Var[R] + ε), ±CLIP),   R_t = r_t + γ R_{t−1},   R = 0 before an episode's first step,

Var[R] that of every R so far (rewards are not centred: that would change which episodes are worth having). These are
the formulas of Stable-Baselines3's `VecNormalize`. The statistics are not an environment's, as there, but the agent's:
a `Normaliser` is one of the fields of `TrainState`, so it is saved, resumed, copied and stacked with it.

When they change is what keeps an update honest:

- Observation statistics stand still while a rollout is collected and learnt from: the policy's probabilities of the
  collected actions are those of the very inputs it acted on. Only then do they absorb the rollout, for the next one.
  In the first rollout mean is 0 and var 1.
- Reward statistics absorb a rollout before it is learnt from, as no action depends on them. So the critic always learns
  in the unit √(Var[R] + ε) that is saved beside it, from the first rollout on.
- The true successor of an episode's last state is seen with the same statistics as any other state. It is not
  absorbed: nobody acts on it.
- Evaluating, predicting, watching and exporting change nothing.

Everything is a pure function of explicit state, for one agent; a part that an agent does not normalise is None, and
costs nothing.
"""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any, NamedTuple, final

import jax
import jax.numpy as jnp
import numpy as np

from mcclt.method.nets import Array, Params, Policy, namespace

CLIP = 10.0
"""Normalised observations and rewards beyond this are cut, as by Stable-Baselines3's `clip_obs` and `clip_reward`."""
EPSILON = 1e-8
"""ε, which bears with a variance of 0."""


class Moments(NamedTuple):
    """Mean and variance of everything absorbed so far, number by number."""

    mean: Array
    """[...], 0 before the first."""
    var: Array
    """[...] the population's, 1 before the first."""
    count: Array
    """[] float32: how many. Beyond 2^24 it is rounded like any number, which moves the mean by as little."""


@jax.tree_util.register_dataclass
@dataclass(frozen=True)
class Normaliser:
    """The statistics of one agent."""

    obs: Moments | None
    """[O] of the observations it has acted on."""
    returns: Moments | None
    """[] of the discounted returns R so far."""
    running: Array | None
    """[E] R of every environment's running episode."""


NONE = Normaliser(None, None, None)
"""Of an agent that normalises nothing."""


def init(obs_size: int | None, n_envs: int | None) -> Normaliser:
    """Nothing seen yet.

    Args:
        obs_size: O, or None where observations are not normalised.
        n_envs: E, or None where rewards are not.
    """

    def nothing(*shape: int) -> Moments:
        return Moments(jnp.zeros(shape), jnp.ones(shape), jnp.zeros(()))

    return Normaliser(
        obs=None if obs_size is None else nothing(obs_size),
        returns=None if n_envs is None else nothing(),
        running=None if n_envs is None else jnp.zeros(n_envs),
    )


# --- using -------------------------------------------------------------------------------------------------


def normalise_obs(norm: Normaliser, obs: Array) -> Array:
    """What the networks see of obs [B, O]."""
    if norm.obs is None:
        return obs
    return standardise(obs, norm.obs.mean, scale_of(norm.obs), np.float32(CLIP))


def normalise_reward(norm: Normaliser, reward: Array) -> Array:
    """What the agent learns from rewards [...]."""
    return reward if norm.returns is None else jnp.clip(reward / scale_of(norm.returns), -CLIP, CLIP)


def standardise(obs: Array, mean: Array, scale: Array, clip: Array) -> Array:
    """clip((obs − mean) / scale, ±clip), for obs [..., B, O], mean and scale [..., O], clip [...]."""
    bound = clip[..., None, None]
    return namespace(obs).clip((obs - mean[..., None, :]) / scale[..., None, :], -bound, bound)


def scale_of(moments: Moments) -> Array:
    """√(var + ε). Of returns: how much of the task's reward is one unit of the critic's values."""
    return namespace(moments.var).sqrt(moments.var + np.float32(EPSILON))


def change_of_unit(old: Normaliser, new: Normaliser) -> Array | None:
    """[] what values in the old statistics' unit are multiplied with to be in the new one's; None: there are no units.

    1 for a critic that has learnt nothing yet: its values are noise about 0 in any unit.
    """
    if old.returns is None or new.returns is None:
        return None
    return jnp.where(old.returns.count > 0, scale_of(old.returns) / scale_of(new.returns), 1.0)


# --- absorbing ---------------------------------------------------------------------------------------------


def absorb_obs(norm: Normaliser, obs: jax.Array) -> Normaliser:
    """The statistics with a rollout's raw observations [T, E, O] in them."""
    return norm if norm.obs is None else replace(norm, obs=merge(norm.obs, obs.reshape(-1, obs.shape[-1])))


def absorb_rewards(norm: Normaliser, reward: jax.Array, done: jax.Array, gamma: float) -> Normaliser:
    """The statistics with a rollout's raw rewards in them.

    Args:
        norm: those before.
        reward: [T, E].
        done: [T, E] whether the episode ended after the step, for whatever reason: R starts anew.
        gamma: discount γ.
    """
    if norm.returns is None or norm.running is None:
        return norm

    def step(running: jax.Array, now: tuple[jax.Array, jax.Array]) -> tuple[jax.Array, jax.Array]:
        reward_t, done_t = now
        returns = reward_t + gamma * running
        return jnp.where(done_t, 0.0, returns), returns

    running, returns = jax.lax.scan(step, norm.running, (reward, done))
    finite = jnp.where(jnp.isfinite(running), running, 0.0)
    return replace(norm, returns=merge(norm.returns, returns.reshape(-1)), running=finite)


def merge(old: Moments, x: jax.Array) -> Moments:
    """Mean, variance and count of everything, x [B, ...] included, by the formula of Chan, Golub and LeVeque (1979).

    With n = n_a + n_b and δ = mean_b − mean_a:

        mean = mean_a + δ n_b / n,   var = (n_a var_a + n_b var_b) / n + δ² n_a n_b / n².

    In float32, with care: the batch's own moments are those of its distances from a first estimate of its mean, so
    that a large mean costs the variance no digits; and counts enter as shares n_a / n, n_b / n, so that nothing grows
    with time. The first batch's moments are taken as they are (n_a = 0). A batch whose moments are beyond float32 is
    left out.
    """
    estimate = jnp.mean(x, axis=0)
    distance = x - estimate[None]
    offset = jnp.mean(distance, axis=0)
    var = jnp.mean((distance - offset[None]) ** 2, axis=0)
    count = old.count + x.shape[0]
    kept, share = old.count / count, x.shape[0] / count
    delta = estimate - old.mean + offset
    new = Moments(old.mean + share * delta, kept * old.var + share * (var + kept * delta**2), count)
    finite = jnp.all(jnp.isfinite(new.mean)) & jnp.all(jnp.isfinite(new.var))
    return jax.tree.map(lambda a, b: jnp.where(finite, b, a), old, new)


def new_episodes(norm: Normaliser, which: Array | None = None) -> Normaliser:
    """For agents stacked: the running episodes are forgotten of those where the mask [A] is true, or of all."""
    if norm.running is None:
        return norm
    if which is None:
        return replace(norm, running=jnp.zeros_like(norm.running))
    return replace(norm, running=jnp.where(which[:, None], 0.0, norm.running))


# --- acting ------------------------------------------------------------------------------------------------


@final
@dataclass(frozen=True)
class Normalised:
    """A policy that acts on raw observations: an `Actor` whose parameters hold the statistics as well.

    Parameters are `{policy, mean [O], scale [O], clip []}`, as `acting` gives them.
    """

    policy: Policy

    def noise(self, key: jax.Array, shape: tuple[int, ...]) -> jax.Array:
        """The policy's."""
        return self.policy.noise(key, shape)

    def sample(self, params: Params, obs: Array, noise: Array) -> Array:
        """The action that `noise` picks at each raw obs."""
        return self.policy.sample(params["policy"], _seen(params, obs), noise)

    def mode(self, params: Params, obs: Array) -> Array:
        """The most likely action at each raw obs."""
        return self.policy.mode(params["policy"], _seen(params, obs))


def _seen(params: Mapping[str, Any], obs: Array) -> Array:
    return standardise(obs, params["mean"], params["scale"], params["clip"])


def acting(policy: Params, norm: Normaliser, obs_size: int) -> Params:
    """Parameters of `Normalised` for agents stacked, as arrays of the library (NumPy or JAX) that the policies are of.

    Agents that do not normalise see what is there, to the bit: mean 0, scale 1 and no clip. So all agents of a
    population act by one program.
    """
    leaf = jax.tree.leaves(policy)[0]
    xp, agents = namespace(leaf), leaf.shape[0]
    if norm.obs is None:
        mean, scale = xp.zeros((agents, obs_size), xp.float32), xp.ones((agents, obs_size), xp.float32)
    else:
        mean, scale = norm.obs.mean, scale_of(norm.obs)
    clip = xp.full(agents, xp.inf if norm.obs is None else CLIP, xp.float32)
    return {"policy": policy, "mean": mean, "scale": scale, "clip": clip}
