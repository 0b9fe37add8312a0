"""What errors say."""

import re
import subprocess
import sys
from pathlib import Path

import pytest

from mcclt import errors


@pytest.mark.parametrize(
    "name, meant",
    [("Hoper-v5", "Hopper-v5"), ("hopper-v5", "Hopper-v5"), ("HOPPER-V5", "Hopper-v5"), ("Ant5", "Ant-v5")],
)
def test_suggests_the_nearest_name(name: str, meant: str) -> None:
    error = errors.UnknownNameError("task", name, ["Hopper-v5", "Ant-v5"])
    assert str(error) == f"Unknown task '{name}'. Did you mean '{meant}'? Allowed: Hopper-v5, Ant-v5."


def test_a_version_makes_no_ids_alike() -> None:
    error = errors.UnknownNameError("task", "Foo-v1", ["Acrobot-v1", "Ant-v5"])
    assert str(error) == "Unknown task 'Foo-v1'. Allowed: Acrobot-v1, Ant-v5."


def test_no_suggestion_for_something_else_and_a_hint() -> None:
    error = errors.UnknownNameError("task", "qqqq", ["Hopper-v5"], "Look it up.")
    assert str(error) == "Unknown task 'qqqq'. Allowed: Hopper-v5. Look it up."


def test_long_tables_are_not_listed() -> None:
    text = str(errors.UnknownNameError("task", "name-3x", [f"name-{i}" for i in range(50)]))
    assert "Did you mean 'name-3'" in text and "Allowed" not in text


def test_missing_extra_names_the_extra() -> None:
    assert re.search(r"pip install 'wandb>=[0-9.]+'$", str(errors.MissingExtraError("Logging", "wandb")))


def test_an_extra_is_named_where_nothing_is_installed(tmp_path: Path) -> None:
    package = Path(errors.__file__).parent
    (tmp_path / "errors.py").write_bytes((package / "errors.py").read_bytes())
    code = "import sys; sys.path.insert(0, '.'); import errors; print(errors.install('x'))"
    command = [sys.executable, "-I", "-S", "-c", code]
    said = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=True)
    assert said.stdout.strip() == "pip install 'mcclt[x]'"


@pytest.mark.parametrize(
    "cls, also",
    [
        (errors.ConfigError, ValueError),
        (errors.UnknownNameError, ValueError),
        (errors.MissingExtraError, ImportError),
        (errors.UnsupportedSpaceError, TypeError),
        (errors.EnvironmentFault, RuntimeError),
        (errors.CheckpointError, Exception),
    ],
)
def test_every_error_is_ours_and_of_the_usual_kind(cls: type, also: type) -> None:
    assert issubclass(cls, errors.MccltError) and issubclass(cls, also)
