"""Makes the zoo: of each task the agent of the median seed, with its card, and the table of docs/zoo.md.

    python benchmarks/zoo.py runs/HalfCheetah-v5__trpo-mcclt__20260101-120000 ...   # in place of those that are there
    python benchmarks/zoo.py                                                        # the table alone

What is given are run directories, saved models, stores with kept agents (--keep-agents) or folders of these; all agents
of a task must have been trained with the same settings, each with a seed of its own. Every one plays 100 deterministic
episodes; of an even number of seeds the lower of the two in the middle is taken.
"""

import argparse
import dataclasses
import shlex
import statistics
import tempfile
import textwrap
import time
from collections import defaultdict
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import render_docs

from mcclt import __version__, evaluate_policy, load
from mcclt.config import AgentConfig, RunConfig
from mcclt.config.effects import reads
from mcclt.config.values import fields_of
from mcclt.storage import runs
from mcclt.storage.configuration import from_dict, to_dict
from mcclt.training.saved import keepsake, only_seed, read_model
from mcclt.zoo import FOLDER, SUFFIX, Card, cards

EPISODES = 100
PAGE = render_docs.ROOT / "docs" / "zoo.md"
ASIDE = (
    *("engine", "threads", "step_timeout", "on_nan"),
    *("eval_freq", "eval_episodes", "final_episodes", "checkpoint_freq"),
)
"""Settings of a run that say how it was run, and not what is learnt: an agent of the zoo has the defaults."""


@dataclasses.dataclass(frozen=True)
class Candidate:
    """An agent that may come into the zoo."""

    config: RunConfig
    engine: str
    """What it was trained on."""
    model: bytes
    """As a file."""


def candidates(path: Path) -> Iterator[Candidate]:
    """The agents of a run, a saved model, a store, or a folder of saved models."""
    inside = sorted(path.rglob("*.safetensors*")) if path.is_dir() and not (path / "config.json").exists() else [path]
    for source in inside:
        arrays, meta, _ = read_model(source)
        if len(meta["config"]["groups"]) > 1:
            raise SystemExit(f"{source} has several groups: train the one that is meant alone.")
        for i in range(len(meta["config"]["seeds"])):
            own, about = only_seed(arrays, meta, i)
            config = from_dict(about["config"])
            config = dataclasses.replace(config, **{name: getattr(RunConfig, name) for name in ASIDE})
            model = keepsake(own, about | {"config": to_dict(config)})
            yield Candidate(config, meta["spec"]["engine"], model)


def choose(found: Sequence[Candidate], folder: Path = FOLDER) -> Card:
    """Evaluates the agents of one task, and writes that of the median seed with its card."""
    first = found[0]
    task = first.config.task
    seeds = [one.config.seeds[0] for one in found]
    if any(dataclasses.replace(one.config, seeds=first.config.seeds) != first.config for one in found):
        raise SystemExit(f"The agents of {task} were not all trained with the same settings: choose those that were.")
    if len(set(seeds)) < len(seeds):
        raise SystemExit(f"Two agents of {task} have the same seed.")
    returns = [play(one) for one in found]
    means = [statistics.mean(of_one) for of_one in returns]
    i = means.index(statistics.median_low(means))
    (agent,) = first.config.groups.values()
    settings = changed(first.config)
    card = Card(
        task=task,
        algo=agent.algo,
        critic=agent.critic,
        weighting=agent.weighting or "",
        steps=first.config.updates * first.config.steps_per_update,
        mean=round(means[i], 2),
        deviation=round(statistics.stdev(returns[i]), 2),
        episodes=EPISODES,
        seed=seeds[i],
        chosen=f"median of {len(seeds)}",
        seeds={str(seed): round(mean, 2) for seed, mean in sorted(zip(seeds, means, strict=True))},
        settings=settings,
        command=command(task, sorted(seeds), first.engine, settings),
        evaluated={"date": time.strftime("%Y-%m-%d", time.gmtime()), "mcclt": __version__}
        | {name: runs.versions()["packages"][name] for name in ("mujoco", "gymnasium", "jax")},
    )
    card.model(folder).write_bytes(found[i].model)
    card.write(folder)
    return card


def play(agent: Candidate) -> list[float]:
    """The returns of its episodes: those that `mcclt evaluate` runs."""
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / f"agent{SUFFIX}"
        file.write_bytes(agent.model)
        returns, _ = evaluate_policy(
            load(file), n_eval_episodes=EPISODES, return_episode_rewards=True, n_envs=agent.config.n_envs
        )
    return returns


def changed(config: RunConfig) -> dict[str, Any]:
    """The settings that are not the defaults, of the run and of its one agent; those that it does not read left out."""
    (agent,) = config.groups.values()
    run = {name: getattr(config, name) for name in fields_of(RunConfig) if name not in ("task", "seeds", "groups")}
    own = {name: value for name, value in vars(agent).items() if reads(agent, name)}
    return {
        **{name: value for name, value in run.items() if name == "steps" or value != getattr(RunConfig, name)},
        **{name: value for name, value in own.items() if name == "algo" or value != getattr(AgentConfig, name)},
    }


def command(task: str, seeds: Sequence[int], engine: str, settings: dict[str, Any]) -> str:
    """What trains agents with these settings."""
    whole = [*seeds] == [*range(seeds[0], seeds[-1] + 1)]
    words = ["mcclt", "train", task, "--seeds", f"{seeds[0]}..{seeds[-1]}" if whole else ",".join(map(str, seeds))]
    words += ["--engine", engine]
    for name, value in settings.items():
        flag = name.replace("_", "-")
        if isinstance(value, bool):
            words.append(f"--{flag}" if value else f"--no-{flag}")
        else:
            text = "unset" if value is None else ",".join(map(str, value)) if isinstance(value, tuple) else str(value)
            words += [f"--{flag}", text]
    return shlex.join(words)


def parts(found: Sequence[Card]) -> dict[str, str]:
    """What goes between the marks of docs/zoo.md."""
    lines = ["| `zoo:`… | algorithm, critic | steps | return | seed | every seed |", "|---|---|---|---|---|---|"]
    for card in found:
        every = ", ".join(f"{mean:,.0f}" for mean in sorted(card.seeds.values()))
        lines.append(
            f"| `{card.task}` | {card.algo.upper()}, {card.critic} | {card.steps:,} "
            f"| {card.score} | {card.seed}, {card.chosen} | {every} |"
        )
    commands = [" \\\n    ".join(textwrap.wrap(card.command, 100, break_on_hyphens=False)) for card in found]
    return {"zoo": "\n".join(lines), "zoo-commands": "\n".join(["```bash", *commands, "```"])}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("models", nargs="*", type=Path, metavar="MODEL")
    parser.add_argument("--folder", type=Path, default=FOLDER, help="where agents and cards go")
    args = parser.parse_args()
    tasks = defaultdict(list)
    for path in args.models:
        for one in candidates(path):
            tasks[one.config.task].append(one)
    before = {card.task: card for card in cards(args.folder)}
    for task, found in sorted(tasks.items()):
        card = choose(found, args.folder)
        was = f"; it was {before[task].score}" if task in before else ""
        print(f"{task}: {card.score}, seed {card.seed}, {card.chosen}{was}", flush=True)
    if args.folder == FOLDER:
        text = PAGE.read_text(encoding="utf-8")
        PAGE.write_text(render_docs.filled(text, parts(cards())), encoding="utf-8")


if __name__ == "__main__":
    main()
