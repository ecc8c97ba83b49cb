"""Finder of secret keys: what services issue with a prefix of their own, and private keys."""

from __future__ import annotations

import re
from collections.abc import Iterator

Span = tuple[int, int]

PREFIXED = re.compile(
    r"(?<![A-Za-z0-9_])(?:"
    r"(?:AKIA|ASIA)[0-9A-Z]{16}"  # AWS access key
    r"|gh[pousr]_[A-Za-z0-9]{36,251}|github_pat_[A-Za-z0-9_]{22,255}"  # GitHub
    r"|(?:sk|rk)_(?:live|test)_[A-Za-z0-9]{16,247}"  # Stripe
    r"|xox[abeoprs]-[A-Za-z0-9-]{10,250}"  # Slack
    r"|AIza[0-9A-Za-z_-]{35}"  # Google
    r")(?![A-Za-z0-9_])"
)
AWS_SECRET = re.compile(
    r"aws_?secret(?:_?access)?_?key[\"'\s:=]{1,5}([A-Za-z0-9/+]{40})(?![A-Za-z0-9/+=])",
    re.IGNORECASE,
)
BEGIN = r"-----BEGIN (?:[A-Z0-9]+ ){0,3}PRIVATE KEY(?: BLOCK)?-----"
END = r"-----END (?:[A-Z0-9]+ ){0,3}PRIVATE KEY(?: BLOCK)?-----"
PEM = re.compile(rf"{BEGIN}(?:[^-]{{0,10000}}{END}|(?:\s+[A-Za-z0-9+/=]{{16,}})*)")


def secrets(text: str) -> Iterator[Span]:
    """Keys of AWS, GitHub, Google, Slack and Stripe; PEM private keys with their body."""
    for match in PREFIXED.finditer(text):
        yield match.span()
    for match in AWS_SECRET.finditer(text):
        yield match.span(1)
    for match in PEM.finditer(text):
        yield match.span()
