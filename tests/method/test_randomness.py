"""Every stream of random numbers is named by (seed, purpose, index) and by nothing else."""

import itertools
import math

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy import stats

from mcclt.config import MAX_SEED
from mcclt.method.randomness import Purpose, permutation, stream


def bits(*args) -> tuple[int, ...]:
    return tuple(int(x) for x in jax.random.key_data(stream(*args)))


def test_same_names_same_key():
    assert bits(3, Purpose.ACTION_NOISE, 17) == bits(3, Purpose.ACTION_NOISE, 17)
    assert bits(3, Purpose.POLICY_INIT) == bits(3, Purpose.POLICY_INIT, 0)


def test_different_names_different_keys():
    names = list(itertools.product((0, 1, 7, MAX_SEED), Purpose, (0, 1, 2)))
    assert len({bits(*name) for name in names}) == len(names)
    # (seed 0, purpose 1) is not (seed 1, purpose 0): the order of the names counts.
    assert bits(0, Purpose.CRITIC_INIT) != bits(1, Purpose.POLICY_INIT)
    draws = {float(jax.random.normal(stream(0, p))) for p in Purpose}
    assert len(draws) == len(Purpose)


@pytest.mark.parametrize("seed", [0, 2**31 - 1, 2**31, MAX_SEED])
def test_the_type_of_the_seed_does_not_matter(seed):
    # Agents hold their seed as uint32; collecting may hold a Python int. A traced seed gives the same key too.
    expected = bits(np.uint32(seed), Purpose.ACTION_NOISE, 5)
    assert bits(seed, Purpose.ACTION_NOISE, 5) == expected
    traced = jax.jit(lambda s, i: jax.random.key_data(stream(s, Purpose.ACTION_NOISE, i)))
    assert tuple(int(x) for x in traced(np.uint32(seed), np.int32(5))) == expected


def test_purposes_are_part_of_the_file_format():
    names = "POLICY_INIT CRITIC_INIT ACTION_NOISE MEMBER_SPLIT TRAIN_RESET EVAL_RESET PREDICT".split()
    assert [Purpose[name].value for name in names] == list(range(7))


@pytest.mark.parametrize("size", [1, 2, 7, 4096, 2**16 + 1])
def test_a_permutation_has_every_number_once(size):
    key = jax.random.key(3)
    order = np.asarray(permutation(key, size))
    np.testing.assert_array_equal(np.sort(order), np.arange(size))
    if 2 < size <= 2**16:  # sorted by the random bits, of which as many are left as the size leaves room for
        words = np.asarray(jax.random.bits(key, (size,), jnp.uint32)).astype(np.int64)
        np.testing.assert_array_equal(order, np.argsort(words >> (size - 1).bit_length(), kind="stable"))


@pytest.mark.parametrize("size", [3, 5])
def test_all_permutations_are_equally_likely(size):
    orders = np.asarray(
        jax.vmap(lambda i: permutation(jax.random.fold_in(jax.random.key(0), i), size))(jnp.arange(24_000))
    )
    _, counts = np.unique(orders, axis=0, return_counts=True)
    assert len(counts) == math.factorial(size)
    assert stats.chisquare(counts).pvalue > 0.01
