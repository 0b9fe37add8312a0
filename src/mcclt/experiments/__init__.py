"""Experiments: plans of many agents, a store of their results, and statistics, tables, figures and a report of it.

setups.py    what is trained: a variant of the paper with its settings, on a task
plan.py      which setups and seeds make up a table, a figure or an ablation, and what they cost
training.py  trains a few agents and measures them (the only module here that imports JAX)
runner.py    runs a plan: in this process, in several, or on a Ray cluster
store.py     the directory of results, one file per agent
results.py   what a store holds, for everything below, none of which imports JAX
stats.py, claims.py, tables.py, figures.py, report.py
"""
