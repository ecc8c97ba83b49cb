"""Features of blocks, by name, on pages small enough to count by hand."""

from __future__ import annotations

import numpy as np
import pytest

from pipeline.extractor import context, features
from pipeline.extractor.kernels import FAR, NO_H1
from pipeline.extractor.page import Page, parse_page
from pipeline.extractor.tallies import equal, tally

PROSE = "Ten plain words of prose make a paragraph worth its name."
PAGE = f"""<html><head><title>The old mill</title></head><body>
<nav class="main-menu"><ul><li><a href=1>Home</a></li><li><a href=2>News</a></li></ul></nav>
<main><article><h1>The old mill</h1><p>{PROSE}</p><p>{PROSE} <b>Bold</b></p></article></main>
<div id="comments"><p>{PROSE}</p></div>
<footer style="display:none">© 2026, all rights</footer></body></html>"""


def of(page: Page, *names: str) -> list[list[float]]:
    """The named features, each over the blocks."""
    columns = features.block_features(page)
    return [columns[features.NAMES.index(name)].tolist() for name in names]


def test_names_are_distinct_and_one_a_column() -> None:
    page = parse_page(PAGE)
    assert len(set(features.NAMES)) == features.N_FEATURES
    assert features.block_features(page).shape == (features.N_FEATURES, len(page.blocks))
    assert features.block_features(page).dtype == np.float32


def test_the_text_of_a_block() -> None:
    page = parse_page(PAGE)
    words, links, bold, copies, ends = of(
        page, "words", "link_share", "bold", "copies", "ends_with"
    )
    assert words == [1, 1, 3, 11, 12, 11, 4]
    assert links == [1, 1, 0, 0, 0, 0, 0]
    assert bold == pytest.approx([0, 0, 0, 0, 5 / 62, 0, 0])  # with the blank before
    assert copies == [1, 1, 1, 2, 1, 2, 1]
    assert ends == [0, 0, 0, 3, 0, 3, 0]
    assert of(page, "title_share")[0][2] == pytest.approx(3 / 4)


def test_the_place_of_a_block() -> None:
    page = parse_page(PAGE)
    index, heading, since, from_h1 = of(page, "index", "heading", "since_heading", "from_h1")
    assert index == [0, 1, 2, 3, 4, 5, 6]
    assert heading == [0, 0, 1, 1, 1, 1, 1]
    assert since == [0, 1, 0, 1, 2, 3, 4]
    assert from_h1 == [-2, -1, 0, 1, 2, 3, 4]
    assert of(parse_page("<p>text</p>"), "from_h1") == [[NO_H1]]
    prose, body = of(page, "prose_before", "body_before")
    assert prose == [0, 0, 0, 0, 11, 23, 34]
    assert body == [0, 0, 0, 0, 11, 23, 23]


def test_what_the_ancestors_say() -> None:
    page = parse_page(PAGE)
    nav, comment, article, hidden = of(page, "says_nav", "says_comment", "in_article", "hidden")
    assert nav == [3, 3, FAR, FAR, FAR, FAR, FAR]
    assert comment == [FAR] * 5 + [1, FAR]
    assert article == [FAR, FAR, 1, 1, 1, FAR, FAR]
    assert hidden == [0, 0, 0, 0, 0, 0, 1]


def test_the_elements_around_a_block() -> None:
    page = parse_page(PAGE)
    blocks, links, siblings = of(page, "up1_blocks", "up1_links", "siblings1")
    assert blocks[0] == 2  # the list
    assert links[0] == pytest.approx(8 / 9)
    assert blocks[3] == 3  # the article
    assert of(page, "siblings0")[0][0] == 2  # the items of the list
    assert siblings[0] == 1


def test_neighbours_and_the_page() -> None:
    page = parse_page(PAGE)
    before, after, kind, climb = of(
        page, "near-1_words", "near+1_words", "near+1_kind", "near+1_climb"
    )
    assert before == [-1, 1, 1, 3, 11, 12, 11]
    assert after == [1, 3, 11, 12, 11, 4, -1]
    assert kind == [1, 2, 0, 1, 1, 0, 0]
    assert climb[3] == 1  # both paragraphs lie in the article
    totals = of(page, "page_blocks", "page_words", "page_h1")
    assert [set(column) for column in totals] == [{7}, {43}, {1}]


def test_the_path_to_the_densest_element() -> None:
    up, down, share = of(parse_page(PAGE), "up_to_densest", "down_to_densest", "densest_share")
    assert up[3] == 1
    assert down[3] == 0
    assert up[5] > 0
    assert down[5] > 0
    assert 0.5 < share[0] < 1


def test_a_page_without_text_has_no_columns_to_fill() -> None:
    page = parse_page("<html><body><img></body></html>")
    assert features.block_features(page).shape == (features.N_FEATURES, 0)
    assert tally(page).kin.shape == (0,)


def test_features_are_finite_and_the_same_each_time() -> None:
    for html in (PAGE, "x", "<td>" * 300 + "deep", "<p>a<br>b</p>" * 400, "<h1></h1><h1>a</h1>"):
        page = parse_page(html)
        columns = features.block_features(page)
        assert np.isfinite(columns).all()
        np.testing.assert_array_equal(columns, features.block_features(page))


def test_equal_keys_are_one_group() -> None:
    keys = np.array([5, 9, 5, 0, 9, 5, 2**64 - 1, 0], np.uint64)
    group, size = equal(keys)
    assert group.tolist() == [0, 1, 0, 2, 1, 0, 3, 2]
    assert size.tolist() == [3, 2, 2, 1]
    assert equal(np.zeros(0, np.uint64))[0].shape == (0,)


CONTEXT_P = np.array([0, 0, 0.9, 0.9, 0.8, 0.4, 0], np.float32)


def context_of(html: str, p: np.ndarray) -> dict[str, list[float]]:
    """The features of the second forest by name."""
    page = parse_page(html)
    counts = tally(page)
    columns = context.context_features(p, features.block_features(page, counts), page, counts)
    assert columns.shape == (len(context.NAMES), len(p))
    assert np.isfinite(columns).all()
    return dict(zip(context.NAMES, columns.tolist(), strict=True))


def test_the_second_forest_sees_the_answers_around() -> None:
    p = CONTEXT_P.tolist()
    named = context_of(PAGE, CONTEXT_P)
    assert named["p"] == p
    assert named["p-1"] == [-1, *p[:-1]]
    assert named["p+1"] == [*p[1:], -1]
    assert named["since_first"] == [-2, -1, 0, 1, 2, 3, 4]
    assert named["until_last"] == [4, 3, 2, 1, 0, -1, -2]
    article = (0.9 * 4 + 0.9 * 12 + 0.8 * 13) / 29  # each block weighs one more than its words
    assert named["p_up1"][3] == pytest.approx(article)
    assert named["p_before"][0] == 0
    assert named["words"] == [1, 1, 3, 11, 12, 11, 4]


def test_the_second_forest_sees_sections() -> None:
    named = context_of(
        "<h2>One</h2><p>first text</p><h2>Two</h2><p>second text</p><p>third text</p>",
        np.array([0.5, 0.25, 1, 0.5, 0], np.float32),
    )
    one, two = (0.5 * 2 + 0.25 * 3) / 5, (1 * 2 + 0.5 * 3) / 8
    assert named["p_headed"] == pytest.approx([one, one, two, two, two])
    assert named["p_heading"] == [0.5, 0.5, 1, 1, 1]
    assert named["p_headed_before"] == pytest.approx([-1, -1, one, one, one])
    assert named["p_headed_after"] == pytest.approx([two, two, -1, -1, -1])


def test_the_second_forest_sees_runs_and_the_main_element() -> None:
    named = context_of(PAGE, CONTEXT_P)
    assert named["cut"] == pytest.approx([0.8] * 7)
    assert named["run_words"] == [-4, -4, 29, 29, 29, -17, -17]
    assert named["since_kept"] == [999, 999, 999, 1, 1, 1, 2]
    assert named["until_kept"] == [2, 1, 1, 1, 999, 999, 999]
    assert named["in_half"] == [0, 0, 1, 1, 1, 0, 0]  # the article
    assert named["climb_half"][3] == -1
    assert named["climb_half"][5] == 2  # from the article up to the body


def test_the_second_forest_sees_containers_beside() -> None:
    named = context_of(
        "<div><p>a</p></div><div><p>b</p></div><div></div><div><p>c</p></div>",
        np.array([0.25, 0.5, 0.75], np.float32),
    )
    assert named["p_before_up1"] == [-1, 0.25, 0.5]
    assert named["p_after_up1"] == [0.5, 0.75, -1]


def test_a_page_without_text_has_no_context() -> None:
    page = parse_page("")
    columns = features.block_features(page)
    around = context.context_features(np.zeros(0, np.float32), columns, page, tally(page))
    assert around.shape == (len(context.NAMES), 0)
