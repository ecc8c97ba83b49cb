"""Token shards on disk: writing and memory-mapped reading. NumPy only.

A shard `<prefix>` is four files and, for every context length it is trained with, one more:

    .bin                  all tokens, little-endian uint16, or int32 from 65,500 entries on
    .idx                  Megatron's index, one sequence a document (megatron/core/datasets/
                          indexed_dataset.py): Megatron-LM and NeMo read the pair unchanged
    .docs.parquet         one row a document, in shard order; written by `pipeline.tokenize`
    .json                 sidecar: checksums, tokens, documents, tokenizer hash; written last
    .rows-<context>.npy   which tokens make one training sample; see `training.rows`

Documents stand in `.bin` one behind the other in the order of the corpus, and are never reordered:
packing for another context length is another rows file. Nothing here reads Parquet.
"""

from __future__ import annotations

import hashlib
import json
import os
import struct
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np
from numpy.typing import NDArray

MAGIC = b"MMIDIDX\x00\x00"
HEADER = struct.Struct("<9sQBQQ")  # magic, version, dtype code, sequences, documents + 1
VERSION = 1
SMALL_VOCABULARY = 65_500  # Megatron's DType.optimal_dtype: uint16 below, int32 from here on
DTYPES: dict[int, np.dtype[Any]] = {8: np.dtype("<u2"), 4: np.dtype("<i4")}
CODES = {"uint16": 8, "int32": 4}
LONGEST_DOCUMENT = 2**31 - 1  # lengths are int32 in the index
Ints = NDArray[np.int64]
Tokens = NDArray[Any]  # uint16 or int32 on disk, any integer type on the way in


class ShardError(ValueError):
    """A shard that cannot be written as asked, or does not read as its sidecar says."""


def token_dtype(vocab_size: int) -> np.dtype[Any]:
    """uint16 for a vocabulary below 65,500 entries, else int32 (there is no uint32 in Megatron)."""
    return DTYPES[8] if vocab_size < SMALL_VOCABULARY else DTYPES[4]


def shard_path(prefix: str | Path, ending: str) -> Path:
    """`<prefix>.<ending>`; the name may hold dots."""
    path = Path(prefix)
    return path.with_name(f"{path.name}.{ending}")


def write_shard(
    prefix: str | Path,
    tokens: Tokens,
    lengths: Tokens,
    *,
    vocab_size: int,
    sidecar: Mapping[str, Any] | None = None,
) -> list[Path]:
    """Write `<prefix>.bin`, `.idx` and, last, `.json`; return their paths.

    `tokens` [tokens]: the documents one behind the other. `lengths` [documents]: tokens of each;
    documents of length 0 are left out and counted as `empty_documents`. `sidecar` is merged into
    the JSON (source, split, tokenizer hash, ...); `<prefix>.docs.parquet`, if it is there, is
    checksummed with the others. Raises ShardError before a byte is on disk where an id is negative
    or outside the vocabulary, or where lengths and tokens disagree.
    """
    tokens, lengths = np.asarray(tokens), np.asarray(lengths)
    _check(tokens, lengths, vocab_size)
    dtype = token_dtype(vocab_size)
    kept = lengths[lengths > 0].astype("<i4")
    files = {"bin": shard_path(prefix, "bin"), "idx": shard_path(prefix, "idx")}
    data = np.ascontiguousarray(tokens, dtype=dtype)
    publish(files["bin"], lambda out: out.write(data.data))
    publish(files["idx"], lambda out: out.write(index_bytes(kept, dtype)))
    docs = shard_path(prefix, "docs.parquet")
    sums = files | ({"docs": docs} if docs.exists() else {})
    content = {
        **(sidecar or {}),
        "dtype": dtype.name,
        "vocab_size": vocab_size,
        "tokens": len(data),
        "documents": len(kept),
        "empty_documents": int(len(lengths) - len(kept)),
        "checksums": {kind: checksum(path) for kind, path in sums.items()},
    }
    text = json.dumps(content, indent=1, sort_keys=True, ensure_ascii=False) + "\n"
    publish(shard_path(prefix, "json"), lambda out: out.write(text.encode()))
    return [*files.values(), shard_path(prefix, "json")]


def index_bytes(lengths: Tokens, dtype: np.dtype[Any]) -> bytes:
    """The `.idx` of documents of these `lengths`, byte for byte as Megatron writes it."""
    lengths = np.asarray(lengths, dtype="<i4")
    pointers = (offsets_of(lengths)[:-1] * dtype.itemsize).astype("<i8")
    documents = np.arange(len(lengths) + 1, dtype="<i8")
    header = HEADER.pack(MAGIC, VERSION, CODES[dtype.name], len(lengths), len(documents))
    return header + lengths.tobytes() + pointers.tobytes() + documents.tobytes()


def _check(tokens: Tokens, lengths: Tokens, vocab_size: int) -> None:
    if vocab_size < 1:
        message = f"a vocabulary of {vocab_size} entries"
        raise ShardError(message)
    for name, array in (("tokens", tokens), ("lengths", lengths)):
        if array.ndim != 1 or (array.size and array.dtype.kind not in "iu"):
            message = f"{name} must be a flat array of integers, not {array.dtype} {array.shape}"
            raise ShardError(message)
    total = int(lengths.sum()) if lengths.size else 0
    if lengths.size and not 0 <= int(lengths.min()) <= int(lengths.max()) <= LONGEST_DOCUMENT:
        message = f"document lengths must be from 0 to {LONGEST_DOCUMENT}"
        raise ShardError(message)
    if total != len(tokens):
        message = f"{len(tokens)} tokens, but the lengths of the documents sum up to {total}"
        raise ShardError(message)
    if len(tokens) and not 0 <= int(tokens.min()) <= int(tokens.max()) < vocab_size:
        message = (
            f"token ids from {int(tokens.min())} to {int(tokens.max())} do not fit into a "
            f"vocabulary of {vocab_size} entries; nothing was written"
        )
        raise ShardError(message)


def publish(path: Path, write: Callable[[BinaryIO], object]) -> None:
    """Write a file under a temporary name in its folder and rename it: it is seen whole, or not."""
    path.parent.mkdir(parents=True, exist_ok=True)
    temporary = path.with_name(f".{path.name}.{os.getpid()}.tmp")
    try:
        with temporary.open("wb") as out:
            write(out)
        temporary.replace(path)
    finally:
        temporary.unlink(missing_ok=True)


def checksum(path: Path) -> str:
    """`sha256:<hex>` of a file."""
    with path.open("rb") as file:
        return f"sha256:{hashlib.file_digest(file, 'sha256').hexdigest()}"


def offsets_of(lengths: Tokens) -> Ints:
    """[n + 1]: where each of n documents of these lengths starts, and the end of the last."""
    offsets = np.zeros(len(lengths) + 1, dtype=np.int64)
    np.cumsum(lengths, out=offsets[1:])
    return offsets


@dataclass(frozen=True)
class Shard:
    """A shard opened for reading; the tokens stay on disk and are mapped."""

    prefix: Path
    tokens: Tokens
    """[n_tokens], uint16 or int32, read-only."""
    offsets: Ints
    """[n_documents + 1]: document i is `tokens[offsets[i]:offsets[i + 1]]`."""
    sidecar: dict[str, Any]

    @classmethod
    def open(cls, prefix: str | Path, *, verify: bool = False, tokens: bool = True) -> Shard:
        """Open `<prefix>.bin/.idx/.json`; sizes are always compared, checksums with `verify`.

        Without `tokens` the `.bin` need not be there, and none can be read.
        `prefix` may also be the path of one of the files. Raises ShardError naming the file that is
        absent, cut short, changed, or not of this format.
        """
        prefix = strip_ending(prefix)
        sidecar = read_sidecar(prefix)
        if verify:
            verify_checksums(prefix, sidecar)
        index = shard_path(prefix, "idx")
        lengths, dtype = read_index(index)
        offsets = offsets_of(lengths)
        n_tokens = int(offsets[-1])
        mapped = _map(shard_path(prefix, "bin"), n_tokens, dtype) if tokens else np.empty(0, dtype)
        found = (n_tokens, len(lengths), dtype.name)
        if (told := tuple(sidecar.get(k) for k in ("tokens", "documents", "dtype"))) != found:
            message = (
                f"{shard_path(prefix, 'json')} says tokens, documents, dtype {told}; found {found}"
            )
            raise ShardError(message)
        return cls(prefix, mapped, offsets, sidecar)

    @property
    def name(self) -> str:
        """The shard's name, unique in a store."""
        return self.prefix.name

    @property
    def n_tokens(self) -> int:
        """Tokens, end tokens too."""
        return int(self.offsets[-1])

    @property
    def n_documents(self) -> int:
        """Documents; none of them is empty."""
        return len(self.offsets) - 1

    @property
    def vocab_size(self) -> int:
        """Entries of the tokenizer's vocabulary; every id is below."""
        return int(self.sidecar["vocab_size"])

    @property
    def lengths(self) -> Ints:
        """[n_documents] tokens of each document."""
        return np.diff(self.offsets)

    def document(self, number: int) -> Tokens:
        """The tokens of document `number` (a view of the map)."""
        if not 0 <= number < self.n_documents:
            message = f"{self.name} has no document {number}; it holds {self.n_documents}"
            raise ShardError(message)
        return self.tokens[self.offsets[number] : self.offsets[number + 1]]

    def document_at(self, token: int) -> int:
        """The document that token number `token` of the shard belongs to."""
        if not 0 <= token < self.n_tokens:
            message = f"{self.name} has no token {token}; it holds {self.n_tokens}"
            raise ShardError(message)
        return int(np.searchsorted(self.offsets, token, side="right")) - 1


def _map(path: Path, n_tokens: int, dtype: np.dtype[Any]) -> Tokens:
    """The tokens of a `.bin`, mapped; ShardError for another size."""
    size = path.stat().st_size if path.exists() else -1
    if size != n_tokens * dtype.itemsize:
        message = (
            f"{path} has {size} bytes, its index speaks of {n_tokens * dtype.itemsize}"
            if size >= 0
            else f"{path} is absent"
        )
        raise ShardError(message)
    # an empty file cannot be mapped; a plain view, since slicing a memmap costs 10 times as much
    return np.asarray(np.memmap(path, dtype=dtype, mode="r")) if size else np.empty(0, dtype)


def strip_ending(prefix: str | Path) -> Path:
    """The prefix of a shard, from itself or from the path of its .bin, .idx or .json."""
    path = Path(prefix)
    return path.with_suffix("") if path.suffix in {".bin", ".idx", ".json"} else path


def read_sidecar(prefix: str | Path) -> dict[str, Any]:
    """`<prefix>.json`; ShardError where it is absent or no JSON object."""
    path = shard_path(strip_ending(prefix), "json")
    try:
        content = json.loads(path.read_bytes())
    except (FileNotFoundError, json.JSONDecodeError, UnicodeDecodeError):
        content = None
    if _is_sidecar(content):
        return dict(content)
    message = f"{path} is absent or no sidecar of a shard"
    raise ShardError(message)


def _is_sidecar(content: Any) -> bool:
    if not isinstance(content, dict) or not isinstance(sums := content.get("checksums"), dict):
        return False
    counted = all(type(content.get(k)) is int for k in ("tokens", "documents", "vocab_size"))
    return counted and all(isinstance(v, str) for v in (sums.get("bin"), content.get("source", "")))


def verify_checksums(prefix: str | Path, sidecar: Mapping[str, Any]) -> None:
    """Hash every file the sidecar names; ShardError naming the first that is absent or differs."""
    endings = {"docs": "docs.parquet"}
    for kind, told in sidecar["checksums"].items():
        path = shard_path(prefix, endings.get(kind, kind))
        if not path.exists() or (found := checksum(path)) != told:
            message = (
                f"{path} is absent or changed: {found if path.exists() else 'absent'}, not {told}"
            )
            raise ShardError(message)


def read_index(path: Path) -> tuple[NDArray[np.int32], np.dtype[Any]]:
    """Lengths [documents] and token dtype from a Megatron `.idx` with one sequence a document."""
    try:
        data = path.read_bytes()
        magic, version, code, sequences, documents = HEADER.unpack_from(data)
    except (FileNotFoundError, struct.error) as error:
        message = f"{path} is absent or too short for an index"
        raise ShardError(message) from error
    if magic != MAGIC or version != VERSION or code not in DTYPES or documents != sequences + 1:
        message = f"{path} is no Megatron index (version {VERSION}) with one sequence a document"
        raise ShardError(message)
    expected = HEADER.size + 12 * sequences + 8 * documents
    if len(data) != expected:
        message = f"{path} has {len(data)} bytes, its header speaks of {expected}"
        raise ShardError(message)
    lengths = np.frombuffer(data, "<i4", sequences, HEADER.size)
    if data != index_bytes(lengths, DTYPES[code]):
        message = f"{path}: documents do not lie one behind the other"
        raise ShardError(message)
    return lengths, DTYPES[code]
