"""A body that is too large is refused as soon as that is known, in the service's own envelope."""

from starlette.datastructures import Headers
from starlette.exceptions import HTTPException
from starlette.types import ASGIApp, Message, Receive, Scope, Send


class BodyLimit:
    """ASGI middleware: at most `largest` bytes of a request's body reach the application."""

    def __init__(self, app: ASGIApp, largest: int) -> None:
        self._app = app
        self._largest = largest

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            return await self._app(scope, receive, send)
        declared = Headers(scope=scope).get("content-length", "")
        read = 0

        async def limited() -> Message:
            nonlocal read
            self._refuse_above(int(declared) if declared.isdigit() else 0)
            message = await receive()
            read += len(message.get("body", b""))
            self._refuse_above(read)
            return message

        return await self._app(scope, limited, send)

    def _refuse_above(self, size: int) -> None:
        if size > self._largest:
            raise HTTPException(413, f"body: larger than {self._largest} bytes")
