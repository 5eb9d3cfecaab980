"""KServe's application around the style model, the plan's POST /predict beside it, and what is refused."""

import time
from typing import Any

import orjson
from fastapi import Request, Response
from fastapi.exceptions import RequestValidationError
from starlette.datastructures import Headers
from starlette.exceptions import HTTPException
from starlette.requests import ClientDisconnect
from starlette.responses import JSONResponse
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from qinglan.style.answers import STYLE_MODEL_PATH
from serving import kserving
from serving.listening import hung_up
from serving.refusals import BodyLimit, describe
from serving.style.metrics import Metrics
from serving.style.model import Busy, Style
from serving.style.reading import read_instance

LARGEST_BODY = 1_000_000
"""More than 256 texts of the length that the model reads, in UTF-8; the rest of a larger body is not read."""

RETRY_SECONDS = "1"
BINARY = "inference-header-content-length"
"""KServe's header of a body whose tensors are bytes after the JSON."""


def create_app(model: Style) -> Any:
    """The application with the model loaded."""
    app = kserving.create_app(model)
    app.add_middleware(BodyLimit, largest=LARGEST_BODY)
    app.add_middleware(Door, model=model.name, metrics=model.metrics)
    _add_refusals(app)

    async def predict(request: Request) -> Response:
        text = read_instance(kserving.read_json(await request.body(), request.headers), "body")
        [answer] = await model.ask([text])
        return Response(orjson.dumps(model.versioned(answer)), media_type=kserving.JSON)

    async def which() -> dict[str, str]:
        """Which bytes answer: a reward that was scored by them names them."""
        return {"name": model.name, "sha256": model.digest}

    app.add_api_route("/predict", predict, methods=["POST"])
    app.add_api_route(STYLE_MODEL_PATH, which, methods=["GET"])
    return app


class Door:
    """ASGI middleware: counts and times every question, and refuses the tensors that KServe would stumble over."""

    def __init__(self, app: ASGIApp, model: str, metrics: Metrics) -> None:
        self._app, self._metrics = app, metrics
        self._protocols = {
            f"/v1/models/{model}:predict": "v1", f"/v2/models/{model}/infer": "v2", "/predict": "plain",
        }  # fmt: skip

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        protocol = self._protocols.get(scope.get("path", "")) if scope.get("method") == "POST" else None
        if protocol is None:
            return await self._app(scope, receive, send)
        started, status = time.perf_counter(), 500

        async def seen(message: Message) -> None:
            nonlocal status
            status = message.get("status", status)
            await send(message)

        app = _NOT_JSON if protocol == "v2" and _binary(Headers(scope=scope)) else self._app
        try:
            with self._metrics.under_way.track_inprogress():
                return await app(scope, receive, seen)
        finally:
            self._metrics.ended(protocol, status, time.perf_counter() - started)


def error(status: int, message: str, headers: dict[str, str] | None = None) -> JSONResponse:
    """In KServe's own envelope."""
    return JSONResponse({"error": message}, status, headers)


_NOT_JSON = error(400, f"Send tensors as application/json, with that content-type and without {BINARY}.")


def _binary(headers: Headers) -> bool:
    """What KServe's V2 would take for bytes: a body without a content type, too."""
    return BINARY in headers or "content-type" not in headers or not kserving.says_json(headers)


def _add_refusals(app: Any) -> None:
    """All but what KServe answers itself."""

    async def invalid(_: Request, refused: RequestValidationError) -> JSONResponse:
        return error(400, describe(refused))

    async def unserved(_: Request, refused: HTTPException) -> JSONResponse:
        return error(refused.status_code, str(refused.detail))

    async def busy(_: Request, refused: Busy) -> JSONResponse:
        return error(429, str(refused), {"retry-after": RETRY_SECONDS})

    app.add_exception_handler(RequestValidationError, invalid)
    app.add_exception_handler(HTTPException, unserved)
    app.add_exception_handler(Busy, busy)
    app.add_exception_handler(ClientDisconnect, hung_up)
