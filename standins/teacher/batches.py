"""Serve OpenAI's files and batches like a paid service. Requests are in a file; answers in files, in random order.

The teacher answers a batch in the background, row by row. All files are in memory.
https://platform.openai.com/docs/guides/batch
"""

import asyncio
import time
from collections.abc import Callable
from random import Random
from typing import Any

import orjson
from fastapi import FastAPI, Request, Response
from starlette.datastructures import UploadFile

from standins.teacher.config import BatchFault, Behaviour

MOST_ROWS = 50_000
YIELD_EVERY_ROWS = 50
"""Rows after which a batch lets the server's other requests run."""

EXPIRED = {"code": "batch_expired", "message": "This request could not be executed before the window expired."}
BATCH_ERRORS: dict[str, dict[str, Any]] = {
    "validation": {
        "code": "invalid_request", "message": "The line is no request.", "param": "body", "line": 1,
    },
    "quota": {
        "code": "token_limit_exceeded", "message": "Enqueued token limit reached.", "param": None, "line": None,
    },
}  # fmt: skip
"""Error of a batch that is not run because of its fault."""

HALF_DONE = ("expired", "cancelled")
AnswerRow = Callable[[dict[str, Any]], tuple[int, dict[str, Any]]]
JsonObject = dict[str, Any]


class FakeBatchService:
    def __init__(self, answer: AnswerRow, behaviour: Behaviour) -> None:
        self._answer, self._behaviour = answer, behaviour
        self.files: dict[str, JsonObject] = {}
        self.contents: dict[str, bytes] = {}
        self.batches: dict[str, JsonObject] = {}
        self._tasks: set[asyncio.Task[None]] = set()

    def add_file(self, name: str, content: bytes, filename: str, purpose: str) -> JsonObject:
        self.contents[name] = content
        self.files[name] = {
            "id": name, "object": "file", "bytes": len(content), "created_at": int(time.time()),
            "filename": filename, "purpose": purpose, "status": "processed",
        }  # fmt: skip
        return self.files[name]

    def create(self, file: str, endpoint: str, window: str, metadata: Any) -> JsonObject:
        number = len(self.batches)
        batch: JsonObject = {
            "id": f"batch_{number:024d}", "object": "batch", "endpoint": endpoint, "completion_window": window,
            "input_file_id": file, "output_file_id": None, "error_file_id": None, "status": "validating",
            "errors": None, "created_at": int(time.time()), "metadata": metadata,
            "request_counts": {"total": 0, "completed": 0, "failed": 0},
        }  # fmt: skip
        self.batches[batch["id"]] = batch
        task = asyncio.create_task(self._work(batch, "none" if number else self._behaviour.batch_fault))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        return batch

    async def _work(self, batch: JsonObject, fault: BatchFault) -> None:
        await asyncio.sleep(self._behaviour.batch_seconds)
        requests = self.contents[batch["input_file_id"]].splitlines()
        problem = BATCH_ERRORS.get(fault) or ("too many" if len(requests) > MOST_ROWS else None)
        if problem:
            batch |= {"status": "failed", "errors": {"object": "list", "data": [problem]}}
            return
        batch["request_counts"]["total"] = len(requests)
        if batch["status"] == "validating":
            batch["status"] = "in_progress"
        Random(self._behaviour.seed).shuffle(requests)
        half = len(requests) // 2 if fault in HALF_DONE else len(requests)
        answers, errors = list[bytes](), list[bytes]()
        for number, content in enumerate(requests[:half]):
            if batch["status"] == "cancelling":
                break
            if number % YIELD_EVERY_ROWS == 0:
                await asyncio.sleep(0)
            status, lines = self._answer_row(number, orjson.loads(content), fault if number == 0 else "none")
            batch["request_counts"]["completed" if status == 200 else "failed"] += len(lines)
            (answers if status == 200 else errors).extend(lines)
        if fault == "expired":
            keys = [orjson.loads(content)["custom_id"] for content in requests[half:]]
            errors += [orjson.dumps({"custom_id": key, "response": None, "error": EXPIRED}) for key in keys]
            batch["request_counts"]["failed"] += len(keys)
        for field, lines in (("output_file_id", answers), ("error_file_id", errors)):
            if lines:
                name = f"{batch['id']}-{field}"
                self.add_file(name, b"".join(line + b"\n" for line in lines), f"{name}.jsonl", "batch_output")
                batch[field] = name
        cancelled = batch["status"] == "cancelling"
        batch["status"] = "cancelled" if cancelled else fault if fault in HALF_DONE else "completed"

    def _answer_row(self, number: int, request: JsonObject, fault: BatchFault) -> tuple[int, list[bytes]]:
        """Answer a row. Returns the status, and the lines of the result: one line, or with a fault none or two."""
        status, body = self._answer(request["body"])
        if fault in ("broken", "refused"):
            status = 500 if fault == "broken" else 400
            body = {"error": {"message": "It did not work.", "type": "server_error", "param": None, "code": None}}
        line = {
            "id": f"batch_req_{number}", "custom_id": request["custom_id"], "error": None,
            "response": {"status_code": status, "request_id": f"r{number}", "body": body},
        }  # fmt: skip
        lines = {
            "missing": [],
            "twice": [line, line],
            "stranger": [line, {**line, "custom_id": "nobody"}],
        }.get(fault, [line])
        dumped = [orjson.dumps(each) for each in lines]
        return status, [dumped[0][:40]] if fault == "garbled" else dumped


def add_batch_routes(app: FastAPI, service: FakeBatchService, refusal: Callable[..., Response]) -> None:
    @app.post("/v1/files")
    async def upload(request: Request) -> Any:
        async with request.form() as form:
            file = form.get("file")
            if not isinstance(file, UploadFile) or form.get("purpose") != "batch":
                return refusal(400, "file and purpose=batch belong here.")
            return service.add_file(
                f"file-{len(service.files):024d}", await file.read(), file.filename or "", "batch"
            )

    @app.get("/v1/files/{name}")
    async def file(name: str) -> Any:
        return service.files.get(name) or refusal(404, f"No such file: {name}")

    @app.get("/v1/files/{name}/content")
    async def content(name: str) -> Any:
        return Response(service.contents[name]) if name in service.files else refusal(404, f"No such file: {name}")

    @app.post("/v1/batches")
    async def create(request: Request) -> Any:
        body = orjson.loads(await request.body())
        if body.get("input_file_id") not in service.files or body.get("endpoint") != "/v1/chat/completions":
            return refusal(400, "input_file_id and endpoint: a file of ours and /v1/chat/completions belong here.")
        if body.get("completion_window") != "24h":
            return refusal(400, "completion_window: 24h is the only one.")
        return service.create(body["input_file_id"], body["endpoint"], "24h", body.get("metadata"))

    @app.get("/v1/batches")
    async def listed(limit: int = 20, after: str = "") -> Any:
        newest = list(reversed(service.batches.values()))
        names = [batch["id"] for batch in newest]
        start = names.index(after) + 1 if after in names else 0
        return {"object": "list", "data": newest[start : start + limit], "has_more": start + limit < len(newest)}

    @app.get("/v1/batches/{name}")
    async def batch(name: str) -> Any:
        return service.batches.get(name) or refusal(404, f"No such batch: {name}")

    @app.post("/v1/batches/{name}/cancel")
    async def cancel(name: str) -> Any:
        if name not in service.batches:
            return refusal(404, f"No such batch: {name}")
        if service.batches[name]["status"] in ("validating", "in_progress"):
            service.batches[name]["status"] = "cancelling"
        return service.batches[name]
