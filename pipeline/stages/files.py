"""Files that configuration names, by their content.

Where a section names files (word lists, benchmark sets), the part key must hash what they hold, not
where they are.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from pipeline.dataset import file_checksum
from pipeline.errors import ConfigError


def by_content(section: Mapping[str, Any]) -> dict[str, Any]:
    """A section with every existing path, alone or in a list, replaced by base names and checksums.

    Only strings with a path separator or a dot-ending are taken for paths; a missing one is left to
    the stage, which says so with the key.
    """
    return {key: _value(value) for key, value in section.items()}


def _value(value: Any) -> Any:
    if isinstance(value, Mapping):
        return by_content(value)
    if isinstance(value, list):
        return [_value(item) for item in value]
    if isinstance(value, str) and ("/" in value or "." in value) and Path(value).exists():
        return [[path.name, file_checksum(path)] for path in files_at(value)]
    return value


def files_at(location: str) -> list[Path]:
    """A file, or the files of a folder in order of name."""
    path = Path(location)
    if path.is_dir():
        return sorted(p for p in path.rglob("*") if p.is_file() and not p.name.startswith("."))
    return [path]


def expand(key: str, locations: Iterable[str]) -> list[Path]:
    """The files behind a configuration key. Raises ConfigError naming key and path."""
    found: list[Path] = []
    for location in locations:
        if not Path(location).exists():
            message = f"{key}: {location} is not there"
            raise ConfigError(message, hint="give an existing file or folder")
        found.extend(files_at(location))
    return found
