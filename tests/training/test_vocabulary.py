from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tokenizers import Tokenizer

from tests.training.miniature import write_tokenizer
from training.errors import RunConfigError
from training.vocabulary import Vocabulary


@pytest.fixture(scope="module")
def path(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_tokenizer(tmp_path_factory.mktemp("tokenizer") / "tokenizer.json")


@given(st.text(st.characters(exclude_categories=["Cs"])))
def test_bytes_and_text_of_tokens_agree_with_the_library(path: Path, text: str) -> None:
    vocabulary = Vocabulary.open(path)
    ids = Tokenizer.from_file(str(path)).encode(text, add_special_tokens=False).ids
    assert vocabulary.text(ids) == text
    assert vocabulary.lengths()[ids].sum() == len(text.encode())


def test_special_tokens_are_no_bytes(path: Path) -> None:
    vocabulary = Vocabulary.open(path)
    assert vocabulary.size == 300
    assert vocabulary.end_id == 0
    assert vocabulary.lengths()[0] == 0
    assert vocabulary.lengths()[1:257].tolist() == [1] * 256


@pytest.mark.parametrize("model", ['{"type": "Unigram"}', '{"vocab": {}}', '{"vocab": {"a": -5}}',
    '{"vocab": {"a": "x"}}', '{"vocab": {"a": 1.5}}', '{"vocab": {"a": 99999999999}}'])  # fmt: skip
def test_another_file_is_refused(tmp_path: Path, model: str) -> None:
    (tmp_path / "t.json").write_text(f'{{"model": {model}, "added_tokens": []}}')
    with pytest.raises(RunConfigError, match=r"no tokenizer\.json"):
        Vocabulary.open(tmp_path / "t.json")
