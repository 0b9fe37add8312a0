"""Critics: a value distribution and an error per state (method table; paper §4).

A critic is written for one agent, as pure functions of explicit parameters. To add one, write a class with
the contract of `Critic` and enter it in `CRITICS`; every weighting and policy update then works with it.
"""

import abc
from typing import Any, NamedTuple, final

import jax
import jax.numpy as jnp
from jax.typing import ArrayLike

from mcclt.config import AgentConfig
from mcclt.method import losses, minibatches, nets, normal, optimisers
from mcclt.method.nets import Params
from mcclt.method.randomness import permutation

LEAST_SHARE = 0.1
"""With `variance_scaling`: how much of the mean variance is added to a state's, so that none counts over tenfold."""


class Prediction(NamedTuple):
    """What a critic believes about states [B]."""

    bars: jax.Array
    """[B, N] quantile bars; [B, K] the members of an ensemble; [B, 1] a plain value."""
    mean: jax.Array
    """[B] the value that advantages are built on."""
    std: jax.Array
    """[B] the spread that the bars stand for."""
    error: jax.Array
    """[B] how badly the critic thinks it predicts; 0 where it has no such measure."""


class Batch(NamedTuple):
    """What a critic may learn from: one row per state of the batch."""

    obs: jax.Array
    """[B, O]."""
    returns: jax.Array
    """[B] the value target G."""
    advantage: jax.Array
    """[B] Â by the critic's own λ, not normalised."""
    reward: jax.Array
    """[B]."""
    discount: jax.Array
    """[B] γ, or 0 after termination."""
    bars: jax.Array
    """[B, N] predicted at `obs` before the update."""
    next_bars: jax.Array
    """[B, N] predicted at the true successor."""
    weight: jax.Array | None = None
    """[B] how much each state counts, 1 in the mean; none: all the same."""

    def mean(self, loss: jax.Array) -> jax.Array:
        """Of a loss [B, ...], each state's as much as it counts."""
        weight = self.weight
        return jnp.mean(loss if weight is None else loss * weight.reshape(-1, *(1,) * (loss.ndim - 1)))


class Critic(abc.ABC):
    """The contract. A critic has one or more members; each learns from its own disjoint part of a batch."""

    quantiles: bool = False
    """Whether the bars are quantiles in order of their probabilities, and `error` the square of a distance to them."""
    interpolated: bool = False
    """Whether bars are read off a curve, which rounding moves far along where it is flat."""
    has_error: bool
    """Whether `Prediction.error` means anything, so that weights can be made from it."""
    error_name: str = "Error"
    """What a page calls it."""
    weighs_states: bool = False
    """Whether it has a spread, and its loss counts states by `Batch.weight`."""
    scales_residuals: bool = False
    """Whether its loss can measure residuals in units of a predicted deviation (`variance_scaling`)."""
    default_weighting: str
    """What the paper pairs this critic with."""
    default_members: int = 1
    min_members: int = 1

    def __init__(self, config: AgentConfig) -> None:
        self.config = config
        self.members = self.default_members if config.members is None else config.members

    @abc.abstractmethod
    def init_member(self, key: jax.Array, obs_size: int) -> Params:
        """Fresh parameters of one member."""

    @abc.abstractmethod
    def predict(self, params: tuple[Params, ...], obs: jax.Array) -> Prediction:
        """The value distribution at obs [B, O], from all members together."""

    @abc.abstractmethod
    def loss(self, params: Params, batch: Batch) -> jax.Array:
        """The loss of one member on its part of the batch: a scalar."""

    def diagnostics(self, params: tuple[Params, ...], obs: jax.Array) -> dict[str, jax.Array]:
        """Further numbers to log about the batch; none by default."""
        del params, obs
        return {}

    def init(self, key: jax.Array, obs_size: int) -> tuple[Params, ...]:
        """Fresh parameters of all members."""
        return tuple(self.init_member(jax.random.fold_in(key, k), obs_size) for k in range(self.members))

    def init_network(self, key: jax.Array, obs_size: int, outputs: int) -> Params:
        """A fresh network as the settings have it."""
        config = self.config
        gain = 1.0 if config.ortho_init else None
        return nets.init_mlp(key, (obs_size, *config.critic_hidden, outputs), config.critic_layer_norm, gain)

    def network(self, params: Params, obs: jax.Array) -> jax.Array:
        """What such a network puts out [B, outputs]."""
        return nets.apply_mlp(params, obs, nets.ACTIVATIONS[self.config.critic_activation][1])


def divide(critic: Critic, batch: Batch, key: jax.Array) -> tuple[Batch, ...]:
    """Each member's own part of a batch: disjoint, of equal size, redrawn every update.

    They are gathered, not masked, so K members cost about as much as one.
    """
    if critic.members == 1:
        return (batch,)
    size = batch.obs.shape[0]
    order = permutation(key, size)
    share = size // critic.members
    rows = [order[k * share : (k + 1) * share] for k in range(critic.members)]
    return tuple(jax.tree.map(lambda x, r=r: x[r], batch) for r in rows)


def total_loss(critic: Critic, params: tuple[Params, ...], parts: tuple[Batch, ...]) -> jax.Array:
    """The sum of the members' losses, each on its own part of the batch."""
    # A loop, not vmap: members share no parameter, and batched products are slower on a CPU.
    return sum((critic.loss(p, part) for p, part in zip(params, parts, strict=True)), start=jnp.zeros(()))


def fit(
    critic: Critic,
    params: tuple[Params, ...],
    opt_state: Any,
    parts: tuple[Batch, ...],
    iterations: int,
    key: jax.Array | None = None,
    progress: ArrayLike = 0.0,
) -> tuple[tuple[Params, ...], Any]:
    """Adam steps; returns new parameters and new optimiser state.

    Steps depend on nothing but their predecessor: n at once or in pieces come to the same.

    Args:
        critic: what is fitted.
        params: its members' parameters.
        opt_state: Adam's.
        parts: each member's own part of the batch.
        iterations: steps on the whole batch; with `minibatch_size`, passes over it.
        key: what minibatches are drawn with, where there are any.
        progress: how far the decay of the learning rate has come, 0 to 1.
    """
    config, size = critic.config, critic.config.minibatch_size
    rate = optimisers.decayed(config.critic_learning_rate, config.critic_learning_rate_end, progress)

    def step(carry: tuple[Any, Any], parts: tuple[Batch, ...]) -> tuple[Any, Any]:
        params, opt_state = carry
        grads = jax.grad(total_loss, argnums=1)(critic, params, parts)
        return optimisers.step(params, grads, opt_state, rate, config.max_grad_norm)

    def one_pass(carry: tuple[Any, Any]) -> tuple[Any, Any]:
        assert key is not None and size is not None
        # The count of steps names the pass, so that a pass is the same in whatever piece it falls.
        now = jax.random.fold_in(key, optimisers.steps_taken(carry[1]))
        keys = jax.random.split(now, len(parts))
        batches = tuple(minibatches.shuffled(k, part, size) for k, part in zip(keys, parts, strict=True))
        return jax.lax.scan(lambda c, batch: (step(c, batch), None), carry, batches)[0]

    iterate = one_pass if size is not None else lambda carry: step(carry, parts)
    return jax.lax.fori_loop(0, iterations, lambda _, carry: iterate(carry), (params, opt_state))


class _Scalar(Critic):
    """What critics with one value per member share: squared error."""

    def init_member(self, key: jax.Array, obs_size: int) -> Params:
        """A network with one output."""
        return self.init_network(key, obs_size, 1)

    def values(self, params: tuple[Params, ...], obs: jax.Array) -> jax.Array:
        """The members' values [B, K]."""
        return jnp.concatenate([self.network(p, obs) for p in params], axis=-1)

    def loss(self, params: Params, batch: Batch) -> jax.Array:
        """Mean (V − G)² over the member's own part."""
        return batch.mean((self.values((params,), batch.obs)[:, 0] - batch.returns) ** 2)


@final
class Plain(_Scalar):
    """One value per state: the baseline."""

    has_error = False
    default_weighting = "uniform"

    def predict(self, params: tuple[Params, ...], obs: jax.Array) -> Prediction:
        """One bar, no spread, no error."""
        value = jnp.mean(self.values(params, obs), axis=-1)
        return Prediction(value[:, None], value, jnp.zeros_like(value), jnp.zeros_like(value))


@final
class Ensemble(_Scalar):
    """K values per state; the error is their sample standard deviation."""

    has_error = True
    weighs_states = True
    error_name = "Disagreement"
    default_weighting = "accuracy"
    default_members = 5
    min_members = 2

    def predict(self, params: tuple[Params, ...], obs: jax.Array) -> Prediction:
        """The members' values as bars; std over members with ddof 1."""
        values = self.values(params, obs)
        std = jnp.std(values, axis=-1, ddof=1)
        return Prediction(values, jnp.mean(values, axis=-1), std, std)


class _Bars(Critic):
    """What critics with quantile bars share: the bars' mean, fitted normal and normality error."""

    quantiles = True
    has_error = True
    weighs_states = True
    error_name = "Normality error E"

    @abc.abstractmethod
    def bars(self, params: Params, obs: jax.Array) -> jax.Array:
        """One member's bars [B, N]."""

    def predict(self, params: tuple[Params, ...], obs: jax.Array) -> Prediction:
        """Bars averaged over members; the error is the mean of the members' own errors."""
        members = jnp.stack([self.bars(p, obs) for p in params])  # [K, B, N]
        error = jnp.mean(normal.normality_error(members, self.config.crossing_error), axis=0)
        bars = jnp.mean(members, axis=0)
        mean, _, _ = normal.fit_normal(bars)
        # A spread is no less than 0: where bars cross, it is that of the same bars in order. (Who does not ask for it
        # does not pay: sorting rows of 8 is slow on a GPU.)
        _, std, _ = normal.fit_normal(jnp.sort(bars, axis=-1, stable=False))
        return Prediction(bars, mean, std, error)


@final
class Quantile(_Bars):
    """N bars learnt by quantile regression (the paper's "QR")."""

    default_weighting = "uniform"

    def init_member(self, key: jax.Array, obs_size: int) -> Params:
        """A network with N outputs."""
        return self.init_network(key, obs_size, self.config.n_quantiles)

    def bars(self, params: Params, obs: jax.Array) -> jax.Array:
        """The outputs."""
        return self.network(params, obs)

    def loss(self, params: Params, batch: Batch) -> jax.Array:
        """Quantile Huber of eq. 8.

        `shifted`: bar i against q_i(s) + Â(s) (the authors' code). `bellman`: every bar i against every
        target atom r + γ q_j(s') (eq. 4 for V).
        """
        bars = self.bars(params, batch.obs)  # [B, N]
        tau = normal.taus(self.config.n_quantiles)
        if self.config.qr_target == "shifted":
            u = batch.bars + batch.advantage[:, None] - bars
            return batch.mean(losses.quantile_huber(u, tau[None, :], self.config.kappa))
        atoms = batch.reward[:, None] + batch.discount[:, None] * batch.next_bars
        u = atoms[:, None, :] - bars[:, :, None]  # [B, i, j]
        return batch.mean(losses.quantile_huber(u, tau[None, :, None], self.config.kappa))


class _Guided(_Bars):
    """What critics share whose bars are guided by a variance network: σ_ψ² of the returns from each state."""

    default_weighting = "accuracy"

    @property
    @abc.abstractmethod
    def outputs(self) -> int:
        """How many numbers describe the value distribution."""

    def init_member(self, key: jax.Array, obs_size: int) -> Params:
        """Two networks of equal width, or one trunk with one more output."""
        key_bars, key_variance = jax.random.split(key)
        if self.config.trunk == "shared":
            return {"both": self.init_network(key_bars, obs_size, self.outputs + 1)}
        return {
            "bars": self.init_network(key_bars, obs_size, self.outputs),
            "variance": self.init_network(key_variance, obs_size, 1),
        }

    def raw(self, params: Params, obs: jax.Array) -> jax.Array:
        """The outputs [B, outputs]."""
        return self.network(params.get("bars", params.get("both")), obs)[:, : self.outputs]

    def raw_and_variance(self, params: Params, obs: jax.Array) -> tuple[jax.Array, jax.Array]:
        """The outputs and σ_ψ² [B]."""
        if self.config.trunk == "shared":
            both = self.network(params["both"], obs)
            return both[:, :-1], self.variance(both[:, -1])
        raw = self.network(params["variance"], obs)[:, 0]
        return self.network(params["bars"], obs), self.variance(raw)

    def diagnostics(self, params: tuple[Params, ...], obs: jax.Array) -> dict[str, jax.Array]:
        """The variance network's mean σ_ψ, and its share of states at the floor, where it cannot learn."""
        variance = jnp.stack([self.raw_and_variance(p, obs)[1] for p in params])
        lowest = self.config.variance_floor ** (2 if self.config.variance_head == "std" else 1)
        return {
            "value/guide_std": jnp.mean(jnp.sqrt(variance)),
            "value/guide_floored": jnp.mean(variance <= lowest),
        }

    def variance(self, raw: jax.Array) -> jax.Array:
        """σ² from the head's raw output [B], floored."""
        floor = self.config.variance_floor
        match self.config.variance_head:
            case "variance":
                return jnp.maximum(raw, floor)
            case "log_variance":
                return jnp.maximum(jnp.exp(raw), floor)
            case _:  # "std": the floor is the standard deviation's, as in the authors' code
                return jnp.maximum(raw, floor) ** 2


@final
class Normal(_Guided):
    """MC-CLT: N bars guided towards G + σ_ψ(s)·Z[i]."""

    scales_residuals = True

    @property
    def outputs(self) -> int:
        """A bar each."""
        return self.config.n_quantiles

    def bars(self, params: Params, obs: jax.Array) -> jax.Array:
        """The outputs."""
        return self.raw(params, obs)

    def loss(self, params: Params, batch: Batch) -> jax.Array:
        """Quantile Huber towards the guide (eq. 8) + Gaussian NLL of the variance (eq. 6).

        With `variance_scaling` its gradient is that of DSAC-T (Duan et al. 2025): over σ_ψ² of the state, times the
        mean σ_ψ² of the batch. So where it points does not depend on the unit of rewards, but for the variance's floor.
        """
        config = self.config
        bars, variance = self.raw_and_variance(params, batch.obs)
        error = jax.lax.stop_gradient(jnp.mean(bars, axis=-1) - batch.returns)
        sigma = jax.lax.stop_gradient(jnp.sqrt(variance))
        guide = batch.returns[:, None] + sigma[:, None] * normal.z_table(config.n_quantiles)[None, :]
        rho = losses.quantile_huber if config.guide == "quantile" else losses.symmetric_huber
        tau = normal.taus(config.n_quantiles)[None, :]
        nll = jnp.mean(losses.gaussian_nll(error**2, variance))
        if not config.variance_scaling:
            return batch.mean(rho(guide - bars, tau, config.kappa)) + nll
        mean_variance = jnp.mean(sigma**2)
        unit = jnp.sqrt(sigma**2 + LEAST_SHARE * mean_variance)[:, None]
        return mean_variance * (batch.mean(rho((guide - bars) / unit, tau, config.kappa)) + nll)


@final
class HlGauss(_Guided):
    """A histogram over [−value_max, value_max], learnt by cross-entropy towards that of N(G, σ_ψ²) (HL-Gauss).

    Imani & White 2018, Farebrother et al. 2024 give the target one width everywhere; here each state has its own, from
    the variance network, but at least ¾ of a bin.
    """

    interpolated = True

    @property
    def outputs(self) -> int:
        """A logit per bin."""
        return self.config.value_bins

    @property
    def edges(self) -> jax.Array:
        """Of the bins [K + 1]."""
        return self.config.value_max * jnp.linspace(-1.0, 1.0, self.outputs + 1)

    def moments(self, p: jax.Array) -> tuple[jax.Array, jax.Array]:
        """Mean and standard deviation [B] of histograms [B, K]."""
        centres = 0.5 * (self.edges[1:] + self.edges[:-1])[None, :]
        mean = jnp.sum(p * centres, axis=-1)
        return mean, jnp.sqrt(jnp.sum(p * (centres - mean[:, None]) ** 2, axis=-1))

    def quantiles_of(self, p: jax.Array) -> jax.Array:
        """The bars [B, N] of histograms: every bin has its share of its width below a bar."""
        below = jnp.cumsum(p, axis=-1) - p
        tau = normal.taus(self.config.n_quantiles)[None, :, None]
        share = jnp.clip((tau - below[:, None, :]) / jnp.maximum(p, 1e-12)[:, None, :], 0.0, 1.0)
        return self.edges[0] + (self.edges[1] - self.edges[0]) * jnp.sum(share, axis=-1)

    def bars(self, params: Params, obs: jax.Array) -> jax.Array:
        """Of the member's histogram."""
        return self.quantiles_of(jax.nn.softmax(self.raw(params, obs)))

    def predict(self, params: tuple[Params, ...], obs: jax.Array) -> Prediction:
        """The mean of the members' histograms: its mean and deviation, its bars and their normality error."""
        p = jnp.mean(jnp.stack([jax.nn.softmax(self.raw(each, obs)) for each in params]), axis=0)
        bars, (mean, std) = self.quantiles_of(p), self.moments(p)
        return Prediction(bars, mean, std, normal.normality_error(bars, self.config.crossing_error))

    def target(self, returns: jax.Array, variance: jax.Array) -> jax.Array:
        """The histograms [B, K] of N(G, σ²), G cut to the range and the normal to what of it lies inside."""
        width = self.edges[1] - self.edges[0]
        sigma = jnp.maximum(jnp.sqrt(variance), 0.75 * width)
        centre = jnp.clip(returns, self.edges[0], self.edges[-1])
        below = jax.scipy.special.ndtr((self.edges[None, :] - centre[:, None]) / sigma[:, None])
        return jnp.diff(below, axis=-1) / (below[:, -1:] - below[:, :1])

    def loss(self, params: Params, batch: Batch) -> jax.Array:
        """Cross-entropy towards the target + Gaussian NLL of the variance (eq. 6)."""
        logits, variance = self.raw_and_variance(params, batch.obs)
        target = jax.lax.stop_gradient(self.target(batch.returns, variance))
        error = jax.lax.stop_gradient(self.moments(jax.nn.softmax(logits))[0] - batch.returns)
        cross_entropy = -jnp.sum(target * jax.nn.log_softmax(logits), axis=-1)
        return batch.mean(cross_entropy) + jnp.mean(losses.gaussian_nll(error**2, variance))


CRITICS: dict[str, type[Critic]] = {
    "plain": Plain,
    "quantile": Quantile,
    "normal": Normal,
    "hl_gauss": HlGauss,
    "ensemble": Ensemble,
}
"""Every critic by the name a user gives it."""
