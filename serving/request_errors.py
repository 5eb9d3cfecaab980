"""Checks of a request before it is parsed, and error messages that never repeat the request's text."""

from fastapi.exceptions import RequestValidationError
from starlette.datastructures import Headers
from starlette.exceptions import HTTPException
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from qinglan.documents import refuse_twice_named
from qinglan.errors import DataError


class QueueFull(Exception):
    """Raised if the queue has no room for the questions of a request."""


class BodyLimit:
    """ASGI middleware that refuses a body of more than `largest` bytes, and JSON that names a key twice.

    It raises an HTTPException (413 or 400), which the service renders in its own error format.
    """

    def __init__(self, app: ASGIApp, largest: int) -> None:
        self._app = app
        self._largest = largest

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            return await self._app(scope, receive, send)
        declared = Headers(scope=scope).get("content-length", "")
        parts = list[bytes]()

        async def limited() -> Message:
            # The declared length is checked first, so that a body that is too large is refused before it is read.
            self._refuse_above(int(declared) if declared.isdigit() else 0)
            message = await receive()
            if body := message.get("body", b""):
                parts.append(body)
            self._refuse_above(sum(map(len, parts)))
            if message["type"] == "http.request" and not message.get("more_body"):
                try:
                    refuse_twice_named(b"".join(parts), "body")
                except DataError as error:
                    raise HTTPException(400, str(error)) from error
            return message

        return await self._app(scope, limited, send)

    def _refuse_above(self, size: int) -> None:
        if size > self._largest:
            raise HTTPException(413, f"body: larger than {self._largest} bytes")


def describe_validation_error(error: RequestValidationError) -> str:
    """List each wrong field with its error; the message does not contain the request's text."""
    lines = []
    for item in error.errors():
        broken = item["type"] == "json_invalid"
        field = "body" if broken else ".".join(str(part) for part in item["loc"][1:]) or "body"
        lines.append(f"{field}: {item['msg']}" + (f" at character {item['loc'][1]}" if broken else ""))
    return "; ".join(lines)
