"""Answers that were paid for, kept in one SQLite file for good.

An answer is written, and synced to disk, before the next thing is done with it: killing the process
loses none that came. The key is endpoint, model, question and text; nothing else of a request is
kept, and no key of an API.
"""

import sqlite3
import threading
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from pipeline.errors import ConfigError

TABLE = """
CREATE TABLE IF NOT EXISTS answers (
    endpoint TEXT NOT NULL, model TEXT NOT NULL, question TEXT NOT NULL, text TEXT NOT NULL,
    label TEXT, answer TEXT NOT NULL, tokens_in INTEGER NOT NULL, tokens_out INTEGER NOT NULL,
    PRIMARY KEY (endpoint, model, question, text)
) WITHOUT ROWID
"""
MOST = 400
"""Characters of an answer that are kept, to look at what a model said instead of a label."""


@dataclass(frozen=True)
class Answer:
    """What a model said about a text: a label, or none where it could not be read."""

    label: str | None
    answer: str
    tokens_in: int = 0
    tokens_out: int = 0


class LabelCache:
    """The answers of one endpoint, model and question. Threads may share it."""

    def __init__(self, path: Path, endpoint: str, model: str, question: str) -> None:
        self.asked = (endpoint, model, question)
        self._lock = threading.Lock()
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
            self._file = sqlite3.connect(path, timeout=60, check_same_thread=False)
            self._file.execute("PRAGMA journal_mode=WAL")
            self._file.execute("PRAGMA synchronous=FULL")
            with self._file:
                self._file.execute(TABLE)
        except (sqlite3.Error, OSError) as error:
            message = f"labeller.cache: {path} cannot be opened: {error}"
            raise ConfigError(message, hint="name another file with labeller.cache") from error

    def find(self, texts: Sequence[str]) -> dict[str, Answer]:
        """Answers by hash of the text, for those of `texts` (hashes) that were asked about."""
        with self._lock:
            rows = self._file.execute(
                "SELECT text, label, answer, tokens_in, tokens_out FROM answers"
                " WHERE endpoint = ? AND model = ? AND question = ?",
                self.asked,
            ).fetchall()
        wanted = set(texts)
        return {text: Answer(*rest) for text, *rest in rows if text in wanted}

    def keep(self, answers: dict[str, Answer]) -> None:
        """Write answers by hash of the text, in one transaction."""
        rows = [
            (*self.asked, text, a.label, a.answer[:MOST], a.tokens_in, a.tokens_out)
            for text, a in answers.items()
        ]
        with self._lock, self._file:
            self._file.executemany(
                "INSERT OR REPLACE INTO answers VALUES (?, ?, ?, ?, ?, ?, ?, ?)", rows
            )

    def close(self) -> None:
        """Close the file."""
        self._file.close()
