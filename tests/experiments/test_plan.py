"""Plans: which cells, counted by hand, and about what they cost."""

from collections import Counter
from pathlib import Path

import pytest

from mcclt.errors import ConfigError
from mcclt.experiments import plan
from mcclt.experiments.setups import PAPER_TASKS, make_setup
from mcclt.experiments.store import Store
from synthetic import make_result


def cells(tables="", figures="", ablations="", tasks=("Hopper",), seeds=2, **more):
    parts = plan.parts_of(tables.split(), figures.split(), ablations.split())
    return plan.cells_of(parts, tasks, range(seeds), more.pop("config", "authors"), **more)


# Per task and seed: variants x algorithms.
@pytest.mark.parametrize(
    ("asked", "count"),
    [
        ({"tables": "1"}, 5 * 2),
        ({"tables": "3"}, 2 * 2),
        ({"tables": "2"}, 0),
        ({"tables": "1 3"}, 6 * 2),  # MC-CLT is in both
        ({"figures": "1"}, 1),
        ({"figures": "2"}, 1),
        ({"figures": "4"}, 1),
        ({"tables": "1", "figures": "4"}, 10),  # the ensemble is in table 1
        ({"ablations": "quantiles"}, 4 * 2),
        ({"ablations": "variance-head"}, 3 * 2),
        ({"ablations": "weight-site"}, 2 * 2),
        ({"ablations": "guide"}, 2 * 2),
        ({"ablations": "crossing"}, 2 * 2),
        ({"ablations": "trunk"}, 2 * 2),
        # all ablations share MC-CLT: 1 + 3 + 2 + 1 + 1 + 1 + 1 = 10
        ({"ablations": "quantiles variance-head weight-site guide crossing trunk"}, 10 * 2),
        # nothing named is all of the paper: tables 1 and 3 (12), figures 1 and 2 (1 + 1), three numbers of bars (6)
        ({}, 20),
    ],
)
def test_cells_counted_by_hand(asked: dict, count: int) -> None:
    found = cells(**asked)
    assert len(found) == 2 * count
    assert set(Counter((*s.key, seed) for s, seed in found).values()) <= {1}, "each cell once"
    assert len({s.name for s, _ in found}) == count, "no two setups of one name"


def test_the_whole_paper_at_its_scale() -> None:
    # 18 setups x 30 seeds, figure 1 with 3 and figure 2 with 10 seeds, on eight tasks: 8·(540 + 13).
    scale = plan.SCALES["paper"]
    found = cells(tasks=PAPER_TASKS, seeds=scale.seeds, steps=scale.steps)
    assert len(found) == 8 * (18 * 30 + 3 + 10)
    assert {s.config.steps for s, _ in found} == {1_000_000}
    assert Counter(s.task for s, _ in found) == dict.fromkeys(PAPER_TASKS, 553)
    assert {s.algo for s, _ in found if "n_quantiles=200" in s.variant} == {"ppo"}


def test_a_drawing_needs_few_seeds_unless_asked() -> None:
    assert len(cells(figures="1", seeds=30)) == 3
    assert len(cells(figures="1", seeds=30, seeds_fixed=True)) == 30
    assert sorted(
        seed for _, seed in cells(figures="4", tables="1", seeds=12, variants=["ensemble"], algos=["ppo"])
    ) == [*range(12)], "the table's seeds, not the drawing's"


def test_choosing_algorithms_and_variants() -> None:
    found = cells(tables="1", algos=["trpo"], variants=["plain", "mcclt"])
    assert {s.name for s, _ in found} == {"trpo-plain", "trpo-mcclt"} and len(found) == 4
    assert cells(figures="1", algos=["trpo"]) == []


def test_the_same_task_twice_is_one() -> None:
    assert len(cells(tables="1", tasks=["Hopper", "Hopper-v4"])) == len(cells(tables="1"))


def test_run_settings_and_configurations() -> None:
    (setup, _), *_ = cells(tables="1", tasks=["Ant"], steps=4000, final_episodes=3)
    assert (setup.config.steps, setup.config.final_episodes) == (4000, 3)
    assert setup.agent.critic_hidden == (64, 64)
    (setup, _), *_ = cells(tables="1", tasks=["Ant"], config="fixed")
    assert setup.agent.critic_hidden == (128, 128)


def test_every_planned_variant_has_its_canonical_name() -> None:
    """Otherwise --variants, which reads names, would not find it."""
    for part in (*plan.TABLES.values(), *plan.FIGURES.values(), *plan.ABLATIONS.values()):
        for variant in part.variants:
            assert make_setup("Hopper", "ppo", variant, "fixed").variant == variant


@pytest.mark.parametrize(
    ("args", "message"),
    [
        ((["4"], [], []), "Unknown table '4'. Allowed: 1, 2, 3."),
        ((["one"], [], []), "Unknown table 'one'"),
        (([], ["3"], []), "Figure 3 is a drawing that `mcclt report` makes"),
        (([], ["5"], []), "Unknown figure '5'. Allowed: 1, 2, 4."),
        (([], [], ["quantile"]), "Unknown ablation 'quantile'. Did you mean 'quantiles'?"),
    ],
)
def test_unknown_parts(args: tuple, message: str) -> None:
    with pytest.raises(ConfigError) as error:
        plan.parts_of(*args)
    assert message in str(error.value)


def test_unknown_names() -> None:
    assert plan.check_names([], []) == (list(PAPER_TASKS), [])
    assert plan.check_names(["Ant", "Hopper-v5"], ["ppo"]) == (["Ant-v4", "Hopper-v5"], ["ppo"])
    with pytest.raises(ConfigError, match="Did you mean 'Hopper'"):
        plan.check_names(["Hoper"], [])
    with pytest.raises(ConfigError, match="Did you mean 'trpo'"):
        plan.check_names([], ["trop"])


# --- cost ------------------------------------------------------------------------------------------------------


def test_cost_from_what_was_measured_elsewhere() -> None:
    setup = make_setup("Hopper", "ppo", "mcclt", "fixed", steps=100_000, final_episodes=100)
    # Acting: 100,000 steps, 100 final episodes of 500, and 10 of 500 at each of 2 evaluations, at 9,000 steps/s;
    # learning: 100,000 at 4,700 steps/s.
    took = plan.seconds_of((setup, 0), None)
    assert took == pytest.approx((100_000 + 50_000 + 10_000) / 9000 + 100_000 / 4700, rel=0.01)
    narrow = make_setup("Hopper", "ppo", "mcclt@critic_hidden=32,32", "fixed", steps=100_000)
    assert plan.seconds_of((narrow, 0), None) < plan.seconds_of((setup, 0), None)


def test_cost_without_evaluations() -> None:
    setup = make_setup("Hopper", "ppo", "mcclt", "fixed", steps=9000, final_episodes=0, eval_freq=0)
    assert plan.seconds_of((setup, 0), None) == pytest.approx(9000 / 9000 + 9000 / 4700, rel=0.01)


def test_cost_of_a_critic_by_its_weights(own_critic: None) -> None:
    def learning(variant: str) -> float:
        setup = make_setup("Hopper", "ppo", variant, "fixed", steps=9_000_000, final_episodes=0, eval_freq=0)
        return plan.seconds_of((setup, 0), None) - 1000

    # One network: (17 + 1)·128 + (128 + 1)·128 + 129 = 18,945 weights, 41 + 18,945 x 0.00443 = 124.9 µs a step.
    assert learning("plain") == pytest.approx(9 * 124.93, rel=1e-4)
    assert learning("ensemble") == learning("plain"), "five members, each with a fifth of the batch"
    # One that the library does not know: an output more, 129 weights.
    assert learning("gaussian") == pytest.approx(9 * (124.93 + 0.57), rel=1e-4)


def test_cost_as_such_cells_took_in_this_store(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("os.cpu_count", lambda: 2)  # as the store's machine
    # The store's agents took 250 s for 1M steps each, so one of 100k steps takes 25 s.
    store = Store(tmp_path, create=True)
    stored = make_setup("Hopper", "ppo", "mcclt", "authors")
    store.write(stored, make_result(stored, 0, 1.0))
    known = store.load()
    like = make_setup("Hopper", "ppo", "mcclt", "authors", steps=100_000)
    assert plan.seconds_of((like, 1), known) == pytest.approx(25)
    other = make_setup("Hopper", "trpo", "mcclt", "authors", steps=100_000)
    assert plan.seconds_of((other, 1), known) == plan.seconds_of((other, 1), None)
    monkeypatch.setattr("os.cpu_count", lambda: 16)  # another machine: no guide to this one
    assert plan.seconds_of((like, 1), known) == plan.seconds_of((like, 1), None)


@pytest.mark.parametrize(
    ("seconds", "text"),
    [(0, "0 s"), (89, "89 s"), (90, "1.5 min"), (601, "10 min"), (5400, "1.5 hours"), (86400 * 17.2, "17 days")],
)
def test_times_for_people(seconds: float, text: str) -> None:
    assert plan.describe_seconds(seconds) == text


def test_scales() -> None:
    assert {name: (s.steps, s.seeds) for name, s in plan.SCALES.items()} == {
        "smoke": (8_000, 2),
        "short": (100_000, 3),
        "paper": (1_000_000, 30),
    }
    assert plan.SCALES["paper"].episodes == 100
