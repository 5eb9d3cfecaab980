"""Application of the rewriter: KServe's routes, OpenAI's chat completions, and a middleware around every question."""

import asyncio
import time

from fastapi import FastAPI, Request, Response
from kserve.errors import InvalidInput, ModelNotFound
from starlette.datastructures import Headers, MutableHeaders
from starlette.responses import JSONResponse
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from qinglan.errors import OutageError
from qinglan.kubernetes.shadow_token import SHADOW_HEADER, is_shadow_request, read_shadow_token
from serving import kserve_app
from serving.http_server import CLIENT_CLOSED_REQUEST
from serving.request_errors import BodyLimit
from serving.rewriter import chat
from serving.rewriter.config import RequestProtocol
from serving.rewriter.metrics import HUNG_UP, SHADOW, request_outcome
from serving.rewriter.model import KServeRewriter
from serving.rewriter.request_record import (
    CURRENT_REQUEST,
    REQUEST_ID,
    RequestRecord,
    log_entry,
    make_request_id,
    write_log,
)

LARGEST_BODY = 1_000_000
"""Largest body in bytes; the rest of a larger body is not read."""


def create_app(model: KServeRewriter) -> FastAPI:
    """Load the model and build its application."""
    app = kserve_app.create_app(model)
    app.include_router(chat.chat_router(model))
    app.add_middleware(BodyLimit, largest=LARGEST_BODY)
    app.add_middleware(RequestMiddleware, model=model, shadow_token=read_shadow_token())
    kserve_app.add_error_handlers(app, error_response)

    @app.exception_handler(InvalidInput)
    async def invalid(_: Request, refused: InvalidInput) -> Response:
        return error_response(400, str(refused))

    @app.exception_handler(OutageError)
    async def unanswered(_: Request, failed: OutageError) -> Response:
        return error_response(502, str(failed))

    @app.exception_handler(ModelNotFound)
    async def unknown(_: Request, __: ModelNotFound) -> Response:
        return error_response(404, "No model of that name is served here.")

    return app


class RequestMiddleware:
    """ASGI middleware that gives each request an id and a deadline, and counts, times and logs its outcome."""

    def __init__(self, app: ASGIApp, model: KServeRewriter, shadow_token: str) -> None:
        self._app, self._model, self._shadow_token = app, model, shadow_token
        self._protocols: dict[str, RequestProtocol] = {
            f"/v1/models/{model.name}:predict": "v1",
            f"/v2/models/{model.name}/infer": "v2",
            chat.CHAT_PATH: "openai",
        }

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        protocol = self._protocols.get(scope.get("path", "")) if scope.get("method") == "POST" else None
        if protocol is None:
            return await self._app(scope, receive, send)
        headers = Headers(scope=scope)
        shadow = is_shadow_request(headers.get(SHADOW_HEADER, ""), self._shadow_token)
        record = RequestRecord(make_request_id(headers.get(REQUEST_ID, "")), protocol, shadow)
        exchange, model = RequestExchange(record, receive, send), self._model
        app = kserve_app.NOT_JSON_RESPONSE if protocol == "v2" and kserve_app.is_binary(headers) else self._app
        token, started = CURRENT_REQUEST.set(record), time.perf_counter()
        try:
            with model.metrics.under_way.track_inprogress():
                return await exchange.within(model.config.deadline_seconds, app, scope)
        finally:
            CURRENT_REQUEST.reset(token)
            seconds = time.perf_counter() - started
            outcome = SHADOW if record.shadow else request_outcome(exchange.status)
            if exchange.answered and outcome == HUNG_UP:
                model.metrics.missed(protocol, seconds)
            else:
                model.metrics.ended(protocol, outcome, seconds)
            write_log(log_entry(record, model.version, exchange.status, outcome, seconds))


class RequestExchange:
    """One request and its answer, observed between the server and the application."""

    def __init__(self, record: RequestRecord, receive: Receive, send: Send) -> None:
        self.record, self.status, self.answered = record, 500, False
        self._receive, self._send = receive, send
        self._read = self._replied = False
        self._leaving: asyncio.Task[Message] | None = None

    async def within(self, seconds: float, app: ASGIApp, scope: Scope) -> None:
        """Run the application. If it does not answer within `seconds`, answer with status 504.

        The status is 408 if the client has not sent the whole body by then.
        """
        try:
            async with asyncio.timeout(seconds) as deadline:
                await app(scope, self.receive, self.send)
        except TimeoutError:
            if not deadline.expired() or self._replied:
                raise
            status, message = (504, "No answer") if self._read else (408, "The request was not all here")
            await error_response(status, f"{message} within {seconds:g} s.")(scope, self.receive, self.send)
        finally:
            if self._leaving:
                self._leaving.cancel()

    async def receive(self) -> Message:
        message = await self._receive()
        self._read = self._read or not message.get("more_body")
        # After a whole request, the next message is the client's disconnect. It is awaited beside the answer, so that
        # a client that hung up is not counted as answered. https://asgi.readthedocs.io/en/latest/specs/www.html
        if self._read and self._leaving is None:
            self._leaving = asyncio.create_task(self._receive())  # type: ignore[arg-type]
        return message

    async def send(self, message: Message) -> None:
        if message["type"] == "http.response.start":
            self._replied, self.status = True, message["status"]
            self.answered = self.status == 200
            if self.answered and self._leaving and self._leaving.done():
                self.status = CLIENT_CLOSED_REQUEST
            MutableHeaders(scope=message)[REQUEST_ID] = self.record.request_id
        await self._send(message)


def error_response(status: int, message: str, headers: dict[str, str] | None = None) -> JSONResponse:
    """Build an error answer in the format of the request's protocol."""
    record = CURRENT_REQUEST.get()
    if record and status >= 500:
        record.why = message
    if record and record.protocol == "openai":
        kind = "invalid_request_error" if status < 500 else "server_error"
        error = {"message": message, "type": kind, "param": None, "code": None}
        return JSONResponse({"error": error}, status, headers)
    return kserve_app.error_response(status, message, headers)
