"""Small networks on plain pytrees, and the two kinds of policy.

Networks and policies serve both `jax.numpy` (learning: one agent, `w [I, J]`, `x [B, I]`; `vmap` does the rest)
and NumPy (acting on the CPU while collecting: a stack of agents, `w [A, I, J]`, `x [A, B, I]`).
"""

import itertools
import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Protocol, final

import jax
import jax.numpy as jnp
import numpy as np

from mcclt.config import AgentConfig

Params = Any
"""A pytree of arrays."""
Array = Any
"""A NumPy or JAX array."""


def namespace(x: Array) -> Any:
    """NumPy for NumPy arrays, `jax.numpy` for everything else (tracers included)."""
    return np if isinstance(x, np.ndarray) else jnp


def init_mlp(key: jax.Array, sizes: Sequence[int]) -> Params:
    """Layers `{w [I, J], b [J]}` with entries uniform in ±1/√I (PyTorch's default, so Spinning Up's)."""
    # All numbers in one draw: each draw takes a CPU half a second to compile.
    shapes = [(n_in, n_out) for n_in, n_out in itertools.pairwise(sizes)]
    ends = np.cumsum([n_in * n_out + n_out for n_in, n_out in shapes])
    parts = jnp.split(jax.random.uniform(key, (int(ends[-1]),), minval=-1.0, maxval=1.0), ends[:-1])
    layers = []
    for part, (n_in, n_out) in zip(parts, shapes, strict=True):
        w, b = jnp.split(part / math.sqrt(n_in), [n_in * n_out])
        layers.append({"w": w.reshape(n_in, n_out), "b": b})
    return tuple(layers)


def apply_mlp(params: Params, x: Array, activation: Callable[[Array], Array]) -> Array:
    """Maps x [B, I] to [B, J] (NumPy: any leading axes); `activation` between layers, none after the last.

    In JAX features are the rows of every product inside. It is the same arithmetic, but on a CPU the bias, the
    activation and their gradients then run along contiguous memory: the MC-CLT critic's update takes 10 % less
    time, with a shared trunk 15 % less, PPO's 20 %.
    """
    *hidden, last = params
    if isinstance(x, np.ndarray):
        for layer in hidden:
            x = activation(x @ layer["w"] + layer["b"][..., None, :])
        return x @ last["w"] + last["b"][..., None, :]
    x = x.T
    for layer in hidden:
        x = activation(layer["w"].T @ x + layer["b"][:, None])
    return (last["w"].T @ x + last["b"][:, None]).T


def count(params: Params) -> int:
    """How many numbers a pytree holds."""
    return sum(leaf.size for leaf in jax.tree.leaves(params))


class Actor(Protocol):
    """What acts: all that collecting and evaluating ask for. Equal ones (`==`) are interchangeable."""

    def noise(self, key: jax.Array, shape: tuple[int, ...]) -> jax.Array:
        """The random part of `sample`, drawn for many steps at once."""
        ...

    def sample(self, params: Params, obs: Array, noise: Array) -> Array:
        """The action that `noise` picks at each obs."""
        ...

    def mode(self, params: Params, obs: Array) -> Array:
        """The most likely action: what evaluation uses."""
        ...


class Policy(Actor, Protocol):
    """A family of action distributions. `Dist` is a pytree of arrays with leading axis B."""

    @property
    def kl_terms(self) -> int:
        """How many terms `kl` sums up: the dimensions of an action that are drawn each for itself."""
        ...

    def init(self, key: jax.Array, obs_size: int, settings: AgentConfig) -> Params:
        """Fresh parameters."""
        ...

    def distribution(self, params: Params, obs: Array) -> Any:
        """The action distribution at obs [B, O]."""
        ...

    def log_prob(self, dist: Any, action: Array) -> Array:
        """Log π(a|s) [B]."""
        ...

    def kl(self, p: Any, q: Any) -> Array:
        """KL(p‖q) [B], in closed form."""
        ...

    def entropy(self, dist: Any) -> Array:
        """[B]."""
        ...


@final
@dataclass(frozen=True)
class Gaussian:
    """Diagonal Gaussian with a state-independent log-std: a = μ(s) + σ·ε. `Dist` is (μ [B, D], ln σ [D]).

    Actions are clipped to the box only when they are sent to the environment; the density is that of the
    unclipped action.
    """

    action_size: int
    hidden: tuple[int, ...]
    """Widths of the layers."""

    @property
    def kl_terms(self) -> int:
        """Every dimension."""
        return self.action_size

    def init(self, key: jax.Array, obs_size: int, settings: AgentConfig) -> Params:
        """μ's network, and ln σ at its start."""
        return {
            "mlp": init_mlp(key, (obs_size, *self.hidden, self.action_size)),
            "log_std": jnp.full((self.action_size,), settings.log_std_init, jnp.float32),
        }

    def distribution(self, params: Params, obs: Array) -> tuple[Array, Array]:
        """(μ(s), ln σ)."""
        return apply_mlp(params["mlp"], obs, namespace(obs).tanh), params["log_std"]

    def log_prob(self, dist: tuple[Array, Array], action: Array) -> Array:
        """Σ_d −½((a−μ)/σ)² − ln σ − ½ ln 2π."""
        mean, log_std = dist
        z = (action - mean) * jnp.exp(-log_std)[None, :]
        return jnp.sum(-0.5 * z**2 - log_std[None, :] - 0.5 * math.log(2 * math.pi), axis=-1)

    def kl(self, p: tuple[Array, Array], q: tuple[Array, Array]) -> Array:
        """Σ_d ln(σ_q/σ_p) + (σ_p² + (μ_p−μ_q)²)/(2σ_q²) − ½."""
        (mean_p, log_p), (mean_q, log_q) = p, q
        ratio = jnp.exp(2 * (log_p - log_q))[None, :]
        z2 = ((mean_p - mean_q) * jnp.exp(-log_q)[None, :]) ** 2
        return jnp.sum((log_q - log_p)[None, :] + 0.5 * (ratio + z2 - 1), axis=-1)

    def entropy(self, dist: tuple[Array, Array]) -> Array:
        """Σ_d ln σ + ½ ln 2πe."""
        mean, log_std = dist
        return jnp.broadcast_to(jnp.sum(log_std + 0.5 * math.log(2 * math.pi * math.e)), mean.shape[:-1])

    def noise(self, key: jax.Array, shape: tuple[int, ...]) -> jax.Array:
        """ε ~ N(0, 1) [*shape, D]."""
        return jax.random.normal(key, (*shape, self.action_size))

    def sample(self, params: Params, obs: Array, noise: Array) -> Array:
        """μ(s) + σ·ε."""
        mean, log_std = self.distribution(params, obs)
        return mean + namespace(obs).exp(log_std)[..., None, :] * noise

    def mode(self, params: Params, obs: Array) -> Array:
        """μ(s)."""
        return self.distribution(params, obs)[0]


@final
@dataclass(frozen=True)
class Categorical:
    """Softmax over n discrete actions. `Dist` is the log-probabilities [B, n]."""

    n_actions: int
    hidden: tuple[int, ...]
    """Widths of the layers."""

    @property
    def kl_terms(self) -> int:
        """One action, one term."""
        return 1

    def init(self, key: jax.Array, obs_size: int, settings: AgentConfig) -> Params:
        """The logits' network."""
        del settings
        return {"mlp": init_mlp(key, (obs_size, *self.hidden, self.n_actions))}

    def distribution(self, params: Params, obs: Array) -> Array:
        """Log-probabilities."""
        return jax.nn.log_softmax(self._logits(params, obs))

    def _logits(self, params: Params, obs: Array) -> Array:
        return apply_mlp(params["mlp"], obs, namespace(obs).tanh)

    def log_prob(self, dist: Array, action: Array) -> Array:
        """Ln p[a]."""
        return jnp.take_along_axis(dist, action[:, None], axis=-1)[:, 0]

    def kl(self, p: Array, q: Array) -> Array:
        """Σ_a p (ln p − ln q)."""
        return jnp.sum(jnp.exp(p) * (p - q), axis=-1)

    def entropy(self, dist: Array) -> Array:
        """−Σ_a p ln p."""
        return -jnp.sum(jnp.exp(dist) * dist, axis=-1)

    def noise(self, key: jax.Array, shape: tuple[int, ...]) -> jax.Array:
        """Gumbel noise [*shape, n]: argmax(logits + Gumbel) is an exact categorical draw."""
        return jax.random.gumbel(key, (*shape, self.n_actions))

    def sample(self, params: Params, obs: Array, noise: Array) -> Array:
        """argmax(logits + Gumbel)."""
        return namespace(obs).argmax(self._logits(params, obs) + noise, axis=-1)

    def mode(self, params: Params, obs: Array) -> Array:
        """argmax(logits)."""
        return namespace(obs).argmax(self._logits(params, obs), axis=-1)
