"""Any single-agent Gymnasium environment, through Gymnasium's SyncVectorEnv or in processes of their own.

The engine for everything that is not ours: ids of the registry, the user's own classes, and factories.
"""

import functools
import importlib
import importlib.util
from collections.abc import Callable, Sequence
from typing import Any, ClassVar

import gymnasium as gym
import numpy as np
from gymnasium import spaces
from gymnasium.vector import AutoresetMode, SyncVectorEnv
from gymnasium.wrappers import TimeLimit

from mcclt.envs.api import EnvSpec, Key, Step, task_name
from mcclt.envs.processes import Processes
from mcclt.errors import (
    CheckpointError,
    ConfigError,
    EnvironmentFault,
    MissingExtraError,
    UnknownNameError,
    UnsupportedSpaceError,
)


class GymnasiumEngine:
    """Steps environments one after the other in this process.

    A task is an id ("Pendulum-v1", or "package.module:Name-v0" where importing the module registers it), a
    class, or a function without arguments that returns an environment.
    """

    name = "gymnasium"
    asynchronous: ClassVar[bool] = False

    def supports(self, task: object) -> bool:
        """Whether the id is registered and what it needs installed; any class or function is worth a try."""
        if not isinstance(task, str):
            return callable(task) and not isinstance(task, gym.Env)
        try:
            return not _needs_box2d(_registered(task))
        except Exception:  # importing the module of "module:Name" can raise anything
            return False

    def make(
        self,
        task: object,
        keys: Sequence[Key],
        max_episode_steps: int | None,
        num_threads: int | None,
        step_timeout: float | None = None,
    ) -> "GymnasiumVectorEnv":
        """Makes one environment per key. `num_threads` means nothing here, `step_timeout` only to processes."""
        name = task_name(task)
        source = source_of(task)
        return GymnasiumVectorEnv(name, self.name, source, keys, max_episode_steps, self.asynchronous, step_timeout)


class GymnasiumAsyncEngine(GymnasiumEngine):
    """Steps each environment in a process of its own: worth it for environments that are slow, crash or hang."""

    name = "gymnasium-async"
    asynchronous = True


class GymnasiumVectorEnv:
    """Gymnasium's SyncVectorEnv, or our `Processes`, under the contract of `mcclt.envs.api.VectorEnv`."""

    on_device = False

    def __init__(
        self,
        name: str,
        engine: str,
        source: "gym.envs.registration.EnvSpec | Callable[[], gym.Env]",
        keys: Sequence[Key],
        max_episode_steps: int | None,
        asynchronous: bool,
        step_timeout: float | None,
    ) -> None:
        """Makes one environment to learn its spaces, then one per key."""
        make = functools.partial(make_one, name, source, max_episode_steps)
        probe = make()
        space, limit = probe.action_space, _time_limit(probe)
        assert isinstance(space, spaces.Box | spaces.Discrete)  # `_check_spaces` saw to it
        probe.close()

        self.num_envs = len(keys)
        self.spec = EnvSpec(
            task=name,
            engine=engine,
            obs_size=probe.obs_size,
            action_size=space.shape[0] if isinstance(space, spaces.Box) else int(space.n),
            action_low=space.low.astype(np.float32) if isinstance(space, spaces.Box) else None,
            action_high=space.high.astype(np.float32) if isinstance(space, spaces.Box) else None,
            max_episode_steps=None if limit is None else limit._max_episode_steps,
            resumable=False,
            action_start=int(space.start) if isinstance(space, spaces.Discrete) else 0,
        )
        self._keys = keys
        self._starts = np.zeros(len(keys), np.int64)  # how often each environment was seeded
        self._action_dtype = space.dtype
        self._faults: dict[int, str] = {}
        self._obs = np.zeros((len(keys), self.spec.obs_size), np.float32)

        self._envs: SyncVectorEnv | Processes
        if asynchronous:
            self._envs = Processes(make, len(keys), self.spec.obs_size, step_timeout)
        else:
            self._envs = SyncVectorEnv([make] * len(keys), autoreset_mode=AutoresetMode.SAME_STEP)

    def reset(self) -> np.ndarray:
        """Starts a new episode everywhere; returns observations [n, O]."""
        return self.restart(np.ones(self.num_envs, bool))

    def restart(self, which: np.ndarray) -> np.ndarray:
        """Seeds anew and resets where the mask [n] is true; returns all observations [n, O]."""
        self._faults = {}
        if which.any():
            seeds: list[int | None] = [
                _seed(key, start) for key, start in zip(self._keys, self._starts.tolist(), strict=True)
            ]
            self._starts += which
            self._obs, infos = self._envs.reset(seed=seeds, options={"reset_mask": which})
            self._note_faults(infos)
        return self._obs

    def rekey(self, keys: Sequence[Key], which: np.ndarray) -> None:
        """Names the environments where the mask [n] is true anew: their next `restart` is that of new ones."""
        self._keys = [new if changed else old for old, new, changed in zip(self._keys, keys, which, strict=True)]
        self._starts[which] = 0

    def step(self, action: np.ndarray) -> Step:
        """Steps all environments; see `mcclt.envs.api.VectorEnv.step`."""
        action = (action + self.spec.action_start).astype(self._action_dtype)
        obs, reward, terminated, truncated, infos = self._envs.step(action)
        self._note_faults(infos)
        self._obs = next_obs = obs
        ended = np.flatnonzero(terminated | truncated)
        if ended.size:
            next_obs = obs.copy()
            next_obs[ended] = np.stack(infos["final_obs"][ended])  # an array of arrays
        if isinstance(self._envs, Processes) and (lost := self._envs.lost).any():
            said = self._faults
            obs = self.restart(lost)
            self._faults |= said  # what was lost in this step, rather than at its restart
        return Step(obs, reward.astype(np.float32), terminated, truncated & ~terminated, next_obs)

    def faults(self) -> dict[int, str]:
        """What environments raised in the last step or reset, by index."""
        return self._faults

    def get_state(self) -> dict[str, np.ndarray]:
        """Not possible: a Gymnasium environment keeps its state to itself."""
        raise CheckpointError(f"{self.spec.task!r} cannot be saved: Gymnasium does not expose its state.")

    def set_state(self, state: dict[str, np.ndarray]) -> np.ndarray:
        """Not possible, as for `get_state`."""
        raise CheckpointError(f"{self.spec.task!r} cannot be restored: Gymnasium does not accept a state.")

    def close(self) -> None:
        """Closes the environments and ends the processes."""
        self._envs.close()

    def _note_faults(self, infos: dict[str, Any]) -> None:
        mask = infos.get("_fault", np.zeros(0, bool))
        self._faults = {int(i): infos["fault"][i] for i in np.flatnonzero(mask)}


class _Guard(gym.Wrapper):
    """Gives float32 vectors, and turns an exception into NaN, truncation and a message.

    The message leaves with the info of the next `reset`, which in SAME_STEP mode is part of the same step of
    the vector environment. No other info leaves: nobody reads it, and batching it costs more than the rest.
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
            obs = self._vector(self.env.reset(seed=seed, options=options)[0])
            self._unready = ""
        except (Exception, SystemExit) as error:  # one that calls sys.exit() must not end the training
            obs = self._nan()
            self._unready = f"raised in reset: {_describe(error)}"
            self._fault = self._fault or self._unready
        fault, self._fault = self._fault, ""
        return obs, {"fault": fault} if fault else {}

    def step(self, action: Any) -> tuple[np.ndarray, float, bool, bool, dict]:
        """One step; NaN and truncated if that raises, or if the last reset did (it is then tried again)."""
        if self._unready:
            self._fault = self._unready
            return self._nan(), np.nan, False, True, {}
        try:
            obs, reward, terminated, truncated, _ = self.env.step(action)
            vector, number = self._vector(obs), _number(reward, "reward", "biuf")
            return vector, float(number), _flag(terminated, "terminated"), _flag(truncated, "truncated"), {}
        except (Exception, SystemExit) as error:
            self._fault = f"raised in step: {_describe(error)}"
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


def _number(value: Any, name: str, kinds: str) -> Any:
    """A number, also if it comes as an array of one, as from many environments."""
    array = np.asarray(value)
    if array.size != 1 or array.dtype.kind not in kinds:
        raise ValueError(f"{name} is {_short(value)}, of shape {array.shape} and dtype {array.dtype}: not one number")
    return array.item()


def _flag(value: Any, name: str) -> bool:
    return value if type(value) is bool else bool(_number(value, name, "biu"))


def _describe(error: BaseException) -> str:
    return f"{type(error).__name__}: {error}"


def _seed(key: Key, start: int) -> int:
    """The seed of an environment's `start`-th seeding, from its own names alone."""
    return int(np.random.SeedSequence([*key, start]).generate_state(1)[0])


def _registered(task: str) -> "gym.envs.registration.EnvSpec":
    """Gymnasium's entry of an id, after importing the module it names before a colon."""
    module, _, name = task.rpartition(":")
    if module:
        importlib.import_module(module)
    return gym.spec(name)


def _needs_box2d(entry: "gym.envs.registration.EnvSpec") -> bool:
    """Whether a registered environment needs our extra `box2d`, and it is not installed."""
    return str(entry.entry_point).startswith("gymnasium.envs.box2d") and importlib.util.find_spec("Box2D") is None


def source_of(task: object) -> "gym.envs.registration.EnvSpec | Callable[[], gym.Env]":
    """What environments are made from. An entry rather than its id: a worker has not the user's registry."""
    if isinstance(task, str):
        try:
            entry = _registered(task)
        except gym.error.Error as error:
            from mcclt.envs.tasks import TASKS

            raise UnknownNameError("task", task, [*TASKS, *gym.registry]) from error
        except Exception as error:
            raise ConfigError(f"Importing the module of task {task!r} failed: {_describe(error)}") from error
        if _needs_box2d(entry):
            raise MissingExtraError(f"Task {task!r}", "box2d")
        return entry
    if isinstance(task, gym.Env):
        raise ConfigError(
            f"{task!r} is one environment, and many are needed: give its class or a function that makes one."
        )
    if not callable(task):
        raise UnsupportedSpaceError(_not_an_env(task))
    return task


def _not_an_env(what: object) -> str:
    return (
        f"A {type(what).__name__} is not a gymnasium.Env: supported are single-agent Gymnasium environments "
        "(an id, a class, or a function that returns one); wrap a multi-agent or older environment into one."
    )


def make_one(
    name: str,
    source: "gym.envs.registration.EnvSpec | Callable[[], gym.Env]",
    max_episode_steps: int | None,
) -> _Guard:
    """Makes one guarded environment; also what the workers run."""
    try:
        if isinstance(source, gym.envs.registration.EnvSpec):
            env = gym.make(source, disable_env_checker=True)
        else:
            env = source()
    except Exception as error:
        raise EnvironmentFault(f"Making an environment of {name!r} failed: {_describe(error)}") from error
    if not isinstance(env, gym.Env):
        raise UnsupportedSpaceError(f"{name!r}: {_not_an_env(env)}")
    _check_spaces(name, env)
    if max_episode_steps is not None:
        limit = _time_limit(env)
        if limit is None:
            env = TimeLimit(env, max_episode_steps)
        else:
            limit._max_episode_steps = max_episode_steps
    return _Guard(env)


def _time_limit(env: gym.Env) -> TimeLimit | None:
    """The time limit somewhere among the wrappers of an environment."""
    while isinstance(env, gym.Wrapper):
        if isinstance(env, TimeLimit):
            return env
        env = env.env
    return None


def _check_spaces(name: str, env: gym.Env) -> None:
    """Raises unless observations can be made a vector, and actions are a vector or an index."""
    space = getattr(env, "observation_space", None)
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
    space = getattr(env, "action_space", None)
    if not (isinstance(space, spaces.Discrete) or (isinstance(space, spaces.Box) and len(space.shape) == 1)):
        raise UnsupportedSpaceError(
            f"{name!r} has the action space {_short(space)}: supported are Box of one dimension and Discrete"
            "; wrap it in a gymnasium.ActionWrapper that maps one of these to it."
        )


def _short(space: object) -> str:
    """A space or a value in a few words: Box prints its bounds, which can be thousands of numbers."""
    if isinstance(space, spaces.Box):
        return f"Box of shape {space.shape} and dtype {space.dtype}"
    text = str(space)
    return text if len(text) <= 80 else f"{text[:77]}..."
