"""Client of paid models through the run's gateway; a stage or a reward worker needs only the gateway's base URL.

async with GatewayClient("http://127.0.0.1:8200", step="generate") as gateway:
    answer = await gateway.ask("teacher", messages, row="17")
"""

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any, NamedTuple, cast
from urllib.parse import quote

import httpx2
import orjson

from qinglan.concurrency import AsyncClosing
from qinglan.errors import BudgetError, ConfigError, OutageError, QinglanError, RowError
from qinglan.http.http_client import async_client
from qinglan.http.outages import Retries, outage_seconds
from qinglan.http.request_bundles import BundleClient, BundledResponse
from qinglan.llm.config import Role
from qinglan.llm.contract import (
    BUDGET_EXCEEDED,
    CACHED_HEADER,
    CALL_HEADER,
    COMPLETIONS_PATH,
    ROW_FAILED,
    ROW_HEADER,
    SAMPLE_HEADER,
    SECONDS_PATH,
    STEP_HEADER,
    STOPPING,
    WAITS_PATH,
)
from qinglan.llm.providers.prices import Usage, read_usage
from qinglan.llm.usable_answer import as_line, usable_text
from qinglan.llm.waiting_calls import WaitingCalls
from qinglan.prompts import Message

MAX_CONCURRENT_REQUESTS = 64
"""Largest number of requests that a client has under way. The gateway's limits decide how many of them are sent on at
once; the rest wait there."""

GATEWAY_RESTART_SECONDS = 30.0
"""Seconds to retry while a gateway restarts, unless the environment sets another time (outage_seconds). Sending a
call again is safe: the journal knows which calls are paid."""


class Answer(NamedTuple):
    text: str
    model: str
    call: str
    """Key of the paid call in the journal."""

    cached: bool
    """True if the answer was paid for earlier."""

    usage: Usage

    def line(self) -> str:
        return as_line(self.text)


class _GatewayStopping(Exception):
    """The gateway is stopping and takes no more calls. It is treated like a gateway that cannot be reached."""


JSON_HEADER = {"content-type": "application/json"}
UNREACHABLE_ERRORS = (httpx2.TransportError, _GatewayStopping)


class GatewayClient(AsyncClosing):
    """Client for all requests of a stage to the gateway. Thousands of requests may wait in it, so one client is
    enough."""

    def __init__(self, base_url: str, step: str, back_within: float | None = None) -> None:
        self._base_url = base_url.rstrip("/")
        self._step = step
        seconds = back_within or outage_seconds() or GATEWAY_RESTART_SECONDS
        self._retries = Retries(
            f"Gateway {self._base_url}", lambda error: isinstance(error, UNREACHABLE_ERRORS), seconds=seconds
        )
        self._slots = asyncio.Semaphore(MAX_CONCURRENT_REQUESTS)
        self._http = async_client(timeout=httpx2.Timeout(None, connect=5.0), largest=None)
        self._bundles = BundleClient(base_url)
        self._waiting = WaitingCalls(step, self._hold_up)

    async def aclose(self) -> None:
        self._waiting.stop()
        await self._bundles.aclose()
        await self._http.aclose()

    async def ask(
        self,
        role: Role,
        messages: list[Message],
        row: str,
        sample: int = 0,
        response_format: dict[str, Any] | None = None,
    ) -> Answer:
        """Ask a model for a text; a RowError if its answer is unusable.

        A BudgetError or an OutageError means that no row can be answered now.
        """
        headers = {STEP_HEADER: quote(self._step), ROW_HEADER: quote(row), SAMPLE_HEADER: str(sample)}
        body: dict[str, Any] = {"model": role, "messages": messages}
        if response_format is not None:
            body["response_format"] = response_format

        # Each try takes a slot, not each call, so that a call that waits for the gateway holds no slot.
        async def send() -> BundledResponse:
            async with self._slots:
                return self._checked(await self._bundles.post(COMPLETIONS_PATH, orjson.dumps(body), headers))

        with self._waiting.call():
            response = await self._send_with_retries(send)
        completion = orjson.loads(response.content)
        text = usable_text(completion, response_format is not None)
        return Answer(
            text=text,
            model=str(completion.get("model", role)),
            call=response.headers[CALL_HEADER],
            cached=response.headers.get(CACHED_HEADER) == "1",
            usage=read_usage(completion) or Usage(),
        )

    async def exported(self, artifact: str) -> None:
        """Tell the journal that this step's answers are stored in the artifact with the digest `artifact`."""
        await self._exchange_json("POST", "/v1/journal/exported", {"step": self._step, "artifact": artifact})

    async def report(self) -> dict[str, Any]:
        """Return the journal's report: calls, reused answers, tokens and money so far, and rows that may have been
        billed twice."""
        return await self._exchange_json("GET", "/v1/journal/report")

    async def live_seconds(self, step: str, role: Role) -> list[float]:
        """Return the seconds of each live call of a step that the role's model answered."""
        answer = await self._exchange_json("GET", f"{SECONDS_PATH}?step={quote(step)}&role={role}")
        return [float(seconds) for seconds in answer["seconds"]]

    async def _hold_up(self) -> str:
        """Ask the gateway why calls wait. A failed request is not repeated, since the reason is only shown as
        progress."""
        try:
            response = await self._http.get(f"{self._base_url}{WAITS_PATH}", timeout=5)
        except httpx2.TransportError:
            return "the gateway does not answer"
        return str(orjson.loads(response.content)["reason"]) if response.status_code == 200 else ""

    async def _exchange_json(self, method: str, path: str, body: dict[str, Any] | None = None) -> dict[str, Any]:
        async def send() -> BundledResponse:
            content = None if body is None else orjson.dumps(body)
            response = await self._http.request(
                method, f"{self._base_url}{path}", content=content, headers=JSON_HEADER, timeout=60
            )
            return self._checked(BundledResponse(response.status_code, response.headers, response.content))

        return cast(dict[str, Any], orjson.loads((await self._send_with_retries(send)).content))

    def _checked(self, reply: BundledResponse) -> BundledResponse:
        if reply.status != 200:
            raise read_error(f"Gateway {self._base_url}", reply.status, reply.content)
        return reply

    async def _send_with_retries(self, send: Callable[[], Awaitable[BundledResponse]]) -> BundledResponse:
        """Send a request, and send it again while the gateway restarts; an OutageError if that takes too long."""
        try:
            return await self._retries.run(send)
        except UNREACHABLE_ERRORS as error:
            raise OutageError(
                f"Gateway {self._base_url}: no answer ({error.__cause__ or error}). {self._retries.limit()}. "
                "Start it again on the same journal; then run again, what was paid for costs nothing."
            ) from error


def read_error(where: str, status: int, content: bytes) -> Exception:
    try:
        body = orjson.loads(content)
    except orjson.JSONDecodeError:
        body = content[:200].decode("utf-8", "replace")
    if not isinstance(body, dict):
        body = {"message": str(body)}
    fields = body["error"] if isinstance(body.get("error"), dict) else body
    message, kind = str(fields.get("message", "")), fields.get("type")
    if kind == ROW_FAILED:
        return RowError(str(fields.get("code") or "failed"), message, str(fields.get("param") or ""))
    if kind == BUDGET_EXCEEDED:
        return BudgetError(message)
    if fields.get("code") == STOPPING:
        return _GatewayStopping(message)
    if status == 413:
        return RowError("too large", "The request is larger than the gateway takes (2 MB).")
    if status >= 500:
        return OutageError(message or f"{where}: status {status}. See the gateway's log.")
    if 400 <= status < 500:
        return ConfigError(f"{where}: {message}")
    return QinglanError(f"{where}: unexpected status {status}: {message}")
