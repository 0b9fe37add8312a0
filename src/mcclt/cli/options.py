"""What `mcclt compare`, `mcclt reproduce` and `mcclt report` take; apart from what they do, so that help is instant."""

from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Literal

import tyro

from mcclt.cli.flags import Comma, Steps, Variants, as_text
from mcclt.config import RunConfig, parse_seeds
from mcclt.errors import ConfigError


def count_or_seeds(text: str) -> tuple[int, ...]:
    """10: the ten seeds 0..9; 0,3,7 and 5..14: these very ones."""
    if text.strip().isdecimal():
        if not 1 <= int(text) <= 10_000:
            raise ConfigError(f"seeds = {text} is not allowed: give how many (1 or more), a list 0,3 or a range 0..7.")
        return tuple(range(int(text)))
    return RunConfig("", seeds=parse_seeds(text)).seeds  # refuses repetitions and seeds too large


CountOrSeeds = Annotated[tuple[int, ...], as_text("N|SEEDS", count_or_seeds)]


@dataclass(frozen=True)
class Machinery:
    """Where and how cells are computed."""

    store: Path = Path("results")
    """The directory of results; what is in it already is not computed again."""
    engine: Literal["local", "ray"] = "local"
    """local: this machine; ray: a Ray cluster (extra: ray), started here unless --address names one."""
    workers: int = 1
    """local: processes that train side by side, each with its share of the cores; one per core is faster than
    one for all. On one GPU they pay for plans of several tasks, under NVIDIA's MPS."""
    address: str | None = None
    """ray: the cluster to join (auto, or host:port); unset: a local one is started."""
    cpus: float | None = None
    """ray: cores each unit of work needs; unset: 2."""
    gpus: float = 0
    """ray: GPUs each unit of work needs; may be a fraction."""
    task_engine: str = "auto"
    """What steps the tasks, as --engine of `mcclt train`: auto, native, warp (GPU), envpool, gymnasium."""
    population: int | None = None
    """Agents that train together in one process; unset: 8 seeds of a variant on a CPU, 360 agents on a GPU."""
    quiet: bool = False
    """Show no progress."""


@dataclass(frozen=True)
class Compare:
    """Compare variants on one or more tasks, over seeds, with statistics.

    mcclt compare Hopper-v5 --variants plain,mcclt,ensemble --algo ppo,trpo --seeds 10 --steps 1M
    """

    tasks: Annotated[Comma, tyro.conf.Positional, tyro.conf.arg(metavar="TASK,...")]
    """Task ids such as Hopper-v5."""
    machinery: Annotated[Machinery, tyro.conf.arg(name="")]
    variants: Variants = ("plain", "mcclt", "ensemble")
    """Variants of the paper (plain, qr, mcclt-nw, ensemble, mcclt, explore), settings changed behind an @:
    mcclt@n_quantiles=4+guide=symmetric."""
    algo: Comma = ("ppo",)
    """ppo, trpo or both."""
    seeds: CountOrSeeds = tuple(range(10))
    """How many seeds (10: the seeds 0 to 9), or which: 0,3,7 or 5..14."""
    steps: Steps = 1_000_000
    """Environment steps per agent."""
    config: Literal["authors", "fixed"] = "fixed"
    """fixed: the same settings on every task; authors: their best ones for this task."""
    episodes: int = 100
    """Deterministic episodes of each agent at the end."""


@dataclass(frozen=True)
class Reproduce:
    """Reproduce the paper's tables, figures and ablations; with no argument, show the plan and its cost.

    mcclt reproduce --table 1 --tasks Hopper,HalfCheetah --scale short
    """

    machinery: Annotated[Machinery, tyro.conf.arg(name="")]
    table: Comma = ()
    """1 (ablation and ensemble), 2 (time and weights), 3 (exploration)."""
    figure: Comma = ()
    """1 (value distributions), 2 (spread under the Bellman operator), 4 (spread of the ensemble)."""
    ablation: Comma = ()
    """quantiles, variance-head, weight-site, guide, crossing, trunk."""
    tasks: Comma = ()
    """Names of the paper (Hopper) or ids (Hopper-v5); unset: all eight."""
    algo: Comma = ()
    """Only this algorithm: ppo or trpo."""
    variants: Variants = ()
    """Only these variants."""
    scale: Literal["smoke", "short", "paper"] | None = None
    """smoke: 8k steps, 2 seeds; short: 100k steps, 3 seeds; paper: 1M steps, 30 seeds."""
    seeds: CountOrSeeds = ()
    """How many seeds, or which; unset: the scale's."""
    steps: Steps = 0
    """Environment steps per agent; unset: the scale's."""
    config: Literal["authors", "fixed"] = "authors"
    """authors: their best settings for each task; fixed: the same on every task."""


@dataclass(frozen=True)
class Report:
    """Write the report of a store: one HTML page, and its tables and figures as files.

    mcclt report results
    """

    store: Annotated[Path, tyro.conf.Positional] = Path("results")
    """The directory of results."""
    out: Path | None = None
    """Where to write; unset: STORE/report."""
