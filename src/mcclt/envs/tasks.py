"""Gymnasium's MuJoCo tasks as array functions, so that every physics engine runs the same task.

A task says what is observed, what is rewarded, when an episode ends and where it starts. Engines only move
physics. The functions take whole batches and are written once against the array namespace `xp` (`numpy` or
`jax.numpy`), so they run unchanged on a CPU in float64 and on a GPU in float32.

The behaviour is that of Gymnasium's defaults, v4 and v5 alike, down to which quantities are stale: with the
Runge-Kutta integrator `mj_step` leaves the kinematics of its *last stage* in MjData, and tasks that read
`xpos`, `site_xpos`, `qfrc_constraint` or `cfrc_ext` see those, not the ones of the new `qpos`. Such fields
are named in `Task.derived`, and an engine must supply them as `mj_step` left them.

A new task is one frozen subclass of `Task`, with the path of its own MJCF file as `xml`.
"""

from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar, NamedTuple

import numpy as np

Array = Any
"""A `numpy.ndarray` or a `jax.Array`, as `xp` says."""


class Physics(NamedTuple):
    """What a task may read of n environments at one moment."""

    qpos: Array
    """[n, nq] generalised positions."""
    qvel: Array
    """[n, nv] generalised velocities."""
    derived: Mapping[str, Array]
    """The fields of MjData named in `Task.derived`, [n, ...] each."""


@dataclass(frozen=True, kw_only=True)
class Task(ABC):
    """What a task is, apart from its physics."""

    xml: str
    """The MJCF file: a path, or the name of one of Gymnasium's own assets."""
    frame_skip: int
    """Physics steps per action."""
    dt: float
    """Seconds per action: `frame_skip` times the time step of the model."""
    max_episode_steps: int = 1000
    """The time limit, in actions."""
    derived: tuple[str, ...] = ()
    """The fields of MjData needed beyond `qpos` and `qvel`."""
    max_contacts: int = 32
    """Room for the contacts of one environment on a GPU, where buffers have a fixed size. The tasks below have room
    for every contact that their geometry allows (two per capsule on the floor), so that they never run out."""
    max_constraints: int = 160
    """Room for its constraint rows there: four per contact with friction, and one per joint at its limit."""

    @property
    def fields(self) -> tuple[str, ...]:
        """The fields of MjData that it reads, in the order of `physics`."""
        return "qpos", "qvel", *self.derived

    def physics(self, qpos: Array, qvel: Array, *derived: Array) -> Physics:
        """The moment that these values of `fields` are."""
        return Physics(qpos, qvel, dict(zip(self.derived, derived, strict=True)))

    @property
    def reads_forces(self) -> bool:
        """Whether it reads external forces, which `mj_step` does not compute unless a sensor asks for them."""
        return "cfrc_ext" in self.derived

    @abstractmethod
    def observe(self, xp: Any, physics: Physics) -> Array:
        """Observations [n, O]."""

    @abstractmethod
    def reward_and_terminated(self, xp: Any, before: Physics, after: Physics, action: Array) -> tuple[Array, Array]:
        """Rewards [n] and whether the task ended [n] bool, for the actions [n, nu] taken between the two."""

    @abstractmethod
    def reset(self, rng: np.random.Generator, qpos0: np.ndarray, qvel0: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Draws the start (qpos [nq], qvel [nv]) of one episode around the model's own (qpos0, qvel0)."""


@dataclass(frozen=True, kw_only=True)
class _Noisy(Task):
    """A task of Gymnasium's: each coordinate starts with noise of its own."""

    noise: float = 0.1
    """Uniform in ± this on positions; on velocities the same, or normal with this deviation."""
    normal_velocities: bool = True

    def reset(self, rng: np.random.Generator, qpos0: np.ndarray, qvel0: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """The model's own start, and noise."""
        qpos = qpos0 + rng.uniform(-self.noise, self.noise, qpos0.shape)
        if self.normal_velocities:
            return qpos, qvel0 + self.noise * rng.standard_normal(qvel0.shape)
        return qpos, qvel0 + rng.uniform(-self.noise, self.noise, qvel0.shape)


@dataclass(frozen=True, kw_only=True)
class _Upright(_Noisy):
    """What Hopper and Walker2d share: to go forwards without falling.

    reward = (x' - x) / dt + healthy (1, see `_bonus`) - 0.001 |a|².

    observation = qpos[1:], qvel clipped to ±10.
    """

    frame_skip: int = 4
    dt: float = 0.008
    noise: float = 5e-3
    normal_velocities: bool = False
    version: int = 5

    @abstractmethod
    def healthy(self, xp: Any, physics: Physics) -> Array:
        """[n] whether it stands. A state that is not a number must be unhealthy: write what holds, not what fails."""

    def observe(self, xp: Any, physics: Physics) -> Array:
        """[n, nq - 1 + nv], laid out as above."""
        return xp.concatenate([physics.qpos[:, 1:], physics.qvel.clip(-10, 10)], axis=-1)

    def reward_and_terminated(self, xp: Any, before: Physics, after: Physics, action: Array) -> tuple[Array, Array]:
        """The reward above; ends when unhealthy."""
        healthy = self.healthy(xp, after)
        alive = _bonus(self.version, healthy, 1.0)
        return _x_velocity(before, after, self.dt) + alive - _control_cost(xp, action, 1e-3), ~healthy


@dataclass(frozen=True, kw_only=True)
class Hopper(_Upright):
    """One leg, to hop forwards. Observation [11]: z, torso angle, thigh, leg, foot; six velocities."""

    xml: str = "hopper.xml"
    max_contacts: int = 14
    max_constraints: int = 41
    lowest: ClassVar = np.array([[0.7, -0.2, *[-100.0] * 9]])
    highest: ClassVar = np.array([[np.inf, 0.2, *[100.0] * 9]])

    def healthy(self, xp: Any, physics: Physics) -> Array:
        """Z > 0.7, |torso angle| < 0.2, and all of the state but x and z within ±100."""
        state = xp.concatenate([physics.qpos[:, 1:], physics.qvel], axis=-1)
        return ((state > self.lowest) & (state < self.highest)).all(axis=-1)


@dataclass(frozen=True, kw_only=True)
class Walker2d(_Upright):
    """Two legs in a plane, to walk forwards; v5 has more foot friction.

    Observation [17]: z, torso angle, six joints; nine velocities.
    """

    xml: str = "walker2d_v5.xml"
    max_contacts: int = 14
    max_constraints: int = 62

    def healthy(self, xp: Any, physics: Physics) -> Array:
        """0.8 < z < 2 and |torso angle| < 1."""
        z, angle = physics.qpos[:, 1], physics.qpos[:, 2]
        return (z > 0.8) & (z < 2.0) & (abs(angle) < 1.0)


@dataclass(frozen=True, kw_only=True)
class _Onwards(_Noisy):
    """What HalfCheetah and Swimmer share: to go forwards, without an end but by the time limit. v4 and v5 agree.

    reward = (x' - x) / dt - cost |a|².

    observation = qpos but for the `hidden` first, qvel.
    """

    cost: float
    hidden: int

    def observe(self, xp: Any, physics: Physics) -> Array:
        """[n, nq - hidden + nv], laid out as above."""
        return xp.concatenate([physics.qpos[:, self.hidden :], physics.qvel], axis=-1)

    def reward_and_terminated(self, xp: Any, before: Physics, after: Physics, action: Array) -> tuple[Array, Array]:
        """The reward above; never ends."""
        reward = _x_velocity(before, after, self.dt) - _control_cost(xp, action, self.cost)
        return reward, xp.zeros(reward.shape, dtype=bool)


@dataclass(frozen=True, kw_only=True)
class HalfCheetah(_Onwards):
    """Half a cheetah in a plane, to run. Observation [17]: z, torso angle, six joints; nine velocities."""

    xml: str = "half_cheetah.xml"
    frame_skip: int = 5
    dt: float = 0.05
    max_contacts: int = 16
    max_constraints: int = 70
    cost: float = 0.1
    hidden: int = 1


@dataclass(frozen=True, kw_only=True)
class Swimmer(_Onwards):
    """Three links in a viscous fluid, to swim along x. Observation [8]: heading, two joints; five velocities."""

    xml: str = "swimmer.xml"
    frame_skip: int = 4
    dt: float = 0.04
    max_contacts: int = 0
    max_constraints: int = 2
    normal_velocities: bool = False
    cost: float = 1e-4
    hidden: int = 2


@dataclass(frozen=True, kw_only=True)
class InvertedDoublePendulum(_Noisy):
    """Two poles on a cart, to be kept upright.

    reward = alive - 0.01 x² - (y - 2)² - 0.001 v₁² - 0.005 v₂², with (x, y) the tip (`site_xpos`, of the last
    Runge-Kutta stage) and v the angular velocities. The episode ends at y ≤ 1; `alive` is 10 (see `_bonus`).

    observation [9] (v4: [11]) = cart position (1), sines of the two angles (2), their cosines (2), qvel
    clipped to ±10 (3), constraint force clipped to ±10 on the cart alone (1) (v4: on all three joints).
    """

    xml: str = "inverted_double_pendulum.xml"
    frame_skip: int = 5
    dt: float = 0.05
    derived: tuple[str, ...] = ("site_xpos", "qfrc_constraint")
    max_contacts: int = 0
    max_constraints: int = 1
    version: int = 5

    def observe(self, xp: Any, physics: Physics) -> Array:
        """[n, 9], or [n, 11] in v4, laid out as above."""
        cart, angles = physics.qpos[:, :1], physics.qpos[:, 1:]
        force = physics.derived["qfrc_constraint"][:, : 3 if self.version == 4 else 1]
        rates = xp.concatenate([physics.qvel, force], axis=-1)
        return xp.concatenate([cart, xp.sin(angles), xp.cos(angles), rates.clip(-10, 10)], axis=-1)

    def reward_and_terminated(self, xp: Any, before: Physics, after: Physics, action: Array) -> tuple[Array, Array]:
        """The reward above; ends when the tip is low."""
        tip, v = after.derived["site_xpos"][:, 0], after.qvel
        x, y = tip[:, 0], tip[:, 2]
        terminated = y <= 1
        alive = _bonus(self.version, ~terminated, 10.0)
        distance = 0.01 * x**2 + (y - 2) ** 2
        speed = 1e-3 * v[:, 1] ** 2 + 5e-3 * v[:, 2] ** 2
        return alive - distance - speed, terminated


@dataclass(frozen=True, kw_only=True)
class Ant(_Noisy):
    """Four legs, to walk along x.

    reward = (x' - x) / dt + healthy - 0.5 |a|² - contact, with x that of the torso (`xpos`, of the last
    Runge-Kutta stage). Healthy is a finite state with 0.2 ≤ z ≤ 1, and pays 1 (see `_bonus`).
    contact = 0.0005 |cfrc_ext clipped to ±1|² in v5, and 0 in v4.

    observation [105] (v4: [27]) = qpos[2:] (13: z, quaternion, eight joints), qvel (14), and in v5 the
    external forces cfrc_ext on all bodies but the world, clipped to ±1 (13 · 6 = 78).
    """

    xml: str = "ant.xml"
    frame_skip: int = 5
    dt: float = 0.05
    derived: tuple[str, ...] = ("xpos", "cfrc_ext")
    max_contacts: int = 25
    max_constraints: int = 108
    version: int = 5

    def observe(self, xp: Any, physics: Physics) -> Array:
        """[n, 105], or [n, 27] in v4, laid out as above."""
        parts = [physics.qpos[:, 2:], physics.qvel]
        if self.version == 5:
            parts.append(self._contact_forces(physics)[:, 6:])
        return xp.concatenate(parts, axis=-1)

    def reward_and_terminated(self, xp: Any, before: Physics, after: Physics, action: Array) -> tuple[Array, Array]:
        """The reward above; ends when unhealthy."""
        z, torso = after.qpos[:, 2], 1
        finite = xp.isfinite(xp.concatenate([after.qpos, after.qvel], axis=-1)).all(axis=-1)
        healthy = (z >= 0.2) & (z <= 1.0) & finite
        velocity = (after.derived["xpos"][:, torso, 0] - before.derived["xpos"][:, torso, 0]) / self.dt
        cost = _control_cost(xp, action, 0.5)
        if self.version == 5:
            cost = cost + 5e-4 * xp.square(self._contact_forces(after)).sum(axis=-1)
        return velocity + _bonus(self.version, healthy, 1.0) - cost, ~healthy

    def _contact_forces(self, physics: Physics) -> Array:
        """Clipped external forces, [n, 6 nbody]; the first six are the world's."""
        forces = physics.derived["cfrc_ext"]
        return forces.reshape(forces.shape[0], -1).clip(-1.0, 1.0)


def _x_velocity(before: Physics, after: Physics, dt: float) -> Array:
    """Mean velocity [n] along x of the root joint over the step."""
    return (after.qpos[:, 0] - before.qpos[:, 0]) / dt


def _bonus(version: int, healthy: Array, bonus: float) -> Array:
    """What is paid for a healthy step [n]: in v4 even for the one that ends the episode, in v5 not."""
    return bonus if version == 4 else bonus * healthy


def _control_cost(xp: Any, action: Array, weight: float) -> Array:
    """`weight` |action|², [n]."""
    return weight * xp.square(action).sum(axis=-1)


TASKS: dict[str, Task] = {
    "Hopper-v4": Hopper(version=4),
    "Hopper-v5": Hopper(version=5),
    "Walker2d-v4": Walker2d(version=4, xml="walker2d.xml"),
    "Walker2d-v5": Walker2d(version=5),
    "HalfCheetah-v4": HalfCheetah(),
    "HalfCheetah-v5": HalfCheetah(),
    "Swimmer-v4": Swimmer(),
    "Swimmer-v5": Swimmer(),
    "InvertedDoublePendulum-v4": InvertedDoublePendulum(version=4),
    "InvertedDoublePendulum-v5": InvertedDoublePendulum(version=5),
    "Ant-v4": Ant(version=4, derived=("xpos",)),
    "Ant-v5": Ant(version=5),
}
"""The tasks by Gymnasium's ids."""
