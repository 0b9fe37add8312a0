"""Weightings: from a critic's error per state to a weight per state (paper §4.5, appendix).

A weighting is a function w(E·T) and a temperature T, found anew for every batch so that the mean weight
meets `w_tar`. To add one, write a class with the contract of `Weighting` and enter it in `WEIGHTINGS`.
"""

import abc
from typing import NamedTuple, Protocol, final

import jax
import jax.numpy as jnp

from mcclt.config import AgentConfig

LOG_RANGE = 40.0
"""The search covers T·mean(E) from e⁻⁴⁰ to e⁴⁰."""
LOG_STEPS = 40
TOLERANCE = 1e-3
"""How near the mean weight must come to `w_tar` for the weights to be used."""
PAPER_TOP = 2.0**12
PAPER_STEPS = 60
PAPER_EPSILON = 0.1


class Temperature(NamedTuple):
    """The outcome of a search."""

    value: jax.Array
    """T, scalar, in the paper's units (multiplies the raw error). 0 where the search failed."""
    found: jax.Array
    """Scalar bool: the mean weight meets the target. Otherwise all weights are 1, and a metric says so."""


class Weighting(Protocol):
    """The contract: made from an `AgentConfig`; `search` once per batch, then `weights` at any states.

    One with `of_variance = True` is given the variance of the value distribution in place of the critic's error.
    """

    needs_error: bool
    """Whether the critic must have an error measure."""

    def search(self, error: jax.Array) -> Temperature:
        """The temperature for a batch of errors [B]."""
        ...

    def weights(self, error: jax.Array, temperature: Temperature) -> jax.Array:
        """W [...] at errors [...]; 1 where the search failed."""
        ...


@final
class Uniform:
    """w = 1."""

    needs_error = False

    def __init__(self, config: AgentConfig) -> None:
        del config

    def search(self, error: jax.Array) -> Temperature:
        """Nothing to search."""
        del error
        return Temperature(jnp.zeros(()), jnp.array(True))

    def weights(self, error: jax.Array, temperature: Temperature) -> jax.Array:
        """1."""
        del temperature
        return jnp.ones_like(error)


class _Scaled(abc.ABC):
    """What weightings share that are a function of E·T."""

    needs_error = True

    def __init__(self, config: AgentConfig) -> None:
        self.config = config

    @abc.abstractmethod
    def raw(self, scaled_error: jax.Array) -> jax.Array:
        """The weight as a function of E·T."""

    def weights(self, error: jax.Array, temperature: Temperature) -> jax.Array:
        """The weights at T."""
        return jnp.where(temperature.found, self.raw(error * temperature.value), 1.0)


@final
class AccuracySeeking(_Scaled):
    """w = 2(1 − w_min)·sigmoid(−E·T) + w_min, in (w_min, 1]: trust states whose value is well predicted.

    Eq. 9 of the paper is the case w_min = ½; the general form is in its appendix.
    """

    def raw(self, scaled_error: jax.Array) -> jax.Array:
        """Falls from 1 to w_min."""
        return 2 * (1 - self.config.w_min) * jax.nn.sigmoid(-scaled_error) + self.config.w_min

    def search(self, error: jax.Array) -> Temperature:
        """Scale-free bisection in log T, or the authors' linear one."""
        if self.config.temperature == "paper":
            return paper_search(self.raw, error, self.config.w_tar, rising=False)
        return log_search(self.raw, error, self.config.w_tar)


@final
class ExplorationSeeking(_Scaled):
    """w = E·T + ½ (table 3): seek states whose value is badly predicted. T has a closed form."""

    def raw(self, scaled_error: jax.Array) -> jax.Array:
        """Grows without bound."""
        return scaled_error + 0.5

    def search(self, error: jax.Array) -> Temperature:
        """mean(E)·T + ½ = w_tar, so T = (w_tar − ½)/mean(E)."""
        if self.config.temperature == "paper":
            return paper_search(self.raw, error, self.config.w_tar, rising=True)
        scale = jnp.mean(error)
        found = (scale > 0) & jnp.isfinite(scale)
        return Temperature(jnp.where(found, (self.config.w_tar - 0.5) / jnp.where(found, scale, 1.0), 0.0), found)


@final
class InverseVariance(_Scaled):
    """w = 1/(1 + v·T), so ∝ 1/(v + 1/T), v the variance of the value distribution: trust states of certain return."""

    of_variance = True

    def raw(self, scaled_error: jax.Array) -> jax.Array:
        """Falls from 1 to 0."""
        return inverse(scaled_error)

    def search(self, error: jax.Array) -> Temperature:
        """Scale-free bisection in log T."""
        return log_search(self.raw, error, self.config.w_tar)


def inverse(scaled_variance: jax.Array) -> jax.Array:
    """The weight 1/(1 + v·T) as a function of v·T; falls from 1 to 0."""
    return 1 / (1 + scaled_variance)


def shares(variance: jax.Array, w_tar: float) -> jax.Array:
    """How much states with these variances [B] count for a critic: weights 1/(1 + v·T) with mean `w_tar`, over that."""
    temperature = log_search(inverse, variance, w_tar)
    weight = jnp.where(temperature.found, inverse(variance * temperature.value), 1.0)
    return weight / jnp.mean(weight)


def log_search(raw, error: jax.Array, target: float) -> Temperature:
    """Bisects ln T for mean raw(E·T) = target, raw falling; E is first divided by its mean.

    Errors span many orders of magnitude (they scale as the square of the returns), so a linear search over
    a fixed range misses; after the division T is of order 1 whatever the scale. A fixed number of halvings
    of a wide bracket leaves no loop whose end depends on data.
    """
    scale = jnp.mean(error)
    usable = (scale > 0) & jnp.isfinite(scale)
    relative = error / jnp.where(usable, scale, 1.0)

    def mean_weight(log_t):
        return jnp.mean(raw(relative * jnp.exp(log_t)))

    def halve(_, bracket):
        low, high = bracket
        middle = 0.5 * (low + high)
        too_high = mean_weight(middle) > target  # weights fall with T: go up
        return jnp.where(too_high, middle, low), jnp.where(too_high, high, middle)

    start = (jnp.array(-LOG_RANGE), jnp.array(LOG_RANGE))
    low, high = jax.lax.fori_loop(0, LOG_STEPS, halve, start)
    log_t = 0.5 * (low + high)
    found = usable & (jnp.abs(mean_weight(log_t) - target) <= TOLERANCE)
    return Temperature(jnp.where(found, jnp.exp(log_t) / jnp.where(usable, scale, 1.0), 0.0), found)


def paper_search(raw, error: jax.Array, target: float, rising: bool) -> Temperature:
    """The authors' search: bisect T in [0, 2¹²], take the first with |mean weight − target| ≤ 0.1."""

    def unfinished(carry):
        i, _, _, _, found = carry
        return (i < PAPER_STEPS) & ~found

    def halve(carry):
        i, low, high, _, _ = carry
        t = 0.5 * (low + high)
        gap = jnp.mean(raw(error * t)) - target
        up = (gap < 0) if rising else (gap > 0)
        return i + 1, jnp.where(up, t, low), jnp.where(up, high, t), t, jnp.abs(gap) <= PAPER_EPSILON

    start = (jnp.array(0), jnp.array(0.0), jnp.array(PAPER_TOP), jnp.array(0.0), jnp.array(False))
    _, _, _, t, found = jax.lax.while_loop(unfinished, halve, start)
    return Temperature(jnp.where(found, t, 0.0), found)


WEIGHTINGS: dict[str, type] = {
    "uniform": Uniform,
    "accuracy": AccuracySeeking,
    "exploration": ExplorationSeeking,
    "inverse_variance": InverseVariance,
}
"""Every weighting by the name a user gives it."""
