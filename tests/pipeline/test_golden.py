"""A golden hash per stage: output that changes without a bump of its code version is caught.

The hash covers every file of a dataset of the miniature (parts, decisions, signals, ...). It holds
for the libraries, the kind of processor and the C library it was recorded with; elsewhere the test
is skipped and says what differs. After a change that is meant:

    bump CODE_VERSION in the stage's module, then  python -m tests.pipeline.test_golden
"""

from __future__ import annotations

import json
import platform
import sys
import tempfile
import zlib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from pipeline.layout import content_key
from pipeline.manifest import KINDS, Content
from tests import miniature, miniature_input

GOLDEN = Path(__file__).with_name("golden.json")
RECORD = "python -m tests.pipeline.test_golden"
STEPS_OF_SOURCES = [
    f"source_texts/{miniature_input.SOURCE}/steps/{name}" for name in ("scored", "deduped")
]


def order() -> list[str]:
    """Datasets of the miniature, each behind those it is made from."""
    names = list(miniature.STEPS)
    at = names.index(f"source_texts/{miniature_input.SOURCE}")
    return [*names[:at], *STEPS_OF_SOURCES, *names[at:]]


def machine() -> dict[str, str]:
    """What decides over the last bit of a number, or over the input, beside the libraries."""
    flags = Path("/proc/cpuinfo").read_text(encoding="utf-8") if sys.platform == "linux" else ""
    return {
        "processor": platform.machine(),
        "fma": str(" fma " in flags),
        "libc": " ".join(platform.libc_ver()),
        "zlib": zlib.ZLIB_RUNTIME_VERSION,  # the miniature's WARC files
        "python": ".".join(platform.python_version_tuple()[:2]),
    }


def output_of(content: Content) -> str:
    """The hash of all files of a dataset."""
    files = {k: [[e.path, e.rows, e.checksum] for e in content.entries(k)] for k in KINDS}
    return content_key(files)


def measure(folder: Path) -> dict[str, Any]:
    """Run the miniature below `folder`: libraries, machine, code version and hash per dataset."""
    given = miniature_input.build(folder / "input")
    root = str(folder / "root")
    miniature.run(root, given)
    contents = {name: d.manifest.content for name, d in miniature.visible(root).items()}
    libraries: dict[str, str] = {}
    for content in contents.values():
        libraries |= content.libraries
    return {
        "machine": machine(),
        "libraries": dict(sorted(libraries.items())),
        "datasets": {
            name: {"code_version": contents[name].code_version, "hash": output_of(contents[name])}
            for name in order()
        },
    }


def differences(recorded: dict[str, Any], now: dict[str, Any]) -> Iterator[str]:
    """What differs between the place of recording and this one."""
    for kind in ("machine", "libraries"):
        for name in sorted({*recorded[kind], *now[kind]}):
            old, new = recorded[kind].get(name), now[kind].get(name)
            if old != new:
                yield f"{name} {old} -> {new}"


def verdict(recorded: dict[str, Any], now: dict[str, Any]) -> str | None:
    """What to do about the first dataset whose hash differs; None where all are equal."""
    for name in order():
        old, new = recorded["datasets"].get(name), now["datasets"][name]
        if old == new or (old and old["hash"] == new["hash"]):
            continue
        stage = name.partition("/")[0]
        if old and old["code_version"] == new["code_version"]:
            return (
                f"{name}: the output changed and CODE_VERSION {new['code_version']!r} of {stage} "
                f"did not: stores made before would mix both. Bump it in the stage's module, then "
                f"run `{RECORD}`; if the change is not meant, undo it"
            )
        return (
            f"{name}: the output is new with code version {new['code_version']!r}; run `{RECORD}`"
        )
    return None


def test_golden(tmp_path: Path) -> None:
    recorded = json.loads(GOLDEN.read_text(encoding="utf-8"))
    now = measure(tmp_path)
    different = list(differences(recorded, now))
    if different:
        pytest.skip(f"golden hashes were recorded elsewhere: {', '.join(different)}")
    message = verdict(recorded, now)
    assert message is None, message


def test_verdicts() -> None:
    datasets = {name: {"code_version": "1", "hash": name} for name in order()}
    recorded = {"machine": {"fma": "True"}, "libraries": {"polars": "1"}, "datasets": datasets}
    assert verdict(recorded, recorded) is None
    first, second = order()[1], order()[4]
    changed = {**datasets, **{name: {"code_version": "1", "hash": "x"} for name in (first, second)}}
    message = verdict(recorded, {**recorded, "datasets": changed})
    assert message is not None
    assert message.startswith(f"{first}: the output changed and CODE_VERSION")
    bumped = {**datasets, first: {"code_version": "2", "hash": "x"}}
    message = verdict(recorded, {**recorded, "datasets": bumped})
    assert message is not None
    assert "is new with code version '2'" in message
    only_bumped = {**datasets, first: {"code_version": "2", "hash": first}}
    assert verdict(recorded, {**recorded, "datasets": only_bumped}) is None
    elsewhere = {**recorded, "libraries": {"polars": "2"}}
    assert list(differences(recorded, elsewhere)) == ["polars 1 -> 2"]


def main() -> int:
    """Record the hashes of now; refused where a code version must be bumped first."""
    with tempfile.TemporaryDirectory(prefix="golden-") as folder:
        now = measure(Path(folder))
    if GOLDEN.exists():
        recorded = json.loads(GOLDEN.read_text(encoding="utf-8"))
        message = verdict(recorded, now)
        if message and "did not" in message and not list(differences(recorded, now)):
            print(message, file=sys.stderr)
            return 1
    GOLDEN.write_text(json.dumps(now, indent=1) + "\n", encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
