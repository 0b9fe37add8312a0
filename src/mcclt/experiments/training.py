"""Trains the agents of a unit and measures them. A pure function of the unit, apart from where it keeps its state."""

import contextlib
import dataclasses
import math
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import filelock
import jax
import numpy as np

from mcclt import __version__, interrupts
from mcclt.errors import CheckpointError, InaccessibleError
from mcclt.experiments.analysis import calibration
from mcclt.experiments.curve import evenly, read_rows, seconds_of, thin
from mcclt.experiments.results import Result, grouped, provenance_of
from mcclt.experiments.units import Outcome, Unit, lock_of
from mcclt.method import nets
from mcclt.method.randomness import Purpose, stream
from mcclt.storage import runs
from mcclt.storage.trackers import Row
from mcclt.training.agent import Agent
from mcclt.training.collect import EpisodeStats
from mcclt.training.environments import make_envs
from mcclt.training.job import Job
from mcclt.training.population import Program
from mcclt.training.saved import keepsake, only_group, only_seed
from mcclt.training.trainer import TRAINING, Trainer

PROBE_EPISODES = 8
PROBE_POINTS = 100
"""Points kept of a probed episode."""
LONGEST_VIEW = 4
"""A probe looks at most so many episodes' lengths beyond an episode."""

Report = Callable[[int, str], None]
"""Is told the step reached and a few words, after every update."""


def train_unit(unit: Unit, folder: Path, report: Report) -> Outcome:
    """Trains, or continues what `folder` holds of this unit; then evaluates and probes every agent.

    The folder belongs to one process at a time: a second one waits for the first to end.
    """
    folder.parent.mkdir(parents=True, exist_ok=True)
    with filelock.FileLock(lock_of(folder)), _job(unit, folder) as job:
        trainer = job.trainer
        started = runs.utc()
        job.run([_Reporter(report)])
        returns, lengths = job.evaluate([])
        with interrupts.deferred():
            probes = probe(trainer)
            models = _models(trainer) if unit.keep_agents else []
        rows = read_rows(folder / "metrics.jsonl")
    provenance = _provenance(trainer, started)
    own = grouped(((row["group"], row["seed"]), row) for row in rows)
    seconds = sum(seconds_of(rows).values())
    results, failures, agents = [], [], []
    for a, (setup, seed) in enumerate(unit.cells):
        if trainer.status[a] != TRAINING or not np.isfinite(returns[a]).any():
            why = trainer.status[a] if trainer.status[a] != TRAINING else "its final episodes failed"
            failures.append(f"{setup.name} on {setup.task}, seed {seed}, has no result ({why.rstrip('.')}).")
            continue
        cost = {
            "seconds": seconds / len(trainer.agents),
            "steps_per_second": trainer.step * len(trainer.agents) / seconds if seconds else math.nan,
            "agents_together": len(trainer.agents),
            "critic_parameters": nets.count(trainer.states[setup.name].critic) / len(unit.seeds),
        }
        identity = (setup.task, setup.algo, setup.variant, seed, setup.digest)
        curve = thin(own.get((setup.name, seed), ()))
        results.append((setup, Result(*identity, returns[a], lengths[a], curve, probes[a], cost, provenance)))
        agents += [((setup, seed), models[a])] if models else []
    return Outcome(results, failures, agents)


def _models(trainer: Trainer) -> list[bytes]:
    """Each agent as a compressed model."""
    arrays, meta = trainer.to_checkpoint()
    return [
        keepsake(*only_seed(*only_group(arrays, meta, group), trainer.config.seeds.index(seed)))
        for group, seed in trainer.agents
    ]


class _Reporter:
    """Passes progress on."""

    def __init__(self, report: Report) -> None:
        self._report, self._text = report, ""

    def on_update(self, trainer: Trainer, rows: list[Row]) -> None:
        from mcclt.training.progress import describe

        self._text = "  ".join(describe(rows)) if rows else self._text  # rows may wait for an evaluation
        self._report(trainer.step, self._text)

    def on_message(self, text: str) -> None:
        """Kept in the folder, and among the unit's failures if an agent is lost."""


def _job(unit: Unit, folder: Path) -> Job:
    """Continues from the newest good checkpoint, or begins (again) where there is none.

    Only what is damaged is given up. A disk that fails, or a good checkpoint that does not fit, is an error.
    """
    try:
        runs.load_latest(folder)
    except InaccessibleError:
        raise
    except CheckpointError:
        shutil.rmtree(folder, ignore_errors=True)
        return Job.begin(unit.config, folder, tensorboard=False)
    job = Job.resume(unit.config, folder, tensorboard=False)
    for note in job.notes:
        job.directory.on_message(note)  # type: ignore[union-attr]
    return job


def _provenance(trainer: Trainer, started: str) -> dict[str, Any]:
    known = runs.versions()
    times = {"started": started, "finished": known["started"]}
    return provenance_of(known) | {"version": __version__, "engine": trainer.spec.engine} | times


# --- what the critics believe ----------------------------------------------------------------------------------


def probe(trainer: Trainer) -> list[dict[str, Any]]:
    """A few episodes of each agent's policy, noise included, with its critic's beliefs about every state.

    Per agent, `episode`: over the longest one, at about `PROBE_POINTS` steps `t`: `mean` and `std` of the value
    distribution, its `error`, the `weight` that the state would get, the `reward`, and the discounted `return`
    that really followed (NaN where the recording ends too early to know). `bars`: `values` [3, N] at its first,
    middle and last step, `t`. `calibration`: see `calibration.measure`, over all episodes. Nothing of an agent whose
    environment failed.

    A critic's values look beyond the time limit, and so do these episodes where γ is large: see `recorded_steps`.
    """
    spec, seeds = trainer.spec, np.array([seed for _, seed in trainer.agents], np.uint32)
    gammas = np.array([[trainer.learners[name].config.gamma] for name, _ in trainer.agents])
    limit = spec.max_episode_steps or 1000
    steps = recorded_steps(limit, gammas.max())
    shape = (steps, PROBE_EPISODES)

    def draw(seed: jax.Array) -> jax.Array:
        return trainer.policy.noise(stream(seed, Purpose.PROBE), shape)

    noise = Program(("probe", trainer.policy, shape), draw)
    config = dataclasses.replace(
        trainer.config, engine=spec.engine, max_episode_steps=steps if spec.max_episode_steps else None
    )
    env = make_envs(config, trainer.source, trainer.seeds, Purpose.PROBE, 0, PROBE_EPISODES)
    with contextlib.closing(env):
        obs = env.reset().reshape(len(seeds), PROBE_EPISODES, -1)
        stats = EpisodeStats.empty(len(seeds), PROBE_EPISODES)
        rollout, _, faults = trainer.act_in(env, obs, noise.mapped()(seeds), stats, raise_faults=False)
    rollout, states = jax.tree.map(np.asarray, (rollout, trainer.states))  # [A, T, E, ...]
    reward, terminated, truncated = (x.swapaxes(0, 1) for x in (rollout.reward, rollout.terminated, rollout.truncated))
    returns, known = calibration.monte_carlo(reward, terminated, truncated, gammas)
    reward, returns, known, ended = (x[:limit] for x in (reward, returns, known, terminated | truncated))
    probes: list[dict[str, Any]] = []
    for a, (name, seed) in enumerate(trainer.agents):
        i = a % len(trainer.config.seeds)
        state = jax.tree.map(lambda x, i=i: x[i], states[name])
        agent = Agent(spec.task, seed, trainer.step, spec, trainer.learners[name], state)
        belief = agent.believe(rollout.obs[a, :limit].reshape(-1, spec.obs_size))
        found = {k: np.asarray(v, float).reshape(limit, -1, *v.shape[1:]) for k, v in vars(belief).items()}
        followed = np.where(known[:, a], returns[:, a], np.nan)
        probes.append({"gamma": agent.config.gamma, **_describe(found, reward[:, a], followed, ended[:, a])})
    for fault in faults:
        probes[fault.agent] = {}
    return probes


def recorded_steps(limit: int, gamma: float) -> int:
    """How many steps to record: so many that the returns of at least the first half of an episode are known.

    Without the steps beyond the limit, returns would be known only of episodes that fail, where γ is large. But no more
    than the limit where that would take more than `LONGEST_VIEW` times as long.
    """
    if not 0 < gamma < 1:
        return limit
    view = math.ceil(math.log(calibration.NEGLIGIBLE) / math.log(gamma))
    return max(limit, limit // 2 + view) if view <= LONGEST_VIEW * limit else limit


def _describe(
    beliefs: dict[str, np.ndarray], reward: np.ndarray, followed: np.ndarray, ended: np.ndarray
) -> dict[str, Any]:
    """What is kept of one agent's episodes, from arrays [T, E, ...]; see `probe`."""
    lengths = np.where(ended.any(axis=0), ended.argmax(axis=0) + 1, len(ended))  # of the first episodes
    e, length = int(lengths.argmax()), int(lengths.max())
    t = evenly(length, PROBE_POINTS)
    moments = [0, (length - 1) // 2, length - 1]
    known = ~np.isnan(followed)
    columns = {name: beliefs[name] for name in ("mean", "std", "error", "weight")}
    columns |= {"reward": reward, "return": followed}
    return {
        "episode": {"t": t} | {name: column[t, e] for name, column in columns.items()},
        "bars": {"t": moments, "values": beliefs["bars"][moments, e]},
        "calibration": calibration.measure(followed[known], beliefs["mean"][known], beliefs["std"][known]),
    }
