"""The `warp` engine: the same MuJoCo tasks by the thousand on one NVIDIA GPU, with MuJoCo Warp.

Physics, observations, rewards, resets and whatever acts on them stay on the device. JAX owns the state; to it MuJoCo
Warp is a function, from one array with the state and action of all worlds to one with their state a control step later,
computed in one CUDA graph.

The two libraries work in streams of their own, and the host runs ahead of both. What keeps them in order:

- Each hand-over (DLPack) makes the receiving stream wait for all that the giving one was told to do before.
- JAX may look at what Warp gives (a view of its memory) only within a program whose result is then handed to Warp:
  Warp waits for it, and so does not write what is still being read. No view outlives that program, nor is an output
  of it.
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
import math
import os
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from typing import Any, NamedTuple

import numpy as np

from mcclt.envs.api import EnvSpec, Key, Step
from mcclt.envs.native import load_model
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


class Moment(NamedTuple):
    """The state of all worlds, as the next step needs it."""

    physics: Physics
    warm: Any
    """[n, nv]: where the constraint solver starts."""


class _Programs(NamedTuple):
    """What JAX computes around a step of the physics; one set per task and time limit, whatever the worlds."""

    pack: Any
    restart: Any
    outcome: Any
    refresh: Any


@functools.lru_cache
def _programs(task: Task, limit: int, qpos0: tuple[float, ...], shapes: tuple[tuple[int, ...], ...]) -> _Programs:
    """The programs of a task whose worlds give fields of these shapes (see `_Worlds.gives`)."""
    import jax
    import jax.numpy as jnp

    def pack(now: Moment, action: jax.Array) -> jax.Array:
        """As `_Worlds.takes` it: field after field."""
        return jnp.concatenate([x.ravel() for x in (now.physics.qpos, now.physics.qvel, now.warm, action)])

    def unpack(given: jax.Array) -> Moment:
        """What `_Worlds` gave."""
        sizes = [math.prod(shape) for shape in shapes]
        n = given.size // sum(sizes)
        parts = jnp.split(given, np.cumsum([n * size for size in sizes])[:-1])
        qpos, qvel, warm, *derived = (part.reshape(n, *shape) for part, shape in zip(parts, shapes, strict=True))
        return Moment(Physics(qpos, qvel, dict(zip(task.derived, derived, strict=True))), warm)

    def start(streams: jax.Array, episodes: jax.Array) -> Any:
        """The first position and velocity of an episode, for all environments."""
        keys = jax.vmap(jax.random.fold_in)(streams, episodes)
        origin = jnp.array(qpos0, jnp.float32), jnp.zeros(shapes[1], jnp.float32)
        return jax.vmap(lambda key: task.reset(_JaxRng(key), *origin))(keys)  # type: ignore[arg-type]

    def restart(streams: jax.Array, which: jax.Array, counters: Counters, now: Moment) -> Any:
        """Puts the environments where `which` [n] at the start of a new episode; derived fields are left behind."""
        qpos, qvel = start(streams, counters.episodes)
        mask = which[:, None]
        counters = Counters(counters.episodes + which, jnp.where(which, 0, counters.elapsed))
        physics = Physics(
            jnp.where(mask, qpos, now.physics.qpos), jnp.where(mask, qvel, now.physics.qvel), now.physics.derived
        )
        return counters, Moment(physics, jnp.where(mask, 0.0, now.warm)), task.observe(jnp, physics)

    def outcome(streams: jax.Array, before: Moment, action: jax.Array, given: jax.Array, counters: Counters) -> Any:
        """What the step amounts to, and the moment after starting anew what ended."""
        now = unpack(given)
        reward, terminated = task.reward_and_terminated(jnp, before.physics, now.physics, action)
        counters = counters._replace(elapsed=counters.elapsed + 1)
        truncated = (counters.elapsed >= limit) & ~terminated
        ended = terminated | truncated
        next_obs = task.observe(jnp, now.physics)
        counters, now, obs = restart(streams, ended, counters, now)
        return Step(obs, reward, terminated, truncated, next_obs), ended, counters, now

    def refresh(now: Moment, given: jax.Array, which: jax.Array) -> tuple[Moment, jax.Array]:
        """The moment to act on: derived fields are those of the last step, and of its first moment where one began."""

        def choose(old: jax.Array, fresh: jax.Array) -> jax.Array:
            return jnp.where(which.reshape(-1, *[1] * (old.ndim - 1)), fresh, old)

        derived = jax.tree.map(choose, now.physics.derived, unpack(given).physics.derived)
        physics = now.physics._replace(derived=derived)
        return Moment(physics, now.warm), task.observe(jnp, physics)

    return _Programs(jax.jit(pack), jax.jit(restart), jax.jit(outcome), jax.jit(refresh))


def _streams(names: Any) -> Any:
    """The keys [n] of streams of randomness, from their names [n, parts]."""
    import jax

    def stream(name: jax.Array) -> jax.Array:
        key = jax.random.key(name[0])
        for part in name[1:]:
            key = jax.random.fold_in(key, part)
        return key

    return jax.vmap(stream)(names)


class WarpVectorEnv:
    """The environments of one task, one per key; see `mcclt.envs.api.VectorEnv` for the contract.

    Besides, `reset_device`, `send`, `receive` and `restart_device` do the same on JAX arrays that stay on the device.
    """

    on_device = True

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
        self._worlds = _Worlds(model, self._task, self.num_envs)
        self._programs = _programs(self._task, limit, tuple(model.qpos0.tolist()), tuple(self._worlds.gives.values()))
        blank = [np.zeros((self.num_envs, *shape), np.float32) for shape in self._worlds.gives.values()]
        qpos, qvel, warm, *derived = self._worlds.put(blank)
        self._now = Moment(Physics(qpos, qvel, dict(zip(self._task.derived, derived, strict=True))), warm)
        self._still = self._worlds.put(np.zeros((self.num_envs, model.nu), np.float32))
        zero = np.zeros(self.num_envs, np.int32)
        self._counters = self._worlds.put(Counters(zero, zero))
        self._streams = self._worlds.put(_streams(np.array(keys, np.uint32)))
        limited, bounds = model.actuator_ctrllimited.astype(bool), model.actuator_ctrlrange.astype(np.float32)
        self.spec = EnvSpec(
            task=task if isinstance(task, str) else type(task).__name__,
            engine=WarpEngine.name,
            obs_size=int(self._task.observe(jnp, self._now.physics).shape[1]),
            action_size=model.nu,
            action_low=np.where(limited, bounds[:, 0], -np.inf).astype(np.float32),
            action_high=np.where(limited, bounds[:, 1], np.inf).astype(np.float32),
            max_episode_steps=limit,
            resumable=True,
        )

    def rekey(self, keys: Sequence[Key], which: np.ndarray) -> None:
        """Names the environments where the mask [n] is true anew: their next `restart` is that of new ones."""
        import jax.numpy as jnp

        which, names = self._worlds.put((which, np.array(keys, np.uint32)))
        self._streams = jnp.where(which, _streams(names), self._streams)
        self._counters = self._counters._replace(episodes=jnp.where(which, 0, self._counters.episodes))

    # --- on the device -------------------------------------------------------------------------------------

    def reset_device(self) -> Any:
        """Starts a new episode everywhere; returns observations [n, O]."""
        return self.restart_device(np.ones(self.num_envs, bool))

    def restart_device(self, which: Any) -> Any:
        """Abandons the episodes where the mask [n] is true, starts new ones; returns all observations."""
        which = self._worlds.put(which)
        self._counters, now, obs = self._programs.restart(self._streams, which, self._counters, self._now)
        return self._settle(now, obs, which)

    def send(self, action: Any) -> None:
        """Begins a step of all environments under the actions [n, action_size]; `receive` ends it."""
        self._sent = self._worlds.put(action)
        self._worlds.advance(self._programs.pack(self._now, self._sent))

    def receive(self) -> Step:
        """The outcome of the step that is under way; everything stays on the device.

        What JAX is told to do between the two runs beside the physics.
        """
        step, ended, self._counters, now = self._programs.outcome(
            self._streams, self._now, self._sent, self._worlds.view(), self._counters
        )
        return step._replace(obs=self._settle(now, step.obs, ended))

    def _settle(self, now: Moment, obs: Any, began: Any) -> Any:
        """Makes this the present moment, with derived fields where episodes began; returns what to act on."""
        if self._task.derived:
            self._worlds.look(self._programs.pack(now, self._still))
            now, obs = self._programs.refresh(now, self._worlds.view(), began)
            self._worlds.wait_for(obs)
        self._now = now
        return obs

    def check_room(self) -> None:
        """Raises if contacts or constraints did not fit into their buffers, in any step since the last call."""
        self._worlds.check_room()

    # --- the host's contract -------------------------------------------------------------------------------

    def reset(self) -> np.ndarray:
        """Starts a new episode everywhere; returns observations [n, O]."""
        return np.asarray(self.reset_device())

    def step(self, action: np.ndarray) -> Step:
        """Steps all environments under the actions [n, action_size]."""
        self.send(np.asarray(action, np.float32))
        step = self.receive()
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
            "qpos": np.array(self._now.physics.qpos),
            "qvel": np.array(self._now.physics.qvel),
            "qacc_warmstart": np.array(self._now.warm),
            **{name: np.array(value) for name, value in self._now.physics.derived.items()},
            "episodes": np.array(self._counters.episodes),
            "elapsed": np.array(self._counters.elapsed),
        }

    def set_state(self, state: State) -> np.ndarray:
        """Restores what `get_state` gave; returns the observations at that moment."""
        import jax.numpy as jnp

        for name, value in self.get_state().items():
            if name not in state or np.shape(state[name]) != value.shape:
                raise CheckpointError(
                    f"This is not a state of {self.num_envs} {self.spec.task}: {name!r} should be {value.shape}."
                )
        put = self._worlds.put({name: np.asarray(value) for name, value in state.items()})
        self._counters = Counters(put["episodes"], put["elapsed"])
        physics = Physics(put["qpos"], put["qvel"], {name: put[name] for name in self._task.derived})
        self._now = Moment(physics, put["qacc_warmstart"])
        return np.asarray(self._task.observe(jnp, physics))

    def close(self) -> None:
        """Frees the device's memory."""
        self._worlds.close()


class _Worlds:
    """MuJoCo Warp's worlds as a function of JAX arrays.

    What goes in and what comes out is one flat array each, field after field, because each hand-over between the
    libraries costs the host about 0.2 ms, more than all else in a step.
    """

    takes = ("qpos", "qvel", "qacc_warmstart", "ctrl")

    def __init__(self, model: Any, task: Task, n: int) -> None:
        import jax

        wp = _import_warp()
        import mujoco_warp as mjw

        from mcclt.envs import warp_contacts

        self._wp, self._mjw, self._task = wp, mjw, task
        self._cuda = wp.get_device().is_cuda
        # Physics is many short programs: they go before the long ones of learning. Each set of worlds has a stream of
        # its own, so that those of an evaluation are simulated beside those that agents learn in.
        self._stream = wp.Stream(priority=-1) if self._cuda else None
        self._device = jax.devices("gpu" if self._cuda else "cpu")[0]
        fields = (*self.takes[:3], *task.derived)
        with self.on_stream():
            self._model = mjw.put_model(model)
            self._model.opt.warn_overflow = 0  # `check_room` says it, once
            self._model.callback.contactfilter = warp_contacts.align_capsules
            self._data = mjw.make_data(model, nworld=n, nconmax=task.max_contacts, njmax=task.max_constraints)
            self.gives = {name: tuple(jax.dlpack.from_dlpack(getattr(self._data, name)).shape[1:]) for name in fields}
            """The shapes of what comes out, without the axis of worlds."""
            self._inbox, self._letters = self._mailbox(self.takes)
            self._outbox, self._answers = self._mailbox(fields)
            self._step = self.record(self._advance)
            self._forward = self.record(self._look) if task.derived else None
            self._data.overflow.zero_()

    def on_stream(self) -> contextlib.AbstractContextManager[Any]:
        """Within it Warp works, and hands over, in the stream of these worlds, which share nothing with others."""
        return self._wp.ScopedStream(self._stream, sync_enter=False)

    def _mailbox(self, names: Sequence[str]) -> tuple[Any, list[tuple[Any, Any]]]:
        """One flat array for some fields of the data, and for each of them (its part of that, the field itself)."""
        wp = self._wp
        fields = [getattr(self._data, name) for name in names]
        sizes = [field.size * wp.types.type_size_in_bytes(field.dtype) for field in fields]
        flat = wp.empty(sum(sizes) // 4, dtype=wp.float32)
        pairs = []
        for field, end, size in zip(fields, np.cumsum(sizes), sizes, strict=True):
            part = wp.array(ptr=flat.ptr + int(end) - size, dtype=field.dtype, shape=field.shape, device=flat.device)
            wp.copy(part, field)  # a state that can be simulated, for the first time, which only compiles
            pairs.append((part, field))
        return flat, pairs

    def simulate(self) -> None:
        """One control step of whatever the worlds are at."""
        for _ in range(self._task.frame_skip):
            self._mjw.step(self._model, self._data)

    def _advance(self) -> None:
        self._open()
        self.simulate()
        if "cfrc_ext" in self._task.derived:
            self._mjw.rne_postconstraint(self._model, self._data)
        self._answer()

    def _look(self) -> None:
        """Derived fields of the given state, as `mj_resetData` and `mj_forward` leave them.

        That is without control, which constraint forces would show, and without external forces, which are not
        computed then.
        """
        self._open()
        self._data.ctrl.zero_()
        self._mjw.forward(self._model, self._data)
        self._data.cfrc_ext.zero_()
        self._answer()

    def _open(self) -> None:
        for part, field in self._letters:
            self._wp.copy(field, part)

    def _answer(self) -> None:
        for part, field in self._answers:
            self._wp.copy(part, field)

    def record(self, work: Any) -> Any:
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

    def advance(self, packed: Any) -> None:
        """One action in every world, when the packed state is computed. `view` then sees the outcome."""
        with self.on_stream():
            self._give(packed)
            self._step()

    def look(self, packed: Any) -> None:
        """Computes derived fields of the packed state. `view` then sees them."""
        assert self._forward is not None
        with self.on_stream():
            self._give(packed)
            self._forward()

    def _give(self, packed: Any) -> None:
        self._wp.copy(self._inbox, self._wp.from_dlpack(packed))
        self._given: Any = packed  # kept until the next one: before that, JAX has looked at a view and so waited.

    def view(self) -> Any:
        """What came out, in Warp's own memory; ready when Warp is."""
        import jax

        with self.on_stream():
            return jax.dlpack.from_dlpack(self._outbox)

    def wait_for(self, value: Any) -> None:
        """Makes Warp wait until a JAX array is computed."""
        with self.on_stream():
            self._wp.from_dlpack(value)

    def check_room(self) -> None:
        """Raises if a buffer was too small in any step since this was last asked.

        Warp notes that per world, at the end of every physics step, and never forgets by itself.
        """
        types = self._mjw.OverflowType
        with self.on_stream():
            flags = int(np.bitwise_or.reduce(self._data.overflow.numpy(), axis=None))
        contacts = types.BROADPHASE | types.NARROWPHASE | types.CCD
        for setting, which in (("max_contacts", contacts), ("max_constraints", types.NEFC | types.NJMAX_NNZ)):
            if flags & int(which):
                with self.on_stream():
                    self._data.overflow.zero_()
                raise EnvironmentFault(
                    f"{type(self._task).__name__} needs more than {setting} = {getattr(self._task, setting)} on a GPU: "
                    "raise it in the task's definition."
                )

    def close(self) -> None:
        """Drops the arrays."""
        self._data = self._model = self._step = self._forward = self._given = None
        self._inbox = self._outbox = None
        self._letters, self._answers = [], []


@functools.cache
def _import_warp() -> Any:
    """Warp, which says nothing while it loads but what went wrong."""
    import jax

    with _without_line(NO_DRIVER):
        import warp as wp

        wp.config.log_level = wp.LOG_WARNING
        wp.init()
    if jax.default_backend() == "cpu":  # JAX was told so, or has no CUDA: Warp's arrays must be where JAX's are
        wp.set_device("cpu")
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


def physics_seconds(env: WarpVectorEnv, act: Callable[[], Any]) -> tuple[int, float]:
    """How long the physics alone takes for what `act` does in these environments.

    Every state and action that `act` sends to the worlds is sent once more, without what happens in between. How long
    a step takes depends on them: with cheetahs that lie still it took three quarters of that with cheetahs that move.

    Returns:
        Control steps of all worlds, and seconds.
    """
    worlds, wp = env._worlds, _import_warp()
    advance, sent = worlds.advance, []

    def remember(packed: Any) -> None:
        sent.append(packed)
        advance(packed)

    worlds.advance = remember  # type: ignore[method-assign]
    try:
        act()
    finally:
        worlds.advance = advance  # type: ignore[method-assign]
    wp.synchronize()
    start = time.perf_counter()
    for packed in sent:
        advance(packed)
    wp.synchronize()
    return len(sent) * env.num_envs, time.perf_counter() - start
