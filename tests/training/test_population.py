"""Mapping over agents: like groups together come to the same as each alone."""

import operator
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from test_fitting import AGENTS, SPEC, E, T, rollouts

import alone
from mcclt.method.learner import Learner
from mcclt.training import population
from mcclt.training.fitting import Learnt, fits_of
from mcclt.training.population import Improve, Program, Together, join, split
from probes import agent

SETTINGS: dict[str, dict[str, Any]] = {
    "ppo-mcclt": {"critic": "normal"},
    "ppo-plain": {"critic": "plain"},
    "ppo-bold": {"critic": "plain", "clip_range": 0.4},
    "trpo-mcclt": {"critic": "normal", "algo": "trpo"},
    "trpo-kappa": {"critic": "normal", "algo": "trpo", "kappa": 0.5},
}


@pytest.fixture(scope="module")
def learners() -> dict[str, Learner]:
    return {name: Learner(agent(critic_iterations=4, **own), SPEC, E, T * E) for name, own in SETTINGS.items()}


def on_gpus_path(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(population, "on_cpu", lambda: False)


def test_join_and_split_are_inverse() -> None:
    trees = [{"x": jnp.arange(6.0).reshape(2, 3) + k, "key": jax.random.split(jax.random.key(k), 2)} for k in range(3)]
    joined = join(trees)
    assert joined["x"].shape == (6, 3) and joined["key"].shape == (6,)
    for tree, part in zip(trees, split(joined, 3), strict=True):
        np.testing.assert_array_equal(tree["x"], part["x"])
        np.testing.assert_array_equal(jax.random.key_data(tree["key"]), jax.random.key_data(part["key"]))
    assert join(trees[:1]) is trees[0] and split(trees[0], 1)[0] is trees[0]


def test_what_is_on_the_host_is_not_copied() -> None:
    whole = np.zeros((6, 2))
    split({"x": whole}, 3)[1]["x"][:] = 1
    np.testing.assert_array_equal(whole[:, 0], [0, 0, 1, 1, 0, 0])


def test_equal_keys_are_one_program_for_all_who_ask() -> None:
    first, second = (Program(("double", 1), lambda x: 2 * x) for _ in range(2))
    assert first == second and first.mapped() is second.mapped()
    assert first.mapped() is not first.mapped(committed=True)
    assert Program(("double", 2), first.function).mapped() is not first.mapped()


def test_together_gives_each_group_its_own(monkeypatch: pytest.MonkeyPatch) -> None:
    factors = {"a": 2.0, "b": 3.0, "c": 2.0}
    programs = {name: Program(("times", k), partial(operator.mul, k)) for name, k in factors.items()}
    args = {name: (np.full((2, 1), 10.0**k, np.float32),) for k, name in enumerate(programs)}
    for kinds in ([("a",), ("b",), ("c",)], [("a", "c"), ("b",)]):
        together = Together(programs)
        assert [names for names, _ in together.programs] == kinds
        found = together(args)
        assert list(found) == ["a", "b", "c"]
        assert [x.ravel().tolist() for x in found.values()] == [[2, 2], [30, 30], [200, 200]]
        on_gpus_path(monkeypatch)


@pytest.mark.parametrize(
    ("prepared", "stepped"),
    [
        ([("ppo-plain", "ppo-bold")], [("ppo-plain", "ppo-bold")]),
        pytest.param(
            [("ppo-mcclt", "trpo-mcclt", "trpo-kappa"), ("ppo-plain", "ppo-bold")],
            [("ppo-mcclt", "ppo-plain", "ppo-bold"), ("trpo-mcclt", "trpo-kappa")],
            marks=pytest.mark.slow,
        ),
    ],
    ids=["one kind", "every kind"],
)
def test_groups_learn_together_what_they_learn_alone(
    learners: dict[str, Learner],
    monkeypatch: pytest.MonkeyPatch,
    prepared: list[tuple[str, ...]],
    stepped: list[tuple[str, ...]],
) -> None:
    some = {name: learner for name, learner in learners.items() if any(name in names for names in prepared)}
    agents = {name: alone.init(learner, AGENTS) for name, learner in some.items()}
    on_their_own = {name: alone.updates(learner, agents[name], rollouts()) for name, learner in some.items()}
    on_gpus_path(monkeypatch)
    improve = Improve(some)
    improved = improve(agents, {name: rollouts() for name in some})
    assert [names for names, _ in improve.prepare.programs] == prepared
    assert [names for names, _ in improve.step.programs] == stepped
    states, batches = ({name: x[k] for name, x in improved.items()} for k in (0, 1))
    fits = fits_of(some, 4)
    assert [(fit.groups, fit.pieces) for fit in fits] == [(names, 4 // len(prepared)) for names in prepared]
    found = Learnt(states, batches, fits).states
    for name, (state, metrics) in on_their_own.items():
        assert jax.tree.structure(found[name]) == jax.tree.structure(state)
        for a, b in zip(jax.tree.leaves(found[name]), jax.tree.leaves(state), strict=True):
            # TRPO's conjugate gradients make rounding larger.
            np.testing.assert_allclose(a, b, rtol=1e-3, atol=1e-4, err_msg=name)
        assert metrics.keys() == improved[name][2].keys()
        for key, value in metrics.items():
            np.testing.assert_allclose(improved[name][2][key], value, rtol=1e-3, atol=1e-4, err_msg=f"{name}: {key}")


def test_on_a_cpu_groups_are_mapped_one_by_one(learners: dict[str, Learner]) -> None:
    improve = Improve(learners)
    assert [names for names, _ in improve.prepare.programs] == [(name,) for name in learners]
    programs = {names: program for names, program in improve.step.programs}
    assert programs["ppo-mcclt",] is programs["ppo-plain",] is programs["ppo-bold",], "the policy's step, compiled once"
    assert programs["trpo-mcclt",] is not programs["ppo-mcclt",]
