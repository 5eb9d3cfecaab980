"""Reads from an OpenSearch cluster within a deadline. What is not a whole answer is an EngineAway with the reason."""

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

from qinglan.errors import OutageError
from qinglan.llm.limits import CircuitBreaker
from serving.rag.engine import EngineUnavailable, SnapshotGone
from serving.rag.opensearch_connection import OpenSearchConfig, connect

OUTAGE_AFTER = 5
PROBE_SECONDS = 1.0


class ClusterClient:
    """One pool of connections, and the breaker that spares everybody the wait for a cluster that is away."""

    def __init__(self, config: OpenSearchConfig) -> None:
        self._config = config
        self._client = connect(config)
        self._breaker = CircuitBreaker(OUTAGE_AFTER, PROBE_SECONDS)

    async def aclose(self) -> None:
        await self._client.close()

    async def mappings(self, alias: str) -> dict[str, Any]:
        """The mapping of each index behind the alias; SnapshotGone if there is no such alias."""
        return await self._answered(lambda: self._mappings(alias))

    async def read(self, alias: str, index: str, what: str, body: Any, **params: str) -> dict[str, Any]:
        """The answer of one index; SnapshotGone where it is not there, or fails and its alias names another by now.

        Under a search that is on its way a deleted index gives a 503 as often as a 404.
        """
        from opensearchpy.exceptions import TransportError

        async def ask() -> Any:
            try:
                return await self._ask("POST", f"/{index}/{what}", body, params)
            except TransportError as error:
                if failure_reason(error) != "failed" or index in await self._mappings(alias):
                    raise
                raise SnapshotGone from error

        return await self._answered(ask)

    async def _mappings(self, alias: str) -> Any:
        return await self._ask("GET", f"/{alias}/_mapping", None, {"filter_path": "*.mappings._meta"})

    async def _ask(self, method: str, path: str, body: Any, params: dict[str, str]) -> Any:
        return await self._client.transport.perform_request(method, path, params=params, body=body)

    async def _answered(self, ask: Callable[[], Awaitable[Any]]) -> dict[str, Any]:
        try:
            self._breaker.check()
        except OutageError as error:
            raise EngineUnavailable("open") from error
        try:
            answer = await self._in_time(ask)
        except SnapshotGone:
            self._breaker.answered()
            raise
        except EngineUnavailable as away:
            self._breaker.failed(away.reason)
            raise
        self._breaker.answered()
        return answer

    async def _in_time(self, ask: Callable[[], Awaitable[Any]]) -> dict[str, Any]:
        from opensearchpy.exceptions import NotFoundError, OpenSearchException

        try:
            async with asyncio.timeout(self._config.deadline_seconds):
                return require_complete(await ask())
        except NotFoundError as error:
            raise SnapshotGone from error
        except (TimeoutError, OpenSearchException) as error:
            raise EngineUnavailable(failure_reason(error)) from error


def require_complete(answer: Any) -> dict[str, Any]:
    """Refuse an answer of some of the shards, or of the part that was searched in time."""
    if not isinstance(answer, dict):
        raise EngineUnavailable("malformed")
    if answer.get("timed_out") or answer.get("_shards", {}).get("failed"):
        raise EngineUnavailable("partial")
    return answer


def failure_reason(error: Exception) -> str:
    """The kind of failure in one word: it becomes a label."""
    from opensearchpy.exceptions import ConnectionError as Unreachable
    from opensearchpy.exceptions import ConnectionTimeout, TransportError

    if isinstance(error, TimeoutError | ConnectionTimeout):
        return "timeout"
    if isinstance(error, Unreachable):
        return "unreachable"
    if not isinstance(error, TransportError):
        return "malformed"
    status = int(error.status_code)
    return "busy" if status == 429 else "failed" if status >= 500 else "refused"
