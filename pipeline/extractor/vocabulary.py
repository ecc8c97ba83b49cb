"""Tags, words of attributes and the columns of a block: the vocabulary of the compiled pass.

Plain NumPy, so that light code can name a column without a compiler. No word here is the name of
a web site or of a company. Texts are compared by FNV-1a hashes of 64 bits, in open tables.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray


def _list(words: str) -> list[str]:
    return words.split()


BLOCK, INLINE, VOID, SKIPPED, RAW = range(5)
"""Kinds of tags: one that ends a block, one inside a line, one without content, one skipped with
all it holds, and one whose content is text up to its end tag."""

BLOCK_TAGS = _list(
    "p div li td th tr table h1 h2 h3 h4 h5 h6 ul ol dl dt dd article main section header footer "
    "nav aside form fieldset figure figcaption blockquote pre details summary body html tbody "
    "thead tfoot caption center address title legend dialog noscript listing"
)
INLINE_TAGS = _list(
    "a abbr acronym b bdi bdo big cite code data del dfn em font i ins kbd label mark nobr q rp rt "
    "ruby s samp small span strike strong sub sup time tt u var button picture blink math msup "
    "msub mfrac msubsup annotation annotation-xml mjx-container mjx-assistive-mml"
)
VOID_TAGS = _list(
    "area base br col embed hr img input link meta param source track wbr basefont bgsound frame "
    "keygen"
)
SKIPPED_TAGS = _list(
    "head template svg select textarea object canvas video audio datalist map mjx-math"
)
RAW_TAGS = _list("script style iframe noembed noframes xmp plaintext")

TAGS = ["?", *BLOCK_TAGS, *INLINE_TAGS, *VOID_TAGS, *SKIPPED_TAGS, *RAW_TAGS]
"""By code. `?` is any other element; outside formulas it ends a block."""
TAG_CODE = {name: code for code, name in enumerate(TAGS)}
TAG_KIND = np.repeat(
    np.array([BLOCK, INLINE, VOID, SKIPPED, RAW], np.uint8),
    [1 + len(BLOCK_TAGS), len(INLINE_TAGS), len(VOID_TAGS), len(SKIPPED_TAGS), len(RAW_TAGS)],
)

WORDS = {
    "nav": "nav navbar navigation menu menus submenu breadcrumb breadcrumbs toolbar tabs "
    "pagination pager paging topbar skip menubar dropdown",
    "foot": "footer foot bottom colophon contentinfo copyright legal imprint",
    "head": "header masthead banner logo branding hdr top",
    "side": "sidebar aside widget widgets rail sidenav complementary secondary drawer right left "
    "toc",
    "comment": "comment comments commentlist reply replies respond feedback discussion responses",
    "review": "review reviews rating ratings testimonial testimonials stars faq question answer "
    "questions answers accordion",
    "related": "related recommend recommended recommendations recirc similar popular trending "
    "latest teaser teasers more readmore next previous prev also",
    "share": "share sharing social socials follow sharebar",
    "ad": "ad ads advert advertisement sponsor sponsored promo promotion banner affiliate",
    "article": "article story post entry articlebody blog news single hentry",
    "content": "content contents main body text txt copy richtext prose markdown wysiwyg rte "
    "wrapper page",
    "title": "title headline heading subtitle subheading hed name",
    "meta": "meta date time author byline tag tags category categories published timestamp info "
    "posted avatar profile user username signature dateline",
    "overlay": "cookie cookies consent gdpr modal popup overlay dialog newsletter subscribe "
    "subscription signup login register paywall account toast alert notice",
    "shop": "product products price prices cart basket checkout buy sku shop wishlist add qty "
    "variant variants shipping stock",
    "forum": "message messages thread threads topic topics forum postbody quote posts",
    "hidden": "hidden hide sr visually screenreader offscreen invisible assistive",
    "grid": "list grid card cards item items tile tiles row col column carousel slider slide "
    "swiper gallery results feed",
    "lead": "description summary intro lead lede abstract excerpt standfirst overview details "
    "about features specs specifications spec",
    "media": "image img figure caption photo video player media credit credits thumbnail icon",
    "search": "search filter filters sort facet facets form field input",
    "code": "code highlight syntax pre snippet gutter linenos docs doc documentation api",
    "hero": "hero jumbotron cta button btn buttons action actions feature section block module",
}
"""Words of class, id, role and itemprop values, by what they usually say about an element."""
GROUPS = list(WORDS)

GROUP_BITS = (1 << len(GROUPS)) - 1
HIDDEN, PREFORMATTED, REVERSED, GUTTER = 1 << 40, 1 << 41, 1 << 42, 1 << 43
"""Above the groups in an element's bits: not shown; keeps its blanks; a list that counts down;
perhaps the line numbers of a listing (they are where it holds digits only)."""
LINE, NUMBERS, JAX, PREVIEW = 1 << 44, 1 << 45, 1 << 46, 1 << 47
"""Halves of names: line numbers; the preview of a formula whose source follows."""
SPECIAL_WORDS = {
    **dict.fromkeys(_list("gutter lineno linenos linenumber linenumbers lnt ln"), GUTTER),
    **dict.fromkeys(_list("line lines"), LINE),
    **dict.fromkeys(_list("no nos num number numbers"), NUMBERS),
    "jax": JAX,
    "preview": PREVIEW,
}

HINT_BITS = {
    **dict.fromkeys(
        _list("Article NewsArticle BlogPosting ReportageNewsArticle TechArticle article"), 1
    ),
    **dict.fromkeys(("Product", "product"), 2),
    **dict.fromkeys(_list("DiscussionForumPosting QAPage Question"), 4),
    **dict.fromkeys(_list("ItemList CollectionPage ProductCollection"), 8),
    "website": 16,
    "VideoObject": 32,
    "Recipe": 64,
}
"""What a page says it is (schema.org types, Open Graph), as bits of `Page.hints`."""
HINT_NAMES = _list("article product forum list website video recipe")
HINT_ARTICLE, HINT_FORUM = 1, 4

(
    B_START, B_END, B_NODE, B_FIRST, B_TAG, B_LINK, B_WORDS, B_SENT, B_COMMA, B_DIGIT, B_UPPER,
    B_SHORT, B_CJK, B_CHARS, B_BR, B_LINKS, B_HASH, B_TITLE, B_IMG, B_BOLD,
) = range(20)  # fmt: skip
"""Columns of a block row, all int64: its bytes in `Page.text` [start, end); the nearest
block-level element, the element of its first character, the code of the former's tag; bytes inside
links; words, ends of sentences, commas, digits, capitals, words of at most 3 letters, ideographs
and kana, characters; how many `<br>` stand directly before it; links that start in it; hash of its
text; words that are in the title; images and other void elements since the last block; bytes in
bold."""
N_COLUMNS = 20

NO_NUMBER = -(1 << 31)
"""In `Page.number`: a list item that says no number of its own."""

ATTRIBUTES = {
    "class": 1, "id": 2, "role": 3, "itemprop": 3, "itemtype": 4, "hidden": 5, "style": 6,
    "aria-hidden": 7, "type": 8, "start": 9, "value": 10, "reversed": 11, "encoding": 12,
    "alttext": 13, "property": 14, "content": 15, "data-mathml": 16, "data-line-number": 17,
}  # fmt: skip
(
    A_CLASS, A_ID, A_WORDS, A_ITEMTYPE, A_HIDDEN, A_STYLE, A_ARIA_HIDDEN, A_TYPE, A_START, A_VALUE,
    A_REVERSED, A_ENCODING, A_ALTTEXT, A_PROPERTY, A_CONTENT, A_RENDERED, A_LINE_NUMBER,
) = range(1, 18)  # fmt: skip

FNV_SEED, FNV_PRIME = 0xCBF29CE484222325, 0x100000001B3


def fnv(word: str) -> int:
    """FNV-1a of the word's UTF-8 bytes, 64 bits."""
    value = FNV_SEED
    for byte in word.encode():
        value = ((value ^ byte) * FNV_PRIME) & 0xFFFFFFFFFFFFFFFF
    return value


def _words() -> dict[str, int]:
    found = dict(SPECIAL_WORDS)
    for group, words in enumerate(WORDS.values()):
        for word in words.split():
            found[word] = found.get(word, 0) | 1 << group
    return found


def open_table(entries: list[tuple[int, int]]) -> NDArray[np.uint64]:
    """Keys and values [slots, 2] of 64 bits, at most a quarter full; 0 marks a free slot."""
    size = 1 << (len(entries) * 4).bit_length()
    table = np.zeros((size, 2), np.uint64)
    for key, value in entries:
        slot = key & (size - 1)
        while table[slot, 0]:
            slot = (slot + 1) & (size - 1)
        table[slot] = key, value
    return table


TAG_SALT, WORD_SALT, ATTRIBUTE_SALT, HINT_SALT = (fnv(f"{name} of pages") for name in "tawh")
KIND_SHIFT = 16


def _lexicon() -> NDArray[np.uint64]:
    """One open table of all four vocabularies.

    A key is the hash of the word, salted by its vocabulary. The value of a tag is its code, and its
    kind above `KIND_SHIFT`.
    """
    tags = {name: code | int(TAG_KIND[code]) << KIND_SHIFT for name, code in TAG_CODE.items()}
    entries = [
        (fnv(word) ^ salt, value)
        for salt, words in (
            (TAG_SALT, tags),
            (WORD_SALT, _words()),
            (ATTRIBUTE_SALT, ATTRIBUTES),
            (HINT_SALT, HINT_BITS),
        )
        for word, value in words.items()
    ]
    return open_table(entries)


LEXICON = _lexicon()
