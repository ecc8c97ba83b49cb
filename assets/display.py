"""What a person sees of a stage in the web UI: numbers, tables and excerpts, made from a manifest.

Crawl text is untrusted. What is shown of a page is scrubbed of personal data, free of markup and
control characters and at most 200 characters long; `display.excerpts: false` shows none. Nothing
here reads more than the first part of a dataset; all sums come from the manifest.
"""

import json
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import dagster as dg

from pipeline.config.display import DisplayConfig
from pipeline.dataset import find_rows, read_part
from pipeline.excerpts import clean, page_name, scrubbed
from pipeline.manifest import Content, Entry, Manifest
from pipeline.mill import Mill
from pipeline.store import Store

Row = dict[str, str | int | float | bool | None]

ROWS = 30
"""Longest table; the rest is one row `(others)`."""
HOST_PARTS = 4
"""Decision tables that are read for the hosts."""
BAR = 24
"""Characters of a full bar."""
GROUPS = ("language", "source", "licence", "split", "extractor")
COLUMNS = {
    "doc_id": "128-bit id of the document's address, 32 hex digits",
    "snapshot": "crawl it was found in",
    "url": "address of the page",
    "warc_file": "base name of the WARC file with its record",
    "warc_offset": "byte at which the record's gzip member begins",
    "warc_length": "bytes of that member: one ranged read gives the original",
    "member_offset": "offset in the member, where the whole file is one; else null",
    "fetched_at": "when the crawler fetched it, UTC",
    "payload_digest": "digest of the body as the crawl has it",
    "mime": "media type of the body",
    "charset": "encoding it was decoded from",
    "title": "title of the page",
    "text": "main text",
    "licence": "licence the page claims (CC link, rel=license), null without one",
    "licence_source": "where the mark of the licence stands",
    "reservations": "robots meta, noai and TDM marks, null without any",
    "extractor": "which extractor's text was taken",
    "language": "ISO 639 code, und where undetermined",
    "language_score": "confidence of the language, 0 to 1",
    "quality_score": "score of the quality classifier, 0 to 1",
    "safety_score": "score of the safety classifier, null without one",
    "split": "train or held_out: by host for the web, by record for sources",
    "edits": "spans (out, in, length) in bytes back to the extracted text, null if unedited",
    "source": "source of a text that is no crawl",
    "source_id": "record id within the source",
    "group": "part group, which token shards never cross",
    "size_bytes": "size of the file",
    "checksum": "sha256 of the file, or the store's ETag",
}
"""Column -> what it holds, for the page of an asset."""


def metadata(mill: Mill, asset: str, partition: str | None, manifest: Manifest) -> dict[str, Any]:
    """Everything that is attached to the materialisation of a partition."""
    content = manifest.content
    store = mill.folder(asset, partition)
    shown: dict[str, Any] = {
        "dagster/row_count": content.counts.kept,
        "records_in": content.counts.records_in,
        "dropped": content.counts.dropped,
        "seconds": float(manifest.run.get("seconds", 0.0)),
        "manifest": manifest.hash,
        "folder": dg.MetadataValue.path(f"{store.url}/{manifest_path(manifest)}"),
    }
    if content.parts:
        shown["parts"] = len(content.parts)
        shown["bytes"] = sum(entry.bytes for entry in content.parts)
    schema = column_schema(store, content.parts)
    if schema:
        shown["dagster/column_schema"] = schema
    shown |= tables(content)
    hosts = host_table(store, content)
    if hosts:
        shown["by_host"] = hosts
    if mill.config.display.excerpts:
        shown |= excerpts(mill, store, content)
    return shown


def manifest_path(manifest: Manifest) -> str:
    """Where a manifest lies in its dataset folder."""
    return f"manifests/{manifest.hash}.json"


def tables(content: Content) -> dict[str, Any]:
    """Funnel, groups, score distribution, damage and the stage's own figures."""
    shown: dict[str, Any] = {"funnel": funnel(content)}
    summary = content.summary
    for name in GROUPS:
        if summary.get(name):
            shown[f"by_{name}"] = group_table(name, summary[name])
    if summary.get("quality_histogram"):
        shown["quality_scores"] = histogram(summary["quality_histogram"])
    if content.damaged:
        shown["damaged"] = table(
            {clean(k): _cell(v) for k, v in d.items()} for d in content.damaged
        )
    if content.stage == "quality_classifier" and "train" in summary.get("report", {}):
        from assets.classifier_report import classifier_report

        shown |= classifier_report(summary["report"])
        summary = {key: value for key, value in summary.items() if key != "report"}
    shown |= own_figures(summary)
    return shown


def funnel(content: Content) -> dg.TableMetadataValue:
    """Records in, kept, and what each reason took, largest first, with a bar."""
    counts = content.counts
    whole = max(counts.records_in, 1)
    rows = [("(in)", counts.records_in), ("(kept)", counts.kept)]
    rows += sorted(counts.reasons.items(), key=lambda item: (-item[1], item[0]))
    return table(
        {"reason": name, "records": n, "share": f"{n / whole:.2%}", "": bar(n / whole)}
        for name, n in rows
    )


def group_table(name: str, groups: Mapping[str, Sequence[int]]) -> dg.TableMetadataValue:
    """Documents and bytes by language, source, licence, …; largest first."""
    ordered = sorted(groups.items(), key=lambda item: (-item[1][1], item[0]))
    whole = max(sum(size for _, (_, size) in ordered), 1)
    if len(ordered) > ROWS:
        rest = ordered[ROWS - 1 :]
        sums = [sum(n for _, (n, _) in rest), sum(size for _, (_, size) in rest)]
        ordered = [*ordered[: ROWS - 1], (f"({len(rest)} others)", sums)]
    return table(
        {
            name: clean(str(key)),
            "documents": n,
            "bytes": size,
            "share of bytes": f"{size / whole:.2%}",
            "": bar(size / whole),
        }
        for key, (n, size) in ordered
    )


def host_table(store: Store, content: Content) -> dg.TableMetadataValue | None:
    """Hosts by records, with the share that was dropped, over the first parts; None without any."""
    from pipeline.part_sums import count_hosts

    hosts: dict[str, list[int]] = {}
    for entry in content.decisions[:HOST_PARTS]:
        for host, (n, kept) in count_hosts(read_part(store, entry, ["url", "kept"])).items():
            total = hosts.setdefault(host, [0, 0])
            total[0] += n
            total[1] += kept
    if not hosts:
        return None
    largest = sorted(hosts.items(), key=lambda item: (-item[1][0], item[0]))[:ROWS]
    return table(
        {
            "host": clean(host),
            "records": n,
            "kept": kept,
            "dropped": f"{1 - kept / n:.1%}",
            "": bar(1 - kept / n),
        }
        for host, (n, kept) in largest
    )


def histogram(counts: Sequence[int]) -> dg.TableMetadataValue:
    """How many documents have which score, between 0 and 1."""
    most = max([*counts, 1])
    step = 1 / len(counts)
    return table(
        {"score": f"{i * step:.2f}-{(i + 1) * step:.2f}", "documents": n, "": bar(n / most)}
        for i, n in enumerate(counts)
    )


def own_figures(summary: Mapping[str, Any]) -> dict[str, Any]:
    """The rest of a stage's summary: numbers as they are, mappings and lists of them as tables."""
    known = {*GROUPS, "quality_histogram"}
    shown: dict[str, Any] = {}
    for key, value in summary.items():
        if key not in known and value is not None:
            shown |= _figure(clean(key), value)
    return shown


def _figure(name: str, value: Any) -> dict[str, Any]:
    if isinstance(value, bool | int | float):
        return {name: value}
    if isinstance(value, str):
        return {name: clean(value)}
    if isinstance(value, list):
        rows = [_text_first(one) if isinstance(one, Mapping) else _pair(one) for one in value]
        return {name: table(_cells(row) for row in rows[:ROWS])} if rows else {}
    nested = {key: inner for key, inner in value.items() if isinstance(inner, Mapping)}
    plain = {key: inner for key, inner in value.items() if key not in nested}
    shown: dict[str, Any] = {}
    if plain:
        shown[name] = table(_cells({"": k, "value": v}) for k, v in list(plain.items())[:ROWS])
    if nested and not any(_has_mappings(inner) for inner in nested.values()):
        rows = [{"": key, **inner} for key, inner in list(nested.items())[:ROWS]]
        shown[f"{name}.each" if plain else name] = table(_cells(_per_token(row)) for row in rows)
        return shown
    for key, inner in nested.items():
        shown |= _figure(f"{name}.{clean(str(key))}", inner)
    return shown


def _text_first(row: Mapping[str, Any]) -> dict[str, Any]:
    """A manifest has its keys in alphabetical order; what a row is about goes first."""
    return dict(sorted(row.items(), key=lambda item: not isinstance(item[1], str)))


def _has_mappings(value: Mapping[str, Any]) -> bool:
    return any(isinstance(inner, Mapping) for inner in value.values())


def _pair(value: Any) -> dict[str, Any]:
    pair = isinstance(value, list) and len(value) == 2
    return {"": value[0], "value": value[1]} if pair else {"": value}


def _per_token(row: dict[str, Any]) -> dict[str, Any]:
    """Bytes per token beside bytes and tokens: what a language costs."""
    if row.get("tokens") and row.get("bytes") and "bytes_per_token" not in row:
        return {**row, "bytes_per_token": round(row["bytes"] / row["tokens"], 4)}
    return row


def _cells(row: Mapping[str, Any]) -> Row:
    return {clean(str(key)): _cell(value) for key, value in row.items()}


def excerpts(mill: Mill, store: Store, content: Content) -> dict[str, Any]:
    """A few kept and a few dropped pages, by the rule that took them."""
    config = mill.config.display
    shown: dict[str, Any] = {}
    kept = kept_examples(store, content.parts, config)
    if kept:
        shown["kept_examples"] = table(kept)
    dropped = dropped_examples(mill, store, content, config)
    if dropped:
        shown["dropped_examples"] = table(dropped)
    return shown


def kept_examples(store: Store, parts: Sequence[Entry], config: DisplayConfig) -> list[Row]:
    """The first kept documents of the first part."""
    first = next((e for e in parts if e.rows and e.path.endswith(".parquet")), None)
    if first is None:
        return []
    frame = read_part(store, first)
    if not {"doc_id", "url", "text"} <= set(frame.columns):
        return []
    frame = frame.select("doc_id", "url", "text").head(config.examples)
    return [
        {"page": page_name(doc, url), "text": text}
        for (doc, url, _), text in zip(frame.iter_rows(), scrubbed(frame, config), strict=True)
    ]


def dropped_examples(
    mill: Mill, store: Store, content: Content, config: DisplayConfig
) -> list[Row]:
    """One dropped document for each of the first part's commonest reasons, with its text."""
    import polars as pl

    first = next((e for e in content.decisions if e.rows), None)
    if first is None or not content.counts.dropped:
        return []
    decisions = read_part(store, first).filter(~pl.col("kept") & pl.col("doc_id").is_not_null())
    common = decisions["reason"].value_counts(sort=True)["reason"].to_list()
    rank = pl.col("reason").replace_strict(common, range(len(common)), return_dtype=pl.Int64)
    chosen = decisions.unique("reason", keep="first", maintain_order=True).sort(rank)
    chosen = chosen.head(config.examples)
    texts = _texts(mill, content, first, chosen["doc_id"].to_list(), config)
    return [
        {
            "page": page_name(row["doc_id"], row["url"]),
            "reason": row["reason"],
            "value": row["value"],
            "threshold": row["threshold"],
            "kept instead": _kept_instead(row["detail"]),
            "text": texts.get(row["doc_id"]),
        }
        for row in chosen.iter_rows(named=True)
    ]


def _kept_instead(detail: str | None) -> str | None:
    """Of a duplicate, the page that was kept."""
    found = json.loads(detail) if detail else {}
    return page_name(found["kept"], found.get("kept_url")) if "kept" in found else None


def _texts(
    mill: Mill, content: Content, decided: Entry, ids: list[str], config: DisplayConfig
) -> dict[str, str]:
    """doc_id -> excerpt, from the input's part that the decisions are about."""
    import polars as pl

    ref = next((r for r in content.inputs if r.asset and r.hash and r.partition), None)
    if ref is None or ref.asset is None:
        return {}
    upstream = mill.find(ref.asset, ref.partition)
    if upstream is None or upstream.hash != ref.hash:
        return {}
    store = mill.folder(ref.asset, ref.partition)
    parts = [e for e in upstream.content.parts if e.path.endswith(".parquet")]
    same = [e for e in parts if (e.source, e.group) == (decided.source, decided.group)]
    for entry in same[:1]:
        found = pl.DataFrame(find_rows(store, entry, "doc_id", ids))
        if "text" in found.columns and found.height:
            shown = scrubbed(found.select("doc_id", "url", "text"), config)
            return dict(zip(found["doc_id"].to_list(), shown, strict=True))
    return {}


def _cell(value: Any) -> str | int | float | bool | None:
    if value is None or isinstance(value, bool | int | float):
        return value
    return clean(value if isinstance(value, str) else ", ".join(map(str, _flat(value))))


def _flat(value: Any) -> list[Any]:
    if isinstance(value, Mapping):
        return [f"{k} {v}" for k, v in value.items()]
    return list(value) if isinstance(value, list | tuple) else [value]


def bar(share: float) -> str:
    """A share between 0 and 1 as a bar of block characters."""
    return "█" * round(BAR * min(max(share, 0.0), 1.0)) or ("▏" if share > 0 else "")


def table(rows: Iterable[Row]) -> dg.TableMetadataValue:
    """Rows with the same keys as a table; columns are those of any row, in order of appearance."""
    given = list(rows)
    names = list(dict.fromkeys(name for row in given for name in row))
    kinds = {name: _kind([row.get(name) for row in given]) for name in names}
    columns = [dg.TableColumn(name or " ", kinds[name]) for name in names]
    records = [
        dg.TableRecord({name or " ": _as(row.get(name), kinds[name]) for name in names})
        for row in given
    ]
    return dg.MetadataValue.table(records, schema=dg.TableSchema(columns=columns))


def _kind(values: Sequence[Any]) -> str:
    present = [value for value in values if value is not None]
    if present and all(isinstance(v, bool) for v in present):
        return "bool"
    if present and all(isinstance(v, int) for v in present):
        return "int"
    return "float" if present and all(isinstance(v, int | float) for v in present) else "string"


def _as(value: Any, kind: str) -> Any:
    if value is None:
        return "" if kind == "string" else None
    return str(value) if kind == "string" and not isinstance(value, str) else value


def column_schema(store: Store, parts: Sequence[Entry]) -> dg.TableSchema | None:
    """Columns and types of a Parquet dataset; None where the parts are no tables."""
    import pyarrow.parquet as pq

    first = next((e for e in parts if e.path.endswith(".parquet")), None)
    if first is None:
        return None
    with store.local(first.path) as path:
        schema = pq.read_schema(path)
    return dg.TableSchema(
        columns=[dg.TableColumn(f.name, str(f.type), COLUMNS.get(f.name)) for f in schema]
    )
