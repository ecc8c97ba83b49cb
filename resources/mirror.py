"""A folder that mirrors a part of a bucket: files come verified, stay, and go back.

A large file counts once it has the checksum that somebody told; until then it has a hidden name,
and a download that was cut goes on where it stopped.
"""

import hashlib
import os
import shutil
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

from pipeline.errors import DamagedPartError
from resources.storage_local import LocalStore, refusals
from resources.storage_s3 import S3Store


@dataclass(frozen=True)
class Mirror:
    """Objects of `store` as files of `folder`, by the same keys."""

    store: S3Store
    folder: Path

    def below(self, prefix: str, folder: Path | None = None) -> "Mirror":
        """The mirror of what is below a prefix, in the folder of that name or in another."""
        return Mirror(self.store.child(prefix), folder or self.folder / prefix)

    def bring(self, key: str) -> bytes:
        """Copy a small file, and return it. FileNotFoundError where the bucket lacks it."""
        data = self.store.read(key)
        target = self.folder / key
        if not (target.is_file() and target.read_bytes() == data):
            LocalStore(self.folder).write(key, data)
        return data

    def bring_verified(self, told: Mapping[str, str]) -> int:
        """Copy files (key -> `sha256:<hex>`) that are not there with that checksum; how many.

        Raises DamagedPartError where the bucket has none or one with another checksum.
        """
        with ThreadPoolExecutor(self.store.config.parallel) as pool:
            return sum(pool.map(self._verified, told.keys(), told.values()))

    def _verified(self, key: str, told: str) -> bool:
        target = self.folder / key
        if target.is_file() and checksum(target) == told:
            return False
        partial = target.with_name(f".{target.name}.{told[-16:]}.part")
        partial.parent.mkdir(parents=True, exist_ok=True)
        with refusals("write", partial):
            self._download(key, partial)
        if checksum(partial) != told:
            partial.unlink()
            message = f"{self.store.url}/{key} has another checksum than when it was written"
            raise DamagedPartError(message, hint="materialise what made it again")
        partial.replace(target)
        return True

    def _download(self, key: str, path: Path) -> None:
        try:
            self.store.download(key, path)
        except FileNotFoundError as error:
            message = f"{self.store.url}/{key} is not there any more"
            raise DamagedPartError(message, hint="materialise what made it again") from error

    def send(self, key: str) -> None:
        """Upload a file, which stays where it is."""
        path = self.folder / key
        alias = path.with_name(f".{path.name}.sending")  # the store takes a file over
        alias.unlink(missing_ok=True)
        try:
            os.link(path, alias)
        except OSError:  # no hard links on this file system
            shutil.copyfile(path, alias)
        try:
            self.store.upload(alias, key)
        finally:
            alias.unlink(missing_ok=True)


def checksum(path: Path) -> str:
    """`sha256:<hex>` of a file."""
    with path.open("rb") as file:
        return f"sha256:{hashlib.file_digest(file, 'sha256').hexdigest()}"
