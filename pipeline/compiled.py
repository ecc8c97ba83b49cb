"""The decorators of compiled kernels, and where their machine code is kept.

numba keys its cache by the one source file of a function, but a kernel takes in functions and
constants of other modules: after an update of those it would go on running the old code. So the
folder is named by the sources of the kernel's module and of all our modules that it imports, below
`NUMBA_CACHE_DIR`, else `.kernels/` beside the packages. Where that cannot be written (an image with
a read-only file system) numba would find no place at all; then a copy of it in the folder for
temporary files serves, so that what was shipped compiled is not compiled again.
"""

from __future__ import annotations

import hashlib
import os
import re
import shutil
import tempfile
from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Any

from numba import njit
from numba.core import config

ROOT = Path(__file__).resolve().parents[1]
IMPORT = re.compile(
    r"^[ \t]*from[ ]+(pipeline[\w.]*)[ ]+import[ ]+(\([^)]*\)|[^\n]*)", re.MULTILINE
)
PLACE = config.CACHE_DIR or str(ROOT / ".kernels")


def kernel(function: Callable[..., Any]) -> Any:
    """Compile at the first call, without the interpreter's lock, and keep the result."""
    return _compiled(function)


def bare_kernel(function: Callable[..., Any]) -> Any:
    """The same for a kernel that allocates nothing: only reads and writes what it is handed.

    numba counts references of every array of a named tuple that goes into a function: 1.5 of 2.3 ms
    a page where one goes through many.
    """
    return _compiled(function, _nrt=False)


def _compiled(function: Callable[..., Any], **options: Any) -> Any:
    before = config.CACHE_DIR
    config.CACHE_DIR = str(writable(PLACE) / stamp(Path(function.__code__.co_filename)))
    try:
        return njit(cache=True, nogil=True, **options)(function)
    finally:
        config.CACHE_DIR = before


@cache
def stamp(source: Path) -> str:
    """A name for the state of a module and of all our modules that it imports, however far."""
    known: dict[Path, bytes] = {}
    waiting = [source]
    while waiting:
        path = waiting.pop()
        if path not in known:
            known[path] = path.read_bytes()
            waiting += imported(known[path].decode())
    digest = hashlib.sha256()
    for path in sorted(known):
        digest.update(hashlib.sha256(known[path]).digest())
    return f"{source.stem}-{digest.hexdigest()[:16]}"


def imported(text: str) -> list[Path]:
    """The files of our modules that a source imports from."""
    found = []
    for module, names in IMPORT.findall(text):
        place = ROOT.joinpath(*module.split("."))
        parts = (place.with_suffix(".py"), place / "__init__.py")
        inner = (place / f"{name}.py" for name in re.findall(r"\w+", names))
        found += [path for path in (*parts, *inner) if path.is_file()]
    return found


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
