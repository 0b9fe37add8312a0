"""`mcclt watch`."""

import dataclasses
import os
from collections import Counter
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, ClassVar

from tyro.conf import Positional

from mcclt import zoo
from mcclt.cli.agents import chosen
from mcclt.cli.command import Command
from mcclt.cli.flags import Comma, Seeds, Spelling, Steps, paths
from mcclt.config.values import require
from mcclt.errors import ConfigError

if TYPE_CHECKING:
    from mcclt.training.model import Model


@dataclass(frozen=True, kw_only=True)
class Watch(Command):
    """Record an episode and write a page that plays it beside the critic's beliefs.

    mcclt watch runs/Hopper-v5__ppo-mcclt__20260101-120000
    """

    model: Annotated[tuple[Path, ...], Spelling("MODEL", paths), Positional]
    """A saved model, a run directory, an agent that a store kept (STORE/agents/..., or its cell, STORE/cells/...), or
    zoo:TASK (see `mcclt zoo`); or several of them side by side, separated by commas."""
    seeds: Seeds = ()
    """Agents to show side by side; unset: the first seed."""
    groups: Comma = ()
    """Groups to show side by side; unset: all."""
    episode_seed: int = 0
    """Seed of the episode: its initial state and action noise."""
    sample: bool = False
    """Sample actions, as in training, instead of taking the most likely ones, as `mcclt evaluate` does."""
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
        "deterministic": "--deterministic is now the default: leave it out; --sample samples actions."
    }

    def run(self) -> None:
        """Records the agents side by side, and writes and opens their page."""
        import webbrowser

        from mcclt.pages import filming, watch

        if not self.video and "width" in self.given:
            raise ConfigError("--width is the width of the video: leave out one of --width and --no-video.")
        require(self.steps >= 1, f"steps = {self.steps}", "at least 1")
        out = self.out or _page_of(self.model[0])
        _check_writable(out)
        agents = self._agents()
        watch.the_task([model.config.task for _, model, _ in agents])  # before minutes of recording
        most = max(100, filming.FRAMES // len(agents))
        recordings = []
        with self.console.status("") as status:
            for i, (group, model, seed) in enumerate(agents):
                name = f"{group}, seed {seed}"
                status.update(f"Recording {name} ({i + 1} of {len(agents)})")
                which = (model, seed, self.episode_seed, self.steps)
                got = watch.record(*which, not self.sample, self.video, width=self.width, max_frames=most)
                recordings.append(dataclasses.replace(got, group=group))
                other = watch.record(*which, self.sample, render=False).rewards.sum()
                also = f"with {'the most likely' if self.sample else 'sampled'} actions {other:,.1f}"
                end = "ended" if got.terminated else "reached the time limit" if got.truncated else "was stopped"
                self.say(f"{name}: return {got.rewards.sum():,.1f} ({also}), {end} after {len(got):,} steps.")
        self.say(*dict.fromkeys(r.note for r in recordings if r.note))
        page = watch.write(recordings, out)
        self.say(f"Page: {page} ({page.stat().st_size / 1e6:.1f} MB)")
        if self.open and filming.has_screen():
            webbrowser.open(page.resolve().as_uri())

    def _agents(self) -> list[tuple[str, "Model", int]]:
        """Those to show, each with a name for its group: where two would be called the same, with the path."""
        found = chosen(self.model, self.groups, self.seeds, most=1)
        often = Counter((group, seed) for _, group, _, seed in found)
        return [(g if often[g, seed] == 1 else f"{g}@{path}", model, seed) for path, g, model, seed in found]


def _page_of(model: Path) -> Path:
    """Where the page is unless told: in a run directory, beside a file, here for an agent of the zoo."""
    if model.is_dir():
        return model / "watch.html"
    beside = Path(str(model).removeprefix(zoo.PREFIX))
    name = beside.name
    for ending in (".json", ".xz", ".zip", ".safetensors"):
        name = name.removesuffix(ending)
    return beside.with_name(f"{name}.html")


def _check_writable(path: Path) -> None:
    """Recording takes a while: what stands in the way of the page is said before."""
    from mcclt.pages.watch import unwritable

    if path.is_dir():
        raise ConfigError(f"{path} is a directory: --out is the page itself, such as {path / 'watch.html'}.")
    parent = next((p for p in path.absolute().parents if p.exists()), Path("/"))
    if not (parent.is_dir() and os.access(parent, os.W_OK)):
        raise unwritable(path, PermissionError(13, "no permission to write there"))
