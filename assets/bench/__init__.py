"""Measuring a stage against the library it stands beside: alternated in one run, outputs compared.

    contests.py   which stage meets which peer, and what each needs
    material.py   the input: given files, or the demo's sample; and what is made of it beforehand
    worker.py     one side once, in a fresh process with one thread: `python -m assets.bench.worker`
    rounds.py     alternates the two sides, ratios, agreement
    pages.py language.py filtering.py scoring.py scrubbing.py signing.py duplicates.py tokens.py
    loading.py training_step.py chain.py     the sides of each contest, and how outputs are compared

Speeds are per second of CPU time of one thread, so that a busy machine does not decide; the wall
clock is reported beside it. Imports and compilation happen before the clock starts; what a stage
learns from its input (tables of words) starts empty.
"""
