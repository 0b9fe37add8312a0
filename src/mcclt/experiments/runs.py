"""Run directories as results: what `mcclt train` wrote, for a page like that of a comparison."""

import contextlib
import json
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from mcclt.config import AgentConfig, RunConfig
from mcclt.experiments.cells import check, numbers, reading
from mcclt.experiments.curve import read_rows, seconds_of, thin
from mcclt.experiments.results import Result, Results, gather, grouped, provenance_of
from mcclt.experiments.setups import Setup
from mcclt.storage import files
from mcclt.storage.runs import resume_command, stored_config, utc
from mcclt.storage.trackers import Row

LAST = {"eval/mean_reward": "each agent's last evaluation", "rollout/ep_rew_mean": "each agent's last episodes"}
"""What stands for final episodes while there are none, the best first."""


@dataclass(frozen=True)
class Trained:
    """One run directory, read."""

    path: Path
    config: RunConfig
    step: int
    """Environment steps of each agent so far."""
    finished: bool
    seconds: dict[str, float]
    """As `curve.seconds_of`: what the whole population took, over all updates."""
    first: float
    """Seconds of the first update, in which programs are compiled."""

    @property
    def agents(self) -> int:
        """How many train together."""
        return len(self.config.groups) * len(self.config.seeds)

    @property
    def steps_per_second(self) -> float:
        """Of all agents together after the first update, evaluations included; 0 while there is no other."""
        steps, seconds = self.step - self.config.steps_per_update, sum(self.seconds.values()) - self.first
        return steps * self.agents / seconds if seconds > 0 else 0.0


@dataclass(frozen=True, eq=False)
class Training:
    """Some runs: their agents as results, by group, and the runs themselves."""

    results: Results
    runs: tuple[Trained, ...]
    notes: tuple[str, ...]
    """What must be said of runs that are not finished."""


def read_runs(paths: Sequence[Path]) -> Training:
    """Reads run directories, finished or not.

    Raises:
        CheckpointError: one of them is no run directory.
        StoreError: a file of one is damaged.
    """
    configs = {path: stored_config(path) for path in paths}
    often = Counter((c.task, *_variant(name, agent)) for c in configs.values() for name, agent in c.groups.items())
    found: list[Result] = []
    settings: dict[tuple[str, str, str], dict[str, Any]] = {}
    trained, notes = [], []
    for path, config in configs.items():
        with _reading(path, "metrics.jsonl"):
            rows = read_rows(path / "metrics.jsonl")
            agents = grouped(((row["group"], row["seed"]), row) for row in rows)
            step = max((int(row["step"]) for row in rows), default=0)
            first, seconds = seconds_of(row for row in rows if row["update"] == 1), seconds_of(rows)
        final = final_of(path, step)
        with _reading(path, "versions.json"):
            provenance = _provenance(path, rows)
        run = Trained(path, config, step, bool(final), seconds, sum(first.values()))
        trained.append(run)
        with _reading(path, "metrics.jsonl"):
            last = next((name for name in LAST if any(name in row for row in rows)), "")
            if not final:
                notes.append(_unfinished(run, last))
            for group, agent in config.groups.items():
                algo, variant = _variant(group, agent)
                variant = variant if often[config.task, algo, variant] == 1 else f"{variant}@{path.name}"
                setup = Setup.of(variant, config, agent)
                settings[setup.key] = setup.settings
                for seed in config.seeds:
                    if own := agents.get((group, seed)):
                        known = final.get((group, seed)) or _so_far(own, last)
                        found.append(_result(setup, seed, own, known, run, provenance))
    return Training(gather(found, settings, path=paths[0], reproduction=False), tuple(trained), tuple(notes))


def _result(
    setup: Setup, seed: int, rows: Sequence[Row], known: dict[str, Any], run: Trained, provenance: dict[str, Any]
) -> Result:
    """One agent, from its metrics and from what is known of its final episodes."""
    result = Result(
        task=setup.task,
        algo=setup.algo,
        variant=setup.variant,
        seed=seed,
        digest=setup.digest,
        returns=known["returns"],
        lengths=known["lengths"],
        curve=thin(rows, dict.fromkeys(name for row in rows for name in row if "/" in name)),
        probe=known.get("probe", {}),
        cost={"seconds": sum(run.seconds.values()) / run.agents},
        provenance=provenance,
    )
    check(result)
    return result


def final_of(path: Path, step: int) -> dict[tuple[str, int], dict[str, Any]]:
    """What `mcclt train` ended with, by group and seed; nothing while it has not, or trains on, being at this step.

    Raises:
        StoreError: it is damaged.
    """
    with _reading(path, "evaluation.json"):
        found = {
            (one["group"], one["seed"]): one | {name: numbers(one[name]) for name in ("returns", "lengths")}
            for one in _json(path / "evaluation.json") or []
        }
        return {} if any(one.get("step", step) < step for one in found.values()) else found


def _reading(run: Path, name: str) -> contextlib.AbstractContextManager[None]:
    """While this file of a run is read."""
    remedy = "remove it" if name == "versions.json" else f"repair it with  {resume_command(run)}  and try again"
    return reading(run / name, remedy)


def _so_far(rows: Sequence[Row], column: str) -> dict[str, Any]:
    """What stands for it until then."""
    last = next((row[column] for row in reversed(rows) if column in row), None)
    return {"returns": numbers([last]), "lengths": numbers([0])}


def _variant(group: str, agent: AgentConfig) -> tuple[str, str]:
    """The algorithm and the variant that a group is called by: ppo-mcclt, or mcclt of PPO, is (ppo, mcclt)."""
    return agent.algo, group.removeprefix(f"{agent.algo}-")


def _unfinished(run: Trained, column: str) -> str:
    returns = f"the returns are those of {LAST[column]}" if column else "there are no returns yet"
    return f"{run.path} is at {run.step:,} of {run.config.whole_steps:,} steps, without its final episodes: {returns}."


def _json(path: Path) -> Any:
    return json.loads(files.read(path)) if path.exists() else None


def _provenance(path: Path, rows: Sequence[Row]) -> dict[str, Any]:
    known = _json(path / "versions.json") or {}
    last = rows[-1].get("time") if rows else None
    finished = utc(last) if last else ""
    version = known.get("packages", {}).get("mcclt")
    return provenance_of(known) | {"version": version, "command": known.get("command"), "finished": finished}
