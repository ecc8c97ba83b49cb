"""One part of a stage: what a stage function returns.

A stage function takes the documents of one part and returns a `PartResult`: tables by kind
(`parts` = what is kept, `decisions`, `signals`, ...), files by kind where the output is no table
(token shards), and damage found on the way. It neither reads nor writes storage, knows nothing of
other parts, and gives the same result for the same input on any machine.
"""

from __future__ import annotations

import shutil
import tempfile
import weakref
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import polars as pl


@dataclass(frozen=True)
class Damage:
    """A stretch of an input file that could not be read."""

    file: str
    offset: int
    what: str

    def as_json(self) -> dict[str, Any]:
        """As it stands in the manifest."""
        return {"file": self.file, "offset": self.offset, "what": self.what}


@dataclass(frozen=True)
class OutputFile:
    """A finished local file that is an output as it stands (a token shard), under its own name."""

    path: Path
    name: str
    rows: int


@dataclass
class PartResult:
    """What one part became."""

    tables: dict[str, pl.DataFrame]
    """Kind -> rows: `parts` and `decisions` always, `signals`, ... where they exist."""
    files: dict[str, list[OutputFile]] = field(default_factory=dict)
    """Kind -> files, for outputs that are no tables; names come from their content."""
    damaged: list[Damage] = field(default_factory=list)
    extra: dict[str, Any] = field(default_factory=dict)
    """JSON that the stage's summary wants (hashed: nothing volatile)."""
    keep: object = None
    """Whatever `files` live in (a temporary folder), held until they are published."""
    reproducible: bool = True
    """False where a hang was cut off, so that the part is not reused."""


class Scratch:
    """A temporary folder that lives as long as this object, or the process."""

    def __init__(self) -> None:
        self.folder = Path(tempfile.mkdtemp(prefix="gristmill-"))
        # TemporaryDirectory warns where it is left to the garbage collector, as is meant here
        weakref.finalize(self, shutil.rmtree, self.folder, ignore_errors=True)
