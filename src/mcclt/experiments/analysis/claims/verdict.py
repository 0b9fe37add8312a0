"""What a verdict is."""

from dataclasses import dataclass


@dataclass(frozen=True)
class Verdict:
    """What a store says about a claim."""

    claim: str
    """The paper's statement, in one sentence."""
    paper: str
    """Its numbers."""
    ours: str
    """Our numbers, with intervals."""
    verdict: str
    """confirmed, not confirmed, opposite or not measured."""
    details: tuple[str, ...] = ()
    """The rule of the verdict, then one line per setting or step."""
    needs: tuple[str, ...] = ()
    """What would fill what is missing: commands (they start with `mcclt`), and numbers of seeds in a sentence."""
