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

import time
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from mcclt.envs.api import DeviceVectorEnv, Key, State
from mcclt.envs.mujoco import MujocoVectorEnv


class WarpVectorEnv(MujocoVectorEnv, DeviceVectorEnv):
    """The environments of one task, one per key; see `mcclt.envs.api.DeviceVectorEnv` for the contract."""

    name = "warp"
    needs = ("mujoco_warp", "warp")
    extra = "gpu"

    def _start(self, model: Any, threads: int) -> None:
        """Compiles the model and records the CUDA graphs."""
        del threads
        from mcclt.envs import warp_worlds as worlds

        self._worlds = worlds.Worlds(model, self._task, self.num_envs)
        shapes = self._worlds.gives
        self._programs = worlds.Programs(self._task, self._limit, tuple(model.qpos0.tolist()), tuple(shapes.values()))
        blank = {name: np.zeros((self.num_envs, *shape), np.float32) for name, shape in shapes.items()}
        self._now = self._moment(blank | dict.fromkeys(("episodes", "elapsed"), np.zeros(self.num_envs, np.int32)))
        self._still = self._worlds.put(np.zeros((self.num_envs, model.nu), np.float32))
        self._streams = self._worlds.put(worlds.streams_of(np.array(self.keys, np.uint32)))

    def rekey(self, keys: Sequence[Key], which: np.ndarray) -> None:
        """Names the environments where the mask [n] is true anew: their next `restart` is that of new ones."""
        which, names = self._worlds.put((which, np.array(keys, np.uint32)))
        self._streams, self._now = self._programs.rekey(self._streams, names, which, self._now)

    def restart_device(self, which: Any) -> Any:
        """Abandons the episodes where the mask [n] is true, starts new ones; returns all observations."""
        which = self._worlds.put(which)
        now, obs = self._programs.restart(self._streams, which, self._now)
        return self._settle(now, obs, which)

    def send(self, action: Any) -> None:
        """Begins a step of all environments under the actions [n, action_size]; `receive` ends it."""
        self._sent = self._worlds.put(action)
        self._worlds.advance(self._programs.pack(self._now, self._sent))

    def receive(self) -> Any:
        """The outcome of the step that is under way; everything stays on the device.

        What JAX is told to do between the two runs beside the physics.
        """
        step, ended, now = self._programs.outcome(self._streams, self._now, self._sent, self._worlds.view())
        return step._replace(obs=self._settle(now, step.obs, ended))

    def _settle(self, now: Any, obs: Any, began: Any) -> Any:
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

    def get_state(self) -> State:
        """Physics with the solver's warm start and derived fields, numbers of episodes and elapsed steps."""
        (qpos, qvel, derived), warm, episodes, elapsed = self._now
        state = {"qpos": qpos, "qvel": qvel, "qacc_warmstart": warm, **derived}
        return {name: np.array(x) for name, x in (state | {"episodes": episodes, "elapsed": elapsed}).items()}

    def set_state(self, state: State) -> np.ndarray:
        """Restores what `get_state` gave; returns the observations at that moment."""
        self._check(state)
        self._now = self._moment(state)
        return self.restart(np.zeros(self.num_envs, bool))  # of nobody

    def _moment(self, state: State) -> Any:
        """A state as the programs take it, on the device."""
        from mcclt.envs.warp_worlds import Moment

        at = self._worlds.put({name: np.asarray(value) for name, value in state.items()})
        physics = self._task.physics(*(at[name] for name in self._task.fields))
        return Moment(physics, at["qacc_warmstart"], at["episodes"], at["elapsed"])

    def close(self) -> None:
        """Frees the device's memory."""
        self._worlds.close()


def time_physics(env: WarpVectorEnv, act: Callable[[], Any]) -> tuple[int, float]:
    """How long the physics alone takes for what `act` does in these environments.

    Every state and action that `act` sends to the worlds is sent once more, without what happens in between. How long
    a step takes depends on them: with cheetahs that lie still it took three quarters of that with cheetahs that move.

    Returns:
        Control steps of all worlds, and seconds.
    """
    worlds = env._worlds
    advance, sent = worlds.advance, []

    def remember(packed: Any) -> None:
        sent.append(packed)
        advance(packed)

    worlds.advance = remember  # type: ignore[method-assign]
    try:
        act()
    finally:
        worlds.advance = advance  # type: ignore[method-assign]
    worlds.synchronize()
    start = time.perf_counter()
    for packed in sent:
        advance(packed)
    worlds.synchronize()
    return len(sent) * env.num_envs, time.perf_counter() - start
