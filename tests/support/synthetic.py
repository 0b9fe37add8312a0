"""Stores of made-up results with known properties, for the tests of everything that reads one."""

import dataclasses
from collections.abc import Iterable
from pathlib import Path

import numpy as np

from mcclt.config.variants import PAPER_VARIANTS
from mcclt.experiments.results import Result, Series, gather
from mcclt.experiments.setups import Setup, make_setup
from mcclt.experiments.store import Store

BARS = {"plain": 1, "qr": 8, "mcclt-nw": 8, "ensemble": 5, "mcclt": 8, "explore": 8}


def make_result(setup: Setup, seed: int, score: float, episodes: int = 100, points: int = 20) -> Result:
    """An agent whose final episodes average `score` exactly, with a curve that rises to it."""
    rng = np.random.default_rng([seed, len(setup.task), len(setup.name)])
    noise = rng.normal(size=episodes) * (0.05 * abs(score) + 1)
    steps = np.linspace(0, setup.config.steps, points + 1)[1:].astype(int)
    rise = score * (1 - np.exp(-3 * steps / steps[-1])) / (1 - np.exp(-3))
    curve = {
        "step": steps.astype(float),
        "eval/mean_reward": rise,
        "rollout/ep_rew_mean": rise * 0.9,
        "value/std": np.linspace(20, 10, points),
        "value/normality_error": np.linspace(1, 0.1, points),
        "weight/mean": np.full(points, 0.9),
        "train/explained_variance": np.linspace(0, 0.9, points),
    }
    return Result(
        task=setup.task,
        algo=setup.algo,
        variant=setup.variant,
        seed=seed,
        digest=setup.digest,
        returns=score + noise - noise.mean(),
        lengths=np.full(episodes, 1000),
        curve=curve,
        probe=make_probe(setup, rng),
        cost={"seconds": 250.0, "steps_per_second": 4000.0, "critic_parameters": 18000.0},
        provenance={
            "version": "0.1.0",
            "git": "0" * 40,
            "engine": "native",
            "device": "cpu",
            "cpu_count": 2,
            "started": "2026-01-01T00:00:00Z",
            "finished": "2026-01-01T00:05:00Z",
            "packages": {"jax": "0.10.2"},
            "python": "3.11.7",
            "platform": "Linux",
        },
    )


def make_series(variant: str, probes: list[dict]) -> Series:
    """One of Hopper, PPO, whose agents were probed as given."""
    setup = make_setup("Hopper", "ppo", variant, "authors")
    made = [make_result(setup, seed, 1000.0) for seed in range(len(probes))]
    probed = [dataclasses.replace(r, probe=p) for r, p in zip(made, probes, strict=True)]
    return gather(probed, {setup.key: setup.settings}).series[0]


def make_probe(setup: Setup, rng: np.random.Generator) -> dict:
    """A probe as `training.probe` makes it (see there for what each entry means)."""
    n = int(setup.agent.n_quantiles) if "n_quantiles" in setup.variant else BARS.get(setup.variant.partition("@")[0], 8)
    t = np.linspace(0, 999, 100).astype(int)
    std = 20 + 5 * np.sin(t / 100) + rng.normal(size=100)
    z = np.sort(rng.normal(size=(3, n)), axis=1)
    return {
        "gamma": 0.99,
        "episode": {
            "t": t,
            "mean": 200 + 0.01 * t,
            "std": std,
            "error": np.abs(rng.normal(size=100)),
            "weight": np.clip(0.9 + 0.1 * rng.normal(size=100), 0.6, 1),
            "reward": np.ones(100),
            "return": np.where(t < 600, 205 + rng.normal(size=100) * 20, np.nan),
        },
        "bars": {"t": [0, 500, 999], "values": 200 + 20 * z},
        "calibration": {
            "states": 5000,
            "coverage": {"0.5": 0.47, "0.8": 0.76, "0.95": 0.91},
            "crps": 11.0,
            "crps_point": 15.0,
            "bias": -3.0,
            "spread": 20.0,
            "pit": np.full(20, 0.05),
        },
    }


def filled(path: Path, scores: Iterable[tuple[Setup, Iterable[float]]], **how: int) -> Store:
    """A store with agents of the seeds 0, 1, ... of each setup that score this."""
    store = Store(path, create=True)
    for setup, own in scores:
        for seed, score in enumerate(own):
            store.write(setup, make_result(setup, seed, score, **how))
    return store


def make_store(
    path: Path,
    tasks: tuple[str, ...] = ("Hopper", "HalfCheetah"),
    algos: tuple[str, ...] = ("ppo", "trpo"),
    variants: tuple[str, ...] = PAPER_VARIANTS,
    seeds: int = 5,
    lift: float = 100.0,
) -> Store:
    """Scores are 1,000 + lift·(place of the variant in the list), with a spread of 50 over seeds."""
    store = Store(path, create=True)
    store.mark_reproduction()
    for task in tasks:
        for algo in algos:
            for place, variant in enumerate(variants):
                setup = make_setup(task, algo, variant, "authors")
                rng = np.random.default_rng([place, len(task), len(algo)])
                for seed in range(seeds):
                    store.write(setup, make_result(setup, seed, 1000 + lift * place + 50 * rng.normal()))
    return store
