"""Stable-Baselines3's own callbacks, wrappers and functions with our models, and docs/from_sb3.md against both."""

import csv
import importlib.util
import inspect
import json
import os
import re
import subprocess
import sys
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import gymnasium as gym
import jax
import numpy as np
import pytest

if importlib.util.find_spec("stable_baselines3") is None:
    pytest.skip("needs Stable-Baselines3: pip install 'mcclt[sb3]'", allow_module_level=True)

import stable_baselines3
from stable_baselines3.common import callbacks, logger
from stable_baselines3.common.evaluation import evaluate_policy
from stable_baselines3.common.monitor import Monitor
from stable_baselines3.common.vec_env import DummyVecEnv, SubprocVecEnv, VecMonitor, VecNormalize

from mcclt import PPO, TRPO
from mcclt.config import AgentConfig, RunConfig
from mcclt.config.values import fields_of
from mcclt.errors import ConfigError
from mcclt.method import normalisation
from probes import OURS, Counter, Noisy, ShiftedActions, counter_length

CALLS = OURS["steps_per_update"] // OURS["n_envs"]  # of on_step per update: 8
OBS = np.random.default_rng(0).normal(size=(5, 3)).astype(np.float32)


def make(env: Any = Noisy, cls: Any = PPO, **settings: Any) -> Any:
    return cls(env, **(OURS | {"critic": "plain"} | settings))


def theirs(**settings: Any) -> Any:
    envs = stable_baselines3.common.env_util.make_vec_env(Noisy, OURS["n_envs"])
    return stable_baselines3.PPO("MlpPolicy", envs, n_steps=CALLS, batch_size=16, n_epochs=1, device="cpu", **settings)


class Diary(callbacks.BaseCallback):
    """Writes down what it is told."""

    def __init__(self, stop_at: int | None = None) -> None:
        super().__init__()
        self.events: list[Any] = []
        self.steps: list[dict[str, Any]] = []
        self.stop_at = stop_at

    def _on_training_start(self) -> None:
        self.events.append(("training start", self.num_timesteps, self.locals["total_timesteps"]))

    def _on_rollout_start(self) -> None:
        self.events.append("rollout start")

    def _on_step(self) -> bool:
        self.events.append((self.n_calls, self.num_timesteps, self.model.num_timesteps))
        self.steps.append({k: self.locals[k] for k in ("rewards", "dones", "infos", "new_obs")})
        return self.n_calls != self.stop_at

    def _on_rollout_end(self) -> None:
        self.events.append("rollout end")

    def _on_training_end(self) -> None:
        self.events.append("training end")


# --- callbacks ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize("stop_at", [None, 11])
def test_calls_are_those_of_stable_baselines3(stop_at: int | None) -> None:
    ours, model = Diary(stop_at), make()
    assert model.learn(40, callback=ours) is model
    reference = Diary(stop_at)
    theirs().learn(40, callback=reference)
    assert ours.events == reference.events
    assert ours.model is model and model.num_timesteps == (48 if stop_at is None else 32)
    for mine, other in zip(ours.steps, reference.steps, strict=True):
        for name in ("rewards", "dones", "new_obs"):
            assert mine[name].shape == other[name].shape and mine[name].dtype == other[name].dtype
        assert len(mine["infos"]) == 2


def test_learning_again_goes_on_counting() -> None:
    diary, model = Diary(), make().learn(16)
    model.learn(16, callback=diary)
    model.learn(16, callback=diary)
    assert diary.events[0] == ("training start", 16, 32) and diary.n_calls == 2 * CALLS
    assert diary.events[-3] == (2 * CALLS, 48, 48)


def test_locals_are_the_steps_that_were_made() -> None:
    diary, model = Diary(), make(env=Counter)
    model.learn(48, callback=diary)
    trainer = model._trainer
    assert not hasattr(trainer.env, "take"), "the training environments are the trainer's own again"
    episodes = [i["episode"] for step in diary.steps for i in step["infos"] if "episode" in i]
    assert [e["r"] for e in episodes] == list(trainer.stats.returns[0])
    assert [e["l"] for e in episodes] == list(trainer.stats.lengths[0])
    for step in diary.steps:
        for e, info in enumerate(step["infos"]):
            assert ("episode" in info) == step["dones"][e]
            if step["dones"][e]:
                length = int(info["terminal_observation"][0])
                assert step["new_obs"][e][0] == 0 and length == info["episode"]["l"]
                assert info["TimeLimit.truncated"] == (length == counter_length(1))


def test_the_policy_is_the_updated_one_and_callbacks_change_nothing(tmp_path: Path) -> None:
    seen = []

    class Look(callbacks.BaseCallback):
        def _on_step(self) -> bool:
            seen.append(self.model.predict(OBS, deterministic=True)[0])
            return True

    model = make(seed=[3, 8]).learn(32, callback=Look())
    assert len(seen) == 2 * CALLS and (seen[CALLS - 1] != seen[CALLS]).any()
    np.testing.assert_array_equal(seen[-1], model.predict(OBS, deterministic=True, seed=3)[0])
    np.testing.assert_array_equal(seen[CALLS], seen[-1])
    alone = make(seed=[3, 8]).learn(32)
    for seed in (3, 8):
        np.testing.assert_array_equal(*(m.predict(OBS, deterministic=True, seed=seed)[0] for m in (model, alone)))


def test_stopping_leaves_everything_saved(tmp_path: Path) -> None:
    model = make()
    model.learn(160, callback=Diary(stop_at=11), log_dir=tmp_path / "run")
    assert model.num_timesteps == 32
    assert len((tmp_path / "run" / "metrics.jsonl").read_text().splitlines()) == 2
    loaded = PPO.load(tmp_path / "run", env=Noisy)
    assert loaded.num_timesteps == 32
    np.testing.assert_array_equal(*(m.predict(OBS, deterministic=True)[0] for m in (model, loaded)))
    assert model.learn(16).num_timesteps == 48


def test_ours_and_theirs_together() -> None:
    class Observer:
        updates = 0

        def on_update(self, trainer: Any, rows: list[Any]) -> None:
            self.updates += 1

        def on_message(self, text: str) -> None: ...

    observer, diary = Observer(), Diary()
    make().learn(48, callback=[observer, diary])
    assert observer.updates == 3 and diary.n_calls == 3 * CALLS


def test_an_error_in_a_callback_is_the_users_own() -> None:
    class Failing(Diary):
        def _on_step(self) -> bool:
            raise ZeroDivisionError

    failing, model = Failing(), make()
    with pytest.raises(ZeroDivisionError):
        model.learn(32, callback=failing)
    assert failing.events[-1] == "rollout start" and model.num_timesteps == 16
    assert not hasattr(model._trainer.env, "take") and model.learn(16).num_timesteps == 32


@pytest.mark.parametrize("callback", [3, Diary, ["x"]])
def test_what_is_no_callback(callback: Any) -> None:
    with pytest.raises(ConfigError, match=r"callback = .* is not allowed"):
        make().learn(16, callback=callback)


# --- every callback of the table ---------------------------------------------------------------------------


def eval_callback(eval_freq: int = 6, **settings: Any) -> Any:
    return callbacks.EvalCallback(Monitor(Counter()), n_eval_episodes=2, eval_freq=eval_freq, verbose=0, **settings)


def counter(**settings: Any) -> Any:
    return make(env=Counter, **settings)


def check_base(tmp_path: Path) -> None:
    diary = Diary()
    make().learn(16, callback=diary)
    assert diary.n_calls == CALLS and diary.training_env is diary.model.get_env()


def check_list(tmp_path: Path) -> None:
    for together in (lambda *x: callbacks.CallbackList([*x]), lambda *x: [*x]):
        first, second = Diary(), Diary()
        make().learn(16, callback=together(first, second))
        assert first.events == second.events and first.n_calls == CALLS


def check_checkpoint(tmp_path: Path) -> None:
    make().learn(48, callback=callbacks.CheckpointCallback(10, str(tmp_path), save_vecnormalize=True))
    assert sorted(os.listdir(tmp_path)) == ["rl_model_20_steps.safetensors", "rl_model_40_steps.safetensors"]
    assert PPO.load(tmp_path / "rl_model_20_steps.zip").num_timesteps == 32


def check_convert(tmp_path: Path) -> None:
    told = []

    def callback(local: dict[str, Any], world: dict[str, Any]) -> bool:
        told.append(local["self"].num_timesteps)
        return len(told) < 3

    model = make().learn(48, callback=callback)
    assert told == [2, 4, 6] and model.num_timesteps == 16


def check_eval(tmp_path: Path) -> None:
    where = {"log_path": str(tmp_path), "best_model_save_path": str(tmp_path / "best")}
    callback = eval_callback(**where)
    model = counter(seed=[3, 8]).learn(48, callback=callback)
    with np.load(tmp_path / "evaluations.npz") as file:
        assert file["timesteps"].tolist() == [12, 24, 36, 48]
        assert file["results"].tolist()[0] == [6, 15] and file["ep_lengths"].tolist()[0] == [3, 5]
    assert callback.best_mean_reward == 10.5 and model.num_timesteps == 48
    assert PPO.load(tmp_path / "best" / "best_model").num_timesteps == 16


def check_event(tmp_path: Path) -> None:
    class Always(callbacks.EventCallback):
        def _on_step(self) -> bool:
            return self._on_event()

    inner = Diary()
    make().learn(16, callback=Always(inner))
    assert inner.n_calls == CALLS and inner.steps[0]["rewards"].shape == (2,)


def check_every(tmp_path: Path) -> None:
    inner = Diary()
    make().learn(48, callback=callbacks.EveryNTimesteps(20, inner))
    assert [e[1] for e in inner.events[1:]] == [20, 40]


def check_log_every(tmp_path: Path) -> None:
    model = make()
    model.set_logger(logger.configure(str(tmp_path), ["csv"]))

    def record(local: dict[str, Any], world: dict[str, Any]) -> bool:
        local["self"].logger.record("mine", local["self"].num_timesteps)
        return True

    model.learn(48, callback=[record, callbacks.LogEveryNTimesteps(20)])
    model.logger.close()
    assert [row["mine"] for row in read(tmp_path)] == ["16", "20", "32", "40", "48"]


def check_progress_bar(tmp_path: Path) -> None:
    pytest.importorskip("tqdm")
    bar = callbacks.ProgressBarCallback()
    model = make().learn(16)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # tqdm calls its bar experimental
        model.learn(32, callback=bar)
    assert bar.pbar.total == 32 and bar.pbar.n == 32


def check_max_episodes(tmp_path: Path) -> None:
    stop = callbacks.StopTrainingOnMaxEpisodes(5)
    model = counter().learn(96, callback=stop)
    # Each environment plays 3, 5, 3, 5, 3 steps: the fifth ends with step 19, of the third update.
    assert stop.n_episodes == 10 and stop.n_calls == 19 and model.num_timesteps == 48


def check_no_improvement(tmp_path: Path) -> None:
    stop = callbacks.StopTrainingOnNoModelImprovement(1)
    same = callbacks.EvalCallback(Monitor(Fixed()), callback_after_eval=stop, eval_freq=4, verbose=0)
    model = counter().learn(96, callback=same)
    assert stop.n_calls == 3 and model.num_timesteps == 32


def check_threshold(tmp_path: Path) -> None:
    for threshold, steps in ((10.0, 16), (11.0, 48)):
        stop = callbacks.StopTrainingOnRewardThreshold(threshold)
        assert counter().learn(48, callback=eval_callback(callback_on_new_best=stop)).num_timesteps == steps


class Fixed(Counter):
    """Every episode the same."""

    def reset(self, **settings: Any) -> Any:
        self.episode = -1
        return super().reset(**settings)


CALLBACKS: dict[str, Callable[[Path], None]] = {
    "BaseCallback": check_base,
    "CallbackList": check_list,
    "CheckpointCallback": check_checkpoint,
    "ConvertCallback": check_convert,
    "EvalCallback": check_eval,
    "EventCallback": check_event,
    "EveryNTimesteps": check_every,
    "LogEveryNTimesteps": check_log_every,
    "ProgressBarCallback": check_progress_bar,
    "StopTrainingOnMaxEpisodes": check_max_episodes,
    "StopTrainingOnNoModelImprovement": check_no_improvement,
    "StopTrainingOnRewardThreshold": check_threshold,
}


@pytest.mark.parametrize("name", CALLBACKS)
def test_callback(name: str, tmp_path: Path) -> None:
    CALLBACKS[name](tmp_path)


# --- evaluating and logging --------------------------------------------------------------------------------


def read(path: Path) -> list[dict[str, str]]:
    with open(path / "progress.csv", encoding="utf-8") as file:
        return list(csv.DictReader(file))


EVALUATORS: dict[str, Callable[[], Any]] = {
    "evaluate_policy": Counter,
    "Monitor": lambda: Monitor(Counter()),
    "DummyVecEnv": lambda: DummyVecEnv([Counter, Counter]),
    "VecMonitor": lambda: VecMonitor(DummyVecEnv([Counter, Counter])),
    "SubprocVecEnv": lambda: SubprocVecEnv([Counter, Counter]),
}


@pytest.mark.parametrize("name", EVALUATORS)
def test_evaluate_policy(name: str) -> None:
    env = EVALUATORS[name]()
    returns, lengths = evaluate_policy(make(env=Counter), env, 4, return_episode_rewards=True, warn=False)
    assert sorted(returns) == [6, 6, 15, 15] and sorted(lengths) == [3, 3, 5, 5]
    env.close()


@pytest.mark.parametrize("env", [ShiftedActions, "CartPole-v1", "FrozenLake-v1"])
def test_evaluate_policy_in_the_models_own_environments(env: Any) -> None:
    model = make(env=env, max_episode_steps=30)
    vec = model.get_env()
    assert vec.num_envs == 2 and model.get_env() is vec and isinstance(vec, DummyVecEnv)
    _, lengths = evaluate_policy(model, vec, 3, return_episode_rewards=True)
    assert len(lengths) == 3 and max(lengths) <= 30
    obs = vec.reset()
    assert all(vec.action_space.contains(a) for a in model.predict(obs)[0])


def test_one_agent_of_a_population() -> None:
    model = make(seed=[3, 8])
    for seed in (3, 8):
        env = Monitor(Noisy())
        env.reset(seed=0)
        alone = evaluate_policy(model.for_seed(seed), env, 3)
        env.reset(seed=0)

        class Chosen:
            def predict(self, obs: Any, state: Any, episode_start: Any, deterministic: bool, s: int = seed) -> Any:
                return model.predict(obs, state, episode_start, deterministic, seed=s)

        assert evaluate_policy(Chosen(), env, 3) == alone


@pytest.mark.parametrize("stop_at", [None, 3 * CALLS])
def test_evaluations_beside_training_delay_the_log_only(tmp_path: Path, stop_at: int | None) -> None:
    """On engine `warp` rows wait for their evaluation: no step is told twice, no line is lost."""
    pytest.importorskip("mujoco_warp", reason="MuJoCo Warp is not installed: pip install 'mcclt[gpu]'")
    model = make("HalfCheetah-v5", engine="warp", eval_freq=32, eval_episodes=2, max_episode_steps=40)
    model.set_logger(logger.configure(str(tmp_path), ["csv"]))
    diary = Diary(stop_at)
    diary._on_step = lambda: diary.n_calls != stop_at  # what a step was is not known here
    model.learn(80, callback=diary)
    model.logger.close()
    updates = 5 if stop_at is None else 3
    assert diary.n_calls == updates * CALLS
    assert diary.events.count("rollout start") == updates
    rows = read(tmp_path)
    assert [row["time/total_timesteps"] for row in rows] == [str(16 * u) for u in range(1, updates + 1)]
    assert [bool(row["eval/mean_reward"]) for row in rows] == [u % 2 == 0 for u in range(1, updates + 1)]


def test_the_logger_gets_every_update(tmp_path: Path) -> None:
    model = make(env=Counter, seed=[3, 8])
    model.set_logger(logger.configure(str(tmp_path), ["csv"]))
    model.learn(48, log_dir=tmp_path / "run")
    model.logger.close()
    rows = read(tmp_path)
    assert [row["time/total_timesteps"] for row in rows] == ["16", "32", "48"]
    ours = [json.loads(line) for line in (tmp_path / "run" / "metrics.jsonl").read_text().splitlines()]
    first = [row for row in ours if row["seed"] == 3]
    for row, mine in zip(rows, first, strict=True):
        assert float(row["train/value_loss"]) == pytest.approx(mine["train/value_loss"])
        assert float(row["rollout/ep_rew_mean"]) == pytest.approx(mine["rollout/ep_rew_mean"])


def test_nothing_is_imported_before_it_is_used() -> None:
    code = "import sys, mcclt.training.model; sys.exit('stable_baselines3' in sys.modules or 'torch' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0


# --- the tables --------------------------------------------------------------------------------------------

DOC = Path(__file__).parents[2] / "docs" / "from_sb3.md"


def table(heading: str) -> dict[str, tuple[list[str], str]]:
    """The table under a heading: SB3's name → our names (or the text of that cell), and the remark."""
    part = DOC.read_text(encoding="utf-8").split(f"\n## {heading}\n")[1].split("\n## ")[0]
    rows = {}
    for line in part.splitlines():
        if line.startswith("| `"):
            name, ours, remark = (cell.strip() for cell in line.strip("|").split(" |", 2))
            rows[name.strip("`")] = (re.findall(r"`(\w+)`", ours) or [ours], remark)
    return rows


def arguments(cls: Any) -> set[str]:
    return {*inspect.signature(cls).parameters} - {"_init_setup_model"}


def test_the_table_of_arguments() -> None:
    contrib = pytest.importorskip("sb3_contrib")
    rows = table("Constructor")
    assert set(rows) == arguments(stable_baselines3.PPO) | arguments(contrib.TRPO)
    known = {*fields_of(AgentConfig), *fields_of(RunConfig), *arguments(PPO)}
    for name, (ours, _) in rows.items():
        assert ours == ["–"] or set(ours) <= known, name
        if name in ours:
            continue
        for cls in (PPO, TRPO):
            with pytest.raises(ConfigError, match=f"^{name} is not an argument of {cls.__name__}: "):
                cls(Noisy, **{name: None})


def test_remarks_on_defaults() -> None:
    contrib = pytest.importorskip("sb3_contrib")
    rows = table("Constructor")
    found = {name: re.search(r"default ([\d.]+) \(SB3: ([\d.]+)\)", text) for name, (_, text) in rows.items()}
    stated = {name: match.groups() for name, match in found.items() if match}
    assert {"gae_lambda", "cg_max_steps"} <= set(stated)
    for name, (ours, reference) in stated.items():
        cls = contrib.TRPO if name.startswith("cg_") else stable_baselines3.PPO
        assert getattr(AgentConfig(), name) == float(ours)
        assert inspect.signature(cls).parameters[name].default == float(reference)


def test_the_table_of_methods() -> None:
    ours, reference = make(), theirs()
    reference.learn(16)
    ours.learn(16)
    for name, (mine, _) in table("Methods").items():
        assert hasattr(reference, name), name
        assert mine == ["–"] or hasattr(ours, mine[0]), name
        if mine == ["–"]:
            assert not hasattr(ours, name), f"{name} exists now"
    names = list(inspect.signature(stable_baselines3.PPO.predict).parameters)
    assert list(inspect.signature(PPO.predict).parameters)[: len(names)] == names
    assert list(inspect.signature(PPO.learn).parameters)[:3] == ["self", "total_timesteps", "callback"]


def test_the_table_of_callbacks() -> None:
    there = {
        name
        for name, value in vars(callbacks).items()
        if inspect.isclass(value) and issubclass(value, callbacks.BaseCallback)
    }
    rows = table("Callbacks")
    assert set(rows) == there == set(CALLBACKS)
    assert {works for (works,), _ in rows.values()} == {"yes"}


def test_the_table_of_evaluation() -> None:
    rows = table("Evaluating")
    homes = ("evaluation", "vec_env", "monitor")
    modules = [importlib.import_module(f"stable_baselines3.common.{home}") for home in homes]
    assert all(any(hasattr(module, name) for module in modules) for name in rows)
    assert {name for name, ((works,), _) in rows.items() if works == "yes"} == set(EVALUATORS)
    assert make().get_vec_normalize_env() is None


def test_the_table_of_vec_normalize() -> None:
    rows, reference = table("VecNormalize"), inspect.signature(VecNormalize).parameters
    assert set(rows) == set(reference)
    for name, (ours, _) in rows.items():
        assert ours == ["–"] or set(ours) <= {*fields_of(AgentConfig)}, name
    clips = reference["clip_obs"].default, reference["clip_reward"].default, reference["epsilon"].default
    assert clips == (normalisation.CLIP, normalisation.CLIP, normalisation.EPSILON)


def test_normalised_models_take_raw_observations_and_learn_the_statistics_of_vec_normalize() -> None:
    model, diary = make(normalize_obs=True, normalize_reward=True).learn(16), Diary()
    start, acted_on = jax.tree.map(lambda x: np.asarray(x)[0], model._states.norm), model._trainer._obs[0].copy()
    model.learn(32, callback=diary)
    norm = jax.tree.map(lambda x: np.asarray(x)[0], model._states.norm)
    env = Monitor(Noisy())
    env.reset(seed=0)
    raw, _ = env.reset()
    assert (
        model.predict(raw, deterministic=True)[0]
        != model._learner.policy.mode(jax.tree.map(lambda x: np.asarray(x)[0], model._states.policy), raw[None])
    ).any()
    evaluate_policy(model, env, 2)
    jax.tree.map(np.testing.assert_array_equal, norm, jax.tree.map(lambda x: np.asarray(x)[0], model._states.norm))

    reference = VecNormalize(DummyVecEnv([Noisy, Noisy]), gamma=model._learner.config.gamma)
    for rms, moments in ((reference.obs_rms, start.obs), (reference.ret_rms, start.returns)):
        rms.mean, rms.var, rms.count = moments.mean, moments.var, moments.count
    reference.returns = start.running.astype(np.float64)
    for step in diary.steps:
        reference.obs_rms.update(acted_on)
        reference._update_reward(step["rewards"])
        reference.returns[step["dones"]] = 0
        acted_on = step["new_obs"]
    for rms, moments in ((reference.obs_rms, norm.obs), (reference.ret_rms, norm.returns)):
        np.testing.assert_allclose(moments.mean, rms.mean, rtol=1e-4, atol=1e-5)
        np.testing.assert_allclose(moments.var, rms.var, rtol=1e-4)
        assert moments.count == 48
    np.testing.assert_allclose(norm.running, reference.returns, rtol=1e-4, atol=1e-5)


def test_the_example(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The code at the top of the page, with smaller numbers."""
    code = DOC.read_text(encoding="utf-8").split("```python\n")[1].split("```")[0]
    settings = ", ".join(f"{k}={v!r}" for k, v in OURS.items() if k not in ("n_envs", "steps_per_update"))
    for large, small in (
        ("1_000_000", "32"),
        ("4_000", "16"),
        ("5_000", "1"),
        ("10_000", "1"),
        ("n_envs=8", "n_envs=2"),
        ("Hopper-v5", "CartPole-v1"),
        ("seed=0", f"seed=0, critic='plain', {settings}"),
        ("n_eval_episodes=20", "n_eval_episodes=2"),
    ):
        assert large in code
        code = code.replace(large, small)
    monkeypatch.chdir(tmp_path)
    exec(code, {"gym": gym})
    assert (tmp_path / "best" / "best_model.safetensors").is_file() and len(os.listdir("checkpoints")) == 16
