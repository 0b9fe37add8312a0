"""A command is a dataclass: its fields are its flags, the sentence below each is its help. Parsed once, by tyro."""

import abc
import collections
import contextlib
import dataclasses
import difflib
import functools
import inspect
import itertools
import re
import shutil
import sys
import typing
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Annotated, Any, ClassVar, NamedTuple, Self

import tyro

from mcclt import interrupts
from mcclt.cli import flags
from mcclt.config.effects import sentences
from mcclt.console import folded, plain_console, say
from mcclt.errors import ConfigError, shown

if TYPE_CHECKING:
    from rich.console import Console


@dataclass(frozen=True, kw_only=True)
class Command(abc.ABC):
    """What all commands share. Fields without a default must be given."""

    given: Annotated[Mapping[str, Any], tyro.conf.Suppress] = field(default_factory=dict, repr=False)
    """The flags that were typed, by the names of their fields: all others have their defaults."""

    GROUPS: ClassVar[Mapping[str, Sequence[str]]] = {}
    """Boxes of the help, by title; flags in none of them are in the first, "", and those whose sentence begins with
    the title of a box in that one."""
    FORMERLY: ClassVar[Mapping[str, str]] = {}
    """Flags of earlier versions or other commands, and what to say about each."""

    @abc.abstractmethod
    def run(self) -> None:
        """Does what was asked for."""

    @functools.cached_property
    def console(self) -> "Console":
        """What it prints on."""
        return plain_console()

    def say(self, *texts: str) -> None:
        """Prints sentences."""
        say(self.console, *texts)

    @classmethod
    def name(cls) -> str:
        """The word behind `mcclt`."""
        return cls.__name__.lower()

    @classmethod
    def parse(cls, args: Sequence[str]) -> Self:
        """The command with the flags that were typed; anything unknown, missing or senseless is a `ConfigError`."""
        known = flags_of(cls)
        if not {"-h", "--help"} & {*args}:
            _check_flags(args, known)
        about = inspect.getdoc(cls) or ""
        form, unknown = read(form_of(cls), args, f"mcclt {cls.name()}", about, return_unknown_args=True)
        if unknown:
            raise _unknown(cls, unknown[0], known)
        typed = {name: value for group in form.values() for name, value in group.items()}
        given = {n: v if known[n].switch else flags.read(n, known[n].kind, v) for n, v in typed.items()}
        for flag in known.values():
            if flag.default is dataclasses.MISSING and flag.name not in given:
                word, example = flag.metavar.removesuffix(",..."), about.split("\n")[-1]
                raise ConfigError(
                    f"{word} is missing; type, for example,  {example}  (`mcclt {cls.name()} --help` explains it)."
                )
        return cls(given=given, **given)


def ended(error: KeyboardInterrupt) -> str:
    """What is said of a command that was ended by a signal, of both that do."""
    return "Terminated" if isinstance(error, interrupts.Terminated) else "Interrupted"


def read(form: Any, args: Sequence[str], program: str, about: str, **more: Any) -> Any:
    """What a form says after it was filled in by the words that were typed; or its help, at the terminal's width."""
    out: Any = _Help(sys.stdout)
    with contextlib.redirect_stdout(out):
        return tyro.cli(form, prog=program, description=about, args=args, config=(tyro.conf.OmitArgPrefixes,), **more)


class _Help:
    """Standard output that folds a line of usage that is too long, between arguments: tyro folds all others."""

    def __init__(self, out: Any) -> None:
        self._out = out

    def __getattr__(self, name: str) -> Any:
        return getattr(self._out, name)

    def write(self, text: str) -> int:
        plain, columns = re.sub(r"\x1b\[[0-9;]*m", "", text), shutil.get_terminal_size().columns
        if plain.startswith("usage:") and len(plain) > columns:
            text = folded(re.sub(r"\[-.*?\]", lambda m: m[0].replace(" ", "\xa0"), plain), columns)
        return self._out.write(text)


class Flag(NamedTuple):
    """One flag of a command."""

    name: str
    kind: Any
    default: Any
    positional: bool

    @property
    def switch(self) -> bool:
        """Whether it is --this or --no-this, without a value."""
        return self.kind is bool

    @property
    def metavar(self) -> str:
        """The word for its value in help."""
        word = flags.spelling(self.kind).metavar
        return self.name.upper() if self.positional and word in ("NAME", "PATH") else word

    @property
    def spelt(self) -> str:
        """As it is typed."""
        return self.metavar if self.positional else f"--{self.name.replace('_', '-')}"

    def as_argument(self, sentence: str) -> Any:
        """For tyro, which is told to read words and no more; what `unset` means is said in the sentence."""
        default = "" if self.default is dataclasses.MISSING else flags.show(self.default, self.kind)
        hint = "(required)" if self.default is dataclasses.MISSING else f"(default: {default})"
        if default in ("", flags.UNSET):
            hint = ""
        word = None if self.switch else self.metavar
        if self.positional and self.default is not dataclasses.MISSING:
            word = f"[{word}]"
        about = tyro.conf.arg(help=sentence, help_behavior_hint=hint, metavar=word)
        kind = bool if self.switch else str
        return Annotated[kind, about, tyro.conf.Positional] if self.positional else Annotated[kind, about]


def flags_of(cls: type[Command]) -> dict[str, Flag]:
    """The flags of a command, by name."""
    hints = typing.get_type_hints(cls, include_extras=True)
    found = {}
    for f in dataclasses.fields(cls):
        marks = getattr(hints[f.name], "__metadata__", ())
        if tyro.conf.Suppress not in marks:
            default = f.default if f.default_factory is dataclasses.MISSING else f.default_factory()
            found[f.name] = Flag(f.name, hints[f.name], default, tyro.conf.Positional in marks)
    return found


@functools.cache
def form_of(cls: type[Command]) -> Any:
    """A command for tyro: a dictionary per group, which has the flags that were given and no others."""
    known, said = flags_of(cls), sentences(cls)
    groups: dict[str, dict[str, Any]] = {title: {} for title in ("", *cls.GROUPS)}
    order = [name for names in cls.GROUPS.values() for name in names]
    for name in sorted(known, key=lambda n: order.index(n) if n in order else -1):
        sentence = said.get(name, "")
        title, _, rest = sentence.partition(": ")
        if title in groups and rest:
            sentence = rest[0].upper() + rest[1:]
        else:
            title = next((title for title, names in cls.GROUPS.items() if name in names), "")
        groups[title][name] = known[name].as_argument(sentence)
    make: Any = typing.TypedDict
    forms = {title: make(title or cls.__name__, group, total=False) for title, group in groups.items()}
    return make(cls.name(), {t or "own": Annotated[form, tyro.conf.arg(name=t, help="")] for t, form in forms.items()})


MEANT = {
    "batch_size": "minibatch_size",
    "env": "task",
    "env_id": "task",
    "environment": "task",
    "hidden": "policy_hidden",
    "lr": "learning_rate",
    "n_epochs": "policy_iterations",
    "n_steps": "steps_per_update",
    "num_envs": "n_envs",
    "num_seeds": "n_seeds",
    "output": "out",
    "total_timesteps": "steps",
    "timesteps": "steps",
}
"""What other libraries call things."""


def _unknown(cls: type[Command], token: str, known: Mapping[str, Flag]) -> ConfigError:
    """The sentence about a word that a command does not know."""
    command = f"`mcclt {cls.name()}`"
    if not token.startswith("-"):
        return ConfigError(f"Unexpected argument {shown(token)}. {command[:-1]} --help` lists what it takes.")
    flag = token.split("=")[0]
    name = flag.lstrip("-").replace("-", "_")
    if name in cls.FORMERLY:
        return ConfigError(cls.FORMERLY[name])
    spelt = {n: f.spelt for n, f in known.items()} | {f"no_{n}": f"--no-{n}" for n, f in known.items() if f.switch}
    near = [MEANT[name]] if MEANT.get(name) in spelt else difflib.get_close_matches(name, spelt, n=1)
    if not near:
        return ConfigError(f"{command} has no flag {flag}. {command[:-1]} --help` lists them.")
    meant = spelt[near[0]]
    how = "" if meant.startswith("--") else ", which is typed without a flag"
    return ConfigError(f"{command} has no flag {flag}. Did you mean {meant}{how}?")


def _check_flags(args: Sequence[str], known: Mapping[str, Flag]) -> None:
    """Refuses a flag that needs a value and has none behind it, and a list that is given twice.

    Of a flag with one value the last counts, as everywhere.
    """
    need = {flag.spelt: flag for flag in known.values() if not flag.switch}
    typed = collections.Counter(word.split("=")[0].replace("_", "-") for word in args)
    for spelt, flag in need.items():
        if typed[spelt] > 1 and flags.spelling(flag.kind).several:
            raise ConfigError(f"{spelt} is given more than once: give it once, with commas between values.")
    for word, value in itertools.pairwise([*args, "--"]):
        if (spelt := word.replace("_", "-")) in need and re.match("-(-|(?!inf|nan)[a-zA-Z])", value):
            raise ConfigError(f"{spelt} needs a value: {spelt} {need[spelt].metavar}.")
