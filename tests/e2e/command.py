"""The `gristmill` command and its dataset folders, read by what the contract promises and no more.

Nothing here uses the project's own readers: manifests are JSON, tables are Parquet, hashes are
SHA-256, so that a fault in a reader cannot hide one in a writer.
"""

from __future__ import annotations

import contextlib
import hashlib
import io
import json
import os
import random
import subprocess
import sys
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from assets.cli import main

KINDS = ("parts", "decisions", "signals", "signatures", "pairs", "clusters")
ADDRESS = ["warc_file", "warc_offset", "warc_length", "member_offset"]
BASE = ["doc_id", "snapshot", "url", *ADDRESS, "fetched_at", "payload_digest", "mime", "charset"]
BASE += ["title", "text", "licence", "licence_source", "reservations", "extractor"]
FATE = ["doc_id", "url", "stage", "kept", "reason", "value", "threshold", "detail"]
FAMILIES = {"record", "damage", "extract", "url", "language", "gopher_repetition", "c4", "fineweb"}
FAMILIES |= {"gopher_quality", "quality", "safety", "exact", "near", "near_held_out", "semantic"}
FAMILIES |= {"contamination", "tokens", "take_out", "input"}
CONTENT = {"stage", "partition", "inputs", "config", "code_version", "libraries", "parts", "output"}
CONTENT |= {"decisions", "counts", "damaged", "gates"}
THINGS = ["harbour", "mill", "garden", "river", "library", "museum", "market", "chapel", "bridge"]
PEOPLE = ["baker", "weaver", "porter", "pilot", "teacher", "miller", "shepherd", "painter", "clerk"]

MORE = ["walked", "quiet", "lantern", "counted", "early", "letter", "watched", "winter", "golden"]
MORE += ["repaired", "distant", "engine", "carried", "patient", "window", "answered", "narrow"]


@dataclass(frozen=True)
class Outcome:
    """What a call of the command left: exit code, stdout, stderr."""

    code: int
    out: str
    err: str

    @property
    def json(self) -> dict[str, Any]:
        """The one JSON object on stdout of a call that succeeded."""
        assert self.code == 0, self.err
        value = json.loads(self.out)
        assert isinstance(value, dict)
        assert self.out.count("\n") == 1
        return value

    def is_error(self, code: int, *words: str) -> None:
        """One sentence with a hint on stderr, nothing on stdout, no traceback; holds `words`."""
        assert self.code == code, (self.code, self.out, self.err)
        assert self.out == ""
        sentence, hint = self.err.rstrip("\n").split("\nhint: ")
        assert sentence.startswith("error: ")
        assert "\n" not in sentence
        assert hint
        assert "Traceback" not in self.err
        for word in words:
            assert word in self.err, (word, self.err)


def gristmill(*arguments: str | Path) -> Outcome:
    """Run the command in this process."""
    out, err = io.StringIO(), io.StringIO()
    with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
        try:
            code = main([str(argument) for argument in arguments])
        except SystemExit as leaving:  # --help
            code = int(leaving.code or 0)
    return Outcome(code, out.getvalue(), err.getvalue())


def stage(verb: str, *arguments: str | Path, out: Path) -> dict[str, Any]:
    """Run a stage verb with `--json`, check its promise and the folder it made; its JSON."""
    result = gristmill(verb, *arguments, "--out", out, "--json", "--workers", "1").json
    content = read_folder(out).content
    for key in ("records_in", "kept", "dropped", "reasons"):
        assert result[key] == content["counts"][key]
    assert result["seconds"] >= 0
    assert Path(result["out"]) == out
    return result


def process(
    *arguments: str | Path, cwd: Path, env: Mapping[str, str] | None = None
) -> subprocess.CompletedProcess[bytes]:
    """Run the command as a process of its own."""
    command = [str(Path(sys.executable).with_name("gristmill")), *map(str, arguments)]
    return subprocess.run(
        command, cwd=cwd, env={**os.environ, **(env or {})}, capture_output=True, check=False
    )


@dataclass(frozen=True)
class Folder:
    """A dataset folder that was checked against its manifest."""

    path: Path
    name: str
    content: dict[str, Any]
    run: dict[str, Any]

    def rows(self, kind: str = "parts") -> list[dict[str, Any]]:
        """All rows of the tables of a kind, in the manifest's order."""
        return [row for table in self.tables(kind) for row in table.to_pylist()]

    def tables(self, kind: str = "parts") -> list[pa.Table]:
        """The tables of a kind."""
        entries = self.content.get(kind, [])
        paths = [entry["path"] for entry in entries if entry["path"].endswith(".parquet")]
        return [pq.read_table(self.path / path) for path in paths]

    def files(self) -> dict[str, str]:
        """Path -> checksum of every file that the manifest names."""
        entries = [entry for kind in KINDS for entry in self.content.get(kind, [])]
        return {entry["path"]: entry["checksum"] for entry in entries}

    def texts(self) -> dict[str, str]:
        """URL -> text of the documents."""
        return {row["url"]: row["text"] for row in self.rows()}

    def fates(self, key: str = "url") -> dict[str, str | None]:
        """Key -> reason, null where kept."""
        return {row[key]: row["reason"] for row in self.rows("decisions")}


def read_folder(path: Path) -> Folder:
    """A dataset folder: every promise of the manifest is checked."""
    name = (path / "current").read_text().strip()
    manifest = json.loads((path / "manifests" / f"{name}.json").read_text(encoding="utf-8"))
    assert set(manifest) == {"content", "run"}
    content = manifest["content"]
    assert canonical_hash(content) == name
    assert set(content) >= CONTENT
    assert "seconds" in manifest["run"]
    assert "host" in manifest["run"]
    assert str(path.resolve().parent) not in json.dumps(content)  # locations stand in `run`
    for kind in KINDS:
        for entry in content.get(kind, []):
            check_entry(path, entry)
    folder = Folder(path, name, content, manifest["run"])
    check_counts(folder)
    return folder


def canonical_hash(value: Any) -> str:
    """SHA-256 of canonical JSON: sorted keys, no blanks, not escaped."""
    text = json.dumps(value, sort_keys=True, separators=(",", ":"), ensure_ascii=False)
    return hashlib.sha256(text.encode()).hexdigest()


def check_entry(path: Path, entry: dict[str, Any]) -> None:
    data = (path / entry["path"]).read_bytes()
    assert len(data) == entry["bytes"]
    assert "sha256:" + hashlib.sha256(data).hexdigest() == entry["checksum"]
    if entry["path"].endswith(".parquet"):
        table = pq.read_table(io.BytesIO(data))
        assert table.num_rows == entry["rows"]
        assert not [f.name for f in table.schema if "null" in str(f.type)]


def check_counts(folder: Folder) -> None:
    counts = folder.content["counts"]
    decisions = folder.rows("decisions")
    assert counts["records_in"] == counts["kept"] + counts["dropped"] == len(decisions)
    assert counts["reasons"] == Counter(row["reason"] for row in decisions if not row["kept"])
    for table in folder.tables("decisions"):
        assert table.column_names[: len(FATE)] == FATE
    for row in decisions:
        assert row["kept"] == (row["reason"] is None)
        assert row["stage"] == folder.content["stage"]
        assert row["kept"] or row["reason"].split(".")[0] in FAMILIES
        json.loads(row["detail"] or "null")
    tables = folder.tables()
    if not tables or "doc_id" not in tables[0].column_names or "text" not in tables[0].column_names:
        return  # token shards, a listing, a model: no documents
    kept = [row["doc_id"] for row in decisions if row["kept"]]
    assert [row["doc_id"] for row in folder.rows()] == kept
    assert counts["kept"] == len(kept) == len(set(kept))
    for table in folder.tables():
        assert table.column_names[: len(BASE)] == BASE


def write_lines(path: Path, *records: Any) -> Path:
    """A JSONL file."""
    path.write_text("".join(json.dumps(r, ensure_ascii=False) + "\n" for r in records))
    return path


def sentences(seed: int, n: int = 12) -> str:
    """English prose of `n` lines that passes the rules: no phrase comes twice."""
    draw = random.Random(seed)
    words = ["the", "and", "of", "that", "with", "to", "have", "be", *THINGS, *PEOPLE, *MORE]
    return "\n".join(
        f"The {' '.join(draw.choice(words) for _ in range(14))} was {draw.choice(MORE)}."
        for _ in range(n)
    )
