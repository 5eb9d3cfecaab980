"""The only place that creates HTTP clients: for paid models, the gateway, the RAG service and all other services.

They go straight to the address in the settings: HTTP_PROXY, ALL_PROXY, NO_PROXY and ~/.netrc have no effect. They
trust the authorities of SSL_CERT_FILE and follow no redirects. Of an answer they read at most `largest` bytes,
counted after decompression. The request's read timeout is the time for the whole answer, from connecting to the last
byte of its body: a service that sends a byte now and then cannot prolong it.

    async with async_client(timeout=30) as http: ...
    report = get_json("http://127.0.0.1:8300/v1/journal/report", "Is the gateway up?")
"""

import logging
import os
import socket
import ssl
import sys
import time
from collections.abc import AsyncIterator, Iterator, Mapping
from contextlib import contextmanager
from email.utils import parsedate_to_datetime
from functools import cache
from typing import Any

import httpx2
import orjson

from qinglan.errors import ConfigError, OutageError
from qinglan.http.addresses import hide_secrets
from qinglan.http.deadlines import Deadline, held

CA_VARIABLE = "SSL_CERT_FILE"

MAX_ANSWER_BYTES = 8_000_000
"""Largest answer, after decompression, if a client names no other limit. An answer of a paid model or a RAG service
has some kilobytes; a gateway reads up to thirty at once and has 1 GiB of memory."""

LIMITS = httpx2.Limits(max_connections=None, max_keepalive_connections=100)

KEEPALIVE = (
    (socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1),
    (socket.IPPROTO_TCP, socket.TCP_KEEPINTVL, 10),
    (socket.IPPROTO_TCP, socket.TCP_KEEPCNT, 3),
    (socket.IPPROTO_TCP, getattr(socket, "TCP_KEEPALIVE" if sys.platform == "darwin" else "TCP_KEEPIDLE"), 30),
)
"""A request may wait for an answer without a limit, and where the other machine is lost nothing would ever end that
wait. With these probes it ends as a broken connection, after a minute."""

REENCODED = {b"content-encoding", b"content-length"}
"""Headers that are wrong once a body is decompressed."""

logging.getLogger("httpx2").setLevel(logging.WARNING)  # its INFO is a line a call, with the address

AsyncClient = httpx2.AsyncClient
Client = httpx2.Client


def async_client(
    base_url: str = "",
    *,
    timeout: httpx2.Timeout | float | None,
    largest: int | None = MAX_ANSWER_BYTES,
    whole_seconds: float | None = None,
    limits: httpx2.Limits = LIMITS,
    headers: Mapping[str, str] | None = None,
) -> AsyncClient:
    """Create a client for coroutines; `whole_seconds` limits an answer in place of the request's read timeout, which
    then limits its head."""
    inner = httpx2.AsyncHTTPTransport(
        trust_env=False, verify=trusted_certificates(), limits=limits, socket_options=KEEPALIVE
    )
    return AsyncClient(
        base_url=base_url, timeout=timeout, headers=headers, trust_env=False, follow_redirects=False,
        transport=_AsyncLimited(inner, largest, whole_seconds),
    )  # fmt: skip


def sync_client(
    base_url: str = "",
    *,
    timeout: httpx2.Timeout | float | None,
    largest: int | None = MAX_ANSWER_BYTES,
    limits: httpx2.Limits = LIMITS,
) -> Client:
    """Create a client for code without coroutines."""
    from qinglan.http.sync_deadlines import DeadlineTransport

    inner = DeadlineTransport(trusted_certificates(), limits, KEEPALIVE)
    return Client(
        base_url=base_url, timeout=timeout, trust_env=False, follow_redirects=False,
        transport=_Limited(inner, largest),
    )  # fmt: skip


def get_json(url: str, next_step: str, timeout: float = 30.0) -> Any:
    """The JSON at an address; an OutageError, with its cause, if there is none."""
    with outages(hide_secrets(url), next_step), sync_client(timeout=timeout) as http:
        response = http.get(url).raise_for_status()
    try:
        return orjson.loads(response.content)
    except orjson.JSONDecodeError as error:
        raise OutageError(f"{hide_secrets(url)}: the answer is not JSON. {next_step}") from error


@contextmanager
def outages(where: str, next_step: str) -> Iterator[None]:
    """Turn a request of the block that got no answer, or a refusal, into an OutageError."""
    try:
        yield
    except httpx2.HTTPError as error:
        raise OutageError(f"{where}: {failure_text(error)}. {next_step}{certificate_advice(error)}") from error


def failure_text(error: httpx2.HTTPError) -> str:
    """Describe a failed request in a few words."""
    if isinstance(error, httpx2.HTTPStatusError):
        return f"status {error.response.status_code}"
    return f"no answer ({str(error) or type(error).__name__})"


class _AsyncLimited(httpx2.AsyncBaseTransport):
    """Limits the size and the time of every answer."""

    def __init__(self, inner: httpx2.AsyncBaseTransport, largest: int | None, whole_seconds: float | None) -> None:
        self._inner, self._largest, self._seconds = inner, largest, whole_seconds

    async def handle_async_request(self, request: httpx2.Request) -> httpx2.Response:
        head = Deadline(_read_timeout(request))
        whole = Deadline(self._seconds) if self._seconds else head
        async with head.hold():
            answer = await self._inner.handle_async_request(request)
        return _decoded(answer, AnswerLimit(self._largest), whole)

    async def aclose(self) -> None:
        await self._inner.aclose()


class _Limited(httpx2.BaseTransport):
    """The same for code without coroutines."""

    def __init__(self, inner: httpx2.BaseTransport, largest: int | None) -> None:
        self._inner, self._largest = inner, largest

    def handle_request(self, request: httpx2.Request) -> httpx2.Response:
        deadline = Deadline(_read_timeout(request))
        with held(deadline):
            answer = self._inner.handle_request(request)
        return _decoded(answer, AnswerLimit(self._largest), deadline)

    def close(self) -> None:
        self._inner.close()


def _read_timeout(request: httpx2.Request) -> float | None:
    seconds: float | None = request.extensions.get("timeout", {}).get("read")
    return seconds


def _decoded(answer: httpx2.Response, limit: "AnswerLimit", deadline: Deadline) -> httpx2.Response:
    """The same answer with a body that is decompressed as it is read: httpx2 does so in pieces of a megabyte."""
    headers = [(name, value) for name, value in answer.headers.raw if name.lower() not in REENCODED]
    return httpx2.Response(
        answer.status_code,
        headers=headers,
        stream=_LimitedBody(answer, limit, deadline),
        extensions=answer.extensions,
    )


class _LimitedBody(httpx2.AsyncByteStream, httpx2.SyncByteStream):
    """A decompressed body. Reading it fails at its limits of size and time, whatever its headers say."""

    def __init__(self, answer: httpx2.Response, limit: "AnswerLimit", deadline: Deadline) -> None:
        self._answer, self._limit, self._deadline = answer, limit, deadline

    async def __aiter__(self) -> AsyncIterator[bytes]:
        chunks = self._answer.aiter_bytes()
        with _decoding_errors():
            while True:
                async with self._deadline.hold():  # around each piece: a generator must not yield inside of a timeout
                    chunk = await anext(chunks, None)
                if chunk is None:
                    return
                self._limit.count(chunk)
                yield chunk

    def __iter__(self) -> Iterator[bytes]:
        chunks = self._answer.iter_bytes()
        with _decoding_errors():
            while True:
                with held(self._deadline):
                    chunk = next(chunks, None)
                if chunk is None:
                    return
                self._limit.count(chunk)
                yield chunk

    async def aclose(self) -> None:
        await self._answer.aclose()

    def close(self) -> None:
        self._answer.close()


@contextmanager
def _decoding_errors() -> Iterator[None]:
    """Turn broken compression into a transport error, as every other answer that is not HTTP."""
    try:
        yield
    except httpx2.DecodingError as error:
        raise httpx2.RemoteProtocolError(f"the answer cannot be decompressed: {error}") from error


class AnswerLimit:
    """Counts one answer's bytes."""

    def __init__(self, largest: int | None) -> None:
        self._left, self._largest = largest, largest

    def count(self, chunk: bytes) -> None:
        """Count a piece; an httpx2.TransportError above the limit."""
        if self._left is not None:
            self._left -= len(chunk)
            if self._left < 0:
                raise httpx2.RemoteProtocolError(f"the answer is larger than {self._largest:,} bytes")


def retry_after(headers: Mapping[str, str], now: float | None = None) -> float | None:
    """Seconds that a Retry-After header asks for; None without one.

    A date is compared with the service's own Date where it sends one, since this machine's clock may be set wrong,
    and with `now`, or this machine's clock, otherwise.
    """
    header = headers.get("retry-after-ms") or headers.get("retry-after")
    if not header:
        return None
    try:
        seconds = float(header) / (1000 if headers.get("retry-after-ms") else 1)
    except ValueError:
        try:
            here = time.time() if now is None else now
            sent = parsedate_to_datetime(headers["date"]).timestamp() if "date" in headers else here
            seconds = parsedate_to_datetime(header).timestamp() - sent
        except ValueError:
            return None
    return max(0.0, seconds) if seconds < float("inf") else None


@cache
def trusted_certificates() -> ssl.SSLContext:
    """The public authorities, and those of the file that SSL_CERT_FILE names; loaded once: it takes 50 ms."""
    context = httpx2.create_ssl_context(trust_env=False)
    if path := os.environ.get(CA_VARIABLE):
        try:
            context.load_verify_locations(path)
        except OSError as error:  # ssl.SSLError too
            raise ConfigError(
                f"{CA_VARIABLE}: {path} cannot be read as certificates ({error}). Name a PEM file with your "
                "company's authority, or unset it."
            ) from error
    return context


def certificate_advice(error: BaseException) -> str:
    """The next step where a service's certificate is not trusted; empty for other errors."""
    if "CERTIFICATE_VERIFY_FAILED" not in str(error):
        return ""
    return f" If the certificate is of your company's own authority, name its PEM file in {CA_VARIABLE}."
