"""Environments that misbehave in every way we could think of, at a chosen step of one of many.

Processes import this module: it must not import JAX, which takes seconds.
"""

import os
import signal
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import gymnasium as gym
import numpy as np
from gymnasium import spaces

from mcclt.envs.api import seed_of

Outcome = tuple[Any, ...]

IN_STEP: dict[str, Callable[[Outcome], Any]] = {
    # what is wrong: from the right outcome of a step to what the environment does instead
    "raises": lambda out: _raise(RuntimeError("the motor burns")),
    "raises an error without text": lambda out: _raise(AssertionError()),
    "runs out of memory": lambda out: _raise(MemoryError()),
    "recurses for ever": lambda out: _recurse(),
    "calls sys.exit": lambda out: sys.exit(0),
    "NaN reward": lambda out: _with(out, 1, float("nan")),
    "infinite reward": lambda out: _with(out, 1, float("-inf")),
    "reward beyond float32": lambda out: _with(out, 1, 1e300),
    "NaN observation": lambda out: _with(out, 0, out[0] * np.nan),
    "one infinity": lambda out: _with(out, 0, np.array([0, np.inf, 0], np.float32)),
    "observation beyond float32": lambda out: _with(out, 0, np.array([0, 1e300, 0])),
    "short observation": lambda out: _with(out, 0, out[0][:2]),
    "long observation": lambda out: _with(out, 0, np.append(out[0], 0)),
    "matrix": lambda out: _with(out, 0, out[0][None]),
    "scalar observation": lambda out: _with(out, 0, 1.0),
    "ragged observation": lambda out: _with(out, 0, [[1], [2, 3], 4]),
    "no observation": lambda out: _with(out, 0, None),
    "dict observation": lambda out: _with(out, 0, {"x": out[0]}),
    "text observation": lambda out: _with(out, 0, np.array(["1", "2", "3"])),
    "complex observation": lambda out: _with(out, 0, out[0] * 1j),
    "object observation": lambda out: _with(out, 0, np.array([1, None, 2], object)),
    "dates": lambda out: _with(out, 0, np.array([1, 2, 3], "datetime64[s]")),
    "no reward": lambda out: _with(out, 1, None),
    "two rewards": lambda out: _with(out, 1, np.ones(2)),
    "no numbers in the reward": lambda out: _with(out, 1, np.ones(0)),
    "text reward": lambda out: _with(out, 1, "1.0"),
    "complex reward": lambda out: _with(out, 1, 1j),
    "text for terminated": lambda out: _with(out, 2, "False"),
    "NaN for truncated": lambda out: _with(out, 3, float("nan")),
    "two flags": lambda out: _with(out, 2, np.array([True, False])),
    "None for truncated": lambda out: _with(out, 3, None),
    "four values": lambda out: out[:4],
    "six values": lambda out: (*out, None),
    "nothing": lambda out: None,
}
IN_RESET: dict[str, Callable[[Outcome], Any]] = {
    "reset raises": lambda out: _raise(OSError("no disk")),
    "reset calls sys.exit": lambda out: sys.exit("bye"),
    "reset without info": lambda out: out[0],
    "reset to NaN": lambda out: (out[0] * np.nan, {}),
    "reset to another shape": lambda out: (np.zeros(7, np.float32), {}),
    "reset to nothing": lambda out: None,
}
DEADLY: dict[str, Callable[[Outcome], Any]] = {
    # only an environment in a process of its own survives these
    "exits": lambda out: os._exit(3),
    "is killed": lambda out: os.kill(os.getpid(), signal.SIGKILL),
    "crashes": lambda out: os.kill(os.getpid(), signal.SIGSEGV),
    "hangs": lambda out: time.sleep(3600),
    "hangs for signals too": lambda out: _deaf(),
}


def _with(out: Outcome, place: int, value: Any) -> Outcome:
    return (*out[:place], value, *out[place + 1 :])


def _raise(error: BaseException) -> None:
    raise error


def _recurse() -> None:
    _recurse()


def _deaf() -> None:
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    time.sleep(3600)


class Walk(gym.Env):
    """A random walk, moved by the action: episodes of up to 6 steps from a random start."""

    observation_space = spaces.Box(-np.inf, np.inf, (3,), np.float32)
    action_space = spaces.Box(-1, 1, (2,), np.float32)
    life = 0
    """Steps it has made, over all episodes."""

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None):
        super().reset(seed=seed)
        self.t, self.x = 0, self.np_random.normal(size=3)
        return self.x.astype(np.float32), {}

    def step(self, action: np.ndarray):
        self.t, self.life = self.t + 1, self.life + 1
        self.x = self.x + 0.1 * self.np_random.normal(size=3) + 0.1 * float(action.sum())
        return self.x.astype(np.float32), float(self.x[0]), bool(self.x[0] > 2), self.t >= 6, {}


class AlwaysHangs(Walk):
    """At its third step, in every process; each time is a line of the file `log`."""

    def __init__(self, log: Path) -> None:
        self.log = log

    def step(self, action: np.ndarray):
        if self.life == 2:
            with open(self.log, "a") as file:
                file.write("hangs\n")
            time.sleep(3600)
        return super().step(action)


class Misbehaving(Walk):
    """`Walk`, until the environment that was first reset with `victim` has made `at` steps (or begins an episode
    after that, for what goes wrong in a reset); `often` times."""

    def __init__(self, kind: str, at: int, victim: int, often: int = 1) -> None:
        self.kind, self.at, self.victim, self.left, self.marked = kind, at, victim, often, False

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None):
        out = super().reset(seed=seed)
        self.marked = self.marked or seed == self.victim
        return self._spoil(out, IN_RESET)

    def step(self, action: np.ndarray):
        return self._spoil(super().step(action), IN_STEP | DEADLY)

    def _spoil(self, out: Outcome, kinds: dict[str, Callable[[Outcome], Any]]) -> Any:
        if self.marked and self.kind in kinds and self.life >= self.at and self.left > 0:
            self.left -= 1
            return kinds[self.kind](out)
        return out


def factory(kind: str, at: int, seed: int, env: int, often: int = 1) -> Callable[[], gym.Env]:
    """Makes `Misbehaving` environments: number `env` of the agent with this seed is the one, whatever the engine."""
    from mcclt.method.randomness import Purpose

    victim = seed_of(seed, int(Purpose.TRAIN_RESET), 0, env, 0)
    return lambda: Misbehaving(kind, at, victim, often)
