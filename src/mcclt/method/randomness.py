"""All randomness, by name: a pure function of (seed, purpose, index).

Nothing here is carried along: the noise of update 17 of seed 3 is the same whether seed 3 trains alone or
among thirty, in one go or resumed. (Environments draw theirs from `envs.api.rng_of` by the same rule.)
"""

import enum

import jax


class Purpose(enum.IntEnum):
    """What a stream of random numbers is for; the values are part of the file format (never renumber)."""

    POLICY_INIT = 0
    CRITIC_INIT = 1
    ACTION_NOISE = 2
    MEMBER_SPLIT = 3
    TRAIN_RESET = 4
    EVAL_RESET = 5
    PREDICT = 6
    PROBE = 7
    POLICY_MINIBATCHES = 8
    CRITIC_MINIBATCHES = 9
    WATCH = 10


def stream(seed: jax.typing.ArrayLike, purpose: Purpose, index: jax.typing.ArrayLike = 0) -> jax.Array:
    """The JAX key of one draw."""
    return jax.random.fold_in(jax.random.fold_in(jax.random.key(seed), purpose), index)
