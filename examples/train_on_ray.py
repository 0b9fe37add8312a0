"""Training on a Ray cluster: a comparison whose agents train wherever there is room.

Without an address a local cluster is started, so that this runs on one machine as it is. When a worker or a node dies,
its agents go on from their last checkpoint; results go to a store, and running again computes only what is missing.
This is the command

    mcclt compare InvertedDoublePendulum-v5 --backend ray --variants plain,mcclt --n-seeds 2 --steps 8k --store on_ray

from Python, with fewer episodes and one core per variant, and reads the results back from the store.

    python examples/train_on_ray.py                                                    (pip install '.[ray]')
    python examples/train_on_ray.py --address auto --steps 1M --n-seeds 30 --cpus 4      (after  ray start --head)
"""

from pathlib import Path

import numpy as np
import tyro

from mcclt.cli import main as mcclt
from mcclt.experiments.store import Store


def main(
    task: str = "InvertedDoublePendulum-v5",
    variants: str = "plain,mcclt",
    steps: str = "8k",
    n_seeds: int = 2,
    episodes: int = 20,
    address: str | None = None,
    cpus: float = 1,
    gpus: float = 0,
    store: Path = Path("on_ray"),
) -> dict[str, np.ndarray]:
    """Compares variants on a cluster.

    Args:
        task: any task that the cluster's nodes know.
        variants: what to compare.
        steps: environment steps of each agent.
        n_seeds: agents per variant.
        episodes: of each agent at the end.
        address: of a running cluster (auto, or host:port); unset: a local one is started.
        cpus: cores that each variant's population needs.
        gpus: GPUs that it needs; may be a fraction.
        store: where results are kept.

    Returns:
        The mean return of each seed, by variant.
    """
    command = ["compare", task, "--backend", "ray", "--variants", variants, "--steps", steps, "--store", str(store)]
    command += ["--n-seeds", str(n_seeds), "--episodes", str(episodes), "--cpus", str(cpus), "--gpus", str(gpus)]
    mcclt(command if address is None else [*command, "--address", address])
    found = {series.name: series.scores for series in Store(store).load().series}
    for name, scores in found.items():
        print(f"{name}: {np.round(scores, 1)}")
    return found


if __name__ == "__main__":
    tyro.cli(main)
