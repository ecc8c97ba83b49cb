"""Assets that are one file made of many rows: a model, a tokenizer, a plan."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from pipeline.dataset import read_bytes
from pipeline.driver import Receipt
from pipeline.layout import sha256_hex
from pipeline.manifest import Manifest
from pipeline.mill import Mill
from pipeline.part import OutputFile, PartResult, Scratch

if TYPE_CHECKING:
    import polars as pl


def only_extra(receipts: Sequence[Receipt]) -> dict[str, Any]:
    """The summary of a stage with one part: what that part said."""
    return dict(receipts[0].extra)


def artifact(name: str, data: bytes, decisions: pl.DataFrame, **extra: Any) -> PartResult:
    """The result of a stage that makes one file of many rows, all of them used.

    The file is named by its content, so that an older manifest keeps what it names; `mirror` gives
    the current one its plain name as well.
    """
    scratch = Scratch()
    path = scratch.folder / name
    path.write_bytes(data)
    stored = f"{path.stem}-{sha256_hex(data)[:24]}{path.suffix}"
    files = {"parts": [OutputFile(path, stored, decisions.height)]}
    return PartResult({"decisions": decisions}, files=files, extra=extra, keep=scratch)


def beside(result: PartResult, name: str, data: bytes) -> PartResult:
    """The same result with a second file, another form of the first: no row is counted for it."""
    assert isinstance(result.keep, Scratch)
    path = result.keep.folder / name
    path.write_bytes(data)
    stored = f"{path.stem}-{sha256_hex(data)[:24]}{path.suffix}"
    result.files["parts"].append(OutputFile(path, stored, 0))
    return result


def mirror(mill: Mill, manifest: Manifest, name: str, *, part: int = 0) -> Manifest:
    """Copy a file of an asset to its plain name, for people; readers never use it."""
    out = mill.folder(manifest.content.stage)
    data = read_bytes(out, manifest.content.parts[part])
    if not (out.exists(name) and out.read(name) == data):
        out.write(name, data)
    return manifest


def kept_decisions(frame: pl.DataFrame, stage: str) -> pl.DataFrame:
    """Decisions of a stage that uses every row of `doc_id, url`."""
    import polars as pl

    nothing = pl.lit(None, pl.String)
    return frame.select(
        "doc_id", "url", stage=pl.lit(stage), kept=True, reason=nothing, detail=nothing
    )
