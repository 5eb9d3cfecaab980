"""Checks of a request before it is parsed, and errors that never repeat what was sent."""

from fastapi.exceptions import RequestValidationError
from starlette.datastructures import Headers
from starlette.exceptions import HTTPException
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from qinglan.documents import refuse_twice_named
from qinglan.errors import DataError


class QueueFull(Exception):
    """The queue has no room for these requests."""


class BodyLimit:
    """ASGI middleware: at most `largest` bytes of a body reach the application, and no JSON with two meanings.

    A larger body, or an object that names a key twice, such as two tenants, is an HTTPException, which the service
    renders in its own envelope.
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
            # By the declared length first: a body that is too large is refused before it is read.
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
    """Each wrong field with what is wrong with it; the text itself is not sent back."""
    lines = []
    for item in error.errors():
        broken = item["type"] == "json_invalid"
        field = "body" if broken else ".".join(str(part) for part in item["loc"][1:]) or "body"
        lines.append(f"{field}: {item['msg']}" + (f" at character {item['loc'][1]}" if broken else ""))
    return "; ".join(lines)
