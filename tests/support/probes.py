"""Small environments with known behaviour, and small configurations, for the tests of the shell.

Importing this module registers ids, so that the command line can be told  probes:Broken-v0.
"""

import itertools
from collections.abc import Callable
from typing import Any, ClassVar

import gymnasium as gym
import numpy as np
from gymnasium import spaces

from mcclt.config import AgentConfig, RunConfig
from mcclt.config.variants import VARIANTS

TINY: dict[str, Any] = {
    "policy_hidden": (4,),
    "critic_hidden": (8,),
    "critic_iterations": 2,
    "policy_iterations": 2,
}
"""An agent that compiles and learns in no time."""
SMALL: dict[str, Any] = {
    "n_envs": 2,
    "steps_per_update": 16,
    "eval_freq": 0,
    "final_episodes": 0,
    "threads": 1,
    "steps": 64,
}
"""A run of four updates."""
OURS = {name: value for name, value in (TINY | SMALL).items() if name not in ("steps", "eval_freq", "final_episodes")}
"""Both, as arguments of `PPO` and `TRPO`."""
PENDULUM = "InvertedDoublePendulum-v5"


def agent(**settings: Any) -> AgentConfig:
    return AgentConfig(**(TINY | settings))


def run_config(task: str = PENDULUM, groups: dict[str, AgentConfig] | None = None, **settings: Any) -> RunConfig:
    return RunConfig(task=task, groups=groups or {"plain": agent(critic="plain")}, **(SMALL | settings))


def variant(name: str, algo: str = "ppo") -> AgentConfig:
    return agent(algo=algo, **VARIANTS[name])


def flags(**settings: Any) -> list[str]:
    """Settings as command line flags."""
    words = []
    for name, value in settings.items():
        text = ",".join(map(str, value)) if isinstance(value, tuple) else str(value)
        words += [f"--{name.replace('_', '-')}", text]
    return words


TINY_FLAGS = flags(**TINY, **SMALL)


class Counter(gym.Env):
    """Observes (step, episode), rewards the step's number; terminates at step 3 of even episodes, truncates at
    step 5 of odd ones. Keeps every action it is sent."""

    observation_space = spaces.Box(-np.inf, np.inf, (2,), np.float32)
    action_space = spaces.Box(-0.25, 0.25, (3,), np.float32)
    actions: ClassVar[list[np.ndarray]] = []

    def __init__(self) -> None:
        self.episode, self.t = -1, 0

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None):
        super().reset(seed=seed)
        self.episode, self.t = self.episode + 1, 0
        return self._obs(), {}

    def step(self, action: np.ndarray):
        self.actions.append(np.array(action))
        self.t += 1
        odd = self.episode % 2 == 1
        return self._obs(), float(self.t), not odd and self.t == 3, odd and self.t == 5, {}

    def _obs(self) -> np.ndarray:
        return np.array([self.t, self.episode], np.float32)


def counter_length(episode: int) -> int:
    return 5 if episode % 2 else 3


class Noisy(gym.Env):
    """A random walk, moved by the action: episodes of up to 6 steps from a random start. `trouble` may be
    overridden to spoil it."""

    observation_space = spaces.Box(-np.inf, np.inf, (3,), np.float32)
    action_space = spaces.Box(-1, 1, (2,), np.float32)

    def __init__(self, trouble: Callable[[int, dict[str, Any]], None] | None = None) -> None:
        self.life, self.t, self.trouble = 0, 0, trouble

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None):
        super().reset(seed=seed)
        self.t, self.x = 0, self.np_random.normal(size=3)
        return self.x.astype(np.float32), {}

    def step(self, action: np.ndarray):
        self.t, self.life = self.t + 1, self.life + 1
        self.x = self.x + 0.1 * self.np_random.normal(size=3) + 0.1 * float(action.sum())
        out = {"obs": self.x.astype(np.float32), "reward": float(self.x[0])}
        if self.trouble is not None:
            self.trouble(self.life, out)
        return out["obs"], out["reward"], bool(self.x[0] > 2), self.t >= 6, {}


def make_trouble(kind: str, at: int, upto: int | None = None) -> Callable[[int, dict[str, Any]], None]:
    """What goes wrong at step `at` (up to `upto`, exclusive; once if not given) of an environment's life."""

    def trouble(life: int, out: dict[str, Any]) -> None:
        if at <= life < (at + 1 if upto is None else upto):
            match kind:
                case "nan reward":
                    out["reward"] = float("nan")
                case "inf reward":
                    out["reward"] = float("inf")
                case "nan obs":
                    out["obs"][1] = np.nan
                case "-inf obs":
                    out["obs"][2] = -np.inf
                case "raise":
                    raise RuntimeError("the motor [/burns] is [out]")
                case "interrupt":
                    raise KeyboardInterrupt

    return trouble


def factory(kind: str = "", at: int = 0, which: tuple[int, ...] = (), upto: int | None = None) -> Callable[[], gym.Env]:
    """Makes `Noisy` environments, those of the numbers `which` spoilt.

    The engine makes one environment to look at its spaces first: that one has the number -1.
    """
    numbers = itertools.count(-1)

    def make() -> gym.Env:
        return Noisy(make_trouble(kind, at, upto) if next(numbers) in which else None)

    return make


class Broken(Noisy):
    """Spoilt at a step of its life as long as `Broken.armed`; for the command line."""

    armed: ClassVar[bool] = True

    def __init__(self, kind: str = "raise", at: int = 10) -> None:
        spoil = make_trouble(kind, at)
        super().__init__(lambda life, out: spoil(life, out) if Broken.armed else None)


class NanStart(Noisy):
    """Its very first observation is not a number; all that follow are."""

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None):
        obs, info = super().reset(seed=seed)
        return obs if self.life else np.full_like(obs, np.nan), info

    def step(self, action: np.ndarray):
        return super().step(np.zeros(2))  # an action that is not a number would show in what follows


class RaisingStart(Noisy):
    """Cannot be reset."""

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None):
        raise RuntimeError("no start")


class DictEnv(Noisy):
    """Observes a dict."""

    observation_space = spaces.Dict({"a": spaces.Box(-1, 1, (2,)), "b": spaces.Discrete(3)})


class ImageEnv(Noisy):
    """Observes an image."""

    observation_space = spaces.Box(0, 255, (8, 8, 3), np.uint8)


class ShiftedActions(Noisy):
    """Discrete actions that start at 5."""

    action_space = spaces.Discrete(3, start=5)

    def step(self, action: Any):
        assert self.action_space.contains(int(action)), action
        return super().step(np.asarray([float(action)]))


gym.register("Counter-v0", Counter)
gym.register("Noisy-v0", Noisy)
gym.register("Broken-v0", Broken)
gym.register("BrokenNan-v0", Broken, kwargs={"kind": "nan obs"})
gym.register("BrokenInf-v0", Broken, kwargs={"kind": "inf reward"})
gym.register("Interrupting-v0", Broken, kwargs={"kind": "interrupt", "at": 20})
gym.register("DictEnv-v0", DictEnv)
gym.register("ImageEnv-v0", ImageEnv)
gym.register("RaisingStart-v0", RaisingStart)
