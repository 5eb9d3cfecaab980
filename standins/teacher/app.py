"""Serve OpenAI's chat completions like a paid service, including its faults. A backend writes the answers.

GET /stats counts calls and bills by prompt, so that a test can prove that nothing was paid twice.
"""

import asyncio
import math
import time
from collections import Counter
from collections.abc import Callable
from random import Random
from typing import Any

import orjson
from fastapi import FastAPI, Request, Response
from starlette.requests import ClientDisconnect

from qinglan.files.files import sha256_text
from qinglan.llm.limits import BURST_SECONDS, rate_limiter
from qinglan.llm.providers.prices import estimate_tokens
from serving.http_server import client_disconnected
from standins.teacher.backend import CompletionBackend, Refusal
from standins.teacher.batches import FakeBatchService, add_batch_routes
from standins.teacher.config import Behaviour
from standins.teacher.parameter_rules import check_parameters, read_max_tokens

TOKENS_PER_MESSAGE = 4
JSON = "application/json"


def prompt_digest(model: str, messages: list[dict[str, Any]]) -> str:
    """Return a prompt's digest, under which /stats lists the prompt."""
    return sha256_text(model, *(f"{m.get('role')}\n{m.get('content')}" for m in messages))


class Teacher:
    """Paid service that answers, fails and counts by its behaviour. Same calls and seed have the same outcomes."""

    def __init__(self, backend: CompletionBackend, behaviour: Behaviour) -> None:
        self._backend, self._behaviour = backend, behaviour
        per_minute = behaviour.requests_per_minute
        self._limiter = rate_limiter(per_minute, BURST_SECONDS) if per_minute else None
        self.times_sent: Counter[str] = Counter()
        self.billed: Counter[str] = Counter()
        self.under_way = self.most_under_way = 0

    async def complete(self, body: dict[str, Any]) -> Response:
        model, messages = body["model"], body["messages"]
        prompt = prompt_digest(model, messages)
        self.times_sent[prompt] += 1
        if self._limiter is not None:
            if not self._limiter.has_capacity():
                return rate_limited()
            await self._limiter.acquire()
        luck = Random(f"{self._behaviour.seed} {prompt} {self.times_sent[prompt]}")
        self.under_way += 1
        self.most_under_way = max(self.most_under_way, self.under_way)
        try:
            await asyncio.sleep(self._behaviour.latency + luck.random() * self._behaviour.jitter)
            if luck.random() < self._behaviour.error_rate:
                return luck.choice(FAULTS)()
            self.billed[prompt] += 1
            return json_response(self._completion(body, prompt))
        finally:
            self.under_way -= 1

    def answer_row(self, body: Any) -> tuple[int, dict[str, Any]]:
        """Answer a row of a batch. Returns the status and the body of its result line."""
        wrong = invalid_reason(body) or (
            "" if body["model"] in self._backend.models else f"No model {body['model']!r}."
        )
        if wrong:
            return 400, {"error": {"message": wrong, "type": "invalid_request_error", "param": None, "code": None}}
        prompt = prompt_digest(body["model"], body["messages"])
        self.times_sent[prompt] += 1
        self.billed[prompt] += 1
        return 200, self._completion(body, prompt)

    def _completion(self, body: dict[str, Any], prompt: str) -> dict[str, Any]:
        structured = body.get("response_format") or body.get("tools")
        answer = self._backend.answer(body["model"], body["messages"], structured)
        refused = (answer.text or None) if isinstance(answer, Refusal) else None
        text, finish = (
            (None, answer.finish) if isinstance(answer, Refusal) else truncate_text(answer, read_max_tokens(body))
        )
        message = {"role": "assistant", "content": text, "refusal": refused}
        if text is not None and finish == "stop":
            message |= answer_form(text, body)
            finish = "tool_calls" if "tool_calls" in message else finish
        return {
            "id": f"chatcmpl-{prompt[:24]}",
            "object": "chat.completion",
            "created": int(time.time()),
            "model": body["model"],
            "choices": [{"index": 0, "message": message, "finish_reason": finish}],
            "usage": token_usage(body["messages"], text or refused or ""),
        }


def create_app(backend: CompletionBackend, behaviour: Behaviour) -> FastAPI:
    app = FastAPI(title="Qinglan stand-in teacher")
    teacher = Teacher(backend, behaviour)

    async def completions(request: Request) -> Response:
        try:
            body = orjson.loads(await request.body())
        except orjson.JSONDecodeError as error:
            return error_response(400, f"The body is not JSON: {error}.")
        if wrong := invalid_reason(body):
            return error_response(400, wrong)
        if body["model"] not in backend.models:
            known = ", ".join(backend.models)
            return error_response(404, f"No model {body['model']!r}. There are: {known}.", "model_not_found")
        if wrong_parameter := check_parameters(body, behaviour.answer_formats.split(",")):
            return error_response(400, *wrong_parameter)
        return await teacher.complete(body)

    batches = FakeBatchService(teacher.answer_row, behaviour)
    add_batch_routes(app, batches, error_response)
    app.add_exception_handler(ClientDisconnect, client_disconnected)
    app.add_route("/v1/chat/completions", completions, ["POST"])

    @app.get("/v1/models")
    async def models() -> dict[str, Any]:
        listed = [{"id": name, "object": "model", "created": 0, "owned_by": "qinglan"} for name in backend.models]
        return {"object": "list", "data": listed}

    @app.get("/stats")
    async def stats() -> dict[str, Any]:
        return {
            "asked": sum(teacher.times_sent.values()),
            "billed": sum(teacher.billed.values()),
            "most_under_way": teacher.most_under_way,
            "billed_by_prompt": dict(teacher.billed),
            "files": len(batches.files),
            "batches": len(batches.batches),
        }

    @app.get("/healthz")
    @app.get("/readyz")
    async def ready() -> dict[str, str]:
        return {"status": "ok"}

    return app


def answer_form(text: str, body: dict[str, Any]) -> dict[str, Any]:
    """Return the fields of a message that depend on the requested format.

    A requested tool is called. If no format was requested, an answer in JSON is put into a code fence.
    """
    if tools := body.get("tools"):
        function = {"name": tools[0]["function"]["name"], "arguments": text}
        return {"content": None, "tool_calls": [{"id": "call_0", "type": "function", "function": function}]}
    return {"content": f"```json\n{text}\n```"} if text.startswith("{") and not body.get("response_format") else {}


def invalid_reason(body: Any) -> str:
    """Explain why a request cannot be answered, and name the field at fault. Returns "" if it can be answered."""
    if not isinstance(body, dict):
        return "The body is no JSON object."
    if not isinstance(body.get("model"), str):
        return "model: a name belongs here."
    messages = body.get("messages")
    if not (isinstance(messages, list) and messages and all(isinstance(m, dict) for m in messages)):
        return "messages: a list of messages belongs here."
    if not all(isinstance(m.get("content"), str) for m in messages):
        return "messages: each content is a text."
    return "stream: this stand-in answers whole." if body.get("stream") else ""


def truncate_text(text: str, most: int) -> tuple[str, str]:
    """Cut a text to at most `most` tokens. Returns the text and the finish reason, `stop` or `length`."""
    tokens = estimate_tokens(text)
    return (text, "stop") if tokens <= most else (text[: math.floor(len(text) * most / tokens)], "length")


def token_usage(messages: list[dict[str, Any]], text: str) -> dict[str, Any]:
    prompt = sum(TOKENS_PER_MESSAGE + estimate_tokens(m["content"]) for m in messages)
    completion = estimate_tokens(text) + 1
    return {
        "prompt_tokens": prompt,
        "completion_tokens": completion,
        "total_tokens": prompt + completion,
        "prompt_tokens_details": {"cached_tokens": 0},
        "completion_tokens_details": {"reasoning_tokens": 0},
    }


def json_response(value: Any, status: int = 200, headers: dict[str, str] | None = None) -> Response:
    return Response(orjson.dumps(value), status, media_type=JSON, headers=headers)


def error_response(
    status: int, message: str, code: str | None = None, headers: dict[str, str] | None = None
) -> Response:
    kind = "invalid_request_error" if status < 429 else "requests"
    error = {"message": message, "type": kind, "param": None, "code": code}
    return json_response({"error": error}, status, headers)


def rate_limited() -> Response:
    return error_response(429, "Rate limit reached.", "rate_limit_exceeded", {"retry-after": "1"})


FAULTS: tuple[Callable[[], Response], ...] = (
    rate_limited,
    lambda: error_response(500, "The server had an error."),
    lambda: Response(b"<html><body><h1>Bad gateway</h1></body></html>", media_type="text/html"),
    lambda: json_response({"id": "chatcmpl-0", "object": "chat.completion", "choices": None}),
    lambda: Response(b'{"id":"chatcmpl-0","object":"chat.completion","choices":[{"ind', media_type=JSON),
)
"""Faulty answers like those of real paid services."""
