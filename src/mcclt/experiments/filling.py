"""The commands that add what a store lacks, or that make it again."""

import shlex
from collections.abc import Sequence

from mcclt.config import has_paper_preset
from mcclt.experiments import plan
from mcclt.experiments.results import Results


def fill(results: Results, tasks: Sequence[str], algo: str, variants: Sequence[str]) -> str:
    """The command that adds variants, as their neighbours were trained, or as in the paper if there are none."""
    near = [s for s in results.mains if s.task in tasks and s.algo == algo] or list(results.mains)
    scale = plan.SCALES["paper"]
    seeds, steps, episodes = scale.seeds, scale.steps, scale.episodes
    if near:
        like = max(near, key=lambda s: (len(s.results), s.steps))
        seeds, steps = max(2, len(like.results)), like.steps
        episodes = int(like.settings.get("final_episodes", episodes))  # a stranger's store may lack it
    limits = [_most_seeds(v) for v in variants]
    seeds = min([seeds, *(n for n in limits if n is not None)]) if None not in limits else seeds
    fixed = not all(map(has_paper_preset, tasks)) or any(s.configs == {"fixed"} for s in near)
    config = "fixed" if fixed else "authors"
    what = [",".join(tasks), "--variants", ",".join(variants), "--algo", algo, "--config", config]
    how = ["--seeds", str(seeds), "--steps", str(steps), "--episodes", str(episodes)]
    return shlex.join(["mcclt", "compare", *what, *how, "--store", str(results.path or "results")])


def _most_seeds(variant: str) -> int | None:
    """Seeds that suffice for a variant that only a drawing shows."""
    parts = [*plan.TABLES.values(), *plan.FIGURES.values(), *plan.ABLATIONS.values()]
    return next((part.most_seeds for part in parts if variant in part.variants), None)
