"""What configuration alone shows to be impossible, refused before a run writes anything."""

from pathlib import Path

from pipeline.config import Config
from pipeline.config.score import FITTED
from pipeline.dataset import current_manifest
from pipeline.errors import ConfigError, UsageError
from pipeline.layout import check_name
from pipeline.stages.files import expand
from resources.storage import open_store


def preflight(config: Config, kind: str, partition: str) -> None:
    """Look for what a whole snapshot, source or run is made from.

    Raises UsageError or ConfigError naming the place or the key. Remote places are left to the
    stage that reads them.
    """
    check_name(kind, partition)
    if kind != "run":
        _languages(config)
    if kind == "snapshot":
        _snapshot(config, partition)
        _classifier(config)
        _selection(config)
    elif kind == "source":
        from pipeline.stages.sources import source_file

        source_file(config.sources.location, partition)
    else:
        _run_file(str(config.storage.root), partition)


def _snapshot(config: Config, name: str) -> None:
    from pipeline.snapshots import snapshot_location

    place = snapshot_location(name, config.snapshots)
    if "://" not in place and not Path(place).exists():
        message = f"snapshot {name}: {place} is not there"
        raise UsageError(message, hint="check snapshots.location and the snapshot's name")


def _languages(config: Config) -> None:
    """What tells the languages is installed, and its labels are there if any are named."""
    from pipeline.language import libraries

    libraries(config.filter.language)
    if config.references.language_labels:
        expand("references.language_labels", [config.references.language_labels])


def _classifier(config: Config) -> None:
    """The quality classifier is there, or it can be made."""
    references = config.references
    for key in ("quality_model", "quality_labels"):
        named = getattr(references, key)
        if named:
            expand(f"references.{key}", [named])
            return
    if config.labeller.base_url and config.labeller.input:
        from resources.labeller import api_key

        expand("labeller.input", config.labeller.input)
        api_key(config.labeller)
        return
    root = open_store(str(config.storage.root), options=config.storage)
    if current_manifest(root.child("quality_classifier")) is None:
        message = "references.quality_labels is not set, and there is no quality_classifier yet"
        raise ConfigError(message, hint="set it to a JSONL file with `text, label`")


def _selection(config: Config) -> None:
    """The thresholds by language can be read, where they are in a file."""
    named = config.score.selection
    if named and named != FITTED:
        from pipeline.quality.selection import read_selection

        read_selection(Path(named))


def _run_file(root: str, name: str) -> None:
    path = Path(root) / "runs" / f"{name}.yaml"
    if "://" not in root and not path.is_file():
        message = f"run {name}: {path} is not there"
        raise UsageError(message, hint="write runs/<name>.yaml in the storage root")
