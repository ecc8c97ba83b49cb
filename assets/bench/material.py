"""What a contest is held on: files a person gives, or the sample of the demo.

Everything is made once, before the rounds, in a temporary folder; both sides read the same files.
"""

import json
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

from assets.commands.data import check_distinct
from pipeline.config import Config, merge, parse_setting, validate
from pipeline.errors import ConfigError, UsageError

if TYPE_CHECKING:
    import polars as pl

    from pipeline.bodies import Http
    from pipeline.warc import Record

WARC_ENDINGS = (".warc", ".warc.gz")
HTML_ENDINGS = (".html", ".htm", ".xhtml")
ENGLISH = "en"
VOCABULARIES = (4096, 1024, 264)
"""Sizes of the tokenizer that are tried; the last is its specials and bytes alone."""

Reader = Callable[[list[Path]], "pl.DataFrame"]
"""Documents of dataset folders, Parquet and JSONL files."""


@dataclass(frozen=True)
class Warc:
    """A WARC file of the input, with the pages it holds."""

    path: Path
    size: int
    pages: int


@dataclass(frozen=True)
class Material:
    """A folder with what the sides read."""

    folder: Path
    sets: tuple[str, ...] = ()
    """Settings of one side, laid over the configuration."""
    part: int = 0
    parts: int = 1
    """Which share of the WARC files this round has."""

    @cached_property
    def config(self) -> Config:
        """The configuration that `bench` ran under, with the side's own settings."""
        values = json.loads(self.path("config.json").read_bytes())
        for setting in self.sets:
            values = merge(values, parse_setting(setting))
        return validate(values)

    @cached_property
    def warcs(self) -> list[Warc]:
        """The WARC files of this round."""
        path = self.path("warcs.json")
        rows = json.loads(path.read_bytes()) if path.exists() else []
        files = [Warc(Path(row["path"]), row["size"], row["pages"]) for row in rows]
        return files[self.part :: self.parts]

    def path(self, name: str) -> Path:
        """A file of the material."""
        return self.folder / name

    def table(self, name: str) -> "pl.DataFrame":
        """One of `captures`, `pages`, `documents`, `english`, `signed`."""
        import polars as pl

        return pl.read_parquet(self.path(f"{name}.parquet"))


def make(
    folder: Path,
    needs: Sequence[str],
    inputs: Sequence[Path],
    config: Config,
    read: Reader | None = None,
) -> Material:
    """Prepare what is needed from `inputs`; without any, from the demo's sample.

    UsageError where a contest over pages is given no WARC or HTML file, or nothing is left.
    """
    material = Material(folder)
    material.path("config.json").write_text(config.model_dump_json())
    warcs, pages, tables = sort_inputs(inputs)
    if not inputs or "classifier" in needs:
        _sample(material)
    if not inputs:
        warcs = sorted(material.path("sample").glob("snapshots/*/*.warc.gz"))
    if "warcs" in needs and (pages or tables):
        message = f"{(pages or tables)[0]} is no WARC file, and this is measured over WARC files"
        raise UsageError(message, hint="give files named *.warc or *.warc.gz")
    if (not (warcs or pages) and "pages" in needs) or (not warcs and "warcs" in needs):
        kind = "WARC" if "warcs" in needs else "WARC or HTML"
        message = f"this contest is about pages, and no {kind} file was given"
        raise UsageError(message, hint="give WARC files, or none for the demo's sample")
    if "warcs" in needs:
        _warcs(material, warcs, config)
    if "pages" in needs:
        _write(material, "pages", _pages(warcs, pages, config))
    if set(needs) & {"documents", "english", "signed", "tokenizer", "shards", "classifier"}:
        _write(material, "documents", _documents(warcs, pages, tables, config, read))
    for need, maker in (
        ("english", _english),
        ("classifier", _classifier),
        ("signed", _signed),
        ("tokenizer", _tokenizer),
        ("shards", _shards),
    ):
        if need in needs:
            maker(material)
    return material


def sort_inputs(inputs: Sequence[Path]) -> tuple[list[Path], list[Path], list[Path]]:
    """WARC files, HTML files and tables among what was given. UsageError for one not there."""
    for path in inputs:
        if not path.exists():
            message = f"{path} is not there"
            raise UsageError(message, hint="give WARC, HTML, JSONL or Parquet files, or datasets")
    warcs = [path for path in inputs if path.name.endswith(WARC_ENDINGS)]
    pages = [path for path in inputs if path.name.lower().endswith(HTML_ENDINGS)]
    return warcs, pages, [path for path in inputs if path not in warcs and path not in pages]


def _write(material: Material, name: str, frame: "pl.DataFrame") -> None:
    if frame.is_empty():
        message = f"the input holds no {name}"
        raise UsageError(message, hint="give other files, or none for the demo's sample")
    frame.write_parquet(material.path(f"{name}.parquet"))


def _sample(material: Material) -> None:
    from assets.demo.sample import build_sample

    build_sample(material.path("sample"))


def _responses(warc: Path, config: Config) -> "Iterator[tuple[Record, Http]]":
    """What a WARC file holds that should be a page, by its head."""
    from pipeline.bodies import parse_http
    from pipeline.warc import read_records

    for record in read_records(warc, warc.name):
        http = parse_http(record.block) if record.kind == "response" else None
        if http is None or http.status != 200 or http.mime not in config.extract.accept:
            continue
        if http.body.strip() and not record.truncated:
            yield record, http


def _warcs(material: Material, warcs: list[Path], config: Config) -> None:
    """`warcs.json`: the files with their pages counted; `captures`: these pages."""
    import polars as pl

    check_distinct(warcs)
    frames, rows = [], []
    for path in warcs:
        keys = [(path.name, r.url, r.headers.get("warc-date")) for r, _ in _responses(path, config)]
        schema = dict.fromkeys(("warc_file", "url", "date"), pl.String)
        frames.append(pl.DataFrame(keys, schema=schema, orient="row"))
        size = path.stat().st_size
        rows.append({"path": str(path.resolve()), "size": size, "pages": len(keys)})
    _write(material, "captures", pl.concat(frames))
    material.path("warcs.json").write_text(json.dumps(rows))


def _pages(warcs: list[Path], pages: list[Path], config: Config) -> "pl.DataFrame":
    """Decoded pages: `url, html`."""
    import polars as pl

    from pipeline.bodies import BodyError, BodyTooLargeError, decode_body
    from pipeline.charset import decode

    rows: list[tuple[str | None, str]] = []
    for warc in warcs:
        for record, http in _responses(warc, config):
            try:
                body = decode_body(http, config.extract.max_bytes)
            except (BodyError, BodyTooLargeError):
                continue
            if body.strip():
                rows.append((record.url, decode(body, http.charset)[0]))
    rows += [(None, decode(path.read_bytes())[0]) for path in pages]
    schema = {"url": pl.String, "html": pl.String}
    return pl.DataFrame(rows, schema=schema, orient="row")


def _documents(
    warcs: list[Path], pages: list[Path], tables: list[Path], config: Config, read: Reader | None
) -> "pl.DataFrame":
    """Documents with text, extracted where pages were given; `doc_id` distinct."""
    import polars as pl

    from pipeline.extract import extract_html, extract_warc

    frames = [
        batch.tables["parts"]
        for path in warcs
        for batch in extract_warc(
            path, snapshot=path.parent.name, warc_file=path.name, config=config.extract
        )
    ]
    frames += [extract_html(path, "pages", config.extract).tables["parts"] for path in pages]
    if tables and read:
        frames.append(read(tables))
    documents = pl.concat(frames, how="diagonal_relaxed")
    return documents.unique("doc_id", keep="first", maintain_order=True)


def _english(material: Material) -> None:
    """What the rules of an English recipe are given: pages that pass its language rules."""
    import polars as pl

    from pipeline.language import identify

    documents = material.table("documents")
    config = material.config.filter.language
    told = identify(documents["text"], min_chars=config.min_chars, und_score=config.und_score)
    sure = (pl.col("language") == ENGLISH) & (pl.col("language_score") >= 0.65)
    mask = told.select(sure)["language"]
    _write(material, "english", documents.filter(mask))


def _classifier(material: Material) -> None:
    """A quality classifier, trained on `references.quality_labels`, else on the demo's labels."""
    import polars as pl

    from pipeline.quality import train_classifier

    config = material.config
    labels = config.references.quality_labels or str(material.path("sample/labels.jsonl"))
    rows = pl.read_ndjson(labels)
    found = train_classifier(rows, config.score.classifier, config.references.positive_label)
    material.path("classifier.bin").write_bytes(found.model)


def _signed(material: Material) -> None:
    from pipeline.dedup.run import sign_part

    _write(material, "signed", sign_part(material.table("documents"), material.config.dedup))


def _tokenizer(material: Material) -> None:
    """A tokenizer of the documents, as large as they support."""
    from pipeline.tokenizer import train_tokenizer

    if material.path("tokenizer.json").exists():
        return
    texts = material.table("documents")["text"]
    for size in VOCABULARIES:
        config = material.config.tokenizer.model_copy(update={"vocab_size": size})
        try:
            text, _ = train_tokenizer(texts, config)
        except ConfigError:  # too little text for so many entries
            if size == VOCABULARIES[-1]:
                raise
            continue
        material.path("tokenizer.json").write_text(text, encoding="utf-8")
        return


def _shards(material: Material) -> None:
    """Token shards of the documents, with rows for the context of the tiny recipe."""
    from pipeline.tokenize import tokenize_documents, write_shards
    from training.recipes import tiny_cpu
    from training.rows import write_rows

    _tokenizer(material)
    documents: Any = material.table("documents")
    documents = documents.drop([name for name in ("split",) if name in documents.columns])
    text = material.path("tokenizer.json").read_text(encoding="utf-8")
    part = tokenize_documents(documents, text, material.config.tokenize)
    write_shards(part, material.folder, "bench")
    write_rows(material.path("bench"), tiny_cpu().context)
