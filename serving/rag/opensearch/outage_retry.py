"""Wait for an unavailable cluster, up to a time limit, and explain errors of opensearch-py in a few words."""

import time
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, TypeVar

from qinglan.errors import OutageError
from qinglan.terminal import say
from qinglan.text.text import one_line

if TYPE_CHECKING:
    from opensearchpy import OpenSearch
    from opensearchpy.exceptions import TransportError

Result = TypeVar("Result")
LONGEST_REASON = 200
POLL_SECONDS = 1.0
REPORT_SECONDS = 5.0
TRANSIENT_STATUSES = (408, 429, 502, 503, 504)


class OutageRetry:
    """Retries requests about one index within a time limit; renew() starts the time again."""

    def __init__(self, seconds: float, index: str) -> None:
        self.index = index
        self._seconds = seconds
        self.renew()

    def renew(self) -> None:
        self._end = time.monotonic() + self._seconds

    def until_answered(self, client: "OpenSearch", do: Callable[[], Result]) -> Result:
        """Call `do` and return its result. If the cluster fails, wait for it and call `do` again."""
        from opensearchpy.exceptions import ConnectionError as Unreachable
        from opensearchpy.exceptions import TransportError

        while True:
            try:
                return do()
            except OutageError as error:
                self._wait(client, str(error))
            except TransportError as error:
                why = describe_error(error)
                if not isinstance(error, Unreachable) and error.status_code not in TRANSIENT_STATUSES:
                    raise OutageError(f"{self.index}: refused: {why}. See the cluster's log.") from error
                self._wait(client, why)

    def _wait(self, client: "OpenSearch", why: str) -> None:
        """Wait until the index is available again or, if it does not exist yet, until the cluster answers.

        Raises an OutageError when the time limit is over.
        """
        reported = -REPORT_SECONDS
        while (now := time.monotonic()) < self._end:
            if now - reported >= REPORT_SECONDS:
                reported = now
                say(f"[{self.index}] no answer, waiting: {self._end - now:.0f} s left. {why}")
            # Pause before the first check, too: a cluster that refuses with 429 is available, but needs the pause.
            time.sleep(POLL_SECONDS)
            if _is_available(client, self.index):
                return
        raise OutageError(
            f"{self.index}: no answer within {self._seconds:.0f} s: {why}. "
            "Run the same command again when the cluster is back: what was loaded stays."
        )


def describe_error(error: "TransportError") -> str:
    """Describe an error in a few words, because opensearch-py nests errors and prints all of them."""
    from opensearchpy.exceptions import ConnectionError as Unreachable
    from opensearchpy.exceptions import ConnectionTimeout

    if isinstance(error, ConnectionTimeout):
        return "the cluster did not answer in time"
    if isinstance(error, Unreachable):
        cause: BaseException = error
        while inner := cause.__cause__ or cause.__context__:
            cause = inner
        reason = getattr(cause, "strerror", None) or cause
        return f"the cluster cannot be reached ({one_line(str(reason))[:LONGEST_REASON]})"
    info: Any = error.info
    message = info.get("error") if isinstance(info, dict) else str(error.error)
    return f"status {error.status_code}, {error_reason(message)}"


def error_reason(error: Any) -> str:
    """Join the outermost reason of an error, which names the field, and the innermost, which names the cause."""
    reasons = []
    while isinstance(error, dict):
        reasons.append(str(error.get("reason") or ""))
        error = error.get("caused_by")
    if isinstance(error, str):
        reasons.append(error)
    ends = dict.fromkeys(reasons[:1] + reasons[-1:])
    return one_line("; ".join(reason[:LONGEST_REASON] for reason in ends if reason)) or "no reason given"


def _is_available(client: "OpenSearch", index: str) -> bool:
    from opensearchpy.exceptions import TransportError

    try:
        health = client.cluster.health(params={"level": "indices"}, request_timeout=5)
    except TransportError:
        return False
    known = health["indices"].get(index)
    return known is None or known["status"] != "red"
