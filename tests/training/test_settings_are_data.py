"""Agents of one structure share one program, whatever their numbers; and each is what it would be alone."""

import dataclasses
from collections.abc import Iterator
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from test_fitting import SPEC, rollouts

from mcclt.config import NUMBERS, PARTS, AgentConfig, RunConfig, numbers_of
from mcclt.config.values import fields_of
from mcclt.method.learner import Learner
from mcclt.method.settings import Structure, numbers
from mcclt.storage.configuration import from_dict
from mcclt.training.trainer import Trainer
from probes import agent, run_config

SET: dict[str, Any] = {
    "learning_rate_end": 1e-4,
    "target_kl_end": 1e-3,
    "critic_learning_rate_end": 1e-4,
    "decay_steps": 100,
}
SET |= {"max_grad_norm": 0.5, "crossing_error": 10.0, "ent_coef": 0.01, "critic_gae_lambda": 0.9, "critic_w_tar": 0.8}
"""Numbers that are unset or 0 by default, so that they are there to differ in."""


@pytest.fixture
def compiled() -> Iterator[list[str]]:
    """What JAX compiles (or finds on disk) meanwhile."""
    events: list[str] = []

    def listen(name: str, seconds: float, **_: Any) -> None:
        if name == "/jax/core/compile/backend_compile_duration":
            events.append(name)

    jax.monitoring.register_event_duration_secs_listener(listen)
    jax.jit(lambda x: x + len(events) + 17)(1.0)
    assert events, "it is heard"
    yield events
    jax.monitoring.unregister_event_duration_listener(listen)


def scattered(count: int, **structure: Any) -> dict[str, AgentConfig]:
    """So many agents that differ in every number from each other."""
    base = agent(**(SET | structure))
    found = {}
    for k in range(count):
        share = 1 - k / (4 * count)
        scaled = {name: getattr(base, name) * share for name in NUMBERS}
        scaled["decay_steps"] = 100 + k
        scaled["w_tar"] = 0.9 - k / (10 * count)
        found[f"a{k}"] = dataclasses.replace(base, **scaled)
    return found


def learnt(trainer: Trainer, group: str) -> list[bytes]:
    arrays, _ = trainer.to_checkpoint()
    return [arrays[name].tobytes() for name in sorted(arrays) if name.startswith(f"agents/{group}/")]


@pytest.mark.parametrize("algo", ["ppo", pytest.param("trpo", marks=pytest.mark.slow)])
def test_agents_that_differ_in_every_number_compile_once(algo: str, compiled: list[str]) -> None:
    groups = scattered(32, algo=algo, critic="normal")
    for one, two in zip(groups.values(), list(groups.values())[1:], strict=False):
        assert all(getattr(one, name) != getattr(two, name) for name in NUMBERS)

    trained(dict.fromkeys(groups, agent(**SET, algo=algo, critic="normal")))
    compiled.clear()
    together = trained(groups)
    assert compiled == []
    for name in ("a0", "a7", "a31"):
        assert learnt(together, name) == learnt(trained({name: groups[name]}), name)


def trained(groups: dict[str, AgentConfig]) -> Trainer:
    trainer = Trainer(run_config(groups=groups))
    trainer.advance()
    trainer.advance()
    trainer.close()
    return trainer


MATTERS = {
    "ppo": NUMBERS - {"cg_damping", "line_search_shrinking_factor", "value_max"},
    "trpo": NUMBERS
    - {"value_max", "clip_range", "ent_coef", "learning_rate", "learning_rate_end", "line_search_shrinking_factor"},
}
"""Numbers that each algorithm reads. (The line search its factor only where the first try fails: here it does not.)"""


DRASTIC = {"clip_range": 1e-6, "variance_floor": 1e3, "max_grad_norm": 1e-6, "kappa": 1e-3, "crossing_error": 1e6}
"""Others than half of what they were, where that would change little."""


@pytest.mark.parametrize("algo", ["ppo", pytest.param("trpo", marks=pytest.mark.slow)])
def test_every_number_reaches_the_agent(algo: str) -> None:
    """An agent with a number changed, in its state alone, becomes another."""
    learner, rollout = (
        Learner(agent(**SET, algo=algo, n_quantiles=3), SPEC, 2, 10),
        jax.tree.map(lambda x: x[0], rollouts()),
    )
    init, update = jax.jit(learner.init), jax.jit(learner.update)

    def become(own: dict[str, Any]) -> list[bytes]:
        state = init(np.uint32(2), own)  # whose bars cross somewhere
        for _ in range(2):
            state, _ = update(state, rollout)
        return [np.asarray(x).tobytes() for x in jax.tree.leaves((state.policy, state.critic))]

    stops = {"target_kl": -1.0, "target_kl_end": -100.0} if algo == "ppo" else {"target_kl": 1e-6}
    own, drastic = numbers(learner.config), DRASTIC | stops
    undisturbed = become(own)
    assert undisturbed == become(own)
    for name in sorted(NUMBERS):
        changed = become(own | {name: jnp.float32(drastic.get(name, 0.5 * float(own[name])))})
        assert (changed != undisturbed) == (name in MATTERS[algo]), name
    assert init._cache_size() == update._cache_size() == 1


def test_the_range_of_a_histogram_reaches_it() -> None:
    learner = Learner(agent(critic="hl_gauss"), SPEC, 2, 10)
    state = jax.jit(learner.init)(jnp.uint32(0))
    wide = dataclasses.replace(state, numbers=state.numbers | {"value_max": 2 * state.numbers["value_max"]})
    obs = jnp.ones((3, SPEC.obs_size))
    predict = jax.jit(learner.predict)
    np.testing.assert_allclose(predict(wide, obs).bars, 2 * predict(state, obs).bars, rtol=1e-5)


def test_every_setting_is_of_a_part() -> None:
    assert {name for names in PARTS.values() for name in names} == set(fields_of(AgentConfig))
    assert set(numbers_of(AgentConfig())) == NUMBERS
    assert {"gamma", "learning_rate", "max_grad_norm", "crossing_error", "decay_steps"} <= NUMBERS
    assert not {"critic", "n_quantiles", "critic_iterations", "normalize_obs"} & NUMBERS


def test_structure_knows_no_number_but_whether_it_is_set() -> None:
    first, second = AgentConfig(gamma=0.9, max_grad_norm=1.0), AgentConfig(gamma=0.8, max_grad_norm=2.0)
    assert Structure.of(first, *PARTS) == Structure.of(second, *PARTS)
    assert Structure.of(first, "critic") != Structure.of(AgentConfig(gamma=0.9), "critic")
    assert Structure.of(first, "targets") == Structure.of(AgentConfig(critic="plain"), "targets")
    seen = Structure.of(first, "targets").settings(numbers(second))
    assert float(seen.gamma) == np.float32(0.8) and seen.value_target == "lambda"
    with pytest.raises(AttributeError, match="critic_hidden is not among the settings of this part"):
        seen.critic_hidden  # noqa: B018
    assert Structure.of(AgentConfig(), "critic").settings(numbers(first)).max_grad_norm is None


# --- learning rates that decay ---------------------------------------------------------------------------------


def decaying(**settings: Any) -> RunConfig:
    return run_config(
        groups={"a": agent(critic="plain", learning_rate_end=0.0, critic_learning_rate_end=0.0)}, **settings
    )


def test_a_longer_run_does_not_change_a_decay(trainer_of: Any) -> None:
    first = trainer_of(decaying(steps=64))
    assert first.config.groups["a"].decay_steps == 64
    for _ in range(4):
        first.advance()
    arrays, meta = first.to_checkpoint()
    second = trainer_of(dataclasses.replace(from_dict(meta["config"]), steps=128))
    assert second.restore(arrays, meta, "it")
    before = [x.tobytes() for k, x in sorted(second.to_checkpoint()[0].items()) if "/policy/" in k or "/critic/" in k]
    second.advance()
    after = [x.tobytes() for k, x in sorted(second.to_checkpoint()[0].items()) if "/policy/" in k or "/critic/" in k]
    assert before == after, "the rates have come to 0 with the steps of the first run"


def test_half_of_a_decaying_run_is_not_a_run_of_half_the_length(trainer_of: Any) -> None:
    found = []
    for settings in ({"steps": 64}, {"steps": 32}):
        trainer = trainer_of(decaying(**settings))
        trainer.advance()
        trainer.advance()
        found.append(trainer.to_checkpoint()[0]["agents/a/policy/log_std"].tobytes())
    assert found[0] != found[1]
