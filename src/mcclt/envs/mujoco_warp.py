"""The `warp` engine: the same MuJoCo tasks by the thousand on one NVIDIA GPU, with MuJoCo Warp.

Physics, observations, rewards, resets and whatever acts on them stay on the device. MuJoCo Warp advances all
worlds by one action in one CUDA graph; JAX, which computes the rest, sees Warp's arrays without a copy.

The two libraries work in streams of their own, and the host runs ahead of both. What keeps them in order:

- Each hand-over (DLPack) makes the receiving stream wait for all that the giving one was told to do before.
- JAX may look at Warp's arrays (views) only within a program whose result is then handed to Warp: Warp waits for it,
  and so does not write what is still being read. No view outlives that program, nor is an output of it.
- What JAX hands to Warp is kept until JAX's next program that looks at a view, and so waits for Warp, is under way:
  until then JAX must not reuse that memory.

Whatever comes by DLPack is *committed* to its device, and so is all that is computed from it, while JAX's own fresh
arrays are not; a program compiles anew for each mixture of the two. So everything is committed from the start.

Compared with the `native` engine: float32 instead of float64, other random numbers for the resets (of the same
distribution, and as there a function of the environment's key and episode alone), and the solver starts warm.
On a machine without a GPU it runs on Warp's CPU device: slow, for tests.
"""

import contextlib
import functools
import importlib.util
import os
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from typing import Any, NamedTuple

import numpy as np

from mcclt.envs.api import EnvSpec, Key, Step
from mcclt.envs.mujoco_cpu import load_model
from mcclt.envs.tasks import TASKS, Physics, Task
from mcclt.errors import CheckpointError, ConfigError, EnvironmentFault, MissingExtraError, UnknownNameError

State = dict[str, np.ndarray]
NO_DRIVER = b"Could not find or load the NVIDIA CUDA driver"
"""What Warp writes to the terminal where there is no GPU."""


class Counters(NamedTuple):
    """Where each environment is, on the device."""

    episodes: Any
    """[n] int32: started so far."""
    elapsed: Any
    """[n] int32: steps into the present one."""


class _JaxRng:
    """The two draws of `numpy.random.Generator` that tasks use, from a JAX key; usable under `vmap`."""

    def __init__(self, key: Any) -> None:
        self._key = key

    def _next(self) -> Any:
        import jax

        self._key, key = jax.random.split(self._key)
        return key

    def uniform(self, low: float, high: float, shape: tuple[int, ...]) -> Any:
        import jax

        return jax.random.uniform(self._next(), shape, minval=low, maxval=high)

    def standard_normal(self, shape: tuple[int, ...]) -> Any:
        import jax

        return jax.random.normal(self._next(), shape)


class _Programs(NamedTuple):
    """What JAX computes around a step of the physics; one set per task and time limit, whatever the worlds."""

    restart: Any
    outcome: Any
    observe: Any


@functools.lru_cache
def _programs(task: Task, limit: int, qpos0: tuple[float, ...], nv: int) -> _Programs:
    import jax
    import jax.numpy as jnp

    def start(streams: jax.Array, episodes: jax.Array) -> Any:
        """The first position and velocity of an episode, for all environments."""
        keys = jax.vmap(jax.random.fold_in)(streams, episodes)
        origin = jnp.array(qpos0, jnp.float32), jnp.zeros(nv, jnp.float32)
        return jax.vmap(lambda key: task.reset(_JaxRng(key), *origin))(keys)  # type: ignore[arg-type]

    def restart(streams: jax.Array, which: jax.Array, counters: Counters, now: Physics, warm: jax.Array) -> Any:
        """Puts the environments where `which` [n] at the start of a new episode."""
        qpos, qvel = start(streams, counters.episodes)
        mask = which[:, None]
        counters = Counters(counters.episodes + which, jnp.where(which, 0, counters.elapsed))
        return counters, (
            jnp.where(mask, qpos, now.qpos),
            jnp.where(mask, qvel, now.qvel),
            jnp.where(mask, 0.0, warm),
        )

    def outcome(
        streams: jax.Array, before: Physics, view: Physics, warm: jax.Array, action: jax.Array, counters: Counters
    ) -> Any:
        """What the step amounts to, and the state after starting anew what ended."""
        # Looks at Warp's memory. A task may observe `qpos` as it is, and JAX may return an unchanged input itself:
        # a copy is nobody's input. (The compiler leaves out those that only serve to compute something else.)
        after = jax.tree.map(jnp.copy, view)
        reward, terminated = task.reward_and_terminated(jnp, before, after, action)
        counters = counters._replace(elapsed=counters.elapsed + 1)
        truncated = (counters.elapsed >= limit) & ~terminated
        ended = terminated | truncated
        counters, state = restart(streams, ended, counters, after, warm)
        return (reward, terminated, truncated, task.observe(jnp, after)), counters, state, after.derived, ended

    def observe(qpos: jax.Array, qvel: jax.Array, last: Any, view: Any, ended: jax.Array) -> tuple[Physics, jax.Array]:
        """The moment to act on: derived fields are those of the last step, and of its first moment where one began."""

        def choose(old: jax.Array, fresh: jax.Array) -> jax.Array:
            return jnp.where(ended.reshape(-1, *[1] * (old.ndim - 1)), fresh, old)

        moment = Physics(qpos, qvel, jax.tree.map(choose, last, view))
        return moment, task.observe(jnp, moment)

    return _Programs(jax.jit(restart), jax.jit(outcome), jax.jit(observe))


class WarpVectorEnv:
    """The environments of one task, one per key; see `mcclt.envs.api.VectorEnv` for the contract.

    Besides, `reset_device`, `step_device` and `restart_device` do the same on JAX arrays that stay on the device.
    """

    def __init__(self, task: str | Task, keys: Sequence[Key], max_episode_steps: int | None = None) -> None:
        """Compiles the model and records the CUDA graphs.

        Args:
            task: An id of `TASKS`, or a task of your own.
            keys: Names of the n environments' random streams.
            max_episode_steps: Replaces the task's own time limit.
        """
        import jax
        import jax.numpy as jnp

        if isinstance(task, str) and task not in TASKS:
            raise UnknownNameError("MuJoCo task", task, TASKS)
        self._task = TASKS[task] if isinstance(task, str) else task
        limit = max_episode_steps or self._task.max_episode_steps
        self.num_envs = len(keys)
        model = load_model(self._task)
        self._physics = _Physics(model, self._task, self.num_envs)
        self._programs = _programs(self._task, limit, tuple(model.qpos0.tolist()), model.nv)
        self._now = jax.tree.map(jnp.copy, self._physics.view())
        self.rekey(keys)
        limited, bounds = model.actuator_ctrllimited.astype(bool), model.actuator_ctrlrange.astype(np.float32)
        self.spec = EnvSpec(
            task=task if isinstance(task, str) else type(task).__name__,
            engine=WarpEngine.name,
            obs_size=int(self._task.observe(jnp, self._now).shape[1]),
            action_size=model.nu,
            action_low=np.where(limited, bounds[:, 0], -np.inf).astype(np.float32),
            action_high=np.where(limited, bounds[:, 1], np.inf).astype(np.float32),
            max_episode_steps=limit,
            resumable=True,
        )

    def rekey(self, keys: Sequence[Key]) -> None:
        """Gives the environments other streams of randomness, as if they were made anew; `reset` them next."""
        import jax

        def name(key: jax.Array) -> jax.Array:
            folded = jax.random.key(key[0])
            for part in key[1:]:
                folded = jax.random.fold_in(folded, part)
            return folded

        zero = np.zeros(self.num_envs, np.int32)
        names, self._counters = self._physics.put((np.array(keys, np.uint32), Counters(zero, zero)))
        self._streams = jax.vmap(name)(names)

    # --- on the device -------------------------------------------------------------------------------------

    def reset_device(self) -> Any:
        """Starts a new episode everywhere; returns observations [n, O]."""
        return self.restart_device(np.ones(self.num_envs, bool))

    def restart_device(self, which: Any) -> Any:
        """Abandons the episodes where the mask [n] is true, starts new ones; returns all observations."""
        which = self._physics.put(which)
        self._counters, state = self._programs.restart(
            self._streams, which, self._counters, self._now, self._physics.warm()
        )
        return self._settle(state, self._now.derived, which)

    def step_device(self, action: Any, meanwhile: Callable[[], None] = lambda: None) -> Step:
        """Steps all environments under the actions [n, action_size]; everything stays on the device.

        `meanwhile` is called when the physics is under way: what it gives JAX to do runs beside it.
        """
        action = self._physics.put(action)
        self._physics.step(action)
        meanwhile()
        told, self._counters, state, last, ended = self._programs.outcome(
            self._streams, self._now, self._physics.view(), self._physics.warm(), action, self._counters
        )
        reward, terminated, truncated, next_obs = told
        return Step(self._settle(state, last, ended), reward, terminated, truncated, next_obs)

    def _settle(self, state: Any, last: Any, ended: Any) -> Any:
        """Writes the state, where episodes began anew, back to the physics; returns what to act on."""
        self._physics.write(*state)
        qpos, qvel, _ = state
        fresh = self._physics.view_fresh().derived if self._task.derived else {}
        self._now, obs = self._programs.observe(qpos, qvel, last, fresh, ended)
        if self._task.derived:
            self._physics.wait_for(obs)
        return obs

    def check_room(self) -> None:
        """Raises if contacts or constraints did not fit into their buffers, in any step since the last call."""
        self._physics.check_room()

    # --- the host's contract -------------------------------------------------------------------------------

    def reset(self) -> np.ndarray:
        """Starts a new episode everywhere; returns observations [n, O]."""
        return np.asarray(self.reset_device())

    def step(self, action: np.ndarray) -> Step:
        """Steps all environments under the actions [n, action_size]."""
        step = self.step_device(np.asarray(action, np.float32))
        self.check_room()
        return Step(*(np.asarray(x) for x in step))

    def restart(self, which: np.ndarray) -> np.ndarray:
        """Abandons the episodes where the mask [n] is true, starts new ones; returns all observations."""
        return np.asarray(self.restart_device(which))

    def faults(self) -> dict[int, str]:
        """Empty: physics does not raise."""
        return {}

    def get_state(self) -> State:
        """Physics with the solver's warm start and derived fields, numbers of episodes and elapsed steps."""
        return {
            "qpos": np.array(self._now.qpos),
            "qvel": np.array(self._now.qvel),
            "qacc_warmstart": np.array(self._physics.warm()),
            **{name: np.array(value) for name, value in self._now.derived.items()},
            "episodes": np.array(self._counters.episodes),
            "elapsed": np.array(self._counters.elapsed),
        }

    def set_state(self, state: State) -> np.ndarray:
        """Restores what `get_state` gave; returns the observations at that moment."""
        import jax.numpy as jnp

        for name, value in self.get_state().items():
            if name not in state or np.shape(state[name]) != value.shape:
                raise CheckpointError(
                    f"This is no state of {self.num_envs} {self.spec.task}: {name!r} should be {value.shape}."
                )
        put = self._physics.put({name: np.asarray(value) for name, value in state.items()})
        self._counters = Counters(put["episodes"], put["elapsed"])
        self._physics.write(put["qpos"], put["qvel"], put["qacc_warmstart"])
        derived = {name: put[name] for name in self._task.derived}
        self._now = Physics(put["qpos"], put["qvel"], derived)
        return np.asarray(self._task.observe(jnp, self._now))

    def close(self) -> None:
        """Frees the device's memory."""
        self._physics.close()


class _Physics:
    """MuJoCo Warp's worlds, seen as JAX arrays."""

    def __init__(self, model: Any, task: Task, n: int) -> None:
        import jax

        wp = _import_warp()
        import mujoco_warp as mjw

        from mcclt.envs import warp_contacts

        self._wp, self._mjw, self._task = wp, mjw, task
        self._cuda = wp.get_device().is_cuda
        self._device = jax.devices("gpu" if self._cuda else "cpu")[0]
        self._model = mjw.put_model(model)
        self._model.opt.warn_overflow = 0  # `check_room` says it, once
        self._model.callback.contactfilter = warp_contacts.align_capsules
        self._data = mjw.make_data(model, nworld=n, nconmax=task.max_contacts, njmax=task.max_constraints)
        self._step = self._record(self._advance)
        self._forward = self._record(self._look) if task.derived else None
        self._data.overflow.zero_()

    def _advance(self) -> None:
        for _ in range(self._task.frame_skip):
            self._mjw.step(self._model, self._data)
        if "cfrc_ext" in self._task.derived:
            self._mjw.rne_postconstraint(self._model, self._data)

    def _look(self) -> None:
        """Derived fields of the present state, as `mj_resetData` and `mj_forward` leave them.

        That is without control, which constraint forces would show, and without external forces, which are not
        computed then. The next step writes both before it reads them, and depends on nothing else that changes here.
        """
        self._data.ctrl.zero_()
        self._mjw.forward(self._model, self._data)
        self._data.cfrc_ext.zero_()

    def _record(self, work: Any) -> Any:
        """The work as something to call: a CUDA graph, which costs one launch, or itself."""
        work()  # compiles
        if not self._cuda:
            return work
        with self._wp.ScopedCapture() as capture:
            work()
        return lambda: self._wp.capture_launch(capture.graph)

    def put(self, tree: Any) -> Any:
        """The arrays as JAX's, committed to Warp's device; those that are there already are not copied."""
        import jax

        return jax.device_put(tree, self._device)

    def _view(self, name: str) -> Any:
        """A field of Warp's data itself, as a JAX array that is ready when Warp is."""
        import jax

        return jax.dlpack.from_dlpack(getattr(self._data, name))

    def _give(self, name: str, value: Any) -> None:
        """Copies a JAX array into a field, when it is ready."""
        source: Any = self._wp.from_dlpack(value)
        self._wp.copy(getattr(self._data, name), source)

    def wait_for(self, value: Any) -> None:
        """Makes Warp wait until a JAX array is computed."""
        self._wp.from_dlpack(value)

    def step(self, action: Any) -> None:
        """One action. It is kept by the caller until JAX has been told to look at the outcome."""
        self._give("ctrl", action)
        self._step()

    def view(self) -> Physics:
        """The present moment, in Warp's own memory."""
        return Physics(self._view("qpos"), self._view("qvel"), {name: self._view(name) for name in self._task.derived})

    def warm(self) -> Any:
        """The solver's warm start [n, nv], in Warp's own memory."""
        return self._view("qacc_warmstart")

    def write(self, qpos: Any, qvel: Any, warm: Any) -> None:
        """Makes this the present moment."""
        for name, value in (("qpos", qpos), ("qvel", qvel), ("qacc_warmstart", warm)):
            self._give(name, value)
        self._given: Any = (
            qpos,
            qvel,
            warm,
        )  # until the next writing: before that, JAX has looked at a view and so waited.

    def view_fresh(self) -> Physics:
        """The present moment with derived fields computed for it, in Warp's own memory."""
        assert self._forward is not None
        self._forward()
        return self.view()

    def check_room(self) -> None:
        """Raises if a buffer was too small in any step since this was last asked.

        Warp notes that per world, at the end of every physics step, and never forgets by itself.
        """
        types = self._mjw.OverflowType
        flags = int(np.bitwise_or.reduce(self._data.overflow.numpy(), axis=None))
        contacts = types.BROADPHASE | types.NARROWPHASE | types.CCD
        for setting, which in (("max_contacts", contacts), ("max_constraints", types.NEFC | types.NJMAX_NNZ)):
            if flags & int(which):
                self._data.overflow.zero_()
                raise EnvironmentFault(
                    f"{type(self._task).__name__} needs more than {setting} = {getattr(self._task, setting)} on a GPU: "
                    "raise it in the task's definition."
                )

    def close(self) -> None:
        """Drops the arrays."""
        self._data = self._model = self._step = self._forward = self._given = None


@functools.cache
def _import_warp() -> Any:
    """Warp, which says nothing while it loads but what went wrong."""
    with _without_line(NO_DRIVER):
        import warp as wp

        wp.config.log_level = wp.LOG_WARNING
        wp.init()
    return wp


@contextlib.contextmanager
def _without_line(known: bytes) -> Iterator[None]:
    """Keeps lines with `known` in them off the terminal, even if a library writes them past Python."""
    sys.stderr.flush()
    terminal = os.dup(2)
    with tempfile.TemporaryFile() as caught:
        os.dup2(caught.fileno(), 2)
        try:
            yield
        finally:
            sys.stderr.flush()
            os.dup2(terminal, 2)
            os.close(terminal)
            caught.seek(0)
            for line in caught:
                if known not in line:
                    os.write(2, line)


class WarpEngine:
    """Makes `WarpVectorEnv`s."""

    name = "warp"

    def supports(self, task: object) -> bool:
        """Whether MuJoCo Warp is installed, and the task is one of `TASKS` or a `Task`."""
        known = task in TASKS if isinstance(task, str) else isinstance(task, Task)
        return known and all(importlib.util.find_spec(name) is not None for name in ("warp", "mujoco_warp"))

    def make(
        self, task: object, keys: Sequence[Key], max_episode_steps: int | None, num_threads: int | None
    ) -> WarpVectorEnv:
        """Makes one environment per key."""
        del num_threads
        if importlib.util.find_spec("mujoco_warp") is None:
            raise MissingExtraError("Engine 'warp'", "gpu")
        if not isinstance(task, str | Task):
            raise ConfigError(f"The warp engine runs {', '.join(TASKS)} or a Task, not {task!r}.")
        return WarpVectorEnv(task, keys, max_episode_steps)


def raw_steps_per_second(task: str | Task, n: int, seconds: float) -> float:
    """Steps per second of the physics of n worlds alone, without rewards, observations and resets.

    Args:
        task: An id of `TASKS`, or a task of your own.
        n: Number of worlds.
        seconds: How long to measure, about.
    """
    import jax.numpy as jnp
    import warp as wp

    env = WarpVectorEnv(task, [(0, i) for i in range(n)])
    env.reset_device()
    action = jnp.zeros((n, env.spec.action_size), jnp.float32)
    env._physics.step(action)
    wp.synchronize()
    steps, start = 0, time.perf_counter()
    while (spent := time.perf_counter() - start) < seconds:
        for _ in range(10):
            env._physics.step(action)
        wp.synchronize()
        steps += 10 * n
    env.close()
    return steps / spent
