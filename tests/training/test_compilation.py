import jax
import pytest

from mcclt.training.compilation import use_cache


@pytest.fixture(autouse=True)
def restored():
    names = ("jax_compilation_cache_dir", "jax_persistent_cache_min_compile_time_secs")
    before = {name: jax.config.values[name] for name in names}
    yield
    for name, value in before.items():
        jax.config.update(name, value)


def test_takes_the_users_cache_directory(tmp_path, monkeypatch):
    jax.config.update("jax_compilation_cache_dir", None)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    use_cache()
    assert jax.config.values["jax_compilation_cache_dir"] == str(tmp_path / "mcclt" / "jax")


def test_keeps_what_the_user_chose(tmp_path):
    jax.config.update("jax_compilation_cache_dir", str(tmp_path / "mine"))
    use_cache()
    assert jax.config.values["jax_compilation_cache_dir"] == str(tmp_path / "mine")
