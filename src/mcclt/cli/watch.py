"""`mcclt watch`."""

from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

from tyro.conf import Positional

from mcclt.cli.command import Command, flags_of
from mcclt.cli.flags import Comma, Seeds, Steps
from mcclt.errors import ConfigError


@dataclass(frozen=True, kw_only=True)
class Watch(Command):
    """Record an episode and write a page that plays it, with what the critic believed at every moment.

    mcclt watch runs/Hopper-v5__ppo-mcclt__20260101-120000
    """

    model: Annotated[Path, Positional]
    """A saved model or a run directory."""
    seeds: Seeds = ()
    """Agents to show side by side; unset: the first seed."""
    groups: Comma = ()
    """Groups to show side by side; unset: all."""
    episode_seed: int = 0
    """Seed of the episode: where it starts, and the noise of its actions."""
    deterministic: bool = False
    """Take the most likely actions instead of sampling them."""
    steps: Steps = 1000
    """Most steps to record."""
    video: bool = True
    """Record a video; --no-video writes charts only, which is faster."""
    width: int = 480
    """Width of the video in pixels."""
    out: Path | None = None
    """The page; unset: watch.html in the run directory, MODEL.html for a saved model."""
    open: bool = True
    """Open the page in a browser, where there is a screen."""

    def run(self) -> None:
        """Writes the page."""
        from mcclt.pages.watch import watch

        if not self.video and "width" in self.given:
            raise ConfigError("--width is the width of the video: leave out one of --width and --no-video.")
        watch(**{name: getattr(self, name) for name in flags_of(Watch)})
