"""The scripts of benchmarks/ that make tables of the documentation, on the stores that are in the repository."""

import importlib
import json
import tomllib
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import scipy.stats

from mcclt.config import RunConfig
from mcclt.tuning.space import Space, configured

ROOT = Path(__file__).resolve().parent.parent
KEPT = ROOT / "benchmarks" / "results"


@pytest.fixture
def script(monkeypatch: pytest.MonkeyPatch) -> Any:
    """Imports a script as `python benchmarks/NAME.py` finds it."""
    monkeypatch.syspath_prepend(str(ROOT / "benchmarks"))
    return importlib.import_module


def test_the_page_of_results_is_what_the_stores_say(script: Any) -> None:
    """Nobody changes a table by hand, and no store changes without its pages."""
    render_docs = script("render_docs")
    stores = {scale: render_docs.Store(path).load() for scale, path in render_docs.STORES.items()}
    parts = {render_docs.PAGE: render_docs.parts(stores), render_docs.README: render_docs.summary(stores["paper"])}
    for page, found in parts.items():
        text = page.read_text(encoding="utf-8")
        assert render_docs.filled(text, found) == text


def test_a_mark_that_is_missing_is_named(script: Any) -> None:
    with pytest.raises(SystemExit, match="<!-- replication -->"):
        script("render_docs").filled("a page without marks", {"replication": "a table"})


def test_replication_is_welchs_by_scipy(script: Any) -> None:
    replication = script("replication")
    first, second = (replication.found(KEPT / name) for name in ("lockstep", "lockstep-seeds-30-59"))
    stores = {"first": first, "second": second, "both": replication.pooled(first, second)}
    lines = replication.table(**stores).splitlines()
    assert len(lines) == 2 + 24, "a head, and 2 tasks x 2 algorithms x 6 variants"
    (line,) = [line for line in lines if line.startswith("| PPO on Hopper-v4: baseline |")]
    cells = [cell.strip().replace("−", "-") for cell in line.split("|")[2:-1]]
    for k, (store, n) in enumerate(zip(stores.values(), (30, 30, 60), strict=True)):
        plain, ours = (np.asarray(store["Hopper-v4", "ppo", name].scores) for name in ("plain", "mcclt"))
        assert cells[k] == f"{plain.mean():,.0f} ± {plain.std(ddof=1) / np.sqrt(n):,.0f}"
        low, high = scipy.stats.ttest_ind(ours, plain, equal_var=False).confidence_interval()
        assert cells[3 + k] == f"{ours.mean() - plain.mean():+,.0f} [{low:+,.0f}, {high:+,.0f}]"


def test_all_pairs_by_scipy(script: Any, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    store = KEPT / "lockstep-seeds-30-59"
    monkeypatch.setattr("sys.argv", ["pairs.py", str(store)])
    script("pairs").main()
    head, *_, last = capsys.readouterr().out.splitlines()
    assert head == "60 pairs", "4 settings x 15"
    found = script("replication").found(store)
    cells = [cell.strip() for cell in last.split("|")]
    algo, rest = cells[1].split(" on ")
    task, names = rest.split(": ")
    a, b = (found[task, algo.lower(), name].scores for name in names.split(" − "))
    welch, ranks = scipy.stats.ttest_ind(a, b, equal_var=False), scipy.stats.mannwhitneyu(a, b)
    assert (cells[3], cells[6]) == (f"{welch.pvalue:.2g}", f"{ranks.pvalue:.2g}")
    assert cells[5] == f"{np.mean(np.asarray(a)[:, None] > np.asarray(b)):.2f}"


def test_the_search_that_is_timed_is_one_that_can_be_made(script: Any, tmp_path: Path) -> None:
    tuning = script("tuning")
    space = Space.of(tomllib.loads(tuning.SPACE))
    settings = space.settings({}, dict.fromkeys(space.numbers, 0.5))
    run, agent = configured(RunConfig("InvertedDoublePendulum-v5"), settings)
    assert (run.steps_per_update, agent.minibatch_size, agent.policy_iterations) == (2048, 64, 10)
    found = json.loads((KEPT / "tuning.json").read_text())
    assert found["ratio"] == pytest.approx(found["optuna_sb3_seconds"] / found["mcclt_seconds"])
    page = (ROOT / "docs" / "performance.md").read_text(encoding="utf-8")
    assert f"{found['optuna_sb3_seconds']:.0f} s: {found['ratio']:.1f} times" in page.replace("\n", " ")
