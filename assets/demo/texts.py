"""Text that is on the machine once Gristmill is installed, as pages and records of the sample.

Descriptions of the installed packages (one host each, rendered by the libraries their authors had
in mind: markdown-it-py and docutils), the topics of Python's own `pydoc`, documentation pages of
standard-library modules, and the standard library's sources as the `code` source. Nothing is
downloaded; the sample is a function of what is installed.
"""

import importlib
import inspect
import re
import sysconfig
import textwrap
from collections.abc import Iterator
from email.message import Message
from html import escape
from importlib.metadata import Distribution, distributions
from pathlib import Path
from types import ModuleType
from typing import Any, cast

from assets.demo.pages import Page

DOCS_HOST = "docs.python.example"
PSF_LICENCE = "https://spdx.org/licenses/PSF-2.0.html"
MIN_DESCRIPTION = 300
"""Characters under which a description is a stub."""
OWN = "gristmill"

MODULES = (
    "abc", "argparse", "array", "ast", "asyncio.queues", "asyncio.tasks", "base64", "bisect",
    "calendar", "cmd", "code", "codecs", "collections", "colorsys", "configparser",
    "contextlib", "copy", "csv", "dataclasses", "datetime", "decimal", "difflib", "dis",
    "email.message", "enum", "filecmp", "fileinput", "fnmatch", "fractions", "ftplib",
    "functools", "gettext", "glob", "gzip", "hashlib", "heapq", "hmac", "html.parser",
    "http.client", "http.cookiejar", "imaplib", "inspect", "ipaddress", "json", "keyword",
    "linecache", "locale", "logging", "mailbox", "mimetypes", "multiprocessing.pool", "netrc",
    "numbers", "operator", "optparse", "os", "pathlib", "pdb", "pickle", "pickletools",
    "platform", "plistlib", "poplib", "pprint", "profile", "pstats", "queue", "quopri",
    "random", "re", "reprlib", "sched", "secrets", "selectors", "shelve", "shlex", "shutil",
    "signal", "smtplib", "socket", "socketserver", "stat", "statistics", "string", "struct",
    "subprocess", "tarfile", "tempfile", "textwrap", "threading", "timeit", "tokenize",
    "trace", "traceback", "types", "unittest.case", "unittest.mock", "urllib.parse",
    "urllib.request", "uuid", "venv", "warnings", "wave", "weakref", "webbrowser",
    "xml.dom.minidom", "xml.etree.ElementTree", "xml.sax.handler", "xmlrpc.client", "zipfile",
)  # fmt: skip

SOURCE_FOLDERS = (
    "", "asyncio", "collections", "concurrent/futures", "ctypes", "email", "html", "http",
    "importlib", "json", "logging", "multiprocessing", "unittest", "urllib", "wsgiref", "xml/dom",
    "xml/etree", "xml/sax", "zoneinfo",
)  # fmt: skip
SOURCE_BYTES = range(1_500, 60_000)
"""Sizes of source files worth reading: above are tables, below are re-exports."""
CODE_BYTES = 1_700_000


def installed() -> list[Distribution]:
    """The installed distributions but Gristmill itself, one a name, in order of the name."""
    found: dict[str, Distribution] = {}
    for distribution in distributions():
        name = _slug(metadata_of(distribution).get("Name") or "")
        if name and name != OWN:
            found.setdefault(name, distribution)
    return [found[name] for name in sorted(found)]


def _slug(name: str) -> str:
    return re.sub(r"[-_.]+", "-", name).lower()


def metadata_of(distribution: Distribution) -> Message:
    """The metadata as what it is, an e-mail message: `get` gives None for an absent field."""
    return cast(Message, distribution.metadata)


def description(distribution: Distribution) -> str:
    """The long description of a package, as its author wrote it; empty if there is none."""
    # the parser of e-mail takes the body for ASCII now and then, so it is read as what it is
    text = distribution.read_text("METADATA") or distribution.read_text("PKG-INFO") or ""
    body = text.partition("\n\n")[2]
    return body.strip() or (metadata_of(distribution).get("Description") or "").strip()


def package_pages() -> list[Page]:
    """One page a package that says more about itself than a sentence."""
    pages = []
    for distribution in installed():
        source = description(distribution)
        if len(source) < MIN_DESCRIPTION:
            continue
        metadata = metadata_of(distribution)
        name = metadata["Name"]
        summary = metadata.get("Summary") or name
        pages.append(
            Page(
                host=f"{_slug(name)}.packages.example",
                path="/index.html",
                title=f"{name} {distribution.version}: {summary}",
                body=to_html(source, metadata.get("Description-Content-Type") or "text/x-rst"),
                kind="package",
                licence=_licence_address(metadata.get("License-Expression")),
            )
        )
    return pages


def _licence_address(expression: str | None) -> str | None:
    """The address of a licence that is one SPDX name; None for anything more involved."""
    if expression and re.fullmatch(r"[A-Za-z0-9.+-]+", expression):
        return f"https://spdx.org/licenses/{expression}.html"
    return None


def to_html(source: str, content_type: str) -> str:
    """Markdown or reStructuredText as HTML; whatever is wrong in it is left out, never raised."""
    if "markdown" in content_type.lower():
        from markdown_it import MarkdownIt

        return str(MarkdownIt("commonmark").enable("table").render(source))
    from docutils.core import publish_parts

    settings = {
        "report_level": 5, "halt_level": 6, "raw_enabled": False, "file_insertion_enabled": False,
        "syntax_highlight": "none", "embed_stylesheet": False, "stylesheet_path": "",
        "_disable_config": True, "doctitle_xform": False,
    }  # fmt: skip
    return str(publish_parts(source, writer="html5", settings_overrides=settings)["body"])


def topic_pages() -> list[Page]:
    """The language topics that `help()` shows, one page each."""
    from pydoc_data.topics import topics

    return [
        Page(
            host=DOCS_HOST,
            path=f"/topics/{name.lower()}-{index:02d}.html",
            title=_first_line(text),
            body=plain_to_html(text),
            kind="topic",
            licence=PSF_LICENCE,
        )
        for index, (name, text) in enumerate(sorted(topics.items()))
    ]


def _first_line(text: str) -> str:
    return next((line.strip() for line in text.splitlines() if line.strip(" *=-")), "Untitled")


def plain_to_html(text: str) -> str:
    """Plain text with underlined headings, bullets and indented examples as HTML blocks."""
    blocks = re.split(r"\n\s*\n", text.strip("\n"))
    return "\n".join(_block(block) for block in blocks if block.strip(" =-*~^"))


def _block(block: str) -> str:
    lines = block.strip("\n").splitlines()
    if len(lines) >= 2 and re.fullmatch(r"[*=\-~^]{3,}", lines[1].strip()):
        rest = _block("\n".join(lines[2:])) if lines[2:] else ""
        return f"<h2>{escape(lines[0])}</h2>{rest}"
    text = escape(textwrap.dedent(block), quote=False)
    if lines[0].lstrip().startswith((">>>", "...")) or lines[0].startswith("    "):
        return f"<pre>{text}</pre>"
    if lines[0].lstrip().startswith(("* ", "- ")):
        items = re.split(r"^[*-] ", text, flags=re.MULTILINE)[1:]
        return "<ul>" + "".join(f"<li>{_joined(item)}</li>" for item in items) + "</ul>"
    return f"<p>{_joined(text)}</p>"


def _joined(text: str) -> str:
    return re.sub(r"\*\*(\S[^*]*)\*\*", r"<strong>\1</strong>", " ".join(text.split()))


def module_pages() -> list[Page]:
    """Documentation pages of standard-library modules, made from their doc strings."""
    pages = []
    for name in MODULES:
        module = importlib.import_module(name)
        body = "\n".join(_module_blocks(module))
        if len(body) >= MIN_DESCRIPTION:
            title = f"{name}: {_first_line(inspect.getdoc(module) or name)}"
            path = f"/library/{name}.html"
            pages.append(Page(DOCS_HOST, path, title, body, "module", licence=PSF_LICENCE))
    return pages


def _module_blocks(module: ModuleType) -> Iterator[str]:
    yield plain_to_html(inspect.getdoc(module) or "")
    for name, member in sorted(vars(module).items()):
        own = getattr(member, "__module__", None) == module.__name__
        if name.startswith("_") or not own or not (inspect.isclass(member) or callable(member)):
            continue
        yield from _member_blocks(name, member)
        if inspect.isclass(member):
            for method, function in sorted(vars(member).items()):
                if not method.startswith("_") and inspect.isfunction(function):
                    yield from _member_blocks(f"{name}.{method}", function)


def _member_blocks(name: str, member: Any) -> Iterator[str]:
    documentation = inspect.getdoc(member) if getattr(member, "__doc__", None) else None
    if documentation:
        yield f"<h3>{escape(name)}</h3>"
        yield plain_to_html(documentation)


def code_records() -> list[dict[str, str]]:
    """Sources of the standard library: `id, text, source, language, licence`, in order of the path.

    Takes the top level first, then packages, until about 1.7 MB.
    """
    root = Path(sysconfig.get_path("stdlib"))
    records, total = [], 0
    for folder in SOURCE_FOLDERS:
        for path in sorted((root / folder).glob("*.py")):
            if path.stat().st_size not in SOURCE_BYTES or total > CODE_BYTES:
                continue
            text = path.read_text("utf-8", errors="replace")
            total += len(text.encode())
            records.append(
                {
                    "id": f"python/{path.relative_to(root).as_posix()}",
                    "text": text,
                    "source": "code",
                    "language": "python",
                    "licence": "PSF-2.0",
                }
            )
    return records
