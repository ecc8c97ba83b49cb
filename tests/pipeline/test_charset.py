from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pipeline.charset import LABELS, clean, decode, known, meta_charset

GERMAN = "<p>Der Müller öffnete früh die Schleuse, während die Bäckerin süße Brötchen trug.</p>"
RUSSIAN = "<p>Старая мельница стояла у реки, и каждое утро рыбаки выходили к воде.</p>"
KOREAN = "<p>오래된 물레방아는 강가에 서 있었고 어부들은 매일 아침 물가로 나갔다.</p>"
JAPANESE = "<p>古い水車小屋は川のそばに立っていて、漁師たちは毎朝水辺に出かけた。</p>"


@pytest.mark.parametrize(
    ("text", "codec", "declared", "name"),
    [
        (GERMAN, "utf-8", None, "utf-8"),
        (GERMAN, "utf-8", "iso-8859-1", "utf-8"),
        (GERMAN, "latin-1", "ISO-8859-1", "windows-1252"),
        (GERMAN, "latin-1", None, "windows-1252"),
        (GERMAN + "“”", "cp1252", "latin1", "windows-1252"),
        (RUSSIAN, "cp1251", "windows-1251", "windows-1251"),
        (RUSSIAN, "cp1251", "utf-8", "windows-1251"),
        (RUSSIAN, "koi8-r", "koi8-r", "koi8-r"),
        (KOREAN, "euc-kr", "ks_c_5601-1987", "euc-kr"),
        (KOREAN, "euc-kr", "utf-8", "euc-kr"),
        (JAPANESE, "cp932", "x-sjis", "shift_jis"),
        (JAPANESE, "iso-2022-jp", "iso-2022-jp", "iso-2022-jp"),
        ("<p>汉字 和 漢字</p>", "gb18030", "gb2312", "gb18030"),
        (GERMAN, "utf-16", None, "utf-16le"),
        (GERMAN, "utf-16-be", "utf-16", "utf-16be"),
        (GERMAN, "utf-8-sig", "windows-1252", "utf-8"),
    ],
)
def test_text_comes_back_whatever_was_declared(
    text: str, codec: str, declared: str | None, name: str
) -> None:
    assert decode(text.encode(codec), declared) == (text, name)


@pytest.mark.parametrize(
    "tag",
    [
        '<meta charset="windows-1251">',
        "<META http-equiv=Content-Type content='text/html; charset=windows-1251'>",
        '<?xml version="1.0" encoding="windows-1251"?>',
    ],
)
def test_the_page_may_say_it_itself(tag: str) -> None:
    page = (tag + RUSSIAN).encode("cp1251")
    assert meta_charset(page) == "windows-1251"
    assert decode(page) == (tag + RUSSIAN, "windows-1251")


def test_one_bad_byte_keeps_the_rest_utf_8() -> None:
    page = "<p>Übersicht – naïve caf".encode() + b"\xe9 </p>"
    text, name = decode(page, "utf-8")
    assert name == "utf-8"
    assert text == "<p>Übersicht – naïve caf\ufffd </p>"


def test_a_character_cut_at_the_end_keeps_utf_8_undeclared() -> None:
    text, name = decode((GERMAN + "ü").encode()[:-1])
    assert (name, text.count("\ufffd")) == ("utf-8", 1)


def test_a_declaration_that_nothing_bears_out_falls_to_the_detector() -> None:
    page = RUSSIAN.encode("cp1251")
    assert decode(page, "shift_jis")[1] == "windows-1251"
    assert decode(page, "no-such-charset")[1] == "windows-1251"


@pytest.mark.parametrize("label", ["base64", "rot13", "utf-7", "idna", "", "unicode_escape"])
def test_codecs_that_are_no_charsets_are_refused(label: str) -> None:
    assert known(label) is None


def test_every_label_has_a_codec() -> None:
    for name in set(LABELS.values()):
        assert decode(b"<p>plain</p>", name)[0] == "<p>plain</p>"


def test_controls_go_and_line_ends_are_newlines() -> None:
    assert clean("\ufeffa\x00b\x07\x1bc\td\r\ne\rf\x0cg\n") == "abc\td\ne\nf\ng\n"


@given(st.binary(max_size=400), st.sampled_from([None, "utf-8", "big5", "euc-jp", "utf-16"]))
def test_any_bytes_become_clean_text(data: bytes, declared: str | None) -> None:
    text, _ = decode(data, declared)
    text.encode()
    assert not any(ord(c) < 32 and c not in "\t\n" for c in text)


@given(st.text(max_size=200))
def test_utf_8_is_never_misread(text: str) -> None:
    expected = clean(text)
    if text.encode()[:3] != b"\xef\xbb\xbf" and text.count("\x00") * 8 < len(text.encode()):
        assert decode(text.encode(), "windows-1252")[0] == expected
