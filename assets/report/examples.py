"""The report's examples: pages kept and dropped, near-duplicates, and one token traced.

Of the pages only what is shown is read, and it is scrubbed of personal data first.
"""

import io
from collections.abc import Mapping
from typing import Any

from assets.display import dropped_examples, kept_examples
from assets.report.data import Example, Pair, TracedToken
from pipeline.dataset import find_rows, read_bytes, read_part
from pipeline.manifest import Entry, Manifest
from pipeline.mill import Mill
from pipeline.store import Store
from pipeline.trace import trace_token

PAIRS = 3
CONTEXT = 24
"""Tokens shown on each side of the middle of the traced document."""
DOCS = ".docs.parquet"

Made = dict[tuple[str, str | None], Manifest]
"""Asset and partition -> its current manifest."""


def pages(mill: Mill, made: Made) -> dict[str, Any]:
    """`kept`, `dropped` and `pairs` of the report; nothing where excerpts are off."""
    if not mill.config.display.excerpts:
        return {}
    kept: list[Example] = []
    dropped: list[Example] = []
    pairs: list[Pair] = []
    for (asset, part), manifest in made.items():
        store = mill.folder(asset, part)
        if asset == "scrubbed_corpus" and not kept:
            rows = kept_examples(store, manifest.content.parts, mill.config.display)
            kept = [Example(str(row["page"]), str(row["text"])) for row in rows]
        if asset == "filtered_text" and not dropped:
            rows = dropped_examples(mill, store, manifest.content, mill.config.display)
            dropped = [_dropped(row) for row in rows]
        if asset == "deduped_corpus" and len(pairs) < PAIRS:
            pairs += near_pairs(mill, made, store, manifest)
    return {"kept": kept, "dropped": dropped, "pairs": pairs[:PAIRS]}


def _dropped(row: Mapping[str, Any]) -> Example:
    return Example(row["page"], row["text"] or "", row["reason"], row["value"], row["threshold"])


def near_pairs(mill: Mill, made: Made, store: Store, manifest: Manifest) -> list[Pair]:
    """A snapshot's most, middling and least alike near-duplicates, with their scrubbed texts."""
    import polars as pl

    frames = [read_part(store, entry) for entry in manifest.content.entries("pairs")]
    if not frames:
        return []
    rows = pl.concat(frames).sort("similarity", "doc_id", descending=[True, False])
    rows = rows.unique("doc_id", maintain_order=True)
    rows = rows[sorted({0, rows.height // 2, max(rows.height - 1, 0)} & set(range(rows.height)))]
    texts = _texts(mill, made, {*rows["doc_id"], *rows["other"]})
    return [
        Pair(*texts[other], *texts[doc], similarity)
        for doc, other, similarity in rows.select("doc_id", "other", "similarity").iter_rows()
        if doc in texts and other in texts
    ]


def _texts(mill: Mill, made: Made, ids: set[str]) -> dict[str, tuple[str, str]]:
    """doc_id -> URL and whole scrubbed text, of scored documents."""
    import polars as pl

    from pipeline.config.scrub import ScrubConfig
    from pipeline.scrub.run import scrub_documents

    found: dict[str, tuple[str, str]] = {}
    for (asset, part), manifest in made.items():
        if asset != "scored_text":
            continue
        store = mill.folder(asset, part)
        for entry in manifest.content.parts:
            frame = pl.DataFrame(find_rows(store, entry, "doc_id", sorted(ids)))
            if frame.height:
                clean = scrub_documents(frame, ScrubConfig()).tables["parts"]
                rows = clean.select("doc_id", "url", "text").iter_rows()
                found |= {doc: (url or "", text or "") for doc, url, text in rows}
    return found


def traced(mill: Mill, made: Made) -> TracedToken | None:
    """The longest word amid a web document, with a licence mark if one has it, followed back."""
    import polars as pl

    trained = made.get(("tokenizer", None))
    for (asset, part), manifest in made.items():
        if asset != "token_shards" or ("extracted_text", part) not in made or trained is None:
            continue
        store = mill.folder(asset, part)
        for entry in manifest.content.parts:
            if entry.path.endswith(DOCS):
                # the manifest counts documents with the .bin, so rows cannot be compared here
                table = pl.read_parquet(io.BytesIO(read_bytes(store, entry)))
                marked = pl.col("licence").str.starts_with("CC").fill_null(False)
                english = pl.col("language") == "en"
                table = table.sort(marked & english, marked, descending=True, maintain_order=True)
                return _trace(mill, trained, store, entry, table.row(0, named=True))
    return None


def _trace(
    mill: Mill, trained: Manifest, store: Store, entry: Entry, row: Mapping[str, Any]
) -> TracedToken:
    from tokenizers import Tokenizer

    from training.shards import token_dtype

    model = read_bytes(mill.folder("tokenizer"), trained.content.parts[0]).decode()
    tokenizer = Tokenizer.from_str(model)
    shard = entry.path.removesuffix(DOCS)
    middle = row["first_token"] + row["n_tokens"] // 2
    low = max(row["first_token"], middle - CONTEXT)
    high = min(row["first_token"] + row["n_tokens"], middle + CONTEXT)
    ids = _token_ids(store, f"{shard}.bin", token_dtype(tokenizer.get_vocab_size()), low, high)
    words = [tokenizer.decode([token]) for token in ids]
    at = max(range(len(words)), key=lambda i: (words[i].strip().isalpha(), len(words[i])))
    story = trace_token(mill.root, f"{shard}:{low + at}")
    return TracedToken(
        token=words[at],
        token_id=ids[at],
        shard=shard,
        offset=low + at,
        doc_id=story["doc_id"],
        url=story["url"] or "",
        licence=story.get("licence"),
        warc_file=story["warc_file"],
        warc_offset=story["warc_offset"],
        warc_length=story["warc_length"],
        # a window may begin or end inside a character
        context=tokenizer.decode(ids).strip("\ufffd"),
    )


def _token_ids(store: Store, path: str, dtype: Any, low: int, high: int) -> list[int]:
    import numpy as np

    with store.local(path) as file:
        found = np.fromfile(file, dtype, count=high - low, offset=low * dtype.itemsize)
    return [int(token) for token in found]
