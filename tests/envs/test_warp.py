"""The warp engine, on Warp's CPU device, against the native engine and the contract of vector environments.

Environments are made once per task and shared: `rekey` makes them as good as new, which is tested as well.
"""

import functools
import importlib.util
import itertools
import subprocess
import sys
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import jax
import mujoco
import numpy as np
import pytest
from scipy import stats

from mcclt.envs.api import Key, Step
from mcclt.envs.mujoco import load_model
from mcclt.envs.native import NativeVectorEnv
from mcclt.envs.tasks import TASKS, Hopper, Physics
from mcclt.envs.warp import WarpVectorEnv, time_physics
from mcclt.errors import CheckpointError, EnvironmentFault

pytestmark = pytest.mark.skipif(
    importlib.util.find_spec("mujoco_warp") is None, reason="MuJoCo Warp is not installed: pip install 'mcclt[gpu]'"
)


def tasks(*names: str) -> Any:
    """A parameter; the first task is fast, the others are slow: Warp compiles for each model."""
    slow = [pytest.param(name, marks=pytest.mark.slow) for name in names[1:]]
    return pytest.mark.parametrize("task_id", [names[0], *slow])


EVERY_TASK = tasks("Hopper-v5", *(name for name in TASKS if name != "Hopper-v5"))
ONE_OF_EACH_KIND = tasks("Hopper-v5", "InvertedDoublePendulum-v5", "Ant-v5")
N = 128


def keys_of(n: int = N, seed: int = 7) -> list[Key]:
    return [(seed, 4, 0, i) for i in range(n)]


@functools.cache
def shared(task_id: str) -> WarpVectorEnv:
    return WarpVectorEnv(task_id, keys_of())


def rekey(env: WarpVectorEnv, keys: Sequence[Key]) -> None:
    env.rekey(keys, np.ones(env.num_envs, bool))


def fresh(task_id: str) -> WarpVectorEnv:
    """The shared environments of a task, as if made anew."""
    env = shared(task_id)
    rekey(env, keys_of())
    return env


@functools.cache
def native(task_id: str) -> NativeVectorEnv:
    return NativeVectorEnv(task_id, keys_of())


def action_of(env: Any, seed: int = 0) -> np.ndarray:
    """Random actions [n, nu], a third of them at the bounds; the same for environment i however many there are."""
    rngs = [np.random.default_rng([seed, i]) for i in range(env.num_envs)]
    low, high = env.spec.action_low, env.spec.action_high
    return np.clip([rng.uniform(1.5 * low, 1.5 * high) for rng in rngs], low, high).astype(np.float32)


def run(env: Any, steps: int, start: int = 0) -> list[Step]:
    return [env.step(action_of(env, start + k)) for k in range(steps)]


def edit(env: WarpVectorEnv, **values: Any) -> np.ndarray:
    """Overwrites parts of the state: name = (index, value)."""
    state = env.get_state()
    for name, (index, value) in values.items():
        state[name][index] = value
    return env.set_state(state)


def assert_same(a: Sequence[Step], b: Sequence[Step], rows: Any = slice(None), atol: float = 0.0) -> None:
    """Equality; `rows` picks environments of `b`."""
    for x, y in zip(a, b, strict=True):
        for name, left, right in zip(Step._fields, x, y, strict=True):
            np.testing.assert_allclose(left, right[rows], rtol=0, atol=atol, err_msg=name)


# --- physics -----------------------------------------------------------------------------------------------


@functools.cache
def one_step(task_id: str) -> dict[str, Any]:
    """One step of both engines from the same N states, as a random policy meets them in its first 32 steps."""
    env, reference = fresh(task_id), native(task_id)
    reference.restart(np.ones(N, bool))
    starts: dict[int, tuple[np.ndarray, np.ndarray]] = {}
    for k in range(32):
        now = reference._simulator.physics
        starts |= {i: (now.qpos[i].astype(np.float32), now.qvel[i].astype(np.float32)) for i in range(k, N, 32)}
        reference.step(action_of(reference, k))
    for i, start in starts.items():
        reference._simulator.reset(i, *start)
    reference._elapsed[:] = 0
    now = reference._simulator.physics
    env.reset()
    state = env.get_state()
    moment = {"qpos": now.qpos, "qvel": now.qvel, **now.derived, "qacc_warmstart": np.zeros_like(now.qvel)}
    state |= {name: value.astype(np.float32) for name, value in moment.items()}
    env.set_state(state)
    action = action_of(env, 99)
    theirs, ours = reference.step(action), env.step(action)
    contacts = env._worlds._data.nacon.numpy()[0]
    derived = {name: value.copy() for name, value in reference._simulator.physics.derived.items()}
    return {"ours": ours, "theirs": theirs, "contacts": contacts, "derived": derived, "state": env.get_state()}


# Float32, through up to 20 evaluations of stiff contacts. Perturbing MuJoCo's own start by a unit of float32's last
# place moves its outcome by a third of these errors: it is rounding. Measured over 4,000 states per task, the largest
# errors were, in this order, 3e-6, 3e-4, 7e-3, 1e-5, 4e-6, 1e-3; the bounds are a few times those.
TOLERANCE = {
    "Hopper": 1e-5,
    "Walker2d": 1e-3,
    "HalfCheetah": 2e-2,
    "Swimmer": 3e-5,
    "InvertedDoublePendulum": 1e-5,
    "Ant": 3e-3,
}


@EVERY_TASK
def test_a_step_is_the_native_engines_from_the_same_state(task_id: str) -> None:
    name = task_id.split("-")[0]
    both = one_step(task_id)
    ours, theirs = both["ours"], both["theirs"]
    error = np.abs(ours.next_obs - theirs.next_obs).max(axis=1)
    assert error.max() < TOLERANCE[name]
    assert np.median(error) < 2e-5
    np.testing.assert_allclose(ours.reward, theirs.reward, rtol=0, atol=1e-4)
    np.testing.assert_array_equal(ours.terminated, theirs.terminated)
    if name in ("Hopper", "Walker2d", "InvertedDoublePendulum"):
        assert ours.terminated.any() and not ours.terminated.all()
    if name in ("Hopper", "Walker2d", "HalfCheetah", "Ant"):
        assert both["contacts"] > N / 8


@pytest.mark.slow
@pytest.mark.parametrize("task_id", ["InvertedDoublePendulum-v5", "Ant-v5"])
def test_derived_fields_are_stale_in_an_episode_and_fresh_at_its_start(task_id: str) -> None:
    both = one_step(task_id)
    goes_on = ~both["ours"].terminated
    for name, value in both["derived"].items():
        scale = 1 + np.abs(value[goes_on]).max()
        np.testing.assert_allclose(both["state"][name][goes_on], value[goes_on], rtol=0, atol=1e-3 * scale)

    env, reference = fresh(task_id), native(task_id)

    def expected(state: dict[str, np.ndarray]) -> dict[str, np.ndarray]:
        """What the native engine, and so Gymnasium, sees when an episode starts here."""
        for i in range(N):
            reference._simulator.reset(i, state["qpos"][i], state["qvel"][i])
        return reference._simulator.physics.derived

    env.reset()
    edit(env, elapsed=(slice(0, N, 2), 999), qpos=(np.s_[:, 0], 0.9))  # elsewhere, so that the last moment would show
    step = env.step(action_of(env))
    ended = step.terminated | step.truncated
    assert ended.any() and not ended.all()
    after = env.get_state()
    for name, value in expected(after).items():
        np.testing.assert_allclose(after[name][ended], value[ended], atol=1e-5, err_msg=name)
        if name in ("xpos", "site_xpos"):
            distance = np.abs(after[name] - value).reshape(N, -1).max(axis=1)
            assert 10 * distance[ended].max() < distance[~ended].max(), "those that go on show the last stage"

    # Where the last action and forces would show if they were not cleared: the ant on the floor, the cart at its stop.
    touching = (np.s_[:, 2], 0.4) if task_id.startswith("Ant") else (np.s_[:, 0], 1.01)
    edit(env, qpos=touching)
    env.step(action_of(env))
    edit(env, qpos=touching)
    env._worlds.look(env._programs.pack(env._now, action_of(env)))
    everywhere = np.ones(N, bool)
    fresh_fields = jax.tree.map(
        np.array, env._programs.refresh(env._now, env._worlds.view(), everywhere)[0]
    ).physics.derived
    for name, value in expected(env.get_state()).items():
        np.testing.assert_allclose(fresh_fields[name], value, atol=1e-4 * (1 + np.abs(value).max()), err_msg=name)
    assert task_id.startswith("Ant") or np.abs(fresh_fields["qfrc_constraint"]).max() > 1


@pytest.mark.slow
def test_contacts_of_capsules_have_mujocos_tangents() -> None:
    """Where a capsule is steep, MuJoCo Warp would take the world's y axis; pyramidal friction then differs."""
    env, model = fresh("Ant-v5"), load_model(TASKS["Ant-v5"])
    env.reset()
    rng = np.random.default_rng(0)
    tilt = np.concatenate([np.ones((N, 1)), 0.4 * rng.standard_normal((N, 3))], axis=1)
    low, high = model.jnt_range[1:].T
    edit(
        env,
        qpos=(np.s_[:, 2:], np.concatenate([np.full((N, 1), 0.45), tilt, rng.uniform(low, high, (N, 8))], axis=1)),
    )
    physics, qpos = env._worlds, env.get_state()["qpos"]
    physics.advance(env._programs.pack(env._now, env._still))  # leaves the state of its start in the letters

    def collide() -> None:
        physics._mjw.kinematics(physics._model, physics._data)
        physics._mjw.collision(physics._model, physics._data)

    physics.record(collide)()
    count, contact = int(physics._data.nacon.numpy()[0]), physics._data.contact
    world, geom, dist, frame = (getattr(contact, k).numpy()[:count] for k in ("worldid", "geom", "dist", "frame"))
    data, steep, checked = mujoco.MjData(model), 0, 0
    for i in range(N):
        data.qpos[:] = qpos[i]
        mujoco.mj_kinematics(model, data)
        mujoco.mj_collision(model, data)
        mine = np.flatnonzero(world == i)
        for c in range(data.ncon):
            pair, depth = data.contact.geom[c], data.contact.dist[c]
            same = [j for j in mine if (geom[j] == pair).all() and abs(dist[j] - depth) < 1e-5]
            if abs(depth - 0.02) < 1e-5:
                continue  # at the margin's edge, where rounding decides
            assert len(same) == 1
            np.testing.assert_allclose(frame[same[0]].ravel(), data.contact.frame[c], atol=1e-4)
            axis = data.geom_xmat[pair[1]].reshape(3, 3)[:, 2]
            steep, checked = steep + (abs(axis[2]) > np.cos(np.pi / 6)), checked + 1
    assert steep > 20 and checked - steep > 20


@pytest.mark.parametrize("task_id", TASKS)
def test_there_is_room_for_all_contacts_that_the_geometry_allows(task_id: str) -> None:
    task = TASKS[task_id]
    model = load_model(task)
    plane, sphere, capsule = (int(getattr(mujoco.mjtGeom, f"mjGEOM_{kind}")) for kind in ("PLANE", "SPHERE", "CAPSULE"))
    most = {(plane, sphere): 1, (plane, capsule): 2, (capsule, capsule): 2}
    parent = model.body_weldid[model.body_parentid]
    contacts = rows = 0
    for i, j in itertools.combinations(range(model.ngeom), 2):
        a, b = model.body_weldid[model.geom_bodyid[[i, j]]]
        related = a == b or (a and b and (a == parent[b] or b == parent[a]))
        masks = model.geom_contype, model.geom_conaffinity
        if related or not (masks[0][i] & masks[1][j] or masks[0][j] & masks[1][i]):
            continue
        here = most[tuple(sorted(model.geom_type[[i, j]].tolist()))]
        condim = max(model.geom_condim[i], model.geom_condim[j])
        contacts += here
        rows += here * (1 if condim == 1 else 2 * (condim - 1))
    assert model.neq == 0 and not model.dof_frictionloss.any() and model.npair == 0 and model.ntendon == 0
    assert task.max_contacts == contacts
    assert task.max_constraints == rows + model.jnt_limited.sum()


# --- room --------------------------------------------------------------------------------------------------


@pytest.mark.slow  # Warp compiles a model of its own for each
@pytest.mark.parametrize("setting", ["max_contacts", "max_constraints"])
def test_too_little_room_is_an_error_that_names_the_setting(setting: str) -> None:
    env = WarpVectorEnv(replace(TASKS["Hopper-v5"], **{setting: 1}), keys_of(4))
    env.reset()
    env.check_room()
    edit(env, qpos=(np.s_[:, 1], 1.2))  # into the floor
    still = np.zeros((4, 3), np.float32)
    with pytest.raises(EnvironmentFault, match=rf"Hopper needs more than {setting} = 1 on a GPU: raise it"):
        env.step(still)
    env.check_room()  # said once

    env.reset()
    edit(env, qpos=(np.s_[:, 1], 1.2))
    env.send(still)
    env.receive()
    edit(env, qpos=(np.s_[:, 1:], [3.0, 0, -0.5, -0.5, 0]))  # into the air, no joint at its limit
    env.send(still)
    env.receive()
    env.reset_device()
    with pytest.raises(EnvironmentFault, match=setting):
        env.check_room()  # remembered from before
    edit(env, qpos=(np.s_[:, 1:], [3.0, 0, -0.5, -0.5, 0]))
    env.step(still)
    env.close()


# --- the contract ------------------------------------------------------------------------------------------


@EVERY_TASK
def test_the_spec_is_the_native_engines(task_id: str) -> None:
    ours, theirs = shared(task_id).spec, native(task_id).spec
    assert (ours.engine, ours.task, ours.resumable) == ("warp", task_id, True)
    np.testing.assert_array_equal(ours.action_low, theirs.action_low)
    np.testing.assert_array_equal(ours.action_high, theirs.action_high)
    for name in ("obs_size", "action_size", "max_episode_steps", "discrete"):
        assert getattr(ours, name) == getattr(theirs, name), name


@EVERY_TASK
def test_episodes_start_as_the_native_engines_do(task_id: str) -> None:
    """Other numbers of the same distribution, coordinate by coordinate; and different ones for each key and episode."""
    env, reference = fresh(task_id), native(task_id)
    ours, theirs = [], []
    for _ in range(4):
        env.reset()
        reference.reset()
        state, now = env.get_state(), reference._simulator.physics
        ours.append(np.concatenate([state["qpos"], state["qvel"]], axis=1))
        theirs.append(np.concatenate([now.qpos, now.qvel], axis=1))
        assert not state["qacc_warmstart"].any() and not state["elapsed"].any()
    a, b = np.concatenate(ours), np.concatenate(theirs)
    for k in range(a.shape[1]):
        assert stats.ks_2samp(a[:, k], b[:, k]).pvalue > 1e-4, k
        assert len(np.unique(a[:, k])) > 0.95 * len(a)
    assert np.abs(np.corrcoef(a.T) - np.eye(a.shape[1])).max() < 0.25, "coordinates are independent"


@ONE_OF_EACH_KIND
def test_an_ended_episode_gives_its_true_last_observation_and_the_first_of_the_next(task_id: str) -> None:
    env = fresh(task_id)
    env.reset()
    second = env.reset()
    rekey(env, keys_of())
    env.reset()
    start = env.get_state()
    action = 0 * action_of(env)
    uncut = env.step(action)
    env.set_state(start)
    edit(env, elapsed=(slice(0, N, 2), 999))
    cut = env.step(action)
    even = np.arange(N) % 2 == 0
    assert not uncut.truncated.any() and not uncut.terminated.any()
    np.testing.assert_array_equal(cut.truncated, even)
    assert not cut.terminated.any()
    np.testing.assert_array_equal(cut.next_obs, uncut.next_obs)
    np.testing.assert_array_equal(cut.reward, uncut.reward)
    np.testing.assert_array_equal(cut.obs[even], second[even])
    np.testing.assert_array_equal(cut.obs[~even], cut.next_obs[~even])
    assert (env.get_state()["elapsed"] == ~even).all() and (env.get_state()["episodes"] == 1 + even).all()
    assert [array.dtype.str[1:] for array in cut] == ["f4", "f4", "b1", "b1", "f4"]
    assert env.faults() == {}


def test_termination_on_the_last_step_is_not_truncation() -> None:
    env = fresh("Hopper-v5")
    env.reset()
    edit(env, qpos=(np.s_[:2, 2], 1.0), elapsed=(slice(0, 4), 999))  # two lean by more than 0.2
    step = env.step(np.zeros((N, 3), np.float32))
    assert step.terminated[:5].tolist() == [True, True, False, False, False]
    assert step.truncated[:5].tolist() == [False, False, True, True, False]


@ONE_OF_EACH_KIND
def test_restart_starts_only_what_the_mask_says(task_id: str) -> None:
    env = fresh(task_id)
    env.reset()
    second = env.reset()
    rekey(env, keys_of())
    env.reset()
    (step,) = run(env, 1)
    mask = np.arange(N) % 3 == 0
    obs = env.restart(mask)
    np.testing.assert_array_equal(obs[~mask], step.obs[~mask])
    np.testing.assert_array_equal(obs[mask], second[mask])
    assert (env.get_state()["elapsed"] == ~mask).all()


@ONE_OF_EACH_KIND
def test_a_restored_state_continues_exactly_and_rekeying_is_making_anew(task_id: str) -> None:
    env = fresh(task_id)
    first = env.reset()
    last = run(env, 2)[-1]
    edit(env, elapsed=(slice(0, N, 2), 998))
    state = env.get_state()
    reference = run(env, 3, start=2)
    assert any(step.truncated.any() for step in reference), "resets on the way"
    np.testing.assert_array_equal(env.set_state(state), last.obs)
    assert_same(run(env, 3, start=2), reference)

    other = WarpVectorEnv(task_id, keys_of())  # as a resumed run would
    np.testing.assert_array_equal(other.set_state({name: value.copy() for name, value in state.items()}), last.obs)
    assert_same(run(other, 1, start=2), reference[:1])
    rekey(other, keys_of())
    np.testing.assert_array_equal(other.reset(), first)
    rekey(other, keys_of(seed=8))
    assert (other.reset() != first).any(axis=1).all(), "other keys, other episodes"
    other.close()
    other.close()  # closing twice is no error


def test_neighbours_change_nothing() -> None:
    """Others beside it, in other states and with other actions."""
    env = fresh("Hopper-v5")
    first = env.reset()[5:6]
    acts = [action_of(env, k) for k in range(12)]
    among = [env.step(a) for a in acts]
    others = keys_of(seed=8)
    rekey(env, [*others[:5], keys_of()[5], *others[6:]])
    again = env.reset()
    np.testing.assert_array_equal(again[5:6], first)
    mine = np.arange(N)[:, None] == 5
    for a, step in zip(acts, among, strict=True):
        other = env.step(np.where(mine, a, -a))
        assert_same([Step(*(x[5:6] for x in other))], [step], rows=slice(5, 6))
        assert (other.next_obs[~mine[:, 0]] != step.next_obs[~mine[:, 0]]).any(axis=1).all()


@pytest.mark.slow
def test_alone_as_among_others() -> None:
    env, alone = fresh("Hopper-v5"), WarpVectorEnv("Hopper-v5", keys_of()[5:6])
    np.testing.assert_allclose(alone.reset(), env.reset()[5:6], atol=1e-6)
    acts = [action_of(env, k) for k in range(12)]
    among = [env.step(a) for a in acts]
    assert_same([alone.step(a[5:6]) for a in acts], among, rows=slice(5, 6), atol=1e-4)
    alone.close()


def test_a_state_of_another_shape_is_refused() -> None:
    env = fresh("Hopper-v5")
    state = env.get_state()
    said = r"^This is not a state of 128 Hopper-v5: 'qpos' should be \(128, 6\)\.$"
    with pytest.raises(CheckpointError, match=said):
        env.set_state({**state, "qpos": state["qpos"][:1]})
    with pytest.raises(CheckpointError, match="'elapsed' should be"):
        env.set_state({name: value for name, value in state.items() if name != "elapsed"})


def test_a_task_of_ones_own_may_observe_the_state_itself() -> None:
    """Warp overwrites its arrays at every step; what was returned stays what it was."""

    class Bare(Hopper):
        def observe(self, xp: Any, physics: Physics) -> Any:
            return physics.qpos

    env = WarpVectorEnv(Bare(), keys_of(4))
    assert (env.spec.task, env.spec.obs_size) == ("Bare", 6)
    env.reset_device()
    env.send(action_of(env))
    first = env.receive()
    kept = [np.array(x) for x in first]
    run(env, 2)
    env.reset_device()
    for now, before in zip(first, kept, strict=True):
        np.testing.assert_array_equal(now, before)
    env.close()


def test_physics_alone_is_what_was_sent_to_the_worlds() -> None:
    env = fresh("Hopper-v5")
    env.reset()
    first = env.get_state()

    def act() -> None:
        for k in range(4):
            env.step(np.full((N, 3), 0.1 * k, np.float32))

    steps, seconds = time_physics(env, act)
    assert steps == N * 4 and seconds > 0
    after = env.get_state()
    env.set_state(first)
    act()
    for name, value in env.get_state().items():  # replaying has left no trace
        np.testing.assert_array_equal(value, after[name])


@pytest.mark.slow
def test_nothing_is_written_to_the_terminal() -> None:
    code = "from mcclt.envs import make_vec; make_vec('Hopper-v5', [(0, 0)], engine='warp').close()"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout == done.stderr == ""


def test_only_the_known_line_is_kept_off_the_terminal(capfd: pytest.CaptureFixture[str]) -> None:
    from mcclt.envs.warp_worlds import NO_DRIVER, _without_line

    with _without_line(NO_DRIVER):
        subprocess.run(["sh", "-c", f"echo 'warning: {NO_DRIVER.decode()}. No GPU.' >&2; echo bad >&2"], check=True)
        print("from Python", file=sys.stderr)
    assert sorted(capfd.readouterr().err.splitlines()) == ["bad", "from Python"]


# --- whole episodes ----------------------------------------------------------------------------------------


@pytest.mark.slow
@pytest.mark.parametrize("task_id", ["Hopper-v5", "Walker2d-v4", "HalfCheetah-v5", "Swimmer-v4", "Ant-v4"])
def test_returns_of_a_policy_are_distributed_alike(task_id: str) -> None:
    """Chaos parts the episodes of the two engines, but not their statistics."""
    limit = 100
    outcomes = []
    for env in (WarpVectorEnv(task_id, keys_of(), limit), NativeVectorEnv(task_id, keys_of(seed=8), limit)):
        rng = np.random.default_rng(0)
        weights = rng.standard_normal((env.spec.obs_size, env.spec.action_size)) / env.spec.obs_size**0.5
        obs, alive = env.reset(), np.ones(N, bool)
        returns, lengths = np.zeros(N), np.zeros(N)
        while alive.any():
            step = env.step(np.tanh(obs @ weights).astype(np.float32) * env.spec.action_high)
            returns, lengths, obs = returns + alive * step.reward, lengths + alive, step.obs
            alive &= ~(step.terminated | step.truncated)
        outcomes.append((returns, lengths))
        env.close()
    for ours, theirs in zip(*outcomes, strict=True):
        assert stats.ks_2samp(ours, theirs).pvalue > 1e-3
