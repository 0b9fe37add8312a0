"""Settings as a program sees them: structure when it is compiled, numbers when it runs.

A setting that is only a number (a learning rate, γ, w_tar) is a leaf of the agent's state; one that changes shapes or
control flow (the critic, widths, iterations) is part of the program. So agents of one structure share one program,
whatever their numbers. `mcclt.config` says which setting is which, and to which part of an agent it belongs: a program
that trains a policy sees the policy's settings only, and does not care which critic stands beside it.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from types import SimpleNamespace
from typing import Any, cast

import jax
import jax.numpy as jnp
import numpy as np

from mcclt.config import NUMBERS, PARTS, AgentConfig, numbers_of

Numbers = dict[str, Any]
"""An agent's settings that are numbers, by name: each [] float32; 0 where one is unset."""


def numbers(config: AgentConfig) -> Numbers:
    """Those of one agent."""
    return {name: jnp.float32(value) for name, value in numbers_of(config).items()}


def stacked_numbers(configs: Sequence[AgentConfig]) -> Numbers:
    """Those of agents of one structure, stacked, on the host."""
    each = [numbers_of(config) for config in configs]
    return {name: np.array([one[name] for one in each], np.float32) for name in each[0]}


class _Settings(SimpleNamespace):
    def __getattr__(self, name: str) -> Any:
        raise AttributeError(f"{name} is not among the settings of this part of an agent (see mcclt.config.PARTS).")


@dataclass(frozen=True)
class Structure:
    """The settings of some parts of an agent, without its numbers. Equal structures make equal programs."""

    fields: tuple[tuple[str, Any], ...]
    """Names and values; of a number only whether it is set."""

    @classmethod
    def of(cls, config: AgentConfig, *parts: str) -> "Structure":
        """Of the named parts (see `mcclt.config.PARTS`)."""
        names = dict.fromkeys(name for part in parts for name in PARTS[part])
        values = ((name, getattr(config, name)) for name in names)
        return cls(tuple((name, value is not None if name in NUMBERS else value) for name, value in values))

    def settings(self, numbers: Mapping[str, jax.Array]) -> AgentConfig:
        """The settings as an agent with these numbers has them; only these, by the names of `AgentConfig`."""

        def value(name: str, stored: Any) -> Any:
            return (numbers[name] if stored else None) if name in NUMBERS else stored

        return cast(AgentConfig, _Settings(**{name: value(name, stored) for name, stored in self.fields}))
