from __future__ import annotations

import json
import math
from pathlib import Path
from typing import Any

import pytest

from tests.training.miniature import TINY, lines, program, write_run
from training.config import LANGUAGES
from training.errors import TrainingError
from training.evaluate import languages_of, main

HELD = "web-held"


def languages(n: int = 30) -> dict[str, list[str]]:
    return {HELD: [("en", "de", "fr")[k % 3] for k in range(n)]}


def folder(tmp_path: Path, content: str) -> Path:
    path = write_run(tmp_path, eval_rows=1000)
    out = tmp_path / "checkpoints" / "mini"
    out.mkdir(parents=True)
    (out / LANGUAGES).write_text(content)
    return path


def test_bits_by_source_and_language_add_up(tmp_path: Path, trainer_of: Any) -> None:
    scores = trainer_of(folder(tmp_path, json.dumps(languages()))).evaluate()
    assert set(scores.groups) == {("web", "en"), ("web", "de"), ("web", "fr")}
    assert sum(one.nats for one in scores.groups.values()) == pytest.approx(scores.total.nats)
    assert sum(one.tokens for one in scores.groups.values()) == scores.total.tokens
    metrics = scores.metrics()
    assert set(metrics) == {"held_out/web/en", "held_out/web/de", "held_out/web/fr"}
    assert metrics["held_out/web/en"] == scores.groups["web", "en"].bits_per_byte


def test_positions_count_from_the_start_of_a_document(tmp_path: Path, trainer_of: Any) -> None:
    scores = trainer_of(folder(tmp_path, "{}")).evaluate()
    curve = scores.positions
    ends = [(one["from"], one["to"]) for one in curve]
    assert ends == [(0, 0), (1, 2), (3, 6), (7, 14), (15, 30), (31, 31)][: len(ends)]
    assert len(ends) >= 5, "documents fill the context of 32"
    assert sum(one["tokens"] for one in curve) == scores.total.tokens
    nats = sum(one["nats_per_token"] * one["tokens"] for one in curve)
    assert nats == pytest.approx(scores.total.nats, rel=1e-5)
    assert set(scores.metrics()) == {"held_out/web"}, "no language is known"


def test_languages_of_other_shards_are_refused(tmp_path: Path, trainer_of: Any) -> None:
    with pytest.raises(TrainingError, match="web-held has 30 documents, and 29 languages"):
        trainer_of(folder(tmp_path, json.dumps(languages(29))))
    with pytest.raises(TrainingError, match=r"languages\.json is damaged"):
        languages_of(folder(tmp_path / "other", "{").parents[1] / "checkpoints" / "mini")


def test_a_run_writes_them_step_by_step(tmp_path: Path) -> None:
    path = folder(tmp_path, json.dumps(languages()))
    write_run(tmp_path, steps=4, eval_every=2, eval_rows=TINY["eval_rows"])
    done = program(path)
    assert done.returncode == 0, done.stderr
    second, last = (line for line in lines(path) if "held_out_bits_per_byte" in line)
    assert (second["step"], last["step"]) == (2, 4)
    names = {f"held_out/web/{language}" for language in ("en", "de", "fr")}
    assert names <= second.keys()
    assert all(math.isfinite(last[name]) for name in names)


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["--rows", "0"], "--rows is 0, and must be 1 or more"),
        (["--languages", "no.json"], "no.json is damaged or not there"),
        (["--languages", "list.json"], "list.json is damaged or not there"),
        (["--languages", "half.json"], "half.json is damaged or not there"),
    ],
)
def test_arguments_that_make_no_sense_are_told(
    tmp_path: Path,
    arguments: list[str],
    said: str,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("list.json").write_text("[1]")
    Path("half.json").write_text("{")
    assert main([str(tmp_path), "--out", "scores.json", *arguments]) == 1
    assert said in capsys.readouterr().err
    assert not Path("scores.json").exists()
