"""Compiled programs kept between runs, so that the second start takes seconds."""

import os
from pathlib import Path


def use_cache() -> None:
    """Lets JAX keep what it compiles in the user's cache directory, unless the user chose a place already."""
    import jax

    if jax.config.values["jax_compilation_cache_dir"] is None:
        home = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache")
        jax.config.update("jax_compilation_cache_dir", str(home / "mcclt" / "jax"))
        # Small programs, too: a training has a dozen, and together they take seconds.
        jax.config.update("jax_persistent_cache_min_compile_time_secs", 0.0)
