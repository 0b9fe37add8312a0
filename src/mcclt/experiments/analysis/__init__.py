"""Statistics over seeds, and what they say of the paper's claims. Each is computed here, and shown elsewhere.

stats.py        one and two groups of seeds
aggregates.py   several tasks: interquartile means, probability of improvement, profiles
meta.py         several tasks as a sample of tasks: random effects, cluster bootstrap
contrasts.py    two variants of a store, setting by setting
claims.py       the paper's claims, each with a verdict
pooled.py       one answer to each claim over all settings
speed.py        learning curves as one number per seed
beliefs.py      what critics believe: bars, normals, spread over an episode
calibration.py  are predicted normals right?
texts.py        numbers as people read them
"""
