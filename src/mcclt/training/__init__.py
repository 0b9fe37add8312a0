"""Populations of agents: collecting, learning, evaluating; from the first step to the last checkpoint."""
