"""The worlds of the `warp` engine, and what JAX computes around a step of theirs. Imports JAX, unlike the engine."""

import contextlib
import functools
import math
import os
import sys
import tempfile
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from mcclt.envs.api import Step
from mcclt.envs.mujoco import outcome
from mcclt.envs.tasks import Physics, Task
from mcclt.errors import EnvironmentFault

NO_DRIVER = b"Could not find or load the NVIDIA CUDA driver"
"""What Warp writes to the terminal where there is no GPU."""


class Moment(NamedTuple):
    """The state of all worlds, as the next step needs it."""

    physics: Physics
    warm: jax.Array
    """[n, nv]: where the constraint solver starts."""
    episodes: jax.Array
    """[n] int32: started so far."""
    elapsed: jax.Array
    """[n] int32: steps into the present one."""


class _JaxRng:
    """The two draws of `numpy.random.Generator` that tasks use, from a JAX key; usable under `vmap`."""

    def __init__(self, key: jax.Array) -> None:
        self._key = key

    def _next(self) -> jax.Array:
        self._key, key = jax.random.split(self._key)
        return key

    def uniform(self, low: float, high: float, shape: tuple[int, ...]) -> jax.Array:
        return jax.random.uniform(self._next(), shape, minval=low, maxval=high)

    def standard_normal(self, shape: tuple[int, ...]) -> jax.Array:
        return jax.random.normal(self._next(), shape)


@jax.vmap
def streams_of(name: Any) -> jax.Array:
    """The stream of randomness that whole numbers name."""
    key = jax.random.key(name[0])
    for part in name[1:]:
        key = jax.random.fold_in(key, part)
    return key


_program = functools.partial(jax.jit, static_argnums=0)


@dataclass(frozen=True)
class Programs:
    """What JAX computes around a step of the physics; compiled once for equal ones, whatever the worlds."""

    task: Task
    limit: int
    qpos0: tuple[float, ...]
    shapes: tuple[tuple[int, ...], ...]
    """Of the fields that the worlds give (see `Worlds.gives`)."""

    @_program
    def pack(self, now: Moment, action: jax.Array) -> jax.Array:
        """As `Worlds.takes` it: field after field."""
        return jnp.concatenate([x.ravel() for x in (now.physics.qpos, now.physics.qvel, now.warm, action)])

    def unpack(self, given: jax.Array) -> tuple[Physics, jax.Array]:
        """What `Worlds` gave: physics, and where the solver starts."""
        sizes = [math.prod(shape) for shape in self.shapes]
        n = given.size // sum(sizes)
        parts = jnp.split(given, np.cumsum([n * size for size in sizes])[:-1])
        qpos, qvel, warm, *derived = (part.reshape(n, *shape) for part, shape in zip(parts, self.shapes, strict=True))
        return self.task.physics(qpos, qvel, *derived), warm

    @_program
    def rekey(self, old: jax.Array, names: jax.Array, which: jax.Array, now: Moment) -> tuple[jax.Array, Moment]:
        """Other streams, and none of their episodes started, where `which` [n]."""
        return jnp.where(which, streams_of(names), old), now._replace(episodes=jnp.where(which, 0, now.episodes))

    @_program
    def restart(self, streams: jax.Array, which: jax.Array, now: Moment) -> tuple[Moment, jax.Array]:
        """Puts the environments where `which` [n] at the start of a new episode; derived fields are left behind."""
        keys = jax.vmap(jax.random.fold_in)(streams, now.episodes)
        origin: Any = jnp.array(self.qpos0, jnp.float32), jnp.zeros(self.shapes[1], jnp.float32)
        qpos, qvel = jax.vmap(lambda key: self.task.reset(_JaxRng(key), *origin))(keys)  # type: ignore[arg-type]
        mask, old = which[:, None], now.physics
        physics = Physics(jnp.where(mask, qpos, old.qpos), jnp.where(mask, qvel, old.qvel), old.derived)
        warm, elapsed = jnp.where(mask, 0.0, now.warm), jnp.where(which, 0, now.elapsed)
        return Moment(physics, warm, now.episodes + which, elapsed), self.task.observe(jnp, physics)

    @_program
    def outcome(self, streams: jax.Array, before: Moment, action: jax.Array, given: jax.Array) -> Any:
        """What the step amounts to, which episodes ended, and the moment after starting anew what did."""
        physics, warm = self.unpack(given)
        now = Moment(physics, warm, before.episodes, before.elapsed + 1)
        reward, terminated, truncated, next_obs = outcome(
            jnp, self.task, self.limit, before.physics, physics, action, now.elapsed
        )
        ended = terminated | truncated
        now, obs = self.restart(streams, ended, now)
        return Step(obs, reward, terminated, truncated, next_obs), ended, now

    @_program
    def refresh(self, now: Moment, given: jax.Array, which: jax.Array) -> tuple[Moment, jax.Array]:
        """The moment to act on: derived fields are those of the last step, and of its first moment where one began."""

        def choose(old: jax.Array, fresh: jax.Array) -> jax.Array:
            return jnp.where(which.reshape(-1, *[1] * (old.ndim - 1)), fresh, old)

        derived = jax.tree.map(choose, now.physics.derived, self.unpack(given)[0].derived)
        physics = now.physics._replace(derived=derived)
        return now._replace(physics=physics), self.task.observe(jnp, physics)


class Worlds:
    """MuJoCo Warp's worlds as a function of JAX arrays.

    What goes in and what comes out is one flat array each, field after field, because each hand-over between the
    libraries costs the host about 0.2 ms, more than all else in a step.
    """

    takes = ("qpos", "qvel", "qacc_warmstart", "ctrl")

    def __init__(self, model: Any, task: Task, n: int) -> None:
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
            self._step = self.record(self._simulate)
            self._forward = self.record(self._derive) if task.derived else None
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

    def _simulate(self) -> None:
        """One control step."""
        for _ in range(self._task.frame_skip):
            self._mjw.step(self._model, self._data)
        if self._task.reads_forces:
            self._mjw.rne_postconstraint(self._model, self._data)

    def _derive(self) -> None:
        """Derived fields of the given state, as `mj_resetData` and `mj_forward` leave them.

        That is without control, which constraint forces would show, and without external forces, which are not
        computed then.
        """
        self._data.ctrl.zero_()
        self._mjw.forward(self._model, self._data)
        self._data.cfrc_ext.zero_()

    def record(self, work: Callable[[], None]) -> Any:
        """The work, between opening the letters and answering them: a CUDA graph, which costs one launch, or itself."""

        def run() -> None:
            for part, field in self._letters:
                self._wp.copy(field, part)
            work()
            for part, field in self._answers:
                self._wp.copy(part, field)

        run()  # compiles
        if not self._cuda:
            return run
        with self._wp.ScopedCapture() as capture:
            run()
        return lambda: self._wp.capture_launch(capture.graph)

    def put(self, tree: Any) -> Any:
        """The arrays as JAX's, committed to Warp's device; those that are there already are not copied."""
        return jax.device_put(tree, self._device)

    def advance(self, packed: jax.Array) -> None:
        """One action in every world, when the packed state is computed. `view` then sees the outcome."""
        self._launch(self._step, packed)

    def look(self, packed: jax.Array) -> None:
        """Computes derived fields of the packed state. `view` then sees them."""
        self._launch(self._forward, packed)

    def _launch(self, work: Any, packed: jax.Array) -> None:
        with self.on_stream():
            self._wp.copy(self._inbox, self._wp.from_dlpack(packed))
            self._given = packed  # kept until the next one: before that, JAX has looked at a view and so waited.
            work()

    def view(self) -> Any:
        """What came out, in Warp's own memory; ready when Warp is."""
        with self.on_stream():
            return jax.dlpack.from_dlpack(self._outbox)

    def synchronize(self) -> None:
        """Waits for all that Warp was told to do."""
        self._wp.synchronize()

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
        """Drops all that it holds."""
        vars(self).clear()


@functools.cache
def _import_warp() -> Any:
    """Warp, which says nothing while it loads but what went wrong."""
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
