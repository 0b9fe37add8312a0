"""Rows are told in order, each with what the evaluation of its own update found."""

import numpy as np

from mcclt.training.logbook import Logbook


def test_rows_wait_for_an_evaluation_and_get_their_own_agents_returns() -> None:
    log = Logbook()
    for update in (1, 2, 3):
        rows = [{"group": "a", "seed": seed, "update": update, "time/evaluate": 0.0} for seed in (3, 7)]
        log.add(update, dict(enumerate(rows)))
    assert [row["update"] for row in log.take(before=2)] == [1, 1]
    log.waited(3, 0.5)
    log.note(2, np.array([[1.0, 3.0], [10.0, 10.0]]))
    rows = log.take(None)
    assert [(row["update"], row["seed"]) for row in rows] == [(2, 3), (2, 7), (3, 3), (3, 7)]
    assert [row.get("eval/mean_reward") for row in rows] == [2.0, 10.0, None, None]
    assert [row.get("eval/std_reward") for row in rows[:2]] == [1.0, 0.0]
    assert [row["time/evaluate"] for row in rows] == [0.0, 0.0, 0.5, 0.5]
    assert log.take(None) == []
