"""Creates all HTTP clients: for paid models, the gateway, the RAG service and every other service.

Clients connect directly to the address in the settings: HTTP_PROXY, ALL_PROXY, NO_PROXY and ~/.netrc have no effect.
They also trust the authorities in SSL_CERT_FILE, and follow no redirects. They read up to `largest` bytes of an
answer, counted after decompression. The request's read timeout is the time for the whole answer, from connecting to
the last byte of its body. A service that sends a byte now and then cannot prolong it.

    async with async_client(timeout=30) as http: ...
    report = get_json("http://127.0.0.1:8300/v1/journal/report", "Is the gateway up?")
"""

import asyncio
import logging
import os
import socket
import ssl
import sys
import threading
import time
from collections.abc import AsyncIterator, Coroutine, Iterator, Mapping
from contextlib import asynccontextmanager, contextmanager
from email.utils import parsedate_to_datetime
from functools import cache
from typing import Any, TypeVar

import httpx2
import orjson

from qinglan.errors import ConfigError, OutageError
from qinglan.http.addresses import hide_secrets

CA_VARIABLE = "SSL_CERT_FILE"

MAX_ANSWER_BYTES = 8_000_000
"""Default size limit of an answer in bytes, after decompression. An answer of a paid model or a RAG service has some
kilobytes; a gateway reads up to thirty answers at once and has 1 GiB of memory."""

LIMITS = httpx2.Limits(max_connections=None, max_keepalive_connections=100)

KEEPALIVE = (
    (socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1),
    (socket.IPPROTO_TCP, socket.TCP_KEEPINTVL, 10),
    (socket.IPPROTO_TCP, socket.TCP_KEEPCNT, 3),
    (socket.IPPROTO_TCP, getattr(socket, "TCP_KEEPALIVE" if sys.platform == "darwin" else "TCP_KEEPIDLE"), 30),
)
"""Socket options for TCP keepalive. A request may wait for its answer without a time limit. If the other machine is
lost meanwhile, these probes end the wait after a minute, as a broken connection."""

LONGEST_RETRY_AFTER = 30.0
"""Longest pause in seconds that a Retry-After header can cause. If the header asks for more, the pause is this
long."""

REENCODED = {b"content-encoding", b"content-length"}
"""Headers that are removed from an answer, because they are wrong once its body is decompressed."""

# At INFO, httpx2 logs a line for each call, with the whole address.
logging.getLogger("httpx2").setLevel(logging.WARNING)

Result = TypeVar("Result")
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
    """Create an asynchronous client. If `whole_seconds` is set, it limits the time for the whole answer, and the
    request's read timeout limits only the time for the answer's head."""
    transport = _LimitedTransport(limits, largest, whole_seconds)
    return AsyncClient(
        base_url=base_url,
        timeout=timeout,
        headers=headers,
        trust_env=False,
        follow_redirects=False,
        transport=transport,
    )


def sync_client(
    base_url: str = "",
    *,
    timeout: httpx2.Timeout | float | None,
    largest: int | None = MAX_ANSWER_BYTES,
    limits: httpx2.Limits = LIMITS,
) -> Client:
    """Create a blocking client, for code without coroutines. It reads each answer completely before it returns it."""
    transport = _BlockingTransport(_LimitedTransport(limits, largest))
    return Client(base_url=base_url, timeout=timeout, trust_env=False, follow_redirects=False, transport=transport)


def get_json(url: str, next_step: str, timeout: float = 30.0) -> Any:
    """Fetch JSON from an address. It raises an OutageError without an answer, on an error status, and if the answer
    is not JSON."""
    with outages(hide_secrets(url), next_step), sync_client(timeout=timeout) as http:
        response = http.get(url).raise_for_status()
    try:
        return orjson.loads(response.content)
    except orjson.JSONDecodeError as error:
        raise OutageError(f"{hide_secrets(url)}: the answer is not JSON. {next_step}") from error


@contextmanager
def outages(where: str, next_step: str) -> Iterator[None]:
    """Turn the error of a request in the block into an OutageError: no answer, or an answer with an error status."""
    try:
        yield
    except httpx2.HTTPStatusError as error:
        raise OutageError(f"{where}: status {error.response.status_code}. {next_step}") from error
    except httpx2.HTTPError as error:
        cause, advice = str(error) or type(error).__name__, certificate_advice(error)
        raise OutageError(f"{where}: no answer ({cause}). {next_step}{advice}") from error


class Deadline:
    """Time by which an answer must be complete, its head included; no limit if `seconds` is None."""

    def __init__(self, seconds: float | None) -> None:
        self._seconds = seconds
        self._ends = None if seconds is None else time.monotonic() + seconds

    @asynccontextmanager
    async def hold(self) -> AsyncIterator[None]:
        """Stop the block with an httpx2.ReadTimeout if it still runs at the deadline."""
        try:
            async with asyncio.timeout(None if self._ends is None else self._ends - time.monotonic()):
                yield
        except TimeoutError as error:
            raise httpx2.ReadTimeout(f"the answer was not whole after {self._seconds:g} s") from error


class _LimitedTransport(httpx2.AsyncBaseTransport):
    """Limits the size and the time of every answer.

    httpcore's own read timeout would not do, since it starts again with each byte:
    https://www.python-httpx.org/advanced/timeouts/
    """

    def __init__(self, limits: httpx2.Limits, largest: int | None, whole_seconds: float | None = None) -> None:
        self._inner = httpx2.AsyncHTTPTransport(
            trust_env=False, verify=trusted_certificates(), limits=limits, socket_options=KEEPALIVE
        )
        self._largest, self._seconds = largest, whole_seconds

    async def handle_async_request(self, request: httpx2.Request) -> httpx2.Response:
        head = Deadline(request.extensions.get("timeout", {}).get("read"))
        whole = Deadline(self._seconds) if self._seconds else head
        async with head.hold():
            answer = await self._inner.handle_async_request(request)
        # Return the same answer with a body that is decompressed as it is read, which httpx2 does in pieces of a
        # megabyte.
        headers = [(name, value) for name, value in answer.headers.raw if name.lower() not in REENCODED]
        body = _LimitedBody(answer, AnswerLimit(self._largest), whole)
        return httpx2.Response(answer.status_code, headers=headers, stream=body, extensions=answer.extensions)

    async def aclose(self) -> None:
        await self._inner.aclose()


class _LimitedBody(httpx2.AsyncByteStream):
    """Body of an answer, decompressed as it is read. Reading fails once it exceeds its limit of size or time,
    whatever the headers say."""

    def __init__(self, answer: httpx2.Response, limit: "AnswerLimit", deadline: Deadline) -> None:
        self._answer, self._limit, self._deadline = answer, limit, deadline

    async def __aiter__(self) -> AsyncIterator[bytes]:
        chunks = self._answer.aiter_bytes()
        try:
            while True:
                # The deadline is held for each piece, not around the loop: a generator must not yield inside of
                # asyncio.timeout, which would then cancel the task that reads the pieces.
                async with self._deadline.hold():
                    chunk = await anext(chunks, None)
                if chunk is None:
                    return
                self._limit.count(chunk)
                yield chunk
        except httpx2.DecodingError as error:
            raise httpx2.RemoteProtocolError(f"the answer cannot be decompressed: {error}") from error

    async def aclose(self) -> None:
        await self._answer.aclose()


class _BlockingTransport(httpx2.BaseTransport):
    """Runs an asynchronous transport in a thread and waits for it, because in blocking code httpcore cannot limit the
    time of a whole answer."""

    def __init__(self, inner: _LimitedTransport) -> None:
        self._inner = inner

    def handle_request(self, request: httpx2.Request) -> httpx2.Response:
        request.read()
        return _run_in_thread(self._exchange(request))

    async def _exchange(self, request: httpx2.Request) -> httpx2.Response:
        answer = await self._inner.handle_async_request(request)
        try:
            return httpx2.Response(answer.status_code, headers=answer.headers, content=await answer.aread())
        finally:
            await answer.aclose()

    def close(self) -> None:
        _run_in_thread(self._inner.aclose())


def _run_in_thread(work: Coroutine[Any, Any, Result]) -> Result:
    future = asyncio.run_coroutine_threadsafe(work, _background_loop())
    try:
        return future.result()
    except BaseException:
        # After Ctrl-C the request would go on in the other thread.
        future.cancel()
        raise


@cache
def _background_loop() -> asyncio.AbstractEventLoop:
    """Return the event loop of all blocking clients. It runs in a thread that ends with the process."""
    loop = asyncio.new_event_loop()
    threading.Thread(target=loop.run_forever, name="http clients", daemon=True).start()
    return loop


# fork() copies only the calling thread, so in the child the cached loop would never run.
os.register_at_fork(after_in_child=_background_loop.cache_clear)


class AnswerLimit:
    """Counts the bytes of one answer, and fails above its limit."""

    def __init__(self, largest: int | None) -> None:
        self._left, self._largest = largest, largest

    def count(self, chunk: bytes) -> None:
        """Count a piece of the answer; an httpx2.TransportError if the limit is exceeded."""
        if self._left is not None:
            self._left -= len(chunk)
            if self._left < 0:
                raise httpx2.RemoteProtocolError(f"the answer is larger than {self._largest:,} bytes")


def retry_after(headers: Mapping[str, str], now: float | None = None) -> float | None:
    """Return the seconds that a Retry-After header asks for; None if the header is missing or unreadable.

    A date is compared with the service's Date header if it sends one, since this machine's clock may be wrong.
    Otherwise it is compared with `now`, or with this machine's clock.
    """
    # Seconds or a date: https://www.rfc-editor.org/rfc/rfc9110#field.retry-after. Azure's OpenAI
    # service also sends retry-after-ms, in milliseconds, which is more exact.
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


class BusyError(Exception):
    """A service cannot answer now. `wait` is the pause in seconds that it asks for; None if it names no pause."""

    def __init__(self, message: str, wait: float | None) -> None:
        super().__init__(message)
        self.wait = wait


def pause_before_retry(error: Exception) -> bool | float:
    """Decide if a failed request is sent again. A number means yes, after that pause in seconds."""
    if isinstance(error, BusyError):
        return True if error.wait is None else min(error.wait, LONGEST_RETRY_AFTER)
    return isinstance(error, httpx2.TransportError)


@cache
def trusted_certificates() -> ssl.SSLContext:
    """Load the public certificate authorities, and those in the file that SSL_CERT_FILE names. The result is cached,
    because loading takes 50 ms."""
    context = httpx2.create_ssl_context(trust_env=False)
    if path := os.environ.get(CA_VARIABLE):
        try:
            context.load_verify_locations(path)
        except OSError as error:
            # ssl.SSLError is an OSError: the file is missing, or holds no certificate.
            raise ConfigError(
                f"{CA_VARIABLE}: {path} cannot be read as certificates ({error}). Name a PEM file with your "
                "company's authority, or unset it."
            ) from error
    return context


def certificate_advice(error: BaseException) -> str:
    """Return the next step for an error message if a service's certificate is not trusted; empty for other errors."""
    if "CERTIFICATE_VERIFY_FAILED" not in str(error):
        return ""
    return f" If the certificate is of your company's own authority, name its PEM file in {CA_VARIABLE}."
