"""An agent that takes another's place trains as if it were alone."""

import dataclasses
from collections.abc import Mapping
from typing import Any

import numpy as np
import pytest

from mcclt.config import AgentConfig, RunConfig
from mcclt.errors import ConfigError
from mcclt.training.trainer import Place, Trainer
from mcclt.tuning.pool import GROUP, Pool
from trees import assert_close, assert_same, one_of, timeless

BASE = AgentConfig(
    critic="plain",
    policy_hidden=(8,),
    critic_hidden=(8,),
    policy_iterations=3,
    critic_iterations=3,
    minibatch_size=50,
    normalize_obs=True,
    normalize_reward=True,
    learning_rate_end=0.0,
    critic_learning_rate_end=1e-4,
)
RUN = RunConfig(
    "InvertedDoublePendulum-v5",
    groups={GROUP: BASE},
    steps=2_000,
    n_envs=4,
    steps_per_update=200,
    eval_freq=400,
    eval_episodes=2,
    checkpoint_freq=10**9,
)


def agent(**numbers: float) -> AgentConfig:
    return dataclasses.replace(BASE, **numbers)  # type: ignore[arg-type]


def alone(
    seed: int, config: AgentConfig, updates: int, run: RunConfig = RUN
) -> tuple[Mapping[str, object], list[dict]]:
    """The state and log of an agent that trains alone."""
    trainer = Trainer(dataclasses.replace(run, seeds=(seed,), groups={GROUP: config}))
    rows = [row for _ in range(updates) for row in trainer.advance()]
    state = one_of(trainer.states[GROUP], 0)
    trainer.close()
    return state, rows


def of_place(pool: Pool, i: int) -> Any:
    return one_of(pool.states[GROUP], i)


@pytest.mark.parametrize("engine", ["native", "gymnasium"])
def test_a_newcomer_equals_its_lone_run(engine: str) -> None:
    run = dataclasses.replace(RUN, engine=engine)
    first, second, third = agent(gamma=0.9), agent(learning_rate=1e-3), agent(gae_lambda=0.5, max_grad_norm=None)
    pool = Pool(run, [Place(GROUP, 7, first), Place(GROUP, 7, second)])
    for _ in range(4):  # evaluations are the population's, every second update
        pool.advance()
    pool.renew({0: Place(GROUP, 9, third)})
    rows = [row for _ in range(4) for row in pool.advance()]
    new, log = alone(9, third, 4, run)
    assert_same(of_place(pool, 0), new)
    assert timeless(row for row in rows if row["seed"] == 9) == timeless(log)
    assert "eval/mean_reward" in log[1] and log[0]["update"] == 1
    assert_same(of_place(pool, 1), alone(7, second, 8, run)[0])
    assert pool.ages == [4, 8]
    pool.close()


def test_a_smaller_pool_goes_on_exactly() -> None:
    configs = [agent(gamma=g) for g in (0.9, 0.95, 0.99)]
    pool = Pool(RUN, [Place(GROUP, 3, config) for config in configs])
    for _ in range(3):
        pool.advance()
    pool.renew({1: Place(GROUP, 4, configs[2])})
    pool.advance()
    pool = pool.only([1, 2])
    for _ in range(2):
        pool.advance()
    assert_same(of_place(pool, 0), alone(4, configs[2], 3)[0])
    assert_same(of_place(pool, 1), alone(3, configs[2], 6)[0])
    pool.close()


def test_a_pool_is_restored_exactly() -> None:
    places = [Place(GROUP, seed, agent(gamma=g)) for seed, g in ((1, 0.9), (2, 0.95))]
    pool = Pool(RUN, places)
    pool.advance()
    pool.renew({0: Place(GROUP, 5, agent(gamma=0.8))})
    pool.advance()
    arrays, meta = pool.to_checkpoint()
    again = Pool(RUN, pool.places)
    assert again.restore(arrays, meta, "a checkpoint")
    for one in (pool, again):
        one.advance()
    assert_same(pool.states, again.states)
    assert again.ages == [2, 3]
    pool.close()
    again.close()


def test_copying_takes_over_what_was_learnt_but_not_whose_it_is() -> None:
    pool = Pool(RUN, [Place(GROUP, 1, agent(gamma=0.9)), Place(GROUP, 2, agent(gamma=0.95))])
    for _ in range(2):
        pool.advance()
    better = of_place(pool, 1)
    pool.copy({0: (1, agent(gamma=0.97))})
    copied = of_place(pool, 0)
    assert_same((copied.policy, copied.critic_opt), (better.policy, better.critic_opt))
    assert int(copied.seed) == 1 and float(copied.numbers["gamma"]) == np.float32(0.97)
    pool.advance()
    assert pool.ages == [3, 3]
    pool.close()


def test_another_structure_is_refused() -> None:
    pool = Pool(RUN, [Place(GROUP, 1, BASE)])
    with pytest.raises(ConfigError, match="one structure"):
        pool.renew({0: Place(GROUP, 2, dataclasses.replace(BASE, critic_iterations=4))})
    pool.close()


@pytest.mark.slow
def test_places_of_a_pool_that_lives_on_the_device() -> None:
    """The same on the engine of a GPU, to the precision of its physics."""
    pytest.importorskip("mujoco_warp")
    short = {"n_envs": 2, "steps_per_update": 40, "max_episode_steps": 30, "eval_freq": 80}
    base = agent(minibatch_size=20)
    run = dataclasses.replace(RUN, task="Hopper-v5", engine="warp", groups={GROUP: base}, **short)  # type: ignore[arg-type]
    third = dataclasses.replace(base, gae_lambda=0.5)
    pool = Pool(
        run, [Place(GROUP, seed, dataclasses.replace(base, gamma=g)) for seed, g in ((7, 0.9), (7, 0.95), (8, 0.97))]
    )
    for _ in range(2):
        pool.advance()
    pool.renew({0: Place(GROUP, 9, third)})
    for _ in range(2):
        pool.advance()
    pool = pool.only([0, 2])
    pool.advance()
    assert_close(of_place(pool, 0), alone(9, third, 3, run)[0], rtol=2e-2, atol=5e-3)
    assert pool.ages == [3, 5]
    pool.close()
