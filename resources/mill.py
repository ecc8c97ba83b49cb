"""From a configuration to a `Mill`: its store, its engine, its way to fetch files.

Imports neither Dagster nor boto3: the command line starts here, and so does every worker process.
"""

from collections.abc import Mapping
from typing import Any

from pipeline.config import FILE_NAME, Config, parse_yaml
from pipeline.config.storage import StorageConfig
from pipeline.engine import Engine
from pipeline.errors import ConfigError, UsageError
from pipeline.mill import Mill, Progress, no_progress
from resources.engine import open_engine
from resources.locations import Fetch, Opener
from resources.storage import open_store

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


def stored_settings(root: str, options: StorageConfig | None = None) -> dict[str, Any]:
    """What `gristmill.yaml` of a storage root holds, a bucket's too; nothing where there is none.

    Raises ConfigError for a file that is no YAML mapping, StorageError where the store refuses.
    """
    store = open_store(root, options=options)
    try:
        text = store.read(FILE_NAME).decode()
    except FileNotFoundError:
        return {}
    except UnicodeDecodeError as error:
        message = f"{store.url}/{FILE_NAME} is not UTF-8 text"
        raise ConfigError(message, hint="save it as UTF-8") from error
    return parse_yaml(text, f"{store.url}/{FILE_NAME}")
