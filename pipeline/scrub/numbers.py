"""Finders of phone numbers, payment cards and IBANs: a shape, then the number's own check."""

from __future__ import annotations

import re
from collections.abc import Iterator

Span = tuple[int, int]

REGIONS = {
    "ar": "EG", "bg": "BG", "ca": "ES", "cs": "CZ", "da": "DK", "de": "DE", "el": "GR", "en": "US",
    "es": "ES", "et": "EE", "fa": "IR", "fi": "FI", "fr": "FR", "he": "IL", "hi": "IN", "hr": "HR",
    "hu": "HU", "id": "ID", "it": "IT", "ja": "JP", "ko": "KR", "lt": "LT", "lv": "LV", "nb": "NO",
    "nl": "NL", "no": "NO", "pl": "PL", "pt": "BR", "ro": "RO", "ru": "RU", "sk": "SK", "sl": "SI",
    "sr": "RS", "sv": "SE", "th": "TH", "tr": "TR", "uk": "UA", "vi": "VN", "zh": "CN",
}  # fmt: skip
"""Where a number without a country code is looked up, by the language of its page."""

SHAPE = re.compile(r"(?<![\w.+/=-])\+?\(?\d[\d\u00a0 ()./\u2010-\u2013-]{5,22}\d(?!\w)")
NORTH_AMERICAN = re.compile(r"\d{3}[-.]\d{3}[-.]\d{4}(?!\d)")
DATE = re.compile(r"\(?(?:19|20)\d\d([-./])\d\d?\1\d")
LABEL = re.compile(
    r"(?:\b(?:tele?(?:phone|fon|fono|fax)?|tél(?:éphone)?|teléfono|phone|fax|mobile?|cell|handy|call)"
    r"|☎|電話|电话|전화)[.:]?[ \t]{0,8}(?:no\.?|number|n°|nr\.?|numéro)?[ \t:=.]{0,8}\Z",
    re.IGNORECASE,
)
LABEL_LENGTH = 40
SHORTEST = 7
INNER = re.compile(r"[+(]|(?<= )\d{3}[-.]\d{3}[-.]\d{4}(?!\d)")


def phones(text: str, language: str | None) -> Iterator[Span]:
    """Phone numbers that are valid in the numbering plan of their country.

    With a country code anywhere; without one only in brackets, after a label, or in the North
    American form, in the country of the page's language.
    """
    region = REGIONS.get(language or "en")
    match = SHAPE.search(text)
    while match:
        begin, number = match.start(), match[0]
        found: list[Span] = []
        if not DATE.match(number) and (
            number[0] in "+("
            or (region == "US" and NORTH_AMERICAN.match(number))
            or LABEL.search(text, max(begin - LABEL_LENGTH, 0), begin)
        ):
            found = _valid(number, begin, region)
            yield from found
        # `1990 (650) 253-0000`: another may begin inside
        inner = INNER.search(number, 1)
        resume = begin + inner.start() if inner else match.end()
        match = SHAPE.search(text, found[-1][1] if found else resume)


def _valid(number: str, begin: int, region: str | None) -> list[Span]:
    import phonenumbers  # 0.2 s

    while len(number) >= SHORTEST:
        matches = phonenumbers.PhoneNumberMatcher(number, region)
        if found := [(begin + each.start, begin + each.end) for each in matches]:
            return found
        # `+44 20 7031 3000 2024`: figures that follow may not belong to it
        number = number[: max(number.rfind(" "), 0)]
    return []


CARD = re.compile(
    r"(?<![\w./-])(?:[3-6]\d{12,18}|[3-6]\d{3}([ -])\d{4}(?:\1\d{4}){2}(?:\1\d{3})?"
    r"|3\d{3}([ -])\d{6}\2\d{4,5})(?![\w-])"
)
"""In one run or in the groups that are printed on cards: 4-4-4-4(-3), 4-6-5, 4-6-4."""
ISSUERS = re.compile(
    r"4(?:\d{12}|\d{15}|\d{18})"  # Visa
    r"|(?:5[1-5]\d\d|222[1-9]|22[3-9]\d|2[3-6]\d\d|27[01]\d|2720)\d{12}"  # Mastercard
    r"|3[47]\d{13}"  # American Express
    r"|3(?:0[0-5]|[689]\d)\d{11}"  # Diners Club
    r"|35(?:2[89]|[3-8]\d)\d{12}"  # JCB
    r"|6(?:011|4[4-9]\d|5\d\d)\d{12}"  # Discover
    r"|62\d{14,17}"  # UnionPay
)


def cards(text: str) -> Iterator[Span]:
    """Payment card numbers: an issuer's prefix and length, and the check digit of Luhn."""
    match = CARD.search(text)
    while match:
        length = _card_length(match[0])
        if length:
            yield match.start(), match.start() + length
        match = CARD.search(text, match.start() + max(length, 1))


def _card_length(number: str) -> int:
    """Characters of the card number that `number` begins with; 0 where it is none."""
    for length in range(len(number), 12, -1):
        whole = number[length - 1].isdigit() and not number[length : length + 1].isdigit()
        digits = re.sub(r"[ -]", "", number[:length])
        if whole and ISSUERS.fullmatch(digits) and luhn(digits):
            return length
    return 0


def luhn(digits: str) -> bool:
    """Whether the last of `digits` is the check digit of the others (ISO/IEC 7812)."""
    values = [int(digit) for digit in reversed(digits)]
    doubled = [sum(divmod(2 * value, 10)) for value in values[1::2]]
    return len(set(values)) > 1 and (sum(values[::2]) + sum(doubled)) % 10 == 0


IBAN = re.compile(r"(?<![A-Za-z0-9])[A-Z]{2}\d\d(?: ?[A-Z0-9]){11,30}")
IBAN_LENGTHS = {
    "AD": 24, "AE": 23, "AL": 28, "AT": 20, "AZ": 28, "BA": 20, "BE": 16, "BG": 22, "BH": 22,
    "BR": 29, "BY": 28, "CH": 21, "CR": 22, "CY": 28, "CZ": 24, "DE": 22, "DK": 18, "DO": 28,
    "EE": 20, "EG": 29, "ES": 24, "FI": 18, "FO": 18, "FR": 27, "GB": 22, "GE": 22, "GI": 23,
    "GL": 18, "GR": 27, "GT": 28, "HR": 21, "HU": 28, "IE": 22, "IL": 23, "IQ": 23, "IS": 26,
    "IT": 27, "JO": 30, "KW": 30, "KZ": 20, "LB": 28, "LC": 32, "LI": 21, "LT": 20, "LU": 20,
    "LV": 21, "LY": 25, "MC": 27, "MD": 24, "ME": 22, "MK": 19, "MR": 27, "MT": 31, "MU": 30,
    "NL": 18, "NO": 15, "PK": 24, "PL": 28, "PS": 29, "PT": 25, "QA": 29, "RO": 24, "RS": 22,
    "SA": 24, "SC": 31, "SE": 24, "SI": 19, "SK": 24, "SM": 27, "ST": 25, "SV": 28, "TL": 23,
    "TN": 24, "TR": 26, "UA": 29, "VA": 22, "VG": 24, "XK": 20,
}  # fmt: skip


def ibans(text: str) -> Iterator[Span]:
    """IBANs: the length of their country, and check digits (ISO 13616, mod 97)."""
    match = IBAN.search(text)
    while match:
        begin, resume = match.start(), match.start() + 1
        places = [i for i, char in enumerate(match[0]) if char != " "]
        length = IBAN_LENGTHS.get(match[0][:2], len(places) + 1)
        if length <= len(places):
            end = begin + places[length - 1] + 1
            if not text[end : end + 1].isalnum() and iban_is_valid(text[begin:end]):
                yield begin, end
                resume = end
        match = IBAN.search(text, resume)


def iban_is_valid(value: str) -> bool:
    """Whether the check digits of an IBAN (blanks allowed) are right."""
    plain = value.replace(" ", "")
    return int("".join(str(int(char, 36)) for char in plain[4:] + plain[:4])) % 97 == 1
