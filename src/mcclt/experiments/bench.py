"""For `mcclt bench`: where the time goes on this machine, and how far the whole is from its floor.

Everything is measured in one run, because machines are shared and noisy: compare ratios, not seconds.
The floor of an update is the raw stepping of the simulator plus the floating-point operations that cannot
be avoided, at the rate of a large matrix product.
"""

import concurrent.futures
import contextlib
import dataclasses
import functools
import math
import os
import platform
import signal
import statistics
import sys
import threading
import time
import timeit
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from mcclt import presets
from mcclt.config import AgentConfig, RunConfig
from mcclt.envs import make_vec
from mcclt.envs.api import available_cores
from mcclt.experiments.workers import Processes
from mcclt.method import critics, nets
from mcclt.method.critics import Batch
from mcclt.method.learner import Batches, Learner, TrainState
from mcclt.method.nets import Params
from mcclt.method.policy_updates import PolicyBatch
from mcclt.training import plugins
from mcclt.training.population import on_cpu
from mcclt.training.trainer import Trainer

TIMED: dict[str, dict[str, Any]] = {
    "plain": {"critic": "plain"},
    "mcclt": {"critic": "normal"},
    "mcclt, shared trunk": {"critic": "normal", "trunk": "shared"},
    "ensemble of 5": {"critic": "ensemble"},
}
REPLAYED = 3
"""Updates whose physics is replayed alone: what was sent to the worlds is kept for that."""
GEMM = 2048
"""Side of the square matrices whose product gives the peak."""


def configured(task: str, algo: str, width: int, preset: str | None) -> tuple[dict[str, Any], dict[str, Any]]:
    """Settings of the run and of its agents: those of a preset; without one the defaults, with critics of a width."""
    run, agent = presets.settings(preset, task, algo, "plain")
    return {"steps": 10**9, "eval_freq": 0, "final_episodes": 0, **run}, agent or {"critic_hidden": (width,) * 2}


def measure(task: str, algo: str, updates: int, width: int, population: int, preset: str | None) -> dict[str, Any]:
    """Everything on this machine: the engine, matrix products, each part of an update, whole updates, populations."""
    run, common = configured(task, algo, width, preset)
    base = RunConfig(task, **run)
    agents = {name: AgentConfig(algo=algo, **common, **settings) for name, settings in TIMED.items()}
    raw, peak, rows = time_variants(base, agents, updates)
    result: dict[str, Any] = {
        "task": task,
        "algo": algo,
        "preset": preset,
        "width": next(iter(agents.values())).critic_hidden[0],
        "machine": {"cpu": platform.processor() or platform.machine(), "cores": os.cpu_count()},
        "device": jax.devices()[0].device_kind,
        "raw_steps_per_second": raw,
        "gemm_gflops": peak / 1e9,
        "variants": rows,
    }
    if population:
        floors = {row["variant"]: population * row["floor_seconds"] for row in rows}
        found = time_population(base, agents["mcclt"], population, updates)
        result["population"] = found | {"whole_over_floor": found["seconds_all"] / floors["mcclt"]}
        if on_cpu():
            count, seconds = time_processes(base, agents, population, updates)
            ratios = {name: seconds[name] / floors[name] for name in agents}
            result["processes"] = {"count": count, "seconds_all": seconds, "whole_over_floor": ratios}
    return result | {"memory_mib": memory_mib()}


def best_of(function: Callable[[], Any], repeats: int) -> float:
    """Seconds of the fastest of several calls, besides a first one that compiles."""
    return min(timeit.repeat(lambda: jax.block_until_ready(function()), repeat=1 + repeats, number=1))


def gemm_peak() -> float:
    """FLOP/s of a float32 matrix product."""
    a = jnp.ones((GEMM, GEMM))
    product = jax.jit(jnp.matmul)
    return 2 * GEMM**3 / best_of(lambda: product(a, a), 3)


def raw_speed(task: str, n_envs: int) -> float:
    """Steps/s under random actions: of the simulator alone, where the engine measures it."""
    env = make_vec(task, [(0, 0, 0, e) for e in range(n_envs)])
    rng = np.random.default_rng(0)
    env.reset()
    steps, start = 0, time.perf_counter()
    while (spent := time.perf_counter() - start) < 0.5:
        if env.spec.discrete:
            action = rng.integers(env.spec.action_size, size=n_envs)
        else:
            action = rng.uniform(-1, 1, (n_envs, env.spec.action_size)).astype(np.float32)
        env.step(action)
        steps += n_envs
    env.close()
    return steps / (env.physics_seconds or spent)


def time_update(trainer: Trainer) -> dict[str, float]:
    """Seconds of one update, `whole`, and of its `collect`; and the policies' `iterations`. Leaves nothing under way.

    A critic is fitted while the next rollout is collected, so an update is timed between two others, and the time
    of its collecting includes what the fit before it takes away.
    """
    trainer.advance()
    start = time.perf_counter()
    trainer.advance()
    rows = trainer.advance()
    seconds = (time.perf_counter() - start) / 2
    jax.block_until_ready(trainer.states)
    iterations = statistics.mean(row["train/policy_iterations"] for row in rows)
    return {"whole": seconds, "collect": trainer.timing["collect"], "iterations": iterations}


@contextlib.contextmanager
def compiled(base: RunConfig, agents: dict[str, AgentConfig]) -> Iterator[dict[str, Trainer]]:
    """Trainers of some agents that have made their first update, to be timed turn by turn: noise falls on all alike."""
    with contextlib.ExitStack() as stack:
        trainers = {}
        for name, agent in agents.items():
            trainer = Trainer(dataclasses.replace(base, groups={"bench": agent}))
            trainers[name] = stack.enter_context(contextlib.closing(trainer))
            trainer.advance()
        yield trainers


def time_variants(
    base: RunConfig, agents: dict[str, AgentConfig], updates: int
) -> tuple[float, float, list[dict[str, Any]]]:
    """Raw speed, peak and whole updates of every variant.

    Returns:
        Medians of the simulator's steps/s and of the matrix products' FLOP/s, and a row per variant.
    """
    raws, peaks, steps = [], [], base.steps_per_update
    turns: dict[str, list[dict[str, float]]] = {name: [] for name in agents}
    rows: list[dict[str, Any]] = []
    with compiled(base, agents) as trainers:
        for _ in range(updates):
            raws.append(raw_speed(base.task, base.n_envs))
            peaks.append(gemm_peak())
            for name, trainer in trainers.items():
                turns[name].append(time_update(trainer))
        raw, peak = statistics.median(raws), statistics.median(peaks)
        for name, trainer in trainers.items():
            learner = trainer.learners["bench"]
            seconds = {part: statistics.median(turn[part] for turn in turns[name]) for part in ("whole", "collect")}
            iterations = statistics.mean(turn["iterations"] for turn in turns[name])
            flops = necessary_flops(learner, steps, iterations)
            row: dict[str, Any] = {
                "variant": name,
                "steps_per_second": steps / seconds["whole"],
                "seconds": seconds | time_parts(learner, steps, iterations),
                "policy_iterations": iterations,
                "gflop": flops / 1e9,
                "floor_seconds": steps / raw + flops / peak,
                "critic_parameters": nets.count(trainer.states["bench"].critic),
            }
            plain = rows[0] if rows else row
            row["whole_over_floor"] = seconds["whole"] / row["floor_seconds"]
            row["time_over_plain"] = seconds["whole"] / plain["seconds"]["whole"]
            row["parameters_over_plain"] = row["critic_parameters"] / plain["critic_parameters"]
            rows.append(row)
    return raw, peak, rows


def material(learner: Learner, size: int) -> tuple[TrainState, Batches, PolicyBatch]:
    """A new agent, and random numbers of the shape of what its critic and its policy learn from."""
    rng, key = np.random.default_rng(0), jax.random.key(0)
    obs = jnp.asarray(rng.normal(size=(size, learner.obs_size)), jnp.float32)
    numbers = jnp.asarray(rng.normal(size=size), jnp.float32)
    state = learner.init(jnp.uint32(0))
    bars = learner.predict(state, obs).bars
    batches = critics.divide(learner.critic, Batch(obs, numbers, numbers, numbers, numbers, bars, bars), key)
    action = learner.policy.sample(state.policy, obs, learner.policy.noise(key, (size,)))
    return state, batches, PolicyBatch(obs, action, numbers, jnp.ones(size), key)


def time_parts(learner: Learner, size: int, iterations: float) -> dict[str, float]:
    """Seconds of the policy's and the critic's update alone."""
    state, batches, batch = jax.jit(functools.partial(material, learner, size))()
    fit = jax.jit(lambda s: learner.fit(s, batches, learner.config.critic_iterations))
    improve = jax.jit(lambda s: learner.policy_update_of(s.numbers).update(s.policy, s.policy_opt, batch))
    predict = jax.jit(learner.predict)
    policy = best_of(lambda: improve(state), 3)
    if learner.config.algo == "ppo":  # per iteration (one more than counted: the last finds the limit crossed)
        done = float(improve(state)[2]["train/policy_iterations"])
        policy *= (iterations + 1) / (done + 1)
    return {
        "policy": policy,
        "critic": best_of(lambda: fit(state), 3),
        "values": 2 * best_of(lambda: predict(state, batch.obs), 5),
    }


def necessary_flops(learner: Learner, size: int, iterations: float) -> float:
    """Operations of one update's matrix products; `iterations`: PPO's steps, each on a minibatch if there are any.

    TRPO: a gradient, then conjugate-gradient products at about three forward passes each.
    """
    state, batches, batch = jax.eval_shape(functools.partial(material, learner, size))
    policy, critic, config = learner.policy, learner.critic, learner.config

    def flops(function: Callable[..., Any], *args: Any) -> float:
        return _products(jax.make_jaxpr(function)(*args).jaxpr)

    def log_prob(params: Params, batch: PolicyBatch) -> jax.Array:
        return jnp.sum(policy.log_prob(policy.distribution(params, batch.obs), batch.action))

    fit = flops(jax.grad(functools.partial(critics.total_loss, critic)), state.critic, batches)
    values = flops(critic.predict, state.critic, batch.obs)
    forward, both = flops(log_prob, state.policy, batch), flops(jax.grad(log_prob), state.policy, batch)
    share = (config.minibatch_size or size) / size
    steps = share * both * iterations if config.algo == "ppo" else both + 3 * forward * config.cg_max_steps
    return config.critic_iterations * fit + 2 * values + steps + 2 * forward


def _products(traced: Any) -> int:
    """Operations of the matrix products in a traced function, 2·I·J·K each."""
    total = 0
    for step in traced.eqns:
        if step.primitive is jax.lax.dot_general_p:
            (contracted, _), _ = step.params["dimension_numbers"]
            shape = step.invars[0].aval.shape
            total += 2 * step.outvars[0].aval.size * math.prod(shape[axis] for axis in contracted)
        total += sum(_products(inner.jaxpr) for inner in step.params.values() if hasattr(inner, "jaxpr"))
    return total


def time_population(base: RunConfig, agent: AgentConfig, seeds: int, updates: int) -> dict[str, Any]:
    """The same update for one seed and for many, turn by turn; and memory from first to last update."""
    turns, memory = [], []
    many = dataclasses.replace(base, seeds=tuple(range(seeds)))
    with compiled(base, {"one": agent}) as one, compiled(many, {"many": agent}) as several:
        for _ in range(max(2, updates // 2)):
            turns.append({name: time_update(trainer)["whole"] for name, trainer in (one | several).items()})
            memory.append(memory_mib())
    seconds_one, seconds_all = (statistics.median(turn[name] for turn in turns) for name in ("one", "many"))
    return {
        "seeds": seeds,
        "seconds_one": seconds_one,
        "seconds_all": seconds_all,
        "cost_over_one": seconds_all / seconds_one,
        "memory_mib": memory,
    }


def time_processes(
    base: RunConfig, agents: dict[str, AgentConfig], seeds: int, updates: int
) -> tuple[int, dict[str, float]]:
    """Populations shared out among processes, one per core, as `mcclt compare --workers` does.

    XLA divides every product among the cores, and they wait for each other at its end; a process with one core
    never waits.

    Returns:
        The number of processes, and by variant the seconds of an update of all seeds.
    """
    count = min(seeds, available_cores())
    with contextlib.closing(Processes(count, pin=True)) as processes:
        together = processes.manager.Barrier(count)
        shares = [dataclasses.replace(base, seeds=tuple(range(place, seeds, count))) for place in range(count)]
        futures = [processes.call(_time_share, share, agents, max(2, updates // 2), together) for share in shares]
        try:
            times = [future.result() for future in concurrent.futures.as_completed(futures)]
        finally:
            together.abort()  # nobody waits for one that failed
    return count, {name: max(own[name] for own in times) for name in agents}


def _time_share(
    base: RunConfig, agents: dict[str, AgentConfig], updates: int, together: threading.Barrier
) -> dict[str, float]:
    """Median seconds of an update, by variant, all processes at the same one."""
    signal.signal(signal.SIGINT, signal.default_int_handler)  # it has nothing to save
    plugins.import_named()
    found = {}
    for name, agent in agents.items():
        with compiled(base, {name: agent}) as trainers:
            together.wait()
            found[name] = statistics.median(time_update(trainers[name])["whole"] for _ in range(updates))
    return found


def time_on_device(task: str, agents: int, updates: int, width: int, preset: str | None) -> dict[str, Any]:
    """A whole population on the `warp` engine: physics alone, collecting, learning, evaluating, and all together.

    The population is plain, MC-CLT and ensemble with PPO and TRPO, in equal parts. All together is two periods of
    training with an evaluation of the default kind (10 episodes every 50,000 steps of an agent) at the end of each.
    """
    from mcclt.envs.warp import WarpVectorEnv, time_physics

    make_vec(task, [(0,)], engine="warp").close()  # says what is missing, if anything is
    parts = [TIMED["plain"], TIMED["mcclt"], TIMED["ensemble of 5"]]
    of_algo = {algo: configured(task, algo, width, preset) for algo in ("ppo", "trpo")}
    groups = {
        f"{algo}-{part['critic']}": AgentConfig(algo=algo, **common, **part)
        for algo, (_, common) in of_algo.items()
        for part in parts
    }
    seeds = max(1, agents // len(groups))
    config = RunConfig(task, tuple(range(seeds)), groups=groups, engine="warp", **of_algo["ppo"][0])
    worlds = seeds * len(groups) * config.n_envs
    per_update = worlds * config.horizon
    seconds: dict[str, list[float]] = {}

    @contextlib.contextmanager
    def timed(part: str, times: float = 1) -> Iterator[None]:
        start = time.perf_counter()
        yield
        seconds.setdefault(part, []).append(times * (time.perf_counter() - start))

    with contextlib.closing(Trainer(config)) as trainer:
        assert isinstance(trainer.env, WarpVectorEnv)
        with timed("first"):
            trainer.advance()
            trainer.evaluate(config.eval_episodes, 0)
        for k in range(updates):  # one thing after the other
            if k < REPLAYED:
                steps, spent = time_physics(trainer.env, trainer.advance)
                seconds.setdefault("physics", []).append(spent / steps * per_update)
            else:
                trainer.advance()
            seconds.setdefault("collect", []).append(trainer.timing["collect"])
            seconds.setdefault("improve", []).append(trainer.timing["learn"])
            with timed("fit"):
                jax.block_until_ready(trainer.states)
        with timed("evaluate", times=config.steps_per_update / RunConfig.eval_freq):
            trainer.evaluate(config.eval_episodes, 1)
        trainer.extend(eval_freq=RunConfig.eval_freq)
        last = 2 * RunConfig.eval_freq // config.steps_per_update
        with timed("together", times=1 / last):
            for _ in range(last):  # as in training: critics are fitted, agents evaluated, while rollouts are collected
                trainer.advance()
            trainer.flush()  # the second evaluation
        jax.block_until_ready(trainer.states)
    medians = {part: statistics.median(values) for part, values in seconds.items()}
    first = medians.pop("first")
    stats = jax.devices()[0].memory_stats() or {}
    return {
        "task": task,
        "preset": preset,
        "width": groups["ppo-plain"].critic_hidden[0],
        "device": jax.devices()[0].device_kind,
        "agents": seeds * len(groups),
        "worlds": worlds,
        "physics_steps_per_second": per_update / medians["physics"],
        "collect_steps_per_second": per_update / medians["collect"],
        "collect_over_physics": medians["physics"] / medians["collect"],
        "steps_per_second": per_update / medians["together"],
        "seconds_per_update": medians,
        "first_update_and_evaluation_seconds": first,
        "gpu_memory_mib": stats.get("peak_bytes_in_use", 0) / 2**20,
    }


def memory_mib() -> float:
    """Memory of this process now (Linux), or at its peak (elsewhere)."""
    try:
        pages = int(Path("/proc/self/statm").read_text(encoding="ascii").split()[1])
        return pages * os.sysconf("SC_PAGE_SIZE") / 2**20
    except OSError:
        import resource

        return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / (2**20 if sys.platform == "darwin" else 2**10)
