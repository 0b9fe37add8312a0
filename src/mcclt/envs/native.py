"""The `native` engine: MuJoCo tasks on all CPU cores, without Gymnasium in between.

Physics advances in one of two ways:

- Tasks that read only `qpos` and `qvel` use MuJoCo's own thread pool, `mujoco.rollout`. The state is an
  explicit array and the solver starts cold at every action, so a step is a pure function of state and action.
- Tasks that read derived fields (`Task.derived`) keep one MjData per environment and call `mj_step` on it
  from a few threads. `mujoco.rollout` returns states and sensors alone, and recomputing the fields from the
  state would not give what Gymnasium sees: with the Runge-Kutta integrator `mj_step` leaves the kinematics
  and forces of its last stage behind.

Either way environment i depends on `keys[i]` and its own actions alone, bit for bit, whatever the number of
threads or neighbours.
"""

import itertools
import time
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING

import numpy as np

from mcclt.envs.api import State, Step, rng_of
from mcclt.envs.mujoco import MujocoVectorEnv, outcome
from mcclt.envs.tasks import Physics, Task

if TYPE_CHECKING:
    import mujoco


def _leave_out(model: "mujoco.MjModel") -> None:
    """Has MuJoCo leave out what it does in every step for nobody: a fifth of Hopper's physics. No number changes.

    - Looking at the clock, for `MjData.timer`. Callbacks, of which the clock is one, are the whole process's: where
      somebody has set one, all stay. (`mujoco.set_mjcb_time(None)` brings the clock back.)
    - Sorting bodies into islands, to be solved apart: a single kinematic tree is a single island.
    """
    import mujoco

    if all(getattr(mujoco, name)() is None for name in dir(mujoco) if name.startswith("get_mjcb_")):
        mujoco.mj_resetCallbacks()
    if model.ntree == 1:
        islands = getattr(mujoco.mjtDisableBit, "mjDSBL_ISLAND", 0)  # before MuJoCo 3.3.6 they are off
        model.opt.disableflags |= int(islands)


class _RolloutSimulator:
    """Physics of n environments by `mujoco.rollout`, for tasks without derived fields."""

    physics: Physics
    """The moment now. `step` puts new arrays here, so the old ones stay what they were; `reset` and
    `set_state` change it."""

    def __init__(self, model: "mujoco.MjModel", task: Task, n: int, threads: int) -> None:
        import mujoco
        import mujoco.rollout

        self._nq, self._nv, self._frame_skip = model.nq, model.nv, task.frame_skip
        self._models = [model] * n
        self._data = [mujoco.MjData(model) for _ in range(threads)]
        self._rollout = mujoco.rollout.Rollout(nthread=threads if threads > 1 else 0)  # 0: the calling thread
        # Four chunks a thread: few enough to cost little, and a slow environment delays only a few others.
        self._chunk_size = max(1, n // (4 * threads))

        everything = mujoco.mjtState.mjSTATE_FULLPHYSICS.value  # time, qpos, qvel, act, ...; no warm start
        size = mujoco.mj_stateSize(model, everything)
        self._origin = np.empty(size)
        mujoco.mj_getState(model, self._data[0], self._origin, everything)
        self._control = np.empty((n, task.frame_skip, model.nu))
        self._trajectory = np.empty((n, task.frame_skip, size))
        self._set(np.tile(self._origin, (n, 1)))

    def _set(self, state: np.ndarray) -> None:
        """Makes `state` [n, size] the present one."""
        qpos, qvel = slice(1, 1 + self._nq), slice(1 + self._nq, 1 + self._nq + self._nv)  # 0 is the time
        self._state = state
        self.physics = Physics(state[:, qpos], state[:, qvel], {})

    def reset(self, i: int, qpos: np.ndarray, qvel: np.ndarray) -> None:
        """Starts environment i anew from position [nq] and velocity [nv]."""
        self._state[i] = self._origin
        self.physics.qpos[i] = qpos  # views of the state
        self.physics.qvel[i] = qvel

    def step(self, action: np.ndarray) -> None:
        """Advances all environments by `frame_skip` physics steps under the actions [n, nu]."""
        self._control[:] = action[:, None]
        self._rollout.rollout(
            self._models,
            self._data,
            self._state,
            self._control,
            skip_checks=True,
            nstep=self._frame_skip,
            state=self._trajectory,
            chunk_size=self._chunk_size,
        )
        self._set(self._trajectory[:, -1].copy())

    def get_state(self) -> State:
        """Everything a step depends on."""
        return {"physics": self._state.copy()}

    def set_state(self, state: State) -> None:
        self._set(np.array(state["physics"], dtype=np.float64, order="C"))

    def close(self) -> None:
        self._rollout.close()


class _DataSimulator:
    """The same by `mj_step` on one MjData per environment, for tasks with derived fields."""

    def __init__(self, model: "mujoco.MjModel", task: Task, n: int, threads: int) -> None:
        import mujoco

        self._mujoco, self._model, self._task, self._forces = mujoco, model, task, task.reads_forces
        self._everything = mujoco.mjtState.mjSTATE_INTEGRATION.value  # all that `mj_step` reads
        self._data = [mujoco.MjData(model) for _ in range(n)]
        # Views of each MjData, made once: an attribute of MjData makes a new array at every look.
        self._ctrl = [data.ctrl for data in self._data]
        self._fields = [[getattr(data, name) for data in self._data] for name in task.fields]
        bounds = [n * t // threads for t in range(threads + 1)]
        self._slices = [range(lo, hi) for lo, hi in itertools.pairwise(bounds)]
        self._pool = ThreadPoolExecutor(threads - 1) if threads > 1 else None
        self._set([np.stack(views) for views in self._fields])

    def _set(self, values: list[np.ndarray]) -> None:
        """Makes the values [n, ...] of the fields the present ones."""
        self._values, self.physics = values, self._task.physics(*values)

    def reset(self, i: int, qpos: np.ndarray, qvel: np.ndarray) -> None:
        self._mujoco.mj_resetData(self._model, self._data[i])
        for views, value in zip(self._fields, (qpos, qvel), strict=False):
            views[i][:] = value
        self._mujoco.mj_forward(self._model, self._data[i])
        for views, value in zip(self._fields, self._values, strict=True):
            value[i] = views[i]

    def step(self, action: np.ndarray) -> None:
        values = [np.empty_like(value) for value in self._values]
        rows = list(zip(self._fields, values, strict=True))
        mujoco, frame_skip, forces = self._mujoco, self._task.frame_skip, self._forces

        def advance(indices: range) -> None:
            for i in indices:  # `mj_step` lets the other threads run meanwhile
                self._ctrl[i][:] = action[i]
                mujoco.mj_step(self._model, self._data[i], frame_skip)
                if forces:
                    mujoco.mj_rnePostConstraint(self._model, self._data[i])
                for views, value in rows:
                    value[i] = views[i]

        mine, *others = self._slices
        pending = [self._pool.submit(advance, indices) for indices in others] if self._pool else []
        advance(mine)
        for future in pending:
            future.result()
        self._set(values)

    def get_state(self) -> State:
        integration = np.empty((len(self._data), self._mujoco.mj_stateSize(self._model, self._everything)))
        for data, row in zip(self._data, integration, strict=True):
            self._mujoco.mj_getState(self._model, data, row, self._everything)
        # The derived fields are left over from the last step: they do not follow from the state.
        derived = {name: value.copy() for name, value in self.physics.derived.items()}
        return {"physics": integration, **derived}

    def set_state(self, state: State) -> None:
        for data, row in zip(self._data, np.asarray(state["physics"], dtype=np.float64), strict=True):
            self._mujoco.mj_setState(self._model, data, row, self._everything)
        now = [np.stack(views) for views in self._fields[:2]]
        self._set(now + [np.array(state[name], dtype=np.float64) for name in self._task.derived])

    def close(self) -> None:
        if self._pool:
            self._pool.shutdown()


class NativeVectorEnv(MujocoVectorEnv):
    """Environments that this machine's cores step; see `mcclt.envs.api.VectorEnv` for the contract."""

    name = "native"
    needs = ("mujoco",)

    def _start(self, model: "mujoco.MjModel", threads: int) -> None:
        _leave_out(model)
        self._qpos0, self._qvel0 = model.qpos0.copy(), np.zeros(model.nv)
        make = _DataSimulator if self._task.derived else _RolloutSimulator
        self._simulator: _RolloutSimulator | _DataSimulator = make(model, self._task, self.num_envs, threads)
        self._elapsed = np.zeros(self.num_envs, dtype=np.int64)  # steps into the present episode

    def step(self, action: np.ndarray) -> Step:
        """Steps all environments under the actions [n, action_size]; starts anew what ended."""
        action = action.astype(np.float64)
        before, started = self._simulator.physics, time.perf_counter()
        self._simulator.step(action)
        self.physics_seconds += time.perf_counter() - started
        self._elapsed += 1
        reward, terminated, truncated, successor = outcome(
            np, self._task, self._limit, before, self._simulator.physics, action, self._elapsed
        )
        next_obs, ended = successor.astype(np.float32), terminated | truncated
        obs = self.restart(ended) if np.count_nonzero(ended) else next_obs  # quicker than `any`
        return Step(obs, reward.astype(np.float32), terminated, truncated, next_obs)

    def restart(self, which: np.ndarray) -> np.ndarray:
        """Starts new episodes where the mask [n] is true, the k-th from `rng_of(key, k)`; returns all observations."""
        for i in np.flatnonzero(which).tolist():
            rng = rng_of(self.keys[i], int(self.starts[i]))
            self._simulator.reset(i, *self._task.reset(rng, self._qpos0, self._qvel0))
        self.starts[which] += 1
        self._elapsed[which] = 0
        return self._observe()

    def get_state(self) -> State:
        """Physics, numbers of episodes and elapsed steps: with the keys, all there is."""
        counters = {"episodes": self.starts.copy(), "elapsed": self._elapsed.copy()}
        return {**self._simulator.get_state(), **counters}

    def set_state(self, state: State) -> np.ndarray:
        """Restores what `get_state` gave; returns the observations at that moment."""
        self._check(state)  # `mujoco.rollout` is told to trust shapes
        self._simulator.set_state(state)
        self.starts = np.array(state["episodes"], dtype=np.int64)
        self._elapsed = np.array(state["elapsed"], dtype=np.int64)
        return self._observe()

    def close(self) -> None:
        """Ends the threads."""
        self._simulator.close()

    def _observe(self) -> np.ndarray:
        """Observations [n, O] of the present moment."""
        obs: np.ndarray = self._task.observe(np, self._simulator.physics)
        return obs.astype(np.float32)
