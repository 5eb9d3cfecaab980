"""Read complete answers from an OpenSearch cluster, with a deadline and a circuit breaker."""

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

from qinglan.errors import OutageError
from qinglan.llm.limits import CircuitBreaker
from serving.rag.engine import EngineUnavailable, SnapshotGone
from serving.rag.opensearch_connection import OpenSearchConfig, client_options

CONNECTIONS = 64
RETRIES = 2
"""Retries of a read after a broken connection. The deadline of the request includes all retries."""

OUTAGE_AFTER = 5
"""Consecutive failures after which requests fail at once."""

PROBE_SECONDS = 1.0
"""Seconds between two requests that test if the cluster answers again."""


class ClusterClient:
    """Client that returns only complete answers. Otherwise it raises EngineUnavailable with a one-word reason."""

    def __init__(self, config: OpenSearchConfig) -> None:
        from opensearchpy import AsyncOpenSearch

        self._seconds = config.deadline_seconds
        self._client = AsyncOpenSearch(maxsize=CONNECTIONS, max_retries=RETRIES, **client_options(config))
        self._breaker = CircuitBreaker(OUTAGE_AFTER, PROBE_SECONDS)

    async def aclose(self) -> None:
        await self._client.close()

    async def mappings(self, alias: str) -> dict[str, Any]:
        """Read the mapping of each index behind the alias. Raises SnapshotGone if the alias does not exist."""
        return await self._whole_answer(lambda: self._mappings(alias))

    async def read(self, alias: str, index: str, what: str, body: Any, **params: str) -> dict[str, Any]:
        """Send a request to one index and return its answer. Raises SnapshotGone if the index was deleted."""
        from opensearchpy.exceptions import TransportError

        async def ask() -> Any:
            try:
                return await self._ask("POST", f"/{index}/{what}", body, params)
            except TransportError as error:
                # An index that is deleted during a search gives a 503 as often as a 404. If the alias names another
                # index by then, this one is gone; otherwise it is an outage.
                if failure_reason(error) != "failed" or index in await self._mappings(alias):
                    raise
                raise SnapshotGone from error

        return await self._whole_answer(ask)

    async def _mappings(self, alias: str) -> Any:
        return await self._ask("GET", f"/{alias}/_mapping", None, {"filter_path": "*.mappings._meta"})

    async def _ask(self, method: str, path: str, body: Any, params: dict[str, str]) -> Any:
        return await self._client.transport.perform_request(method, path, params=params, body=body)

    async def _whole_answer(self, ask: Callable[[], Awaitable[Any]]) -> dict[str, Any]:
        from opensearchpy.exceptions import NotFoundError, OpenSearchException

        try:
            self._breaker.check()
        except OutageError as error:
            raise EngineUnavailable("open") from error
        try:
            async with asyncio.timeout(self._seconds):
                answer: dict[str, Any] = await ask()
            if not isinstance(answer, dict):
                raise EngineUnavailable("malformed")
            if answer.get("timed_out") or answer.get("_shards", {}).get("failed"):
                raise EngineUnavailable("partial")  # only some shards answered, or only a part was searched in time
        except (SnapshotGone, NotFoundError) as error:
            self._breaker.answered()
            raise SnapshotGone from error
        except (EngineUnavailable, TimeoutError, OpenSearchException) as error:
            reason = failure_reason(error)
            self._breaker.failed(reason)
            raise EngineUnavailable(reason) from error
        self._breaker.answered()
        return answer


def failure_reason(error: Exception) -> str:
    """Describe the kind of failure in one word, which is used as a metric's label."""
    from opensearchpy.exceptions import ConnectionError as Unreachable
    from opensearchpy.exceptions import ConnectionTimeout, TransportError

    if isinstance(error, EngineUnavailable):
        return error.reason
    if isinstance(error, TimeoutError | ConnectionTimeout):
        return "timeout"
    if isinstance(error, Unreachable):
        return "unreachable"
    if not isinstance(error, TransportError):
        return "malformed"
    status = int(error.status_code)
    return "busy" if status == 429 else "failed" if status >= 500 else "refused"
