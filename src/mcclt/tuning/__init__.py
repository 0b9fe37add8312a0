"""Tuning: a search for settings, hundreds of agents at once, and a confirmation of what it found."""
