"""Units: every cell once, and half-done ones found again."""

import dataclasses
from collections import Counter
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from drivers import SMALL, cells_of, tiny
from mcclt.experiments.setups import Setup
from mcclt.experiments.store import Cell, Store
from mcclt.experiments.units import IN_COMMON, Unit, cut_off, split
from synthetic import make_result

SETUPS = [
    tiny(),
    tiny(f"mcclt@{SMALL}"),
    tiny(f"qr@{SMALL}"),
    tiny(f"ensemble@{SMALL}"),
    tiny(f"mcclt@{SMALL}+n_quantiles=4"),
    tiny("plain@policy_hidden=9"),  # another shape of policy
    tiny(f"explore@{SMALL}", steps=640),  # another length
    tiny(task="Hopper-v5"),
]


def keys(cells: list[Cell]) -> Counter:
    return Counter((*setup.key, seed) for setup, seed in cells)


def keys_of(units: list[Unit]) -> Counter:
    return Counter(key for unit in units for key in unit.keys)


plans = st.lists(
    st.tuples(st.sampled_from(SETUPS), st.integers(0, 6)), unique_by=lambda c: (c[0].key, c[1]), max_size=25
)


@settings(deadline=None, max_examples=60)
@given(plans, st.integers(1, 12), st.booleans(), st.integers(1, 6))
def test_splitting_is_exact(cells: list[Cell], population: int, mix: bool, workers: int) -> None:
    units = split(cells, population, mix, workers)
    assert keys_of(units) == keys(cells), "every cell once, and no other"
    for unit in units:
        assert 1 <= len(unit.cells) <= population
        assert mix or len(unit.setups) == 1
        assert len({s.name for s in unit.setups}) == len(unit.setups)
        assert unit.keys == [(*s.key, seed) for s, seed in unit.cells]
        assert len(unit.config.groups) * len(unit.config.seeds) == len(unit.cells), "it makes a run"
        for name in IN_COMMON:
            assert len({str(s.settings[name]) for s in unit.setups}) == 1
    assert len({unit.name for unit in units}) == len(units)


def test_splitting_by_hand() -> None:
    a, b, c = SETUPS[:3]
    cells = [*cells_of(a, 5), *cells_of(b, 5), *cells_of(c, 2)]

    def shapes(population: int, mix: bool) -> list[tuple[int, tuple[int, ...]]]:
        return [(len(u.setups), u.seeds) for u in split(cells, population, mix)]

    both = [(1, (0, 1, 2)), (1, (3, 4))]
    assert shapes(3, False) == [*both, *both, (1, (0, 1))]
    # a and b want the same seeds, so 2 setups x 2 seeds fit into 4; c wants others.
    assert shapes(4, True) == [(2, (0, 1)), (2, (2, 3)), (2, (4,)), (1, (0, 1))]
    assert shapes(1, True) == [(1, (s,)) for s in (0, 1, 2, 3, 4)] * 2 + [(1, (0,)), (1, (1,))]
    assert shapes(360, True) == [(2, (0, 1, 2, 3, 4)), (1, (0, 1))]
    assert split([], 8, True) == []


@pytest.mark.parametrize(
    ("setups", "seeds", "population", "mix", "workers", "sizes"),
    [
        (3, 30, 360, True, 1, [90]),
        (3, 30, 360, True, 3, [30, 30, 30]),
        (3, 30, 360, True, 4, [24, 24, 24, 18]),  # ⌈30/4⌉ = 8 seeds, and 6 that are left, of 3 setups each
        (3, 30, 15, True, 3, [15] * 6),  # what fits together still counts
        (1, 8, 8, False, 2, [4, 4]),
        (3, 8, 8, False, 2, [8, 8, 8]),  # there is enough for both
        (3, 8, 8, False, 4, [6, 6, 6, 2, 2, 2]),  # 24 / 4 = 6 at most; three of them take 6, the fourth 2 + 2 + 2
        (1, 2, 8, False, 5, [1, 1]),
    ],
)
def test_no_worker_is_idle(setups: int, seeds: int, population: int, mix: bool, workers: int, sizes: list[int]) -> None:
    cells = [cell for setup in SETUPS[:setups] for cell in cells_of(setup, seeds)]
    assert [len(u.cells) for u in split(cells, population, mix, workers)] == sizes


def test_shares_are_of_all_agents() -> None:
    cells = [*cells_of(SETUPS[0], 30), *cells_of(SETUPS[1], 1)]
    assert [len(u.cells) for u in split(cells, 360, True, 2)] == [16, 14, 1]  # ⌈31 / 2⌉ = 16


def test_what_differs_does_not_train_together() -> None:
    cells = [(setup, 0) for setup in SETUPS]
    units = split(cells, 100, True)
    assert sorted(len(u.setups) for u in units) == [1, 1, 1, 5]


def test_names_say_which_agents() -> None:
    a, b = SETUPS[:2]
    assert Unit((a,), (0, 1)).name == Unit((dataclasses.replace(a),), (0, 1)).name
    names = {Unit(s, seeds).name for s in [(a,), (b,), (a, b)] for seeds in [(0,), (1,), (0, 1)]}
    assert len(names) == 9
    assert Unit((a,), (0,)).name.startswith("InvertedDoublePendulum-v5__ppo-plain@")
    assert "__2-variants__" in Unit((a, b), (0,)).name


def test_the_run_of_a_unit() -> None:
    unit = Unit((SETUPS[0], SETUPS[1]), (4, 7))
    assert unit.config.seeds == (4, 7) and list(unit.config.groups) == [s.name for s in unit.setups]
    assert unit.config.on_nan == "stop", "an agent that fails does not end the others"
    assert unit.config.steps == SETUPS[0].config.steps


# --- cut off ---------------------------------------------------------------------------------------------------


def begin(store: Store, unit: Unit) -> Unit:
    """Leaves behind what a killed run leaves."""
    unit.folder(store).mkdir(parents=True)
    unit.note(store)
    return unit


@pytest.fixture
def store(tmp_path: Path) -> Store:
    return Store(tmp_path, create=True)


def test_cut_off_units_are_found_again(store: Store) -> None:
    a, b, c = SETUPS[:3]
    one, two = begin(store, Unit((a,), (0, 1))), begin(store, Unit((b, c), (3,)))
    plan = [*cells_of(a, 6), *cells_of(b, 6), *cells_of(c, 6)]  # more seeds than were under way
    found = cut_off(store, plan, plan)
    assert sorted(u.name for u in found) == sorted([one.name, two.name])
    rest = split([cell for cell in plan if (*cell[0].key, cell[1]) not in keys_of(found)], 8, False)
    assert keys_of([*found, *rest]) == keys(plan)


def test_a_unit_with_some_cells_written_is_found(store: Store) -> None:
    """Killed while its results were written: all of one setup are there, none of the other."""
    a, b = SETUPS[:2]
    unit = begin(store, Unit((a, b), (0, 1)))
    for seed in (0, 1):
        store.write(a, make_result(a, seed, 1.0))
    plan = [*cells_of(a, 2), *cells_of(b, 2)]
    assert cut_off(store, plan, store.missing(plan)) == [unit]


def test_two_units_with_a_cell_in_common(store: Store) -> None:
    """As when a plan for b alone was begun after one for a and b: only one of them goes on, nothing is left out."""
    a, b = SETUPS[:2]
    begun = [begin(store, Unit((a, b), (0,))), begin(store, Unit((b,), (0, 1)))]
    plan = [*cells_of(a, 2), *cells_of(b, 2)]
    (found,) = cut_off(store, plan, plan)
    assert found in begun
    rest = split([cell for cell in plan if (*cell[0].key, cell[1]) not in found.keys], 8, False)
    assert keys_of([found, *rest]) == keys(plan)


def test_units_that_are_not_wanted(store: Store) -> None:
    a, b, c = SETUPS[:3]
    begin(store, Unit((a,), (0, 1)))
    begin(store, Unit((b, c), (0,)))
    assert cut_off(store, cells_of(b, 1), cells_of(b, 1)) == [], "c is not in the plan"
    assert cut_off(store, [(a, 5)], [(a, 5)]) == [], "other seeds"
    assert cut_off(store, cells_of(a, 1), []) == [], "all are written"


def test_a_note_without_its_folder_or_meaning(store: Store) -> None:
    unit = Unit((SETUPS[0],), (0,))
    unit.note(store)
    for i, text in enumerate(["", "{", "null", "7", "[7]", '[["a"]]', '[["a","b","c","d"]]', '{"a": 1}', "\xff"]):
        (store.path / "work" / f"{i}.json").write_text(text, encoding="latin-1")
    assert cut_off(store, cells_of(SETUPS[0], 2), cells_of(SETUPS[0], 2)) == []
    unit.discard(store)
    assert not list((store.path / "work").glob(f"{unit.name}*"))


def units_of(setups: list[Setup]) -> st.SearchStrategy[Unit]:
    def make(members: list[Setup], seeds: list[int]) -> Unit:
        return Unit(tuple(members), tuple(seeds))

    return st.builds(
        make,
        st.lists(st.sampled_from(setups), min_size=1, max_size=3, unique_by=lambda s: s.key),
        st.lists(st.integers(0, 5), min_size=1, max_size=3, unique=True),
    )


@settings(deadline=None, max_examples=40)
@given(plans, st.lists(units_of(SETUPS[:5]), max_size=4), st.integers(1, 6), st.booleans())
def test_what_was_cut_off_and_the_rest_are_the_plan(
    tmp_path_factory: pytest.TempPathFactory, cells: list[Cell], begun: list[Unit], population: int, mix: bool
) -> None:
    """Whatever was under way, each wanted cell is in just one unit, and a folder is used where it can be."""
    store = Store(tmp_path_factory.mktemp("store"), create=True)
    for unit in {unit.name: unit for unit in begun}.values():
        begin(store, unit)
    found = cut_off(store, cells, cells)
    known = keys_of(found)
    rest = split([(setup, seed) for setup, seed in cells if (*setup.key, seed) not in known], population, mix)
    both = keys_of([*found, *rest])
    assert set(both.values()) <= {1} and set(keys(cells)) <= set(both)
    assert set(both) - set(keys(cells)) <= set(known), "what is extra was under way with something wanted"
    planned = {setup.key for setup, _ in cells}
    for unit in begun:
        usable = {s.key for s in unit.setups} <= planned and set(unit.keys) & set(keys(cells))
        assert not usable or set(unit.keys) & set(known)
