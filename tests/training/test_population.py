"""Mapping over agents: like groups together come to the same as each alone."""

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from test_fitting import AGENTS, SPEC, rollouts

from mcclt.config import AgentConfig
from mcclt.method.learner import AgentState, Learner
from mcclt.training import population
from mcclt.training.fitting import Learnt, fits_of
from mcclt.training.population import Improve, Together, alike, join, map_agents, split

SETTINGS: dict[str, dict[str, Any]] = {
    "ppo-mcclt": {"critic": "normal"},
    "ppo-plain": {"critic": "plain"},
    "ppo-bold": {"critic": "plain", "clip_range": 0.4},
    "trpo-mcclt": {"critic": "normal", "algo": "trpo"},
    "trpo-kappa": {"critic": "normal", "algo": "trpo", "kappa": 0.5},
}


@pytest.fixture(scope="module")
def learners() -> dict[str, Learner]:
    small: dict[str, Any] = {"critic_iterations": 4, "policy_iterations": 3}
    small |= {"critic_hidden": (8,), "policy_hidden": (8,)}
    return {name: Learner(AgentConfig(**small, **settings), SPEC) for name, settings in SETTINGS.items()}


@pytest.fixture(scope="module")
def agents(learners: dict[str, Learner]) -> dict[str, AgentState]:
    seeds = np.arange(AGENTS, dtype=np.uint32)
    return {name: map_agents(learner.init)(seeds) for name, learner in learners.items()}


@pytest.fixture(scope="module")
def alone(learners: dict[str, Learner], agents: dict[str, AgentState]) -> dict[str, tuple[AgentState, Any, Any]]:
    """Each group's agents after an update, and its metrics, as a CPU does it."""
    return {name: map_agents(learner.update)(agents[name], rollouts()) for name, learner in learners.items()}


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


def test_alike_is_the_same_program_down_to_its_constants() -> None:
    def add(constant: Any) -> Callable[[jax.Array], jax.Array]:
        return lambda x: x + constant

    table = np.arange(20_000.0, dtype=np.float32)
    functions = {"a": add(1.0), "b": add(2.0), "c": add(1.0), "d": add(table), "e": add(table), "f": add(table[::-1])}
    last = table.copy()
    last[-1] = 0  # far down in the text
    functions["g"] = add(last)
    args = {name: (np.zeros((4, 20_000), np.float32),) for name in functions}
    args["c"] = (np.zeros((4, 20_000), np.int32),)
    assert alike(functions, args) == [("a",), ("b",), ("c",), ("d", "e"), ("f",), ("g",)]
    args["c"] = args["a"]
    assert alike(functions, args)[0] == ("a", "c")


def test_what_a_function_does_not_use_must_be_alike_too() -> None:
    """It is not in the program's text, but it is joined with the rest."""
    args: dict[str, tuple[Any, ...]] = {
        "two": ({"x": np.zeros((4, 3)), "y": np.zeros((4, 2))},),
        "same": ({"x": np.zeros((4, 3)), "y": np.zeros((4, 2))},),
        "wide": ({"x": np.zeros((4, 3)), "y": np.zeros((4, 9))},),
        "one": ({"x": np.zeros((4, 3))},),
    }
    assert alike(dict.fromkeys(args, lambda tree: 2 * tree["x"]), args) == [("two", "same"), ("wide",), ("one",)]


def test_together_gives_each_group_its_own(monkeypatch: pytest.MonkeyPatch) -> None:
    def times(factor: float) -> Callable[[jax.Array], jax.Array]:
        return lambda x: factor * x

    functions = {"a": times(2.0), "b": times(3.0), "c": times(2.0)}
    args = {name: (np.full((2, 1), 10.0**k, np.float32),) for k, name in enumerate(functions)}
    for _ in range(2):
        found = Together(functions)(args)
        assert list(found) == ["a", "b", "c"]
        assert [x.ravel().tolist() for x in found.values()] == [[2, 2], [30, 30], [200, 200]]
        on_gpus_path(monkeypatch)
    several = Together(functions)
    several(args)
    assert [names for names, _ in several.programs] == [("a", "c"), ("b",)]


def test_groups_learn_together_what_they_learn_alone(
    learners: dict[str, Learner], agents: dict[str, AgentState], alone: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    on_gpus_path(monkeypatch)
    improve = Improve(learners)
    improved = improve(agents, {name: rollouts() for name in learners})
    assert [names for names, _ in improve._study.programs] == [
        ("ppo-mcclt", "trpo-mcclt"), ("ppo-plain", "ppo-bold"), ("trpo-kappa",)
    ]  # fmt: skip
    assert [names for names, _ in improve._step.programs] == [
        ("ppo-mcclt", "ppo-plain"), ("ppo-bold",), ("trpo-mcclt", "trpo-kappa")
    ]  # fmt: skip
    states, lessons = ({name: x[k] for name, x in improved.items()} for k in (0, 1))
    fits = fits_of(learners, states, lessons, 6)
    assert [(fit.groups, fit.pieces) for fit in fits] == [
        (("ppo-mcclt", "trpo-mcclt"), 2), (("ppo-plain", "ppo-bold"), 2), (("trpo-kappa",), 2)
    ]  # fmt: skip
    found = Learnt(states, lessons, fits).states
    for name, (state, metrics) in alone.items():
        assert jax.tree.structure(found[name]) == jax.tree.structure(state)
        for a, b in zip(jax.tree.leaves(found[name]), jax.tree.leaves(state), strict=True):
            # TRPO's conjugate gradients make rounding larger.
            np.testing.assert_allclose(a, b, rtol=1e-3, atol=1e-4, err_msg=name)
        assert metrics.keys() == improved[name][2].keys()
        for key, value in metrics.items():
            np.testing.assert_allclose(improved[name][2][key], value, rtol=1e-3, atol=1e-4, err_msg=f"{name}: {key}")


def test_on_a_cpu_groups_are_mapped_one_by_one(learners: dict[str, Learner], agents: dict[str, AgentState]) -> None:
    improve = Improve(learners)
    assert improve.whole is not None
    assert [names for names, _ in improve.whole.programs] == [(name,) for name in learners]
