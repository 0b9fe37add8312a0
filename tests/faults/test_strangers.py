"""Files from strangers: whatever is in them, loading gives our own error or something sound.

Never code, never a hang, never memory beyond the file's own size. `MCCLT_FUZZ=N` multiplies the number of inputs, as
`make slow` does.
"""

import copy
import hashlib
import json
import os
import shutil
import struct
import subprocess
import sys
import tomllib
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import safetensors.numpy
from hypothesis import HealthCheck, Phase, given, seed, settings
from hypothesis import strategies as st

import mcclt
from mcclt.cli.train import Train
from mcclt.errors import MccltError
from mcclt.experiments import store as stores
from mcclt.storage import checkpoint, files, runs
from mcclt.storage.configuration import from_dict, read_file
from mcclt.training.loop import run
from mcclt.training.trainer import Trainer
from probes import agent, run_config
from synthetic import make_store

FACTOR = int(os.environ.get("MCCLT_FUZZ", "1"))


def fuzz(count: int) -> Callable[[Any], Any]:
    """Many inputs, the same every time."""

    def decorate(test: Any) -> Any:
        checks = (HealthCheck.too_slow, HealthCheck.function_scoped_fixture, HealthCheck.data_too_large)
        options = settings(
            max_examples=count * FACTOR,
            deadline=None,
            database=None,
            phases=[Phase.generate],  # shrinking takes longer than it helps
            suppress_health_check=checks,
        )
        return seed(6)(options(test))

    return decorate


NUMBERS = (0, -1, 1, 2, 2**31, 2**63, 2**64, -(2**63), 10**12, 10**30, 10**400, 0.0, -0.5, 1e308)
TEXTS = ("", "x", "0..99999999", "1e99", "nan", "\0", "../../etc", "os:system", "ü𝄞", "a" * 5000)
OTHERS = (True, False, None, float("nan"), float("inf"), [], {}, [[]], [None], {"a": {}}, [1, [2]], [0] * 1000, {"": 1})
NASTY = st.sampled_from([*NUMBERS, *TEXTS, *OTHERS])
JSON = st.recursive(NASTY, lambda x: st.lists(x, max_size=3) | st.dictionaries(st.text(max_size=3), x, max_size=3))


@st.composite
def mutants(draw: st.DrawFn, data: Any) -> Any:
    """A deep copy of plain data with up to three entries replaced, removed, doubled or added."""
    data = copy.deepcopy(data)
    for _ in range(draw(st.integers(1, 3))):
        holder, key = None, None
        here = data
        for _ in range(draw(st.integers(1, 6))):
            if isinstance(here, dict) and here:
                holder, key = here, draw(st.sampled_from(sorted(here)))
            elif isinstance(here, list) and here:
                holder, key = here, draw(st.integers(0, len(here) - 1))
            else:
                break
            here = holder[key]
        if holder is None:
            break
        match draw(st.sampled_from(["replace", "replace", "remove", "add"])):
            case "replace":
                holder[key] = copy.deepcopy(draw(JSON))  # those drawn are shared
            case "remove":
                del holder[key]
            case "add" if isinstance(holder, dict):
                holder[draw(st.sampled_from(["x", "task", "groups", "seeds", "update", ""]))] = copy.deepcopy(
                    draw(JSON)
                )
            case _:
                holder.append(copy.deepcopy(draw(JSON))) if isinstance(holder, list) else None
    return data


@st.composite
def bytes_like(draw: st.DrawFn, data: bytes) -> bytes:
    """A file with bytes flipped, cut out, doubled or put in, or cut off."""
    out = bytearray(data)
    for _ in range(draw(st.integers(1, 4))):
        at = draw(st.integers(0, max(0, len(out) - 1)))
        match draw(st.sampled_from(["flip", "cut", "end", "insert", "double"])):
            case "flip" if out:
                out[at] ^= 1 << draw(st.integers(0, 7))
            case "cut":
                del out[at : at + draw(st.integers(1, 50))]
            case "end":
                del out[at:]
            case "insert":
                out[at:at] = draw(
                    st.binary(min_size=1, max_size=8) | st.sampled_from([b"[" * 100_000, b'{"a":' * 9000])
                )
            case "double":
                out[at:at] = out[at : at + 30]
    return bytes(out)


def survives(action: Callable[[], Any]) -> Any:
    """The result, or None after an error of ours in one line; anything else fails the test."""
    try:
        return action()
    except MccltError as error:
        assert len(str(error)) < 3000
        return None


# --- models and checkpoints ------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run of two seeds with checkpoints, `one`, and its last one beside it, `model.safetensors`."""
    path = tmp_path_factory.mktemp("strangers")
    trainer = Trainer(run_config(groups={"a": agent(critic="normal")}, seeds=(0, 5), steps=32, checkpoint_freq=16))
    directory = runs.Run.create(path / "one", trainer.config, tensorboard=False)
    run(trainer, [directory], lambda: directory.save(trainer))
    directory.close()
    trainer.close()
    (path / "model.safetensors").write_bytes(runs.checkpoints(path / "one")[-1].read_bytes())
    return path


def forged(arrays: checkpoint.Arrays, meta: Any, version: str = "1") -> bytes:
    """A checkpoint whose checksum is right, whatever it says."""
    text = json.dumps(meta)
    digest = checkpoint._digest(arrays, version + text)
    header = {"format": checkpoint.FORMAT, "version": version, "meta": text, "digest": digest}
    return safetensors.numpy.save(arrays, metadata=header)


@fuzz(20)
@given(data=st.data())
def test_a_damaged_model(folder: Path, data: st.DataObject) -> None:
    good = (folder / "model.safetensors").read_bytes()
    path = folder / "damaged.safetensors"
    path.write_bytes(data.draw(bytes_like(good)))
    model = survives(lambda: mcclt.load(path))
    assert (
        model is None
        or path.read_bytes() == good
        or checkpoint.load(path)[0].keys() == checkpoint.load(folder / "model.safetensors")[0].keys()
    )


@fuzz(10)
@given(data=st.data())
def test_a_forged_model(folder: Path, data: st.DataObject) -> None:
    """Its checksum is right: a checksum is no signature."""
    arrays, meta = checkpoint.load(folder / "model.safetensors")
    names = sorted(arrays)
    for _ in range(data.draw(st.integers(0, 2))):
        name = data.draw(st.sampled_from(names))
        match data.draw(st.sampled_from(["drop", "reshape", "dtype", "empty"])):
            case "drop":
                arrays.pop(name, None)
            case "reshape":
                arrays[name] = np.zeros(data.draw(st.lists(st.integers(0, 3), max_size=4)), np.float32)
            case "dtype":
                arrays[name] = np.zeros(3, data.draw(st.sampled_from([np.float64, np.int8, np.bool_, np.uint64])))
            case "empty":
                arrays[name] = np.zeros((0, 2**40), np.float32)
    path = folder / "forged.safetensors"
    path.write_bytes(forged(arrays, data.draw(st.just(meta) | mutants(meta) | JSON)))
    model = survives(lambda: mcclt.load(path))
    if model is not None:
        survives(lambda: model.predict(np.zeros(model._spec.obs_size)))


def header_only(header: Any, rest: bytes = b"") -> bytes:
    text = json.dumps(header).encode()
    return struct.pack("<Q", len(text)) + text + rest


TENSOR = {"dtype": "F32", "shape": [2**38], "data_offsets": [0, 2**40]}
BOMBS = {
    "a header of terabytes": struct.pack("<Q", 2**42) + b"{}",
    "the largest length there is": struct.pack("<Q", 2**64 - 1) + b"{}",
    "a tensor of terabytes": header_only({"x": TENSOR}, b"\0" * 64),
    "a shape that overflows": header_only({"x": TENSOR | {"shape": [2**32, 2**32, 2**32]}}),
    "negative": header_only({"x": {"dtype": "F32", "shape": [-1], "data_offsets": [0, -4]}}),
    "offsets that overlap": header_only(
        {n: {"dtype": "F32", "shape": [4], "data_offsets": [0, 16]} for n in "ab"}, b"\0" * 16
    ),
    "zero times a lot": header_only({"x": {"dtype": "F32", "shape": [0, 2**60], "data_offsets": [0, 0]}}),
    "nested": header_only({}) + b"[" * 100_000,
    "a nested header": struct.pack("<Q", 200_000) + b"[" * 200_000,
    "a nested key": struct.pack("<Q", 600_005) + b'{"x":' + b'{"a":' * 120_000,
    "an unknown dtype": header_only({"x": {"dtype": "Q9", "shape": [1], "data_offsets": [0, 4]}}, b"1234"),
    "a pickle": b"\x80\x04cos\nsystem\n(S'touch owned'\ntR.",
    "a zip": b"PK\x03\x04" + b"\0" * 100,
    "nested metadata": b"",
    "a long version": b"",
    "no metadata": b"",
}


@pytest.mark.parametrize("name", BOMBS)
def test_bombs(folder: Path, name: str) -> None:
    arrays = {"x": np.zeros(1, np.float32)}
    data = BOMBS[name]
    if name == "nested metadata":
        text = "[" * 200_000
        header = {"format": checkpoint.FORMAT, "version": "1", "meta": text}
        data = safetensors.numpy.save(arrays, header | {"digest": checkpoint._digest(arrays, "1" + text)})
    elif name == "a long version":
        data = forged(arrays, {}, "1" * 10_000)
    elif name == "no metadata":
        header = {"format": checkpoint.FORMAT, "version": "1", "digest": checkpoint._digest(arrays, "1")}
        data = safetensors.numpy.save(arrays, header)
    path = folder / "bomb.safetensors"
    path.write_bytes(data)
    for action in (lambda: mcclt.load(path), lambda: checkpoint.load(path)):
        with pytest.raises(MccltError):
            action()


def test_a_sparse_file_of_terabytes(folder: Path) -> None:
    """It needs no disk, but would need memory."""
    path = folder / "sparse.safetensors"
    with open(path, "wb") as file:
        file.write(header_only({"x": TENSOR}))
        try:
            file.truncate(file.tell() + 2**40)
        except OSError:
            pytest.skip("no sparse files here")
    with pytest.raises(MccltError, match="larger than this machine's memory"):
        mcclt.load(path)
    path.unlink()


@pytest.mark.parametrize("kind", ["pipe", "directory", "device", "link to itself"])
def test_what_is_no_file(tmp_path: Path, folder: Path, kind: str) -> None:
    """Archives can hold pipes and links: each loader refuses them, at once."""
    path = tmp_path / "x.safetensors"
    place = {
        "pipe": lambda p: os.mkfifo(p),
        "directory": lambda p: p.mkdir(),
        "device": lambda p: p.symlink_to("/dev/zero"),
        "link to itself": lambda p: p.symlink_to(p),
    }[kind]
    place(path)
    assert survives(lambda: mcclt.load(path)) is None
    for name in ("config.json", "metrics.jsonl", "checkpoints"):
        copied = Path(shutil.copytree(folder / "one", tmp_path / f"run-{name}"))
        target = copied / name
        shutil.rmtree(target) if target.is_dir() else target.unlink()
        place(target)
        survives(lambda c=copied: mcclt.load(c))
        survives(lambda c=copied: runs.stored_config(c))
        survives(lambda c=copied: runs.Run.resume(c, runs.stored_config(c), 1, tensorboard=False).close())
    store = make_store(tmp_path / "store", ("Hopper",), ("ppo",), ("plain",), 2)
    cells = sorted((tmp_path / "store").rglob("seed-*.json"))
    cells[0].unlink()
    place(cells[0])
    (tmp_path / "store" / "timings").mkdir()
    place(tmp_path / "store" / "timings" / "x.json")
    results = survives(store.load)
    assert [r.seed for r in results.series[0].results] == [1] and results.problems


def test_messages_do_not_follow_links(folder: Path, tmp_path: Path) -> None:
    copied = Path(shutil.copytree(folder / "one", tmp_path / "run"))
    victim = tmp_path / "mine.txt"
    victim.write_text("mine")
    for name in ("messages.txt", "metrics.jsonl"):
        (copied / name).unlink(missing_ok=True)
        (copied / name).symlink_to(victim)
    directory = runs.Run.resume(copied, runs.stored_config(copied), 1, tensorboard=False)
    with pytest.raises(MccltError, match="Cannot write"):
        directory.on_message("text")
    directory.close()
    assert victim.read_text() == "mine"


def test_loading_imports_nothing(folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A task may name a module: it is imported to make its environment, never to load a model."""
    (tmp_path / "evil_module.py").write_text("raise SystemExit('code ran')")
    monkeypatch.syspath_prepend(tmp_path)
    arrays, meta = checkpoint.load(folder / "model.safetensors")
    for part in ("config", "spec"):
        meta[part]["task"] = "evil_module:X-v0"
    (tmp_path / "m.safetensors").write_bytes(forged(arrays, meta))
    model = mcclt.load(tmp_path / "m.safetensors")
    model.predict(np.zeros(model._spec.obs_size))
    assert "evil_module" not in sys.modules


@fuzz(10)
@given(data=st.data())
def test_a_forged_checkpoint_is_not_resumed_into_memory(folder: Path, data: st.DataObject) -> None:
    """Simulators take arrays as they are: shapes are checked before."""
    path = runs.checkpoints(folder / "one")[-1]
    arrays, meta = checkpoint.load(path)
    name = data.draw(st.sampled_from(sorted(n for n in arrays if not n.startswith("agents/"))))
    shape = data.draw(st.lists(st.integers(0, 5), max_size=4))
    arrays[name] = np.full(
        shape, data.draw(st.sampled_from([0, 1e9, np.nan])), data.draw(st.sampled_from([float, "f4"]))
    )
    trainer = Trainer(runs.stored_config(folder / "one"))
    try:
        good = checkpoint.load(path)[0][name]
        restored = survives(lambda: trainer.restore(arrays, meta, path))
        assert (restored is not None) == (good.shape == tuple(shape) and good.dtype == arrays[name].dtype)
        if restored:
            survives(trainer.advance)
    finally:
        trainer.close()


# --- run directories -------------------------------------------------------------------------------------------


@fuzz(10)
@given(data=st.data())
def test_a_strange_run(folder: Path, data: st.DataObject) -> None:
    """Its configuration and metrics."""
    path = folder / "one"
    config, metrics = path / "config.json", path / "metrics.jsonl"
    goods = config.read_bytes(), metrics.read_bytes()
    text = data.draw(mutants(json.loads(goods[0])).map(lambda x: json.dumps(x).encode()) | bytes_like(goods[0]))
    lines = data.draw(bytes_like(goods[1]))
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(runs, "versions", dict)  # asks git
        config.write_bytes(text)
        survives(lambda: runs.stored_config(path))
        config.write_bytes(goods[0])
        metrics.write_bytes(lines)
        survives(lambda: runs.Run.resume(path, runs.stored_config(path), 2, tensorboard=False).close())
        for line in metrics.read_bytes().splitlines():
            assert json.loads(line)["update"] <= 2
        metrics.write_bytes(goods[1])


# --- configurations --------------------------------------------------------------------------------------------

TOML = b"""
task = "Hopper-v5"
seeds = "0..3"
steps = "1M"
critic_hidden = [64, 64]
gamma = 0.99
on_nan = "stop"
[groups.paper]
critic = "normal"
[groups.other]
guide = "symmetric"
w_tar = 0.8
"""


@fuzz(30)
@given(data=st.data())
def test_a_strange_configuration(tmp_path_factory: pytest.TempPathFactory, data: st.DataObject) -> None:
    ending = data.draw(st.sampled_from(["toml", "json"]))
    plain = tomllib.loads(TOML.decode())
    mutant = mutants(plain).map(lambda x: json.dumps(x).encode())
    path = tmp_path_factory.getbasetemp() / f"strange.{ending}"
    path.write_bytes(data.draw(mutant if ending == "json" and data.draw(st.booleans()) else bytes_like(TOML)))
    found = survives(lambda: read_file(path))
    if found is not None:
        if data.draw(st.integers(0, 9)) == 0:  # the whole command line is slow
            survives(lambda: Train.parse(["--config", str(path), "Hopper-v5"]).resolve())
        survives(lambda: from_dict({"task": "x", "groups": {"a": {}}} | found))


@pytest.mark.parametrize(
    "text",
    [
        "gamma = " + "9" * 5000,
        "gamma = 0x" + "f" * 5000,
        "seeds = 0x" + "f" * 5000,
        "steps = 0x" + "f" * 5000,
        "critic_hidden = [0x" + "f" * 5000 + "]",
        "gamma = 1e999",
        "gamma = nan",
        "gamma = 1979-05-27T07:32:00Z",
        "a" + ".a" * 500_000 + " = 1",
        "x = {a" + ". a" * 500_000 + " = 1}",
        "a = " + "[" * 100_000,
        "a = " + "{a = " * 50_000,
        "[" * 100_000,
        'a = """' + "x" * 900_000 + '"""',
        "gamma = 1\ngamma = 1",
        "\ufeffgamma = 1",
        "[[groups]]\na = 1",
        "".join(f"[a{i}]\n" for i in range(50_000)),
        'seeds = "0..4294967295"',
        'steps = "' + "9" * 5000 + '"',
        'steps = "9e99"',
    ],
    ids=lambda text: text[:20].replace("\n", " "),
)
def test_configuration_bombs(tmp_path: Path, text: str) -> None:
    """Each is refused, in a sentence."""
    (tmp_path / "x.toml").write_text(text)
    with pytest.raises(MccltError) as caught:
        Train.parse(["--config", str(tmp_path / "x.toml"), "Hopper-v5"]).resolve()
    assert len(str(caught.value)) < 3000 and "\n" not in str(caught.value)


@pytest.mark.parametrize("text", ['{"gamma": 1, "gamma": 0.5}', '{"groups": {"a": {}, "a": {}}}', "[" * 100_000, "NaN"])
def test_json_configurations(tmp_path: Path, text: str) -> None:
    (tmp_path / "x.json").write_text(text)
    with pytest.raises(MccltError):
        Train.parse(["--config", str(tmp_path / "x.json"), "Hopper-v5"]).resolve()


def test_endless_configurations(tmp_path: Path) -> None:
    with pytest.raises(MccltError, match="larger than"):
        read_file(Path("/dev/zero"))
    with pytest.raises(OSError, match="not a regular file"):
        files.read(Path("/dev/zero"))


# --- stores ----------------------------------------------------------------------------------------------------


def sealed(data: Any) -> bytes:
    """A cell whose checksum is right."""
    text = json.dumps(data, separators=(",", ":"))
    checksum = hashlib.blake2b(text.encode(), digest_size=8).hexdigest()
    return (text[:-1] + f',"checksum":"{checksum}"}}\n').encode() if isinstance(data, dict) else text.encode()


@pytest.fixture(scope="module")
def store(tmp_path_factory: pytest.TempPathFactory) -> stores.Store:
    made = make_store(tmp_path_factory.mktemp("fuzzed") / "store", ("Hopper",), ("ppo",), ("plain", "mcclt"), 2)
    rows = [{"variant": v, "seconds_per_update": 2.0, "critic_parameters": 10} for v in ("plain", "mcclt", "ensemble")]
    made.write_timing(
        "x", {"algo": "ppo", "task": "Hopper-v4", "device": "cpu", "measured": "2026-01-01", "rows": rows}
    )
    return made


@fuzz(10)
@given(data=st.data())
def test_a_strange_store(store: stores.Store, data: st.DataObject) -> None:
    """Of any file in it: what is unsound is named, the rest is read, and the report is made."""
    from mcclt.pages.report import page

    paths = sorted(p for p in store.path.rglob("*.json") if "work" not in p.parts and "report" not in p.parts)
    path = data.draw(st.sampled_from(paths))
    good = path.read_bytes()
    plain = json.loads(good)
    if path.name.startswith("seed"):
        del plain["checksum"]
    forged = mutants(plain).map(sealed if path.name.startswith("seed") else lambda x: json.dumps(x).encode())
    try:
        path.write_bytes(data.draw(forged if data.draw(st.booleans()) else bytes_like(good)))
        opened = survives(lambda: stores.Store(store.path))
        results = survives(opened.load) if opened else None
        if results is not None and data.draw(st.integers(0, 3)) == 0:
            page(results, None) if results.series else None
    finally:
        path.write_bytes(good)


# --- all of it in little memory ---------------------------------------------------------------------------------


def test_in_little_memory(folder: Path, tmp_path: Path) -> None:
    """The bombs once more, in a process that may take 512 MiB more than it has after its imports."""
    for i, data in enumerate(BOMBS.values()):
        (tmp_path / f"{i}.safetensors").write_bytes(data)
    arrays, meta = checkpoint.load(folder / "model.safetensors")
    for i, (name, value) in enumerate(
        [("n_quantiles", 10**12), ("members", 10**12), ("critic_hidden", [10**9] * 3), ("policy_hidden", [10**12])]
    ):
        forgery = copy.deepcopy(meta)
        for group in forgery["config"]["groups"].values():
            group[name] = value
        (tmp_path / f"config-{i}.safetensors").write_bytes(forged(arrays, forgery))
    code = """
import resource, sys
from pathlib import Path
import mcclt
from mcclt.errors import MccltError
mcclt.load(Path(sys.argv[2])).predict([0.0] * 9)
used = int(Path("/proc/self/statm").read_text().split()[0]) * resource.getpagesize()
resource.setrlimit(resource.RLIMIT_AS, (used + 2**29,) * 2)
for path in Path(sys.argv[1]).iterdir():
    try:
        mcclt.load(path)
    except MccltError:
        continue
    sys.exit(f"{path} was loaded")
"""
    done = subprocess.run(
        [sys.executable, "-c", code, str(tmp_path), str(folder / "model.safetensors")],
        capture_output=True,
        text=True,
        timeout=120,
    )
    assert done.returncode == 0, done.stderr
