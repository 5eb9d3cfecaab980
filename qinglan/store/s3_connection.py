"""Send requests to S3, and turn its failures into Qinglan's errors."""

import os
import re
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from email.utils import parsedate_to_datetime
from functools import cached_property
from typing import TYPE_CHECKING
from urllib.parse import urlsplit
from xml.etree import ElementTree

from urllib3 import BaseHTTPResponse, PoolManager, Retry, Timeout
from urllib3.exceptions import HTTPError

from qinglan.clock import how_long
from qinglan.errors import ConfigError, DataError, OutageError, QinglanError

if TYPE_CHECKING:
    from minio import Minio
    from minio.error import S3Error

ENDPOINT_VARIABLE = "QINGLAN_S3_ENDPOINT"
ACCESS_KEY_VARIABLE, SECRET_KEY_VARIABLE = "AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY"
BUCKET = r"(?!\d+\.\d+\.\d+\.\d+(?:/|$))[a-z0-9](?:[a-z0-9-]|\.(?=[a-z0-9])){1,61}[a-z0-9]"
ADDRESS = re.compile(rf"s3://(?P<bucket>{BUCKET})(?P<prefix>(?:/[A-Za-z0-9][A-Za-z0-9._-]*)*)/?")
ENDPOINT_PATTERN = re.compile(r"https?://(?:[A-Za-z0-9.-]+|\[[0-9a-fA-F:]+\])(?::\d{1,5})?")

CONNECT_SECONDS = 3.0
READ_SECONDS = 60.0
RETRIES = 5
"""Retries of a request. With pauses they take about eight seconds, so an upload survives a restart of the server."""

RETRY_AFTER_SECONDS = 2
# https://docs.aws.amazon.com/AmazonS3/latest/API/ErrorResponses.html#ErrorCodeList
TRY_AGAIN = {"SlowDown", "ConditionalRequestConflict", "RequestTimeout"}
WRONG_KEYS = {"InvalidAccessKeyId", "SignatureDoesNotMatch", "InvalidTokenId", "ExpiredToken", "InvalidToken"}
TOO_SKEWED = "RequestTimeTooSkewed"
MAX_SKEW = timedelta(minutes=15)
"""Largest difference between a request's date and S3's clock. S3 refuses requests with a larger difference."""

FULL = {"XMinioStorageFull", "XMinioAdminBucketQuotaExceeded"}
RIGHTS = (
    "s3:ListBucket, GetBucketLocation of the bucket, and s3:GetObject, PutObject, AbortMultipartUpload of what is "
    "under the prefix"
)


@dataclass(frozen=True)
class S3Settings:
    """The address of an S3 store, and the keys to it."""

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
    def of(cls, address: str, environment: Mapping[str, str]) -> "S3Settings":
        """Read the settings from an address s3://bucket/prefix and the environment.

        Raises a ConfigError that names what is missing.
        """
        parts = ADDRESS.fullmatch(address)
        if not parts:
            raise ConfigError(f"{address}: not s3://bucket/prefix with plain names.")
        if missing := [
            name
            for name in (ENDPOINT_VARIABLE, ACCESS_KEY_VARIABLE, SECRET_KEY_VARIABLE)
            if not environment.get(name)
        ]:
            raise ConfigError(f"{address}: set {', '.join(missing)} in the environment.")
        endpoint = environment[ENDPOINT_VARIABLE].rstrip("/")
        if not ENDPOINT_PATTERN.fullmatch(endpoint):
            raise ConfigError(f"{ENDPOINT_VARIABLE}: not http(s)://host:port and nothing else.")
        return cls(
            bucket=parts["bucket"],
            prefix=parts["prefix"].strip("/"),
            endpoint=endpoint,
            key=environment[ACCESS_KEY_VARIABLE],
            secret=environment[SECRET_KEY_VARIABLE],
            token=environment.get("AWS_SESSION_TOKEN") or None,
            region=environment.get("AWS_REGION") or None,
        )


class S3Connection:
    """Sends requests to one bucket. The keys that it takes include the store's prefix."""

    def __init__(self, settings: S3Settings, retries: int = RETRIES) -> None:
        self.settings, self._retries = settings, retries

    @property
    def address(self) -> str:
        return self.settings.address

    @cached_property
    def client(self) -> "Minio":
        from minio import Minio

        url, settings = urlsplit(self.settings.endpoint), self.settings
        return Minio(
            url.netloc,
            settings.key,
            settings.secret,
            settings.token,
            secure=url.scheme == "https",
            region=settings.region,
            http_client=self._http,
        )

    @cached_property
    def _http(self) -> PoolManager:
        """Connection pool with shorter time limits than minio's own, which allow six tries of five minutes each."""
        import certifi

        return PoolManager(
            timeout=Timeout(connect=CONNECT_SECONDS, read=READ_SECONDS),
            maxsize=32,
            cert_reqs="CERT_REQUIRED",
            ca_certs=os.environ.get("SSL_CERT_FILE") or certifi.where(),
            retries=_retry(self._retries),
        )

    def ask(
        self,
        method: str,
        key: str,
        headers: Mapping[str, str] | None = None,
        body: bytes = b"",
        retries: int | None = None,
    ) -> BaseHTTPResponse:
        """Send one request for an object. Raises an S3Error if S3 refuses it.

        minio has no public call for a conditional write, so the request goes to a presigned URL with its own headers.
        https://docs.aws.amazon.com/AmazonS3/latest/API/sigv4-query-string-auth.html
        """
        from minio.error import S3Error, ServerError

        url = self.client.get_presigned_url(method, self.settings.bucket, key, expires=MAX_SKEW)
        response = self._http.request(
            method,
            url,
            body=body,
            headers=dict(headers or {}),
            retries=_retry(self._retries if retries is None else retries),
        )
        if response.status < 300:
            return response
        try:
            raise S3Error.fromxml(response)
        except ElementTree.ParseError as error:
            raise ServerError(f"HTTP {response.status}", response.status) from error

    @contextmanager
    def reached(self) -> Iterator[None]:
        """Turn every failure of S3 in the block into an OutageError, a ConfigError or a DataError."""
        from minio.error import MinioException, S3Error

        try:
            yield
        except HTTPError as error:
            raise self._outage(str(getattr(error, "reason", None) or error)) from error
        except S3Error as error:
            raise self._explained(error) from error
        except (MinioException, ElementTree.ParseError) as error:
            raise self._outage(f"not as S3 does: {str(error)[:200]}") from error

    def _explained(self, error: "S3Error") -> QinglanError:
        code = error.code or ""
        skew = clock_error(error)
        if code == TOO_SKEWED or (skew > MAX_SKEW and code in {*WRONG_KEYS, "AccessDenied"}):
            return ConfigError(
                f"{self.address}: refused with {code}: this machine's clock differs by "
                f"{how_long(max(skew, MAX_SKEW))} from that of the S3 at {self.settings.endpoint}. Set the clock "
                "that is wrong, then try again."
            )
        if code in WRONG_KEYS:
            return ConfigError(f"{self.address}: {code}. Check {ACCESS_KEY_VARIABLE} and {SECRET_KEY_VARIABLE}.")
        if code == "AccessDenied":
            return ConfigError(f"{self.address}: {code} ({error.resource}). Let this key do {RIGHTS}.")
        if code == "NoSuchBucket":
            return ConfigError(f"{self.address}: no bucket {self.settings.bucket}. Make it first.")
        if code in FULL:
            return OutageError(
                f"{self.address}: no room left ({code}). Make room there, or have the bucket's quota raised, and "
                "push again: what was sent is kept."
            )
        if 400 <= error.response.status < 500 and code not in TRY_AGAIN:
            return DataError(f"{self.address}: refused with {code}: {error.message}. ({error.resource})")
        return self._outage(f"{code}: {error.message}")

    def _outage(self, reason: str) -> OutageError:
        return OutageError(
            f"{self.address}: the S3 at {self.settings.endpoint} gave no answer ({reason}). Check "
            f"{ENDPOINT_VARIABLE} and that it runs, then try again: what arrived is not sent again. After a failed "
            "`point`, look first where the name points."
        )


def clock_error(error: "S3Error") -> timedelta:
    """Return how far this machine's clock is from the server's clock; zero if the response has no date."""
    try:
        date = parsedate_to_datetime(error.response.headers["date"])
    except (KeyError, ValueError):
        return timedelta()
    return abs(datetime.now(UTC) - date.astimezone(UTC))


def _retry(times: int) -> Retry:
    """Return a retry policy that keeps the last response, in which S3 says what is wrong. A MinIO that has just
    started asks for a pause of a minute (Retry-After), but two seconds are enough."""
    return Retry(
        total=times,
        backoff_factor=0.25,
        status_forcelist=[500, 502, 503, 504],
        raise_on_status=False,
        retry_after_max=RETRY_AFTER_SECONDS,
    )
