"""The configuration of a verb: `gristmill.yaml` of the store, a file, options, in this order."""

from pathlib import Path

import pytest

from assets.cli import build_parser
from assets.commands.session import configuration
from assets.commands.store import plain
from pipeline.config import FILE_NAME, Config
from pipeline.errors import ConfigError
from resources.storage import open_store
from tests.s3_server import moto_server

STORED = b"preset: fineweb\ndedup: {threshold: 0.7}\nengine: {workers: 3}\n"


def configured(*words: str) -> Config:
    return configuration(build_parser().parse_args(["plan", *words]))


def test_the_store_of_a_folder_says_how_it_is_made(tmp_path: Path) -> None:
    root = str(tmp_path)
    assert configured("--root", root).preset is None
    (tmp_path / FILE_NAME).write_bytes(STORED)
    found = configured("--root", root, "--workers", "2", "--set", "dedup.bands=9")
    assert (found.preset, found.storage.root) == ("fineweb", root)
    assert (found.dedup.threshold, found.dedup.scope, found.dedup.bands) == (0.7, "snapshot", 9)
    assert found.engine.workers == 2


def test_a_named_file_stands_in_for_that_of_the_store(tmp_path: Path) -> None:
    (tmp_path / FILE_NAME).write_bytes(STORED)
    other = tmp_path / "other.yaml"
    other.write_text("dedup: {threshold: 0.9}")
    found = configured("--root", str(tmp_path), "--config", str(other))
    assert (found.preset, found.dedup.threshold) == (None, 0.9)


def test_a_bucket_holds_its_configuration_too() -> None:
    with moto_server() as server, server.environment():
        root = f"s3://{server.bucket()}/x"
        assert configured("--root", root).preset is None
        open_store(root).write(FILE_NAME, STORED)
        assert configured("--root", root).dedup.threshold == 0.7


def test_a_broken_file_of_the_store_is_named(tmp_path: Path) -> None:
    (tmp_path / FILE_NAME).write_bytes(b"\xff")
    with pytest.raises(ConfigError, match="is not UTF-8"):
        configured("--root", str(tmp_path))


def test_what_strangers_wrote_cannot_steer_a_terminal() -> None:
    assert plain("a\x1b[2J\x9b31mb\u202ec\nd") == "a[2J31mbcd"
    assert plain("Größe 水 नमस्ते") == "Größe 水 नमस्ते"
    assert len(plain("x" * 300)) == 200
