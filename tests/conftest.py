"""Strict numerics for every test: arrays of different rank never broadcast by accident."""

import jax

jax.config.update("jax_numpy_rank_promotion", "raise")
