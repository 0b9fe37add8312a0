"""Figures: the numbers they draw, and that they can be drawn from any store."""

import dataclasses
import re
import sys
from xml.etree import ElementTree

import numpy as np
import pytest
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure
from matplotlib.text import Text

from mcclt.errors import MissingExtraError
from mcclt.experiments import figures
from mcclt.experiments.analysis import beliefs, calibration, pooled, speed, stats
from mcclt.experiments.figures import scores, style
from mcclt.experiments.figures.bars import BARS_SHOWN
from mcclt.experiments.figures.calibration import _crps_panel
from mcclt.experiments.paper import paper_mean
from mcclt.experiments.results import Results, gather, variant_label
from mcclt.experiments.setups import make_setup
from mcclt.experiments.store import Store
from synthetic import filled, make_result, make_series, make_store

ALL = (*figures.COLOURS, "qr@n_quantiles=200", "qr@qr_target=bellman")


# --- numbers -----------------------------------------------------------------------------------------------------


def test_band_of_few_seeds_is_their_range():
    mean, low, high = stats.mean_band(np.array([[1.0, 5.0, np.nan], [3.0, np.nan, np.nan]]))
    np.testing.assert_array_equal(mean, [2, 5, np.nan])
    np.testing.assert_array_equal(low, [1, 5, np.nan])
    np.testing.assert_array_equal(high, [3, 5, np.nan])


def test_band_of_five_seeds_is_the_t_interval():
    mean, low, high = stats.mean_band(np.array([1.0, 2, 3, 4, 5]))
    half = 2.776445 * np.sqrt(2.5 / 5)  # t(0.975, 4 degrees), variance 2.5
    np.testing.assert_allclose([mean, low, high], [3, 3 - half, 3 + half], rtol=1e-6)


def test_learning_curve_falls_back_to_collected_episodes():
    series = make_series("mcclt", [{}, {}])
    assert speed.learning_curve(series)[1][0, -1] == pytest.approx(1000)
    for r in series.results:
        r.curve["eval/mean_reward"][:] = np.nan
    assert speed.learning_curve(series)[1][0, -1] == pytest.approx(900)


def test_paper_means():
    assert paper_mean(make_series("plain", [{}])) == 2973  # table 1: Hopper, PPO
    assert paper_mean(make_series("mcclt@n_quantiles=4", [{}])) is None
    short = dataclasses.replace(make_series("plain", [{}]), settings={"steps": 100_000})
    assert paper_mean(short) is None  # the paper's is after 1M


def calibrated(share: float, crps: float, pit: list[float]) -> dict:
    coverage = {"0.95": 1.0, "0.5": share, "0.8": 0.9}
    numbers = {"crps": crps, "crps_point": 10.0, "bias": 2.0, "spread": 4.0}
    return {"calibration": {"coverage": coverage, "pit": pit, **numbers}}


@pytest.mark.parametrize(("crps", "scale"), [(9, "linear"), (400, "log")])
def test_one_critic_far_off_does_not_hide_the_others(crps: float, scale: str):
    far = make_series("qr", [calibrated(0.5, crps, [0.5, 0.5])] * 2)
    near = make_series("mcclt", [calibrated(0.5, 7, [0.5, 0.5])] * 2)
    ax = Figure().subplots()
    found = {s.variant: {(s.task, s.algo): calibration.calibration_of(s)} for s in (far, near)}
    _crps_panel(ax, found, [(far.task, far.algo)])
    assert ax.get_xscale() == scale


def test_calibration_numbers():
    rows = [calibrated(0.4, 7, [0.25, 0.75]), {"calibration": {}}, calibrated(0.6, 9, [0.75, 0.25])]
    found = calibration.calibration_of(make_series("qr", rows))
    assert found.coverage == {0.5: 0.5, 0.8: 0.9, 0.95: 1.0}
    np.testing.assert_allclose(found.ratios, [0.7, 0.9])
    np.testing.assert_allclose(found.pit, [0.5, 0.5])
    assert (found.crps, found.bias) == (pytest.approx(0.8), 0.5)


def test_calibration_of_exact_points():
    # Nothing was off by anything, so that there is nothing to divide by.
    exact = calibrated(0.5, 1.0, [0.5, 0.5])
    exact["calibration"]["crps_point"] = 0.0
    assert calibration.calibration_of(make_series("qr", [exact])).crps == 1
    assert calibration.calibration_of(make_series("qr", [{}])) is None


def test_profiles_by_hand(tmp_path):
    given = {("Hopper", "qr"): [0, 10], ("Hopper", "mcclt"): [5, 5], ("Ant", "qr"): [-3, -1], ("Ant", "mcclt"): [1, 1]}
    given["Swimmer", "qr"] = [9, 9]  # no MC-CLT there: does not count
    store = filled(tmp_path, [(make_setup(task, "ppo", name, "authors"), own) for (task, name), own in given.items()])
    tasks, thresholds, shares = scores.profiles(store.load(), "ppo")
    assert tasks == ["Hopper-v4", "Ant-v4"]
    # Normalised: qr 0, 1 on Hopper and 0, ½ on Ant; mcclt ½, ½ and 1, 1.
    at = [int(np.argmin(abs(thresholds - x))) for x in (0, 0.4, 0.6, 0.9, 1)]
    np.testing.assert_allclose(shares["qr"][at], [0.5, 0.5, 0.25, 0.25, 0])
    np.testing.assert_allclose(shares["mcclt"][at], [1, 1, 0.5, 0.5, 0])


@pytest.fixture(scope="module")
def full(tmp_path_factory) -> Results:
    return make_store(tmp_path_factory.mktemp("full"), variants=ALL, seeds=5).load()


def test_effects_are_the_answers_in_every_setting(full):
    answers = pooled.answers(full, "final")
    figure = figures.FIGURES["effects"](full)
    assert [ax.get_title("center").replace("\n", " ") for ax in figure.axes] == [variant_label(a.b) for a in answers]
    for ax, answer in zip(figure.axes, answers, strict=True):
        points = [line for line in ax.lines if line.get_marker() in "os" and len(line.get_xdata()) == 1]
        np.testing.assert_allclose([p.get_xdata()[0] for p in points], [e.comparison.effect for e in answer.effects])
        (diamond,) = ax.patches
        ends = [diamond.get_xy()[:, 0].min(), diamond.get_xy()[:, 0].max()]
        np.testing.assert_allclose(ends, [answer.mean.low, answer.mean.high])
        assert ax.get_xlabel().endswith(answer.verdict)


@pytest.mark.parametrize("n", range(1, 17))
def test_no_empty_places(n):
    _, axes = style.panels([1.9] * n)
    rows, columns = axes[0].get_gridspec().get_geometry()
    assert rows == -(-n // 3)
    taken = [
        np.ravel_multi_index((ax.get_subplotspec().rowspan[0], c), (rows, columns))
        for ax in axes
        for c in ax.get_subplotspec().colspan
    ]
    assert sorted(taken) == list(range(rows * columns))


LONG = (
    "mcclt@guide=symmetric+n_quantiles=20+trunk=shared+variance_head=log_variance",
    "mcclt@critic_learning_rate=0.0003+w_tar=0.85",
)


def inside(figure: Figure) -> bool:
    """Whether nothing that is drawn is cut off at an edge."""
    box = figure.get_tightbbox(FigureCanvasAgg(figure).get_renderer())  # in inches
    width, height = figure.get_size_inches()
    return box.x0 > -0.02 and box.y0 > -0.02 and box.x1 < width + 0.02 and box.y1 < height + 0.02


@pytest.mark.parametrize("variants", [("plain", "mcclt", *LONG), pytest.param(LONG, marks=pytest.mark.slow)])
def test_long_names_leave_room_for_what_they_name(tmp_path, variants):
    """Matplotlib warns, which is an error here, when nothing is left for the axes."""
    names = (*variants, *(f"mcclt@n_quantiles={n}" for n in (2, 4, 6, 10)))
    results = make_store(tmp_path, tasks=("InvertedDoublePendulum",), algos=("ppo",), variants=names, seeds=2).load()
    for reproduction in (True, False):
        for name, figure in drawn(dataclasses.replace(results, reproduction=reproduction)).items():
            assert inside(figure), name
            assert min(ax.get_position().width * ax.get_position().height for ax in figure.axes) > 0.02, name


def test_a_comparison_shows_six_variants_of_its_own(tmp_path):
    names = (*LONG, *(f"mcclt@n_quantiles={n}" for n in (2, 4, 6, 10, 12, 14)))
    results = make_store(tmp_path, tasks=("Hopper",), algos=("ppo",), variants=names, seeds=1).load()
    own = dataclasses.replace(results, reproduction=False)
    figure = figures.FIGURES["learning_curves"](own)
    assert len(figure.axes[0].lines) == 6
    labels = [t.get_text().replace("\n", " ") for t in figure.legends[0].get_texts()]
    assert labels == [variant_label(v) for v in own.variants[:6]], "and nothing of the paper's"


# --- drawings ----------------------------------------------------------------------------------------------------


def drawn(results: Results) -> dict[str, Figure]:
    """What there is to draw, as a page shows it."""
    found = {name: figure for name, draw in figures.FIGURES.items() if (figure := draw(results)) is not None}
    for figure in found.values():
        ElementTree.fromstring(figures.svg(figure))
    return found


def test_every_figure_of_a_full_store(full):
    found = drawn(full)
    assert set(found) == set(figures.FIGURES) == set(figures.TITLES)
    for name, figure in found.items():
        sizes = [t.get_fontsize() for t in figure.findobj(Text) if t.get_text().strip() and t.get_visible()]
        assert min(sizes) >= 9, f"type of {name} can be read"


def test_partial_store(tmp_path):
    """One task has one variant with one seed, another two variants with two."""
    make_store(tmp_path, tasks=("Hopper",), algos=("trpo",), variants=("mcclt",), seeds=1)
    make_store(tmp_path, tasks=("Ant",), algos=("ppo",), variants=("plain", "mcclt"), seeds=2)
    missing = {"value_distributions", "bellman_std", "ensemble_std", "changed_scores"}
    assert set(drawn(Store(tmp_path).load())) == set(figures.FIGURES) - missing


def test_agents_that_were_not_probed():
    setup = make_setup("Hopper", "ppo", "mcclt", "authors")
    bare = dataclasses.replace(make_result(setup, 0, 10.0), probe={}, curve={}, returns=np.full(3, np.nan))
    assert set(drawn(gather([bare], {setup.key: setup.settings}))) == {"performance_profiles", "final_scores"}


def test_single_seed(tmp_path):
    results = make_store(tmp_path / "store", tasks=("Hopper",), algos=("ppo",), variants=ALL, seeds=1).load()
    assert set(drawn(results)) == set(figures.FIGURES) - {"effects", "effects_on_speed"}


def test_empty_store(tmp_path):
    assert drawn(Store(tmp_path / "store", create=True).load()) == {}


def test_what_is_drawn_is_what_was_computed(full):
    curve = figures.FIGURES["learning_curves"](full).axes[0]  # Hopper, PPO: the first variant is the baseline
    series = full.main("Hopper-v4", "ppo", "plain")
    mean, *_ = stats.mean_band(speed.learning_curve(series)[1])
    np.testing.assert_allclose(curve.lines[0].get_ydata(), mean)
    np.testing.assert_allclose(curve.lines[1].get_ydata(), [2973] * 2)

    dots = figures.FIGURES["final_scores"](full).axes[0].lines[0]
    np.testing.assert_allclose(dots.get_xdata(), series.scores)

    bars = np.sort(full.main("Hopper-v4", "ppo", "qr@n_quantiles=200").results[0].probe["bars"]["values"][2])
    cell = figures.FIGURES["value_distributions"](full).axes[2]
    np.testing.assert_allclose(cell.lines[1].get_xdata(), bars)
    assert len(cell.lines[0].get_xdata()) == 3 * BARS_SHOWN

    states = full.main("Hopper-v4", "ppo", "mcclt").results[0].probe["bars"]["values"]
    worst = max((beliefs.error_parts(np.array(state)) for state in states), key=lambda parts: parts.error)
    drawing = figures.FIGURES["error_drawing"](full)
    np.testing.assert_allclose(drawing.axes[0].lines[1].get_xdata(), worst.bars)
    np.testing.assert_allclose(drawing.axes[1].lines[1].get_xdata(), worst.sigmas)
    np.testing.assert_allclose(drawing.axes[2].lines[1].get_xdata(), worst.guide)


def test_fewer_bars_stand_in_for_200(tmp_path):
    variants = ("qr", "qr@n_quantiles=20", "qr@n_quantiles=50", "qr@n_quantiles=100")
    results = make_store(tmp_path, tasks=("Hopper",), algos=("ppo",), variants=variants, seeds=1).load()
    cell = figures.FIGURES["value_distributions"](results).axes[0]
    assert len(cell.lines[1].get_xdata()) == 100


@pytest.mark.parametrize(
    "name", [pytest.param(n, marks=pytest.mark.slow if n != "ensemble_std" else ()) for n in figures.FIGURES]
)
def test_files_are_what_they_are_called_and_the_same_again(full, tmp_path, name):
    first, second = (figures.save(figures.FIGURES[name](full), tmp_path / folder, "x") for folder in ("a", "b"))
    svg, png, pdf = first
    assert ElementTree.parse(svg).getroot().tag.endswith("svg")
    assert png.read_bytes().startswith(b"\x89PNG") and pdf.read_bytes().startswith(b"%PDF")
    assert [path.read_bytes() for path in first] == [path.read_bytes() for path in second]


def test_svg_for_a_page(full):
    texts = [figures.svg(figures.FIGURES[name](full)) for name in ("ensemble_std", "bellman_std", "final_scores")]
    ids: list[str] = []
    for text in texts:
        own = re.findall(r'\bid="([^"]+)"', text)
        assert set(re.findall(r'(?:url\(|href=")#([^")]+)', text)) == set(own)
        ids += own
        assert text.startswith("<svg ") and "<style" not in text and "<metadata" not in text
        assert "currentColor" in text and figures.INK not in text and "white;" not in text
        assert "Hopper-v4</text>" in text  # text, not outlines
    assert len(ids) == len(set(ids))


def test_colours_do_not_depend_on_the_store():
    assert figures.colour("mcclt") == figures.COLOURS["mcclt"]
    assert len(set(figures.COLOURS.values())) == len(figures.COLOURS)


def test_without_matplotlib(full, monkeypatch):
    monkeypatch.setitem(sys.modules, "matplotlib", None)
    with pytest.raises(MissingExtraError, match="matplotlib>="):
        figures.FIGURES["final_scores"](full)
