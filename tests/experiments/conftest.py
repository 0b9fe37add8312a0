"""What several tests of experiments need."""

import sys
from pathlib import Path
from typing import Any

import pytest

from drivers import STEPS, Recorder, cells_of, contents, tiny
from mcclt.config.variants import VARIANTS
from mcclt.experiments.runner import run_cells
from mcclt.experiments.store import Store
from mcclt.experiments.workers import InProcess
from mcclt.method.critics import CRITICS
from mcclt.training import plugins

EXAMPLES = Path(__file__).parents[2] / "examples"


@pytest.fixture(scope="session")
def undisturbed(tmp_path_factory: pytest.TempPathFactory) -> dict[Any, Any]:
    """Three seeds of `tiny(steps=STEPS)`, trained one by one in this process: what must come out of any other way."""
    store = Store(tmp_path_factory.mktemp("undisturbed"), create=True)
    display = Recorder()
    tally = run_cells(store, cells_of(tiny(steps=STEPS), 3), InProcess(display.progress), display, 1, False)
    assert (tally.done, tally.failures) == (3, [])
    assert all(steps == list(range(64, STEPS + 1, 64)) for steps in display.steps.values())
    for result in store.load().series[0].results:
        assert result.provenance["engine"] == "native" and result.cost["seconds"] > 0 and len(result.returns) == 2
    return contents(store)


@pytest.fixture
def own_critic(monkeypatch: pytest.MonkeyPatch) -> None:
    """The example's critic and variant `gaussian`, entered as a user's file enters them."""
    for table in (CRITICS, VARIANTS):
        monkeypatch.setitem(table, "gaussian", None)
        monkeypatch.delitem(table, "gaussian")
    file = EXAMPLES / "own_critic.py"
    monkeypatch.delitem(sys.modules, f"mcclt_import_{file}", raising=False)
    monkeypatch.setenv(plugins.VARIABLE, str(file))
    plugins.import_named()
