"""The report of run directories."""

import json
import shutil
from pathlib import Path

import numpy as np
import pytest

from mcclt.cli import main
from mcclt.experiments.analysis import calibration
from mcclt.experiments.cells import StoreError
from mcclt.experiments.curve import PARTS, read_rows
from mcclt.experiments.runs import read_runs
from mcclt.storage import runs
from probes import PENDULUM, TINY_FLAGS

FLAGS = [*TINY_FLAGS, "--final-episodes", "2", "--quiet"]


@pytest.fixture(scope="module")
def trained(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Two runs, a and b."""
    path = tmp_path_factory.mktemp("runs")
    of_a = ["--variants", "plain,mcclt", "--seeds", "3,5", "--out", str(path / "a")]
    of_b = ["--critic", "normal", "--seeds", "3", "--gamma", "0.9", "--out", str(path / "b")]
    for own in (of_a, of_b):
        main(["train", PENDULUM, *FLAGS, *own])
    return path


@pytest.fixture
def two(trained: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> list[Path]:
    """Copies of them, in the present directory."""
    shutil.copytree(trained, tmp_path, dirs_exist_ok=True)
    monkeypatch.chdir(tmp_path)
    return [Path("a"), Path("b")]


def test_agents_of_runs_are_results(two: list[Path]) -> None:
    found = read_runs(two)
    results = found.results
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
    assert {"time/fps", "weight/min"} <= set(plain.curve) and plain.provenance["engine"] == "native"
    # What critics believe comes from `train`, as it does in a comparison.
    assert calibration.calibration_of(results.series[0]) is None
    measured = calibration.calibration_of(results.series[1])
    assert measured is not None and list(measured.coverage) == [0.5, 0.8, 0.95]
    # Four agents trained together: each took a quarter of the seconds.
    rows = {row["update"]: row for row in read_rows(Path("a/metrics.jsonl"))}
    seconds = sum(row[f"time/{part}"] for row in rows.values() for part in PARTS)
    assert sum(found.runs[0].seconds.values()) == pytest.approx(seconds)
    assert plain.cost["seconds"] == pytest.approx(seconds / 4) and found.notes == ()


def test_unfinished_and_damaged_runs_are_named(two: list[Path]) -> None:
    row = read_rows(Path("a/metrics.jsonl"))[-1]  # it trains on, beyond the end it had
    with Path("a/metrics.jsonl").open("a") as file:
        file.write(json.dumps(row | {"update": row["update"] + 1, "step": row["step"] + 16}) + "\n")
    assert not read_runs(two).runs[0].finished and read_runs(two).runs[1].finished
    Path("a/evaluation.json").unlink()
    again = read_runs(two[:1])
    assert not again.runs[0].finished and len(again.results.series) == 2 and not again.results.problems
    [note] = again.notes
    assert note.startswith("a is at ") and "final episodes: the returns are those of each agent's last" in note
    wrong = ("evaluation.json", '[{"group": 3}]'), ("evaluation.json", ""), ("metrics.jsonl", "{}\n")
    for name, text in (*wrong, ("versions.json", "[1]")):
        shutil.copytree("b", name, dirs_exist_ok=True)
        Path(name, name).write_text(text)
        remedy = "remove it" if name == "versions.json" else f"repair it with  mcclt train --resume {name}"
        with pytest.raises(StoreError, match=f"^{name}/{name} is damaged: {remedy}"):
            read_runs([Path(name)])


def test_the_page(two: list[Path], capsys: pytest.CaptureFixture[str]) -> None:
    main(["report", "a,b"])
    page = Path("a/report/report.html").read_text()
    assert "a/config.json" in page and 'http-equiv="refresh"' not in page
    main(["report", "a", "--follow"])  # it is finished: once
    assert "Report: a/report/report.html" in capsys.readouterr().out
    Path("store").mkdir()
    wrong = {
        "a,store --follow": "store is not a run directory",
        "store --follow": "--follow is for a run in progress",
        ".": ". is a folder of runs: name those to report on, as in  mcclt report a,b\n",
    }
    for words, said in wrong.items():
        with pytest.raises(SystemExit):
            main(["report", *words.split()])
        assert said in capsys.readouterr().err


def test_following_waits_for_a_run_to_begin(
    two: list[Path], monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    waits = iter([lambda: Path("soon").mkdir(), lambda: shutil.copytree("a", "soon", dirs_exist_ok=True)])
    monkeypatch.setattr("time.sleep", lambda seconds: next(waits)())
    main(["report", "soon", "--follow"])
    assert capsys.readouterr().out == (
        "Waiting for the run soon to begin; Ctrl-C ends that.\nReport: soon/report/report.html\n"
    )


def test_ctrl_c_ends_the_wait_for_a_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def interrupt(seconds: float) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr("time.sleep", interrupt)
    with pytest.raises(SystemExit) as end:
        main(["report", str(tmp_path / "never"), "--follow"])
    assert end.value.code == 130 and not (tmp_path / "never").exists()
