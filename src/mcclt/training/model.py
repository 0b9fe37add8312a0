"""The user's view: `PPO` and `TRPO`, with Stable-Baselines3's names where it has one.

from mcclt import PPO
model = PPO("Hopper-v5", critic="normal", weighting="accuracy", seed=0)
model.learn(1_000_000, progress_bar=True)
action, _ = model.predict(obs, deterministic=True)
dist = model.value_distribution(obs)
model.save("hopper")
model = PPO.load("hopper")
"""

import contextlib
import dataclasses
import itertools
import secrets
import warnings
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, ClassVar, Self, Unpack

import jax
import numpy as np
from rich.console import Console

from mcclt import presets
from mcclt.config import AgentConfig, RunConfig, override, with_decay
from mcclt.config.effects import refuse_unread
from mcclt.config.values import fields_of, parse_seeds, require
from mcclt.config.variants import group_name
from mcclt.envs import ENGINES
from mcclt.envs.api import EnvSpec, VectorEnv, task_name
from mcclt.errors import CheckpointError, ConfigError, EnvironmentFault, MccltError, UnknownNameError, shown
from mcclt.interop import sb3
from mcclt.method.learner import Learner, TrainState, without_numbers
from mcclt.method.randomness import Purpose
from mcclt.method.settings import stacked_numbers
from mcclt.storage import checkpoint, metadata, runs
from mcclt.storage.configuration import from_dict, to_dict
from mcclt.training.agent import Agent, ValueDistribution
from mcclt.training.arguments import ELSEWHERE, Settings
from mcclt.training.boundary import moved, new_episodes
from mcclt.training.compilation import use_cache
from mcclt.training.environments import make_envs, remade, runnable
from mcclt.training.evaluate import run_episodes
from mcclt.training.job import Job
from mcclt.training.loop import Observer
from mcclt.training.progress import Display, Warner
from mcclt.training.saved import only_group, only_seed, path_of, read_model, with_suffix
from mcclt.training.trainer import Trainer


class Model(sb3.Methods):
    """A trained or trainable population of agents on one task. Use `PPO` or `TRPO`.

    Or, for a policy update of your own, a subclass that says its name in `POLICY_UPDATES`.
    """

    algo: ClassVar[str]
    """The policy update."""
    num_timesteps: int
    """Environment steps each agent has learnt from (within a Stable-Baselines3 callback: that it has been told of)."""
    _stored: tuple[checkpoint.Arrays, dict[str, Any], object]
    """What a loaded model was read from."""
    _given: RunConfig
    """The configuration before its first training, which settles how long its settings decay."""

    def __init__(
        self,
        task: object = None,
        env: object = None,
        *,
        critic: str = "normal",
        weighting: str | None = None,
        seed: int | Sequence[int] | None = 0,
        preset: str | None = None,
        policy: str | None = None,
        verbose: int = 0,
        tensorboard_log: str | Path | None = None,
        **settings: Unpack[Settings],
    ) -> None:
        """Makes untrained agents: `PPO("Hopper-v5")`, or as in Stable-Baselines3 `PPO("MlpPolicy", "Hopper-v5")`.

        Args:
            task: a task id such as "Hopper-v5", a `gymnasium.Env` class, a function that makes one, an environment
                that `gymnasium.make` made, or an `mcclt.envs.tasks.Task`.
            env: the same, if `task` is "MlpPolicy" or left out.
            critic: plain, quantile, normal (MC-CLT), hl_gauss or ensemble, or one that you entered in `CRITICS`.
            weighting: uniform, accuracy, exploration, inverse_variance, or one that you entered in `WEIGHTINGS`; by
                default as the paper pairs it with the critic.
            seed: one seed, or several: then all of them train together, each as if alone. None: any.
            preset: "modern" (today's PPO and TRPO, for any task), "tuned" (the best known for one of the
                paper's tasks) or "paper" (the authors' best for it); none by default.
            policy: "MlpPolicy" or nothing: all policies are MLPs.
            verbose: 1: `learn` shows its progress.
            tensorboard_log: a directory in which each `learn` makes a run directory with TensorBoard events.
            **settings: any other setting of `AgentConfig` or `RunConfig`, on top of the preset, e.g.
                `n_envs`, `gamma`, `w_tar`.
        """
        if not hasattr(self, "algo"):
            raise ConfigError(
                "Model has no policy update: make PPO(...) or TRPO(...), or a subclass that says its algo."
            )
        for name, instead in ELSEWHERE.items():
            if name in settings:
                raise ConfigError(f"{name} is not an argument of {type(self).__name__}: {instead}.")
        env, self.verbose = self._source(policy, task, env), verbose
        self._tensorboard = None if tensorboard_log is None else path_of("tensorboard_log", tensorboard_log)
        ours = {k: v for k, v in settings.items() if k in fields_of(RunConfig)}
        of_run, of_agent = presets.settings(preset, task_name(env), self.algo, critic)
        agent = override(
            AgentConfig(algo=self.algo, critic=critic, weighting=weighting),
            of_agent | {k: v for k, v in settings.items() if k not in ours},
        )
        refuse_unread({name: name for name in settings}, [agent])
        seeds = parse_seeds(secrets.randbelow(2**32) if seed is None else seed)
        base = RunConfig(task=task_name(env), seeds=seeds, groups={group_name(agent): agent})
        # `learn` says how long; evaluation is the user's, unless asked for.
        config = override(base, {"eval_freq": 0, "final_episodes": 0} | of_run | ours)
        self._env = None if isinstance(env, str) else env
        self._trainer: Trainer | None = Trainer(config, self._env)
        ((name, settled),) = self._trainer.config.groups.items()
        groups = {name: dataclasses.replace(settled, decay_steps=agent.decay_steps)}
        self._given = dataclasses.replace(self._trainer.config, groups=groups)
        self._adopt(self._trainer.config, self._trainer.spec, next(iter(self._trainer.states.values())))

    def _source(self, policy: object, task: object, env: object) -> object:
        """What environments are made from, in whichever of their places it was given."""
        given = [x for x in (policy, task, env) if x is not None]
        source = given[-1] if given else "MlpPolicy"
        for name in given[:-1]:
            if name != "MlpPolicy":
                raise ConfigError(
                    f'{name!r} is not a policy here: give the environment alone, or "MlpPolicy" before it; widths are '
                    "policy_hidden and critic_hidden."
                )
        if source == "MlpPolicy":
            raise ConfigError(f"Which task? Name one, such as {type(self).__name__}('Hopper-v5').")
        return remade(source)

    def __repr__(self) -> str:
        """What it is, as it would be typed, and how far it has learnt."""
        config = next(iter(self.config.groups.values()))
        seed = self.seeds[0] if len(self.seeds) == 1 else list(self.seeds)
        parts = f"{self.config.task!r}, critic={config.critic!r}, weighting={config.weighting!r}, seed={seed}"
        return f"<{type(self).__name__}({parts}) after {self.num_timesteps:,} steps>"

    def _adopt(self, config: RunConfig, spec: EnvSpec, states: TrainState) -> None:
        """Everything follows from the configuration, the task's spec and the agents' state."""
        self._spec = spec
        agent = next(iter(config.groups.values()))
        self._learner = Learner(agent, spec, config.n_envs, config.steps_per_update)
        self._draws = 0
        self._follow(config, states)

    def _follow(self, config: RunConfig, states: TrainState) -> None:
        """Becomes what a trainer's agents have learnt to be."""
        self.config, self._states = config, states
        self._agents: dict[int, Agent] = {}
        self.num_timesteps = int(states.update[0]) * config.steps_per_update

    # --- facts ---------------------------------------------------------------------------------------------

    @property
    def source(self) -> object:
        """What it acts in: the task's id, or the environment class or factory it was given."""
        return self._env or self.config.task

    @property
    def seeds(self) -> tuple[int, ...]:
        """The seeds of the population."""
        return self.config.seeds

    def for_seed(self, seed: int) -> Self:
        """One agent of a population alone, as it is now: a copy that predicts, saves and learns by itself."""
        arrays, meta, source = self._contents()
        return self._restored(*only_seed(arrays, meta, self._index(seed)), source, self._env)

    def _index(self, seed: int | None) -> int:
        if seed is None:
            return 0
        if seed not in self.seeds:
            raise ConfigError(f"This model has no seed {seed}: it has {', '.join(map(str, self.seeds))}.")
        return self.seeds.index(seed)

    # --- learning ------------------------------------------------------------------------------------------

    def learn(
        self,
        total_timesteps: int,
        callback: Any = None,
        log_interval: int | None = None,
        tb_log_name: str | None = None,
        reset_num_timesteps: bool = False,
        progress_bar: bool = False,
        *,
        log_dir: str | Path | None = None,
    ) -> Self:
        """Trains every agent for `total_timesteps` more steps (rounded up to whole updates).

        Args:
            total_timesteps: environment steps per agent.
            callback: is told of every update: an object with the methods of `mcclt.training.loop.Observer`, a function
                or a callback of Stable-Baselines3 (see `mcclt.interop.sb3`), or a list of these.
            log_interval: updates between lines, if `verbose` or `progress_bar` shows them; about twenty lines in all by
                default.
            tb_log_name: name of the directory in `tensorboard_log`; the algorithm's by default.
            reset_num_timesteps: False: steps are counted on, which is the only way here.
            progress_bar: show a live bar.
            log_dir: write a run directory there (metrics, TensorBoard, checkpoints): another one for each `learn`.
        """
        _require_count("total_timesteps", total_timesteps, 20_000)
        if reset_num_timesteps and self.num_timesteps:
            raise ConfigError("reset_num_timesteps=True is not possible: a model's steps only grow. Make a new one.")
        use_cache()
        if log_dir is None and self._tensorboard is not None:
            log_dir = _numbered(self._tensorboard, tb_log_name or self.algo.upper())
        steps = self.num_timesteps + int(total_timesteps)
        trainer = self._make_trainer(steps)
        if trainer.spent:
            raise ConfigError(trainer.spent)
        trainer.extend(steps=steps)
        self.config = trainer.config
        with contextlib.ExitStack() as stack:
            observers: list[Observer] = sb3.observers(self, trainer, callback, stack)
            directory = None
            if log_dir is not None:
                directory = runs.Run.create(path_of("log_dir", log_dir), self.config, engine=trainer.spec.engine)
                stack.callback(directory.close)
            if progress_bar or self.verbose:
                bar = Display(Console(), trainer.config.whole_steps, trainer.step, log_interval)
                observers.append(stack.enter_context(bar))
            else:
                observers.append(Warner())
            try:
                Job(trainer, directory).run(observers)
            finally:
                self._follow(trainer.config, next(iter(trainer.states.values())))
        return self

    def _make_trainer(self, steps: int) -> Trainer:
        """The trainer; made anew for a model that was loaded, or where only now it is known how long settings decay."""
        config = dataclasses.replace(self.config if self.num_timesteps else self._given, steps=steps)
        if self._trainer is not None and with_decay(config) is not config:
            self._stored = self._contents()
            self._trainer.close()
            self._trainer = None
        if self._trainer is None:
            arrays, meta, source = self._stored
            with self._remembered():
                trainer = Trainer(config, self._env)
            meta = meta | {"config": to_dict(trainer.config)}
            if self._may_move() and trainer.spec.spaces == self._spec.spaces:
                arrays, meta = moved(arrays, meta, trainer.spec)
            try:
                continues = trainer.restore(arrays, meta, source)
            except MccltError:  # the model stays what was loaded
                trainer.close()
                raise
            self._trainer, self._spec = trainer, trainer.spec
            self._learner = next(iter(trainer.learners.values()))
            if not continues:
                warnings.warn(new_episodes(trainer.spec), stacklevel=3)
        return self._trainer

    def _may_move(self) -> bool:
        """Whether it may go on in other environments: those it was given, or where its engine is not installed."""
        engine = ENGINES.get(self._spec.engine)
        return self._env is not None or (engine is not None and not engine.installed())

    def _environments(self, source: object, seed: int, n_envs: int) -> VectorEnv:
        """Environments for the agent of a seed, or a `ConfigError` if it cannot act in them."""
        own = source == self.source
        config = self.config if own else dataclasses.replace(self.config, engine="auto", step_timeout=None)
        with self._remembered() if own else contextlib.nullcontext():
            vec = make_envs(config, source, [seed], Purpose.EVAL_RESET, 0, n_envs)
        if vec.spec.spaces != self._spec.spaces:
            vec.close()
            raise ConfigError(
                f"The model was trained on {self._spec.task} and cannot act in {vec.spec.task}: their spaces differ."
            )
        return vec

    @contextlib.contextmanager
    def _remembered(self) -> Iterator[None]:
        """Makes the model's own environments: what is unknown of them was known when it was trained."""
        try:
            yield
        except UnknownNameError as error:
            if self._env is not None:  # mistyped just now
                raise
            raise ConfigError(
                f"{error} The model was trained with it: load it with your own environment, {type(self).__name__}.load("
                "path, env=...), or import what registers it."
            ) from None

    # --- using ---------------------------------------------------------------------------------------------

    def predict(
        self,
        observation: Any,
        state: Any = None,
        episode_start: Any = None,
        deterministic: bool = False,
        *,
        seed: int | None = None,
    ) -> tuple[np.ndarray, Any]:
        """The action at one observation [O] or a batch [B, O], within the task's bounds.

        Where the task's own are not vectors, give them flattened, as `gymnasium.spaces.flatten` does it.

        Args:
            observation: what the agent sees.
            state: unused (policies have no memory); returned as it came, as in Stable-Baselines3.
            episode_start: unused, likewise.
            deterministic: the most likely action, rather than a draw.
            seed: which agent of a population acts; the first by default.

        Returns:
            The action(s), and `state`.
        """
        del episode_start
        obs, single = self._batch(observation)
        action = self._act(obs, deterministic, seed)
        if self._spec.discrete:
            action = action + self._spec.action_start
        elif self._spec.action_counts is not None:
            action = action.astype(np.int64)
        return (action[0] if single else action), state

    def _act(self, obs: np.ndarray, deterministic: bool, seed: int | None) -> np.ndarray:
        """Actions at obs [B, O] as engines take them: within bounds; discrete ones counted from 0."""
        agent = self.agent(seed)
        if deterministic:
            return agent.act(obs)
        self._draws += 1
        return agent.act(obs, agent.noise(Purpose.PREDICT, self._draws, len(obs)))

    def value_distribution(self, observation: Any, *, seed: int | None = None) -> ValueDistribution:
        """What the critic of one agent believes about one observation [O] or a batch [B, O]."""
        obs, single = self._batch(observation)
        found = self.agent(seed).believe(obs)
        return found[0] if single else found

    def agent(self, seed: int | None = None) -> Agent:
        """One agent from within: its spaces, parameters, actions and beliefs. The first, or the one of a seed."""
        i = self._index(seed)
        if i not in self._agents:
            state = jax.tree.map(lambda x: np.asarray(x)[i], self._states)
            task, steps = self.config.task, self.num_timesteps
            self._agents[i] = Agent(task, self.seeds[i], steps, self._spec, self._learner, state)
        return self._agents[i]

    def _batch(self, observation: Any) -> tuple[np.ndarray, bool]:
        size = self._spec.obs_size
        shapes = f"({size},) or (batch, {size})"
        wanted = f"An observation of {self.config.task} has {size} numbers: give an array of shape {shapes}"
        try:
            obs = np.asarray(observation, np.float32)
        except (TypeError, ValueError):
            both = isinstance(observation, tuple)
            given = ", the first of the two that reset returns" if both else f", not a {type(observation).__name__}"
            raise ConfigError(f"{wanted}{given}.") from None
        if obs.ndim not in (1, 2) or obs.shape[-1] != size:
            raise ConfigError(f"{wanted}, not {obs.shape}.")
        return np.atleast_2d(obs), obs.ndim == 1

    # --- keeping -------------------------------------------------------------------------------------------

    def save(self, path: str | Path) -> Path:
        """Writes one file, `path` with the ending .safetensors (in place of .zip), from which everything continues."""
        arrays, meta, _ = self._contents()
        target = with_suffix(path)
        checkpoint.save(target, arrays, meta)
        return target

    def _contents(self) -> tuple[checkpoint.Arrays, dict[str, Any], object]:
        """Arrays and metadata that hold everything, and what to call their origin."""
        if self._trainer is None:
            return self._stored
        arrays, meta = self._trainer.to_checkpoint()
        if not meta["update"]:  # a decay is as long as the first training that gets that far
            meta |= {"config": to_dict(self._given)}
        return arrays, meta, "The model"

    @classmethod
    def load(cls, path: str | Path, env: object | None = None, *, group: str | None = None) -> Self:
        """Reads a saved model, a run directory's newest checkpoint, or a pretrained agent.

        `Model.load` takes any, whichever algorithm trained it.

        Args:
            path: what `save` was given, a run directory, or zoo:TASK (`mcclt zoo` lists them).
            env: the environment, where the task is not an id (needed to learn on, not to predict), or another one of
                the same spaces.
            group: which group of a run that trained several.
        """
        arrays, meta, source = read_model(path)
        config = from_dict(meta["config"])
        if group is None and len(config.groups) > 1:
            listed = ", ".join(config.groups)
            raise ConfigError(f"{source} holds several groups: name one of them as the group: {listed}.")
        name = group or next(iter(config.groups))
        if name not in config.groups:
            raise ConfigError(f"{source} has no group {name!r}: it has {', '.join(config.groups)}.")
        algo = config.groups[name].algo
        kind: type[Any] = cls
        if cls is Model:  # users' own classes as well; reversed, so that PPO and TRPO stay what they are
            named = {own.algo: own for own in reversed(Model.__subclasses__()) if hasattr(own, "algo")}
            kind = named.get(algo, Model)
        elif algo != cls.algo:
            raise CheckpointError(f"{source} was trained with {algo.upper()}: load it with {algo.upper()}.load.")
        model = kind._restored(*only_group(arrays, meta, name), source, remade(env))
        if env is not None:  # found out now, not when it learns
            model._environments(model._env, 0, 1).close()
        return model

    @classmethod
    def _restored(cls, arrays: checkpoint.Arrays, meta: dict[str, Any], source: object, env: object | None) -> Self:
        """A model from a checkpoint of its one group; the trainer is made when it learns."""
        config, spec = runnable(from_dict(meta["config"]), env), metadata.spec_from_dict(meta["spec"])
        (name, agent), *_ = config.groups.items()
        try:
            learner = Learner(agent, spec, config.n_envs, config.steps_per_update)
        except UnknownNameError as error:
            raise ConfigError(f"{error} If it is your own, import the file that registers it first.") from None
        seeds, numbers = np.asarray(config.seeds, np.uint32), stacked_numbers([learner.config] * len(config.seeds))
        shapes = jax.eval_shape(jax.vmap(learner.init), seeds, numbers)
        stored = checkpoint.unflatten(f"agents/{name}", without_numbers(shapes), arrays, source)
        states = dataclasses.replace(stored, numbers=numbers)
        model = cls.__new__(cls)
        model._env, model._trainer, model._stored = env, None, (arrays, meta, source)
        model.verbose, model._tensorboard = 0, None
        model._given = config
        model._adopt(config, spec, jax.device_put(states))
        return model


class PPO(Model):
    """Proximal policy optimisation with a value distribution and weights per state."""

    algo = "ppo"


class TRPO(Model):
    """Trust-region policy optimisation with a value distribution and weights per state."""

    algo = "trpo"


def _numbered(folder: Path, name: str) -> Path:
    """PPO_1, PPO_2, ...: the first that is not there yet, as Stable-Baselines3 names them."""
    return next(path for i in itertools.count(1) if not (path := folder / f"{name}_{i}").exists())


def _require_count(name: str, value: object, example: int) -> None:
    positive = isinstance(value, int | np.integer) and value >= 1
    require(bool(positive), f"{name} = {shown(value)}", f"a positive whole number such as {example:_}")


def evaluate_policy(
    model: Any,
    env: object | None = None,
    n_eval_episodes: int = 10,
    deterministic: bool = True,
    *,
    return_episode_rewards: bool = False,
    seed: int | None = None,
    n_envs: int = 10,
) -> tuple[Any, Any]:
    """Runs episodes with one agent of a model (the names and meaning of Stable-Baselines3's).

    Args:
        model: a `PPO` or `TRPO`, or what `load` takes: a path, or zoo:TASK.
        env: a task id, environment class or factory; the model's own task by default.
        n_eval_episodes: how many.
        deterministic: the most likely actions, rather than draws.
        return_episode_rewards: return two lists, returns and lengths, instead of mean and standard deviation.
        seed: which agent of a population; the first by default.
        n_envs: environments run side by side.

    Returns:
        Mean and standard deviation of the returns over episodes, or the two lists.
    """
    _require_count("n_eval_episodes", n_eval_episodes, 10)
    _require_count("n_envs", n_envs, 10)
    if isinstance(model, str | Path):
        model = Model.load(model)
    require(isinstance(model, Model), f"model = {shown(model)}", "a PPO or TRPO, or the path of one")
    source = model.source if env is None else remade(env)
    index = model.seeds[model._index(seed)]
    vec = model._environments(source, index, min(n_envs, n_eval_episodes))
    try:

        def act(obs: np.ndarray) -> np.ndarray:
            return model._act(obs[0], deterministic, seed)[None]

        returns, lengths, faults = run_episodes(vec, act, 1, n_eval_episodes)
    finally:
        vec.close()
    for fault in faults:
        raise EnvironmentFault(f"In the evaluation of seed {index}, environment {fault.env} {fault.said}.{fault.where}")
    if return_episode_rewards:
        return returns[0].tolist(), lengths[0].tolist()
    return float(returns.mean()), float(returns.std())


load = Model.load
"""Reads a saved model, a run directory or an agent of the zoo ("zoo:Hopper-v5"), whichever algorithm trained it."""
