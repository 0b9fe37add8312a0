"""Small networks on plain pytrees, and the kinds of policy.

Networks and policies serve both `jax.numpy` (learning: one agent, `w [I, J]`, `x [B, I]`; `vmap` does the rest)
and NumPy (acting on the CPU while collecting: a stack of agents, `w [A, I, J]`, `x [A, B, I]`).
"""

import abc
import itertools
import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Protocol, final

import jax
import jax.numpy as jnp
import numpy as np
from scipy.special import expit

from mcclt.config import AgentConfig

Params = Any
"""A pytree of arrays."""
Array = Any
"""A NumPy or JAX array."""


def namespace(x: Array) -> Any:
    """NumPy for NumPy arrays, `jax.numpy` for everything else (tracers included)."""
    return np if isinstance(x, np.ndarray) else jnp


ACTIVATIONS: dict[str, tuple[Callable[[Array], Array], Callable[[Array], Array]]] = {
    "tanh": (np.tanh, jnp.tanh),
    "relu": (lambda x: np.maximum(x, 0), jax.nn.relu),
    "silu": (lambda x: x * expit(x), jax.nn.silu),
    "elu": (lambda x: np.where(x > 0, x, np.expm1(np.minimum(x, 0))), jax.nn.elu),
}
"""By the name a user gives it: for NumPy and for JAX."""


def init_mlp(key: jax.Array, sizes: Sequence[int], layer_norm: bool = False, orthogonal: float | None = None) -> Params:
    """Layers `{w [I, J], b [J]}`; with `layer_norm` all but the last have `scale` and `shift` [J] as well.

    Entries are uniform in ±1/√I (PyTorch's default, so Spinning Up's). Or `orthogonal`, which is the last layer's gain:
    weights whose columns (or rows, where those are fewer) are orthogonal and of length √2, or this, and biases 0 (as in
    Stable-Baselines3).
    """
    shapes = list(itertools.pairwise(sizes))
    layers = _uniform(key, shapes) if orthogonal is None else _orthogonal(key, shapes, orthogonal)
    if layer_norm:
        for layer in layers[:-1]:
            layer |= {"scale": jnp.ones_like(layer["b"]), "shift": jnp.zeros_like(layer["b"])}
    return tuple(layers)


def _uniform(key: jax.Array, shapes: list[tuple[int, int]]) -> list[dict[str, jax.Array]]:
    # All numbers in one draw: each draw takes a CPU half a second to compile.
    ends = np.cumsum([n_in * n_out + n_out for n_in, n_out in shapes])
    parts = jnp.split(jax.random.uniform(key, (int(ends[-1]),), minval=-1.0, maxval=1.0), ends[:-1])
    layers = []
    for part, (n_in, n_out) in zip(parts, shapes, strict=True):
        w, b = jnp.split(part / math.sqrt(n_in), [n_in * n_out])
        layers.append({"w": w.reshape(n_in, n_out), "b": b})
    return layers


def _orthogonal(key: jax.Array, shapes: list[tuple[int, int]], last_gain: float) -> list[dict[str, jax.Array]]:
    gains = [math.sqrt(2)] * (len(shapes) - 1) + [last_gain]
    return [
        {"w": jax.nn.initializers.orthogonal(gain)(own, shape), "b": jnp.zeros(shape[1])}
        for own, shape, gain in zip(jax.random.split(key, len(shapes)), shapes, gains, strict=True)
    ]


def apply_mlp(params: Params, x: Array, activation: Callable[[Array], Array]) -> Array:
    """Maps x [B, I] to [B, J] (NumPy: any leading axes); `activation` between layers, none after the last.

    In JAX features are the rows of every product inside. It is the same arithmetic, but on a CPU the bias, the
    activation and their gradients then run along contiguous memory: the MC-CLT critic's update takes 10 % less
    time, with a shared trunk 15 % less, PPO's 20 %.
    """
    *hidden, last = params
    if isinstance(x, np.ndarray):
        for layer in hidden:
            x = activation(_normed(x @ layer["w"] + layer["b"][..., None, :], layer, axis=-1))
        return x @ last["w"] + last["b"][..., None, :]
    x = x.T
    for layer in hidden:
        x = activation(_normed(layer["w"].T @ x + layer["b"][:, None], layer, axis=0))
    return (last["w"].T @ x + last["b"][:, None]).T


def _normed(x: Array, layer: Params, axis: int) -> Array:
    """Layer norm over the `axis` of features, where the layer has one."""
    if "scale" not in layer:
        return x
    scale, shift = (layer[name][:, None] if axis == 0 else layer[name][..., None, :] for name in ("scale", "shift"))
    x = x - x.mean(axis, keepdims=True)
    return scale * x / namespace(x).sqrt((x**2).mean(axis, keepdims=True) + 1e-5) + shift


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

    def outputs(self, params: Params, obs: Array) -> Array:
        """What the network gives at obs [B, O]."""
        ...

    def distribution_of(self, outputs: Array, params: Params) -> Any:
        """The action distribution that these stand for."""
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


@dataclass(frozen=True)
class _Network(abc.ABC):
    """What the kinds of policy share: a network from observations to the numbers of a distribution."""

    size: int
    """How many numbers: dimensions of a continuous action, or discrete actions."""
    hidden: tuple[int, ...]
    """Widths of the layers."""
    activation: str = "tanh"
    """A name of `ACTIVATIONS`."""

    def init(self, key: jax.Array, obs_size: int, settings: AgentConfig) -> Params:
        """The network."""
        gain = 0.01 if settings.ortho_init else None
        return {"mlp": init_mlp(key, (obs_size, *self.hidden, self.size), settings.policy_layer_norm, gain)}

    def outputs(self, params: Params, obs: Array) -> Array:
        """The numbers [B, size]."""
        on_host, on_device = ACTIVATIONS[self.activation]
        return apply_mlp(params["mlp"], obs, on_host if isinstance(obs, np.ndarray) else on_device)

    @abc.abstractmethod
    def distribution_of(self, outputs: Array, params: Params) -> Any:
        """What the numbers stand for."""

    def distribution(self, params: Params, obs: Array) -> Any:
        """At obs [B, O]."""
        return self.distribution_of(self.outputs(params, obs), params)


@final
@dataclass(frozen=True)
class Gaussian(_Network):
    """Diagonal Gaussian with a state-independent log-std: a = μ(s) + σ·ε. `Dist` is (μ [B, D], ln σ [D]).

    Actions are clipped to the box only when they are sent to the environment; the density is that of the
    unclipped action.
    """

    @property
    def kl_terms(self) -> int:
        """Every dimension."""
        return self.size

    def init(self, key: jax.Array, obs_size: int, settings: AgentConfig) -> Params:
        """μ's network, and ln σ at its start."""
        log_std = jnp.full((self.size,), settings.log_std_init, jnp.float32)
        return super().init(key, obs_size, settings) | {"log_std": log_std}

    def distribution_of(self, outputs: Array, params: Params) -> tuple[Array, Array]:
        """(μ(s), ln σ)."""
        return outputs, params["log_std"]

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
        return jax.random.normal(key, (*shape, self.size))

    def sample(self, params: Params, obs: Array, noise: Array) -> Array:
        """μ(s) + σ·ε."""
        mean, log_std = self.distribution(params, obs)
        return mean + namespace(obs).exp(log_std)[..., None, :] * noise

    def mode(self, params: Params, obs: Array) -> Array:
        """μ(s)."""
        return self.distribution(params, obs)[0]


class _Softmax(_Network):
    """What policies of discrete choices share. `Dist` is the log-probabilities [B, ..., n] of each choice."""

    def logits(self, outputs: Array) -> Array:
        """Of the choices."""
        return outputs

    def distribution_of(self, outputs: Array, params: Params) -> Array:
        """Log-probabilities."""
        del params
        return jax.nn.log_softmax(self.logits(outputs))

    def kl(self, p: Array, q: Array) -> Array:
        """Σ_a p (ln p − ln q), over all choices."""
        return jnp.sum(jnp.exp(p) * (p - q), axis=tuple(range(1, p.ndim)))

    def entropy(self, dist: Array) -> Array:
        """−Σ_a p ln p, over all choices."""
        return -jnp.sum(jnp.exp(dist) * dist, axis=tuple(range(1, dist.ndim)))


@final
@dataclass(frozen=True)
class Categorical(_Softmax):
    """Softmax over n discrete actions. `Dist` is the log-probabilities [B, n]."""

    @property
    def kl_terms(self) -> int:
        """One action, one term."""
        return 1

    def log_prob(self, dist: Array, action: Array) -> Array:
        """Ln p[a]."""
        return jnp.take_along_axis(dist, action[:, None], axis=-1)[:, 0]

    def noise(self, key: jax.Array, shape: tuple[int, ...]) -> jax.Array:
        """Gumbel noise [*shape, n]: argmax(logits + Gumbel) is an exact categorical draw."""
        return jax.random.gumbel(key, (*shape, self.size))

    def sample(self, params: Params, obs: Array, noise: Array) -> Array:
        """argmax(logits + Gumbel)."""
        return namespace(obs).argmax(self.outputs(params, obs) + noise, axis=-1)

    def mode(self, params: Params, obs: Array) -> Array:
        """argmax(logits)."""
        return namespace(obs).argmax(self.outputs(params, obs), axis=-1)


@final
@dataclass(frozen=True)
class Bins(_Softmax):
    """In each dimension of an action one of some values, evenly spaced from low to high, by a softmax of its own.

    `Dist` is the log-probabilities [B, D, K], K the most values of any dimension; actions are the values themselves.
    """

    counts: tuple[int, ...] = ()
    """How many values each dimension has, 1 or more."""
    low: tuple[float, ...] = ()
    """The first value of each dimension."""
    high: tuple[float, ...] = ()
    """The last."""

    @classmethod
    def over(cls, counts: Sequence[int], low: np.ndarray, high: np.ndarray, **network: Any) -> "Bins":
        """Of so many values per dimension between these bounds."""
        size = len(counts) * max(counts)
        return cls(size, counts=tuple(counts), low=tuple(low.tolist()), high=tuple(high.tolist()), **network)

    @property
    def kl_terms(self) -> int:
        """Every dimension."""
        return len(self.counts)

    def logits(self, outputs: Array) -> Array:
        """[..., D, K]; next to no probability for values that a dimension does not have."""
        out = outputs.reshape(*outputs.shape[:-1], len(self.counts), max(self.counts))
        there = np.arange(max(self.counts)) < np.asarray(self.counts)[:, None]
        return out if there.all() else namespace(outputs).where(self._like(there, out), out, np.float32(-1e9))

    def _like(self, table: np.ndarray, x: Array) -> np.ndarray:
        """A table by dimension, of as many axes as x."""
        return table.reshape((1,) * (x.ndim - table.ndim) + table.shape)

    @property
    def _steps(self) -> np.ndarray:
        """[D] from one value to the next."""
        low, high, counts = (np.asarray(x, np.float32) for x in (self.low, self.high, self.counts))
        return (high - low) / np.maximum(counts - 1, 1)

    def values(self, index: Array) -> Array:
        """The values [..., D] with these indices."""
        low = np.asarray(self.low, np.float32)
        return self._like(low, index) + self._like(self._steps, index) * index.astype(np.float32)

    def log_prob(self, dist: Array, action: Array) -> Array:
        """Σ_d ln p_d[a_d]."""
        steps = np.where(self._steps > 0, self._steps, 1)
        index = jnp.round((action - self._like(np.asarray(self.low, np.float32), action)) / self._like(steps, action))
        return jnp.sum(jnp.take_along_axis(dist, index.astype(int)[..., None], axis=-1)[..., 0], axis=-1)

    def noise(self, key: jax.Array, shape: tuple[int, ...]) -> jax.Array:
        """Uniform in [0, 1) [*shape, D]: where in the cumulated probabilities a draw falls."""
        return jax.random.uniform(key, (*shape, len(self.counts)))

    def sample(self, params: Params, obs: Array, noise: Array) -> Array:
        """The values on which the noise falls."""
        xp, logits = namespace(obs), self.logits(self.outputs(params, obs))
        total = xp.cumsum(xp.exp(logits - logits.max(-1, keepdims=True)), axis=-1)
        index = xp.sum(total < noise[..., None] * total[..., -1:], axis=-1)
        return self.values(xp.minimum(index, self._like(np.asarray(self.counts) - 1, index)))

    def mode(self, params: Params, obs: Array) -> Array:
        """The most likely value of each dimension."""
        return self.values(self.logits(self.outputs(params, obs)).argmax(-1))
