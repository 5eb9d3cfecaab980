"""HTTP interface of the gateway: OpenAI's protocol for paid models, the RAG contract, the journal, and trainings."""

import asyncio
import sqlite3
from collections.abc import Awaitable, Callable, Mapping
from typing import Any, get_args
from urllib.parse import unquote

import orjson
from fastapi import FastAPI, Request, Response
from starlette.requests import ClientDisconnect
from starlette.responses import HTMLResponse, PlainTextResponse, StreamingResponse

from qinglan.documents import refuse_twice_named
from qinglan.errors import BudgetError, ConfigError, DataError, OutageError, QinglanError, RowError
from qinglan.http.request_bundles import BUNDLE_PATH as BUNDLE_PATH
from qinglan.live.page import trainings_page
from qinglan.live.snapshot import TRAININGS_PATH
from qinglan.live.trackers import MLFLOW_PATH
from qinglan.llm.call_plan import PaidRequest
from qinglan.llm.config import PaidModel, Role
from qinglan.llm.contract import (
    BUDGET_EXCEEDED,
    CACHED_HEADER,
    CALL_HEADER,
    COMPLETIONS_PATH,
    OUTAGE,
    PAID_PATH,
    PRICES_PATH,
    REPORT_PATH,
    ROW_FAILED,
    ROW_HEADER,
    SAMPLE_HEADER,
    SECONDS_PATH,
    STEP_HEADER,
    STOPPING,
    WAITS_PATH,
)
from qinglan.llm.paid.journal import Entry, Journal
from qinglan.llm.paid.journal_reader import paid_answers_jsonl, read_attempts, read_report
from qinglan.llm.usable_answer import cleaned_answer
from qinglan.rag.contract import KNOWLEDGE_BASES_PATH, RAG_PATH
from serving.gateway.bundle_handler import answer_bundle, read_bundle
from serving.gateway.metrics import Metrics
from serving.gateway.mlflow_forward import MlflowForward
from serving.gateway.paid_calls import GatewayStopping, PaidCalls
from serving.gateway.retrieval_client import Reply, RetrievalClient
from serving.gateway.trainings import Trainings
from serving.http_server import client_disconnected

LARGEST_BODY = 2 * 1024 * 1024
ROLES: tuple[str, ...] = get_args(Role)
FIELDS = {"model", "messages", "response_format", "stream"}
JSON = "application/json"
TRAININGS_PAGE = "/trainings"
INVALID = "invalid_request_error"


def create_app(
    paid: PaidCalls,
    retrievals: RetrievalClient,
    journal: Journal,
    metrics: Metrics,
    models: Mapping[Role, PaidModel],
    trainings: Trainings,
    mlflow: MlflowForward,
) -> FastAPI:
    """Create the HTTP application of a gateway whose parts are open."""
    app = FastAPI(title="Qinglan gateway", max_body_size=LARGEST_BODY)
    app.add_exception_handler(ClientDisconnect, client_disconnected)
    _add_refusals(app)
    _add_calls(app, paid, retrievals, {str(role): model for role, model in models.items()})
    _add_journal(app, journal, paid, metrics, models)
    _add_probes(app, paid, metrics)
    _add_trainings(app, trainings, mlflow)
    return app


def _add_refusals(app: FastAPI) -> None:
    """Answer every QinglanError in OpenAI's error format; a journal that cannot be read counts as an outage."""

    @app.exception_handler(QinglanError)
    async def refused(_: Request, error: QinglanError) -> Response:
        return error_response(error)

    @app.exception_handler(sqlite3.Error)
    async def unreadable(_: Request, error: sqlite3.Error) -> Response:
        return error_response(OutageError(f"The journal cannot be read ({error}). Mend the disk, then run again."))


def _add_calls(app: FastAPI, paid: PaidCalls, retrievals: RetrievalClient, by_name: Mapping[str, PaidModel]) -> None:
    """Add routes for paid calls, retrievals and bundles of both. Starlette's routes are faster than FastAPI's."""

    async def complete(body: bytes, headers: Mapping[str, str]) -> Response:
        try:
            request = read_paid_request(body, headers)
            served = await paid.answer(request)
        except QinglanError as error:
            return error_response(error)
        named = {CALL_HEADER: served.call, CACHED_HEADER: "1" if served.cached else "0"}
        model = by_name[request.entry.role]
        return Response(cleaned_answer(served.raw, model), media_type=JSON, headers=named)

    async def retrieve(body: bytes, _: Mapping[str, str]) -> Response:
        async def ask() -> Reply:
            refuse_twice_named(body, "body")  # the cache might read one tenant, and the service the other
            return await retrievals.retrieve(body)

        return await _forward_reply(ask)

    posts = {COMPLETIONS_PATH: complete, RAG_PATH: retrieve}

    async def post(request: Request) -> Response:
        return await posts[request.url.path](await request.body(), request.headers)

    async def bundle(request: Request) -> Response:
        requests = read_bundle(await request.body(), posts)
        return StreamingResponse(answer_bundle(requests, posts), media_type="application/octet-stream")

    async def knowledge_bases(_: Request) -> Response:
        return await _forward_reply(retrievals.knowledge_bases)

    for path in posts:
        app.add_route(path, post, ["POST"])
    app.add_route(BUNDLE_PATH, bundle, ["POST"])
    app.add_route(KNOWLEDGE_BASES_PATH, knowledge_bases, ["GET"])


def _add_journal(
    app: FastAPI, journal: Journal, paid: PaidCalls, metrics: Metrics, models: Mapping[Role, PaidModel]
) -> None:
    known = {
        role: {"model": model.model, "currency": model.price.currency, "typical_seconds": model.typical_seconds}
        for role, model in models.items()
    }
    prices = {
        role: {"model": model.model, "price": model.price.model_dump(mode="json")} for role, model in models.items()
    }

    @app.get(PRICES_PATH)
    async def price_table() -> Response:
        return Response(orjson.dumps(prices, option=orjson.OPT_SORT_KEYS | orjson.OPT_INDENT_2), media_type=JSON)

    @app.post("/v1/journal/exported")
    async def exported(request: Request) -> Response:
        fields = _object(await request.body())
        for name in ("step", "artifact"):
            if not isinstance(fields.get(name), str) or not fields[name]:
                raise DataError(f"{name}: a text belongs here.")
        step, artifact = fields["step"], fields["artifact"]
        answers = await journal.exported(step, artifact)
        paid.step_ended(step)
        return _json({"step": step, "artifact": artifact, "answers": answers})

    @app.get(REPORT_PATH)
    async def report() -> Response:
        await journal.settled()
        figures = await asyncio.to_thread(read_report, journal.path)
        return _json({**figures, **metrics.retrievals(), "models": known})

    @app.get(SECONDS_PATH)
    async def seconds(step: str, role: str) -> Response:
        """List the response times of a step's answered paid calls to a role, for the evaluation's latency."""
        await journal.settled()
        attempts = await asyncio.to_thread(read_attempts, journal.path, step, role)
        answered = (attempt.seconds for attempt in attempts if attempt.outcome == "answered")
        return _json({"seconds": [seconds for seconds in answered if seconds is not None]})

    @app.get(PAID_PATH)
    async def paid_answers(step: str) -> Response:
        """List the digests of the answers that a step received, for its provenance."""
        await journal.settled()
        return Response(
            await asyncio.to_thread(paid_answers_jsonl, journal.path, step), media_type="application/jsonl"
        )


def _add_trainings(app: FastAPI, trainings: Trainings, mlflow: MlflowForward) -> None:
    @app.post(TRAININGS_PATH)
    async def take(request: Request) -> Response:
        trainings.take(await request.body())
        return Response(status_code=204)

    @app.get(TRAININGS_PATH)
    async def listing() -> Response:
        return _json({"trainings": [snapshot.model_dump() for snapshot in trainings.snapshots()]})

    @app.get(TRAININGS_PAGE)
    async def page() -> Response:
        """Show the page of trainings, which escapes all texts."""
        return HTMLResponse(await asyncio.to_thread(trainings_page, trainings.snapshots()))

    async def forward(request: Request) -> Response:
        path, media_type = request.path_params["path"], request.headers.get("content-type", "")
        reply = await mlflow.send(request.method, path, request.url.query, await request.body(), media_type)
        return Response(reply.body, reply.status, media_type=reply.media_type or None)

    app.add_route(MLFLOW_PATH + "/{path:path}", forward, ["GET", "POST"])


def _add_probes(app: FastAPI, paid: PaidCalls, metrics: Metrics) -> None:
    @app.get("/healthz")
    @app.get("/readyz")
    async def ready() -> Response:
        """Report a failed journal with its error. Nothing more is written to it until the gateway is restarted."""
        return error_response(paid.failure) if paid.failure else _json({"status": "ok"})

    @app.get(WAITS_PATH)
    async def waits() -> Response:
        return _json({"reason": paid.hold_up()})

    @app.get("/metrics")
    async def prometheus() -> PlainTextResponse:
        return PlainTextResponse(metrics.text(), media_type="text/plain; version=0.0.4")


async def _forward_reply(ask: Callable[[], Awaitable[Reply]]) -> Response:
    try:
        status, body = await ask()
    except (OutageError, DataError) as error:
        status = 503 if isinstance(error, OutageError) else 422
        body = orjson.dumps({"code": status, "msg": str(error), "data": None})
    return Response(body, status, media_type=JSON)


def read_paid_request(body: bytes, headers: Any) -> PaidRequest:
    """Read a paid request and the step and row that it is for.

    Raises a DataError that names the field or header that is missing, wrong, or not accepted here.
    """
    request = _object(body)
    step, row = _header(headers, STEP_HEADER), _header(headers, ROW_HEADER)
    sample = headers.get(SAMPLE_HEADER, "0")
    if request.get("stream"):
        raise DataError("stream: a journaled answer comes whole. Ask without `stream`.")
    if strangers := request.keys() - FIELDS:
        raise DataError(
            f"{', '.join(sorted(strangers))}: parameters are set per model in the run's profile, not here."
        )
    if (role := request.get("model")) not in ROLES:
        raise DataError(f"model: {str(role)[:80]!r} is no role of this gateway. Ask for one of {', '.join(ROLES)}.")
    shape = request.get("response_format")
    if not (shape is None or isinstance(shape, dict)):
        raise DataError("response_format: an object, or nothing.")
    if not (sample.isascii() and sample.isdigit() and len(sample) < 10):
        raise DataError(f"{SAMPLE_HEADER}: {sample[:20]!r} is no whole number.")
    return PaidRequest(Entry(step, row, str(role)), _messages(request), shape, int(sample))


def error_response(error: QinglanError) -> Response:
    """Convert an error to an answer in OpenAI's error format, with the error types of qinglan/llm/contract.py."""
    status, kind, code, param = 500, "error", None, None
    if isinstance(error, RowError):
        status, kind, code, param = 422, ROW_FAILED, error.reason, error.raw
    elif isinstance(error, BudgetError):
        status, kind = 402, BUDGET_EXCEEDED
    elif isinstance(error, OutageError):
        status, kind, code = 503, OUTAGE, STOPPING if isinstance(error, GatewayStopping) else None
    elif isinstance(error, DataError | ConfigError):
        status, kind = 400, INVALID
    return _json({"error": {"type": kind, "message": str(error), "code": code, "param": param}}, status)


def _json(value: Any, status: int = 200) -> Response:
    return Response(orjson.dumps(value), status, media_type=JSON)


def _object(body: bytes) -> dict[str, Any]:
    refuse_twice_named(body, "body")
    try:
        value = orjson.loads(body)
    except orjson.JSONDecodeError as error:
        raise DataError(f"body: not JSON: {error}.") from error
    if not isinstance(value, dict):
        raise DataError("body: a JSON object belongs here.")
    return value


def _header(headers: Any, name: str) -> str:
    value = unquote(headers.get(name, ""))
    if not value:
        raise DataError(f"{name}: this header is missing. The journal keeps who asked; see qinglan/llm/contract.py.")
    return value


def _messages(request: dict[str, Any]) -> list[dict[str, Any]]:
    """Read the messages. Only texts are accepted, because the highest cost of a picture cannot be computed."""
    messages = request.get("messages")
    if not (isinstance(messages, list) and messages and all(map(_is_text_message, messages))):
        raise DataError("messages: a list of messages with `role` and `content` belongs here, both texts.")
    return messages


def _is_text_message(message: Any) -> bool:
    return isinstance(message, dict) and all(isinstance(message.get(name), str) for name in ("role", "content"))
