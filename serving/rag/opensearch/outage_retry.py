"""Wait for a cluster that is away, up to a time limit, and report it meanwhile."""

import time
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, TypeVar

from qinglan.errors import OutageError
from qinglan.terminal import say
from qinglan.text.text import one_line
from serving.rag.opensearch.bulk_outcomes import LONGEST_REASON, error_reason

if TYPE_CHECKING:
    from opensearchpy import OpenSearch
    from opensearchpy.exceptions import TransportError

Result = TypeVar("Result")
POLL_SECONDS = 1.0
REPORT_SECONDS = 5.0
TRANSIENT_STATUSES = (408, 429, 502, 503, 504)


class OutageRetry:
    """Retries of the requests about one index, within a time limit that `renew` starts anew."""

    def __init__(self, seconds: float, index: str) -> None:
        self.index = index
        self._seconds = seconds
        self.renew()

    def renew(self) -> None:
        self._end = time.monotonic() + self._seconds

    def until_answered(self, client: "OpenSearch", do: Callable[[], Result]) -> Result:
        """Call `do` and return its result; it is called again each time that the cluster comes back."""
        from opensearchpy.exceptions import ConnectionError as Unreachable
        from opensearchpy.exceptions import TransportError

        while True:
            try:
                return do()
            except OutageError as error:
                self._wait(client, str(error))
            except TransportError as error:
                if not isinstance(error, Unreachable) and error.status_code not in TRANSIENT_STATUSES:
                    raise OutageError(
                        f"{self.index}: refused: {describe_error(error)}. See the cluster's log."
                    ) from error
                self._wait(client, describe_error(error))

    def _wait(self, client: "OpenSearch", why: str) -> None:
        """Wait, at least once, until the index can be searched and written to again; one that is not there yet only
        needs the cluster. A cluster that refuses with 429 is available all the while, and must not be asked at once.
        """
        reported = -REPORT_SECONDS
        while (now := time.monotonic()) < self._end:
            if now - reported >= REPORT_SECONDS:
                reported = now
                say(f"[{self.index}] no answer, waiting: {self._end - now:.0f} s left. {why}")
            time.sleep(POLL_SECONDS)
            if is_available(client, self.index):
                return
        raise OutageError(
            f"{self.index}: no answer within {self._seconds:.0f} s: {why}. "
            "Run the same command again when the cluster is back: what was loaded stays."
        )


def describe_error(error: "TransportError") -> str:
    """The error in a few words: the library nests each error in another and prints all of them."""
    from opensearchpy.exceptions import ConnectionError as Unreachable
    from opensearchpy.exceptions import ConnectionTimeout

    if isinstance(error, ConnectionTimeout):
        return "the cluster did not answer in time"
    if isinstance(error, Unreachable):
        return f"the cluster cannot be reached ({one_line(str(_innermost(error)))[:LONGEST_REASON]})"
    info: Any = error.info
    message = info.get("error") if isinstance(info, dict) else str(error.error)
    return f"status {error.status_code}, {error_reason(message)}"


def _innermost(error: BaseException) -> BaseException | str:
    """What the system said, where it was the system."""
    while inner := error.__cause__ or error.__context__:
        error = inner
    return getattr(error, "strerror", None) or error


def is_available(client: "OpenSearch", index: str) -> bool:
    from opensearchpy.exceptions import TransportError

    try:
        health = client.cluster.health(params={"level": "indices"}, request_timeout=5)
    except TransportError:
        return False
    known = health["indices"].get(index)
    return known is None or known["status"] != "red"
