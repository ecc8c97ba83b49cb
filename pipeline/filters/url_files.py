"""Which files the lists of `filter.urls` are in: plain ones, and folders as UT1 publishes them."""

from __future__ import annotations

from pathlib import Path

from pipeline.config.urls import UrlConfig
from pipeline.errors import ConfigError

KEY = "filter.urls"
DOMAINS, URLS = ("domains", "domains.gz"), ("urls", "urls.gz")
Keyed = tuple[str, Path]
"""A file and the key that it is named under."""


def list_files(config: UrlConfig) -> dict[str, list[Keyed]]:
    """The files of each kind of list: the keys of `filter.urls`, and `below` for UT1's URLs.

    ConfigError for a UT1 folder without lists, or without a category that is asked for.
    """
    kinds = ("domains", "urls", "banned_words", "banned_substrings", "soft_words")
    found: dict[str, list[Keyed]] = {
        kind: [(kind, path)] if (path := getattr(config, kind)) else [] for kind in kinds
    }
    folders = _categories(config.ut1, config.ut1_categories) if config.ut1 else []
    found["domains"] += [("ut1", path) for folder in folders for path in _in(folder, DOMAINS)]
    found["below"] = [("ut1", path) for folder in folders for path in _in(folder, URLS)]
    return found


def check_lists(config: UrlConfig) -> None:
    """ConfigError for a list that is not there, before any work starts."""
    for files in list_files(config).values():
        for key, path in files:
            stamp(key, path)


def _in(folder: Path, names: tuple[str, ...]) -> list[Path]:
    return [path for name in names if (path := folder / name).is_file()]


def _categories(root: Path, wanted: list[str]) -> list[Path]:
    """The folders of a UT1 tree that are read; a folder with lists in it is a category itself."""
    folders = [root, *sorted(path for path in root.glob("*") if path.is_dir())]
    known = [folder for folder in folders if _in(folder, (*DOMAINS, *URLS))]
    if not known:
        message = f"{KEY}.ut1: {root} has no lists named domains or urls"
        raise ConfigError(message, hint="name a folder that has <category>/domains in it")
    names = [folder.name for folder in known]
    if absent := [name for name in wanted if name not in names]:
        message = f"{KEY}.ut1_categories: {absent[0]!r} is not below {root}"
        raise ConfigError(message, hint=f"there are {', '.join(names)}")
    return [folder for folder in known if not wanted or folder.name in wanted]


def stamp(key: str, path: Path) -> tuple[int, int]:
    """Time and size of a file, by which it is known to be the one that was read."""
    try:
        status = path.stat()
    except OSError as error:
        raise unreadable(key, path, error) from error
    return status.st_mtime_ns, status.st_size


def unreadable(key: str, path: Path, error: Exception) -> ConfigError:
    """What is said of a list that cannot be read."""
    message = f"{KEY}.{key}: cannot read {path}: {error}"
    return ConfigError(message, hint="name a UTF-8 text file, plain or .gz, with one entry a line")
