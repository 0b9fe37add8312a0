"""Algorithm 1 of the paper: one update of one agent. `population.py` maps it over many.

The collecting half of the algorithm is in `collect.py`; no critic runs there. Everything else, from the
stored transitions to new parameters, is `Learner.update`, a pure function of explicit state.
"""

from collections.abc import Hashable
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, NamedTuple

import jax
import jax.numpy as jnp
from jax.flatten_util import ravel_pytree

from mcclt.config import PARTS, AgentConfig
from mcclt.errors import ConfigError, UnknownNameError
from mcclt.method import advantages, critics, nets, normalisation, optimisers, settings
from mcclt.method.critics import CRITICS, Batch, Critic, Prediction
from mcclt.method.nets import Actor, Array, Params, Policy
from mcclt.method.normalisation import Normaliser
from mcclt.method.policy_updates import POLICY_UPDATES, PolicyBatch, PolicyUpdate
from mcclt.method.randomness import Purpose, stream
from mcclt.method.settings import Numbers, Structure
from mcclt.method.weighting import WEIGHTINGS, Temperature, Weighting, shares

if TYPE_CHECKING:
    from mcclt.envs.api import EnvSpec

Metrics = dict[str, jax.Array]
Batches = tuple[Batch, ...]
"""One batch per member of a critic."""


@jax.tree_util.register_dataclass
@dataclass(frozen=True)
class TrainState:
    """All that one agent is. A population holds these stacked: every leaf has a leading axis of agents."""

    seed: jax.Array
    """[] uint32: names all of the agent's randomness."""
    update: jax.Array
    """[] int32: how many updates it has made."""
    numbers: Numbers
    """Its settings that are numbers. (Files do not hold them: a configuration does.)"""
    policy: Params
    policy_opt: Any
    critic: Params
    critic_opt: Any
    temperature: jax.Array
    """[] float32: that of the last update, in the paper's units; 0 before the first, or if none was found."""
    skipped: jax.Array
    """[] int32: how often a new policy or critic was dropped because it had a number that is not finite."""
    norm: Normaliser
    """The running statistics that observations and rewards are normalised by; empty where neither is."""


@jax.tree_util.register_dataclass
@dataclass(frozen=True)
class Rollout:
    """What one agent saw: T steps of E environments."""

    obs: Array
    """[T, E, O]."""
    action: Array
    """[T, E, D] as drawn, before clipping to the box; [T, E] for discrete actions."""
    reward: Array
    """[T, E]."""
    terminated: Array
    """[T, E] the task ended."""
    truncated: Array
    """[T, E] the time limit cut the episode."""
    next_obs: Array
    """[T, E, O] the true successor, also where the environment was reset."""


class NormalisedRollout(NamedTuple):
    """A flat rollout, with observations and rewards normalised where the agent does that."""

    obs: jax.Array
    """[B, O] as the policy saw them."""
    next_obs: jax.Array
    """[B, O]."""
    rollout: Rollout
    """With rewards in the unit that the critic learns in."""
    norm: Normaliser
    """Statistics that know this rollout."""
    change: jax.Array | None
    """[] the critic's values times this are in that unit; none where no unit changes."""


class Targets(NamedTuple):
    """What one agent learns from, made from a rollout and the critic's predictions."""

    policy_batch: PolicyBatch
    critic_batches: Batches
    temperature: jax.Array
    norm: Normaliser
    metrics: Metrics

    def applied_to(self, state: TrainState) -> TrainState:
        """The agent with the temperature and the running statistics of this rollout."""
        return replace(state, temperature=self.temperature, norm=self.norm)


def lookup(kind: str, name: str, table: dict[str, Any]) -> Any:
    """A class by name, or an error that lists the names."""
    if name not in table:
        raise UnknownNameError(kind, name, table)
    return table[name]


def _those_with(attribute: str) -> str:
    """The names of the critics that have something."""
    *others, last = [repr(name) for name, kind in CRITICS.items() if getattr(kind, attribute)]
    return f"{', '.join(others)} or {last}" if others else last


def policy_for(spec: "EnvSpec", config: AgentConfig) -> Policy:
    """The kind of policy for a task's actions."""
    network: dict[str, Any] = {"hidden": config.policy_hidden, "activation": config.policy_activation}
    if spec.action_low is None or spec.action_high is None:
        return nets.Categorical(spec.action_size, **network)
    if spec.action_counts is None:
        return nets.Gaussian(spec.action_size, **network)
    return nets.Bins.over(spec.action_counts, spec.action_low, spec.action_high, **network)


STEPS = {
    "init": ("policy", "critic", "targets"),
    "take_turns": ("policy", "critic", "weights", "targets"),
    "prepare": ("critic", "weights", "targets"),
    "step_policy": ("policy",),
    "fit": ("critic",),
}
"""The programs of an agent's life, and the parts whose settings each reads."""


class Learner:
    """How an agent learns: the parts chosen by name, and `update`.

    Its functions read an agent's numbers from its state, so they serve all agents of the same structure: learners
    with equal `key`s of a step are interchangeable there.
    """

    def __init__(self, config: AgentConfig, spec: "EnvSpec", n_envs: int = 1, steps_per_update: int = 1) -> None:
        """Chooses the parts.

        Args:
            config: how to learn.
            spec: of the task.
            n_envs: environments per agent; only an agent that normalises rewards needs to know.
            steps_per_update: of an agent; only one whose learning rates decay needs to know.
        """
        self.obs_size, self.n_envs, self.steps_per_update = spec.obs_size, n_envs, steps_per_update
        self._critic = lookup("critic", config.critic, CRITICS)
        critic: Critic = self._critic(config)
        self.config = config = replace(
            config, weighting=config.weighting or critic.default_weighting, members=critic.members
        )
        """With nothing left to be chosen."""
        self.critic: Critic = self._critic(config)
        self._weighting = lookup("weighting", config.weighting or "", WEIGHTINGS)
        self.weighting: Weighting = self._weighting(config)
        self._of_variance = getattr(self.weighting, "of_variance", False)
        self._policy_update = lookup("algo", config.algo, POLICY_UPDATES)
        self.policy: Policy = policy_for(spec, config)
        self.actor: Actor = normalisation.Normalised(self.policy) if config.normalize_obs else self.policy
        """The policy on raw observations; `acting` gives its parameters."""
        self._structures = {part: Structure.of(config, part) for part in PARTS}
        self._check()

    def key(self, step: str) -> Hashable:
        """What a program of `STEPS` is made from, besides the shapes of its arguments; equal keys, equal programs."""
        kinds = {"critic": self._critic, "weights": self._weighting, "policy": self._policy_update, "targets": None}
        parts = tuple((kinds[part], self._structures[part]) for part in STEPS[step])
        policy = self.policy if "policy" in STEPS[step] else None
        return step, parts, policy, self.obs_size, self.n_envs, self.steps_per_update

    @property
    def in_turns(self) -> bool:
        """Whether policy and critic learn by turns, in `take_turns`; otherwise the critic may learn later."""
        return self.config.recompute_advantages

    def settings(self, part: str, numbers: Numbers) -> AgentConfig:
        """The settings of one part, as an agent with these numbers has them."""
        return self._structures[part].settings(numbers)

    def critic_of(self, numbers: Numbers) -> Critic:
        """The critic, with an agent's own numbers."""
        return self._critic(self.settings("critic", numbers))

    def weighting_of(self, numbers: Numbers) -> Weighting:
        """The weighting, likewise."""
        return self._weighting(self.settings("weights", numbers))

    def policy_update_of(self, numbers: Numbers) -> PolicyUpdate:
        """The policy update, likewise."""
        return self._policy_update(self.settings("policy", numbers), self.policy)

    def _check(self) -> None:
        name, critic = self.config.critic, self.critic
        if self.weighting.needs_error and not critic.has_error:
            raise ConfigError(
                f"weighting {self.config.weighting!r} needs a critic with an error per state, and {name!r} has none:"
                f" choose weighting 'uniform', or critic {_those_with('has_error')}."
            )
        if self.weighting.needs_error and not self._of_variance and critic.quantiles and self.config.n_quantiles < 3:
            raise ConfigError(
                f"weighting {self.config.weighting!r} needs n_quantiles of at least 3 with critic {name!r}: two bars "
                "fit a normal exactly, whatever they are."
            )
        if self.config.critic_w_tar is not None and not critic.weighs_states:
            raise ConfigError(
                f"critic_w_tar needs a critic that weighs states by their variance, and {name!r} does not:"
                f" leave it unset, or choose critic {_those_with('weighs_states')}."
            )
        if self.config.variance_scaling and not critic.scales_residuals:
            raise ConfigError(
                "variance_scaling needs a critic with residuals in units of returns and a variance network, and"
                f" {name!r} is none: leave it off, or choose critic {_those_with('scales_residuals')}."
            )
        if critic.members < critic.min_members:
            raise ConfigError(f"critic {name!r} needs members of at least {critic.min_members}.")
        if self.in_turns and not hasattr(self._policy_update, "one_pass"):
            raise ConfigError(
                f"recompute_advantages needs an algo that learns in epochs, and {self.config.algo!r} does not."
            )

    def init(self, seed: jax.Array, numbers: Numbers | None = None) -> TrainState:
        """A new agent; with the numbers of its own configuration, unless others are given."""
        numbers = settings.numbers(self.config) if numbers is None else numbers
        own = self.settings("policy", numbers)
        policy = self.policy.init(stream(seed, Purpose.POLICY_INIT), self.obs_size, own)
        critic = self.critic_of(numbers).init(stream(seed, Purpose.CRITIC_INIT), self.obs_size)
        return TrainState(
            seed=jnp.asarray(seed, jnp.uint32),
            update=jnp.zeros((), jnp.int32),
            numbers=numbers,
            policy=policy,
            policy_opt=self.policy_update_of(numbers).init(policy),
            critic=critic,
            critic_opt=optimisers.ADAM.init(critic),
            temperature=jnp.zeros((), jnp.float32),
            skipped=jnp.zeros((), jnp.int32),
            norm=normalisation.init(
                self.obs_size if self.config.normalize_obs else None,
                self.n_envs if self.config.normalize_reward else None,
            ),
        )

    def acting(self, policy: Params, norm: Normaliser) -> Params:
        """The parameters of `actor`, from the policies and statistics of agents stacked."""
        return normalisation.acting(policy, norm, self.obs_size) if self.config.normalize_obs else policy

    def predict(self, state: TrainState, obs: jax.Array) -> Prediction:
        """The critic's value distribution at raw observations [B, O], in the task's own rewards.

        But `error` stays in the unit that the critic learns in: the temperature is in it, so `weights` wants it.
        """
        prediction = self._believe(state, normalisation.normalise_obs(state.norm, obs))
        returns = state.norm.returns
        return prediction if returns is None else in_unit(prediction, normalisation.scale_of(returns))

    def _believe(self, state: TrainState, obs: jax.Array) -> Prediction:
        """The critic's prediction; its error is what weights are made from."""
        found = self.critic_of(state.numbers).predict(state.critic, obs)
        return found._replace(error=found.std**2) if self._of_variance else found

    def weights(self, state: TrainState, error: jax.Array) -> jax.Array:
        """The weights that states with these errors [B] would get, at the temperature of the last update."""
        return self.weighting_of(state.numbers).weights(error, Temperature(state.temperature, state.temperature > 0))

    def update(self, state: TrainState, rollout: Rollout) -> tuple[TrainState, Metrics]:
        """Algorithm 1, lines 7-9 and 15-18, on a rollout that is already collected (lines 4-6, 10-14)."""
        if self.in_turns:
            return self.take_turns(state, rollout)
        state, batches, metrics = self.improve(state, rollout)
        return self.accept(state, self.fit(state, batches, self.config.critic_iterations)), metrics

    def improve(self, state: TrainState, rollout: Rollout) -> tuple[TrainState, Batches, Metrics]:
        """The first half: everything but the critic's fit, which only the next update needs.

        So a new rollout can be collected while the critic still learns from this one.
        """
        targets = self.prepare(state, rollout)
        new, metrics = self.step_policy(state, targets.policy_batch)
        return targets.applied_to(new), targets.critic_batches, metrics | targets.metrics

    def take_turns(self, state: TrainState, rollout: Rollout) -> tuple[TrainState, Metrics]:
        """A whole update of an agent that recomputes advantages: passes of the policy, each with some of the critic.

        Ratios stay those to the policy that collected the rollout. Once the KL stops it, only the critic goes on.
        """
        normalised, passes = self.normalise(state, rollout), self.config.policy_iterations
        update: Any = self.policy_update_of(state.numbers)
        log_prob = update.log_prob(state.policy, normalised.obs, flatten(rollout.action))
        progress = self._progress(state)
        # The critic's first pass is made in the new unit of rewards, and so are its values from then on.
        units = None if normalised.change is None else jnp.ones(passes).at[0].set(normalised.change)

        def turn(carry: tuple[Any, TrainState], unit: jax.Array | None) -> tuple[Any, Any]:
            now, agent = carry
            targets = self.targets(agent, normalised._replace(change=unit))
            now = update.one_pass(now, targets.policy_batch._replace(log_prob=log_prob, progress=progress))
            fitted = self.fit(
                replace(agent, update=agent.update + 1), targets.critic_batches, self.config.critic_iterations // passes
            )
            agent = replace(agent, critic=fitted.critic, critic_opt=fitted.critic_opt)
            return (now, agent), (targets.temperature, targets.metrics)

        start = (update.start(state.policy, state.policy_opt), state)
        (now, fitted), (temperatures, metrics) = jax.lax.scan(turn, start, units, passes)
        fitted = replace(fitted, temperature=temperatures[-1], norm=normalised.norm)
        new, more = self._with_policy(self.accept(state, fitted), update.finish(now), normalised.obs)
        return new, more | jax.tree.map(lambda x: x[0], metrics)

    def normalise(self, state: TrainState, raw: Rollout) -> NormalisedRollout:
        """A rollout as it was collected, flattened and normalised."""
        gamma = self.settings("targets", state.numbers).gamma
        # Observations as the policy saw them. No action depends on rewards: their statistics know this rollout's.
        norm = normalisation.absorb_rewards(state.norm, raw.reward, raw.terminated | raw.truncated, gamma)
        obs, next_obs = (normalisation.normalise_obs(norm, flatten(x)) for x in (raw.obs, raw.next_obs))
        rollout = replace(raw, reward=normalisation.normalise_reward(norm, raw.reward))
        change = normalisation.change_of_unit(state.norm, norm)
        return NormalisedRollout(obs, next_obs, rollout, normalisation.absorb_obs(norm, raw.obs), change)

    def prepare(self, state: TrainState, rollout: Rollout) -> Targets:
        """Batches for policy and critic, by the critic so far; asks no policy."""
        return self.targets(state, self.normalise(state, rollout))

    def targets(self, state: TrainState, normalised: NormalisedRollout) -> Targets:
        """The same from a rollout that is normalised already."""
        config = self.settings("targets", state.numbers)
        critic, weighting = self.critic_of(state.numbers), self.weighting_of(state.numbers)
        obs, next_obs, rollout, norm, change = normalised

        # Lines 7-9: the value distribution q(s), its mean and its error E at every stored state.
        now, after = (self._believe(state, x) for x in (obs, next_obs))
        if change is not None:
            now, after = in_unit(now, change), in_unit(after, change)

        # Line 15: the temperature T, and the weights w(s) it gives.
        temperature = weighting.search(now.error)
        weight = weighting.weights(now.error, temperature)
        next_weight = jnp.where(flatten(rollout.terminated), 1.0, weighting.weights(after.error, temperature))

        # Advantages by GAE on q_avg, and the returns G that the critic learns.
        advantage, own_advantage, returns = advantages_and_returns(config, rollout, now, after, weight, next_weight)

        # Line 18, prepared: on values predicted by the old critic (as in Spinning Up).
        policy_batch = PolicyBatch(
            obs=obs,
            action=flatten(rollout.action),
            advantage=advantages.normalised(advantage),
            weight=weight if config.weight_site == "objective" else jnp.ones_like(weight),
            key=stream(state.seed, Purpose.POLICY_MINIBATCHES, state.update),
        )

        # Lines 16-17, prepared: what the target bars, and the critic's and variance network's losses are made from.
        w_tar = critic.config.critic_w_tar
        batch = Batch(
            obs=obs,
            returns=returns,
            advantage=own_advantage,
            reward=flatten(rollout.reward),
            discount=config.gamma * ~flatten(rollout.terminated),
            bars=now.bars,
            next_bars=after.bars,
            weight=None if w_tar is None else shares(now.std**2, w_tar),
        )
        batches = critics.divide(critic, batch, stream(state.seed, Purpose.MEMBER_SPLIT, state.update))
        metrics = {
            "train/value_loss": critics.total_loss(critic, state.critic, batches) / critic.members,
            "train/explained_variance": 1 - jnp.var(returns - now.mean) / (jnp.var(returns) + 1e-8),
            **critic.diagnostics(state.critic, obs),
            "value/mean": jnp.mean(now.mean),
            "value/std": jnp.mean(now.std),
            "value/normality_error": jnp.mean(now.error),
            "weight/mean": jnp.mean(weight),
            "weight/min": jnp.min(weight),
            "weight/temperature": temperature.value,
            "weight/search_failed": 1.0 - temperature.found,
        }
        if norm.returns is not None:
            metrics["value/reward_unit"] = normalisation.scale_of(norm.returns)
        return Targets(policy_batch, batches, temperature.value, norm, metrics)

    def step_policy(self, state: TrainState, batch: PolicyBatch) -> tuple[TrainState, Metrics]:
        """Line 18: the policy, before the critic; asks no critic. It counts as this update's."""
        batch, update = batch._replace(progress=self._progress(state)), self.policy_update_of(state.numbers)
        return self._with_policy(state, update.update(state.policy, state.policy_opt, batch), batch.obs)

    def _progress(self, state: TrainState) -> jax.Array:
        """How far the decay of the policy's learning rate has come."""
        own = self.settings("policy", state.numbers)
        return optimisers.progress(state.update, self.steps_per_update, own.decay_steps)

    def _with_policy(
        self, state: TrainState, found: tuple[Params, Any, Metrics], obs: jax.Array
    ) -> tuple[TrainState, Metrics]:
        """The agent with the policy that an update found at obs, if it is finite everywhere; it has made one more."""
        policy, policy_opt, metrics = found
        (policy, policy_opt), skipped = keep_finite((state.policy, state.policy_opt), (policy, policy_opt))
        new = replace(
            state,
            update=state.update + 1,
            policy=policy,
            policy_opt=policy_opt,
            skipped=state.skipped + skipped,
        )
        return new, metrics | {
            "train/entropy": jnp.mean(self.policy.entropy(self.policy.distribution(policy, obs))),
            "train/skipped": new.skipped.astype(jnp.float32),
        }

    def fit(self, state: TrainState, batches: Batches, iterations: int) -> TrainState:
        """The second half, lines 16-17: `iterations` steps of the critic and the variance network."""
        key = stream(state.seed, Purpose.CRITIC_MINIBATCHES, state.update)
        own = self.settings("critic", state.numbers)
        progress = optimisers.progress(state.update - 1, self.steps_per_update, own.decay_steps)  # the policy's
        critic, critic_opt = critics.fit(
            self.critic_of(state.numbers), state.critic, state.critic_opt, batches, iterations, key, progress
        )
        return replace(state, critic=critic, critic_opt=critic_opt)

    def accept(self, before: TrainState, after: TrainState) -> TrainState:
        """The agent after its fit; with its old critic if the new one is not finite everywhere."""
        old, new = (before.critic, before.critic_opt), (after.critic, after.critic_opt)
        (critic, critic_opt), skipped = keep_finite(old, new)
        return replace(after, critic=critic, critic_opt=critic_opt, skipped=after.skipped + skipped)


def advantages_and_returns(
    config: AgentConfig,
    rollout: Rollout,
    now: Prediction,
    after: Prediction,
    weight: jax.Array,
    next_weight: jax.Array,
) -> tuple[jax.Array, jax.Array, jax.Array]:
    """Â [B] for the policy, Â [B] by the critic's own λ, and the critic's target G [B]."""
    shape = rollout.reward.shape
    value, next_value = now.mean.reshape(shape), after.mean.reshape(shape)
    target = advantages.td_target(rollout.reward, next_value, rollout.terminated, config.gamma)
    td_error = target - value
    if config.weight_site == "td_error":  # the authors' code: δ_t · (γ w_{t+1} + w_t)/2
        td_error *= (config.gamma * next_weight + weight).reshape(shape) / 2
    ends = (rollout.terminated, rollout.truncated)
    advantage = own = flatten(advantages.gae(td_error, *ends, config.gamma, config.gae_lambda))
    if config.critic_gae_lambda is not None:
        own = flatten(advantages.gae(td_error, *ends, config.gamma, config.critic_gae_lambda))
    match config.value_target:
        case "lambda":
            returns = own + now.mean
        case "monte_carlo":
            returns = flatten(advantages.monte_carlo(rollout.reward, next_value, *ends, config.gamma))
        case _:  # "td"
            returns = flatten(target)
    return advantage, own, returns


def without_numbers(state: TrainState) -> TrainState:
    """As it is stored: its numbers are in the configuration beside it."""
    return replace(state, numbers={})


def in_unit(prediction: Prediction, factor: jax.Array) -> Prediction:
    """Values in another unit: bars, mean and spread times `factor` []; the error is left in the critic's own."""
    return prediction._replace(
        bars=factor * prediction.bars, mean=factor * prediction.mean, std=factor * prediction.std
    )


def flatten(x: jax.Array) -> jax.Array:
    """[T, E, ...] → [B, ...]."""
    return x.reshape(x.shape[0] * x.shape[1], *x.shape[2:])


def keep_finite(old: Any, new: Any) -> tuple[Any, jax.Array]:
    """The new tree if all its numbers are finite, otherwise the old one; and whether that was necessary."""
    # As one vector and one choice: a program for each of some forty arrays would take two seconds to compile.
    finite = jnp.all(jnp.isfinite(ravel_pytree(new)[0]))
    return jax.lax.cond(finite, lambda: new, lambda: old), ~finite
