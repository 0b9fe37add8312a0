"""Pretrained agents: what their cards say is so, and they are found wherever a model is asked for."""

import dataclasses
import importlib
import json
import math
import re
import shlex
import statistics
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from commands import Cli
from mcclt import PPO, evaluate_policy, load, make_vec, zoo
from mcclt.cli.train import Train
from mcclt.errors import UnknownNameError
from mcclt.method.randomness import Purpose
from mcclt.training.environments import keys_of
from mcclt.training.evaluate import run_episodes
from probes import PENDULUM, TINY

CARDS = zoo.cards()
SLOW = {"LunarLanderContinuous-v3", "BipedalWalker-v3", "Ant-v5", "Walker2d-v5", "Swimmer-v5"}
BY_NAME = pytest.mark.parametrize("card", CARDS, ids=lambda card: card.task)
ROOT = Path(__file__).parents[2]


@pytest.fixture
def mcclt(capsys: pytest.CaptureFixture[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Cli:
    monkeypatch.chdir(tmp_path)
    return Cli(capsys)


@pytest.mark.parametrize(
    "card",
    [pytest.param(c, id=c.task, marks=[pytest.mark.slow] if c.task in SLOW else []) for c in CARDS],
)
def test_an_agent_returns_what_its_card_says(card: zoo.Card) -> None:
    """20 episodes, none of them of the card's 100.

    Their mean is that of the card but for chance: within 4 standard errors of the difference of both means, plus 1 %
    for another machine's rounding, which matters where an agent's episodes are all alike.
    """
    model, episodes = load(f"zoo:{card.task}"), 20
    keys = keys_of([card.seed], Purpose.EVAL_RESET, 1, episodes)  # the card's are of round 0
    vec = make_vec(card.task, keys)
    try:
        found = run_episodes(vec, lambda obs: model.predict(obs[0], deterministic=True)[0][None], 1, episodes)
    finally:
        vec.close()
    assert not found.faults
    chance = card.deviation * math.sqrt(1 / episodes + 1 / card.episodes)
    assert found.returns.mean() == pytest.approx(card.mean, abs=4 * chance + 0.01 * abs(card.mean))


@BY_NAME
def test_a_card_is_of_its_agent(card: zoo.Card) -> None:
    model = load(f"zoo:{card.task}")
    (agent,) = model.config.groups.values()
    assert (model.config.task, model.seeds, model.num_timesteps) == (card.task, (card.seed,), card.steps)
    assert (agent.algo, agent.critic, agent.weighting) == (card.algo, card.critic, card.weighting)
    assert card.model().stat().st_size < 500_000
    assert card.episodes == 100 and math.isfinite(card.deviation)


@BY_NAME
def test_the_command_of_a_card_trains_its_agent(card: zoo.Card) -> None:
    program, name, *flags = shlex.split(card.command)
    assert (program, name) == ("mcclt", "train")
    config = Train.parse(flags).resolve()
    assert config.seeds == tuple(map(int, card.seeds))
    own = load(f"zoo:{card.task}").config
    assert dataclasses.replace(config, seeds=own.seeds, engine=own.engine, groups=own.groups) == own
    (agent,), (trained,) = config.groups.values(), own.groups.values()
    assert agent == trained


@BY_NAME
def test_the_seed_is_the_median(card: zoo.Card) -> None:
    assert card.chosen == f"median of {len(card.seeds)}"
    assert card.seeds[str(card.seed)] == card.mean == statistics.median_low(card.seeds.values())


# --- where a model is asked for ------------------------------------------------------------------------------

ONE = next(card for card in CARDS if card.task == "Hopper-v5")


def test_zoo_lists_them(mcclt: Cli) -> None:
    out, _ = mcclt("zoo")
    for card in CARDS:
        (line,) = [line for line in out.splitlines() if f" {card.task} " in line]
        seed = f" {card.seed} │ {len(card.seeds):>2} "
        for word in (f"{card.algo} {card.critic}", card.score, seed):
            assert word in line
        assert f"{card.model().stat().st_size / 1000:.0f} kB" in line
    assert json.loads(mcclt("zoo", "--json")[0]) == [dataclasses.asdict(card) for card in CARDS]


def test_commands_and_python_take_them(mcclt: Cli) -> None:
    model = load(f"zoo:{ONE.task}")
    data = json.loads(mcclt("evaluate", f"zoo:{ONE.task}", "--episodes", "2", "--json")[0])
    assert [(record["seed"], len(record["returns"])) for record in data] == [(ONE.seed, 2)]
    mcclt("export", f"zoo:{ONE.task}", "policy.npz")
    with np.load("policy.npz") as arrays:
        assert "readme" in arrays
    out, _ = mcclt("watch", f"zoo:{ONE.task}", "--no-video", "--steps", "5")
    assert "after 5 steps" in out and Path(f"{ONE.task}.html").exists()
    assert type(model).load(Path(f"zoo:{ONE.task}")).seeds == model.seeds


def test_a_name_that_is_not_there_is_refused(mcclt: Cli) -> None:
    near = ONE.task.rpartition("-")[0].lower()
    for command in (["watch"], ["evaluate"], ["export", "x.npz"]):
        name, *rest = command
        said = mcclt.refused(name, f"zoo:{near}", *rest)
        assert f"Unknown agent of the zoo '{near}'. Did you mean '{ONE.task}'? Allowed: " in said
        assert all(card.task in said for card in CARDS)
    for name in ("zoo:", "zoo:../zoo/x", f"zoo:{ONE.task}.json"):
        with pytest.raises(UnknownNameError, match="`mcclt zoo` lists them"):
            load(name)


def test_agents_of_two_tasks_are_refused_before_they_are_recorded(mcclt: Cli) -> None:
    assert "One page shows recordings of one task, not of 2" in mcclt.refused("watch", "zoo:Hopper-v5,zoo:Swimmer-v5")
    assert not Path("Hopper-v5.html").exists()


def test_agents_that_the_documentation_names_are_there() -> None:
    pages = [ROOT / "README.md", *(ROOT / "docs").rglob("*.md"), *(ROOT / "src" / "mcclt").rglob("*.py")]
    named = {n for page in pages for n in re.findall(r"zoo:(\w+-v\d)", page.read_text(encoding="utf-8"))}
    assert "Hopper-v5" in named and named <= {card.task for card in CARDS}


# --- benchmarks/zoo.py -----------------------------------------------------------------------------------------


@pytest.fixture
def script(monkeypatch: pytest.MonkeyPatch) -> Any:
    monkeypatch.syspath_prepend(str(ROOT / "benchmarks"))
    return importlib.import_module("zoo")


def test_the_page_is_what_the_cards_say(script: Any) -> None:
    text = script.PAGE.read_text(encoding="utf-8")
    assert script.render_docs.filled(text, script.parts(CARDS)) == text


def test_the_median_seed_is_kept(script: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """From a run of three seeds and a model of a fourth: the lower of the two in the middle, by hand."""
    monkeypatch.setattr(script, "EPISODES", 4)
    settings = TINY | {"n_envs": 2, "steps_per_update": 16, "threads": 1, "w_tar": 0.95}
    models = [PPO(PENDULUM, seed=seed, **settings).learn(16) for seed in ([5, 6, 7], 9)]
    for i, model in enumerate(models):
        model.save(tmp_path / "trained" / str(i))
    run = [sys.executable, str(tmp_path / "trained"), "--folder", str(tmp_path)]
    monkeypatch.setattr(sys, "argv", run)
    script.main()
    (card,) = zoo.cards(tmp_path)
    means = {
        seed: evaluate_policy(model, n_eval_episodes=4, seed=seed, n_envs=2)[0]
        for model in models
        for seed in model.seeds
    }
    assert card.seeds == {str(seed): pytest.approx(mean, abs=0.01) for seed, mean in means.items()}
    assert card.seed == sorted(means, key=means.__getitem__)[1] and card.chosen == "median of 4"
    kept = load(card.model(tmp_path))
    obs = np.random.default_rng(0).normal(size=(8, 9)).astype(np.float32)
    owner = models[card.seed == 9]
    np.testing.assert_array_equal(
        kept.predict(obs, deterministic=True)[0], owner.predict(obs, deterministic=True, seed=card.seed)[0]
    )
    assert (kept.config.threads, kept.config.engine) == (None, "auto"), "it runs elsewhere, too"
    config = Train.parse(shlex.split(card.command)[2:]).resolve()
    assert config.seeds == (5, 6, 7, 9) and config.engine == "native"
    assert next(iter(config.groups.values())) == next(iter(kept.config.groups.values()))

    PPO(PENDULUM, seed=10, **settings | {"w_tar": 0.9}).learn(16).save(tmp_path / "trained" / "2")
    with pytest.raises(SystemExit, match="not all trained with the same settings"):
        script.main()
