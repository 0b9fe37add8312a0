"""The variants that are compared: critics with weightings, by name."""

from mcclt.config import AgentConfig

VARIANTS: dict[str, dict[str, str]] = {
    "plain": {"critic": "plain", "weighting": "uniform"},
    "qr": {"critic": "quantile", "weighting": "uniform"},
    "mcclt-nw": {"critic": "normal", "weighting": "uniform"},
    "ensemble": {"critic": "ensemble", "weighting": "accuracy"},
    "mcclt": {"critic": "normal", "weighting": "accuracy"},
    "explore": {"critic": "normal", "weighting": "exploration"},
    "inverse-variance": {"critic": "normal", "weighting": "inverse_variance"},
    "hl-gauss": {"critic": "hl_gauss", "weighting": "accuracy"},
    "hl-gauss-nw": {"critic": "hl_gauss", "weighting": "uniform"},
}
"""Critics with weightings, by the names used throughout."""
PAPER_VARIANTS = ("plain", "qr", "mcclt-nw", "ensemble", "mcclt", "explore")
"""Those that the paper compares."""


def weighting_of(agent: AgentConfig) -> str | None:
    """Its weighting; where it is unset, what the paper pairs with the critic. None if that is not in the table."""
    paired = (
        parts["weighting"]
        for name, parts in VARIANTS.items()
        if parts["critic"] == agent.critic and not name.endswith("-nw")
    )
    return agent.weighting or next(paired, None)


def group_name(agent: AgentConfig) -> str:
    """What a way of learning is called by everywhere: the algorithm and the variant, as in ppo-mcclt, or its parts."""
    own = {"critic": agent.critic, "weighting": weighting_of(agent)}
    for name, parts in VARIANTS.items():
        if parts == own:
            return f"{agent.algo}-{name}"
    return "-".join(part for part in (agent.algo, agent.critic, agent.weighting) if part)
