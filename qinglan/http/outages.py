"""Retries of requests to a service that may be away: the run's gateway, the RAG service behind it, the style service.

On a laptop a person waits for the command, so a client gives up soon. On Kubeflow no person waits, and by default KFP
does not run a failed step again (docs/pipelines.md). So the compiled graph sets OUTAGE_VARIABLE for each step that
calls the gateway, and the step's clients retry for that many seconds.

    retries = Retries("Gateway http://127.0.0.1:8300", is_away, attempts=3, seconds=outage_seconds())
    answer = await retries.run(send)
"""

import logging
import os
import time
from collections.abc import Awaitable, Callable
from typing import Any, TypeVar

import stamina

from qinglan.errors import ConfigError

OUTAGE_VARIABLE = "QINGLAN_OUTAGE_SECONDS"
LONGEST_PAUSE = 3.0
"""Longest pause in seconds between two attempts, if the service names no pause."""

Result = TypeVar("Result")

log = logging.getLogger(__name__)


def outage_seconds() -> float | None:
    """Read from the environment for how many seconds a client retries while a service is away; None if unset or 0."""
    text = os.environ.get(OUTAGE_VARIABLE, "")
    try:
        seconds = float(text or 0)
    except ValueError:
        seconds = -1.0
    if not 0 <= seconds < float("inf"):
        raise ConfigError(f"{OUTAGE_VARIABLE}: {text!r} is no number of seconds. Give one such as 900, or none.")
    return seconds or None


class Retries:
    """Repeats requests while a service is away: for `seconds` if this is set, otherwise up to `attempts` times. The
    start and the end of an outage are logged."""

    def __init__(
        self,
        service: str,
        is_away: Callable[[Exception], bool | float],
        attempts: int | None = None,
        seconds: float | None = None,
        pauses: tuple[float, float] | None = None,
    ) -> None:
        """`pauses` are the shortest and the longest pause between two attempts, in seconds."""
        self._service, self._is_away = service, is_away
        self._pauses = pauses or (0.2, LONGEST_PAUSE)
        self._attempts = None if seconds else attempts
        self._seconds = seconds or None
        self._away_since: float | None = None
        logging.getLogger("stamina").setLevel(logging.ERROR)  # its lines name no service

    def attempts(self) -> Any:
        """Create the retry loop of one request. It re-raises the last error when attempts or time have run out."""
        return stamina.retry_context(
            on=self._on_error,
            attempts=self._attempts,
            timeout=self._seconds,
            wait_initial=self._pauses[0],
            wait_max=self._pauses[1],
            wait_jitter=self._pauses[0],
        )

    async def run(self, work: Callable[[], Awaitable[Result]]) -> Result:
        """Await `work()`, and repeat it while the service is away. At the limit of time or attempts, the last error
        is raised."""
        async for attempt in self.attempts():
            with attempt:
                result = await work()
        self.answered()
        return result

    def answered(self) -> None:
        """Record that the service has answered. If it was away before, the end of the outage is logged."""
        if self._away_since is not None:
            away, self._away_since = time.monotonic() - self._away_since, None
            log.warning(f"{self._service} answers again, after {away:.0f} s.")

    def limit(self) -> str:
        """Return the limit as a text for error messages, such as `Tried 3 times`."""
        return f"Tried for {self._seconds:g} s" if self._seconds else f"Tried {self._attempts} times"

    def _on_error(self, error: Exception) -> bool | float:
        # stamina takes a number as the pause, True for its own pause, and False to give up.
        away = self._is_away(error)
        if away is not False and self._attempts != 1 and self._away_since is None:
            self._away_since = time.monotonic()
            reason = str(error.__cause__ or error) or type(error).__name__
            limit = f"for up to {self._seconds:g} s" if self._seconds else f"up to {self._attempts} times in all"
            log.warning(f"{self._service} gives no answer ({reason}); sending again {limit}.")
        return away
