"""`mcclt export`."""

from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

from tyro.conf import Positional

from mcclt.cli.command import Command


@dataclass(frozen=True, kw_only=True)
class Export(Command):
    """Write a trained policy as a file that runs without this library.

    mcclt export runs/Hopper-v5__ppo-mcclt__20260101-120000 policy.onnx --seed 0
    """

    model: Annotated[Path, Positional]
    """A saved model, a run directory, or a pretrained agent, zoo:TASK (`mcclt zoo` lists them)."""
    out: Annotated[Path, Positional]
    """policy.onnx (extra: onnx), or policy.npz for plain arrays."""
    seed: int | None = None
    """Which agent of a population; unset: its only one."""
    group: str | None = None
    """Which group of a run; unset: its only one."""
    value_distribution: bool = False
    """Also output bars, mean, std, normality error and weight of each state."""

    def run(self) -> None:
        """Writes the file and prints where it is."""
        from mcclt.interop.export import export

        path = export(self.model, self.out, self.seed, self.group, self.value_distribution)
        self.say(f"Policy: {path}")
