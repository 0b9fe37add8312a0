"""Files that are either wholly there or not at all, and those that come with the package."""

import importlib.resources
import os
import tempfile
from pathlib import Path


def write_atomically(path: Path, data: bytes) -> None:
    """Writes beside the target, flushes to disk, then renames over it.

    Raises:
        OSError: nothing has changed then.
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    handle, name = tempfile.mkstemp(prefix=f".{path.name}.", dir=path.parent)
    try:
        with os.fdopen(handle, "wb") as file:
            os.fchmod(handle, 0o666 & ~_umask())  # temporary files are private; what they become is not
            file.write(data)
            file.flush()
            os.fsync(file.fileno())
        os.replace(name, path)
    except BaseException:
        os.unlink(name)
        raise


def _umask() -> int:
    """The process's umask, which can only be read by setting it."""
    mask = os.umask(0)
    os.umask(mask)
    return mask


def asset(package: str, name: str) -> str:
    """A text of a package's `data` folder."""
    return (importlib.resources.files(package) / "data" / name).read_text(encoding="utf-8")
