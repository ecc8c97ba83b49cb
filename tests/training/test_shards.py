"""Token shards: bytes on disk, round trips, refusals."""

from __future__ import annotations

import json
from hashlib import sha256
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from training.shards import Shard, ShardError, index_bytes, read_index, token_dtype, write_shard

GOLDEN_TOKENS = bytes.fromhex("0500 0600 0700 0000 0800 2c01")
GOLDEN_INDEX = bytes.fromhex(
    "4d4d4944494458 0000"  # MMIDIDX, two zeros
    "0100000000000000"  # version 1
    "08"  # uint16
    "0200000000000000"  # sequences
    "0300000000000000"  # documents + 1
    "04000000 02000000"  # lengths
    "0000000000000000 0800000000000000"  # byte pointers
    "0000000000000000 0100000000000000 0200000000000000"  # document indices
)


def write(folder: Path, documents: list[list[int]], vocab_size: int) -> Path:
    tokens = np.array([t for document in documents for t in document], dtype=np.int64)
    lengths = np.array([len(d) for d in documents], dtype=np.int64)
    write_shard(folder / "s", tokens, lengths, vocab_size=vocab_size)
    return folder / "s"


def test_index_bytes_are_megatrons() -> None:
    assert index_bytes(np.array([4, 2]), np.dtype("<u2")) == GOLDEN_INDEX


def test_golden_files(tmp_path: Path) -> None:
    write(tmp_path, [[5, 6, 7, 0], [8, 300]], 301)
    assert (tmp_path / "s.bin").read_bytes() == GOLDEN_TOKENS
    assert (tmp_path / "s.idx").read_bytes() == GOLDEN_INDEX
    assert json.loads((tmp_path / "s.json").read_text()) == {
        "checksums": {
            "bin": f"sha256:{sha256(GOLDEN_TOKENS).hexdigest()}",
            "idx": f"sha256:{sha256(GOLDEN_INDEX).hexdigest()}",
        },
        "documents": 2,
        "dtype": "uint16",
        "empty_documents": 0,
        "tokens": 6,
        "vocab_size": 301,
    }


def test_dtype_follows_the_vocabulary() -> None:
    assert token_dtype(65_499).name == "uint16"
    assert token_dtype(65_500).name == "int32"


@settings(max_examples=50, deadline=None)
@given(
    st.lists(st.lists(st.integers(0, 99_999), max_size=8), max_size=12),
    st.sampled_from([60_000, 65_500, 100_000]),
)
def test_round_trip(
    tmp_path_factory: pytest.TempPathFactory, documents: list[list[int]], vocab_size: int
) -> None:
    documents = [[token % vocab_size for token in document] for document in documents]
    prefix = write(tmp_path_factory.mktemp("shard"), documents, vocab_size)
    shard = Shard.open(prefix, verify=True)
    kept = [document for document in documents if document]
    assert [shard.document(i).tolist() for i in range(shard.n_documents)] == kept
    assert shard.tokens.dtype == token_dtype(vocab_size)
    assert shard.sidecar["empty_documents"] == len(documents) - len(kept)
    for number, start in enumerate(shard.offsets[:-1].tolist()):
        assert shard.document_at(start) == number
        assert shard.document_at(start + len(kept[number]) - 1) == number


@pytest.mark.parametrize("bad", [[70_000], [-1], [300]])
def test_ids_outside_the_vocabulary_are_refused_before_a_byte_is_written(
    tmp_path: Path, bad: list[int]
) -> None:
    with pytest.raises(ShardError, match="vocabulary of 300"):
        write(tmp_path, [[1, 2], bad], 300)
    assert list(tmp_path.iterdir()) == []


def test_lengths_that_disagree_and_floats_are_refused(tmp_path: Path) -> None:
    with pytest.raises(ShardError, match=r"3 tokens, but .* 2"):
        write_shard(tmp_path / "s", np.arange(3), np.array([1, 1]), vocab_size=9)
    with pytest.raises(ShardError, match="float64"):
        write_shard(tmp_path / "s", np.array([1.0]), np.array([1]), vocab_size=9)
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("ending", ["bin", "idx", "json"])
@pytest.mark.parametrize("harm", ["absent", "cut"])
def test_absent_and_cut_files_are_named(tmp_path: Path, ending: str, harm: str) -> None:
    prefix = write(tmp_path, [[1, 2, 3], [4]], 300)
    path = tmp_path / f"s.{ending}"
    data = path.read_bytes()
    path.unlink()
    if harm == "cut":
        path.write_bytes(data[:-1] if ending != "json" else data[:-5])
    with pytest.raises(ShardError, match=rf"s\.{ending}"):
        Shard.open(prefix)


def test_a_changed_byte_is_found_by_verify(tmp_path: Path) -> None:
    prefix = write(tmp_path, [[1, 2, 3], [4]], 300)
    data = bytearray((tmp_path / "s.bin").read_bytes())
    data[0] ^= 1
    (tmp_path / "s.bin").write_bytes(data)
    Shard.open(prefix)
    with pytest.raises(ShardError, match=r"s.bin is absent or changed"):
        Shard.open(prefix, verify=True)


def test_documents_that_do_not_lie_one_behind_the_other_are_refused(tmp_path: Path) -> None:
    data = bytearray(GOLDEN_INDEX)
    data[34 + 8 + 8] = 2  # second byte pointer
    (tmp_path / "s.idx").write_bytes(data)
    with pytest.raises(ShardError, match="one behind the other"):
        read_index(tmp_path / "s.idx")


def test_sidecar_and_any_file_open_the_shard(tmp_path: Path) -> None:
    extra = {"tokenizer_hash": "abc", "split": "train"}
    tokens, lengths = np.arange(3), np.array([3])
    write_shard(tmp_path / "web-1.2", tokens, lengths, vocab_size=9, sidecar=extra)
    for path in ("web-1.2", "web-1.2.bin", "web-1.2.idx", "web-1.2.json"):
        shard = Shard.open(tmp_path / path)
        assert (shard.name, shard.sidecar["split"], shard.vocab_size) == ("web-1.2", "train", 9)
    with pytest.raises(ShardError, match="no document 1"):
        shard.document(1)
    with pytest.raises(ShardError, match="no token 3"):
        shard.document_at(3)


@pytest.mark.shared
def test_case_ids_over_16_bits(shared: Path, tmp_path: Path) -> None:
    case = json.loads((shared / "cases/shards/ids-over-16-bits.json").read_text())
    shard = Shard.open(write(tmp_path, case["docs"], case["vocab_size"]), verify=True)
    assert shard.tokens.tolist() == [1, 65535, 70000, 65536, 65537, 70000]
    with pytest.raises(ShardError):
        write(tmp_path / "small", case["docs"], 65_000)
    assert not (tmp_path / "small").exists()


@pytest.mark.shared
def test_case_empty_first(shared: Path, tmp_path: Path) -> None:
    case = json.loads((shared / "cases/shards/empty-first.json").read_text())
    documents = [[*document, case["end_id"]] if document else [] for document in case["docs"]]
    shard = Shard.open(write(tmp_path, documents, case["vocab_size"]), verify=True)
    assert [shard.document(i).tolist() for i in range(shard.n_documents)] == [[5, 6, 7, 0], [8, 0]]
    assert shard.lengths.tolist() == [4, 2]
    assert shard.sidecar["empty_documents"] == 2
