"""Stores: cells written once and whole, damage of every kind, kills and races."""

import dataclasses
import itertools
import json
import math
import os
import stat
import subprocess
import sys
import threading
from collections import Counter
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import drivers
from drivers import cells_of, contents, left, pretend, tiny, trained
from mcclt.experiments.cells import StoreError, checksum, encode, file_name, read
from mcclt.experiments.results import Result
from mcclt.experiments.setups import make_setup
from mcclt.experiments.store import Store
from mcclt.storage import files
from synthetic import make_result, make_store

DRIVERS = Path(drivers.__file__)


@pytest.fixture
def store(tmp_path: Path) -> Store:
    return Store(tmp_path / "store", create=True)


def same(a: Result, b: Result) -> None:
    assert encode(a) == encode(b)


# --- opening ---------------------------------------------------------------------------------------------------


def test_a_store_is_made_once(tmp_path: Path) -> None:
    first = Store(tmp_path / "a" / "b", create=True)
    assert first.id == Store(tmp_path / "a" / "b").id == Store(tmp_path / "a" / "b", create=True).id
    assert Store(tmp_path / "c", create=True).id != first.id
    assert first.load().series == () and first.load().problems == ()


def test_a_store_by_its_name(tmp_path: Path) -> None:
    assert Store(str(tmp_path / "store"), create=True).id == Store(tmp_path / "store").id


def test_an_empty_directory_becomes_a_store(tmp_path: Path) -> None:
    Store(tmp_path, create=True)
    Store(tmp_path)


@pytest.mark.parametrize("left", [["work"], [".store.json.k3j"], ["work", ".store.json.k3j"]])
def test_a_store_whose_making_was_killed(tmp_path: Path, left: list[str]) -> None:
    for name in left:
        (tmp_path / name).mkdir() if name == "work" else (tmp_path / name).write_text('{"form')
    Store(tmp_path, create=True)


def test_many_make_the_same_store_at_once(tmp_path: Path) -> None:
    """All get the same one: an id that one of them read and another replaced would not be found again."""
    for round in range(20):
        path = tmp_path / str(round)
        found: list[object] = []
        barrier = threading.Barrier(4)

        def make(path: Path = path, found: list = found, barrier: threading.Barrier = barrier) -> None:
            barrier.wait()
            try:
                found.append(Store(path, create=True).id)
            except StoreError as error:
                found.append(error)

        threads = [threading.Thread(target=make) for _ in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert found == [Store(path).id] * 4


@pytest.mark.parametrize("create", [True, False])
def test_what_is_no_store(tmp_path: Path, create: bool) -> None:
    own = tmp_path / "own"
    own.mkdir()
    (own / "thesis.txt").write_text("mine")
    with pytest.raises(StoreError, match="own is not a store of results"):
        Store(own, create=create)
    assert [p.name for p in tmp_path.rglob("*")] == ["own", "thesis.txt"], "nothing is written"
    file = tmp_path / "file"
    file.write_text("mine")
    for path in (file, file / "below"):
        with pytest.raises(StoreError) as error:
            Store(path, create=create)
        assert str(path) in str(error.value) and "\n" not in str(error.value)
    assert file.read_text() == "mine"
    if not create:
        with pytest.raises(StoreError, match=r"there is no such directory"):
            Store(tmp_path / "nothing")


@pytest.mark.parametrize("text", ["", "[]", "null", "7", "{}", '{"format": "other", "version": 1, "id": "a"}', "\xff",
                                  '{"format": "mcclt-store", "version": "x", "id": "a"}'])  # fmt: skip
def test_a_marker_of_something_else(tmp_path: Path, text: str) -> None:
    (tmp_path / "store.json").write_text(text, encoding="latin-1")
    for create in (True, False):
        with pytest.raises(StoreError, match=r"store\.json was not written by mcclt"):
            Store(tmp_path, create=create)
    assert (tmp_path / "store.json").read_text(encoding="latin-1") == text


def test_a_newer_store(store: Store) -> None:
    marker = store.path / "store.json"
    marker.write_text(json.dumps(json.loads(marker.read_text()) | {"version": 2, "more": 1}))
    with pytest.raises(StoreError, match="was written by a newer version of mcclt: update it"):
        Store(store.path)


@pytest.mark.skipif(os.geteuid() == 0, reason="root may write everywhere")
def test_read_only_directories(tmp_path: Path, store: Store) -> None:
    _check_read_only(tmp_path, store)


def test_directories_that_cannot_be_written(tmp_path: Path, store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    """The same for root, with the operating system's refusal made up."""
    setup = tiny()
    store.write(setup, make_result(setup, 0, 1.0))

    def refuse(*_: object, **__: object) -> None:
        raise PermissionError(13, "Permission denied")

    monkeypatch.setattr("mcclt.storage.files.tempfile.mkstemp", refuse)
    _refused(tmp_path, store)


def _check_read_only(tmp_path: Path, store: Store) -> None:
    setup = tiny()
    store.write(setup, make_result(setup, 0, 1.0))
    folders = [tmp_path, *(p for p in tmp_path.rglob("*") if p.is_dir())]
    for folder in folders:
        folder.chmod(0o555)
    try:
        _refused(tmp_path, store)
        with pytest.raises(StoreError, match=r"Cannot write .*lock: Permission denied\."):
            store.claim((setup, 1))
    finally:
        for folder in folders:
            folder.chmod(0o755)


def _refused(tmp_path: Path, store: Store) -> None:
    setup = tiny()
    with pytest.raises(StoreError, match=r"Cannot use the store .*new: Permission denied\."):
        Store(tmp_path / "new", create=True)
    with pytest.raises(StoreError, match=r"Cannot write .*seed-1\.json: Permission denied\."):
        store.write(setup, make_result(setup, 1, 1.0))
    with pytest.raises(StoreError, match=r"Cannot write .*x\.json: Permission denied\."):
        store.write_timing("x", {})
    opened = Store(store.path, create=True)  # reading is fine
    assert opened.load().series[0].seeds == [0]
    assert opened.missing([(setup, 0)]) == []


# --- one cell --------------------------------------------------------------------------------------------------


def test_a_result_is_read_as_it_was_written(store: Store) -> None:
    setup = tiny()
    result = make_result(setup, 3, 123.456)
    path = store.write(setup, result)
    assert path == store.file((setup, 3)) and path.name == "seed-3.json"
    got = read(path)
    np.testing.assert_allclose(got.returns, result.returns, rtol=1e-5)
    np.testing.assert_array_equal(got.curve["step"], result.curve["step"])
    np.testing.assert_allclose(got.curve["value/std"], result.curve["value/std"], rtol=1e-3)
    assert got.curve.keys() == result.curve.keys()
    assert got.score == pytest.approx(123.456, abs=1e-3)
    assert got.provenance == result.provenance and got.cost == result.cost
    same(got, read(path))
    assert encode(got) == path.read_bytes(), "what was read is written alike: rounding happens once"
    assert path.stat().st_mode & stat.S_IRGRP, "others may read it, as any file"
    assert json.loads((path.parent / "settings.json").read_text()) == setup.settings


def test_numbers_that_json_lacks(store: Store) -> None:
    setup = tiny()
    result = dataclasses.replace(
        make_result(setup, 0, 1.0),
        returns=np.array([1.0, math.nan, math.inf]),
        curve={"step": np.array([64.0, 128.0]), "eval/mean_reward": np.array([math.nan, 2.0])},
        cost={"seconds": np.float32(2), "steps_per_second": math.nan},
        probe={"t": np.arange(3), "n": np.int64(4), "inf": -math.inf},
    )
    text = store.write(setup, result).read_text()
    assert "NaN" not in text and "Infinity" not in text
    got = read(store.file((setup, 0)))
    np.testing.assert_array_equal(got.returns, [1.0, math.nan, math.nan])
    np.testing.assert_array_equal(got.curve["eval/mean_reward"], [math.nan, 2.0])
    assert got.score == 1.0
    assert got.probe == {"t": [0, 1, 2], "n": 4, "inf": None}


def test_steps_keep_their_digits(store: Store) -> None:
    """Curves have four digits, but seeds are lined up by their steps."""
    setup = tiny()
    result = dataclasses.replace(make_result(setup, 0, 1.0), curve={"step": np.array([1_004_000.0, 9_999_999.0])})
    store.write(setup, result)
    np.testing.assert_array_equal(read(store.file((setup, 0))).curve["step"], [1_004_000, 9_999_999])


def test_a_cell_is_written_once(store: Store) -> None:
    setup = tiny()
    first = store.write(setup, make_result(setup, 0, 1.0)).read_bytes()
    assert store.has((setup, 0)) and not store.has((setup, 1))
    assert store.write(setup, make_result(setup, 0, 2.0)).read_bytes() == first


DAMAGE = {
    "truncated": lambda data: data[: len(data) // 2],
    "one byte short": lambda data: data[:-2],
    "empty": lambda data: b"",
    "zeros": lambda data: bytes(len(data)),
    "not JSON": lambda data: b"hello",
    "not UTF-8": lambda data: b"\xff\xfe" + data,
    "a list": lambda data: b"[1, 2]",
    "null": lambda data: b"null",
    "an empty table": lambda data: b"{}",
    "deep": lambda data: b"[" * 100_000,
    "a digit changed": lambda data: data.replace(b'"seed":0', b'"seed":1'),
    "a return changed": lambda data: data.replace(b'"returns":[', b'"returns":[9,'),
    "no checksum": lambda data: json.dumps({k: v for k, v in json.loads(data).items() if k != "checksum"}).encode(),
    "another's checksum": lambda data: json.dumps(json.loads(data) | {"checksum": "0" * 16}).encode(),
    "another format": lambda data: checked(json.loads(data) | {"format": "mcclt-store 99"}),
    "without returns": lambda data: checked({k: v for k, v in json.loads(data).items() if k != "returns"}),
    "returns that are words": lambda data: checked(json.loads(data) | {"returns": ["a"]}),
    "a curve that is a list": lambda data: checked(json.loads(data) | {"curve": [1]}),
}


def checked(data: dict) -> bytes:
    """With the right checksum, as a program with other ideas would write it."""
    text = json.dumps({k: v for k, v in data.items() if k != "checksum"}, separators=(",", ":"))
    return (text[:-1] + f',"checksum":"{checksum(text)}"}}').encode()


@pytest.mark.parametrize("damage", [*DAMAGE, "a directory", "a full directory", "another seed's", "another setup's"])
def test_damage_is_named_and_mended(store: Store, damage: str) -> None:
    setup, other = tiny(), tiny(steps=256)
    for seed in range(3):
        store.write(setup, make_result(setup, seed, 1.0))
    path = store.file((setup, 0))
    before = path.read_bytes()
    if damage in DAMAGE:
        path.write_bytes(DAMAGE[damage](before))
    elif "directory" in damage:
        path.unlink()
        path.mkdir()
        if "full" in damage:
            (path / "mine").write_text("precious")
    else:
        source = (
            store.file((setup, 1)) if damage == "another seed's" else store.write(other, make_result(other, 0, 1.0))
        )
        path.write_bytes(source.read_bytes())

    loaded = store.load()
    (series,) = [s for s in loaded.series if s.digest == setup.digest]
    assert series.seeds == [1, 2], "the others count, and each once"
    (problem,) = loaded.problems
    assert str(path) in problem and "\n" not in problem
    assert store.missing(cells_of(setup, 3)) == [(setup, 0)]

    assert pretend(store.path, cells_of(setup, 3)).done == 1
    assert trained(store) == {(*setup.key, 0): 1}, "the others are not computed again"
    loaded = store.load()
    assert loaded.problems == () and [s.seeds for s in loaded.series if s.digest == setup.digest] == [[0, 1, 2]]
    if "full" in damage:
        assert (path.with_name("seed-0.json.damaged") / "mine").read_text() == "precious"


GOOD = encode(make_result(tiny(), 0, 1.0, 3, 2))


@settings(deadline=None, max_examples=150)
@given(bit=st.integers(0, 8 * len(GOOD) - 1))
def test_no_flipped_bit_goes_unnoticed(tmp_path_factory: pytest.TempPathFactory, bit: int) -> None:
    bad = bytearray(GOOD)
    bad[bit // 8] ^= 1 << bit % 8
    path = tmp_path_factory.getbasetemp() / "flipped.json"
    path.write_bytes(bad)
    try:
        got = read(path)
    except StoreError as error:
        assert str(path) in str(error)
    else:
        assert encode(got) == GOOD


@pytest.mark.parametrize("text", [None, "", "{", "[]", "\xff"])
def test_settings_that_are_damaged(store: Store, text: str | None) -> None:
    """The results wait until the settings are there again, which any run that wants the cells sees to."""
    setup = tiny()
    store.write(setup, make_result(setup, 0, 1.0))
    path = store.folder(setup) / "settings.json"
    path.unlink() if text is None else path.write_text(text, encoding="latin-1")
    loaded = store.load()
    assert loaded.series == () and str(path) in loaded.problems[0] and "left out" in loaded.problems[0]
    assert pretend(store.path, [(setup, 0)]).there == 1
    assert store.load().series[0].settings == setup.settings
    assert store.load().problems == () and not trained(store)


def test_changed_defaults_are_refused(store: Store) -> None:
    """The digest does not see a default that changes with the program; the settings do."""
    setup = tiny()
    store.write(setup, make_result(setup, 0, 1.0))
    path = store.folder(setup) / "settings.json"
    path.write_text(json.dumps(setup.settings | {"gamma": 0.5}))
    for act in (lambda: store.write(setup, make_result(setup, 1, 1.0)), lambda: store.missing([(setup, 0)])):
        with pytest.raises(StoreError, match=r"has gamma = 0\.5, and this version of mcclt uses 0\.99"):
            act()
    path.write_text(json.dumps({k: v for k, v in setup.settings.items() if k != "gamma"}))
    store.check_settings(setup)  # an older version had no such setting


def test_odd_names_stay_inside_the_store(store: Store) -> None:
    setup = make_setup("../../ALE/Pong:x-v5", "ppo", "plain", "fixed")
    path = store.write(setup, make_result(setup, 0, 1.0))
    assert path.resolve().is_relative_to(store.path.resolve())
    assert file_name("Hopper-v4") == "Hopper-v4"
    assert store.load().series[0].task == "../../ALE/Pong:x-v5"
    assert store.has((setup, 0))


def test_strangers_in_a_store(store: Store) -> None:
    setup = tiny()
    store.write(setup, make_result(setup, 0, 1.0))
    (store.path / "cells" / "notes.txt").write_text("hello")
    (store.folder(setup) / ".seed-1.json.x2f").write_text('{"half')  # a write that was killed
    (store.folder(setup) / "seed-0.json~").write_text("an editor's")
    (store.path / "cells" / "A" / "b" / "c").mkdir(parents=True)
    loaded = store.load()
    assert loaded.problems == () and [s.seeds for s in loaded.series] == [[0]]


def test_timings(store: Store) -> None:
    timing = {"task": "Hopper-v4", "algo": "ppo", "device": "cpu", "measured": "2026-01-01", "rows": []}
    row = {"variant": "plain", "seconds_per_update": 1.5, "critic_parameters": 7}
    store.write_timing("Hopper-v4__ppo", timing)
    store.write_timing("Hopper-v4__ppo", timing | {"rows": [row]})
    (store.path / "timings" / "bad.json").write_text("{")
    loaded = store.load()
    assert loaded.timings == (timing | {"rows": [row]},)
    assert "bad.json" in loaded.problems[0]


def test_a_large_store_is_read_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each file of 2 tasks x 2 algorithms x 6 variants x 5 seeds."""
    store = make_store(tmp_path, seeds=5)
    opened: Counter[Path] = Counter()
    original = files.read
    monkeypatch.setattr(files, "read", lambda path, *rest: (opened.update([path]), original(path, *rest))[1])
    loaded = store.load()
    assert sum(len(s.results) for s in loaded.series) == 120
    assert len([path for path in opened if path.name.startswith("seed-")]) == 120 and set(opened.values()) == {1}


# --- claims ----------------------------------------------------------------------------------------------------


def test_claims_exclude_each_other(store: Store) -> None:
    cell, other = (tiny(), 0), (tiny(), 1)
    claim = store.claim(cell)
    assert claim is not None
    assert store.claim(cell) is None and Store(store.path).claim(cell) is None
    free = store.claim(other)
    assert free is not None
    free.release()
    claim.release()
    again = store.claim(cell)
    assert again is not None
    again.release()


def test_a_dead_process_frees_its_claims(store: Store) -> None:
    """Held while the process lives, whatever it does; free the moment it is killed."""
    code = (
        f"import sys, time; sys.path.insert(0, {str(DRIVERS.parent)!r})\n"
        "from drivers import tiny; from mcclt.experiments.store import Store; from pathlib import Path\n"
        f"claim = Store(Path({str(store.path)!r})).claim((tiny(), 0)); print(claim is not None, flush=True)\n"
        "time.sleep(60)"
    )
    holder = subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE, text=True)
    assert holder.stdout is not None and holder.stdout.readline() == "True\n"
    assert store.claim((tiny(), 0)) is None
    holder.kill()
    holder.communicate()
    claim = store.claim((tiny(), 0))
    assert claim is not None
    claim.release()


# --- kills and races -------------------------------------------------------------------------------------------


def test_a_kill_at_any_moment_loses_nothing(tmp_path: Path) -> None:
    """Killed before and after everything a run does to the disk, and run again: see `drivers.crash`.

    Three seeds in units of two and one. Nothing half-written is ever seen; all seeds are there in the end, once; a
    seed is trained again only if its unit had no time to be written.
    """
    done = subprocess.run([sys.executable, DRIVERS, "crash", tmp_path], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    moments = [json.loads(line) for line in done.stdout.splitlines()]
    assert len(moments) > 30 and not moments[-1]["killed"]
    for m in moments:
        assert m["killed"] or m is moments[-1]
        assert m["problems_before"] == [] and m["problems"] == [], m
        assert m["seeds"] == [[0, 1, 2]], m
        assert m["trained"] in ([1, 1, 1], [1, 2, 2], [1, 1, 2]), m
        if m["cells_before"] in (2, 3):  # written, so not trained again
            assert m["trained"].count(1) >= m["cells_before"], m
    assert [m["cells_before"] for m in moments] == sorted(m["cells_before"] for m in moments)
    assert {m["cells_before"] for m in moments} == {0, 1, 2, 3}


def test_processes_that_race_do_each_cell_once(tmp_path: Path) -> None:
    """Three processes begin the same 24 cells at the same moment, in units of different sizes."""
    path = tmp_path / "store"
    args = [[sys.executable, DRIVERS, "race", path, "24", str(size), "3"] for size in (1, 2, 8)]
    racers = [subprocess.Popen(a, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) for a in args]
    ends = [racer.communicate(timeout=60) for racer in racers]
    tallies = [json.loads(out) if not racer.returncode else err for racer, (out, err) in zip(racers, ends, strict=True)]
    assert all(isinstance(t, list) and t[3] == [] for t in tallies), tallies
    store = Store(path)
    assert trained(store) == {(*tiny().key, seed): 1 for seed in range(24)}
    assert sum(t[0] for t in tallies) == 24
    assert sum(t[0] > 0 for t in tallies) >= 2, f"it was no race: {tallies}"
    assert len(contents(store)) == 24
    assert left(path) == []


def test_threads_that_write_the_same_cell(store: Store) -> None:
    setup = tiny()
    results = [make_result(setup, 0, float(i)) for i in range(8)]
    threads = [threading.Thread(target=store.write, args=(setup, result)) for result in results]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert store.file((setup, 0)).read_bytes() in {encode(result) for result in results}, "one of them, and whole"
    assert [p.name for p in store.folder(setup).iterdir() if p.name.startswith(".")] == []


def test_rerunning_does_nothing(store: Store) -> None:
    cells = list(itertools.chain(cells_of(tiny(), 3), cells_of(tiny(steps=256), 2)))
    first = pretend(store.path, cells)
    files = {p: (p.read_bytes(), p.stat().st_mtime_ns) for p in (store.path / "cells").rglob("*.json")}
    again = pretend(store.path, [*cells, *cells])
    assert (first.done, first.there) == (5, 0) and (again.done, again.there) == (0, 5)
    assert {p: (p.read_bytes(), p.stat().st_mtime_ns) for p in (store.path / "cells").rglob("*.json")} == files
    assert set(trained(store).values()) == {1}
