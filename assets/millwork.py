"""The mill as a Dagster resource.

`MillResource` is what assets, checks and sensors ask for. It finds the storage root and the
configuration in GRISTMILL_ROOT and GRISTMILL_CONFIG (set by `gristmill up`), lays the launchpad's
overrides on top, and keeps one engine for all steps of a run: starting workers costs 0.4 s each.
"""

import json
import os
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import dagster as dg
from pydantic import PrivateAttr

from pipeline.config import FILE_NAME, Config, load_config, merge, read_yaml
from pipeline.engine import Engine
from pipeline.errors import ConfigError, UsageError
from pipeline.mill import Mill, Progress, no_progress
from pipeline.store import Store
from resources.engine import open_engine
from resources.mill import ROOT_VARIABLE, open_mill, stored_settings
from resources.storage import open_store

CONFIG_VARIABLE = "GRISTMILL_CONFIG"
SETTINGS_VARIABLE = "GRISTMILL_SETTINGS"


class Launch(dg.Config):
    """What the launchpad may change for one run."""

    overrides: dict[str, Any] = {}  # noqa: RUF012 (Dagster's Config copies it)
    """Nested sections laid on the configuration, for example `{dedup: {threshold: 0.9}}`; they
    stand in the manifest and the check `configuration` reports them."""


class MillResource(dg.ConfigurableResource):
    """The mill of the store that this process was started for."""

    root: str | None = None
    """Storage root; else GRISTMILL_ROOT, else what the configuration says."""
    config: str | None = None
    """Configuration file; else GRISTMILL_CONFIG, else `gristmill.yaml` in the storage root."""
    settings: str | None = None
    """A whole configuration as JSON, in place of file and root; else GRISTMILL_SETTINGS."""

    _engines: dict[str, Engine] = PrivateAttr(default_factory=dict)

    def load(self, overrides: Mapping[str, Any] | None = None) -> Config:
        """The configuration with overrides. Raises ConfigError naming the key."""
        settings = self.settings or (None if self.root else os.environ.get(SETTINGS_VARIABLE))
        given = json.loads(settings) if settings else self._from_files()
        if overrides and "storage" in overrides:
            message = "overrides.storage: a run cannot move the store it belongs to"
            raise ConfigError(message, hint=f"set it in {FILE_NAME}, or start `gristmill up` on it")
        values = merge(given, overrides or {})
        preset = values.get("preset")
        return load_config(preset=str(preset) if preset else None, overrides=values)

    def _from_files(self) -> dict[str, Any]:
        path = self.config or os.environ.get(CONFIG_VARIABLE)
        root = self.root or os.environ.get(ROOT_VARIABLE)
        values: dict[str, Any] = {}
        if path:
            values = read_yaml(Path(path))
        elif root:
            values = stored_settings(root)
        return merge(values, {"storage": {"root": root}}) if root else values

    @contextmanager
    def open(
        self,
        overrides: Mapping[str, Any] | None = None,
        *,
        progress: Progress = no_progress,
        run_ids: Mapping[str, str] | None = None,
    ) -> Iterator[Mill]:
        """A mill whose engine lives as long as the run."""
        config = self.load(overrides)
        key = config.engine.model_dump_json()
        if key not in self._engines:
            self._engines[key] = open_engine(config.engine)
        yield open_mill(config, progress=progress, run_ids=run_ids, engine=self._engines[key])

    def store(self) -> Store:
        """The storage root, without an engine. Raises UsageError where none is named."""
        config = self.load()
        if not config.storage.root:
            message = "no store was named"
            raise UsageError(message, hint=f"start with `gristmill up`, or set {ROOT_VARIABLE}")
        return open_store(config.storage.root, options=config.storage)

    def teardown_after_execution(self, context: dg.InitResourceContext) -> None:
        """End the workers of this run."""
        while self._engines:
            self._engines.popitem()[1].close()
