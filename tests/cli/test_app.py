"""The program: help, names of commands, and what a terminal gets."""

import json
import os
import re
import shlex
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import tyro

from commands import Cli
from mcclt.cli import app as cli
from mcclt.cli.train import Train
from mcclt.config import AgentConfig, RunConfig
from mcclt.config.values import fields_of
from probes import PENDULUM


def test_help_loads_nothing_that_takes_long():
    """Nor does `import mcclt`: Python alone loads NumPy in 0.15 s and JAX in a second."""
    code = """
import sys, mcclt, mcclt.cli
try:
    mcclt.cli.main(["--help"])
except SystemExit:
    pass
sys.exit(", ".join({"numpy", "jax", "mujoco", "gymnasium", "scipy", "rich"} & sys.modules.keys()) or 0)
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert done.returncode == 0 and "reproduce" in done.stdout, done.stderr


def words(text: str) -> str:
    """Without boxes and line breaks."""
    return " ".join(re.sub(r"[│╭╮╰╯─]+", " ", text).split())


def test_help_mentions_every_setting(mcclt: Cli) -> None:
    out, _ = mcclt("train", "--help")
    text = words(out)
    for cls in (AgentConfig, RunConfig):
        for name in fields_of(cls):
            if name not in ("task", "groups"):
                assert re.search(f"--{name.replace('_', '-')}[ ,]", text), name
    assert "TASK" in text and "groups" not in text
    for flag in "--variants --preset --config --out --resume --quiet --wandb".split():
        assert flag in text
    assert "Discount of future rewards. (default: 0.99)" in text and "None" not in text
    boxes = re.findall(r"^\W+(\w+) options\W+$", out, re.MULTILINE)
    assert boxes == ["target", "policy", "PPO", "TRPO", "critic", "weight", "output"]
    assert "show this help message and exit --seeds SEEDS" in text, "no box is for -h alone"
    assert "raise: end the run; stop: its agent; restart: go on (2 in a row: stop)" in text
    assert "plain, qr, mcclt-nw, ensemble, mcclt, explore" in text


@pytest.mark.parametrize("args", [[], *([command] for command in cli.COMMANDS)], ids=" ".join)
def test_help_fits_into_80_columns(mcclt: Cli, monkeypatch: pytest.MonkeyPatch, args: list[str]) -> None:
    monkeypatch.setenv("COLUMNS", "80")
    out, err = mcclt(*args, "--help")
    usage, *rest = out.splitlines()
    assert err == "" and "(default: unset)" not in words(out)
    assert usage.startswith(" ".join(["usage: mcclt", *args, "[-h]"])), "which is not broken within brackets"
    assert [line for line in (usage, *rest) if len(line) > 80 or line.count("[") != line.count("]")] == []
    if args == ["evaluate"]:
        assert "--episodes" in out and "A saved model, a run directory, or a pretrained agent" in words(out)


@pytest.mark.parametrize(
    ("command", "typed"),
    [("train", "[TASK]"), ("report", "[STORE]"), ("pack", "[STORE]"), ("bench", "[TASK]"), ("compare", "TASK,...")],
)
def test_what_may_be_left_out_is_in_brackets(mcclt: Cli, command: str, typed: str) -> None:
    usage = mcclt(command, "--help")[0].partition("\n\n")[0]
    assert typed in usage.split()


def test_overall_help_and_version(mcclt: Cli) -> None:
    out, _ = mcclt("--help")
    assert all(command in out for command in cli.COMMANDS)
    import mcclt as package

    assert mcclt("--version")[0] == f"mcclt {package.__version__}\n"


def test_no_command(mcclt: Cli) -> None:
    assert "Name a command: train, evaluate" in mcclt.refused()


@pytest.mark.parametrize(
    ("typed", "said"),
    [
        ("trian", "Unknown command 'trian'. Did you mean 'train'?"),
        ("help", "Unknown command 'help'. Did you mean '--help'?"),
        ("--verison", "Unknown command '--verison'. Did you mean '--version'?"),
        ("--stpes", "Unknown command '--stpes'. Allowed: train, evaluate"),
    ],
)
def test_unknown_commands(mcclt: Cli, typed: str, said: str) -> None:
    assert said in mcclt.refused(typed, PENDULUM)


def test_envs(mcclt: Cli) -> None:
    out, _ = mcclt("envs")
    assert re.search("gymnasium-async steps all of them( but LunarLander-v2, LunarLanderContinuous-v2)?, too", out)
    for name in ("Hopper-v5", "Ant-v4", "native", "CartPole-v1"):
        assert name in out
    rows = json.loads(mcclt("envs", "--json")[0])
    by_name = {row["task"]: row for row in rows}
    assert by_name["Hopper-v5"]["engine"] == "native" and by_name["Hopper-v5"]["resumable"]
    assert by_name["Hopper-v5"]["version"].startswith("mujoco ")


def test_as_a_process(tmp_path: Path) -> None:
    """The installed program: errors on stderr, exit code, a pipe that closes early, an odd encoding."""
    program = [sys.executable, "-m", "mcclt"] if not shutil.which("mcclt") else ["mcclt"]
    script = Path(sys.executable).with_name("mcclt")
    program = [str(script)] if script.exists() else program
    bad = subprocess.run([*program, "train", "Hoper-v5"], cwd=tmp_path, capture_output=True, text=True)
    assert bad.returncode == 2 and bad.stdout == ""
    said = "Unknown task 'Hoper-v5'. Did you mean 'Hopper-v5'? `mcclt envs` lists those of the library."
    assert bad.stderr == f"mcclt: {said}\n"
    piped = subprocess.run(f"'{program[0]}' envs | head -1", shell=True, cwd=tmp_path, capture_output=True, text=True)
    assert "Tasks" in piped.stdout and piped.stderr == ""
    ascii_only = os.environ | {"PYTHONIOENCODING": "ascii", "PYTHONUTF8": "0"}
    help_text = subprocess.run([*program, "envs"], cwd=tmp_path, capture_output=True, text=True, env=ascii_only)
    assert help_text.returncode == 0 and "Traceback" not in help_text.stderr
    assert list(tmp_path.iterdir()) == []


def test_parsed_once(mcclt: Cli, monkeypatch: pytest.MonkeyPatch) -> None:
    """However many groups, presets and files there are."""
    calls, parse = [], tyro.cli

    def count(*args: Any, **more: Any) -> Any:
        calls.append(args)
        return parse(*args, **more)

    monkeypatch.setattr(tyro, "cli", count)
    Path("a.toml").write_text("gamma = 0.5")
    given = ["Hopper-v5", "--variants", "plain,mcclt,trpo-ensemble", "--preset", "paper", "--config", "a.toml"]
    command = Train.parse([*given, "--w-tar", "0.95", "--no-stagger"])
    assert len(command.resolve().groups) == 3 and len(calls) == 1
    assert command.given.keys() == {"task", "variants", "preset", "config", "w_tar", "stagger"}
    assert command.given["stagger"] is False and command.quiet is False


@pytest.mark.parametrize(
    ("args", "message"),
    [
        (["watch", "run", "--no-video", "--width", "9"], "leave out one of --width and --no-video"),
        (["bench", "--agents", "9"], "--agents has no effect with --engine auto"),
        (["bench", "--engine", "warp", "--population", "2"], "--population has no effect with --engine warp"),
        (["bench", "--engine", "native"], "Unknown engine 'native'. Allowed: auto, warp."),
        (["bench", "--updates", "0"], "updates = 0 is not allowed"),
        (["export", "run"], "OUT is missing; type, for example,  mcclt export runs/"),
        (["compare", "Hopper-v5", "--preset", "modern"], "--preset is --settings here"),
        (["reproduce", "--preset=paper"], "and --preset paper is --settings authors"),
        (["train", "Hopper-v5", "--settings", "modern"], "--settings is --preset here"),
        (["tune", "Hopper-v5", "--preset", "modern"], "`mcclt tune` has no flag --preset"),
        (["export", "run", "x.onnx", "--seeds", "0"], "no flag --seeds. Did you mean --seed?"),
        (["evaluate", "run", "--seed", "0"], "no flag --seed. Did you mean --seeds?"),
        (["envs", "--jason"], "no flag --jason. Did you mean --json?"),
        (["report", "a", "b"], "Unexpected argument 'b'"),
        (["report", "nodir"], "nodir is not a store of results: there is no such directory."),
        (["watch", "run", "--steps", "0"], "steps = 0 is not allowed"),
    ],
)
def test_what_would_be_ignored_is_refused(mcclt: Cli, args: list[str], message: str) -> None:
    assert message in mcclt.refused(*args)


def test_flags_may_be_typed_in_other_ways(mcclt: Cli) -> None:
    """With an equals sign, with underscores, before the task; a negative number is a value."""
    command = Train.parse(["--log_std_init", "-1.5", "--gamma=0.5", "Hopper-v5"])
    assert command.given == {"task": "Hopper-v5", "log_std_init": -1.5, "gamma": 0.5}


ROOT = Path(__file__).parents[2]
WRITTEN = [ROOT / "README.md", *(ROOT / "docs").rglob("*.md"), *(ROOT / "examples").glob("*.py"), ROOT / "Makefile"]


def written_commands() -> list[str]:
    """Lines of documentation and scripts that are commands, with the lines they continue on."""
    text = "\n".join(path.read_text(encoding="utf-8") for path in WRITTEN).replace("\\\n", " ")
    return sorted(set(re.findall(rf"^[\w=./ ]*\bmcclt ((?:{'|'.join(cli.COMMANDS)})\b.*)$", text, re.MULTILINE)))


@pytest.mark.parametrize("line", written_commands())
def test_commands_of_the_documentation_are_understood(line: str) -> None:
    name, *args = shlex.split(line, comments=True)
    cli.command(name).parse(args)


def test_a_device_that_is_not_there(tmp_path: Path) -> None:
    """JAX looks for it when it is first used, so this needs a process of its own."""
    done = subprocess.run(
        [sys.executable, "-m", "mcclt", "tune", PENDULUM, "--steps", "1000"],
        env=os.environ | {"JAX_PLATFORMS": "nonsense"},
        cwd=tmp_path,
        capture_output=True,
        text=True,
        check=False,
    )
    said = "mcclt: JAX finds no device for JAX_PLATFORMS=nonsense: unset it.*[.]\n"
    assert done.returncode == 2 and re.fullmatch(said, done.stderr), done.stderr
    assert not [*tmp_path.iterdir()]
