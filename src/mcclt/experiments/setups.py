"""A setup: everything about an agent of an experiment but its seed."""

import contextlib
import dataclasses
import hashlib
import json
import re
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Self

from mcclt import presets
from mcclt.config import CHANGEABLE, NOT_IDENTITY, UNSTATED, AgentConfig, RunConfig, override
from mcclt.config.values import coerce, fields_of
from mcclt.config.variants import VARIANTS
from mcclt.envs import own
from mcclt.errors import ConfigError, UnknownNameError, shown
from mcclt.experiments.settings import typed
from mcclt.presets import bare_task

PAPER_TASKS = (
    "BipedalWalker-v3",
    "Hopper-v4",
    "HalfCheetah-v4",
    "Ant-v4",
    "Swimmer-v4",
    "Walker2d-v4",
    "InvertedDoublePendulum-v4",
    "LunarLanderContinuous-v3",
)
"""The paper's tasks, in its order. It used v2; v4 is the nearest that is still maintained."""

PRESET_OF = {"authors": "paper", "fixed": None, "modern": "modern", "tuned": "tuned"}
CONFIGS = tuple(PRESET_OF)


@dataclass(frozen=True, eq=False)
class Setup:
    """One entry of a table. Setups with equal `key`s are the same experiment, and equal."""

    variant: str
    """A name of `config.VARIANTS`, perhaps with changed settings: mcclt, mcclt@n_quantiles=4+trunk=shared."""
    config: RunConfig
    """The run, with this one group; its seeds are not part of the setup."""

    @classmethod
    def of(cls, variant: str, run: RunConfig, agent: AgentConfig) -> Self:
        """Any run, with this agent."""
        return cls(variant, dataclasses.replace(run, groups={f"{agent.algo}-{variant}": agent}))

    @property
    def task(self) -> str:
        """The task's id."""
        return self.config.task

    @property
    def agent(self) -> AgentConfig:
        """How it learns."""
        return next(iter(self.config.groups.values()))

    @property
    def algo(self) -> str:
        """`ppo` or `trpo`."""
        return self.agent.algo

    @property
    def name(self) -> str:
        """For people: ppo-mcclt."""
        return f"{self.algo}-{self.variant}"

    @property
    def settings(self) -> dict[str, Any]:
        """All settings that make it what it is, as plain data."""
        return json.loads(json.dumps(_settings(self.config, self.agent)))

    @cached_property
    def digest(self) -> str:
        """Eight hexadecimal digits of the settings.

        Only settings that differ from the defaults count, so a setting added in a later version does not
        orphan the results of earlier ones. (`Store.write` compares all of them, should a default change.)
        One that changes what an agent becomes by default counts where it is not as it was before: `UNSTATED`.
        """
        default = _settings(RunConfig(self.task), AgentConfig()) | UNSTATED
        own = {name: value for name, value in _settings(self.config, self.agent).items() if value != default[name]}
        return hashlib.blake2b(json.dumps(own, sort_keys=True).encode(), digest_size=4).hexdigest()

    @property
    def key(self) -> tuple[str, str, str]:
        """(task, name, digest): also its path in a store."""
        return self.task, self.name, self.digest

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Setup) and self.key == other.key

    def __hash__(self) -> int:
        return hash(self.key)


def _settings(run: RunConfig, agent: AgentConfig) -> dict[str, Any]:
    own = {name: getattr(run, name) for name in fields_of(RunConfig) if name not in NOT_IDENTITY}
    return own | {name: getattr(agent, name) for name in fields_of(AgentConfig)}


def make_setup(task: str, algo: str, variant: str, config: str, **run: Any) -> Setup:
    """A variant on a task.

    Args:
        task: an id, or a task of the paper by its bare name (Hopper: the id the reproduction uses).
        algo: `ppo` or `trpo`, or one of the user's own.
        variant: as in `Setup.variant`.
        config: `authors`: the best configuration they publish for this task; `fixed`: one for all tasks.
        run: settings of the run, such as `steps`.
    """
    task = task_id(task)
    if config not in CONFIGS:
        raise UnknownNameError("config", config, CONFIGS)
    if algo not in ("ppo", "trpo"):
        from mcclt.method.policy_updates import POLICY_UPDATES  # and so JAX: only for one of the user's own

        if algo not in POLICY_UPDATES:
            raise UnknownNameError("algo", algo, POLICY_UPDATES)
    variant, changes = parse_variant(variant)
    parts: dict[str, Any] = dict(VARIANTS[variant.partition("@")[0]])
    run_preset, agent_preset = presets.settings(PRESET_OF[config], task, algo, parts["critic"])
    of_run = {name: value for name, value in changes.items() if name in CHANGEABLE}
    of_agent = {name: value for name, value in changes.items() if name not in CHANGEABLE}
    agent = override(AgentConfig(algo=algo), agent_preset | parts | of_agent)
    return Setup.of(variant, override(RunConfig(task), run_preset | run | of_run), agent)


def parse_variant(text: str) -> tuple[str, dict[str, Any]]:
    """Reads mcclt or mcclt@n_quantiles=4+guide=symmetric.

    Returns:
        The name, the same however the changes are ordered and spelt (kappa=1, kappa=1.0), and the changes.
    """
    name, at, changes = text.partition("@")
    algo, _, rest = name.partition("-")
    if name not in VARIANTS and rest in VARIANTS:
        raise ConfigError(f"{shown(text)} is not allowed: name the algorithm on its own, as in --algo {algo}.")
    if name not in VARIANTS:
        hint = "Its settings change after an @: mcclt@n_quantiles=4+guide=symmetric."
        raise UnknownNameError("variant", name, VARIANTS, hint)
    found: dict[str, Any] = {}
    for part in re.split(r"\+(?=[a-z])", changes) if at else []:  # but not within 1e+20
        setting, equals, value = part.partition("=")
        if not equals:
            raise ConfigError(f"{text!r} is not allowed: write each change as setting=value, joined by +.")
        if setting in ("algo", *VARIANTS[name]):
            raise ConfigError(f"{text!r} is not allowed: {setting} defines the variant; choose another variant.")
        if setting in found:
            raise ConfigError(f"{text!r} is not allowed: it changes {setting} twice.")
        found[setting] = literal(setting, value)
    canonical = "+".join(f"{k}={typed(v)}" for k, v in sorted(found.items()))
    return f"{name}@{canonical}" if found else name, found


def change(variant: str, settings: dict[str, Any]) -> str:
    """The variant with these settings changed as well: mcclt, {"n_quantiles": 4} → mcclt@n_quantiles=4."""
    text = "+".join(f"{name}={typed(value)}" for name, value in settings.items())
    return parse_variant(f"{variant}{'+' if '@' in variant else '@'}{text}")[0] if settings else variant


def owner_of(setting: str) -> type:
    """Who has a setting that a variant may change: the run, or the agent. An unknown one gets a suggestion."""
    known = [*fields_of(AgentConfig), *CHANGEABLE]
    if setting not in known:
        raise UnknownNameError("setting", setting, known, "`mcclt train --help` lists all settings of an agent.")
    return RunConfig if setting in CHANGEABLE else AgentConfig


def literal(setting: str, text: str) -> Any:
    """A setting's value as typed: 4, 0.5, 1e5, true, unset, a word, or 64,64."""
    owner = owner_of(setting)
    value: Any = {"unset": None, "true": True, "false": False}.get(text.lower(), text)
    for kind in (float, int):
        with contextlib.suppress(ValueError):
            value = kind(text)
    if isinstance(getattr(owner, setting, None), tuple) and re.fullmatch(r"[0-9]+(,[0-9]+)*,?", text):
        value = tuple(int(part) for part in text.split(",") if part)
    return coerce(owner, setting, value)


def task_id(name: str) -> str:
    """Hopper → Hopper-v4; an id stays what it is."""
    bare = {bare_task(task): task for task in PAPER_TASKS}
    if name in bare:
        return bare[name]
    if re.search(r"-v[0-9]+$", name) is None and own.parts(name) is None:
        raise UnknownNameError("task", name, bare, "Or give an id with its version, such as Hopper-v5.")
    return name
