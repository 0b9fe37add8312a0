"""The command line as a stranger uses it."""

import json
import os
import re
import shlex
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import gymnasium as gym
import numpy as np
import pytest

from mcclt.cli import app as cli
from mcclt.cli.train import Train
from mcclt.config import AgentConfig, RunConfig, fields_of, paper_preset
from mcclt.storage import checkpoint, runs
from mcclt.training.loop import Trainer
from probes import PENDULUM, TINY_FLAGS, Broken, agent, run_config

TINY = [*TINY_FLAGS, "--critic", "plain"]


class Cli:
    """Runs commands in this process, in a directory of their own."""

    def __init__(self, capsys: pytest.CaptureFixture[str]) -> None:
        self.capsys = capsys

    def __call__(self, *args: str, code: int = 0) -> tuple[str, str]:
        self.capsys.readouterr()
        got: Any = 0
        try:
            cli.main([str(a) for a in args])
        except SystemExit as end:
            got = end.code or 0
        except KeyboardInterrupt:  # would end the tests
            got = "KeyboardInterrupt"
        out, err = self.capsys.readouterr()
        assert got == code, f"exit code {got}\n{out}\n{err}"
        assert "Traceback" not in out + err and "\x1b" not in out + err
        return out, err

    def refused(self, *args: str) -> str:
        """What is said of bad input: exit code 2, one line, nothing on stdout, nothing written."""
        before = sorted(Path.cwd().rglob("*"))
        out, err = self(*args, code=2)
        assert out == "" and err.count("\n") == 1 and err.startswith("mcclt: ")
        assert sorted(Path.cwd().rglob("*")) == before, "nothing is written"
        return err


@pytest.fixture
def mcclt(capsys: pytest.CaptureFixture[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Cli:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(Broken, "armed", True)
    return Cli(capsys)


@pytest.fixture(scope="module")
def finished(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run by the command line."""
    path = tmp_path_factory.mktemp("cli") / "run"
    flags = ["--seeds", "0,4", "--checkpoint-freq", "16", "--final-episodes", "3", "--eval-freq", "32"]
    cli.main(["train", PENDULUM, *TINY, *flags, "--eval-episodes", "2", "--out", str(path)])
    return path


@pytest.fixture
def copy(finished: Path, mcclt: Cli) -> Path:
    shutil.copytree(finished, "copy")
    return Path("copy")


# --- help --------------------------------------------------------------------------------------------------


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


@pytest.mark.parametrize("command", cli.COMMANDS)
def test_help_mentions_every_setting(mcclt: Cli, command: str) -> None:
    out, err = mcclt(command, "--help")
    assert err == ""
    text = " ".join(re.sub(r"[│╭╮╰╯─]+", " ", out).split())
    if command == "train":
        for cls in (AgentConfig, RunConfig):
            for name in fields_of(cls):
                if name not in ("task", "groups"):
                    assert re.search(f"--{name.replace('_', '-')}[ ,]", text), name
        assert "TASK" in text and "groups" not in text
        for flag in "--variants --preset --config --out --resume --quiet --wandb".split():
            assert flag in text
        assert "Discount of future rewards. (default: 0.99)" in text and "None" not in text
        boxes = re.findall(r"^\W+(\w+) options\W+$", out, re.MULTILINE)
        assert boxes == ["run", "targets", "policy", "PPO", "TRPO", "critic", "weights", "output"]
        assert "plain, qr, mcclt-nw, ensemble, mcclt, explore" in text
    if command == "evaluate":
        assert "--episodes" in text and "A saved model or a run directory." in text


def test_overall_help_and_version(mcclt: Cli) -> None:
    out, _ = mcclt("--help")
    assert all(command in out for command in cli.COMMANDS)
    import mcclt as package

    assert mcclt("--version")[0] == f"mcclt {package.__version__}\n"


def test_envs(mcclt: Cli) -> None:
    out, _ = mcclt("envs")
    for name in ("Hopper-v5", "Ant-v4", "native", "CartPole-v1"):
        assert name in out
    rows = json.loads(mcclt("envs", "--json")[0])
    by_name = {row["task"]: row for row in rows}
    assert by_name["Hopper-v5"]["engine"] == "native" and by_name["Hopper-v5"]["resumable"]
    assert by_name["Hopper-v5"]["version"].startswith("mujoco ")


# --- training and evaluating -------------------------------------------------------------------------------


def test_train_writes_everything(finished: Path) -> None:
    names = {p.name for p in finished.iterdir()}
    assert {"config.json", "versions.json", "metrics.jsonl", "tensorboard", "checkpoints", "evaluation.json"} <= names
    assert len((finished / "metrics.jsonl").read_text().splitlines()) == 4 * 2
    records = json.loads((finished / "evaluation.json").read_text())
    assert [(r["group"], r["seed"]) for r in records] == [("ppo-plain", 0), ("ppo-plain", 4)]
    assert all(len(r["returns"]) == len(r["lengths"]) == 3 for r in records)
    assert [p.name for p in runs.checkpoints(finished)] == [f"update-{u:06d}.safetensors" for u in (2, 3, 4)]


def test_train_prints_plain_lines(mcclt: Cli) -> None:
    out, err = mcclt("train", PENDULUM, *TINY, "--final-episodes", "1", "--out", "run")
    assert err == "" and "\r" not in out
    for name in [*fields_of(AgentConfig), *fields_of(RunConfig)]:
        if name not in ("task", "groups"):
            assert re.search(rf"\b{name}\b", out), f"the resolved configuration shows {name}"
    steps = re.findall(r"^ +(\d+) / 64 steps .*s left  ppo-plain ", out, re.MULTILINE)
    assert steps == ["16", "32", "48", "64"]
    assert "Run directory: run" in out and "Deterministic returns, 1 episodes per seed" in out


def test_quiet(mcclt: Cli) -> None:
    assert mcclt("train", PENDULUM, *TINY, "--final-episodes", "1", "--out", "run", "--quiet") == ("", "")
    assert Path("run/evaluation.json").exists()


def test_default_directory(mcclt: Cli) -> None:
    mcclt("train", PENDULUM, *TINY, "--steps", "16", "--quiet")
    (path,) = Path("runs").iterdir()
    assert re.fullmatch(r"InvertedDoublePendulum-v5__ppo-plain__\d{8}-\d{6}", path.name)


def test_evaluate(mcclt: Cli, finished: Path) -> None:
    out, err = mcclt("evaluate", finished, "--episodes", "3")
    assert err == "" and "ppo-plain" in out and "3 episodes" in out
    records = json.loads(mcclt("evaluate", finished, "--episodes", "3", "--json")[0])
    assert [(r["group"], r["seed"], len(r["returns"])) for r in records] == [("ppo-plain", 0, 3), ("ppo-plain", 4, 3)]
    again = json.loads(mcclt("evaluate", runs.checkpoints(finished)[-1], "--episodes", "3", "--json")[0])
    assert again == records
    for r in records:
        assert all(np.isfinite(r["returns"])) and min(r["lengths"]) >= 1


def test_evaluate_repeats_the_final_evaluation(mcclt: Cli, finished: Path) -> None:
    """The same policy, the same episodes: the same returns as the run itself stored."""
    records = json.loads(mcclt("evaluate", finished, "--episodes", "3", "--json")[0])
    stored = json.loads((finished / "evaluation.json").read_text())
    for a, b in zip(records, stored, strict=True):
        assert a["returns"] == pytest.approx(b["returns"])


def test_evaluate_refusals(mcclt: Cli, finished: Path) -> None:
    assert "no checkpoint at nothing" in mcclt.refused("evaluate", "nothing")
    assert "episodes = 0" in mcclt.refused("evaluate", str(finished), "--episodes", "0")
    assert "spaces differ" in mcclt.refused("evaluate", str(finished), "--task", "Hopper-v5")
    assert "Did you mean 'Hopper-v5'" in mcclt.refused("evaluate", str(finished), "--task", "Hoper-v5")
    assert "not a run directory" in mcclt.refused("evaluate", ".")
    Path("text.safetensors").write_text("hello")
    assert "not a checkpoint" in mcclt.refused("evaluate", "text.safetensors")
    assert "MODEL is missing" in mcclt.refused("evaluate")


# --- where settings come from ------------------------------------------------------------------------------


def resolved(*args: str) -> RunConfig:
    return Train.parse(args).resolve()


def toml(text: str) -> str:
    Path("settings.toml").write_text(text)
    return "settings.toml"


def test_defaults() -> None:
    assert resolved("Hopper-v5") == RunConfig("Hopper-v5", groups={"ppo-mcclt": AgentConfig()})


@pytest.mark.parametrize(
    "flags, label",
    [
        ([], "ppo-mcclt"),
        (["--critic", "plain"], "ppo-plain"),
        (["--critic", "quantile", "--algo", "trpo"], "trpo-qr"),
        (["--weighting", "uniform"], "ppo-mcclt-nw"),
        (["--weighting", "exploration"], "ppo-explore"),
        (["--critic", "ensemble"], "ppo-ensemble"),
        (["--critic", "quantile", "--weighting", "accuracy"], "ppo-quantile-accuracy"),
    ],
)
def test_a_group_is_named_as_in_the_paper(flags: list[str], label: str) -> None:
    assert list(resolved("Hopper-v5", *flags).groups) == [label]


def test_spellings() -> None:
    run = resolved("Hopper-v5", *"--seeds 0..2 --steps 1.5M --critic-hidden 8,9 --eval-freq 2k --members unset".split())
    assert (run.seeds, run.steps, run.eval_freq) == ((0, 1, 2), 1_500_000, 2_000)
    assert run.groups["ppo-mcclt"].critic_hidden == (8, 9)
    assert resolved("Hopper-v5", "--eval-freq", "0").eval_freq == 0
    assert resolved("Hopper-v5", "--max-episode-steps", "50").max_episode_steps == 50


def test_file_then_flags(mcclt: Cli) -> None:
    file = toml('task = "Hopper-v5"\nsteps = "2k"\nseeds = "0..1"\ngamma = 0.5\nw_tar = 0.8\ncritic_hidden = [8]\n')
    run = resolved("--config", file, "--gamma", "0.6", "--seeds", "7")
    only = run.groups["ppo-mcclt"]
    assert (run.task, run.steps, run.seeds) == ("Hopper-v5", 2000, (7,))
    assert (only.gamma, only.w_tar, only.critic_hidden) == (0.6, 0.8, (8,))
    assert resolved("Ant-v5", "--config", file).task == "Ant-v5"


@pytest.mark.parametrize(
    "task, algo, critic",
    [("Ant-v4", "ppo", "normal"), ("Hopper-v5", "trpo", "normal"), ("HalfCheetah-v5", "ppo", "ensemble")],
)
def test_preset_then_file_then_flags(mcclt: Cli, task: str, algo: str, critic: str) -> None:
    preset = paper_preset(task, algo, critic)
    base = [task, "--algo", algo, "--critic", critic, "--preset", "paper"]
    (only,) = resolved(*base).groups.values()
    assert {name: getattr(only, name) for name in preset} == preset
    file = toml("w_tar = 0.7\nw_min = 0.1\n")
    (only,) = resolved(*base, "--config", file, "--w-tar", "0.75").groups.values()
    assert (only.w_tar, only.w_min, only.critic_hidden) == (0.75, 0.1, preset["critic_hidden"])


def test_preset_for_each_variant() -> None:
    run = resolved("HalfCheetah-v5", "--variants", "plain,mcclt,ensemble", "--preset", "paper")
    widths = {name: group.critic_hidden for name, group in run.groups.items()}
    assert widths == {"plain": (128, 128), "mcclt": (128, 128), "ensemble": (64, 64)}
    assert [g.w_tar for g in run.groups.values()] == [0.9, 0.9, 0.85]


def test_a_preset_from_the_algorithm_of_the_file(mcclt: Cli) -> None:
    file = toml('algo = "trpo"\n')
    (only,) = resolved("Ant-v5", "--config", file, "--preset", "paper").groups.values()
    assert only.w_tar == 0.9 and only.algo == "trpo"


def test_variants() -> None:
    run = resolved("Hopper-v5", "--variants", "plain,trpo-mcclt, mcclt-nw", "--gamma", "0.5")
    parts = {name: (g.algo, g.critic, g.weighting, g.gamma) for name, g in run.groups.items()}
    assert parts == {
        "plain": ("ppo", "plain", "uniform", 0.5),
        "trpo-mcclt": ("trpo", "normal", "accuracy", 0.5),
        "mcclt-nw": ("ppo", "normal", "uniform", 0.5),
    }


def test_groups_of_a_file(mcclt: Cli) -> None:
    file = toml('task = "Hopper-v5"\ngamma = 0.5\n[groups.a]\ncritic = "plain"\n[groups.b]\ngamma = 0.7\n')
    run = resolved("--config", file)
    assert {n: (g.critic, g.gamma) for n, g in run.groups.items()} == {"a": ("plain", 0.5), "b": ("normal", 0.7)}
    flagged = resolved("--config", file, "--gamma", "0.9")
    assert [g.gamma for g in flagged.groups.values()] == [0.9, 0.9], "flags override the file"


def test_a_stored_configuration_repeats_the_run(mcclt: Cli, finished: Path) -> None:
    stored = runs.stored_config(finished)
    assert resolved("--config", str(finished / "config.json")) == stored
    other = resolved("--config", str(finished / "config.json"), "--gamma", "0.5", "--steps", "32")
    assert other.steps == 32 and other.groups["ppo-plain"].gamma == 0.5, "flags override the file"


def test_variants_end_to_end(mcclt: Cli) -> None:
    out, _ = mcclt("train", PENDULUM, *TINY_FLAGS, "--variants", "plain,mcclt", "--final-episodes", "1", "--out", "run")
    assert "plain" in out and "mcclt" in out
    groups = {json.loads(line)["group"] for line in Path("run/metrics.jsonl").read_text().splitlines()}
    assert groups == {"plain", "mcclt"}
    assert [p.name for p in sorted(Path("run/tensorboard").iterdir())] == ["mcclt", "plain"]
    table, _ = mcclt("evaluate", "run", "--episodes", "1")
    assert "plain" in table and "mcclt" in table


# --- bad input ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "args, message",
    [
        ([], "Which task?"),
        (["Hoper-v5"], "Unknown task 'Hoper-v5'. Did you mean 'Hopper-v5'?"),
        (["hopper-v5"], "Did you mean 'Hopper-v5'?"),
        (["nomodule:Env-v0"], "No module named 'nomodule'"),
        (["probes:Nothing-v0"], "Unknown task 'probes:Nothing-v0'"),
        ([PENDULUM, "--critic", "nomal"], "Unknown critic 'nomal'. Did you mean 'normal'?"),
        ([PENDULUM, "--weighting", "acuracy"], "Unknown weighting 'acuracy'. Did you mean 'accuracy'?"),
        ([PENDULUM, "--algo", "trpoo"], "Unknown algo 'trpoo'. Did you mean 'trpo'?"),
        ([PENDULUM, "--engine", "natve"], "Unknown engine 'natve'. Did you mean 'native'?"),
        (["CartPole-v1", "--engine", "native"], "cannot run 'CartPole-v1'"),
        ([PENDULUM, "--variants", "plain,mclt"], "Unknown variant 'mclt'. Did you mean 'mcclt'?"),
        ([PENDULUM, "--variants", "trpoo-mcclt"], "trpoo"),
        ([PENDULUM, "--preset", "papr"], "Unknown preset 'papr'. Did you mean 'paper'?"),
        (["CartPole-v1", "--preset", "paper"], "--preset paper exists only for these"),
        ([PENDULUM, "--guide", "simetric"], "Unknown guide 'simetric'. Did you mean 'symmetric'?"),
        ([PENDULUM, "--critc", "plain"], "no flag --critc. Did you mean --critic?"),
        ([PENDULUM, "--step=1"], "no flag --step. Did you mean --steps?"),
        ([PENDULUM, "--total-timesteps", "1"], "no flag --total-timesteps. Did you mean --steps?"),
        ([PENDULUM, "--no-stager"], "no flag --no-stager. Did you mean --no-stagger?"),
        ([PENDULUM, "--env", PENDULUM], "Did you mean TASK, which is typed without a flag?"),
        ([PENDULUM, "--zzz", "1"], "no flag --zzz. `mcclt train --help` lists them."),
        ([PENDULUM, "-s", "1"], "no flag -s"),
        ([PENDULUM, "--steps", "0"], "steps = 0"),
        ([PENDULUM, "--steps", "-5"], "steps"),
        ([PENDULUM, "--steps", "1G"], "200k or 1M"),
        ([PENDULUM, "--steps", "1e400"], "steps"),
        ([PENDULUM, "--seeds", "3..1"], "a range 0..7"),
        ([PENDULUM, "--seeds", "a"], "a range 0..7"),
        ([PENDULUM, "--seeds", "1,1"], "without repetitions"),
        ([PENDULUM, "--seeds", "4294967296"], "2^32-1"),
        ([PENDULUM, "--w-tar", "0.6"], "w_tar = 0.6 is not allowed: it must be between w_min (0.6) and 1"),
        ([PENDULUM, "--w-tar", "1"], "w_tar = 1.0"),
        ([PENDULUM, "--w-tar", "nan"], "w_tar = nan"),
        ([PENDULUM, "--gamma", "2"], "gamma = 2.0"),
        ([PENDULUM, "--gamma", "high"], "gamma = 'high' is not allowed: give a number."),
        ([PENDULUM, "--n-envs", "2.5"], "n_envs = '2.5' is not allowed: give a whole number."),
        ([PENDULUM, "--gamma"], "--gamma needs a value"),
        ([PENDULUM, "--critic", "--quiet"], "--critic needs a value"),
        ([PENDULUM, "--n-seeds", "0"], "n_seeds = 0 is not allowed"),
        ([PENDULUM, "--n-seeds", "2", "--seeds", "1"], "leave one out"),
        ([PENDULUM, "Hopper-v5"], "Unexpected argument 'Hopper-v5'"),
        ([PENDULUM, "--n-envs", "3", "--steps-per-update", "16"], "multiple of n_envs (3)"),
        ([PENDULUM, "--critic-hidden", "8,x"], "widths such as"),
        ([PENDULUM, "--critic", "plain", "--weighting", "accuracy"], "needs a critic with an error"),
        ([PENDULUM, "--critic", "ensemble", "--members", "99"], "members = 99"),
        (["probes:DictEnv-v0"], "FlattenObservation"),
        (["probes:ImageEnv-v0"], "image"),
        (["probes:RaisingMaker-v0"], "the maker [/failed]"),
        ([PENDULUM, "--config", "none.toml"], "No such file"),
        ([PENDULUM, "--resume", "nothing"], "nothing is not a run directory"),
        ([PENDULUM, "--out", "file"], "file"),
        ([PENDULUM, "--out", "file/below"], "Cannot write to file/below"),
        ([PENDULUM, "--out", "x" * 300], "Cannot write"),
    ],
)
def test_bad_input(mcclt: Cli, args: list[str], message: str) -> None:
    Path("file").write_text("")
    text = mcclt.refused("train", *(args[:1] if args and not args[0].startswith("-") else []), *TINY_FLAGS, *args[1:])
    assert message in text


@pytest.mark.parametrize(
    "text, message",
    [
        ("gamma = ", "not valid TOML"),
        ("gama = 0.5", "Unknown setting 'gama'. Did you mean 'gamma'?"),
        ("n_env = 2", "Unknown setting 'n_env'. Did you mean 'n_envs'?"),
        ('gamma = "high"', "gamma = 'high'"),
        ("groups = 3", "groups must be a table of tables"),
        ("[groups.a]\ncritc = 'plain'", "Did you mean 'critic'?"),
        ("[groups.a]\ncritic = 'nomal'", "Did you mean 'normal'?"),
        ("steps = 1.5", "steps = 1.5"),
        ("seeds = [0.5]", "seeds"),
        ("[agent]\ngamma = 0.5", "Unknown setting 'agent'"),
    ],
)
def test_bad_files(mcclt: Cli, text: str, message: str) -> None:
    assert message in mcclt.refused("train", PENDULUM, *TINY_FLAGS, "--config", toml(text))


class _Fails(gym.Env):
    def __init__(self) -> None:
        raise RuntimeError("the maker [/failed]")


gym.register("RaisingMaker-v0", _Fails)


def test_a_directory_in_use(mcclt: Cli, copy: Path) -> None:
    text = mcclt.refused("train", PENDULUM, *TINY, "--out", "copy")
    assert "copy is already in use" in text and "mcclt train --resume copy" in text


def test_a_missing_extra(mcclt: Cli, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "wandb", None)
    assert "pip install 'mcclt[wandb]'" in mcclt.refused("train", PENDULUM, *TINY, "--out", "run", "--wandb")


def test_no_command(mcclt: Cli) -> None:
    assert "Name a command: train, evaluate" in mcclt.refused()
    assert "Name a command: train, evaluate" in mcclt.refused("--stpes")
    assert "Unknown command 'trian'. Did you mean 'train'?" in mcclt.refused("trian", PENDULUM)


# --- resuming ----------------------------------------------------------------------------------------------


def arrays_of(path: Path) -> dict[str, np.ndarray]:
    return checkpoint.load(runs.checkpoints(path)[-1])[0]


def same(a: Path, b: Path) -> None:
    x, y = arrays_of(a), arrays_of(b)
    assert x.keys() == y.keys()
    for name in x:
        np.testing.assert_array_equal(x[name], y[name], err_msg=name)


def timeless(path: Path) -> list[dict[str, Any]]:
    rows = [json.loads(line) for line in (path / "metrics.jsonl").read_text().splitlines()]
    return [{k: v for k, v in row.items() if not k.startswith("time")} for row in rows]


def test_an_interrupted_run(mcclt: Cli, finished: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Ctrl-C in the middle of the third update; what it prints is typed; nothing is lost."""
    flags = [*TINY, "--seeds", "0,4", "--checkpoint-freq", "16", "--final-episodes", "3", "--eval-freq", "32"]
    advance = Trainer.advance

    def interrupted(trainer: Trainer):
        if trainer.update == 2:
            step, calls = trainer.env.step, []

            def interrupt(action: np.ndarray):
                calls.append(0)
                if len(calls) == 5:
                    raise KeyboardInterrupt
                return step(action)

            trainer.env.step = interrupt  # type: ignore[method-assign]
        return advance(trainer)

    where = Path("a directory with a rather long name and spaces", "so that lines would be wrapped", "run")
    with monkeypatch.context() as patch:
        patch.setattr(Trainer, "advance", interrupted)
        out, err = mcclt("train", PENDULUM, *flags, "--eval-episodes", "2", "--out", where, code=130)
    assert err == "" and "Interrupted at 32 steps; a checkpoint is saved" in out
    command = out.strip().splitlines()[-1].strip()
    assert shlex.split(command) == ["mcclt", "train", "--resume", str(where)], "can be copied and pasted"
    out, _ = mcclt(*shlex.split(command)[1:])
    assert "at 32 steps" in out and "new episodes" not in out
    same(where, finished)
    assert timeless(where) == timeless(finished)
    assert (where / "evaluation.json").read_text() == (finished / "evaluation.json").read_text()


@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")
def test_an_interrupt_is_never_lost(mcclt: Cli, monkeypatch: pytest.MonkeyPatch) -> None:
    """Python drops a KeyboardInterrupt that strikes in a destructor or in a callback of the garbage collector, and
    JAX has one: seen as Ctrl-C that did nothing."""

    class Unlucky:
        def __del__(self) -> None:
            os.kill(os.getpid(), signal.SIGINT)

    advance = Trainer.advance

    def interrupted(trainer: Trainer):
        if trainer.update == 2:
            Unlucky()
        return advance(trainer)

    handler = signal.getsignal(signal.SIGINT)
    monkeypatch.setattr(Trainer, "advance", interrupted)
    out, _ = mcclt("train", PENDULUM, *TINY, "--steps", "3200", "--out", "run", code=130)
    assert "mcclt train --resume run" in out
    assert signal.getsignal(signal.SIGINT) is handler, "as it was before"


def test_an_interrupt_while_evaluating_in_the_end(mcclt: Cli, finished: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def interrupt(*_: Any) -> None:
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(Trainer, "evaluate", interrupt)
        out, _ = mcclt("train", PENDULUM, *TINY, "--final-episodes", "1", "--out", "run", code=130)
    assert "mcclt train --resume run" in out
    mcclt("train", "--resume", "run", "--quiet")
    assert Path("run/evaluation.json").exists()


def test_an_interrupt_of_another_command(mcclt: Cli, finished: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def interrupt(*_: Any, **__: Any) -> None:
        raise KeyboardInterrupt

    import mcclt.training.model as module

    monkeypatch.setattr(module, "evaluate_policy", interrupt)
    mcclt("evaluate", finished, code=130)


def test_resuming_a_finished_run_with_more_steps(mcclt: Cli, copy: Path) -> None:
    out, _ = mcclt("train", "--resume", "copy", "--steps", "96")
    assert "at 64 steps" in out
    assert runs.stored_config(copy).steps == 96
    assert checkpoint.load(runs.checkpoints(copy)[-1])[1]["update"] == 6
    assert len((copy / "metrics.jsonl").read_text().splitlines()) == 12
    mcclt("evaluate", "copy", "--episodes", "1")


def test_resuming_a_finished_run_changes_nothing(mcclt: Cli, copy: Path, finished: Path) -> None:
    mcclt("train", "--resume", "copy", "--quiet")
    same(copy, finished)
    assert timeless(copy) == timeless(finished)
    assert (copy / "evaluation.json").read_text() == (finished / "evaluation.json").read_text()


@pytest.mark.parametrize(
    "flags, message",
    [
        (["--gamma", "0.5"], "another gamma"),
        (["--seeds", "0..3"], "another seeds"),
        (["--n-seeds", "2"], "another seeds"),
        (["--critic", "normal"], "another critic"),
        (["--n-envs", "4"], "another n_envs"),
        (["Hopper-v5"], "another task"),
        (["--steps", "32"], "can only be raised"),
        (["--preset", "paper"], "leave out"),
        (["--variants", "mcclt"], "leave out"),
        (["--out", "other"], "leave out"),
        (["--config", "x.toml"], "leave out"),
    ],
)
def test_resuming_with_another_configuration(mcclt: Cli, copy: Path, flags: list[str], message: str) -> None:
    assert message in mcclt.refused("train", "--resume", "copy", *flags)


def test_the_same_flags_again_are_fine(mcclt: Cli, copy: Path) -> None:
    mcclt("train", PENDULUM, "--resume", "copy", "--gamma", "0.99", "--seeds", "0,4", "--quiet")


def test_resuming_past_a_truncated_checkpoint(mcclt: Cli, copy: Path, finished: Path) -> None:
    newest = runs.checkpoints(copy)[-1]
    newest.write_bytes(newest.read_bytes()[:1000])
    out, _ = mcclt("train", "--resume", "copy")
    assert "Skipped" in out and newest.name in out and "at 48 steps" in out
    same(copy, finished)


def test_resuming_where_nothing_is_left(mcclt: Cli, copy: Path) -> None:
    for file in runs.checkpoints(copy):
        file.write_bytes(file.read_bytes()[:-1])
    assert "can be read" in mcclt.refused("train", "--resume", "copy")
    assert "can be read" in mcclt.refused("evaluate", "copy")


@pytest.mark.parametrize("text", ["", "[1]", "null", "{}"])
def test_resuming_with_a_spoilt_configuration(mcclt: Cli, copy: Path, text: str) -> None:
    (copy / "config.json").write_text(text)
    assert "config.json" in mcclt.refused("train", "--resume", "copy")


def test_other_engines_say_that_episodes_start_anew(mcclt: Cli) -> None:
    mcclt("train", "probes:Noisy-v0", *TINY, "--out", "run", "--quiet")
    out, _ = mcclt("train", "--resume", "run", "--steps", "80")
    assert "new episodes" in out and "gymnasium" in out


# --- broken environments -----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "task, what",
    [
        ("Broken-v0", "RuntimeError: the motor [/burns] is [out]"),
        ("BrokenNan-v0", "nan in place 1"),
        ("BrokenInf-v0", "reward inf"),
    ],
)
def test_a_broken_environment_stops_the_run(mcclt: Cli, monkeypatch: pytest.MonkeyPatch, task: str, what: str) -> None:
    """The tenth step of each environment is the second of the second update: steps 19 and 20 of the agent."""
    _, err = mcclt("train", f"probes:{task}", *TINY, "--seeds", "5,6", "--out", "run", code=2)
    assert err.count("\n") == 1 and "seed 5" in err and what in err and "step 18" in err
    assert "mcclt train --resume run" in err
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


# --- as a process ------------------------------------------------------------------------------------------


def test_as_a_process(tmp_path: Path) -> None:
    """The installed program: errors on stderr, exit code, a pipe that closes early, an odd encoding."""
    program = [sys.executable, "-m", "mcclt"] if not shutil.which("mcclt") else ["mcclt"]
    script = Path(sys.executable).with_name("mcclt")
    program = [str(script)] if script.exists() else program
    bad = subprocess.run([*program, "train", "Hoper-v5"], cwd=tmp_path, capture_output=True, text=True)
    assert bad.returncode == 2 and bad.stdout == ""
    assert bad.stderr == "mcclt: Unknown task 'Hoper-v5'. Did you mean 'Hopper-v5'?\n"
    piped = subprocess.run(f"'{program[0]}' envs | head -1", shell=True, cwd=tmp_path, capture_output=True, text=True)
    assert "Tasks" in piped.stdout and piped.stderr == ""
    ascii_only = os.environ | {"PYTHONIOENCODING": "ascii", "PYTHONUTF8": "0"}
    help_text = subprocess.run([*program, "envs"], cwd=tmp_path, capture_output=True, text=True, env=ascii_only)
    assert help_text.returncode == 0 and "Traceback" not in help_text.stderr
    assert list(tmp_path.iterdir()) == []


def test_settings_reach_the_trainer(mcclt: Cli) -> None:
    """The configuration that is stored is the one that was asked for, and the one that was trained."""
    mcclt("train", PENDULUM, *TINY, "--seeds", "3", "--out", "run", "--quiet")
    stored = runs.stored_config(Path("run"))
    assert stored == run_config(groups={"ppo-plain": agent(critic="plain", weighting="uniform", members=1)}, seeds=(3,))
    assert checkpoint.load(runs.checkpoints(Path("run"))[-1])[1]["config"] == json.loads(
        Path("run/config.json").read_text()
    )


def test_resuming_in_another_process_is_exact(tmp_path: Path) -> None:
    """Interrupted by a real Ctrl-C in one process, resumed in another: bit for bit the uninterrupted run."""
    flags = [*TINY, "--steps", "960", "--seeds", "0,5", "--checkpoint-freq", "320"]

    def start(*args: str) -> subprocess.Popen:
        command = [sys.executable, "-m", "mcclt", "train", *args]
        return subprocess.Popen(command, cwd=tmp_path, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)

    def end(process: subprocess.Popen, code: int) -> str:
        out, _ = process.communicate()
        assert process.returncode == code, out
        return out

    end(start("Hopper-v5", *flags, "--out", "whole"), 0)
    cut = start("Hopper-v5", *flags, "--out", "cut")
    metrics = tmp_path / "cut" / "metrics.jsonl"
    while cut.poll() is None and not (metrics.exists() and metrics.stat().st_size > 0):
        time.sleep(0.01)
    cut.send_signal(signal.SIGINT)
    out = end(cut, 130)
    assert "mcclt train --resume cut" in out and "Traceback" not in out
    end(start("--resume", "cut"), 0)
    a, b = (checkpoint.load(runs.checkpoints(tmp_path / name)[-1])[0] for name in ("whole", "cut"))
    assert a.keys() == b.keys()
    assert all(a[k].tobytes() == b[k].tobytes() for k in a)


def test_flags_are_checked_on_top_of_preset_and_file(mcclt: Cli) -> None:
    """Hopper's preset for TRPO has w_min 0.4: w_tar 0.5 is above it, though not above the default's 0.6."""
    config = resolved("Hopper-v5", "--algo", "trpo", "--preset", "paper", "--w-tar", "0.5")
    assert next(iter(config.groups.values())).w_tar == 0.5
    Path("a.toml").write_text("w_min = 0.3\nsteps_per_update = 3000\n")
    config = resolved("Hopper-v5", "--config", "a.toml", "--w-tar", "0.5", "--n-envs", "30")
    assert config.horizon == 100
    message = mcclt.refused("train", "Hopper-v5", "--w-tar", "0.5")
    assert "between w_min (0.6) and 1" in message


def test_variants_and_critic_contradict(mcclt: Cli) -> None:
    """Also where the flag says what is the default."""
    for critic in ("ensemble", "normal"):
        text = mcclt.refused("train", PENDULUM, "--variants", "plain,mcclt", "--critic", critic)
        assert "leave out --critic" in text
    text = mcclt.refused("train", PENDULUM, "--variants", "plain", "--config", toml('weighting = "uniform"'))
    assert "leave out weighting in settings.toml" in text


def test_a_changed_config_file_is_not_resumed(mcclt: Cli, copy: Path) -> None:
    stored = json.loads((copy / "config.json").read_text())
    next(iter(stored["groups"].values()))["gamma"] = 0.5
    (copy / "config.json").write_text(json.dumps(stored))
    assert "another groups" in mcclt.refused("train", "--resume", "copy", "--steps", "10k")


@pytest.mark.parametrize(
    ("number", "said", "code"), [(signal.SIGTERM, "Terminated", 143), (signal.SIGINT, "Interrupted", 130)]
)
def test_a_signal_saves_a_checkpoint_first(tmp_path: Path, number: int, said: str, code: int) -> None:
    """As a scheduler does before it kills: the run goes on from where it was."""
    command = [
        sys.executable,
        "-m",
        "mcclt",
        "train",
        PENDULUM,
        *TINY_FLAGS,
        "--critic",
        "plain",
        "--out",
        tmp_path / "run",
    ]
    command += ["--steps", "10M", "--checkpoint-freq", "10M"]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
    metrics = tmp_path / "run" / "metrics.jsonl"
    while not (metrics.exists() and metrics.stat().st_size):
        assert process.poll() is None, process.stdout and process.stdout.read()
        time.sleep(0.05)
    process.send_signal(number)
    out, _ = process.communicate(timeout=60)
    assert process.returncode == code, out
    assert said in out and "a checkpoint is saved" in out
    (saved,) = runs.checkpoints(tmp_path / "run")
    last = json.loads(metrics.read_text().splitlines()[-1])
    assert saved.stem == f"update-{last['update']:06d}"
