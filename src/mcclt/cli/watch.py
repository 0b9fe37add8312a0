"""`mcclt watch`."""

import os
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, ClassVar

from tyro.conf import Positional

from mcclt.cli.command import Command
from mcclt.cli.flags import Comma, Seeds, Steps
from mcclt.console import plain_console
from mcclt.errors import ConfigError


@dataclass(frozen=True, kw_only=True)
class Watch(Command):
    """Record an episode and write a page that plays it, with what the critic believed at every moment.

    mcclt watch runs/Hopper-v5__ppo-mcclt__20260101-120000
    """

    model: Annotated[Path, Positional]
    """A saved model, a run directory, an agent that a store kept (STORE/agents/...), or zoo:TASK (see `mcclt zoo`)."""
    seeds: Seeds = ()
    """Agents to show side by side; unset: the first seed."""
    groups: Comma = ()
    """Groups to show side by side; unset: all."""
    episode_seed: int = 0
    """Seed of the episode: where it starts, and the noise of its actions."""
    sample: bool = False
    """Draw actions, as in training, instead of taking the most likely ones, as `mcclt evaluate` does."""
    steps: Steps = 1000
    """Most steps to record."""
    video: bool = True
    """Record a video; --no-video writes charts only, which is faster."""
    width: int = 480
    """Width of the video in pixels."""
    out: Path | None = None
    """The page; unset: watch.html in the run directory, MODEL.html for a saved model, TASK.html for zoo:TASK."""
    open: bool = True
    """Open the page in a browser, where there is a screen."""

    FORMERLY: ClassVar = {
        "deterministic": "The most likely actions are now shown without --deterministic; --sample draws."
    }

    def run(self) -> None:
        """Records the agents side by side, and writes and opens their page."""
        import webbrowser

        from mcclt import zoo
        from mcclt.pages import filming, watch
        from mcclt.training.model import load, read_model, with_suffix

        if not self.video and "width" in self.given:
            raise ConfigError("--width is the width of the video: leave out one of --width and --no-video.")
        console = plain_console()
        beside = self.model / "watch" if self.model.is_dir() else with_suffix(str(self.model).removeprefix(zoo.PREFIX))
        out = self.out or beside.with_suffix(".html")
        _check_writable(out)
        _, meta, source = read_model(self.model)
        known = list(meta["config"]["groups"])
        for name in self.groups:
            if name not in known:
                raise ConfigError(f"{source} has no group {name!r}: it has {', '.join(known)}.")
        models = [load(self.model, group=name) for name in self.groups or known]
        agents = [(model, seed) for model in models for seed in self.seeds or model.seeds[:1]]
        for model, seed in agents:
            model.agent(seed)  # an unknown one is named before anything is recorded
        most = max(100, filming.FRAMES // len(agents))
        recordings = []
        with console.status("") as status:
            for i, (model, seed) in enumerate(agents):
                name = f"{next(iter(model.config.groups))}, seed {seed}"
                status.update(f"Recording {name} ({i + 1} of {len(agents)})")
                which = (model, seed, self.episode_seed, self.steps)
                got = watch.record(*which, not self.sample, self.video, width=self.width, max_frames=most)
                recordings.append(got)
                other = watch.record(*which, self.sample, render=False).rewards.sum()
                also = f"with {'the most likely' if self.sample else 'drawn'} actions {other:,.1f}"
                end = "ended" if got.terminated else "reached the time limit" if got.truncated else "was stopped"
                console.print(
                    f"{name}: return {got.rewards.sum():,.1f} ({also}), {end} after {len(got):,} steps.", soft_wrap=True
                )
        for note in dict.fromkeys(r.note for r in recordings if r.note):
            console.print(note, soft_wrap=True)
        path = watch.write(recordings, out)
        console.print(f"Page: {path} ({path.stat().st_size / 1e6:.1f} MB)", soft_wrap=True)
        if self.open and filming.has_screen():
            webbrowser.open(path.resolve().as_uri())


def _check_writable(path: Path) -> None:
    """Recording takes a while: what stands in the way of the page is said before."""
    from mcclt.pages.watch import unwritable

    if path.is_dir():
        raise ConfigError(f"{path} is a directory: --out is the page itself, such as {path / 'watch.html'}.")
    parent = next((p for p in path.absolute().parents if p.exists()), Path("/"))
    if not (parent.is_dir() and os.access(parent, os.W_OK)):
        raise unwritable(path, PermissionError(13, "no permission to write there"))
