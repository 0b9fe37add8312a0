"""Numbers as people read them."""

import math
from collections.abc import Callable, Collection, Sequence
from typing import Any

from mcclt.experiments.analysis import stats


def number(value: float, sign: bool = False) -> str:
    """A score as people read it: 2724, 31.4, 0.21; a real minus sign."""
    size = abs(value)
    text = f"{size:.0f}" if size >= 99.95 else f"{size:.1f}" if size >= 0.95 else f"{size:.2g}"
    return ("−" if value < 0 else "+" if sign else "") + text


def signed(value: float, digits: str = ".2f") -> str:
    """+0.21, −1.30."""
    return f"{value:+z{digits}}".replace("-", "−")


def interval(value: float, low: float, high: float, form: str) -> str:
    """0.21 [0.10, 0.32] in a format; the number alone where there is no interval."""
    text = f"{value:{form}}" if math.isnan(low) else f"{value:{form}} [{low:{form}}, {high:{form}}]"
    return text.replace("-", "−")


def means(summaries: Sequence[stats.Summary], form: str) -> str:
    """The mean of one setting with its interval, or the range of several."""
    if len(summaries) == 1:
        return interval(summaries[0].mean, summaries[0].low, summaries[0].high, form)
    return several([s.mean for s in summaries], lambda mean: f"{mean:{form}}".replace("-", "−"))


def several(values: Collection[Any], say: Callable[[Any], str] = "{:,}".format) -> str:
    """For people: 30, or 10 to 30 where not all are alike."""
    ends = [say(end(values)) for end in (min, max)]
    return ends[0] if ends[0] == ends[1] else " to ".join(ends)


def hardware(devices: str | None, cpu: str | None, cores: int | None) -> str:
    """NVIDIA H200; AMD EPYC, 16 cores: what JAX calls "gpu: NVIDIA H200", if there is any, and the processor."""
    others = [name for device in (devices or "").split(", ") if (name := device.rpartition(": ")[2]) not in ("", "cpu")]
    processor = ", ".join([cpu or "CPU", *([f"{cores} cores"] if cores else [])])
    return "; ".join([*others, processor])


def p_text(p: float | None) -> str:
    """A p-value: p = 0.021, or p < 0.001."""
    return "no p" if p is None else "p < 0.001" if p < 0.001 else f"p = {p:.3f}"


def span(low: float, high: float, digits: int) -> str:
    """1.5–1.9, or one number where both look alike."""
    ends = [f"{low:.{digits}f}", f"{high:.{digits}f}"]
    return ends[0] if ends[0] == ends[1] else "–".join(ends)


def count(n: int, what: str) -> str:
    """1 seed, 2,000 seeds."""
    return f"{n:,} {what}{'' if n == 1 else 's'}"
