"""`mcclt compare`, `mcclt reproduce` and `mcclt report` as a stranger uses them."""

import importlib.util
import io
import math
import os
import re
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from commands import Cli
from drivers import PENDULUM, RUN, VARIANT, contents
from mcclt import interrupts
from mcclt.cli import machinery, reproduce
from mcclt.cli.machinery import Machinery
from mcclt.cli.reproduce import Reproduce
from mcclt.errors import MccltError
from mcclt.experiments import training
from mcclt.experiments.results import Results
from mcclt.experiments.setups import make_setup
from mcclt.experiments.store import Store
from mcclt.experiments.units import Outcome, Unit
from mcclt.pages import report
from mcclt.storage import files
from synthetic import make_result, make_store


@pytest.fixture
def mcclt(mcclt: Cli, monkeypatch: pytest.MonkeyPatch) -> Cli:
    """With room for tables, and in this process, where training can be replaced, however long a plan is."""
    monkeypatch.setenv("COLUMNS", "160")
    monkeypatch.setattr(machinery, "LONG", math.inf)
    return mcclt


@pytest.fixture
def made_up(monkeypatch: pytest.MonkeyPatch) -> list[Unit]:
    """Training makes results up: seed i of the n-th letter's variant scores 10·n + i. Lists the units trained."""
    units: list[Unit] = []

    def pretend(unit: Unit, folder: Path, report: Callable[[int, str], None]) -> Outcome:
        units.append(unit)
        report(unit.config.steps, "")
        return Outcome([(s, make_result(s, seed, 10 * ord(s.variant[0]) + seed, 3)) for s, seed in unit.cells], [])

    def page(results: Results, folder: Path, *_: object) -> Path:
        """A report takes seconds, and has its own tests."""
        if not results.series:
            raise MccltError("There are no results yet.")
        return folder / "report.html"

    monkeypatch.setattr(training, "train_unit", pretend)
    monkeypatch.setattr(report, "write", page)
    return units


# --- end to end ------------------------------------------------------------------------------------------------


@pytest.mark.filterwarnings("ignore:constrained_layout not applied")  # this variant's name is long
def test_compare_in_earnest(mcclt: Cli, monkeypatch: pytest.MonkeyPatch) -> None:
    """Trains, only with smaller rollouts than --flags allow, and writes the report."""
    monkeypatch.setattr(
        "mcclt.experiments.setups.make_setup", lambda *args, **run: make_setup(*args, **RUN | {"steps": 100})
    )
    args = ["compare", PENDULUM, "--variants", VARIANT, "--n-seeds", "2", "--population", "1"]
    out, err = mcclt(*args)
    assert err == "" and "1 / 2 cells" in out
    assert "2 cells to compute, 256 steps in all." in out, "100 are two updates of 64"
    assert "2 cells computed, 0 already there. Store: my-results" in out
    assert Path("my-results/report/report.html").stat().st_size > 10_000
    (series,) = Store(Path("my-results")).load().series
    assert series.seeds == [0, 1] and [p.name for p in Path.cwd().iterdir()] == ["my-results"]


@pytest.mark.slow
def test_compare_as_a_process(tmp_path: Path) -> None:
    """The installed program trains, one seed after the other, and the report is there."""
    args = [sys.executable, "-m", "mcclt", "compare", PENDULUM, "--variants", VARIANT, "--n-seeds", "2"]
    args += ["--steps", "4k", "--episodes", "2", "--store", "my results", "--population", "1"]
    done = subprocess.run(args, cwd=tmp_path, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert "2 cells to compute, 8,000 steps in all." in done.stdout and "1 / 2 cells" in done.stdout
    assert "2 cells computed, 0 already there. Store: my results" in done.stdout
    assert (tmp_path / "my results" / "report" / "report.html").stat().st_size > 10_000
    results = Store(tmp_path / "my results").load()
    assert [s.seeds for s in results.series] == [[0, 1]] and results.problems == ()
    assert sorted(p.name for p in tmp_path.iterdir()) == ["my results"]


def test_compare_shows_statistics(mcclt: Cli, made_up: list[Unit]) -> None:
    out, err = mcclt("compare", "Hopper-v4", "--variants", "plain,mcclt", "--n-seeds", "3", "--steps", "4k")
    assert err == "" and "Hopper-v4, 4,000 steps, 3 seeds each" in out
    # plain: 10·112 + (0, 1, 2), mean 1,121; mcclt: 10·109 + (0, 1, 2), mean 1,091; se of both 1/√3 = 0.6.
    plain, ours = (next(line for line in out.splitlines() if name in line) for name in ("│ ppo-plain ", "│ ppo-mcclt "))
    assert "1,121" in plain and "0.577" in plain
    assert "1,091" in ours and "−30 " in ours and "0.000" in ours
    assert (
        "6 cells computed, 0 already there. Store: my-results" in out and "Report: my-results/report/report.html" in out
    )
    assert len(made_up) == 2
    again, _ = mcclt("compare", "Hopper-v4", "--variants", "mcclt,plain", "--n-seeds", "3", "--steps", "4k")
    assert "0 cells computed, 6 already there" in again and "+30 " in again and len(made_up) == 2


def test_compare_does_not_cut_names(mcclt: Cli, made_up: list[Unit], monkeypatch: pytest.MonkeyPatch) -> None:
    """Wide in a file; on a narrow screen long names go on in the next line."""
    monkeypatch.delenv("COLUMNS")
    long = "mcclt@variance_head=log_variance"
    args = ("compare", "Hopper-v4", "--variants", f"plain,{long}", "--n-seeds", "2", "--steps", "4k")
    out, _ = mcclt(*args)
    assert f"│ ppo-{long} │" in out
    monkeypatch.setenv("COLUMNS", "70")
    narrow, _ = mcclt(*args)
    rows = [line.split("│")[1].strip() for line in narrow.splitlines() if line.startswith("│")]
    assert "".join(rows) == f"ppo-plainppo-{long}"


@pytest.mark.parametrize(
    ("command", "gpu", "mps", "count", "says"),
    [
        (Reproduce(), False, False, 4, "4 processes share the cores"),
        (Reproduce(workers=2), False, False, 2, ""),
        (Reproduce(quiet=True), False, False, 4, ""),
        (Reproduce(backend="ray"), False, False, 1, ""),
        (Reproduce(), True, False, 1, ""),
        (Reproduce(workers=2), True, False, 2, "nvidia-cuda-mps-control -d"),
        (Reproduce(workers=2), True, True, 2, ""),
    ],
)
def test_how_many_processes_train(
    monkeypatch: pytest.MonkeyPatch,
    tmp_path: Path,
    command: Machinery,
    gpu: bool,
    mps: bool,
    count: int,
    says: str,
) -> None:
    """On four cores, of eight agents of 200,000 steps each; shorter plans stay in this process if nothing is said."""
    monkeypatch.setattr("mcclt.envs.api.available_cores", lambda: 4)
    monkeypatch.setattr("mcclt.training.population.on_cpu", lambda: not gpu)
    monkeypatch.setattr("os.sysconf", {"SC_PHYS_PAGES": 9_000_000, "SC_PAGE_SIZE": 1_000}.__getitem__)
    monkeypatch.setenv("CUDA_MPS_PIPE_DIRECTORY", str(tmp_path))
    if mps:
        (tmp_path / "control").touch()
    setup = make_setup("Hopper", "ppo", "plain", "fixed", steps=200_000)
    cells = [(setup, seed) for seed in range(8)]
    assert command.side_by_side(cells) == count
    found = command.advice(count)
    assert says in found and bool(says) == bool(found)
    assert command.side_by_side(cells[:4]) == (command.workers or 1)
    monkeypatch.setattr("os.sysconf", {"SC_PHYS_PAGES": 5_000_000, "SC_PAGE_SIZE": 1_000}.__getitem__)
    assert command.side_by_side(cells) == min(count, command.workers or 2), "2 GB each"


def test_compare_with_one_seed_says_what_is_missing(mcclt: Cli, made_up: list[Unit]) -> None:
    out, _ = mcclt("compare", "Hopper-v4", "--variants", "plain,mcclt", "--n-seeds", "1", "--steps", "4k", "--quiet")
    assert "A test needs at least two seeds of each" in out and "nan" not in out.lower()
    assert "cells to compute" not in out, "quiet"


def test_more_seeds_are_added(mcclt: Cli, made_up: list[Unit]) -> None:
    args = ["compare", "Hopper-v4", "--variants", "plain", "--steps", "4k"]
    mcclt(*args, "--n-seeds", "2")
    out, _ = mcclt(*args, "--seeds", "1..4")
    assert "3 cells computed, 1 already there" in out
    assert [u.seeds for u in made_up] == [(0, 1), (2, 3, 4)]


def test_a_single_number_names_a_seed(mcclt: Cli, made_up: list[Unit]) -> None:
    """It once was a count: that is pointed out."""
    _, err = mcclt(*SOME, "--seeds", "10", "--steps", "4k")
    assert err == "mcclt: --seeds 10 is the single seed 10; --n-seeds 10 trains 10.\n"
    assert [u.seeds for u in made_up] == [(10,)]


def test_the_same_variant_twice(mcclt: Cli, made_up: list[Unit]) -> None:
    out, _ = mcclt(
        "compare", "Hopper-v4", "--variants", "mcclt@kappa=2,mcclt@kappa=2.0", "--n-seeds", "2", "--steps", "4k"
    )
    assert "2 cells computed, 0 already there" in out


def test_widths_behind_commas(mcclt: Cli, made_up: list[Unit]) -> None:
    mcclt("compare", "Hopper-v4", "--variants", "plain@critic_hidden=8,9,qr,mcclt@critic_hidden=7", "--n-seeds", "1")
    widths = [u.setups[0].agent.critic_hidden for u in made_up]
    assert widths == [(8, 9), (128, 128), (7,)]


def test_tuned_settings_bring_their_algorithm(mcclt: Cli, made_up: list[Unit]) -> None:
    args = ["compare", "HalfCheetah-v4,Swimmer-v4,BipedalWalker-v3", "--settings", "tuned", "--variants", "plain"]
    mcclt(*args, "--n-seeds", "1")
    assert [u.setups[0].name for u in made_up] == ["trpo-plain", "trpo-plain", "ppo-plain"]
    _, err = mcclt(*args, "--algo", "ppo", code=2)
    assert "On HalfCheetah take TRPO (--algo trpo)." in err
    made_up.clear()
    mcclt("compare", "HalfCheetah-v4", "--variants", "plain", "--n-seeds", "1")
    assert [u.setups[0].name for u in made_up] == ["ppo-plain"]


def test_population(mcclt: Cli, made_up: list[Unit]) -> None:
    mcclt("compare", "Hopper-v4", "--variants", "plain", "--n-seeds", "10", "--population", "4")
    assert [len(u.seeds) for u in made_up] == [4, 4, 2]


def test_failures_are_reported_in_one_sentence(mcclt: Cli, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(unit: Unit, *_: object) -> None:
        raise MccltError("The motor burns.")

    monkeypatch.setattr(training, "train_unit", fail)
    _, err = mcclt("compare", "Hopper-v4", "--variants", "plain,qr", "--n-seeds", "1", code=2)
    assert err.startswith("mcclt: 2 cells without a result: Hopper-v4__ppo-plain__") and err.count("\n") == 1
    assert err.endswith("The motor burns. (and 1 more)\n")


@pytest.mark.parametrize(
    ("error", "said", "code"), [(KeyboardInterrupt, "Interrupted", 130), (interrupts.Terminated, "Terminated", 143)]
)
def test_an_interrupt_says_how_to_go_on(
    mcclt: Cli, monkeypatch: pytest.MonkeyPatch, error: type[KeyboardInterrupt], said: str, code: int
) -> None:
    def interrupt(*_: object) -> None:
        raise error

    monkeypatch.setattr(training, "train_unit", interrupt)
    monkeypatch.setattr(sys, "argv", ["mcclt", "compare", "Hopper-v4", "--store", "my results"])
    out, _ = mcclt("compare", "Hopper-v4", "--variants", "plain", "--n-seeds", "1", code=code)
    assert f"{said}; nothing is lost. Continue with\n  mcclt compare Hopper-v4 --store 'my results'" in out


def test_cells_under_way_elsewhere(mcclt: Cli, made_up: list[Unit]) -> None:
    store = Store(Path("my-results"), create=True)
    claim = store.claim((make_setup("Hopper", "ppo", "plain", "fixed"), 1))
    out, _ = mcclt("compare", "Hopper-v4", "--variants", "plain", "--n-seeds", "3")
    assert claim is not None
    claim.release()
    assert "Another process is computing 1 cell; run this again to check." in out
    assert "2 cells computed" in out


# --- reproduce -------------------------------------------------------------------------------------------------


def test_reproduce_a_part(mcclt: Cli, made_up: list[Unit]) -> None:
    out, _ = mcclt("reproduce", "--table", "3", "--tasks", "Hopper,Ant-v5", "--algo", "ppo", "--scale", "smoke")
    # 2 tasks x 2 variants x 2 seeds
    assert "8 cells computed" in out
    assert {(u.setups[0].task, u.setups[0].variant, u.seeds) for u in made_up} == {
        (task, variant, (0, 1)) for task in ("Hopper-v4", "Ant-v5") for variant in ("mcclt", "explore")
    }
    assert {(u.config.steps, u.config.final_episodes) for u in made_up} == {(8000, 5)}
    assert "0 cells computed, 8 already there" in mcclt(
        "reproduce", "--table", "3", "--tasks", "Hopper,Ant-v5", "--algo", "ppo", "--scale", "smoke"
    )[0]  # fmt: skip


def test_seeds_and_steps_need_no_scale(mcclt: Cli, made_up: list[Unit]) -> None:
    mcclt("reproduce", "--figure", "1", "--tasks", "Hopper", "--n-seeds", "5", "--steps", "4k")
    (unit,) = made_up
    assert unit.seeds == (0, 1, 2, 3, 4), "those asked for, though the drawing needs three"
    assert (unit.config.steps, unit.config.final_episodes) == (4000, 100)


def test_a_planned_variant_however_it_is_spelt(mcclt: Cli, made_up: list[Unit]) -> None:
    mcclt("reproduce", "--ablation", "crossing", "--variants", "mcclt@crossing_error=1e5", "--tasks", "Hopper",
          "--algo", "ppo", "--n-seeds", "1", "--steps", "4k")  # fmt: skip
    assert [u.setups[0].variant for u in made_up] == ["mcclt@crossing_error=100000.0"]


def test_the_plan_and_its_cost(mcclt: Cli) -> None:
    out, err = mcclt("reproduce", code=2)
    assert err == "mcclt: Which scale? Give --scale smoke, short or paper.\n"
    for title in ("table 1: ", "table 2: ", "table 3: ", "figure 1: ", "figure 2: ", "figure 4: ", "ablation: number"):
        assert title in out
    rows = {line.split()[1]: line for line in out.splitlines() if re.match(r"│ (smoke|short|paper) ", line)}
    # 20 setups per task (test_plan), on 8 tasks: with 2 and 3 seeds; and 8·(18·30 + 3 + 10) at the paper's scale.
    for name, steps, cells in (("smoke", "8,000", 320), ("short", "100,000", 480), ("paper", "1,000,000", 4424)):
        assert steps in rows[name] and f" {cells} " in rows[name]
    assert "days" in rows["paper"]
    assert list(Path.cwd().iterdir()) == [], "nothing is written"


def test_the_cost_counts_what_is_there(mcclt: Cli) -> None:
    store = Store(Path("my-results"), create=True)
    for seed in range(2):
        setup = make_setup("Hopper", "ppo", "mcclt", "authors", steps=8000, final_episodes=5)
        store.write(setup, make_result(setup, seed, 1.0))
    out, _ = mcclt("reproduce", "--table", "3", "--tasks", "Hopper", "--algo", "ppo", "--variants", "mcclt", code=2)
    (smoke, short) = (next(x for x in out.splitlines() if f"│ {name} " in x) for name in ("smoke", "short"))
    assert [w.strip() for w in smoke.split("│")[4:7]] == ["2", "0", "0 s"]
    # 250 s for 8,000 steps: 3 · 100,000 · 250/8,000 = 9,375 s = 2.6 hours
    assert [w.strip() for w in short.split("│")[4:7]] == ["3", "3", "2.6 hours"]


def test_on_a_gpu_drawings_have_the_seeds_of_tables(mcclt: Cli) -> None:
    """Agents of one unit must have the same seeds, and 3 agents alone take a GPU as long as 300."""
    plan = ("reproduce", "--figure", "1", "--tasks", "Hopper")
    for where, seeds in (((), "3"), (("--backend", "ray", "--gpus", "1"), "30")):
        out, _ = mcclt(*plan, *where, code=2)
        (paper,) = (line for line in out.splitlines() if "│ paper " in line)
        assert [word.strip() for word in paper.split("│")[3:5]] == [seeds, seeds]


@pytest.mark.parametrize(("answer", "code"), [("smoke\n", 0), ("\n", 0), ("", 0), ("smoek\n", 2)])
def test_asking(mcclt: Cli, made_up: list[Unit], monkeypatch: pytest.MonkeyPatch, answer: str, code: int) -> None:
    """An empty line, or Ctrl-D, which ends the input, is no answer."""
    terminal = io.StringIO(answer)
    monkeypatch.setattr(terminal, "isatty", lambda: True, raising=False)
    monkeypatch.setattr(sys, "stdin", terminal)
    _, err = mcclt("reproduce", "--figure", "1", "--tasks", "Hopper", code=code)
    wanted = answer == "smoke\n"
    assert len(made_up) == wanted and Path("my-results").exists() == wanted
    if code:
        assert "Unknown scale 'smoek'. Did you mean 'smoke'?" in err


def test_table_2_is_measured(mcclt: Cli, monkeypatch: pytest.MonkeyPatch) -> None:
    """It trains nothing, so it needs no scale."""

    def time_variants(base: Any, agents: dict[str, Any], updates: int) -> Any:
        rows = [{"variant": name, "seconds": {"whole": 0.5}, "critic_parameters": 7, "steps_per_second": 8000}
                for name in agents]  # fmt: skip
        return 9000.0, 5e10, rows

    monkeypatch.setattr("mcclt.experiments.bench.time_variants", time_variants)
    monkeypatch.setattr(report, "write", lambda results, folder: folder / "report.html")
    out, _ = mcclt("reproduce", "--table", "2", "--tasks", "Hopper")
    (timing,) = Store(Path("my-results")).load().timings
    assert timing["task"] == "Hopper-v4" and [row["variant"] for row in timing["rows"]] == list(reproduce.COSTED)
    assert "Timing plain" in out


# --- pack ------------------------------------------------------------------------------------------------------


def test_pack(mcclt: Cli) -> None:
    store = make_store(Path("my-results"), tasks=("Hopper",), algos=("ppo",), variants=("plain", "mcclt"), seeds=2)
    loaded = contents(store)
    damaged = store.file((make_setup("Hopper", "ppo", "plain", "authors"), 7))
    damaged.write_text("half")
    said, error = mcclt("pack", code=2)
    assert re.search(rf"{damaged} is damaged.*\n4 cells packed: [0-9]+ kB became [0-9] kB\.", said)
    assert error == "mcclt: 1 file could not be packed: see above.\n"
    damaged.unlink()
    assert contents(Store("my-results")) == loaded
    assert mcclt("pack")[0] == "Nothing to pack.\n"
    assert "4 cells unpacked" in mcclt("pack", "my-results", "--unpack")[0]
    assert mcclt("pack", "--unpack")[0] == "Nothing to unpack.\n" and contents(Store("my-results")) == loaded


@pytest.mark.parametrize("packed", [False, True])
def test_a_finished_store_is_read_once(
    mcclt: Cli, made_up: list[Unit], monkeypatch: pytest.MonkeyPatch, packed: bool
) -> None:
    args = ["compare", PENDULUM, "--variants", "plain,mcclt", "--n-seeds", "3"]
    mcclt(*args)
    if packed:
        mcclt("pack")
    kept = [path for path in Path("my-results/cells").rglob("*") if path.is_file()]
    for path in kept:
        os.utime(path, (0, 0))
    reads: list[Path] = []
    original = files.read
    monkeypatch.setattr(files, "read", lambda path, *rest: (reads.append(path), original(path, *rest))[1])
    out, _ = mcclt(*args)
    assert "0 cells computed, 6 already there" in out
    assert sorted(path for path in reads if "cells" in path.parts) == sorted(kept)
    assert len(kept) == (1 if packed else 8)


# --- report ----------------------------------------------------------------------------------------------------


def test_report(tmp_path: Path) -> None:
    """Everything that is wrong with a store is said, nothing of it in the way, and JAX is not imported."""
    store = make_store(tmp_path / "my-results", tasks=("Hopper",), algos=("ppo",), variants=("plain", "mcclt"), seeds=2)
    bad = store.file((make_setup("Hopper", "ppo", "mcclt", "authors"), 1))
    bad.write_bytes(bad.read_bytes()[:100])
    other = make_setup("Hopper", "ppo", "plain", "fixed", steps=4000)
    store.write(other, make_result(other, 0, 1.0))
    code = "import sys; from mcclt.cli import main; main(['report', '--out', 'page']); sys.exit('jax' in sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], cwd=tmp_path, capture_output=True, text=True)
    assert done.returncode == 0 and done.stderr == "", done.stderr
    assert f"{bad.relative_to(tmp_path)} is damaged" in done.stdout
    assert "ppo-plain on Hopper-v4 was trained in 2 configurations, which are never averaged" in done.stdout
    assert "Report: page/report.html" in done.stdout and (tmp_path / "page" / "report.html").exists()


def test_report_on_a_store_without_results(mcclt: Cli) -> None:
    """What is damaged is named; the command proposed is that of the store's kind."""
    store = Store(Path("my-results"), create=True)
    assert "run  mcclt compare TASK --store my-results  first." in mcclt.refused("report")
    setup = make_setup(PENDULUM, "ppo", "plain", "fixed")
    store.write(setup, make_result(setup, 0, 1.0)).write_text("half")
    out, err = mcclt("report", code=2)
    assert "seed-0.json is damaged" in out and "No result of my-results can be read" in err


# --- bad input -------------------------------------------------------------------------------------------------

SOME = ["compare", "Hopper-v4", "--variants", "plain"]
COMPARE = [*SOME, "--n-seeds", "1"]
REPRODUCE = ["reproduce", "--tasks", "Hopper", "--scale", "smoke"]


@pytest.mark.parametrize(
    ("args", "message"),
    [
        (["compare", "Hoper-v5"], "Unknown task 'Hoper-v5'. Did you mean 'Hopper-v5'?"),
        (["compare", "Hopper"], "Unknown task 'Hopper'. Did you mean 'Hopper-v5'?"),
        (["compare", "Hopper-v5,Hoper"], "Unknown task 'Hoper'. Did you mean 'Hopper-v5'?"),
        (["compare", ""], "tasks = '' is not allowed: name at least one."),
        (["compare"], "TASK is missing; type, for example,  mcclt compare Hopper-v5 --variants plain,mcclt"),
        (["compare", "Hopper-v4", "--variants", "mclt"], "Unknown variant 'mclt'. Did you mean 'mcclt'?"),
        (["compare", "Hopper-v4", "--variants", "trpo-mcclt@kappa=2"], "the algorithm on its own, as in --algo trpo."),
        (["compare", "Hopper-v4", "--variants", "mcclt@n_quantile=4"], "Did you mean 'n_quantiles'?"),
        (["compare", "Hopper-v4", "--variants", "mcclt@n_quantiles=1"], "at least 2"),
        (["compare", "Hopper-v4", "--variants", "plain@cg_damping=1"], "in plain@cg_damping=1.0 has no effect"),
        (["compare", "Hopper-v4", "--variants", ","], "variants = ',' is not allowed: name at least one."),
        (["compare", "CartPole-v1", "--engine", "native"], "Engine 'native' cannot run 'CartPole-v1'; use one of:"),
        (["compare", "CartPole-v1", "--engine", "warp"], "warp"),  # is not installed, or cannot run it
        (["compare", "Hopper-v4", "--algo", "a2c"], "Unknown algo 'a2c'. Allowed: ppo, trpo."),
        (["compare", "Hopper-v4", "--settings", "mine"], "Unknown settings 'mine'. Allowed: authors, fixed, modern"),
        (["compare", "CartPole-v1", "--settings", "authors"], "CartPole"),
        (["compare", "Hopper-v4", "--config", "authors"], "--config authors and --config fixed are now --settings"),
        (["compare", "Hopper-v4", "--task-engine", "warp"], "--task-engine is now --engine."),
        (["reproduce", "--task-engine=warp"], "--task-engine is now --engine."),
        ([*COMPARE, "--n-seeds", "0"], "n_seeds = 0 is not allowed"),
        ([*COMPARE, "--n-seeds", "10001"], "n_seeds = 10001 is not allowed"),
        ([*COMPARE, "--seeds", "1"], "--seeds names seeds and --n-seeds counts them: leave one out."),
        ([*SOME, "--seeds", "1,1"], "without repetitions"),
        ([*SOME, "--seeds", "4294967296,0"], "2^32-1"),
        ([*SOME, "--seeds", "x"], "seeds = 'x' is not allowed"),
        ([*COMPARE, "--steps", "0"], "steps = 0 is not allowed"),
        ([*COMPARE, "--steps", "many"], "is not a number of steps"),
        ([*COMPARE, "--episodes", "0"], "episodes = 0 is not allowed: it must be at least 1."),
        ([*COMPARE, "--workers", "0"], "workers = 0 is not allowed: it must be at least 1."),
        ([*COMPARE, "--workers", "two"], "workers = 'two' is not allowed: give a whole number."),
        ([*COMPARE, "--population", "0"], "population = 0 is not allowed"),
        ([*COMPARE, "--backend", "slurm"], "Unknown backend 'slurm'. Allowed: local, ray."),
        ([*COMPARE, "--engine", "ray"], "--engine ray is now --backend ray."),
        ([*REPRODUCE, "--engine", "local"], "--engine local is now --backend local."),
        ([*COMPARE, "--engine", "natve"], "Unknown engine 'natve'. Did you mean 'native'?"),
        ([*COMPARE, "--address", "auto"], "--address is for a Ray cluster: add --backend ray."),
        ([*COMPARE, "--gpus", "1"], "--gpus is for a Ray cluster: add --backend ray."),
        ([*COMPARE, "--backend", "ray", "--workers", "2"], "--workers is for this machine"),
        ([*COMPARE, "--backend", "ray", "--cpus", "0"], "cpus = 0 is not allowed"),
        ([*COMPARE, "--backend", "ray", "--cpus", "nan"], "cpus = nan is not allowed"),
        ([*COMPARE, "--backend", "ray", "--gpus", "-1"], "gpus = -1 is not allowed"),
        ([*COMPARE, "--store", "file.txt"], "file.txt"),
        ([*COMPARE, "--store", "file.txt/below"], "file.txt"),
        ([*COMPARE, "--store", "full"], "full is not a store of results, and not empty"),
        (["reproduce", "--table", "4"], "Unknown table '4'. Allowed: 1, 2, 3."),
        (["reproduce", "--figure", "3"], "Figure 3 is a drawing that `mcclt report` makes"),
        (["reproduce", "--ablation", "guid"], "Unknown ablation 'guid'. Did you mean 'guide'?"),
        (["reproduce", "--scale", "huge"], "Unknown scale 'huge'. Allowed: smoke, short, paper."),
        (["reproduce", "--tasks", "Hoper"], "Unknown task 'Hoper'. Did you mean 'Hopper'?"),
        (["reproduce", "--tasks", "Hopper-v99"], "Hopper-v99"),
        (["reproduce", "--tasks", ""], "tasks = '' is not allowed: name at least one."),
        ([*REPRODUCE, "--table", " "], "table = ' ' is not allowed: name at least one."),
        (["reproduce", "--tasks", "Ant,BipedalWalker", "--engine", "native"], "cannot run 'BipedalWalker-v3'"),
        (["reproduce", "--algo", "sac"], "Unknown algo 'sac'"),
        ([*REPRODUCE, "--table", "1", "--variants", "explore"], "Unknown variant 'explore'"),
        ([*REPRODUCE, "--table", "1", "--variants", "mclt"], "Did you mean 'mcclt'?"),
        ([*REPRODUCE, "--figure", "1", "--algo", "trpo"], "Nothing to compute"),
        ([*REPRODUCE, "--workers", "0"], "workers = 0"),
        ([*REPRODUCE, "--store", "full"], "full is not a store of results, and not empty"),
        (["report", "nothing"], "nothing is not a store of results"),
        (["report", "full"], "full is not a store of results"),
        (["report", "empty"], "no results"),
        (["report", "search"], "search is a search of `mcclt tune`, whose page is search/search.html"),
        (["report", "full/a,nowhere/b", "--follow"], "There is no directory nowhere for the run nowhere/b to begin in"),
    ],
)  # fmt: skip
def test_bad_input(mcclt: Cli, made_up: list[Unit], args: list[str], message: str) -> None:
    Path("file.txt").write_text("mine")
    Path("full").mkdir()
    Path("full/thesis.txt").write_text("mine")
    Path("search").mkdir()
    Path("search/search.json").write_text("{}")
    Store(Path("empty"), create=True)
    assert message in mcclt.refused(*args)
    assert made_up == []


def test_without_ray(mcclt: Cli, monkeypatch: pytest.MonkeyPatch) -> None:
    find = importlib.util.find_spec
    monkeypatch.setattr(importlib.util, "find_spec", lambda name, *rest: None if name == "ray" else find(name, *rest))
    assert "pip install 'ray>=" in mcclt.refused(*COMPARE, "--backend", "ray")


def test_a_store_that_cannot_be_made(mcclt: Cli, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: object, **__: object) -> None:
        raise PermissionError(13, "Permission denied")

    monkeypatch.setattr("mcclt.storage.files.tempfile.mkstemp", refuse)
    monkeypatch.setattr(Path, "mkdir", refuse)
    assert "Cannot use the store my-results: Permission denied." in mcclt.refused(*COMPARE)


def test_help(mcclt: Cli) -> None:
    machine = "--store --engine --backend --workers --address --cpus --gpus --population --quiet"
    shared = [*machine.split(), "--seeds", "--n-seeds", "--steps"]
    for command in ("compare", "reproduce", "report"):
        out, err = mcclt(command, "--help")
        text = " ".join(re.sub(r"[│╭╮╰╯─]+", " ", out).split())
        assert err == "" and f"mcclt {command} " in text
        assert command == "report" or all(flag in text for flag in shared)
