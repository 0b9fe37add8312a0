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
from typing import Any

import gymnasium as gym
import numpy as np
from gymnasium.vector.utils import CloudpickleWrapper

from mcclt import interrupts
from mcclt.errors import EnvironmentFault

LIVES = 3
"""Processes that an environment may lose between two whole episodes; then it is given up. Without a limit, one that
always hangs would have everybody wait for it in every step."""
TO_START = 60.0
"""Seconds that a process may take to import and make its environment, on top of `timeout`."""
TO_END = 2.0
"""Seconds that processes may take to close their environments."""
PATIENCE = 1.0
"""Seconds without an answer after which Ctrl-C is looked for."""


class Processes:
    """Steps and resets of environments in processes, in the form of Gymnasium's vector environments (SAME_STEP)."""

    def __init__(self, make: Callable[[], gym.Env], count: int, obs_size: int, timeout: float | None) -> None:
        """Starts all processes.

        Args:
            make: makes an environment with float32 observations [obs_size]; may be a closure.
            count: how many.
            obs_size: length of an observation.
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
        self._obs = np.full((count, obs_size), np.nan, np.float32)
        try:
            if lost := self._start(range(count)):
                raise EnvironmentFault(
                    f"Environment {min(lost)} {lost[min(lost)]} when it was made: it crashes, or a script made it "
                    "outside of `if __name__ == '__main__':`; engine='gymnasium' uses no processes."
                )
        except BaseException:
            self.close()
            raise

    @property
    def lost(self) -> np.ndarray:
        """Where [n] there is no process: the next reset makes one."""
        return np.array([i not in self._pipes for i in range(self._count)])

    def reset(self, *, seed: Sequence[int | None], options: dict[str, Any]) -> tuple[np.ndarray, dict[str, Any]]:
        """New episodes where `options["reset_mask"]` says; lost processes are replaced there first."""
        which = np.flatnonzero(options["reset_mask"]).tolist()
        if len(which) == self._count:
            self._losses = [0] * self._count  # everything begins again
        given_up = [i for i in which if i not in self._pipes and self._losses[i] >= LIVES]
        faults = {i: f"was given up after {LIVES} processes: the last one {self._why[i]}" for i in given_up}
        faults |= self._start([i for i in which if i not in self._pipes and i not in given_up])
        alive = [i for i in which if i in self._pipes]
        answers, lost = self._ask({i: ("reset", seed[i]) for i in alive}, "reset")
        faults |= lost
        self._obs[which] = np.nan
        for i, (obs, info) in answers.items():
            self._obs[i] = obs
            faults |= {i: info["fault"]} if info else {}
        return self._obs.copy(), self._infos(faults)

    def step(self, action: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray, dict[str, Any]]:
        """One step; a lost environment gives NaN, is truncated and has a fault."""
        answers, faults = self._ask({i: ("step", action[i]) for i in sorted(self._pipes)}, "step")
        faults |= {i: self._why[i] for i in range(self._count) if i not in answers and i not in faults}
        reward = np.full(self._count, np.nan)
        terminated = np.zeros(self._count, bool)
        truncated = np.ones(self._count, bool)
        final = np.empty(self._count, object)
        for i, (obs, reward[i], terminated[i], truncated[i], last, info) in answers.items():
            self._obs[i], final[i] = obs, last
            faults |= {i: info["fault"]} if info else {}
            if last is not None and not info:
                self._losses[i] = 0  # a whole episode
        for i in faults.keys() - answers.keys():
            self._obs[i] = np.nan
            final[i] = np.full(self._obs.shape[1], np.nan, np.float32)
        return self._obs.copy(), reward, terminated, truncated, self._infos(faults) | {"final_obs": final}

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

    def _infos(self, faults: dict[int, str]) -> dict[str, Any]:
        said, mask = np.empty(self._count, object), np.zeros(self._count, bool)
        for i, fault in faults.items():
            said[i], mask[i] = fault, True
        return {"fault": said, "_fault": mask}

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
        for i, failure in answers.items():
            if failure:
                self._lose(i, failure)
                lost[i] = failure
        return lost

    def _ask(self, requests: dict[int, Any], what: str) -> tuple[dict[int, Any], dict[int, str]]:
        """Sends requests; returns answers, and why others are lost."""
        for i, request in requests.items():
            with contextlib.suppress(OSError):  # it is dead, which `_collect` finds
                self._pipes[i].send(request)
        return self._collect(list(requests), what, self._timeout)

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
                        lost[i] = f"{self._death(i)} in {what}"
                        self._lose(i, lost[i])
                if not ready and deadline is not None and time.monotonic() >= deadline:
                    for i in waiting.values():
                        lost[i] = f"did not answer within {limit:g} s in {what}, and its process was ended"
                        self._lose(i, lost[i])
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

    def _lose(self, i: int, why: str) -> None:
        self._pipes.pop(i).close()
        process = self._processes.pop(i)
        process.kill()
        process.join()
        self._losses[i] += 1
        self._why[i] = why


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
            command, data = pipe.recv()
            if command == "reset":
                pipe.send(env.reset(seed=data, options={}))
                continue
            obs, reward, terminated, truncated, info = env.step(data)
            last = None
            if terminated or truncated:
                last = obs
                obs, info = env.reset(options=None)
            pipe.send((obs, reward, terminated, truncated, last, info))
    with contextlib.suppress(Exception):
        env.close()
