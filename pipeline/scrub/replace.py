"""What stands in place of personal data, and the text around it.

`placeholder` writes the kind in angle brackets, which no language model confuses with data.
`fake` writes a value that is nobody's: reserved domains, networks and telephone numbers, cards and
IBANs whose check digits are wrong. It is derived from the original with a secret seed, so that the
same address stays the same person throughout the corpus. `Peer` is datatrove's PIIFormatter.
"""

from __future__ import annotations

import hashlib
import ipaddress
import re
from collections.abc import Callable, Iterable
from itertools import cycle

from pipeline.edits import Edits, compose, span
from pipeline.scrub.kinds import Found
from pipeline.scrub.numbers import luhn

PLACEHOLDERS = {
    "email": "<EMAIL>",
    "phone": "<PHONE>",
    "ip": "<IP>",
    "card": "<CARD>",
    "iban": "<IBAN>",
    "secret": "<SECRET>",
}

Substitute = Callable[[str, str], str]
"""(kind, original) -> what is written instead."""


def placeholder(kind: str, original: str) -> str:
    """The kind in angle brackets, whatever the original."""
    return PLACEHOLDERS[kind]


def faker(seed: str) -> Substitute:
    """Fake values that depend on the seed and the original only."""
    key = hashlib.blake2b(seed.encode(), digest_size=32).digest()

    def fake(kind: str, original: str) -> str:
        plain = re.sub(r"[\s().-]", "", original).lower() if kind != "secret" else original
        digest = hashlib.blake2b(f"{kind}\0{plain}".encode(), key=key, digest_size=16).hexdigest()
        return FAKES[kind](original, digest)

    return fake


AREA_CODES = ("202", "212", "303", "404", "415", "503", "602", "617", "713", "808")
DOCUMENTATION = ("192.0.2", "198.51.100", "203.0.113")


def _fake_phone(_: str, digest: str) -> str:
    number = int(digest, 16)
    area = AREA_CODES[number // 100 % len(AREA_CODES)]
    return f"+1 {area}-555-01{number % 100:02}"  # 555-0100 to 0199 are reserved for fiction


def _fake_ip(original: str, digest: str) -> str:
    number = int(digest, 16)
    if ":" in original:
        return str(ipaddress.IPv6Address((0x20010DB8 << 96) | (number & (2**64 - 1))))
    return f"{DOCUMENTATION[number // 254 % 3]}.{number % 254 + 1}"


def _fake_card(_: str, digest: str) -> str:
    body = f"400000{int(digest, 16) % 10**9:09}"
    check = next(d for d in "0123456789" if luhn(body + d))
    return body + str((int(check) + 1) % 10)


def _fake_iban(original: str, digest: str) -> str:
    plain = original.replace(" ", "")
    digits = str(int(digest, 16)).zfill(40)
    return f"{plain[:2]}00{digits[: len(plain) - 4]}"  # valid check digits run from 02 to 98


FAKES: dict[str, Substitute] = {
    "email": lambda _, digest: f"user.{digest[:12]}@example.com",
    "phone": _fake_phone,
    "ip": _fake_ip,
    "card": _fake_card,
    "iban": _fake_iban,
    "secret": lambda _, digest: f"EXAMPLE_SECRET_{digest}",
}


def rewrite(text: str, parts: Iterable[tuple[int, int, str]]) -> tuple[str, Edits]:
    """`text` with characters `begin .. end` replaced, ascending and disjoint; and the span map."""
    out: list[str] = []
    edits: Edits = []
    at = new = old = 0  # characters read; bytes written and read
    for begin, end, instead in [*parts, (len(text), len(text), "")]:
        kept = text[at:begin]
        length = len(kept.encode())
        if length:
            edits.append(span(new, old, length))
        out += (kept, instead)
        new += length + len(instead.encode())
        old += length + len(text[begin:end].encode())
        at = end
    return "".join(out), edits


def replace(text: str, found: Iterable[Found], substitute: Substitute) -> tuple[str, Edits]:
    """`text` with what was found replaced, and the span map from it to `text`."""
    return rewrite(
        text,
        ((f.begin, f.end, substitute(f.kind, text[f.begin : f.end])) for f in found),
    )


OCTET = "(?:25[0-5]|2[0-4][0-9]|[01]?[0-9][0-9]?)"
ATOM = "[A-Za-z0-9!#$%&'*+/=?^_`{|}~-]+"
LABEL = "[A-Za-z0-9](?:[A-Za-z0-9-]*[A-Za-z0-9])?"
PEER_EMAIL = re.compile(
    rf"\b{ATOM}(?:\.{ATOM})*@(?:(?:{LABEL}\.)+{LABEL}"
    rf"|\[(?:{OCTET}\.){{3}}(?:{OCTET}|[A-Za-z0-9-]*[A-Za-z0-9]:)])"
)
PEER_IP = re.compile(rf"(?:{OCTET}\.){{3}}{OCTET}")
PEER_EMAILS = ("email@example.com", "firstname.lastname@example.org")
PEER_IPS = (
    "22.214.171.124", "126.96.36.199", "188.8.131.52",
    "184.108.40.206", "220.127.116.11", "18.104.22.168",
)  # fmt: skip
PEER_GATES = {
    "email": r"[A-Za-z0-9!#$%&'*+/=?^_`{|}~-]@",
    "ip": r"[0-9]\.[0-9]{1,3}\.[0-9]{1,3}\.[0-9]",
}


class Peer:
    """E-mail and public IPv4 as datatrove 0.10.1 replaces them, values taken in turn.

    Patterns and values are the peer's (Apache-2.0). The turn goes on from text to text, so texts
    have to come in order; one instance serves one part.
    """

    def __init__(self) -> None:
        self._emails = cycle(PEER_EMAILS)
        self._ips = cycle(PEER_IPS)

    def __call__(self, text: str, kinds: Iterable[str]) -> tuple[str, Edits | None, dict[str, int]]:
        """The new text, the span map to `text` (None: nothing replaced), counts by kind."""
        edits: Edits | None = None
        counts: dict[str, int] = {}
        for kind, pattern, values in (
            ("email", PEER_EMAIL, self._emails),
            ("ip", PEER_IP, self._ips),
        ):
            if kind not in kinds:
                continue
            parts = [
                (*match.span(), next(values))
                for match in pattern.finditer(text)
                if kind == "email" or _is_global(match[0])
            ]
            if parts:
                text, later = rewrite(text, parts)
                edits = compose(later, edits)
                counts[kind] = len(parts)
        return text, edits, counts


def _is_global(value: str) -> bool:
    try:
        return ipaddress.ip_address(value).is_global
    except ValueError:
        return False
