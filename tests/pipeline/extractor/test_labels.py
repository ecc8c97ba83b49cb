"""Labels of blocks: from gold text, from whole lines, from segments."""

from __future__ import annotations

import numpy as np

from pipeline.extractor.labels import gold_labels, segment_labels

GOLD = "the quick brown fox jumps over the lazy dog\nShort heading\nand then it sleeps until noon"


def test_share_of_words_under_the_gold() -> None:
    texts = [
        "Home News Sport About us today",
        "the quick brown fox jumps over the lazy dog",
        "the quick brown fox and six other quite different words",
    ]
    labels = gold_labels(texts, GOLD)
    np.testing.assert_allclose(labels.share, [0, 1, 0.4])
    assert labels.words.tolist() == [6, 9, 10]
    assert labels.known.all()


def test_a_short_block_is_main_text_where_it_is_a_gold_line() -> None:
    assert gold_labels(["menu menu", "Short heading"], GOLD).share.tolist() == [0, 1]
    assert gold_labels(["menu menu", "heading Short"], GOLD).share.tolist() == [0, 0]


def test_shingles_reach_over_blocks() -> None:
    labels = gold_labels(["the quick", "brown fox jumps", "over", "a fence"], GOLD)
    assert labels.share.tolist() == [1, 1, 1, 0]


def test_a_line_as_long_as_two_shingles_needs_them() -> None:
    gold = "a b c d e f g h"
    assert gold_labels(["x", "a b c d e f g h"], gold).share.tolist() == [0, 1]


def test_blocks_without_words_are_unknown() -> None:
    labels = gold_labels(["***", "the quick brown fox"], GOLD)
    assert labels.known.tolist() == [False, True]
    assert gold_labels([], GOLD).share.shape == (0,)


def test_characters_are_words_where_there_are_no_blanks() -> None:
    labels = gold_labels(["我们今天去公园玩", "登录注册首页"], "我们今天去公园")
    np.testing.assert_allclose(labels.share, [7 / 8, 0])


def test_segments_label_the_blocks_that_hold_them() -> None:
    texts = ["About  this site", "A long paragraph with the needle in it.", "nothing known"]
    labels = segment_labels(texts, ["the needle"], ["About this"])
    assert labels.known.tolist() == [True, True, False]
    assert labels.share.tolist() == [0, 1, 0]


def test_a_wanted_segment_outweighs_an_unwanted_one() -> None:
    assert segment_labels(["good and bad"], ["good"], ["bad"]).share.tolist() == [1]


def test_a_long_block_inside_a_segment_takes_its_label() -> None:
    segment = "This sentence goes on over more than one block of the page, as it may."
    inside, short = segment[:31], segment[:30]
    assert segment_labels([inside, short], [segment], []).known.tolist() == [True, False]


def test_empty_segments_say_nothing() -> None:
    assert not segment_labels(["text"], ["", "  "], [""]).known.any()
