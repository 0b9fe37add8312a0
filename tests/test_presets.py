"""Presets: what they set, and for whom."""

import pytest

from mcclt import presets
from mcclt.config import AgentConfig, RunConfig, override
from mcclt.errors import UnknownNameError
from mcclt.experiments.setups import PAPER_TASKS

# --- the paper's -----------------------------------------------------------------------------------------------

TABLE = """
Hopper                 128 .90 .6   128 .85 .4   128 .85 .4   128 .90 .6
BipedalWalker          128 .90 .6    64 .90 .6   128 .85 .5    64 .90 .5
HalfCheetah            128 .90 .6   128 .90 .4    64 .85 .4   128 .85 .4
Ant                     64 .85 .5    64 .90 .5    64 .85 .4    64 .90 .5
Swimmer                128 .90 .5    64 .90 .5   128 .90 .4    64 .90 .6
Walker2d               128 .90 .6   128 .90 .6    64 .90 .6    64 .85 .5
InvertedDoublePendulum 128 .90 .6    64 .90 .6   128 .90 .5   128 .90 .6
LunarLanderContinuous  128 .85 .5   128 .90 .4   128 .90 .6   128 .85 .5
"""
"""method.md §4: width, w_tar, w_min of MC-CLT PPO, MC-CLT TRPO, ensemble PPO, ensemble TRPO."""
COLUMNS = [("ppo", "normal"), ("trpo", "normal"), ("ppo", "ensemble"), ("trpo", "ensemble")]
CELLS = [
    (line.split()[0], *column, *line.split()[1 + 3 * c : 4 + 3 * c])
    for line in TABLE.strip().splitlines()
    for c, column in enumerate(COLUMNS)
]


@pytest.mark.parametrize("task, algo, critic, width, w_tar, w_min", CELLS)
def test_paper_preset(task: str, algo: str, critic: str, width: str, w_tar: str, w_min: str) -> None:
    expected = {"critic_hidden": (int(width), int(width)), "w_tar": float(w_tar), "w_min": float(w_min)}
    expected |= {"kl_over_actions": "mean"} if algo == "trpo" else {}
    assert presets.paper(f"{task}-v4", algo, critic) == expected
    assert override(AgentConfig(algo=algo, critic=critic), expected).w_tar == float(w_tar)


@pytest.mark.parametrize("algo", ["ppo", "trpo"])
@pytest.mark.parametrize("critic", ["plain", "quantile"])
def test_the_baselines_take_the_column_of_mcclt(algo: str, critic: str) -> None:
    assert presets.paper("Swimmer-v5", algo, critic) == presets.paper("Swimmer-v5", algo, "normal")


def test_no_paper_preset_for_other_tasks() -> None:
    with pytest.raises(UnknownNameError, match=r"Did you mean 'Walker2d'.*preset paper"):
        presets.paper("Walker3d-v5", "ppo", "normal")


# --- modern and tuned ------------------------------------------------------------------------------------------


def test_presets_speak_of_the_run_and_of_the_agent() -> None:
    assert presets.settings(None, "x", "ppo", "plain") == ({}, {})
    run, agent = presets.settings("modern", "Anything-v0", "trpo", "normal")
    assert run == {"steps_per_update": 2048}
    assert override(AgentConfig(algo="trpo"), agent).target_kl == 0.02
    assert override(AgentConfig(), presets.settings("modern", "x", "ppo", "plain")[1]).target_kl is None
    with pytest.raises(UnknownNameError, match="sac"):
        presets.settings("modern", "x", "sac", "plain")
    with pytest.raises(UnknownNameError, match="modem"):
        presets.settings("modem", "x", "ppo", "plain")


TUNED = [(algo, task) for algo in ("ppo", "trpo") for task in presets._file("tuned").get(algo, {})]


@pytest.mark.parametrize("algo, task", TUNED)
@pytest.mark.parametrize("critic", ["plain", "normal"])
def test_tuned_settings_are_settings(algo: str, task: str, critic: str) -> None:
    run, agent = presets.settings("tuned", f"{task}-v5", algo, critic)
    assert override(RunConfig(f"{task}-v5"), run).steps_per_update
    assert override(AgentConfig(algo=algo, critic=critic), agent) != override(
        AgentConfig(algo=algo, critic=critic), presets.settings("modern", task, algo, critic)[1]
    )


def test_every_task_of_the_paper_has_a_best_algorithm_with_tuned_settings() -> None:
    for task in PAPER_TASKS:
        algo = presets.algorithm("tuned", task, "none")
        assert presets.tuned(task, algo, "plain")
    assert presets.algorithm("modern", "Hopper-v5", "ppo") == presets.algorithm(None, "Hopper-v5", "ppo") == "ppo"


def test_no_tuned_settings_for_other_tasks() -> None:
    with pytest.raises(UnknownNameError, match=r"task with tuned settings 'Pendulum-v1'.*LunarLander.*mcclt tune"):
        presets.tuned("Pendulum-v1", "ppo", "plain")


def test_tuned_settings_of_the_other_algorithm_are_named() -> None:
    with pytest.raises(UnknownNameError, match=r"settings of PPO 'Hopper-v5'.*On Hopper take TRPO \(--algo trpo\)[.]"):
        presets.tuned("Hopper-v5", "ppo", "plain")


def test_where_the_papers_settings_are_the_best_known() -> None:
    task = "InvertedDoublePendulum-v5"
    assert presets.tuned(task, "ppo", "ensemble") == presets.paper(task, "ppo", "ensemble")
