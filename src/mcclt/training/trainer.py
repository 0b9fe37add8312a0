"""A population that trains: collects, learns, evaluates, and can be saved and restored between any two updates."""

import contextlib
import dataclasses
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import jax
import numpy as np

from mcclt import interrupts
from mcclt.config import AgentConfig, RunConfig, with_decay
from mcclt.envs.api import EnvSpec, VectorEnv
from mcclt.errors import ConfigError, EnvironmentFault
from mcclt.method import normalisation
from mcclt.method.learner import Learner, Rollout, TrainState
from mcclt.method.nets import Actor, Params
from mcclt.method.randomness import Purpose, stream
from mcclt.method.settings import stacked_numbers
from mcclt.storage import checkpoint, metadata
from mcclt.storage.trackers import Row
from mcclt.training import boundary
from mcclt.training.backend import Evaluation, backend_of
from mcclt.training.boundary import Boundary
from mcclt.training.collect import EpisodeStats, Fault, FaultError, staggered
from mcclt.training.environments import keys_of, make_envs
from mcclt.training.evaluate import Episodes
from mcclt.training.fitting import Fit, Learnt, fits_of
from mcclt.training.logbook import Logbook
from mcclt.training.population import Improve, Program, choose, side_by_side, split

TRAINING = "training"
_LIMITS_POLICY = {"ppo": "learning_rate", "trpo": "target_kl"}
"""The setting of each algorithm at whose 0 the policy stays as it is."""


@dataclass(frozen=True)
class Place:
    """One agent of a population: how it learns, and since when."""

    group: str
    seed: int
    config: AgentConfig
    """Of the group's structure, with numbers of its own."""
    begun: int = 0
    """The population's update at which it began."""


class Trainer:
    """A population on a task: agents = groups x seeds, group by group."""

    def __init__(self, config: RunConfig, env: object | None = None, places: Sequence[Place] | None = None) -> None:
        """Makes fresh agents and their environments.

        Args:
            config: what to train.
            env: a `gymnasium.Env` class or factory to use in place of the id `config.task`.
            places: agents with seeds and numbers of their own, as many of each group as there are seeds; unset: those
                of `config`.
        """
        self.config, self.source = config, config.task if env is None else env
        self.places = list(places or _places(config))
        self.env = make_envs(config, self.source, self.seeds, Purpose.TRAIN_RESET, 0, config.n_envs)
        self.spec: EnvSpec = self.env.spec
        self.backend = backend_of(self.env, config.n_envs)
        self._stopped = False
        try:
            config = self.config = with_decay(config)
            self.learners = learners_of(config, self.spec)
        except ConfigError:
            self.env.close()
            raise
        self.config = config = dataclasses.replace(config, groups={k: one.config for k, one in self.learners.items()})
        self.places = list(places or _places(config))
        # All agents act by one program: of a mixed population, by the one of those that normalise observations.
        actors: dict[bool, Actor] = {learner.config.normalize_obs: learner.actor for learner in self.learners.values()}
        self._normalised = True in actors
        self.policy = actors[self._normalised]
        self._improve = Improve(self.learners)
        self._fits: list[Fit] | None = None
        self._noise = _noise_of(self.policy, (config.horizon, config.n_envs)).mapped()
        self._learnt = Learnt(self._fresh())
        self.update = 0
        self.status = [TRAINING] * len(self.agents)
        cuts = staggered(config.n_envs, self.spec.max_episode_steps) if config.stagger else None
        self.stats = EpisodeStats.empty(len(self.agents), config.n_envs, cuts)
        self.timing: dict[str, float] = {}
        self._evaluation: Evaluation | None = None
        """One that may go on while the next rollouts are collected."""
        self._evaluating = 0
        """The update that it belongs to."""
        self._log = Logbook()
        self._obs: np.ndarray | None = None
        self._last_fault: dict[int, int] = {}
        self.boundary: Boundary | None = None
        self.messages: list[str] = []
        """What a person should be told; `run` passes it on."""

    # --- parts ---------------------------------------------------------------------------------------------

    @property
    def agents(self) -> list[tuple[str, int]]:
        """Groups and seeds."""
        return [(place.group, place.seed) for place in self.places]

    @property
    def seeds(self) -> list[int]:
        """Of each agent."""
        return [place.seed for place in self.places]

    @property
    def ages(self) -> list[int]:
        """Updates that each agent has made."""
        return [self.update - place.begun for place in self.places]

    @property
    def states(self) -> dict[str, TrainState]:
        """Every group's agents, stacked, with all that they have learnt so far."""
        return self._learnt.states

    @property
    def step(self) -> int:
        """Environment steps each agent has made."""
        return self.update * self.config.steps_per_update

    @property
    def finished(self) -> bool:
        """Whether all steps are made, somebody asked to stop, or no agent is left."""
        return self._stopped or self.update >= self.config.updates or all(s != TRAINING for s in self.status)

    @property
    def spent(self) -> str:
        """Why training on would change nothing: all agents are stopped, or a policy has decayed to 0; else empty."""
        if all(status != TRAINING for status in self.status):
            return (
                "Every agent has been stopped, so none would learn: fix the environment and make or load another model "
                f"(with on_nan 'restart' agents go on after a fault). The first was {self.status[0]}"
            )
        for name, agent in self.config.groups.items():
            setting, over = _LIMITS_POLICY.get(agent.algo, ""), agent.decay_steps
            if getattr(agent, f"{setting}_end", None) == 0 and over is not None and self.step >= over:
                return (
                    f"The {setting} of {name!r} has decayed to 0 after {over:,} steps, so it would learn nothing more: "
                    "give decay_steps (flag --decay-steps) for all the steps that you want when you create it."
                )
        return ""

    def stop(self) -> None:
        """For observers: ends the training after this update, as if its steps were all made."""
        self._stopped = True

    def extend(self, **settings: int) -> None:
        """Goes on with other `steps` in all, or another `eval_freq`."""
        self.config, self._stopped = dataclasses.replace(self.config, **settings), False  # type: ignore[arg-type]

    @contextlib.contextmanager
    def wrapped(self, wrapper: Any) -> Iterator[None]:
        """Within this block the training environments are in a wrapper, which may look at every step."""
        env, self.env = self.env, wrapper
        try:
            yield
        finally:
            self.env = env

    def close(self) -> None:
        """Waits for what is being computed, so that a program can end at once; frees the environments."""
        with contextlib.suppress(Exception):  # whoever asked for it was told
            self._learnt.wait()
        self.backend.close()
        self.env.close()

    def make_env(self, purpose: Purpose, index: int | Sequence[int], n_envs: int) -> VectorEnv:
        """`n_envs` environments for each agent, by the engine that trains them; `index` names the (agent's) round."""
        config = dataclasses.replace(self.config, engine=self.spec.engine)
        return make_envs(config, self.source, self.seeds, purpose, index, n_envs)

    def policies(self) -> Params:
        """All agents' parameters of `policy`, stacked [A, ...], as arrays that the backend acts with."""
        xp = self.backend.xp
        groups = jax.tree.map(xp.asarray, self._learnt.policies)
        if self._normalised:
            norms = jax.tree.map(xp.asarray, self._learnt.norms)
            size = self.spec.obs_size
            groups = [normalisation.acting(p, norm, size) for p, norm in zip(groups, norms, strict=True)]
        return jax.tree.map(lambda *x: xp.concatenate(x), *groups)

    # --- one update ----------------------------------------------------------------------------------------

    def advance(self) -> list[Row]:
        """Collects, learns, and evaluates where it is due; returns the rows to log.

        Where environments live on the device, an evaluation goes on beside the next updates. Until it ends the rows of
        its update and all after are held back; then they are returned, in order. `flush` ends it.

        Raises:
            EnvironmentFault: with `on_nan = "raise"`; `boundary` then holds the state before this update.
        """
        if self._obs is None:
            self._obs = self.env.reset().reshape(len(self.agents), self.config.n_envs, -1)
            self.boundary = self._capture()
        assert self.boundary is not None  # captured at the end of every update, too
        try:
            rows = self._advance()
        except BaseException:
            self._rewind(self.boundary)
            raise
        self.boundary = self._capture()
        return rows

    def _advance(self) -> list[Row]:
        start = time.perf_counter()
        rollout, faults = self._collect()
        collected = time.perf_counter()
        ok = self._settle(faults)
        metrics = self._learn(rollout, ok)
        learnt = time.perf_counter()
        self.update += 1
        self._evaluate_if_due()
        end = time.perf_counter()
        self.timing = {"collect": collected - start, "learn": learnt - collected, "evaluate": end - learnt}
        self._log.add(self.update, self._rows(metrics, ok))
        return self._ready()

    @property
    def evaluating(self) -> bool:
        """Whether an evaluation is under way, and rows wait for it."""
        return self._evaluation is not None

    def flush(self, abandon: bool = False) -> list[Row]:
        """Ends an evaluation that is under way; returns the rows that waited for it.

        Args:
            abandon: Do without what it would have found, and do not wait.
        """
        if abandon:
            self._evaluation = None
        started = time.perf_counter()
        self._end_evaluation()
        self._log.waited(self.update, time.perf_counter() - started)
        return self._ready()

    def _collect(self) -> tuple[Rollout, list[Fault]]:
        noise = self._noise(np.array(self.seeds, np.uint32), np.array(self.ages, np.int32))
        assert self._obs is not None
        raise_faults = self.config.on_nan == "raise"
        try:
            rollout, self._obs, faults = self.act_in(self.env, self._obs, noise, self.stats, raise_faults)
        except FaultError as error:
            advice = "Fix the environment and resume, or train with on_nan 'restart' or 'stop' (flag --on-nan)."
            raise EnvironmentFault(f"{self._describe(error.fault)} {advice}{error.fault.where}") from None
        return rollout, faults

    def act_in(
        self, env: VectorEnv, obs: Any, noise: jax.Array, stats: EpisodeStats, raise_faults: bool
    ) -> tuple[Rollout, Any, list[Fault]]:
        """`collect` with the agents' policies, where the environments live."""
        return self.backend.collect(env, self.policy, self.policies(), obs, noise, stats, raise_faults, self._meanwhile)

    def _meanwhile(self) -> None:
        """What the device does besides simulating."""
        self._learnt.go_on()
        if self._evaluation is not None:
            self._evaluation.go_on()

    def _start_together(self) -> None:
        """All environments start new episodes."""
        for a in range(len(self.agents)):
            self.stats.start_together(a)
        if any(norm.running is not None for norm in self._learnt.norms):
            fresh = {k: dataclasses.replace(s, norm=normalisation.new_episodes(s.norm)) for k, s in self.states.items()}
            self._learnt = Learnt(fresh)

    def _describe(self, fault: Fault) -> str:
        step = self.ages[fault.agent] * self.config.steps_per_update + fault.step * self.config.n_envs
        return f"Environment {fault.env} of {self._name(fault.agent)} {fault.said} at step {step:,}."

    def _name(self, agent: int) -> str:
        group, seed = self.agents[agent]
        return f"seed {seed} (group {group!r})"

    def _settle(self, faults: list[Fault]) -> np.ndarray:
        """Which agents may learn from this rollout [A]; stops those that fail, or fail twice in a row."""
        ok = np.array([status == TRAINING for status in self.status])
        for fault in faults:
            if not ok[fault.agent]:
                continue
            ok[fault.agent] = False
            what = self._describe(fault)
            if self.config.on_nan == "stop" or self._last_fault.get(fault.agent) == self.update - 1:
                self.status[fault.agent] = f"stopped: {what}"
                self.messages.append(f"{what} That agent is stopped; the others continue.")
            else:
                self.messages.append(f"{what} That agent skips this update and starts new episodes.")
            self._last_fault[fault.agent] = self.update
        return ok

    def _learn(self, rollout: Rollout, ok: np.ndarray) -> dict[str, dict[str, np.ndarray]]:
        """Updates every group; agents that are not `ok` keep what they knew."""
        old, size = self.states, len(self.config.seeds)
        rollouts = dict(zip(self.learners, split(rollout, len(self.learners)), strict=True))
        improved = self._improve(old, rollouts)
        found = jax.device_get({name: metrics for name, (_, _, metrics) in improved.items()})  # waits
        states = {name: state for name, (state, _, _) in improved.items()}
        batches = {name: batches for name, (_, batches, _) in improved.items()}
        if first := self._fits is None:
            self._fits = fits_of(self.learners, self.backend.pieces(self.config.horizon))
        learnt = Learnt(states, batches, self._fits)
        if first:
            side_by_side(learnt.go_on, list(learnt.under_way))
        if not ok.all():
            oks = dict(zip(self.learners, ok.reshape(-1, size), strict=True))
            learnt = Learnt({name: _keep(oks[name], old[name], state) for name, state in learnt.states.items()})
        else:
            self.backend.learnt(learnt)
        self._learnt = learnt
        return found

    def _evaluate_if_due(self) -> None:
        config = self.config
        due = config.eval_freq and crossed(self.step, config.steps_per_update, config.eval_freq)
        if due:
            self._end_evaluation()
            self._evaluation, self._evaluating = self._begin_evaluation(config.eval_episodes, self.ages), self.update
        if self._evaluation is not None and self._evaluation.ended:
            self._end_evaluation()

    def _end_evaluation(self) -> None:
        if self._evaluation is None:
            return
        try:
            found = self._evaluation.finish()
        except Exception:  # but after Ctrl-C it can be finished
            self._evaluation = None
            raise
        self._evaluation = None
        where = f"the evaluation of update {self._evaluating}"
        self._log.note(self._evaluating, self._checked(found, where).returns)

    def evaluate(self, episodes: int, index: int) -> tuple[np.ndarray, np.ndarray]:
        """Deterministic episodes of every agent on environments of their own.

        Args:
            episodes: per agent.
            index: names the reset noise, so that the same evaluation repeats.

        Returns:
            Returns and lengths, each [A, episodes].
        """
        self._end_evaluation()  # in the same environments, perhaps
        evaluation = self._begin_evaluation(episodes, index)
        while not evaluation.ended:
            interrupts.check()
            evaluation.go_on()
            self._learnt.go_on()
        found = self._checked(evaluation.finish(), "the evaluation")
        return found.returns, found.lengths

    def _checked(self, found: Episodes, where: str) -> Episodes:
        """The same, if no environment failed or that is only to be told."""
        for fault in found.faults:
            what = f"In {where}, environment {fault.env} of {self._name(fault.agent)} {fault.said}."
            if self.config.on_nan == "raise":
                raise EnvironmentFault(what + fault.where)
            self.messages.append(what)
        return found

    def _begin_evaluation(self, episodes: int, index: int | Sequence[int]) -> Evaluation:
        return self.backend.evaluation(
            lambda n_envs: self.make_env(Purpose.EVAL_RESET, index, n_envs),
            lambda n_envs: keys_of(self.seeds, Purpose.EVAL_RESET, index, n_envs),
            self.policy,
            self.policies(),
            len(self.places),
            episodes,
        )

    def _ready(self) -> list[Row]:
        """The rows that wait for nothing."""
        return self._log.take(None if self._evaluation is None else self._evaluating)

    def _rows(self, metrics: dict[str, dict[str, np.ndarray]], ok: np.ndarray) -> dict[int, Row]:
        rows = {}
        per_second = self.config.steps_per_update * len(self.agents) / sum(self.timing.values())
        for a, ((group, seed), age) in enumerate(zip(self.agents, self.ages, strict=True)):
            if self.status[a] != TRAINING:
                continue
            row: Row = {"group": group, "seed": seed, "update": age, "step": age * self.config.steps_per_update}
            if self.stats.returns[a]:
                row["rollout/ep_rew_mean"] = float(np.mean(self.stats.returns[a]))
                row["rollout/ep_len_mean"] = float(np.mean(self.stats.lengths[a]))
            if ok[a]:  # otherwise nothing was learnt
                index = a % len(self.config.seeds)
                row |= {name: float(values[index]) for name, values in metrics[group].items()}
            row |= {"time/fps": per_second} | {f"time/{k}": v for k, v in self.timing.items()}
            rows[a] = row
        return rows

    def _fresh(self) -> dict[str, TrainState]:
        """New agents in all places, stacked."""
        found = {}
        for name, learner in self.learners.items():
            own = [place for place in self.places if place.group == name]
            numbers = stacked_numbers([place.config for place in own])
            found[name] = Program(learner.key("init"), learner.init).mapped()(
                np.array([place.seed for place in own], np.uint32), numbers
            )
        return found

    # --- checkpoints ---------------------------------------------------------------------------------------

    def _capture(self) -> Boundary:
        """Everything as it is; of environments that nobody acted in yet there is nothing worth keeping."""
        obs = None if self._obs is None else self._obs.copy()
        return Boundary(
            update=self.update,
            learnt=self._learnt,
            obs=obs,
            env_state=self.env.get_state() if obs is not None and self.spec.resumable else None,
            stats=self.stats.to_arrays(),
            status=tuple(self.status),
            last_fault=dict(self._last_fault),
        )

    def _rewind(self, to: Boundary) -> None:
        """Goes on from another moment; in new episodes, if the environments cannot go back to theirs."""
        self.update, self._learnt, self.status = to.update, to.learnt, list(to.status)
        self.stats = EpisodeStats.from_arrays(to.stats, self.stats.first_cuts)
        self._last_fault = dict(to.last_fault)
        if to.env_state is not None:
            assert to.obs is not None
            self.env.set_state(to.env_state)
            self._obs = to.obs.copy()
        else:
            self._obs = None
            self._start_together()

    def to_checkpoint(self) -> tuple[checkpoint.Arrays, dict[str, Any]]:
        """The last boundary as arrays and metadata for `checkpoint.save`."""
        return (self.boundary or self._capture()).to_checkpoint(self.config, self.spec)

    def restore(self, arrays: checkpoint.Arrays, meta: dict[str, Any], source: object) -> bool:
        """Continues from a checkpoint of the same configuration; one that does not fit leaves all as it was.

        Returns:
            Whether the environments continue exactly; otherwise they start new episodes.
        """
        metadata.check(arrays, meta, source)
        boundary.check(meta, self.config, self.spec, source)
        shape = (len(self.agents), self.config.n_envs, self.spec.obs_size)
        now = dataclasses.replace(
            self._capture(),
            obs=np.zeros(shape, np.float32),
            env_state=self.env.get_state() if self.spec.resumable else None,
        )
        self._rewind(now.restored(arrays, meta, source))
        self._evaluation, self._log = None, Logbook()
        if self._obs is not None:
            self.boundary = self._capture()
            return True
        if self.update:  # other episodes than those the run began with
            self.env.close()
            self.env = self.make_env(Purpose.TRAIN_RESET, self.update, self.config.n_envs)
        return self.update == 0


def _places(config: RunConfig) -> list[Place]:
    return [Place(name, seed, agent) for name, agent in config.groups.items() for seed in config.seeds]


def learners_of(config: RunConfig, spec: EnvSpec) -> dict[str, Learner]:
    """Of every group; a `ConfigError` says which setting does not fit the others or the task."""
    found = {
        name: Learner(agent, spec, config.n_envs, config.steps_per_update) for name, agent in config.groups.items()
    }
    for learner in found.values():
        _check_shares(learner, config.steps_per_update)
    return found


def _check_shares(learner: Learner, batch: int) -> None:
    """Raises unless each member of a critic has its share of a batch, and a minibatch is no more than that."""
    members, size = learner.critic.members, learner.config.minibatch_size
    if batch < members:
        raise ConfigError(f"members = {members} is more than steps_per_update allows.")
    if size is not None and size > (share := batch // members):
        of = "steps_per_update" if members == 1 else f"each of {members} members' share of the batch"
        raise ConfigError(f"minibatch_size = {size} is not allowed: it must be at most {share}, {of}.")


def _noise_of(policy: Actor, shape: tuple[int, int]) -> Program:
    """The randomness of an agent's actions during one update, from its seed and the update's number."""

    def draw(seed: jax.Array, update: jax.Array) -> jax.Array:
        return policy.noise(stream(seed, Purpose.ACTION_NOISE, update), shape)

    return Program(("noise", policy, shape), draw)


def _keep(ok: np.ndarray, old: TrainState, new: TrainState) -> TrainState:
    """New agents where `ok` [S], old ones elsewhere, in new episodes; the count of updates goes on in all."""
    kept = choose(ok, new, old)
    return dataclasses.replace(kept, update=new.update, norm=normalisation.new_episodes(kept.norm, ~ok))


def crossed(step: int, stride: int, period: int) -> bool:
    """Whether the last `stride` steps passed a multiple of `period`."""
    return step // period > (step - stride) // period
