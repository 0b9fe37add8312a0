"""Return against minutes: ours with tuned settings beside Stable-Baselines3 with rl-baselines3-zoo's.

    pip install '.[sb3]' sb3-contrib
    python benchmarks/minutes.py train mcclt HalfCheetah-v4 benchmarks/results/minutes
    python benchmarks/minutes.py train sb3-ppo HalfCheetah-v4 benchmarks/results/minutes
    python benchmarks/minutes.py train contrib-trpo HalfCheetah-v4 benchmarks/results/minutes
    python benchmarks/minutes.py draw benchmarks/results/minutes docs/images/minutes.png
    python benchmarks/minutes.py show benchmarks/results/minutes

Each contestant trains four seeds at once on two cores, until `--minutes` are over or `--steps` made: ours in one
process per core, Stable-Baselines3 in one process per seed. Every 50,000 steps ten deterministic episodes are played;
the time they take is not counted. Compiling is.
"""

import concurrent.futures
import json
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any, Literal

import numpy as np
import tyro

EVERY, EPISODES = 50_000, 10
LABELS = {
    "mcclt": "mcclt TRPO (plain critic), tuned",
    "sb3-ppo": "Stable-Baselines3 PPO, zoo",
    "contrib-trpo": "sb3-contrib TRPO, zoo",
}
COLOURS = ("#0b6e99", "#c2571a", "#6b6b6b")

ZOO: dict[str, dict[str, dict[str, Any]]] = {
    "sb3-ppo": {
        "HalfCheetah": dict(
            gamma=0.98, gae_lambda=0.92, learning_rate=2.0633e-05, n_steps=512, batch_size=64, n_epochs=20,
            clip_range=0.1, ent_coef=0.000401762, max_grad_norm=0.8, vf_coef=0.58096,
        ),
        "Hopper": dict(
            gamma=0.999, gae_lambda=0.99, learning_rate=9.80828e-05, n_steps=512, batch_size=32, n_epochs=5,
            clip_range=0.2, ent_coef=0.00229519, max_grad_norm=0.7, vf_coef=0.835671,
        ),
    },
    "contrib-trpo": {
        "HalfCheetah": dict(target_kl=0.04),
        "Hopper": dict(),
    },
}  # fmt: skip
"""What rl-baselines3-zoo has for the two tasks; all normalise observations and rewards."""
ZOO_TRPO = dict(
    batch_size=128, n_steps=1024, gamma=0.99, gae_lambda=0.95, sub_sampling_factor=1, cg_max_steps=25,
    cg_damping=0.1, n_critic_updates=20, learning_rate=1e-3, n_envs=2,
)  # fmt: skip
"""TRPO's on both."""

Point = dict[str, float]
"""`seed`, `steps`, `seconds` of training so far, and the `return` then."""


def ours(task: str, seeds: list[int], core: int, minutes: float, steps: int, folder: Path) -> list[Point]:
    """These seeds as one population on one core, as `mcclt train` trains them, with the best known settings."""
    command = ["train", task, "--preset", "tuned", "--critic", "plain", "--seeds", ",".join(map(str, seeds))]
    command += ["--steps", str(steps), "--eval-freq", str(EVERY), "--eval-episodes", str(EPISODES)]
    run = folder / f"core-{core}"
    subprocess.run(
        ["taskset", "-c", str(core), sys.executable, "-m", "mcclt", *command, "--final-episodes", "0", "--out", run],
        check=True,
        stdout=subprocess.DEVNULL,
    )
    points, seconds = [], dict.fromkeys(seeds, 0.0)
    for line in (run / "metrics.jsonl").read_text(encoding="utf-8").splitlines():
        row = json.loads(line)
        seed, found = row["seed"], row.get("eval/mean_reward")
        seconds[seed] += row["time/collect"] + row["time/learn"]  # of all seeds, each time
        if found is not None and seconds[seed] <= 60 * minutes:
            points.append({"seed": seed, "steps": row["step"], "seconds": seconds[seed], "return": found})
    return points


def theirs(name: str, task: str, seed: int, core: int, minutes: float, steps: int) -> list[Point]:
    """One seed of Stable-Baselines3, as the zoo trains it."""
    import torch
    from stable_baselines3.common.env_util import make_vec_env
    from stable_baselines3.common.evaluation import evaluate_policy
    from stable_baselines3.common.vec_env import VecNormalize

    os.sched_setaffinity(0, {core})
    torch.set_num_threads(1)
    settings = dict(ZOO[name][task.rpartition("-")[0]])
    if name == "sb3-ppo":
        from stable_baselines3 import PPO as kind

        net = dict(
            log_std_init=-2, ortho_init=False, activation_fn=torch.nn.ReLU, net_arch=dict(pi=[256] * 2, vf=[256] * 2)
        )
        settings["policy_kwargs"] = net
    else:
        from sb3_contrib import TRPO as kind

        settings = ZOO_TRPO | settings
    env = VecNormalize(make_vec_env(task, n_envs=settings.pop("n_envs", 1), seed=seed), gamma=settings["gamma"])
    look = VecNormalize(make_vec_env(task, n_envs=1, seed=10_000 + seed), training=False, norm_reward=False)
    begun, points = time.perf_counter(), list[Point]()
    model = kind("MlpPolicy", env, seed=seed, device="cpu", **settings)
    for _ in range(steps // EVERY):
        model.learn(EVERY, reset_num_timesteps=False)
        seconds = time.perf_counter() - begun
        if seconds > 60 * minutes:
            break
        look.obs_rms = env.obs_rms
        mean, _ = evaluate_policy(model, look, n_eval_episodes=EPISODES)
        points.append({"seed": seed, "steps": model.num_timesteps, "seconds": seconds, "return": float(mean)})
        begun = time.perf_counter() - seconds  # the evaluation is not counted
    return points


def train(
    name: Literal["mcclt", "sb3-ppo", "contrib-trpo"],
    task: str,
    folder: Path,
    seeds: int = 4,
    minutes: float = 30,
    steps: int = 1_000_000,
    cores: tuple[int, int] = (0, 1),
) -> None:
    """Trains seeds 0, 1, ... of one contestant, half of them on each of two cores, and adds it to FOLDER/TASK.json."""
    with concurrent.futures.ProcessPoolExecutor(seeds) as processes, tempfile.TemporaryDirectory() as runs:
        if name == "mcclt":
            halves = enumerate(cores)
            work = [
                processes.submit(ours, task, [*range(i, seeds, 2)], c, minutes, steps, Path(runs)) for i, c in halves
            ]
        else:
            work = [processes.submit(theirs, name, task, s, cores[s % 2], minutes, steps) for s in range(seeds)]
        points = [point for one in work for point in one.result()]
    keep(folder, task, name, points)
    print(f"{task}, {name}: {len(points)} evaluations in {folder}")


def keep(folder: Path, task: str, name: str, points: list[Point]) -> None:
    """Writes a contestant beside the others of its task, or in place of what was there of it."""
    folder.mkdir(parents=True, exist_ok=True)
    contestants = load(folder).get(task, {}) | {name: points}
    (folder / f"{task}.json").write_text(json.dumps(contestants), encoding="utf-8")


def load(folder: Path) -> dict[str, dict[str, list[Point]]]:
    """By task and contestant."""
    return {path.stem: json.loads(path.read_text(encoding="utf-8")) for path in sorted(folder.glob("*.json"))}


def by_seed(points: list[Point]) -> list[list[Point]]:
    """The curve of each seed."""
    return [[p for p in points if p["seed"] == seed] for seed in sorted({p["seed"] for p in points})]


def table(folder: Path) -> str:
    """In Markdown: how far each contestant came."""
    lines = ["| task | | mean return of four seeds (range) | steps of each | minutes |", "|---|---|---:|---:|---:|"]
    for task, contestants in load(folder).items():
        for name in (name for name in LABELS if name in contestants):
            last = [curve[-1] for curve in by_seed(contestants[name])]
            mean, low, high = (f([p["return"] for p in last]) for f in (np.mean, min, max))
            minutes, steps = np.mean([p["seconds"] for p in last]) / 60, min(p["steps"] for p in last)
            cells = [task, LABELS[name], f"{mean:,.0f} ({low:,.0f} to {high:,.0f})", f"{steps:,}", f"{minutes:.1f}"]
            lines.append(f"| {' | '.join(cells)} |")
    return "\n".join(lines)


def show(folder: Path) -> None:
    """Prints the table."""
    print(table(folder))


def line(points: list[Point]) -> tuple[list[float], list[float]]:
    """Minutes, and returns."""
    return [p["seconds"] / 60 for p in points], [p["return"] for p in points]


def draw(folder: Path, picture: Path) -> None:
    """One panel for each task: every seed thin, their mean thick, over minutes on two cores; steps in the legend."""
    import matplotlib.pyplot as plt

    found = load(folder)
    figure, axes = plt.subplots(1, len(found), figsize=(5.2 * len(found), 3.8), squeeze=False, layout="constrained")
    for axis, (task, contestants) in zip(axes[0], found.items(), strict=True):
        for (name, label), colour in zip(LABELS.items(), COLOURS, strict=True):
            curves = by_seed(contestants.get(name, []))
            for curve in curves:
                axis.plot(*line(curve), color=colour, alpha=0.3, lw=1)
            together = [*zip(*curves, strict=False)]  # as far as all seeds came
            means = [{key: float(np.mean([p[key] for p in points])) for key in points[0]} for points in together]
            if means:
                axis.plot(*line(means), color=colour, lw=2.5, label=f"{label}: {means[-1]['steps']:,.0f} steps")
        axis.set(title=task, xlabel="minutes on two cores, four seeds together", ylabel="return")
        axis.spines[["top", "right"]].set_visible(False)
        axis.legend(frameon=False, loc="upper left", bbox_to_anchor=(0, -0.16))  # below: curves go everywhere
    figure.savefig(picture, dpi=150)


if __name__ == "__main__":
    tyro.extras.subcommand_cli_from_dict(
        {"train": train, "show": show, "draw": draw}, config=(tyro.conf.PositionalRequiredArgs,)
    )
