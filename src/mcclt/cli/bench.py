"""`mcclt bench`."""

import os
from dataclasses import dataclass
from json import dumps
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

from tyro.conf import Positional

from mcclt.cli.command import Command
from mcclt.cli.tables import table_of
from mcclt.config.values import require_each
from mcclt.errors import ConfigError

if TYPE_CHECKING:
    from rich.console import Console


@dataclass(frozen=True, kw_only=True)
class Bench(Command):
    """Measure speed and memory on this machine, part by part and as a whole.

    mcclt bench Hopper-v5
    """

    task: Annotated[str, Positional] = "Hopper-v5"
    """The task to step."""
    algo: Literal["ppo", "trpo"] = "ppo"
    """The policy update."""
    updates: int = 6
    """Updates to time per variant, after one that compiles."""
    width: int = 128
    """Critic width."""
    preset: Literal["modern"] | None = None
    """modern: its settings, with their small minibatches and their own widths; unset: the paper's."""
    population: int = 8
    """Seeds trained together in the population test; 0: none."""
    engine: Literal["auto", "warp"] = "auto"
    """What steps the task; warp measures a whole population on a GPU instead."""
    agents: int = 300
    """warp: number of agents."""
    json: bool = False
    """Print the figures as JSON, and nothing else."""
    out: Path | None = None
    """Also write the figures as JSON to this file."""

    def run(self) -> None:
        """Measures, and prints a table or JSON."""
        require_each(self, "updates width agents", lambda x: x >= 1, "at least 1")
        require_each(self, "population", lambda x: x >= 0, "0 or more")
        for name in ("algo", "population") if self.engine == "warp" else ("agents",):
            if name in self.given:
                raise ConfigError(f"--{name} has no effect with --engine {self.engine}: leave it out.")
        if self.preset and "width" in self.given:
            raise ConfigError(f"--width has no effect with --preset {self.preset}: leave it out.")
        from mcclt.experiments.bench import measure, time_on_device
        from mcclt.storage import checkpoint

        what = f"{self.agents} agents on the GPU" if self.engine == "warp" else f"{self.algo}, {os.cpu_count()} cores"
        what += f", preset {self.preset}" if self.preset else f", width {self.width}"
        with self.console.status(f"Timing {self.task}, {what}: compiling, then some updates of each part …"):
            if self.engine == "warp":
                result = time_on_device(self.task, self.agents, self.updates, self.width, self.preset)
            else:
                result = measure(self.task, self.algo, self.updates, self.width, self.population, self.preset)
        if self.json:
            print(dumps(result))
        else:
            self.console.print(f"{self.task}, {what}")
            (show_device if self.engine == "warp" else show)(self.console, result)
        if self.out:
            checkpoint.write_atomically(self.out, (dumps(result, indent=2) + "\n").encode())


def show_device(console: "Console", result: dict[str, Any]) -> None:
    """The figures as lines."""
    seconds = result["seconds_per_update"]
    console.print(
        f"{result['agents']} agents, {result['worlds']:,} worlds of {result['task']} on {result['device']}\n"
        f"physics alone   {result['physics_steps_per_second']:>12,.0f} steps/s\n"
        f"collecting      {result['collect_steps_per_second']:>12,.0f} steps/s, "
        f"{result['collect_over_physics']:.0%} of it\n"
        f"whole training  {result['steps_per_second']:>12,.0f} steps/s\n"
        f"per update: collect {seconds['collect']:.2f} s, improve policies {seconds['improve']:.2f} s, "
        f"fit critics {seconds['fit']:.2f} s, its share of evaluations {seconds['evaluate']:.2f} s; "
        f"together {seconds['together']:.2f} s, because critics are fitted and agents evaluated meanwhile\n"
        f"first update and evaluation {result['first_update_and_evaluation_seconds']:.0f} s; "
        f"GPU memory of JAX at its peak {result['gpu_memory_mib']:,.0f} MiB"
    )


def show(console: "Console", result: dict[str, Any]) -> None:
    """The figures as a table."""
    console.print(
        f"raw simulator {result['raw_steps_per_second']:,.0f} steps/s   "
        f"float32 matrix products {result['gemm_gflops']:,.0f} GFLOP/s   device {result['device']}"
    )
    table = table_of(("variant", "steps/s", "update", "collect", "policy", "critic", "× floor", "× plain"))
    for row in result["variants"]:
        parts = (f"{row['seconds'][part]:.2f} s" for part in ("whole", "collect", "policy", "critic"))
        times = (f"{row[name]:.2f}" for name in ("whole_over_floor", "time_over_plain"))
        table.add_row(row["variant"], f"{row['steps_per_second']:,.0f}", *parts, *times)
    console.print(table)
    console.print(f"memory {result['memory_mib']:,.0f} MiB")
    if "population" in result:
        p = result["population"]
        console.print(
            f"{p['seeds']} seeds of mcclt together: {p['cost_over_one']:.2f} times one seed, "
            f"{p['whole_over_floor']:.2f} times their floor;"
            f" memory {p['memory_mib'][0]:,.0f} → {p['memory_mib'][-1]:,.0f} MiB over its updates"
        )
    if "processes" in result:
        q = result["processes"]
        ratios = ", ".join(f"{name} {ratio:.2f}" for name, ratio in q["whole_over_floor"].items())
        console.print(
            f"in {q['count']} processes that share the cores (--workers {q['count']}): "
            f"{q['seconds_all']['mcclt'] / p['seconds_all']:.2f} times as long; times their floor: {ratios}"
        )
