"""Packs: nothing is lost on the way in and out, whoever kills, damages or forges what."""

import copy
import dataclasses
import json
import lzma
import os
import re
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import drivers
from drivers import cells_of, contents, pretend, tiny, trained
from mcclt.experiments import pack
from mcclt.experiments.cells import StoreError
from mcclt.experiments.pack import pack_of
from mcclt.experiments.setups import Setup, make_setup
from mcclt.experiments.store import Store
from mcclt.storage import files
from synthetic import make_result, make_store

Files = dict[str, bytes]


@pytest.fixture
def store(tmp_path: Path) -> Store:
    return Store(tmp_path / "store", create=True)


def write(store: Store, setup: Setup, *seeds: int, score: float = 1.0) -> None:
    for seed in seeds:
        store.write(setup, make_result(setup, seed, score))


def task_of(store: Store, setup: Setup) -> Path:
    """The folder of a task's loose cells."""
    return store.folder(setup).parents[1]


def held(store: Store) -> Files:
    """All files of cells, by path."""
    cells = store.path / "cells"
    return {str(p.relative_to(cells)): p.read_bytes() for p in cells.rglob("*") if p.is_file()}


def plain(path: Path) -> Any:
    return json.loads(lzma.decompress(path.read_bytes()))


def forge(path: Path, data: Any) -> None:
    """A pack whose checksum is right, whatever it says."""
    path.write_bytes(lzma.compress(json.dumps(data).encode(), preset=0))


# --- in and out ------------------------------------------------------------------------------------------------


def test_packed_and_unpacked_a_store_is_what_it_was(tmp_path: Path) -> None:
    store = make_store(tmp_path / "store", ("Hopper",), ("ppo", "trpo"), ("plain", "mcclt"), 3)
    before, loaded = held(store), contents(store)
    done = pack.pack(store)
    assert (done.cells, done.problems) == (12, [])
    assert [p.name for p in (store.path / "cells").iterdir()] == ["Hopper-v4.json.xz"], "no empty folders"
    assert contents(store) == contents(Store(store.path)) == loaded
    assert done.before > 3 * done.after == 3 * sum(map(len, held(store).values()))
    done = pack.unpack(store)
    assert (done.cells, done.problems) == (12, [])
    assert held(store) == before and contents(store) == loaded


def test_settings_and_provenance_are_there_once(store: Store) -> None:
    setup = tiny()
    write(store, setup, 0, 1, 2)
    other = make_result(setup, 3, 1.0)
    store.write(setup, dataclasses.replace(other, provenance=other.provenance | {"device": "gpu"}))
    pack.pack(store)
    data = plain(pack_of(task_of(store, setup)))
    (only,) = data["setups"]
    assert only["settings"] == setup.settings
    assert [p["device"] for p in data["provenance"]] == ["cpu", "gpu"]
    assert [(c["seed"], c["provenance"]) for c in only["cells"]] == [(0, 0), (1, 0), (2, 0), (3, 1)]
    assert [r.provenance["device"] for r in store.load().series[0].results] == ["cpu", "cpu", "cpu", "gpu"]


def test_the_same_cells_are_the_same_pack(tmp_path: Path) -> None:
    """Whatever the order they came in, and in how many goes they were packed."""
    one, many = (Store(tmp_path / name, create=True) for name in ("one", "many"))
    setup = tiny()
    write(one, setup, *range(12))
    pack.pack(one)
    for seeds in ((11, 3), (0, 10, 2), (1, 4, 5, 6, 7, 8, 9)):
        write(many, setup, *seeds)
        assert pack.pack(many).cells == len(seeds)
    assert held(one) == held(many)


def test_packing_again_does_nothing(store: Store) -> None:
    write(store, tiny(), 0, 1)
    pack.pack(store)
    path = pack_of(task_of(store, tiny()))
    before = path.stat()
    assert pack.pack(store) == pack.Done()
    assert path.stat() == before


def test_what_is_packed_is_not_computed_again(store: Store) -> None:
    setup = tiny()
    write(store, setup, 0, 1)
    pack.pack(store)
    assert store.missing(cells_of(setup, 3)) == [(setup, 2)]
    tally = pretend(store.path, cells_of(setup, 3))
    assert (tally.done, tally.there) == (1, 2) and trained(store) == {(*setup.key, 2): 1}
    assert store.load().series[0].seeds == [0, 1, 2] and store.load().problems == ()
    store.write(setup, make_result(setup, 0, 9.0))
    assert not store.file((setup, 0)).exists(), "what is there is kept"


def test_changed_defaults_are_refused(store: Store) -> None:
    setup = tiny()
    write(store, setup, 0)
    pack.pack(store)
    path = pack_of(task_of(store, setup))
    data = plain(path)
    data["setups"][0]["settings"]["gamma"] = 0.5
    forge(path, data)
    with pytest.raises(StoreError, match=r"json\.xz has gamma = 0\.5, and this version of mcclt uses 0\.99"):
        store.missing([(setup, 0)])


def test_settings_that_do_not_agree(store: Store) -> None:
    """They are not the same experiment, and are never averaged."""
    setup = tiny()
    write(store, setup, 0)
    pack.pack(store)
    write(store, setup, 1)
    path = store.folder(setup) / "settings.json"
    path.write_text(json.dumps(setup.settings | {"gamma": 0.5}))
    loaded = store.load()
    assert loaded.series == () and "gamma" in loaded.problems[0] and "left out" in loaded.problems[0]
    before = held(store)
    (problem,) = pack.pack(store).problems
    assert "gamma" in problem and held(store) == before
    path.unlink()  # the pack's are enough
    assert store.load().series[0].seeds == [0, 1] and store.load().problems == ()


# --- twice there, and damaged ----------------------------------------------------------------------------------


def test_the_undamaged_one_counts(store: Store) -> None:
    setup = tiny()
    write(store, setup, 0, 1)
    pack.pack(store)
    path = store.file((setup, 0))
    path.parent.mkdir(parents=True)
    path.write_bytes(b"half")
    loaded = store.load()
    assert loaded.series[0].seeds == [0, 1] and str(path) in loaded.problems[0] and store.has((setup, 0))
    assert pack.pack(store).problems and path.read_bytes() == b"half", "not ours to delete"
    path.unlink()
    whole = pack_of(task_of(store, setup)).read_bytes()
    pack_of(task_of(store, setup)).write_bytes(whole[:-9])
    write(store, setup, 0)
    loaded = store.load()
    assert loaded.series[0].seeds == [0] and "json.xz is damaged" in loaded.problems[0]
    assert store.missing(cells_of(setup, 2)) == [(setup, 1)]
    assert "json.xz is damaged" in pack.pack(store).problems[0] and path.exists()


def test_two_that_differ(store: Store) -> None:
    setup = tiny()
    write(store, setup, 0, 1)
    pack.pack(store)
    packed = pack_of(task_of(store, setup))
    aside = packed.read_bytes()
    packed.unlink()
    write(store, setup, 0, score=7.0)
    packed.write_bytes(aside)
    for _ in range(2):
        loaded = store.load()
        assert [r.score for r in loaded.series[0].results] == pytest.approx([1.0, 1.0], abs=1e-3)
        (problem,) = loaded.problems
        assert "seed-0.json differs from its pack's result, which is used" in problem
        before = held(store)
        assert "seed-0.json stays" in pack.pack(store).problems[0] and held(store) == before
        assert "json.xz stays" in pack.unpack(store).problems[0] and held(store) == before
    write(store, setup, 2)
    assert pack.pack(store).cells == 1 and store.file((setup, 0)).exists() and not store.file((setup, 2)).exists()


def test_two_that_are_the_same(store: Store) -> None:
    """As after a kill, or from another copy of the store; also where they are spelt differently."""
    setup = tiny()
    write(store, setup, 0, 1)
    before = held(store)
    pack.pack(store)
    for name, data in before.items():
        path = store.path / "cells" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(data)
    other = store.file((setup, 1))
    other.write_text(json.dumps(json.loads(other.read_bytes())))
    assert store.load().problems == () and store.load().series[0].seeds == [0, 1]
    assert pack.pack(store).cells == 1 and not store.file((setup, 0)).exists() and other.exists()


DAMAGE = {
    "truncated": lambda data: data[: len(data) // 2],
    "empty": lambda data: b"",
    "not xz": lambda data: b"hello",
    "a bit": lambda data: data[:100] + bytes([data[100] ^ 1]) + data[101:],
    "followed by more": lambda data: data + b"x",
    "twice": lambda data: data + data,
    "not JSON": lambda data: lzma.compress(b"hello"),
    "not a table": lambda data: lzma.compress(b"[]"),
    "deep": lambda data: lzma.compress(b"[" * 100_000),
    "another format": lambda data: files.compress(lzma.decompress(data).replace(b"mcclt-pack 1", b"mcclt-pack 9")),
    "an unknown provenance": lambda data: files.compress(
        lzma.decompress(data).replace(b'"provenance":0', b'"provenance":7')
    ),
    "another task's": lambda data: files.compress(lzma.decompress(data).replace(b'"task":"Inv', b'"task":"Not')),
    "out of the store": lambda data: files.compress(lzma.decompress(data).replace(b'"algo":"ppo"', b'"algo":"/.."')),
    "a setup without a name": lambda data: files.compress(
        re.sub(rb'"setup":"\w+"', b'"setup":""', lzma.decompress(data))
    ),
    "a bomb": lambda data: lzma.compress(bytes(2**25), preset=0),
    "a bomb of spaces": lambda data: lzma.compress(lzma.decompress(data) + b" " * 2**25, preset=0),
    "a large dictionary": lambda data: lzma.compress(
        lzma.decompress(data), filters=[{"id": lzma.FILTER_LZMA2, "preset": 0, "dict_size": 2**28}]
    ),
}


@pytest.mark.parametrize("damage", DAMAGE)
def test_damage_is_named_and_mended(store: Store, damage: str) -> None:
    setup, other = tiny(), make_setup("Hopper", "ppo", "plain", "fixed")
    write(store, setup, 0, 1)
    write(store, other, 0)
    pack.pack(store)
    path = pack_of(task_of(store, setup))
    path.write_bytes(DAMAGE[damage](path.read_bytes()))
    loaded = store.load()
    assert [s.task for s in loaded.series] == ["Hopper-v4"]
    (problem,) = loaded.problems
    assert str(path) in problem and "\n" not in problem and len(problem) < 500
    assert store.missing(cells_of(setup, 2)) == cells_of(setup, 2)
    assert pretend(store.path, cells_of(setup, 2)).done == 2
    assert sorted(s.seeds for s in store.load().series) == [[0], [0, 1]]
    path.unlink()
    assert pack.pack(store).problems == [] and store.load().problems == ()


def test_bombs_are_not_unpacked() -> None:
    """In a process that may take no more than 128 MiB beyond what it has."""
    code = """
import lzma, resource, sys
from pathlib import Path
from mcclt.storage import files
bombs = [lzma.compress(bytes(2**25), preset=0), lzma.compress(b"[]," * 2**24, preset=0)]
used = int(Path("/proc/self/statm").read_text().split()[0]) * resource.getpagesize()
resource.setrlimit(resource.RLIMIT_AS, (used + 2**27,) * 2)
for bomb in bombs:
    try:
        files.decompress(bomb)
    except ValueError:
        continue
    sys.exit("it was unpacked")
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr


@pytest.fixture(scope="module")
def sound(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, str]:
    """Where a pack of two results would be, and what would be in it."""
    root = tmp_path_factory.mktemp("forged")
    results = {root / f"{seed}": make_result(tiny(), seed, 1.0) for seed in (0, 1)}
    text = lzma.decompress(pack.encode(pack.Pack({root: tiny().settings}, results))).decode()
    return root / f"{drivers.PENDULUM}{pack.SUFFIX}", text


@settings(deadline=None, max_examples=60)
@given(data=st.data())
def test_a_forged_pack_is_refused_or_sound(sound: tuple[Path, str], data: st.DataObject) -> None:
    """Its checksum is right, and one of its values is anything."""
    path, forged = sound[0], json.loads(sound[1])
    here: Any = forged
    key: Any = data.draw(st.sampled_from(sorted(here)))
    while isinstance(here[key], dict | list) and here[key] and data.draw(st.booleans()):
        here = here[key]
        key = data.draw(st.sampled_from(sorted(here) if isinstance(here, dict) else range(len(here))))
    nasty = [None, -1, 0, 1, 2**64, 1.5, float("nan"), "", "x", "../..", True, [], {}, [[]], {"a": 1}, [None, "x"]]
    here[key] = copy.deepcopy(data.draw(st.sampled_from(nasty)))
    forge(path, forged)
    try:
        found = pack.read(path)
    except StoreError as error:
        assert str(path) in str(error) and len(str(error)) < 500
    else:
        assert all(folder.parts[:-3] == path.parent.parts for folder in found.settings), "none leads elsewhere"
        assert pack.decode(pack.encode(found), path).results.keys() == found.results.keys()


def test_a_pack_elsewhere_is_not_read(store: Store) -> None:
    """Copied or moved, its results would count twice."""
    setup = tiny()
    write(store, setup, 0)
    pack.pack(store)
    path = pack_of(task_of(store, setup))
    copied = path.with_name(f"Hopper-v4{pack.SUFFIX}")
    copied.write_bytes(path.read_bytes())
    loaded = store.load()
    assert [s.seeds for s in loaded.series] == [[0]]
    assert f"{copied} is not in its place" in loaded.problems[0]


# --- kills, races, and how often a file is read ----------------------------------------------------------------


def test_a_kill_at_any_moment_loses_nothing(tmp_path: Path) -> None:
    """Killed before and after everything that packing, packing more and unpacking do to the disk."""
    script = Path(drivers.__file__)
    done = subprocess.run([sys.executable, script, "crash_pack", tmp_path], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    moments = [json.loads(line) for line in done.stdout.splitlines()]
    assert len(moments) > 20 and [m["killed"] for m in moments] == [True] * (len(moments) - 1) + [False]
    for m in moments:
        assert m["problems"] == [] and m["before"] in ([0], [0, 1]) and m["after"] == [0, 1], m
        assert m["files"] == [f"{drivers.PENDULUM}{pack.SUFFIX}"], m
    assert [m["before"] for m in moments] == sorted(m["before"] for m in moments)


def test_a_store_is_packed_while_it_is_written(tmp_path: Path) -> None:
    path = tmp_path / "store"
    args = [sys.executable, drivers.__file__, "race", path, "8", "2", "1"]
    racer = subprocess.Popen(args, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    packed = 0
    while racer.poll() is None:
        time.sleep(0.005)  # it has the core while it starts
        if (path / "store.json").exists():
            done = pack.pack(Store(path))
            packed += done.cells
            assert done.problems == []
            assert Store(path).load().problems == ()
    out, err = racer.communicate()
    assert racer.returncode == 0 and json.loads(out) == [8, 0, 0, []], err
    pack.pack(Store(path))
    assert packed and len(contents(Store(path))) == 8 and len(held(Store(path))) == 1


def test_a_file_is_read_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Unless it has changed, or is so young that a change might not be seen."""
    store = make_store(tmp_path / "store", ("Hopper",), ("ppo",), ("plain", "mcclt"), 2)
    pack.pack(store)
    extra = tiny()
    write(store, extra, 0)
    cells = [path for path in (store.path / "cells").rglob("*") if path.is_file()]
    for path in cells:
        os.utime(path, ns=(0, time.time_ns() - 10**10))
    reads: list[Path] = []
    original = files.read
    monkeypatch.setattr(files, "read", lambda path, *a, **k: (reads.append(path), original(path, *a, **k))[1])
    store = Store(store.path)
    store.missing([(extra, 0), (extra, 1)])
    for _ in range(3):
        assert sum(len(s.results) for s in store.load().series) == 5
        assert store.has((extra, 0)) and not store.has((extra, 1))
    assert sorted(reads) == sorted([store.path / "store.json", *cells])
    store.file((extra, 0)).write_bytes(b"damaged")
    assert not store.has((extra, 0)) and len(store.load().problems) == 1
    write(store, extra, 0)
    assert store.has((extra, 0))
