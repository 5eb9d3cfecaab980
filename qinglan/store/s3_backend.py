"""Storage in S3. Nothing is written twice but by the same bytes.

Entries and manifests are created with If-None-Match: the server itself refuses the second writer, and they are sent
once, without retries. A server that ignores the header would let two writers win, so it is tried before the first.
"""

import hashlib
from concurrent.futures import ThreadPoolExecutor
from threading import Lock
from typing import TYPE_CHECKING

from qinglan.errors import ConfigError, DataError
from qinglan.store.backend import ObjectInfo, SourceFile, checked_key
from qinglan.store.multipart import SHA256_HEADER, put_object, upload_parts
from qinglan.store.s3_connection import PART_RETRIES, RETRIES, S3Connection, S3Settings
from qinglan.terminal.progress import Transfer

if TYPE_CHECKING:
    from minio.datatypes import Object

STATS_AT_ONCE = 8
PRECONDITION_FAILED = "PreconditionFailed"
NO_SUCH_KEY = "NoSuchKey"
INVALID_RANGE = "InvalidRange"
PROBE = "probe/created-once"


class S3Backend:
    def __init__(self, settings: S3Settings) -> None:
        self._s3 = S3Connection(settings)
        self._proving = Lock()
        self._proven = False

    @property
    def address(self) -> str:
        return self._s3.address

    def key(self, key: str) -> str:
        return f"{self._s3.settings.prefix}/{checked_key(key)}".lstrip("/")

    def prepare(self) -> None:
        """Do nothing: a bucket is made by its operator, and the first request reports one that is missing."""

    def read(self, key: str) -> bytes | None:
        return self._get(key, {}, RETRIES)

    def part(self, key: str, start: int, size: int) -> bytes:
        data = self._get(key, {"Range": f"bytes={start}-{start + size - 1}"}, PART_RETRIES)
        if data is None:
            raise DataError(f"{self.address}/{key}: is gone. Push the artifact again.")
        return data

    def _get(self, key: str, headers: dict[str, str], retries: int) -> bytes | None:
        from minio.error import S3Error

        with self._s3.reached():
            try:
                return self._s3.ask("GET", self.key(key), headers=headers, retries=retries).data
            except S3Error as error:
                if error.code == NO_SUCH_KEY:
                    return None
                if error.code == INVALID_RANGE:
                    return b""
                raise

    def create(self, key: str, data: bytes) -> bool:
        with self._s3.reached():
            self._prove()
            return self._create(key, data)

    def _create(self, key: str, data: bytes) -> bool:
        """One conditional write. It is not tried again by itself: the second try could lose to the first."""
        from minio.error import S3Error

        headers = {"If-None-Match": "*", "Content-Type": "application/json"}
        try:
            self._s3.ask("PUT", self.key(key), None, data, headers, hashlib.sha256(data).hexdigest(), retries=0)
        except S3Error as error:
            if error.code == PRECONDITION_FAILED:
                return False
            raise
        return True

    def _prove(self) -> None:
        """Prove once that the server refuses a second writer; a ConfigError if not."""
        with self._proving:
            self._proven = self._proven or not (self._create(PROBE, b"{}") and self._create(PROBE, b"{}"))
            if not self._proven:
                raise ConfigError(
                    f"{self.address}: the S3 at {self._s3.settings.endpoint} ignores If-None-Match, so two writers "
                    "could both win. Use a server that honours conditional writes (MinIO, AWS)."
                )

    def put(self, key: str, source: SourceFile, tally: Transfer) -> None:
        with self._s3.reached():
            if source.parts:
                upload_parts(self._s3, self.key(key), source, tally)
            else:
                data = source.path.read_bytes()
                put_object(self._s3, self.key(key), {}, {SHA256_HEADER: source.sha256}, data, source.sha256, source)
                tally.add_moved(source.size)

    def children(self, prefix: str, beginning: str = "") -> list[str]:
        start, listed = self.key(prefix), self._listed(self.key(prefix + beginning), False)
        return sorted((item.object_name or "").removeprefix(start).rstrip("/") for item in listed)

    def objects(self, prefix: str) -> dict[str, ObjectInfo]:
        """Sizes as listed, and the digest that each was uploaded with, confirmed then by its bytes."""
        start = self.key(prefix)
        with ThreadPoolExecutor(STATS_AT_ONCE) as pool:
            contents = pool.map(self._content, items := self._listed(start, True))
            names = [(item.object_name or "").removeprefix(start) for item in items]
            return dict(zip(names, contents, strict=True))

    def _listed(self, prefix: str, recursive: bool) -> "list[Object]":
        bucket = self._s3.settings.bucket
        with self._s3.reached():
            return list(self._s3.client.list_objects(bucket, prefix, recursive, include_user_meta=recursive))

    def _content(self, item: "Object") -> ObjectInfo:
        """MinIO lists the digest too; elsewhere each object is asked for its own."""
        listed = {name.lower(): value for name, value in (item.metadata or {}).items()}
        if SHA256_HEADER in listed:
            return ObjectInfo(listed[SHA256_HEADER], item.size or 0)
        with self._s3.reached():
            metadata = self._s3.client.stat_object(self._s3.settings.bucket, item.object_name or "").metadata
        return ObjectInfo(str((metadata or {}).get(SHA256_HEADER, "")), item.size or 0)
