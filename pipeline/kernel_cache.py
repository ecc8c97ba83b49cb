"""Compiled kernels of a read-only installation: shipped ones are read where they cannot be written.

numba looks for a folder it can write to and raises where there is none, so an image whose file
system is read-only would not start, and with a writable home it would compile everything again.
Named in `NUMBA_CACHE_LOCATOR_CLASSES` (the image does), this locator works with `NUMBA_CACHE_DIR`
while that is writable, else with a copy of it in the folder for temporary files.
"""

from __future__ import annotations

import hashlib
import os
import shutil
import tempfile
from functools import cache
from pathlib import Path
from typing import Any

from numba.core import config
from numba.core.caching import UserProvidedCacheLocator


class SeededCacheLocator(UserProvidedCacheLocator):
    """Where the kernels of one source file are: the given folder, or the copy of it."""

    def __init__(self, py_func: Any, py_file: str) -> None:
        super().__init__(py_func, py_file)
        self._cache_path = str(
            writable(config.CACHE_DIR) / self.get_suitable_cache_subpath(py_file)
        )


@cache
def writable(folder: str) -> Path:
    """The folder if a file can be made in it, else a copy that this user shares.

    Raises OSError where there is no room for the copy.
    """
    given = Path(folder)
    try:
        given.mkdir(parents=True, exist_ok=True)
        tempfile.TemporaryFile(dir=given).close()
    except OSError:
        return _copy(given)
    return given


def _copy(given: Path) -> Path:
    """Copied beside its place and renamed, so that no process meets half of it."""
    digest = hashlib.sha256(str(given).encode()).hexdigest()[:12]
    copy = Path(tempfile.gettempdir()) / f"gristmill-kernels-{os.getuid()}-{digest}"
    if not copy.is_dir():
        parts = Path(tempfile.mkdtemp(prefix=f"{copy.name}-", dir=copy.parent))
        if given.is_dir():
            shutil.copytree(given, parts, dirs_exist_ok=True)
        try:
            parts.rename(copy)
        except OSError:  # another process was faster
            shutil.rmtree(parts)
    if copy.stat().st_uid != os.getuid():
        message = f"{copy} belongs to another user"
        raise PermissionError(message)
    return copy
