"""Your own classes on the command line and in its worker processes.

A critic, weighting, policy update, task or engine of your own is in its table once the file that enters it is
imported. Python scripts import it themselves. For the `mcclt` command the environment variable MCCLT_IMPORT names such
files, or modules, with commas between them:

    MCCLT_IMPORT=my_critic.py mcclt compare Hopper-v5 --variants plain,my-critic

It is an environment variable and not a flag because worker processes inherit it, those of a local Ray cluster among
them. (On other nodes set it for `ray start`, and have the files there under the same path.)
"""

import os
from pathlib import Path

from mcclt.errors import ConfigError

VARIABLE = "MCCLT_IMPORT"


def import_named() -> None:
    """Imports what MCCLT_IMPORT names, each once."""
    names = [name.strip() for name in os.environ.get(VARIABLE, "").split(",") if name.strip()]
    if not names:
        return
    # Worker processes may start in another folder.
    names = [str(Path(name).absolute()) if name.endswith(".py") else name for name in names]
    os.environ[VARIABLE] = ",".join(names)
    from mcclt.envs.own import import_file  # with NumPy: only if there is something to import

    for name in names:
        if name.endswith(".py"):
            if not Path(name).is_file():
                raise ConfigError(f"{VARIABLE} names {name}, and there is no such file.")
            import_file(Path(name))
        else:
            _import_module(name)


def _import_module(name: str) -> None:
    from mcclt.envs.own import import_module

    try:
        import_module(name)
    except ConfigError as error:
        missing = error.__cause__
        if not isinstance(missing, ModuleNotFoundError) or not f"{name}.".startswith(f"{missing.name}."):
            raise  # it is there, and imports something that is not
        raise ConfigError(
            f"{VARIABLE} names {name!r}, and there is no such module: give a path that ends in .py, or a module that"
            " Python can import."
        ) from None
