"""The keyword arguments of `PPO` and `TRPO`, for editors and type checkers: the settings of `mcclt.config` by name.

A test keeps them equal to those; what each means is said there.
"""

from collections.abc import Sequence
from typing import Literal, TypedDict


class Settings(TypedDict, total=False):
    """Settings of an agent and of its run that a model takes beside its own arguments."""

    gamma: float
    gae_lambda: float
    critic_gae_lambda: float | None
    value_target: Literal["lambda", "monte_carlo", "td"]
    weight_site: Literal["objective", "td_error"]
    normalize_obs: bool
    normalize_reward: bool
    ortho_init: bool
    policy_hidden: Sequence[int]
    policy_activation: Literal["tanh", "relu", "silu", "elu"]
    policy_layer_norm: bool
    log_std_init: float
    target_kl: float | None
    target_kl_end: float | None
    learning_rate: float
    learning_rate_end: float | None
    policy_iterations: int
    clip_range: float
    ent_coef: float
    normalize_advantage: Literal["batch", "minibatch"]
    recompute_advantages: bool
    cg_max_steps: int
    cg_damping: float
    line_search_shrinking_factor: float
    line_search_max_iter: int
    kl_direction: Literal["old_new", "new_old"]
    kl_over_actions: Literal["sum", "mean"]
    critic_hidden: Sequence[int]
    critic_activation: Literal["tanh", "relu", "silu", "elu"]
    critic_layer_norm: bool
    critic_learning_rate: float
    critic_learning_rate_end: float | None
    critic_iterations: int
    minibatch_size: int | None
    max_grad_norm: float | None
    decay_steps: int | None
    members: int | None
    n_quantiles: int
    kappa: float
    guide: Literal["quantile", "symmetric"]
    value_bins: int
    value_max: float
    variance_head: Literal["variance", "log_variance", "std"]
    variance_floor: float
    variance_scaling: bool
    trunk: Literal["separate", "shared"]
    qr_target: Literal["shifted", "bellman"]
    crossing_error: float | None
    critic_w_tar: float | None
    w_tar: float
    w_min: float
    temperature: Literal["log", "paper"]
    engine: str
    n_envs: int
    stagger: bool
    steps_per_update: int
    max_episode_steps: int | None
    threads: int | None
    eval_freq: int
    eval_episodes: int
    final_episodes: int
    checkpoint_freq: int
    on_nan: Literal["raise", "stop", "restart"]
    step_timeout: float | None


ELSEWHERE = {
    "algo": "choose PPO or TRPO",
    "task": "it is the first argument",
    "seeds": "use seed=, one or a list",
    "steps": "pass it to learn(total_timesteps)",
    "groups": "`mcclt train --config` trains several groups",
    # Stable-Baselines3's, where ours have other names or meanings (docs/from_sb3.md).
    "policy_kwargs": "use policy_hidden=(64, 64), policy_activation=, critic_hidden=, critic_activation=, ortho_init=, "
    "log_std_init=",
    "n_steps": "use steps_per_update = n_steps * n_envs, the steps of all environments together",
    "batch_size": "use minibatch_size; without it every gradient step uses the whole batch of steps_per_update",
    "n_epochs": "use policy_iterations and critic_iterations: epochs with minibatch_size, otherwise full-batch steps",
    "n_critic_updates": "use critic_iterations",
    "sub_sampling_factor": "the whole batch is used",
    "clip_range_vf": "the critic's loss is not clipped",
    "vf_coef": "policy and critic share no parameters; critic_learning_rate is the critic's own",
    "use_sde": "there is no state-dependent exploration",
    "sde_sample_freq": "there is no state-dependent exploration",
    "rollout_buffer_class": "rollouts are arrays of one update",
    "rollout_buffer_kwargs": "rollouts are arrays of one update",
    "stats_window_size": "returns are averaged over the last 100 episodes",
    "device": "JAX chooses it; the environment variable JAX_PLATFORMS overrides",
}
"""Settings that are not keyword arguments of a model, and what to say instead."""
