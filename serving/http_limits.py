"""Limits of every request to Qinglan's servers: size and number of its headers, and seconds for head and body.

uvicorn does not limit the time of a request. It limits the size of a head only with the parser h11
(`h11_max_incomplete_event_size`), and the number of headers with no parser. A middleware would be too late, because
the application is called after the whole head. Each service limits the size of a body itself (`max_body_size`,
BodyLimit). https://www.uvicorn.org/settings/#timeouts
"""

import asyncio
import sys
from typing import Any

from uvicorn.protocols.http.httptools_impl import STATUS_LINE, HttpToolsProtocol

LARGEST_HEAD = 64 * 1024
"""Most bytes of the request line and all headers, the same as in h11. The limit also applies to a chunk's header and
to the trailers."""

MOST_HEADERS = 100
"""Highest number of headers in a request, the same as in Python's http.server and Apache."""

IDLE_SECONDS = 120
"""Seconds after which a connection without a request is closed. A client that sends a request just then gets an
error."""

REQUEST_SECONDS = 30
"""Seconds from the first byte of a request to its last."""

REST_SECONDS = 2
"""Seconds for the rest of a body whose request is already answered, so that its sender can read the answer."""

REASONS = {
    408: f"The request was not all here within {REQUEST_SECONDS} s.",
    431: f"At most {MOST_HEADERS} headers, of {LARGEST_HEAD} bytes together.",
}


class HeadTooLarge(Exception):
    """Raised in a callback of httptools if the head is too large. httptools turns it into an error of its own."""


class BoundedHttpProtocol(HttpToolsProtocol):
    """Protocol of one connection, which adds the limits of this module to uvicorn's protocol."""

    def __init__(self, *arguments: Any, **options: Any) -> None:
        super().__init__(*arguments, **options)
        # Bytes since the parser last finished a head or a part of a body. httptools copies an unfinished header again
        # with each packet, so an endless header would cost the square of its length.
        self._unparsed = 0
        self._receiving = False
        self._deadline: asyncio.TimerHandle | None = None

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        super().connection_made(transport)
        self._start_deadline(IDLE_SECONDS)

    def connection_lost(self, exc: Exception | None) -> None:
        self._stop_deadline()
        super().connection_lost(exc)

    def data_received(self, data: bytes) -> None:
        if not self._receiving:  # the deadline, if any, is that of an idle connection
            self._stop_deadline()
        self._receiving = True
        self._unparsed += len(data)
        super().data_received(data)
        if self.transport.is_closing():
            self._stop_deadline()
        elif self._unparsed > LARGEST_HEAD:
            self._refuse(431)
        elif self._receiving and self._deadline is None:
            self._start_deadline(REQUEST_SECONDS)

    def on_message_begin(self) -> None:
        self._receiving = True
        super().on_message_begin()

    def on_header(self, name: bytes, value: bytes) -> None:
        if len(self.headers) >= MOST_HEADERS:
            raise HeadTooLarge
        super().on_header(name, value)

    def on_headers_complete(self) -> None:
        # Only a packet larger than the limit can hold both a larger head and its end.
        if self._unparsed > LARGEST_HEAD and head_size(self.url, self.headers) > LARGEST_HEAD:
            raise HeadTooLarge
        self._unparsed = 0
        super().on_headers_complete()

    def on_body(self, body: bytes) -> None:
        self._unparsed = 0
        super().on_body(body)

    def on_message_complete(self) -> None:
        self._unparsed = 0
        self._receiving = False
        self._stop_deadline()
        super().on_message_complete()
        if self.cycle.response_complete:  # the answer came before the body's end, and uvicorn starts no idle timer
            self._start_deadline(IDLE_SECONDS)

    def on_response_complete(self) -> None:
        super().on_response_complete()
        if self.cycle.response_complete and self.cycle.more_body and not self.transport.is_closing():
            self._start_deadline(REST_SECONDS)

    def send_400_response(self, msg: str) -> None:
        error = sys.exception()
        if error and isinstance(error.__context__, HeadTooLarge):
            self._refuse(431)
        else:
            super().send_400_response(msg)

    def _start_deadline(self, seconds: float) -> None:
        self._stop_deadline()
        self._deadline = self.loop.call_later(seconds, self._end_late)

    def _stop_deadline(self) -> None:
        if self._deadline:
            self._deadline.cancel()
            self._deadline = None

    def _end_late(self) -> None:
        self._deadline = None
        if self.flow.read_paused:  # the server itself makes the sender wait
            self._start_deadline(REQUEST_SECONDS)
        elif self._receiving:
            self._refuse(408)
        else:
            self.transport.close()

    def _refuse(self, status: int) -> None:
        """Close the connection, after an answer with this status unless an earlier request has no answer yet."""
        cycle = self.cycle
        in_head = cycle is None or (cycle.response_complete and not cycle.more_body)
        if in_head or (cycle.more_body and not cycle.response_started and not self.pipeline):
            message = REASONS[status].encode()
            head = b"content-type: text/plain; charset=utf-8\r\ncontent-length: %d\r\nconnection: close\r\n\r\n"
            self.transport.write(STATUS_LINE[status] + head % len(message) + message)
        self.transport.close()


def head_size(url: bytes, headers: list[tuple[bytes, bytes]]) -> int:
    """Return the size of the URL and all headers in bytes, with `: ` and a line end for each header."""
    return len(url) + sum(len(name) + len(value) + 4 for name, value in headers)
