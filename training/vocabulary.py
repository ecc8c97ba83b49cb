"""What training needs of a tokenizer, read from `tokenizer.json` itself: no library, no text.

Byte-level BPE writes each byte of a token as one printable character (GPT-2's table), so a token is
as many bytes long as its entry has characters. Special tokens stand for no text: 0 bytes.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from training.errors import RunConfigError

END_OF_TEXT = "<|endoftext|>"
MOST_ENTRIES = 16_777_216  # 40 times the largest in use; a wild id must not fill the memory


def byte_characters() -> dict[str, int]:
    """GPT-2's table: the character that stands for each byte."""
    printable = [*range(33, 127), *range(161, 173), *range(174, 256)]
    others = [byte for byte in range(256) if byte not in printable]
    table = {chr(byte): byte for byte in printable}
    return table | {chr(256 + n): byte for n, byte in enumerate(others)}


def _check(numbers: list[Any]) -> None:
    """ValueError unless these can be the ids of a tokenizer."""
    if not numbers or any(type(n) is not int or not 0 <= n <= MOST_ENTRIES for n in numbers):
        message = f"ids must be whole numbers from 0 to {MOST_ENTRIES}"
        raise ValueError(message)


@dataclass(frozen=True)
class Vocabulary:
    """The entries of a byte-level tokenizer."""

    pieces: list[bytes]
    """Bytes of each id; empty for special tokens."""
    end_id: int | None
    """The id of `<|endoftext|>`."""
    checksum: str
    """SHA-256 of the file."""

    @classmethod
    def open(cls, path: Path) -> Vocabulary:
        """Read `tokenizer.json`; RunConfigError where it is no byte-level BPE tokenizer."""
        data = path.read_bytes()
        try:
            content = json.loads(data)
            entries = dict(content["model"]["vocab"])
            special = {token["content"]: int(token["id"]) for token in content["added_tokens"]}
            numbers = [*entries.values(), *special.values()]
            _check(numbers)
        except (ValueError, KeyError, TypeError) as error:
            message = f"tokenizer {path} is no tokenizer.json of a byte-level BPE"
            raise RunConfigError(
                message, hint="name the file that `tokenizer train` wrote"
            ) from error
        size = max(numbers) + 1
        table = byte_characters()
        pieces = [b""] * size
        for text, number in entries.items():
            if text not in special:
                pieces[number] = bytes(table[c] for c in text if c in table)
        return cls(pieces, special.get(END_OF_TEXT), hashlib.sha256(data).hexdigest())

    @property
    def size(self) -> int:
        """Ids run below this."""
        return len(self.pieces)

    def lengths(self) -> NDArray[np.int64]:
        """[size] bytes of each token."""
        return np.array([len(piece) for piece in self.pieces], dtype=np.int64)

    def text(self, ids: Iterable[int]) -> str:
        """The text of some tokens; bytes that are no UTF-8 become U+FFFD."""
        return b"".join(self.pieces[i] for i in ids).decode("utf-8", errors="replace")
