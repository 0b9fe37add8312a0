"""Setups: what makes two experiments the same."""

import dataclasses
import json
import subprocess
import sys

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mcclt import presets
from mcclt.config import NOT_IDENTITY, AgentConfig, RunConfig
from mcclt.config.variants import VARIANTS
from mcclt.errors import ConfigError, MccltError
from mcclt.experiments import setups
from mcclt.experiments.settings import typed
from mcclt.experiments.setups import PAPER_TASKS, Setup, bare_task, make_setup, parse_variant, task_id


def digest(variant: str, config: str = "fixed", **run) -> str:
    return make_setup("Hopper-v5", "ppo", variant, config, **run).digest


# --- variants --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("variant", VARIANTS)
def test_a_variant_is_what_its_name_pairs(variant: str) -> None:
    setup = make_setup("Hopper", "trpo", variant, "fixed")
    assert (setup.task, setup.algo, setup.variant, setup.name) == ("Hopper-v4", "trpo", variant, f"trpo-{variant}")
    assert {"critic": setup.agent.critic, "weighting": setup.agent.weighting} == VARIANTS[variant]
    assert setup.config.groups == {f"trpo-{variant}": setup.agent}


@pytest.mark.parametrize(
    ("spellings", "canonical", "changes"),
    [
        (["kappa=1", "kappa=1.0", "kappa=1e0", "kappa=01"], "kappa=1.0", {"kappa": 1.0}),
        (
            ["crossing_error=1e5", "crossing_error=100000", "crossing_error=100000.0", "crossing_error=1_00000"],
            "crossing_error=100000.0",
            {"crossing_error": 1e5},
        ),
        (["crossing_error=1e20", "crossing_error=1e+20"], "crossing_error=1e+20", {"crossing_error": 1e20}),
        (["members=unset"], "members=unset", {"members": None}),
        (["members=4", "members=04"], "members=4", {"members": 4}),
        (["critic_hidden=8,9", "critic_hidden=08,9,"], "critic_hidden=8,9", {"critic_hidden": (8, 9)}),
        (["critic_hidden=8", "critic_hidden=8,"], "critic_hidden=8", {"critic_hidden": (8,)}),
        (
            ["guide=symmetric+n_quantiles=4", "n_quantiles=4+guide=symmetric"],
            "guide=symmetric+n_quantiles=4",
            {"guide": "symmetric", "n_quantiles": 4},
        ),
    ],
)  # fmt: skip
def test_spellings_of_one_variant(spellings: list[str], canonical: str, changes: dict) -> None:
    for text in spellings:
        name, found = parse_variant(f"mcclt@{text}")
        assert name == f"mcclt@{canonical}"
        assert found == changes and all(type(found[k]) is type(v) for k, v in changes.items())
    assert parse_variant(f"mcclt@{canonical}") == (f"mcclt@{canonical}", changes), "a canonical name is read as it is"
    assert len({make_setup("Hopper", "ppo", f"mcclt@{text}", "fixed").key for text in spellings}) == 1


values = {
    "kappa": st.floats(1e-300, 1e300),
    "crossing_error": st.none() | st.floats(0, 1e300),
    "members": st.none() | st.integers(1, 10**6),
    "n_quantiles": st.integers(2, 10**6),
    "critic_hidden": st.lists(st.integers(1, 10**4), min_size=1, max_size=3).map(tuple),
    "trunk": st.sampled_from(["separate", "shared"]),
    "log_std_init": st.floats(-1e300, 1e300),
}


@given(st.fixed_dictionaries({}, optional=values), st.randoms())
def test_names_are_read_back(changes: dict, random) -> None:
    parts = [f"{k}={typed(v)}" for k, v in changes.items()]
    random.shuffle(parts)
    text = "mcclt@" + "+".join(parts) if parts else "mcclt"
    name, found = parse_variant(text)
    assert found == changes
    assert parse_variant(name) == (name, found)


@pytest.mark.parametrize(
    ("variant", "message"),
    [
        ("mclt", "Unknown variant 'mclt'. Did you mean 'mcclt'?"),
        ("", "Unknown variant ''"),
        ("@kappa=1", "Unknown variant ''"),
        ("mcclt@n_quantile=4", "Unknown setting 'n_quantile'. Did you mean 'n_quantiles'?"),
        ("mcclt@steps=4", "Unknown setting 'steps'"),
        ("mcclt@n_quantiles", "write each change as setting=value"),
        ("mcclt@kappa=1+", "kappa = '1+'"),
        ("mcclt@+kappa=1", "write each change as setting=value"),
        ("mcclt@kappa=1+kappa=2", "changes kappa twice"),
        ("mcclt@critic=plain", "critic defines the variant"),
        ("mcclt@weighting=uniform", "weighting defines the variant"),
        ("mcclt@algo=trpo", "algo defines the variant"),
        ("mcclt@guide=symetric", "Unknown guide 'symetric'. Did you mean 'symmetric'?"),
        ("mcclt@", "write each change as setting=value"),
        ("mcclt@n_quantiles=4.5", "n_quantiles = 4.5 is not allowed: it must be a whole number."),
        ("mcclt@n_quantiles=unset", "n_quantiles = None"),
        ("mcclt@n_quantiles=1", "n_quantiles = 1 is not allowed: it must be at least 2"),
        ("mcclt@critic_hidden=a,b", "critic_hidden = 'a,b'"),
        ("mcclt@critic_hidden=8,0", "critic_hidden"),
        ("mcclt@kappa=nan", "a finite number"),
        ("mcclt@kappa=inf", "a finite number"),
        ("mcclt@kappa=../x", "kappa = '../x'"),
        ("mcclt@w_tar=0.5", "between w_min (0.6) and 1"),
    ],
)
def test_bad_variants(variant: str, message: str) -> None:
    with pytest.raises(MccltError) as error:
        make_setup("Hopper", "ppo", variant, "fixed")
    assert message in str(error.value) and "\n" not in str(error.value)


def test_changes_are_checked_on_top_of_the_preset() -> None:
    """TRPO on Hopper has w_min 0.4: w_tar 0.5 is allowed there, though not with the default w_min of 0.6."""
    assert make_setup("Hopper", "trpo", "mcclt@w_tar=0.5", "authors").agent.w_tar == 0.5


# --- tasks, algorithms, configurations -------------------------------------------------------------------------


def test_tasks() -> None:
    assert [task_id(bare_task(task)) for task in PAPER_TASKS] == list(PAPER_TASKS)
    assert task_id("Hopper-v5") == "Hopper-v5"
    assert task_id("module:Own-v0") == "module:Own-v0"
    for bad in ("Hoper", "Hopper-v", "hopper"):
        with pytest.raises(ConfigError, match="Did you mean 'Hopper'"):
            task_id(bad)


@pytest.mark.parametrize(
    ("args", "message"),
    [
        (("Hoper", "ppo", "mcclt", "fixed"), "Unknown task 'Hoper'. Did you mean 'Hopper'?"),
        (("Hopper", "pppo", "mcclt", "fixed"), "Unknown algo 'pppo'. Did you mean 'ppo'?"),
        (("Hopper", "ppo", "mcclt", "author"), "Unknown config 'author'. Did you mean 'authors'?"),
        (("CartPole-v1", "ppo", "mcclt", "authors"), "Unknown task of the paper 'CartPole-v1'"),
    ],
)
def test_bad_names(args: tuple[str, ...], message: str) -> None:
    with pytest.raises(ConfigError) as error:
        make_setup(*args)
    assert message in str(error.value)


def test_bad_run_settings() -> None:
    with pytest.raises(ConfigError, match="Did you mean 'steps'"):
        make_setup("Hopper", "ppo", "mcclt", "fixed", stepps=3)
    with pytest.raises(ConfigError, match="steps = 0"):
        make_setup("Hopper", "ppo", "mcclt", "fixed", steps=0)


@pytest.mark.parametrize("variant", ["mcclt", "plain", "ensemble"])
def test_the_authors_configuration(variant: str) -> None:
    setup = make_setup("Ant", "trpo", variant, "authors")
    preset = presets.paper("Ant-v4", "trpo", setup.agent.critic)
    assert {name: getattr(setup.agent, name) for name in preset} == preset
    changed = make_setup("Ant", "trpo", f"{variant}@critic_hidden=7", "authors")
    assert changed.agent.critic_hidden == (7,), "a change is stronger than the preset"


# --- digests ---------------------------------------------------------------------------------------------------


def test_equal_settings_have_equal_digests() -> None:
    assert digest("mcclt") == digest("mcclt", steps=1_000_000) == digest("mcclt@kappa=1")
    assert digest("mcclt@kappa=2+n_quantiles=4") == digest("mcclt@n_quantiles=4+kappa=2.0")
    # Hopper's best configuration for MC-CLT with PPO is (128, 0.90, 0.6), the defaults.
    assert digest("mcclt", "authors") == digest("mcclt", "fixed")


def test_every_setting_that_matters_changes_the_digest() -> None:
    changed = {
        "steps": 999,
        "n_envs": 8,
        "stagger": False,
        "steps_per_update": 1600,
        "max_episode_steps": 10,
        "final_episodes": 7,
    }
    assert {*changed, "task"} == {f.name for f in dataclasses.fields(RunConfig)} - set(NOT_IDENTITY)
    digests = {digest("mcclt"), *(digest("mcclt", **{k: v}) for k, v in changed.items())}
    other = {"bool": True, "int": 3, "float": 0.7, "tuple": (5,), "str": None}
    for field in dataclasses.fields(AgentConfig):
        if field.name in ("algo", "critic", "weighting"):
            continue
        value = other[type(field.default).__name__] if field.default is not None else 1
        if value is None:
            value = {"value_target": "td", "weight_site": "td_error", "kl_direction": "new_old", "guide": "symmetric",
                     "kl_over_actions": "mean", "variance_head": "std", "trunk": "shared", "qr_target": "bellman",
                     "temperature": "paper", "policy_activation": "relu", "critic_activation": "tanh",
                     "normalize_advantage": "minibatch"}[field.name]  # fmt: skip
        if field.name in ("w_min", "critic_w_tar"):
            value = 0.5
        digests.add(digest(f"mcclt@{field.name}={typed(value)}"))
    # As many digests as there are settings, and that of the defaults.
    assert len(digests) == 1 + len(changed) + len(dataclasses.fields(AgentConfig)) - 3
    assert len({make_setup("Hopper", a, v, "fixed").digest for a in ("ppo", "trpo") for v in VARIANTS}) == 18


def test_settings_that_do_not_matter() -> None:
    same = {
        "engine": "native",
        "threads": 2,
        "on_nan": "stop",
        "step_timeout": 5.0,
        "checkpoint_freq": 7,
        "eval_freq": 7,
        "eval_episodes": 3,
    }
    assert set(same) == set(NOT_IDENTITY) - {"seeds", "groups"}
    assert digest("mcclt", **same) == digest("mcclt")


def test_a_setting_added_later_does_not_change_the_digest(monkeypatch: pytest.MonkeyPatch) -> None:
    before = digest("mcclt@kappa=2")
    original = setups._settings
    monkeypatch.setattr(setups, "_settings", lambda run, agent: original(run, agent) | {"new_setting": 5})
    assert digest("mcclt@kappa=2") == before


def test_the_digest_is_stable() -> None:
    """Written down, so that a change that orphans everybody's results is noticed."""
    assert make_setup("Hopper", "ppo", "mcclt", "authors").digest == "3df4051a"
    assert make_setup("Hopper", "ppo", "mcclt", "authors", stagger=False).digest == "d7c55a9b", (
        "before there was stagger"
    )
    assert make_setup("Ant", "trpo", "ensemble", "authors", steps=8000).digest == "28378bf2"
    code = "from mcclt.experiments.setups import make_setup as m; print(m('Ant','trpo','ensemble','authors').digest)"
    other = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout.strip()
    assert other == make_setup("Ant", "trpo", "ensemble", "authors").digest


def test_settings_are_plain_data() -> None:
    setup = make_setup("Hopper", "ppo", "mcclt", "fixed", max_episode_steps=50)
    assert json.loads(json.dumps(setup.settings)) == setup.settings
    assert setup.settings["critic_hidden"] == [128, 128]
    assert setup.settings["max_episode_steps"] == 50
    assert "seeds" not in setup.settings and "groups" not in setup.settings
    assert isinstance(setup, Setup) and setup.key == ("Hopper-v4", "ppo-mcclt", setup.digest)


# --- what may not be imported ----------------------------------------------------------------------------------


def test_jax_is_not_imported() -> None:
    """Reading a store, planning, statistics and the report are for machines without an accelerator, and start fast."""
    modules = "setups store results plan units runner workers analysis.stats analysis.claims tables figures".split()
    imports = "; ".join(f"import mcclt.experiments.{name}" for name in modules)
    heavy = {"jax", "matplotlib", "pandas"}
    code = f"import sys; {imports}; import mcclt.pages.report; sys.exit(bool({heavy} & set(sys.modules)))"
    assert subprocess.run([sys.executable, "-c", code]).returncode == 0
