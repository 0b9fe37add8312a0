"""Any single-agent Gymnasium environment, one after the other or in processes of their own.

The engine for everything that is not ours: ids of the registry, the user's own classes, and factories.
"""

import functools
import importlib.util
from collections.abc import Callable, Mapping
from typing import Any, ClassVar

import gymnasium as gym
import numpy as np
from gymnasium import spaces
from gymnasium.envs.registration import EnvSpec as Entry
from gymnasium.wrappers import TimeLimit

from mcclt.envs import own
from mcclt.envs.api import Step, VectorEnv, seed_of, task_name
from mcclt.envs.processes import InTurn, Processes
from mcclt.errors import (
    ConfigError,
    EnvironmentFault,
    MccltError,
    MissingExtraError,
    UnknownNameError,
    UnsupportedSpaceError,
)

Source = Entry | Callable[[], gym.Env]
"""What environments are made from. A registry's entry rather than its id: a worker has not the user's registry."""


class GymnasiumVectorEnv(VectorEnv):
    """Steps environments one after the other in this process.

    A task is an id ("Pendulum-v1", or "package.module:Name-v0" where importing the module registers it), a
    class, or a function without arguments that returns an environment.
    """

    name = "gymnasium"
    needs = ("gymnasium",)
    _kind: ClassVar[type[InTurn] | type[Processes]] = InTurn

    @classmethod
    def runs(cls, task: object) -> bool:
        """Whether the id is registered and what it needs installed; any class or function is worth a try."""
        if not isinstance(task, str):
            return callable(task) and not isinstance(task, gym.Env)
        try:
            return own.from_file(task) is not None or not _needs_box2d(_registered(task))
        except (gym.error.Error, MccltError):
            return False

    @classmethod
    def tasks(cls) -> Mapping[str, int | None]:
        """Gymnasium's classic control."""
        entries = {name: e for name, e in gym.registry.items() if _is_from(e, "gymnasium.envs.classic_control")}
        return {name: entry.max_episode_steps for name, entry in entries.items()}

    def make(self, task: object, limit: int | None, threads: int, timeout: float | None) -> dict[str, Any]:
        """Makes one environment to learn its spaces, then one per key."""
        del threads
        make = functools.partial(make_one, task_name(task), source_of(task), limit)
        probe = make()
        probe.close()
        self._action_dtype = probe.action_space.dtype
        self._faults: dict[int, str] = {}
        self._obs = np.zeros((self.num_envs, probe.obs_size), np.float32)
        self._envs = self._kind(make, self.num_envs, timeout)
        in_force = _time_limit(probe)
        steps = in_force._max_episode_steps if in_force else None
        return {"obs_size": probe.obs_size, "max_episode_steps": steps} | actions_of(probe.action_space)

    def restart(self, which: np.ndarray) -> np.ndarray:
        """Seeds anew and resets where the mask [n] is true; returns all observations [n, O]."""
        seeds = {i: seed_of(*self.keys[i], int(self.starts[i])) for i in np.flatnonzero(which).tolist()}
        answers, self._faults = self._envs.reset(seeds)
        self.starts += which
        self._obs = self._obs.copy()
        self._obs[which] = np.nan
        for i, answer in answers.items():
            self._obs[i] = answer.obs
        self._faults |= {i: answer.fault for i, answer in answers.items() if answer.fault}
        return self._obs

    def step(self, action: np.ndarray) -> Step:
        """Steps all environments; see `mcclt.envs.api.VectorEnv.step`."""
        action = (action + self.spec.action_start).astype(self._action_dtype)
        answers, lost = self._envs.step(action)
        self._obs, next_obs = np.full((2, *self._obs.shape), np.nan, np.float32)
        reward = np.full(self.num_envs, np.nan)
        terminated, truncated = np.zeros(self.num_envs, bool), np.ones(self.num_envs, bool)
        for i, answer in answers.items():
            self._obs[i], reward[i], terminated[i], truncated[i], next_obs[i], _ = answer
        said = lost | {i: answer.fault for i, answer in answers.items() if answer.fault}
        if lost:
            self.restart(np.isin(np.arange(self.num_envs), list(lost)))
            said = self._faults | said  # what was lost in this step, rather than at its restart
        self._faults = said
        return Step(self._obs, reward.astype(np.float32), terminated, truncated & ~terminated, next_obs)

    def faults(self) -> dict[int, str]:
        """What environments raised in the last step or reset, by index."""
        return self._faults

    def close(self) -> None:
        """Closes the environments and ends the processes."""
        self._envs.close()


class AsyncVectorEnv(GymnasiumVectorEnv):
    """Steps each environment in a process of its own: worth it for environments that are slow, crash or hang."""

    name = "gymnasium-async"
    can_time_out = True
    stand_in = "gymnasium"  # no processes for a few episodes
    _kind = Processes


def actions_of(space: gym.Space) -> dict[str, Any]:
    """What an action space makes of an `EnvSpec`."""
    if isinstance(space, spaces.Discrete):
        return {"action_size": int(space.n), "action_low": None, "action_high": None, "action_start": int(space.start)}
    if isinstance(space, spaces.MultiBinary):
        space = spaces.MultiDiscrete(np.full(space.shape, 2))
    if isinstance(space, spaces.MultiDiscrete):
        low, high, counts = space.start, space.start + space.nvec - 1, tuple(space.nvec.tolist())
    else:
        assert isinstance(space, spaces.Box)  # `_check_spaces` saw to it
        low, high, counts = space.low, space.high, None
    low, high = low.astype(np.float32), high.astype(np.float32)
    return {"action_size": len(low), "action_low": low, "action_high": high, "action_counts": counts}


class _Guard(gym.Wrapper):
    """Gives float32 vectors, and turns an exception into NaN, truncation and a message.

    The message leaves with the info of the next `reset`, which is part of the same step of the vector environment.
    """

    def __init__(self, env: gym.Env) -> None:
        super().__init__(env)
        self._space = env.observation_space
        self.obs_size = spaces.flatdim(self._space)
        self.observation_space = spaces.Box(-np.inf, np.inf, (self.obs_size,), np.float32)
        self._fault = ""  # to leave with the next reset
        self._unready = "it was never reset"  # why it cannot be stepped; empty when it can

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[np.ndarray, dict]:
        """A new episode; NaN if that raises."""
        try:
            obs, _ = _parts(self.env.reset(seed=seed, options=options), "reset", "obs, info")
            obs = self._vector(obs)
            self._unready = ""
        except (Exception, SystemExit) as error:  # one that calls sys.exit() must not end the training
            obs = self._nan()
            self._unready = f"raised in reset: {own.told(error)}"
            self._fault = self._fault or self._unready
        fault, self._fault = self._fault, ""
        return obs, {"fault": fault} if fault else {}

    def step(self, action: Any) -> tuple[np.ndarray, float, bool, bool, dict]:
        """One step; NaN and truncated if that raises, or if the last reset did (it is then tried again)."""
        if self._unready:
            self._fault = self._unready
            return self._nan(), np.nan, False, True, {}
        try:
            result = self.env.step(action)
            obs, reward, terminated, truncated, _ = _parts(result, "step", "obs, reward, terminated, truncated, info")
            vector, number = self._vector(obs), _number(reward, "reward", "biuf")
            return vector, float(number), _flag(terminated, "terminated"), _flag(truncated, "truncated"), {}
        except (Exception, SystemExit) as error:
            self._fault = f"raised in step: {own.told(error)}"
            return self._nan(), np.nan, False, True, {}

    def _vector(self, obs: Any) -> np.ndarray:
        """The observation as a new [O] array: some environments write the next one into the same memory."""
        if np.shape(obs) != self._space.shape:
            raise ValueError(
                f"an observation of shape {np.shape(obs)} where observation_space says {self._space.shape}"
            )
        if isinstance(self._space, spaces.Box):
            if (kind := np.asarray(obs).dtype).kind not in "biuf":  # NumPy reads numbers out of texts, too
                raise ValueError(f"an observation of dtype {kind} where numbers are needed")
            return np.array(obs, np.float32).reshape(-1)
        if not self._space.contains(obs):  # -1 would count from the end
            raise ValueError(f"the observation {_short(obs)} where observation_space says {_short(self._space)}")
        return np.asarray(spaces.flatten(self._space, obs), np.float32)

    def _nan(self) -> np.ndarray:
        return np.full(self.obs_size, np.nan, np.float32)


def _parts(result: Any, what: str, names: str) -> Any:
    """What a method of the user's returned, if it is as many things as these names."""
    several = isinstance(result, tuple | list)
    if not several or len(result) != names.count(",") + 1:
        got = f"{len(result)} values" if several else f"a single {type(result).__name__}"
        raise ValueError(f"{what} must return ({names}), and returned {got}")
    return result


def _number(value: Any, name: str, kinds: str) -> Any:
    """A number, also if it comes as an array of one, as from many environments."""
    array = np.asarray(value)
    if array.size != 1 or array.dtype.kind not in kinds:
        raise ValueError(f"{name} is {_short(value)}, of shape {array.shape} and dtype {array.dtype}: not one number")
    return array.item()


def _flag(value: Any, name: str) -> bool:
    return value if type(value) is bool else bool(_number(value, name, "biu"))


def _registered(task: str) -> Entry:
    """Gymnasium's entry of an id, after importing the module it names before a colon."""
    module, _, name = task.rpartition(":")
    if module:
        own.import_module(module)
    return gym.spec(name)


def _is_from(entry: Entry, package: str) -> bool:
    return str(entry.entry_point).startswith(package)


def _needs_box2d(entry: Entry) -> bool:
    """Whether a registered environment needs our extra `box2d`, and it is not installed."""
    return _is_from(entry, "gymnasium.envs.box2d") and importlib.util.find_spec("Box2D") is None


def source_of(task: object) -> Source:
    """What environments of a task are made from."""
    if isinstance(task, str):
        if (make := own.from_file(task)) is not None:
            return make
        try:
            entry = _registered(task)
        except gym.error.Error as error:
            from mcclt.envs import ENGINES

            known = [name for engine in ENGINES.values() for name in engine.tasks()]
            hint = "`mcclt envs` lists those of the library."
            if isinstance(error, gym.error.NamespaceNotFound) and ":" not in task:
                hint += f" If a package registers it, name that: PACKAGE:{task}, or MCCLT_IMPORT=PACKAGE."
            raise UnknownNameError("task", task, dict.fromkeys([*known, *gym.registry]), hint) from error
        if _needs_box2d(entry):
            raise MissingExtraError(f"Task {task!r}", "box2d")
        return entry
    if isinstance(task, gym.Env):
        raise ConfigError(
            f"{task!r} is a single environment, and many are needed: give its class or a function that makes one."
        )
    if not callable(task):
        raise UnsupportedSpaceError(_not_an_env(task))
    return task


def _not_an_env(what: object) -> str:
    return (
        f"An object of type {type(what).__name__} is not a gymnasium.Env: supported are single-agent Gymnasium "
        "environments (an id, a class, or a function that returns one); "
        "wrap a multi-agent or older environment into one."
    )


def make_one(name: str, source: Source, max_episode_steps: int | None) -> _Guard:
    """Makes one guarded environment; also what the workers run."""
    return _Guard(make_bare(name, source, max_episode_steps))


def make_bare(name: str, source: Source, max_episode_steps: int | None) -> gym.Env:
    """Makes one environment that policies can act in, with its time limit."""
    try:
        env = gym.make(source, disable_env_checker=True) if isinstance(source, Entry) else source()
    except Exception as error:
        raise EnvironmentFault(f"Making an environment of {name!r} failed: {own.told(error)}") from error
    if not isinstance(env, gym.Env):
        raise UnsupportedSpaceError(f"{name!r}: {_not_an_env(env)}")
    _check_spaces(name, env)
    if max_episode_steps is not None:
        limit = _time_limit(env)
        if limit is None:
            env = TimeLimit(env, max_episode_steps)
        else:
            limit._max_episode_steps = max_episode_steps
    return env


def _time_limit(env: gym.Env) -> TimeLimit | None:
    """The time limit somewhere among the wrappers of an environment."""
    while isinstance(env, gym.Wrapper):
        if isinstance(env, TimeLimit):
            return env
        env = env.env
    return None


def _check_spaces(name: str, env: gym.Env) -> None:
    """Raises unless observations can be made a vector, and actions are a vector or an index."""
    for what in ("observation_space", "action_space"):
        if getattr(env, what, None) is None:
            raise UnsupportedSpaceError(
                f"{name!r} has no {what}: define it in the class or in __init__, such as "
                f"self.{what} = gymnasium.spaces.Box(-1, 1, (3,))."
            )
    space: Any = env.observation_space
    wrapper = ""
    if isinstance(space, spaces.Box):
        if len(space.shape) > 2 or (len(space.shape) == 2 and space.dtype == np.uint8):  # an image
            wrapper = "a gymnasium.ObservationWrapper that computes features of the image"
    elif isinstance(space, spaces.Dict | spaces.Tuple):
        wrapper = "gymnasium.wrappers.FlattenObservation"
    elif not isinstance(space, spaces.Discrete | spaces.MultiBinary | spaces.MultiDiscrete):
        wrapper = "a gymnasium.ObservationWrapper that makes a vector of it"
    if wrapper:
        raise UnsupportedSpaceError(
            f"{name!r} has the observation space {_short(space)}: supported are vectors (Box of at most two "
            f"dimensions, Discrete, MultiBinary, MultiDiscrete); wrap it in {wrapper}."
        )
    if spaces.flatdim(space) == 0:
        raise UnsupportedSpaceError(
            f"{name!r} has the observation space {_short(space)}, without a number: give one, such as a constant 0."
        )
    space = env.action_space
    vector = isinstance(space, spaces.Box | spaces.MultiDiscrete | spaces.MultiBinary) and len(space.shape) == 1
    vector = vector and space.shape != (0,)
    if not (vector or isinstance(space, spaces.Discrete)):
        raise UnsupportedSpaceError(
            f"{name!r} has the action space {_short(space)}: supported are Discrete, and Box, MultiDiscrete and"
            " MultiBinary of one dimension; wrap it in a gymnasium.ActionWrapper that maps one of these to it."
        )
    if isinstance(space, spaces.Box) and space.dtype.kind != "f":  # a policy's actions would have to be rounded
        raise UnsupportedSpaceError(
            f"{name!r} has the action space {_short(space)}: a Box must be of floats; make whole numbers a "
            "MultiDiscrete, which may start below 0."
        )


def _short(space: object) -> str:
    """A space or a value in a few words: Box prints its bounds, which can be thousands of numbers."""
    if isinstance(space, spaces.Box):
        return f"Box of shape {space.shape} and dtype {space.dtype}"
    text = " ".join(str(space).split())
    return text if len(text) <= 80 else f"{text[:77]}..."
