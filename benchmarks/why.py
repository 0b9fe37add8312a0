"""Does a critic's own doubt say where it is wrong? Trained agents, and several returns from the same state.

    python benchmarks/why.py measure AGENT ...     # kept agents (--keep-agents), on the native engine; adds to why.json
    python benchmarks/why.py                       # the tables
    python benchmarks/why.py --file benchmarks/results/why-tuned.json    # of `--preset tuned`

One return is a noisy sample of a value, so |V − return| says little about how wrong V is. Here the policy, noise
included, plays some episodes; from two moments of each (spread over the length of episodes) it is played on several
times with other noise. The mean of these returns is what V should be. What lies beyond the
horizon counts as the critic says; time limits are ignored, as they are in training.

A perfect predictor would not reach ρ = 1 either, as the mean return is still an estimate: the correlation between
errors from two halves of the returns, corrected to the full number (Spearman and Brown), is the errors' reliability,
and its root the ceiling. (If anything it is too high: states whose returns vary more look more wrong in both halves.)
"""

import argparse
import contextlib
import json
import warnings
from pathlib import Path
from typing import Any

import numpy as np
from scipy import stats

import mcclt
from mcclt.config.variants import VARIANTS, group_name
from mcclt.envs.api import VectorEnv
from mcclt.experiments.analysis.stats import summarise
from mcclt.experiments.figures import colour
from mcclt.experiments.results import NAMES
from mcclt.method.randomness import Purpose
from mcclt.training.agent import Agent
from mcclt.training.environments import keys_of

RESULTS = Path(__file__).resolve().parent / "results" / "why.json"
EPISODES, MOMENTS, RETURNS, HORIZON = 20, 2, 8, 250
"""Of an agent, of an episode, from each of these states, and the steps of each with γ = 0.99: γ^250 is 0.08."""
BELIEFS = ("mean", "std", "error", "weight")
IN_A_ROW = 3
"""Settings in the figure."""


def measure(path: Path, returns: int = RETURNS) -> dict[str, Any]:
    """What one agent believes about its states, and the returns that followed from them."""
    agent = mcclt.load(path).agent()
    with contextlib.closing(_environments(agent, EPISODES, None)) as env:
        obs, moments, lengths, terminated = walk(agent, env)
    episode = np.tile(np.arange(EPISODES), MOMENTS)
    places = (np.arange(MOMENTS)[:, None] + (np.arange(EPISODES) + 0.5) / EPISODES) / MOMENTS  # evenly in [0, 1]
    at = (lengths * places).astype(int).ravel()
    start = {
        name: np.repeat(np.stack([moments[t][name][e] for t, e in zip(at, episode, strict=True)]), returns, axis=0)
        for name in moments[0]
    }
    horizon = round(HORIZON * np.log(0.99) / np.log(agent.config.gamma))  # where what is beyond counts as little
    with contextlib.closing(_environments(agent, len(start["elapsed"]), horizon + 1)) as env:
        env.reset()
        followed = play_on(agent, env, env.set_state(start | {"elapsed": np.zeros_like(start["elapsed"])}), horizon)
    believed = agent.believe(obs[at, episode])
    return {
        "task": agent.task,
        "algo": agent.config.algo,
        "variant": group_name(agent.config).removeprefix(f"{agent.config.algo}-"),
        "seed": agent.seed,
        "t": at.tolist(),
        "returns": np.round(followed.reshape(-1, returns), 3).tolist(),
        **{name: [float(f"{x:.6g}") for x in getattr(believed, name)] for name in BELIEFS},
        "weights": weights_go_with(agent, obs, lengths, terminated),
    }


def _environments(agent: Agent, count: int, limit: int | None) -> VectorEnv:
    keys = keys_of([agent.seed], Purpose.PROBE, 1, count)
    return mcclt.make_vec(agent.task, keys, engine="native", max_episode_steps=limit)


def _noise(agent: Agent, index: int, steps: int, count: int) -> np.ndarray:
    noise = agent.noise(Purpose.PROBE, index, steps * count)
    return noise.reshape(steps, count, *noise.shape[1:])


def walk(agent: Agent, env: VectorEnv) -> tuple[np.ndarray, list[dict[str, np.ndarray]], np.ndarray, np.ndarray]:
    """One episode in each of n environments.

    Returns:
        Observations [T, n, O] and the environments' states at every step, the episodes' lengths [n], and whether they
        ended by themselves [n]; what comes after an episode's length is of another one.
    """
    limit = env.spec.max_episode_steps
    assert limit is not None
    seen, moments = [env.reset()], [env.get_state()]
    lengths, terminated = np.zeros(env.num_envs, int), np.zeros(env.num_envs, bool)
    for noise in _noise(agent, 1, limit, env.num_envs):
        step = env.step(agent.act(seen[-1], noise))
        ends = (lengths == 0) & (step.terminated | step.truncated)
        lengths[ends], terminated[ends] = len(seen), step.terminated[ends]
        if lengths.all():
            break
        seen.append(step.obs)
        moments.append(env.get_state())
    return np.stack(seen), moments, lengths, terminated


def play_on(agent: Agent, env: VectorEnv, obs: np.ndarray, horizon: int) -> np.ndarray:
    """Discounted returns [n] from where the environments are."""
    gamma = agent.config.gamma
    total, discount = np.zeros(env.num_envs), np.ones(env.num_envs)
    for noise in _noise(agent, 2, horizon, env.num_envs):
        step = env.step(agent.act(obs, noise))
        total += discount * step.reward
        discount *= gamma * ~step.terminated  # nothing counts after a fall
        obs = step.obs
        if not discount.any():
            break
    return total + discount * agent.believe(obs).mean


def weights_go_with(
    agent: Agent, obs: np.ndarray, lengths: np.ndarray, terminated: np.ndarray, stride: int = 5
) -> dict[str, float | None]:
    """Spearman's ρ of the weight with other things, over every fifth state of the episodes; None where it has none.

    `time` into the episode, `end`: steps to a fall (of those episodes that end in one), `value`, `std`, and `error`.
    Beside them the `mean` weight and the share of episodes that end in a fall (`falls`).
    """
    t, e = np.nonzero(np.arange(len(obs))[::stride, None] < lengths)
    t *= stride
    believed = agent.believe(obs[t, e])
    falls = terminated[e]
    found = {
        "time": rho(believed.weight, t),
        "end": rho(believed.weight[falls], (lengths[e] - t)[falls]),
        "value": rho(believed.weight, believed.mean),
        "std": rho(believed.weight, believed.std),
        "error": rho(believed.weight, believed.error),
        "mean": float(believed.weight.mean()),
        "falls": float(terminated.mean()),
    }
    return {name: round(value, 4) if np.isfinite(value) else None for name, value in found.items()}


def rho(a: np.ndarray, b: np.ndarray) -> float:
    """Spearman's rank correlation; NaN where one of the two is constant or there are too few."""
    if len(a) < 3:
        return np.nan
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", stats.ConstantInputWarning)
        return float(stats.spearmanr(a, b).statistic)


def add(agents: list[Path], returns: int, to: Path) -> None:
    """Measures those agents that are not in the file yet."""
    records = load(to) if to.exists() else []
    known = {str(record["agent"]) for record in records}
    for path in agents:
        name = "/".join(path.parts[-4:])
        if name not in known:
            records.append({"agent": name, **measure(path, returns)})
            text = ",\n".join(json.dumps(record) for record in records)
            to.write_text(f"[\n{text}\n]\n", encoding="utf-8")
            print(name, flush=True)


def load(path: Path) -> list[dict[str, Any]]:
    """What was measured, agent by agent."""
    return json.loads(path.read_text(encoding="utf-8"))


# --- what it says -----------------------------------------------------------------------------------------------


def ranks(record: dict[str, Any]) -> dict[str, float]:
    """How one agent's beliefs rank its states by what is so; see `COLUMNS`."""
    value, spread, doubt = (np.asarray(record[name], float) for name in ("mean", "std", "error"))
    returns = np.asarray(record["returns"], float)  # [states, returns]
    n = returns.shape[1]
    wrong = np.abs(value - returns.mean(axis=1))
    noise = returns.var(axis=1, ddof=1)
    ones = np.abs(value[:, None] - returns)
    others = np.abs(value[:, None] - (returns.sum(axis=1, keepdims=True) - returns) / (n - 1))
    return {
        "off": float(np.sqrt(max(0.0, np.mean(wrong**2) - np.mean(noise) / n))),
        "noise": float(np.sqrt(noise.mean())),
        "halves": between_halves(value, returns),
        "E": rho(doubt, wrong),
        "σ": rho(spread, wrong),
        "ceiling, one return": float(np.mean([rho(ones[:, i], others[:, i]) for i in range(n)])),
        "σ, spread": rho(spread, noise),
    }


def between_halves(value: np.ndarray, returns: np.ndarray, splits: int = 50) -> float:
    """ρ between |value − mean return| [states] by two random halves of the returns [states, n]; mean over splits."""
    rng, half = np.random.default_rng(0), returns.shape[1] // 2
    orders = [rng.permutation(returns.shape[1]) for _ in range(splits)]
    errors = [[np.abs(value - returns[:, part].mean(axis=1)) for part in (o[:half], o[half:])] for o in orders]
    return float(np.mean([rho(a, b) for a, b in errors]))


def ceiling(halves: list[float]) -> float:
    """What a perfect predictor would reach, from ρ between halves of each seed: the root of the errors' reliability."""
    half = max(0.0, float(np.mean(halves)))
    return float(np.sqrt(2 * half / (1 + half)))


COLUMNS = {
    "off": "real error",
    "noise": "deviation of a return",
    "E": "ρ of E",
    "σ": "ρ of σ",
    "halves": "ceiling",
    "ceiling, one return": "ceiling with one return",
    "σ, spread": "ρ of σ with the deviation",
}
"""The root mean square of V's real errors (their noise taken off), and of the deviation of returns from one state;
Spearman's ρ of E and σ with the real errors, what a perfect predictor would reach, and what the mean of all other
returns reaches where an error is measured by one return; and ρ of σ with the deviation of the returns."""
CAUSES = {"time": "time in the episode", "end": "steps to a fall", "value": "V", "std": "σ"}
"""What weights may go with."""
Found = dict[tuple[str, str, str], list[dict[str, Any]]]
"""Records by task, algorithm and variant."""


def grouped(records: list[dict[str, Any]]) -> Found:
    """The agents of each variant."""
    order = [*VARIANTS]
    keys = {(r["task"], r["algo"], r["variant"]) for r in records}
    return {
        key: [r for r in records if (r["task"], r["algo"], r["variant"]) == key]
        for key in sorted(keys, key=lambda key: (*key[:2], order.index(key[2])))
    }


def over_seeds(values: list[float | None]) -> tuple[float, float]:
    """Mean and standard error of those that are there; NaN of none."""
    found = summarise(np.array(values, float))
    return found.mean, found.se


def cell(values: list[float | None], digits: int = 2) -> str:
    """Mean ± standard error over seeds; the mean alone of one seed."""
    mean, error = over_seeds(values)
    spread = "" if np.isnan(error) else f" ± {error:.{digits}f}"
    return "–" if np.isnan(mean) else f"{mean:.{digits}f}{spread}".replace("-", "−")


def table(found: Found) -> str:
    """How doubts rank real errors, in Markdown."""
    lines = [f"| | {' | '.join(COLUMNS.values())} |", "|---" * (1 + len(COLUMNS)) + "|"]
    for (task, algo, variant), records in found.items():
        each = [ranks(record) for record in records]
        cells = [cell([r[name] for r in each], 1 if name in ("off", "noise") else 2) for name in COLUMNS]
        cells[list(COLUMNS).index("halves")] = f"{ceiling([r['halves'] for r in each]):.2f}"
        lines.append(f"| {algo.upper()} on {task}: {NAMES[variant]} | {' | '.join(cells)} |")
    return "\n".join(lines)


def weights_table(found: Found) -> str:
    """What weights go with, in Markdown."""
    lines = [f"| weight of | {' | '.join(CAUSES.values())} |", "|---" * (1 + len(CAUSES)) + "|"]
    for (task, algo, variant), records in weighted(found).items():
        cells = [cell([r["weights"][name] for r in records]) for name in CAUSES]
        lines.append(f"| {algo.upper()} on {task}: {NAMES[variant]} | {' | '.join(cells)} |")
    return "\n".join(lines)


def weighted(found: Found) -> Found:
    """Without the variants that weigh all states alike."""
    return {key: records for key, records in found.items() if VARIANTS[key[2]]["weighting"] != "uniform"}


def figure(found: Found) -> Any:
    """Of each setting, above: ρ of E and σ with real errors beside the ceiling; below: ρ of weights with their causes.

    Settings stand three in a row; the names of the marks beside the last.
    """
    import matplotlib.pyplot as plt

    settings = list(dict.fromkeys(key[:2] for key in found))
    variants, heavy = ([v for v in VARIANTS if any(key[2] == v for key in kind)] for kind in (found, weighted(found)))
    blocks = -(-(len(settings) + 1) // IN_A_ROW)
    ratios = (len(variants), len(CAUSES)) * blocks
    shape = {"figsize": (9, 5.2 * blocks), "layout": "constrained", "sharex": True, "sharey": "row", "squeeze": False}
    drawing, axes = plt.subplots(2 * blocks, IN_A_ROW, height_ratios=ratios, **shape)
    pairs = [(axes[2 * i, k], axes[2 * i + 1, k]) for i in range(blocks) for k in range(IN_A_ROW)]
    for (task, algo), (above, below) in zip(settings, pairs, strict=False):
        rows = {key[2]: records for key, records in found.items() if key[:2] == (task, algo)}
        for variant, records in rows.items():
            each, y = [ranks(record) for record in records], variants.index(variant)
            low, high = over_seeds([r["ceiling, one return"] for r in each])[0], ceiling([r["halves"] for r in each])
            for x, style, label in ((high, "-", "ceiling"), (low, ":", "with one return")):
                above.plot([x, x], [y - 0.35, y + 0.35], style, color="grey", linewidth=2, label=label)
            _points(above, y - 0.13, [r["E"] for r in each], "C0", "o", "E")
            _points(above, y + 0.13, [r["σ"] for r in each], "C1", "s", "σ")
        for k, variant in enumerate(heavy):
            for y, name in enumerate(CAUSES):
                values = [r["weights"][name] for r in rows.get(variant, ())]
                _points(below, y + 0.25 * (k - 1), values, colour(variant), "o", NAMES[variant])
        above.set_title(f"{algo.upper()} on {task}\nρ with the real error", loc="left", fontsize=10)
        below.set_title("ρ of the weight with", loc="left", fontsize=10)
        for axis, names in ((above, [NAMES[variant] for variant in variants]), (below, CAUSES.values())):
            axis.set_yticks(range(len(names)), names)
            axis.set_ylim(len(names) - 0.5, -0.5)
            axis.axvline(0, color="black", linewidth=0.8)
            axis.set_xlim(-1.05, 1.05)
            axis.spines[["top", "right"]].set_visible(False)
    for drawn, free in zip(pairs[len(settings) - 1], pairs[len(settings)], strict=True):
        handles = {label: handle for handle, label in zip(*drawn.get_legend_handles_labels(), strict=True)}
        free.legend(handles.values(), handles, frameon=False, loc="center left")
    for axis in (axis for pair in pairs[len(settings) :] for axis in pair):
        axis.axis("off")
    drawing.supxlabel("Spearman's ρ", fontsize=10)
    return drawing


def _points(axis: Any, y: float, values: list[float | None], color: str, marker: str, label: str) -> None:
    """Every seed faintly, and their mean with its standard error."""
    mean, error = over_seeds(values)
    if np.isfinite(mean):
        known = [v for v in values if v is not None]
        axis.plot(known, [y] * len(known), marker, color=color, alpha=0.3, markersize=3)
        axis.errorbar(mean, y, xerr=error, color=color, marker=marker, markersize=6, label=label)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    commands = parser.add_subparsers(dest="command")
    measuring = commands.add_parser("measure", help="measure agents and add them to the file")
    measuring.add_argument("agents", type=Path, nargs="+", help="models of one agent each")
    measuring.add_argument("--returns", type=int, default=RETURNS, help="from each state (default: %(default)s)")
    parser.add_argument("--file", type=Path, default=RESULTS, help="of what was measured")
    options = parser.parse_args()
    if options.command == "measure":
        add(options.agents, options.returns, options.file)
    found = grouped(load(options.file))
    print(table(found), weights_table(found), sep="\n\n")


if __name__ == "__main__":
    main()
