"""Ways back: from a URL, a document or a token to the record it came from, and its fate on the way.

Look-ups read manifests, one row group of the record index a WARC file, and the decisions of the one
part a document was in at each stage (parts keep the base name of the WARC file they descend from).
Nothing here imports more than pyarrow.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from pipeline.dataset import current_manifest, find_rows, read_manifest
from pipeline.errors import UsageError
from pipeline.layout import url_hash
from pipeline.manifest import Content, Entry, Manifest
from pipeline.mill import registered_snapshots
from pipeline.store import Store

AFTER_EXTRACTION = ("filtered_text", "scored_text", "deduped_corpus", "scrubbed_corpus")
ADDRESS = ("warc_file", "warc_offset", "warc_length", "member_offset")
LICENCE = ("title", "licence", "licence_source", "reservations", "fetched_at", "payload_digest")
ABOUT_A_CAPTURE = ("record.request", "record.metadata")
DOCS_ENDING = ".docs.parquet"


@dataclass(frozen=True)
class Origin:
    """Where a document came from: its address, and which file of the stages it is in."""

    doc_id: str
    corpus: str
    row: dict[str, Any]
    """The record's decision at extraction, or the document's row for a source."""
    web: bool

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
    captures: list[Origin] = []
    for snapshot in registered_snapshots(root):
        for entry, store in _entries(root, "extracted_text", snapshot, "index"):
            for row in find_rows(store, entry, "url_hash", [key]).to_pylist():
                if row["url"] == url:
                    captures.append(_web_origin(root, snapshot, entry, row["doc_id"]))
    found = [_story(root, one) for one in captures if one.row["reason"] not in ABOUT_A_CAPTURE]
    if not found:
        message = f"{url} is in no snapshot of {root.url}"
        raise UsageError(message, hint="give the URL exactly as it was crawled")
    return found


def trace_doc(root: Store, doc_id: str) -> dict[str, Any]:
    """One document's address and its fate at every stage."""
    return _story(root, find_origin(root, doc_id))


def find_origin(root: Store, doc_id: str, corpus: str | None = None) -> Origin:
    """The record behind a document. Raises UsageError for an id that no corpus has."""
    for snapshot in [corpus] if corpus else registered_snapshots(root):
        for entry, store in _entries(root, "extracted_text", snapshot, "decisions"):
            rows = find_rows(store, entry, "doc_id", [doc_id]).to_pylist()
            if rows:
                return Origin(doc_id, snapshot, rows[0], web=True)
    for source in [corpus] if corpus else _partitions(root, "source_texts"):
        for entry, store in _entries(root, "source_texts", source, "decisions"):
            rows = find_rows(store, entry, "doc_id", [doc_id]).to_pylist()
            if rows:
                return Origin(doc_id, source, rows[0], web=False)
    message = f"document {doc_id} is in no corpus of {root.url}"
    raise UsageError(message, hint="ids are 32 hex digits, as in the column doc_id")


def _web_origin(root: Store, snapshot: str, index: Entry, doc_id: str) -> Origin:
    for entry, store in _entries(root, "extracted_text", snapshot, "decisions", index.source):
        rows = find_rows(store, entry, "doc_id", [doc_id]).to_pylist()
        if rows:
            return Origin(doc_id, snapshot, rows[0], web=True)
    return find_origin(root, doc_id, snapshot)


def trace_token(root: Store, place: str) -> dict[str, Any]:
    """The document around token `SHARD:OFFSET`, with its address, licence and fate."""
    shard, colon, offset = place.rpartition(":")
    if not colon or not offset.isdigit():
        message = f"--token {place!r} is no SHARD:OFFSET"
        raise UsageError(message, hint="a shard's name, a colon, a token's position in it from 0")
    position = int(offset)
    corpus, store, entry = _find_shard(root, shard.removesuffix(".bin"))
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
    story = _story(root, find_origin(root, row["doc_id"], corpus))
    return {"shard": shard, "offset": position, "token_in_document": position - row["first_token"],
            "tokens": row, **story}  # fmt: skip


def _find_shard(root: Store, shard: str) -> tuple[str, Store, Entry]:
    name = f"{shard}{DOCS_ENDING}"
    for corpus in _partitions(root, "token_shards"):
        for entry, store in _entries(root, "token_shards", corpus, "parts"):
            if entry.path == name:
                return corpus, store, entry
    message = f"shard {shard} is in no token_shards of {root.url}"
    raise UsageError(message, hint="shards are named in token_shards/*/manifests and in the plan")


def _story(root: Store, origin: Origin) -> dict[str, Any]:
    """Address, licence and fates of one document."""
    story: dict[str, Any] = {
        "doc_id": origin.doc_id,
        "corpus": origin.corpus,
        "url": origin.row.get("url"),
        **{name: origin.row.get(name) for name in ADDRESS if origin.web},
        **_document(root, origin),
        "fates": list(_fates(root, origin)),
        "shards": list(_shards(root, origin)),
    }
    return story


def _document(root: Store, origin: Origin) -> dict[str, Any]:
    """Licence marks and other columns of the document itself, where it was kept."""
    asset = "extracted_text" if origin.web else "source_texts"
    for entry, store in _entries(root, asset, origin.corpus, "parts", origin.file):
        rows = find_rows(store, entry, "doc_id", [origin.doc_id])
        if rows.num_rows:
            row = rows.drop_columns("text").to_pylist()[0]
            names = (*LICENCE, "source", "source_id") if not origin.web else LICENCE
            return {name: _plain(row[name]) for name in names if name in row}
    return {}


def _plain(value: Any) -> Any:
    """Times as ISO 8601, since a story is JSON."""
    return value.isoformat() if isinstance(value, datetime) else value


def _fates(root: Store, origin: Origin) -> Iterator[dict[str, Any]]:
    first = "extracted_text" if origin.web else "source_texts"
    yield _fate(first, origin.row)
    if not origin.row["kept"]:
        return
    stages = AFTER_EXTRACTION if origin.web else ()
    for stage in (*stages, "token_shards"):
        source = origin.file if stage != "token_shards" else None
        row = None
        for entry, store in _entries(root, stage, origin.corpus, "decisions", source):
            rows = find_rows(store, entry, "doc_id", [origin.doc_id]).to_pylist()
            if rows:
                row = rows[0]
                break
        if row is None:
            return
        yield _fate(stage, row)
        if not row["kept"]:
            return


def _fate(stage: str, row: dict[str, Any]) -> dict[str, Any]:
    return {
        "stage": stage,
        "kept": row["kept"],
        "reason": row["reason"],
        "value": row["value"],
        "threshold": row["threshold"],
        "detail": json.loads(row["detail"]) if row["detail"] else None,
    }


def _shards(root: Store, origin: Origin) -> Iterator[dict[str, Any]]:
    for entry, store in _entries(root, "token_shards", origin.corpus, "parts"):
        if entry.path.endswith(DOCS_ENDING):
            for row in find_rows(store, entry, "doc_id", [origin.doc_id]).to_pylist():
                name = entry.path.removesuffix(DOCS_ENDING)
                yield {
                    "shard": name,
                    "first_token": row["first_token"],
                    "n_tokens": row["n_tokens"],
                }


def warc_location(root: Store, snapshot: str, warc_file: str) -> str:
    """Where a snapshot's WARC file lay when it was listed."""
    manifest = _manifest(root.child(f"snapshots/{snapshot}"))
    locations: dict[str, str] = manifest.run.get("locations", {}) if manifest else {}
    if warc_file not in locations:
        message = f"{warc_file} is not in the listing of snapshot {snapshot}"
        raise UsageError(message, hint="materialise snapshots again, with the files in place")
    return locations[warc_file]


def _partitions(root: Store, asset: str) -> list[str]:
    """Partitions of an asset that are there, by their pointers."""
    folder = root.child(asset)
    found = (info.key for info in folder.list() if info.key.count("/") == 1)
    return sorted(key.partition("/")[0] for key in found if key.endswith("/current"))


def _manifest(store: Store) -> Manifest | None:
    return read_manifest(store) if current_manifest(store) else None


def _entries(
    root: Store, asset: str, partition: str, kind: str, source: str | None = None
) -> Iterator[tuple[Entry, Store]]:
    """Files of a kind in a partition, only those that descend from `source` where it is known."""
    store = root.child(f"{asset}/{partition}")
    manifest = _manifest(store)
    if manifest is None:
        return
    content: Content = manifest.content
    for entry in content.entries(kind):
        if source is None or entry.source in (source, None):
            yield entry, store
