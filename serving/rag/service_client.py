"""HTTP client of another service, with a deadline. A failure's reason is one word, for use as a metric's label."""

from collections.abc import Mapping
from typing import Any

import httpx2
import orjson

from qinglan.errors import OutageError
from qinglan.http.http_client import async_client
from qinglan.llm.limits import CircuitBreaker

SHOWN_ANSWER = 200
"""Characters of a refused request's answer that are stored in the error."""

CIRCUIT_OPEN = "circuit_open"
"""Reason of a ServiceError if the circuit breaker is open, so that the service was not called."""


class ServiceError(Exception):
    """Failure of a service, with the reason in one word.

    Reasons: timeout, unreachable, refused, malformed, circuit_open; of a rewriter also empty, of a reranker also
    other_model and uncalibrated.
    """

    def __init__(self, reason: str, status: int = 0, answer: str = "") -> None:
        super().__init__(reason)
        self.status = status
        """HTTP status of a refused request; 0 for any other failure."""
        self.answer = answer
        """Beginning of the answer to a refused request."""


def require_closed(breaker: CircuitBreaker) -> None:
    try:
        breaker.check()
    except OutageError as error:
        raise ServiceError(CIRCUIT_OPEN) from error


class ServiceClient:
    """HTTP client with one connection pool for one service."""

    def __init__(self, url: str, deadline_seconds: float, headers: Mapping[str, str] | None = None) -> None:
        self._url, self._deadline = url.rstrip("/"), deadline_seconds
        self._http = async_client(timeout=deadline_seconds, headers=headers)

    async def aclose(self) -> None:
        await self._http.aclose()

    async def post(self, path: str, body: Any, within: float | None = None) -> bytes:
        """Send a POST and return the answer's body. Raises a ServiceError unless its status is 200.

        `within` is a time limit in seconds, instead of the client's deadline.
        """
        return await self._send("POST", path, orjson.dumps(body), within)

    async def get(self, path: str) -> bytes:
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
