"""Every setting: its type, its default and one sentence, once. The command line's help is made from this.

Two frozen dataclasses: `AgentConfig` says how one agent learns, `RunConfig` what is trained (task, seeds,
steps, and one `AgentConfig` per group of a population). This module does not import JAX.
"""

import dataclasses
import difflib
import re
import typing
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

from mcclt.config.values import check_types, fields_of, require, require_each
from mcclt.errors import ConfigError, shown


@dataclass(frozen=True)
class AgentConfig:
    """How one agent learns. The defaults are the paper's."""

    algo: str = "ppo"
    """Policy update: ppo or trpo."""
    critic: str = "normal"
    """Value distribution: plain, quantile, normal (MC-CLT), hl_gauss or ensemble."""
    weighting: str | None = None
    """Weights per state: uniform, accuracy, exploration, inverse_variance; unset: the paper's choice for the critic."""

    gamma: float = 0.99
    """Discount of future rewards."""
    gae_lambda: float = 0.97
    """Lambda of generalised advantage estimation."""
    critic_gae_lambda: float | None = None
    """Lambda of the critic's lambda-return target; unset: gae_lambda."""
    value_target: Literal["lambda", "monte_carlo", "td"] = "lambda"
    """Regression target of the critic: lambda-return, Monte Carlo return or one-step TD target."""
    weight_site: Literal["objective", "td_error"] = "objective"
    """Where weights act: on the policy objective (paper) or on TD errors inside GAE (authors' code)."""

    normalize_obs: bool = False
    """Normalise observations by running mean and standard deviation, clipped to ±10 (VecNormalize's norm_obs)."""
    normalize_reward: bool = False
    """Divide rewards by the running std of discounted returns, clipped to ±10 (VecNormalize's norm_reward)."""

    ortho_init: bool = False
    """Orthogonal initial weights (gain √2; last layer: policy 0.01, critic 1), biases 0; off: uniform in ±1/√inputs."""
    policy_hidden: tuple[int, ...] = (64, 32)
    """Widths of the policy's hidden layers."""
    policy_activation: Literal["tanh", "relu", "silu", "elu"] = "tanh"
    """Activation of the policy's hidden layers."""
    policy_layer_norm: bool = False
    """Layer norm before each activation of the policy."""
    log_std_init: float = -0.5
    """Continuous actions: the policy's initial log standard deviation."""
    target_kl: float | None = 0.01
    """PPO stops iterating at 1.5 times this (unset: never); TRPO's step keeps the mean KL below it."""
    target_kl_end: float | None = None
    """target_kl after linear decay over decay_steps; unset: constant."""
    learning_rate: float = 3e-4
    """PPO: Adam's learning rate for the policy."""
    learning_rate_end: float | None = None
    """PPO: learning rate after linear decay over decay_steps; unset: constant."""
    policy_iterations: int = 80
    """PPO: most full-batch gradient steps per update; with minibatch_size, epochs over the batch."""
    clip_range: float = 0.2
    """PPO: the probability ratio is clipped to 1 plus or minus this."""
    ent_coef: float = 0.0
    """PPO: coefficient of the entropy bonus."""
    normalize_advantage: Literal["batch", "minibatch"] = "batch"
    """PPO: normalise advantages over the whole batch or over each minibatch."""
    recompute_advantages: bool = False
    """PPO: alternate epochs of policy and critic, and recompute advantages with the current critic before each."""
    cg_max_steps: int = 10
    """TRPO: conjugate-gradient iterations."""
    cg_damping: float = 0.1
    """TRPO: multiple of the identity added to the Fisher matrix."""
    line_search_shrinking_factor: float = 0.8
    """TRPO: factor by which the backtracking line search shortens the step after each failed try."""
    line_search_max_iter: int = 10
    """TRPO: most tries of the line search; if all fail, the policy stays as it is."""
    kl_direction: Literal["old_new", "new_old"] = "old_new"
    """TRPO: KL(old||new) as in the paper, or KL(new||old) as in the authors' code."""
    kl_over_actions: Literal["sum", "mean"] = "sum"
    """TRPO: KL summed over action dimensions, or averaged (authors' code; target_kl, cg_damping are per dimension)."""

    critic_hidden: tuple[int, ...] = (128, 128)
    """Widths of the hidden layers of every critic and variance network."""
    critic_activation: Literal["tanh", "relu", "silu", "elu"] = "relu"
    """Activation of these layers."""
    critic_layer_norm: bool = False
    """Layer norm before each of these activations."""
    critic_learning_rate: float = 1e-3
    """Adam's learning rate for the critic and the variance network."""
    critic_learning_rate_end: float | None = None
    """Critic's learning rate after linear decay over decay_steps; unset: constant."""
    critic_iterations: int = 80
    """Full-batch gradient steps of the critic per update; with minibatch_size, epochs over the batch."""
    minibatch_size: int | None = None
    """States per gradient step of PPO's policy and of the critic; unset: the whole batch, as in the paper."""
    max_grad_norm: float | None = None
    """Gradients of PPO's policy and of the critic are clipped to this norm; unset: no limit."""
    decay_steps: int | None = None
    """Environment steps over which learning rates and target_kl decay; unset: the --steps the run was started with."""
    members: int | None = None
    """Number of critics, each on its own part of the batch; unset: 5 for ensemble, 1 for the others."""
    n_quantiles: int = 8
    """quantile, normal and hl_gauss critic: number N of quantile bars."""
    kappa: float = 1.0
    """quantile and normal critic: Huber threshold, where the loss turns from quadratic to linear."""
    guide: Literal["quantile", "symmetric"] = "quantile"
    """normal critic: quantile Huber (paper) or symmetric Huber guide (right in theory, too narrow when measured)."""
    value_bins: int = 101
    """hl_gauss critic: number of bins of the value distribution."""
    value_max: float = 20.0
    """hl_gauss critic: its bins range from minus this to this, in the critic's units (see normalize_reward)."""
    variance_head: Literal["variance", "log_variance", "std"] = "variance"
    """normal and hl_gauss critic: what the variance network outputs."""
    variance_floor: float = 1e-4
    """normal and hl_gauss critic: smallest variance (standard deviation for the std head)."""
    variance_scaling: bool = False
    """normal critic: scale residuals (and kappa) by the predicted deviation, and the loss by the mean variance."""
    trunk: Literal["separate", "shared"] = "separate"
    """normal and hl_gauss critic: a separate variance network (paper), or one trunk with two heads (ours, cheaper)."""
    qr_target: Literal["shifted", "bellman"] = "shifted"
    """quantile critic: own bars shifted by the advantage, or reward + gamma times the next state's bars."""
    crossing_error: float | None = None
    """quantile, normal and hl_gauss critic: error where a bar crosses the mean (authors: 1e5); unset: as measured."""

    critic_w_tar: float | None = None
    """Mean of inverse-variance weights 1/(1 + vT) in the critic's loss, v the value's variance; unset: no weights."""
    w_tar: float = 0.9
    """accuracy, exploration and inverse_variance weights: their mean, met by searching each batch's temperature."""
    w_min: float = 0.6
    """accuracy weights: smallest weight."""
    temperature: Literal["log", "paper"] = "log"
    """accuracy and exploration weights: temperature search, scale-free and exact, or the authors' coarse linear one."""

    def __post_init__(self) -> None:
        """Refuses values that make no sense."""
        check_types(self)
        positive = (
            "kappa learning_rate policy_iterations critic_learning_rate critic_iterations clip_range cg_max_steps "
            "line_search_max_iter value_max variance_floor"
        )
        require_each(self, positive, lambda x: x > 0, "more than 0")
        require_each(self, "target_kl max_grad_norm decay_steps", lambda x: x > 0, "more than 0, or unset")
        ends = "learning_rate_end target_kl_end critic_learning_rate_end"
        require_each(self, ends, lambda x: x >= 0, "0 or more, or unset")
        require(
            self.target_kl_end is None or self.target_kl is not None,
            f"target_kl_end = {self.target_kl_end}",
            "unset where target_kl is",
        )
        require(
            self.algo != "trpo" or self.target_kl is not None,
            "target_kl = None",
            "more than 0 for trpo, whose step it limits",
        )
        require(
            not self.recompute_advantages or self.critic_iterations % self.policy_iterations == 0,
            f"critic_iterations = {self.critic_iterations}",
            f"a multiple of policy_iterations ({self.policy_iterations}) with recompute_advantages",
        )
        require_each(self, "gamma gae_lambda critic_gae_lambda", lambda x: 0 <= x <= 1, "in [0, 1]")
        require_each(self, "critic_w_tar", lambda x: 0 < x < 1, "between 0 and 1, both excluded, or unset")
        require_each(
            self, "policy_hidden critic_hidden", lambda x: min(x, default=0) > 0, "one or more positive widths"
        )
        require_each(self, "n_quantiles value_bins", lambda x: x >= 2, "at least 2")
        require_each(self, "members minibatch_size", lambda x: x >= 1, "at least 1")
        require_each(self, "crossing_error cg_damping ent_coef", lambda x: x >= 0, "0 or more")
        require_each(self, "line_search_shrinking_factor", lambda x: 0 < x < 1, "between 0 and 1")
        require_each(self, "w_min", lambda x: 0 <= x < 1, "in [0, 1)")
        lowest, name = {"exploration": (0.5, "0.5"), "inverse_variance": (0.0, "0")}.get(
            self.weighting or "", (self.w_min, f"w_min ({self.w_min})")
        )
        require(
            lowest < self.w_tar < 1,
            f"w_tar = {self.w_tar}",
            f"between {name} and 1, both excluded, for a temperature to exist",
        )


PARTS: dict[str, tuple[str, ...]] = {
    "targets": (
        *("gamma", "gae_lambda", "critic_gae_lambda", "value_target", "weight_site"),
        *("normalize_obs", "normalize_reward"),
    ),
    "policy": (
        *("algo", "ortho_init", "policy_hidden", "policy_activation", "policy_layer_norm"),
        *("log_std_init", "target_kl", "target_kl_end", "learning_rate", "learning_rate_end"),
        *("policy_iterations", "clip_range", "ent_coef"),
        *("normalize_advantage", "recompute_advantages", "minibatch_size", "max_grad_norm", "decay_steps"),
        *("cg_max_steps", "cg_damping", "line_search_shrinking_factor", "line_search_max_iter"),
        *("kl_direction", "kl_over_actions"),
    ),
    "critic": (
        *("critic", "ortho_init", "critic_hidden", "critic_activation", "critic_layer_norm"),
        *("critic_learning_rate", "critic_learning_rate_end", "critic_iterations"),
        *("minibatch_size", "max_grad_norm", "decay_steps", "members", "n_quantiles", "kappa", "guide"),
        *("value_bins", "value_max", "variance_head", "variance_floor", "variance_scaling", "trunk", "qr_target"),
        *("crossing_error", "critic_w_tar"),
    ),
    "weights": ("weighting", "w_tar", "w_min", "temperature"),
}
"""Which settings each part of an agent reads."""

WHOLE = frozenset({"decay_steps"})
NUMBERS = WHOLE | frozenset(
    name for name, kind in typing.get_type_hints(AgentConfig).items() if float in (kind, *typing.get_args(kind))
)
"""Settings of an agent that are only numbers: they are data of its state. All others are the structure of its program.

(Whether an optional one is set is structure.) Those in `WHOLE` are whole numbers.
"""


def numbers_of(config: AgentConfig) -> dict[str, float]:
    """The settings that are numbers, in order of their names; 0 where one is unset (which is never read)."""
    values = {name: getattr(config, name) for name in sorted(NUMBERS)}
    return {name: 0.0 if value is None else float(value) for name, value in values.items()}


POLICY_SHAPE = ("policy_hidden", "policy_activation", "policy_layer_norm")
"""Settings that say what a policy computes: those of agents that act together are the same."""
MAX_SEED = 2**32 - 1
FREE = ("steps", "on_nan", "threads", "step_timeout")
"""Run settings that a resumed run may change: they do not change what was learnt so far."""
CHANGEABLE = ("n_envs", "stagger", "steps_per_update", "max_episode_steps")
"""Run settings that a variant or a search may change, like those of an agent: plain@n_envs=1."""
NOT_IDENTITY = (
    *("seeds", "groups", "engine", "threads", "on_nan", "step_timeout"),
    *("checkpoint_freq", "eval_freq", "eval_episodes"),
)
"""Run settings that do not change what an agent becomes. The engine is kept with each result instead."""
UNSTATED = {"stagger": False}
"""What stored settings mean that do not state a later one, where that is not its default."""
GONE = {"policy_head": "gaussian", "policy_bins": 41}
"""Settings of agents that are no more, with the values at which stored configurations may still state them."""


@dataclass(frozen=True)
class RunConfig:
    """What is trained: a population of agents (groups x seeds) on one task."""

    task: str
    """A task id such as Hopper-v5 (`mcclt envs` lists them), or my_env.py:MyEnv."""
    seeds: tuple[int, ...] = (0,)
    """Seeds that train together: 3 (that one alone), 0,1,2 or 0..7 (both ends included)."""
    steps: int = 1_000_000
    """Environment steps per agent, rounded up to whole updates; 1M and 200k are understood."""
    groups: Mapping[str, AgentConfig] = field(default_factory=lambda: {"agent": AgentConfig()})
    """The settings of each group's agents; every group trains every seed."""

    engine: str = "auto"
    """What steps the task: auto, native, warp (GPU), envpool, gymnasium or gymnasium-async."""
    n_envs: int = 16
    """Parallel environments per agent."""
    stagger: bool = True
    """Cut first episodes short at different steps, so that an agent's environments do not run in lockstep."""
    steps_per_update: int = 4_000
    """Environment steps per agent and update, over all its environments."""
    max_episode_steps: int | None = None
    """Time limit of an episode; unset: the task's own."""
    threads: int | None = None
    """Threads that step the environments; unset: one per core."""
    eval_freq: int = 50_000
    """Steps between evaluations during training; 0: none."""
    eval_episodes: int = 10
    """Deterministic episodes per agent and evaluation."""
    final_episodes: int = 100
    """Deterministic episodes of each agent at the end; 0: none."""
    checkpoint_freq: int = 100_000
    """Steps between checkpoints; the last comes at the end (engine warp: they wait for a running evaluation)."""
    on_nan: Literal["raise", "stop", "restart"] = "raise"
    """If an environment fails or gives NaN, raise: end the run; stop: its agent; restart: go on (2 in a row: stop)."""

    step_timeout: float | None = None
    """Seconds after which a step or reset counts as failed, and on_nan applies (gymnasium-async); unset: no limit."""

    def __post_init__(self) -> None:
        """Refuses values that make no sense."""
        check_types(self)
        require_each(self, "step_timeout", lambda x: x > 0, "a positive number of seconds, or unset")
        require(len(self.groups) > 0, "groups = {}", "at least one group")
        for name in self.groups:
            require(
                re.fullmatch(r"[\w+=.,:@-]+", name) is not None and name.strip(".") != "",
                f"group name {shown(name)}",
                "letters, digits and any of - _ . , + = : @ (it becomes part of file names)",
            )
        require(len(self.seeds) > 0, "seeds = ()", "at least one seed, such as 0 or 0..7")
        require(len(set(self.seeds)) == len(self.seeds), f"seeds = {self.seeds}", "without repetitions")
        for seed in self.seeds:
            require(0 <= seed <= MAX_SEED, f"seed = {seed}", "a whole number from 0 to 2^32-1")
        counts = "steps n_envs steps_per_update eval_episodes checkpoint_freq"
        require_each(self, counts, lambda x: x > 0, "a positive whole number")
        require_each(self, "eval_freq final_episodes", lambda x: x >= 0, "0 or more")
        require_each(self, "max_episode_steps threads", lambda x: x > 0, "a positive whole number, or unset")
        require(
            self.steps_per_update % self.n_envs == 0,
            f"steps_per_update = {self.steps_per_update}",
            f"a multiple of n_envs ({self.n_envs})",
        )
        for name in POLICY_SHAPE:
            shapes = {getattr(g, name) for g in self.groups.values()}
            if len(shapes) > 1:
                raise ConfigError(
                    f"The groups differ in {name}: give all of them the same, because their policies act together."
                )

    @property
    def horizon(self) -> int:
        """T: steps of each environment per update."""
        return self.steps_per_update // self.n_envs

    @property
    def updates(self) -> int:
        """How many updates make up `steps`, rounded up to whole ones."""
        return -(-self.steps // self.steps_per_update)

    @property
    def whole_steps(self) -> int:
        """`steps`, rounded up to whole updates: what is trained."""
        return self.updates * self.steps_per_update


def with_decay(config: RunConfig) -> RunConfig:
    """The configuration with the length of every decay settled, which a longer run later on does not change."""
    groups = {name: settled(agent, config.steps) for name, agent in config.groups.items()}
    return config if groups == config.groups else dataclasses.replace(config, groups=groups)


def settled(agent: AgentConfig, steps: int) -> AgentConfig:
    """With the length of its decay, if it has any: that of the run unless said."""
    ends = (agent.learning_rate_end, agent.target_kl_end, agent.critic_learning_rate_end)
    decays = any(end is not None for end in ends)
    return dataclasses.replace(agent, decay_steps=steps) if decays and agent.decay_steps is None else agent


def override(config: Any, values: Mapping[str, Any]) -> Any:
    """A copy of a configuration with some settings replaced; unknown names get a suggestion."""
    names = fields_of(type(config))
    values = {name: value for name, value in values.items() if name not in GONE or value != GONE[name]}
    for name in values:
        if name not in names:
            near = difflib.get_close_matches(name, {*fields_of(AgentConfig), *fields_of(RunConfig)}, n=1)
            meant = f" Did you mean {near[0]!r}?" if near else ""
            raise ConfigError(f"Unknown setting {shown(name)}.{meant} `mcclt train --help` and mcclt.config list all.")
    return dataclasses.replace(config, **values)
