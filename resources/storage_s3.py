"""A store in an S3 bucket, over boto3.

An object appears when its upload completes, never before; the pointer moves by a conditional write
(`If-None-Match` for a new one, `If-Match` on the ETag that was read). boto3's own retries are off:
`resources.retry` asks again, so that waits, their number and the last message are ours.
"""

import contextlib
import tempfile
import threading
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

from pipeline.config.storage import StorageConfig
from pipeline.errors import StorageError
from pipeline.faults import fault
from pipeline.store import ObjectInfo, check_key
from resources import s3_errors as errors
from resources.retry import Retry
from resources.s3_client import client_for

T = TypeVar("T")
MIB = 1 << 20
MAX_PARTS = 10_000  # S3's limit for one upload
DOWNLOAD_PART = 64 * MIB
LIST_PAGE = 1000  # the most a server gives


@dataclass(frozen=True)
class S3Store:
    """Objects of `bucket` below `prefix` (no '/' at its ends; may be empty). Picklable."""

    bucket: str
    prefix: str
    config: StorageConfig
    retry: Retry

    @property
    def url(self) -> str:
        """`s3://bucket/prefix`."""
        return f"s3://{self.bucket}/{self.prefix}".rstrip("/")

    def child(self, prefix: str) -> "S3Store":
        """The store below `prefix`."""
        below = f"{self.prefix}/{check_key(prefix)}".lstrip("/")
        return S3Store(self.bucket, below, self.config, self.retry)

    def _name(self, key: str) -> str:
        return f"{self.prefix}/{check_key(key)}".lstrip("/")

    def _ask(self, what: str, key: str, action: Callable[[Any], T]) -> T:
        """`action(client)`, retried; its last failure as FileNotFoundError or StorageError."""
        where = f"s3://{self.bucket}/{key}".rstrip("/")
        try:
            client = client_for(self.config)
            answer = self.retry.call(
                lambda: action(client), transient=errors.transient, attempts=self._patience
            )
        except errors.FAILURES as error:
            raise errors.explain(error, what, where, self.config) from error
        errors.answered(self.config)
        return answer

    def _patience(self, error: Exception) -> int:
        return errors.patience(error, self.config, self.retry.attempts)

    def read(self, key: str, *, offset: int = 0, length: int | None = None) -> bytes:
        """Bytes `offset .. offset + length`; fewer where the object ends."""
        if length == 0:
            self.stat(key)
            return b""
        request = {"Bucket": self.bucket, "Key": self._name(key)}
        if offset or length is not None:
            last = "" if length is None else offset + length - 1
            request["Range"] = f"bytes={offset}-{last}"
        return self._get(request)[0]

    def _get(self, request: dict[str, str]) -> tuple[bytes, str]:
        """Body and ETag; an empty body where the range starts behind the end."""

        def get(client: Any) -> tuple[bytes, str]:
            try:
                answer = client.get_object(**request)
            except client.exceptions.ClientError as error:
                if errors.code(error) in ("InvalidRange", "416"):
                    return b"", ""
                raise
            with contextlib.closing(answer["Body"]) as body:
                return body.read(), answer["ETag"]

        return self._ask("read", request["Key"], get)

    def write(self, key: str, data: bytes) -> None:
        """Write whole."""
        name = self._name(key)
        fault("s3.put.before")
        self._ask("write", name, lambda s3: s3.put_object(Bucket=self.bucket, Key=name, Body=data))
        fault("s3.put.after")

    def upload(self, path: Path, key: str) -> None:
        """Send a file, in parts where it is larger than one; it is gone from `path` afterwards."""
        size = path.stat().st_size
        part = max(self.config.part_mb * MIB, -(-size // MAX_PARTS))
        if size <= part:
            self.write(key, path.read_bytes())
        else:
            self._multipart(path, self._name(key), size, part)
        path.unlink()

    def _multipart(self, path: Path, name: str, size: int, part: int) -> None:
        where = {"Bucket": self.bucket, "Key": name}
        started = self._ask("upload", name, lambda s3: s3.create_multipart_upload(**where))
        where["UploadId"] = started["UploadId"]
        try:
            fault("s3.upload.start")
            parts = self._send_parts(path, name, where, range(0, size, part), part)
            fault("s3.upload.before_complete")
            self._complete(name, size, where, parts)
        except BaseException:
            # an upload that stays open is paid for and never shows
            with contextlib.suppress(StorageError, FileNotFoundError):
                self._ask("abort", name, lambda s3: s3.abort_multipart_upload(**where))
            raise
        fault("s3.upload.after_complete")

    def _send_parts(
        self, path: Path, name: str, where: dict[str, str], offsets: range, length: int
    ) -> list[dict[str, Any]]:
        """Send the parts, some at once; number and ETag of each, in order."""

        def send(numbered: tuple[int, int]) -> dict[str, Any]:
            number, offset = numbered
            with path.open("rb") as file:
                file.seek(offset)
                data = file.read(length)
            answer = self._ask(
                "upload",
                name,
                lambda s3: s3.upload_part(**where, PartNumber=number, Body=data),
            )
            fault("s3.upload.part")
            return {"PartNumber": number, "ETag": answer["ETag"]}

        with ThreadPoolExecutor(self.config.parallel) as pool:
            return list(pool.map(send, enumerate(offsets, 1)))

    def _complete(
        self, name: str, size: int, where: dict[str, str], parts: list[dict[str, Any]]
    ) -> None:
        lost = threading.Event()

        def complete(s3: Any) -> None:
            try:
                s3.complete_multipart_upload(**where, MultipartUpload={"Parts": parts})
            except s3.exceptions.ClientError as error:
                # the answer to an earlier attempt was lost: the object is there
                if not (lost.is_set() and errors.code(error) == "NoSuchUpload"):
                    lost.set()
                    raise
                if s3.head_object(Bucket=self.bucket, Key=name)["ContentLength"] != size:
                    raise
            except errors.FAILURES:
                lost.set()
                raise

        self._ask("upload", name, complete)

    @contextlib.contextmanager
    def local(self, key: str) -> Iterator[Path]:
        """A temporary copy, gone afterwards."""
        with tempfile.TemporaryDirectory(prefix="gristmill-", dir=self.config.scratch) as folder:
            path = Path(folder) / key.rpartition("/")[2]
            self.download(key, path)
            yield path

    def download(self, key: str, path: Path) -> None:
        """Copy an object to `path` by ranged reads of one version; continues a shorter file."""
        info = self.stat(key)
        request = {"Bucket": self.bucket, "Key": self._name(key), "IfMatch": info.etag or "*"}
        with path.open("ab") as file:
            while (at := file.tell()) < info.size:
                last = min(at + DOWNLOAD_PART, info.size) - 1
                file.write(self._get({**request, "Range": f"bytes={at}-{last}"})[0])

    def exists(self, key: str) -> bool:
        """Whether the object is there."""
        try:
            self.stat(key)
        except FileNotFoundError:
            return False
        return True

    def stat(self, key: str) -> ObjectInfo:
        """Size, ETag and time of an object."""
        name = self._name(key)
        try:
            head = self._ask("read", name, lambda s3: s3.head_object(Bucket=self.bucket, Key=name))
        except FileNotFoundError:
            self._bucket_exists()  # the answer to HEAD has no code: the bucket may be missing
            raise
        return _info(key, head["ContentLength"], head["ETag"], head["LastModified"])

    def _bucket_exists(self) -> None:
        self._ask("read", "", lambda s3: s3.list_objects_v2(Bucket=self.bucket, MaxKeys=1))

    def list(self, prefix: str = "") -> Iterator[ObjectInfo]:
        """All objects below `prefix`, sorted by key; SeaweedFS and S3 Express do not sort."""
        return iter(sorted(self._listed(prefix), key=lambda info: info.key))

    def _listed(self, prefix: str) -> Iterator[ObjectInfo]:
        base = f"{self.prefix}/" if self.prefix else ""
        where = base + prefix
        request = {"Bucket": self.bucket, "Prefix": where, "MaxKeys": LIST_PAGE}
        while True:
            page = self._ask("list", where, lambda s3: s3.list_objects_v2(**request))
            for entry in page.get("Contents", ()):
                if not entry["Key"].endswith("/"):  # consoles make such objects to show folders
                    key = entry["Key"].removeprefix(base)
                    yield _info(key, entry["Size"], entry["ETag"], entry["LastModified"])
            if not page.get("IsTruncated"):
                return
            request["ContinuationToken"] = page["NextContinuationToken"]

    def delete(self, keys: Iterable[str]) -> None:
        """Delete; missing ones are no error. One request a key: every server knows it."""

        def delete(key: str) -> None:
            name = self._name(key)
            with contextlib.suppress(FileNotFoundError):
                self._ask("delete", name, lambda s3: s3.delete_object(Bucket=self.bucket, Key=name))

        with ThreadPoolExecutor(self.config.parallel) as pool:
            for _ in pool.map(delete, keys):
                pass

    def swap(self, key: str, new: bytes, *, expected: bytes | None) -> None:
        """Move a pointer by a conditional write; ConflictError where it is not `expected`."""
        name = self._name(key)
        condition = self._condition(name, expected)
        fault("s3.swap.before")
        before: list[Exception] = []

        def put(s3: Any) -> None:
            try:
                s3.put_object(Bucket=self.bucket, Key=name, Body=new, **condition)
            except s3.exceptions.ClientError as error:
                # an earlier attempt may have won although its answer was lost
                if errors.refused(error) and before and self._holds(name) == new:
                    return
                before.append(error)
                raise
            except errors.FAILURES as error:
                before.append(error)
                raise

        self._ask("move", name, put)
        fault("s3.swap.after")

    def _condition(self, name: str, expected: bytes | None) -> dict[str, str]:
        """The header under which the object still holds `expected`."""
        if expected is None:
            return {"IfNoneMatch": "*"}
        try:
            held, etag = self._get({"Bucket": self.bucket, "Key": name})
        except FileNotFoundError:
            held, etag = None, ""
        if held != expected:
            where = f"s3://{self.bucket}/{name}"
            raise errors.moved(where)
        return {"IfMatch": etag}

    def _holds(self, name: str) -> bytes | None:
        try:
            return self._get({"Bucket": self.bucket, "Key": name})[0]
        except FileNotFoundError:
            return None

    def check(self) -> None:
        """Write and delete a probe: bucket, credentials, address and rights in one request each."""
        self.write("probe-of-gristmill", b"probe")
        self.delete(["probe-of-gristmill"])

    def leftovers(self) -> Iterator[ObjectInfo]:
        """Multipart uploads that nobody completed; `etag` carries the upload's id."""
        base = f"{self.prefix}/" if self.prefix else ""
        request = {"Bucket": self.bucket, "Prefix": base}
        while True:
            page = self._ask("list", base, lambda s3: s3.list_multipart_uploads(**request))
            for entry in page.get("Uploads", ()):
                key = entry["Key"].removeprefix(base)
                yield _info(key, 0, entry["UploadId"], entry["Initiated"])
            if not page.get("IsTruncated"):
                return
            request["KeyMarker"] = page["NextKeyMarker"]
            request["UploadIdMarker"] = page["NextUploadIdMarker"]

    def discard(self, leftover: ObjectInfo) -> None:
        """Abort one of them."""
        name = self._name(leftover.key)
        where = {"Bucket": self.bucket, "Key": name, "UploadId": leftover.etag}
        with contextlib.suppress(FileNotFoundError):
            self._ask("abort", name, lambda s3: s3.abort_multipart_upload(**where))


def _info(key: str, size: int, etag: str, modified: Any) -> ObjectInfo:
    return ObjectInfo(key, size, etag, modified.timestamp())
