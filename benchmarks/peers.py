"""Training beside what a user would pick instead: Stable-Baselines3 PPO, sb3-contrib TRPO, SBX PPO, and ours.

    pip install '.[sb3]' sb3-contrib sbx-rl
    python benchmarks/peers.py --steps 40k --seeds 0..1 --out benchmarks/results/peers.json

Everybody trains on the same task for the same number of steps, in one process, turn by turn: one rollout with its
update, then the next in line, whoever has made the fewest steps. So noise falls on all alike; compare ratios, not
seconds. The first turns, which compile, count as "first update" and not in steps/s.

The peers run with their defaults: one environment, 2,048 steps per rollout, 10 epochs, minibatches of 64 (TRPO: 10
passes of its critic, minibatches of 128). But PyTorch gets one thread (`--torch-threads`): beside other programs its
own choice, one per core, learnt several times slower on the machine where this was written.

What cannot be set equal: our critic's layers are ReLU and theirs tanh; ours start as PyTorch's do and SB3's
orthogonal; we normalise advantages over the batch and they over a minibatch; they clip gradients to norm 0.5; our
policy makes its passes first and then the critic, theirs take turns (the same number of steps).
"""

import argparse
import functools
import importlib
import importlib.metadata
import json
import os
import statistics
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import jax
import numpy as np
from rich.console import Console
from rich.table import Table

import mcclt
from mcclt import presets
from mcclt.config.values import parse_seeds, parse_steps
from mcclt.storage.runs import versions

WARM_UP = 2
"""Turns that are not in steps/s: programs compile in them, ours in the first, SBX's in both."""

BOTH = dict(
    critic="plain",
    n_envs=1,
    steps_per_update=2_048,
    critic_iterations=10,
    policy_hidden=(64, 64),
    critic_hidden=(64, 64),
    log_std_init=0.0,
    gae_lambda=0.95,
)
SB3_PPO = BOTH | dict(
    minibatch_size=64,
    policy_iterations=10,
    learning_rate=3e-4,
    critic_learning_rate=3e-4,
    target_kl=1e9,  # never stops
)
"""Ours as the defaults of Stable-Baselines3's and SBX's PPO."""
CONTRIB_TRPO = BOTH | dict(minibatch_size=128, critic_learning_rate=1e-3, cg_max_steps=15, target_kl=0.01)
"""Ours as the defaults of sb3-contrib's TRPO."""

Turn = dict[str, float]
"""`steps`, wall-clock `seconds` and `cpu_seconds` (all threads) of one rollout with its update."""


@dataclass
class Racer:
    """One contestant."""

    name: str
    make: Callable[..., Any]
    """Makes a model from a seed."""
    rollout: int
    """Steps of a turn."""
    equal: str | None = None
    """A peer's row of ours with equal settings."""
    first_update: list[float] = field(default_factory=list)
    """Seconds to make a model, its first rollout and its first update; by seed."""
    returns: list[float] = field(default_factory=list)
    """Mean return of the last 100 episodes of training; by seed."""
    turns: list[list[Turn]] = field(default_factory=list)
    """Of each seed."""

    def rate(self, clock: str) -> float:
        """Steps per second after the warm-up, over all seeds: all steps over all time."""
        turns = [turn for seed in self.turns for turn in seed[WARM_UP:]]
        return sum(t["steps"] for t in turns) / sum(t[clock] for t in turns)

    def spread(self) -> tuple[float, float]:
        """Quartiles of the turns' steps per second."""
        rates = [t["steps"] / t["seconds"] for seed in self.turns for t in seed[WARM_UP:]]
        low, _, high = statistics.quantiles(rates, n=4) if len(rates) > 1 else rates * 3
        return low, high


class Training:
    """A contestant's training from one seed, one turn at a time."""

    def __init__(self, racer: Racer, seed: int) -> None:
        start = time.perf_counter()
        self.racer, self.model = racer, racer.make(seed=seed)
        self.made_in, self.steps, self.turns = time.perf_counter() - start, 0, list[Turn]()

    def turn(self) -> None:
        """One rollout and all that is learnt from it."""
        start, cpu = time.perf_counter(), time.process_time()
        if isinstance(self.model, mcclt.PPO | mcclt.TRPO):
            self.model.learn(self.racer.rollout)
            jax.block_until_ready(self.model._states)  # the critic's fit would go on into the next one's turn
        else:
            self.model.learn(self.racer.rollout, reset_num_timesteps=self.steps == 0)
        self.steps += self.racer.rollout
        seconds = {"seconds": time.perf_counter() - start, "cpu_seconds": time.process_time() - cpu}
        self.turns.append({"steps": self.racer.rollout, **seconds})

    def finish(self) -> None:
        """Hands what was measured to the contestant."""
        if isinstance(self.model, mcclt.PPO | mcclt.TRPO):
            recent = list(self.model._trainer.stats.returns[0])
            self.model._trainer.close()
        else:
            recent = [episode["r"] for episode in self.model.ep_info_buffer]
            self.model.env.close()
        self.racer.first_update.append(self.made_in + self.turns[0]["seconds"])
        self.racer.returns.append(float(np.mean(recent)))
        self.racer.turns.append(self.turns)


def racers(task: str, torch_threads: int, console: Console) -> list[Racer]:
    """Everybody who can take part."""
    found = []
    for package, module, name, equal in (
        ("stable-baselines3", "stable_baselines3", "PPO", "mcclt PPO, settings of SB3"),
        ("sbx-rl", "sbx", "PPO", "mcclt PPO, settings of SB3"),
        ("sb3-contrib", "sb3_contrib", "TRPO", "mcclt TRPO, settings of sb3-contrib"),
    ):
        try:
            peer = getattr(importlib.import_module(module), name)
            import torch
        except ImportError:
            console.print(f"{package} is not installed and so not in the table: pip install {package}.")
            continue
        torch.set_num_threads(torch_threads)
        # SB3 would take a GPU, which is slower for such networks; SBX runs where JAX does.
        make = functools.partial(peer, "MlpPolicy", task, device="cpu")
        found.append(Racer(f"{package} {name}", make, 2_048, equal))

    def ours(name: str, kind: type, rollout: int, **settings: Any) -> None:
        found.append(Racer(f"mcclt {name}", functools.partial(kind, task, **settings), rollout))

    ours("PPO, settings of SB3", mcclt.PPO, 2_048, **SB3_PPO)
    ours("TRPO, settings of sb3-contrib", mcclt.TRPO, 2_048, **CONTRIB_TRPO)
    best = presets.paper(task, "ppo", "normal")
    ours("MC-CLT PPO, the paper's settings", mcclt.PPO, 4_000, n_envs=1, **best)
    ours("MC-CLT PPO, default: 16 environments", mcclt.PPO, 4_000)
    return found


def race(field: list[Racer], steps: int, seed: int, console: Console) -> None:
    """Everybody trains from one seed for `steps` steps, rounded up to whole rollouts."""
    running = [Training(racer, seed) for racer in field]
    while behind := [training for training in running if training.steps < steps]:
        training = min(behind, key=lambda t: t.steps)
        training.turn()
        last = training.turns[-1]
        console.print(f"seed {seed}, {training.steps:>7,} steps, {last['seconds']:7.2f} s: {training.racer.name}")
    for training in running:
        training.finish()


def summary(field: list[Racer]) -> list[dict[str, Any]]:
    """One row per contestant."""
    rates = {racer.name: racer.rate("seconds") for racer in field}
    work = {racer.name: racer.rate("cpu_seconds") for racer in field}
    return [
        {
            "name": racer.name,
            "steps_per_second": rates[racer.name],
            "quartiles": racer.spread(),
            "steps_per_cpu_second": work[racer.name],
            "ours_equal": racer.equal,
            "ours_times_as_fast": racer.equal and rates[racer.equal] / rates[racer.name],
            "ours_times_less_cpu": racer.equal and work[racer.equal] / work[racer.name],
            "return_mean": float(np.mean(racer.returns)),
            "returns": racer.returns,
            "first_update_seconds": racer.first_update,
            "turns": racer.turns,
        }
        for racer in field
    ]


def table(rows: list[dict[str, Any]]) -> Table:
    """What is printed."""
    columns = "", "steps/s", "quartiles", "ours at equal settings", "in CPU time", "return", "first update"
    shown = Table(*columns, title="steps/s without the first turns; return: last 100 episodes, mean over seeds")
    for row in rows:
        low, high = row["quartiles"]
        ratios = ("–", "–")
        if row["ours_equal"]:
            ratios = (f"{row['ours_times_as_fast']:.1f} x", f"{row['ours_times_less_cpu']:.1f} x")
        first = statistics.median(row["first_update_seconds"])
        cells = f"{row['steps_per_second']:,.0f}", f"{low:,.0f}–{high:,.0f}", *ratios, f"{row['return_mean']:.0f}"
        shown.add_row(row["name"], *cells, f"{first:.1f} s")
    return shown


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--task", default="Hopper-v5", help="one of the paper's, as our row of its settings needs one")
    parser.add_argument("--steps", type=parse_steps, default=40_000, help="of each training")
    parser.add_argument("--seeds", type=parse_seeds, default=(0,), help="0, 0,1,2 or 0..2")
    parser.add_argument("--torch-threads", type=int, default=1)
    parser.add_argument("--out", type=Path, help="write the table and every turn here, as JSON")
    args = parser.parse_args()
    if args.steps <= WARM_UP * 4_000:
        parser.error(f"--steps must be more than {WARM_UP * 4_000:,}: so many are not timed.")

    console = Console(highlight=False, width=140)
    field = racers(args.task, args.torch_threads, console)
    machine = versions()
    for name in ("stable-baselines3", "sb3-contrib", "sbx-rl", "torch", "flax"):
        try:
            machine["packages"][name] = importlib.metadata.version(name)
        except importlib.metadata.PackageNotFoundError:
            continue
    machine["load"] = [os.getloadavg()[0]]
    for seed in args.seeds:
        race(field, args.steps, seed, console)
        machine["load"].append(os.getloadavg()[0])
    rows = summary(field)
    console.print(table(rows))
    if args.out is not None:
        del machine["command"]
        asked = {"task": args.task, "steps": args.steps, "seeds": args.seeds, "torch_threads": args.torch_threads}
        args.out.write_text(json.dumps({**asked, "machine": machine, "rows": rows}, indent=1) + "\n")


if __name__ == "__main__":
    main()
