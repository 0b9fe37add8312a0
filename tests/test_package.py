"""The package as others get it: what is in the wheel, and what its metadata say."""

import os
import re
import shutil
import subprocess
import sys
import tomllib
import zipfile
from email.parser import Parser
from pathlib import Path

import pytest
import yaml

import mcclt

ROOT = Path(__file__).resolve().parent.parent


@pytest.fixture(scope="module")
def wheel(tmp_path_factory) -> zipfile.ZipFile:
    """Built from a copy, so that nothing is left behind in the source tree."""
    copy, out = tmp_path_factory.mktemp("source"), tmp_path_factory.mktemp("wheel")
    for name in ("pyproject.toml", "README.md", "LICENSE"):
        shutil.copy(ROOT / name, copy)
    shutil.copytree(ROOT / "src", copy / "src", ignore=shutil.ignore_patterns("*.egg-info", "__pycache__"))
    build = f"from setuptools import build_meta; build_meta.build_wheel({str(out)!r})"
    env = {k: v for k, v in os.environ.items() if not k.startswith("PYTHON")}
    done = subprocess.run([sys.executable, "-c", build], cwd=copy, env=env, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    return zipfile.ZipFile(next(out.glob("mcclt-*.whl")))


def test_wheel_has_every_file_of_the_source_tree(wheel):
    source = ROOT / "src"
    skipped = {"__pycache__", ".DS_Store"}
    files = {
        path.relative_to(source).as_posix()
        for path in (source / "mcclt").rglob("*")
        if path.is_file() and not skipped & set(path.parts)
    }
    packed = {name for name in wheel.namelist() if ".dist-info/" not in name}
    assert packed == files
    assert {"mcclt/py.typed", "mcclt/pages/templates/watch.html", "mcclt/experiments/data/paper_results.json"} <= packed


def test_wheel_has_licence_command_and_metadata(wheel):
    info = {name.rpartition("/")[2]: name for name in wheel.namelist() if ".dist-info/" in name}
    assert wheel.read(info["LICENSE"]) == (ROOT / "LICENSE").read_bytes()
    assert "mcclt = mcclt.cli:main" in wheel.read(info["entry_points.txt"]).decode()
    metadata = Parser().parsestr(wheel.read(info["METADATA"]).decode())
    assert metadata["Version"] == mcclt.__version__
    assert metadata["License-Expression"] == "MIT"
    assert metadata["Requires-Python"] == ">=3.11"
    assert "Typing :: Typed" in metadata.get_all("Classifier")
    assert metadata.get_payload().startswith("# mcclt")


def test_extras_named_in_errors_and_docs_exist():
    extras = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]["optional-dependencies"]
    pages = [ROOT / "README.md", *(ROOT / "docs").rglob("*.md"), *(ROOT / "src").rglob("*.py")]
    for page in pages:
        text = page.read_text(encoding="utf-8")
        named = re.findall(r"(?:mcclt|'\.)\[([a-z0-9,]+)\]'", text)
        assert {extra for names in named for extra in names.split(",")} <= set(extras), page


def test_citation_names_this_version_and_the_paper():
    citation = yaml.safe_load((ROOT / "CITATION.cff").read_text(encoding="utf-8"))
    assert citation["cff-version"] == "1.2.0"
    assert {"title", "message", "authors"} <= set(citation)
    assert citation["version"] == mcclt.__version__
    (paper,) = citation["references"]
    assert [author["family-names"] for author in paper["authors"]] == ["Byun", "Perrault"]
    assert (paper["year"], paper["type"]) == (2025, "article")


@pytest.mark.parametrize("name", ["bug", "feature"])
def test_issue_forms_have_what_github_asks_for(name):
    form = yaml.safe_load((ROOT / ".github" / "ISSUE_TEMPLATE" / f"{name}.yml").read_text(encoding="utf-8"))
    assert {"name", "description", "body"} <= set(form)
    ids = [part["id"] for part in form["body"]]
    assert len(set(ids)) == len(ids)
    for part in form["body"]:
        assert part["type"] in ("textarea", "dropdown", "checkboxes", "input")
        assert part["attributes"]["label"]
