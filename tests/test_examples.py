"""Every script of `examples/`: it runs, in a tiny size, and does what it says.

A new example needs an entry in `CHECKS` and a section in the guide; otherwise the first tests fail.
"""

import ast
import contextlib
import importlib.util
import json
import math
import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest
from gymnasium.utils.env_checker import check_env

import mcclt
from mcclt.cli import app as cli
from mcclt.config import AgentConfig
from mcclt.config.variants import VARIANTS
from mcclt.envs import ENGINES, make_vec
from mcclt.envs.tasks import TASKS, Physics
from mcclt.errors import MissingExtraError
from mcclt.method import nets
from mcclt.method.critics import CRITICS, Batch
from mcclt.method.policy_updates import POLICY_UPDATES, PolicyBatch
from mcclt.method.weighting import WEIGHTINGS

ROOT = Path(__file__).parents[1]
FOLDER = ROOT / "examples"
GUIDE = ROOT / "docs" / "guides" / "your-own-things.md"
NAMES = sorted(path.stem for path in FOLDER.glob("*.py"))
TABLES: tuple[Any, ...] = (CRITICS, WEIGHTINGS, POLICY_UPDATES, TASKS, ENGINES, VARIANTS)


@pytest.fixture(autouse=True)
def tables_as_they_were() -> Iterator[None]:
    """What an example enters in a table is gone after its test: other tests go through the tables, too."""
    before = [dict(table) for table in TABLES]
    yield
    for table, content in zip(TABLES, before, strict=True):
        table.clear()
        table.update(content)


@pytest.fixture(autouse=True)
def quick_compilation() -> Iterator[None]:
    """So little is computed here that optimised programs would not be worth their compilation."""
    jax.config.update("jax_disable_most_optimizations", True)
    yield
    jax.config.update("jax_disable_most_optimizations", False)


@pytest.mark.slow
def test_notebook_runs_and_was_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """With few steps, without Jupyter; what is committed has outputs, is small and names no one's folders."""
    text = (FOLDER / "first_look.ipynb").read_text(encoding="utf-8")
    assert len(text) < 300_000 and "/home/" not in text and "/work/" not in text
    cells = [cell for cell in json.loads(text)["cells"] if cell["cell_type"] == "code"]
    assert (
        all(cell["execution_count"] for cell in cells)
        and sum("image/png" in str(cell["outputs"]) for cell in cells) == 3
    )
    source = "\n\n".join("".join(cell["source"]) for cell in cells)
    assert source.count("80_000") == 1
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("matplotlib.pyplot.show", lambda: None)
    found: dict[str, Any] = {}
    exec(compile(source.replace("80_000", "4_000"), "first_look.ipynb", "exec"), found)
    assert found["model"].num_timesteps == 4_000
    assert {seed: len(points) for seed, points in found["curve"].points.items()} == {0: 2, 1: 2}
    assert np.isfinite(found["episode"].returns).any()


def load(name: str) -> ModuleType:
    """An example as a module, imported anew."""
    spec = importlib.util.spec_from_file_location(name, FOLDER / f"{name}.py")
    assert spec is not None and spec.loader is not None
    module = sys.modules[name] = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def run_alone(code: str, **environment: str) -> str:
    """What Python code prints in a process of its own, started in `examples/`."""
    done = subprocess.run(
        [sys.executable, "-c", code], cwd=FOLDER, env=os.environ | environment, capture_output=True, text=True
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


# --- the checks ---------------------------------------------------------------------------------------------


def check_demo(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    load("demo").main(steps=2_000, n_seeds=1, out=tmp_path)
    assert (tmp_path / "report" / "report.html").stat().st_size > 10_000
    assert (tmp_path / "value_distribution.png").read_bytes()[:4] == b"\x89PNG"


def check_own_environment(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    module = load("own_environment")
    check_env(module.Boat(), skip_render_check=True)  # Gymnasium's own opinion of it
    assert np.isfinite(module.main(steps=1_600)).all()


def check_own_engine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    module, boat = load("own_engine"), load("own_environment").Boat()
    assert np.isfinite(module.main(steps=1_600)).all()
    # The same lake as the environment's: same start, same actions.
    (obs,), rng = (env := make_vec("Boat-v0", [(0,)])).reset(), np.random.default_rng(0)
    boat.reset(seed=0)
    boat.place, boat.wind = obs[:2].astype(float), float(obs[4])
    for _ in range(50):
        action = rng.uniform(-1, 1, (1, 2)).astype(np.float32)
        step, (seen, reward, *_) = env.step(action), boat.step(action[0])
        np.testing.assert_allclose(step.obs[0], seen, atol=1e-5)
        assert step.reward[0] == pytest.approx(reward, abs=1e-5)


def check_own_mjcf_task(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    module = load("own_mjcf_task")
    before, after = module.main(steps=1_600, n_seeds=1)
    assert 0 < before < 200 and after < 200
    # The array functions are the same in NumPy and JAX.
    rng = np.random.default_rng(0)
    moments = [
        Physics(rng.normal(size=(5, 9), scale=0.4), rng.normal(size=(5, 8)), {}),
        Physics(rng.normal(size=(5, 9), scale=0.4), rng.normal(size=(5, 8)), {}),
    ]
    task, action = module.BallOnPlate(), rng.normal(size=(5, 2))
    np.testing.assert_allclose(task.observe(jnp, moments[0]), task.observe(np, moments[0]), rtol=1e-6)
    reward, ended = task.reward_and_terminated(np, *moments, action)
    assert 0 < ended.sum() < 5
    again = task.reward_and_terminated(jnp, *moments, action)
    np.testing.assert_allclose(again[0], reward, rtol=1e-5)
    np.testing.assert_array_equal(again[1], ended)
    # By hand: 0.3 m and 0.4 m from the middle are 0.5 m, one half width; the plate ends there in x or y, not before.
    place = np.zeros((1, 9))
    place[0, 2:4] = 0.3, 0.4
    reward, ended = task.reward_and_terminated(np, *[Physics(place, np.zeros((1, 8)), {})] * 2, action[:1])
    assert reward == pytest.approx([0.0]) and not ended[0]
    # A task needs no name to be run.
    with contextlib.closing(make_vec(task, [(0,), (1,)])) as env:
        assert (env.spec.task, env.spec.engine, env.reset().shape) == ("BallOnPlate", "native", (2, 8))


def check_own_critic(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    module = load("own_critic")
    model = module.main(("gaussian",), steps=1_600, n_seeds=2)["gaussian"]
    obs = np.random.default_rng(0).normal(size=(6, 9)).astype(np.float32)
    belief = model.value_distribution(obs, seed=1)
    np.testing.assert_array_equal(belief.error, belief.std)
    np.testing.assert_allclose(belief.bars.mean(axis=-1), belief.mean, atol=1e-3)  # a normal's bars are symmetric
    assert (belief.std > 0).all() and (np.diff(belief.bars) > 0).all()
    read = mcclt.load(model.save(tmp_path / "own"))
    assert read.config.groups["ppo-gaussian"].critic == "gaussian"
    np.testing.assert_array_equal(read.value_distribution(obs, seed=1).bars, belief.bars)
    np.testing.assert_array_equal(read.predict(obs, deterministic=True)[0], model.predict(obs, deterministic=True)[0])
    # The commands that look at an agent from outside do so with this critic.
    own = str(tmp_path / "own")
    cli.main(["watch", own, "--no-video", "--no-open", "--steps", "20"])
    assert '"critic":"gaussian","error_name":"Predicted deviation"' in (tmp_path / "own.html").read_text(
        encoding="utf-8"
    )
    if importlib.util.find_spec("onnxruntime"):
        import onnxruntime

        cli.main(["export", own, str(tmp_path / "own.onnx"), "--seed", "1", "--value-distribution"])
        found = onnxruntime.InferenceSession(tmp_path / "own.onnx").run(
            ["value_bars", "value_weight"], {"observation": obs}
        )
        np.testing.assert_allclose(found[0], belief.bars, rtol=1e-4, atol=1e-4)
        np.testing.assert_allclose(found[1], belief.weight, rtol=1e-4)
    # It finds mean and spread of returns that are normal: N(3, 2²) where the first number is positive, N(-1, ½²) else.
    critic = module.Gaussian(AgentConfig(critic_hidden=(16,)))
    rng = np.random.default_rng(1)
    side = rng.choice([-1.0, 1.0], size=(2_000, 1))
    returns = np.where(side[:, 0] > 0, 3 + 2 * rng.standard_normal(2_000), -1 + 0.5 * rng.standard_normal(2_000))
    nothing = jnp.zeros(2_000)
    sample = Batch(jnp.asarray(side), jnp.asarray(returns), nothing, nothing, nothing, nothing, nothing)
    (params,) = critic.init(jax.random.key(0), 1)
    optimiser = optax.adam(1e-2)

    def step(_: int, carry: Any) -> Any:
        params, state = carry
        updates, state = optimiser.update(jax.grad(critic.loss)(params, sample), state)
        return optax.apply_updates(params, updates), state

    params, _ = jax.jit(lambda p: jax.lax.fori_loop(0, 500, step, (p, optimiser.init(p))))(params)
    found = critic.predict((params,), jnp.array([[1.0], [-1.0]]))
    np.testing.assert_allclose(found.mean, [3, -1], atol=0.2)
    np.testing.assert_allclose(found.std, [2, 0.5], rtol=0.1)


def check_own_weighting(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    module = load("own_weighting")
    model = module.main(("inverse",), steps=1_600, n_seeds=1)["inverse"]
    weight = model.value_distribution(np.random.default_rng(0).normal(size=(6, 9))).weight
    assert ((weight > 0) & (weight < 2)).all()
    weighting = module.InverseError(AgentConfig())
    for scale in (1e-6, 1.0, 1e6):
        error = jnp.asarray(scale * np.random.default_rng(0).lognormal(sigma=2, size=500), jnp.float32)
        temperature = weighting.search(error)
        weight = weighting.weights(error, temperature)
        assert temperature.found and float(weight.mean()) == pytest.approx(1, abs=1e-3)
        assert (np.diff(weight[jnp.argsort(error)]) <= 0).all()  # the larger the error, the smaller the weight
    # By hand: of the errors 1 and 4, weights 2/(1+T) and 2/(1+4T) sum to 2 at T = ½: 4/3 and 2/3.
    error = jnp.array([1.0, 4.0])
    np.testing.assert_allclose(weighting.weights(error, weighting.search(error)), [4 / 3, 2 / 3], atol=2e-3)
    np.testing.assert_array_equal(weighting.weights(jnp.zeros(3), weighting.search(jnp.zeros(3))), 1)


def check_own_policy_update(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    module = load("own_policy_update")
    model = module.main(("kl",), steps=1_600, n_seeds=1)["kl"]
    read = mcclt.load(model.save(tmp_path / "own"))
    assert type(read) is module.KL
    obs = np.random.default_rng(0).normal(size=(6, 9)).astype(np.float32)
    np.testing.assert_array_equal(read.predict(obs, deterministic=True)[0], model.predict(obs, deterministic=True)[0])
    # Advantages that favour larger actions: a large step overshoots the KL and doubles β, a tiny one halves it.
    policy = nets.Gaussian(1, (4,))
    obs = np.linspace(-1, 1, 50)[:, None]
    action = np.random.default_rng(0).normal(size=(50, 1))
    advantage = action[:, 0] / action.std()
    sample = PolicyBatch(*map(jnp.asarray, (obs, action, advantage, np.ones(50))))
    params = policy.init(jax.random.key(0), 1, AgentConfig())
    for rate, beta in ((0.1, 2.0), (1e-6, 0.5)):
        update = module.KlPenalty(AgentConfig(learning_rate=rate, policy_iterations=10), policy)
        new, (_, found), metrics = jax.jit(update.update)(params, update.init(params), sample)
        assert found == beta and metrics["train/kl_penalty"] == 1
        gain = policy.distribution(new, sample.obs)[0] - policy.distribution(params, sample.obs)[0]
        assert float(gain.mean()) > 0


def check_discrete_actions(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    model = load("discrete_actions").main(steps=1_600)
    actions, _ = model.predict(np.random.default_rng(0).normal(size=(200, 4)))
    assert set(actions.tolist()) == {0, 1}


def check_population(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert load("population").main(steps=1_600, n_seeds=2) is True


def check_tune_with_optuna(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    optuna = pytest.importorskip("optuna")

    class Second(optuna.pruners.BasePruner):
        """Prunes the second trial at its first report."""

        def prune(self, targets: Any, trial: Any) -> bool:
            return trial.number == 1

    module = load("tune_with_optuna")
    monkeypatch.setattr(optuna.pruners, "MedianPruner", lambda **_: Second())
    targets = module.main(steps=640, steps_per_update=320, n_seeds=1, trials=2)
    first, second = targets.trials
    assert (first.state.name, second.state.name) == ("COMPLETE", "PRUNED")
    assert list(first.intermediate_values) == [320, 640] and list(second.intermediate_values) == [320]
    assert first.value == first.intermediate_values[640] == targets.best_value
    # What is reported is the mean over seeds, at evaluations alone.
    trial = optuna.create_study(direction="maximize").ask()
    report = module.ReportToOptuna(trial)
    report.on_update(SimpleNamespace(step=10), [{"seed": 0}, {"seed": 1}])
    assert report.value == -math.inf
    rows = [{"step": 20, "eval/mean_reward": 1.0}, {"step": 20, "eval/mean_reward": 4.0}]
    report.on_update(SimpleNamespace(step=20), rows)
    assert report.value == 2.5
    # Without Optuna it says what to install.
    monkeypatch.setitem(sys.modules, "optuna", None)
    with pytest.raises(MissingExtraError, match="optuna>="):
        load("tune_with_optuna")


def check_train_on_ray(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """In a process of its own, because Ray leaves threads behind; with a critic that its workers must be told of."""
    pytest.importorskip("ray")
    code = f"""
import json, pathlib, train_on_ray
store = pathlib.Path({str(tmp_path)!r}) / "store"
found = train_on_ray.main(variants="plain,gaussian", steps="4k", n_seeds=1, episodes=2, store=store)
print(json.dumps({{name: list(scores) for name, scores in found.items()}}))
"""
    out = run_alone(code, MCCLT_IMPORT="own_critic.py")
    found = json.loads(out.splitlines()[-1])
    assert set(found) == {"ppo-plain", "ppo-gaussian"}
    assert np.isfinite(list(found.values())).all()


CHECKS: dict[str, Callable[[Path, pytest.MonkeyPatch], None]] = {
    "demo": check_demo,
    "discrete_actions": check_discrete_actions,
    "own_critic": check_own_critic,
    "own_engine": check_own_engine,
    "own_environment": check_own_environment,
    "own_mjcf_task": check_own_mjcf_task,
    "own_policy_update": check_own_policy_update,
    "own_weighting": check_own_weighting,
    "population": check_population,
    "train_on_ray": check_train_on_ray,
    "tune_with_optuna": check_tune_with_optuna,
}
QUICK = ("own_critic",)


def test_every_example_has_a_check() -> None:
    assert sorted(CHECKS) == NAMES


@pytest.mark.parametrize("name", NAMES)
def test_every_example_says_how_it_is_run_and_is_in_the_guide(name: str) -> None:
    tree = ast.parse((FOLDER / f"{name}.py").read_text(encoding="utf-8"))
    assert f"python examples/{name}.py" in (ast.get_docstring(tree) or "")
    assert f"(../../examples/{name}.py)" in GUIDE.read_text(encoding="utf-8")


@pytest.mark.parametrize("name", [pytest.param(n, marks=() if n in QUICK else pytest.mark.slow) for n in CHECKS])
def test_example(name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    CHECKS[name](tmp_path, monkeypatch)


# --- what takes longer --------------------------------------------------------------------------------------


@pytest.mark.slow
@pytest.mark.parametrize(("name", "gain"), [("own_environment", 100), ("own_engine", 100), ("own_mjcf_task", 80)])
def test_learns_at_its_default_size(name: str, gain: float) -> None:
    jax.config.update("jax_disable_most_optimizations", False)
    before, after = load(name).main()
    assert after > before + gain


@pytest.mark.slow
def test_own_task_moves_alike_on_both_engines() -> None:
    """Same start, same actions: CPU in float64 and Warp in float32 agree for as long as an episode lasts."""
    pytest.importorskip("mujoco_warp")
    module = load("own_mjcf_task")

    class Fixed(module.BallOnPlate):
        """Starts always at the same place, because the engines draw other numbers."""

        def reset(self, rng: Any, qpos0: Any, qvel0: Any) -> tuple[Any, Any]:
            return qpos0 + module.START / 3, qvel0

    keys = [(0, 0, 0, e) for e in range(4)]
    native, warp = (make_vec(Fixed(), keys, engine=engine) for engine in ("native", "warp"))
    np.testing.assert_allclose(np.asarray(warp.reset()), native.reset(), atol=1e-5)
    rng = np.random.default_rng(0)
    for _ in range(40):
        action = rng.uniform(-0.1, 0.1, (4, 2)).astype(np.float32)
        one, other = native.step(action), warp.step(action)
        np.testing.assert_allclose(np.asarray(other.obs), one.obs, atol=5e-3)
        np.testing.assert_allclose(np.asarray(other.reward), one.reward, atol=5e-3)
        np.testing.assert_array_equal(np.asarray(other.terminated), one.terminated)
    native.close()
    warp.close()
