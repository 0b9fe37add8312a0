"""How long a search takes: `mcclt tune` beside Optuna with Stable-Baselines3, one process per core.

    pip install '.[sb3,optuna]'
    python benchmarks/tuning.py --trials 16 --steps 20480 --out benchmarks/results/tuning.json

Both try the same number of settings of PPO for the same number of steps, none stopped early, at Stable-Baselines3's own
batch sizes: minibatches of 64, ten passes. Ours begins with empty caches: compiling is counted. Compare the ratio, not
the seconds. `--peer-python` is a Python that has Stable-Baselines3, where this one has not.
"""

import json
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import tyro

SPACE = """
[search]
learning_rate = { low = 3e-5, high = 1e-3, scale = "log" }
gamma = { low = 0.97, high = 0.9999, scale = "complement" }
gae_lambda = { low = 0.8, high = 0.995, scale = "complement" }
clip_range = { low = 0.1, high = 0.4 }

[fixed]
critic = "plain"
n_envs = 16
steps_per_update = 2048
minibatch_size = 64
policy_iterations = 10
critic_iterations = 10
critic_learning_rate = 3e-4
policy_hidden = [64, 64]
critic_hidden = [64, 64]
critic_activation = "tanh"
ortho_init = true
log_std_init = 0.0
normalize_advantage = "minibatch"
max_grad_norm = 0.5
target_kl = "unset"
"""

PEER = """
import math, os, sys
import numpy as np
import optuna, torch
from stable_baselines3 import PPO
torch.set_num_threads(1)
optuna.logging.set_verbosity(optuna.logging.WARNING)
task, trials, steps, path = sys.argv[1], int(sys.argv[2]), int(sys.argv[3]), sys.argv[4]
storage = optuna.storages.JournalStorage(optuna.storages.journal.JournalFileBackend(path))

def objective(trial):
    model = PPO(
        "MlpPolicy", task, seed=trial.number, n_steps=2048,
        learning_rate=trial.suggest_float("learning_rate", 3e-5, 1e-3, log=True),
        gamma=1 - trial.suggest_float("one_minus_gamma", 1e-4, 0.03, log=True),
        gae_lambda=1 - trial.suggest_float("one_minus_lambda", 0.005, 0.2, log=True),
        clip_range=trial.suggest_float("clip_range", 0.1, 0.4),
    )
    model.learn(steps)
    return float(np.mean([episode["r"] for episode in model.ep_info_buffer]))

study = optuna.create_study(study_name="s", storage=storage, direction="maximize", load_if_exists=True)
done = optuna.study.MaxTrialsCallback(trials, states=None)
study.optimize(objective, callbacks=[done])
print(study.best_value)
"""


def main(
    task: str = "InvertedDoublePendulum-v5",
    trials: int = 16,
    steps: int = 20_480,
    peer_python: str = sys.executable,
    out: Path | None = None,
) -> dict[str, float]:
    """Times both.

    Args:
        task: any task.
        trials: settings.
        steps: environment steps of each.
        peer_python: a Python with Stable-Baselines3 and Optuna.
        out: also write the figures as JSON to this file.
    """
    with tempfile.TemporaryDirectory() as folder:
        ours = time_ours(task, trials, steps, Path(folder))
        theirs = time_theirs(task, trials, steps, Path(folder), peer_python)
    found = {
        "task": task,
        "trials": trials,
        "steps": steps,
        "cores": os.cpu_count(),
        "mcclt_seconds": ours,
        "optuna_sb3_seconds": theirs,
        "ratio": theirs / ours,
    }
    print(f"mcclt tune {ours:.0f} s, Optuna with Stable-Baselines3 {theirs:.0f} s: {theirs / ours:.1f} times as long")
    if out is not None:
        out.write_text(json.dumps(found, indent=1) + "\n")
    return found


def time_ours(task: str, trials: int, steps: int, folder: Path) -> float:
    """Seconds of `mcclt tune`, from the command to its end."""
    (folder / "space.toml").write_text(SPACE)
    command = ["-m", "mcclt", "tune", task, "--space", "space.toml", "--trials", trials, "--steps", steps]
    command += ["--rungs", steps, "--confirm", 0, "--quiet"]
    env = os.environ | {"XDG_CACHE_HOME": str(folder / "cache")}
    began = time.perf_counter()
    subprocess.run([sys.executable, *map(str, command)], cwd=folder, env=env, check=True, stdout=subprocess.DEVNULL)
    return time.perf_counter() - began


def time_theirs(task: str, trials: int, steps: int, folder: Path, python: str) -> float:
    """Seconds of one process per core that share a study."""
    command = [python, "-c", PEER, task, str(trials), str(steps), str(folder / "study.log")]
    env = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
    began = time.perf_counter()
    processes = [subprocess.Popen(command, env=env, stdout=subprocess.DEVNULL) for _ in range(os.cpu_count() or 1)]
    failed = [process.wait() for process in processes]
    if any(failed):
        raise SystemExit("Optuna with Stable-Baselines3 did not run: see above.")
    return time.perf_counter() - began


if __name__ == "__main__":
    tyro.cli(main)
