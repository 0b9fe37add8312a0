"""Collecting and evaluating where the environments live on the device: nothing comes to the host but what is logged.

The loops are those of `collect.py` and `evaluate.py`. The host only launches: it runs ahead of the device, and
waits once, at the end.
"""

import dataclasses
import functools
from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from mcclt import interrupts
from mcclt.envs.api import DeviceVectorEnv
from mcclt.method.learner import Rollout
from mcclt.method.nets import Actor, Params
from mcclt.training.collect import EpisodeStats, Fault, FaultError, empty_rollout
from mcclt.training.evaluate import Episodes, check_length

GLANCE = 50
"""Steps between looks at whether all episodes of an evaluation have ended."""


class _Bounds(NamedTuple):
    low: Any
    high: Any

    def send(self, action: jax.Array) -> jax.Array:
        """Actions [A, E, D] as the environments take them: [n, D], clipped to the box."""
        return jnp.clip(action.reshape(-1, action.shape[-1]), self.low[None], self.high[None])


@functools.partial(jax.jit, static_argnames="policy", donate_argnames="rollout")
def _act(
    policy: Actor, params: Params, bounds: _Bounds, rollout: Rollout, noise: jax.Array, obs: jax.Array, t: jax.Array
) -> tuple[jax.Array, Rollout]:
    """Actions of all agents at step t, put into the rollout; and what is sent to the environments [n, D]."""
    with jax.default_matmul_precision("highest"):
        action = jax.vmap(policy.sample)(params, obs, noise[:, t])
    rollout = dataclasses.replace(
        rollout, obs=rollout.obs.at[:, t].set(obs), action=rollout.action.at[:, t].set(action)
    )
    return bounds.send(action), rollout


@functools.partial(jax.jit, donate_argnames=("rollout", "t"))
def _record(rollout: Rollout, step: Any, t: jax.Array) -> tuple[Rollout, jax.Array, jax.Array]:
    """Puts the outcome of step t into the rollout; and the observations [A, E, O] to act on next, at t + 1."""
    agents, _, n_envs = rollout.reward.shape

    def put(buffer: jax.Array, value: jax.Array) -> jax.Array:
        return buffer.at[:, t].set(value.reshape(agents, n_envs, *value.shape[1:]).astype(buffer.dtype))

    names = ("reward", "terminated", "truncated", "next_obs")
    told = {name: put(getattr(rollout, name), getattr(step, name)) for name in names}
    return dataclasses.replace(rollout, **told), step.obs.reshape(agents, n_envs, -1), t + 1


@functools.partial(jax.jit, donate_argnames="rollout")
def _cut(rollout: Rollout, due: jax.Array, t: jax.Array) -> tuple[Rollout, jax.Array]:
    """Cuts the episodes `due` [A, E] at the step before t, if none ended in this rollout; and which those are [n]."""
    ended = (rollout.terminated | rollout.truncated) & (jnp.arange(rollout.reward.shape[1]) < t)[None, :, None]
    cut = due & ~ended.any(axis=1)
    truncated = rollout.truncated.at[:, t - 1].set(rollout.truncated[:, t - 1] | cut)
    return dataclasses.replace(rollout, truncated=truncated), cut.reshape(-1)


@jax.jit
def _finite(rollout: Rollout) -> jax.Array:
    """[A, T, E] whether reward and successor are numbers."""
    return jnp.isfinite(rollout.reward) & jnp.isfinite(rollout.next_obs).all(axis=-1)


def collect(
    env: DeviceVectorEnv,
    policy: Actor,
    params: Params,
    obs: Any,
    noise: Any,
    stats: EpisodeStats,
    raise_faults: bool,
    meanwhile: Callable[[], None] = lambda: None,
) -> tuple[Rollout, Any, list[Fault]]:
    """`mcclt.training.collect.collect` on the device: the same arguments and results, as JAX arrays.

    Faults are looked for at the end: an environment that stops being a number spoils nobody else's. `meanwhile` is
    called once per step, when the physics is under way: it may give JAX other work, which runs beside it.
    """
    spec = env.spec
    shape = agents, horizon, n_envs = noise.shape[:3]
    assert spec.action_low is not None and spec.action_high is not None
    bounds = _Bounds(spec.action_low, spec.action_high)
    rollout = empty_rollout(jnp, spec, shape)
    # Committed like what the environments return: `_act` would compile anew for every mixture (see `map_agents`).
    # The number of the step, too, is counted on the device: the loop sends nothing there.
    params, bounds, noise, rollout, obs, t = jax.device_put(
        (params, bounds, noise, rollout, obs, np.int32(0)), jax.devices()[0]
    )
    until_cut = stats.cut_at - stats.length  # of episodes that do not end before
    for i in range(horizon):
        interrupts.check()
        sent, rollout = _act(policy, params, bounds, rollout, noise, obs, t)
        env.send(sent)
        meanwhile()
        rollout, obs, t = _record(rollout, env.receive(), t)
        due = until_cut == i + 1
        if due.any():
            rollout, which = _cut(rollout, jax.device_put(due, jax.devices()[0]), t)
            obs = env.restart_device(which).reshape(obs.shape)
    env.check_room()

    reward, terminated, truncated = (np.asarray(x) for x in (rollout.reward, rollout.terminated, rollout.truncated))
    for i in range(horizon):
        stats.add(reward[:, i], terminated[:, i], truncated[:, i])
    faults = _faults(np.asarray(_finite(rollout)))
    if faults and raise_faults:
        raise FaultError(faults[0])
    if faults:
        spoilt = np.zeros((agents, n_envs), bool)
        for fault in faults:
            stats.start_together(fault.agent)
            spoilt[fault.agent] = True
        obs = env.restart_device(jnp.asarray(spoilt.reshape(-1))).reshape(agents, n_envs, -1)
        bad = jnp.asarray(spoilt.any(axis=1))[:, None, None]
        rollout = dataclasses.replace(
            rollout,
            obs=jnp.where(bad[..., None], 0, rollout.obs),
            reward=jnp.where(bad, 0, rollout.reward),
            next_obs=jnp.where(bad[..., None], 0, rollout.next_obs),
        )
    return rollout, obs, faults


def _faults(finite: np.ndarray) -> list[Fault]:
    """The first fault of each agent, from [A, T, E]."""
    faults = []
    for agent in np.flatnonzero(~finite.all(axis=(1, 2))).tolist():
        t, e = np.argwhere(~finite[agent])[0]
        faults.append(Fault(agent, int(e), int(t), "returned a reward or observation that is not a finite number"))
    return faults


class _Tally(NamedTuple):
    """Of one episode per environment."""

    returns: jax.Array
    lengths: jax.Array
    running: jax.Array


@functools.partial(jax.jit, static_argnames="policy")
def _mode(policy: Actor, params: Params, bounds: _Bounds, obs: jax.Array) -> jax.Array:
    with jax.default_matmul_precision("highest"):
        return bounds.send(jax.vmap(policy.mode)(params, obs))


@jax.jit
def _count(tally: _Tally, step: Any) -> _Tally:
    reward = jnp.where(jnp.isfinite(step.next_obs).all(axis=-1), step.reward, jnp.nan)
    return _Tally(
        tally.returns + jnp.where(tally.running, reward, 0),
        tally.lengths + tally.running,
        tally.running & ~(step.terminated | step.truncated) & jnp.isfinite(reward),
    )


class Evaluation:
    """One deterministic episode of every environment, n / agents of each agent, a step at a time.

    Physics is a long chain of short programs, which leaves most of a GPU idle. So these worlds, in a stream of their
    own, are simulated beside whatever the device does between two calls of `go_on`: the worlds of a rollout, above all.
    """

    def __init__(self, env: DeviceVectorEnv, policy: Actor, params: Params, agents: int) -> None:
        """Starts the episodes and their first step.

        Args:
            env: A·E environments, agent by agent.
            policy: the family all agents share.
            params: their parameters, stacked [A, ...].
            agents: A.
        """
        spec, n = env.spec, env.num_envs
        assert spec.action_low is not None and spec.action_high is not None
        bounds = _Bounds(spec.action_low, spec.action_high)
        tally = _Tally(jnp.zeros(n), jnp.zeros(n, jnp.int32), jnp.ones(n, bool))
        self._env, self._policy, self._shape = env, policy, (agents, n // agents, -1)
        # Committed, as in `collect`.
        self._params, self._bounds, self._tally = jax.device_put((params, bounds, tally), jax.devices()[0])
        self._t, self._seen = 0, self._tally.running.any()
        self.ended = False
        """Whether all episodes are known to have ended."""
        self._send(env.reset_device())

    def _send(self, obs: jax.Array) -> None:
        self._env.send(_mode(self._policy, self._params, self._bounds, obs.reshape(self._shape)))

    def go_on(self) -> None:
        """Takes in the step that is under way and begins the next; does not wait for it."""
        if self.ended:
            return
        step = self._env.receive()
        self._tally = _count(self._tally, step)
        self._t += 1
        if self._t == self._env.spec.max_episode_steps:
            self.ended = True
        elif self._t % GLANCE == 0:
            self.ended = not bool(self._seen)  # of the last glance, so that the device has steps to do meanwhile
            self._seen = self._tally.running.any()
        if not self.ended:
            check_length(self._t + 1, self._env.spec.task)
            self._send(step.obs)

    def finish(self) -> Episodes:
        """What was found, when all episodes have ended."""
        while not self.ended:
            interrupts.check()
            self.go_on()
        self._env.check_room()
        returns = np.asarray(self._tally.returns, float).reshape(self._shape[0], -1)
        lengths = np.asarray(self._tally.lengths, int).reshape(self._shape[0], -1)
        return Episodes(returns, lengths, _faults(np.isfinite(returns)[:, None]))
