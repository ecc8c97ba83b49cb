from __future__ import annotations

import gzip
import hashlib
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from pipeline import snapshots
from pipeline.config import Config
from pipeline.config.snapshots import SnapshotsConfig
from pipeline.errors import ConfigError, GristmillError, StorageError, UsageError
from pipeline.schema import WARC_FILES, conform
from pipeline.snapshots import Listing, cut_groups, list_snapshot
from pipeline.store import Store
from resources.storage import open_store
from tests.s3_server import moto_server


@dataclass(frozen=True)
class Here:
    """What `list_snapshot` needs of a mill."""

    config: Config

    def open_store(self, url: str) -> Store:
        return open_store(url)


def listing(snapshot: str = "S", earlier: Any = None, **section: Any) -> Listing:
    config = Config(snapshots=SnapshotsConfig(**section))
    return list_snapshot(Here(config), snapshot, earlier)


def make(folder: Path, *names: str, size: int = 100) -> Path:
    for name in names:
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(name.encode().ljust(size, b"."))
    return folder


NAMES = ["b-00001.warc.gz", "a-00002.warc", "c-00000.warc.gz"]


def test_a_folder_is_listed_by_name(tmp_path: Path) -> None:
    make(tmp_path / "S", *NAMES, "sub/d.warc.gz")
    make(tmp_path / "S", "x.warc.wet.gz", "y.warc.gz.part", "z.warc.gz.tmp", ".h.warc.gz", "i.gz")
    found = listing(location=str(tmp_path))
    assert found.files["warc_file"].to_list() == [*sorted(NAMES), "d.warc.gz"]
    conform(found.files, WARC_FILES)
    for name, size, checksum, group in found.files.iter_rows():
        path = Path(found.locations[name])
        assert path.is_file()
        assert (size, group) == (100, 0)
        assert checksum == f"sha256:{hashlib.sha256(path.read_bytes()).hexdigest()}"


def test_a_pattern_names_the_folder(tmp_path: Path) -> None:
    make(tmp_path / "crawl" / "S" / "warc", *NAMES)
    found = listing(location=f"{tmp_path}/crawl/{{snapshot}}/warc")
    assert found.files.height == 3


@pytest.mark.parametrize("packed", [True, False])
@pytest.mark.parametrize("base", [True, False])
def test_a_listing_of_paths(tmp_path: Path, packed: bool, base: bool) -> None:
    make(tmp_path / "data" / "crawl" / "S" / "segments" / "1", *NAMES)
    lines = "".join(f"crawl/S/segments/1/{name}\n" for name in NAMES).encode()
    name = "warc.paths.gz" if packed else "warc.paths"
    place = tmp_path / "data" / "crawl" / "S" if not base else make(tmp_path / "lists" / "S", "x")
    (place / name).write_bytes(gzip.compress(lines) if packed else lines)
    pattern = f"{place.parent}/{{snapshot}}/{name}"
    found = listing(location=pattern, base=str(tmp_path / "data") if base else None)
    assert found.files["warc_file"].to_list() == sorted(NAMES)
    assert all(Path(where).is_file() for where in found.locations.values())


def test_a_folder_with_only_a_listing_follows_it(tmp_path: Path) -> None:
    make(tmp_path / "elsewhere", *NAMES)
    make(tmp_path / "S", "wet.paths.gz")
    (tmp_path / "S" / "warc.paths").write_text("".join(f"elsewhere/{n}\n" for n in NAMES))
    assert listing(location=str(tmp_path)).files.height == 3


def test_slices(tmp_path: Path) -> None:
    names = [f"{n:05}.warc.gz" for n in range(40)]
    make(tmp_path / "S", *names)
    where = {"location": str(tmp_path)}
    assert listing(**where, files=3).files["warc_file"].to_list() == names[:3]
    half = set(listing(**where, sample=0.5).files["warc_file"])
    assert 10 <= len(half) <= 30
    assert half == set(listing(**where, sample=0.5).files["warc_file"])
    assert half != set(listing(**where, sample=0.5, sample_seed=1).files["warc_file"])
    assert set(listing(**where, sample=0.25).files["warc_file"]) < half
    assert listing(**where, sample=0.0001).files.height == 1
    make(tmp_path / "S", "99999.warc.gz")
    assert half <= set(listing(**where, sample=0.5).files["warc_file"])


def test_groups_are_cut_by_estimated_text() -> None:
    config = SnapshotsConfig(group_text_bytes=1e6, text_ratio=0.1)
    sizes = [(str(n), size) for n, size in enumerate([4_000_000, 6_000_000, 1, 20_000_000, 5])]
    assert cut_groups(sizes, config, None) == [0, 0, 1, 2, 3]


def test_late_files_get_new_groups(tmp_path: Path) -> None:
    make(tmp_path / "S", *NAMES)
    before = listing(location=str(tmp_path))
    make(tmp_path / "S", "a-00000.warc.gz", "z.warc.gz")
    after = listing(location=str(tmp_path), earlier=before.files)
    assert dict(after.files.select("warc_file", "group").rows()) == {
        **{name: 0 for name in NAMES},
        "a-00000.warc.gz": 1,
        "z.warc.gz": 1,
    }


def test_two_files_of_one_name_are_refused(tmp_path: Path) -> None:
    make(tmp_path / "S", "1/a.warc.gz", "2/a.warc.gz")
    with pytest.raises(GristmillError, match=r"two files are called a\.warc\.gz: .*1/a.*2/a"):
        listing(location=str(tmp_path))


def test_places_that_are_not_there(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"snapshots\.location is not set"):
        listing()
    with pytest.raises(UsageError, match="is not a folder"):
        listing(location=str(tmp_path))
    with pytest.raises(UsageError, match=r"listing .* is not there"):
        listing(location=f"{tmp_path}/{{snapshot}}/warc.paths.gz")
    with pytest.raises(UsageError, match="snapshot name"):
        listing("../S", location=str(tmp_path))
    make(tmp_path / "S", "page.html")
    with pytest.raises(GristmillError, match=r"snapshot S: no \*\.warc") as caught:
        listing(location=str(tmp_path))
    assert caught.value.exit_code == 1


def test_broken_listings(tmp_path: Path) -> None:
    make(tmp_path / "S", "x")
    paths = tmp_path / "S" / "warc.paths.gz"
    paths.write_bytes(gzip.compress(b"a/b.warc.gz\n")[:-5])
    with pytest.raises(GristmillError, match="cannot be read"):
        listing(location=str(tmp_path))
    paths.write_bytes(gzip.compress(b"a/b.warc.gz\n"))
    with pytest.raises(GristmillError, match="is below none of its folders"):
        listing(location=str(tmp_path))
    with pytest.raises(GristmillError, match="is listed but not there"):
        listing(location=str(tmp_path), base=str(tmp_path))
    paths.write_bytes(gzip.compress(b"a/b.warc.wet.gz\n"))
    with pytest.raises(GristmillError, match=r"no \*\.warc"):
        listing(location=str(tmp_path), base=str(tmp_path))


@pytest.mark.parametrize("path", ["../../other.warc.gz", "a/../../b.warc.gz", "a\0b.warc.gz"])
def test_a_listing_leads_to_nowhere_outside_its_base(tmp_path: Path, path: str) -> None:
    make(tmp_path / "S", "x")
    (tmp_path / "S" / "warc.paths").write_text(f"{path}\n")
    for base in (None, str(tmp_path / "data")):
        with pytest.raises(GristmillError, match="outside its base"):
            listing(location=str(tmp_path), base=base)


def test_a_bucket(monkeypatch: pytest.MonkeyPatch) -> None:
    with moto_server() as server, server.environment():
        bucket, client = server.bucket(), server.client()
        for name in (*NAMES, "warc.paths.gz"):
            client.put_object(Bucket=bucket, Key=f"crawl/S/{name}", Body=name.encode())
        client.close()
        found = listing(location=f"s3://{bucket}/crawl")
        assert found.files["warc_file"].to_list() == sorted(NAMES)
        assert found.locations[NAMES[0]] == f"s3://{bucket}/crawl/S/{NAMES[0]}"
        digest = hashlib.sha256(sorted(NAMES)[0].encode()).hexdigest()
        assert found.files["checksum"][0] == f"sha256:{digest}"
        monkeypatch.setattr(snapshots, "ETAG_ABOVE", 10)
        for section in ({}, {"checksum": "etag"}):
            etags = listing(location=f"s3://{bucket}/crawl", **section).files["checksum"]
            md5 = hashlib.md5(sorted(NAMES)[0].encode()).hexdigest()
            assert etags[0] == f"etag:{md5}"
        assert listing(location=f"s3://{bucket}/crawl", checksum="sha256").files.equals(found.files)
        with pytest.raises(GristmillError, match=r"snapshot T: no \*\.warc"):
            listing("T", location=f"s3://{bucket}/crawl")
        with pytest.raises(StorageError, match="absent"):
            listing(location="s3://absent/crawl")


def test_one_slice_at_a_time() -> None:
    with pytest.raises(ValueError, match="exclude each other"):
        SnapshotsConfig(files=1, sample=0.5)


@pytest.mark.shared
@pytest.mark.parametrize("where", ["", "/{snapshot}/warc.paths.gz"])
def test_real_snapshots(shared: Path, where: str) -> None:
    found = listing("CRAWL-2026-40", location=f"{shared / 'data' / 'snapshots'}{where}")
    assert found.files.height == 5
    assert found.files["group"].to_list() == [0] * 5
