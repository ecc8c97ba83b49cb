"""From places in token shards to the documents there: what training knows, joined with the store.

Training knows a document as (shard, number in the shard). `<shard>.docs.parquet` says which it is,
and the decisions of the stage that it came in by say from which URL. A batch has hundreds of them,
so every file is read once, and of that stage only the files of the part group the shard is made of.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import Any

from pipeline.chain import Link, chain
from pipeline.errors import UsageError
from pipeline.manifest import Entry, Manifest
from pipeline.store import Store
from pipeline.trace import find_shard

Fact = dict[str, Any]
FACTS = ("corpus", "doc_id", "url", "source", "source_id", "language", "quality", "licence",
         "n_tokens", "first_token")  # fmt: skip
"""What is told of a document, beside `shard` and `document`."""
COLUMNS = ["doc_id", "first_token", "n_tokens", "source", "language", "licence", "quality_score"]


def documents_of(root: Store, places: Sequence[tuple[str, int]]) -> list[Fact]:
    """A row for each of `places` (shard, number of the document in it), in their order.

    Rows: `shard, document` and `FACTS`; `n_tokens` of the whole document, `first_token` in the
    shard. What is not known is None: everything for a shard that lies in no token_shards of this
    store (a run may name shards by any path), the URL for a record that had none. UsageError where
    a shard has no such document.
    """
    wanted: dict[str, set[int]] = {}
    for shard, document in places:
        wanted.setdefault(shard, set()).add(document)
    found: dict[tuple[str, int], Fact] = {}
    origins: dict[tuple[str, str, int | None], tuple[Manifest, list[Fact]]] = {}
    for shard, documents in sorted(wanted.items()):
        try:
            corpus, store, manifest, entry = find_shard(root, shard)
        except UsageError:
            continue
        rows = _rows(store, entry, shard, sorted(documents))
        found |= {(shard, row["document"]): row | {"corpus": corpus} for row in rows}
        key = (corpus, manifest.hash, entry.group)
        listed = origins.setdefault(key, (manifest, []))[1]
        listed += [found[shard, row["document"]] for row in rows]
    for (corpus, _, group), (manifest, facts) in origins.items():
        _add_origins(root, corpus, manifest, group, facts)
    unknown = dict.fromkeys(FACTS)
    return [
        {"shard": shard, "document": document} | (unknown | found.get((shard, document), {}))
        for shard, document in places
    ]


def _rows(store: Store, entry: Entry, shard: str, documents: list[int]) -> list[Fact]:
    """The rows of these documents in `<shard>.docs.parquet`."""
    import pyarrow.parquet as pq

    with store.local(entry.path) as path:
        table = pq.read_table(path, columns=COLUMNS)
    if documents[-1] >= table.num_rows or documents[0] < 0:
        message = f"shard {shard} has no document {documents[-1]}: it holds {table.num_rows}"
        raise UsageError(message, hint="count from 0")
    rows = table.take(documents).to_pylist()
    return [
        {"document": number, "quality": row.pop("quality_score")} | row
        for number, row in zip(documents, rows, strict=True)
    ]


def _add_origins(
    root: Store, corpus: str, manifest: Manifest, group: int | None, facts: list[Fact]
) -> None:
    """Put the URL (a source: its id of the record) into facts of documents of one part group."""
    by_id: dict[str, list[Fact]] = {}
    for fact in facts:
        by_id.setdefault(fact["doc_id"], []).append(fact)
    for link, kind, columns in _origins(root, corpus, manifest):
        left = set(by_id)
        for entry in _of_group(link, kind, group):
            if not left:
                break
            for row in _look_up(link.store, entry, columns, sorted(left)):
                left.discard(row["doc_id"])
                told = {name: value for name, value in row.items() if value is not None}
                for fact in by_id[row["doc_id"]]:
                    fact |= told


def _origins(root: Store, corpus: str, manifest: Manifest) -> Iterator[tuple[Link, str, list[str]]]:
    """Where the documents of a corpus came in: (stage, kind of file, columns)."""
    for web, stage in ((True, "extracted_text"), (False, "source_texts")):
        link = chain(root, corpus, web=web, last=manifest).get(stage)
        if link is not None:
            yield link, "decisions", ["doc_id", "url"]
            if not web:
                yield link, "parts", ["doc_id", "source_id"]


def _of_group(link: Link, kind: str, group: int | None) -> Iterable[Entry]:
    """Files of a part group first, then the others: groups may have been cut otherwise since."""
    entries = list(link.both(kind))
    return sorted(entries, key=lambda entry: group is not None and entry.group != group)


def _look_up(store: Store, entry: Entry, columns: list[str], ids: list[str]) -> list[Fact]:
    import pyarrow.compute as pc
    import pyarrow.parquet as pq

    with store.local(entry.path) as path:
        there = set(pq.read_schema(path).names)
        names = [name for name in columns if name in there]
        found = pq.read_table(path, columns=names, filters=pc.field("doc_id").isin(ids))
    rows: list[Fact] = found.to_pylist()
    return rows
