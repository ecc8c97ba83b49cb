"""One part of a stage: what a stage function returns.

A stage function takes the documents of one part and returns a `PartResult`: tables by kind
(`parts` = what is kept, `decisions`, `signals`, ...), files by kind where the output is no table
(token shards), and damage found on the way. It neither reads nor writes storage, knows nothing of
other parts, and gives the same result for the same input on any machine.
"""

from __future__ import annotations

from dataclasses import dataclass, field
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


@dataclass
class PartResult:
    """What one part became."""

    tables: dict[str, pl.DataFrame]
    """Kind -> rows. `parts` and `decisions` always; `signals`, `signatures`, ... where they exist."""
    damaged: list[Damage] = field(default_factory=list)
    extra: dict[str, Any] = field(default_factory=dict)
    """JSON that the stage's summary wants (hashed: nothing volatile)."""
    reproducible: bool = True
    """False where a hang was cut off, so that the part is not reused."""
