import os
import stat

import pytest

from mcclt.storage import files


def test_writes_and_makes_the_folder(tmp_path):
    path = tmp_path / "a" / "b" / "file"
    files.write_atomically(path, b"one")
    files.write_atomically(path, b"two")
    assert path.read_bytes() == b"two"
    assert list(path.parent.iterdir()) == [path], "no temporary file is left"


def test_a_failure_changes_nothing(tmp_path, monkeypatch):
    path = tmp_path / "file"
    files.write_atomically(path, b"old")

    def fail(*_: object) -> None:
        raise OSError(28, "No space left on device")

    for broken in ("fsync", "replace"):
        with monkeypatch.context() as patch, pytest.raises(OSError, match="No space left"):
            patch.setattr(os, broken, fail)
            files.write_atomically(path, b"new")
        assert path.read_bytes() == b"old"
        assert list(tmp_path.iterdir()) == [path]


def test_permissions_follow_the_umask(tmp_path):
    before = os.umask(0o027)
    try:
        files.write_atomically(tmp_path / "file", b"")
    finally:
        os.umask(before)
    assert stat.S_IMODE((tmp_path / "file").stat().st_mode) == 0o640  # 0666 & ~027
