"""The environments of a population, each named by its agent's seed, what it is for, and which round that is."""

import dataclasses
from collections.abc import Sequence

import gymnasium as gym

from mcclt.config import RunConfig
from mcclt.envs import ENGINES, make_vec
from mcclt.envs.api import Key, VectorEnv, task_name
from mcclt.errors import ConfigError
from mcclt.method.randomness import Purpose


def keys_of(seeds: Sequence[int], purpose: Purpose, index: int | Sequence[int], n_envs: int) -> list[Key]:
    """Names of the environments of each agent; `index` is the round of all, or of each."""
    rounds = [index] * len(seeds) if isinstance(index, int) else index
    return [(seed, int(purpose), i, e) for seed, i in zip(seeds, rounds, strict=True) for e in range(n_envs)]


def make_envs(
    config: RunConfig,
    source: object,
    seeds: Sequence[int],
    purpose: Purpose,
    index: int | Sequence[int],
    n_envs: int,
) -> VectorEnv:
    """`n_envs` environments for each of the agents' seeds; `index` names the round of an evaluation."""
    return make_vec(
        source,
        keys_of(seeds, purpose, index, n_envs),
        engine=config.engine,
        max_episode_steps=config.max_episode_steps,
        num_threads=config.threads,
        step_timeout=config.step_timeout,
        brief=purpose != Purpose.TRAIN_RESET,  # evaluation makes fresh environments each time
    )


def remade(source: object) -> object:
    """What makes environments; for one that `gymnasium.make` made its id, if that says it all, or a function."""
    if not isinstance(source, gym.Env) or source.spec is None:  # one without a spec is refused by the engines
        return source
    spec = source.spec
    for wrapper in spec.additional_wrappers:
        if wrapper.kwargs is None:
            raise ConfigError(
                f"How the wrapper {wrapper.name} was made is not known: give a function that makes the environment, "
                f"such as  lambda: {wrapper.name}(gym.make({spec.id!r}))."
            )
    settings = {name: value for name, value in spec.kwargs.items() if name != "render_mode"}
    if not settings and spec == dataclasses.replace(gym.spec(spec.id), kwargs=spec.kwargs):
        return spec.id

    def make() -> gym.Env:
        return gym.make(dataclasses.replace(spec, kwargs=settings))

    make.__qualname__ = spec.id
    return make


def runnable(config: RunConfig, env: object | None) -> RunConfig:
    """A stored configuration for the environment that was given, if any, on an engine that runs it here."""
    if env is not None:
        config = dataclasses.replace(config, task=task_name(env))
    engine = ENGINES.get(config.engine)
    if engine is None or (engine.installed() if env is None else engine.supports(env)):
        return config
    return dataclasses.replace(config, engine="auto")
