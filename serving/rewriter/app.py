"""KServe's application around the rewriter, OpenAI's chat beside it, and the door that every question comes in by."""

import asyncio
import time
from typing import Any

from fastapi import Request, Response
from kserve.errors import InvalidInput, ModelNotFound
from starlette.datastructures import Headers, MutableHeaders
from starlette.responses import JSONResponse
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from qinglan.errors import OutageError
from qinglan.rollouts import SHADOW_HEADER
from serving import kserving
from serving.listening import NOBODY_THERE
from serving.refusals import BodyLimit
from serving.rewriter import chat
from serving.rewriter.config import Protocol
from serving.rewriter.metrics import HUNG_UP, SHADOW, outcome
from serving.rewriter.model import Rewriter
from serving.rewriter.record import CURRENT, REQUEST_ID, Record, line, log, new_id

LARGEST_BODY = 1_000_000
"""The rest of a larger one is not read."""

ANSWERED_STATUS, TOO_SLOW, LATE, NOBODY = 200, 408, 504, 502


def create_app(model: Rewriter) -> Any:
    """The application with the model loaded."""
    app = kserving.create_app(model)
    app.include_router(chat.chat_router(model))
    app.add_middleware(BodyLimit, largest=LARGEST_BODY)
    app.add_middleware(Door, model=model)
    _add_refusals(app)
    return app


class Door:
    """ASGI middleware: gives each question an id and a deadline, and counts, times and logs how it ended."""

    def __init__(self, app: ASGIApp, model: Rewriter) -> None:
        self._app, self._model = app, model
        self._protocols: dict[str, Protocol] = {
            f"/v1/models/{model.name}:predict": "v1", f"/v2/models/{model.name}/infer": "v2", chat.PATH: "openai",
        }  # fmt: skip

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        protocol = self._protocols.get(scope.get("path", "")) if scope.get("method") == "POST" else None
        if protocol is None:
            return await self._app(scope, receive, send)
        headers = Headers(scope=scope)
        record = Record(new_id(headers.get(REQUEST_ID, "")), protocol, shadow=SHADOW_HEADER in headers)
        passage = Passage(record, receive, send)
        app = kserving.NOT_JSON if protocol == "v2" and kserving.binary(headers) else self._app
        token, started = CURRENT.set(passage.record), time.perf_counter()
        try:
            with self._model.metrics.under_way.track_inprogress():
                return await passage.within(self._model.config.deadline_seconds, app, scope)
        finally:
            CURRENT.reset(token)
            self._ended(passage, time.perf_counter() - started)

    def _ended(self, passage: "Passage", seconds: float) -> None:
        how = SHADOW if passage.record.shadow else outcome(passage.status)
        if passage.answered and how == HUNG_UP:
            self._model.metrics.missed(passage.record.protocol, seconds)
        else:
            self._model.metrics.ended(passage.record.protocol, how, seconds)
        log(line(passage.record, self._model.version, passage.status, how, seconds))


class Passage:
    """One request between the server and the application."""

    def __init__(self, record: Record, receive: Receive, send: Send) -> None:
        self.record, self.status, self.answered = record, 500, False
        self._receive, self._send = receive, send
        self._read = self._replied = False
        self._leaving: asyncio.Task[Message] | None = None

    async def within(self, seconds: float, app: ASGIApp, scope: Scope) -> None:
        """Answered in time, or told that it is late; a body that took the time is its sender's fault."""
        try:
            async with asyncio.timeout(seconds) as deadline:
                await app(scope, self.receive, self.send)
        except TimeoutError:
            if not deadline.expired() or self._replied:
                raise
            status, said = (LATE, "No answer") if self._read else (TOO_SLOW, "The request was not all here")
            await refuse(status, f"{said} within {seconds:g} s.")(scope, self.receive, self.send)
        finally:
            if self._leaving:
                self._leaving.cancel()

    async def receive(self) -> Message:
        message = await self._receive()
        self._read = self._read or not message.get("more_body")
        if self._read and self._leaving is None:  # what comes after a whole request is that its sender goes
            self._leaving = asyncio.create_task(self._receive())  # type: ignore[arg-type]
        return message

    async def send(self, message: Message) -> None:
        if message["type"] == "http.response.start":
            self._replied, self.status = True, message["status"]
            self.answered = self.status == ANSWERED_STATUS
            if self.answered and self._leaving and self._leaving.done():
                self.status = NOBODY_THERE
            MutableHeaders(scope=message)[REQUEST_ID] = self.record.request_id
        await self._send(message)


def refuse(status: int, message: str, headers: dict[str, str] | None = None) -> JSONResponse:
    """In the envelope of the protocol that was spoken."""
    record = CURRENT.get()
    if record and status >= 500:
        record.why = message
    if record and record.protocol == "openai":
        kind = "invalid_request_error" if status < 500 else "server_error"
        told = {"message": message, "type": kind, "param": None, "code": None}
        return JSONResponse({"error": told}, status, headers)
    return kserving.error(status, message, headers)


def _add_refusals(app: Any) -> None:
    kserving.add_refusals(app, refuse)

    async def invalid(_: Request, refused: InvalidInput) -> Response:
        return refuse(400, str(refused))

    async def nobody(_: Request, failed: OutageError) -> Response:
        return refuse(NOBODY, str(failed))

    async def unknown(_: Request, __: ModelNotFound) -> Response:
        return refuse(404, "No model of that name is served here.")

    app.add_exception_handler(InvalidInput, invalid)
    app.add_exception_handler(OutageError, nobody)
    app.add_exception_handler(ModelNotFound, unknown)
