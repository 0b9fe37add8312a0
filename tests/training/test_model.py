"""The user's view."""

import inspect
import json
import sys
import zipfile
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, ClassVar, get_type_hints

import gymnasium as gym
import numpy as np
import pytest

import mcclt
from mcclt import PPO, TRPO, evaluate_policy
from mcclt.config import AgentConfig, RunConfig
from mcclt.config.values import fields_of
from mcclt.envs import ENGINES
from mcclt.errors import CheckpointError, ConfigError, EnvironmentFault, MccltError, MissingExtraError, UnknownNameError
from mcclt.storage import checkpoint
from mcclt.training.arguments import ELSEWHERE, Settings
from mcclt.training.model import Model
from mcclt.training.saved import read_model
from mcclt.training.trainer import Trainer
from probes import OURS, PENDULUM, Counter, Noisy, ShiftedActions, agent, counter_length, factory, run_config


def make(cls: type[Model] = PPO, env: Any = PENDULUM, **settings: Any) -> Any:
    ours = {k: v for k, v in OURS.items() if cls is PPO or k != "policy_iterations"}
    return cls(env, **(ours | {"critic": "plain"} | settings))


@pytest.fixture(scope="module")
def trained() -> Iterator[Any]:
    yield make(critic="normal", seed=[3, 8]).learn(48)


OBS = np.random.default_rng(0).normal(size=(5, 9)).astype(np.float32)


def arrays_of(model: Any, tmp_path: Path) -> dict[str, np.ndarray]:
    return read_model(model.save(tmp_path / "compare"))[0]


def same(a: Any, b: Any, tmp_path: Path) -> None:
    x, y = arrays_of(a, tmp_path), arrays_of(b, tmp_path)
    assert x.keys() == y.keys()
    for name in x:
        np.testing.assert_array_equal(x[name], y[name], err_msg=name)


# --- making and learning -----------------------------------------------------------------------------------


def test_learn_counts_steps_and_returns_itself(trained: Any) -> None:
    assert trained.num_timesteps == 48 and trained.seeds == (3, 8)
    model = make()
    assert model.num_timesteps == 0
    assert model.learn(20) is model and model.num_timesteps == 32
    assert model.learn(16).num_timesteps == 48


def test_learning_in_parts_is_learning_at_once(tmp_path: Path) -> None:
    same(make().learn(64), make().learn(32).learn(16).learn(16), tmp_path)


@pytest.mark.parametrize("cls", [PPO, TRPO])
def test_learning_changes_the_policy(cls: type[Model]) -> None:
    model = make(cls)
    before = model.predict(OBS, deterministic=True)[0]
    after = model.learn(32).predict(OBS, deterministic=True)[0]
    assert (before != after).any()


@pytest.mark.parametrize("steps", [-1, -100])
def test_learning_backwards_is_refused(trained: Any, steps: int) -> None:
    with pytest.raises(ConfigError):
        trained.learn(steps)


def test_a_custom_class_and_a_factory() -> None:
    for env in (Noisy, lambda: Noisy()):
        model = make(env=env).learn(16)
        assert model.predict(np.zeros(3))[0].shape == (2,)
        assert np.isfinite(evaluate_policy(model, n_eval_episodes=2)[0])


def test_defaults_are_the_paper_pairing() -> None:
    model = PPO(PENDULUM, **OURS)
    assert model.config.groups["ppo-mcclt"].critic == "normal", "called as by `mcclt train`"
    assert inspect.signature(PPO.learn).parameters["progress_bar"].default is False


def test_progress_bar_and_log_dir(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    make().learn(48, progress_bar=True, log_dir=tmp_path / "run")
    assert len(capsys.readouterr().out.splitlines()) == 3
    assert len((tmp_path / "run" / "metrics.jsonl").read_text().splitlines()) == 3
    model = PPO.load(tmp_path / "run")
    assert model.num_timesteps == 48
    with pytest.raises(ConfigError, match=r"already in use: choose another directory \(--out, in Python log_dir\)"):
        model.learn(16, log_dir=tmp_path / "run")
    make().learn(16)
    assert capsys.readouterr().out == ""


@pytest.mark.parametrize(
    "settings, message",
    [
        ({"critic": "nomal"}, "Did you mean 'normal'"),
        ({"weighting": "acuracy"}, "Did you mean 'accuracy'"),
        ({"gama": 0.9}, "Unknown setting 'gama'. Did you mean 'gamma'"),
        ({"n_env": 2}, "Unknown setting 'n_env'. Did you mean 'n_envs'"),
        ({"gamma": "high"}, "gamma = 'high'"),
        ({"w_tar": 1.0}, "w_tar = 1.0"),
        ({"seed": []}, "at least one seed"),
        ({"seed": [1, 1]}, "without repetitions"),
        ({"seed": -1}, "^seed = -1 is not allowed"),
        ({"seed": 1.5}, "seed"),
        ({"seeds": [1, 2]}, "seed"),
        ({"steps": 100}, "learn"),
        ({"algo": "trpo"}, "algo"),
        ({"engine": "natve"}, "Did you mean 'native'"),
        ({"n_steps": 2048}, "n_steps is not an argument of PPO: use steps_per_update"),
        ({"policy_kwargs": {"net_arch": [64]}}, "use policy_hidden"),
        ({"preset": 3}, "^Unknown preset 3. Allowed: paper, modern, tuned.$"),
        ({"preset": ["modern"]}, "^Unknown preset .* Allowed: paper, modern, tuned.$"),
        ({"tensorboard_log": 3}, "^tensorboard_log = 3 is not allowed: it must be a path.$"),
    ],
)
def test_refusals(settings: dict[str, Any], message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        make(**settings)


def test_settings_are_numbers_of_numpy_too() -> None:
    numpy = {"learning_rate": np.float64(1e-3), "n_envs": np.int64(4), "normalize_obs": np.bool_(True)}
    model = make(**numpy, policy_hidden=np.array([8, 8]), critic_hidden=(np.int64(8),))
    (agent,) = model.config.groups.values()
    assert (agent.learning_rate, model.config.n_envs, agent.normalize_obs) == (1e-3, 4, True)
    assert (agent.policy_hidden, agent.critic_hidden) == ((8, 8), (8,))
    assert type(agent.learning_rate) is float and type(model.config.n_envs) is type(agent.policy_hidden[0]) is int
    with pytest.raises(ConfigError, match=r"policy_hidden = 64 is .*: it must be whole numbers such as \(64, 64\)\."):
        make(policy_hidden=64)


def test_a_setting_that_the_agent_does_not_read_is_refused() -> None:
    with pytest.raises(ConfigError, match=r"^clip_range has no effect: it is a setting of PPO, and this trains TRPO"):
        make(TRPO, clip_range=0.3)
    with pytest.raises(ConfigError, match=r"^cg_damping has no effect: it is a setting of TRPO, and this trains PPO"):
        make(cg_damping=0.1)
    with pytest.raises(
        ConfigError, match=r"^guide has no effect: it is a setting of the normal critic, and this has cri"
    ):
        make(critic="quantile", guide="symmetric")


def test_numpy_and_range_seeds() -> None:
    assert make(seed=np.int64(4)).seeds == (4,)
    assert make(seed=range(3)).seeds == (0, 1, 2)
    assert make(seed=np.array([1, 2])).seeds == (1, 2)


def test_an_environment_instance_is_refused() -> None:
    with pytest.raises(ConfigError, match="class or a function"):
        make(env=Noisy())


def test_a_wrapper_that_cannot_be_made_again() -> None:
    """Gymnasium's own keep how they were made; one of the user's need not."""

    class Doubled(gym.ObservationWrapper):
        def observation(self, observation: Any) -> Any:
            return 2 * observation

    wrapped = gym.wrappers.ClipAction(Doubled(gym.make("Pendulum-v1")))
    with pytest.raises(ConfigError, match=r"wrapper Doubled .* as  lambda: Doubled\(gym\.make\('Pendulum-v1'\)\)\.$"):
        make(env=wrapped)


def test_an_unknown_task() -> None:
    with pytest.raises(ConfigError, match="Did you mean 'Hopper-v5'"):
        make(env="Hoper-v5")


def test_a_broken_environment_says_so_and_can_be_repeated(tmp_path: Path) -> None:
    class Sick(Noisy):
        sick = True

        def step(self, action: np.ndarray):
            if self.sick and self.life == 12:
                raise ValueError("I am sick")
            return super().step(action)

    model = make(env=Sick)
    with pytest.raises(EnvironmentFault, match="I am sick"):
        model.learn(64)
    assert model.num_timesteps == 16
    Sick.sick = False
    assert model.learn(32).num_timesteps == 48


@pytest.mark.parametrize("cls, name", [(PPO, "learning_rate"), (TRPO, "target_kl")])
def test_a_policy_that_has_decayed_to_0_learns_no_more(cls: type[Model], name: str, tmp_path: Path) -> None:
    model = make(cls, **{f"{name}_end": 0}).learn(32)
    for one in (model, cls.load(model.save(tmp_path / "x"))):
        with pytest.raises(ConfigError, match=f"{name} of .* has decayed to 0 after 32 steps.*give decay_steps"):
            one.learn(16)
    assert make(cls, **{f"{name}_end": 0}, decay_steps=48).learn(32).learn(16).num_timesteps == 48


def test_decays_are_as_long_as_the_first_training_of_a_model_or_of_its_copies(tmp_path: Path) -> None:
    model = make(seed=[0, 1], learning_rate_end=0)
    copies = [PPO.load(model.save(tmp_path / "fresh")), model.for_seed(1), model]
    for one in copies:
        (agent,) = one.learn(32).config.groups.values()
        assert agent.decay_steps == 32
    same(copies[0], model, tmp_path)
    again = PPO.load(model.save(tmp_path / "x")).config.groups
    assert next(iter(again.values())).decay_steps == 32


def test_an_agent_that_is_stopped_is_no_secret() -> None:
    model = make(env=factory("nan reward", 12, which=(0,)), on_nan="stop")
    with pytest.warns(UserWarning, match=r"reward nan.* That agent is stopped"):
        model.learn(64)
    with pytest.raises(ConfigError, match=r"Every agent has been stopped.*seed 0.* at step 22"):
        model.learn(16)


# --- predicting --------------------------------------------------------------------------------------------


def test_one_observation_and_a_batch(trained: Any) -> None:
    one, state = trained.predict(OBS[0], deterministic=True)
    many, _ = trained.predict(OBS, deterministic=True)
    assert one.shape == (1,) and many.shape == (5, 1) and one.dtype == np.float32 and state is None
    np.testing.assert_allclose(one, many[0], rtol=1e-6)
    assert trained.predict(OBS.astype(np.float64).tolist(), deterministic=True)[0].tolist() == many.tolist()
    assert trained.predict(OBS[:0])[0].shape == (0, 1)
    assert trained.predict(OBS, "state")[1] == "state"


def test_random_draws(trained: Any) -> None:
    draws = np.array([trained.predict(OBS[0])[0] for _ in range(200)])
    assert len(np.unique(draws)) > 100
    mean = trained.predict(OBS[0], deterministic=True)[0]
    assert abs(np.clip(draws, -1, 1).mean() - mean) < 0.2
    assert (np.abs(draws) <= 1).all()


def test_within_bounds() -> None:
    model = make(env=Counter, log_std_init=3.0)
    actions = model.predict(np.ones((50, 2)))[0]
    assert (np.abs(actions) <= 0.25).all() and (np.abs(actions) == 0.25).any()


def test_which_agent_of_a_population(trained: Any) -> None:
    first, second = (trained.predict(OBS, deterministic=True, seed=s)[0] for s in (3, 8))
    assert (first != second).any()
    np.testing.assert_array_equal(trained.predict(OBS, deterministic=True)[0], first)
    alone = make(critic="normal", seed=8).learn(48)
    np.testing.assert_array_equal(alone.predict(OBS, deterministic=True)[0], second)
    with pytest.raises(ConfigError, match="no seed 5: it has 3, 8"):
        trained.predict(OBS, seed=5)


def test_one_agent_alone(trained: Any, tmp_path: Path) -> None:
    alone = trained.for_seed(8)
    assert type(alone) is PPO and alone.seeds == (8,) and alone.num_timesteps == 48
    for model in (alone, PPO.load(alone.save(tmp_path / "alone")), PPO.load(trained.save(tmp_path / "x")).for_seed(8)):
        for deterministic in (True, False):
            model._draws = trained._draws
            np.testing.assert_array_equal(
                model.predict(OBS, deterministic=deterministic)[0],
                trained.predict(OBS, deterministic=deterministic, seed=8)[0],
            )
        np.testing.assert_array_equal(model.value_distribution(OBS).bars, trained.value_distribution(OBS, seed=8).bars)
    before = trained.predict(OBS, deterministic=True, seed=8)[0]
    with pytest.warns(UserWarning, match="new episodes"):
        assert alone.learn(16).num_timesteps == 64
    np.testing.assert_array_equal(trained.predict(OBS, deterministic=True, seed=8)[0], before)
    with pytest.raises(ConfigError, match="no seed 5: it has 3, 8"):
        trained.for_seed(5)


def test_a_copy_of_the_only_agent_goes_on_exactly(tmp_path: Path) -> None:
    model = make(seed=3).learn(32)
    same(model.for_seed(3).learn(32), model.learn(32), tmp_path)


def test_discrete(tmp_path: Path) -> None:
    model = make(env="CartPole-v1").learn(16)
    obs = np.random.default_rng(0).normal(size=(40, 4))
    one = model.predict(obs[0], deterministic=True)[0]
    assert np.ndim(one) == 0 and np.issubdtype(np.asarray(one).dtype, np.integer)
    draws = model.predict(obs)[0]
    assert draws.shape == (40,) and set(draws.tolist()) == {0, 1}
    loaded = PPO.load(model.save(tmp_path / "x"))
    assert (loaded.predict(obs, deterministic=True)[0] == model.predict(obs, deterministic=True)[0]).all()


def test_actions_are_those_of_the_environment() -> None:
    """An action that `predict` gives can be sent to the user's own environment as it is."""
    model, env = make(env=ShiftedActions), ShiftedActions()
    assert np.isfinite(evaluate_policy(model, n_eval_episodes=2)[0])
    obs, _ = env.reset(seed=0)
    for deterministic in (True, False):
        assert env.action_space.contains(model.predict(obs, deterministic=deterministic)[0])


@pytest.mark.parametrize("shape", [(), (8,), (2, 8), (1, 1, 9), (0,)])
def test_wrong_shapes(trained: Any, shape: tuple[int, ...]) -> None:
    for use in (trained.predict, trained.value_distribution):
        given = ", ".join(map(str, shape))
        with pytest.raises(ConfigError, match=rf"has 9 numbers: .*\(9,\) or \(batch, 9\), not \({given}"):
            use(np.zeros(shape))


@pytest.mark.parametrize(
    "given, said",
    [((OBS[0], {}), "the first of the two that reset returns"), ({"a": 1}, "not a dict"), ("abc", "not a str")],
)
def test_what_is_no_array(trained: Any, given: Any, said: str) -> None:
    with pytest.raises(ConfigError, match=rf"has 9 numbers: .*\(batch, 9\), {said}\.$"):
        trained.predict(given)


# --- value distributions -----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "critic, bars",
    [
        ("plain", 1),
        ("normal", 8),
        *(pytest.param(c, n, marks=pytest.mark.slow) for c, n in (("quantile", 8), ("ensemble", 5))),
    ],
)
def test_value_distribution(critic: str, bars: int) -> None:
    model = make(critic=critic).learn(16)
    many, one = model.value_distribution(OBS), model.value_distribution(OBS[1])
    assert many.bars.shape == (5, bars) and one.bars.shape == (bars,)
    assert many.taus.shape == (bars,) and (np.diff(many.taus) > 0).all()
    for name in ("mean", "std", "error", "weight"):
        assert getattr(many, name).shape == (5,) and np.ndim(getattr(one, name)) == 0
        np.testing.assert_allclose(getattr(many, name)[1], getattr(one, name), rtol=1e-4, atol=1e-6)
    np.testing.assert_allclose(many.bars.mean(axis=1), many.mean, rtol=1e-5, atol=1e-6)
    assert (many.error >= 0).all()
    if critic in ("normal", "ensemble"):
        assert ((many.weight > 0.6) & (many.weight <= 1)).all() and len(np.unique(many.weight)) > 1
        assert (np.argsort(many.weight) == np.argsort(-many.error)).all(), "the better predicted, the heavier"
    else:
        assert (many.weight == 1).all()
    if critic == "plain":
        assert (many.std == 0).all() and (many.error == 0).all()


def test_value_distribution_of_each_agent(trained: Any) -> None:
    assert (trained.value_distribution(OBS, seed=3).mean != trained.value_distribution(OBS, seed=8).mean).any()


def test_before_learning_weights_are_one() -> None:
    assert (make(critic="normal").value_distribution(OBS).weight == 1).all()


# --- saving and loading ------------------------------------------------------------------------------------


def test_save_and_load(trained: Any, tmp_path: Path) -> None:
    path = trained.save(tmp_path / "model")
    assert path == tmp_path / "model.safetensors" and path.is_file()
    for loaded in (PPO.load(tmp_path / "model"), PPO.load(str(path)), mcclt.load(path)):
        assert type(loaded) is PPO and loaded.seeds == (3, 8) and loaded.num_timesteps == 48
        for seed in (3, 8):
            for deterministic in (True, False):
                fresh = PPO.load(path)
                fresh._draws = trained._draws
                np.testing.assert_array_equal(
                    fresh.predict(OBS, deterministic=deterministic, seed=seed)[0],
                    trained.predict(OBS, deterministic=deterministic, seed=seed)[0],
                )
            a, b = loaded.value_distribution(OBS, seed=seed), trained.value_distribution(OBS, seed=seed)
            for name in ("bars", "mean", "std", "error", "weight"):
                np.testing.assert_array_equal(getattr(a, name), getattr(b, name))
    assert PPO.load(path).save(tmp_path / "again").read_bytes()  # saved without a trainer


def test_names_with_dots(tmp_path: Path) -> None:
    model = make()
    assert model.save(tmp_path / "v1.2").name == "v1.2.safetensors"
    assert PPO.load(tmp_path / "v1.2").num_timesteps == 0
    assert model.save(tmp_path / "v1.3.zip").name == "v1.3.safetensors"
    assert PPO.load(tmp_path / "v1.3.zip").num_timesteps == 0


@pytest.mark.parametrize("after", [0, 32])
def test_loaded_and_learning_on_is_never_having_stopped(tmp_path: Path, after: int) -> None:
    straight, model = make().learn(64), make()
    if after:
        model.learn(after)
    loaded = PPO.load(model.save(tmp_path / "x"))
    again = PPO.load(loaded.save(tmp_path / "y"))  # also through a model that never learnt itself
    same(straight, loaded.learn(64 - after), tmp_path)
    same(straight, again.learn(64 - after), tmp_path)


def test_interrupted_learning_goes_on_exactly(tmp_path: Path) -> None:
    straight, model = make().learn(64), make()
    step, calls = model._trainer.env.step, [0]

    def interrupted(action: np.ndarray):
        calls[0] += 1
        if calls[0] == 20:
            raise KeyboardInterrupt
        return step(action)

    model._trainer.env.step = interrupted
    with pytest.raises(KeyboardInterrupt):
        model.learn(64)
    assert model.num_timesteps == 32
    same(straight, model.learn(32), tmp_path)


def test_a_custom_environment_after_loading(tmp_path: Path) -> None:
    path = make(env=Noisy).learn(16).save(tmp_path / "x")
    predicting = PPO.load(path)
    assert predicting.predict(np.zeros(3))[0].shape == (2,)
    said = r"Unknown task 'Noisy'.* trained with it: load it with your own environment, PPO\.load\(path, env=\.\.\.\)"
    with pytest.raises(ConfigError, match=said):
        predicting.learn(16)
    with pytest.raises(ConfigError, match=said):
        evaluate_policy(PPO.load(path))
    with pytest.warns(UserWarning, match="new episodes"):
        assert PPO.load(path, env=Noisy).learn(16).num_timesteps == 32
    assert evaluate_policy(PPO.load(path, env=Noisy), n_eval_episodes=1)[1] == 0
    with pytest.raises(MccltError):
        PPO.load(path, env=Counter).learn(16)


def test_loaded_for_other_environments_of_the_same_spaces(tmp_path: Path) -> None:
    class Noisier(Noisy):
        pass

    path = make(env=Noisy).learn(16).save(tmp_path / "x")
    with pytest.warns(UserWarning, match="new episodes"):
        moved = PPO.load(path, env=Noisier).learn(16)
    assert moved.num_timesteps == 32 and moved.config.task.endswith("Noisier")
    assert evaluate_policy(PPO.load(moved.save(tmp_path / "y"), env=Noisy), n_eval_episodes=1)[1] == 0

    path = make(engine="native").learn(16).save(tmp_path / "x")
    for env in (lambda: gym.wrappers.TimeLimit(gym.make(PENDULUM), 50), lambda: gym.make(PENDULUM)):
        with pytest.warns(UserWarning, match="new episodes"):
            assert PPO.load(path, env=env).learn(16).num_timesteps == 32


def test_where_its_engine_is_not_installed_a_model_goes_on_with_another(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = make(engine="native").learn(16).save(tmp_path / "x")
    monkeypatch.setattr(ENGINES["native"], "needs", ("nobody_has_this",))
    with pytest.warns(UserWarning, match="new episodes"):
        assert PPO.load(path).learn(16).num_timesteps == 32


def test_another_version_of_a_task_is_named(tmp_path: Path) -> None:
    loaded = PPO.load(make().learn(16).save(tmp_path / "x"))
    loaded._stored[1]["spec"]["max_episode_steps"] = 7
    with pytest.raises(CheckpointError, match=r"another version of .*: max_episode_steps was 7, and is 1000 now"):
        loaded.learn(16)


def test_the_wrong_class(tmp_path: Path) -> None:
    path = make(TRPO).save(tmp_path / "x")
    with pytest.raises(CheckpointError, match=r"trained with TRPO: load it with TRPO\.load"):
        PPO.load(path)
    assert type(mcclt.load(path)) is TRPO


def test_nothing_there(tmp_path: Path) -> None:
    for path in (tmp_path / "none", tmp_path):
        with pytest.raises(CheckpointError):
            PPO.load(path)
        with pytest.raises(CheckpointError):
            mcclt.load(path)


def test_a_model_needs_the_name_of_a_file(trained: Any, tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"called '\.' is not allowed"):
        trained.save(".")
    with zipfile.ZipFile(tmp_path / "theirs.zip", "w") as file:
        file.writestr("data", "{}")
    with pytest.raises(CheckpointError, match="not written by mcclt: it is a zip file"):
        PPO.load(tmp_path / "theirs.zip")


def test_a_model_with_a_critic_that_is_not_registered(trained: Any, tmp_path: Path) -> None:
    arrays, meta, _ = read_model(trained.save(tmp_path / "x"))
    (group,) = meta["config"]["groups"].values()
    group["critic"] = "gaussian"
    checkpoint.save(tmp_path / "own.safetensors", arrays, meta)
    with pytest.raises(ConfigError, match=r"Unknown critic 'gaussian'.* import the file that registers it first\.$"):
        PPO.load(tmp_path / "own")


def test_a_model_that_cannot_go_on_stays_what_was_loaded(tmp_path: Path) -> None:
    """`learn` fails, and fails again; nothing is trained from scratch, and saving keeps what there was."""
    model = PPO(PENDULUM, **OURS)
    model.learn(64)
    model.save(tmp_path / "good")
    loaded = PPO.load(tmp_path / "good")
    arrays, meta, source = loaded._stored
    loaded._stored = {k: v for k, v in arrays.items() if not k.endswith("log_std")}, meta, source
    for _ in range(2):
        with pytest.raises(CheckpointError, match="missing or has a wrong shape"):
            loaded.learn(64)
    loaded._stored = arrays, meta, source
    loaded.save(tmp_path / "again")
    again, same, _ = read_model(tmp_path / "again")
    assert same == meta and again.keys() == arrays.keys()
    for name, array in arrays.items():
        np.testing.assert_array_equal(again[name], array)


def test_a_group_of_several(tmp_path: Path) -> None:
    config = run_config(groups={"plain": agent(critic="plain"), "t": agent(critic="plain", algo="trpo")}, seeds=(0, 4))
    trainer = Trainer(config)
    trainer.advance()
    path = tmp_path / "x.safetensors"
    checkpoint.save(path, *trainer.to_checkpoint())
    trainer.close()
    for load in (PPO.load, mcclt.load):
        with pytest.raises(ConfigError, match="several groups: name one of them as the group: plain, t"):
            load(path)
        with pytest.raises(ConfigError, match="no group 'x'"):
            load(path, group="x")
    model = mcclt.load(path, group="t")
    assert type(model) is TRPO and model.seeds == (0, 4) and model.num_timesteps == 16
    assert model.config.engine == "native", "it keeps its engine, though alone it may be small enough for another"
    params = trainer.states["t"].policy["log_std"][1]
    np.testing.assert_array_equal(model._states.policy["log_std"][1], params)
    with pytest.warns(UserWarning, match="new episodes"):  # the environments' state is that of both groups
        assert model.learn(16).num_timesteps == 32
    assert mcclt.load(model.save(tmp_path / "t")).num_timesteps == 32


# --- evaluate_policy ---------------------------------------------------------------------------------------


def test_evaluate_policy() -> None:
    model = make(env=Counter)
    # Two environments: one plays episodes 0 and 1 (returns 6 and 15), the other episode 0.
    returns, lengths = evaluate_policy(model, n_eval_episodes=3, return_episode_rewards=True, n_envs=2)
    assert (returns, lengths) == ([6.0, 15.0, 6.0], [counter_length(0), counter_length(1), counter_length(0)])
    mean, std = evaluate_policy(model, n_eval_episodes=3, n_envs=2)
    assert mean == pytest.approx(9.0) and std == pytest.approx(np.std([6, 15, 6]))
    assert type(mean) is float and type(std) is float
    json.dumps(returns), json.dumps(lengths)


def test_evaluate_policy_signature() -> None:
    names = list(inspect.signature(evaluate_policy).parameters)
    assert names[:4] == ["model", "env", "n_eval_episodes", "deterministic"]
    assert inspect.signature(evaluate_policy).parameters["n_eval_episodes"].default == 10


def test_evaluate_policy_repeats_and_differs_by_agent(trained: Any) -> None:
    first = evaluate_policy(trained, n_eval_episodes=4, seed=3)
    assert first == evaluate_policy(trained, n_eval_episodes=4, seed=3)
    assert first != evaluate_policy(trained, n_eval_episodes=4, seed=8)
    random = evaluate_policy(trained, n_eval_episodes=4, seed=3, deterministic=False)
    assert first != random


def test_evaluate_policy_elsewhere(trained: Any) -> None:
    assert evaluate_policy(make(env=Noisy), Noisy, n_eval_episodes=1)[1] == 0
    with pytest.raises(ConfigError, match="cannot act in Hopper-v5: their spaces differ"):
        evaluate_policy(trained, "Hopper-v5")


@pytest.mark.parametrize("name", ["n_eval_episodes", "n_envs"])
@pytest.mark.parametrize("count", [0, -3, 1.5, "3"])
def test_evaluate_policy_needs_episodes_and_environments(trained: Any, name: str, count: int) -> None:
    with pytest.raises(ConfigError, match=f"^{name} = {count!r} is not allowed: it must be a positive whole number"):
        evaluate_policy(trained, **{name: count})


def test_evaluate_policy_takes_what_load_takes(trained: Any, tmp_path: Path) -> None:
    assert evaluate_policy(trained.save(tmp_path / "x"), n_eval_episodes=2) == evaluate_policy(trained, None, 2)
    with pytest.raises(UnknownNameError, match="Did you mean 'Hopper-v5'"):
        evaluate_policy("zoo:Hoper-v5")
    with pytest.raises(
        ConfigError, match=r"^model = 3 is not allowed: it must be a PPO or TRPO, or the path of one\.$"
    ):
        evaluate_policy(3)


def test_paths_that_are_none(trained: Any) -> None:
    for use, name in ((mcclt.load, "path"), (trained.save, "path"), (lambda x: make().learn(16, log_dir=x), "log_dir")):
        with pytest.raises(ConfigError, match=rf"^{name} = 3 is not allowed: it must be a path\.$"):
            use(3)


def test_a_model_needs_a_policy_update() -> None:
    with pytest.raises(ConfigError, match=r"^Model has no policy update: make PPO\(\.\.\.\) or TRPO"):
        make(Model)


# --- without Stable-Baselines3 -----------------------------------------------------------------------------


def test_without_stable_baselines3(monkeypatch: pytest.MonkeyPatch) -> None:
    class Observer:
        steps: ClassVar[list[int]] = []

        def on_update(self, trainer: Trainer, rows: list[Any]) -> None:
            self.steps.append(trainer.step)

        def on_message(self, text: str) -> None: ...

    for name in [name for name in sys.modules if name.startswith("stable_baselines3.")]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.setitem(sys.modules, "stable_baselines3", None)
    model = make().learn(16, callback=Observer()).learn(32, callback=[Observer()])
    assert Observer.steps == [16, 32, 48]
    for use in (model.get_env, lambda: model.logger):
        with pytest.raises(MissingExtraError, match=r"pip install 'stable-baselines3>="):
            use()
    assert model.learn(16).num_timesteps == 64


def test_names_of_the_package() -> None:
    assert mcclt.PPO is PPO and "PPO" in mcclt.__all__
    for name in mcclt.__all__:
        assert getattr(mcclt, name) is not None
    with pytest.raises(AttributeError):
        mcclt.nothing  # noqa: B018


def test_every_setting_is_an_argument_but_these() -> None:
    settings = {*fields_of(AgentConfig), *fields_of(RunConfig)}
    elsewhere = {"algo", "task", "seeds", "steps", "groups"}
    assert settings & set(ELSEWHERE) == elsewhere
    kinds = get_type_hints(AgentConfig) | get_type_hints(RunConfig)
    own = {name: kinds[name] for name in settings - elsewhere - {"critic", "weighting"}}
    own |= {name: Sequence[int] for name, kind in own.items() if kind == tuple[int, ...]}  # lists are taken, too
    assert get_type_hints(Settings) == own, "mcclt.training.arguments must name every setting, for editors"


# --- as Stable-Baselines3's users type it ------------------------------------------------------------------


@pytest.mark.parametrize(
    "given, named",
    [
        (("MlpPolicy", PENDULUM), {}),
        (("MlpPolicy",), {"env": PENDULUM}),
        ((), {"env": PENDULUM}),
        ((), {"policy": "MlpPolicy", "env": PENDULUM}),
        (("MlpPolicy", gym.make(PENDULUM, render_mode="rgb_array")), {}),
    ],
)
def test_where_the_environment_may_stand(given: tuple[Any, ...], named: dict[str, Any]) -> None:
    model = PPO(*given, **(OURS | named))
    assert model.config.task == PENDULUM and model.learn(16).num_timesteps == 16


def test_an_environment_that_gymnasium_made_is_made_again() -> None:
    model = make(env=gym.make("Pendulum-v1", g=1.0, max_episode_steps=7))
    assert model.config.task == "Pendulum-v1" and np.isfinite(evaluate_policy(model, n_eval_episodes=1)[0])
    assert model._spec.max_episode_steps == 7
    assert model.source().unwrapped.g == 1.0


@pytest.mark.parametrize(
    "given, said",
    [((), "Which task"), (("MlpPolicy",), "Which task"), (("CnnPolicy", PENDULUM), "'CnnPolicy' is not a policy here")],
)
def test_no_environment_or_another_policy(given: tuple[Any, ...], said: str) -> None:
    with pytest.raises(ConfigError, match=said):
        PPO(*given, **OURS)


def test_learn_as_it_is_typed(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    model = make(verbose=1, tensorboard_log=tmp_path)
    model.learn(total_timesteps=64, log_interval=2, tb_log_name="x", reset_num_timesteps=False)
    assert capsys.readouterr().out.count("steps/s") == 2  # after two and four updates
    model.learn(16, tb_log_name="x")
    assert sorted(path.name for path in tmp_path.iterdir()) == ["x_1", "x_2"]
    assert list((tmp_path / "x_1" / "tensorboard").rglob("events*"))
    with pytest.raises(ConfigError, match="steps only grow"):
        model.learn(16, reset_num_timesteps=True)
    with pytest.raises(ConfigError, match=r"total_timesteps = '20k' .* 20_000"):
        model.learn("20k")


def test_a_plain_function_is_a_callback_and_needs_no_other_library(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "stable_baselines3", None)
    monkeypatch.delitem(sys.modules, "stable_baselines3.common.callbacks", raising=False)
    seen = []

    def watch(found: dict[str, Any], _: dict[str, Any]) -> bool:
        seen.append((found["self"].num_timesteps, found["rewards"].shape))
        return found["self"].num_timesteps < 24

    model = make(n_envs=2, steps_per_update=16)
    model.learn(64, callback=watch)
    assert seen == [(2 * (i + 1), (2,)) for i in range(12)] and model.num_timesteps == 32


def test_what_it_says_of_itself(trained: Any) -> None:
    assert repr(trained) == f"<PPO({PENDULUM!r}, critic='normal', weighting='accuracy', seed=[3, 8]) after 48 steps>"


def test_a_model_is_not_loaded_for_a_task_it_cannot_act_in(trained: Any, tmp_path: Path) -> None:
    file = trained.save(tmp_path / "m")
    with pytest.raises(ConfigError, match="cannot act in Hopper-v5"):
        PPO.load(file, env="Hopper-v5")
    assert PPO.load(file, env=PENDULUM).num_timesteps == 48
    with pytest.raises(
        UnknownNameError, match=r"Did you mean 'Hopper-v5'\? `mcclt envs` lists those of the library\.$"
    ):
        PPO.load(file, env="Hoper-v5")


def test_spaces_and_settings_are_there_to_read(trained: Any) -> None:
    assert trained.n_envs == 2 and trained.observation_space.shape == (9,)
    for env in (Counter, ShiftedActions):
        assert make(env=env).action_space == env.action_space
    for name in ("gamma", "n_envs", "learning_rate"):
        with pytest.raises(
            ConfigError, match=rf"^{name} cannot be changed: make a model with it, PPO\(\.\.\., {name}="
        ):
            setattr(trained, name, 1)
    trained.note = "anything else"


# --- actions of several choices, and in bins -------------------------------------------------------------------


@pytest.mark.parametrize(
    "space",
    [
        pytest.param(gym.spaces.MultiDiscrete([3, 2], start=[5, 0]), id="discrete"),
        pytest.param(gym.spaces.MultiBinary(2), id="binary", marks=pytest.mark.slow),
    ],
)
def test_actions_of_several_choices(space: Any, tmp_path: Path) -> None:
    class Several(Noisy):
        action_space = space

        def step(self, action: np.ndarray) -> Any:
            assert space.contains(action)
            return super().step(action)

    model = make(env=Several, on_nan="raise").learn(32)
    assert model.action_space == gym.spaces.MultiDiscrete([3, 2], start=[5, 0]) or space == gym.spaces.MultiBinary(2)
    obs = np.zeros((4, 3), np.float32)
    for deterministic in (True, False):
        actions, _ = model.predict(obs, deterministic=deterministic)
        assert actions.dtype == np.int64 and all(space.contains(a.astype(space.dtype)) for a in actions)
    assert np.isfinite(evaluate_policy(model, n_eval_episodes=2)[0])
    path = model.save(tmp_path / "model")
    again = PPO.load(path, env=Several)
    np.testing.assert_array_equal(*(m.predict(obs, deterministic=True)[0] for m in (model, again)))
    with pytest.warns(UserWarning, match="new episodes"):
        again.learn(16)
