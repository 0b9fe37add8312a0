"""Watch an agent: one episode as a page that plays it, with what the critic believed at every moment.

from mcclt import load
from mcclt.pages import watch
model = load("runs/hopper")
watch.write([watch.record(model, seed=0)], "hopper.html")

`record` runs the episode, in an environment made by Gymnasium that can be looked at, and asks the critic about all of
its states at once. What it returns is plain arrays: `page` needs neither JAX nor the model.
"""

import base64
import os
import webbrowser
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from mcclt.console import plain_console
from mcclt.errors import ConfigError
from mcclt.pages import filming
from mcclt.pages.recording import Recording, record
from mcclt.pages.rendering import render, rounded, short
from mcclt.storage import files

DIGITS = 5
"""Significant digits of the numbers in a page."""


def page(recordings: Sequence[Recording]) -> str:
    """The whole page: one card per recording, all on one time axis.

    Raises:
        ConfigError: no recordings, or of several tasks.
    """
    tasks = list(dict.fromkeys(r.task for r in recordings))
    if len(tasks) != 1:
        raise ConfigError(
            f"One page shows recordings of one task, not of {len(tasks)}{': ' * bool(tasks)}{', '.join(tasks)}."
        )
    return render("watch", content(recordings), task=tasks[0], who=", ".join(map(label, recordings)))


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
    def numbers(values: np.ndarray) -> list[float | int | None]:
        return rounded(np.asarray(values, float), DIGITS)

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
        "z": None if r.z is None else numbers(r.z),
        "bars": [numbers(row) for row in r.bars],
        **{name: numbers(getattr(r, name)) for name in ("mean", "std", "error", "weight", "returns", "rewards")},
        "actions": {
            "names": r.action_names,
            "low": numbers(r.action_low),
            "high": numbers(r.action_high),
            "discrete": discrete,
            "rows": [numbers(row) for row in actions.T],
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


# --- mcclt watch -----------------------------------------------------------------------------------------------


def watch(
    model: Path,
    seeds: Sequence[int] = (),
    groups: Sequence[str] = (),
    episode_seed: int = 0,
    deterministic: bool = False,
    steps: int = 1000,
    video: bool = True,
    width: int = filming.WIDTH,
    out: Path | None = None,
    open: bool = True,
) -> Path:
    """Records agents of a saved model or a run side by side, and writes and opens their page: `mcclt watch`.

    Args:
        model: a saved model or a run directory.
        seeds: of the agents; none: the first.
        groups: of the agents; none: all.
        episode_seed: as for `record`, like deterministic, steps, video and width.
        deterministic: the most likely actions.
        steps: recording stops after this many.
        video: whether to make one.
        width: of the video in pixels.
        out: the page; None: watch.html in the run directory, or beside the model.
        open: whether to open the page in a browser, if there is a screen.
    """
    from mcclt.training.model import load, read_model, with_suffix

    console = plain_console()
    out = out or (model / "watch" if model.is_dir() else with_suffix(model)).with_suffix(".html")
    _check_writable(out)
    _, meta, source = read_model(model)
    known = list(meta["config"]["groups"])
    for name in groups:
        if name not in known:
            raise ConfigError(f"{source} has no group {name!r}: it has {', '.join(known)}.")
    models = [load(model, group=name) for name in groups or known]
    agents = [(one, seed) for one in models for seed in seeds or one.seeds[:1]]
    for one, seed in agents:
        one.agent(seed)  # an unknown one is named before anything is recorded
    most = max(100, filming.FRAMES // len(agents))
    recordings = []
    with console.status("") as status:
        for i, (one, seed) in enumerate(agents):
            name = f"{next(iter(one.config.groups))}, seed {seed}"
            status.update(f"Recording {name} ({i + 1} of {len(agents)})")
            got = record(one, seed, episode_seed, steps, deterministic, video, width=width, max_frames=most)
            recordings.append(got)
            end = "ended" if got.terminated else "reached the time limit" if got.truncated else "was stopped"
            console.print(f"{name}: return {got.rewards.sum():,.1f}, {end} after {len(got):,} steps.", soft_wrap=True)
    for note in dict.fromkeys(r.note for r in recordings if r.note):
        console.print(note, soft_wrap=True)
    path = write(recordings, out)
    console.print(f"Page: {path} ({path.stat().st_size / 1e6:.1f} MB)", soft_wrap=True)
    if open and filming.has_screen():
        webbrowser.open(path.resolve().as_uri())
    return path


def _check_writable(path: Path) -> None:
    """Recording takes a while: what stands in the way of the page is said before."""
    if path.is_dir():
        raise ConfigError(f"{path} is a directory: --out is the page itself, such as {path / 'watch.html'}.")
    parent = next((p for p in path.absolute().parents if p.exists()), Path("/"))
    if not (parent.is_dir() and os.access(parent, os.W_OK)):
        raise _unwritable(path, PermissionError(13, "no permission to write there"))


def _unwritable(path: Path, error: OSError) -> ConfigError:
    return ConfigError(f"{path} cannot be written ({error.strerror}): choose another --out.")
