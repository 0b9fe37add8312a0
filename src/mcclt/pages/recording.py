"""One episode of a trained agent, recorded: what it saw, did and got, what its critic believed, and pictures."""

import dataclasses
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from mcclt.config.values import require
from mcclt.errors import ConfigError, EnvironmentFault
from mcclt.pages import filming

if TYPE_CHECKING:
    from mcclt.training.agent import Agent
    from mcclt.training.model import Model

NOT_FINITE = "returned a number that is not finite"


@dataclass(frozen=True)
class Recording:
    """One episode of one agent: T states, and what was done, got and believed in each."""

    task: str
    group: str
    """The agent's group: its variant, or the algorithm."""
    seed: int
    algo: str
    critic: str
    weighting: str
    trained: int
    """Steps the agent had learnt from."""
    episode_seed: int
    deterministic: bool
    """Whether the actions were the most likely ones, rather than draws."""
    fps: float
    """Steps per second of the task's own time."""
    observations: np.ndarray
    """[T, O]."""
    actions: np.ndarray
    """[T, D] within bounds; [T] for discrete ones, counted from 0."""
    action_low: np.ndarray
    """[D] bounds, which may be infinite; 0 and 1 for each of D discrete actions."""
    action_high: np.ndarray
    action_names: tuple[str, ...]
    """[D]."""
    rewards: np.ndarray
    """[T]."""
    bars: np.ndarray
    """[T, N], as mean, std, error and weight [T] the critic's: see `mcclt.ValueDistribution`."""
    mean: np.ndarray
    std: np.ndarray
    error: np.ndarray
    error_name: str
    """What the critic's error is; empty if it has none."""
    weight: np.ndarray
    z: np.ndarray | None
    """[N] where the bars of a standard normal are; None where bars are no quantiles (plain, ensemble)."""
    returns: np.ndarray
    """[T] the discounted return that followed; NaN where the recording ends too early to know it."""
    terminated: bool
    """Whether the task ended the episode."""
    truncated: bool
    """Whether its time limit did; if neither, the recording was stopped."""
    frames: tuple[bytes, ...] | None
    """[F] WebP pictures, the last one of how the episode ended; None without video."""
    frame_steps: np.ndarray
    """[F] the step each picture belongs to, rising."""
    note: str = ""
    """Why there is no video, in a sentence."""
    counted: bool = False
    """Whether actions are whole numbers (Discrete, MultiDiscrete, MultiBinary)."""

    def __len__(self) -> int:
        return len(self.rewards)


def record(
    model: "Model",
    seed: int | None = None,
    episode_seed: int = 0,
    max_steps: int = 1000,
    deterministic: bool = True,
    render: bool = True,
    *,
    env: object | None = None,
    width: int = filming.WIDTH,
    max_frames: int = filming.FRAMES,
) -> Recording:
    """Runs one episode of one agent. The same arguments give the same episode.

    Args:
        model: what `mcclt.load` gives.
        seed: which agent of a population; the first by default.
        episode_seed: names where the episode starts, and the noise of the actions.
        max_steps: recording stops after this many.
        deterministic: the most likely actions, as `evaluate` takes them, rather than draws. (The critic describes the
            drawn ones.)
        render: make a video; where that is impossible, `Recording.note` says why.
        env: a task id, environment class or factory; the model's own task by default.
        width: of the video in pixels.
        max_frames: most pictures; of a longer video every second one is left out, or more.

    Raises:
        ConfigError: a number that makes no sense, or an environment of another task.
        EnvironmentFault: the environment raised, or returned a number that is not finite.
    """
    for name, number, low in (("max_steps", max_steps, 1), ("episode_seed", episode_seed, 0), ("width", width, 16)):
        require(number >= low, f"{name} = {number}", f"at least {low}")
    from mcclt.experiments.analysis.calibration import monte_carlo
    from mcclt.method import normal
    from mcclt.method.randomness import Purpose

    agent, spec = model.agent(seed), model.agent(seed).spec
    group = next(iter(model.config.groups))
    source = env if env is not None else model.source
    world, note = filming.make_env(source, model.config.max_episode_steps, width if render else None)
    noise = None if deterministic else agent.noise(Purpose.WATCH, episode_seed, max_steps)
    try:
        _check_spaces(world, agent)
        film = filming.Film(world, width, max_frames) if render and not note else None
        steps = _play(world, agent, noise, film, episode_seed, max_steps)
        names = filming.action_names(world, spec.action_size)
        fps = filming.steps_per_second(world)
    finally:
        world.close()
    observations, actions, rewards, terminated, truncated = map(np.array, zip(*steps, strict=True))
    observations, rewards = observations.astype(np.float32), rewards.astype(np.float64)
    returns, known = monte_carlo(rewards, terminated, truncated, agent.config.gamma)
    believed, critic = agent.believe(observations), agent.learner.critic
    return Recording(
        task=agent.task,
        group=group,
        seed=agent.seed,
        algo=agent.config.algo,
        critic=agent.config.critic,
        weighting=agent.config.weighting or "",
        trained=agent.steps,
        episode_seed=episode_seed,
        deterministic=deterministic,
        fps=fps,
        observations=observations,
        actions=actions,
        action_low=np.zeros(spec.action_size) if spec.action_low is None else np.asarray(spec.action_low),
        action_high=np.ones(spec.action_size) if spec.action_high is None else np.asarray(spec.action_high),
        action_names=names,
        rewards=rewards,
        error_name=critic.error_name if critic.has_error else "",
        z=normal.z_table(believed.bars.shape[-1]) if critic.quantiles else None,
        returns=np.where(known, returns, np.nan),
        terminated=bool(terminated[-1]),
        truncated=bool(truncated[-1]),
        frames=tuple(film.frames) if film and film.frames else None,
        frame_steps=np.array(film.steps if film else [], int),
        note=film.note if film else note,
        counted=spec.discrete or spec.action_counts is not None,
        **{f.name: getattr(believed, f.name) for f in dataclasses.fields(believed)},
    )


def _play(
    world: Any, agent: "Agent", noise: np.ndarray | None, film: "filming.Film | None", seed: int, limit: int
) -> list[tuple[np.ndarray, np.ndarray, float, bool, bool]]:
    """One episode, at most `limit` steps of it: observation, action, reward, terminated and truncated of each."""
    dtype, start = world.action_space.dtype, agent.spec.action_start
    obs, info = world.reset(seed=seed)
    fault = info.get("fault", "" if np.isfinite(obs).all() else NOT_FINITE)
    steps: list[tuple[np.ndarray, np.ndarray, float, bool, bool]] = []
    while not fault and len(steps) < limit:
        if film:
            film.shoot(len(steps))
        action = agent.act(obs[None], None if noise is None else noise[[len(steps)]])[0]
        after, reward, terminated, truncated, _ = world.step((action + start).astype(dtype))
        if not (np.isfinite(reward) and np.isfinite(after).all()):
            fault = world.reset()[1].get("fault", NOT_FINITE)  # what the guard has kept, if it raised
            break
        steps.append((obs, action, reward, terminated, truncated and not terminated))
        obs = after
        if terminated or truncated:
            break
    if fault:
        raise EnvironmentFault(f"In step {len(steps)} of episode {seed} the environment {fault}.")
    if film:
        film.finish(len(steps) - 1)
    return steps


def _check_spaces(world: Any, agent: "Agent") -> None:
    space, spec = world.action_space, agent.spec
    discrete = not space.shape
    size = int(space.n) if discrete else space.shape[0]
    if (world.obs_size, size, discrete) != (spec.obs_size, spec.action_size, spec.discrete):
        other = world.spec.id if world.spec else type(world.unwrapped).__name__
        raise ConfigError(f"The model was trained on {agent.task} and cannot act in {other}: their spaces differ.")
