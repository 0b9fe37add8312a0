"""Which setups and seeds make up a table, a figure or an ablation of the paper, and about what they cost."""

import functools
import os
import statistics
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

from mcclt.config import AgentConfig
from mcclt.errors import UnknownNameError
from mcclt.experiments.results import Results
from mcclt.experiments.setups import PAPER_TASKS, make_setup, task_id
from mcclt.experiments.store import Cell
from mcclt.presets import bare_task

ALGOS = ("ppo", "trpo")


@dataclass(frozen=True)
class Scale:
    """How much of it: steps of each agent, seeds of each setup, final episodes of each agent."""

    steps: int
    seeds: int
    episodes: int
    what: str


SCALES = {
    "smoke": Scale(8_000, 2, 5, "does it run at all"),
    "short": Scale(100_000, 3, 20, "first steps of learning; no result"),
    "paper": Scale(1_000_000, 30, 100, "the paper's own scale"),
}


@dataclass(frozen=True)
class Part:
    """A part of the paper: the variants it shows."""

    title: str
    variants: tuple[str, ...]
    algos: tuple[str, ...] = ALGOS
    most_seeds: int | None = None
    """A drawing needs no more than this, however large the scale."""


TABLES = {
    "1": Part("table 1: the ablation, and against the ensemble", ("plain", "qr", "mcclt-nw", "ensemble", "mcclt")),
    "2": Part("table 2: time and number of weights (measured, not trained)", ()),
    "3": Part("table 3: seeking accuracy or exploration", ("mcclt", "explore")),
}
FIGURES = {
    "1": Part("figure 1: learnt value distributions", ("qr@n_quantiles=200",), ("ppo",), 3),
    "2": Part("figure 2: spread under the Bellman operator", ("qr@qr_target=bellman",), ("ppo",), 10),
    "4": Part("figure 4: spread of the ensemble", ("ensemble",), ("ppo",), 10),
}
ABLATIONS = {
    "quantiles": Part("ablation: number of bars", ("mcclt", *(f"mcclt@n_quantiles={n}" for n in (4, 12, 20)))),
    "variance-head": Part(
        "ablation: what the variance network outputs",
        ("mcclt", "mcclt@variance_head=log_variance", "mcclt@variance_head=std"),
    ),
    "weight-site": Part("ablation: where weights act", ("mcclt", "mcclt@weight_site=td_error")),
    "guide": Part("ablation: the guide's loss", ("mcclt", "mcclt@guide=symmetric")),
    "crossing": Part("ablation: error of crossing bars", ("mcclt", "mcclt@crossing_error=100000.0")),
    "trunk": Part("ablation: one trunk for bars and variance", ("mcclt", "mcclt@trunk=shared")),
}
WHOLE_PAPER = (*TABLES.values(), *FIGURES.values(), ABLATIONS["quantiles"])


def parts_of(tables: Sequence[str], figures: Sequence[str], ablations: Sequence[str]) -> list[Part]:
    """The parts a user names; all of the paper if none is named."""
    found = []
    asked = (("table", tables, TABLES), ("figure", figures, FIGURES), ("ablation", ablations, ABLATIONS))
    for kind, names, known in asked:
        for name in names:
            if name not in known:
                drawing = "Figure 3 is a drawing that `mcclt report` makes of any MC-CLT agent."
                raise UnknownNameError(kind, name, known, drawing if (kind, name) == ("figure", "3") else "")
            found.append(known[name])
    return found or list(WHOLE_PAPER)


def cells_of(
    parts: Iterable[Part],
    tasks: Sequence[str],
    seeds: Sequence[int],
    config: str,
    algos: Sequence[str] = (),
    variants: Sequence[str] = (),
    seeds_fixed: bool = False,
    **run: Any,
) -> list[Cell]:
    """All cells of some parts, each once, task by task; of given `algos` and `variants` only these.

    `run` are settings of the runs, such as `steps`. With `seeds_fixed` a part's `most_seeds` is ignored.
    """
    found: dict[Cell, None] = {}
    for task in tasks:
        for part in parts:
            own = seeds if seeds_fixed or part.most_seeds is None else seeds[: part.most_seeds]
            for algo in (a for a in part.algos if not algos or a in algos):
                for variant in (v for v in part.variants if not variants or v in variants):
                    setup = make_setup(task, algo, variant, config, **run)
                    found |= dict.fromkeys((setup, seed) for seed in own)
    return list(found)


def check_names(tasks: Sequence[str], algos: Sequence[str]) -> tuple[list[str], list[str]]:
    """Ids of tasks, and algorithms, or an error that suggests what was meant."""
    for algo in algos:
        if algo not in ALGOS:
            raise UnknownNameError("algo", algo, ALGOS)
    return [task_id(task) for task in tasks or PAPER_TASKS], list(algos)


# --- cost ------------------------------------------------------------------------------------------------------

COLLECT = {
    "Hopper": 9.0,
    "HalfCheetah": 14.0,
    "Walker2d": 7.0,
    "Swimmer": 14.0,
    "InvertedDoublePendulum": 9.0,
    "Ant": 4.0,
    "LunarLanderContinuous": 7.0,
    "BipedalWalker": 2.6,
}
"""Thousand steps/s of collecting on two cores (2.8 GHz); Box2D tasks without EnvPool."""
LEARN = (41.0, 4.43e-3)
"""Microseconds of learning per step on the same machine, and besides for each weight of a member of the critic: 8,000
steps/s with the plain critic and 4,700 with MC-CLT's, at width 128."""
OBSERVED = 17
"""Numbers in an observation, about: a plan makes no environment to ask."""


def seconds_of(cell: Cell, known: Results | None) -> float:
    """About how long a cell takes here: as its like did on a machine of as many cores, or as measured on two cores."""
    setup, _ = cell
    steps = setup.config.steps
    rates = [
        result.cost["seconds"] / like.steps
        for like in (known.series if known else ())
        if (like.task, like.name) == (setup.task, setup.name)
        for result in like.results
        if result.provenance.get("cpu_count") == os.cpu_count() and result.cost.get("seconds")
    ]
    if rates:
        return steps * statistics.median(rates)
    evaluations = steps // setup.config.eval_freq if setup.config.eval_freq else 0
    acting = steps + setup.config.final_episodes * 500 + 10 * 500 * evaluations
    collect = 1000 * COLLECT.get(bare_task(setup.task), 5.0)
    return acting / collect + steps * 1e-6 * (LEARN[0] + LEARN[1] * _weights(setup.agent))


@functools.lru_cache
def _weights(agent: AgentConfig) -> int:
    """Of one member of its critic, whichever that is: members share the batch, and so cost as much as one."""
    import jax  # only here: others that read plans do without

    from mcclt.method import nets
    from mcclt.method.critics import CRITICS

    critic = CRITICS[agent.critic](agent)
    return nets.count(jax.eval_shape(lambda key: critic.init_member(key, OBSERVED), jax.random.key(0)))


def describe_seconds(seconds: float) -> str:
    """90 → "2 min"; for people."""
    for size, unit in ((86_400, "days"), (3_600, "hours"), (60, "min")):
        if seconds >= 1.5 * size:
            return f"{seconds / size:.0f} {unit}" if seconds >= 10 * size else f"{seconds / size:.1f} {unit}"
    return f"{seconds:.0f} s"
