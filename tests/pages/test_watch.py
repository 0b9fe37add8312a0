"""Watching an agent: what is recorded, what the page says, and what a real browser makes of it."""

import dataclasses
import io
import json
import os
import pickle
import re
import shutil
import subprocess
import sys
import time
import webbrowser
from pathlib import Path
from typing import Any, ClassVar

import gymnasium as gym
import numpy as np
import pytest
from scipy.stats import norm

from browser import CONTRAST, every, needs_browser, sized, where_there_is_one
from mcclt import PPO
from mcclt.cli.watch import Watch
from mcclt.errors import CheckpointError, ConfigError, EnvironmentFault
from mcclt.pages import filming, watch
from mcclt.pages.recording import Recording, record
from mcclt.storage import files
from probes import OURS, PENDULUM, Noisy, ShiftedActions, factory

EVIL = "</script><script>alert(1)</script><img src=x onerror=alert(1)>"
LENGTH = 60


class Painter(Noisy):
    """Longer, and draws a square that moves with time."""

    metadata: ClassVar[dict[str, Any]] = {"render_modes": ["rgb_array"], "render_fps": 50}

    def __init__(self, render_mode: str | None = None) -> None:
        super().__init__()
        self.render_mode = render_mode

    def step(self, action: Any):
        obs, reward, _, _, info = super().step(action)
        return obs, reward, False, self.t >= 40, info

    def render(self):
        picture = np.full((60, 90, 3), 240, np.uint8)
        picture[20:40, 2 * self.t : 2 * self.t + 10] = (200, 40, 20)
        return picture


def make(env: Any, **settings: Any) -> Any:
    return PPO(env, **(OURS | settings))


def data_of(text: str) -> list[dict[str, Any]]:
    raw = re.search(r'<script type="application/json" id="data">(.*?)</script>', text, re.DOTALL)[1]
    return json.loads(raw)["agents"]


@pytest.fixture(scope="module")
def painted() -> Any:
    """With a temperature as after an update, without the seconds that compiling one takes."""
    model = make(Painter, critic="normal", seed=[3, 8])
    error = model.value_distribution(np.eye(3), seed=8).error.mean()
    model._follow(model.config, dataclasses.replace(model._states, temperature=np.full(2, 1 / error, np.float32)))
    return model


@pytest.fixture(scope="module")
def members() -> Any:
    """An ensemble, with a time limit of its own."""
    return make(Painter, critic="ensemble", gamma=0.8, max_episode_steps=39)


@pytest.fixture(scope="module")
def pendulum() -> Any:
    return make(PENDULUM, critic="plain", seed=[3, 8])


@pytest.fixture(scope="module")
def recording(painted) -> Recording:
    return record(painted, seed=8, episode_seed=5)


# --- recording -------------------------------------------------------------------------------------------------


def test_beliefs_are_the_model_s_at_the_states_seen(painted, recording):
    assert (recording.seed, recording.task, recording.trained, len(recording)) == (8, "Painter", 0, 40)
    believed = painted.value_distribution(recording.observations, seed=8)
    for name in ("bars", "mean", "std", "error", "weight"):
        np.testing.assert_array_equal(getattr(recording, name), getattr(believed, name))
    assert 0.5 < recording.weight.min() < recording.weight.max() < 1 and recording.error.min() > 0
    [agent] = data_of(watch.page([recording]))
    for name in ("bars", "mean", "std", "error", "weight", "rewards"):
        np.testing.assert_allclose(agent[name], getattr(recording, name), rtol=1e-4, atol=1e-12)
    np.testing.assert_allclose(np.transpose(agent["actions"]["rows"]), recording.actions, rtol=1e-4)


def test_states_and_rewards_are_those_of_the_task(recording):
    env = Painter()
    obs, _ = env.reset(seed=5)
    for t, action in enumerate(recording.actions):
        np.testing.assert_array_equal(recording.observations[t], obs)
        obs, reward, _, truncated, _ = env.step(action)
        assert reward == recording.rewards[t] and truncated == (t == 39)
    assert (recording.terminated, recording.truncated) == (False, True)


def test_returns_are_discounted_sums_and_unknown_where_the_rest_is_missing(pendulum, members):
    got = record(members, render=False)
    assert got.truncated and len(got) == 39 and got.note == "" and got.frames is None
    brute = [sum(0.8**k * r for k, r in enumerate(got.rewards[t:])) for t in range(39)]
    known = np.array([0.8 ** (39 - t) <= 0.01 for t in range(39)])
    np.testing.assert_allclose(got.returns[known], np.array(brute)[known], rtol=1e-9)
    assert np.isnan(got.returns[~known]).all() and 0 < known.sum() < 39
    [agent] = data_of(watch.page([got]))
    assert [v is None for v in agent["returns"]] == (~known).tolist()
    ended = record(pendulum, render=False)
    assert ended.terminated and np.isfinite(ended.returns).all()
    assert ended.returns[-1] == ended.rewards[-1]


def test_bars_of_a_distribution_and_of_an_ensemble(recording, members):
    [quantiles], [values] = (data_of(watch.page([r])) for r in (recording, record(members, render=False)))
    np.testing.assert_allclose(quantiles["z"], norm.ppf(np.arange(1, 9) / 9), atol=1e-3)
    assert len(values["bars"][0]) == 5 and values["z"] is None
    assert (quantiles["error_name"], values["error_name"]) == ("Normality error E", "Disagreement")


def test_the_same_arguments_give_the_same_episode(painted, recording):
    painted.predict(recording.observations[0])  # draws of others do not matter
    again = record(painted, seed=8, episode_seed=5)
    assert watch.page([again]) == watch.page([recording])
    other = record(painted, seed=8, episode_seed=6, render=False)
    assert not np.array_equal(other.observations[0], recording.observations[0])
    assert not np.array_equal(other.actions, recording.actions)
    sure = [record(painted, seed=8, episode_seed=5, deterministic=True, render=False) for _ in range(2)]
    np.testing.assert_array_equal(sure[0].actions, sure[1].actions)
    mode, _ = painted.predict(sure[0].observations, deterministic=True, seed=8)
    np.testing.assert_allclose(sure[0].actions, mode, rtol=1e-4, atol=1e-6)


def test_pictures(painted, recording):
    assert recording.fps == 50
    steps = [*range(0, 39, 2), 39]  # every second one: 50 a second are more than the eye needs; and the end
    assert recording.frame_steps.tolist() == steps and len(recording.frames) == len(steps)
    assert all(frame[:4] == b"RIFF" and frame[8:12] == b"WEBP" for frame in recording.frames)
    assert len(set(recording.frames)) == len(steps)
    few = record(painted, seed=8, episode_seed=5, max_frames=6, width=45)
    assert few.frame_steps.tolist() == [0, 8, 16, 24, 32, 39]
    from PIL import Image

    image = np.asarray(Image.open(io.BytesIO(few.frames[2])))
    assert image.shape == (30, 45, 3)
    assert image[15, 18].argmax() == 0 and image[15, 18].max() - image[15, 18].min() > 80  # the square, at step 16


def test_recording_stops_where_told(painted):
    short = record(painted, max_steps=7, render=False)
    assert len(short) == 7 and not short.terminated and not short.truncated and np.isnan(short.returns).all()
    assert data_of(watch.page([short]))[0]["end"] == "recording stopped"


def test_discrete_actions_are_shown_one_by_one():
    got = record(make(ShiftedActions, critic="plain"), render=False)
    assert got.actions.ndim == 1 and set(got.actions) <= {0, 1, 2}
    actions = data_of(watch.page([got]))[0]["actions"]
    np.testing.assert_array_equal(np.argmax(actions["rows"], axis=0), got.actions)
    assert np.sum(actions["rows"]) == len(got) and actions["discrete"]


def test_mujoco_draws_or_says_what_to_install(pendulum):
    got = record(pendulum, max_steps=4, width=64)
    assert got.action_names == ("slider",) and got.fps == 20
    if got.frames is None:
        assert got.note == filming.NO_MUJOCO_VIDEO
        pytest.skip("MuJoCo has no OpenGL here")
    from PIL import Image

    image = np.asarray(Image.open(io.BytesIO(got.frames[0])))
    assert image.shape == (40, 64, 3) and image.std() > 5


def test_without_opengl_the_charts_remain(pendulum, monkeypatch):
    monkeypatch.setenv("MUJOCO_GL", "glass")
    got = record(pendulum, max_steps=4)
    assert got.frames is None and got.note == filming.NO_MUJOCO_VIDEO and len(got) == 4
    assert data_of(watch.page([got]))[0]["note"] == filming.NO_MUJOCO_VIDEO


def test_opengl_is_chosen_only_where_nobody_has(monkeypatch):
    found = {"EGL": "libEGL.so.1", "OSMesa": "libOSMesa.so.8"}
    monkeypatch.setattr(filming.sys, "platform", "linux")
    monkeypatch.setattr(filming.ctypes.util, "find_library", found.get)
    for name in ("DISPLAY", "WAYLAND_DISPLAY", "MUJOCO_GL", "SDL_VIDEODRIVER"):
        monkeypatch.setenv(name, "")
    for expected in ("egl", "osmesa", ""):
        monkeypatch.setenv("MUJOCO_GL", "")
        filming.draw_off_screen()
        assert os.environ["MUJOCO_GL"] == expected
        found.pop(next(iter(found)), None) if found else None
    found["EGL"] = "libEGL.so.1"
    monkeypatch.setenv("DISPLAY", ":0")
    filming.draw_off_screen()
    assert os.environ["MUJOCO_GL"] == ""


def test_environments_that_draw_nothing(painted):
    class Silent(Noisy):
        def __init__(self, render_mode: str | None = None) -> None:
            super().__init__()

    class Blank(Silent):
        def render(self):
            return None

    for env, said in ((Noisy, "does not take render_mode"), (Silent, "renders no"), (Blank, "renders no frames")):
        got = record(painted, env=env)
        assert got.frames is None and said in got.note and got.note.count(".") == 1


# --- trouble ---------------------------------------------------------------------------------------------------


def test_faults_are_named(painted):
    class Nan(Painter):
        def reset(self, **how):
            return np.full(3, np.nan, np.float32), {}

    with pytest.raises(EnvironmentFault, match=r"In step 2 of episode 0 the environment raised in step: RuntimeError"):
        record(painted, env=lambda: factory("raise", 3, (-1,))())
    with pytest.raises(EnvironmentFault, match=r"In step 1 .* returned a number that is not finite"):
        record(painted, env=factory("nan obs", 2, (-1,)), render=False)
    with pytest.raises(EnvironmentFault, match=r"In step 0 .* returned a number that is not finite"):
        record(painted, env=Nan)


def test_bad_arguments(painted, recording, tmp_path):
    with pytest.raises(ConfigError, match="trained on Painter and cannot act in CartPole-v1: their spaces differ"):
        record(painted, env="CartPole-v1", render=False)
    with pytest.raises(ConfigError, match="no seed 4"):
        record(painted, seed=4)
    with pytest.raises(ConfigError, match="max_steps = 0"):
        record(painted, max_steps=0)
    with pytest.raises(ConfigError, match="episode_seed = -1"):
        record(painted, episode_seed=-1)
    with pytest.raises(ConfigError, match="of one task, not of 2: Painter, Other"):
        watch.page([recording, dataclasses.replace(recording, task="Other")])
    with pytest.raises(ConfigError, match="of one task"):
        watch.write([], tmp_path / "none.html")
    (tmp_path / "file").touch()
    with pytest.raises(ConfigError, match="cannot be written"):
        watch.write([recording], tmp_path / "file" / "page.html")
    assert [p.name for p in tmp_path.iterdir()] == ["file"]


# --- mcclt watch -----------------------------------------------------------------------------------------------


def test_command(pendulum, tmp_path, monkeypatch, capsys):
    said = ""

    def run(*words: str) -> Path:
        Watch.parse(list(map(str, words))).run()
        nonlocal said
        said = capsys.readouterr().out
        return Path(re.findall(r"^Page: (.+) \(", said, re.MULTILINE)[-1])

    opened: list[str] = []
    monkeypatch.setattr(webbrowser, "open", opened.append)
    monkeypatch.setattr(filming, "has_screen", lambda: True)
    model = pendulum.save(tmp_path / "my.model")
    page = run(model, "--seeds", "3,8", "--no-video", "--steps", "5")
    assert page == tmp_path / "my.model.html" and opened == [page.as_uri()]
    assert [a["label"] for a in data_of(page.read_text(encoding="utf-8"))] == ["ppo-plain, seed 3", "ppo-plain, seed 8"]
    assert "ppo-plain, seed 8: return " in said
    elsewhere = "--out", tmp_path / "new" / "a.html"
    other = run(tmp_path / "my.model", "--no-video", "--no-open", "--sample", *elsewhere)
    assert len(opened) == 1 and re.search(r"return .* \(with the most likely actions ", said)
    assert "sampled actions" in data_of(other.read_text(encoding="utf-8"))[0]["facts"]
    for words, refusal in (
        (["--deterministic"], "--deterministic is now the default"),
        (["--groups", "trpo"], "no group 'trpo': it has ppo"),
        (["--seeds", "4"], "no seed 4"),
        (["--out", tmp_path], "is a directory"),
        (["--out", tmp_path / "my.model.safetensors" / "x.html"], "cannot be written"),
    ):
        with pytest.raises(ConfigError, match=refusal):
            run(model, "--no-video", *words)
    with pytest.raises(CheckpointError):
        run(tmp_path / "nothing")
    both = run(f"{model},{shutil.copy(model, tmp_path / 'other.safetensors')}", "--no-video", "--no-open", *elsewhere)
    groups = [a["group"] for a in data_of(both.read_text(encoding="utf-8"))]
    assert groups == [f"ppo-plain@{model}", f"ppo-plain@{tmp_path / 'other.safetensors'}"]
    (tmp_path / "other.safetensors").unlink()
    assert sorted(p.name for p in tmp_path.iterdir()) == ["my.model.html", "my.model.safetensors", "new"]


def test_a_cell_of_a_store_stands_for_its_agent(pendulum, tmp_path):
    place = Path("Task-v1", "ppo-mcclt@critic_hidden=8,8", "0123abcd")
    cell = tmp_path / "cells" / place / "seed-3.json"
    cell.parent.mkdir(parents=True)
    cell.touch()
    command = Watch.parse([str(cell), "--no-video", "--no-open", "--steps", "5"])
    with pytest.raises(CheckpointError, match=r"seed-3.json is a result without its agent: .* --keep-agents"):
        command.run()
    model = pendulum.save(tmp_path / "model")
    files.write_atomically(tmp_path / "agents" / place / "seed-3.safetensors.xz", files.compress(model.read_bytes()))
    command.run()
    assert len(data_of((cell.parent / "seed-3.html").read_text(encoding="utf-8"))) == 1


@pytest.mark.parametrize(("task", "pace"), [("CartPole-v1", 50), ("Pendulum-v1", 20), ("MountainCar-v0", 30)])
def test_the_pace_is_the_task_s_own(task, pace):
    """By its step where it has one, and not by the pictures that it would like to be drawn with."""
    assert filming.steps_per_second(gym.make(task)) == pytest.approx(pace)


# --- the page --------------------------------------------------------------------------------------------------


def picture(t: int) -> bytes:
    image = np.full((50, 80, 3), 230, np.uint8)
    image[20:30, t : t + 10] = (30, 60, 200)
    return filming.encode(image, 80)


def synthetic(kind: str = "normal", length: int = LENGTH, **changes: Any) -> Recording:
    """A made-up episode, whose error has one spike and whose last returns are not known."""
    t = np.arange(length)
    n = {"normal": 8, "ensemble": 5, "plain": 1}[kind]
    z = np.linspace(-1.2, 1.2, n) if n > 1 else np.zeros(1)
    mean, std = 100 + 20 * np.sin(t / 9), np.full(length, 5.0 if n > 1 else 0.0)
    steps = np.array([*range(0, length, 3), length - 1])
    base = Recording(
        task="Hopper-v5", group=f"ppo-{kind}", seed=0, algo="ppo", critic=kind, weighting="accuracy",
        trained=100_000, episode_seed=0, deterministic=False, fps=30.0, observations=np.zeros((length, 3)),
        actions=np.sin(t[:, None] / np.array([3.0, 5.0])), action_low=-np.ones(2), action_high=np.ones(2),
        action_names=("hip", "knee"), rewards=np.cos(t / 4),
        bars=mean[:, None] + std[:, None] * z + 0.3 * (t[:, None] % 3), mean=mean, std=std,
        error_name={"normal": "Normality error E", "ensemble": "Disagreement", "plain": ""}[kind],
        error=(0.5 + 9 * (t == 31)) * (n > 1), weight=0.9 - 0.3 * (t == 31) * (n > 1),
        z=z if kind == "normal" else None, returns=np.where(t < 50, mean - 4, np.nan),
        terminated=False, truncated=True, frames=tuple(map(picture, steps.tolist())), frame_steps=steps,
    )  # fmt: skip
    return dataclasses.replace(base, **changes)


def test_names_are_escaped():
    evil = synthetic(task=EVIL, group=EVIL, action_names=(EVIL, "b"), note=EVIL, frames=None)
    text = watch.page([evil])
    assert "<script>alert" not in text and "<img" not in text
    assert text.count("<script") == 2 and data_of(text)[0]["group"] == EVIL


def test_the_page_asks_nothing_of_a_network():
    text = watch.page([synthetic()])
    policy = re.search(r'Content-Security-Policy" content="([^"]+)"', text)[1]
    assert policy.startswith("default-src 'none'") and "unsafe-inline" not in policy.split("script-src")[1]
    assert not re.search(r"(?:src|href)=[\"']?https?:", text) and "{{" not in text


def test_needs_no_jax(recording, tmp_path):
    (tmp_path / "recording.pickle").write_bytes(pickle.dumps(recording))
    code = f"""
import pickle, sys
from pathlib import Path
for name in ("jax", "mujoco", "gymnasium", "matplotlib"):
    sys.modules[name] = None
from mcclt.pages import watch
folder = Path({str(tmp_path)!r})
watch.write([pickle.loads((folder / "recording.pickle").read_bytes())], folder / "page.html")
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert (tmp_path / "page.html").read_text(encoding="utf-8") == watch.page([recording])


def test_each_agent_has_a_colour_of_its_own():
    several = [synthetic(group="ppo-mcclt", seed=s) for s in range(3)] + [synthetic(group="ppo-plain")]
    found = [agent["colour"] for agent in data_of(watch.page(several))]
    assert len(set(found)) == 4
    from mcclt.experiments import figures

    assert (found[0], found[3]) == (figures.COLOURS["mcclt"], figures.COLOURS["plain"])


@pytest.mark.slow
def test_a_long_episode_makes_a_page_of_some_megabytes(tmp_path):
    model = make("Hopper-v5", critic="normal")
    got = record(model, env=lambda **how: gym.make("Hopper-v5", terminate_when_unhealthy=False, **how))
    if got.frames is None:
        pytest.skip(got.note)
    assert len(got) == 1000
    assert watch.write([got], tmp_path / "page.html").stat().st_size < 15e6


# --- in a browser ----------------------------------------------------------------------------------------------

KEYS = {"left": "\ue012", "right": "\ue014", "home": "\ue011", "end": "\ue010", "page down": "\ue00f", "space": " "}


@pytest.fixture(scope="module")
def one(tmp_path_factory) -> Path:
    return watch.write([synthetic()], tmp_path_factory.mktemp("watch") / "one.html")


@pytest.fixture(scope="module")
def several(tmp_path_factory) -> Path:
    made = [synthetic(), synthetic("plain", 45), synthetic("ensemble", frames=None, note="No video: no screen.")]
    return watch.write(made, tmp_path_factory.mktemp("watch") / "several.html")


@pytest.fixture
def tab(browser, one):
    """The page of one agent, which must not have complained by the end of the test."""
    look_at(browser, one, 1280, step="#0")
    yield browser
    assert browser.get_log("browser") == []


def look_at(browser, path: Path, width: int, scheme: str = "light", step: str = "") -> None:
    sized(browser, width, scheme)
    browser.get("about:blank")
    browser.get(path.as_uri() + step)


def press(tab, *keys: str) -> None:
    for key in keys:
        every(tab, "body")[0].send_keys(KEYS[key])


def step_of(tab) -> int:
    return int(text(tab, "#clock b"))


def text(tab, selector: str, agent: int | None = None) -> str:
    """Of the first such element, of the page or one card; in one go, for it may be replaced while it is played."""
    inside = "document" if agent is None else f"document.querySelectorAll('.agent')[{agent}]"
    return tab.execute_script(f"return {inside}.querySelector(arguments[0]).textContent", selector)


def number(text: str) -> float | None:
    return None if text == "–" else float(text.replace(",", "").replace("−", "-"))


def read(tab, name: str, agent: int = 0) -> float | None:
    return number(text(tab, f".track [data-read={name}]", agent))


def play_at(tab, speed: str) -> None:
    """At 0.1 an episode takes 20 s, so that a slow machine sees it being played."""
    tab.execute_script("document.getElementById('speed').value = arguments[0]", speed)


def wait_for(what) -> None:
    deadline = time.monotonic() + 60
    while not what():
        assert time.monotonic() < deadline, "never happened"
        time.sleep(0.02)


def pixels(tab, agent: int = 0) -> list[int]:
    """The columns in which the picture's square is (blue), on the canvas of one agent."""
    return tab.execute_script("""
        const canvas = document.querySelectorAll('.agent')[arguments[0]].querySelector('canvas');
        const {width, height} = canvas;
        const copy = Object.assign(document.createElement('canvas'), {width, height});
        const context = copy.getContext('2d', {willReadFrequently: true});
        context.drawImage(canvas, 0, 0);
        const row = context.getImageData(0, 25, width, 1).data;
        return [...Array(width).keys()].filter((x) => row[4 * x] < 120 && row[4 * x + 2] > 150);
    """, agent)  # fmt: skip


def check_read_outs(tab, agent: int, recording: Recording, t: int) -> None:
    names = {"mean": "mean", "return": "returns", "reward": "rewards"}
    if recording.critic != "plain":
        names |= {"std": "std", "error": "error", "weight": "weight"}
    for shown, name in names.items():
        expected = getattr(recording, name)[t]
        got = read(tab, shown, agent)
        assert got is None if np.isnan(expected) else got == pytest.approx(expected, rel=1e-3), (shown, t)
    assert read(tab, "sum", agent) == pytest.approx(recording.rewards[: t + 1].sum(), rel=1e-3, abs=1e-3)
    pins = tab.execute_script(
        "return [...document.querySelectorAll('.agent')[arguments[0]].querySelectorAll('.pin')]"
        ".map((p) => +p.dataset.bar)",
        agent,
    )
    np.testing.assert_allclose(pins, recording.bars[t], rtol=1e-4)


@where_there_is_one
def test_charts_are_drawn(tab):
    names = [e.text for e in every(tab, ".track .name")]
    assert names == ["Value, discounted", "Normality error E", "Weight of this state", "Reward", "Action"]
    shapes = tab.execute_script("""
        return [...document.querySelectorAll('.plot svg')].map((svg) => {
          const box = svg.getBoundingClientRect();
          return [box.width, box.height, [...svg.querySelectorAll('path')].map((p) => p.getAttribute('d'))];
        });
    """)
    assert len(shapes) == 6
    for width, height, paths in shapes:
        assert width > 300 and height > 40 and paths
        assert not any(re.search("NaN|Infinity|undefined|null", d) for d in paths)
    truth = every(tab, ".line.truth")[0].get_attribute("d")
    assert truth.count("L") == 49 and truth.count("M") == 1  # the unknown end is not drawn
    assert not every(tab, ".gap")
    press(tab, "right")
    assert len(every(tab, ".gap")) == 8  # bars beside the normal
    bottom = tab.execute_script("return document.querySelector('.agent').getBoundingClientRect().bottom")
    assert bottom < tab.execute_script("return document.querySelector('.transport').getBoundingClientRect().top")


@needs_browser
def test_opens_on_a_telling_step_and_plays_from_the_beginning(tab, one, several, tmp_path):
    look_at(tab, one, 1280)
    assert step_of(tab) == 31 and [c.text for c in every(tab, ".chip[aria-current]")] == ["least normal"]
    said = "Opened at step 31, where the critic’s bars are farthest from a normal. Playing starts at the beginning."
    assert text(tab, "#opening") == said
    play_at(tab, "0.1")
    press(tab, "space")
    assert step_of(tab) < 31 and not every(tab, "#opening")[0].is_displayed()
    press(tab, "space", "end")
    look_at(tab, several, 1280)
    assert "farthest from a normal (ppo-normal, seed 0)" in text(tab, "#opening")
    press(tab, "right")
    assert step_of(tab) == 32 and not every(tab, "#opening")[0].is_displayed()
    first = synthetic(error=np.linspace(2, 1, LENGTH))  # the first step is told by nothing that came before
    look_at(tab, watch.write([first], tmp_path / "page.html"), 1280)
    assert step_of(tab) > 0 and "Opened at step" in text(tab, "#opening")


@needs_browser
@pytest.mark.parametrize(
    ("fps", "length", "speed"), [(20, 200, "1"), (125, 800, "0.5"), (30, 60, "0.25"), (20, 9, "0.1")]
)
def test_fast_tasks_and_short_episodes_start_slower(tab, tmp_path, fps, length, speed):
    look_at(tab, watch.write([synthetic(length=length, fps=float(fps), frames=None)], tmp_path / "page.html"), 1280)
    chosen = every(tab, "#speed")[0]
    assert chosen.get_attribute("value") == speed and f"{fps} steps a second" in chosen.get_attribute("title")


@needs_browser
def test_keys_step_and_everything_follows(tab):
    recording = synthetic()
    assert step_of(tab) == 0
    for keys, expected in ((["right"], 1), (["right", "right", "left"], 2), (["page down"], 5), (["end"], 59)):
        press(tab, *keys)
        assert step_of(tab) == expected
        check_read_outs(tab, 0, recording, expected)
    assert every(tab, ".ended")[0].text == "time limit after 60 steps"
    press(tab, "right")
    assert step_of(tab) == 59
    press(tab, "home")
    assert step_of(tab) == 0 and not every(tab, ".ended")[0].is_displayed()
    assert tab.current_url.endswith("#0")


@needs_browser
def test_plays_and_pauses(tab):
    play_at(tab, "0.1")
    press(tab, "space")
    wait_for(lambda: step_of(tab) > 1)
    assert every(tab, "#play")[0].get_attribute("aria-label") == "Pause"
    press(tab, "space")
    wait_for(lambda: every(tab, "#play")[0].get_attribute("aria-label") == "Play")
    here = step_of(tab)
    time.sleep(0.2)
    assert step_of(tab) == here
    play_at(tab, "4")
    every(tab, "#play")[0].click()
    wait_for(lambda: step_of(tab) == 59)
    wait_for(lambda: every(tab, "#play")[0].get_attribute("aria-label") == "Play")
    check_read_outs(tab, 0, synthetic(), 59)
    play_at(tab, "0.1")
    every(tab, "#play")[0].click()  # from the start again
    assert step_of(tab) < 59


@needs_browser
def test_the_picture_is_that_of_the_step(tab, one):
    wait_for(lambda: pixels(tab))
    assert np.mean(pixels(tab)) == pytest.approx(4.5, abs=1.5)
    look_at(tab, one, 1280, step="#31")
    wait_for(lambda: pixels(tab))
    assert step_of(tab) == 31 and np.mean(pixels(tab)) == pytest.approx(34.5, abs=1.5)  # the picture of step 30
    press(tab, "end")
    wait_for(lambda: np.mean(pixels(tab)) == pytest.approx(63.5, abs=1.5))


@needs_browser
def test_a_click_on_a_spike_goes_there_and_dragging_scrubs(tab):
    from selenium.webdriver.common.action_chains import ActionChains

    plot = every(tab, ".track .plot")[1]
    spike = tab.execute_script("""
        const [path, box] = [arguments[0].querySelector('.line'), arguments[0].getBoundingClientRect()];
        let top = {y: 1e9};
        for (let d = 0; d < path.getTotalLength(); d += 0.5) {
          const p = path.getPointAtLength(d);
          if (p.y < top.y) top = p;
        }
        return Math.round(top.x - box.width / 2);
    """, plot)  # fmt: skip
    ActionChains(tab).move_to_element_with_offset(plot, spike, 5).click().perform()
    assert step_of(tab) == 31 and read(tab, "error") == 9.5
    check_read_outs(tab, 0, synthetic(), 31)
    cursors = tab.execute_script("return [...document.querySelectorAll('.cursor')].map((c) => +c.getAttribute('x1'))")
    assert len(cursors) == 5 and len(set(cursors)) == 1
    ActionChains(tab).move_to_element(plot).click_and_hold().move_by_offset(-150, 40).perform()
    there = step_of(tab)
    assert there < 29
    ActionChains(tab).release().move_by_offset(200, 0).perform()
    assert step_of(tab) == there
    chip = next(c for c in every(tab, ".chip") if c.text == "least normal")
    chip.click()
    assert step_of(tab) == 31


@needs_browser
def test_the_scrubber(tab):
    from selenium.webdriver.common.action_chains import ActionChains

    scrubber = every(tab, "#scrubber")[0]
    ActionChains(tab).move_to_element(scrubber).click().perform()
    assert 26 <= step_of(tab) <= 33 and scrubber.get_attribute("value") == str(step_of(tab))
    here = step_of(tab)
    scrubber.send_keys(KEYS["right"])
    assert step_of(tab) == here + 1
    every(tab, "#back")[0].click()
    assert step_of(tab) == here
    play_at(tab, "0.1")
    press(tab, "space")
    wait_for(lambda: every(tab, "#play")[0].get_attribute("aria-label") == "Pause")


@needs_browser
def test_side_by_side_on_one_axis(tab, several):
    look_at(tab, several, 1280, step="#52")
    places = [(card.rect["x"], card.rect["y"]) for card in every(tab, ".agent")]
    assert len(places) == 3 and places[0][0] < places[1][0] and places[0][1] == places[1][1]
    assert every(tab, ".agent")[2].rect["width"] > 1.9 * every(tab, ".agent")[0].rect["width"]  # no place is empty
    check_read_outs(tab, 0, synthetic(), 52)
    check_read_outs(tab, 1, synthetic("plain", 45), 44)  # it has ended
    check_read_outs(tab, 2, synthetic("ensemble"), 52)
    assert [e.is_displayed() for e in every(tab, ".ended")] == [False, True, False]
    assert "no spread" in every(tab, ".agent")[1].text and "Disagreement" in every(tab, ".agent")[2].text
    assert "No video: no screen." in every(tab, ".agent")[2].text
    scales = tab.execute_script("""
        return [...document.querySelectorAll('.agent')].map((card) => {
          const marks = [...card.querySelector('.track').querySelectorAll('text')];
          return marks.map((t) => t.textContent + t.getAttribute('y')).join();
        });
    """)
    assert len(set(scales[:2])) == 1
    press(tab, "home")
    check_read_outs(tab, 1, synthetic("plain", 45), 0)


@needs_browser
@pytest.mark.parametrize("kinds", [("normal", "plain"), ("ensemble", "normal")])
def test_side_by_side_on_a_phone(tab, tmp_path, kinds):
    look_at(tab, watch.write([synthetic(kind) for kind in kinds], tmp_path / "page.html"), 390, step="#20")
    left, right = (card.rect for card in every(tab, ".agent"))
    assert left["y"] == right["y"] and left["x"] + left["width"] < right["x"] < 390 - 150
    tops = tab.execute_script("""
        return [...document.querySelectorAll('.agent')].map((card) => Object.fromEntries(
          [...card.querySelectorAll('.track')].map((track) => [track.querySelector('.name').textContent,
            (track.querySelector('svg') ?? track).getBoundingClientRect().top])));
    """)
    for name in ("Value, discounted", "Reward", "Action"):
        assert tops[0][name] == pytest.approx(tops[1][name], abs=8), name
    assert tab.execute_script("return document.documentElement.scrollWidth") == 390


@needs_browser
@pytest.mark.parametrize("width", [390, 1280])
def test_labels_below_a_belief_stay_inside(tab, tmp_path, width):
    mean = 346.0 + np.linspace(0, 3, LENGTH)
    narrow = synthetic(mean=mean, std=np.full(LENGTH, 2.0), bars=mean[:, None] + 2 * np.linspace(-1.2, 1.2, 8))
    look_at(tab, watch.write([narrow], tmp_path / "page.html"), width, step="#0")
    for _ in range(20):
        press(tab, "right")
        outside = tab.execute_script("""
            const box = document.querySelector('.belief svg').getBoundingClientRect();
            return [...document.querySelectorAll('.belief svg text')].filter((e) => {
              const own = e.getBoundingClientRect(); return own.left < box.left - 0.5 || own.right > box.right + 0.5;
            }).map((e) => e.textContent);
        """)
        assert outside == []


@needs_browser
def test_opens_where_there_is_something_to_see(tab, tmp_path):
    t = np.arange(LENGTH)
    at_the_end = synthetic(error=1.0 + 9 * (t == LENGTH - 1), returns=np.full(LENGTH, np.nan))
    look_at(tab, watch.write([at_the_end], tmp_path / "page.html"), 1280)
    assert 0 < step_of(tab) < LENGTH - 1 and "where the critic expects" in text(tab, "#opening")


@needs_browser
def test_discrete_actions_and_names_that_look_like_html(tab, tmp_path):
    t = np.arange(LENGTH)
    odd = synthetic(actions=t % 2, action_low=np.zeros(2), action_high=np.ones(2), action_names=("0", EVIL), group=EVIL)
    look_at(tab, watch.write([odd], tmp_path / "page.html"), 1280, step="#3")
    assert every(tab, ".track [data-read=action]")[0].text == EVIL
    [zero, one] = (band.get_attribute("d") for band in every(tab, ".track")[-1].find_elements("css selector", ".band"))
    for shape in (zero, one):  # boxes, without a slope
        assert shape.count("z") == LENGTH / 2 and re.fullmatch(r"(M[\d.]+ [\d.]+(V[\d.]+H[\d.]+)V[\d.]+z)+", shape)
    assert EVIL in every(tab, ".agent h2")[0].text and not every(tab, "img")


@needs_browser
def test_episodes_of_one_step_and_bars_that_fit_no_normal(tab, tmp_path):
    short = synthetic(length=1, std=np.full(1, -2.0), returns=np.full(1, np.nan), error=np.full(1, 1e5))
    crossed = synthetic(std=np.full(LENGTH, -2.0))
    for recordings, said in (([short], "The rest of the return is not known."), ([crossed], "No normal fits")):
        look_at(tab, watch.write(recordings, tmp_path / "page.html"), 1280)
        press(tab, "space", "end")
        drawn = tab.execute_script("return [...document.querySelectorAll('path')].map((p) => p.getAttribute('d'))")
        assert not any(re.search("NaN|Infinity|undefined|null", d) for d in drawn) and not every(tab, ".bell")
        press(tab, "home")
        assert text(tab, ".words").startswith(said) and len(every(tab, ".pin")) == 8


@needs_browser
@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("width", [390, 1280])
def test_fits_and_can_be_read(tab, several, width, scheme):
    look_at(tab, several, width, scheme, "#50")
    tab.execute_script("document.querySelector('details').open = true")
    assert tab.execute_script("return [document.documentElement.scrollWidth, innerWidth]") == [width, width]
    assert tab.execute_script(CONTRAST) == []
    before = tab.execute_script("return getComputedStyle(document.body).backgroundColor")
    every(tab, "#theme")[0].click()
    assert tab.execute_script("return getComputedStyle(document.body).backgroundColor") != before
    tab.execute_script("localStorage.clear()")
