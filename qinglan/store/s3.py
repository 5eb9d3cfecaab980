"""A shelf in S3, through minio. Nothing is written twice but by the same bytes.

Entries and manifests are created with If-None-Match: the server itself refuses the second writer. minio's
`put_object` takes no such header, so they go through a presigned URL, once, without retries. A server that ignores
the header would let two writers win, so it is tried before the first of them.
"""

import base64
import hashlib
import os
import re
from collections.abc import Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import timedelta
from functools import cached_property
from pathlib import Path
from threading import Lock
from typing import TYPE_CHECKING, BinaryIO, cast
from urllib.parse import urlsplit
from xml.etree.ElementTree import ParseError

from qinglan.errors import ConfigError, DataError, OutageError, QinglanError
from qinglan.store.shelf import CHUNK, Content, Hashed

if TYPE_CHECKING:
    from minio import Minio
    from minio.error import S3Error
    from urllib3 import BaseHTTPResponse, PoolManager

ENDPOINT = "QINGLAN_S3_ENDPOINT"
KEY, SECRET = "AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY"
BUCKET = r"(?!\d+\.\d+\.\d+\.\d+(?:/|$))[a-z0-9](?:[a-z0-9-]|\.(?=[a-z0-9])){1,61}[a-z0-9]"
ADDRESS = re.compile(rf"s3://(?P<bucket>{BUCKET})(?P<prefix>(?:/[A-Za-z0-9][A-Za-z0-9._-]*)*)/?")
HOST = re.compile(r"https?://(?:[A-Za-z0-9.-]+|\[[0-9a-fA-F:]+\])(?::\d{1,5})?")

CONNECT_SECONDS = 3.0
READ_SECONDS = 60.0
RETRIES = 2
SIGNED_FOR = timedelta(minutes=15)
"""As long as S3 bears with a clock that is wrong."""

PART = 16 << 20
MOST_PARTS = 10_000
STATS_AT_ONCE = 8
TAKEN = 412
PROBE = "probe/created-once"

TRY_AGAIN = {"SlowDown", "ConditionalRequestConflict", "RequestTimeout"}
WRONG_KEYS = {"InvalidAccessKeyId", "SignatureDoesNotMatch", "InvalidTokenId", "ExpiredToken", "InvalidToken"}


@dataclass(frozen=True)
class Settings:
    """Where an S3 store is and how it is reached."""

    bucket: str
    prefix: str
    endpoint: str
    key: str
    secret: str = field(repr=False)
    token: str | None = field(repr=False)
    region: str | None

    @property
    def address(self) -> str:
        return f"s3://{self.bucket}/{self.prefix}".rstrip("/")

    @classmethod
    def of(cls, address: str, environment: Mapping[str, str]) -> "Settings":
        """From s3://bucket/prefix and the environment; a ConfigError that names what is missing."""
        parts = ADDRESS.fullmatch(address)
        if not parts:
            raise ConfigError(f"{address}: not s3://bucket/prefix with plain names.")
        if missing := [name for name in (ENDPOINT, KEY, SECRET) if not environment.get(name)]:
            raise ConfigError(f"{address}: set {', '.join(missing)} in the environment.")
        endpoint = environment[ENDPOINT].rstrip("/")
        if not HOST.fullmatch(endpoint):
            raise ConfigError(f"{ENDPOINT}: not http(s)://host:port and nothing else.")
        return cls(
            bucket=parts["bucket"], prefix=parts["prefix"].strip("/"), endpoint=endpoint,
            key=environment[KEY], secret=environment[SECRET], token=environment.get("AWS_SESSION_TOKEN") or None,
            region=environment.get("AWS_REGION") or None,
        )  # fmt: skip


class S3Shelf:
    def __init__(self, settings: Settings) -> None:
        self._settings = settings
        self._bucket = settings.bucket
        self._proving = Lock()
        self._proven = False

    @property
    def address(self) -> str:
        return self._settings.address

    @cached_property
    def _http(self) -> "PoolManager":
        """Of our own: minio's waits five minutes for a connection, six times."""
        import certifi
        from urllib3 import PoolManager, Retry, Timeout

        return PoolManager(
            timeout=Timeout(connect=CONNECT_SECONDS, read=READ_SECONDS), maxsize=32, cert_reqs="CERT_REQUIRED",
            ca_certs=os.environ.get("SSL_CERT_FILE") or certifi.where(),
            retries=Retry(total=RETRIES, backoff_factor=0.2, status_forcelist=[500, 502, 503, 504]),
        )  # fmt: skip

    @cached_property
    def _client(self) -> "Minio":
        from minio import Minio

        url, own = urlsplit(self._settings.endpoint), self._settings
        return Minio(
            url.netloc, own.key, own.secret, own.token, secure=url.scheme == "https", region=own.region,
            http_client=self._http,
        )  # fmt: skip

    def _key(self, key: str) -> str:
        return f"{self._settings.prefix}/{key}".lstrip("/")

    def read(self, key: str) -> bytes | None:
        with self._reached():
            return b"".join(found) if (found := self._stream(key)) is not None else None

    def chunks(self, key: str) -> Iterator[bytes]:
        with self._reached():
            found = self._stream(key)
            if found is None:
                raise DataError(f"{self.address}/{key}: is gone. Push the artifact again.")
            yield from found

    def _stream(self, key: str) -> Iterator[bytes] | None:
        from minio.error import S3Error

        try:
            response = self._client.get_object(self._bucket, self._key(key))
        except S3Error as error:
            if error.code == "NoSuchKey":
                return None
            raise
        return _drained(response)

    def create(self, key: str, data: bytes) -> bool:
        with self._reached():
            self._prove()
            return self._create(key, data)

    def _create(self, key: str, data: bytes) -> bool:
        """One conditional write. It is not tried again by itself: the second try could lose to the first."""
        from minio.error import S3Error, ServerError

        url = self._client.get_presigned_url("PUT", self._bucket, self._key(key), SIGNED_FOR)
        md5 = base64.b64encode(hashlib.md5(data, usedforsecurity=False).digest()).decode()
        headers = {"If-None-Match": "*", "Content-MD5": md5, "Content-Type": "application/json"}
        response = self._http.request("PUT", url, body=data, headers=headers, retries=False)
        if response.status >= 500:
            raise ServerError(f"HTTP {response.status}", response.status)
        if response.status not in (200, TAKEN):
            raise S3Error.fromxml(response)
        return response.status == 200

    def _prove(self) -> None:
        """That the server refuses a second writer; a ConfigError if not."""
        with self._proving:
            self._proven = self._proven or not (self._create(PROBE, b"{}") and self._create(PROBE, b"{}"))
            if not self._proven:
                raise ConfigError(
                    f"{self.address}: the S3 at {self._settings.endpoint} ignores If-None-Match, so two writers "
                    "could both win. Use a server that honours conditional writes (MinIO, AWS)."
                )

    def put(self, key: str, source: Path, sha256: str) -> None:
        size = source.stat().st_size
        with self._reached(), source.open("rb") as file:
            hashed = Hashed(file)
            self._upload(key, hashed, size, sha256)
        hashed.must_be(sha256, source)

    def _upload(self, key: str, hashed: Hashed, size: int, sha256: str) -> None:
        part = PART if size <= PART * MOST_PARTS else 0
        whole = self._key(key)
        try:
            self._client.put_object(
                self._bucket, whole, cast(BinaryIO, hashed), size, metadata={"sha256": sha256}, part_size=part
            )
        except OSError as error:
            raise DataError(f"{self.address}/{key}: {error}. Push again once nothing writes to the file.") from None

    def children(self, prefix: str) -> list[str]:
        return sorted(name.rstrip("/") for name, _ in self._listed(prefix, recursive=False))

    def found(self, prefix: str) -> dict[str, Content]:
        """Sizes as listed, and the digest that each was uploaded with, confirmed then by its bytes."""
        sizes = dict(self._listed(prefix, recursive=True))
        with ThreadPoolExecutor(STATS_AT_ONCE) as pool:
            digests = pool.map(lambda name: self._uploaded_as(f"{prefix}{name}"), sizes)
            return {name: Content(sha, size) for (name, size), sha in zip(sizes.items(), digests, strict=True)}

    def _listed(self, prefix: str, recursive: bool) -> list[tuple[str, int]]:
        start = self._key(prefix)
        with self._reached():
            found = self._client.list_objects(self._bucket, prefix=start, recursive=recursive)
            return [((item.object_name or "").removeprefix(start), item.size or 0) for item in found]

    def _uploaded_as(self, key: str) -> str:
        with self._reached():
            metadata = self._client.stat_object(self._bucket, self._key(key)).metadata
        return str((metadata or {}).get("x-amz-meta-sha256", ""))

    @contextmanager
    def _reached(self) -> Iterator[None]:
        """Every failure as one of ours: nobody there, wrong settings, or a fault of the data."""
        from minio.error import MinioException, S3Error
        from urllib3.exceptions import HTTPError

        try:
            yield
        except HTTPError as error:
            raise self._outage(str(getattr(error, "reason", None) or error)) from None
        except S3Error as error:
            raise self._explained(error) from None
        except (MinioException, ParseError) as error:
            raise self._outage(f"not as S3 does: {str(error)[:200]}") from None

    def _explained(self, error: "S3Error") -> QinglanError:
        code = error.code or ""
        if code in WRONG_KEYS:
            return ConfigError(f"{self.address}: {code}. Check {KEY} and {SECRET}, and the clock of this machine.")
        if code == "AccessDenied":
            return ConfigError(f"{self.address}: {code}. Let this key list, read and write the bucket.")
        if code == "NoSuchBucket":
            return ConfigError(f"{self.address}: no bucket {self._bucket}. Make it first.")
        if 400 <= error.response.status < 500 and code not in TRY_AGAIN:
            return DataError(f"{self.address}: refused with {code}: {error.message}. ({error.resource})")
        return self._outage(f"{code}: {error.message}")

    def _outage(self, reason: str) -> OutageError:
        return OutageError(
            f"{self.address}: the S3 at {self._settings.endpoint} gave no answer ({reason}). Check {ENDPOINT} and "
            "that it runs, then try again. After a failed `point`, look first where the name points."
        )


def _drained(response: "BaseHTTPResponse") -> Iterator[bytes]:
    try:
        yield from response.stream(CHUNK)
    finally:
        response.close()
        response.release_conn()
