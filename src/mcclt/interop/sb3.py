"""For users of Stable-Baselines3: its callbacks, its logger and its `evaluate_policy` work with our models.

model.learn(1_000_000, callback=EvalCallback(eval_env, eval_freq=5_000))

Training here is not interrupted at every step: a callback is told of an update's steps once the update is made.
It then gets all of Stable-Baselines3's calls in their order, one `on_step` for each step of the vector
environment, with `n_calls` and `num_timesteps` counting as usual; only the policy is already the updated one.
Of a population, callbacks see the first agent.

Stable-Baselines3 is imported when one of its callbacks or a method below is used, never before.
"""

import contextlib
import functools
import importlib
import inspect
import sys
from collections.abc import Iterator
from typing import Any

import gymnasium as gym
import numpy as np
from gymnasium.wrappers import FlattenObservation

from mcclt.config import AgentConfig, RunConfig
from mcclt.config.values import fields_of
from mcclt.envs.api import EnvSpec, Step, VectorEnv, task_name
from mcclt.envs.gymnasium import make_bare, source_of
from mcclt.errors import ConfigError, MissingExtraError
from mcclt.storage.trackers import Row
from mcclt.training.loop import Observer
from mcclt.training.trainer import Trainer


def _import(module: str) -> Any:
    """A module of Stable-Baselines3, or what to install."""
    try:
        return importlib.import_module(f"stable_baselines3.{module}")
    except ImportError:
        raise MissingExtraError("Working with Stable-Baselines3", "sb3") from None


_SETTINGS = frozenset(fields_of(AgentConfig)) | frozenset(fields_of(RunConfig))


class Methods:
    """What Stable-Baselines3's own code asks of a model, beside `predict`, `save` and `num_timesteps`."""

    config: RunConfig
    num_timesteps: int
    _spec: EnvSpec
    _env: object | None
    _logger: Any = None
    _vec_env: Any = None

    def __setattr__(self, name: str, value: Any) -> None:
        """Refuses to set what would have no effect."""
        if name in _SETTINGS:
            raise ConfigError(
                f"{name} cannot be changed: make a model with it, {type(self).__name__}(..., {name}=...)."
            )
        super().__setattr__(name, value)

    @property
    def n_envs(self) -> int:
        """Environments of each agent."""
        return self.config.n_envs

    @property
    def observation_space(self) -> gym.spaces.Box:
        """Of the vectors that policies see."""
        return gym.spaces.Box(-np.inf, np.inf, (self._spec.obs_size,), np.float32)

    @property
    def action_space(self) -> gym.Space:
        """Of what `predict` gives."""
        spec = self._spec
        if spec.action_low is None or spec.action_high is None:
            return gym.spaces.Discrete(spec.action_size, start=spec.action_start)
        if spec.action_counts is not None:
            return gym.spaces.MultiDiscrete(list(spec.action_counts), start=spec.action_low.astype(np.int64))
        return gym.spaces.Box(spec.action_low, spec.action_high)

    @property
    def logger(self) -> Any:
        """Stable-Baselines3's logger, without outputs until `set_logger`; callbacks record to it."""
        if self._logger is None:
            self._logger = _import("common.logger").Logger(None, [])
        return self._logger

    def set_logger(self, logger: Any) -> None:
        """Takes a logger of `stable_baselines3.common.logger.configure`; it gets every update's metrics."""
        self._logger = logger

    def dump_logs(self) -> None:
        """Writes out what was recorded since the last time."""
        self.logger.dump(self.num_timesteps)

    def get_env(self) -> Any:
        """`n_envs` environments of the task as Stable-Baselines3 has them: a `DummyVecEnv` of `Monitor`s.

        They are made at the first call and are not those that the agents train in.
        """
        if self._vec_env is None:
            make = functools.partial(_make_env, self._env or self.config.task, self.config.max_episode_steps)
            self._vec_env = _import("common.vec_env").DummyVecEnv([make] * self.config.n_envs)
        return self._vec_env

    def get_vec_normalize_env(self) -> None:
        """None: models that normalise (`normalize_obs`, `normalize_reward`) do so inside, and want raw observations."""


def _make_env(task: object, max_episode_steps: int | None) -> Any:
    """One environment with the vectors that policies see, in a `Monitor`."""
    env = make_bare(task_name(task), source_of(task), max_episode_steps)
    space = env.observation_space
    if not isinstance(space, gym.spaces.Box) or len(space.shape) != 1:
        env = FlattenObservation(env)
    return _import("common.monitor").Monitor(env)


# --- callbacks ---------------------------------------------------------------------------------------------


def observers(model: Any, trainer: Trainer, callback: Any, stack: contextlib.ExitStack) -> list[Observer]:
    """What a user gave as `callback`, as observers: ours as they are, Stable-Baselines3's together as one.

    Args:
        model: whose training it is.
        trainer: the trainer that is about to run.
        callback: None, one, or a list.
        stack: ends the training for Stable-Baselines3's callbacks when it is closed without an error.
    """
    given = callback if isinstance(callback, list) else [] if callback is None else [callback]
    ours = [c for c in given if hasattr(c, "on_update")]
    theirs = [c for c in given if not hasattr(c, "on_update")]
    if not theirs and model._logger is None:
        return ours
    return [stack.enter_context(_watching(model, trainer, theirs)), *ours]


@contextlib.contextmanager
def _watching(model: Any, trainer: Trainer, given: list[Any]) -> "Iterator[Replay]":
    """Stable-Baselines3's callbacks from the start of a training to its end."""
    known = sys.modules.get("stable_baselines3.common.callbacks")  # there, if any of them is of its classes
    functions = [one for one in given if known is None or not isinstance(one, known.BaseCallback)]
    for one in functions:
        if inspect.isclass(one) or not callable(one):
            raise ConfigError(
                f"callback = {one!r} is not allowed: it must be a function, an object with the methods of "
                "mcclt.training.loop.Observer, or a callback of Stable-Baselines3."
            )
    callback: Any = Functions(functions)
    if len(functions) < len(given) or model._logger is not None:
        callbacks = _import("common.callbacks")
        callback = callbacks.CallbackList([callbacks.ConvertCallback(c) if c in functions else c for c in given])
    callback.init_callback(model)
    callback.on_training_start({"self": model, "total_timesteps": trainer.config.steps}, globals())
    callback.on_rollout_start()
    recorder = Recorder(trainer)
    with trainer.wrapped(recorder):
        yield Replay(model, callback, recorder)
    callback.on_training_end()


class Functions:
    """Plain functions of (locals, globals), called as Stable-Baselines3 calls them, which they do not need."""

    def __init__(self, functions: list[Any]) -> None:
        self._functions = functions
        self._locals: dict[str, Any] = {}

    def init_callback(self, model: Any) -> None:
        """Nothing: `on_training_start` tells of the model."""

    def on_training_start(self, seen: dict[str, Any], everything: dict[str, Any]) -> None:
        """Keeps what functions are given."""
        self._locals, self._globals = dict(seen), everything

    def update_locals(self, seen: dict[str, Any]) -> None:
        """Another step."""
        self._locals |= seen

    def on_step(self) -> bool:
        """Whether training goes on: no function returned False."""
        return all([one(self._locals, self._globals) is not False for one in self._functions])

    def on_rollout_start(self) -> None:
        """Nothing."""

    on_rollout_end = on_training_end = on_rollout_start


class Recorder:
    """The training environments; remembers what Stable-Baselines3's callbacks may ask of the first agent's steps.

    Environments that live on a device are not stepped from here: nothing is remembered of them.
    """

    def __init__(self, trainer: Trainer) -> None:
        self._env: VectorEnv = trainer.env
        self._trainer, self._n_envs = trainer, trainer.config.n_envs
        self._steps: list[dict[str, Any]] = []

    def __getattr__(self, name: str) -> Any:
        return getattr(self._env, name)

    def restart(self, which: np.ndarray) -> np.ndarray:
        """Abandons some episodes: their last step ends them as a time limit does, but they are no whole episodes."""
        n, fresh = self._n_envs, self._env.restart(which)
        if self._steps:
            last = self._steps[-1]
            for e in np.flatnonzero(which[:n] & ~last["dones"]):
                last["infos"][e] |= {"TimeLimit.truncated": True, "terminal_observation": last["new_obs"][e].copy()}
            last["dones"] |= which[:n]
            last["new_obs"] = np.where(which[:n, None], fresh[:n], last["new_obs"])
        return fresh

    def step(self, action: np.ndarray) -> Step:
        """Steps, and remembers."""
        step, before = self._env.step(action), self._trainer.stats
        obs, rewards, terminated, truncated, last = (x[: self._n_envs].copy() for x in step)
        dones = terminated | truncated
        infos: list[dict[str, Any]] = [{"TimeLimit.truncated": bool(cut)} for cut in truncated]
        for e in np.flatnonzero(dones):
            episode = {"r": float(before.running[0, e] + rewards[e]), "l": int(before.length[0, e]) + 1}
            infos[e] |= {"terminal_observation": last[e], "episode": episode}
        self._steps.append({"new_obs": obs, "rewards": rewards, "dones": dones, "infos": infos})
        return step

    def take(self, count: int) -> list[dict[str, Any]]:
        """What is known of the last `count` steps; all that was remembered is forgotten."""
        steps, self._steps = self._steps[-count:], []
        return steps or [{} for _ in range(count)]


class Replay:
    """An observer that tells Stable-Baselines3's callbacks of an update's steps, one by one, when it is made."""

    def __init__(self, model: Any, callback: Any, recorder: Recorder) -> None:
        self._model, self._callback, self._recorder = model, callback, recorder
        self._update = -1

    def on_update(self, trainer: Trainer, rows: list[Row]) -> None:
        """One rollout of Stable-Baselines3, and its log; a callback that returns False ends the training."""
        if trainer.update == self._update:  # only rows that waited for an evaluation
            self._log(trainer, rows)
            return
        self._update = trainer.update
        self._model._follow(trainer.config, next(iter(trainer.states.values())))
        go_on = self._replay(trainer)
        self._model.num_timesteps = trainer.step
        if go_on:
            self._callback.on_rollout_end()
        else:
            trainer.stop()
        self._log(trainer, rows)
        if not trainer.finished:
            self._callback.on_rollout_start()

    def _log(self, trainer: Trainer, rows: list[Row]) -> None:
        """A line for each update of the first agent; if that has stopped, for what callbacks have recorded."""
        if isinstance(self._callback, Functions):  # nobody records anything
            return
        own = [row for row in rows if row["seed"] == self._model.seeds[0]]
        if not own and not trainer.evaluating:
            own = [{"step": trainer.step}]
        for row in own:
            for name, value in row.items():
                if "/" in name:
                    self._model.logger.record(name, value)
            self._model.logger.record("time/total_timesteps", row["step"], exclude="tensorboard")
            self._model.logger.dump(row["step"])

    def _replay(self, trainer: Trainer) -> bool:
        """Whether training goes on after this update."""
        config, start = trainer.config, trainer.step - trainer.config.steps_per_update
        for t, seen in enumerate(self._recorder.take(config.horizon)):
            self._model.num_timesteps = start + (t + 1) * config.n_envs
            self._callback.update_locals(seen)
            if not self._callback.on_step():
                return False
        return True

    def on_message(self, text: str) -> None:
        """Nothing: the logger is for numbers."""
