"""Sends many requests to a run's gateway in one HTTP message; each answer comes back as soon as it is ready.

A step of PPO sends some five hundred requests at once. Sent one by one, they cost client and gateway more time for
HTTP than for answers. All requests of one turn of the event loop travel together; none waits for later requests or
for other answers.

    bundles = BundleClient("http://127.0.0.1:8200")
    reply = await bundles.post("/api/chat/general_rag", body, {})
"""

import asyncio
from collections.abc import Iterator, Mapping, Sequence
from functools import partial
from typing import NamedTuple

import httpx2
import orjson

from qinglan.errors import DataError
from qinglan.http.http_client import async_client

BUNDLE_PATH = "/v1/bundle"
"""Path of the gateway for a POST of many requests, each as a frame with path and headers. The answers are streamed
back as frames with the positions of their requests."""

MAX_REQUESTS, MAX_MESSAGE_BYTES = 128, 1_000_000
"""Largest number of requests, and of bytes, in one message. A request with more bytes is sent in its own message."""


class FrameHeader(NamedTuple):
    """Header of a frame. A frame carries one request or one answer."""

    position: int
    """The request's position in its message, from 0."""

    subject: str
    """A request's path, or an answer's status."""

    headers: dict[str, str]


class BundledResponse(NamedTuple):
    """Answer to one request of a message."""

    status: int
    headers: Mapping[str, str]
    content: bytes


class _PendingRequest(NamedTuple):
    path: str
    body: bytes
    headers: dict[str, str]
    reply: "asyncio.Future[BundledResponse]"


class BundleClient:
    """Posts requests to one gateway, several in one message. If the gateway refuses a message, all its requests get
    the refusal as their answer. If a message cannot be delivered, all its requests raise the error."""

    def __init__(self, base_url: str) -> None:
        self._url = f"{base_url.rstrip('/')}{BUNDLE_PATH}"
        # A request may wait for its turn at the gateway without a limit, so only connecting has a timeout.
        self._http = async_client(timeout=httpx2.Timeout(None, connect=5.0), largest=None)
        self._waiting: list[_PendingRequest] = []
        self._messages: set[asyncio.Task[None]] = set()

    async def aclose(self) -> None:
        for message in self._messages:
            message.cancel()
        await asyncio.gather(*self._messages, return_exceptions=True)  # noqa: TID251 - all are cancelled
        await self._http.aclose()

    async def post(self, path: str, body: bytes, headers: dict[str, str]) -> BundledResponse:
        """Send a request and return the gateway's answer; an httpx2.TransportError if it cannot be reached."""
        loop = asyncio.get_running_loop()
        request = _PendingRequest(path, body, headers, loop.create_future())
        self._waiting.append(request)
        if len(self._waiting) == 1:
            loop.call_soon(self._send)  # after all requests of this turn of the loop
        return await request.reply

    def _send(self) -> None:
        waiting, self._waiting = self._waiting, []
        for requests in split_into_messages([request for request in waiting if not request.reply.cancelled()]):
            task = asyncio.create_task(self._deliver(requests))
            self._messages.add(task)
            task.add_done_callback(partial(self._ended, requests))

    def _ended(self, requests: Sequence[_PendingRequest], message: "asyncio.Task[None]") -> None:
        """Cancel the requests of a message that got no answer. This is not done in a `finally` of `_deliver`, because
        a task that is cancelled before its first step never reaches it."""
        self._messages.discard(message)
        for request in requests:
            request.reply.cancel()

    async def _deliver(self, requests: Sequence[_PendingRequest]) -> None:
        try:
            content = b"".join(
                encode_frame(FrameHeader(position, pending.path, pending.headers), pending.body)
                for position, pending in enumerate(requests)
            )  # fmt: skip
            async with self._http.stream("POST", self._url, content=content) as response:
                if response.status_code != 200:
                    refused = BundledResponse(response.status_code, response.headers, await response.aread())
                    for request in requests:
                        _settle(request, refused)
                    return
                frames = FrameDecoder()
                async for chunk in response.aiter_raw():
                    for head, body in frames.feed(chunk):
                        _settle(requests[head.position], BundledResponse(int(head.subject), head.headers, body))
            raise httpx2.RemoteProtocolError("the connection was closed before every answer had come")
        except Exception as error:  # any error: a request without an answer would wait for ever
            for request in requests:
                if not request.reply.done():
                    request.reply.set_exception(error)


def _settle(request: _PendingRequest, reply: BundledResponse) -> None:
    if not request.reply.done():
        request.reply.set_result(reply)


def split_into_messages(requests: Sequence[_PendingRequest]) -> Iterator[list[_PendingRequest]]:
    message: list[_PendingRequest] = []
    size = 0
    for request in requests:
        if message and (len(message) >= MAX_REQUESTS or size + len(request.body) > MAX_MESSAGE_BYTES):
            yield message
            message, size = [], 0
        message.append(request)
        size += len(request.body)
    if message:
        yield message


def encode_frame(head: FrameHeader, body: bytes) -> bytes:
    """Encode a frame: first a line of JSON whose last value is the length of the body, then the body."""
    return orjson.dumps([*head, len(body)]) + b"\n" + body


def _read_head(line: bytes) -> tuple[FrameHeader, int]:
    """Parse a frame's head and the length of its body; a DataError if the line is not a head."""
    try:
        position, subject, headers, length = orjson.loads(line)
    except (ValueError, TypeError) as error:
        raise DataError("bundle: a frame's first line is not a JSON list of four.") from error
    texts = [subject, *headers, *headers.values()] if isinstance(headers, dict) else [None]
    if not all(isinstance(text, str) for text in texts) or type(position) is not int or type(length) is not int:
        raise DataError("bundle: a frame is [position, path or status, headers, length]: whole numbers and texts.")
    if length < 0 or position < 0:
        raise DataError("bundle: a frame's position and length must not be negative.")
    return FrameHeader(position, subject, headers), length


class FrameDecoder:
    """Decodes received bytes into frames. Its time grows with the number of bytes, not with the number of pieces."""

    def __init__(self) -> None:
        self._rest = bytearray()
        self._searched = 0
        """Number of bytes at the beginning of `_rest` that are known to hold no line break."""

        self._head: tuple[FrameHeader, int] | None = None
        """Header of the current frame, whose body is not complete, with the length of its body; None between
        frames."""

    def feed(self, data: bytes) -> list[tuple[FrameHeader, bytes]]:
        """Add received bytes, and return the frames that are complete now."""
        self._rest += data
        frames, start = list[tuple[FrameHeader, bytes]](), 0
        while True:
            if self._head is None:
                line_end = self._rest.find(b"\n", start + self._searched)
                if line_end < 0:
                    self._searched = len(self._rest) - start
                    break
                self._head, self._searched = _read_head(bytes(self._rest[start:line_end])), 0
                start = line_end + 1
            head, length = self._head
            if len(self._rest) - start < length:
                break
            frames.append((head, bytes(self._rest[start : start + length])))
            self._head = None
            start += length
        del self._rest[:start]
        return frames

    @property
    def unfinished(self) -> bool:
        return bool(self._rest or self._head)
