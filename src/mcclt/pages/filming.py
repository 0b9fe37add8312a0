"""Environments that can be looked at, and pictures of them."""

import ctypes.util
import functools
import importlib
import io
import os
import re
import sys
import warnings
from typing import TYPE_CHECKING, Any

import numpy as np

from mcclt.errors import EnvironmentFault

if TYPE_CHECKING:
    import gymnasium as gym

WIDTH, QUALITY, FRAMES = 480, 65, 500
"""Of a picture: pixels across, and quality (0 to 100). Of a video: most pictures. A page stays below some 10 MB."""
FPS = 30
"""Pictures per second of the task's time that the eye needs; more are not made."""
NO_MUJOCO_VIDEO = (
    "No video: MuJoCo found no OpenGL to draw with; install a software one"
    " (Debian, Ubuntu: apt-get install libegl1 libosmesa6) or set MUJOCO_GL to egl, osmesa or glfw."
)
NO_PICTURES = "No video: this environment renders no frames."
CAMERAS = {"InvertedDoublePendulum": {"distance": 2.7, "lookat": (0.0, 0.0, 0.5), "elevation": -30.0}}
"""Nearer than Gymnasium's own, where that shows little but the floor."""


def make_env(task: object, max_episode_steps: int | None, width: int | None) -> tuple[Any, str]:
    """One guarded environment as in training, with pictures if `width` is given; and why it has none."""
    from mcclt.envs import gymnasium as engine
    from mcclt.envs.api import task_name

    source, name = engine.source_of(task), task_name(task)
    if width is None:
        return engine.make_one(name, source, max_episode_steps), ""
    draw_off_screen()
    if _is_mujoco(source) and not has_gl():
        os.environ["MUJOCO_GL"] = "disable"  # without OpenGL, MuJoCo cannot even be imported if told to use it
        note = NO_MUJOCO_VIDEO
    else:
        try:
            with warnings.catch_warnings():  # Gymnasium's about a render_mode that a task does not list
                warnings.simplefilter("ignore")
                return engine.make_one(name, functools.partial(_visible, source, width), max_episode_steps), ""
        except EnvironmentFault:  # which is raised again below, if pictures are not the reason
            note = f"No video: {name} does not take render_mode='rgb_array'."
    return engine.make_one(name, source, max_episode_steps), note


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


def has_screen() -> bool:
    """Whether there is a display to show something on."""
    return sys.platform != "linux" or any(os.environ.get(n) for n in ("DISPLAY", "WAYLAND_DISPLAY"))


def draw_off_screen() -> None:
    """Without a display, tells MuJoCo and SDL (of Box2D and classic control) so, unless somebody has."""
    if has_screen():
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


def steps_per_second(world: Any) -> float:
    """The task's own pace: by the seconds of its step (`dt`, CartPole's `tau`), else by the pictures it names."""
    task = world.unwrapped
    seconds = next((getattr(task, name) for name in ("dt", "tau") if hasattr(task, name)), 0)
    if isinstance(seconds, int | float) and seconds > 0:
        return 1 / seconds
    fps = task.metadata.get("render_fps") or 0
    return float(fps) if fps > 0 else float(FPS)


def action_names(world: Any, count: int) -> tuple[str, ...]:
    """Names of an action's components: the joints that a MuJoCo model's actuators turn; else numbers."""
    scene: Any = getattr(world.unwrapped, "model", None)
    try:
        joints = [scene.joint(int(scene.actuator_trnid[i, 0])).name for i in range(count)]
    except (AttributeError, IndexError, KeyError, ValueError):
        joints = []
    names = [re.sub(r"_?joint$|_rot$", "", name).replace("_", " ") for name in joints]
    return tuple(name or str(i) for i, name in enumerate(names)) or tuple(str(i) for i in range(count))


class Film:
    """Pictures of one episode, no more than a video has; `note` says why there are none."""

    def __init__(self, world: Any, width: int, most: int) -> None:
        self.frames: list[bytes] = []
        self.steps: list[int] = []
        self.note = ""
        self._world, self._width, self._most = world, width, max(2, most)
        self._stride = max(1, round(steps_per_second(world) / FPS))
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
                self.frames.append(encode(np.asarray(picture), self._width))
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


def encode(picture: np.ndarray, width: int) -> bytes:
    """A WebP of at most this width, of an array [H, W, 3] uint8."""
    from PIL import Image

    image = Image.fromarray(picture)
    image.thumbnail((width, image.height), Image.Resampling.LANCZOS)
    buffer = io.BytesIO()
    image.save(buffer, "WEBP", quality=QUALITY, method=3)
    return buffer.getvalue()


def _sentence(error: BaseException) -> str:
    text = str(error).partition("\n")[0].strip() or type(error).__name__
    return text if text.endswith((".", "!", "`")) else f"{text}."
