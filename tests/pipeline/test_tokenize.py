"""Documents to shards: end tokens, empty documents, splits, sidecars, the same bytes."""

from __future__ import annotations

import json
from functools import partial
from pathlib import Path

import numpy as np
import polars as pl
import pyarrow.parquet as pq
import pytest

from pipeline.config.tokenize import TokenizeConfig
from pipeline.config.tokenizer import TokenizerConfig
from pipeline.errors import ContractError
from pipeline.schema import DECISIONS, conform
from pipeline.sources import parse_jsonl
from pipeline.tokenize import (
    SHARD_DOCUMENTS,
    TokenizedPart,
    read_documents,
    shard_part,
    tokenize_documents,
    write_shards,
)
from pipeline.tokenizer import load_tokenizer, tokenizer_hash, train_tokenizer
from training.shards import Shard

CONFIG = TokenizeConfig()


@pytest.fixture(scope="module")
def trained() -> str:
    text = "Put the mark between two documents, and the other one at the end of the last. "
    return train_tokenizer([text] * 4, TokenizerConfig(vocab_size=290))[0]


def documents(texts: list[str | None], **columns: list[str | None]) -> pl.DataFrame:
    ids = [f"{i:032x}" for i in range(len(texts))]
    frame = pl.DataFrame({"doc_id": ids, "text": texts}, schema_overrides={"text": pl.String})
    return frame.with_columns(pl.Series(name, values) for name, values in columns.items())


def texts_of(shard: Shard, tokenizer_json: str) -> list[str]:
    tokenizer = load_tokenizer(tokenizer_json)
    out = []
    for number in range(shard.n_documents):
        ids = shard.document(number).tolist()
        assert ids[-1] == 0
        assert 0 not in ids[:-1]
        out.append(tokenizer.decode(ids[:-1], skip_special_tokens=False))
    return out


def test_each_document_ends_in_one_end_token_and_decodes_exactly(
    trained: str, tmp_path: Path
) -> None:
    texts = ["Put <|endoftext|> here", "<|endoftext|><|endoftext|>", " ", "<|reserved_1|>", "中文"]
    part = tokenize_documents(documents(list(texts)), trained, CONFIG)
    files = write_shards(part, tmp_path, "web-0")
    assert [path.name for path in files] == [
        f"web-0.{ending}" for ending in ("bin", "idx", "docs.parquet", "json")
    ]
    shard = Shard.open(tmp_path / "web-0", verify=True)
    assert texts_of(shard, trained) == texts
    assert shard.tokens.dtype == np.uint16


def test_empty_documents_are_left_out_and_counted(trained: str, tmp_path: Path) -> None:
    frame = documents(["", "a", None, "b"], url=["http://a.example/", None, None, None])
    part = tokenize_documents(frame, trained, CONFIG)
    assert part.decisions["kept"].to_list() == [False, True, False, True]
    assert part.decisions["reason"].to_list() == ["tokens.empty", None, "tokens.empty", None]
    assert part.decisions["url"][0] == "http://a.example/"
    assert conform(part.decisions, DECISIONS).num_rows == 4
    write_shards(part, tmp_path, "s")
    assert Shard.open(tmp_path / "s").n_documents == 2
    assert read_documents(tmp_path / "s")["doc_id"].to_list() == [f"{1:032x}", f"{3:032x}"]


def test_documents_table_leads_from_a_token_to_its_document(trained: str, tmp_path: Path) -> None:
    frame = documents(
        ["one text", "zwei", "three 3"],
        source=[None, "notes", None],
        language=["en", "de", None],
        licence=[None, "CC0-1.0", None],
        split=[None, "held_out", "train"],
    )
    files = write_shards(tokenize_documents(frame, trained, CONFIG), tmp_path, "s", source="mixed")
    assert len(files) == 8
    train, held = Shard.open(tmp_path / "s"), Shard.open(tmp_path / "s-held_out")
    assert texts_of(train, trained) == ["one text", "three 3"]
    assert texts_of(held, trained) == ["zwei"]
    table = pq.read_table(tmp_path / "s.docs.parquet")
    assert table.schema.equals(SHARD_DOCUMENTS)
    assert table["first_token"].to_pylist() == train.offsets[:-1].tolist()
    assert table["n_tokens"].to_pylist() == train.lengths.tolist()
    assert table["source"].to_pylist() == ["web", "web"]
    assert table["language"].to_pylist() == ["en", "und"]
    assert read_documents(tmp_path / "s-held_out").row(0, named=True) == {
        "doc_id": f"{1:032x}",
        "first_token": 0,
        "n_tokens": held.n_tokens,
        "n_bytes": 4,
        "source": "notes",
        "language": "de",
        "licence": "CC0-1.0",
        "quality_score": None,
        "split": "held_out",
    }
    sidecar = train.sidecar
    told = {key: sidecar[key] for key in ("name", "source", "split", "end_id", "bytes")}
    assert told == {"name": "s", "source": "mixed", "split": "train", "end_id": 0, "bytes": 15}
    assert sidecar["tokenizer"] == tokenizer_hash(trained)
    assert set(sidecar["checksums"]) == {"bin", "idx", "docs"}
    assert sidecar["languages"]["en"] == {
        "documents": 1,
        "tokens": int(train.lengths[0]),
        "bytes": 8,
    }


def test_shard_part_names_shards_by_content_and_gives_equal_bytes(trained: str) -> None:
    frame = documents(["one", "two", ""])

    def run(given: pl.DataFrame) -> dict[str, bytes]:
        result = shard_part(
            given, tokenizer_json=trained, config=CONFIG, corpus="CRAWL-2026-40", group=3
        )
        assert result.tables["decisions"].height == given.height
        assert [file.rows for file in result.files["parts"]] == [0, 0, 2, 0]
        files = {file.name: file.path for file in result.files["parts"]}
        data = {name: path.read_bytes() for name, path in files.items()}
        del result
        assert not any(path.exists() for path in files.values())
        return data

    first = run(frame)
    assert first == run(frame)
    assert next(iter(first)).startswith("CRAWL-2026-40-00003-")
    assert not set(first) & set(run(documents(["one", "four", ""])))
    sidecar = json.loads(next(data for name, data in first.items() if name.endswith(".json")))
    assert sidecar["source"] == "web"


def test_golden_output(trained: str, tmp_path: Path) -> None:
    # another hash for the same documents: bump CODE_VERSION of pipeline.tokenize, then this
    texts = ["Put the mark <|endoftext|>", "between\n\n two  documents: 1234", "नदी के पास"]
    write_shards(tokenize_documents(documents(list(texts)), trained, CONFIG), tmp_path, "s")
    checksums = Shard.open(tmp_path / "s").sidecar["checksums"]
    del checksums["docs"]  # Parquet carries the version of its writer
    assert checksums == {
        "bin": "sha256:0543e1a7b77f3f817f71c91e29e826e2b622d6e8832650555dd73c43b5b4f10c",
        "idx": "sha256:994e80348ee5c58cfebbb996c88e639dbb807f8e92215b272e088c48bb5a495e",
    }


def test_a_part_without_a_token_has_no_shard(trained: str) -> None:
    run = partial(shard_part, tokenizer_json=trained, config=CONFIG, corpus="c", group=0)
    result = run(documents(["", None]))
    assert result.files["parts"] == []
    assert result.tables["decisions"]["reason"].to_list() == ["tokens.empty"] * 2
    assert run(documents([])).tables["decisions"].height == 0


def test_a_tokenizer_that_loses_text_stops_the_stage(trained: str) -> None:
    content = json.loads(trained)
    content["normalizer"] = {"type": "Lowercase"}
    frame = documents(["lower", "Upper"])
    with pytest.raises(ContractError, match="document 1 of the part does not decode"):
        tokenize_documents(frame, json.dumps(content), CONFIG)
    off = TokenizeConfig(verify_documents=0)
    assert len(tokenize_documents(frame, json.dumps(content), off).lengths) == 2


def test_unknown_split_is_refused(trained: str) -> None:
    with pytest.raises(ContractError, match="'split' holds dev"):
        tokenize_documents(documents(["a"], split=["dev"]), trained, CONFIG)


def test_an_id_outside_the_vocabulary_leaves_nothing_behind(trained: str, tmp_path: Path) -> None:
    part = tokenize_documents(documents(["a"]), trained, CONFIG)
    small = TokenizedPart(**{**vars(part), "vocab_size": 9})
    with pytest.raises(ContractError, match=r"shard s: token ids .* vocabulary of 9"):
        write_shards(small, tmp_path, "s")
    assert list(tmp_path.iterdir()) == []


@pytest.mark.shared
@pytest.mark.parametrize("case", ["specials-in-text", "round-trip"])
def test_cases_of_shared_texts(shared: Path, trained: str, tmp_path: Path, case: str) -> None:
    data = (shared / f"cases/tokenizer/{case}.jsonl").read_bytes()
    frame = parse_jsonl(data, f"{case}.jsonl").tables["parts"]
    write_shards(tokenize_documents(frame, trained, CONFIG), tmp_path, "s")
    shard = Shard.open(tmp_path / "s", verify=True)
    assert texts_of(shard, trained) == frame["text"].to_list()
    assert int((shard.tokens == 0).sum()) == frame.height
