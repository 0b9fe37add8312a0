"""For `mcclt bench`: where the time goes on this machine, and how far the whole is from its floor.

Everything is measured in one run, because machines are shared and noisy: compare ratios, not seconds.
The floor of an update is the raw stepping of the simulator plus the floating-point operations that cannot
be avoided, at the rate of a large matrix product.
"""

import concurrent.futures
import contextlib
import dataclasses
import multiprocessing
import os
import platform
import signal
import statistics
import sys
import time
from collections.abc import Callable
from concurrent.futures import ProcessPoolExecutor
from multiprocessing.synchronize import Barrier
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from mcclt.config import AgentConfig, RunConfig
from mcclt.envs import make_vec
from mcclt.envs.api import available_cores
from mcclt.experiments.workers import prepare_child
from mcclt.method import critics, nets
from mcclt.method.critics import Sample
from mcclt.method.learner import Learner
from mcclt.method.policy_updates import PolicySample
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


def measure(task: str, algo: str, updates: int, width: int, population: int) -> dict[str, Any]:
    """Everything on this machine: the engine, matrix products, each part of an update, whole updates, populations.

    Args:
        task: the task to step.
        algo: ppo or trpo.
        updates: updates timed per variant.
        width: of the critics.
        population: seeds trained together; 0: none.
    """
    base = RunConfig(task, steps=10**9, eval_freq=0, final_episodes=0)
    agents = {name: AgentConfig(algo=algo, critic_hidden=(width,) * 2, **settings) for name, settings in TIMED.items()}
    raw, peak, rows = time_variants(base, agents, updates)
    result: dict[str, Any] = {
        "task": task,
        "algo": algo,
        "width": width,
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
    """Seconds of the fastest of several calls, after one that compiles."""
    jax.block_until_ready(function())
    times = []
    for _ in range(repeats):
        start = time.perf_counter()
        jax.block_until_ready(function())
        times.append(time.perf_counter() - start)
    return min(times)


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


def time_variants(
    base: RunConfig, agents: dict[str, AgentConfig], updates: int
) -> tuple[float, float, list[dict[str, Any]]]:
    """Raw speed, peak and whole updates of every variant, turn by turn, so that noise falls on all alike.

    A critic is fitted while the next rollout is collected, so an update is timed between two others, and the time
    of its collecting includes what the fit before it takes away.

    Returns:
        Medians of the simulator's steps/s and of the matrix products' FLOP/s, and a row per variant.
    """
    trainers = {name: Trainer(dataclasses.replace(base, groups={"bench": config})) for name, config in agents.items()}
    for trainer in trainers.values():
        trainer.advance()  # compiles
    whole: dict[str, list[float]] = {name: [] for name in agents}
    collect: dict[str, list[float]] = {name: [] for name in agents}
    iterations: dict[str, list[float]] = {name: [] for name in agents}
    raws, peaks = [], []
    for _ in range(updates):
        raws.append(raw_speed(base.task, base.n_envs))
        peaks.append(gemm_peak())
        for name, trainer in trainers.items():
            seconds, rows = time_update(trainer)
            whole[name].append(seconds)
            collect[name].append(trainer.timing["collect"])
            iterations[name].append(rows[0]["train/policy_iterations"])
    raw, peak = statistics.median(raws), statistics.median(peaks)
    rows = []
    for name, trainer in trainers.items():
        learner = trainer.learners["bench"]
        steps = base.steps_per_update
        mean_iterations = statistics.mean(iterations[name])
        parts = time_parts(learner, steps, mean_iterations)
        flops = necessary_flops(learner, steps, mean_iterations)
        seconds = statistics.median(whole[name])
        floor = steps / raw + flops / peak
        rows.append(
            {
                "variant": name,
                "steps_per_second": steps / seconds,
                "seconds": {"whole": seconds, "collect": statistics.median(collect[name]), **parts},
                "policy_iterations": mean_iterations,
                "gflop": flops / 1e9,
                "floor_seconds": floor,
                "whole_over_floor": seconds / floor,
                "critic_parameters": nets.count(trainer.states["bench"].critic),
            }
        )
        trainer.close()
    plain = rows[0]
    for row in rows:
        row["time_over_plain"] = row["seconds"]["whole"] / plain["seconds"]["whole"]
        row["parameters_over_plain"] = row["critic_parameters"] / plain["critic_parameters"]
    return raw, peak, rows


def time_update(trainer: Trainer) -> tuple[float, list[dict[str, Any]]]:
    """Seconds of one update among others, of three; and the rows it logs. Leaves nothing under way."""
    trainer.advance()
    start = time.perf_counter()
    trainer.advance()
    rows = trainer.advance()
    seconds = (time.perf_counter() - start) / 2
    jax.block_until_ready(trainer.states)
    return seconds, rows


def time_parts(learner: Learner, size: int, iterations: float) -> dict[str, float]:
    """Seconds of the policy's and the critic's update alone, on random numbers of the right shape."""
    rng = np.random.default_rng(0)
    obs = jnp.asarray(rng.normal(size=(size, learner.obs_size)), jnp.float32)
    numbers = jnp.asarray(rng.normal(size=size), jnp.float32)
    state = learner.init(jnp.uint32(0))
    bars = learner.predict(state, obs).bars
    sample = Sample(obs, numbers, numbers, numbers, numbers, bars, bars)
    lesson = critics.divide(learner.critic, sample, jax.random.key(0))
    fit = jax.jit(lambda s: learner.fit(s, lesson, learner.config.critic_iterations))
    action = learner.policy.sample(state.policy, obs, learner.policy.noise(jax.random.key(0), (size,)))
    policy_sample = PolicySample(obs, action, numbers, jnp.ones(size), jax.random.key(0))
    improve = jax.jit(lambda s: learner.policy_update_of(s.numbers).update(s.policy, s.policy_opt, policy_sample))
    policy = best_of(lambda: improve(state), 3)
    if learner.config.algo == "ppo":  # per iteration (one more than counted: the last finds the limit crossed)
        done = float(improve(state)[2]["train/policy_iterations"])
        policy *= (iterations + 1) / (done + 1)
    predict = jax.jit(learner.predict)
    return {
        "policy": policy,
        "critic": best_of(lambda: fit(state), 3),
        "values": 2 * best_of(lambda: predict(state, obs), 5),
    }


def necessary_flops(learner: Learner, size: int, iterations: float) -> float:
    """Operations of one update's matrix products: 2·B·I·J forward, twice that backward.

    The gradient with respect to the observations is not needed, so the first layer's backward pass counts
    once. TRPO: a gradient, then conjugate-gradient products at about three forward passes each.
    """
    config = learner.config

    def passes(params: Any, batch: float) -> tuple[float, float]:
        layers = [layer["w"].shape for layer in jax.tree.leaves(params, is_leaf=lambda x: "w" in x)]
        forward = sum(2 * batch * i * j for i, j in layers)
        return forward, 3 * forward - 2 * batch * layers[0][0] * layers[0][1]

    state = learner.init(jnp.uint32(0))
    share = size / learner.critic.members
    total = 0.0
    for member in state.critic:
        for part in member.values() if isinstance(member, dict) else (member,):
            forward, both = passes(part, 1.0)
            total += config.critic_iterations * both * share + 2 * forward * size
    forward, both = passes(state.policy["mlp"], size)
    total += both * iterations if config.algo == "ppo" else both + 3 * forward * config.cg_max_steps
    return total + 2 * forward


def time_population(base: RunConfig, agent: AgentConfig, seeds: int, updates: int) -> dict[str, Any]:
    """The same update for one seed and for many, turn by turn; and memory from first to last update."""
    one, many = (Trainer(dataclasses.replace(base, seeds=tuple(range(n)), groups={"bench": agent})) for n in (1, seeds))
    times: dict[str, list[float]] = {"one": [], "many": []}
    memory = []
    for trainer in (one, many):
        trainer.advance()
    for _ in range(max(2, updates // 2)):
        for name, trainer in (("one", one), ("many", many)):
            times[name].append(time_update(trainer)[0])
        memory.append(memory_mib())
    one.close()
    many.close()
    single, several = statistics.median(times["one"]), statistics.median(times["many"])
    return {
        "seeds": seeds,
        "seconds_one": single,
        "seconds_all": several,
        "cost_over_one": several / single,
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
    context = multiprocessing.get_context("spawn")
    together = context.Barrier(count)
    with contextlib.ExitStack() as stack:
        futures = []
        for place in range(count):
            pool = stack.enter_context(ProcessPoolExecutor(1, context, _prepare, (place, count, together)))
            share = dataclasses.replace(base, seeds=tuple(range(place, seeds, count)))
            futures.append(pool.submit(_time_share, share, agents, max(2, updates // 2)))
        try:
            for future in concurrent.futures.as_completed(futures):
                future.result()
        finally:
            together.abort()  # nobody waits for one that failed
        times = [future.result() for future in futures]
    return count, {name: max(own[name] for own in times) for name in agents}


_together: Barrier
"""In a process of `time_processes`: where all wait for each other."""


def _prepare(place: int, count: int, together: Barrier) -> None:
    """A process as `--workers` has it, but ended by Ctrl-C: it has nothing to save."""
    global _together
    _together = together
    prepare_child(place, count)
    signal.signal(signal.SIGINT, signal.default_int_handler)
    plugins.import_named()


def _time_share(base: RunConfig, agents: dict[str, AgentConfig], updates: int) -> dict[str, float]:
    """Median seconds of an update, by variant, all processes at the same one."""
    found = {}
    for name, agent in agents.items():
        trainer = Trainer(dataclasses.replace(base, groups={"bench": agent}))
        trainer.advance()  # compiles
        _together.wait()
        found[name] = statistics.median(time_update(trainer)[0] for _ in range(updates))
        trainer.close()
    return found


def time_on_device(task: str, agents: int, updates: int, width: int) -> dict[str, Any]:
    """A whole population on the `warp` engine: physics alone, collecting, learning, evaluating, and all together.

    The population is plain, MC-CLT and ensemble with PPO and TRPO, in equal parts. All together is two periods of
    training with an evaluation of the default kind (10 episodes every 50,000 steps of an agent) at the end of each.
    """
    from mcclt.envs.warp import WarpVectorEnv, time_physics

    make_vec(task, [(0,)], engine="warp").close()  # says what is missing, if anything is
    parts = [TIMED["plain"], TIMED["mcclt"], TIMED["ensemble of 5"]]
    groups = {
        f"{algo}-{part['critic']}": AgentConfig(algo=algo, critic_hidden=(width,) * 2, **part)
        for algo in ("ppo", "trpo")
        for part in parts
    }
    seeds = max(1, agents // len(groups))
    config = RunConfig(task, tuple(range(seeds)), 10**9, groups, engine="warp", eval_freq=0, final_episodes=0)
    worlds = seeds * len(groups) * config.n_envs
    trainer = Trainer(config)
    assert isinstance(trainer.env, WarpVectorEnv)
    started = time.perf_counter()
    trainer.advance()
    trainer.evaluate(config.eval_episodes, 0)
    compiling = time.perf_counter() - started
    seconds: dict[str, list[float]] = {"physics": [], "collect": [], "improve": [], "fit": [], "evaluate": []}
    for k in range(updates):  # one thing after the other
        if k < REPLAYED:
            steps, spent = time_physics(trainer.env, trainer.advance)
            seconds["physics"].append(spent / steps * worlds * config.horizon)
        else:
            trainer.advance()
        seconds["collect"].append(trainer.timing["collect"])
        seconds["improve"].append(trainer.timing["learn"])
        started = time.perf_counter()
        jax.block_until_ready(trainer.states)
        seconds["fit"].append(time.perf_counter() - started)
    started = time.perf_counter()
    trainer.evaluate(config.eval_episodes, 1)
    seconds["evaluate"].append((time.perf_counter() - started) * config.steps_per_update / RunConfig.eval_freq)
    trainer.extend(eval_freq=RunConfig.eval_freq)
    last = 2 * RunConfig.eval_freq // config.steps_per_update
    started = time.perf_counter()
    for _ in range(last):  # as in training: critics are fitted, and agents evaluated, while rollouts are collected
        trainer.advance()
    trainer.flush()  # the second evaluation
    whole = (time.perf_counter() - started) / last
    jax.block_until_ready(trainer.states)
    trainer.close()
    medians = {name: statistics.median(values) for name, values in seconds.items()}
    per_update = worlds * config.horizon
    stats = jax.devices()[0].memory_stats() or {}
    return {
        "task": task,
        "width": width,
        "device": jax.devices()[0].device_kind,
        "agents": seeds * len(groups),
        "worlds": worlds,
        "physics_steps_per_second": per_update / medians["physics"],
        "collect_steps_per_second": per_update / medians["collect"],
        "collect_over_physics": medians["physics"] / medians["collect"],
        "steps_per_second": per_update / whole,
        "seconds_per_update": {**medians, "together": whole},
        "first_update_and_evaluation_seconds": compiling,
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
