"""Experiments: plans of many agents, a store of their results, and statistics, tables, figures and a report of it.

setups.py    what is trained: a variant of the paper with its settings, on a task
plan.py      which setups and seeds make up a table, a figure or an ablation, and what they cost
units.py     agents that train together, and how a plan is split into them
training.py  trains a unit and measures its agents (the only module here that imports JAX)
workers.py   where units are trained: this process, several, a Ray cluster
runner.py    runs a plan: claims cells, has units trained, writes results
store.py     the directory of results, one file per agent
results.py   what a store holds, for everything below, none of which imports JAX
analysis/    statistics, and what they say of the paper's claims
filling.py   the commands that add what a store lacks, or make it again
tables/, figures/  what analysis found, shown
"""
