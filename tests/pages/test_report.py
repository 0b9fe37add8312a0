"""The report: what the page says, and what a real browser makes of it."""

import dataclasses
import json
import re
import shutil
import subprocess
import sys
import time
import types
from html.parser import HTMLParser
from pathlib import Path

import numpy as np
import pytest
import scipy.stats

from browser import CONTRAST, every, look_at, needs_browser, sized, where_there_is_one
from mcclt.config.variants import PAPER_VARIANTS
from mcclt.experiments import figures, tables
from mcclt.experiments.analysis import pooled, stats
from mcclt.experiments.filling import repeat
from mcclt.experiments.results import Results, gather
from mcclt.experiments.setups import PAPER_TASKS, make_setup
from mcclt.experiments.store import Store, StoreError
from mcclt.pages import report
from mcclt.pages.curves import POINTS, curves
from synthetic import make_result, make_store

EVIL = "</script><script>alert(1)</script><img src=x onerror=alert(1)>"
VOID = {"meta", "link", "input", "br", "img"}


class Page(HTMLParser):
    """Checks that elements nest, and collects what the tests ask about."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.open: list[str] = []
        self.tags: list[tuple[str, dict[str, str | None]]] = []
        self.words: list[str] = []
        self.codes: list[str] = []
        self.feed(text)
        self.close()
        assert not self.open, f"never closed: {self.open}"

    def handle_starttag(self, tag, attrs):
        self.tags.append((tag, dict(attrs)))
        if tag not in VOID:
            self.open.append(tag)
        if tag == "code":
            self.codes.append("")

    def handle_startendtag(self, tag, attrs):
        self.tags.append((tag, dict(attrs)))

    def handle_endtag(self, tag):
        assert self.open and self.open[-1] == tag, f"</{tag}> closes {self.open[-1:]}"
        self.open.pop()

    def handle_data(self, data):
        if not {"script", "style"} & set(self.open):
            self.words.append(data)
        if "code" in self.open:
            self.codes[-1] += data

    @property
    def text(self) -> str:
        return " ".join(" ".join(self.words).split())

    def ids(self) -> list[str]:
        return [a["id"] for _, a in self.tags if a.get("id")]


def data_of(text: str) -> dict:
    return json.loads(re.search(r'<script type="application/json" id="data">(.*?)</script>', text, re.DOTALL)[1])


@pytest.fixture(scope="module")
def store(tmp_path_factory) -> Store:
    """Two tasks; on one, QR has fewer seeds under PPO and the ensemble none."""
    store = make_store(tmp_path_factory.mktemp("report") / "store", seeds=5)
    folder = next((store.path / "cells" / "Hopper-v4" / "ppo-qr").iterdir())
    (folder / "seed-4.json").unlink()
    shutil.rmtree(store.path / "cells" / "Hopper-v4" / "ppo-ensemble")
    return store


@pytest.fixture(scope="module")
def written(store) -> Path:
    """With two figures: all of them take a while, and have tests of their own."""
    drawn = {name: figures.FIGURES[name] for name in ("learning_curves", "calibration")}
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(figures, "FIGURES", drawn)
        return report.write(store.load(), store.path.parent / "page")


@pytest.fixture(scope="module")
def page(written) -> Page:
    return Page(written.read_text(encoding="utf-8"))


# --- files -----------------------------------------------------------------------------------------------------


def test_writes_the_page_the_tables_and_the_figures(written):
    assert written.name == "report.html"
    names = {p.name for p in (written.parent / "tables").iterdir()}
    assert names == {f"table-{n}.{kind}" for n in tables.TABLES for kind in ("md", "tex", "csv")}
    names = {p.name for p in (written.parent / "figures").iterdir()}
    assert names == {f"{n}.{kind}" for n in ("learning_curves", "calibration") for kind in ("svg", "png", "pdf")}


def test_same_results_give_the_same_page(store, written):
    results = store.load()
    assert report.page(results, None) == report.page(results, None)
    assert data_of(report.page(results, None)) == data_of(written.read_text(encoding="utf-8"))


def test_an_empty_store_says_what_to_run(tmp_path):
    results = Store(tmp_path / "my store", create=True).load()
    with pytest.raises(StoreError, match=r"mcclt compare TASK --store '.*my store'"):
        report.write(results, tmp_path / "page")
    assert not (tmp_path / "page").exists()


def test_imports_no_jax_and_works_without_matplotlib(store, tmp_path):
    code = f"""
import sys
sys.modules["matplotlib"] = None
from pathlib import Path
from mcclt.pages import report
from mcclt.experiments.store import Store
print(report.write(Store(Path({str(store.path)!r})).load(), Path({str(tmp_path)!r})))
assert "jax" not in sys.modules
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    page = Page((tmp_path / "report.html").read_text(encoding="utf-8"))
    assert "The figures need matplotlib: pip install matplotlib" in page.text
    assert len(data_of((tmp_path / "report.html").read_text(encoding="utf-8"))["series"]) == 23


# --- what the page says ----------------------------------------------------------------------------------------


def test_order_of_the_page(page):
    order = ["top", "answer", "verdicts", "tables", "curves", "calibration", "figures", "coverage", "provenance"]
    assert [i for i in page.ids() if i in order] == order
    assert len(page.ids()) == len(set(page.ids()))
    assert [tag for tag, _ in page.tags].count("h1") == 1


def test_leads_with_the_answer_over_all_settings(page):
    said = (
        "Over 2 tasks (4 settings) MC-CLT's final returns are not decidedly better or worse than those of baseline, "
        "QR, MC-CLT without w, ensemble and exploration."
    )
    assert page.text.index(said) < page.text.index("What the paper claims")


def test_the_answer_tells_what_is_decided(store, monkeypatch):
    results = store.load()
    verdicts = {"plain": "better", "qr": "better", "ensemble": "undecided", "explore": "worse"}
    mean = types.SimpleNamespace(tasks=8)
    made = [types.SimpleNamespace(b=b, verdict=v, mean=mean, effects=range(16)) for b, v in verdicts.items()]
    monkeypatch.setattr(pooled, "answers", lambda results, measure: made)
    assert report.answer_of(results) == (
        "Over 8 tasks (16 settings) MC-CLT's final returns are better than those of baseline and QR, and worse than "
        "those of exploration, and not decidedly better or worse than those of ensemble."
    )


def test_needs_no_network(written, page):
    text = written.read_text(encoding="utf-8")
    policy = next(a["content"] for t, a in page.tags if a.get("http-equiv") == "Content-Security-Policy")
    assert policy.startswith("default-src 'none'") and "script-src 'sha256-" in policy
    sources = [v for _, a in page.tags for k, v in a.items() if k in ("src", "href", "xlink:href", "action") and v]
    assert all(v.startswith(("#", "data:")) for v in sources)
    assert "@import" not in text and not re.search(r"url\((?!#)", text)


def test_summary_counts_what_is_there(page):
    assert "114 trained agents: 2 tasks, 6 variants of PPO and TRPO, 4 to 5 seeds, 1M environment steps" in page.text


def test_missing_results_are_named_with_the_command(store, page):
    assert "6 of 120 agents" in page.text
    command = "mcclt compare Hopper-v4 --variants qr,ensemble --algo ppo --settings authors --seeds 0..4"
    assert f"{command} --steps 1000000 --episodes 100 --store {store.path}" in page.codes
    assert [a for t, a in page.tags if t == "td" and a.get("class") == "missing"]


def test_everything_can_be_repeated(store, page):
    assert set(repeat(store.load())) < set(page.codes)


def test_every_command_can_be_copied(page):
    commands = [a for t, a in page.tags if a.get("class") == "command"]
    assert len(commands) == len([a for t, a in page.tags if a.get("class") == "copy"]) >= 3


def test_damaged_files_and_mixed_configurations_are_near_the_top(tmp_path):
    store = make_store(tmp_path / "store", tasks=("Hopper",), algos=("ppo",), variants=("plain", "mcclt"), seeds=2)
    other = make_setup("Hopper", "ppo", "mcclt", "authors", steps=50_000)
    store.write(other, make_result(other, 0, 10.0))
    damaged = sorted((store.path / "cells").rglob("seed-1.json"))[0]
    damaged.write_bytes(damaged.read_bytes()[:-20])
    text = Page(report.page(store.load(), None)).text
    above = text[: text.index("What the paper claims")]
    assert "1 file could not be read and is left out" in above and str(damaged) in above
    assert "2 configurations, which are never averaged" in above


def test_text_from_a_store_is_escaped(tmp_path):
    setup = make_setup("Hopper", "ppo", "mcclt", "authors")
    result = make_result(setup, 0, 100.0)
    provenance = result.provenance | {"device": EVIL, "engine": EVIL}
    evil = dataclasses.replace(result, task=f"{EVIL}-v1", variant=f"mcclt@{EVIL}", provenance=provenance)
    key = (evil.task, f"ppo-{evil.variant}", evil.digest)
    results = gather([evil], {key: setup.settings}, [f"{EVIL} is damaged."], path=Path(EVIL))
    text = report.page(results, None)
    page = Page(text)
    assert len([t for t, _ in page.tags if t == "script"]) == 2
    assert not [t for t, _ in page.tags if t == "img"]
    assert data_of(text)["tasks"] == [f"{EVIL}-v1"]
    assert EVIL in page.text


def test_tables_show_what_is_best_missing_and_the_paper_s(page):
    kinds = [a.get("class") for _, a in page.tags if a.get("class")]
    assert {"best", "missing", "paper", "section"} <= set(kinds)
    assert page.text.count("baseline, paper") == 2  # algorithms


def test_provenance_is_grouped(page):
    assert page.text.count("0.1.0") < 10
    assert "native" in page.text and "CPU, 2 cores" in page.text and "2026-01-01 00:00 to 2026-01-01 00:05" in page.text


def test_one_seed_of_one_variant_is_enough(tmp_path):
    store = make_store(tmp_path / "s", tasks=("Hopper",), algos=("trpo",), variants=("plain",), seeds=1)
    text = report.page(store.load(), None)
    assert "One agent, trained by TRPO for 1M environment steps." in Page(text).text
    curve = data_of(text)["series"][0]["curves"]["eval/mean_reward"]
    assert set(curve["low"]) == {None} and len(curve["seeds"]) == 1


def test_results_without_curves_or_probes_still_make_a_page(tmp_path):
    setup = make_setup("Hopper", "ppo", "mcclt", "authors")
    bare = dataclasses.replace(make_result(setup, 0, 1.0), curve={}, probe={}, provenance={}, cost={})
    results = gather([bare], {setup.key: setup.settings})
    page = Page(report.page(results, {}))
    assert "No critic with a spread has been probed yet" in page.text


# --- learning curves -------------------------------------------------------------------------------------------


def test_curves_are_means_over_seeds_with_their_intervals(store):
    results = store.load()
    data = curves(results)
    for one, shown in zip(results.mains, data["series"], strict=True):
        assert data["tasks"][shown["task"]] == one.task
        steps, rows = one.curve("eval/mean_reward")
        curve = shown["curves"]["eval/mean_reward"]
        mean, low, high = stats.mean_band(rows)
        assert data["steps"][curve["x"]] == steps.tolist()
        np.testing.assert_allclose(curve["mean"], mean, rtol=1e-4)
        np.testing.assert_allclose(curve["low"], low, rtol=1e-4)
        np.testing.assert_allclose(curve["high"], high, rtol=1e-4)
        np.testing.assert_allclose(curve["seeds"], rows, rtol=1e-3)
    assert "seeds" not in data["series"][0]["curves"]["value/std"]


def test_long_curves_are_thinned_and_keep_their_ends():
    setup = make_setup("Hopper", "ppo", "mcclt", "authors")
    long = [make_result(setup, seed, 100.0, points=1000) for seed in range(2)]
    data = curves(gather(long, {setup.key: setup.settings}))
    [steps] = data["steps"]
    assert len(steps) == POINTS and (steps[0], steps[-1]) == (1000, 1_000_000)


def test_unknown_values_stay_unknown():
    setup = make_setup("Hopper", "ppo", "mcclt", "authors")
    results = [make_result(setup, seed, 100.0, points=6) for seed in range(3)]
    for r, known in zip(results, ([1, 1, 0, 1, 1, 0], [1, 0, 1, 1, 1, 0], [1, 1, 1, 1, 1, 0]), strict=True):
        r.curve["eval/mean_reward"][np.array(known) == 0] = np.nan
    curve = curves(gather(results, {setup.key: setup.settings}))["series"][0]["curves"]["eval/mean_reward"]
    assert len(curve["mean"]) == 5 and [row[1] is None for row in curve["seeds"]] == [False, True, False]


def test_few_evaluations_are_no_curve_to_open_with():
    setup = make_setup("Hopper", "ppo", "mcclt", "authors")
    data = curves(gather([make_result(setup, 0, 100.0, points=4)], {setup.key: setup.settings}))
    assert data["quantities"][0]["key"] == "rollout/ep_rew_mean"
    assert data["quantities"][-1]["key"] == "eval/mean_reward"


# --- size and time ---------------------------------------------------------------------------------------------


def large() -> Results:
    """8 tasks, 12 variants, 30 seeds, 100 points."""
    tasks = "BipedalWalker Hopper HalfCheetah Ant Swimmer Walker2d InvertedDoublePendulum LunarLanderContinuous".split()
    results, settings = [], {}
    for task in tasks:
        for algo in ("ppo", "trpo"):
            for variant in PAPER_VARIANTS:
                setup = make_setup(task, algo, variant, "authors")
                settings[setup.key] = setup.settings
                for seed in range(30):
                    score = 1000 + 50 * np.sin(seed + len(results))
                    results.append(make_result(setup, seed, score, points=110))
    return gather(results, settings)


@pytest.mark.slow
def test_a_large_store_makes_a_small_page(tmp_path):
    assert report.write(large(), tmp_path).stat().st_size < 6e6


# --- in a browser ----------------------------------------------------------------------------------------------


@pytest.fixture
def tab(browser, written):
    """The page in a window 1,280 pixels wide, which must not have complained by the end of the test."""
    look_at(browser, written, 1280)
    yield browser
    assert browser.get_log("browser") == []


def click(tab, element) -> None:
    tab.execute_script("arguments[0].scrollIntoView({block: 'center', behavior: 'instant'})", element)
    element.click()


def chip(tab, box: str, text: str):
    return next(c for c in every(tab, f"#{box} .chip") if c.text == text)


def number(text: str) -> float:
    return float(text.replace(",", "").replace("−", "-"))


@where_there_is_one
def test_every_chart_is_drawn(tab):
    shapes = tab.execute_script("""
        return [...document.querySelectorAll('.plot svg')].map((svg) => {
          const box = svg.getBoundingClientRect();
          const paths = [...svg.querySelectorAll('path')];
          return [box.width, box.height, paths.map((p) => [p.getAttribute('d'), p.getTotalLength()])];
        });
    """)
    assert len(shapes) == 2  # tasks
    for width, height, paths in shapes:
        assert width > 250 and height > 150
        assert len(paths) >= 2 * 5
        for d, length in paths:
            assert length > 100 and not re.search("NaN|Infinity|undefined|null", d)
    drawings = tab.execute_script(
        "return [...document.querySelectorAll('.drawing svg')].map((s) => s.getBoundingClientRect().height)"
    )
    assert drawings and min(drawings) > 50


@needs_browser
def test_a_first_evaluation_is_drawn_as_a_dot(tab, tmp_path):
    setup = make_setup("Hopper", "ppo", "mcclt", "authors")
    results = gather([make_result(setup, 0, 0.0, points=1)], {setup.key: setup.settings})
    (tmp_path / "report.html").write_text(report.page(results, None), encoding="utf-8")
    look_at(tab, tmp_path / "report.html", 1280)
    [line] = every(tab, ".line")
    assert re.fullmatch(r"M[\d.]+ [\d.]+h0", line.get_attribute("d"))
    every(tab, ".plot")[0].send_keys("\ue010")  # End
    assert "one seed" in every(tab, ".readout")[0].text


@needs_browser
def test_variants_tasks_algorithms_and_seeds_can_be_chosen(tab):
    def lines() -> list[int]:
        return [len(panel.find_elements("css selector", ".line")) for panel in every(tab, ".panel")]

    assert lines() == [5, 6]  # the ensemble is missing on one
    assert [p.text for p in every(tab, ".without")] == ["No results here: ensemble"]
    click(tab, chip(tab, "variants", "MC-CLT"))
    assert lines() == [4, 5] and chip(tab, "variants", "MC-CLT").get_attribute("aria-pressed") == "false"
    click(tab, chip(tab, "variants", "none"))
    assert lines() == [] and every(tab, "#panels")[0].text == "Choose a variant above."
    click(tab, chip(tab, "variants", "ensemble"))
    assert lines() == [1]  # an empty chart is not drawn
    click(tab, chip(tab, "variants", "MC-CLT"))
    assert lines() == [1, 2]
    click(tab, chip(tab, "variants", "all"))
    click(tab, every(tab, "#algos label")[1])
    assert lines() == [6, 6]
    click(tab, chip(tab, "tasks", "Hopper-v4"))
    assert lines() == [6] and every(tab, ".panel h3")[0].text == "HalfCheetah-v4"
    assert not every(tab, ".seed")
    click(tab, every(tab, "#seeds")[0])
    assert len(every(tab, ".seed")) == 6
    assert every(tab, ".seed")[0].get_attribute("d").count("M") == 5
    click(tab, every(tab, "#paper")[0])
    assert len(every(tab, ".published")) == 6
    click(tab, every(tab, "#quantity option")[3])
    assert not every(tab, ".seed") and not every(tab, "#seeds")[0].is_enabled() and lines() == [6]


@needs_browser
def test_read_out_shows_the_numbers_of_that_step(tab, store):
    from selenium.webdriver.common.action_chains import ActionChains

    results = store.load()
    plot = every(tab, ".plot")[1]
    tab.execute_script("arguments[0].scrollIntoView({block: 'center', behavior: 'instant'})", plot)
    ActionChains(tab).move_to_element(plot).perform()
    step = number(every(tab, ".readout caption")[-1].text.removeprefix("Step "))
    rows = [[cell.text for cell in row.find_elements("css selector", "th, td")] for row in every(tab, ".readout tr")]
    assert len(rows) == 6
    assert [number(mean) for _, mean, _ in rows] == sorted((number(mean) for _, mean, _ in rows), reverse=True)
    by_label = {s.label: s for s in results.mains if (s.task, s.algo) == ("HalfCheetah-v4", "ppo")}
    for label, mean, interval in rows:
        steps, values = by_label[label].curve("eval/mean_reward")
        expected = [v[steps.tolist().index(step)] for v in stats.mean_band(values)]
        np.testing.assert_allclose([number(mean), *map(number, interval.split(" to "))], expected, rtol=1e-3)
    ActionChains(tab).move_by_offset(0, -400).perform()
    assert not [r for r in every(tab, ".readout") if r.is_displayed()]


@needs_browser
def test_read_out_follows_keys_and_touch(tab):
    plot = every(tab, ".plot")[0]
    plot.send_keys("\ue011")  # Home
    assert "Step 50,000" in every(tab, ".readout")[0].text
    plot.send_keys("\ue014")  # right
    assert "Step 100,000" in every(tab, ".readout")[0].text
    assert tab.execute_script("return document.getElementById('spoken').textContent").startswith("Step 100,000: ")
    plot.send_keys("\ue00c")  # Escape
    assert not every(tab, ".readout")[0].is_displayed()
    tab.execute_script("""
        const plot = arguments[0], box = plot.getBoundingClientRect();
        const how = {pointerType: 'touch', clientX: box.right - 20, clientY: box.top + 50, bubbles: true};
        for (const type of ['pointerdown', 'pointerleave']) plot.dispatchEvent(new PointerEvent(type, how));
    """, plot)  # fmt: skip
    assert "Step 1,000,000" in every(tab, ".readout")[0].text


@needs_browser
def test_theme_follows_the_system_and_the_button_which_is_remembered(tab, written):
    def background() -> str:
        return tab.execute_script("return getComputedStyle(document.body).backgroundColor")

    light = background()
    look_at(tab, written, 1280, "dark")
    dark = background()
    assert light != dark
    click(tab, every(tab, "#theme")[0])
    assert background() == light
    look_at(tab, written, 1280, "dark")
    assert background() == light
    tab.execute_script("localStorage.clear()")
    block = "Object.defineProperty(window, 'localStorage', {get() { throw new Error('forbidden'); }})"
    script = tab.execute_cdp_cmd("Page.addScriptToEvaluateOnNewDocument", {"source": block})
    look_at(tab, written, 1280, "dark")
    assert background() == dark and every(tab, ".line")
    click(tab, every(tab, "#theme")[0])
    assert background() == light
    tab.execute_cdp_cmd("Page.removeScriptToEvaluateOnNewDocument", script)


@needs_browser
@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("width", [360, 1280])
def test_fits_and_can_be_read(tab, written, width, scheme):
    look_at(tab, written, width, scheme)
    tab.execute_script("for (const d of document.querySelectorAll('details')) d.open = true")
    assert tab.execute_script("return [document.documentElement.scrollWidth, innerWidth]") == [width, width]
    assert tab.execute_script(CONTRAST) == []


@needs_browser
def test_commands_are_copied(tab, store):
    tab.execute_cdp_cmd("Browser.grantPermissions", {"permissions": ["clipboardReadWrite", "clipboardSanitizedWrite"]})
    button = every(tab, "#provenance .copy")[-1]
    tab.execute_script("document.querySelectorAll('details').forEach((d) => { d.open = true; })")
    click(tab, button)
    deadline = time.monotonic() + 60
    while button.text == "Copy" and time.monotonic() < deadline:
        time.sleep(0.02)
    assert button.text == "Copied"
    copied = tab.execute_async_script("navigator.clipboard.readText().then(arguments[0])")
    assert copied == f"mcclt report {store.path}"


@needs_browser
def test_prints_unfolded_light_and_without_controls(tab, written):
    look_at(tab, written, 800, "dark")
    assert [d for d in every(tab, "details") if d.get_attribute("open") is None]
    sized(tab, 800, "dark", "print")
    assert not [d for d in every(tab, "details") if d.get_attribute("open") is None]
    assert all(e.is_displayed() for e in every(tab, "details > :not(summary)"))
    assert not [e for e in every(tab, ".bar, .controls, .copy") if e.is_displayed()]
    assert tab.execute_script("return getComputedStyle(document.body).backgroundColor") == "rgb(255, 255, 255)"
    sized(tab, 800, "dark")
    assert [d for d in every(tab, "details") if d.get_attribute("open") is None]


# --- a comparison of the user's own ----------------------------------------------------------------------------


def test_a_comparison_is_about_what_was_compared(store):
    results = dataclasses.replace(store.load(), reproduction=False)
    text = report.page(results, {})
    found = Page(text)
    assert "6 variants on Hopper-v4 and HalfCheetah-v4" in found.text
    for word in ("not measured", "paper’s variants", "Verdicts", "TMLR"):
        assert word not in found.text
    assert [i for i in found.ids() if i in ("answer", "verdicts", "tables", "curves", "calibration", "provenance")] == [
        "answer",
        "curves",
        "calibration",
        "provenance",
    ]
    rows = report.comparison(results)["Hopper-v4"]
    first, second = rows[0]["row"], rows[1]["row"]
    assert first.against is None and first.series.variant == "plain"
    a, b = second.series.scores, first.series.scores
    assert second.improvement == np.mean((a[:, None] > b[None]) + 0.5 * (a[:, None] == b[None]))
    welch = scipy.stats.ttest_ind(a, b, equal_var=False)
    low, high = welch.confidence_interval()
    np.testing.assert_allclose([second.against.low, second.against.high], [low, high])
    for one in (rows[0]["dots"], rows[1]["mean"], rows[1]["difference"]):
        assert one and all(0 <= place <= 100 for place in one)


def test_reproduce_marks_its_store(tmp_path):
    store = Store(tmp_path / "s", create=True)
    assert not store.load().reproduction
    store.mark_reproduction()
    assert Store(tmp_path / "s").load().reproduction and Store(tmp_path / "s").id == store.id


@needs_browser
@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("width", [390, 1280])
def test_a_comparison_fits_and_offers_only_choices(tab, tmp_path, width, scheme):
    variants = ("plain", "mcclt")
    store = make_store(tmp_path / "mine", tasks=("Hopper",), algos=("ppo",), variants=variants, seeds=3)
    results = dataclasses.replace(store.load(), reproduction=False)
    (tmp_path / "report.html").write_text(report.page(results, {}), encoding="utf-8")
    look_at(tab, tmp_path / "report.html", width, scheme)
    assert tab.execute_script("return [document.documentElement.scrollWidth, innerWidth]") == [width, width]
    assert tab.execute_script(CONTRAST) == []
    shown = {
        e.get_attribute("id") for e in every(tab, "#algos, #tasks, #variants, #quantity, #seeds") if e.is_displayed()
    }
    assert shown == {"variants", "quantity", "seeds"} and not every(tab, "#paper")
    dots = tab.execute_script("""
        return [...document.querySelectorAll('.comparison tr')].map((row) => [...row.querySelectorAll('.dot, .mean')]
          .filter((mark) => { const [a, b] = [mark, mark.ownerSVGElement].map((e) => e.getBoundingClientRect());
            return a.left > b.left - 8 && a.right < b.right + 8; }).length);
    """)
    assert dots == [0, 3 + 1, 3 + 2]  # the head; seeds and their mean; also the difference to the first
    click(tab, chip(tab, "variants", "MC-CLT"))
    assert len(every(tab, ".panel .line")) == 1


@needs_browser
@pytest.mark.parametrize(("tasks", "rows"), [(3, [3]), (4, [2, 2])])
def test_no_place_among_the_charts_is_empty(tab, tmp_path, tasks, rows):
    store = make_store(tmp_path / "mine", PAPER_TASKS[:tasks], ("ppo",), ("plain", "mcclt"), seeds=2)
    (tmp_path / "report.html").write_text(report.page(store.load(), {}), encoding="utf-8")
    look_at(tab, tmp_path / "report.html", 1280)
    tops = [panel.rect["y"] for panel in every(tab, ".panel")]
    assert [tops.count(top) for top in dict.fromkeys(tops)] == rows
