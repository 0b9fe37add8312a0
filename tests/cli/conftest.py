import shutil
from pathlib import Path

import pytest

from commands import TINY, Cli
from mcclt.cli import main
from probes import PENDULUM, Broken


@pytest.fixture
def mcclt(capsys: pytest.CaptureFixture[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Cli:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(Broken, "armed", True)
    return Cli(capsys)


@pytest.fixture(scope="session")
def finished(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run by the command line."""
    path = tmp_path_factory.mktemp("cli") / "run"
    flags = ["--seeds", "0,4", "--checkpoint-freq", "16", "--final-episodes", "3", "--eval-freq", "32"]
    main(["train", PENDULUM, *TINY, *flags, "--eval-episodes", "2", "--out", str(path)])
    return path


@pytest.fixture
def copy(finished: Path, mcclt: Cli) -> Path:
    shutil.copytree(finished, "copy")
    return Path("copy")
