"""Environments in processes of their own, any of which may crash or hang without taking the others along.

Gymnasium's AsyncVectorEnv ends as a whole when one of its processes does, and cannot replace it. Here a process that
dies, or does not answer in time, is ended and counts as a fault of its environment, which gets a new process at its
next reset.
"""

import contextlib
import multiprocessing
import multiprocessing.connection
import signal
import time
from collections.abc import Callable, Sequence
from multiprocessing.connection import Connection
from multiprocessing.process import BaseProcess
from typing import Any, NamedTuple

import gymnasium as gym
import numpy as np
from gymnasium.vector.utils import CloudpickleWrapper

from mcclt import interrupts
from mcclt.errors import ConfigError, EnvironmentFault

LIVES = 3
"""Processes that an environment may lose between two whole episodes; then it is given up. Without a limit, one that
always hangs would have everybody wait for it in every step."""
TO_START = 60.0
"""Seconds that a process may take to import and make its environment, on top of `timeout`."""
TO_END = 2.0
"""Seconds that processes may take to close their environments."""
PATIENCE = 1.0
"""Seconds without an answer after which Ctrl-C is looked for."""


class Answer(NamedTuple):
    """What became of one step of one environment, or of its reset."""

    obs: np.ndarray
    """[O] float32: what to act on next."""
    reward: float
    terminated: bool
    truncated: bool
    next_obs: np.ndarray
    """[O] float32: the true successor; equals `obs` unless an episode ended."""
    fault: str
    """What it raised, if anything."""


Answers = tuple[dict[int, Answer], dict[int, str]]
"""Answers by environment, and why others have no process to give one."""


def _reset(env: gym.Env, seed: int | None) -> Answer:
    obs, info = env.reset(seed=seed)
    return Answer(obs, 0.0, False, False, obs, info.get("fault", ""))


def _step(env: gym.Env, action: Any) -> Answer:
    """One step, and a new episode if it ended one; what the step raised leaves with the reset."""
    next_obs, reward, terminated, truncated, _ = env.step(action)
    obs, fault = next_obs, ""
    if terminated or truncated:
        obs, *_, fault = _reset(env, None)
    return Answer(obs, float(reward), terminated, truncated, next_obs, fault)


class InTurn:
    """Steps and resets of environments in this process, one after the other; none is ever lost."""

    def __init__(self, make: Callable[[], gym.Env], count: int, timeout: float | None) -> None:
        """Makes them all; nothing ends a step that takes too long."""
        del timeout
        self._envs = [make() for _ in range(count)]
        if len({id(env.unwrapped) for env in self._envs}) < count:
            raise ConfigError("One environment came back for several: the function must make a new one at every call.")

    def reset(self, seeds: dict[int, int]) -> Answers:
        """New episodes of the environments named here."""
        return {i: _reset(self._envs[i], seed) for i, seed in seeds.items()}, {}

    def step(self, action: np.ndarray) -> Answers:
        """One step of each."""
        return {i: _step(env, action[i]) for i, env in enumerate(self._envs)}, {}

    def close(self) -> None:
        """Closes them all."""
        for env in self._envs:
            env.close()


class Processes:
    """The same in processes."""

    def __init__(self, make: Callable[[], gym.Env], count: int, timeout: float | None) -> None:
        """Starts all processes.

        Args:
            make: makes an environment that raises nothing; may be a closure.
            count: how many.
            timeout: seconds that a step or a reset may take; None: any time.
        """
        # Never a plain fork: JAX runs threads, and a forked child can wait forever for their locks.
        self._context = multiprocessing.get_context("forkserver")
        multiprocessing.set_forkserver_preload(["mcclt.envs.gymnasium"])  # imported once, not per process
        self._make, self._count, self._timeout = CloudpickleWrapper(make), count, timeout
        self._pipes: dict[int, Connection] = {}
        self._processes: dict[int, BaseProcess] = {}
        self._losses = [0] * count
        self._why = [""] * count
        try:
            if lost := self._start(range(count)):
                raise EnvironmentFault(
                    f"Environment {min(lost)} {lost[min(lost)]} when it was made: it crashes, or a script made it "
                    "outside of `if __name__ == '__main__':`; engine='gymnasium' uses no processes."
                )
        except BaseException:
            self.close()
            raise

    def reset(self, seeds: dict[int, int]) -> Answers:
        """New episodes of the environments named here; lost processes are replaced first."""
        if len(seeds) == self._count:
            self._losses = [0] * self._count  # everything begins again
        lost = [i for i in seeds if i not in self._pipes]
        given_up = [i for i in lost if self._losses[i] >= LIVES]
        faults = {i: f"was given up after {LIVES} processes: the last one {self._why[i]}" for i in given_up}
        faults |= self._start([i for i in lost if i not in given_up])
        answers, died = self._ask("reset", {i: seed for i, seed in seeds.items() if i in self._pipes})
        return answers, faults | died

    def step(self, action: np.ndarray) -> Answers:
        """One step of each that has a process."""
        faults = {i: self._why[i] for i in range(self._count) if i not in self._pipes}
        answers, died = self._ask("step", {i: action[i] for i in sorted(self._pipes)})
        for i, answer in answers.items():
            if (answer.terminated or answer.truncated) and not answer.fault:
                self._losses[i] = 0  # a whole episode
        return answers, faults | died

    def close(self) -> None:
        """Ends all processes: politely, then not."""
        for pipe in self._pipes.values():
            pipe.close()  # which each takes as the end
        deadline = time.monotonic() + TO_END
        for process in self._processes.values():
            process.join(max(0.0, deadline - time.monotonic()))
            if process.is_alive():
                process.kill()
                process.join()
        self._pipes, self._processes = {}, {}

    def _start(self, which: Sequence[int]) -> dict[int, str]:
        """Starts processes and waits for their environments; returns why some are lost."""
        for i in which:
            ours, theirs = self._context.Pipe()
            self._processes[i] = self._context.Process(target=_serve, args=(theirs, self._make), daemon=True)
            self._pipes[i] = ours
            self._processes[i].start()
            theirs.close()  # so that its death closes the pipe
        limit = None if self._timeout is None else self._timeout + TO_START
        answers, lost = self._collect(list(which), "the start", limit)
        return lost | {i: self._lose(i, failure) for i, failure in answers.items() if failure}

    def _ask(self, what: str, of: dict[int, Any]) -> Answers:
        """Asks for a "reset" or a "step"; returns answers, and why others are lost."""
        for i, data in of.items():
            with contextlib.suppress(OSError):  # it is dead, which `_collect` finds
                self._pipes[i].send((what, data))
        return self._collect(list(of), what, self._timeout)

    def _collect(self, which: list[int], what: str, limit: float | None) -> tuple[dict[int, Any], dict[int, str]]:
        """Waits for one answer of each, for at most `limit` seconds; those that die or are late are ended."""
        waiting = {self._pipes[i]: i for i in which}
        answers: dict[int, Any] = {}
        lost: dict[int, str] = {}
        deadline = None if limit is None else time.monotonic() + limit
        try:
            while waiting:
                left = PATIENCE if deadline is None else min(PATIENCE, max(0.0, deadline - time.monotonic()))
                ready = [pipe for pipe in multiprocessing.connection.wait(list(waiting), left) if pipe in waiting]
                for pipe in ready:
                    assert isinstance(pipe, Connection)
                    i = waiting.pop(pipe)
                    try:
                        answers[i] = pipe.recv()
                    except (EOFError, OSError):
                        lost[i] = self._lose(i, f"{self._death(i)} in {what}")
                if not ready and deadline is not None and time.monotonic() >= deadline:
                    for i in waiting.values():
                        late = f"did not answer within {limit:g} s in {what}, and its process was ended"
                        lost[i] = self._lose(i, late)
                    waiting = {}
                elif not ready:
                    interrupts.check()
        finally:
            for i in waiting.values():  # interrupted: late answers must not be taken for those to the next request
                self._lose(i, f"was interrupted in {what}")
        return answers, lost

    def _death(self, i: int) -> str:
        """How a process ended."""
        self._processes[i].join(TO_END)
        code = self._processes[i].exitcode
        if code is None:
            return "closed its pipe"
        return f"ended its process with {f'signal {-code}' if code < 0 else f'exit code {code}'}"

    def _lose(self, i: int, why: str) -> str:
        """Ends a process; returns why."""
        self._pipes.pop(i).close()
        process = self._processes.pop(i)
        process.kill()
        process.join()
        self._losses[i] += 1
        self._why[i] = why
        return why


def _serve(pipe: Connection, make: CloudpickleWrapper) -> None:
    """What a process does: makes its environment, then resets and steps it until the pipe closes."""
    for number in interrupts.SIGNALS:  # they are the parent's to handle
        signal.signal(number, signal.SIG_IGN)
    interrupts.end_with_parent()
    try:
        env = make.fn()
        failure = ""
    except BaseException as error:
        failure = f"raised {type(error).__name__}: {error}"
    with contextlib.suppress(OSError, EOFError):
        pipe.send(failure)
        while not failure:
            what, data = pipe.recv()
            pipe.send(_reset(env, data) if what == "reset" else _step(env, data))
    with contextlib.suppress(Exception):
        env.close()
