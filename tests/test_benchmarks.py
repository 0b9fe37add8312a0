"""The scripts of benchmarks/ that make tables of the documentation, on the stores that are in the repository."""

import dataclasses
import importlib
import json
import re
import shutil
import sys
import tomllib
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import scipy.stats

import mcclt
from mcclt.cli import main
from mcclt.config import RunConfig
from mcclt.experiments.paper import paper_entry
from mcclt.experiments.results import NAMES, Series
from mcclt.experiments.setups import make_setup, parse_variant
from mcclt.experiments.store import Store
from mcclt.tuning.space import Space, configured
from probes import PENDULUM, TINY, flags
from synthetic import filled

ROOT = Path(__file__).resolve().parent.parent
KEPT = ROOT / "benchmarks" / "results"
CRITICS = ("plain", "mcclt")


@pytest.fixture
def script(monkeypatch: pytest.MonkeyPatch) -> Any:
    """Imports a script as `python benchmarks/NAME.py` finds it."""
    monkeypatch.syspath_prepend(str(ROOT / "benchmarks"))
    return importlib.import_module


@pytest.mark.slow
def test_the_page_of_results_is_what_the_stores_say(script: Any) -> None:
    """Nobody changes a table by hand, and no store changes without its pages."""
    render_docs = script("render_docs")
    stores = {scale: render_docs.Store(path).load() for scale, path in render_docs.STORES.items()}
    for page, found in render_docs.pages(stores).items():
        text = page.read_text(encoding="utf-8")
        assert render_docs.filled(text, found) == text


def test_speeds_of_the_readme_are_those_that_were_measured() -> None:
    text = " ".join((ROOT / "README.md").read_text(encoding="utf-8").split())
    rows = {row["name"]: row for row in json.loads((KEPT / "peers.json").read_text())["rows"]}
    speed = {name: f"{row['steps_per_second']:,.0f}" for name, row in rows.items()}
    ppo, trpo = (rows[name]["ours_equal"] for name in ("stable-baselines3 PPO", "sb3-contrib TRPO"))
    assert f"{speed[ppo]} steps/s where Stable-Baselines3 PPO runs {speed['stable-baselines3 PPO']}" in text
    assert f"SBX PPO (JAX) {speed['sbx-rl PPO']}, and {speed[trpo]} where sb3-contrib TRPO runs" in text
    on_gpu = json.loads((KEPT / "bench" / "warp.json").read_text())["HalfCheetah-v4"]
    made = f"{round(on_gpu['steps_per_second'], -3):,.0f}"
    assert f"{on_gpu['agents']} agents, evaluations included, run {made} environment steps/s on HalfCheetah" in text


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


def test_returns_are_the_middle_half_by_scipy(script: Any) -> None:
    returns = script("returns")
    series = next(one for one in returns.Store(returns.KEPT).load().mains if len(one.seeds) == 30)
    middle = scipy.stats.trim_mean(np.repeat(series.scores, 2), 0.25)  # 15 of 60, where 7.5 of 30 are no whole seeds
    assert returns.interquartile_mean(series).startswith(f"{middle:,.0f} [")
    steps, rows = series.curve("eval/mean_reward")
    curve = scipy.stats.trim_mean(np.repeat(rows, 2, axis=0), 0.25)
    figure = curve[3:5].mean()
    assert curve[:4].max() < figure < curve[4] and returns.reached(series, figure) == steps[4]
    assert returns.reached(series, curve.max() + 1) is None


def test_returns_have_a_dash_where_nothing_was_published(script: Any, tmp_path: Path) -> None:
    returns = script("returns")
    setups = [make_setup(task, "ppo", "plain", "fixed", steps=4000) for task in ("Hopper-v4", "Hopper-v5")]
    results = filled(tmp_path, [(setup, [3451.0] * 3) for setup in setups]).load()
    rows = [line.strip("| ").split(" | ") for line in returns.table(results).splitlines()[2:]]
    assert [row[-3:-1] for row in rows] == [["3,450", "4,000"], ["–", "–"]]
    assert [line.split(" | ")[-1] for line in returns.short_table(results).splitlines()[2:]] == ["3,450 |", "– |"]
    known, unknown = returns.tuned_returns(results).axes
    assert [len(axis.lines) for axis in (known, unknown)] == [2, 1], "the line of what was published"


def test_calibration_of_only_some_seeds_is_not_told(script: Any, tmp_path: Path) -> None:
    returns = script("returns")
    series = (
        filled(tmp_path, [(make_setup("Hopper-v4", "ppo", "mcclt", "fixed", steps=4000), [1.0] * 3)]).load().mains[0]
    )
    inside = [
        np.mean([result.probe["calibration"]["coverage"][level] for result in series.results])
        for level in ("0.5", "0.8", "0.95")
    ]
    assert returns.calibrated(series).startswith(", ".join(f"{100 * share:.0f}" for share in inside) + " %; ")
    unknown = dataclasses.replace(series.results[0], probe=series.results[0].probe | {"calibration": {}})
    assert returns.calibrated(dataclasses.replace(series, results=(unknown, *series.results[1:]))) == "–"


def test_sentences_about_tuned_settings_say_what_the_stores_do(script: Any) -> None:
    returns, minutes = script("returns"), script("minutes")
    page, readme = (
        " ".join((ROOT / name).read_text(encoding="utf-8").split()) for name in ("docs/returns.md", "README.md")
    )
    results = returns.Store(returns.KEPT).load()
    cheetah, hopper, swimmer = (results.main(f"{t}-v4", "trpo", "plain") for t in ("HalfCheetah", "Hopper", "Swimmer"))
    assert f"{(cheetah.scores > 7185).sum()} of its 30 seeds are above" in page
    was = returns.Store(KEPT / "returns-before").load().main("Swimmer-v4", "trpo", "plain")
    assert f"with λ = 0.95 {(was.scores < 170).sum()} of 30 seeds were stuck below 170, with 0.98 one is, and" in page
    assert (swimmer.scores < 170).sum() == 1
    guided = results.main("Swimmer-v4", "trpo", "mcclt").scores
    assert guided.min() > 170 and f"{guided.mean() - swimmer.scores.mean():.0f} (p = 0.05, one of seven" in page
    assert 0.045 < scipy.stats.ttest_ind(guided, swimmer.scores, equal_var=False).pvalue < 0.055
    assert f"{(hopper.scores < 1600).sum()} of 30 seeds end below 1,600" in page
    lander, biped = (results.main(t, "ppo", "plain").scores for t in ("LunarLanderContinuous-v3", "BipedalWalker-v3"))
    assert f"with all 30 seeds between {lander.min():.0f} and {lander.max():.0f}" in page
    assert (biped < 200).sum() == 2 and "Two of the 30 seeds end below 200" in page
    near = (("Swimmer-v4", "trpo"), ("InvertedDoublePendulum-v4", "ppo"), ("Hopper-v4", "trpo"), ("Ant-v4", "trpo"))
    middles = {task: returns.aggregates.iqm([results.main(task, algo, "plain").scores]) for task, algo in near}
    below = [f"{100 * (1 - float(middle) / returns.TO_BEAT[task]):.0f}" for task, middle in middles.items()]
    told = "Swimmer, InvertedDoublePendulum, Hopper and Ant are {}, {}, {} and {} % below".format(*below)
    assert told in page and told in readme
    scores = [results.main("InvertedDoublePendulum-v4", "ppo", v).scores for v in CRITICS]
    assert f"(p = {scipy.stats.ttest_ind(*scores, equal_var=False).pvalue:.3f})" in page
    assert f"{cheetah.scores.mean():,.0f} ± {scipy.stats.sem(cheetah.scores):,.0f} over [30 seeds]" in readme
    ends = [curve[-1] for curve in minutes.by_seed(minutes.load(KEPT / "minutes")["HalfCheetah-v4"]["mcclt"])]
    assert f"about {round(np.mean([p['return'] for p in ends]), -2):,.0f} after 1.5 minutes" in readme
    assert np.mean([p["seconds"] for p in ends]) == pytest.approx(90, abs=3)
    tried, (again,) = returns.Store(KEPT / "candidates").load(), returns.Store(KEPT / "candidates-again").load().mains
    first = next(s for s in tried.series if s.task == "Ant-v4" and again.settings.items() <= s.settings.items())
    found = [f"{s.scores.mean():,.0f} ± {scipy.stats.sem(s.scores):,.0f}" for s in (again, first)]
    p = scipy.stats.ttest_ind(again.scores, first.scores, equal_var=False).pvalue
    assert f"they give {found[0]} (p = {p:.2f} against {found[1]})" in page
    for task, name in (
        ("Ant", "and"),
        ("Walker2d", "and"),
        ("Hopper", "and"),
        ("Swimmer", "and"),
        ("HalfCheetah", "to"),
    ):
        mean = results.main(f"{task}-v4", "trpo", "plain").scores.mean()
        assert re.search(rf"{task}\D* [\d,]+ {name} {mean:,.0f}", page)
    for series in tried.series:
        middle = scipy.stats.trim_mean(np.repeat(series.scores, 2), 0.25)
        assert f"| {middle:,.0f} |" in page

    def inside(task: str, variant: str) -> list[str]:
        return returns.calibrated(tried.main(task, "ppo", variant)).partition(" %")[0].split(", ")

    said = "{}, {} and {} % of returns inside its 50, 80 and 95 % intervals; MC-CLT's {}, {} and {} %"
    assert said.format(*(x for v in ("hl-gauss", "mcclt") for x in inside("LunarLanderContinuous-v3", v))) in page
    wide, narrow = (inside("BipedalWalker-v3", v)[-1] for v in ("mcclt@critic_gae_lambda=1.0", "mcclt"))
    assert f"{wide} % lie inside, with `tuned` on the same seeds {narrow} %" in page


def test_sentences_about_the_papers_tables_say_what_the_store_does(script: Any) -> None:
    page, glance, readme = (
        " ".join((ROOT / name).read_text(encoding="utf-8").split())
        for name in ("docs/results.md", "docs/glance.md", "README.md")
    )
    results = Store(ROOT / "results").load()
    found = [s for s in results.mains if s.variant in NAMES and paper_entry(s.task, s.algo, s.variant)]
    off = {s: s.scores.mean() / paper_entry(s.task, s.algo, s.variant)["mean"] - 1 for s in found}
    table_1, table_3 = ([off[s] for s in found if (s.variant == "explore") == other] for other in (False, True))
    near = f"{sum(abs(share) <= 0.15 for share in table_1)} of the {len(table_1)} means of table 1"
    assert f"{near} are within 15 % of the paper's (MC-CLT's" in page and near in glance
    differ = [round(100 * share) for share in (min(table_3), max(table_3))]
    assert f"those of exploration differ by −{-differ[0]} to +{differ[1]} %" in glance
    spreads = {v: [c for s in results.of(v) if (c := calibration_of(s)) is not None] for v in ("mcclt", "ensemble")}
    ours, theirs = ([round(100 * mean) for mean in np.mean(spreads[v], axis=0)] for v in spreads)
    told = "MC-CLT's 50, 80 and 95 % intervals hold {} of returns on average, an ensemble's {}"
    three = "{}, {} and {} %"
    assert told.format(three.format(*ours), three.format(*theirs)) in readme
    e, sigma, disagreement = (
        [np.nanmean([script("trust").rank(r, what) for r in s.results]) for s in results.of(variant)]
        for variant, what in (("mcclt", "error"), ("mcclt", "std"), ("ensemble", "std"))
    )
    told = f"ρ = {np.mean(e):.2f} on average (from {min(e):.2f} to {max(e):.2f}), MC-CLT's σ with {np.mean(sigma):.2f}"
    assert f"{told}, the ensemble's disagreement with {np.mean(disagreement):.2f} (" in page.replace("−", "-")


def calibration_of(series: Series) -> list[float] | None:
    """Shares of returns inside 50, 80 and 95 % intervals, mean over seeds."""
    known = [r.probe["calibration"]["coverage"] for r in series.results if r.probe.get("calibration")]
    return [float(np.mean([one[level] for one in known])) for level in ("0.5", "0.8", "0.95")] if known else None


def test_what_is_kept_of_a_search_is_all_that_its_table_shows(script: Any, tmp_path: Path) -> None:
    searches, modern = script("searches"), script("modern")
    for name, text in modern.search(searches.KEPT / "Hopper-v4-trpo-plain.json.xz").items():
        (tmp_path / name).write_text(text, encoding="utf-8")
    shutil.copytree(searches.KEPT / "confirmed", tmp_path / "confirmed")
    searches.pack.unpack(searches.Store(tmp_path / "confirmed"))
    searches.keep(tmp_path, "Hopper-v4-trpo-plain", tmp_path / "kept")
    *_, row = searches.table(tmp_path / "kept").splitlines()
    assert row in searches.table().splitlines()
    (winner,) = [
        one for one in searches.Store(tmp_path / "kept/confirmed").load().series if one.variant == "setting-155"
    ]
    middle, mean = scipy.stats.trim_mean(np.repeat(winner.scores, 2), 0.25), winner.scores.mean()
    assert f"| {middle:,.0f} | {mean:,.0f} ± {scipy.stats.sem(winner.scores):,.0f} |" in row


@pytest.mark.slow
def test_candidates_for_modern_are_trained_and_ranked(script: Any, tmp_path: Path) -> None:
    modern = script("modern")
    modern.train("trpo", "Hopper-v4", tmp_path / "store", "native", "2048", "0..3")
    series = {one.variant: one.scores for one in modern.Store(tmp_path / "store").load().mains}
    named = [*modern.candidates("trpo").values()]
    assert {*named} == {*series} and len(series) == 6, "now, three winners, their mean, and that with a decay"
    mean = parse_variant(named[4])[1]
    by_hand = {"gamma": 0.9955, "gae_lambda": 0.93, "target_kl": 0.0254, "log_std_init": -0.618}
    assert {name: mean[name] for name in by_hand} == pytest.approx(by_hand)
    for line, variant in zip(modern.table("trpo", tmp_path / "store").splitlines()[2:], named, strict=True):
        middle = scipy.stats.trim_mean(series[variant], 0.25)
        assert line.endswith(f"| {middle:,.0f} | {middle / 3450:.2f} |")


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


# --- why.py -------------------------------------------------------------------------------------------------------


def test_why_measures_an_agent_and_says_what_it_found(
    script: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    why = script("why")
    monkeypatch.setattr(why, "EPISODES", 3)
    monkeypatch.setattr(why, "HORIZON", 50)  # with γ = 0.9: 5 steps
    agent = mcclt.PPO(PENDULUM, n_envs=2, steps_per_update=16, gamma=0.9, **TINY).learn(16)
    model = agent.save(tmp_path / "agent")
    file = tmp_path / "why.json"
    monkeypatch.setattr(sys, "argv", ["why.py", "--file", str(file), "measure", str(model), "--returns", "4"])
    why.main()
    assert f"| PPO on {PENDULUM}: MC-CLT |" in capsys.readouterr().out
    (record,) = why.load(file)
    returns = np.array(record["returns"])
    assert returns.shape == (6, 4)
    assert (returns.std(axis=1) > 0).all(), "other noise, another return"
    assert len(set(record["t"])) > 1, "moments are spread over the episodes"
    assert record["weights"]["error"] < -0.99, "weights that seek accuracy fall with the error"
    assert record["weights"]["falls"] == 1
    assert record == {"agent": record["agent"], **why.measure(model, returns=4)}, "named randomness: the same again"
    why.main()
    assert len(why.load(file)) == 1, "what is there is not measured again"


def test_why_counts_nothing_after_a_fall_and_the_critic_beyond_the_horizon(script: Any) -> None:
    """Rewards 1, γ = 1/2, three steps, V = 8 beyond. The second environment falls at its second step.

    1 + 1/2 + 1/4 + 8/8 = 2.75; 1 + 1/2 = 1.5.
    """
    falls = iter([[False, False], [False, True], [False, False]])
    agent = SimpleNamespace(
        config=SimpleNamespace(gamma=0.5),
        noise=lambda purpose, index, count: np.zeros((count, 1)),
        act=lambda obs, noise: noise,
        believe=lambda obs: SimpleNamespace(mean=np.full(2, 8.0)),
    )
    env = SimpleNamespace(
        num_envs=2,
        step=lambda action: SimpleNamespace(obs=None, reward=np.ones(2), terminated=np.array(next(falls))),
    )
    np.testing.assert_allclose(script("why").play_on(agent, env, None, 3), [2.75, 1.5])


def test_why_finds_the_ceiling_of_errors_that_are_known(script: Any) -> None:
    """Values off by a known amount, returns with known noise: what the errors themselves reach is the ceiling."""
    why, rng = script("why"), np.random.default_rng(0)
    off, noise = rng.normal(0, 2, 400), rng.uniform(1, 8, 400)
    returns = rng.normal(0, noise[:, None], (400, 16))
    record = {"mean": off, "std": noise, "error": np.abs(off), "returns": returns}
    found = why.ranks(record)
    ceiling = why.ceiling([found["halves"]])
    assert found["E"] == pytest.approx(ceiling, abs=0.1)
    assert 0.5 < found["E"] <= ceiling, "noise that differs makes it a little too high"
    assert found["ceiling, one return"] < 0.5 * ceiling
    assert found["off"] == pytest.approx(np.sqrt(np.mean(off**2)), rel=0.1)
    assert found["noise"] == pytest.approx(np.sqrt(np.mean(noise**2)), rel=0.05)
    assert found["σ, spread"] > 0.9
    exact = why.ranks(record | {"returns": np.zeros((400, 16))})
    assert (exact["E"], why.ceiling([exact["halves"]])) == (pytest.approx(1), pytest.approx(1))


# --- minutes.py ---------------------------------------------------------------------------------------------------


def test_minutes_are_those_of_training_alone(script: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    minutes = script("minutes")
    small = flags(**TINY, n_envs=2, steps_per_update=16, threads=1)
    monkeypatch.setattr(minutes, "EVERY", 16)

    def here(words: list[Any], **_: Any) -> None:
        main([*map(str, words[words.index("mcclt") + 1 :]), *small, "--quiet"])

    monkeypatch.setattr(minutes, "subprocess", SimpleNamespace(run=here, DEVNULL=None))
    points = minutes.ours("InvertedDoublePendulum-v5", [0, 3], 1, 30, 32, tmp_path)
    lines = (tmp_path / "core-1/metrics.jsonl").read_text().splitlines()
    rows = [row for row in map(json.loads, lines) if row["seed"] == 3]
    last = points[-1]
    assert [(p["seed"], p["steps"]) for p in points] == [(0, 16), (3, 16), (0, 32), (3, 32)]
    assert last["return"] == rows[-1]["eval/mean_reward"]
    assert last["seconds"] == pytest.approx(sum(row["time/collect"] + row["time/learn"] for row in rows))
    assert all(row["time/evaluate"] > 0 for row in rows), "which is not counted"


def test_minutes_draws_each_seed_and_their_mean(script: Any, tmp_path: Path) -> None:
    import matplotlib.pyplot as plt

    curves = {0: [10, 30], 1: [20, 50, 70]}  # the mean goes as far as both
    points = [
        {"seed": seed, "steps": k, "seconds": 60.0 * k, "return": value}
        for seed, curve in curves.items()
        for k, value in enumerate(curve)
    ]
    minutes = script("minutes")
    for name, found in (("mcclt", points[:1]), ("sb3-ppo", points[:1]), ("mcclt", points)):
        minutes.keep(tmp_path / "kept", "Hopper-v4", name, found)
    assert minutes.load(tmp_path / "kept") == {"Hopper-v4": {"mcclt": points, "sb3-ppo": points[:1]}}
    minutes.keep(tmp_path, "Hopper-v4", "mcclt", points)
    name = minutes.LABELS["mcclt"]
    assert minutes.table(tmp_path).splitlines()[2:] == [f"| Hopper-v4 | {name} | 50 (30 to 70) | 1 | 1.5 |"]
    minutes.draw(tmp_path, tmp_path / "minutes.png")
    try:
        (axis,) = plt.gcf().axes
        drawn = [line.get_xydata().tolist() for line in axis.lines]
        assert axis.get_title() == "Hopper-v4"
        assert [text.get_text() for text in axis.get_legend().get_texts()] == [f"{name}: 1 steps"]
        assert drawn == [[[0, 10], [1, 30]], [[0, 20], [1, 50], [2, 70]], [[0, 15], [1, 40]]]
    finally:
        plt.close()
    assert (tmp_path / "minutes.png").read_bytes().startswith(b"\x89PNG")
