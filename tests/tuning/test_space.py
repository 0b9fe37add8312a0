"""What is searched, and what is refused."""

import json
import lzma
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from mcclt import presets
from mcclt.errors import ConfigError, MccltError
from mcclt.tuning.space import Choices, Range, Space


def test_scales() -> None:
    linear, log = Range(0.1, 0.4), Range(1e-5, 1e-3, "log")
    assert [linear.at(u) for u in (0, 0.5, 1)] == [0.1, 0.25, 0.4]
    np.testing.assert_allclose([log.at(u) for u in (0, 0.5, 1)], [1e-5, 1e-4, 1e-3])
    near_one = Range(0.9, 0.999, "complement")
    np.testing.assert_allclose([near_one.at(u) for u in (0, 0.5, 1)], [0.9, 0.99, 0.999])
    assert [Choices(("a", "b", "c")).at(u) for u in (0, 0.34, 0.99, 1)] == ["a", "b", "c", "c"]


def test_a_multiple_of_another_setting() -> None:
    space = Space.of(
        {
            "search": {
                "learning_rate": {"low": 1e-4, "high": 1e-2, "scale": "log"},
                "critic_learning_rate": {"low": 0.5, "high": 2, "times": "learning_rate"},
            }
        }
    )
    found = space.settings({}, {"learning_rate": 0.5, "critic_learning_rate": 1.0})
    assert (found["learning_rate"], found["critic_learning_rate"]) == (1e-3, 2e-3)
    fixed = space.fixing({"learning_rate": 3e-4})
    assert fixed.settings({}, {"critic_learning_rate": 0.0})["critic_learning_rate"] == 1.5e-4
    assert "learning_rate" not in fixed.numbers


def test_a_range_of_whole_numbers() -> None:
    space = Space.of({"search": {"decay_steps": {"low": 10, "high": 20}}})
    assert [space.settings({}, {"decay_steps": u})["decay_steps"] for u in (0, 0.26, 1)] == [10, 13, 20]


@pytest.mark.parametrize("algo", ["ppo", "trpo"])
def test_the_defaults_are_sound(algo: str) -> None:
    space = Space.default(algo)
    assert space.all_structures() == [{}]
    assert space.settings({}, dict.fromkeys(space.numbers, 0.3))["algo"] == algo


SEARCHES = Path(__file__).parents[2] / "benchmarks/results/searches"


def test_the_default_is_what_the_documented_search_declared() -> None:
    kept = json.loads(lzma.decompress((SEARCHES / "HalfCheetah-v4-trpo-plain.json.xz").read_bytes()))
    declared = json.loads(kept["search.json"])
    space = Space.default("trpo").fixing({"critic": "plain"})
    assert json.loads(json.dumps(space.fixed)) == declared["space"]["fixed"]
    assert [*space.numbers] == [*declared["space"]["search"]]


GAMMA = {"gamma": {"low": 0.9, "high": 0.99}}


def test_what_a_space_leaves_open_is_as_its_base_has_it() -> None:
    fixed = {"algo": "trpo", "cg_max_steps": 7}
    space = Space.of({"base": "modern", "search": {**GAMMA, "critic": ["plain", "normal"]}, "fixed": fixed})
    found = space.settings({"critic": "plain"}, {"gamma": 0.0})
    widths = {"policy_hidden": (64, 64), "critic_hidden": (64, 64)}
    own = fixed | {"gamma": 0.9, "critic": "plain"}
    assert found == presets.modern("", "trpo", "plain") | widths | own
    assert space.fixing({"algo": "ppo"}).fixed["target_kl"] is None, "the base follows the algorithm"
    assert "gae_lambda" not in Space.default("ppo").fixed, "what is searched is not fixed by the base"
    of_task = Space.of({"base": "paper", "search": GAMMA, "fixed": {"algo": "trpo"}}, "Ant-v5")
    assert of_task.fixed == presets.paper("Ant", "trpo", "normal") | {"algo": "trpo"}


def test_algorithms_side_by_side_search_what_each_of_them_reads() -> None:
    data = {
        "base": "modern",
        "search": {**GAMMA, "clip_range": {"low": 0.1, "high": 0.3}, "target_kl": {"low": 0.01, "high": 0.1}},
        "fixed": {"cg_damping": 0.2, "ent_coef": 1e-3, "critic": "plain", "algo": "trpo"},
    }
    ppo, trpo = (Space.of(data).side_by_side(algo) for algo in ("ppo", "trpo"))
    assert ({*ppo.numbers}, {*trpo.numbers}) == ({"gamma", "clip_range", "target_kl"}, {"gamma", "target_kl"})
    assert (ppo.own, trpo.own) == ({"ent_coef": 1e-3, "critic": "plain"}, {"cg_damping": 0.2, "critic": "plain"})
    for algo, space in (("ppo", ppo), ("trpo", trpo)):
        (structure,) = space.all_structures()
        assert structure == {"algo": algo}, "so that it is in the name of each setting"
        found = space.settings(structure, dict.fromkeys(space.numbers, 0.0))
        assert (found["algo"], found["critic_iterations"]) == (algo, {"ppo": 10, "trpo": 20}[algo]), "its own base"


@pytest.mark.parametrize(
    ("data", "said"),
    [
        ({}, "searches no number"),
        ({"search": {"critic": ["plain"]}}, "searches no number"),
        ({"serach": GAMMA}, "has 'serach': it may have"),
        ({"base": "modem", "search": GAMMA}, "Unknown preset 'modem'. Did you mean 'modern'"),
        ({"base": 3, "search": GAMMA}, "Unknown preset '3'"),
        ({"base": "tuned", "search": GAMMA}, "Unknown task with tuned settings"),
        ({"base": "modern", "search": {**GAMMA, "algo": ["ppo", "trpo"]}}, "base = 'modern' differs between what"),
        ({"search": 3}, "must have tables"),
        ({"search": {"gama": {"low": 0, "high": 1}}}, "Did you mean 'gamma'"),
        ({"search": GAMMA, "fixed": {"gamma": 0.9}}, "both searches and fixes gamma"),
        ({"search": {"gamma": {"low": 0.99, "high": 0.9}}}, "low must be less than high"),
        ({"search": {"gamma": {"low": "a", "high": 0.9}}}, "low must be less than high"),
        ({"search": {"gamma": {"low": 0.9, "high": 1.5}}}, "gamma = 1.5 is not allowed"),
        ({"search": {"gamma": {"low": 0.9, "high": 1, "scale": "complement"}}}, "less than 1"),
        ({"search": {"gamma": {"low": 0, "high": 1, "scale": "log"}}}, "more than 0"),
        ({"search": {"gamma": {"low": 0.9, "high": 0.99, "scale": "cubic"}}}, "cubic"),
        ({"search": {"gamma": 0.9}}, "give choices, such as"),
        ({"search": {"gamma": []}}, "nothing to choose"),
        ({"search": {"n_quantiles": {"low": 4, "high": 16}}}, "has no range"),
        ({"search": {"target_kl": [0.01, 0.02, "unset"]}}, "target_kl cannot be unset for some agents"),
        ({"search": {**GAMMA, "critic_hidden": [64]}}, "critic_hidden = 64 is not allowed"),
        ({"search": {**GAMMA, "kappa": {"low": 1, "high": 2, "times": "algo"}}}, "cannot be a multiple of algo"),
        ({"search": {**GAMMA, "kappa": {"low": 1, "high": 2, "times": ["gamma"]}}}, "cannot be a multiple of .'gamma'"),
        (
            {"search": {**GAMMA, "kappa": {"low": 1, "high": 2, "times": "target_kl_end"}}},
            "target_kl_end, which is unset",
        ),
        ({"search": GAMMA, "fixed": {"steps_per_update": 1_001}}, "a multiple of n_envs"),
        ({"search": {**GAMMA, "w_tar": {"low": 0.1, "high": 0.9}}}, "w_tar = 0.1"),
    ],
)
def test_what_makes_no_sense_is_refused_in_one_sentence(data: dict[str, Any], said: str) -> None:
    with pytest.raises(MccltError, match=said) as error:
        Space.of(data)
    assert "\n" not in str(error.value)


def test_files_and_unknown_algorithms(tmp_path: Path) -> None:
    file = tmp_path / "space.toml"
    file.write_text('[search]\ngamma = {low = 0.9, high = 0.99}\n[fixed]\ncritic = "plain"\n')
    assert Space.read(file).fixed == {"critic": "plain"}
    file.write_text("[search\n")
    with pytest.raises(ConfigError, match="is not valid TOML"):
        Space.read(file)
    with pytest.raises(ConfigError, match="There is no search space for algorithm 'sac'"):
        Space.default("sac")
    with pytest.raises(MccltError, match="Did you mean 'gamma'"):
        Space.default("ppo").fixing({"gama": 0.9})
