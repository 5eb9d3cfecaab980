"""Read live questions from the stable server's payload log, each question once.

At the first poll of a canary, all questions that are already in the log are skipped. An earlier shadow process can
have counted only these, so no question is counted twice if only one shadow runs at a time. Questions that are logged
while no shadow runs are not counted.
"""

import hashlib
from datetime import UTC, datetime, timedelta

import orjson
from pydantic import BaseModel, ConfigDict, Field, ValidationError

from qinglan.store import Store

LOG = "payloads"
HOUR = timedelta(hours=1)
HOURS_KNOWN = 48
"""Number of hours whose keys are stored, in case the clock is set back to them."""


class LoggedQuestion(BaseModel):
    """Answered question in the log; other fields of the record are ignored."""

    model_config = ConfigDict(frozen=True, extra="ignore")

    request_id: str = Field(min_length=1, max_length=128)
    version: str
    outcome: str
    tenant: str
    question: str = ""
    user_profile: str = ""
    history_summary: str = ""
    rewrite: str = ""

    @property
    def tenant_id(self) -> str:
        return self.tenant


class PayloadLogReader:
    """Reader of the payload log. It lists the keys of the current and the last hour, and remembers 48 hours."""

    def __init__(self, store: Store) -> None:
        self._backend = store.backend
        self._known_keys: dict[str, set[str]] = {}

    def new_keys(self, now: datetime | None = None) -> list[str]:
        """List the keys that were written since the last poll, oldest first; an empty list at the first poll."""
        at = now or datetime.now(UTC)
        newest, fresh = max(self._known_keys, default=None), []
        for hour in (f"{at - HOUR:%Y-%m-%d/%H}", f"{at:%Y-%m-%d/%H}"):
            day, _, start = hour.rpartition("/")
            keys = [f"{LOG}/{day}/{name}" for name in self._backend.children(f"{LOG}/{day}/", start)]
            if hour in self._known_keys:
                fresh += [key for key in keys if key not in self._known_keys[hour]]
            elif newest is not None and hour > newest:
                fresh += keys
            # An earlier hour that was never polled means that the clock was set back: its questions may be counted
            # already, so its keys are only remembered.
            self._known_keys[hour] = self._known_keys.pop(hour, set()) | set(keys)  # last in the order of polls
        for hour in list(self._known_keys)[:-HOURS_KNOWN]:
            del self._known_keys[hour]
        return fresh

    def forget(self) -> None:
        """Forget all keys, so that the next poll counts as the first one."""
        self._known_keys = {}

    def lines(self, key: str) -> list[LoggedQuestion | None]:
        """Read the questions of one object; None stands for a line that is not a question."""
        return [parse_line(line) for line in (self._backend.read(key) or b"").splitlines()]


def parse_line(line: bytes) -> LoggedQuestion | None:
    try:
        return LoggedQuestion.model_validate(orjson.loads(line))
    except (orjson.JSONDecodeError, ValidationError):
        return None


def sampled(request_id: str, share: float) -> bool:
    """Return True if the request is in the shadow's sample, which is independent of the payload log's own sample."""
    return int.from_bytes(hashlib.sha256(f"shadow {request_id}".encode()).digest()[:8]) < share * 2**64
