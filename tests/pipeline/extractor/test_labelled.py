"""Labelled pages: what is read, what is counted, what is refused with a sentence."""

from __future__ import annotations

import gzip
import json
from pathlib import Path
from typing import Any

import pytest

from pipeline.errors import GristmillError, UsageError
from pipeline.extractor.labelled import find_labelled
from tests.pipeline.warcs import response, write

LIMIT = 1 << 16
A, B, C = (f"https://{host}.example/" for host in "abc")


def write_gold(path: Path, *rows: dict[str, Any] | str) -> Path:
    lines = [row if isinstance(row, str) else json.dumps(row) for row in rows]
    path.write_text("\n".join(lines) + "\n", encoding="utf-8")
    return path


def test_rows_meet_their_pages(tmp_path: Path) -> None:
    gold: list[Any] = [
        {"url": A, "text": "eins"},
        {"url": B, "with": ["zwei"]},
        {"url": C, "text": "fehlt"},
    ]
    write_gold(tmp_path / "gold.jsonl", *gold, {"url": "d", "text": None, "with": []})
    latin = "HTTP/1.1 200 OK\r\nContent-Type: text/html; charset=iso-8859-1"
    write(tmp_path / "1.warc.gz", response("<p>eins", url=A), response("<p>other", url="x"))
    write(
        tmp_path / "2.warc",
        response("<p>zwei é".encode("latin-1"), url=f"<{B}>", head=latin),
        response("<p>eins again", url=A),
        response("<p>" + "c" * LIMIT, url=C),
        response(url=C, kind="request"),
    )
    (tmp_path / "README.md").write_text("not read")
    labelled = find_labelled([tmp_path])
    found = [(row["url"], html) for row, html in labelled.pages(LIMIT)]
    assert found == [(A, "<p>eins"), (B, "<p>zwei é")]
    assert labelled.counts == {
        "gold_rows": 3, "gold_without_label": 1, "gold_without_page": 1,
        "pages_without_gold": 1, "pages_repeated": 1, "pages_unreadable": 1,
        "damaged_stretches": 0,
    }  # fmt: skip


def test_files_may_be_named_one_by_one_and_packed(tmp_path: Path) -> None:
    packed = tmp_path / "gold.jsonl.gz"
    packed.write_bytes(gzip.compress(json.dumps({"url": A, "text": "eins"}).encode()))
    warc = write(tmp_path / "1.warc", response("<p>eins", url=A))
    assert len(list(find_labelled([warc, packed]).pages(LIMIT))) == 1
    assert len(list(find_labelled([tmp_path, packed]).pages(LIMIT))) == 1


@pytest.mark.parametrize(
    ("names", "message"),
    [
        (["absent"], "absent is not there"),
        (["a.warc"], "no gold"),
        (["gold.jsonl"], "no WARC file"),
        (["notes.txt"], "neither a WARC nor a gold file"),
        (["empty"], "no WARC file"),
    ],
)
def test_what_is_not_labelled_is_a_wrong_argument(
    tmp_path: Path, names: list[str], message: str
) -> None:
    write(tmp_path / "a.warc", response(url=A))
    write_gold(tmp_path / "gold.jsonl", {"url": A, "text": "eins"})
    (tmp_path / "notes.txt").touch()
    (tmp_path / "empty").mkdir()
    with pytest.raises(UsageError, match=message) as caught:
        find_labelled([tmp_path / name for name in names])
    assert caught.value.hint


@pytest.mark.parametrize(
    ("rows", "message"),
    [
        (["{"], "line 1 is no JSON"),
        ([{"url": A, "text": "eins"}, "[]"], "line 2 has no `url`"),
        ([{"text": "eins"}], "has no `url`"),
        ([{"url": A, "text": 1}], "`text` is no string"),
        ([{"url": A, "with": "eins"}], "`with` is no list"),
        ([{"url": A, "without": [1]}], "`without` is no list"),
        ([{"url": A, "text": "eins"}, {"url": A, "text": "zwei"}], "labelled twice"),
        ([{"url": A, "text": ""}], "has a text or segments"),
        ([], "has a text or segments"),
    ],
)
def test_bad_gold_is_named_by_its_line(tmp_path: Path, rows: list[Any], message: str) -> None:
    write(tmp_path / "a.warc", response(url=A))
    write_gold(tmp_path / "gold.jsonl", *rows)
    with pytest.raises(GristmillError, match=message) as caught:
        find_labelled([tmp_path])
    assert caught.value.hint


def test_bytes_that_are_no_text_are_refused(tmp_path: Path) -> None:
    write(tmp_path / "a.warc", response(url=A))
    for name, content in (("gold.jsonl", b"\xff\xfe"), ("gold.jsonl.gz", b"no gzip")):
        gold = tmp_path / name
        gold.write_bytes(content)
        with pytest.raises(GristmillError, match="cannot be read as JSONL"):
            find_labelled([tmp_path / "a.warc", gold])


def test_gold_of_other_pages_is_refused(tmp_path: Path) -> None:
    write(tmp_path / "a.warc", response(url=A))
    write_gold(tmp_path / "gold.jsonl", {"url": B, "text": "eins"})
    with pytest.raises(GristmillError, match="none of the 1 gold rows has a page") as caught:
        list(find_labelled([tmp_path]).pages(LIMIT))
    assert B in str(caught.value)


def test_damage_is_counted(tmp_path: Path) -> None:
    write(tmp_path / "a.warc", response(url=A), response(url=B))
    cut = (tmp_path / "a.warc").read_bytes()[:-40]
    (tmp_path / "a.warc").write_bytes(cut)
    write_gold(tmp_path / "gold.jsonl", {"url": A, "text": "eins"})
    labelled = find_labelled([tmp_path])
    assert len(list(labelled.pages(LIMIT))) == 1
    assert labelled.counts["damaged_stretches"] == 1
