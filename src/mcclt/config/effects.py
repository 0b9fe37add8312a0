"""What each setting is for, as its sentence of help says, and which agents read it."""

import ast
import dataclasses
import functools
import inspect
import re
import textwrap
from collections.abc import Iterable, Mapping
from typing import NamedTuple

from mcclt.config import AgentConfig
from mcclt.config.variants import VARIANTS, weighting_of
from mcclt.errors import ConfigError

CHOICES = {"critic": "critic", "weights": "weighting"}
"""The setting that is meant where a sentence begins with the names of its values and this word."""
BUILT_IN = {
    "algo": {"ppo", "trpo"},
    **{choice: {parts[choice] for parts in VARIANTS.values()} for choice in ("critic", "weighting")},
}
"""Their values. One of the user's own may read anything."""


class Readers(NamedTuple):
    """Who reads a setting."""

    title: str
    """As its sentence says: "TRPO", "normal and hl_gauss critic"."""
    choice: str
    """The setting that decides it."""
    values: frozenset[str]
    """The values with which it is read."""


def sentences(cls: type) -> dict[str, str]:
    """The sentence below each field of a dataclass and of those it inherits from."""
    found: dict[str, str] = {}
    for each in reversed(cls.__mro__):
        if dataclasses.is_dataclass(each):
            (tree,) = ast.parse(textwrap.dedent(inspect.getsource(each))).body
            assert isinstance(tree, ast.ClassDef)
            for line, below in zip(tree.body, tree.body[1:], strict=False):
                match line, below:
                    case ast.AnnAssign(target=ast.Name(id=name)), ast.Expr(value=ast.Constant(value=str(text))):
                        found[name] = " ".join(text.split())
    return found


@functools.cache
def readers() -> dict[str, Readers]:
    """The settings that only some agents read: the others' sentences do not begin with who."""
    found = {}
    for name, sentence in sentences(AgentConfig).items():
        title, colon, _ = sentence.partition(": ")
        if match := re.fullmatch(rf"(PPO|TRPO)|(.+) ({'|'.join(CHOICES)})", title) if colon else None:
            choice = CHOICES.get(match[3], "algo")
            values = frozenset([match[1].lower()] if match[1] else re.split(", | and ", match[2]))
            if values <= BUILT_IN[choice]:
                found[name] = Readers(title, choice, values)
    return found


def reads(agent: AgentConfig, name: str) -> bool:
    """Whether a setting changes anything for an agent, as far as is known."""
    if name not in readers():
        return True
    _, choice, values = readers()[name]
    chosen = _chosen(agent, choice)
    return chosen in values or chosen not in BUILT_IN[choice]


def _chosen(agent: AgentConfig, choice: str) -> str | None:
    return weighting_of(agent) if choice == "weighting" else getattr(agent, choice)


def refuse_unread(names: Mapping[str, str], agents: Iterable[AgentConfig]) -> None:
    """Refuses settings, by what to call each, that none of the agents reads."""
    agents = list(agents)
    for what, name in names.items():
        if agents and not any(reads(agent, name) for agent in agents):
            title, choice, _ = readers()[name]
            here = ", ".join(sorted({str(_chosen(agent, choice)) for agent in agents}))
            this = f"trains {here.upper()}" if choice == "algo" else f"has {choice} = {here}"
            article = "" if choice == "algo" else "the "
            raise ConfigError(f"{what} has no effect: it is a setting of {article}{title}, and this {this}.")
