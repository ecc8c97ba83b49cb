"""Five site templates that the sample's pages stand in: menus, sidebars, footers, cookie notices.

What main-text extraction has to take away again, in the shapes it meets on the web: a manual with
semantic elements, a blog with side columns and comments, a shop with a consent banner and cards,
and two of the old web without one helpful tag: a plain page, and one laid out in tables.
"""

from collections.abc import Callable, Sequence
from html import escape

from assets.demo.pages import Page

Neighbour = tuple[str, str]
"""Address and title of another page of the site."""

MENU = ("Home", "Documentation", "Download", "Community", "News", "About us", "Contact")
CONSENT = (
    "We use cookies to improve your experience on our website. By browsing this website, you agree "
    "to our use of cookies. You can change your settings at any time."
)


def wrap(page: Page, neighbours: Sequence[Neighbour] = ()) -> str:
    """The whole HTML document of `page` in the template of its site."""
    return _template(page)(page, neighbours)


def _template(page: Page) -> Callable[[Page, Sequence[Neighbour]], str]:
    if page.kind in ("topic", "module"):
        return manual
    if page.kind == "package":
        # a site keeps its template: chosen by the host, not by the page
        place = sum(page.host.encode()) % 12
        return tables if place == 11 else (manual, blog, shop, plain)[place % 4]
    if page.kind == "own":
        return blog
    return (shop, plain)[sum(page.host.encode()) % 2]


def _head(page: Page, style: str) -> str:
    lines = [
        f'<meta charset="{page.charset}">',
        f"<title>{escape(page.title)}</title>",
        '<meta name="viewport" content="width=device-width, initial-scale=1">',
        f'<link rel="canonical" href="{page.url}">',
        f"<style>{style}</style>",
    ]
    if page.licence:
        lines.append(f'<link rel="license" href="{page.licence}">')
    if page.reservation == "noai":
        lines.append('<meta name="robots" content="noai, noimageai">')
    if page.reservation == "tdm":
        lines.append('<meta name="tdm-reservation" content="1">')
    return "<head>\n" + "\n".join(lines) + "\n</head>"


def _links(neighbours: Sequence[Neighbour], tag: str = "li") -> str:
    return "".join(
        f'<{tag}><a href="{escape(address)}">{escape(title[:60])}</a></{tag}>'
        for address, title in neighbours
    )


def _menu(tag: str = "li") -> str:
    return "".join(f'<{tag}><a href="/{m.split()[0].lower()}">{m}</a></{tag}>' for m in MENU)


def _licence_line(page: Page) -> str:
    if not page.licence:
        return f"Copyright 2026 {page.host}. All rights reserved."
    kind = "Creative Commons" if "creativecommons" in page.licence else "the"
    return f'This page is under <a rel="license" href="{page.licence}">{kind} licence</a>.'


def manual(page: Page, neighbours: Sequence[Neighbour]) -> str:
    """Documentation site: header, breadcrumbs, side navigation, `main`, footer."""
    return f"""<!DOCTYPE html>
<html lang="{page.language}">
{_head(page, "body{font:16px sans-serif}nav ul{list-style:none}")}
<body>
<header><a href="/">{page.host}</a><nav aria-label="site"><ul>{_menu()}</ul></nav>
<form role="search"><input name="q" placeholder="Search the docs"></form></header>
<nav class="breadcrumbs"><a href="/">Home</a> &raquo; <a href="/docs">Documentation</a></nav>
<nav class="sidebar"><h3>Table of contents</h3><ul>{_links(neighbours)}</ul></nav>
<main role="main"><article>
<h1>{escape(page.title)}</h1>
{page.body}
</article></main>
<footer><p>{_licence_line(page)}</p><p>Built with a site generator. Found a bug? Edit this page.</p>
</footer>
</body></html>
"""


def blog(page: Page, neighbours: Sequence[Neighbour]) -> str:
    """Weblog: banner, article, recent posts, tag cloud, comments, newsletter."""
    return f"""<!DOCTYPE html>
<html lang="{page.language}">
{_head(page, ".wrap{max-width:60em;margin:auto}.widget{float:right}")}
<body class="single">
<div id="header"><div class="site-title"><a href="/">{page.host}</a></div>
<ul class="menu">{_menu()}</ul></div>
<div class="wrap"><div id="content" class="post">
<h1 class="entry-title">{escape(page.title)}</h1>
<div class="meta">Posted by the editors | 12 comments | Share | Tweet | Pin</div>
<div class="entry-content">
{page.body}
</div>
<div class="share"><a href="#">Share this</a> <a href="#">Print</a> <a href="#">Subscribe</a></div>
<div id="comments"><h3>Leave a reply</h3><form><textarea></textarea>
<button>Post</button></form></div>
</div>
<div id="sidebar"><div class="widget"><h4>Recent posts</h4><ul>{_links(neighbours)}</ul></div>
<div class="widget"><h4>Newsletter</h4><p>Sign up and never miss a post!</p></div></div></div>
<div id="footer">{_licence_line(page)} | Privacy | Imprint | Powered by a weblog engine</div>
</body></html>
"""


def shop(page: Page, neighbours: Sequence[Neighbour]) -> str:
    """Portal: consent banner, top navigation, cards below the text, a script."""
    return f"""<!DOCTYPE html>
<html lang="{page.language}">
{_head(page, ".card{display:inline-block}.consent{position:fixed;bottom:0}")}
<body>
<div class="consent cookie-banner" role="dialog"><p>{CONSENT}</p><button>Accept all</button>
<button>Only necessary</button></div>
<div class="topnav"><span class="logo">{page.host}</span><ul>{_menu()}</ul>
<span class="basket">Basket (0)</span> <span>Sign in</span></div>
<section class="page">
<h1>{escape(page.title)}</h1>
{page.body}
</section>
<section class="related"><h2>You may also like</h2>{_links(neighbours, "div")}</section>
<footer class="site-footer"><ul>{_menu()}</ul><small>{_licence_line(page)}</small></footer>
<script>window.dataLayer = window.dataLayer || []; dataLayer.push({{"event": "view"}});</script>
</body></html>
"""


def plain(page: Page, neighbours: Sequence[Neighbour]) -> str:
    """A page as people wrote them by hand: centred heading, rules, a row of links at the end."""
    others = " | ".join(
        f'<a href="{escape(address)}">{escape(title[:40])}</a>' for address, title in neighbours[:6]
    )
    return f"""<html>
{_head(page, "body{background:#ffffff}")}
<body bgcolor="#ffffff">
<center><font size="5">{page.host}</font><br>{_menu("span")}</center>
<hr>
<h1>{escape(page.title)}</h1>
{page.body}
<hr>
<center><font size="1">{others}<br>{_licence_line(page)}<br>You are visitor 004711.</font></center>
</body></html>
"""


def tables(page: Page, neighbours: Sequence[Neighbour]) -> str:
    """A page of the table age: its columns are cells, so that text and menu look alike."""
    return f"""<html>
{_head(page, "td{vertical-align:top}")}
<body bgcolor="#ffffff"><table width="100%" border="0"><tr><td colspan="2">
<font size="5">{page.host}</font><br>{_menu("span")}</td></tr>
<tr><td width="180"><b>Navigation</b><br>{_links(neighbours, "div")}
<b>Visitors</b><br>004711</td>
<td><h1>{escape(page.title)}</h1>
{page.body}
<p><font size="1">Last updated in 2026. Best viewed at 1024 by 768.</font></p></td></tr>
<tr><td colspan="2" align="center"><font size="1">{_licence_line(page)}</font></td></tr>
</table></body></html>
"""
