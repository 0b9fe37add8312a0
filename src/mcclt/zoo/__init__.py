"""Pretrained agents that come with the library, one for each task: `mcclt.load("zoo:Hopper-v5")`.

Each has two files beside this one: its model, TASK.safetensors.xz, and its card, TASK.json, with what it is, the
returns of its episodes, how it was chosen, and the command that trains it again. Both are made by benchmarks/zoo.py.
"""

import dataclasses
import json
import math
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from mcclt.errors import UnknownNameError
from mcclt.storage import files

PREFIX = "zoo:"
"""Before the name of an agent, wherever the path of a model may stand."""
FOLDER = Path(__file__).parent
SUFFIX = ".safetensors.xz"


@dataclass(frozen=True)
class Card:
    """What is known of an agent; a JSON file has the same fields."""

    task: str
    """What it was trained on, which is also its name."""
    algo: str
    """Its policy update."""
    critic: str
    """Its value distribution."""
    weighting: str
    """Its weights per state."""
    steps: int
    """Environment steps that it learnt from."""
    mean: float
    """Mean return of its deterministic episodes."""
    deviation: float
    """Standard deviation of these returns."""
    episodes: int
    """How many episodes."""
    seed: int
    """Its own."""
    chosen: str
    """Which of the seeds it is, such as the median by mean return."""
    seeds: dict[str, float]
    """The mean return of every seed that was trained."""
    settings: dict[str, Any]
    """All settings that are not the defaults."""
    command: str
    """What trains all these seeds again."""
    evaluated: dict[str, Any]
    """When its episodes were run, and with which versions."""

    @property
    def error(self) -> float:
        """Standard error of the mean return."""
        return self.deviation / math.sqrt(self.episodes)

    @property
    def score(self) -> str:
        """The mean return with its standard error, to be read."""
        return f"{self.mean:,.0f} ± {self.error:,.{1 if self.error < 1 else 0}f}"

    def model(self, folder: Path = FOLDER) -> Path:
        """Its file."""
        return folder / f"{self.task}{SUFFIX}"

    def write(self, folder: Path = FOLDER) -> None:
        """Writes the card beside its model."""
        text = json.dumps(dataclasses.asdict(self), indent=2, ensure_ascii=False)
        files.write_atomically(folder / f"{self.task}.json", f"{text}\n".encode())


def cards(folder: Path = FOLDER) -> list[Card]:
    """The cards of all agents, in order of their names."""
    return [Card(**json.loads(files.read(path))) for path in sorted(folder.glob("*.json"))]


def located(model: str | Path) -> Path:
    """The file that zoo:NAME stands for; any other path as it is.

    Raises:
        UnknownNameError: there is no such agent.
    """
    if not str(model).startswith(PREFIX):
        return Path(model)
    name, known = str(model).removeprefix(PREFIX), {card.task: card.model() for card in cards()}
    if name not in known:
        raise UnknownNameError("agent of the zoo", name, known, "`mcclt zoo` lists them.")
    return known[name]
