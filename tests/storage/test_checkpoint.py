import json
import os
import pickle
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import safetensors.numpy

import mcclt
from mcclt.errors import CheckpointError
from mcclt.storage import checkpoint

ARRAYS = {
    "agents/a/w": np.arange(6, dtype=np.float32).reshape(2, 3),
    "env/physics": np.array([[0.1, -1e300]]),
    "count": np.array([7], np.int64),
    "seed": np.array([2**32 - 1], np.uint32),
    "flag": np.array([True, False]),
    "empty": np.zeros((0, 4), np.float32),
}
META: dict[str, Any] = {"config": {"task": "Höpper", "groups": {"a": {"gamma": 0.1}}}, "update": 3, "none": None}


@pytest.fixture
def saved(tmp_path: Path) -> Path:
    path = tmp_path / "some.safetensors"
    checkpoint.save(path, ARRAYS, META)
    return path


def same(arrays: checkpoint.Arrays) -> None:
    assert arrays.keys() == ARRAYS.keys()
    for name, x in ARRAYS.items():
        assert arrays[name].dtype == x.dtype and arrays[name].shape == x.shape
        np.testing.assert_array_equal(arrays[name], x)


def test_round_trip(saved: Path) -> None:
    arrays, meta = checkpoint.load(saved)
    same(arrays)
    assert meta == META
    assert sorted(p.name for p in saved.parent.iterdir()) == [saved.name], "nothing else is left"


def test_scalars_strides_and_special_numbers(tmp_path: Path) -> None:
    arrays = {
        "scalar": np.array(2.5, np.float32),
        "strided": np.arange(12.0).reshape(3, 4).T[::2],
        "special": np.array([np.nan, np.inf, -0.0]),
    }
    checkpoint.save(tmp_path / "x.safetensors", arrays, {})
    back, _ = checkpoint.load(tmp_path / "x.safetensors")
    for name, x in arrays.items():
        assert back[name].shape == x.shape and back[name].tobytes() == np.ascontiguousarray(x).tobytes()


def test_truncated_anywhere(saved: Path) -> None:
    whole = saved.read_bytes()
    for size in [*range(0, 64), *range(64, len(whole), 13), len(whole) - 1]:
        saved.write_bytes(whole[:size])
        said = "truncated or damaged .* use an earlier one" if size == 0 or size > 8 else "not a checkpoint"
        with pytest.raises(CheckpointError, match=rf"some.safetensors is {said}"):
            checkpoint.load(saved)


def test_longer_than_it_should_be(saved: Path) -> None:
    saved.write_bytes(saved.read_bytes() + b"\0")
    with pytest.raises(CheckpointError):
        checkpoint.load(saved)


def test_a_flipped_bit_of_any_byte_is_noticed(saved: Path) -> None:
    whole = saved.read_bytes()
    for i in range(len(whole)):
        damaged = bytearray(whole)
        damaged[i] ^= 1 << i % 8
        saved.write_bytes(damaged)
        try:
            checkpoint.load(saved)
        except CheckpointError:
            continue
        raise AssertionError(f"bit {i % 8} of byte {i} ({whole[i - 10 : i + 10]!r}) went unnoticed")


def write(path: Path, header: dict[str, str] | None) -> None:
    path.write_bytes(safetensors.numpy.save({"x": np.zeros(2)}, metadata=header))


@pytest.mark.parametrize("header", [None, {}, {"format": "pt"}, {"format": "other", "version": "1"}])
def test_of_another_program(tmp_path: Path, header: dict[str, str] | None) -> None:
    write(tmp_path / "x.safetensors", header)
    with pytest.raises(CheckpointError, match="not written by mcclt"):
        checkpoint.load(tmp_path / "x.safetensors")


@pytest.mark.parametrize("name", ["README.md", "x.safetensors", "x.safetensors.xz"])
@pytest.mark.parametrize("data", [b"# mcclt\n\nDistributional PPO", b"hello", b"\x89PNG\r\n\x1a\n\0\0\0\rIHDR"])
def test_no_checkpoint_at_all(tmp_path: Path, name: str, data: bytes) -> None:
    """No word of headers, and none of earlier ones."""
    (tmp_path / name).write_bytes(data)
    with pytest.raises(CheckpointError) as error:
        checkpoint.load(tmp_path / name)
    wanted = "is not a checkpoint or a model of mcclt: give a run directory, or a file that mcclt saved."
    assert str(error.value) == f"{tmp_path / name} {wanted}"


@pytest.mark.parametrize("version", ["2", "999", "", "x", "-1", "²", "1.0"])
def test_of_another_version(tmp_path: Path, version: str) -> None:
    write(tmp_path / "x.safetensors", {"format": checkpoint.FORMAT, "version": version})
    with pytest.raises(CheckpointError, match="version"):
        checkpoint.load(tmp_path / "x.safetensors")


def test_newer_says_what_to_do(tmp_path: Path) -> None:
    write(tmp_path / "x.safetensors", {"format": checkpoint.FORMAT, "version": "2"})
    with pytest.raises(CheckpointError, match="newer than this program's 1: update mcclt"):
        checkpoint.load(tmp_path / "x.safetensors")


@pytest.mark.parametrize("drop", ["meta", "digest", "version", "format"])
def test_incomplete_header(tmp_path: Path, drop: str) -> None:
    header = {"format": checkpoint.FORMAT, "version": "1", "meta": "{}", "digest": "x"}
    del header[drop]
    write(tmp_path / "x.safetensors", header)
    with pytest.raises(CheckpointError):
        checkpoint.load(tmp_path / "x.safetensors")


class Evil:
    fired = False

    def __reduce__(self):
        return (setattr, (Evil, "fired", True))


@pytest.mark.parametrize("protocol", range(6))
def test_no_pickle(tmp_path: Path, protocol: int) -> None:
    path = tmp_path / "x.safetensors"
    path.write_bytes(pickle.dumps(Evil(), protocol))
    with pytest.raises(CheckpointError):
        checkpoint.load(path)
    np.save(path.with_suffix(".npy"), np.array([Evil()], object), allow_pickle=True)
    with pytest.raises(CheckpointError):
        checkpoint.load(path.with_suffix(".npy"))
    assert not Evil.fired


def test_the_library_never_imports_pickle() -> None:
    root = Path(mcclt.__file__).parent
    for file in root.rglob("*.py"):
        assert "import pickle" not in file.read_text() and "allow_pickle=True" not in file.read_text(), file


def test_missing_and_directory(tmp_path: Path) -> None:
    with pytest.raises(CheckpointError, match="no checkpoint at"):
        checkpoint.load(tmp_path / "none.safetensors")
    with pytest.raises(CheckpointError):
        checkpoint.load(tmp_path)
    with pytest.raises(CheckpointError):
        checkpoint.load(tmp_path / ("x" * 300))


def test_unwritable(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(CheckpointError, match="Cannot write"):
        checkpoint.save(tmp_path / "file" / "x.safetensors", ARRAYS, META)
    with pytest.raises(CheckpointError, match="Cannot write"):
        checkpoint.save(tmp_path / ("x" * 300), ARRAYS, META)
    (tmp_path / "taken").mkdir()
    with pytest.raises(CheckpointError, match="Cannot write"):
        checkpoint.save(tmp_path / "taken", ARRAYS, META)
    assert sorted(p.name for p in tmp_path.iterdir()) == ["file", "taken"]


@pytest.mark.parametrize("step", ["fsync", "replace", "fdopen"])
@pytest.mark.parametrize("error", [OSError(28, "No space left on device"), KeyboardInterrupt()])
def test_a_failing_write_leaves_the_old_file(
    saved: Path, monkeypatch: pytest.MonkeyPatch, step: str, error: BaseException
) -> None:
    def fail(*_: Any, **__: Any) -> None:
        raise error

    with monkeypatch.context() as patch:
        patch.setattr(os, step, fail)
        expected = CheckpointError if isinstance(error, OSError) else KeyboardInterrupt
        with pytest.raises(expected):
            checkpoint.save(saved, {"x": np.zeros(1)}, {})
    same(checkpoint.load(saved)[0])
    assert [p.name for p in saved.parent.iterdir()] == [saved.name]


def test_files_are_as_readable_as_any_other(saved: Path) -> None:
    """Not only for their owner: others look at runs, too."""
    plain = saved.parent / "plain"
    plain.write_text("")
    assert oct(saved.stat().st_mode) == oct(plain.stat().st_mode)


def test_flatten_and_unflatten() -> None:
    tree = {"mlp": ({"w": np.ones((2, 3))}, {"w": np.zeros(2)}), "n": np.array([1])}
    flat = checkpoint.flatten("agents/a", tree)
    assert set(flat) == {"agents/a/mlp/0/w", "agents/a/mlp/1/w", "agents/a/n"}
    again = checkpoint.unflatten("agents/a", tree, flat, "here")
    np.testing.assert_array_equal(again["mlp"][0]["w"], tree["mlp"][0]["w"])


@pytest.mark.parametrize("change", [None, np.ones((3, 2)), np.ones((2, 3), np.float32)])
def test_unflatten_refuses_what_does_not_fit(change: np.ndarray | None) -> None:
    tree = {"w": np.ones((2, 3))}
    flat = {} if change is None else {"p/w": change}
    with pytest.raises(CheckpointError, match=r"here does not match.*p/w is missing or has a wrong shape"):
        checkpoint.unflatten("p", tree, flat, "here")


def test_meta_is_json(saved: Path) -> None:
    with safetensors.safe_open(saved, framework="np") as file:
        assert json.loads(file.metadata()["meta"]) == META
