"""Populations: independence of neighbours, determinism, exact resuming, faults."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import gymnasium as gym
import jax
import numpy as np
import pytest

from mcclt.config.variants import PAPER_VARIANTS, VARIANTS
from mcclt.errors import CheckpointError, ConfigError, EnvironmentFault, MccltError
from mcclt.storage import checkpoint
from mcclt.storage.metadata import spec_from_dict, spec_to_dict
from mcclt.storage.trackers import Row
from mcclt.training.loop import run
from mcclt.training.trainer import Trainer, crossed
from probes import PENDULUM, NanStart, Noisy, agent, factory, run_config, variant
from trees import assert_same, one_of, timeless


def train(trainer: Trainer, updates: int) -> list[Row]:
    return [row for _ in range(updates) for row in trainer.advance()]


def same(a: Trainer, b: Trainer) -> None:
    """Everything that is stored is the same, bit for bit."""
    (arrays_a, meta_a), (arrays_b, meta_b) = a.to_checkpoint(), b.to_checkpoint()
    assert arrays_a.keys() == arrays_b.keys()
    for name, x in arrays_a.items():
        np.testing.assert_array_equal(x, arrays_b[name], err_msg=name)
        assert x.dtype == arrays_b[name].dtype
    assert {k: v for k, v in meta_a.items() if k != "config"} == {k: v for k, v in meta_b.items() if k != "config"}


def agent_arrays(trainer: Trainer, group: str, seed: int) -> dict[str, np.ndarray]:
    """All that belongs to one agent of a population: parameters, optimiser, environments, episodes."""
    arrays, _ = trainer.to_checkpoint()
    index = trainer.agents.index((group, seed))
    n = trainer.config.n_envs
    mine = {}
    for name, x in arrays.items():
        if name.startswith(f"agents/{group}/"):
            mine[name] = x[trainer.config.seeds.index(seed)]
        elif name.startswith("env/"):
            mine[name] = x[index * n : (index + 1) * n]
        elif name == "stats/recent":
            mine[name] = x[:, index]
        elif not name.startswith("agents/"):
            mine[name] = x[index]
    assert any("critic_opt" in name for name in mine) and any("env/physics" in name for name in mine)
    return mine


def same_agent(a: Trainer, b: Trainer, group: str, seed: int) -> None:
    mine, other = agent_arrays(a, group, seed), agent_arrays(b, group, seed)
    assert mine.keys() == other.keys()
    for name, x in mine.items():
        np.testing.assert_array_equal(x, other[name], err_msg=name)


def rows_of(rows: list[Row], group: str, seed: int) -> list[Row]:
    return [row for row in timeless(rows) if (row["group"], row["seed"]) == (group, seed)]


# --- independence and determinism --------------------------------------------------------------------------


@pytest.mark.parametrize(
    "name", ["mcclt", *(pytest.param(n, marks=pytest.mark.slow) for n in ("ensemble", "trpo:mcclt"))]
)
def test_a_seed_alone_is_the_seed_among_four(trainer_of, name: str) -> None:
    algo, _, plain = name.rpartition(":")
    groups = {name: variant(plain, algo or "ppo")}
    alone = trainer_of(run_config(groups=groups, seeds=(2,), eval_freq=32, eval_episodes=2))
    among = trainer_of(run_config(groups=groups, seeds=(0, 1, 2, 3), eval_freq=32, eval_episodes=2))
    a, b = train(alone, 3), train(among, 3)
    same_agent(alone, among, name, 2)
    assert rows_of(a, name, 2) == rows_of(b, name, 2)
    assert "eval/mean_reward" in a[1], "an evaluation was compared, too"
    x, y = agent_arrays(among, name, 0), agent_arrays(among, name, 1)
    assert any((x[k] != y[k]).any() for k in x if "policy" in k), "seeds differ"


@pytest.mark.parametrize("names", ["plain mcclt", pytest.param("plain mcclt ensemble", marks=pytest.mark.slow)])
def test_a_group_alone_is_the_group_among_others(trainer_of, names: str) -> None:
    groups = {name: variant(name) for name in names.split()}
    mixed = trainer_of(run_config(groups=groups, seeds=(1, 5)))
    rows = train(mixed, 3)
    for name in groups:
        alone = trainer_of(run_config(groups={name: groups[name]}, seeds=(1, 5)))
        own = train(alone, 3)
        for seed in (1, 5):
            same_agent(alone, mixed, name, seed)
            assert rows_of(own, name, seed) == rows_of(rows, name, seed)


def test_twice_the_same(trainer_of) -> None:
    config = run_config(groups={"mcclt": variant("mcclt")}, seeds=(0, 1))
    a, b = trainer_of(config), trainer_of(config)
    assert timeless(train(a, 3)) == timeless(train(b, 3))
    same(a, b)


def test_threads_do_not_matter(trainer_of) -> None:
    a, b = (trainer_of(run_config(seeds=(0, 1), threads=n)) for n in (1, 3))
    train(a, 2), train(b, 2)
    same(a, b)


POPULATIONS = {
    PENDULUM: [*(("ppo", v) for v in VARIANTS), ("trpo", "mcclt")],
    "Noisy-v0": [("ppo", "mcclt"), ("trpo", "plain")],
    "CartPole-v1": [("ppo", "plain"), ("trpo", "mcclt")],
    "Acrobot-v1": [(algo, v) for algo in ("ppo", "trpo") for v in PAPER_VARIANTS],
}


@pytest.mark.parametrize(
    "task", [pytest.param(name, marks=() if name == "Noisy-v0" else pytest.mark.slow) for name in POPULATIONS]
)
def test_every_variant_trains_in_one_population(trainer_of, task: str) -> None:
    groups = {f"{algo}:{v}": variant(v, algo) for algo, v in POPULATIONS[task]}
    trainer = trainer_of(run_config(task, groups=groups))
    before = {name: jax.tree.map(np.asarray, state) for name, state in trainer.states.items()}
    rows = train(trainer, 2)
    assert [(r["group"], r["seed"]) for r in rows[-len(trainer.agents) :]] == trainer.agents
    for row in rows:
        assert all(np.isfinite(v) for v in row.values() if isinstance(v, float)), row
        assert row["weight/mean"] == pytest.approx(
            1.0 if row["group"].endswith(("plain", "qr", "nw")) or row["weight/search_failed"] else 0.9, abs=2e-3
        )
    for name, state in trainer.states.items():
        for part in ("policy", "critic"):
            old, new = jax.tree.leaves(getattr(before[name], part)), jax.tree.leaves(getattr(state, part))
            assert any((x != y).any() for x, y in zip(old, new, strict=True)), f"{name}: the {part} learnt nothing"
        assert state.update.tolist() == [2]


def test_rows_are_complete(trainer_of) -> None:
    trainer = trainer_of(run_config(groups={"mcclt": variant("mcclt")}, eval_freq=32, eval_episodes=3, steps=64))
    rows = train(trainer, 4)
    assert [(r["update"], r["step"]) for r in rows] == [(1, 16), (2, 32), (3, 48), (4, 64)]
    assert ["eval/mean_reward" in r for r in rows] == [False, True, False, True]
    wanted = "train/approx_kl value/normality_error value/std weight/mean weight/temperature time/fps train/value_loss"
    assert set(wanted.split()) <= set(rows[0])
    assert {"rollout/ep_rew_mean", "rollout/ep_len_mean"} <= set(rows[-1])
    assert trainer.finished


def test_evaluation_repeats_and_leaves_training_alone(trainer_of) -> None:
    config = run_config()
    a, b = trainer_of(config), trainer_of(config)
    train(a, 1), train(b, 1)
    first, again, other = a.evaluate(3, 0), a.evaluate(3, 0), a.evaluate(3, 1)
    np.testing.assert_array_equal(first, again)
    assert (first[0] != other[0]).any()
    train(a, 1), train(b, 1)
    same(a, b)


# --- resuming ----------------------------------------------------------------------------------------------


def stored(trainer: Trainer, path: Path) -> tuple[checkpoint.Arrays, dict[str, Any], Path]:
    """A trainer's checkpoint after a trip to the disk."""
    checkpoint.save(path, *trainer.to_checkpoint())
    return *checkpoint.load(path), path


def resumed(trainer_of, trainer: Trainer, tmp_path: Path, env: object | None = None) -> tuple[Trainer, bool]:
    new = trainer_of(trainer.config, env)
    exact = new.restore(*stored(trainer, tmp_path / "x.safetensors"))
    return new, exact


RESUMABLE = {
    "pendulum": run_config(groups={"plain": variant("plain"), "mcclt": variant("mcclt")}, seeds=(0, 3)),
    "ensemble": run_config(groups={"ensemble": variant("ensemble")}),
    "trpo": run_config(groups={"trpo": variant("mcclt", "trpo")}),
    "ant": run_config("Ant-v4"),
}


@pytest.mark.parametrize(
    "name", [pytest.param(n, marks=pytest.mark.slow if n != "pendulum" else ()) for n in RESUMABLE]
)
@pytest.mark.parametrize("after", [0, 2])
def test_resumed_is_uninterrupted(trainer_of, tmp_path: Path, name: str, after: int) -> None:
    config = RESUMABLE[name]
    straight, first = trainer_of(config), trainer_of(config)
    rows = train(straight, 4)
    train(first, after)
    second, exact = resumed(trainer_of, first, tmp_path)
    assert exact and second.update == after
    more = train(second, 4 - after)
    same(straight, second)
    assert timeless(rows)[after * len(straight.agents) :] == timeless(more)


class At:
    """Does something at the n-th call, then behaves."""

    def __init__(self, function: Callable[..., Any], n: int, error: type[BaseException] = KeyboardInterrupt) -> None:
        self.function, self.left, self.error = function, n, error

    def __call__(self, *args: Any) -> Any:
        self.left -= 1
        if self.left == 0:
            raise self.error
        return self.function(*args)


class Silent:
    def __init__(self, interrupt_at: int = 0) -> None:
        self.interrupt_at, self.messages = interrupt_at, []

    def on_update(self, trainer: Trainer, rows: list[Row]) -> None:
        if trainer.update == self.interrupt_at:
            raise KeyboardInterrupt

    def on_message(self, text: str) -> None:
        self.messages.append(text)


def interrupt(trainer: Trainer, where: str) -> None:
    """Arranges for Ctrl-C in the middle of the third update."""
    match where:
        case "first step":
            trainer.env.step = At(trainer.env.step, 1)  # type: ignore[method-assign]
        case "step":
            trainer.env.step = At(trainer.env.step, 2 * 8 + 5)  # type: ignore[method-assign]
        case "learning of the second group":
            names, program = trainer._improve.step.programs[1]
            trainer._improve.step.programs[1] = names, At(program, 3)
        case "evaluation":
            trainer.backend.evaluation = At(trainer.backend.evaluation, 3)  # type: ignore[method-assign]


INTERRUPTED = {"eval_freq": 16, "eval_episodes": 1, "steps": 80}


@pytest.mark.parametrize("where", ["first step", "step", "learning of the second group", "evaluation", "observer"])
def test_an_interrupted_run_resumes_exactly(trainer_of, tmp_path: Path, where: str) -> None:
    config = run_config(groups={"a": agent(critic="plain"), "b": agent(critic="plain", gamma=0.9)}, **INTERRUPTED)
    straight, broken = trainer_of(config), trainer_of(config)
    run(straight, [Silent()])
    interrupt(broken, where)
    kept = []
    with pytest.raises(KeyboardInterrupt):
        run(broken, [Silent(3 if where == "observer" else 0)], lambda: kept.append(stored(broken, tmp_path / "x")))
    second = trainer_of(config)
    assert second.restore(*kept[-1])
    assert second.update == {"first step": 0, "observer": 3}.get(where, 2)
    run(second, [Silent()])
    same(straight, second)


def test_whatever_an_observer_raises_a_checkpoint_is_written(trainer_of, tmp_path: Path) -> None:
    class Fails(Silent):
        def on_update(self, trainer: Trainer, rows: list[Row]) -> None:
            if trainer.update == 2:
                raise ZeroDivisionError

    trainer, kept = trainer_of(run_config(groups={"a": agent(critic="plain")}, steps=80)), []
    with pytest.raises(ZeroDivisionError):
        run(trainer, [Fails()], lambda: kept.append(trainer.to_checkpoint()[1]["update"]))
    assert kept == [2]

    def full() -> None:
        raise OSError("full")

    with pytest.raises(ZeroDivisionError):  # what went wrong first is told
        run(trainer_of(run_config(groups={"a": agent(critic="plain")}, steps=80)), [Fails()], full)


@pytest.mark.parametrize("lost", ["env/", "obs", "stats/", "agents/"])
def test_what_does_not_fit_leaves_the_trainer_as_it_was(trainer_of, lost: str) -> None:
    config = run_config(groups={"a": agent(critic="plain")})
    first, second = trainer_of(config), trainer_of(config)
    train(first, 1)
    arrays, meta = first.to_checkpoint()
    gone = sorted(name for name in arrays if name.startswith(lost))[-1]
    with pytest.raises(CheckpointError, match="missing or has a wrong shape"):
        second.restore({k: v for k, v in arrays.items() if k != gone}, meta, "file")
    assert second.update == 0
    same(second, trainer_of(config))


@pytest.mark.parametrize("where", ["step", "learning of the second group", "evaluation"])
def test_an_interrupted_trainer_goes_on_exactly(trainer_of, where: str) -> None:
    """As in a notebook: stop `learn`, call it again."""
    config = run_config(groups={"a": agent(critic="plain"), "b": agent(critic="plain", gamma=0.9)}, **INTERRUPTED)
    straight, broken = trainer_of(config), trainer_of(config)
    run(straight, [Silent()])
    interrupt(broken, where)
    with pytest.raises(KeyboardInterrupt):
        run(broken, [Silent()])
    run(broken, [Silent()])
    same(straight, broken)


def test_saves_where_it_is_due(trainer_of) -> None:
    trainer = trainer_of(run_config(checkpoint_freq=40, steps=112))
    saved: list[int] = []
    run(trainer, [Silent()], lambda: saved.append(trainer.update))
    assert saved == [3, 5, 7], "at 48 and 80 steps, the first boundaries after 40 and 80, and at the end"


def test_steps_are_rounded_up(trainer_of) -> None:
    trainer = trainer_of(run_config(steps=17))
    run(trainer, [Silent()])
    assert trainer.step == 32


@pytest.mark.parametrize("after", [0, 2])
def test_other_engines_start_new_episodes(trainer_of, tmp_path: Path, after: int) -> None:
    config = run_config("Noisy")
    first = trainer_of(config, Noisy)
    train(first, after)
    second, exact = resumed(trainer_of, first, tmp_path, Noisy)
    assert exact == (after == 0)
    assert_same(first.states, second.states)
    assert second.update == after
    assert second.stats.returns == first.stats.returns
    assert (second.stats.running == 0).all() and (second.stats.length == 0).all()
    fresh = trainer_of(config, Noisy)
    train(second, 1), train(fresh, 1)
    assert second.update == after + 1
    began = second.boundary.obs, fresh.boundary.obs  # type: ignore[union-attr]
    assert (began[0] == began[1]).all() == (after == 0), "not the episodes the run began with"


def test_interrupted_before_the_first_new_episode_keeps_the_past(trainer_of, tmp_path: Path) -> None:
    """Resumed on such an engine and interrupted at once: the second checkpoint holds what the first did."""
    first = trainer_of(run_config("Noisy"), Noisy)
    train(first, 2)
    second, _ = resumed(trainer_of, first, tmp_path, Noisy)
    third, _ = resumed(trainer_of, second, tmp_path, Noisy)
    assert third.stats.returns == first.stats.returns


def test_refuses_a_checkpoint_of_another_task(trainer_of, tmp_path: Path) -> None:
    one = trainer_of(run_config())
    other = trainer_of(run_config("InvertedDoublePendulum-v4"))
    with pytest.raises(CheckpointError, match=r"other settings \(task\)"):
        other.restore(*stored(one, tmp_path / "x"))


def test_refuses_a_checkpoint_of_other_agents(trainer_of, tmp_path: Path) -> None:
    one = trainer_of(run_config())
    for config in (
        run_config(seeds=(0, 1)),
        run_config(groups={"plain": agent(critic="plain", critic_hidden=(9,))}),
        run_config(groups={"other": agent(critic="plain")}),
    ):
        with pytest.raises(CheckpointError):
            trainer_of(config).restore(*stored(one, tmp_path / "x"))


# --- faults ------------------------------------------------------------------------------------------------


def spoilt(trainer_of, on_nan: str, kind: str = "nan obs", at: int = 12, upto: int | None = None) -> Trainer:
    """Three seeds with two environments; the second environment of seed 7 goes wrong in its second update."""
    config = run_config("Noisy", seeds=(4, 7, 9), on_nan=on_nan, steps=80)
    return trainer_of(config, factory(kind, at, which=(3,), upto=upto))


@pytest.mark.parametrize(
    "kind, what", [("nan obs", "nan"), ("inf reward", "inf"), ("raise", "RuntimeError: the motor [/burns] is [out]")]
)
def test_raise_names_everything_and_saves(trainer_of, kind: str, what: str) -> None:
    trainer = spoilt(trainer_of, "raise", kind)
    saved = []
    with pytest.raises(EnvironmentFault) as caught:
        run(trainer, [Silent()], lambda: saved.append(trainer.to_checkpoint()[1]["update"]))
    text = str(caught.value)
    # The twelfth step of the environment is the fourth of update 1, so its agent's steps 23 and 24.
    assert "Environment 1 of seed 7" in text and what in text and "step 22" in text
    assert saved == [1]


def test_stop_stops_that_agent_only(trainer_of) -> None:
    healthy = trainer_of(run_config("Noisy", seeds=(4, 7, 9), steps=80), factory())
    trainer, watcher = spoilt(trainer_of, "stop"), Silent()
    rows: list[Row] = []
    watcher.on_update = lambda _, new: rows.extend(new)  # type: ignore[method-assign, assignment]
    run(healthy, [Silent()])
    run(trainer, [watcher])
    assert trainer.update == 5 and trainer.finished
    assert [s == "training" for s in trainer.status] == [True, False, True]
    assert len(watcher.messages) == 1 and "seed 7" in watcher.messages[0] and "nan" in watcher.messages[0]
    assert [(r["seed"], r["update"]) for r in rows if r["seed"] == 7] == [(7, 1)]
    for i in (0, 2):
        assert_same(one_of(trainer.states, i), one_of(healthy.states, i))
    assert all(np.isfinite(x).all() for x in jax.tree.leaves(trainer.states)), "what it knew is kept"


def test_all_stopped_is_finished(trainer_of) -> None:
    trainer = trainer_of(run_config("Noisy", on_nan="stop"), factory("raise", 3, which=(0,)))
    run(trainer, [Silent()])
    assert trainer.update == 1 and trainer.finished


def test_restart_goes_on_learning(trainer_of) -> None:
    healthy = trainer_of(run_config("Noisy", seeds=(4, 7, 9), steps=80), factory())
    trainer, watcher = spoilt(trainer_of, "restart"), Silent()
    run(healthy, [Silent()])
    policies = []
    watcher.on_update = lambda t, _: policies.append(t.policies()["log_std"])  # type: ignore[method-assign, assignment]
    run(trainer, [watcher])
    assert trainer.status == ["training"] * 3
    assert (policies[0][1] == policies[1][1]).all(), "nothing was learnt from the bad rollout"
    assert (policies[1][1] != policies[2][1]).any(), "learnt again from the next"
    assert any("seed 7" in text for text in watcher.messages), "a restart is no secret"
    for i in (0, 2):
        assert_same(one_of(trainer.states, i), one_of(healthy.states, i))


def test_no_metrics_of_an_update_that_did_not_happen(trainer_of) -> None:
    """The row of an agent that was restarted must not show what its empty rollout would have given."""
    trainer = spoilt(trainer_of, "restart")
    rows = train(trainer, 3)
    bad = next((r for r in rows if (r["seed"], r["update"]) == (7, 2)), {})
    assert not any(k.startswith(("train/", "value/", "weight/")) for k in bad)


def test_failing_again_at_once_stops_the_agent(trainer_of) -> None:
    trainer, watcher = spoilt(trainer_of, "restart", "raise", at=12, upto=10**9), Silent()
    run(trainer, [watcher])
    assert [s == "training" for s in trainer.status] == [True, False, True]
    assert "seed 7" in watcher.messages[-1]


def test_a_resumed_run_remembers_the_last_fault(trainer_of, tmp_path: Path) -> None:
    """Fault, checkpoint, resume, fault: the same as without the checkpoint, the agent stops."""
    trainer = spoilt(trainer_of, "restart", "raise", at=12, upto=10**9)
    train(trainer, 2)
    second, _ = resumed(trainer_of, trainer, tmp_path, factory("raise", 1, which=(10,), upto=10**9))
    train(second, 1)  # restoring makes the environments anew: number 10 is the second round's number 3
    assert second.status[1] != "training"


@pytest.mark.parametrize("on_nan", ["raise", "stop"])
def test_a_first_observation_that_is_not_a_number(trainer_of, on_nan: str) -> None:
    trainer = trainer_of(run_config("NanStart", on_nan=on_nan), NanStart)
    if on_nan == "raise":
        with pytest.raises(EnvironmentFault, match="nan"):
            run(trainer, [Silent()])
    else:
        run(trainer, [Silent()])
        assert trainer.status[0] != "training"
    assert all(np.isfinite(x).all() for x in jax.tree.leaves(trainer.states))


def test_a_fault_while_evaluating_is_not_hidden(trainer_of) -> None:
    """Training goes well, the evaluation's environments do not: the return NaN is no result."""

    class Sour(Noisy):
        made = 0

        def __init__(self) -> None:
            super().__init__()
            Sour.made += 1
            self.bad = Sour.made > 3  # one to look at, two to train in

        def step(self, action: np.ndarray):
            obs, reward, *rest = super().step(action)
            return (obs, float("nan") if self.bad else reward, *rest)

    trainer = trainer_of(run_config("Sour", eval_freq=16, eval_episodes=2), Sour)
    with pytest.raises(EnvironmentFault):
        trainer.advance()


# --- the rest ----------------------------------------------------------------------------------------------


def test_crossed() -> None:
    assert [s for s in range(16, 161, 16) if crossed(s, 16, 40)] == [48, 80, 128, 160]
    assert all(crossed(s, 16, 10) for s in range(16, 161, 16))


@pytest.mark.parametrize("task", [PENDULUM, "CartPole-v1"])
def test_spec_round_trip(trainer_of, task: str) -> None:
    import json

    spec = trainer_of(run_config(task)).spec
    again = spec_from_dict(json.loads(json.dumps(spec_to_dict(spec))))
    assert spec_to_dict(again) == spec_to_dict(spec) and again.discrete == spec.discrete


def test_spec_with_infinite_bounds_survives_json(trainer_of, tmp_path: Path) -> None:
    class Unbounded(Noisy):
        action_space = gym.spaces.Box(-np.inf, np.inf, (2,), np.float32)

    first = trainer_of(run_config("Unbounded"), Unbounded)
    train(first, 1)
    second, _ = resumed(trainer_of, first, tmp_path, Unbounded)
    assert second.spec.action_high is not None and np.isinf(second.spec.action_high).all()


@pytest.mark.parametrize(
    "settings, message",
    [
        ({"critic": "nomal"}, "Unknown critic 'nomal'. Did you mean 'normal'"),
        ({"weighting": "acuracy"}, "Unknown weighting 'acuracy'. Did you mean 'accuracy'"),
        ({"algo": "pppo"}, "Unknown algo 'pppo'. Did you mean 'ppo'"),
        ({"critic": "plain", "weighting": "accuracy"}, "needs a critic with an error"),
        ({"critic": "ensemble", "members": 1}, "members of at least 2"),
        ({"critic": "ensemble", "members": 17}, "members = 17 is more than"),
    ],
)
def test_refuses_what_does_not_fit_together(settings: dict[str, Any], message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        Trainer(run_config(groups={"a": agent(**settings)}))


def test_refusals_come_with_a_closed_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    closed = []

    class Watched(Noisy):
        def close(self) -> None:
            closed.append(self)

    with pytest.raises(MccltError):
        Trainer(run_config("Watched", groups={"a": agent(critic="nomal")}), Watched)
    assert len(closed) == 3, "the one looked at, and the two made"
