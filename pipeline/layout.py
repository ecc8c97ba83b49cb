"""Where things live and what they are called: document ids, part keys, names of snapshots."""

from __future__ import annotations

import hashlib
import json
import re
from typing import Any

import xxhash

from pipeline.errors import UsageError

SEPARATOR = b"\x00"
NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,99}")


def doc_id(*address: str | int | None) -> str:
    """The 128-bit id of a document: xxh3 of its NUL-separated address, 32 hex digits.

    Web: `doc_id(snapshot, warc base name, member offset[, offset inside the member])`.
    Sources: `doc_id(source, record id)`.
    """
    parts = [str(part).encode() for part in address if part is not None]
    return xxhash.xxh3_128_hexdigest(SEPARATOR.join(parts))


def url_hash(url: str) -> int:
    """The 64-bit key of the record index, as a signed integer (Parquet's statistics like it)."""
    return xxhash.xxh3_64_intdigest(url.encode()) - (1 << 63)


def check_name(kind: str, name: str) -> str:
    """`name` if it can be a folder, a partition key and a part of a URL; UsageError otherwise."""
    if not NAME.fullmatch(name) or ".." in name:
        message = f"{kind} name {name!r} cannot be used"
        hint = (
            "letters, digits, '.', '_' and '-' only, no '..', at most 100, a letter or digit first"
        )
        raise UsageError(message, hint=hint)
    return name


def canonical(value: Any) -> bytes:
    """The canonical JSON that is hashed: sorted keys, no blanks, UTF-8 not escaped."""
    text = json.dumps(value, sort_keys=True, separators=(",", ":"), ensure_ascii=False)
    return text.encode()


def sha256_hex(data: bytes) -> str:
    """SHA-256 in hex."""
    return hashlib.sha256(data).hexdigest()


def content_key(value: Any) -> str:
    """The key of anything JSON: SHA-256 of its canonical form."""
    return sha256_hex(canonical(value))
