"""Files that are either wholly there or not at all."""

import contextlib
import errno
import lzma
import os
import stat
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from mcclt.errors import MccltError

LARGEST = 2**28
"""Bytes of the largest text that is read: far more than any of ours, far less than memory."""


@contextlib.contextmanager
def refusals(kind: type[MccltError], action: str, path: Path) -> Iterator[None]:
    """What the operating system refuses to do with a file, as an error of this kind, in one sentence."""
    try:
        yield
    except OSError as error:
        raise kind(f"Cannot {action} {path}: {error.strerror or error}.") from None


def read(path: Path, largest: int | None = LARGEST, pipes: bool = False) -> bytes:
    """The contents of a file that may come from a stranger.

    Args:
        path: of the file.
        largest: bytes it may have; None: any number.
        pipes: whether it may be a pipe or a device; these may have no end, or never begin.

    Raises:
        OSError: it cannot be read, or is no such file.
    """
    with open(path, "rb", opener=lambda name, flags: os.open(name, flags | (0 if pipes else os.O_NONBLOCK))) as file:
        if not pipes and not stat.S_ISREG(os.fstat(file.fileno()).st_mode):
            raise OSError(errno.EINVAL, "it is not a regular file", str(path))
        if largest is None:
            return file.read()
        data = file.read(largest + 1)
    if len(data) > largest:
        raise OSError(errno.EFBIG, f"it is larger than {largest:,} bytes", str(path))
    return data


def compress(data: bytes, quickly: bool = False) -> bytes:
    """As xz does it, with a checksum: the same bytes every time.

    Args:
        data: what to compress.
        quickly: in a tenth of the time; for numbers that hardly get smaller.
    """
    window = max(2**12, min(len(data), 2**23))  # no larger than it need be: making it takes longer than using it
    how = {"id": lzma.FILTER_LZMA2, "preset": 0 if quickly else 6 | lzma.PRESET_EXTREME, "dict_size": window}
    return lzma.compress(data, check=lzma.CHECK_SHA256, filters=[how])


def decompress(data: bytes) -> bytes:
    """What `compress` was given.

    Raises:
        ValueError: it is damaged, or so much larger than `data`, which may be a stranger's, that it must be a trap.
    """
    largest = min(LARGEST, 2**24 + 100 * len(data))
    decompressor = lzma.LZMADecompressor(lzma.FORMAT_XZ, memlimit=2**27)
    try:
        text = decompressor.decompress(data, largest)
    except lzma.LZMAError as error:
        raise ValueError(str(error)) from None
    if not decompressor.eof or decompressor.unused_data:
        raise ValueError("cut off, too large, or followed by something else")
    return text


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


def append(file: Any, data: bytes, durably: bool = False) -> None:
    """Appends to an unbuffered file: all of it, or after an error nothing; if `durably`, the disk has it then."""
    start = os.fstat(file.fileno()).st_size
    try:
        written = 0
        while written < len(data):
            written += file.write(data[written:])
        if durably:
            os.fsync(file.fileno())
    except OSError:
        with contextlib.suppress(OSError):
            os.ftruncate(file.fileno(), start)
        raise
