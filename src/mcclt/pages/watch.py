"""Watch an agent: one episode as a page that plays it, with what the critic believed at every moment.

from mcclt import load
from mcclt.pages import watch
model = load("runs/hopper")
watch.write([watch.record(model, seed=0)], "hopper.html")

`record` runs the episode, in an environment made by Gymnasium that can be looked at, and asks the critic about all of
its states at once. What it returns is plain arrays: `page` needs neither JAX nor the model.
"""

import base64
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from mcclt.errors import ConfigError
from mcclt.experiments.cells import plain
from mcclt.pages.curves import DIGITS, distinct_colours
from mcclt.pages.recording import Recording
from mcclt.pages.recording import record as record
from mcclt.pages.rendering import render, short
from mcclt.storage import files


def page(recordings: Sequence[Recording]) -> str:
    """The whole page: one card per recording, all on one time axis.

    Raises:
        ConfigError: no recordings, or of several tasks.
    """
    task = the_task([r.task for r in recordings])
    colours = distinct_colours([r.group.removeprefix(f"{r.algo}-") for r in recordings])
    agents = [_agent(r, colour) for r, colour in zip(recordings, colours, strict=True)]
    return render("watch", {"agents": agents}, task=task, who=", ".join(map(label, recordings)))


def the_task(names: Sequence[str]) -> str:
    """Of all that a page shows; raises a `ConfigError` unless it is one."""
    tasks = list(dict.fromkeys(names))
    if len(tasks) != 1:
        raise ConfigError(
            f"One page shows recordings of one task, not of {len(tasks)}{': ' * bool(tasks)}{', '.join(tasks)}."
        )
    return tasks[0]


def write(recordings: Sequence[Recording], path: str | Path) -> Path:
    """Writes the page, wholly or not at all.

    Raises:
        ConfigError: the path cannot be written, or see `page`.
    """
    path, text = Path(path), page(recordings)
    try:
        files.write_atomically(path, text.encode())
    except OSError as error:
        raise unwritable(path, error) from error
    return path


def unwritable(path: Path, error: OSError) -> ConfigError:
    """The sentence about a place where no page can be."""
    return ConfigError(f"{path} cannot be written ({error.strerror}): choose another --out.")


def label(recording: Recording) -> str:
    """The agent's name."""
    return f"{recording.group}, seed {recording.seed}"


def _agent(r: Recording, colour: str) -> dict[str, Any]:
    """All that the page shows of one, as plain data; unknown numbers are None."""
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
            "most likely actions" if r.deterministic else "sampled actions",
        ],
        "colour": colour,
        "critic": r.critic,
        "error_name": r.error_name,
        "fps": r.fps,
        "end": "terminated" if r.terminated else "time limit" if r.truncated else "recording stopped",
        "note": r.note,
        "z": plain(r.z, DIGITS),
        "bars": plain(r.bars, DIGITS),
        **{name: plain(getattr(r, name), DIGITS) for name in ("mean", "std", "error", "weight", "returns", "rewards")},
        "actions": {
            "names": r.action_names,
            "low": plain(r.action_low, DIGITS),
            "high": plain(r.action_high, DIGITS),
            "discrete": discrete,
            "counted": r.counted or discrete,
            "rows": plain(actions.T, DIGITS),
        },
        "frames": [base64.b64encode(frame).decode() for frame in r.frames or ()],
        "frame_steps": r.frame_steps.tolist(),
    }
