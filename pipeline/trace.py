"""Ways back: from a URL, a document or a token to the record it came from, and its fate on the way.

Look-ups read manifests, one row group of the record index a WARC file, and the decisions of the one
part a document was in at each stage (parts keep the base name of the WARC file they descend from).
They follow the manifests that each stage really read (`chain.py`); where a stage was made again
since then and the ones behind it were not, its new verdict stands in `since`.
Nothing here imports more than pyarrow, but for a page that the filter dropped: the rules are asked
again by its signals, and all that it fails are told.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from pipeline.chain import Link, chain, find_manifest
from pipeline.dataset import find_rows, manifest_key, read_manifest
from pipeline.errors import UsageError
from pipeline.layout import url_hash
from pipeline.manifest import Entry, Manifest
from pipeline.mill import registered_snapshots
from pipeline.store import Store

ADDRESS = ("warc_file", "warc_offset", "warc_length", "member_offset")
LICENCE = ("title", "licence", "licence_source", "reservations", "fetched_at", "payload_digest")
ABOUT_A_CAPTURE = ("record.request", "record.metadata")
DOCS_ENDING = ".docs.parquet"
SHARDS = "token_shards"
SHARD = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]*")

Links = dict[str, Link]


@dataclass(frozen=True)
class Origin:
    """Where a document came from: its address, and which file of the stages it is in."""

    doc_id: str
    corpus: str
    row: dict[str, Any]
    """The record's decision at extraction, or the document's row for a source."""
    links: Links
    group: int | None

    @property
    def web(self) -> bool:
        """Whether it is a crawl record, and no record of a source."""
        return "source_texts" not in self.links

    @property
    def file(self) -> str | None:
        """Base name of the file the document descends from."""
        name = self.row.get("warc_file")
        return str(name) if name else None


def trace_url(root: Store, url: str) -> list[dict[str, Any]]:
    """Every capture of `url`, in order of snapshots and files, with its fate at every stage.

    A crawler's own request and metadata records about the page are no captures.
    """
    key = url_hash(url)
    captures: dict[str, Origin] = {}
    for snapshot in registered_snapshots(root):
        links = chain(root, snapshot, web=True)
        first = links.get("extracted_text")
        if first is None:
            continue
        for entry in first.both("index"):
            for row in find_rows(first.store, entry, "url_hash", [key]).to_pylist():
                if row["url"] == url and row["doc_id"] not in captures:
                    origin = _origin(links, snapshot, row["doc_id"], entry.source)
                    captures[row["doc_id"]] = origin or find_origin(root, row["doc_id"], snapshot)
    stories = [_story(one) for one in captures.values() if one.row["reason"] not in ABOUT_A_CAPTURE]
    if not stories:
        message = f"{url} is in no snapshot of {root.url}"
        raise UsageError(message, hint="give the URL exactly as it was crawled")
    return stories


def trace_doc(root: Store, doc_id: str) -> dict[str, Any]:
    """One document's address and its fate at every stage."""
    return _story(find_origin(root, doc_id))


def find_origin(
    root: Store, doc_id: str, corpus: str | None = None, last: Manifest | None = None
) -> Origin:
    """The record behind a document. Raises UsageError for an id that no corpus has.

    `last`: the manifest of the corpus's token_shards to go back from, if not the current one.
    """
    for web, names in ((True, registered_snapshots(root)), (False, _sources(root))):
        for name in names if corpus is None else [corpus]:
            origin = _origin(chain(root, name, web=web, last=last), name, doc_id)
            if origin:
                return origin
    message = f"document {doc_id} is in no corpus of {root.url}"
    raise UsageError(message, hint="ids are 32 hex digits, as in the column doc_id")


def _origin(links: Links, corpus: str, doc_id: str, source: str | None = None) -> Origin | None:
    first = links.get("extracted_text") or links.get("source_texts")
    if first is None:
        return None
    for entry in first.both("decisions", source):
        rows = find_rows(first.store, entry, "doc_id", [doc_id]).to_pylist()
        if rows:
            return Origin(doc_id, corpus, rows[0], links, entry.group)
    return None


def trace_token(root: Store, place: str) -> dict[str, Any]:
    """The document around token `SHARD:OFFSET`, with its address, licence and fate.

    Shards of earlier manifests are found as well: a training run may have read them.
    """
    shard, colon, offset = place.rpartition(":")
    if not colon or not (offset.isascii() and offset.isdigit()):
        message = f"--token {place!r} is no SHARD:OFFSET"
        raise UsageError(message, hint="a shard's name, a colon, a token's position in it from 0")
    position = int(offset)
    corpus, store, manifest, entry = find_shard(root, shard.removesuffix(".bin"))
    with store.local(entry.path) as path:
        import pyarrow.parquet as pq

        documents = pq.read_table(path)
    first = documents.column("first_token").to_numpy()
    counts = documents.column("n_tokens").to_numpy()
    at = int(first.searchsorted(position, side="right")) - 1
    if at < 0 or position >= first[at] + counts[at]:
        n_tokens = int(first[-1] + counts[-1]) if len(first) else 0
        message = f"shard {shard} has no token {position:,}: it holds {n_tokens:,}"
        raise UsageError(message, hint="count from 0")
    row = documents.slice(at, 1).to_pylist()[0]
    story = _story(find_origin(root, row["doc_id"], corpus, manifest))
    return {"shard": shard, "offset": position, "token_in_document": position - row["first_token"],
            "tokens": row, **story}  # fmt: skip


def find_shard(root: Store, shard: str) -> tuple[str, Store, Manifest, Entry]:
    """(corpus, its token_shards, the manifest that has the shard, its `.docs.parquet`).

    Shards of earlier manifests are found as well. UsageError where no corpus has the shard.
    """
    name = f"{shard}{DOCS_ENDING}"
    for corpus in _partitions(root, SHARDS) if SHARD.fullmatch(shard) else ():
        store = root.child(f"{SHARDS}/{corpus}")
        if not store.exists(name):
            continue
        for manifest in _manifests(store):
            for entry in manifest.content.parts:
                if entry.path == name:
                    return corpus, store, manifest, entry
    message = f"shard {shard} is in no token_shards of {root.url}"
    raise UsageError(message, hint="shards are named in token_shards/*/manifests and in the plan")


def _manifests(store: Store) -> Iterator[Manifest]:
    """The current manifest, then earlier ones that are still there."""
    current = read_manifest(store)
    yield current
    for info in store.list("manifests/"):
        if info.key != manifest_key(current.hash):
            yield read_manifest(store, info.key.rpartition("/")[2].removesuffix(".json"))


def _story(origin: Origin) -> dict[str, Any]:
    """Address, licence and fates of one document."""
    story: dict[str, Any] = {
        "doc_id": origin.doc_id,
        "corpus": origin.corpus,
        "url": origin.row.get("url"),
        **{name: origin.row.get(name) for name in ADDRESS if origin.web},
        **_document(origin),
        "fates": list(_fates(origin)),
        "shards": list(_shards(origin)),
    }
    return story


def _document(origin: Origin) -> dict[str, Any]:
    """Licence marks and other columns of the document itself, where it was kept."""
    link = origin.links["extracted_text" if origin.web else "source_texts"]
    for entry in link.both("parts", origin.file):
        rows = find_rows(link.store, entry, "doc_id", [origin.doc_id])
        if rows.num_rows:
            row = rows.drop_columns("text").to_pylist()[0]
            names = (*LICENCE, "source", "source_id") if not origin.web else LICENCE
            return {name: _plain(row[name]) for name in names if name in row}
    return {}


def _plain(value: Any) -> Any:
    """Times as ISO 8601, since a story is JSON."""
    return value.isoformat() if isinstance(value, datetime) else value


def _fates(origin: Origin) -> Iterator[dict[str, Any]]:
    """The verdict of every stage on what the one before it handed on."""
    for link in origin.links.values():
        if link.stage == "snapshots":
            continue
        row = _decision(origin, link)
        now = _decision(origin, link, now=True) if link.moved else None
        if row is None and now is None:
            return
        fate = _fate(link.stage, row or now or {})
        if row and now and _fate(link.stage, now) != fate:
            fate["since"] = _fate(link.stage, now)
        if link.stage == "filtered_text" and row and not fate["kept"]:
            fate["fails"] = _fails(origin, link)
        yield fate
        if not fate["kept"]:
            return


def _decision(origin: Origin, link: Link, *, now: bool = False) -> dict[str, Any] | None:
    source = origin.file if link.stage != SHARDS else None
    for entry in link.entries("decisions", source, origin.group, now=now):
        rows = find_rows(link.store, entry, "doc_id", [origin.doc_id]).to_pylist()
        if rows:
            return dict(rows[0])
    return None


def _fate(stage: str, row: dict[str, Any]) -> dict[str, Any]:
    return {
        "stage": stage,
        "kept": row["kept"],
        "reason": row["reason"],
        "value": row["value"],
        "threshold": row["threshold"],
        "detail": json.loads(row["detail"]) if row["detail"] else None,
    }


def _fails(origin: Origin, link: Link) -> list[dict[str, Any]]:
    """Every rule of the filter that a document fails, the one that decided among them."""
    for entry in link.entries("signals", origin.file, origin.group):
        found = find_rows(link.store, entry, "doc_id", [origin.doc_id])
        if found.num_rows:
            import polars as pl

            from pipeline.what_if.part import failing

            rows = failing(link.read.content, pl.DataFrame(found))
            return [{"rule": r.rule, "value": r.value, "threshold": r.threshold} for r in rows]
    return []


def _shards(origin: Origin) -> Iterator[dict[str, Any]]:
    link = origin.links.get(SHARDS)
    if link is None:
        return
    for entry in link.entries("parts", group=origin.group):
        if entry.path.endswith(DOCS_ENDING):
            for row in find_rows(link.store, entry, "doc_id", [origin.doc_id]).to_pylist():
                name = entry.path.removesuffix(DOCS_ENDING)
                yield {
                    "shard": name,
                    "first_token": row["first_token"],
                    "n_tokens": row["n_tokens"],
                }


def warc_location(root: Store, snapshot: str, warc_file: str) -> str:
    """Where a snapshot's WARC file lay when it was listed."""
    manifest = find_manifest(root.child(f"snapshots/{snapshot}"))
    locations: dict[str, str] = manifest.run.get("locations", {}) if manifest else {}
    if warc_file not in locations:
        message = f"{warc_file} is not in the listing of snapshot {snapshot}"
        raise UsageError(message, hint="materialise snapshots again, with the files in place")
    return locations[warc_file]


def _sources(root: Store) -> list[str]:
    return _partitions(root, "source_texts")


def _partitions(root: Store, asset: str) -> list[str]:
    """Partitions of an asset that are there, by their pointers."""
    folder = root.child(asset)
    found = (info.key for info in folder.list() if info.key.count("/") == 1)
    return sorted(key.partition("/")[0] for key in found if key.endswith("/current"))
