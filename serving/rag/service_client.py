"""Asks another service within a deadline. A failure is a short word, which becomes a metric's label."""

from collections.abc import Mapping
from typing import Any

import httpx2
import orjson

from qinglan.errors import OutageError
from qinglan.http.http_client import async_client
from qinglan.llm.limits import CircuitBreaker

SHOWN_ANSWER = 200
"""Characters of a refusal that an error keeps."""

CIRCUIT_OPEN = "circuit_open"
"""The reason if a service that kept failing was not asked."""


class ServiceError(Exception):
    """timeout, unreachable, refused, malformed or circuit_open; for a rewriter also empty."""

    def __init__(self, reason: str, status: int = 0, answer: str = "") -> None:
        super().__init__(reason)
        self.status = status
        """HTTP status of a refusal; 0 without an answer."""
        self.answer = answer
        """The beginning of its text."""


def require_closed(breaker: CircuitBreaker) -> None:
    """Let a request pass, or fail at once if the service has kept failing."""
    try:
        breaker.check()
    except OutageError as error:
        raise ServiceError(CIRCUIT_OPEN) from error


class ServiceClient:
    """One connection pool to one address."""

    def __init__(self, url: str, deadline_seconds: float, headers: Mapping[str, str] | None = None) -> None:
        self._url, self._deadline = url.rstrip("/"), deadline_seconds
        self._http = async_client(timeout=deadline_seconds, headers=headers)

    async def aclose(self) -> None:
        await self._http.aclose()

    async def post(self, path: str, body: Any, within: float | None = None) -> bytes:
        """The body of an answer of status 200, or ServiceError with the reason; `within` shortens the deadline."""
        return await self._send("POST", path, orjson.dumps(body), within)

    async def get(self, path: str) -> bytes:
        """The body of an answer of status 200 to a GET, or ServiceError with the reason."""
        return await self._send("GET", path, None)

    async def _send(self, method: str, path: str, content: bytes | None, within: float | None = None) -> bytes:
        headers = {"content-type": "application/json"} if content else {}
        timeout = within or self._deadline
        try:
            response = await self._http.request(
                method, self._url + path, content=content, headers=headers, timeout=timeout
            )
        except httpx2.TimeoutException as error:
            raise ServiceError("timeout") from error
        except httpx2.HTTPError as error:
            raise ServiceError("unreachable") from error
        if response.status_code != 200:
            raise ServiceError("refused", response.status_code, response.text[:SHOWN_ANSWER])
        return response.content
