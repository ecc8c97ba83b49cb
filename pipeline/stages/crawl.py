"""Crawl: the listing of a snapshot's WARC files, and the main text of their pages."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pipeline.commit import Clock
from pipeline.config import section_json
from pipeline.config.extract import SHIPPED_MODEL, ExtractConfig
from pipeline.dataset import file_checksum
from pipeline.driver import Receipt, StageSpec, plan_tasks
from pipeline.gates import yield_band
from pipeline.inputs import AtOnce, Input, Loaded
from pipeline.layout import check_name, url_hash
from pipeline.manifest import InputRef, Manifest
from pipeline.mill import Mill, commit_stage, register_snapshot, run_parts, run_stage
from pipeline.part import PartResult
from pipeline.stages.artifacts import kept_decisions
from pipeline.stages.files import by_content, expand
from pipeline.store import Store

if TYPE_CHECKING:
    import polars as pl

PLACE_ONLY = ("location", "base", "user_agent", "attempts")
"""Keys of the section that say where files are, not which."""
HTML_ENDINGS = (".html", ".htm", ".xhtml")


def list_files(mill: Mill, snapshot: str) -> Manifest:
    """`snapshots`: the WARC files of a snapshot with size and checksum, cut into part groups."""
    from pipeline import snapshots

    check_name("snapshot", snapshot)
    clock = Clock()
    out = mill.folder("snapshots", snapshot)
    before = mill.find("snapshots", snapshot)
    listing = snapshots.list_snapshot(mill, snapshot, _listed(out, before))
    section = section_json(mill.config.snapshots)
    section = {k: v for k, v in section.items() if k not in PLACE_ONLY}
    spec = StageSpec("snapshots", snapshots.CODE_VERSION, snapshots.LIBRARIES, snapshot, section)
    refs = [
        InputRef(file=name, checksum=digest)
        for name, digest in listing.files.select("warc_file", "checksum").iter_rows()
    ]
    source = ListingSource(listing.files, tuple(str(ref.checksum) for ref in refs))
    receipts = run_parts(mill, spec, plan_tasks(spec, [source], _listing, out), clock)
    register_snapshot(mill.root, snapshot)  # behind where planning ends: its place is for good
    return commit_stage(
        mill,
        spec,
        out,
        receipts,
        refs=refs,
        locations=sorted(listing.locations.values()),
        rules=[],
        summary={"bytes": int(listing.files["size_bytes"].sum())},
        run={"locations": listing.locations},
        clock=clock,
    )


def _listed(out: Store, before: Manifest | None) -> pl.DataFrame | None:
    """The files that were listed before: their groups stay."""
    from pipeline.dataset import read_part

    return read_part(out, before.content.parts[0]) if before else None


@dataclass(frozen=True)
class ListingSource(AtOnce):
    """A listing, in memory."""

    files: pl.DataFrame
    checksums: tuple[str, ...]
    label: str = "listing"
    origin: str | None = None
    group: int | None = None
    size_bytes: int = 0

    def load(self) -> Loaded:
        return Loaded(self.files, self.files.height)


def _listing(files: pl.DataFrame) -> PartResult:
    import polars as pl

    names = files.select(doc_id="warc_file", url=pl.lit(None, pl.String))
    return PartResult({"parts": files, "decisions": kept_decisions(names, "snapshots")})


@dataclass(frozen=True)
class WarcSource(AtOnce):
    """A WARC file somewhere; loading it makes it a local file."""

    location: str
    name: str
    checksum: str
    size_bytes: int
    fetch: Callable[[str], AbstractContextManager[Path]]
    group: int | None = None

    @property
    def label(self) -> str:
        return self.name

    @property
    def checksums(self) -> tuple[str, ...]:
        # the base name is part of the documents' ids
        return (self.name, self.checksum)

    @property
    def origin(self) -> str | None:
        return self.name

    def load(self) -> Loaded:
        return Loaded(self)


def extract_text(mill: Mill, snapshot: str) -> Manifest:
    """`extracted_text`: main text of every page of the listed files, a fate for every record."""
    listed = mill.open("snapshots", snapshot)
    files = listed.load()
    locations: dict[str, str] = listed.manifest.run["locations"]
    sources = [
        WarcSource(
            locations[row["warc_file"]],
            row["warc_file"],
            row["checksum"],
            row["size_bytes"],
            mill.fetch,
            row["group"],
        )
        for row in files.iter_rows(named=True)
    ]
    ref = InputRef(asset="snapshots", partition=snapshot, hash=listed.manifest.hash)
    given = Input(tuple(sources), (ref,), listed, (listed.store.url,))
    return extract_input(mill, given, mill.folder("extracted_text", snapshot), snapshot)


def extract_files(mill: Mill, paths: Sequence[Path], out: Store, snapshot: str) -> Manifest:
    """Extract WARC and HTML files given by a person; their order is irrelevant."""
    sources = [
        WarcSource(str(path), path.name, file_checksum(path), path.stat().st_size, mill.fetch)
        for path in sorted(paths, key=lambda path: path.name)
    ]
    refs = tuple(InputRef(file=source.name, checksum=source.checksum) for source in sources)
    given = Input(tuple(sources), refs, None, tuple(str(path) for path in paths))
    return extract_input(mill, given, out, snapshot)


def extract_input(mill: Mill, given: Input, out: Store, snapshot: str) -> Manifest:
    """Extract any list of WARC sources into a dataset folder."""
    from pipeline import extract

    section = _extract_section(mill.config.extract) | {"snapshot": snapshot}
    spec = StageSpec("extracted_text", extract.CODE_VERSION, extract.LIBRARIES, snapshot, section)
    gates = mill.config.gates
    rules = [yield_band(gates.yields.extracted_text, gates.min_sample)]
    work = partial(_extract, snapshot=snapshot, config=mill.config.extract)
    return run_stage(mill, spec, given, work, out, rules=rules, summarise=_records)


def _extract_section(config: ExtractConfig) -> dict[str, Any]:
    """The section with the model of mode `best` by content, once it is known to be one."""
    if config.model:
        expand("extract.model", [config.model])
        from pipeline.extractor.select import load_model

        load_model(Path(config.model))
    model = config.model or (str(SHIPPED_MODEL) if config.mode == "best" else None)
    return section_json(config) | by_content({"model": model})


def _extract(source: WarcSource, *, snapshot: str, config: ExtractConfig) -> Iterator[PartResult]:
    from pipeline.extract import extract_html, extract_warc

    names = []  # some 150 bytes a record: only all of them can be put in order
    with source.fetch(source.location) as path:
        if source.name.lower().endswith(HTML_ENDINGS):
            results = iter([extract_html(path, snapshot, config)])
        else:
            results = extract_warc(path, snapshot=snapshot, warc_file=source.name, config=config)
        for result in results:
            names.append(result.tables["decisions"].select("url", "doc_id").drop_nulls("url"))
            yield result
    yield PartResult({"index": record_index(names)})


def record_index(names: Sequence[pl.DataFrame]) -> pl.DataFrame:
    """Records by hash of the URL: `url_hash, url, doc_id`, sorted, so that a look-up skips."""
    import polars as pl

    named = pl.concat(names)
    hashes = pl.Series("url_hash", [url_hash(url) for url in named["url"]], dtype=pl.Int64)
    return named.select(hashes, "url", "doc_id").sort("url_hash", "doc_id")


def _records(receipts: Sequence[Receipt]) -> dict[str, Any]:
    """Records by kind, over all files."""
    kinds: dict[str, int] = {}
    for receipt in receipts:
        for kind, n in receipt.extra["records"].items():
            kinds[kind] = kinds.get(kind, 0) + n
    return {"records": dict(sorted(kinds.items()))}
