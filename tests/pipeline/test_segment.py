"""Words in the six scripts without blanks; what lies between them is left whole."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pipeline.segment import cut, segment

SENTENCES = {
    "zh": [
        "我们 昨天 在 图书馆 里 读 了 很多 有趣 的 书", "博物馆 里 有 很多 古老 的 地图",
        "学生 们 每天 早上 八点 去 学校", "这个 城市 的 天气 非常 好",
        "请 把 文件 保存 到 桌面 上", "计算机 科学 是 一 门 重要 的 学科",
    ],
    "ja": [
        "私 は 昨日 図書館 で 本 を 読み まし た", "今日 は とても いい 天気 です",
        "彼女 は 大学 で 歴史 を 勉強 し て い ます",
        "ファイル を 保存 し て から プログラム を 終了 し ます",
        "東京 の 博物館 に は 古い 地図 が あり ます",
    ],
    "th": [
        "ผม ไป โรงเรียน ทุก วัน", "วันนี้ อากาศ ดี มาก", "เขา อ่าน หนังสือ ใน ห้องสมุด",
        "แม่ ซื้อ ผลไม้ ที่ ตลาด", "เรา จะ เดินทาง ไป เชียงใหม่ พรุ่งนี้", "นักเรียน เรียน ภาษา อังกฤษ กับ ครู",
    ],
    "km": [
        "ខ្ញុំ ទៅ សាលារៀន រាល់ ថ្ងៃ", "គាត់ អាន សៀវភៅ នៅ ក្នុង បណ្ណាល័យ", "ម្ដាយ ទិញ ផ្លែឈើ នៅ ផ្សារ",
        "ថ្ងៃនេះ អាកាសធាតុ ល្អ ណាស់", "កម្ពុជា ជា ប្រទេស មួយ នៅ អាស៊ី", "សិស្ស រៀន ភាសា អង់គ្លេស",
    ],
    "lo": [
        "ຂ້ອຍ ໄປ ໂຮງຮຽນ ທຸກ ມື້", "ລາວ ອ່ານ ປຶ້ມ ຢູ່ ຫ້ອງສະໝຸດ", "ແມ່ ຊື້ ໝາກໄມ້ ຢູ່ ຕະຫຼາດ",
        "ມື້ນີ້ ອາກາດ ດີ ຫຼາຍ", "ນັກຮຽນ ຮຽນ ພາສາ ອັງກິດ", "ພວກເຮົາ ຈະ ເດີນທາງ ໄປ ວຽງຈັນ",
    ],
    "my": [
        "ကျွန်တော် ကျောင်း ကို သွား သည်", "သူ စာအုပ် ဖတ် နေ သည်",
        "မြန်မာ နိုင်ငံ သည် အာရှ တွင် ရှိ သည်", "အမေ သည် ဈေး တွင် အသီး ဝယ် သည်",
        "ဒီနေ့ ရာသီဥတု ကောင်း သည်",
    ],
}  # fmt: skip
"""Sentences with their words marked by hand."""


def bounds(words: list[str]) -> set[int]:
    ends, at = set(), 0
    for word in words[:-1]:
        at += len(word)
        ends.add(at)
    return ends


@pytest.mark.parametrize("code", SENTENCES)
def test_boundaries_are_those_marked_by_hand(code: str) -> None:
    marked = found = common = 0
    for sentence in SENTENCES[code]:
        words = sentence.split()
        right, told = bounds(words), bounds(segment("".join(words)))
        marked, found, common = marked + len(right), found + len(told), common + len(right & told)
    assert 2 * common / (marked + found) >= 0.88


@pytest.mark.parametrize("code", SENTENCES)
def test_punctuation_digits_and_latin_words_are_pieces_of_their_own(code: str) -> None:
    first, second = ("".join(s.split()) for s in SENTENCES[code][:2])
    words = segment(f"({first}。」C++3.14{second}!")
    assert words[0] == "("
    assert "。」C++3.14" in words
    assert words[-1] == "!"
    assert len(words) > 7


@given(st.text(max_size=50))
def test_pieces_join_to_the_run(text: str) -> None:
    run = "".join(text.split())
    assert "".join(segment(run)) == run


RUNS = st.lists(st.text(st.sampled_from("博物馆ガギー々ห้องលីລາမြန်a1。é😀𠀀"), max_size=12))


@given(RUNS)
def test_runs_are_cut_together_as_they_are_alone(runs: list[str]) -> None:
    sizes, counts = cut(runs)
    assert len(counts) == len(runs)
    assert (sizes > 0).all()
    ends = counts.cumsum()
    for run, count, end in zip(runs, counts, ends, strict=True):
        words = segment(run)
        assert "".join(words) == run
        assert [len(word.encode()) for word in words] == sizes[end - count : end].tolist()


def test_other_scripts_are_left_whole() -> None:
    assert segment("don't-stop,3.14!") == ["don't-stop,3.14!"]
    assert segment("") == []
    assert cut([])[0].tolist() == []


def test_long_runs_are_cut_as_short_ones_are() -> None:
    once = segment("博物馆里有很多古老的地图。")
    assert segment("博物馆里有很多古老的地图。" * 2000) == once * 2000
