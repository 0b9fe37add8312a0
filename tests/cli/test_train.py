"""`mcclt train` and `mcclt evaluate` as a stranger uses them."""

import json
import re
from pathlib import Path

import numpy as np
import pytest

from commands import TINY, Cli
from mcclt.config import AgentConfig, RunConfig
from mcclt.config.values import fields_of
from mcclt.storage import checkpoint, runs
from probes import PENDULUM, TINY_FLAGS, Broken, agent, run_config


def test_train_writes_everything(finished: Path) -> None:
    names = {p.name for p in finished.iterdir()}
    assert {"config.json", "versions.json", "metrics.jsonl", "tensorboard", "checkpoints", "evaluation.json"} <= names
    assert len((finished / "metrics.jsonl").read_text().splitlines()) == 4 * 2
    records = json.loads((finished / "evaluation.json").read_text())
    assert [(r["group"], r["seed"]) for r in records] == [("ppo-plain", 0), ("ppo-plain", 4)]
    assert all(len(r["returns"]) == len(r["lengths"]) == 3 for r in records)
    assert [p.name for p in runs.checkpoints(finished)] == [f"update-{u:06d}.safetensors" for u in (2, 3, 4)]


def test_train_prints_plain_lines(mcclt: Cli) -> None:
    out, err = mcclt("train", PENDULUM, *TINY, "--steps", "63", "--final-episodes", "1", "--out", "run")
    assert err == "" and "\r" not in out
    run = runs.stored_config(Path("run"))
    ((_, agent),) = run.groups.items()
    for own, default in ((run, RunConfig(run.task)), (agent, AgentConfig())):
        for name in fields_of(type(own)):
            changed = getattr(own, name) != getattr(default, name) or name in ("steps", "seeds", "algo", "critic")
            shown = re.search(rf"│ {name} ", out) is not None
            assert shown == (changed or name == "weighting") or name in ("groups", "engine"), name
    assert "--preset tuned, the best known for InvertedDoublePendulum." in out, "for who names no preset"
    steps = re.findall(r"^ +(\d+) / 64 steps .*s left  ppo-plain ", out, re.MULTILINE)
    assert steps == ["16", "32", "48", "64"]
    assert "Run directory: run" in out and "Deterministic returns, 1 episode per seed" in out


def test_a_finished_run_says_so(mcclt: Cli) -> None:
    mcclt("train", PENDULUM, *TINY, "--final-episodes", "2", "--out", "run", "--quiet")
    out, _ = mcclt("train", "--resume", "run")
    assert "run is finished, at 64 steps" in out and "mcclt train --resume run --steps 128" in out
    assert out.endswith("Look at it:  mcclt report run\n")
    out, _ = mcclt("evaluate", "run", "--episodes", "4")
    assert "deviation" in out and "lowest" in out


def test_quiet(mcclt: Cli) -> None:
    assert mcclt("train", PENDULUM, *TINY, "--final-episodes", "1", "--out", "run", "--quiet") == ("", "")
    assert Path("run/evaluation.json").exists()


def test_default_directory(mcclt: Cli) -> None:
    mcclt("train", PENDULUM, *TINY, "--steps", "16", "--quiet")
    (path,) = Path("runs").iterdir()
    assert re.fullmatch(r"InvertedDoublePendulum-v5__ppo-plain__\d{8}-\d{6}", path.name)


def test_settings_reach_the_trainer(mcclt: Cli) -> None:
    """The configuration that is stored is the one that was asked for, and the one that was trained."""
    mcclt("train", PENDULUM, *TINY, "--seeds", "3", "--out", "run", "--quiet")
    stored = runs.stored_config(Path("run"))
    assert stored == run_config(groups={"ppo-plain": agent(critic="plain", weighting="uniform", members=1)}, seeds=(3,))
    assert checkpoint.load(runs.checkpoints(Path("run"))[-1])[1]["config"] == json.loads(
        Path("run/config.json").read_text()
    )


def test_variants_end_to_end(mcclt: Cli) -> None:
    out, _ = mcclt("train", PENDULUM, *TINY_FLAGS, "--variants", "plain,mcclt", "--final-episodes", "1", "--out", "run")
    assert "plain" in out and "mcclt" in out and "--preset" not in out
    groups = {json.loads(line)["group"] for line in Path("run/metrics.jsonl").read_text().splitlines()}
    assert groups == {"ppo-plain", "ppo-mcclt"}
    assert [p.name for p in sorted(Path("run/tensorboard").iterdir())] == ["ppo-mcclt", "ppo-plain"]
    table, _ = mcclt("evaluate", "run", "--episodes", "1")
    assert "plain" in table and "mcclt" in table


def test_evaluate(mcclt: Cli, finished: Path) -> None:
    out, err = mcclt("evaluate", finished, "--episodes", "3")
    assert err == "" and "ppo-plain" in out and "3 episodes" in out
    records = json.loads(mcclt("evaluate", finished, "--episodes", "3", "--json")[0])
    assert [(r["group"], r["seed"], len(r["returns"])) for r in records] == [("ppo-plain", 0, 3), ("ppo-plain", 4, 3)]
    again = json.loads(mcclt("evaluate", runs.checkpoints(finished)[-1], "--episodes", "3", "--json")[0])
    assert again == records
    (one,) = json.loads(
        mcclt("evaluate", finished, "--episodes", "3", "--json", "--seeds", "4", "--groups", "ppo-plain")[0]
    )
    assert one == records[1]
    for r in records:
        assert all(np.isfinite(r["returns"])) and min(r["lengths"]) >= 1


def test_evaluate_repeats_the_final_evaluation(mcclt: Cli, finished: Path) -> None:
    """The same policy, the same episodes: the same returns as the run itself stored."""
    records = json.loads(mcclt("evaluate", finished, "--episodes", "3", "--json")[0])
    stored = json.loads((finished / "evaluation.json").read_text())
    for a, b in zip(records, stored, strict=True):
        assert a["returns"] == pytest.approx(b["returns"])


def test_evaluate_refusals(mcclt: Cli, finished: Path) -> None:
    assert "no run directory and no saved model at nothing" in mcclt.refused("evaluate", "nothing")
    assert "episodes = 0" in mcclt.refused("evaluate", str(finished), "--episodes", "0")
    assert "no seed 3: it has 0, 4" in mcclt.refused("evaluate", str(finished), "--seeds", "3")
    assert "seeds = 4,4 is not allowed" in mcclt.refused("evaluate", str(finished), "--seeds", "4,4")
    assert "no group 'a': it has ppo-plain" in mcclt.refused("evaluate", str(finished), "--groups", "a")
    assert "spaces differ" in mcclt.refused("evaluate", str(finished), "--task", "Hopper-v5")
    assert "Did you mean 'Hopper-v5'" in mcclt.refused("evaluate", str(finished), "--task", "Hoper-v5")
    assert "not a run directory" in mcclt.refused("evaluate", ".")
    Path("text.safetensors").write_text("hello")
    assert "not a checkpoint" in mcclt.refused("evaluate", "text.safetensors")
    assert "MODEL is missing" in mcclt.refused("evaluate")


@pytest.mark.parametrize(
    "task, what",
    [
        ("Broken-v0", "RuntimeError: the motor [/burns] is [out]"),
        ("BrokenNan-v0", "nan at index 1"),
        ("BrokenInf-v0", "reward inf"),
    ],
)
def test_a_broken_environment_stops_the_run(mcclt: Cli, monkeypatch: pytest.MonkeyPatch, task: str, what: str) -> None:
    """The tenth step of each environment is the second of the second update: steps 19 and 20 of the agent."""
    _, err = mcclt("train", f"probes:{task}", *TINY, "--seeds", "5,6", "--out", "run", code=2)
    said, *where = err.splitlines()
    assert "seed 5" in said and what in said and "step 18" in said and "mcclt train --resume run" in said
    assert not where or "raise" in where[-1]
    assert checkpoint.load(runs.checkpoints(Path("run"))[-1])[1]["update"] == 1
    monkeypatch.setattr(Broken, "armed", False)
    mcclt("train", "--resume", "run", "--quiet")
    assert checkpoint.load(runs.checkpoints(Path("run"))[-1])[1]["update"] == 4


@pytest.mark.parametrize("on_nan", ["stop", "restart"])
def test_a_broken_environment_may_be_survived(mcclt: Cli, on_nan: str) -> None:
    out, _ = mcclt("train", "probes:Broken-v0", *TINY, "--on-nan", on_nan, "--out", "run", "--quiet")
    assert "seed 0" in out and "the motor [/burns] is [out]" in out, "must be read, even with --quiet"
    assert "seed 0" in Path("run/messages.txt").read_text()
    update = checkpoint.load(runs.checkpoints(Path("run"))[-1])[1]["update"]
    assert update == (2 if on_nan == "stop" else 4)


def test_an_environment_that_cannot_start(mcclt: Cli) -> None:
    _, err = mcclt("train", "probes:RaisingStart-v0", *TINY, "--out", "run", code=2)
    assert "no start" in err and "seed 0" in err


def test_an_evaluation_that_fails_leaves_valid_json(mcclt: Cli, monkeypatch: pytest.MonkeyPatch) -> None:
    """The final evaluation meets a NaN: one sentence, and no file that JSON readers choke on."""
    _, err = mcclt(
        "train", "probes:BrokenInf-v0", *TINY, "--steps", "16", "--final-episodes", "20", "--out", "run", code=2
    )
    assert "inf" in err and "\n" not in err.strip()
    if Path("run/evaluation.json").exists():
        json.loads(Path("run/evaluation.json").read_text(), parse_constant=lambda name: pytest.fail(name))
