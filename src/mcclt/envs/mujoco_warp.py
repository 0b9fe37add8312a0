"""The `warp` engine: the same MuJoCo tasks by the thousand on one NVIDIA GPU, with MuJoCo Warp.

Physics, observations, rewards, resets and whatever acts on them stay on the device. MuJoCo Warp advances all
worlds by one action in one CUDA graph; JAX, which computes the rest, sees Warp's arrays without a copy. The two
libraries work in streams of their own: each hand-over (DLPack) makes the receiving stream wait for the giving one,
so the host never waits, and runs ahead of the device.

Compared with the `native` engine: float32 instead of float64, other random numbers for the resets (of the same
distribution, and as there a function of the environment's key and episode alone), and the solver starts warm.
On a machine without a GPU it runs on Warp's CPU device: slow, for tests.
"""

import collections
import functools
import importlib.util
from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np

from mcclt.envs.api import EnvSpec, Key, Step
from mcclt.envs.mujoco_cpu import load_model
from mcclt.envs.tasks import TASKS, Physics, Task
from mcclt.errors import CheckpointError, ConfigError, EnvironmentFault, MissingExtraError, UnknownNameError

State = dict[str, np.ndarray]
HELD = 3
"""Steps for which arrays given to Warp are kept: JAX must not reuse their memory before Warp has read it."""


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
        streams: jax.Array, before: Physics, after: Physics, warm: jax.Array, action: jax.Array, counters: Counters
    ) -> Any:
        """What the step amounts to, and the state after starting anew what ended."""
        reward, terminated = task.reward_and_terminated(jnp, before, after, action)
        counters = counters._replace(elapsed=counters.elapsed + 1)
        truncated = (counters.elapsed >= limit) & ~terminated
        ended = terminated | truncated
        counters, state = restart(streams, ended, counters, after, warm)
        return (reward, terminated, truncated, task.observe(jnp, after)), counters, state, ended

    def observe(now: Physics, fresh: Physics, ended: jax.Array) -> tuple[Physics, jax.Array]:
        """The moment to act on: derived fields of a fresh episode are those of its first moment."""
        derived = {
            name: jnp.where(ended.reshape(-1, *[1] * (value.ndim - 1)), fresh.derived[name], value)
            for name, value in now.derived.items()
        }
        moment = Physics(fresh.qpos, fresh.qvel, derived)
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
        import jax.numpy as jnp

        if isinstance(task, str) and task not in TASKS:
            raise UnknownNameError("MuJoCo task", task, TASKS)
        self._task = TASKS[task] if isinstance(task, str) else task
        limit = max_episode_steps or self._task.max_episode_steps
        self.num_envs = len(keys)
        model = load_model(self._task)
        self._physics = _Physics(model, self._task, self.num_envs)
        self._programs = _programs(self._task, limit, tuple(model.qpos0.tolist()), model.nv)
        self._now = self._physics.read()
        self._held: collections.deque[Any] = collections.deque(maxlen=HELD)
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
        import jax.numpy as jnp

        def name(key: jax.Array) -> jax.Array:
            folded = jax.random.key(key[0])
            for part in key[1:]:
                folded = jax.random.fold_in(folded, part)
            return folded

        self._streams = jax.vmap(name)(jnp.asarray(np.array(keys, np.uint32)))
        zero = jnp.zeros(self.num_envs, jnp.int32)
        self._counters = Counters(zero, zero)

    # --- on the device -------------------------------------------------------------------------------------

    def reset_device(self) -> Any:
        """Starts a new episode everywhere; returns observations [n, O]."""
        import jax.numpy as jnp

        return self.restart_device(jnp.ones(self.num_envs, bool))

    def restart_device(self, which: Any) -> Any:
        """Abandons the episodes where the mask [n] is true, starts new ones; returns all observations."""
        self._counters, state = self._programs.restart(
            self._streams, which, self._counters, self._now, self._physics.warm()
        )
        return self._settle(state, self._now, which)

    def step_device(self, action: Any) -> Step:
        """Steps all environments under the actions [n, action_size]; everything stays on the device."""
        self._physics.step(action)
        after = self._physics.read()
        told, self._counters, state, ended = self._programs.outcome(
            self._streams, self._now, after, self._physics.warm(), action, self._counters
        )
        reward, terminated, truncated, next_obs = told
        obs = self._settle(state, after, ended)
        self._held.append((action, after, state))
        return Step(obs, reward, terminated, truncated, next_obs)

    def _settle(self, state: Any, last: Physics, ended: Any) -> Any:
        """Writes the state, where episodes began anew, back to the physics; returns what to act on."""
        self._physics.write(*state)
        fresh = self._physics.read_fresh() if self._task.derived else Physics(state[0], state[1], {})
        self._now, obs = self._programs.observe(last, fresh, ended)
        return obs

    def check_room(self) -> None:
        """Raises if contacts or constraints did not fit into their buffers since the last call."""
        self._physics.check_room()

    # --- the host's contract -------------------------------------------------------------------------------

    def reset(self) -> np.ndarray:
        """Starts a new episode everywhere; returns observations [n, O]."""
        return np.asarray(self.reset_device())

    def step(self, action: np.ndarray) -> Step:
        """Steps all environments under the actions [n, action_size]."""
        import jax.numpy as jnp

        step = self.step_device(jnp.asarray(action, jnp.float32))
        self.check_room()
        return Step(*(np.asarray(x) for x in step))

    def restart(self, which: np.ndarray) -> np.ndarray:
        """Abandons the episodes where the mask [n] is true, starts new ones; returns all observations."""
        import jax.numpy as jnp

        return np.asarray(self.restart_device(jnp.asarray(which)))

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
        put = {name: jnp.asarray(value) for name, value in state.items()}
        self._counters = Counters(put["episodes"], put["elapsed"])
        self._physics.write(put["qpos"], put["qvel"], put["qacc_warmstart"])
        derived = {name: put[name] for name in self._task.derived}
        self._now = Physics(put["qpos"], put["qvel"], derived)
        self._held.append(put)
        return np.asarray(self._task.observe(jnp, self._now))

    def close(self) -> None:
        """Frees the device's memory."""
        self._physics.close()


class _Physics:
    """MuJoCo Warp's worlds, seen as JAX arrays."""

    def __init__(self, model: Any, task: Task, n: int) -> None:
        import mujoco_warp as mjw
        import warp as wp

        wp.config.log_level = wp.LOG_WARNING
        self._wp, self._mjw, self._task = wp, mjw, task
        self._cuda = wp.get_device().is_cuda
        self._model = mjw.put_model(model)
        self._data = mjw.make_data(model, nworld=n, nconmax=task.max_contacts, njmax=task.max_constraints)
        self._model.opt.warn_overflow = 0  # `check_room` says it, once
        self._step = self._record(self._advance)
        self._forward = self._record(self._look) if task.derived else None

    def _advance(self) -> None:
        for _ in range(self._task.frame_skip):
            self._mjw.step(self._model, self._data)
        if "cfrc_ext" in self._task.derived:
            self._mjw.rne_postconstraint(self._model, self._data)

    def _look(self) -> None:
        """Derived fields of the present state; what the next step depends on stays what it is."""
        self._mjw.forward(self._model, self._data)
        if "cfrc_ext" in self._task.derived:
            self._mjw.rne_postconstraint(self._model, self._data)

    def _record(self, work: Any) -> Any:
        """The work as something to call: a CUDA graph, which costs one launch, or itself."""
        work()  # compiles
        if not self._cuda:
            return work
        with self._wp.ScopedCapture() as capture:
            work()
        return lambda: self._wp.capture_launch(capture.graph)

    def _jax(self, array: Any) -> Any:
        import jax

        return jax.dlpack.from_dlpack(array)

    def _give(self, target: Any, value: Any) -> None:
        """Copies a JAX array into one of Warp's."""
        source: Any = self._wp.from_dlpack(value)
        self._wp.copy(target, source)

    def step(self, action: Any) -> None:
        """One action."""
        self._give(self._data.ctrl, action)
        self._step()

    def read(self) -> Physics:
        """The present moment. The arrays are copies: Warp's own change under way."""
        import jax.numpy as jnp

        fields = {
            name: jnp.array(self._jax(getattr(self._data, name))) for name in ("qpos", "qvel", *self._task.derived)
        }
        return Physics(fields.pop("qpos"), fields.pop("qvel"), fields)

    def warm(self) -> Any:
        """The solver's warm start [n, nv]."""
        import jax.numpy as jnp

        return jnp.array(self._jax(self._data.qacc_warmstart))

    def write(self, qpos: Any, qvel: Any, warm: Any) -> None:
        """Makes this the present moment."""
        for name, value in (("qpos", qpos), ("qvel", qvel), ("qacc_warmstart", warm)):
            self._give(getattr(self._data, name), value)

    def read_fresh(self) -> Physics:
        """The present moment with derived fields computed for it."""
        assert self._forward is not None
        self._forward()
        return self.read()

    def check_room(self) -> None:
        """Raises if a buffer was too small."""
        types = self._mjw.OverflowType
        flags = int(np.bitwise_or.reduce(self._data.overflow.numpy(), axis=None))
        contacts = types.BROADPHASE | types.NARROWPHASE | types.CCD
        for setting, which in (("max_contacts", contacts), ("max_constraints", types.NEFC | types.NJMAX_NNZ)):
            if flags & int(which):
                raise EnvironmentFault(
                    f"{type(self._task).__name__} needs more than {setting} = {getattr(self._task, setting)} on a GPU: "
                    "raise it in the task's definition."
                )

    def close(self) -> None:
        """Drops the arrays."""
        del self._data, self._model, self._step, self._forward


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
