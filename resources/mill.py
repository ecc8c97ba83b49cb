"""From a configuration to a `Mill`: its store, its engine, its way to fetch files.

Imports neither Dagster nor boto3: the command line starts here, and so does every worker process.
"""

from collections.abc import Mapping

from pipeline.config import FILE_NAME, Config
from pipeline.engine import Engine
from pipeline.errors import UsageError
from pipeline.mill import Mill, Progress, no_progress
from resources.engine import open_engine
from resources.locations import Fetch, Opener

ROOT_VARIABLE = "GRISTMILL_ROOT"


def open_mill(
    config: Config,
    *,
    progress: Progress = no_progress,
    run_ids: Mapping[str, str] | None = None,
    engine: Engine | None = None,
) -> Mill:
    """A mill over the configured store. UsageError where no store is named."""
    if not config.storage.root:
        message = "no store was named"
        hint = f"set storage.root in {FILE_NAME}, give --root ROOT, or set {ROOT_VARIABLE}"
        raise UsageError(message, hint=hint)
    opener = Opener(config)
    return Mill(
        root=opener(config.storage.root),
        config=config,
        engine=engine or open_engine(config.engine),
        fetch=Fetch(opener),
        open_store=opener,
        progress=progress,
        run_ids=dict(run_ids or {}),
    )
