"""Application of the style model: KServe's routes, a simple POST /predict, and its error answers."""

import time
from typing import Any

import orjson
from fastapi import FastAPI, Request, Response
from starlette.datastructures import Headers
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from qinglan.style.service_responses import STYLE_MODEL_PATH
from serving import kserve_app
from serving.request_errors import BodyLimit
from serving.style.metrics import Metrics
from serving.style.model import KServeStyleModel
from serving.style.protocols import read_instance

LARGEST_BODY = 1_000_000
"""Largest body in bytes; 256 texts of the model's length need less. The rest of a larger body is not read."""


def create_app(model: KServeStyleModel) -> FastAPI:
    """Load the model and build its application."""
    app = kserve_app.create_app(model)
    app.add_middleware(BodyLimit, largest=LARGEST_BODY)
    app.add_middleware(RequestMetrics, model=model.name, metrics=model.metrics)
    kserve_app.add_error_handlers(app, kserve_app.error_response)

    async def predict(request: Request) -> Response:
        """Answer POST /predict, with the text in the URL (/predict?text=...) or in a JSON body."""
        body = await request.body()
        if "text" in request.query_params and not body:
            values: Any = dict(request.query_params)
        else:
            values = kserve_app.read_json(body, request.headers)
        [answer] = await model.ask([read_instance(values, "body")])
        return Response(orjson.dumps(model.versioned(answer)), media_type=kserve_app.JSON)

    async def which() -> dict[str, str]:
        """Return name and digest of the model, which a reward records."""
        return {"name": model.name, "sha256": model.digest}

    app.add_api_route("/predict", predict, methods=["POST"])
    app.add_api_route(STYLE_MODEL_PATH, which, methods=["GET"])
    return app


class RequestMetrics:
    """ASGI middleware that counts and times every question. It refuses binary tensors, which KServe cannot read."""

    def __init__(self, app: ASGIApp, model: str, metrics: Metrics) -> None:
        self._app, self._metrics = app, metrics
        self._protocols = {
            f"/v1/models/{model}:predict": "v1",
            f"/v2/models/{model}/infer": "v2",
            "/predict": "plain",
        }

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        protocol = self._protocols.get(scope.get("path", "")) if scope.get("method") == "POST" else None
        if protocol is None:
            return await self._app(scope, receive, send)
        started, status = time.perf_counter(), 500

        async def send_and_note_status(message: Message) -> None:
            nonlocal status
            status = message.get("status", status)
            await send(message)

        app = (
            kserve_app.NOT_JSON_RESPONSE
            if protocol == "v2" and kserve_app.is_binary(Headers(scope=scope))
            else self._app
        )
        try:
            with self._metrics.under_way.track_inprogress():
                return await app(scope, receive, send_and_note_status)
        finally:
            self._metrics.ended(protocol, status, time.perf_counter() - started)
