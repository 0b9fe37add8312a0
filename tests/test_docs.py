"""The documentation: it builds strictly, its links hold, and it says what the program does."""

import importlib
import importlib.util
import os
import re
import subprocess
import sys
import typing
from pathlib import Path

import jax
import numpy as np
import pytest
import yaml

import mcclt
from browser import needs_browser, opened, sized
from mcclt.config import AgentConfig, RunConfig
from mcclt.envs.api import EnvSpec
from mcclt.method.critics import CRITICS
from mcclt.method.learner import Learner, Rollout
from mcclt.method.policy_updates import POLICY_UPDATES
from mcclt.training.trainer import Trainer
from probes import agent, run_config

ROOT = Path(__file__).resolve().parent.parent
DOCS = ROOT / "docs"
PAGES = sorted(DOCS.rglob("*.md"))
METRIC = r"(?:rollout|eval|train|value|weight|time)/[a-z_]+"


@pytest.fixture(scope="session")
def site(tmp_path_factory) -> Path:
    """The site, built as `make docs` builds it: any warning, a broken link or anchor among them, is an error."""
    out = tmp_path_factory.mktemp("site")
    command = [sys.executable, "-m", "mkdocs", "build", "--strict", "--site-dir", str(out)]
    env = os.environ | {"NO_MKDOCS_2_WARNING": "1", "NO_PROXY": "", "HTTPS_PROXY": "http://127.0.0.1:9"}
    done = subprocess.run(command, cwd=ROOT, env=env, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    return out


@pytest.mark.slow
def test_site_builds_and_needs_no_network(site):
    pages = sorted(site.rglob("*.html"))
    assert len(pages) >= len(PAGES)
    for page in pages:
        text = page.read_text(encoding="utf-8")
        loaded = re.findall(r'<(?:script|img|iframe|source)[^>]*\ssrc="([^"]+)"', text)
        loaded += re.findall(r'<link[^>]*rel="(?:stylesheet|icon|preconnect)"[^>]*href="([^"]+)"', text)
        assert not [url for url in loaded if re.match(r"(https?:)?//", url)], page


@pytest.mark.slow
def test_every_equation_is_rendered(site):
    source = (DOCS / "method.md").read_text(encoding="utf-8")
    page = (site / "method.html").read_text(encoding="utf-8")
    assert page.count('display="block"') == source.count("$$") // 2 >= 15
    assert "arithmatex" not in page and "\\frac" not in page


@pytest.mark.slow
def test_internal_anchors_exist(site):
    """Of all pages, those made from docstrings included: mkdocs checks what is written in Markdown only."""
    ids = {page: set(re.findall(r'\sid="([^"]+)"', page.read_text(encoding="utf-8"))) for page in site.rglob("*.html")}
    for page in ids:
        if page.name == "404.html":  # its links start at the root of a server
            continue
        for href in re.findall(r'\shref="([^"]+)"', page.read_text(encoding="utf-8")):
            path, _, anchor = href.partition("#")
            if re.match(r"[a-z]+:|//", href):
                continue
            target = (page.parent / path).resolve() if path else page
            assert target.exists(), f"{page.relative_to(site)}: {href}"
            if anchor and target in ids:
                assert anchor in ids[target], f"{page.relative_to(site)}: {href}"


LOOK = """
const wide = document.documentElement.clientWidth;
const math = [...document.querySelectorAll('math')].filter((m) => m.getBoundingClientRect().width < 2).length;
const images = [...document.images].filter((i) => !i.naturalWidth).map((i) => i.src);
return [document.documentElement.scrollWidth > wide, math, images];
"""


@needs_browser
def test_pages_look_right_from_disk(site):
    """On a wide and on a narrow screen: nothing overflows, equations and pictures are there, no script complains."""
    with opened() as driver:
        for width in (1280, 390):
            sized(driver, width)
            for name in ("index", "method", "architecture", "metrics", "guides/plots", "api/settings", "results"):
                driver.get((site / f"{name}.html").as_uri())
                assert driver.execute_script(LOOK) == [False, 0, []], (name, width)
                assert driver.get_log("browser") == [], (name, width)


@pytest.mark.parametrize("page", [ROOT / "README.md", ROOT / "CONTRIBUTING.md", ROOT / "CHANGELOG.md", *PAGES], ids=str)
def test_links_to_files_hold(page):
    text = re.sub(r"^```.*?^```", "", page.read_text(encoding="utf-8"), flags=re.DOTALL | re.MULTILINE)
    links = re.findall(r"\]\(([^)\s]+)\)", text) + re.findall(r'(?:src|href)="([^"]+)"', text)
    for link in links:
        if not re.match(r"[a-z]+:|#", link):
            assert (page.parent / link.partition("#")[0]).exists(), link


@pytest.mark.parametrize("page", [ROOT / "README.md", ROOT / "CONTRIBUTING.md", *PAGES], ids=str)
def test_named_files_exist(page):
    """What is named like a file of the repository is one."""
    text = page.read_text(encoding="utf-8")
    for name in re.findall(r"\b(?:src|tests|benchmarks|examples|docs)/[\w/.-]+\.(?:py|md|toml|png|svg)\b", text):
        assert (ROOT / name).exists() or (ROOT / "src" / "mcclt" / name).exists(), name


def resolve(name: str) -> object:
    """What a dotted name means: as much of it as is a module is imported, the rest are attributes."""
    parts = name.split(".")
    for k in range(len(parts), 0, -1):
        try:
            found = importlib.import_module(".".join(parts[:k]))
        except ModuleNotFoundError:
            continue
        for part in parts[k:]:
            found = getattr(found, part)
        return found
    raise AssertionError(name)


def equation_rows() -> list[tuple[str, str, str]]:
    """(anchor of the section, name shown, name linked to) of every row of the method page's table."""
    text = (DOCS / "method.md").read_text(encoding="utf-8")
    return re.findall(r"^\| \[[^]]+\]\(#([\w-]+)\) \|[^|]+\| \[`([\w.]+)`\]\(api/method\.md#([\w.]+)\) \|$", text, re.M)


def test_method_page_has_the_method():
    found = {name for _, name, _ in equation_rows()}
    assert found >= {
        "critics.Normal.predict",
        "normal.z_table",
        "advantages.gae",
        "learner.advantages_and_returns",
        "critics.Normal.loss",
        "losses.gaussian_nll",
        "losses.huber",
        "losses.quantile_huber",
        "normal.normality_error",
        "weighting.AccuracySeeking.raw",
        "weighting.log_search",
        "losses.ppo_surrogate",
        "losses.trpo_surrogate",
        "learner.Learner.update",
    }


@pytest.mark.parametrize(("anchor", "name", "target"), equation_rows())
def test_every_equation_links_to_its_function(anchor, name, target):
    assert callable(resolve(f"mcclt.method.{name}"))
    assert f"mcclt.method.{name}".startswith(target)  # an inherited method has no entry of its own: its class has
    text = (DOCS / "method.md").read_text(encoding="utf-8")
    section = re.search(rf"\{{ #{anchor} \}}\n(.*?)(?=\n##|\Z)", text, re.DOTALL)
    assert section is not None and f"[`{name}`](api/method.md#{target})" in section[1]
    assert "$$" in section[1] or anchor == "algorithm"


def test_equations_stand_in_linked_sections():
    text = (DOCS / "method.md").read_text(encoding="utf-8")
    anchors = {anchor for anchor, _, _ in equation_rows()}
    for heading, section in re.findall(r"^###? ([^\n]+)\n(.*?)(?=^##|\Z)", text, re.DOTALL | re.MULTILINE):
        if "$$" in section:
            assert re.search(r"\{ #([\w-]+) \}", heading)[1] in anchors, heading


@pytest.mark.slow
def test_api_reference_has_every_module(site):
    """Each module once: neither forgotten nor twice."""
    listed = [
        name for page in site.glob("api/*.html") for name in re.findall(r'<h2 id="(mcclt[\w.]+)"', page.read_text())
    ]
    package = ROOT / "src" / "mcclt"
    modules = [".".join(path.relative_to(package.parent).with_suffix("").parts) for path in package.rglob("*.py")]
    expected = {m.removesuffix(".__init__") for m in modules} - {"mcclt", "mcclt.__main__"}
    assert sorted(listed) == sorted(expected)


def test_api_page_names_all_that_can_be_imported():
    page = (DOCS / "api" / "index.md").read_text(encoding="utf-8")
    assert {name for name in mcclt.__all__ if f"[`{name}`]" not in page} == set()


def page_metrics() -> set[str]:
    """The names in the tables of the metrics page, each once."""
    listed = re.findall(rf"^\| `({METRIC})` \|", (DOCS / "metrics.md").read_text(encoding="utf-8"), re.M)
    assert len(set(listed)) == len(listed)
    return set(listed)


def logged(groups: dict[str, AgentConfig]) -> set[str]:
    """The names that two updates log, with an evaluation and with episodes that end."""
    trainer = Trainer(run_config(groups=groups, max_episode_steps=4, eval_freq=16, eval_episodes=2))
    try:
        return {name for _ in range(2) for row in trainer.advance() for name in row if "/" in name}
    finally:
        trainer.close()


def traced(config: AgentConfig) -> set[str]:
    """The names that an update of an agent gives, found by tracing it: nothing is compiled."""
    learner = Learner(config, EnvSpec("probe", "none", 3, 2, -np.ones(2), np.ones(2), None, False), n_envs=2)
    state = jax.eval_shape(learner.init, np.uint32(0))
    obs, flag = np.zeros((4, 2, 3), np.float32), np.zeros((4, 2), bool)
    rollout = Rollout(obs, np.zeros((4, 2, 2), np.float32), np.zeros((4, 2), np.float32), flag, flag, obs)
    return set(jax.eval_shape(learner.update, state, rollout)[1])


EVERY = {f"{algo}-{critic}": agent(algo=algo, critic=critic) for algo in POLICY_UPDATES for critic in CRITICS}
EVERY["normalised"] = agent(critic="plain", normalize_obs=True, normalize_reward=True)
EACH = [one for name, one in EVERY.items() if one.critic == "plain" or name.startswith("ppo")]
"""Every critic and every policy update: those that log names of their own."""


def test_metrics_page_has_what_training_logs_and_nothing_else():
    """What the loop adds to an update's own metrics is the same for every critic."""
    found = logged({"plain": agent(critic="plain")})
    assert found.union(*map(traced, EACH)) == page_metrics()


@pytest.mark.slow
def test_metrics_page_has_what_every_critic_and_policy_update_really_log():
    assert logged(EVERY) == page_metrics()


def test_switches_of_the_ledger_are_settings():
    """Each exists, and what can be chosen is what the page says."""
    known = {name: kind for cls in (AgentConfig, RunConfig) for name, kind in typing.get_type_hints(cls).items()}
    text = (DOCS / "fidelity.md").read_text(encoding="utf-8").split("\n## ")[0]
    switches = [line.rstrip("| ").rpartition(" | ")[2] for line in text.splitlines() if line.startswith("|")][2:]
    named = [found for cell in switches for found in re.findall(r"`([a-z_]+)(?: = ([^`]+))?`", cell)]
    assert len(named) > 30
    for name, choices in named:
        assert name in known, name
        if "|" in choices:
            assert tuple(re.findall(r'"(\w+)"', choices)) == typing.get_args(known[name]), name


def test_nav_has_every_page():
    nav = yaml.safe_load((ROOT / "mkdocs.yml").read_text(encoding="utf-8"))["nav"]

    def leaves(node: object) -> list[str]:
        if isinstance(node, str):
            return [node]
        return [leaf for child in (node.values() if isinstance(node, dict) else node) for leaf in leaves(child)]

    assert sorted(leaves(nav)) == sorted(str(page.relative_to(DOCS)) for page in PAGES)
