"""The environments of a population, each named by its agent's seed, what it is for, and which round that is."""

from collections.abc import Sequence

from mcclt.config import RunConfig
from mcclt.envs import make_vec
from mcclt.envs.api import Key, VectorEnv
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
