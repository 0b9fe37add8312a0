"""The report of run directories."""

import json
from pathlib import Path

import numpy as np
import pytest

from mcclt.cli import main
from mcclt.experiments.runs import results_of
from mcclt.storage import runs
from probes import PENDULUM, TINY_FLAGS

FLAGS = [*TINY_FLAGS, "--final-episodes", "2", "--quiet"]


@pytest.fixture
def two(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> list[Path]:
    monkeypatch.chdir(tmp_path)
    main(["train", PENDULUM, *FLAGS, "--variants", "plain,mcclt", "--seeds", "3,5", "--out", "a"])
    main(["train", PENDULUM, *FLAGS, "--critic", "normal", "--seeds", "3", "--gamma", "0.9", "--out", "b"])
    return [Path("a"), Path("b")]


def test_agents_of_runs_are_results(two: list[Path]) -> None:
    results = results_of(two)
    assert [(s.name, s.seeds) for s in results.series] == [
        ("ppo-plain", [3, 5]),
        ("ppo-mcclt@a", [3, 5]),
        ("ppo-mcclt@b", [3]),
    ]
    final = json.loads(Path("a/evaluation.json").read_text())
    plain = results.series[0].results[1]
    np.testing.assert_allclose(plain.returns, final[1]["returns"])
    steps = runs.stored_config(two[0]).steps
    assert plain.curve["step"][-1] == steps and results.series[2].settings["gamma"] == 0.9
    Path("a/evaluation.json").unlink()
    again = results_of(two[:1])
    assert "a has no final episodes yet" in again.problems[0] and len(again.series) == 2


def test_the_page(two: list[Path], capsys: pytest.CaptureFixture[str]) -> None:
    main(["report", "a,b"])
    page = Path("a/report/report.html").read_text()
    assert "a/config.json" in page and 'http-equiv="refresh"' not in page
    main(["report", "a", "--follow"])  # it is finished: once
    assert "Report: a/report/report.html" in capsys.readouterr().out
    wrong = {"a,nowhere": "nowhere is not a run directory", "nowhere": "--follow is for a run that goes on"}
    for words, said in wrong.items():
        with pytest.raises(SystemExit):
            main(["report", words, "--follow"])
        assert said in capsys.readouterr().err
