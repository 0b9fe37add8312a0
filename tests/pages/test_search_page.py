"""The page of a search: what it says, and in a browser."""

import html
import re
import shlex
from pathlib import Path
from typing import Any

import pytest

from browser import CONTRAST, every, needs_browser, sized
from mcclt.cli.app import main
from mcclt.pages import tuning
from mcclt.tuning import Plan, Space, Tuner

SPACE = """
[search]
learning_rate = { low = 1e-5, high = 1e-2, scale = "log" }
gamma = { low = 0.9, high = 0.999, scale = "complement" }

[fixed]
n_envs = 2
steps_per_update = 80
policy_iterations = 2
critic_iterations = 2
"""
LEAST = 10.5
"""Pixels of the smallest type that can be read."""


@pytest.fixture(scope="module")
def page(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("search")
    (folder / "space.toml").write_text(SPACE)
    task = ["tune", "InvertedDoublePendulum-v5", "--space", str(folder / "space.toml"), "--store", str(folder / "s")]
    main([*task, *"--trials 6 --steps 800 --confirm 2 --n-seeds 2 --episodes 2 --quiet".split()])
    return folder / "s/search.html"


def test_differences_are_to_the_default_of_the_algorithm(tmp_path: Path) -> None:
    """Which is what the settings are confirmed against, with their time limit."""
    space = {"search": {"gamma": {"low": 0.9, "high": 0.95}}, "fixed": {"algo": "trpo", "max_episode_steps": 50}}
    tuner = Tuner(Plan("Hopper-v5", 1, 1, (600,)), Space.of(space), tmp_path / "s")
    trial = tuner.searches[0].begin(0, {"gamma": 0.0})
    trial.scores, trial.curves = [7.0], [[7.0]]
    (folder := tmp_path / "my search").mkdir()
    text = tuning.write(tuner, [], trial, folder).read_text(encoding="utf-8")
    command = html.unescape(
        re.sub("<.*?>", "", text.partition('<div class="command"><code>')[2].partition("</code>")[0])
    )
    assert shlex.split(command) == ["mcclt", "train", "--config", str(folder / "best.toml")]
    row = r'<th scope="row"><code>(\w+)</code></th><td class="best">(.*?)</td><td class="missing">(.*?)</td>'
    assert re.findall(row, text) == [("gamma", "0.9", "0.99")]


@needs_browser
@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("width", [390, 1280])
def test_fits_and_can_be_read(browser: Any, page: Path, width: int, scheme: str) -> None:
    sized(browser, width, scheme)
    browser.get(page.as_uri())
    assert browser.execute_script("return [document.documentElement.scrollWidth, innerWidth]") == [width, width]
    assert browser.execute_script(CONTRAST) == []
    sizes = browser.execute_script("""
        return [...document.querySelectorAll('svg.search text')].map((e) => {
          const [image, own] = [e.ownerSVGElement, parseFloat(getComputedStyle(e).fontSize)];
          return own * image.getBoundingClientRect().width / image.viewBox.baseVal.width;
        });
    """)
    assert sizes and min(sizes) > LEAST
    rows = every(browser, "#confirmation tbody tr")
    assert len(rows) == 3 and len(rows[1].find_elements("css selector", ".strip")) == 2  # returns, difference
    assert browser.get_log("browser") == []


@needs_browser
def test_the_lines_of_the_drawing_are_labelled_with_round_numbers(browser: Any, page: Path) -> None:
    browser.get(page.as_uri())
    labels = [e.text for e in every(browser, "#curves text")]
    assert labels[-4:] == ["0", "160", "320", "800"] and len(labels) >= 6
