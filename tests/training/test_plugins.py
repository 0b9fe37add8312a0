"""MCCLT_IMPORT: the user's own files are imported once, by path or by name, and mistakes get one sentence."""

import os
import sys
from pathlib import Path
from typing import Any

import pytest

from mcclt.cli import app as cli
from mcclt.config.variants import VARIANTS
from mcclt.errors import ConfigError
from mcclt.experiments.setups import make_setup
from mcclt.method.policy_updates import POLICY_UPDATES, Ppo
from mcclt.training import plugins

SOURCE = 'from mcclt.config.variants import VARIANTS\nVARIANTS["mine"] = {"critic": "plain", "weighting": "uniform"}\n'


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An empty folder to be in; what is imported or entered meanwhile is forgotten afterwards."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(tmp_path)
    for table, name in ((sys.modules, "my_variant"), (VARIANTS, "mine")):
        monkeypatch.setitem(table, name, {})
        monkeypatch.delitem(table, name)
    return tmp_path


@pytest.mark.parametrize("name", ["my_variant.py", "my_variant", " my_variant.py , json"])
def test_a_file_or_module_is_imported_once(folder: Path, monkeypatch: pytest.MonkeyPatch, name: str) -> None:
    (folder / "my_variant.py").write_text(SOURCE, encoding="utf-8")
    monkeypatch.setenv(plugins.VARIABLE, name)
    plugins.import_named()
    assert VARIANTS.pop("mine") == {"critic": "plain", "weighting": "uniform"}
    plugins.import_named()
    assert "mine" not in VARIANTS


def test_worker_processes_find_a_file_from_anywhere(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (folder / "my_variant.py").write_text(SOURCE, encoding="utf-8")
    monkeypatch.setenv(plugins.VARIABLE, "my_variant.py")
    plugins.import_named()
    assert os.environ[plugins.VARIABLE] == str(folder / "my_variant.py")


@pytest.mark.parametrize("name", ["nowhere.py", "no_such_module", "no_such_package.part"])
def test_what_is_not_there_gets_one_sentence(folder: Path, monkeypatch: pytest.MonkeyPatch, name: str) -> None:
    monkeypatch.setenv(plugins.VARIABLE, name)
    with pytest.raises(ConfigError, match=f"^MCCLT_IMPORT names .*{name}.*there is no such"):
        plugins.import_named()


@pytest.mark.parametrize(
    ("source", "said", "line"),
    [
        (
            "\nimport no_such_module_within\n",
            "ModuleNotFoundError: No module named 'no_such_module_within'",
            "import no",
        ),
        ("x = 1\nx = (\n", "SyntaxError: '(' was never closed (my_variant.py, line 2)", "x = ("),
        ("from mcclt import AgentConfig\nAgentConfig(gamma=3)\n", "ConfigError: gamma = 3.0 is not allowed", "Agent"),
    ],
)
def test_errors_within_a_file_are_told_with_its_line(
    folder: Path, monkeypatch: pytest.MonkeyPatch, source: str, said: str, line: str
) -> None:
    (folder / "my_variant.py").write_text(source, encoding="utf-8")
    for name in ("my_variant.py", "my_variant", "my_variant.py"):  # a failed import is tried again
        monkeypatch.setenv(plugins.VARIABLE, name)
        with pytest.raises(ConfigError) as error:
            plugins.import_named()
        sentence, *where = str(error.value).splitlines()
        named = folder / name if name.endswith(".py") else name
        assert sentence.startswith(f"Importing {named} failed: {said}") and "(my_variant.py, line 2)" in sentence
        assert where[0].startswith(f'  File "{folder}/my_variant.py", line 2') and where[1].startswith(f"    {line}")
        assert not [more for more in where[2:] if "importlib" in more or "mcclt/envs" in more or "plugins" in more]


def test_the_command_line_knows_it(
    folder: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    (folder / "my_variant.py").write_text(SOURCE, encoding="utf-8")
    monkeypatch.setenv(plugins.VARIABLE, "my_variant.py")
    with pytest.raises(SystemExit):
        cli.main(["compare", "Hopper-v5", "--variants", "yours"])
    assert "mine" in capsys.readouterr().err


def test_a_command_ends_in_one_sentence(folder: Path, monkeypatch: pytest.MonkeyPatch, capsys: Any) -> None:
    (folder / "my_variant.py").write_text("x = (\n", encoding="utf-8")
    monkeypatch.setenv(plugins.VARIABLE, "my_variant.py")
    with pytest.raises(SystemExit) as stop:
        cli.main(["train", "Hopper-v5"])
    assert stop.value.code == 2 and capsys.readouterr().err.startswith("mcclt: Importing")


def test_a_comparison_takes_a_policy_update_of_ones_own(monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(ConfigError, match="Unknown algo 'mine'"):
        make_setup("Hopper-v5", "mine", "plain", "fixed")
    monkeypatch.setitem(POLICY_UPDATES, "mine", Ppo)
    assert make_setup("Hopper-v5", "mine", "plain", "fixed").name == "mine-plain"
