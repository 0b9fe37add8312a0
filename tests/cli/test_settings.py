"""Where the settings of `mcclt train` come from, and what is said of bad ones."""

import json
import re
import sys
from pathlib import Path

import gymnasium as gym
import pytest

from commands import TINY, Cli
from mcclt import presets
from mcclt.cli.train import Train
from mcclt.config import AgentConfig, RunConfig
from mcclt.storage import runs
from mcclt.storage.configuration import to_dict
from probes import PENDULUM, TINY_FLAGS


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
    preset = presets.paper(task, algo, critic)
    base = [task, "--algo", algo, "--critic", critic, "--preset", "paper"]
    (only,) = resolved(*base).groups.values()
    assert {name: getattr(only, name) for name in preset} == preset
    file = toml("w_tar = 0.7\nw_min = 0.1\n")
    (only,) = resolved(*base, "--config", file, "--w-tar", "0.75").groups.values()
    assert (only.w_tar, only.w_min, only.critic_hidden) == (0.75, 0.1, preset["critic_hidden"])


def test_preset_for_each_variant() -> None:
    run = resolved("HalfCheetah-v5", "--variants", "plain,mcclt,ensemble", "--preset", "paper")
    widths = {name: group.critic_hidden for name, group in run.groups.items()}
    assert widths == {"ppo-plain": (128, 128), "ppo-mcclt": (128, 128), "ppo-ensemble": (64, 64)}
    assert [g.w_tar for g in run.groups.values()] == [0.9, 0.9, 0.85]


def test_a_preset_from_the_algorithm_of_the_file(mcclt: Cli) -> None:
    file = toml('algo = "trpo"\n')
    (only,) = resolved("Ant-v5", "--config", file, "--preset", "paper").groups.values()
    assert only.w_tar == 0.9 and only.algo == "trpo"


def test_variants() -> None:
    run = resolved("Hopper-v5", "--variants", "plain,trpo-mcclt, mcclt-nw", "--gamma", "0.5")
    parts = {name: (g.algo, g.critic, g.weighting, g.gamma) for name, g in run.groups.items()}
    assert parts == {
        "ppo-plain": ("ppo", "plain", "uniform", 0.5),
        "trpo-mcclt": ("trpo", "normal", "accuracy", 0.5),
        "ppo-mcclt-nw": ("ppo", "normal", "uniform", 0.5),
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


@pytest.mark.parametrize(
    "flags",
    [
        "--variants plain,trpo-mcclt --n-quantiles 4 --cg-damping 1",  # each group is stored with both
        "--preset paper --variants mcclt-nw",  # with weights' settings, which are of the task
    ],
)
def test_a_stored_configuration_may_state_what_nothing_reads(mcclt: Cli, flags: str) -> None:
    stored = resolved("Hopper-v5", *flags.split())
    Path("stored.json").write_text(json.dumps(to_dict(stored)))
    assert resolved("--config", "stored.json") == stored


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
    text = mcclt.refused("train", PENDULUM, "--variants", "trpo-plain,trpo-mcclt", "--algo", "ppo")
    assert "--algo has no effect" in text


@pytest.mark.parametrize(
    "flags, file, message",
    [
        ("--cg-damping 1", "", "--cg-damping has no effect: it is a setting of TRPO, and this trains PPO."),
        ("--cg-damping 0.1", "", "--cg-damping has no effect"),  # also where it is the default
        (
            "--algo trpo --clip-range 0.1",
            "",
            "--clip-range has no effect: it is a setting of PPO, and",
        ),
        ("--variants trpo-plain,trpo-mcclt --learning-rate 1e-4", "", "--learning-rate has no effect"),
        (
            "",
            "cg_damping = 1.0",
            "cg_damping in settings.toml has no effect: it is a setting of TRPO",
        ),
        ("--algo trpo --preset paper", "clip_range = 0.3", "clip_range in settings.toml has no effect"),
        ("", '[groups.a]\nalgo = "trpo"\n[groups.b]\ncg_damping = 1.0', "cg_damping in [groups.b] has no effect"),
        (
            "--critic plain --n-quantiles 4",
            "",
            "--n-quantiles has no effect: it is a setting of the quantile, normal and hl_gauss critic, and this has "
            "critic = plain.",
        ),
        ("--variants plain,ensemble --guide symmetric", "", "and this has critic = ensemble, plain."),
        (
            "--weighting inverse_variance --w-min 0.5",
            "",
            "it is a setting of the accuracy weights, and this has weighting",
        ),
        ("--critic plain --w-tar 0.8", "", "and this has weighting = uniform."),
        ("--weighting inverse_variance --temperature paper", "", "--temperature has no effect"),
    ],
)
def test_settings_that_nothing_reads(mcclt: Cli, flags: str, file: str, message: str) -> None:
    assert message in mcclt.refused("train", "Hopper-v5", *flags.split(), "--config", toml(file))


def test_settings_that_something_reads(mcclt: Cli) -> None:
    both = resolved("Hopper-v5", *"--variants plain,trpo-plain --cg-damping 1 --clip-range 0.1".split())
    assert [(g.cg_damping, g.clip_range) for g in both.groups.values()] == [(1, 0.1)] * 2
    both = resolved("Hopper-v5", *"--variants plain,mcclt --n-quantiles 4".split())
    assert [g.n_quantiles for g in both.groups.values()] == [4, 4]
    resolved("Hopper-v5", "--config", toml("cg_damping = 1\n[groups.a]\nalgo = 'trpo'\n[groups.b]\nclip_range = 0.1"))
    resolved("Hopper-v5", "--config", toml("cg_damping = 0.1"))  # the default, as stored configurations have it
    resolved("Hopper-v5", "--algo", "trpo", "--config", toml("learning_rate_end = 'unset'"))
    resolved("Hopper-v5", *"--algo mine --cg-damping 1 --clip-range 0.1".split())  # an own update may read any


@pytest.mark.parametrize(
    "args, message",
    [
        ([], "Which task?"),
        (["Hoper-v5"], "Unknown task 'Hoper-v5'. Did you mean 'Hopper-v5'?"),
        (["hopper-v5"], "Did you mean 'Hopper-v5'?"),
        (["Foo-v1"], "Unknown task 'Foo-v1'. `mcclt envs` lists those of the library."),
        (["nomodule:Env-v0"], "No module named 'nomodule'"),
        (["probes:Nothing-v0"], "Unknown task 'probes:Nothing-v0'"),
        ([PENDULUM, "--critic", "nomal"], "Unknown critic 'nomal'. Did you mean 'normal'?"),
        ([PENDULUM, "--weighting", "acuracy"], "Unknown weighting 'acuracy'. Did you mean 'accuracy'?"),
        ([PENDULUM, "--algo", "trpoo"], "Unknown algo 'trpoo'. Did you mean 'trpo'?"),
        ([PENDULUM, "--engine", "natve"], "Unknown engine 'natve'. Did you mean 'native'?"),
        (["CartPole-v1", "--engine", "native"], "cannot run 'CartPole-v1'"),
        ([PENDULUM, "--variants", "plain,mclt"], "Unknown variant 'mclt'. Did you mean 'mcclt'?"),
        ([PENDULUM, "--variants", "trpoo-mcclt"], "trpoo"),
        ([PENDULUM, "--variants", "mcclt@n_quantiles=4"], "only `mcclt compare` takes settings after an @; give them"),
        ([PENDULUM, "--variants", "plain,mcclt,plain"], "'plain,mcclt,plain' is not allowed: it names plain more than"),
        ([PENDULUM, "--preset", "papr"], "Unknown preset 'papr'. Did you mean 'paper'?"),
        (["CartPole-v1", "--preset", "paper"], "The preset paper exists only for these"),
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
        ([PENDULUM, "--out", "-x"], "--out needs a value"),
        ([PENDULUM, "--variants", "plain", "--variants=qr"], "--variants is given more than once: give it once, with"),
        ([PENDULUM, "--w-tar", "-inf"], "w_tar = -inf"),
        ([PENDULUM, "--n-seeds", "0"], "n_seeds = 0 is not allowed"),
        ([PENDULUM, "--n-seeds", "2", "--seeds", "1"], "leave one out"),
        ([PENDULUM, "Hopper-v5"], "Unexpected argument 'Hopper-v5'"),
        ([PENDULUM, "--n-envs", "3", "--steps-per-update", "16"], "multiple of n_envs (3)"),
        ([PENDULUM, "--critic-hidden", "8,x"], "widths such as"),
        ([PENDULUM, "--critic", "plain", "--weighting", "accuracy"], "needs a critic with an error"),
        ([PENDULUM, "--critic", "ensemble", "--members", "99"], "members = 99"),
        (["probes:DictEnv-v0"], "FlattenObservation"),
        (["probes:ImageEnv-v0"], "image"),
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


def test_an_environment_that_cannot_be_made(mcclt: Cli) -> None:
    """One sentence with the line, then the lines that led there; nothing is written."""
    _, err = mcclt("train", "probes:RaisingMaker-v0", *TINY_FLAGS, code=2)
    sentence, *lines = err.splitlines()
    assert re.fullmatch(
        r"mcclt: Making .* failed: RuntimeError: the maker \[/failed\] \(test_settings\.py, line \d+\)", sentence
    )
    assert "in __init__" in "".join(lines) and not [*Path.cwd().iterdir()]


def test_a_directory_in_use(mcclt: Cli, copy: Path) -> None:
    text = mcclt.refused("train", PENDULUM, *TINY, "--out", "copy")
    assert "copy is already in use" in text and "mcclt train --resume copy" in text
    Path("file").touch()
    text = mcclt.refused("train", PENDULUM, *TINY, "--out", "file")
    assert text == "mcclt: file is already in use: choose another directory (--out, in Python log_dir).\n"


def test_a_missing_extra(mcclt: Cli, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "wandb", None)
    assert "pip install 'wandb>=" in mcclt.refused("train", PENDULUM, *TINY, "--out", "run", "--wandb")


def test_a_preset_may_set_the_run_too() -> None:
    modern = ("Hopper-v5", "--preset", "modern")
    assert resolved(*modern).steps_per_update == 2048
    assert resolved(*modern, "--steps-per-update", "4096").steps_per_update == 4096
    two = resolved(*modern, "--variants", "plain,trpo-mcclt")
    assert [(a.algo, a.minibatch_size) for a in two.groups.values()] == [("ppo", 64), ("trpo", 128)]
