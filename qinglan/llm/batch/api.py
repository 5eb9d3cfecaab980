"""Client of a paid service's batch API in OpenAI's protocol: upload a file, create a batch from it, read its results.

Only this module parses the answers of these endpoints. Every failure is an UpstreamError, as in a live call.
"""

from codecs import BOM_UTF8
from collections.abc import AsyncGenerator, Iterator
from contextlib import aclosing, contextmanager
from pathlib import Path
from typing import Any, Literal, NamedTuple

import httpx2
import openai
import orjson

from qinglan.http.http_client import MAX_ANSWER_BYTES, async_client
from qinglan.llm.providers.upstream import (
    MAX_RAW_CHARACTERS,
    NOT_FOUND,
    Completion,
    FatalUpstreamError,
    TransientError,
    Upstream,
    UpstreamError,
    error_from_status,
    read_completion,
)

ENDPOINT = "/v1/chat/completions"
WINDOW: Literal["24h"] = "24h"
"""The only completion window that services offer."""

REQUEST_LINE = b'{"custom_id":"%s","method":"POST","url":"/v1/chat/completions","body":%s}\n'
REQUEST_LINE_OVERHEAD = len(REQUEST_LINE) + 64
"""Bytes of a request's line in a batch's file, without the request itself; the call's key takes 64 of them."""

MAX_FILE_BYTES = 190_000_000
"""Largest file of a batch in bytes; services refuse more than 200 MB."""

MAX_RESULT_BYTES = 2_000_000_000
"""Largest file of results in bytes."""

NAME_METADATA_KEY = "qinglan"
"""Metadata field that holds our name of a batch."""

ENDED_STATUSES = {"completed", "failed", "expired", "cancelled"}
RUNNING_STATUSES = {"validating", "queued", "in_progress", "finalizing", "cancelling"}
TRANSFER_SECONDS = 1800.0
ASK_SECONDS = 60.0
LISTED = 100


class BatchProblem(NamedTuple):
    """A reason why a service could not run a file."""

    code: str
    message: str
    line: int | None
    """The faulty line of the file, from 1; None if the problem is not in a single line."""


class BatchStatus(NamedTuple):
    """A batch as its service describes it."""

    id: str
    status: str
    files: tuple[str, ...]
    """Ids of the result files: one with answers and one with errors. Either may be missing."""

    done: int
    total: int
    problems: tuple[BatchProblem, ...]
    files_pending: bool = False
    """True if a result file is still missing: the service counts rows for it, or calls the batch completed, but does
    not name the file. A later status may name it."""


class NoBatchApiError(FatalUpstreamError):
    """The service has no endpoint for uploading files, so it has no batch API."""


class BatchResultLine(NamedTuple):
    """One line of a batch's result file."""

    key: str
    outcome: Completion | UpstreamError


class BatchService:
    """Client for the files and batches of one model's service."""

    def __init__(self, upstream: Upstream) -> None:
        self._upstream = upstream
        self._where = f"batches of {upstream.where}"

    async def upload(self, path: Path, name: str) -> str:
        async def send(client: openai.AsyncOpenAI) -> bytes:
            with path.open("rb") as file:
                upload = (f"{name}.jsonl", file, "application/jsonl")
                answer = await client.files.with_raw_response.create(file=upload, purpose="batch")
                return bytes(answer.content)

        try:
            created = self._read(await self._upstream.call(send, TRANSFER_SECONDS))
        except FatalUpstreamError as refused:
            if refused.reason != NOT_FOUND:
                raise
            raise NoBatchApiError(
                NOT_FOUND,
                f"{self._upstream.model.base_url}: this provider has no /files, so no batch API. `qinglan run` pays "
                "for the same calls live; if it cannot reach the model either, see base_url. Nothing was paid.",
            ) from refused
        return self._text(created, "id")

    async def create(self, file: str, name: str) -> BatchStatus:
        body = {
            "input_file_id": file,
            "endpoint": ENDPOINT,
            "completion_window": WINDOW,
            "metadata": {NAME_METADATA_KEY: name},
        }
        return self._status(await self._json("POST", "/batches", body))

    async def find(self, name: str, file: str) -> BatchStatus | None:
        """Search the service's list for the batch with our name or file; None if it is not listed."""
        # https://platform.openai.com/docs/api-reference/batch/list: `after` is the last id of the page before. A list
        # of a service that ignores it would have no end, so the same page twice is an error.
        after, pages = "", set[str]()
        while True:
            with self._explain_unknown(f"batch {name}"):
                listed = await self._json("GET", f"/batches?limit={LISTED}" + (f"&after={after}" if after else ""))
            items = _objects(listed)
            for item in items:
                if _object(item, "metadata").get(NAME_METADATA_KEY) == name or item.get("input_file_id") == file:
                    return self._status(item)
            if not items or not listed.get("has_more"):
                return None
            after = self._text(items[-1], "id")
            if after in pages:
                raise TransientError("unreadable", f"{self._where}: the list of batches has no end.")
            pages.add(after)

    async def ask(self, batch: str) -> BatchStatus:
        with self._explain_unknown(f"batch {batch}"):
            return self._status(await self._json("GET", f"/batches/{batch}"))

    async def lines(self, file: str) -> AsyncGenerator[BatchResultLine, None]:
        """Yield the lines of a result file as they arrive; a line that cannot be parsed has an empty key."""
        async with aclosing(self._bytes(file)) as chunks:
            rest = b""
            async for chunk in chunks:
                # splitlines would also split at U+2028, which a text of a JSON line may hold.
                *whole, rest = (rest + chunk).split(b"\n")
                if len(rest) > MAX_ANSWER_BYTES:
                    raise TransientError(
                        "unreadable",
                        f"{self._where}: a line of file {file} is larger than {MAX_ANSWER_BYTES:,} bytes.",
                    )
                for line in whole:
                    if line.strip():
                        yield self.read_line(line)
            if rest.strip():
                yield self.read_line(rest)

    def read_line(self, line: bytes) -> BatchResultLine:
        try:
            value = orjson.loads(self._upstream.clean(line.removeprefix(BOM_UTF8).decode("utf-8", "replace")))
            key = value["custom_id"]
        except (orjson.JSONDecodeError, TypeError, KeyError):
            value, key = {}, ""
        return BatchResultLine(str(key), _outcome(value, self._where))

    async def _bytes(self, file: str) -> AsyncGenerator[bytes, None]:
        # A file is read piece by piece, so it may be larger than an answer, and take longer.
        http = async_client(timeout=ASK_SECONDS, largest=MAX_RESULT_BYTES, whole_seconds=TRANSFER_SECONDS)

        async def begin(client: openai.AsyncOpenAI) -> Any:
            request = client.with_options(http_client=http).files.with_streaming_response.content(file)
            return request, await request.__aenter__()

        async with http:
            with self._explain_unknown(f"file {file}"):
                request, response = await self._upstream.call(begin, ASK_SECONDS)
            try:
                async for chunk in response.iter_bytes():
                    yield chunk
            except httpx2.TransportError as error:
                raise TransientError("connection", f"{self._where}: file {file} broke off ({error!r}).") from error
            finally:
                await request.__aexit__(None, None, None)

    async def _json(self, method: str, path: str, body: Any = None) -> dict[str, Any]:
        async def send(client: openai.AsyncOpenAI) -> httpx2.Response:
            if method == "POST":
                return await client.post(path, cast_to=httpx2.Response, body=body)
            return await client.get(path, cast_to=httpx2.Response)

        return self._read((await self._upstream.call(send, ASK_SECONDS)).content)

    def _read(self, content: bytes) -> dict[str, Any]:
        text = self._upstream.clean(content.decode("utf-8", "replace"))
        try:
            value = orjson.loads(text)
        except orjson.JSONDecodeError:
            value = None
        if not isinstance(value, dict):
            raise TransientError(
                "unreadable", f"{self._where}: the answer is no JSON object.", text[:MAX_RAW_CHARACTERS]
            )
        return value

    def _text(self, values: dict[str, Any], name: str) -> str:
        value = values.get(name)
        if not isinstance(value, str) or not value.replace("-", "").replace("_", "").isalnum():
            raise TransientError(
                "unreadable", f"{self._where}: the answer has no {name} to go by.", str(values)[:MAX_RAW_CHARACTERS]
            )
        return value

    @contextmanager
    def _explain_unknown(self, what: str) -> Iterator[None]:
        """Turn a 404 in the block into an error that says what the service does not know, and what to do."""
        try:
            yield
        except FatalUpstreamError as closed:
            if closed.reason not in (NOT_FOUND, "address"):
                raise
            raise FatalUpstreamError(
                "forgotten",
                f"{self._where}: {what} is not known there. Set base_url and key to those it was made with. If it "
                "is gone for good, `qinglan prepay --give-up` leaves it: its rows then count as possibly billed.",
            ) from closed

    def _status(self, values: dict[str, Any]) -> BatchStatus:
        counts = _object(values, "request_counts")
        files = (values.get("output_file_id"), values.get("error_file_id"))
        counted = (_number(counts.get("completed")), _number(counts.get("failed")))
        status = self._text(values, "status").lower().replace("canceled", "cancelled")
        unnamed = any(count and not file for count, file in zip(counted, files, strict=True))
        return BatchStatus(
            self._text(values, "id"),
            status,
            tuple(str(file) for file in files if file),
            sum(counted),
            _number(counts.get("total")),
            tuple(_problem(error) for error in _objects(_object(values, "errors"))),
            unnamed or (status == "completed" and not any(files)),
        )


def _outcome(value: dict[str, Any], where: str) -> Completion | UpstreamError:
    response = value.get("response")
    try:
        if isinstance(response, dict):
            status, body = _status_code(response.get("status_code")), orjson.dumps(response.get("body")).decode()
            if status >= 300:
                return error_from_status(status, {}, body, where)
            return read_completion(body, where)  # also without a status: it may be an answer
    except UpstreamError as unanswered:
        return unanswered
    error = value.get("error")
    if isinstance(error, dict):
        code = str(error.get("code"))[:100]
        return TransientError(code, f"{where}: {code}: {str(error.get('message'))[:300]}")
    return TransientError(
        "unreadable", f"{where}: a line without answer or error.", str(value)[:MAX_RAW_CHARACTERS], True
    )


def _problem(error: dict[str, Any]) -> BatchProblem:
    line = error.get("line")
    return BatchProblem(
        str(error.get("code"))[:100], str(error.get("message"))[:300], line if type(line) is int else None
    )


def _object(values: dict[str, Any], name: str) -> dict[str, Any]:
    value = values.get(name)
    return value if isinstance(value, dict) else {}


def _objects(values: dict[str, Any]) -> list[dict[str, Any]]:
    listed = values.get("data")
    return [item for item in listed if isinstance(item, dict)] if isinstance(listed, list) else []


def _status_code(value: object) -> int:
    """Convert a number or a text of digits to an HTTP status code; 0 for other values."""
    return int(value) if isinstance(value, str) and value.isascii() and value.isdigit() else _number(value)


def _number(value: object) -> int:
    return int(value) if isinstance(value, int | float) and not isinstance(value, bool) else 0
