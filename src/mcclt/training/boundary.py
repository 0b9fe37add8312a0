"""The boundary between two updates: everything needed to resume a population exactly, and checkpoints of it."""

import dataclasses
from dataclasses import dataclass
from typing import Any, Self

import jax
import numpy as np

from mcclt.config import FREE, RunConfig
from mcclt.config.values import fields_of
from mcclt.envs.api import EnvSpec
from mcclt.errors import CheckpointError, shown
from mcclt.method.learner import without_numbers
from mcclt.storage import checkpoint, metadata
from mcclt.storage.configuration import from_dict, to_dict
from mcclt.training.fitting import Learnt


@dataclass(frozen=True)
class Boundary:
    """Everything at such a moment."""

    update: int
    learnt: Learnt
    obs: np.ndarray | None
    """[A, E, O] what the agents act on next; none before the first rollout."""
    env_state: dict[str, np.ndarray] | None
    """None before the first rollout too, and where the engine cannot be restored."""
    stats: dict[str, np.ndarray]
    status: tuple[str, ...]
    last_fault: dict[int, int]

    def to_checkpoint(self, config: RunConfig, spec: EnvSpec) -> tuple[checkpoint.Arrays, dict[str, Any]]:
        """As arrays and metadata for `checkpoint.save`."""
        arrays: checkpoint.Arrays = {}
        for name, state in self.learnt.states.items():
            arrays |= checkpoint.flatten(f"agents/{name}", without_numbers(state))
        if self.env_state is not None:
            assert self.obs is not None
            arrays |= {f"env/{k}": v for k, v in self.env_state.items()} | {"obs": self.obs}
        arrays |= {f"stats/{k}": v for k, v in self.stats.items()}
        meta = {
            "config": to_dict(config),
            "spec": metadata.spec_to_dict(spec),
            "update": self.update,
            "status": list(self.status),
            "last_fault": [[agent, update] for agent, update in self.last_fault.items()],
        }
        return arrays, meta

    def restored(self, arrays: checkpoint.Arrays, meta: dict[str, Any], source: object) -> Self:
        """What a checkpoint holds, in the shapes of this one; without states of environments if either has none.

        Everything is looked at before anything is taken: what does not fit raises.
        """
        states = {}
        for name, state in self.learnt.states.items():
            stored = checkpoint.unflatten(f"agents/{name}", without_numbers(state), arrays, source)
            states[name] = dataclasses.replace(jax.device_put(stored), numbers=state.numbers)
        stats, env_state, obs = self.stats, None, None
        if any(k.startswith("stats/") for k in arrays):
            uncut = {"stats/cut_at": np.zeros_like(stats["cut_at"])}  # as in checkpoints from before there was stagger
            stats = checkpoint.fitting("stats/", stats, uncut | arrays, source)
        if self.env_state is not None and any(k.startswith("env/") for k in arrays):
            # Simulators take arrays as they are: one of another shape would be read beyond its end.
            env_state = checkpoint.fitting("env/", self.env_state, arrays, source)
            assert self.obs is not None
            obs = checkpoint.fitting("", {"obs": self.obs}, arrays, source)["obs"]
        faults = {agent: update for agent, update in meta["last_fault"]}
        return type(self)(int(meta["update"]), Learnt(states), obs, env_state, stats, tuple(meta["status"]), faults)


def check(meta: dict[str, Any], config: RunConfig, spec: EnvSpec, source: object) -> None:
    """Raises unless a checkpoint is of this run: the same engine, settings (but those of `FREE`) and task."""
    if (begun := meta["spec"]["engine"]) != spec.engine:
        raise CheckpointError(
            f"{source} was begun with the {begun} engine, and this is the {spec.engine} engine: continue with "
            f"--engine {begun} (in Python load it with env=, for new episodes), or start a new run."
        )
    stored = from_dict(meta["config"])
    if changed := [n for n in fields_of(RunConfig) if n not in FREE and getattr(stored, n) != getattr(config, n)]:
        raise CheckpointError(
            f"{source} was trained with other settings ({changed[0]}) than its run now says: resume with those."
        )
    now, then = metadata.spec_to_dict(spec), metadata.spec_to_dict(metadata.spec_from_dict(meta["spec"]))
    for name in now:
        if now[name] != then[name]:
            raise CheckpointError(
                f"{source} was trained on another version of {config.task}: {name} was {shown(then[name])}, and is "
                f"{shown(now[name])} now."
            )


def moved(arrays: checkpoint.Arrays, meta: dict[str, Any], spec: EnvSpec) -> tuple[checkpoint.Arrays, dict[str, Any]]:
    """A checkpoint as one of these environments: where it is of others, of its agents alone."""
    if metadata.spec_to_dict(spec) == metadata.spec_to_dict(metadata.spec_from_dict(meta["spec"])):
        return arrays, meta
    agents = {name: x for name, x in arrays.items() if name.startswith("agents/")}
    return agents, meta | {"spec": metadata.spec_to_dict(spec)}


def new_episodes(spec: EnvSpec) -> str:
    """What to say where episodes cannot be continued."""
    return f"This checkpoint has no state of the {spec.engine!r} engine: training continues with new episodes."
