"""Configuration of deduplication: what counts as the same page, and how far to look for it."""

from __future__ import annotations

from typing import Literal

from pydantic import Field

from pipeline.config.base import Section


class DedupConfig(Section):
    """Exact duplicates by a key of the text, near-duplicates by MinHash bands and measured text.

    With `bands` b and `rows` r a pair of Jaccard similarity s becomes a candidate with probability
    1 - (1 - s^r)^b: 0.77 at 0.75, 0.92 at 0.8, 0.99 at 0.85 for 14 x 8. Candidates are then
    measured, so that nothing below `threshold` is ever removed.
    """

    threshold: float = Field(
        0.8, gt=0, le=1,
        description="Jaccard similarity of word n-grams from which on the later page is removed",
    )  # fmt: skip
    bands: int = Field(14, ge=1, le=256, description="bands of a signature; FineWeb: 14")
    rows: int = Field(8, ge=1, le=64, description="hash values in a band; FineWeb: 8")
    ngram: int = Field(5, ge=1, le=50, description="words in a shingle; FineWeb: 5")
    scope: Literal["snapshot", "all", "language"] = Field(
        "all",
        description=(
            "where a duplicate is looked for: within the snapshot (FineWeb), across snapshots, "
            "or across snapshots within a language (FineWeb-2)"
        ),
    )
    bucket_cap: int = Field(
        64, ge=1, le=100_000,
        description=(
            "kept pages of one band bucket that a page is compared with, earliest first; pages "
            "that met a fuller bucket are counted as `cap_hits`"
        ),
    )  # fmt: skip
    exact_url: bool = Field(
        False,
        description=(
            "also remove a page whose URL was kept before, whatever its text; off, since a page "
            "that changed between two captures is new text"
        ),
    )
    memory_gb: float = Field(
        2.0, ge=0.05, le=4096,
        description="memory for shingle sets of candidates held at one time; signatures not in it",
    )  # fmt: skip
    seed: int = Field(
        1, ge=0, le=2**32 - 1, description="of datasketch's permutations; its default"
    )
    skip_missing: list[str] = Field(
        default_factory=list,
        description="registered earlier snapshots that are left out where they are absent or "
        "failed a gate; recorded in the manifest",
    )

    @property
    def permutations(self) -> int:
        """Length of a signature."""
        return self.bands * self.rows
