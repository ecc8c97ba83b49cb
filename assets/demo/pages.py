"""Pages written for this project in thirteen languages, and the text of the planted bad pages.

The prose stands in `pages.yaml`, so that it can be read and mended without reading code. The bad
pages (spam, thin pages, link lists, ...) are made here from word lists by a seeded generator: they
are what the rules of the filter stage are for, one kind a rule or two.
"""

import random
from dataclasses import dataclass
from html import escape
from importlib.resources import files

import yaml

SUBJECTS = (
    "watches",
    "sneakers",
    "loans",
    "casino",
    "tickets",
    "pills",
    "sunglasses",
    "handbags",
    "phones",
    "vitamins",
)
URGES = (
    "buy now",
    "limited offer",
    "best price",
    "click here",
    "free shipping",
    "100 % guaranteed",
    "act fast",
)
PLACES = (
    "Millbrook",
    "Ashford",
    "Redwater",
    "Stonebridge",
    "Elmhurst",
    "Fairhaven",
    "Oakdale",
    "Kingsmere",
)
OLD_CHARSETS = {"pl": "iso-8859-2", "ru": "windows-1251", "ja": "shift_jis", "zh": "gb18030"}
"""Encodings that the pages of `pages.yaml` without a licence are served in; else iso-8859-1."""
LOREM = (
    "Lorem ipsum dolor sit amet, consectetur adipiscing elit, sed do eiusmod tempor incididunt ut "
    "labore et dolore magna aliqua. Ut enim ad minim veniam, quis nostrud exercitation ullamco "
    "laboris nisi ut aliquip ex ea commodo consequat. Duis aute irure dolor in reprehenderit in "
    "voluptate velit esse cillum dolore eu fugiat nulla pariatur."
)


NAMES = ("Alice", "Benjamin", "Clara", "Dmitri", "Esther", "Farid", "Greta", "Hugo")
IBANS = ("DE89 3704 0044 0532 0130 00", "GB29 NWBK 6016 1331 9268 19")
CONTACT = (
    "The mill at {place} is open on the first Sunday of every month from April to October.",
    "If you would like to bring a group, please write to {mail} at least two weeks before.",
    "We are a small society and most of us have other work, so an answer can take a few days.",
    "When it is urgent you can call {name} on {phone} between six and eight in the evening.",
    "The wheel is turned by hand when the water is low, and children are welcome to help with it.",
    "Our gauge sends the level of the pond to {address} every ten minutes, day and night.",
    "The newer gauge at the bridge uses {six} and has not missed a reading since it was built.",
    "Whoever wants to support the repair of the roof can send something to the account {iban}.",
    "The shop has flour, postcards and a little book about the history of the river.",
    "The last customer tried to pay with the card {card}, which is a number for tests only.",
    "Parking is behind the church, and from there it is a walk of five minutes along the stream.",
    "{name} keeps the keys, knows every stone and is happy to tell you where the old dam was.",
    "Dogs have to wait outside, because the noise of the stones is too much for their ears.",
    "In winter the building is closed, since the steps are steep and there is ice on all of them.",
)


@dataclass(frozen=True)
class Page:
    """One page before it is put into a site's template."""

    host: str
    path: str
    title: str
    body: str
    """HTML of the main text."""
    kind: str
    """What it is there for: `package`, `topic`, `module`, `own`, or the kind of planted page."""
    language: str = "en"
    licence: str | None = None
    """Address of the licence that the page names with rel=license."""
    reservation: str | None = None
    """`noai` (robots meta), `tdm` (header and meta of the TDM reservation protocol), or None."""
    charset: str = "utf-8"

    @property
    def url(self) -> str:
        """Where the page lives."""
        return f"https://{self.host}{self.path}"


def own_pages() -> list[Page]:
    """The pages of `pages.yaml`, one host a language."""
    text = files("assets.demo").joinpath("pages.yaml").read_text("utf-8")
    return [_own_page(entry) for entry in yaml.safe_load(text)]


def _own_page(entry: dict[str, object]) -> Page:
    language, paragraphs = str(entry["language"]), entry["paragraphs"]
    assert isinstance(paragraphs, list)
    plain = entry.get("licence") is None
    return Page(
        host=f"{language}.millpond.example",
        path=f"/{language}/{entry['slug']}.html",
        title=str(entry["title"]),
        body=_paragraphs([str(paragraph) for paragraph in paragraphs]),
        kind="own",
        language=language,
        licence=_text_or_none(entry.get("licence")),
        reservation=_text_or_none(entry.get("reservation")),
        # the unlicensed half comes from older servers
        charset=OLD_CHARSETS.get(language, "iso-8859-1") if plain else "utf-8",
    )


def _text_or_none(value: object) -> str | None:
    return None if value is None else str(value)


def _paragraphs(texts: list[str]) -> str:
    return "\n".join(f"<p>{escape(text, quote=False)}</p>" for text in texts)


def contact_pages(rng: random.Random) -> list[Page]:
    """Readable pages full of personal data, every value from a range reserved for examples."""
    pages = []
    for index, place in enumerate(PLACES):
        name = rng.choice(NAMES)
        values = {
            "place": place, "name": name, "mail": f"{name.lower()}.{place.lower()}@example.com",
            "phone": f"+1 202-555-01{rng.randint(0, 99):02d}",
            "address": f"203.0.113.{rng.randint(1, 254)}", "six": f"2001:db8::{index + 1:x}",
            "card": "4111 1111 1111 1111", "iban": IBANS[index % len(IBANS)],
        }  # fmt: skip
        sentences = [sentence.format(**values) for sentence in CONTACT]
        picked = sorted(rng.sample(range(len(sentences)), len(sentences) - 3))
        third = len(picked) // 3
        groups = [picked[:third], picked[third : 2 * third], picked[2 * third :]]
        body = _paragraphs([" ".join(sentences[i] for i in group) for group in groups])
        host = f"{place.lower()}-mill.example"
        pages.append(Page(host, "/contact.html", f"How to reach the {place} mill", body, "contact"))
    return pages


def bad_pages(rng: random.Random) -> list[Page]:
    """The planted pages that the filters exist for; the same ones for the same `rng` state."""
    makers = {
        "spam": (_spam, 60), "thin": (_thin, 44), "links": (_links, 48), "lorem": (_lorem, 8),
        "brackets": (_brackets, 10), "numbers": (_numbers, 20), "bullets": (_bullets, 20),
        "repeated": (_repeated, 20), "ellipsis": (_ellipsis, 8), "shouting": (_shouting, 8),
        "empty": (_empty, 4),
    }  # fmt: skip
    pages = []
    for kind, (maker, count) in makers.items():
        for index in range(count):
            title, body = maker(rng)
            place = PLACES[index % len(PLACES)].lower()
            host = f"{place}-{kind}.example"
            pages.append(Page(host, f"/{kind}/{index:03d}.html", title, body, kind))
    return pages


def _spam(rng: random.Random) -> tuple[str, str]:
    subject, lines = rng.choice(SUBJECTS), []
    for _ in range(rng.randint(14, 26)):
        lines.append(f"{rng.choice(URGES)} {subject} {rng.choice(URGES)} {rng.choice(SUBJECTS)}")
    return f"Cheap {subject}!!! {rng.choice(URGES)}", _paragraphs(lines)


def _thin(rng: random.Random) -> tuple[str, str]:
    place = rng.choice(PLACES)
    text = f"The page about {place} number {rng.randint(1, 999)} is being written. Come back soon."
    return f"{place}: under construction", _paragraphs([text])


def _links(rng: random.Random) -> tuple[str, str]:
    items = [f"{rng.choice(PLACES)} {rng.choice(SUBJECTS)}" for _ in range(rng.randint(40, 70))]
    rows = "".join(f'<li><a href="/{i}.html">{item}</a></li>' for i, item in enumerate(items))
    return "All our partners", f"<ul>{rows}</ul>"


def _lorem(rng: random.Random) -> tuple[str, str]:
    place = rng.choice(PLACES)
    around = [
        f"Welcome to the new pages of the museum of {place}, which will open later this year.",
        "There will be an exhibition about the river and the people who have lived along it.",
        "We are looking for old photographs, and for the stories that belong to them.",
        f"If you have something to show, bring it to the town hall of {place} on a Saturday.",
        "The texts below are still missing, and we will fill them in before the opening.",
    ]
    rng.shuffle(around)
    return "Just another site", _paragraphs([*around, LOREM])


def _brackets(rng: random.Random) -> tuple[str, str]:
    names = [rng.choice(SUBJECTS) for _ in range(12)]
    code = "\n".join(
        f"function {name}_{i}(value) {{ if (value > {rng.randint(1, 99)}) {{ return value; }} }}"
        for i, name in enumerate(names)
    )
    text = "Paste this snippet into the page and reload it, and everything will work as before."
    return "Code snippet", f"<p>{text}</p><pre>{escape(code)}</pre>"


def _numbers(rng: random.Random) -> tuple[str, str]:
    rows = [" ".join(str(rng.randint(10, 99999)) for _ in range(9)) for _ in range(24)]
    return "Readings of the gauge", "<pre>" + "\n".join(rows) + "</pre>"


def _bullets(rng: random.Random) -> tuple[str, str]:
    rows = [
        f"- {rng.choice(SUBJECTS)} from {rng.choice(PLACES)}, lot {rng.randint(100, 999)}, sold"
        for _ in range(30)
    ]
    return "Stock list", _paragraphs(rows)


def _repeated(rng: random.Random) -> tuple[str, str]:
    line = f"The ferry to {rng.choice(PLACES)} leaves at {rng.randint(5, 11)} in the morning."
    other = f"It comes back from {rng.choice(PLACES)} in the evening, if the weather allows it."
    return "Timetable", _paragraphs([line, other] * rng.randint(9, 15))


def _ellipsis(rng: random.Random) -> tuple[str, str]:
    rows = [
        f"The story of {rng.choice(PLACES)} and the {rng.choice(SUBJECTS)} goes on and on ..."
        for _ in range(12)
    ]
    return "Latest stories", _paragraphs(rows)


def _shouting(rng: random.Random) -> tuple[str, str]:
    words = (
        "#",
        "sale",
        "#",
        "now",
        "#",
        "deal",
        "#",
        "win",
        "#",
        "hot",
        "#",
        "top",
        "#",
        "new",
        "#",
    )
    rows = [" ".join(rng.choice(words) for _ in range(30)) for _ in range(8)]
    return "#### HOT DEALS ####", _paragraphs(rows)


def _empty(rng: random.Random) -> tuple[str, str]:
    return f"{rng.choice(PLACES)}", '<div id="app"></div>'
