"""Watch an agent: one episode as a page that plays it, with what the critic believed at every moment.

from mcclt import load
from mcclt.pages import watch
model = load("runs/hopper")
watch.write([watch.record(model, seed=0)], "hopper.html")

`record` runs the episode, in an environment made by Gymnasium that can be looked at, and asks the critic about all of
its states at once. What it returns is plain arrays: `page` needs neither JAX nor the model. The page is
data/watch.html with the report's style sheet, watch.css, watch.js and the recordings put into it; like the report it
needs no network, and forbids every script but its own.
"""

import base64
import ctypes.util
import dataclasses
import functools
import hashlib
import html
import importlib
import io
import os
import re
import sys
import warnings
import webbrowser
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from mcclt.console import plain_console
from mcclt.errors import ConfigError, EnvironmentFault
from mcclt.storage import files

if TYPE_CHECKING:
    import gymnasium as gym

    from mcclt.cli.app import Watch
    from mcclt.training.model import Model

WIDTH, QUALITY, FRAMES = 480, 65, 500
"""Of a picture: pixels across, and quality (0 to 100). Of a video: most pictures. A page stays below some 10 MB."""
FPS = 30
"""Pictures per second of the task's time that the eye needs; more are not made."""
DIGITS = 5
"""Significant digits of the numbers in a page."""
NOT_FINITE = "returned a number that is not finite"
NO_MUJOCO_VIDEO = (
    "No video: MuJoCo found no OpenGL to draw with; install a software one"
    " (Debian, Ubuntu: apt-get install libegl1 libosmesa6) or set MUJOCO_GL to egl, osmesa or glfw."
)
NO_PICTURES = "No video: this environment draws no pictures."
CAMERAS = {"InvertedDoublePendulum": {"distance": 2.7, "lookat": (0.0, 0.0, 0.5), "elevation": -30.0}}
"""Nearer than Gymnasium's own, where that shows little but the floor."""


@dataclass(frozen=True)
class Recording:
    """One episode of one agent: T states, and what was done, got and believed in each."""

    task: str
    group: str
    """The agent's group: its variant, or the algorithm."""
    seed: int
    algo: str
    critic: str
    weighting: str
    gamma: float
    trained: int
    """Steps the agent had learnt from."""
    episode_seed: int
    deterministic: bool
    """Whether the actions were the most likely ones, rather than draws."""
    fps: float
    """Steps per second of the task's own time."""
    observations: np.ndarray
    """[T, O]."""
    actions: np.ndarray
    """[T, D] within bounds; [T] for discrete ones, counted from 0."""
    action_low: np.ndarray
    """[D] bounds, which may be infinite; 0 and 1 for each of D discrete actions."""
    action_high: np.ndarray
    action_names: tuple[str, ...]
    """[D]."""
    rewards: np.ndarray
    """[T]."""
    bars: np.ndarray
    """[T, N], as mean, std, error and weight [T] the critic's: see `mcclt.ValueDistribution`."""
    mean: np.ndarray
    std: np.ndarray
    error: np.ndarray
    weight: np.ndarray
    z: np.ndarray | None
    """[N] where the bars of a standard normal are; None where bars are no quantiles (plain, ensemble)."""
    returns: np.ndarray
    """[T] the discounted return that followed; NaN where the recording ends too early to know it."""
    terminated: bool
    """Whether the task ended the episode."""
    truncated: bool
    """Whether its time limit did; if neither, the recording was stopped."""
    frames: tuple[bytes, ...] | None
    """[F] WebP pictures, the last one of how the episode ended; None without video."""
    frame_steps: np.ndarray
    """[F] the step each picture belongs to, rising."""
    note: str = ""
    """Why there is no video, in a sentence."""

    def __len__(self) -> int:
        return len(self.rewards)


# --- recording -------------------------------------------------------------------------------------------------


def record(
    model: "Model",
    seed: int | None = None,
    episode_seed: int = 0,
    max_steps: int = 1000,
    deterministic: bool = False,
    render: bool = True,
    *,
    env: object | None = None,
    width: int = WIDTH,
    quality: int = QUALITY,
    max_frames: int = FRAMES,
) -> Recording:
    """Runs one episode of one agent. The same arguments give the same episode.

    Args:
        model: what `mcclt.load` gives.
        seed: which agent of a population; the first by default.
        episode_seed: names where the episode starts, and the noise of the actions.
        max_steps: stop after as many steps.
        deterministic: the most likely actions, rather than draws. (The critic describes the drawn ones.)
        render: make a video; where that is impossible, `Recording.note` says why.
        env: a task id, environment class or factory; the model's own task by default.
        width: of a picture, in pixels.
        quality: of a picture, 0 to 100.
        max_frames: of the video; of longer ones every second picture is left out, or more.

    Raises:
        ConfigError: a number that makes no sense, or an environment of another task.
        EnvironmentFault: the environment raised, or returned a number that is not finite.
    """
    for name, number, low in (("max_steps", max_steps, 1), ("episode_seed", episode_seed, 0), ("width", width, 16)):
        if number < low:
            raise ConfigError(f"{name} = {number} is not allowed: it must be at least {low}.")
    from mcclt.experiments.analysis.calibration import monte_carlo
    from mcclt.method import normal

    index = model._index(seed)
    group, agent = next(iter(model.config.groups.items()))
    source = env if env is not None else (model._env or model.config.task)
    world, note = _make_env(source, model.config.max_episode_steps, width if render else None)
    try:
        _check_spaces(world, model)
        film = _Film(world, width, quality, max_frames) if render and not note else None
        act = _actor(model, index, episode_seed, max_steps, deterministic)
        steps = _play(world, act, film, episode_seed, max_steps, model._spec.action_start)
        names = _action_names(world, model._spec.action_size)
        fps = _steps_per_second(world)
    finally:
        world.close()
    observations = np.array([s.obs for s in steps], np.float32)
    rewards = np.array([s.reward for s in steps], np.float64)
    ends = np.array([s.terminated for s in steps]), np.array([s.truncated for s in steps])
    returns, known = monte_carlo(rewards, *ends, agent.gamma)
    believed = model.value_distribution(observations, seed=model.seeds[index])
    spec, count = model._spec, believed.bars.shape[-1]
    return Recording(
        task=model.config.task,
        group=group,
        seed=model.seeds[index],
        algo=agent.algo,
        critic=agent.critic,
        weighting=agent.weighting or model._learner.weighting_name,
        gamma=agent.gamma,
        trained=model.num_timesteps,
        episode_seed=episode_seed,
        deterministic=deterministic,
        fps=fps,
        observations=observations,
        actions=np.array([s.action for s in steps]),
        action_low=np.zeros(spec.action_size) if spec.action_low is None else np.asarray(spec.action_low),
        action_high=np.ones(spec.action_size) if spec.action_high is None else np.asarray(spec.action_high),
        action_names=names,
        rewards=rewards,
        z=normal.z_table(count) if agent.critic in ("normal", "quantile") else None,
        returns=np.where(known, returns, np.nan),
        terminated=bool(ends[0][-1]),
        truncated=bool(ends[1][-1]),
        frames=tuple(film.frames) if film and film.frames else None,
        frame_steps=np.array(film.steps if film else [], int),
        note=film.note if film else note,
        **{f.name: getattr(believed, f.name) for f in dataclasses.fields(believed)},
    )


class _Moment(NamedTuple):
    """One step."""

    obs: np.ndarray
    action: np.ndarray
    reward: float
    terminated: bool
    truncated: bool


def _play(world: Any, act: Any, film: "_Film | None", seed: int, limit: int, start: int) -> list[_Moment]:
    """One episode, at most `limit` steps of it; discrete action 0 is the task's `start`."""
    dtype = world.action_space.dtype
    obs, info = world.reset(seed=seed)
    fault = info.get("fault", "" if np.isfinite(obs).all() else NOT_FINITE)
    steps: list[_Moment] = []
    while not fault and len(steps) < limit:
        if film:
            film.shoot(len(steps))
        action = act(obs, len(steps))
        after, reward, terminated, truncated, _ = world.step((action + start).astype(dtype))
        if not (np.isfinite(reward) and np.isfinite(after).all()):
            fault = world.reset()[1].get("fault", NOT_FINITE)  # what the guard has kept, if it raised
            break
        steps.append(_Moment(obs, action, reward, terminated, truncated and not terminated))
        obs = after
        if terminated or truncated:
            break
    if fault:
        raise EnvironmentFault(f"In step {len(steps)} of episode {seed} the environment {fault}.")
    if film:
        film.finish(len(steps) - 1)
    return steps


def _actor(model: "Model", index: int, episode_seed: int, limit: int, deterministic: bool) -> Any:
    """What the agent does at an observation [O] in step t, with noise that this episode's seed alone names."""
    import jax

    from mcclt.method.randomness import Purpose, stream
    from mcclt.training.collect import to_env_action

    params = jax.tree.map(lambda x: x[index], model._policies)
    policy, spec = model._learner.actor, model._spec
    key = jax.random.fold_in(stream(model.seeds[index], Purpose.PREDICT), episode_seed)
    noise = None if deterministic else np.asarray(policy.noise(key, (limit,)))

    def act(obs: np.ndarray, t: int) -> np.ndarray:
        row = obs[None]
        action = policy.mode(params, row) if noise is None else policy.sample(params, row, noise[t : t + 1])
        return to_env_action(np.asarray(action), spec.action_low, spec.action_high)[0]

    return act


# --- environments that can be looked at ------------------------------------------------------------------------


def _make_env(task: object, max_episode_steps: int | None, width: int | None) -> tuple[Any, str]:
    """One guarded environment as in training, with pictures if `width` is given; and why it has none."""
    from mcclt.envs import gymnasium as engine
    from mcclt.envs.api import task_name

    source, name = engine._source(task), task_name(task)
    if width is None:
        return engine._make_one(name, source, max_episode_steps), ""
    draw_off_screen()
    note = ""
    if _is_mujoco(source) and not has_gl():
        os.environ["MUJOCO_GL"] = "disable"  # without OpenGL, MuJoCo cannot even be imported if told to use it
        note = NO_MUJOCO_VIDEO
    else:
        try:
            with warnings.catch_warnings():  # Gymnasium's about a render_mode that a task does not list
                warnings.simplefilter("ignore")
                return engine._make_one(name, functools.partial(_visible, source, width), max_episode_steps), ""
        except EnvironmentFault:  # which is raised again below, if pictures are not the reason
            note = f"No video: {name} does not take render_mode='rgb_array'."
    return engine._make_one(name, source, max_episode_steps), note


def _visible(source: Any, width: int) -> "gym.Env":
    """An environment that can be asked for pictures, from an entry of Gymnasium's registry, a class or a function."""
    import gymnasium as gym

    if not isinstance(source, gym.envs.registration.EnvSpec):
        return source(render_mode="rgb_array")
    size = {"width": width, "height": width * 5 // 8} if _is_mujoco(source) else {}
    return gym.make(source, disable_env_checker=True, render_mode="rgb_array", **size)


def _is_mujoco(source: Any) -> bool:
    """Whether this is one of Gymnasium's own MuJoCo tasks."""
    return str(getattr(source, "entry_point", "")).startswith("gymnasium.envs.mujoco")


def draw_off_screen() -> None:
    """Without a display, tells MuJoCo and SDL (of Box2D and classic control) so, unless somebody has."""
    if sys.platform != "linux" or _has_screen():
        return
    os.environ.setdefault("SDL_VIDEODRIVER", "dummy")
    for name, library in (("egl", "EGL"), ("osmesa", "OSMesa")):
        if not os.environ.get("MUJOCO_GL") and ctypes.util.find_library(library):
            os.environ["MUJOCO_GL"] = name


def has_gl() -> bool:
    """Whether MuJoCo can draw, in the way that MUJOCO_GL names or in any; Gymnasium would fail less cleanly."""
    chosen = os.environ.get("MUJOCO_GL")
    for name in [chosen] if chosen else ["glfw", "egl", "osmesa"]:
        try:
            importlib.import_module(f"mujoco.{name}").GLContext(8, 8).free()
            return True
        except Exception:  # whatever a graphics library raises
            continue
    return False


def _check_spaces(world: Any, model: "Model") -> None:
    space, spec = world.action_space, model._spec
    discrete = not space.shape
    size = int(space.n) if discrete else space.shape[0]
    if (world.obs_size, size, discrete) != (spec.obs_size, spec.action_size, spec.discrete):
        other = world.spec.id if world.spec else type(world.unwrapped).__name__
        raise ConfigError(
            f"The model was trained on {model.config.task} and cannot act in {other}: their spaces differ."
        )


def _steps_per_second(world: Any) -> float:
    """As the task says; else as the eye likes it."""
    fps = world.unwrapped.metadata.get("render_fps") or 0
    return float(fps) if fps > 0 else float(FPS)


def _action_names(world: Any, count: int) -> tuple[str, ...]:
    """Those of the joints that a MuJoCo model's actuators turn; else numbers."""
    scene: Any = getattr(world.unwrapped, "model", None)
    try:
        joints = [scene.joint(int(scene.actuator_trnid[i, 0])).name for i in range(count)]
    except (AttributeError, IndexError, KeyError, ValueError):
        joints = []
    names = [re.sub(r"_?joint$|_rot$", "", name).replace("_", " ") for name in joints]
    return tuple(name or str(i) for i, name in enumerate(names)) or tuple(str(i) for i in range(count))


class _Film:
    """Pictures of an environment, as they are wanted and no more than fit."""

    def __init__(self, world: Any, width: int, quality: int, most: int) -> None:
        self.frames: list[bytes] = []
        self.steps: list[int] = []
        self.note = ""
        self._world, self._width, self._quality, self._most = world, width, quality, max(2, most)
        self._stride = max(1, round(_steps_per_second(world) / FPS))
        _light_up(world)

    def shoot(self, step: int) -> None:
        """A picture of this moment, if it is one to show."""
        if self.note or step % self._stride:
            return
        self._add(step)
        if len(self.steps) > self._most:  # half as many, twice as far apart
            self._stride *= 2
            del self.frames[1::2], self.steps[1::2]

    def finish(self, step: int) -> None:
        """A picture of the end, in place of one of the moment before."""
        if self.note:
            return
        if self.steps and (self.steps[-1] == step or len(self.steps) >= self._most):
            del self.frames[-1], self.steps[-1]
        self._add(step)

    def _add(self, step: int) -> None:
        try:
            picture = self._world.render()
            if picture is not None:
                self.frames.append(_encode(np.asarray(picture), self._width, self._quality))
                self.steps.append(step)
                return
            self.note = NO_PICTURES
        except Exception as error:  # whatever a graphics library raises
            # Gymnasium's own base class, of a task that does not draw itself, raises NotImplementedError.
            self.note = NO_PICTURES if isinstance(error, NotImplementedError) else f"No video: {_sentence(error)}"
        self.frames, self.steps = [], []


def _light_up(world: Any) -> None:
    """Makes a MuJoCo scene quick to draw and easy to see."""
    renderer = getattr(world.unwrapped, "mujoco_renderer", None)
    scene = getattr(world.unwrapped, "model", None)
    if renderer is None or scene is None:
        return
    scene.vis.quality.shadowsize = 1024  # a quarter of MuJoCo's: pictures are small, and often drawn without a GPU
    if not scene.nlight:  # nothing but the lamp on the camera, which is dim
        scene.vis.headlight.ambient[:] = 0.35
        scene.vis.headlight.diffuse[:] = 0.6
    for i in range(scene.ncam):  # the one that goes with the body, if there is one
        if scene.camera(i).name == "track":
            renderer.camera_id = i
    task = world.spec.id.partition("-")[0] if world.spec else ""
    if task in CAMERAS:
        renderer.default_cam_config = {**(renderer.default_cam_config or {}), **CAMERAS[task]}


def _encode(picture: np.ndarray, width: int, quality: int) -> bytes:
    """A WebP of at most this width, of an array [H, W, 3] uint8."""
    from PIL import Image

    image = Image.fromarray(picture)
    if image.width > width:
        image = image.resize((width, round(image.height * width / image.width)), Image.Resampling.LANCZOS)
    buffer = io.BytesIO()
    image.save(buffer, "WEBP", quality=quality, method=3)
    return buffer.getvalue()


def _sentence(error: BaseException) -> str:
    text = str(error).partition("\n")[0].strip() or type(error).__name__
    return text if text.endswith((".", "!", "`")) else f"{text}."


# --- the page --------------------------------------------------------------------------------------------------


def page(recordings: Sequence[Recording]) -> str:
    """The whole page: one card per recording, all on one time axis.

    Raises:
        ConfigError: no recordings, or of several tasks.
    """
    from mcclt.pages.report import embed

    tasks = list(dict.fromkeys(r.task for r in recordings))
    if len(tasks) != 1:
        raise ConfigError(
            f"One page shows recordings of one task, not of {len(tasks)}{': ' * bool(tasks)}{', '.join(tasks)}."
        )
    script = files.asset("mcclt.pages", "page.js") + files.asset("mcclt.pages", "watch.js")
    digest = base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()
    parts = {
        "policy": f"default-src 'none'; style-src 'unsafe-inline'; img-src data:; script-src 'sha256-{digest}'",
        "style": files.asset("mcclt.pages", "report.css") + files.asset("mcclt.pages", "watch.css"),
        "script": script,
        "task": html.escape(tasks[0]),
        "who": html.escape(", ".join(map(label, recordings))),
        "data": embed(content(recordings)),
    }
    return re.sub(r"\{\{(\w+)\}\}", lambda match: parts[match[1]], files.asset("mcclt.pages", "watch.html"))


def write(recordings: Sequence[Recording], path: str | Path) -> Path:
    """Writes the page, wholly or not at all.

    Raises:
        ConfigError: the path cannot be written, or see `page`.
    """
    path, text = Path(path), page(recordings)
    try:
        files.write_atomically(path, text.encode())
    except OSError as error:
        raise _unwritable(path, error) from error
    return path


def label(recording: Recording) -> str:
    """The agent's name."""
    return f"{recording.group}, seed {recording.seed}"


def content(recordings: Sequence[Recording]) -> dict[str, Any]:
    """All that the page shows, as plain data; unknown numbers are None."""
    return {"agents": [_agent(r, colour) for r, colour in zip(recordings, colours(recordings), strict=True)]}


def _agent(r: Recording, colour: str) -> dict[str, Any]:
    from mcclt.pages.report import short

    def rows(values: np.ndarray) -> list[Any]:
        return [_numbers(row) for row in values]

    discrete = r.actions.ndim == 1
    actions = (r.actions[:, None] == np.arange(len(r.action_names))).astype(int) if discrete else r.actions
    return {
        "group": r.group,
        "label": label(r),
        "facts": [
            r.algo.upper(),
            f"{r.critic} critic",
            f"{r.weighting} weights",
            f"{short(r.trained)} steps",
            f"episode {r.episode_seed}",
            *(["deterministic"] if r.deterministic else []),
        ],
        "colour": colour,
        "critic": r.critic,
        "fps": r.fps,
        "end": "terminated" if r.terminated else "time limit" if r.truncated else "recording stopped",
        "note": r.note,
        "z": None if r.z is None else _numbers(r.z),
        "bars": rows(r.bars),
        **{name: _numbers(getattr(r, name)) for name in ("mean", "std", "error", "weight", "returns", "rewards")},
        "actions": {
            "names": r.action_names,
            "low": _numbers(r.action_low),
            "high": _numbers(r.action_high),
            "discrete": discrete,
            "rows": rows(actions.T),
        },
        "frames": [base64.b64encode(frame).decode() for frame in r.frames or ()],
        "frame_steps": r.frame_steps.tolist(),
    }


def colours(recordings: Sequence[Recording]) -> list[str]:
    """A colour each: the variant's own as in the report, while no other recording has it."""
    from mcclt.experiments import figures

    found: list[str] = []
    spare = [*figures.MORE_COLOURS, *figures.COLOURS.values()]
    for r in recordings:
        own = figures.colour(r.group.removeprefix(f"{r.algo}-"))
        free = [c for c in spare if c not in found] or spare
        found.append(own if own not in found else free[0])
    return found


def _numbers(values: np.ndarray) -> list[float | int | None]:
    from mcclt.pages.report import rounded

    return rounded(np.asarray(values, float), DIGITS)


# --- mcclt watch -----------------------------------------------------------------------------------------------


def watch(command: "Watch") -> Path:
    """`mcclt watch`."""
    from mcclt.training.model import load, read_model, with_suffix

    console = plain_console()
    beside = command.model / "watch" if command.model.is_dir() else with_suffix(command.model)
    out = command.out or beside.with_suffix(".html")
    _check_writable(out)
    _, meta, source = read_model(command.model)
    known = list(meta["config"]["groups"])
    for name in command.groups:
        if name not in known:
            raise ConfigError(f"{source} has no group {name!r}: it has {', '.join(known)}.")
    models = [load(command.model, group=name) for name in command.groups or known]
    agents = [(model, seed) for model in models for seed in command.seeds or model.seeds[:1]]
    for model, seed in agents:
        model._index(seed)  # an unknown one is named before anything is recorded
    recordings = []
    with console.status("") as status:
        for i, (model, seed) in enumerate(agents):
            name = f"{next(iter(model.config.groups))}, seed {seed}"
            status.update(f"Recording {name} ({i + 1} of {len(agents)})")
            recording = record(
                model,
                seed,
                command.episode_seed,
                command.steps,
                command.deterministic,
                command.video,
                width=command.width,
                max_frames=max(100, FRAMES // len(agents)),
            )
            recordings.append(recording)
            how = {(True, False): "ended", (False, True): "reached the time limit"}
            end = how.get((recording.terminated, recording.truncated), "was stopped")
            said = f"{name}: return {recording.rewards.sum():,.1f}, {end} after {len(recording):,} steps."
            console.print(said, soft_wrap=True)
    for note in dict.fromkeys(r.note for r in recordings if r.note):
        console.print(note, soft_wrap=True)
    path = write(recordings, out)
    console.print(f"Page: {path} ({path.stat().st_size / 1e6:.1f} MB)", soft_wrap=True)
    if command.open and _has_screen():
        webbrowser.open(path.resolve().as_uri())
    return path


def _has_screen() -> bool:
    return sys.platform != "linux" or any(os.environ.get(n) for n in ("DISPLAY", "WAYLAND_DISPLAY"))


def _check_writable(path: Path) -> None:
    """Recording takes a while: what stands in the way of the page is said before."""
    if path.is_dir():
        raise ConfigError(f"{path} is a directory: --out is the page itself, such as {path / 'watch.html'}.")
    parent = next((p for p in path.absolute().parents if p.exists()), Path("/"))
    if not (parent.is_dir() and os.access(parent, os.W_OK)):
        raise _unwritable(path, PermissionError(13, "no permission to write there"))


def _unwritable(path: Path, error: OSError) -> ConfigError:
    return ConfigError(f"{path} cannot be written ({error.strerror}): choose another --out.")
