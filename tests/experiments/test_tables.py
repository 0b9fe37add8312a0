"""Tables from stores with known scores: what stands in them, in every form, and what they say when little is there."""

import csv
import dataclasses
import io
import math
import re
import shutil
import subprocess

import numpy as np
import pytest
from scipy import stats as scipy_stats

from mcclt.experiments import tables
from mcclt.experiments.analysis import claims
from mcclt.experiments.results import Results
from mcclt.experiments.setups import PAPER_TASKS, make_setup
from mcclt.experiments.store import Store
from synthetic import filled, make_store

TIMING = {
    "task": "Hopper-v4",
    "algo": "ppo",
    "machine": {"cpu": "x"},
    "device": "cpu",
    "measured": "2026-01-02T03:04:05Z",
    "rows": [
        {"variant": "plain", "seconds_per_update": 2.0, "critic_parameters": 1000, "steps_per_second": 1.0},
        {"variant": "mcclt", "seconds_per_update": 3.2, "critic_parameters": 2100, "steps_per_second": 1.0},
        {"variant": "ensemble", "seconds_per_update": 6.0, "critic_parameters": 5000, "steps_per_second": 1.0},
    ],
}


def fill_store(path, scores: dict[str, list[float]], task="Hopper", algo="ppo", config="authors", **run) -> Results:
    """A store with these scores of each variant."""
    return filled(path, [(make_setup(task, algo, name, config, **run), own) for name, own in scores.items()]).load()


def row_of(table: tables.Table, label: str, section: str = "PPO") -> tables.Row:
    found, current = {}, ""
    for row in table.rows:
        current = current if row.entries else row.label
        found[current, row.label] = row
    return found[section, label]


def check_forms(table: tables.Table) -> None:
    """What must hold of any table: it is whole in every form."""
    latex = table.latex()
    assert latex.isascii()
    bare = latex.replace(r"\{", "").replace(r"\}", "")
    assert bare.count("{") == bare.count("}")
    assert latex.count(r"\begin{") == latex.count(r"\end{")
    lines = [line for line in latex.splitlines() if line.endswith(r"\\") and "multicolumn" not in line]
    assert len({line.count(" & ") for line in lines}) <= 1  # every line as wide as the others
    widths = {len(re.findall(r"(?<!\\)\|", x)) for x in table.markdown().splitlines() if x.startswith("|")}
    assert len(widths) <= 1
    for text in (table.markdown(), latex, table.csv()):
        assert not re.search(r"\b(nan|None)\b", text), text


def test_table1_by_hand(tmp_path):
    # 100 110 120: mean 110, s = 10, se = 10/√3 = 5.77.
    scores = {"plain": [100, 110, 120], "ensemble": [200, 210, 220], "mcclt": [300, 310, 321]}
    table = tables.table1(fill_store(tmp_path, scores))
    check_forms(table)
    assert table.columns == ("Hopper-v4",)
    assert row_of(table, "baseline").entries == (tables.Entry("110 ± 5.8 (3)"),)
    assert row_of(table, "MC-CLT").entries == (tables.Entry("310 ± 6.1 (3)", bold=True, mark="*"),)
    assert row_of(table, "QR").entries == (tables.Entry(),)
    # The paper's row, from its table 1: 2973 ± 27 and 3230 ± 22 without an asterisk.
    assert row_of(table, "baseline, paper").entries == (tables.Entry("2973 ± 27"),)
    assert row_of(table, "MC-CLT, paper").entries == (tables.Entry("3230 ± 22"),)
    commands = [n for n in table.notes if n.startswith("mcclt ")]
    assert len(commands) == 1 and "--variants qr,mcclt-nw" in commands[0] and "--seeds 0..2" in commands[0]


def test_asterisk_is_on_the_better_one(tmp_path):
    table = tables.table1(fill_store(tmp_path, {"ensemble": [300, 310, 320], "mcclt": [100, 110, 121]}))
    assert row_of(table, "ensemble").entries[0].mark == "*"
    assert row_of(table, "MC-CLT").entries[0].mark == ""


def test_asterisks_are_holms(tmp_path):
    # One clear setting, one with p = 0.04 alone: 0.04 stays below 0.05 only if it is the last of the family, and with
    # a third, undecided setting it is not.
    a = np.array([0.0, 10.0, 20.0, 30.0])

    def p(shift):
        return scipy_stats.ttest_ind(a + shift, a, equal_var=False).pvalue

    assert 0.025 < p(25) < 0.05
    store = tmp_path / "s"
    fill_store(store, {"ensemble": list(a), "mcclt": list(a + 500)}, "Hopper")
    fill_store(store, {"ensemble": list(a), "mcclt": list(a + 25)}, "Ant")
    results = fill_store(store, {"ensemble": list(a), "mcclt": list(a + 1)}, "Swimmer")
    table = tables.table1(results)
    assert table.columns == ("Hopper-v4", "Ant-v4", "Swimmer-v4")
    assert [e.mark for e in row_of(table, "MC-CLT").entries] == ["*", "", ""]
    record = next(r for r in table.records if (r["task"], r["variant"]) == ("Ant-v4", "mcclt"))
    np.testing.assert_allclose(record["p_vs_ensemble"], p(25), rtol=1e-3)  # a store keeps six digits
    np.testing.assert_allclose(record["p_holm_vs_ensemble"], 2 * p(25), rtol=1e-3)


def test_csv_has_both_errors(tmp_path):
    results = fill_store(tmp_path, {"plain": [100.0, 110.0]})
    rows = list(csv.DictReader(io.StringIO(tables.table1(results).csv())))
    row = next(r for r in rows if r["variant"] == "plain")
    episodes = np.concatenate([r.returns for r in results.series[0].results])
    assert (row["task"], row["algo"], row["seeds"], row["steps"]) == ("Hopper-v4", "ppo", "2", "1000000")
    assert float(row["mean"]) == pytest.approx(105)
    assert float(row["se_seeds"]) == pytest.approx(5, rel=1e-5)  # |110 − 100|/2; a store keeps six digits
    assert float(row["se_pooled"]) == pytest.approx(scipy_stats.sem(episodes))
    assert (row["paper_mean"], row["paper_se"], row["p_vs_ensemble"]) == ("2973.0", "27.0", "")
    assert next(r for r in rows if r["variant"] == "qr")["mean"] == ""
    assert len(rows) == 5


def test_all_of_the_papers_numbers(tmp_path):
    """Every entry of tables 1 and 3 stands in the right cell: compared with the paper's text, typed in here."""
    results = make_store(tmp_path, PAPER_TASKS, seeds=1).load()
    one, three = tables.table1(results), tables.table3(results)
    check_forms(one)
    check_forms(three)
    assert [e.text + e.mark for e in row_of(one, "MC-CLT, paper", "TRPO").entries] == (
        ["195 ± 2.6*", "2927 ± 27*", "3172 ± 43", "3329 ± 20", "118 ± 0.2*", "2904 ± 23*", "8404 ± 93", "258 ± 1.8*"]
    )
    assert [e.text + e.mark for e in row_of(one, "ensemble, paper", "PPO").entries] == (
        ["227 ± 2.2", "3208 ± 22", "3068 ± 43", "1863 ± 12", "119 ± 0.2", "2669 ± 34", "8933 ± 64", "256 ± 1.8"]
    )
    assert [e.text for e in row_of(three, "exploration-seeking, paper", "TRPO").entries] == (
        ["34 ± 3.3", "2328 ± 34", "2459 ± 32", "1663 ± 16", "36 ± 2.2", "1086 ± 33", "7628 ± 112", "179 ± 4.4"]
    )
    assert sum(e.mark == "*" for row in one.rows if row.paper for e in row.entries) == 10  # of 16
    assert one.latex().count(r"\toprule") == 2  # two blocks of four tasks, as in the paper
    assert "(1) is one seed: no spread." in one.notes


def test_table3(tmp_path):
    table = tables.table3(fill_store(tmp_path, {"explore": [10, 11, 12], "mcclt": [20, 21, 22.5]}))
    check_forms(table)
    assert row_of(table, "accuracy-seeking (MC-CLT)").entries[0].bold
    assert not row_of(table, "exploration-seeking").entries[0].bold
    assert row_of(table, "accuracy-seeking (MC-CLT)").entries[0].mark == "*"


def test_table2_by_hand(tmp_path):
    store = Store(tmp_path, create=True)
    slow = [{**row, "seconds_per_update": row["seconds_per_update"] ** 2} for row in TIMING["rows"]]
    store.write_timing("a", TIMING)
    store.write_timing("b", TIMING | {"rows": slow, "device": "gpu"})
    table = tables.table2(store.load())
    check_forms(table)
    # 3.2/2 = 1.6 and 10.24/4 = 2.56; 6/2 = 3 and 36/4 = 9.
    assert [e.text for e in table.rows[0].entries] == ["1.00", "1.60–2.56", "3.00–9.00"]
    assert [e.text for e in table.rows[1].entries] == ["1", "1.5–1.9", "2.8–3.1"]
    assert [e.text for e in table.rows[2].entries] == ["1.00", "2.10", "5.00"]
    assert [e.text for e in table.rows[3].entries] == ["1", "2.0–2.2", "5"]
    assert any("gpu" in note and "MC-CLT 2.56" in note for note in table.notes)


def test_table2_without_a_baseline(tmp_path):
    store = Store(tmp_path, create=True)
    store.write_timing("a", TIMING | {"rows": TIMING["rows"][1:]})
    table = tables.table2(store.load())
    check_forms(table)
    assert "No timing has the baseline" in table.caption
    assert table.notes == (f"mcclt reproduce --table 2 --store {tmp_path}",)


@pytest.mark.parametrize("name", tables.TABLES)
def test_nothing_at_all(name):
    table = tables.TABLES[name](Results(()))
    check_forms(table)
    assert table.columns == () and table.rows == ()
    assert table.notes == (f"mcclt reproduce --table {name if name != 'pooled' else 1} --store results",)


def test_own_tasks_only(tmp_path):
    table = tables.table1(fill_store(tmp_path, {"plain": [-5, -4], "mcclt": [-3, -2]}, "Pendulum-v1", config="fixed"))
    check_forms(table)
    assert table.columns == ("Pendulum-v1",)
    assert not any(row.paper for row in table.rows)
    assert "aper" not in table.caption
    assert row_of(table, "MC-CLT").entries[0] == tables.Entry("−2.5 ± 0.5 (2)", bold=True)


def test_steps_that_differ_are_not_ranked(tmp_path):
    fill_store(tmp_path, {"ensemble": [1, 2, 3]}, steps=1000)
    table = tables.table1(fill_store(tmp_path, {"mcclt": [501, 502, 503]}, steps=2000))
    check_forms(table)
    assert not any(e.bold or e.mark for row in table.rows if not row.paper for e in row.entries)
    assert any("steps differ (ensemble 1,000, MC-CLT 2,000)" in note for note in table.notes)
    assert any("Not tested: PPO on Hopper-v4: They are not comparable" in note for note in table.notes)


def test_versions_have_their_own_columns(tmp_path):
    fill_store(tmp_path, {"mcclt": [1, 2]}, "Hopper-v4")
    table = tables.table1(fill_store(tmp_path, {"mcclt": [3, 4]}, "Hopper-v5"))
    assert table.columns == ("Hopper-v4", "Hopper-v5")
    assert any("each with its own column: Hopper-v4, Hopper-v5." in note for note in table.notes)


def test_agents_that_failed_are_said(tmp_path):
    results = fill_store(tmp_path, {"plain": [1.0, 2.0]})
    series = results.series[0]
    bad = dataclasses.replace(series.results[1], returns=np.full(100, math.nan))
    broken = Results((dataclasses.replace(series, results=(series.results[0], bad)),))
    table = tables.table1(broken)
    check_forms(table)
    assert row_of(table, "baseline").entries[0].text == "1.0 (1)"
    assert "1 agent has no score, since every final episode failed." in table.notes


def test_special_characters():
    row = tables.Row("50 % & <b> x_y #1 {z} ~ ^ $", (tables.Entry("a|b\\c"),))
    table = tables.Table("T", "c", ("--x",), (row,), ("mcclt --table 1",))
    check_forms(table)
    assert r"50 \% \& $<$b$>$ x\_y \#1 \{z\} \textasciitilde{} \textasciicircum{} \$" in table.latex()
    assert r"\texttt{mcclt -{}-table 1}" in table.latex()
    assert r"a\|b" in table.markdown()


@pytest.mark.slow
def test_the_papers_whole_size(tmp_path):
    # 8 tasks, 2 algorithms, 12 variants, 30 seeds, made without files.
    variants = ("plain", "qr", "mcclt-nw", "ensemble", "mcclt", "explore", "mcclt@n_quantiles=4")
    variants += ("mcclt@n_quantiles=12", "mcclt@n_quantiles=20", "qr@qr_target=bellman", "qr@n_quantiles=200")
    one = make_store(tmp_path, ("Hopper",), variants=variants, seeds=2).load()
    many = []
    for task in PAPER_TASKS:
        for series in one.series:
            first, second = series.results
            copies = [dataclasses.replace(first, task=task, seed=i, returns=first.returns + i) for i in range(29)]
            members = (*copies, dataclasses.replace(second, task=task, seed=29))
            many.append(dataclasses.replace(series, task=task, results=members))
    results = Results(tuple(many))
    for make in tables.TABLES.values():
        make(results)
    found = claims.verdicts(results)
    assert sum(v.verdict != "not measured" for v in found) == 9  # all but the cost


@pytest.mark.slow
@pytest.mark.skipif(shutil.which("pdflatex") is None, reason="pdflatex is not installed")
def test_latex_compiles(tmp_path):
    """All tables of a small store and of an empty one, on pages of the article class; nothing is too wide or high."""
    full = make_store(tmp_path / "store", tasks=PAPER_TASKS, algos=("ppo", "trpo"), seeds=3).load()
    full = dataclasses.replace(full, timings=(TIMING,))
    strange = tables.Table("A: 50 % & more_than {all} #1", r"~ ^ \ $ < > − ± ½ ² τ → --", ("a_b",), (tables.Row("|"),))
    found = [make(results) for results in (full, Results(())) for make in tables.TABLES.values()]
    pages = "\n\\clearpage\n".join(table.latex() for table in (*found, strange))
    top = r"\documentclass{article}\usepackage{booktabs,graphicx}\begin{document}"
    (tmp_path / "all.tex").write_text(f"{top}\n{pages}\n\\end{{document}}\n")
    command = ["pdflatex", "-interaction=nonstopmode", "-halt-on-error", "all.tex"]
    said = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, errors="replace", timeout=120)
    assert said.returncode == 0, said.stdout[-2000:]
    assert not re.findall(r"Overfull .hbox.*|Float too large.*", said.stdout)
