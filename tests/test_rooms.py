"""The rooms of the library, and who may enter which."""

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest

import mcclt

ROOT = Path(mcclt.__file__).parent
BASE = {"config", "console", "errors", "interrupts", "presets"}
MAY_IMPORT = {
    "method": {"config", "errors"},
    "envs": {"errors", "interrupts"},
    "storage": {"config", "errors", "envs"},
    "training": {*BASE, "method", "envs", "storage", "interop", "zoo"},
    "interop": {*BASE, "method", "envs", "storage", "training"},
    "experiments": {*BASE, "method", "envs", "storage", "training"},
    "tuning": {*BASE, "method", "envs", "storage", "training", "experiments"},
    "pages": {*BASE, "method", "envs", "storage", "training", "experiments", "tuning"},
    "cli": {*BASE, "method", "envs", "storage", "training", "experiments", "tuning", "pages", "interop", "zoo"},
    "zoo": {"errors", "storage"},
    "config": {"errors"},
    "presets": {"config", "errors"},
    "console": set(),
    "errors": set(),
    "interrupts": set(),
}


def imports(tree: ast.AST) -> Iterator[str]:
    """The rooms that a module imports when it runs, wherever in it; not for its types alone."""
    for node in ast.iter_child_nodes(tree):
        if isinstance(node, ast.If) and ast.unparse(node.test) == "TYPE_CHECKING":
            continue
        if isinstance(node, ast.ImportFrom) and node.module == "mcclt":
            yield from (alias.name for alias in node.names if (ROOT / alias.name).exists())
        elif isinstance(node, ast.ImportFrom) and (node.module or "").startswith("mcclt."):
            yield (node.module or "").split(".")[1]
        elif isinstance(node, ast.Import):
            yield from (alias.name.split(".")[1] for alias in node.names if alias.name.startswith("mcclt."))
        yield from imports(node)


@pytest.mark.parametrize("room", MAY_IMPORT)
def test_who_may_enter_which(room: str) -> None:
    files = [ROOT / f"{room}.py"] if (ROOT / f"{room}.py").exists() else sorted((ROOT / room).rglob("*.py"))
    assert files
    for file in files:
        found = set(imports(ast.parse(file.read_text(encoding="utf-8"))))
        assert found <= MAY_IMPORT[room] | {room}, file


def test_every_room_has_its_rule() -> None:
    rooms = {path.stem for path in ROOT.iterdir() if path.suffix in ("", ".py") and path.stem[0] != "_"}
    assert rooms == set(MAY_IMPORT)


def test_public_names() -> None:
    assert {"PPO", "TRPO", "load", "evaluate_policy", "make_vec", "__version__"} <= set(dir(mcclt))
    assert not {"os", "importlib", "Any", "TYPE_CHECKING"} & set(dir(mcclt))
