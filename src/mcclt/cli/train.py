"""`mcclt train`."""

import contextlib
import dataclasses
import shlex
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, ClassVar

from tyro.conf import Positional, Suppress

from mcclt import interrupts, presets
from mcclt.cli.command import Command, ended
from mcclt.cli.flags import Comma, Seeds, Steps, Widths, seeds_of
from mcclt.cli.tables import evaluation_data, show_config, show_returns
from mcclt.config import FREE, PARTS, AgentConfig, RunConfig, override
from mcclt.config.effects import refuse_unread
from mcclt.config.values import coerce, fields_of
from mcclt.config.variants import VARIANTS, group_name
from mcclt.errors import ConfigError, EnvironmentFault, MccltError, UnknownNameError
from mcclt.experiments.settings import typed
from mcclt.storage.configuration import read_file

if TYPE_CHECKING:
    from mcclt.training.job import Job


@dataclass(frozen=True, kw_only=True)
class Train(Command, RunConfig, AgentConfig):
    """Train agents on a task.

    mcclt train Hopper-v5 --n-seeds 8 --steps 1M --preset paper
    """

    task: Annotated[str, Positional] = ""
    """A task id such as Hopper-v5 (`mcclt envs` lists them), or my_env.py:MyEnv."""
    seeds: Seeds = RunConfig.seeds
    n_seeds: int | None = None
    """Number of seeds: 8 trains seeds 0 to 7; unset: those of --seeds."""
    steps: Steps = RunConfig.steps
    eval_freq: Steps = RunConfig.eval_freq
    checkpoint_freq: Steps = RunConfig.checkpoint_freq
    policy_hidden: Widths = AgentConfig.policy_hidden
    critic_hidden: Widths = AgentConfig.critic_hidden
    decay_steps: Steps | None = None
    groups: Annotated[Mapping[str, AgentConfig], Suppress] = dataclasses.field(default_factory=dict)
    variants: Comma = ()
    """Train several variants together: the paper's plain, qr, mcclt-nw, ensemble, mcclt, explore, and inverse-variance,
    hl-gauss, hl-gauss-nw; each with --algo, or with its own algorithm, as in trpo-mcclt; unset: the one
    of --critic and --weighting."""
    preset: str | None = None
    """modern: today's PPO and TRPO, for any task; tuned: the best known for this task; paper: the authors' for it;
    unset: the defaults."""
    config: Path | None = None
    """A TOML (or JSON) file of settings; flags override it, and it overrides the preset."""
    out: Path | None = None
    """The run directory; unset: runs/TASK__VARIANTS__TIME."""
    resume: Path | None = None
    """Continue this run directory exactly (--steps may be raised; --on-nan, --threads and --step-timeout changed)."""
    quiet: bool = False
    """Show no progress."""
    wandb: bool = False
    """Also log to Weights & Biases (extra: wandb)."""

    GROUPS: ClassVar = {
        "": """seeds n_seeds steps variants preset config resume engine n_envs stagger steps_per_update
            max_episode_steps threads eval_freq eval_episodes final_episodes on_nan step_timeout""".split(),
        "target": PARTS["targets"],
        "policy": PARTS["policy"],
        "PPO": (),
        "TRPO": (),
        "critic": PARTS["critic"],
        "weight": PARTS["weights"],
        "output": "out checkpoint_freq quiet wandb".split(),
    }  # fmt: skip

    FORMERLY: ClassVar = {"settings": "--settings is --preset here, and --settings authors is --preset paper."}

    def __post_init__(self) -> None:
        """Settings are checked when preset, file and flags are together."""

    def run(self) -> None:
        """Trains, evaluates, and keeps everything in a run directory."""
        config = self.resolve() if self.resume is None else self.resumed(self.resume)
        from mcclt.storage import runs
        from mcclt.training.compilation import use_cache
        from mcclt.training.job import Job

        use_cache()
        if self.resume is None:
            job = Job.begin(config, self.out or runs.default_path(config), wandb=self.wandb)
        else:
            job = Job.resume(config, self.resume, wandb=self.wandb)
        with job:
            if self.resume is not None:
                if job.trainer.finished and _evaluated(self.resume, job.trainer.step):
                    on = f"To train on:\n  {runs.resume_command(self.resume)} --steps {2 * job.trainer.step}"
                    self.say(f"{self.resume} is finished, at {job.trainer.step:,} steps. {job.trainer.spent or on}")
                    self._look_at(self.resume)
                    return
                self.say(f"Resuming {self.resume} at {job.trainer.step:,} steps.")
            elif not self.quiet:
                show_config(self.console, job.trainer.config, job.trainer.spec.engine)
                if not (self.preset or self.config or self.variants):
                    name = presets.bare_task(config.task)
                    tuned = f"; --preset tuned, the best known for {name}" if presets.has_tuned(name) else ""
                    self.say(f"The defaults are the paper's. --preset modern takes the settings of today{tuned}.")
            self.say(*job.notes)
            self._train(job)

    def settings(self, cls: type) -> dict[str, Any]:
        """The settings of an agent or of a run that were typed."""
        found = {name: value for name, value in self.given.items() if name in fields_of(cls)}
        if self.n_seeds is not None and cls is RunConfig:
            found["seeds"] = seeds_of(self.given.get("seeds"), self.n_seeds)
        return found

    def resolve(self) -> RunConfig:
        """Defaults < preset < file < flags, for every group."""
        file = read_file(self.config) if self.config else {}
        groups = file.pop("groups", {})
        if not isinstance(groups, dict) or not all(isinstance(g, dict) for g in groups.values()):
            raise ConfigError('groups must be a table of tables, such as [groups.plain] critic = "plain".')
        run = {n: coerce(RunConfig, n, file.pop(n)) for n in fields_of(RunConfig) if n in file}
        run |= self.settings(RunConfig)
        task = run.setdefault("task", "")
        if not task:
            raise ConfigError("Which task? Name one, such as  mcclt train Hopper-v5  (`mcclt envs` lists them).")
        flags = self.settings(AgentConfig)
        if self.variants:
            if groups:
                raise ConfigError("--variants and the [groups] of a file both say what to train: leave one out.")
            for name in ("critic", "weighting"):
                if name in flags or name in file:
                    where = f"--{name}" if name in flags else f"{name} in {self.config}"
                    raise ConfigError(f"--variants says the critic and the weighting of each group: leave out {where}.")
            if "algo" in flags and all("algo" in _variant(name) for name in self.variants):
                raise ConfigError("--algo has no effect: every one of the --variants names its own.")
            # A variant of the paper is what it is; a group of a file may be changed by flags, like all of the file.
            chosen = {name: file | flags | _variant(name) for name in self.variants}
        elif groups:
            chosen = {name: file | group | flags for name, group in groups.items()}
        else:
            chosen = {"": file | flags}
        agents = {}
        for name, settings in chosen.items():
            algo = str(settings.get("algo", presets.algorithm(self.preset, str(task), AgentConfig.algo)))
            critic = str(settings.get("critic", AgentConfig.critic))
            of_run, of_agent = presets.settings(self.preset, str(task), algo, critic)
            agent = override(AgentConfig(algo=algo), of_agent | settings)
            agents[name if groups else group_name(agent)] = agent
            run = of_run | run
        refuse_unread({f"--{name.replace('_', '-')}": name for name in flags}, agents.values())
        if self.config and self.config.suffix != ".json":  # a stored configuration states everything
            refuse_unread({f"{name} in {self.config}": name for name in _changed(file)}, agents.values())
            for group, settings in groups.items():
                refuse_unread({f"{name} in [groups.{group}]": name for name in _changed(settings)}, [agents[group]])
        return override(RunConfig("", groups=agents), run)

    def resumed(self, path: Path) -> RunConfig:
        """The stored configuration; flags may raise `steps`, and change what does not change the learning."""
        from mcclt.storage.runs import stored_config

        stored = stored_config(path)
        if self.variants or self.preset or self.config or self.out:
            raise ConfigError("--resume continues a run as it is: leave out --variants, --preset, --config and --out.")
        run = self.settings(RunConfig)
        changed = [(n, getattr(stored, n)) for n, value in run.items() if value != getattr(stored, n) and n not in FREE]
        for agent in stored.groups.values():  # a flag speaks to every group
            own = self.settings(AgentConfig)
            changed += [(n, getattr(agent, n)) for n, value in own.items() if value != getattr(agent, n)]
        if changed:
            name, value = changed[0]
            raise ConfigError(
                f"{path} was started with {name} = {typed(value)}: resuming must not change the configuration."
                " Leave the flag out, or start a new run."
            )
        if run.get("steps", stored.steps) < stored.steps:
            raise ConfigError(f"{path} was started with {stored.steps:,} steps, which can only be raised.")
        return override(stored, {name: value for name, value in run.items() if name in FREE})

    def _train(self, job: "Job") -> None:
        from mcclt.experiments.cells import plain
        from mcclt.experiments.training import probe
        from mcclt.storage.runs import checkpoints, resume_command
        from mcclt.training.progress import Display, Quiet

        trainer, directory = job.trainer, job.directory
        assert directory is not None
        resume = resume_command(directory.path)
        try:
            bar = Display(self.console, trainer.config.whole_steps, trainer.step)
            shown: Any = contextlib.nullcontext(Quiet(self.console)) if self.quiet else bar
            with shown as display:
                job.run([display])
            if trainer.config.final_episodes:
                returns, lengths = job.evaluate([display])
                with interrupts.deferred():
                    probes = probe(trainer)
                final = zip(evaluation_data(trainer.agents, returns, lengths), probes, strict=True)
                directory.write_evaluation([one | {"step": trainer.step, "probe": plain(p, 4)} for one, p in final])
                if not self.quiet:
                    show_returns(self.console, trainer.agents, returns)
        except KeyboardInterrupt as error:
            where = "in the final evaluation" if trainer.finished else f"at {trainer.step:,} steps"
            self.say(f"\n{ended(error)} {where}; a checkpoint is saved. Continue with\n  {resume}")
            raise SystemExit(interrupts.exit_code(error)) from None
        except EnvironmentFault as error:
            said, line, where = str(error).partition("\n")
            raise EnvironmentFault(f"{said} A checkpoint is saved; continue with  {resume}{line}{where}") from None
        except MccltError as error:  # a disk that is full, a directory that is gone
            kept = f" Its last checkpoint is kept; continue with  {resume}" if checkpoints(directory.path) else ""
            raise MccltError(f"{error} The run stops at {trainer.step:,} steps.{kept}") from None
        if not self.quiet:
            self.say(f"Run directory: {directory.path}")
            self._look_at(directory.path)

    def _look_at(self, run: Path) -> None:
        self.say(f"Look at it:  mcclt report {shlex.quote(str(run))}")


def _evaluated(run: Path, step: int) -> bool:
    """Whether a run that is at this step has its final evaluation, undamaged."""
    from mcclt.experiments.cells import StoreError
    from mcclt.experiments.runs import final_of

    with contextlib.suppress(StoreError):
        return bool(final_of(run, step))
    return False


def _changed(settings: Mapping[str, Any]) -> list[str]:
    """Those that are not at their defaults."""
    return [n for n, value in settings.items() if coerce(AgentConfig, n, value) != getattr(AgentConfig, n)]


def _variant(name: str) -> dict[str, Any]:
    """A variant, alone or behind an algorithm's name: mcclt, trpo-mcclt."""
    if name in VARIANTS:
        return dict(VARIANTS[name])
    if "@" in name:
        raise ConfigError(
            f"{name!r} is not allowed: only `mcclt compare` takes settings after an @; give them to all variants as"
            " flags, or to one in a [groups.NAME] table of a --config file."
        )
    algo, _, variant = name.partition("-")
    if variant not in VARIANTS:
        raise UnknownNameError("variant", name, VARIANTS, "To choose its algorithm, put that first: trpo-mcclt.")
    return VARIANTS[variant] | {"algo": algo}
