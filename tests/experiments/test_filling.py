"""The commands that make a store again, read by the real command line."""

import dataclasses
import itertools
import shlex
from pathlib import Path

import pytest

from mcclt.cli import main
from mcclt.experiments.filling import repeat
from mcclt.experiments.results import Results
from mcclt.experiments.setups import change, make_setup
from mcclt.experiments.store import Cell, Store
from synthetic import make_result


class Planned(Exception):
    """Raised in place of a training."""


@pytest.fixture
def planned(monkeypatch, tmp_path):
    """What a command would train in an empty store, and with which engine."""

    def plan(command: str) -> list[tuple[Cell, str]]:
        words = shlex.split(command)
        words[words.index("--store") + 1] = str(tmp_path / "empty")
        cells: list[Cell] = []

        def stop(self: Store, wanted: list[Cell]) -> None:
            cells.extend(wanted)
            raise Planned

        monkeypatch.setattr(Store, "missing", stop)
        with pytest.raises(Planned):
            main(words[1:])
        return [(cell, cell[0].config.engine) for cell in cells]

    return plan


def store_of(path: Path, cells: list[tuple[Cell, str]]) -> Results:
    store = Store(path, create=True)
    for (setup, seed), engine in cells:
        made = make_result(setup, seed, 100.0, episodes=5, points=3)
        store.write(setup, dataclasses.replace(made, provenance=made.provenance | {"engine": engine}))
    return store.load()


def cells_of(results: Results) -> set[tuple[str, str, str, int, str]]:
    return {(s.task, s.name, s.digest, r.seed, r.provenance["engine"]) for s in results.series for r in s.results}


def test_repeats_every_agent_and_no_other(planned, tmp_path):
    """Tasks, algorithms, variants with changes, configurations, seeds, steps, episodes and engines, none complete."""
    cells: list[tuple[Cell, str]] = []

    def add(task, algo, variant, config, seeds, engine="warp", **run):
        setup = make_setup(task, algo, variant, config, **run)
        cells.extend(((setup, seed), engine) for seed in seeds)

    for task in ("Hopper", "HalfCheetah-v5"):
        for algo in ("ppo", "trpo"):
            for variant in ("plain", "mcclt"):
                add(task, algo, variant, "authors", range(3))
        add(task, "ppo", "mcclt@crossing_error=1e5", "authors", range(3))
        add(task, "ppo", "mcclt@critic_hidden=32,32+n_envs=4", "authors", (3, 0, 1, 7))
    add("Hopper", "ppo", "qr", "fixed", range(2), steps=5000, final_episodes=7)
    add("Hopper", "ppo", "qr", "authors", [4], steps=5000)
    add("Pendulum-v1", "ppo", "explore", "fixed", range(2), "gymnasium")
    add("Hopper", "trpo", "ensemble", "authors", range(2), "native")
    add("Hopper", "trpo", "ensemble", "authors", range(2, 5), "warp")
    results = store_of(tmp_path / "store", cells)
    commands = repeat(results)
    found = [one for command in commands for one in planned(command)]
    assert {(*setup.key, seed, engine) for (setup, seed), engine in found} == cells_of(results)
    assert len(found) == len(cells)  # none twice
    assert len(commands) == 8


def test_a_product_is_one_command(planned, tmp_path):
    names = itertools.product(("Hopper", "Ant"), ("ppo", "trpo"), ("qr", "mcclt"))
    setups = [make_setup(*three, "authors") for three in names]
    results = store_of(tmp_path / "my store", [((setup, seed), "warp") for setup in setups for seed in range(4)])
    [command] = repeat(results)
    assert command.endswith(f"--store '{tmp_path / 'my store'}'")
    assert {(*setup.key, seed, engine) for (setup, seed), engine in planned(command)} == cells_of(results)


def test_agents_of_other_defaults_are_named_by_what_differs(planned, tmp_path):
    """As those in lockstep, whose stored settings do not know `stagger`."""
    cells = [((make_setup("Hopper", "ppo", "mcclt", "authors", stagger=False), seed), "native") for seed in (0, 1)]
    results = store_of(tmp_path / "store", cells)
    [command] = repeat(results)
    assert " mcclt@stagger=false " in command
    assert [(setup.digest, seed) for (setup, seed), _ in planned(command)] == [(s.digest, n) for (s, n), _ in cells]


def test_what_no_command_trains_is_said(tmp_path):
    setup = make_setup("Hopper", "ppo", "mcclt", "authors")
    results = store_of(tmp_path / "store", [((setup, 0), "native")])
    odd = dataclasses.replace(results.series[0], variant="marvel")
    [sentence] = repeat(dataclasses.replace(results, series=(odd,)))
    assert sentence == "No command of this version trains ppo-marvel on Hopper-v4 as it was trained here."


def test_costs_are_measured_again(tmp_path):
    setup = make_setup("Hopper", "ppo", "mcclt", "authors")
    results = dataclasses.replace(store_of(tmp_path / "s", [((setup, 0), "native")]), timings=({"task": "Ant-v4"},))
    assert repeat(results)[1] == f"mcclt reproduce --table 2 --tasks Ant-v4 --store {tmp_path / 's'}"


def test_changes_are_spelt_as_variants_are():
    assert change("mcclt", {}) == "mcclt"
    changed = change("mcclt@trunk=shared", {"critic_hidden": [64, 64], "stagger": False, "crossing_error": 1e5})
    assert changed == "mcclt@critic_hidden=64,64+crossing_error=100000.0+stagger=false+trunk=shared"
