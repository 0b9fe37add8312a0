"""Draws the pictures of the documentation that explain: the method's functions, one training, and a store's figures.

    mcclt train InvertedDoublePendulum-v5 --steps 300k --eval-freq 20k --seeds 0..2 --out runs/pictures
    python benchmarks/docs_pictures.py runs/pictures

Every curve is computed by the program itself: the functions of `mcclt`, the metrics of that run, the store
`benchmarks/results/short`.
"""

import io
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import matplotlib
import numpy as np
import tyro
from PIL import Image
from scipy.stats import norm

from mcclt.config import AgentConfig
from mcclt.experiments import figures
from mcclt.experiments.store import Store
from mcclt.method import losses, normal
from mcclt.method.weighting import AccuracySeeking, ExplorationSeeking

matplotlib.use("Agg")
import matplotlib.pyplot as plt

ROOT = Path(__file__).resolve().parent.parent
IMAGES = ROOT / "docs" / "images"
FROM_STORE = (
    "error_drawing",
    "weights_over_episode",
    "performance_profiles",
    "final_scores",
    "bellman_std",
    "ensemble_std",
)
BLUE, ORANGE, GREEN, PINK, GREY = "#446fff", "#f57f0a", "#2a8f8a", "#b25d9e", "#6b7575"
STYLE = {
    "font.size": 9,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.grid": True,
    "axes.axisbelow": True,
    "grid.alpha": 0.25,
    "axes.titlesize": 9.5,
    "axes.titleweight": "bold",
    "axes.titlelocation": "left",
    "legend.frameon": False,
}


def save(figure: Any, name: str) -> Path:
    """A PNG of 128 colours: a third of the size, and nobody sees it."""
    buffer = io.BytesIO()
    figure.savefig(buffer, format="png", dpi=110, facecolor="white")
    plt.close(figure)
    path = IMAGES / f"{name}.png"
    Image.open(buffer).convert("RGB").quantize(128, dither=Image.Dither.NONE).save(path, optimize=True)
    return path


def z_table() -> Any:
    """The quantile bars of a standard normal, and of the guide of one state."""
    figure, (left, right) = plt.subplots(1, 2, figsize=(figures.style.WIDTH, 3), layout="constrained")
    grid = np.linspace(-2.6, 2.6, 300)
    left.plot(grid, norm.cdf(grid), color=GREY)
    z, taus = normal.z_table(8), normal.taus(8)
    left.stem(z, taus, linefmt=BLUE, markerfmt="o", basefmt=" ")
    left.set(title="Z[i] puts τ_i = (i+1)/9 of a normal below it", xlabel="Z", ylabel="probability below")
    ret, sigma = 100.0, 20.0
    right.bar(taus, ret + sigma * z, width=0.07, color=BLUE, alpha=0.85)
    right.axhline(ret, color=GREY, linestyle=":")
    right.set(title="The guide of one state: G = 100, σ_ψ = 20", xlabel="τ", ylabel="target bar", ylim=(60, 130))
    return figure


def guides() -> Any:
    """What N = 8 bars learn from returns of a known spread, with either guide."""
    figure, (left, right) = plt.subplots(1, 2, figsize=(figures.style.WIDTH, 3), layout="constrained")
    u = np.linspace(-4, 4, 401).astype(np.float32)
    for tau, colour in ((0.11, PINK), (0.5, GREY), (0.89, BLUE)):
        left.plot(u, losses.quantile_huber(jnp.asarray(u), tau, 1.0), color=colour, label=f"quantile, τ = {tau}")
    left.plot(u, losses.symmetric_huber(jnp.asarray(u), 0.5, 1.0), color=ORANGE, ls="--", label="symmetric, any τ")
    left.set(title="The loss of one bar (κ = 1)", xlabel="u = target − bar", ylabel="ρ(u)")
    left.legend()
    returns = 100 + 20 * norm.ppf((np.arange(2000) + 0.5) / 2000).astype(np.float32)
    z, taus = normal.z_table(8), normal.taus(8)
    right.plot(taus, 100 + 20 * z, "o", color=GREY, mfc="none", ms=9, label="the normal it should be: σ = 20")
    kinds = ((losses.quantile_huber, "quantile", BLUE), (losses.symmetric_huber, "symmetric", ORANGE))
    for rho, label, colour in kinds:
        bars = learnt(rho, jnp.asarray(returns), jnp.asarray(z), jnp.asarray(taus))
        sigma = float(normal.fit_normal(jnp.asarray(bars))[1])
        right.plot(taus, bars, "o-", color=colour, ms=4, label=f"{label} guide: σ = {sigma:.1f}")
    right.set(title="Bars learnt from returns N(100, 20²)", xlabel="τ", ylabel="bar")
    right.legend()
    return figure


def learnt(rho: Callable[..., jax.Array], returns: jax.Array, z: jax.Array, taus: jax.Array) -> np.ndarray:
    """Bars that minimise mean ρ(G + 20 Z[i] − q_i) over the returns, by gradient descent."""

    def loss(bars: jax.Array) -> jax.Array:
        u = returns[:, None] + 20.0 * z[None, :] - bars[None, :]
        return jnp.sum(jnp.mean(rho(u, taus[None, :], 1.0), axis=0))

    def step(i: jax.Array, bars: jax.Array) -> jax.Array:
        return bars - 20.0 * 0.999**i * jax.grad(loss)(bars)

    return np.asarray(jax.lax.fori_loop(0, 5000, step, jnp.full(8, 100.0)))


def weights() -> Any:
    """Weights against errors, and the search for the temperature, on errors spread over four orders of magnitude."""
    figure, (left, right) = plt.subplots(1, 2, figsize=(figures.style.WIDTH, 3), layout="constrained")
    errors = jnp.asarray(np.exp(np.random.default_rng(0).normal(3.0, 1.5, 4000)), jnp.float32)
    grid = jnp.asarray(np.logspace(-1, 4, 300), jnp.float32)
    for w_min, colour in ((0.4, PINK), (0.5, GREY), (0.6, BLUE)):
        accuracy = AccuracySeeking(AgentConfig(w_min=w_min))
        found = accuracy.search(errors)
        left.semilogx(grid, accuracy.weights(grid, found), color=colour, label=f"accuracy, w_min = {w_min}")
    explore = ExplorationSeeking(AgentConfig(weighting="exploration"))
    left.semilogx(grid, explore.weights(grid, explore.search(errors)), color=ORANGE, ls="--", label="exploration")
    left.set(title="w(E), every one with mean 0.9 over the batch", xlabel="error E", ylabel="weight", ylim=(0.35, 2.0))
    left.legend()
    accuracy = AccuracySeeking(AgentConfig())
    temperatures = np.logspace(-5, 1, 200)
    means = [float(jnp.mean(accuracy.raw(errors * float(t)))) for t in temperatures]
    right.semilogx(temperatures, means, color=BLUE)
    found = float(accuracy.search(errors).value)
    right.axhline(0.9, color=GREY, linestyle=":")
    right.plot([found], [0.9], "o", color=ORANGE, label=f"found: T = {found:.4f}")
    right.set(title="The mean weight falls as T rises", xlabel="temperature T", ylabel="mean weight")
    right.legend()
    return figure


PANELS = (
    *("eval/mean_reward", "train/explained_variance", "train/approx_kl", "train/entropy"),
    *("value/std", "value/normality_error", "weight/mean", "weight/temperature"),
)
SECOND = {"value/std": "value/guide_std", "weight/mean": "weight/min"}


def training(run: Path) -> Any:
    """The metrics of one run, one line per seed."""
    rows = [json.loads(line) for line in (run / "metrics.jsonl").read_text().splitlines()]
    task = json.loads((run / "config.json").read_text())["task"]
    figure, axes = plt.subplots(4, 2, figsize=(figures.style.WIDTH, 8), layout="constrained")
    for axis, name in zip(axes.flat, PANELS, strict=True):
        for seed, colour in zip(sorted({r["seed"] for r in rows}), (BLUE, ORANGE, GREEN, PINK), strict=False):
            for metric, style in ((name, "-"), (SECOND.get(name), "--")):
                own = [(r["step"] / 1000, r[metric]) for r in rows if r["seed"] == seed and metric in r]
                if own:
                    axis.plot(*zip(*own, strict=True), color=colour, linestyle=style, linewidth=1.2)
        axis.set_title(f"{name} and {SECOND[name]} (dashed)" if name in SECOND else name)
        if name == "train/explained_variance":
            axis.set_ylim(-0.6, 1.05)
        if name in ("value/normality_error", "weight/temperature"):
            axis.set_yscale("log")
    for axis in axes[-1]:
        axis.set_xlabel("thousand steps")
    figure.suptitle(f"MC-CLT PPO on {task}: {len({r['seed'] for r in rows})} seeds", fontsize=10)
    return figure


def main(run: tyro.conf.Positional[Path | None] = None) -> None:
    """Draws them; also the metrics of a run directory, if one is given."""
    IMAGES.mkdir(exist_ok=True)
    with plt.rc_context(STYLE):
        for draw in (z_table, guides, weights):
            print(save(draw(), draw.__name__))
        if run:
            print(save(training(run), "training"))
    results = Store(ROOT / "benchmarks" / "results" / "short").load()
    for name in FROM_STORE:
        figure = figures.FIGURES[name](results)
        if figure is not None:
            print(save(figure, name))


if __name__ == "__main__":
    tyro.cli(main, description=__doc__)
