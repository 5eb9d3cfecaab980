"""Reads live questions from the stable server's payload log, each of them once.

Everything that is in the log at the first poll of a canary is skipped. An earlier process can have read nothing later
than that, so that no question is counted twice as long as one shadow runs at a time. Questions that are logged
between two processes are counted by neither.
"""

import hashlib
from datetime import UTC, datetime, timedelta

import orjson
from pydantic import BaseModel, ConfigDict, Field, ValidationError

from qinglan.store import Store

LOG = "payloads"
HOUR = timedelta(hours=1)


class LoggedQuestion(BaseModel):
    """One answered question in the log; other fields are ignored."""

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
    """Lists this hour and the one before, and remembers the keys: their names begin with the time of day."""

    def __init__(self, store: Store) -> None:
        self._shelf = store.shelf
        self._known_keys: set[str] | None = None

    def new_keys(self, now: datetime | None = None) -> list[str]:
        """The keys written since the last poll, oldest first; none at the first poll."""
        at = now or datetime.now(UTC)
        keys = [key for hour in (at - HOUR, at) for key in self._keys_of_hour(hour)]
        before, self._known_keys = self._known_keys, set(keys)
        return [] if before is None else [key for key in keys if key not in before]

    def _keys_of_hour(self, hour: datetime) -> list[str]:
        day = f"{LOG}/{hour:%Y-%m-%d}/"
        return [day + name for name in self._shelf.children(day, f"{hour:%H}")]

    def forget(self) -> None:
        """Make the next poll a first one."""
        self._known_keys = None

    def lines(self, key: str) -> list[LoggedQuestion | None]:
        """The questions of one object; None for a line that is no question."""
        return [parse_line(line) for line in (self._shelf.read(key) or b"").splitlines()]


def parse_line(line: bytes) -> LoggedQuestion | None:
    try:
        return LoggedQuestion.model_validate(orjson.loads(line))
    except (orjson.JSONDecodeError, ValidationError):
        return None


def sampled(request_id: str, share: float) -> bool:
    """Tell if the id is in the sample; independent of the log's own sample, which is drawn by the same ids."""
    return int.from_bytes(hashlib.sha256(f"shadow {request_id}".encode()).digest()[:8]) < share * 2**64
