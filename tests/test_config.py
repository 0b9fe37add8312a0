import dataclasses
from pathlib import Path
from typing import Any, Literal, get_args, get_origin, get_type_hints

import numpy as np
import pytest

from mcclt import config
from mcclt.config import AgentConfig, RunConfig, override
from mcclt.config.values import coerce, fields_of, parse_seeds, parse_steps
from mcclt.config.variants import PAPER_VARIANTS, VARIANTS
from mcclt.errors import ConfigError, UnknownNameError
from mcclt.tuning.search import Plan

# --- steps and seeds ---------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "text, steps",
    [
        ("1", 1),
        ("200000", 200_000),
        ("200_000", 200_000),
        ("200k", 200_000),
        ("200K", 200_000),
        ("1M", 1_000_000),
        ("1m", 1_000_000),
        ("1.5M", 1_500_000),
        ("1e6", 1_000_000),
        (" 5k ", 5_000),
        ("0.5k", 500),
        ("1.001k", 1_001),
        ("2.007k", 2_007),
    ],
)
def test_parse_steps(text: str, steps: int) -> None:
    assert parse_steps(text) == steps
    assert type(parse_steps(text)) is int


def test_parse_steps_has_no_rounding_errors() -> None:
    for i in range(1, 5000, 7):
        assert parse_steps(f"{i / 1000:.3f}k") == i
        assert parse_steps(f"{i / 1000:.3f}M") == 1000 * i


@pytest.mark.parametrize(
    "text", ["", "x", "-5", "1.5", "0.0001k", "k", "1G", "1 M", "1..2", "nan", "inf", "1e400", "1M1", "²", "0x10"]
)
def test_parse_steps_refuses(text: str) -> None:
    with pytest.raises(ConfigError, match="steps"):
        parse_steps(text)


@pytest.mark.parametrize(
    "text, seeds",
    [
        ("3", (3,)),
        ("0,1,2", (0, 1, 2)),
        ("0..7", tuple(range(8))),
        ("5..5", (5,)),
        ("0..1, 7", (0, 1, 7)),
        (4, (4,)),
        ([1, 2], (1, 2)),
        ((3, 1), (3, 1)),
    ],
)
def test_parse_seeds(text: Any, seeds: tuple[int, ...]) -> None:
    assert parse_seeds(text) == seeds


@pytest.mark.parametrize("text", ["", "x", "-1", "1.5", "3..1", "0...7", "1,,2", "..3", "1-3", "1..", "1e3"])
def test_parse_seeds_refuses(text: str) -> None:
    with pytest.raises(ConfigError, match="seeds"):
        parse_seeds(text)


def test_a_range_of_too_many_seeds_is_refused_before_it_is_made() -> None:
    with pytest.raises(ConfigError, match="seeds"):
        parse_seeds("0..99999999999999")


@pytest.mark.parametrize("seeds", [[0.5], ["a"], [None]])
def test_seeds_that_are_not_whole_numbers(seeds: list[Any]) -> None:
    with pytest.raises(ConfigError, match="seeds"):
        RunConfig("Hopper-v5", seeds=parse_seeds(seeds))


# --- refusals ----------------------------------------------------------------------------------------------

NAN, INF = float("nan"), float("inf")


@pytest.mark.parametrize(
    "name, value",
    [
        *[
            (name, value)
            for name in (
                "kappa learning_rate policy_iterations critic_learning_rate critic_iterations target_kl clip_range "
                "cg_max_steps line_search_max_iter variance_floor"
            ).split()
            for value in (0, -1)
        ],
        *[(name, value) for name in ("gamma", "gae_lambda", "critic_gae_lambda") for value in (-0.01, 1.01, NAN)],
        *[(name, value) for name in ("policy_hidden", "critic_hidden") for value in ((), (0,), (8, -1))],
        *[(name, NAN) for name in ("kappa", "learning_rate", "critic_learning_rate", "target_kl", "cg_damping")],
        ("n_quantiles", 1),
        ("members", 0),
        ("cg_damping", -0.1),
        ("ent_coef", -0.1),
        ("ent_coef", NAN),
        ("line_search_shrinking_factor", 0.0),
        ("line_search_shrinking_factor", 1.0),
        ("w_min", -0.1),
        ("w_min", 1.0),
        ("w_tar", 0.6),
        ("w_tar", 0.5),
        ("w_tar", 1.0),
        ("w_tar", 1.1),
        ("w_tar", NAN),
        ("log_std_init", NAN),
        ("crossing_error", NAN),
    ],
)
def test_agent_refuses(name: str, value: Any) -> None:
    with pytest.raises(ConfigError, match=f"^{name} = .* is not allowed: it must be .*\\.$"):
        AgentConfig(**{name: value})


def test_exploration_needs_a_target_above_a_half() -> None:
    with pytest.raises(ConfigError, match=r"w_tar = 0\.45 .* between 0\.5 and 1"):
        AgentConfig(weighting="exploration", w_tar=0.45, w_min=0.3)
    assert AgentConfig(weighting="accuracy", w_tar=0.45, w_min=0.3).w_tar == 0.45
    assert AgentConfig(weighting="exploration", w_tar=0.55).w_tar == 0.55, "it has no w_min"


LITERALS = [name for name, kind in get_type_hints(AgentConfig).items() if get_origin(kind) is Literal]


@pytest.mark.parametrize("name", LITERALS)
def test_agent_refuses_unknown_choices(name: str) -> None:
    with pytest.raises(UnknownNameError, match=f"Unknown {name} 'nonsense'.*Allowed: "):
        AgentConfig(**{name: "nonsense"})
    with pytest.raises(UnknownNameError, match=f"Unknown {name} 'True'.*Allowed: "):
        override(AgentConfig(), {name: True})


@pytest.mark.parametrize("cls", [AgentConfig, RunConfig])
def test_what_must_be_set_is_not_none(cls: type) -> None:
    """As through `PPO(...)`, files and flags."""
    base = cls() if cls is AgentConfig else cls("Hopper-v5")
    for name, kind in get_type_hints(cls).items():
        if type(None) in get_args(kind):
            assert getattr(dataclasses.replace(base, **{name: None}), name) is None
        else:
            with pytest.raises(ConfigError, match=f"^(Unknown )?{name} .*None"):
                dataclasses.replace(base, **{name: None})


def test_only_ppo_does_without_a_target_for_the_kl() -> None:
    assert AgentConfig(target_kl=None).target_kl is None
    with pytest.raises(ConfigError, match=r"^target_kl = None is not allowed: it must be more than 0 for trpo, .*\.$"):
        AgentConfig(algo="trpo", target_kl=None)
    with pytest.raises(
        ConfigError, match=r"^target_kl_end = 0.0 is not allowed: it must be unset where target_kl is\.$"
    ):
        AgentConfig(target_kl=None, target_kl_end=0.0)


@pytest.mark.parametrize(
    "name, value",
    [
        *[
            (name, value)
            for name in "steps n_envs steps_per_update eval_episodes checkpoint_freq".split()
            for value in (0, -4)
        ],
        ("eval_freq", -1),
        ("final_episodes", -1),
        ("max_episode_steps", 0),
        ("threads", 0),
        ("seeds", ()),
        ("seeds", (1, 1)),
        ("groups", {}),
    ],
)
def test_run_refuses(name: str, value: Any) -> None:
    with pytest.raises(ConfigError, match=f"^{name} = .* is not allowed: it must be .*\\.$"):
        RunConfig("Hopper-v5", **{name: value})


@pytest.mark.parametrize("seed", [-1, 2**32])
def test_a_seed_that_is_none_is_named(seed: int) -> None:
    with pytest.raises(ConfigError, match=rf"^seed = {seed} is not allowed: it must be a whole number from 0 to"):
        RunConfig("Hopper-v5", seeds=(3, seed))


@pytest.mark.parametrize(
    "name, allowed",
    [
        ("gamma", "a finite number"),
        ("n_quantiles", "a whole number"),
        ("members", "a whole number or unset"),
        ("stagger", "true or false"),
        ("critic_hidden", r"whole numbers such as \(64, 64\)"),
        ("critic", "a word"),
    ],
)
def test_types_are_said_in_words(name: str, allowed: str) -> None:
    owner = RunConfig if name == "stagger" else AgentConfig
    with pytest.raises(ConfigError, match=rf"^{name} = \[\[\]\] is not allowed: it must be {allowed}\.$"):
        coerce(owner, name, [[]])


def test_run_refuses_an_unknown_choice_with_a_suggestion() -> None:
    with pytest.raises(UnknownNameError, match="Did you mean 'restart'"):
        RunConfig("Hopper-v5", on_nan="restrat")  # type: ignore[arg-type]


def test_steps_per_update_must_divide() -> None:
    with pytest.raises(ConfigError, match=r"steps_per_update = 10 .* multiple of n_envs \(4\)"):
        RunConfig("Hopper-v5", n_envs=4, steps_per_update=10)


def test_groups_share_one_policy_shape() -> None:
    with pytest.raises(ConfigError, match=r"^The groups differ in policy_hidden: give all of them the same, .*\.$"):
        RunConfig("Hopper-v5", groups={"a": AgentConfig(), "b": AgentConfig(policy_hidden=(8,))})
    with pytest.raises(ConfigError, match="groups differ in policy_activation"):
        RunConfig("Hopper-v5", groups={"a": AgentConfig(), "b": AgentConfig(policy_activation="relu")})
    RunConfig("Hopper-v5", groups={"a": AgentConfig(), "b": AgentConfig(log_std_init=0.0)})


def test_extremes_that_are_allowed() -> None:
    AgentConfig(gamma=0, gae_lambda=1, w_min=0, w_tar=0.01, members=1, n_quantiles=2, cg_damping=0)
    RunConfig("Hopper-v5", seeds=(0, 2**32 - 1), eval_freq=0, final_episodes=0, steps=1)


def test_horizon_and_updates() -> None:
    run = RunConfig("Hopper-v5", n_envs=16, steps_per_update=4000, steps=1_000_000)
    assert (run.horizon, run.updates) == (250, 250)
    assert dataclasses.replace(run, steps=4001).updates == 2
    assert dataclasses.replace(run, steps=1).updates == 1
    assert dataclasses.replace(run, steps=4001).whole_steps == 8000


# --- the paper ---------------------------------------------------------------------------------------------


def test_the_paper_variants() -> None:
    pairs = {name: tuple(VARIANTS[name].values()) for name in PAPER_VARIANTS}
    assert pairs == {
        "plain": ("plain", "uniform"),
        "qr": ("quantile", "uniform"),
        "mcclt-nw": ("normal", "uniform"),
        "ensemble": ("ensemble", "accuracy"),
        "mcclt": ("normal", "accuracy"),
        "explore": ("normal", "exploration"),
    }


def test_defaults_are_the_method() -> None:
    """method.md §2 to §4 and the ledger of §7."""
    a, r = AgentConfig(), RunConfig("Hopper-v4")
    assert (a.gamma, a.gae_lambda, a.learning_rate, a.critic_learning_rate) == (0.99, 0.97, 3e-4, 1e-3)
    assert (a.policy_iterations, a.critic_iterations, a.target_kl, a.clip_range) == (80, 80, 0.01, 0.2)
    assert (a.policy_hidden, a.log_std_init, a.n_quantiles, a.kappa) == ((64, 32), -0.5, 8, 1.0)
    assert (a.cg_max_steps, a.cg_damping, a.line_search_shrinking_factor, a.line_search_max_iter) == (10, 0.1, 0.8, 10)
    assert (a.weight_site, a.variance_head, a.guide, a.qr_target) == ("objective", "variance", "quantile", "shifted")
    assert (a.temperature, a.value_target, a.kl_direction, a.trunk) == ("log", "lambda", "old_new", "separate")
    assert (r.steps_per_update, r.steps, r.updates, r.max_episode_steps) == (4000, 1_000_000, 250, None)
    assert (r.eval_episodes, r.final_episodes) == (10, 100)


# --- override, coerce, files -------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "cls, name, meant",
    [(AgentConfig, "gama", "gamma"), (AgentConfig, "critic_hiden", "critic_hidden"), (RunConfig, "n_env", "n_envs")],
)
def test_a_misspelt_setting_gets_a_suggestion(cls: type, name: str, meant: str) -> None:
    base = cls() if cls is AgentConfig else cls("Hopper-v5")
    with pytest.raises(ConfigError, match=f"Unknown setting '{name}'. Did you mean '{meant}'"):
        override(base, {name: 1})


def test_override_replaces_and_leaves_the_rest() -> None:
    base = AgentConfig()
    new = override(base, {"gamma": 1, "critic_hidden": [8, 9], "members": None, "crossing_error": 100000})
    assert new == dataclasses.replace(base, gamma=1.0, critic_hidden=(8, 9), crossing_error=1e5)
    assert type(new.gamma) is float and type(new.crossing_error) is float and base.gamma == 0.99
    assert override(RunConfig("Hopper-v5"), {"steps": "2k", "seeds": "0..2"}).seeds == (0, 1, 2)


@pytest.mark.parametrize(
    "cls, name, value",
    [
        (AgentConfig, "gamma", "0.9"),
        (AgentConfig, "gamma", True),
        (AgentConfig, "gamma", None),
        (AgentConfig, "normalize_obs", "no"),
        (AgentConfig, "critic", 3),
        (AgentConfig, "critic", None),
        (AgentConfig, "n_quantiles", 8.0),
        (AgentConfig, "n_quantiles", True),
        (AgentConfig, "critic_hidden", 64),
        (AgentConfig, "critic_hidden", "64,64"),
        (AgentConfig, "critic_hidden", [64.0]),
        (AgentConfig, "members", "5"),
        (AgentConfig, "guide", 1),
        (RunConfig, "n_envs", "4"),
        (RunConfig, "steps", 1.5),
        (RunConfig, "steps", None),
        (RunConfig, "steps", True),
        (RunConfig, "steps", [1]),
        (RunConfig, "seeds", None),
        (RunConfig, "seeds", [0.5]),
        (RunConfig, "seeds", ["1"]),
        (RunConfig, "seeds", True),
        (RunConfig, "threads", 1.0),
        (RunConfig, "task", 1),
        (RunConfig, "groups", [AgentConfig()]),
        (RunConfig, "groups", {"a": {"gamma": 0.5}}),
        (RunConfig, "groups", {1: AgentConfig()}),
    ],
)
def test_wrong_types_are_refused(cls: type, name: str, value: Any) -> None:
    """However a configuration is made."""
    base = cls() if cls is AgentConfig else cls("Hopper-v5")
    for make in (override, lambda base, values: dataclasses.replace(base, **values)):
        with pytest.raises(ConfigError, match=rf"^(Unknown )?{name} [^\n]*\.$"):
            make(base, {name: value})


@pytest.mark.parametrize(
    "cls, name, value, kept",
    [
        (AgentConfig, "policy_hidden", [8, 8], (8, 8)),
        (AgentConfig, "policy_hidden", np.array([8, 8]), (8, 8)),
        (AgentConfig, "gamma", 1, 1.0),
        (AgentConfig, "n_quantiles", np.int64(8), 8),
        (AgentConfig, "members", "unset", None),
        (AgentConfig, "decay_steps", "2k", 2_000),
        (RunConfig, "seeds", 3, (3,)),
        (RunConfig, "seeds", "0..2", (0, 1, 2)),
        (RunConfig, "steps", "1M", 1_000_000),
        (RunConfig, "stagger", np.bool_(False), False),
    ],
)
def test_values_become_their_fields_type(cls: type, name: str, value: Any, kept: Any) -> None:
    """A configuration made directly is the one that the command line makes, so that equal ones share a program."""
    base = cls() if cls is AgentConfig else cls("Hopper-v5")
    for made in (dataclasses.replace(base, **{name: value}), override(base, {name: value})):
        assert getattr(made, name) == kept and type(getattr(made, name)) is type(kept)


def test_the_plan_of_a_search_is_checked_in_the_same_way() -> None:
    plan = Plan("Hopper-v5", trials=4, seeds=2, rungs=[100, 200])  # type: ignore[arg-type]
    assert plan.rungs == (100, 200) and plan.seeds == 2
    for name in ("trials", "seeds", "rungs", "keep", "first_seed"):
        with pytest.raises(ConfigError, match=rf"^{name} = 'x' is not allowed: it must be .*\.$"):
            dataclasses.replace(plan, **{name: "x"})  # type: ignore[arg-type]


def test_coerce_refuses_unknown_choices_with_a_suggestion() -> None:
    with pytest.raises(UnknownNameError, match="Did you mean 'symmetric'"):
        override(AgentConfig(), {"guide": "simmetric"})


def test_every_setting_has_one_sentence() -> None:
    """The help of the command line is made from the docstrings below each field."""
    source = Path(config.__file__).read_text()
    for cls in (AgentConfig, RunConfig):
        body = source.split(f"class {cls.__name__}:")[1].split("def __post_init__")[0]
        for name in fields_of(cls):
            after = body.split(f"\n    {name}:")[1].split("\n")[1].strip()
            assert after.startswith('"""') and after.endswith('."""'), name
