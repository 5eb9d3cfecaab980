"""Storage in S3. An object is overwritten only with the same bytes.

Entries and manifests are created with If-None-Match, so the server itself refuses a second writer. They are sent
once, without retries. If a server ignored the header, two writers could both win, so every process tests the
server before its first such write.
"""

import base64
import hashlib
from concurrent.futures import ThreadPoolExecutor
from threading import Lock
from typing import TYPE_CHECKING, BinaryIO, cast

from qinglan.errors import ConfigError, DataError
from qinglan.files.plain_files import open_plain
from qinglan.store.backend import MIN_PART_SIZE, ObjectInfo, SourceFile, checked_key, part_size, source_changed_error
from qinglan.store.parallel import MAX_WORKERS
from qinglan.store.s3_connection import S3Connection, S3Settings
from qinglan.terminal.progress import Transfer

if TYPE_CHECKING:
    from minio.datatypes import Object

SHA256_HEADER = "x-amz-meta-sha256"
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
        """Do nothing, because an operator creates the bucket. The first request reports a missing bucket."""

    def read(self, key: str) -> bytes | None:
        return self._get(key, {})

    def part(self, key: str, start: int, size: int) -> bytes:
        data = self._get(key, {"Range": f"bytes={start}-{start + size - 1}"})
        if data is None:
            raise DataError(f"{self.address}/{key}: is gone. Push the artifact again.")
        return data

    def _get(self, key: str, headers: dict[str, str]) -> bytes | None:
        from minio.error import S3Error

        with self._s3.reached():
            try:
                return self._s3.ask("GET", self.key(key), headers).data
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
        """Create an object without a retry, which the server would refuse if the first request had arrived."""
        from minio.error import S3Error

        md5 = base64.b64encode(hashlib.md5(data, usedforsecurity=False).digest()).decode()
        # https://docs.aws.amazon.com/AmazonS3/latest/userguide/conditional-writes.html
        headers = {"If-None-Match": "*", "Content-Type": "application/json", "Content-MD5": md5}
        try:
            self._s3.ask("PUT", self.key(key), headers, data, retries=0)
        except S3Error as error:
            if error.code == PRECONDITION_FAILED:
                return False
            raise
        return True

    def _prove(self) -> None:
        """Test once that the server refuses a second writer. Raises a ConfigError if it does not."""
        with self._proving:
            # The second write of the same key must fail. The first one fails too if an earlier process did this test.
            self._proven = self._proven or not (self._create(PROBE, b"{}") and self._create(PROBE, b"{}"))
            if not self._proven:
                raise ConfigError(
                    f"{self.address}: the S3 at {self._s3.settings.endpoint} ignores If-None-Match, so two writers "
                    "could both win. Use a server that honours conditional writes (MinIO, AWS)."
                )

    def put(self, key: str, source: SourceFile, tally: Transfer) -> None:
        """Upload with minio, large files in parts. The server compares each part with its checksum.

        After a killed upload, the next upload starts from the beginning. MinIO removes the old parts after a day.
        """
        size = source.size
        with open_plain(source.path) as file, self._s3.reached():
            self._s3.client.put_object(
                self._s3.settings.bucket,
                self.key(key),
                cast("BinaryIO", _HashedReader(file, source, tally)),
                size,
                metadata={SHA256_HEADER: source.sha256},
                part_size=part_size(size) if size > MIN_PART_SIZE else 0,
                num_parallel_uploads=MAX_WORKERS,
            )

    def children(self, prefix: str, beginning: str = "") -> list[str]:
        start, listed = self.key(prefix), self._listed(self.key(prefix + beginning), False)
        return sorted((item.object_name or "").removeprefix(start).rstrip("/") for item in listed)

    def objects(self, prefix: str) -> dict[str, ObjectInfo]:
        """List objects with the size in S3 and the digest that was checked when the object was uploaded."""
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
        """Return an object's digest and size. MinIO lists digests; other servers need a request for each object."""
        listed = {name.lower(): value for name, value in (item.metadata or {}).items()}
        if SHA256_HEADER in listed:
            return ObjectInfo(listed[SHA256_HEADER], item.size or 0)
        with self._s3.reached():
            metadata = self._s3.client.stat_object(self._s3.settings.bucket, item.object_name or "").metadata
        return ObjectInfo(str((metadata or {}).get(SHA256_HEADER, "")), item.size or 0)


class _HashedReader:
    """Reader of a file to upload. It raises an error at the last byte if the file has changed since it was hashed.

    minio sends the last part only after reading it, so a file that changed is never complete in the store.
    """

    def __init__(self, file: BinaryIO, source: SourceFile, tally: Transfer) -> None:
        self._file, self._source, self._tally = file, source, tally
        self._left, self._sha256 = source.size, hashlib.sha256()

    def read(self, size: int) -> bytes:
        data = self._file.read(size)
        self._left -= len(data)
        self._sha256.update(data)
        self._tally.add_moved(len(data))
        if not data or (self._left == 0 and self._sha256.hexdigest() != self._source.sha256):
            raise source_changed_error(self._source)
        return data
