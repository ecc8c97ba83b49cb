"""Measuring a stage against the library it stands beside: alternated in one run, outputs compared.

    contests.py   which stage meets which peer, in which forms, and what each needs
    material.py   the input: given files, or the demo's sample; and what is made of it beforehand
    worker.py     one side once, in a fresh process with one thread: `python -m assets.bench.worker`
    rounds.py     alternates the sides; summary.py: ratios, versions; tables.py: what is printed
    pages.py language.py filtering.py scoring.py scrubbing.py signing.py duplicates.py tokens.py
    loading.py training_step.py     the sides of each contest, and how outputs are compared
    chain.py      curate, the whole way from WARC files to filtered text; scaling.py: two workers
    growth.py start.py     without a peer: memory over a longer input, time to a first page

Speeds are per second of CPU time of one thread, children included, so that a busy machine does not
decide (scaling: of wall time). Imports and compilation happen before the clock starts; what a stage
learns from its input (tables of words) starts empty.
"""
