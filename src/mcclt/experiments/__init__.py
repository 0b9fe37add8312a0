"""Experiments: plans of many agents, a store of their results, and statistics, tables, figures and a report of it.

setups.py    what is trained: a variant of the paper with its settings, on a task
plan.py      which setups and seeds make up a table, a figure or an ablation, and what they cost
memory.py    how many agents fit on a GPU
units.py     agents that train together, and how a plan is split into them
training.py  trains a unit and measures its agents
workers.py   where units are trained: this process, several, a Ray cluster
runner.py    runs a plan: claims cells, has units trained, writes results
store.py     the directory of results: cells.py, one file per agent; pack.py, one per task
results.py   what a store holds, for everything below, none of which imports JAX
analysis/    statistics over seeds, the paper's claims, calibration
paper.py, filling.py, tables/, figures/
bench.py     where the time goes (`mcclt bench`)
"""
