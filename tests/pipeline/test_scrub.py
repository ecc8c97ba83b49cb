"""Personal data: what is found, what is left alone, what stands in its place."""

from __future__ import annotations

import json
import re
from typing import Any

import polars as pl
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pipeline.config.scrub import ScrubConfig
from pipeline.edits import trace_back
from pipeline.scrub.addresses import is_public
from pipeline.scrub.kinds import GATES, find, hot
from pipeline.scrub.numbers import iban_is_valid, luhn
from pipeline.scrub.replace import PEER_EMAILS, PEER_IPS, PLACEHOLDERS
from pipeline.scrub.run import SPANS, scrub_documents

FOUND = {
    "email": [
        "jane.doe@corp.example", "a+b@sub.mail.co.uk", "José@exämple.com", "o'neil@irish.ie",
        "mailto:sales@shop.io?subject=x", "first_last@x.museum", "bob [at] site [dot] org",
        "<me@163.com>", "bob@site.org:",
    ],
    "ip": [
        "8.8.8.8", "93.184.216.34:8080", "http://1.1.1.1/", "2001:4860:4860::8888", "192.0.2.7",
        "[2001:db8::1]:443", "server 5.6.7.8", "12.34.56.0/24", "8.8.8.8 - - [10/Oct/2000]",
    ],
    "phone": [
        "+1 650-253-0000", "+44 20 7031 3000", "(650) 253-0000", "+33 1 42 68 53 00",
        "+81-3-6384-9000", "650-253-0000", "Tel: 650 253 0000",
    ],
    "card": [
        "4111 1111 1111 1111", "5500-0000-0000-0004", "378282246310005", "4111 1111 1111 1111 12/25"
    ],
    "iban": [
        "DE89370400440532013000", "GB29 NWBK 6016 1331 9268 19", "GB29 NWBK 6016 1331 9268 19 AND"
    ],
    "secret": [
        "AKIAIOSFODNN7EXAMPLE", "ghp_" + "a1B2c3D4e5F6" * 3, "sk_live_4eC39HqLyjWDarjtT1zdp7dc",
        "xoxb-123456789012-abcdefABCDEF", "AIza" + "Sy0123456789-_abcdefghijklmnopqrstu",
        "aws_secret_access_key = wJalrXUtnFEMI/K7MDENG/bPxRfiCYEXAMPLEKEY",
        "-----BEGIN RSA PRIVATE KEY-----\nMIIEowIBAAKCAQEA\n-----END RSA PRIVATE KEY-----",
    ],
}  # fmt: skip
LEFT = [
    "git@github.com:foo/bar.git", "git@host:path", "bob@host.example:/var/www", "printf@plt",
    "foo@", "include@1.0.0", "logo@2x.png", "x@self.weights", "https://u:p@host.com/x",
    "user@localhost", "10.0.0.1", "192.168.1.1", "127.0.0.1", "224.0.0.1", "169.254.1.1",
    "255.255.255.0", "0.0.0.0", "version 91.2.3.4", "v91.2.3.4", "OID 1.3.6.1.4.1", "1.2.3.4.5.6",
    "section 3.11.2.6", "OpenWidget 91.84.71.3", "libfoo==91.1.1.3", "10.0.19041.388",
    "foo-91.2.3.4.tar.gz", "a::b", "std::abs", "fe80::1", "::1", "12:30:45", "00:1a:2b:3c:4d:5e",
    "year 2006::", "2022-09-22 10:00:00", "(2022-09-22 10:00:00)", "1234567890123",
    "pages 1200-1300", "call 1-000-000-0000", "4111 1111 1111 1112", "1234567890123456",
    "0.4111111111111111", "DE00370400440532013000", "AB12CDEFGHIJKLMNOP", "AKIA", "sk_live_",
    "-----BEGIN PUBLIC KEY-----",
]  # fmt: skip


def cells() -> list[tuple[str, str]]:
    return [(kind, text) for kind, texts in FOUND.items() for text in texts]


def scrub(*texts: str | None, config: ScrubConfig | None = None, **columns: Any) -> Any:
    ids = [f"d{i}" for i in range(len(texts))]
    frame = pl.DataFrame(
        {"doc_id": ids, "text": texts, **columns}, schema_overrides={"text": pl.String}
    )
    return scrub_documents(frame, config or ScrubConfig())


@pytest.mark.parametrize(("kind", "text"), cells())
def test_found(kind, text):
    result = scrub(f"We see {text} there.")
    edited = result.tables["parts"]["text"][0]
    assert PLACEHOLDERS[kind] in edited
    assert result.extra == {"findings": {kind: 1}, "documents_edited": 1}
    detail = json.loads(result.tables["decisions"]["detail"][0])
    assert detail == {"replaced": {kind: 1}}


@pytest.mark.parametrize("text", LEFT)
def test_left_alone(text):
    result = scrub(f"We see {text} there.")
    assert result.tables["parts"]["text"][0] == f"We see {text} there."
    assert result.tables["parts"]["edits"][0] is None
    assert result.tables["decisions"]["detail"][0] is None


@pytest.mark.parametrize(
    ("text", "rest"),
    [
        ("Write to bob@site.org.", "Write to <EMAIL>."),
        ("(bob@site.org, amy@site.org)", "(<EMAIL>, <EMAIL>)"),
        ("'bob@site.org'", "'<EMAIL>'"),
        ("in 2020 4111 1111 1111 1111", "in 2020 <CARD>"),
        ("in 1990 650-253-0000", "in 1990 <PHONE>"),
        ("in 1990 (650) 253-0000 2021", "in 1990 <PHONE> 2021"),
        ("Card 4111 1111 1111 1111 12/25", "Card <CARD> 12/25"),
        ("host 203.0.113.77:80/x", "host <IP>:80/x"),
        ("Phone: +1 (703) 827-2606.  Fax: +1 (703) 827-5560.", "Phone: <PHONE>.  Fax: <PHONE>."),
    ],
)
def test_what_stands_around_it_stays(text, rest):
    assert scrub(text).tables["parts"]["text"][0] == rest


def test_numbers_without_country_code_follow_the_language():
    texts = ["Tél. : 01 42 68 53 00", "Tél. : 01 42 68 53 00", "650-253-0000"]
    edited = scrub(*texts, language=["fr", "en", "fr"]).tables["parts"]["text"].to_list()
    assert edited == ["Tél. : <PHONE>", "Tél. : 01 42 68 53 00", "650-253-0000"]


def test_code_keeps_its_numbers_and_languages_can_keep_kinds():
    texts = ["+1 650-253-0000 bob@site.org"] * 3
    config = ScrubConfig(keep_in_languages={"de": ["email"]})
    result = scrub(*texts, config=config, source=["code", None, None], language=[None, None, "de"])
    assert result.tables["parts"]["text"].to_list() == [
        "+1 650-253-0000 <EMAIL>", "<PHONE> <EMAIL>", "<PHONE> bob@site.org"
    ]  # fmt: skip


@pytest.mark.parametrize("kind", PLACEHOLDERS)
def test_each_kind_can_be_off(kind):
    text = " and ".join(texts[0] for texts in FOUND.values())
    result = scrub(text, config=ScrubConfig(**{kind: False}))
    assert set(result.extra["findings"]) == set(PLACEHOLDERS) - {kind}


def test_fake_values_are_stable_and_nobodys():
    text = " ; ".join(texts[0] for texts in FOUND.values()) + " ; 2001:4860:4860::8888"
    config = ScrubConfig(mode="fake")
    first, second = scrub(text, f"Again {text}", config=config).tables["parts"]["text"]
    assert second == f"Again {first}"
    email, ip, phone, card, iban, secret, ip6 = first.split(" ; ")
    assert email.endswith("@example.com")
    assert ip.startswith(("192.0.2.", "198.51.100.", "203.0.113."))
    assert re.fullmatch(r"\+1 \d{3}-555-01\d\d", phone)
    assert not luhn(card)
    assert iban.startswith("DE00")
    assert not iban_is_valid(iban)
    assert secret.startswith("EXAMPLE_SECRET_")
    assert ip6.startswith("2001:db8:")
    other = scrub(text, config=ScrubConfig(mode="fake", seed="another"))
    assert other.tables["parts"]["text"][0] != first


def test_peer_mode_takes_values_in_turn_over_the_part():
    texts = ["a@b.co c@d.co", "nothing", "e@f.co 8.8.8.8 10.0.0.1 version 9.9.9.9 +1 650-253-0000"]
    result = scrub(*texts, config=ScrubConfig(mode="fineweb"))
    assert result.tables["parts"]["text"].to_list() == [
        " ".join(PEER_EMAILS),
        "nothing",
        f"{PEER_EMAILS[0]} {PEER_IPS[0]} 10.0.0.1 version {PEER_IPS[1]} +1 650-253-0000",
    ]
    assert result.extra["findings"] == {"email": 3, "ip": 2}


@pytest.mark.bench
def test_peer_mode_writes_what_the_peer_writes():
    pii = pytest.importorskip("datatrove.pipeline.formatters.pii")
    formatter = pii.PIIFormatter()
    texts = [f"We see {text} there, {text}" for _, text in cells()] + LEFT
    edited = scrub(*texts, config=ScrubConfig(mode="fineweb")).tables["parts"]["text"].to_list()
    assert edited == [formatter.format(text) for text in texts]


PIECES = st.one_of(
    st.sampled_from([text for _, text in cells()]),
    st.sampled_from(LEFT),
    st.text(alphabet="aé日 .@:-+(1\n", max_size=12),
)
TEXTS = st.lists(PIECES, max_size=6).map(" ".join)


@settings(max_examples=100, deadline=None)
@given(TEXTS, st.sampled_from(["placeholder", "fake", "fineweb"]))
def test_edits_lead_every_kept_byte_back(text, mode):
    parts = scrub(text, config=ScrubConfig(mode=mode)).tables["parts"]
    new, old, edits = parts["text"][0].encode(), text.encode(), parts["edits"].to_list()[0]
    if edits is None:
        assert new == old
        return
    for span in edits:
        copied = new[span["out"] : span["out"] + span["length"]]
        assert copied == old[span["in"] : span["in"] + span["length"]]
    assert new != old


@settings(max_examples=100, deadline=None)
@given(TEXTS)
def test_scrubbed_text_is_clean(text):
    once = scrub(text).tables["parts"]["text"][0]
    # a quad is judged by the words around it, which scrubbing changes
    assert set(scrub(once).extra["findings"]) <= {"ip"}


@settings(max_examples=100, deadline=None)
@given(TEXTS, st.sampled_from(["en", "fr", None]))
def test_no_gate_is_stricter_than_its_finder(text, language):
    passed = pl.DataFrame({"text": [text]}).select(hot("text", GATES)).row(0, named=True)
    for kind in GATES:
        if find(text, [kind], language):
            assert passed[kind], kind


def test_edits_are_composed_with_those_before():
    earlier = [{"out": 0, "in": 10, "length": 40}]
    columns = {"edits": pl.Series([earlier, earlier, None], dtype=SPANS)}
    texts = ["Ask bob@site.org now", "nothing to see here", "nothing here either"]
    edits = scrub(*texts, **columns).tables["parts"]["edits"].to_list()
    assert edits[0] == [
        {"out": 0, "in": 10, "length": 4}, {"out": 11, "in": 26, "length": 4}
    ]  # fmt: skip
    assert trace_back(edits[0], 12) == 27
    assert trace_back(edits[0], 5) is None
    assert edits[1:] == [earlier, None]


def test_columns_rows_and_order_stay():
    result = scrub("a", None, "", "b", tag=[1, 2, 3, 4])
    parts = result.tables["parts"]
    assert parts.columns == ["doc_id", "text", "tag", "edits"]
    assert parts["tag"].to_list() == [1, 2, 3, 4]
    assert parts["text"].to_list() == ["a", None, "", "b"]
    assert result.tables["decisions"]["kept"].all()
    assert result.tables["decisions"]["stage"].unique().to_list() == ["scrubbed_corpus"]
    assert scrub().tables["decisions"].height == 0


@pytest.mark.parametrize(
    ("address", "public"),
    [
        ("203.0.113.77", True), ("9.9.9.9", True), ("2606:4700::1111", True), ("2001:db8::1", True),
        ("172.16.0.1", False), ("239.1.1.1", False), ("fd00::1", False), ("1.2.3", False),
    ],
)  # fmt: skip
def test_public_addresses(address, public):
    assert is_public(address) is public


@pytest.mark.shared
def test_versions_stay_and_documentation_addresses_go(shared):
    lines = (shared / "cases/pii/versions.jsonl").read_text(encoding="utf-8").splitlines()
    v1, v2 = (json.loads(line)["text"] for line in lines)
    edited = scrub(v1, v2).tables["parts"]["text"].to_list()
    assert edited[0] == v1
    assert "203.0.113.77" not in edited[1]
    assert "198.51.100.23" not in edited[1]
    assert edited[1].count("<IP>") == 2
