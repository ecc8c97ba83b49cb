"""The graph, assembled: the only `Definitions`. Nobody imports this but Dagster and its tests.

Nothing reached from here imports torch, mlflow, numba or another heavy library at the top: every
run process loads this module. Steps run in the process of their run: a step in its own process
costs 1.6 s, and the stages have worker processes of their own.
"""

import dagster as dg

from assets import (
    automation,
    benchmarks,
    crawl,
    curation,
    model,
    references,
    tokens,
    what_if,
)
from assets.checks import CHECKS
from assets.millwork import MillResource

defs = dg.Definitions(
    assets=dg.load_assets_from_modules(
        [crawl, curation, references, tokens, model, benchmarks, what_if]
    ),
    asset_checks=CHECKS,
    jobs=[*automation.JOBS.values(), what_if.JOB],
    schedules=[automation.weekly_listing],
    sensors=[automation.snapshot_arrival, automation.MOVES_BY_ITSELF],
    resources={"mill": MillResource()},
    executor=dg.in_process_executor,
)
