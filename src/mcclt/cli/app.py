"""The program: which commands there are, and how errors end it. Each command is a file of its own beside this one."""

import functools
import importlib
import inspect
import io
import operator
import shutil
import sys
from collections.abc import Sequence
from typing import Annotated, Any

import tyro

from mcclt import interrupts
from mcclt.cli.command import Command, ended, form_of, read
from mcclt.console import folded
from mcclt.errors import ConfigError, MccltError, UnknownNameError
from mcclt.training import plugins

COMMANDS = (
    *("train", "evaluate", "watch", "export", "compare", "reproduce", "tune", "report", "pack", "bench"),
    *("envs", "zoo"),
)
"""The commands, each a class in the file of its name."""

ABOUT = "Distributional, uncertainty-aware PPO and TRPO for continuous control."


def main(argv: Sequence[str] | None = None) -> None:
    """Parses, runs, and turns our errors into one sentence and exit code 2."""
    for out in (sys.stdout, sys.stderr):  # a terminal without Unicode gets question marks, not a traceback
        if isinstance(out, io.TextIOWrapper):
            out.reconfigure(errors="replace")
    try:
        with interrupts.heard():
            _run(sys.argv[1:] if argv is None else argv)
    except KeyboardInterrupt as error:
        print(f"mcclt: {ended(error).lower()}", file=sys.stderr)
        raise SystemExit(interrupts.exit_code(error)) from None
    except BrokenPipeError:  # the reader of a pipe went away
        sys.stderr.close()
        raise SystemExit(1) from None
    except (MccltError, OSError) as error:  # the latter: a path that cannot even be looked at
        text = f"mcclt: {error}"
        print(folded(text, shutil.get_terminal_size().columns) if sys.stderr.isatty() else text, file=sys.stderr)
        raise SystemExit(2) from None


def _run(args: Sequence[str]) -> None:
    name, *rest = args or [""]
    if name == "--version":
        from mcclt import __version__

        print(f"mcclt {__version__}")
    elif name in COMMANDS:
        sys.path.insert(0, "")  # as for `python -m`: modules in this folder, such as my_package:MyEnv-v0
        plugins.import_named()
        command(name).parse(rest).run()
    elif name in ("-h", "--help") or name.startswith("--tyro-"):  # the latter writes completions for shells
        _overview(args)
    elif not name:
        raise ConfigError(f"Name a command: {', '.join(COMMANDS)}. `mcclt --help` explains them.")
    else:
        raise UnknownNameError("command", name, (*COMMANDS, "--help", "--version"))


def command(name: str) -> type[Command]:
    """A command by its name."""
    module: Any = importlib.import_module(f"mcclt.cli.{name}")
    found: type[Command] = getattr(module, name.title())
    return found


def _overview(args: Sequence[str]) -> None:
    """The help of the whole program."""
    forms = []
    for name in COMMANDS:
        sentence = (inspect.getdoc(command(name)) or "").split("\n\n")[0]
        forms.append(Annotated[form_of(command(name)), tyro.conf.subcommand(name, description=sentence)])
    every: Any = functools.reduce(operator.or_, forms)
    read(every, args, "mcclt", ABOUT)
