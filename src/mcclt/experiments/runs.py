"""Run directories as results: what `mcclt train` wrote, for the page that a comparison has."""

import dataclasses
import json
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from mcclt.config import AgentConfig
from mcclt.experiments.curve import read_rows, thin
from mcclt.experiments.results import Result, Results, gather
from mcclt.experiments.setups import Setup
from mcclt.storage import files
from mcclt.storage.runs import stored_config

LAST = {"eval/mean_reward": "their last evaluation", "rollout/ep_rew_mean": "their last episodes of training"}
"""What stands for final episodes while there are none, the best first."""


def results_of(paths: Sequence[Path]) -> Results:
    """The agents of these runs, in their order, by group."""
    configs = {path: stored_config(path) for path in paths}
    often = Counter(_variant(name, agent) for config in configs.values() for name, agent in config.groups.items())
    found: list[Result] = []
    settings: dict[tuple[str, str, str], dict[str, Any]] = {}
    notes = []
    for path, config in configs.items():
        rows, provenance = read_rows(path / "metrics.jsonl"), _provenance(path)
        final = {(one["group"], one["seed"]): one for one in _json(path / "evaluation.json") or []}
        if not final:
            column = next((name for name in LAST if any(name in row for row in rows)), "")
            what = LAST.get(column, "nothing yet")
            notes.append(f"{path} has no final episodes yet: its returns are those of {what}.")
        for group, agent in config.groups.items():
            algo, variant = _variant(group, agent)
            variant = variant if often[algo, variant] == 1 else f"{variant}@{path.name}"
            setup = Setup(variant, dataclasses.replace(config, groups={f"{agent.algo}-{variant}": agent}))
            settings[setup.key] = setup.settings
            for seed in config.seeds:
                own = [row for row in rows if (row["group"], row["seed"]) == (group, seed)]
                if not own:
                    continue
                known = final.get((group, seed))
                last = next((row[column] for row in reversed(own) if column in row), None) if not final else None
                returns = known["returns"] if known else [last]
                lengths = known["lengths"] if known else [0]
                found.append(
                    Result(
                        task=config.task,
                        algo=agent.algo,
                        variant=variant,
                        seed=seed,
                        digest=setup.digest,
                        returns=np.array(returns, float),
                        lengths=np.array(lengths, float),
                        curve=thin(own),
                        probe={},
                        cost={"seconds": sum(row.get("time/collect", 0) + row.get("time/learn", 0) for row in own)},
                        provenance=provenance,
                    )
                )
    return gather(found, settings, notes, path=paths[0], reproduction=False)


def _variant(group: str, agent: AgentConfig) -> tuple[str, str]:
    """The algorithm and the variant that a group is called by: ppo-mcclt, or mcclt of PPO, is (ppo, mcclt)."""
    return agent.algo, group.removeprefix(f"{agent.algo}-")


def _json(path: Path) -> Any:
    return json.loads(files.read(path)) if path.exists() else None


def _provenance(path: Path) -> dict[str, Any]:
    known = _json(path / "versions.json") or {}
    packages = known.get("packages", {})
    return {
        "version": packages.get("mcclt"),
        "device": ", ".join(known.get("devices", [])),
        **{name: known.get(name) for name in ("git", "cpu", "cpu_count", "platform", "python", "started", "command")},
        "packages": packages,
    }
