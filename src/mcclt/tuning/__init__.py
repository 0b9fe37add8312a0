"""Tuning: a search for settings, hundreds of agents at once, and a confirmation of what it found."""

from mcclt.tuning.search import Plan
from mcclt.tuning.shares import SharedTuner
from mcclt.tuning.space import Space
from mcclt.tuning.tuner import Tuner

__all__ = ["Plan", "SharedTuner", "Space", "Tuner"]
