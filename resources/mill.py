"""From a configuration to a `Mill`: its store, its engine, its way to fetch files.

Imports neither Dagster nor boto3: the command line starts here, and so does every worker process.
"""

from collections.abc import Mapping
from contextlib import AbstractContextManager
from dataclasses import dataclass
from pathlib import Path

from pipeline.config import FILE_NAME, Config
from pipeline.config.storage import StorageConfig
from pipeline.engine import Engine
from pipeline.errors import UsageError
from pipeline.mill import Mill, Progress, no_progress
from pipeline.store import Store
from resources.engine import open_engine
from resources.storage import open_store

ROOT_VARIABLE = "GRISTMILL_ROOT"


@dataclass(frozen=True)
class Opener:
    """Opens stores with the options of the configuration; picklable."""

    options: StorageConfig

    def __call__(self, url: str) -> Store:
        """The store at `url`."""
        return open_store(url, options=self.options)


@dataclass(frozen=True)
class Fetch:
    """A local file with the bytes of a location: path, s3:// or https://; picklable."""

    config: Config

    def __call__(self, location: str) -> AbstractContextManager[Path]:
        """A file that is there until the context ends. Raises UsageError where there is none."""
        from resources.locations import local_copy

        return local_copy(location, self.config)


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
    opener = Opener(config.storage)
    return Mill(
        root=opener(config.storage.root),
        config=config,
        engine=engine or open_engine(config.engine),
        fetch=Fetch(config),
        open_store=opener,
        progress=progress,
        run_ids=dict(run_ids or {}),
    )
