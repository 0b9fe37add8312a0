"""The command line. Help texts come from the configuration; heavy modules are imported when needed."""

import contextlib
import dataclasses
import io
import json
import math
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import tyro

from mcclt.cli.flags import Comma, Seeds, Steps, Widths
from mcclt.cli.options import Compare, Report, Reproduce
from mcclt.config import (
    FREE,
    PRESETS,
    VARIANTS,
    AgentConfig,
    RunConfig,
    fields_of,
    override,
    read_file,
    to_dict,
)
from mcclt.console import plain_console
from mcclt.errors import ConfigError, EnvironmentFault, MccltError, UnknownNameError
from mcclt.training import plugins

if TYPE_CHECKING:
    from rich.console import Console

    from mcclt.storage.runs import Run
    from mcclt.training.loop import Trainer


# The configurations as flags: the same fields and sentences, with the spellings people type.


@dataclass(frozen=True)
class AgentFlags(AgentConfig):
    """How one agent learns."""

    policy_hidden: Widths = AgentConfig.policy_hidden
    critic_hidden: Widths = AgentConfig.critic_hidden

    def __post_init__(self) -> None:
        """Flags are checked as an `AgentConfig`, when preset and file are under them."""


@dataclass(frozen=True)
class RunFlags(RunConfig):
    """What is trained."""

    task: Annotated[str, tyro.conf.Positional, tyro.conf.arg(metavar="TASK")] = ""
    """A task id such as Hopper-v5; `mcclt envs` lists them."""
    seeds: Seeds = RunConfig.seeds
    steps: Steps = RunConfig.steps
    groups: Annotated[Mapping[str, AgentConfig], tyro.conf.Suppress] = dataclasses.field(
        default_factory=lambda: {"agent": AgentConfig()}
    )
    eval_freq: Steps = RunConfig.eval_freq
    checkpoint_freq: Steps = RunConfig.checkpoint_freq

    def __post_init__(self) -> None:
        """Flags are checked as a `RunConfig`, when the file is under them."""


@dataclass(frozen=True)
class Train:
    """Train agents on a task.

    mcclt train Hopper-v5 --seeds 0..7 --steps 1M --preset paper
    """

    run: Annotated[RunFlags, tyro.conf.arg(name="")]
    agent: Annotated[AgentFlags, tyro.conf.arg(name="")]
    variants: Comma = ()
    """Train several of the paper's variants together: plain, qr, mcclt-nw, ensemble, mcclt, explore; each with
    --algo, or with its own as in trpo-mcclt."""
    preset: str | None = None
    """paper: the authors' best configuration for this task."""
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


@dataclass(frozen=True)
class Evaluate:
    """Run deterministic episodes with a trained model.

    mcclt evaluate runs/Hopper-v5__ppo-mcclt__20260101-120000 --episodes 100
    """

    model: Annotated[Path, tyro.conf.Positional]
    """A saved model or a run directory."""
    episodes: int = 100
    """Episodes of each agent."""
    task: str | None = None
    """Another task of the same spaces to act in; unset: the one it was trained on."""
    json: bool = False
    """Print JSON instead of a table."""


@dataclass(frozen=True)
class Watch:
    """Record an episode and write a page that plays it, with what the critic believed at every moment.

    mcclt watch runs/Hopper-v5__ppo-mcclt__20260101-120000
    """

    model: Annotated[Path, tyro.conf.Positional]
    """A saved model or a run directory."""
    seeds: Seeds = ()
    """Agents to show side by side; unset: the first seed."""
    groups: Comma = ()
    """Groups to show side by side; unset: all."""
    episode_seed: int = 0
    """Names where the episode starts, and the noise of the actions."""
    deterministic: bool = False
    """The most likely actions, rather than draws."""
    steps: Steps = 1000
    """Stop after as many steps."""
    video: bool = True
    """Make a video; --no-video: charts alone, at once."""
    width: int = 480
    """Of the video, in pixels."""
    out: Path | None = None
    """The page; unset: watch.html in the run directory, MODEL.html for a saved model."""
    open: bool = True
    """Open the page in a browser, where there is a screen."""


@dataclass(frozen=True)
class Export:
    """Write a trained policy as a file that runs without this library.

    mcclt export runs/Hopper-v5__ppo-mcclt__20260101-120000 policy.onnx --seed 0
    """

    model: Annotated[Path, tyro.conf.Positional]
    """A saved model or a run directory."""
    out: Annotated[Path, tyro.conf.Positional]
    """policy.onnx (extra: onnx), or policy.npz for plain arrays."""
    seed: int | None = None
    """Which agent of a population."""
    group: str | None = None
    """Which group of a run."""
    value_distribution: bool = False
    """Also output bars, mean, std, normality error and weight of each state."""


@dataclass(frozen=True)
class Envs:
    """List the tasks, the engine that steps each, and its version."""

    json: bool = False
    """Print JSON instead of a table."""


@dataclass(frozen=True)
class Bench:
    """Measure speed and memory on this machine: engine, matrix products, each part, and the whole."""

    task: Annotated[str, tyro.conf.Positional] = "Hopper-v5"
    """The task to step."""
    algo: str = "ppo"
    """ppo or trpo."""
    updates: int = 6
    """Updates timed per variant, after one that compiles."""
    width: int = 128
    """Critic width."""
    population: int = 8
    """Seeds trained together in the population test; 0: none."""
    engine: str = "auto"
    """warp: measure a whole population on a GPU instead."""
    agents: int = 300
    """warp: how many agents."""
    out: Path | None = None
    """Also write the figures as JSON to this file."""


Command = (
    Annotated[Train, tyro.conf.subcommand("train")]
    | Annotated[Evaluate, tyro.conf.subcommand("evaluate")]
    | Annotated[Watch, tyro.conf.subcommand("watch")]
    | Annotated[Export, tyro.conf.subcommand("export")]
    | Annotated[Envs, tyro.conf.subcommand("envs")]
    | Annotated[Compare, tyro.conf.subcommand("compare")]
    | Annotated[Reproduce, tyro.conf.subcommand("reproduce")]
    | Annotated[Report, tyro.conf.subcommand("report")]
    | Annotated[Bench, tyro.conf.subcommand("bench")]
)

TRAIN_DEFAULT = Train(RunFlags(), AgentFlags())


def main(argv: list[str] | None = None) -> None:
    """Parses, runs, and turns our errors into one sentence and exit code 2."""
    args = sys.argv[1:] if argv is None else argv
    for out in (sys.stdout, sys.stderr):  # a terminal without Unicode gets question marks, not a traceback
        if isinstance(out, io.TextIOWrapper):
            out.reconfigure(errors="replace")
    try:
        if args == ["--version"]:
            from mcclt import __version__

            print(f"mcclt {__version__}")
            return
        plugins.import_named()
        match parse(args):
            case Train() as command:
                train(command, args[1:])
            case Evaluate() as command:
                evaluate(command)
            case Watch() as command:
                from mcclt.pages.watch import watch

                watch(**vars(command))
            case Export() as command:
                export(command)
            case Envs() as command:
                envs(command)
            case Compare() as command:
                from mcclt.cli.experiments import compare

                compare(command)
            case Reproduce() as command:
                from mcclt.cli.experiments import reproduce

                reproduce(command)
            case Report() as command:
                from mcclt.cli.experiments import report

                report(command)
            case Bench() as command:
                from mcclt.experiments.bench import bench

                bench(command)
    except MccltError as error:
        print(f"mcclt: {error}", file=sys.stderr)
        raise SystemExit(2) from None
    except KeyboardInterrupt:
        print("mcclt: interrupted", file=sys.stderr)
        raise SystemExit(130) from None
    except BrokenPipeError:  # the reader of a pipe went away
        sys.stderr.close()
        raise SystemExit(1) from None
    except OSError as error:  # a path that cannot even be looked at
        print(f"mcclt: {error}", file=sys.stderr)
        raise SystemExit(2) from None


def parse(args: list[str]) -> Any:
    """The command with its flags (before preset and file are applied)."""
    return tyro.cli(Command, prog="mcclt", description=__doc_short__, args=args)


__doc_short__ = "Distributional, uncertainty-aware PPO and TRPO for continuous control."


def parse_train(args: list[str], default: Train) -> Train:
    """Flags on top of other defaults."""
    return tyro.cli(Train, prog="mcclt train", default=default, args=args)


# --- mcclt train -------------------------------------------------------------------------------------------


def resolve(args: list[str]) -> tuple[RunConfig, Train]:
    """Defaults < preset < file < flags, for every group."""
    command = parse_train(args, TRAIN_DEFAULT)
    file = read_file(command.config) if command.config else {}
    file_groups = file.pop("groups", {})
    if not isinstance(file_groups, dict) or not all(isinstance(g, dict) for g in file_groups.values()):
        raise ConfigError('groups must be a table of tables, such as [groups.plain] critic = "plain".')
    run_file = {k: v for k, v in file.items() if k in fields_of(RunConfig)}
    agent_file = {k: v for k, v in file.items() if k not in run_file}
    command = _with_defaults(args, run_file, agent_file)
    if not command.run.task:
        raise ConfigError("Which task? Name one, such as  mcclt train Hopper-v5  (`mcclt envs` lists them).")
    if command.variants:
        if file_groups:
            raise ConfigError("--variants and the [groups] of a file both say what to train: leave one of them out.")
        for name in ("critic", "weighting"):
            if getattr(command.agent, name) != getattr(TRAIN_DEFAULT.agent, name):
                raise ConfigError(f"--variants fixes each group's critic and weighting: leave out {name}.")
        groups = {name: _variant(name) for name in command.variants}
    else:
        groups = file_groups or {_label(command.agent): {}}
    agents = {}
    for name, group in groups.items():
        # Parsed once to know algorithm and critic, which choose the preset; once more on top of it.
        known = _with_defaults(args, run_file, agent_file | group).agent
        if command.variants:
            known = override(known, group)
        preset = {}
        if command.preset is not None:
            if command.preset not in PRESETS:
                raise UnknownNameError("preset", command.preset, PRESETS)
            preset = PRESETS[command.preset](command.run.task, known.algo, known.critic)
        agent = _with_defaults(args, run_file, preset | agent_file | group).agent
        # A variant of the paper is what it is; a group from a file may be changed by flags, like all of the file.
        fixed = group if command.variants else {}
        agents[name] = override(AgentConfig(**_own(agent, AgentConfig)), fixed)
    settings = _own(command.run, RunConfig) | {"groups": agents}
    return RunConfig(**settings), command


def _with_defaults(args: list[str], run: dict[str, Any], agent: dict[str, Any]) -> Train:
    return parse_train(args, Train(override(RunFlags(), run), override(AgentFlags(), agent)))


def _own(config: Any, cls: type) -> dict[str, Any]:
    return {name: getattr(config, name) for name in fields_of(cls)}


def _variant(name: str) -> dict[str, Any]:
    """A variant of the paper, alone or behind an algorithm's name: mcclt, trpo-mcclt."""
    if name in VARIANTS:
        return dict(VARIANTS[name])
    algo, _, variant = name.partition("-")
    if variant not in VARIANTS:
        raise UnknownNameError("variant", name, VARIANTS, "Put an algorithm before it to fix that: trpo-mcclt.")
    return VARIANTS[variant] | {"algo": algo}


def _label(agent: AgentConfig) -> str:
    """The paper's name for a combination, or its parts."""
    for name, parts in VARIANTS.items():
        if parts["critic"] == agent.critic and agent.weighting in (None, parts["weighting"]):
            if agent.weighting is None and name == "mcclt-nw":
                continue  # unset means the paper's pairing: MC-CLT with its weights
            return f"{agent.algo}-{name}"
    return f"{agent.algo}-{agent.critic}-{agent.weighting}"


def resume_config(args: list[str], command: Train) -> RunConfig:
    """The stored configuration; flags may raise `steps`, and change what does not change the learning."""
    from mcclt.storage.runs import stored_config

    assert command.resume is not None
    stored = stored_config(command.resume)
    if command.variants or command.preset or command.config or command.out:
        raise ConfigError("--resume continues a run as it is: leave out --variants, --preset, --config and --out.")
    changed = []
    for agent in stored.groups.values():  # a flag speaks to every group
        default = Train(RunFlags(**_own(stored, RunConfig)), AgentFlags(**_own(agent, AgentConfig)))
        asked = parse_train(args, default)
        changed += [n for n in fields_of(AgentConfig) if getattr(asked.agent, n) != getattr(agent, n)]
    changed += [n for n in fields_of(RunConfig) if getattr(asked.run, n) != getattr(stored, n) and n not in FREE]
    if changed:
        raise ConfigError(
            f"{command.resume} was started with another {changed[0]}: resuming must not change the configuration."
            " Leave the flag out, or start a new run."
        )
    if asked.run.steps < stored.steps:
        raise ConfigError(f"{command.resume} was started with {stored.steps:,} steps, which can only be raised.")
    return dataclasses.replace(stored, **{name: getattr(asked.run, name) for name in FREE})


def train(command: Train, args: list[str]) -> None:
    """`mcclt train`."""
    config, command = (resume_config(args, command), command) if command.resume is not None else resolve(args)
    console = plain_console()
    from mcclt.storage import runs
    from mcclt.training.compilation import use_cache
    from mcclt.training.loop import Trainer

    use_cache()
    trainer = Trainer(config)  # before anything is written: this is where bad names and tasks are found
    with contextlib.closing(trainer):
        if command.resume is None:
            run = runs.Run.create(command.out or runs.default_path(config), trainer.config, command.wandb)
            if not command.quiet:
                show_config(console, trainer.config, trainer.spec.engine)
        else:
            run = _resume(command, trainer, console)
        with contextlib.closing(run):
            _train(trainer, run, console, command.quiet)


def _resume(command: Train, trainer: "Trainer", console: "Console") -> "Run":
    """Puts the trainer where the newest good checkpoint left it, and says what a person should know."""
    from mcclt.storage import runs
    from mcclt.training.loop import new_episodes

    assert command.resume is not None
    arrays, meta, file, passed = runs.load_latest(command.resume)
    exact = trainer.restore(arrays, meta, file)
    for line in passed:
        console.print(f"Passed over: {line}", soft_wrap=True)
    run = runs.Run.resume(command.resume, trainer.config, trainer.update, command.wandb)
    console.print(f"Resuming {run.path} at {trainer.step:,} steps.", soft_wrap=True)
    if not exact:
        console.print(new_episodes(trainer.spec), soft_wrap=True)
    return run


def _train(trainer: "Trainer", run: Any, console: "Console", quiet: bool) -> None:
    from mcclt import interrupts
    from mcclt.storage.runs import checkpoints, resume_command
    from mcclt.training.loop import run as run_training
    from mcclt.training.progress import Display, Quiet

    resume = resume_command(run.path)
    config = trainer.config
    try:
        with contextlib.ExitStack() as stack:
            display: Any = Quiet(console)
            if not quiet:
                display = stack.enter_context(Display(console, config.steps, trainer.step))
            run_training(trainer, [run, display], lambda: run.save(trainer))
        if config.final_episodes:
            with interrupts.deferred():
                returns, lengths = trainer.evaluate(config.final_episodes, 0)
            for text in trainer.messages:
                run.on_message(text)
                display.on_message(text)
            run.write_evaluation(evaluation_data(trainer.agents, returns, lengths))
            if not quiet:
                show_returns(console, trainer.agents, returns)
    except KeyboardInterrupt:
        where = "in the final evaluation" if trainer.finished else f"at {trainer.step:,} steps"
        console.print(f"\nInterrupted {where}; a checkpoint is saved. Continue with\n  {resume}", soft_wrap=True)
        raise SystemExit(130) from None
    except EnvironmentFault as error:
        raise EnvironmentFault(f"{error} A checkpoint is saved; continue with  {resume}") from None
    except MccltError as error:  # a disk that is full, a directory that is gone
        kept = f" Its last checkpoint is kept; continue with  {resume}" if checkpoints(run.path) else ""
        raise MccltError(f"{error} The run stops at {trainer.step:,} steps.{kept}") from None
    if not quiet:
        console.print(f"Run directory: {run.path}", soft_wrap=True)


def evaluation_data(agents: list[tuple[str, int]], returns: Any, lengths: Any) -> list[dict[str, Any]]:
    """One record per agent."""
    return [
        # JSON has no NaN: an episode that failed is null
        {
            "group": g,
            "seed": s,
            "returns": [float(x) if math.isfinite(x) else None for x in r],
            "lengths": [int(x) for x in n],
        }
        for (g, s), r, n in zip(agents, returns, lengths, strict=True)
    ]


def show_config(console: "Console", config: RunConfig, engine: str) -> None:
    """Prints the resolved configuration, a column per group."""
    from rich.table import Table

    table = Table(title=f"{config.task} on the {engine} engine", title_justify="left")
    table.add_column("setting", no_wrap=True)
    for name in config.groups:
        table.add_column(name)
    data = to_dict(config)
    for name in fields_of(RunConfig):
        if name not in ("task", "groups"):
            value = data[name]
            table.add_row(name, *[_short(value)] * len(config.groups))
    table.add_section()
    for name in fields_of(AgentConfig):
        table.add_row(name, *(_short(getattr(agent, name)) for agent in config.groups.values()))
    console.print(table)


def _short(value: Any) -> str:
    if isinstance(value, list | tuple):
        if len(value) > 4 and list(value) == list(range(value[0], value[-1] + 1)):
            return f"{value[0]}..{value[-1]}"
        return ",".join(map(str, value))
    return f"{value:,}" if type(value) is int and value >= 10_000 else "–" if value is None else str(value)


def show_returns(console: "Console", agents: list[tuple[str, int]], returns: Any) -> None:
    """A table of deterministic returns: mean over episodes for each seed, mean ± SE over seeds per group."""
    import numpy as np
    from rich.table import Table

    table = Table(title=f"Deterministic returns, {returns.shape[1]} episodes per seed", title_justify="left")
    for column in ("group", "seeds", "mean", "± SE over seeds", "lowest seed", "highest seed"):
        table.add_column(column, justify="left" if column == "group" else "right")
    for group in dict.fromkeys(g for g, _ in agents):
        means = np.array([returns[i].mean() for i, (g, _) in enumerate(agents) if g == group])
        error = f"{means.std(ddof=1) / np.sqrt(len(means)):.1f}" if len(means) > 1 else "–"
        table.add_row(group, str(len(means)), f"{means.mean():.1f}", error, f"{means.min():.1f}", f"{means.max():.1f}")
    console.print(table)


# --- the other commands ------------------------------------------------------------------------------------


def evaluate(command: Evaluate) -> None:
    """`mcclt evaluate`."""
    import numpy as np

    if command.episodes < 1:
        raise ConfigError(f"episodes = {command.episodes} is not allowed: it must be at least 1.")
    from mcclt.training.model import evaluate_policy, load, read_model

    _, meta, _ = read_model(command.model)
    agents, rows, steps = [], [], []
    for group in meta["config"]["groups"]:
        model = load(command.model, group=group)
        for seed in model.seeds:
            returns, lengths = evaluate_policy(
                model,
                command.task,
                command.episodes,
                return_episode_rewards=True,
                seed=seed,
                n_envs=model.config.n_envs,
            )
            agents.append((group, seed))
            rows.append(returns)
            steps.append(lengths)
    if command.json:
        print(json.dumps(evaluation_data(agents, rows, steps)))
    else:
        show_returns(plain_console(), agents, np.array(rows))


def export(command: Export) -> None:
    """`mcclt export`."""
    from mcclt.interop.export import export as write

    path = write(command.model, command.out, command.seed, command.group, command.value_distribution)
    plain_console().print(f"Policy: {path}", soft_wrap=True)


def envs(command: Envs) -> None:
    """`mcclt envs`."""
    from mcclt.envs import list_tasks

    rows = list_tasks()
    if command.json:
        print(json.dumps([row._asdict() for row in rows]))
        return
    from rich.table import Table

    table = Table(title="Tasks (any other Gymnasium id works too)", title_justify="left")
    for column in ("task", "engine", "version", "limit", "exact resume", "other engines"):
        table.add_column(column, no_wrap=column == "task")
    for row in rows:
        others = ", ".join(e for e in row.engines if e != row.engine)
        exact = "yes" if row.resumable else "new episodes"
        table.add_row(row.task, row.engine, row.version, str(row.max_episode_steps or "–"), exact, others)
    plain_console().print(table)
