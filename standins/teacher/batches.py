"""OpenAI's files and batches like those of a paid service: requests in a file, answers in files, in random order.

The teacher answers a batch in the background, row by row.
https://platform.openai.com/docs/guides/batch
"""

import asyncio
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from random import Random
from typing import IO, Any

import orjson
from fastapi import FastAPI, Request, Response
from starlette.datastructures import UploadFile
from starlette.responses import FileResponse

from standins.teacher.batch_faults import HALF_DONE, Fault, apply_fault, batch_error, read_faults
from standins.teacher.config import Behaviour

MOST_ROWS = 50_000
CHUNK = 1 << 20
YIELD_EVERY_ROWS = 50
"""Rows after which a batch lets the server's other requests run."""

EXPIRED = {"code": "batch_expired", "message": "This request could not be executed before the window expired."}
AnswerRow = Callable[[dict[str, Any]], tuple[int, dict[str, Any]]]
JsonObject = dict[str, Any]


class FakeBatchService:
    """Files and batches of the stand-in service."""

    def __init__(self, answer: AnswerRow, behaviour: Behaviour) -> None:
        self._answer, self._behaviour = answer, behaviour
        self._faults: list[Fault] = read_faults(behaviour.batch_faults)
        self._folder = tempfile.TemporaryDirectory(prefix="teacher-")
        self.files: dict[str, JsonObject] = {}
        self.batches: dict[str, JsonObject] = {}
        self._tasks: set[asyncio.Task[None]] = set()

    def path(self, file: str) -> Path:
        return Path(self._folder.name) / file

    async def keep(self, upload: UploadFile, purpose: str) -> JsonObject:
        name = f"file-{len(self.files):024d}"
        with self.path(name).open("wb") as file:
            while chunk := await upload.read(CHUNK):
                file.write(chunk)
        return self._add_file(name, upload.filename or "", purpose)

    def _add_file(self, name: str, filename: str, purpose: str) -> JsonObject:
        self.files[name] = {
            "id": name, "object": "file", "bytes": self.path(name).stat().st_size, "created_at": int(time.time()),
            "filename": filename, "purpose": purpose, "status": "processed",
        }  # fmt: skip
        return self.files[name]

    def create(self, file: str, endpoint: str, window: str, metadata: Any) -> JsonObject:
        number = len(self.batches)
        fault: Fault = self._faults[number] if number < len(self._faults) else "none"
        batch: JsonObject = {
            "id": f"batch_{number:024d}", "object": "batch", "endpoint": endpoint, "completion_window": window,
            "input_file_id": file, "output_file_id": None, "error_file_id": None, "status": "validating",
            "errors": None, "created_at": int(time.time()), "metadata": metadata,
            "request_counts": {"total": 0, "completed": 0, "failed": 0},
        }  # fmt: skip
        self.batches[batch["id"]] = batch
        task = asyncio.create_task(self._work(batch, fault))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        return batch

    async def _work(self, batch: JsonObject, fault: Fault) -> None:
        await asyncio.sleep(self._behaviour.batch_seconds)
        places = list(self._places(batch["input_file_id"]))
        problem = batch_error(fault) or ("too many" if len(places) > MOST_ROWS else None)
        if problem:
            batch |= {"status": "failed", "errors": {"object": "list", "data": [problem]}}
            return
        batch["request_counts"]["total"] = len(places)
        if batch["status"] == "validating":
            batch["status"] = "in_progress"
        Random(self._behaviour.seed).shuffle(places)
        half = len(places) // 2 if fault in HALF_DONE else len(places)
        good, bad = f"{batch['id']}-output", f"{batch['id']}-errors"
        with self.path(good).open("wb") as answers, self.path(bad).open("wb") as errors:
            await self._answer_all(batch, places[:half], fault, answers, errors)
            if fault == "expired":
                self._refuse_all(batch, places[half:], errors)
        self._finish(batch, fault, good, bad)

    def _places(self, file: str) -> list[int]:
        places, at = [], 0
        with self.path(file).open("rb") as lines:
            for line in lines:
                places.append(at)
                at += len(line)
        return places

    async def _answer_all(
        self, batch: JsonObject, places: list[int], fault: Fault, answers: IO[bytes], errors: IO[bytes]
    ) -> None:
        counts = batch["request_counts"]
        with self.path(batch["input_file_id"]).open("rb") as requests:
            for number, place in enumerate(places):
                if batch["status"] == "cancelling":
                    return
                if number % YIELD_EVERY_ROWS == 0:
                    await asyncio.sleep(0)
                requests.seek(place)
                request = orjson.loads(requests.readline())
                status, body = self._answer(request["body"])
                line = {
                    "id": f"batch_req_{number}", "custom_id": request["custom_id"], "error": None,
                    "response": {"status_code": status, "request_id": f"r{number}", "body": body},
                }  # fmt: skip
                for written in apply_fault(fault, line) if number == 0 else [line]:
                    ok = isinstance(written, bytes) or written["response"]["status_code"] == 200
                    counts["completed" if ok else "failed"] += 1
                    target = answers if ok else errors
                    target.write((written if isinstance(written, bytes) else orjson.dumps(written)) + b"\n")

    def _refuse_all(self, batch: JsonObject, places: list[int], errors: IO[bytes]) -> None:
        with self.path(batch["input_file_id"]).open("rb") as requests:
            for place in places:
                requests.seek(place)
                key = orjson.loads(requests.readline())["custom_id"]
                batch["request_counts"]["failed"] += 1
                errors.write(orjson.dumps({"custom_id": key, "response": None, "error": EXPIRED}) + b"\n")

    def _finish(self, batch: JsonObject, fault: Fault, good: str, bad: str) -> None:
        for field, name in (("output_file_id", good), ("error_file_id", bad)):
            if self.path(name).stat().st_size:
                self._add_file(name, f"{name}.jsonl", "batch_output")
                batch[field] = name
        cancelled = batch["status"] == "cancelling"
        batch["status"] = "cancelled" if cancelled else fault if fault in HALF_DONE else "completed"


def add_batch_routes(app: FastAPI, desk: FakeBatchService, refusal: Callable[..., Response]) -> None:
    """Add the routes of /v1/files and /v1/batches."""

    @app.post("/v1/files")
    async def upload(request: Request) -> Any:
        async with request.form() as form:
            file = form.get("file")
            if not isinstance(file, UploadFile) or form.get("purpose") != "batch":
                return refusal(400, "file and purpose=batch belong here.")
            return await desk.keep(file, "batch")

    @app.get("/v1/files/{name}")
    async def file(name: str) -> Any:
        return desk.files.get(name) or refusal(404, f"No such file: {name}")

    @app.get("/v1/files/{name}/content")
    async def content(name: str) -> Any:
        return FileResponse(desk.path(name)) if name in desk.files else refusal(404, f"No such file: {name}")

    @app.post("/v1/batches")
    async def create(request: Request) -> Any:
        body = orjson.loads(await request.body())
        if body.get("input_file_id") not in desk.files or body.get("endpoint") != "/v1/chat/completions":
            return refusal(400, "input_file_id and endpoint: a file of ours and /v1/chat/completions belong here.")
        if body.get("completion_window") != "24h":
            return refusal(400, "completion_window: 24h is the only one.")
        return desk.create(body["input_file_id"], body["endpoint"], "24h", body.get("metadata"))

    @app.get("/v1/batches")
    async def listed(limit: int = 20, after: str = "") -> Any:
        newest = list(reversed(desk.batches.values()))
        names = [batch["id"] for batch in newest]
        start = names.index(after) + 1 if after in names else 0
        return {"object": "list", "data": newest[start : start + limit], "has_more": start + limit < len(newest)}

    @app.get("/v1/batches/{name}")
    async def batch(name: str) -> Any:
        return desk.batches.get(name) or refusal(404, f"No such batch: {name}")

    @app.post("/v1/batches/{name}/cancel")
    async def cancel(name: str) -> Any:
        if name not in desk.batches:
            return refusal(404, f"No such batch: {name}")
        if desk.batches[name]["status"] in ("validating", "in_progress"):
            desk.batches[name]["status"] = "cancelling"
        return desk.batches[name]
