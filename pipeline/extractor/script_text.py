"""Text that a page carries in its scripts alone: `articleBody` of schema.org, state of an app.

Some pages are an empty shell that a script fills. What they would show lies in JSON: as schema.org
properties (JSON-LD), as the state of a web application, where long strings are the text, or as
markup in the string literals of a script. Used only where the document itself has next to no text.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

import numpy as np

from pipeline.extractor.assemble import page_text
from pipeline.extractor.page import parse_page

if TYPE_CHECKING:
    from selectolax.lexbor import LexborHTMLParser

BODIES = ("articleBody", "reviewBody", "recipeInstructions")
POSTS = {"DiscussionForumPosting", "SocialMediaPosting", "Question", "Answer", "Comment"}
"""Types whose property `text` is what somebody wrote."""
LONG_TEXT = 400
"""Characters: a shorter string of an application's state may be anything."""
MOST_NODES = 100_000
MARKUP = re.compile(r"<[a-zA-Z/][^<>]*>|&[a-zA-Z#]\w{1,8};")
PROSE = re.compile(r"[.!?\u3002\uff01\uff1f]")
SENTENCES = 3
LITERAL = re.compile(r'"(?:[^"\\]++|\\.)*+"', re.DOTALL)
PARAGRAPHS = re.compile(r"<(?:p|div|br|li)[\s/>]", re.IGNORECASE)


def script_text(tree: LexborHTMLParser) -> str:
    """The text in the page's JSON, bodies of articles and posts before anything else; or "" """
    for texts in (_schema_texts, _state_texts, _literal_texts):
        if found := texts(tree):
            return "\n\n".join(dict.fromkeys(found))
    return ""


def _schema_texts(tree: LexborHTMLParser) -> list[str]:
    texts = []
    for value in _json(tree, 'script[type="application/ld+json"]'):
        for node in _objects(value):
            keys = (*BODIES, "text") if POSTS & _types(node) else BODIES
            texts += [_plain(node[key]) for key in keys if isinstance(node.get(key), str)]
    return [text for text in texts if text]


def _state_texts(tree: LexborHTMLParser) -> list[str]:
    texts = []
    for value in _json(tree, 'script[type="application/json"]'):
        for node in _objects(value):
            for text in node.values():
                if isinstance(text, str) and len(text) >= LONG_TEXT and text[0] not in "{[":
                    texts.append(_plain(text))
    return [text for text in texts if _is_prose(text)]


def _literal_texts(tree: LexborHTMLParser) -> list[str]:
    texts = []
    for node in tree.css("script:not([src])"):
        for match in LITERAL.finditer(node.text()):
            if len(match[0]) >= LONG_TEXT:
                try:
                    text = json.loads(match[0], strict=False)
                except ValueError:
                    continue
                if PARAGRAPHS.search(text):
                    texts.append(_plain(text))
    return [text for text in texts if _is_prose(text)]


def _is_prose(text: str) -> bool:
    return len(text) >= LONG_TEXT and len(PROSE.findall(text)) >= SENTENCES


def _json(tree: LexborHTMLParser, query: str) -> Iterator[Any]:
    for node in tree.css(query):
        try:
            yield json.loads(node.text())
        except (ValueError, RecursionError):
            continue


def _objects(value: Any) -> Iterator[dict[str, Any]]:
    """The objects of a JSON value, outer ones first, in order."""
    pending, seen = [value], 0
    while pending and seen < MOST_NODES:
        node = pending.pop()
        seen += 1
        if isinstance(node, dict):
            yield node
            node = list(node.values())
        if isinstance(node, list):
            pending.extend(child for child in reversed(node) if isinstance(child, dict | list))


def _types(node: dict[str, Any]) -> set[str]:
    types = node.get("@type")
    return {one for one in (types if isinstance(types, list) else [types]) if isinstance(one, str)}


def _plain(text: str) -> str:
    """The text without markup, which some bodies have."""
    if MARKUP.search(text):
        page = parse_page(text)
        text = page_text(page, np.ones(len(page.blocks), np.bool_))
    return text.strip()
