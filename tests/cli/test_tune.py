"""`mcclt tune`, as it is typed."""

import json
import shlex
import tomllib
from pathlib import Path

import numpy as np
import pytest

from mcclt.cli import main
from mcclt.cli.train import Train
from mcclt.cli.tune import _duration
from mcclt.experiments.analysis.stats import summarise
from mcclt.experiments.setups import Setup
from mcclt.tuning import Plan, confirm
from mcclt.tuning.search import Trial
from mcclt.tuning.tuner import Status

SPACE = """
[search]
learning_rate = { low = 1e-4, high = 1e-2, scale = "log" }
gamma = { low = 0.9, high = 0.999, scale = "complement" }
[fixed]
policy_hidden = [4]
critic_hidden = [8]
n_quantiles = 4
n_envs = 2
steps_per_update = 16
policy_iterations = 2
critic_iterations = 2
"""
SMALL = "--trials 5 --steps 80 --confirm 1 --n-seeds 2 --episodes 2".split()


def tune(folder: Path, *flags: str) -> None:
    (folder / "space.toml").write_text(SPACE)
    task = ["tune", "InvertedDoublePendulum-v5", "--space", str(folder / "space.toml")]
    main([*task, "--store", str(folder / "s"), *SMALL, *flags])


@pytest.mark.parametrize("confirm", ["0", pytest.param("1", marks=pytest.mark.slow)])  # the default is no small agent
def test_a_search_ends_with_settings_that_train_takes(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], confirm: str
) -> None:
    tune(tmp_path, "--confirm", confirm)
    said = capsys.readouterr().out
    assert "5 settings, 5 agents at once; compared at 16, 32, 80 steps" in said
    default, page = "mcclt train InvertedDoublePendulum-v5 --algo ppo", (tmp_path / "s/search.html").read_text()
    assert ("On fresh seeds" in said) == (f"<code>{default}</code>" in page) == (confirm == "1")
    if confirm == "1":
        assert f"The default is what this trains:  {default}" in said
        assert all("default is undecided" in text or "better than" in text for text in (said, page))
        assert f"fresh seeds the default ({default}) gave" in (tmp_path / "s/best.toml").read_text()
    best = tomllib.loads((tmp_path / "s/best.toml").read_text())
    trials = json.loads((tmp_path / "s/trials.json").read_text())["trials"]
    assert best["gamma"] in {trial["settings"]["gamma"] for trial in trials} and len(trials) == 5
    assert "setting-" in page and "What mattered" in page
    import optuna

    storage = optuna.storages.JournalStorage(optuna.storages.journal.JournalFileBackend(str(tmp_path / "s/optuna.log")))
    study = optuna.load_study(study_name="InvertedDoublePendulum-v5", storage=storage)
    assert len(study.trials) == 5
    out = str(tmp_path / "run")
    main(["train", "--config", str(tmp_path / "s/best.toml"), "--steps", "32", "--final-episodes", "1", "--out", out])
    before = (tmp_path / "s/best.toml").read_text()
    tune(tmp_path, "--confirm", confirm)  # all is there: the same again, and nothing is trained
    assert (tmp_path / "s/best.toml").read_text() == before


def test_both_algorithms_are_searched_and_the_better_one_wins(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    both = "--algo ppo,trpo --trials 3 --confirm 0 --fix n_quantiles=3,cg_max_steps=2,clip_range=0.3".split()
    tune(tmp_path, *both)
    said = capsys.readouterr().out
    assert "6 settings, 3 agents at once" in said and "2 structures to compile" in said
    trials = json.loads((tmp_path / "s/trials.json").read_text())["trials"]
    assert sorted(trial["structure"]["algo"] for trial in trials) == ["ppo"] * 3 + ["trpo"] * 3
    assert all(("clip_range" in t["settings"]) == (t["settings"]["algo"] == "ppo") for t in trials)
    assert all(("cg_max_steps" in t["settings"]) == (t["settings"]["algo"] == "trpo") for t in trials)
    winner = next(trial for trial in trials if trial["state"] == "finished")
    assert tomllib.loads((tmp_path / "s/best.toml").read_text())["algo"] == winner["settings"]["algo"]
    page = (tmp_path / "s/search.html").read_text()
    assert [page.count(f"<h3>{name}</h3>") for name in ("PPO", "TRPO")] == [2, 2]
    tune(tmp_path, *both)  # the same search, and nothing is trained
    assert json.loads((tmp_path / "s/trials.json").read_text())["trials"] == trials


@pytest.mark.parametrize("settings", [{"algo": "trpo", "gamma": 0.9}, {"max_episode_steps": 50, "critic": "plain"}])
def test_the_default_is_what_its_command_trains(settings: dict[str, object]) -> None:
    best = Trial(3, {}, {}, settings)
    default, own = confirm.setups(Plan("Hopper-v5", 8, 1, (600,)), [best], episodes=5, engine="auto")
    scores = np.zeros(2)
    found = [confirm.Confirmed(default, None, scores, summarise(scores), 0.0, None)]
    command, train, *words = shlex.split(confirm.default_command(found))
    assert (command, train) == ("mcclt", "train")
    typed = Train.parse([*words, "--steps", "600", "--final-episodes", "5"]).resolve()
    assert Setup("default", typed) == default
    assert own.agent != default.agent


def test_the_cost_is_said_without_beginning(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    tune(tmp_path, "--plan")
    assert "the search takes about" in capsys.readouterr().out
    assert not (tmp_path / "s").exists()


def test_a_plan_of_fewer_updates_than_tell_the_speed(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    tune(tmp_path, "--plan", "--trials", "1", "--steps", "16", "--confirm", "3")
    said = " ".join(capsys.readouterr().out.split())
    assert "1 setting, 1 agent at once" in said and "The whole search took" in said
    assert "The confirmation takes 64 more. 1 structure to compile." in said, "one setting and the default, two seeds"
    assert "An episode may take 1,000 steps, and each environment makes 8 before" in said


def test_a_search_in_which_no_episode_ends(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("mcclt.tuning.tuner.score_of", lambda *_: -np.inf)
    with pytest.raises(SystemExit):
        tune(tmp_path, "--trials", "1", "--steps", "16")
    assert "no episode ended. Raise --steps or --rungs, in another --store." in capsys.readouterr().err


def test_a_search_that_ends_before_its_first_rung(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def press(*_: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr("mcclt.tuning.Tuner.run", press)
    with pytest.raises(SystemExit):
        tune(tmp_path)
    said = capsys.readouterr().out
    assert "Interrupted; nothing is lost" in said and "Best settings" not in said


@pytest.mark.parametrize(("left", "said"), [(600_000, "10 min"), (-5, "0 s")])
def test_how_long_a_search_takes_is_never_negative(left: int, said: str) -> None:
    """1,000 steps/s; what is expected is a guess, and a search may have made more steps already."""
    seen = [Status(1_000 * k, 0, (), 1, 1, 1, 1.0, float(k), 2.0, None) for k in range(1, 5)]
    found = _duration(seen, left, 0, 0)
    assert f"1,000 steps/s here after 2 s of compiling: the search takes about {said}, if" in found
    assert "confirmation" not in found
    assert "the confirmation at that speed 30 s." in _duration(seen, left, 30_000, 0)


def test_on_a_gpu_a_search_takes_as_long_as_its_longest_trial() -> None:
    seen = [Status(8_000 * k, 0, (), 8, 8, 8, 1.0, float(k), 2.0, None) for k in range(1, 5)]
    assert "8,000 steps/s here after 2 s of compiling: the search takes about 50 s, if" in _duration(
        seen, 80_000, 0, 50_000
    )
    assert "the confirmation at that speed 50 s." in _duration(seen, 80_000, 100_000, 50_000)


@pytest.mark.parametrize(
    ("flags", "said"),
    [
        (["--fix", "gama=0.9"], "Did you mean 'gamma'"),
        (["--fix", "gamma"], "write name=value"),
        (["--fix", "gamma=2"], "gamma = 2.0 is not allowed"),
        (["--fix", "gamma=0.9,learning_rate=1e-3"], "searches no number"),
        (["--trials", "0"], "trials = 0 is not allowed"),
        (["--fix", "cg_damping=1"], "cg_damping has no effect: it is a setting of TRPO"),
        (["--fix", "algo=trpo"], "learning_rate has no effect: it is a setting of PPO"),
        (["--rungs", "400,200"], "growing numbers of steps"),
        (["--rungs", "200,400"], "--rungs ends at 400 steps and --steps says 80"),
        (["--strategy", "pbt", "--trials", "2"], "pbt needs at least 4"),
        (["--confirm", "-1"], "confirm = -1 is not allowed"),
        (["--seeds", "9999..10000", "--n-seeds", "unset"], "Seed 10000 is one of the search's own"),
        (["--episodes", "0"], "episodes = 0 is not allowed: it must be at least 1"),
        (["--fix", "gamma=0.9", "--fix", "clip_range=0.1"], "--fix is given more than once"),
        (["--fix", "minibatch_size=100000"], "minibatch_size = 100000 is not allowed: it must be at most"),
        (["--fix", "critic=nonsense"], "nonsense"),
        (["--strategy", "pbt", "--population", "3"], "pbt trains all settings at once"),
        (["--sampler", "cma"], "cma"),
        (["--plan", "--workers", "2"], "--plan measures one process of this machine"),
        (["--backend", "ray", "--workers", "2"], "--workers is for this machine"),
    ],
)
def test_what_makes_no_sense_is_one_sentence(
    tmp_path: Path, flags: list[str], said: str, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit) as end:
        tune(tmp_path, *flags)
    assert end.value.code == 2
    error = capsys.readouterr().err
    assert said in error and error.count("\n") == 1
    assert not (tmp_path / "s").exists()


def test_samplers_and_strategies(tmp_path: Path) -> None:
    for name, flags in {"tpe": ["--sampler", "tpe"], "pbt": ["--strategy", "pbt"], "area": ["--score", "area"]}.items():
        folder = tmp_path / name
        folder.mkdir()
        tune(folder, *flags, "--confirm", "0", "--quiet")
        assert len(json.loads((folder / "s/trials.json").read_text())["trials"]) == 5
