"""Strict numerics for every test: arrays of different rank never broadcast by accident.

What is compiled is kept in the user's cache directory, as `mcclt train` does: most of the time of a first run of these
tests is compilation.
"""

import jax

from mcclt.compilation import use_cache

jax.config.update("jax_numpy_rank_promotion", "raise")
use_cache()
