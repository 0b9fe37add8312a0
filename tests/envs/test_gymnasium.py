"""The Gymnasium engine against small environments whose outcomes are known."""

import os

import gymnasium as gym
import numpy as np
import pytest
from gymnasium import spaces

from mcclt.envs.gymnasium import AsyncVectorEnv, GymnasiumVectorEnv
from mcclt.errors import (
    CheckpointError,
    ConfigError,
    EnvironmentFault,
    MissingExtraError,
    UnknownNameError,
    UnsupportedSpaceError,
)

KEYS = [(7, 0, 0, i) for i in range(3)]
ENGINES = [GymnasiumVectorEnv, AsyncVectorEnv]
both = pytest.mark.parametrize("engine", ENGINES, ids=lambda engine: engine.name)


def said(env: GymnasiumVectorEnv) -> dict[int, str]:
    """What environments raised, without where."""
    return {i: text.partition(" (test_gymnasium.py, line ")[0] for i, text in env.faults().items()}


class Counter(gym.Env):
    """Observes (step, noise, last action) in one reused array; rewards the step; ends as asked.

    Each environment draws its fate at reset from its seed, so that neighbours differ.
    """

    observation_space = spaces.Box(-np.inf, np.inf, (3,), np.float32)
    action_space = spaces.Box(-1, 1, (1,), np.float64)

    def __init__(self, end: int = 4, how: str = "terminated") -> None:
        self.end, self.how = end, how
        self.memory = np.zeros(3, np.float32)

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.memory[:] = 0, self.np_random.random(), 0
        return self.memory, {"noise": "nobody reads this"}

    def step(self, action):
        assert action.dtype == np.float64
        self.memory += 1, 0, 0
        self.memory[2] = action[0]
        done = self.memory[0] >= self.end
        ended = {"terminated": (done, False), "truncated": (False, done), "both": (done, done)}[self.how]
        return self.memory, np.array([self.memory[0]]), *ended, {}


class Faulty(Counter):
    """Goes wrong in step 2, if its first noise is that of the environment with key 1."""

    def __init__(self, fault: str) -> None:
        super().__init__(end=5)
        self.fault = fault
        self.victim: bool | None = None
        self.resets = 0

    def reset(self, *, seed=None, options=None):
        obs, info = super().reset(seed=seed)
        if self.victim is None:
            self.victim = bool(np.isclose(obs[1], first_noise(KEYS[1])))
        self.resets += 1
        if self.victim and self.fault == "reset" and self.resets in (2, 3):
            raise OSError("no disk")
        if self.victim and self.fault == "first reset" and self.resets == 1:
            raise OSError("no disk")
        return obs, info

    def step(self, action):
        obs, reward, terminated, truncated, info = super().step(action)
        if self.victim and obs[0] == 2:
            if self.fault == "step":
                raise ZeroDivisionError("bad luck")
            if self.fault == "shape":
                return obs[:2], reward, terminated, truncated, info
            if self.fault == "nan":
                return obs * np.nan, np.inf, terminated, truncated, info
            if self.fault == "reset":
                return obs, reward, True, False, info
            if self.fault == "crash":
                os._exit(1)
        return obs, reward, terminated, truncated, info


def first_noise(key) -> float:
    seed = int(np.random.SeedSequence([*key, 0]).generate_state(1)[0])
    return gym.utils.seeding.np_random(seed)[0].random()


def act(vec: GymnasiumVectorEnv, value: float = 0.5) -> np.ndarray:
    return np.full((vec.num_envs, 1), value, np.float32)


@both
def test_ends_show_the_true_last_observation(engine):
    """End, termination and truncation are told apart, and no step is lost or invented."""
    for how, terminates in {"terminated": True, "truncated": False, "both": True}.items():
        vec = engine(lambda how=how: Counter(4, how), KEYS)
        assert vec.spec.obs_size == 3 and vec.spec.action_size == 1 and not vec.spec.discrete
        assert vec.spec.max_episode_steps is None and vec.spec.engine == engine.name
        obs = vec.reset()
        assert obs.dtype == np.float32 and (obs[:, 0] == 0).all()
        for t in range(1, 11):
            before, step = obs, vec.step(act(vec))
            count = (t - 1) % 4 + 1
            ended = np.full(3, count == 4)
            np.testing.assert_array_equal(step.reward, np.full(3, count, np.float32))
            np.testing.assert_array_equal(step.next_obs[:, 0], np.full(3, count))
            np.testing.assert_array_equal(step.next_obs[:, 1], before[:, 1])  # still the same episode
            np.testing.assert_array_equal(step.next_obs[:, 2], np.full(3, 0.5))
            np.testing.assert_array_equal(step.obs[:, 0], np.full(3, count % 4))
            np.testing.assert_array_equal(step.obs[:, 1] != before[:, 1], ended)  # a new one
            np.testing.assert_array_equal(step.terminated, ended & terminates)
            np.testing.assert_array_equal(step.truncated, ended & (not terminates))
            assert all(a.dtype == np.float32 for a in (step.obs, step.next_obs, step.reward))
            obs = step.obs
        assert vec.faults() == {}
        vec.close()


def test_own_time_limit_is_replaced():
    """A longer limit would not show under the task's own 200 steps if that were still there."""
    vec = GymnasiumVectorEnv("Pendulum-v1", KEYS, 250)
    assert vec.spec.max_episode_steps == 250
    vec.reset()
    truncated = [vec.step(act(vec)).truncated for _ in range(251)]
    assert np.flatnonzero(np.array(truncated)[:, 0]).tolist() == [249]
    assert GymnasiumVectorEnv("Pendulum-v1", KEYS).spec.max_episode_steps == 200


def test_limit_of_classes_and_of_wrapped_environments():
    """Without a limit one is added; with one inside other wrappers that one is changed."""
    wrapped = lambda: gym.wrappers.ClipAction(gym.wrappers.TimeLimit(Counter(99), 2))  # noqa: E731
    for task in (lambda: Counter(99), wrapped):
        vec = GymnasiumVectorEnv(task, KEYS, 3)
        vec.reset()
        assert [vec.step(act(vec)).truncated[0] for _ in range(6)] == [False, False, True] * 2
        assert vec.spec.max_episode_steps == 3


def test_termination_at_the_limit_is_termination():
    """TimeLimit sets both there; the task itself ended."""
    vec = GymnasiumVectorEnv(lambda: Counter(3), KEYS, 3)
    vec.reset()
    step = [vec.step(act(vec)) for _ in range(3)][-1]
    assert step.terminated.all() and not step.truncated.any()


def test_discrete_actions_with_a_start():
    """Our actions are 0, 1, 2; the environment's 5, 6, 7, checked by its own space."""

    class Five(Counter):
        action_space = spaces.Discrete(3, start=5)

        def step(self, action):
            assert self.action_space.contains(action)
            self.memory[2] = action
            return self.memory, 0.0, False, False, {}

    vec = GymnasiumVectorEnv(Five, KEYS)
    assert vec.spec.discrete and vec.spec.action_size == 3 and vec.spec.action_high is None
    assert vec.spec.task.endswith("Five")
    vec.reset()
    np.testing.assert_array_equal(vec.step(np.array([0, 1, 2])).obs[:, 2], [5, 6, 7])
    assert vec.faults() == {}


@pytest.mark.parametrize(
    ("space", "value", "vector"),
    [
        (spaces.Discrete(3, start=1), 2, [0, 1, 0]),
        (spaces.MultiBinary(2), np.array([1, 0], np.int8), [1, 0]),
        (spaces.MultiDiscrete([2, 2]), np.array([1, 0]), [0, 1, 1, 0]),
        (spaces.Box(0, 9, (), np.float32), np.float32(4), [4]),
        (spaces.Box(0, 9, (2, 2), np.float64), np.arange(4.0).reshape(2, 2), [0, 1, 2, 3]),
        (spaces.Box(0, 255, (2,), np.uint8), np.array([3, 255], np.uint8), [3, 255]),
    ],
    ids=str,
)
def test_observations_become_vectors(space, value, vector):
    """Everything small and numeric is a float32 vector in the end."""

    class Still(Counter):
        observation_space = space

        def reset(self, *, seed=None, options=None):
            return value, {}

    vec = GymnasiumVectorEnv(Still, KEYS[:1])
    np.testing.assert_array_equal(vec.reset(), np.array([vector], np.float32))
    assert vec.spec.obs_size == len(vector) and vec.faults() == {}


@both
def test_seeds_come_from_the_own_key_alone(engine):
    """An environment is the same alone, elsewhere and among others, over several episodes."""

    def run(keys):
        vec = engine(lambda: Counter(2), keys)
        noise = [vec.reset()[:, 1]] + [vec.step(act(vec)).obs[:, 1] for _ in range(4)]
        noise.append(vec.reset()[:, 1])
        vec.close()
        return np.array(noise)

    together, other = run(KEYS), run([(8, 0, 0, 0), KEYS[2]])
    np.testing.assert_array_equal(together[:, 2], other[:, 1])
    assert len(np.unique(np.concatenate([together, other[:, :1]], axis=1)[[0, 2, 4, 5]])) == 16
    np.testing.assert_allclose(together[0], [first_noise(key) for key in KEYS], rtol=1e-6)


@both
def test_restart_of_some(engine):
    """The others go on where they were, the restarted ones draw anew and count from 0."""
    vec = engine(lambda: Counter(4), KEYS)
    first = vec.reset()
    for _ in range(2):
        step = vec.step(act(vec))
    obs = vec.restart(np.array([False, True, False]))
    np.testing.assert_array_equal(obs[:, 0], [2, 0, 2])
    np.testing.assert_array_equal(obs[[0, 2]], step.obs[[0, 2]])
    assert obs[1, 1] != first[1, 1]
    np.testing.assert_array_equal(vec.restart(np.zeros(3, bool)), obs)  # of none: nothing happens
    ends = np.array([vec.step(act(vec)).terminated for _ in range(4)])
    np.testing.assert_array_equal(np.argmax(ends, axis=0), [1, 3, 1])
    vec.close()


@both
@pytest.mark.parametrize(
    ("fault", "said"),
    [("step", "ZeroDivisionError: bad luck"), ("shape", "shape (2,) where observation_space says (3,)")],
)
def test_one_that_raises_leaves_the_others_alone(engine, fault, said):
    """NaN and truncation in that step, a message by index, and a new episode; neighbours notice nothing."""
    vec, clean = (engine(lambda f=f: Faulty(f), KEYS) for f in (fault, "none"))
    assert (vec.reset() == clean.reset()).all()
    for t in range(1, 7):
        step, good = vec.step(act(vec)), clean.step(act(clean))
        for got, wanted in zip(step, good, strict=True):
            np.testing.assert_array_equal(got[[0, 2]], wanted[[0, 2]])
        if t % 2 == 0:
            assert list(vec.faults()) == [1] and said in vec.faults()[1]
            assert np.isnan(step.next_obs[1]).all() and np.isnan(step.reward[1])
            assert step.truncated[1] and not step.terminated[1]
            assert step.obs[1, 0] == 0 and np.isfinite(step.obs[1]).all()
        else:
            assert vec.faults() == {} and np.isfinite(step.next_obs).all()
    vec.close()
    clean.close()


@pytest.mark.parametrize("how", ["from error", "", "from None"])
def test_what_an_error_was_raised_from_is_shown(how, tmp_path):
    """As Python shows it: the cause, or what was being handled, each with its place; nothing after `from None`."""
    file = tmp_path / "chained.py"
    code = "def step(self, action):\n try:\n  {}['speed']\n except KeyError as error:\n  raise OSError('bad') "
    file.write_text(code + how)
    names = {}
    exec(compile(file.read_text(), file, "exec"), names)
    vec = GymnasiumVectorEnv(type("Chained", (Counter,), {"step": names["step"]}), KEYS[:1])
    vec.reset()
    vec.step(act(vec))
    link = {"from error": "from KeyError: 'speed'", "": "while handling KeyError: 'speed'"}.get(how)
    lines = ["raised in step: OSError: bad (chained.py, line 5)"]
    lines += [f'File "{file}", line 5, in step', f"raise OSError('bad') {how}".strip()]
    lines += [link, f'File "{file}", line 3, in step', "{}['speed']"] if link else []
    found = [line.strip() for line in vec.faults()[0].splitlines()]
    assert [line for line in found if line.strip("^~")] == lines


@both
def test_one_that_cannot_reset_is_tried_again(engine):
    """Its episode ends well in step 2, two resets fail, the third works."""
    vec = engine(lambda: Faulty("reset"), KEYS)
    vec.reset()
    vec.step(act(vec))
    step = vec.step(act(vec))  # ends; the first reset fails
    assert step.terminated[1] and step.next_obs[1, 0] == 2 and np.isnan(step.obs[1]).all()
    assert said(vec) == {1: "raised in reset: OSError: no disk"}
    step = vec.step(act(vec))  # cannot be stepped; the second fails
    assert step.truncated[1] and np.isnan(step.reward[1]) and np.isnan(step.obs[1]).all()
    assert said(vec) == {1: "raised in reset: OSError: no disk"}
    step = vec.step(act(vec))  # cannot be stepped; the third works
    assert list(vec.faults()) == [1] and step.truncated[1] and step.obs[1, 0] == 0
    step = vec.step(act(vec))
    assert vec.faults() == {} and step.obs[1, 0] == 1
    vec.close()


@pytest.mark.parametrize("name", ["reset", "step"])
@pytest.mark.parametrize(("result", "got"), [(np.zeros(3), "a single ndarray"), ((0, 1.0, True, {}), "4 values")])
def test_methods_of_another_form(name, result, got):
    """Those of old Gym, most likely: what must be returned is said."""
    form = {"reset": "(obs, info)", "step": "(obs, reward, terminated, truncated, info)"}[name]
    old = type("Old", (Counter,), {name: lambda self, *args, **kwargs: result})
    vec = GymnasiumVectorEnv(old, KEYS[:1])
    vec.reset()
    vec.step(np.zeros((1, 1)))
    assert vec.faults() == {0: f"raised in {name}: ValueError: {name} must return {form}, and returned {got}"}


@both
def test_a_fault_at_the_first_reset(engine):
    """Already `reset` reports it, and `restart` mends it."""
    vec = engine(lambda: Faulty("first reset"), KEYS)
    obs = vec.reset()
    assert np.isnan(obs).all(axis=1).tolist() == [False, True, False]
    assert said(vec) == {1: "raised in reset: OSError: no disk"}
    obs = vec.restart(np.array([False, True, False]))
    assert np.isfinite(obs).all() and vec.faults() == {}
    vec.close()


def test_numbers_that_are_not_finite_pass_through():
    """They are the collector's to judge, and the episode is not cut."""
    vec = GymnasiumVectorEnv(lambda: Faulty("nan"), KEYS)
    vec.reset()
    vec.step(act(vec))
    step = vec.step(act(vec))
    assert np.isnan(step.next_obs[1]).all() and np.isinf(step.reward[1]) and not step.truncated[1]
    assert np.isfinite(step.next_obs[[0, 2]]).all() and vec.faults() == {}


def test_a_process_that_dies_is_named_and_replaced():
    """No exception reaches us from a crash; the pipe just closes."""
    vec = AsyncVectorEnv(lambda: Faulty("crash"), KEYS)
    vec.reset()
    vec.step(act(vec))
    step = vec.step(act(vec))
    assert vec.faults() == {1: "ended its process with exit code 1 in step"}
    assert np.isnan(step.reward).tolist() == step.truncated.tolist() == [False, True, False]
    assert np.isnan(step.next_obs).all(axis=1).tolist() == [False, True, False]
    assert step.obs[:, 0].tolist() == [2, 0, 2], "a new episode begins"
    assert vec.step(act(vec)).next_obs[:, 0].tolist() == [3, 1, 3] and vec.faults() == {}
    vec.close()


@pytest.mark.parametrize(
    ("space", "said"),
    [
        (spaces.Dict(a=spaces.Discrete(2)), "FlattenObservation"),
        (spaces.Tuple([spaces.Discrete(2)]), "FlattenObservation"),
        (spaces.Box(0, 1, (8, 8, 3), np.float32), "features of the image"),
        (spaces.Box(0, 255, (8, 8), np.uint8), "features of the image"),
        (spaces.Text(5), "ObservationWrapper"),
    ],
    ids=str,
)
def test_unsupported_observations(space, said):
    """One sentence: what it was, what is supported, what to do."""

    class Odd(Counter):
        observation_space = space

    with pytest.raises(UnsupportedSpaceError, match=f"observation space .* supported are .* wrap it in .*{said}"):
        GymnasiumVectorEnv(Odd, KEYS)


@pytest.mark.parametrize("name", ["observation_space", "action_space"])
def test_a_space_that_was_forgotten(name):
    """It is to be defined: there is nothing to wrap."""
    with pytest.raises(UnsupportedSpaceError, match=rf"^'Odd' has no {name}: define it .* self\.{name} = [^\n]*\.$"):
        GymnasiumVectorEnv(type("Odd", (Counter,), {name: None}), KEYS)


def test_observations_without_a_number():
    """A policy has nothing to read there, and a file would be refused."""

    class Blind(Counter):
        observation_space = spaces.Box(-1, 1, (0,))

    with pytest.raises(UnsupportedSpaceError, match=r"Blind.* without a number: give one, such as a constant 0\.$"):
        GymnasiumVectorEnv(Blind, KEYS)


@pytest.mark.parametrize(
    "space",
    [
        spaces.MultiDiscrete([[2, 2], [2, 2]]),
        spaces.MultiBinary((2, 2)),
        spaces.Dict(a=spaces.Discrete(2)),
        spaces.Box(-1, 1, (2, 2)),
        spaces.Box(-1, 1, ()),
        spaces.Box(-1, 1, (0,)),
    ],
    ids=str,
)
def test_unsupported_actions(space):
    """As for observations."""

    class Odd(Counter):
        action_space = space

    with pytest.raises(UnsupportedSpaceError, match=r"action space .* supported are .* wrap it in"):
        GymnasiumVectorEnv(Odd, KEYS)


@pytest.mark.parametrize("dtype", [np.int32, np.uint8, np.bool_])
def test_boxes_of_whole_actions(dtype):
    """What a policy draws and what the environment gets would not be the same."""

    class Steps(Counter):
        action_space = spaces.Box(0, 1, (2,), dtype)

    with pytest.raises(UnsupportedSpaceError, match="a Box must be of floats; make whole numbers a MultiDiscrete"):
        GymnasiumVectorEnv(Steps, KEYS)


def test_what_is_no_gymnasium_environment():
    """Multi-agent environments, environments already made, and functions that return something else."""

    class Parallel:
        """Like PettingZoo's: no gymnasium.Env."""

    for task in (Parallel(), Parallel, lambda: Parallel()):
        with pytest.raises(UnsupportedSpaceError, match=r"Parallel is not a gymnasium\.Env"):
            GymnasiumVectorEnv(task, KEYS)
    assert not GymnasiumVectorEnv.supports(Counter()) and GymnasiumVectorEnv.supports(Counter)
    with pytest.raises(ConfigError, match="give its class"):
        GymnasiumVectorEnv(Counter(), KEYS)


def test_a_function_that_returns_the_same_environment():
    """All would step the one, whatever is wrapped around it; in processes each has its copy."""
    env = Counter()
    for same in (lambda: env, lambda: gym.wrappers.ClipAction(env)):
        with pytest.raises(ConfigError, match="the function must make a new one at every call"):
            GymnasiumVectorEnv(same, KEYS)
        assert GymnasiumVectorEnv(same, KEYS[:1]).reset().shape == (1, 3)


def test_a_constructor_that_raises():
    """The reason in one sentence."""

    def broken() -> gym.Env:
        raise FileNotFoundError("map.png")

    with pytest.raises(EnvironmentFault, match=r"Making .*broken' failed: FileNotFoundError: map\.png \(test_gymn"):
        GymnasiumVectorEnv(broken, KEYS)


def test_names(monkeypatch, tmp_path):
    """Ids of the registry, of modules that register them, and of none."""
    engine = GymnasiumVectorEnv
    assert engine.supports("Pendulum-v1") and not engine.supports("Pendulun-v1")
    with pytest.raises(UnknownNameError, match="Did you mean 'Pendulum-v1'"):
        engine("Pendulun-v1", KEYS)
    with pytest.raises(UnknownNameError, match="Did you mean 'Hopper-v5'"):
        engine("hopper-v5", KEYS)
    with pytest.raises(UnknownNameError, match=r"registers it, name that: PACKAGE:ALE/Pong-v5, or MCCLT_IMPORT="):
        engine("ALE/Pong-v5", KEYS)
    assert not engine.supports("no_such_module:Thing-v0")
    with pytest.raises(ConfigError, match="no_such_module"):
        engine("no_such_module:Thing-v0", KEYS)

    (tmp_path / "my_tasks.py").write_text(
        "import gymnasium as gym\n"
        "gym.register('MyPendulum-v0', 'gymnasium.envs.classic_control.pendulum:PendulumEnv')\n"
    )
    monkeypatch.syspath_prepend(tmp_path)
    try:
        assert engine.supports("my_tasks:MyPendulum-v0")
        assert engine("my_tasks:MyPendulum-v0", KEYS).reset().shape == (3, 3)
        # Workers have not our registry, and still make it.
        vec = AsyncVectorEnv("MyPendulum-v0", KEYS[:1])
        assert vec.reset().shape == (1, 3)
        vec.close()
    finally:
        gym.registry.pop("MyPendulum-v0", None)


def test_missing_box2d(monkeypatch):
    """Says which extra to install."""
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    assert not GymnasiumVectorEnv.supports("LunarLander-v3")
    with pytest.raises(MissingExtraError, match=r"gymnasium\[box2d\]"):
        GymnasiumVectorEnv("LunarLander-v3", KEYS)


def test_box2d_runs():
    """Both kinds of action of the lander."""
    pytest.importorskip("Box2D")
    for task, action in (
        ("LunarLanderContinuous-v3", np.zeros((3, 2), np.float32)),
        ("LunarLander-v3", np.zeros(3, np.int64)),
    ):
        vec = GymnasiumVectorEnv(task, KEYS)
        vec.reset()
        step = vec.step(action)
        assert step.obs.shape == (3, 8) and np.isfinite(step.obs).all() and vec.faults() == {}
        assert vec.spec.max_episode_steps == 1000


def test_state_is_not_to_be_had():
    """Said, not guessed."""
    vec = GymnasiumVectorEnv("Pendulum-v1", KEYS)
    assert not vec.spec.resumable
    with pytest.raises(CheckpointError, match="cannot be saved"):
        vec.get_state()
    with pytest.raises(CheckpointError, match="cannot be restored"):
        vec.set_state({})


def test_no_noise(recwarn):
    """A user's first run prints no warning that is not about his environment."""
    vec = GymnasiumVectorEnv("Pendulum-v1", KEYS)
    vec.reset()
    vec.step(act(vec))
    assert [str(w.message) for w in recwarn] == []


@pytest.mark.parametrize(
    ("space", "counts", "low", "high"),
    [
        (spaces.MultiDiscrete([3, 2], start=[5, 0]), (3, 2), [5, 0], [7, 1]),
        (spaces.MultiBinary(3), (2, 2, 2), [0, 0, 0], [1, 1, 1]),
    ],
    ids=["MultiDiscrete", "MultiBinary"],
)
def test_actions_of_several_choices(space, counts, low, high):
    """Vectors of whole numbers, which the environment gets in its own type."""

    actions = []

    class Several(Counter):
        action_space = space

        def step(self, action):
            actions.append(action)
            return super().step(action.astype(np.float64))

    env = GymnasiumVectorEnv(Several, KEYS)
    assert env.spec.action_counts == counts and not env.spec.discrete
    np.testing.assert_array_equal((env.spec.action_low, env.spec.action_high), (low, high))
    env.reset()
    env.step(np.tile(np.array(high, np.float32), (len(KEYS), 1)))
    assert all(space.contains(action) for action in actions) and len(actions) == len(KEYS)
    np.testing.assert_array_equal(actions[0], high)
    env.close()
