"""The page of runs: what it says of them, and that an open one follows a training."""

import json
import math
import re
import time
from pathlib import Path
from typing import Any

import pytest

from browser import CONTRAST, every, look_at, needs_browser, where_there_is_one
from mcclt.config import AgentConfig, RunConfig
from mcclt.config.variants import VARIANTS
from mcclt.errors import ConfigError
from mcclt.experiments.runs import read_runs
from mcclt.pages import training
from mcclt.storage.configuration import to_dict

STEPS, UPDATES = 1000, 10
CALIBRATION = {
    "states": 100, "without_normal": 0.0, "coverage": {"0.5": 0.41, "0.8": 0.72, "0.95": 0.9}, "crps": 3.0,
    "crps_point": 4.0, "bias": 0.1, "spread": 2.0, "pit": [0.05] * 20,
}  # fmt: skip


def row(group: str, seed: int, update: int) -> dict[str, Any]:
    names = "rollout/ep_rew_mean value/mean value/std value/normality_error weight/mean weight/min train/approx_kl"
    numbers = {name: update + seed / 10 + len(name) for name in names.split()}
    times = {"time/fps": 500.0, "time/collect": 3.0, "time/learn": 1.0, "time/evaluate": 0.0}
    if update == 1:
        times["time/learn"] = 11.0  # with compiling
    return {"group": group, "seed": seed, "update": update, "step": update * STEPS, **numbers, **times, "time": 1.7e9}


def make_run(path: Path, updates: int = UPDATES, seeds: int = 2, task: str = "Hopper-v5", **settings: Any) -> Path:
    """As `mcclt train` would leave it; finished if it has all of its updates."""
    groups = {f"ppo-{name}": AgentConfig(**VARIANTS[name], **settings) for name in ("plain", "mcclt")}
    run = {"seeds": tuple(range(seeds)), "steps": UPDATES * STEPS, "steps_per_update": STEPS, "n_envs": 10}
    config = RunConfig(task, groups=groups, **run)
    path.mkdir(exist_ok=True)
    agents = [(group, seed) for group in groups for seed in config.seeds]
    lines = [json.dumps(row(*agent, update)) for update in range(1, updates + 1) for agent in agents]
    (path / "config.json").write_text(json.dumps(to_dict(config)))
    (path / "metrics.jsonl").write_text("".join(line + "\n" for line in lines))
    (path / "versions.json").write_text(json.dumps({"packages": {"mcclt": "1.2.3"}, "engine": "native"}))
    if updates == UPDATES:
        final = [
            {"group": g, "seed": s, "returns": [10.0 + s, 12.0 + s], "lengths": [5, 6]}
            | {"probe": {"calibration": CALIBRATION} if g == "ppo-mcclt" else {}}
            for g, s in agents
        ]
        (path / "evaluation.json").write_text(json.dumps(final))
    return path


def section(text: str, name: str) -> str:
    found = re.search(rf'<section id="{name}".*?</section>', text, re.DOTALL)
    assert found, name
    return " ".join(re.sub("<[^>]+>", " ", found[0]).split())


def written(*runs: Path, refresh: int = 0) -> Path:
    return training.write(read_runs(runs), runs[0] / "report", refresh)


def test_everything_is_on_the_page(tmp_path: Path) -> None:
    text = written(make_run(tmp_path / "run", gamma=0.9)).read_text(encoding="utf-8")
    data = json.loads(re.search(r'id="data">(.*?)</script>', text, re.DOTALL)[1])
    titles = " ".join(quantity["title"] for quantity in data["quantities"])
    for word in ("Return while training", "Predicted value", "Distance from normal", "weight"):
        assert word in titles
    for series in data["series"]:
        assert all(len(curve["seeds"]) == 2 for curve in series["curves"].values())
    assert "PPO · MC-CLT 2 11.5 0.5" in section(text, "returns")
    assert "MC-CLT 41% 72% 90% 0.75 +0.05" in section(text, "calibration")
    # Ten updates of 4 s, the first of 14 s: 4 agents made 9,000 steps each in the other 36 s.
    assert f"{tmp_path / 'run'} 4 10,000 1,000 60% 40% 0% 14 s 50 s" in section(text, "speed")
    few, every = section(text, "settings").split("All settings")
    assert "gamma 0.9 0.9 0.99" in few and "critic plain normal normal" in few and "clip_range" not in few
    assert "clip_range" in every and "gamma 0.9 0.9 0.99" in every
    assert "Engine native" in section(text, "provenance") and 'http-equiv="refresh"' not in text


def test_one_seed_shows_its_episodes(tmp_path: Path) -> None:
    text = written(make_run(tmp_path / "run", seeds=1)).read_text(encoding="utf-8")
    assert text.count('<line class="dot"') == 2 * 2  # groups, episodes


def test_the_watch_page_is_linked_where_there_is_one(tmp_path: Path) -> None:
    a, b = (make_run(tmp_path / name) for name in "ab")
    (b / "watch.html").touch()
    text = written(a, b).read_text(encoding="utf-8")
    assert 'href="../../b/watch.html"' in text and 'href="../watch.html"' not in text
    assert f"mcclt watch {a}" in re.sub("<[^>]+>", "", text)


def test_the_same_group_of_two_runs_is_told_apart(tmp_path: Path) -> None:
    text = written(make_run(tmp_path / "a"), make_run(tmp_path / "b", gamma=0.9)).read_text(encoding="utf-8")
    data = json.loads(re.search(r'id="data">(.*?)</script>', text, re.DOTALL)[1])
    assert [v["label"] for v in data["variants"]] == ["baseline, a", "baseline, b", "MC-CLT, a", "MC-CLT, b"]
    assert len({v["colour"] for v in data["variants"]}) == 4


@pytest.mark.parametrize(
    ("probe", "said"),
    [
        ({}, "No critic with a spread has been probed yet"),
        ({"episode": {"t": [0, 9], "std": [0, 0]}, "gamma": 0.99}, "These critics have no spread that could be judged"),
        ({"episode": {"t": [0, 199], "std": [1, 2]}, "gamma": 0.99}, f"counts for {math.floor(99.99 * 0.99**200)}%"),
    ],
)
def test_why_nothing_is_known_of_calibration(tmp_path: Path, probe: dict[str, Any], said: str) -> None:
    run = make_run(tmp_path / "run")
    final = json.loads((run / "evaluation.json").read_text())
    (run / "evaluation.json").write_text(json.dumps([one | {"probe": probe} for one in final]))
    assert said in section(written(run).read_text(encoding="utf-8"), "calibration")


def test_what_is_not_finished_is_not_called_so(tmp_path: Path) -> None:
    done, going = (written(make_run(tmp_path / str(n), updates=n)).read_text(encoding="utf-8") for n in (UPDATES, 3))
    assert "4 trained agents" in done and "Of the final deterministic episodes" in section(done, "returns")
    assert "4 agents:" in going and "10k environment steps each in the end" in going
    assert "final deterministic" not in section(going, "returns")
    begun = written(make_run(tmp_path / "1", updates=1, seeds=1)).read_text(encoding="utf-8")
    assert "or the mean return so far of a run that is not finished" in section(begun, "returns")
    assert re.search(r"Returns so far [0-9.]+ (?!to)", section(begun, "returns"))
    assert " 2 1,000 – 21% 79% 0% 14 s 14 s" in section(begun, "speed"), "compiling is no speed"


def test_a_run_without_metrics_says_so(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="has no metrics yet: its first update is not done"):
        written(make_run(tmp_path / "run", updates=0))


# --- in a browser ----------------------------------------------------------------------------------------------


def drawn(browser: Any) -> tuple[int, str]:
    """Points of the first line in the first panel, and the first note."""
    return tuple(browser.execute_script("""
        const line = document.querySelector('.panel .line');
        const note = document.querySelector('.notice');
        return [line ? line.getAttribute('d').split('L').length : 0, note ? note.textContent : ''];
    """))  # fmt: skip


@where_there_is_one
def test_an_open_page_follows_the_training(browser: Any, tmp_path: Path) -> None:
    run = make_run(tmp_path / "run", updates=3)
    look_at(browser, written(run, refresh=1), 1280)
    points, note = drawn(browser)
    assert points == 3 and "is at 3,000 of 10,000 steps" in note
    browser.execute_script("scrollTo(0, 500)")
    make_run(tmp_path / "run", updates=7)
    written(run, refresh=1)
    deadline = time.monotonic() + 60
    while drawn(browser)[0] != 7:
        assert time.monotonic() < deadline
        time.sleep(0.05)
    assert browser.execute_script("return scrollY") == 500  # whoever reads is not thrown back to the top
    make_run(tmp_path / "run")
    written(run)
    while drawn(browser) != (10, ""):
        assert time.monotonic() < deadline
        time.sleep(0.05)
    assert browser.get_log("browser") == []


@needs_browser
@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("width", [390, 1280])
def test_fits_and_can_be_read(browser: Any, tmp_path: Path, width: int, scheme: str) -> None:
    look_at(browser, written(make_run(tmp_path / "run")), width, scheme)
    browser.execute_script("for (const d of document.querySelectorAll('details')) d.open = true")
    assert browser.execute_script("return [document.documentElement.scrollWidth, innerWidth]") == [width, width]
    assert browser.execute_script(CONTRAST) == []
    panels = browser.execute_script("""
        return [...document.querySelectorAll('.panel')].map((p) => [p.querySelectorAll('.seed').length, p.clientWidth]);
    """)
    assert len(panels) == 7 and all(seeds == 2 for seeds, _ in panels)  # quantities; a path of all seeds per group
    assert [e.is_displayed() for e in every(browser, "#algos, #quantity, #tasks")] == [False] * 3
    assert browser.get_log("browser") == []


@needs_browser
def test_what_there_is_to_see_of_several_tasks_and_of_one_seed(browser: Any, tmp_path: Path) -> None:
    runs = [make_run(tmp_path / task, seeds=1, task=task) for task in ("Hopper-v5", "InvertedDoublePendulum-v5")]
    look_at(browser, written(*runs), 1280)
    names, panels = browser.execute_script("""
        const texts = (all) => [...document.querySelectorAll(all)].map((e) => e.textContent);
        return [texts('.panels .task'), texts('.panel h3')];
    """)
    assert names == ["Hopper-v5", "InvertedDoublePendulum-v5"]
    assert panels[: len(panels) // 2] == panels[len(panels) // 2 :] and not any("Hopper" in name for name in panels)
    assert not browser.find_element("id", "seeds").is_displayed()  # there is one
    assert "if it excludes 0" not in browser.find_element("id", "returns").text
