"""The agents of trained models that --seeds and --groups name."""

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from mcclt.config.values import require
from mcclt.errors import ConfigError

if TYPE_CHECKING:
    from mcclt.training.model import Model


def chosen(
    models: Sequence[Path], groups: Sequence[str], seeds: Sequence[int], most: int | None = None
) -> list[tuple[Path, str, "Model", int]]:
    """Those named, each with its path, group, model and seed; unnamed are all groups, and the first `most` seeds."""
    from mcclt.training.model import load
    from mcclt.training.saved import read_model

    require(len({*seeds}) == len(seeds), f"seeds = {','.join(map(str, seeds))}", "without repetitions")
    there = {path: list(read_model(path)[1]["config"]["groups"]) for path in models}
    known = list(dict.fromkeys(name for own in there.values() for name in own))
    for name in groups:
        if name not in known:
            where = ", ".join(map(str, there))
            raise ConfigError(f"{where} has no group {name!r}: it has {', '.join(known)}.")
    found = []
    for path, own in there.items():
        for group in groups or own:
            if group in own:
                model = load(path, group=group)
                found += [(path, group, model, seed) for seed in seeds or model.seeds[:most]]
    for *_, model, seed in found:
        model.agent(seed)  # an unknown one is named before anything is done
    return found
