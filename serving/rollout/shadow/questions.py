"""Live questions, from the stable server's payload log: each is read once, and never by a process that began later.

What lies there at the first look is past. Whoever was here before can have read nothing else, so that no question is
counted twice, as long as one shadow runs at a time; what is written between two of them is counted by neither.
"""

import hashlib
from datetime import UTC, datetime, timedelta

import orjson
from pydantic import BaseModel, ConfigDict, Field, ValidationError

from qinglan.store import Store

LOG = "payloads"
DAY = timedelta(days=1)


class Asked(BaseModel):
    """One answered question as the log has it; what it has beside is left alone."""

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


class PayloadReader:
    """Remembers what it has seen of today and yesterday."""

    def __init__(self, store: Store) -> None:
        self._shelf = store.shelf
        self._seen: dict[str, set[str]] | None = None

    def fresh(self, now: datetime | None = None) -> list[str]:
        """The keys of what was written since the last look, oldest first; nothing at the first one."""
        at = now or datetime.now(UTC)
        days = [f"{day:%Y-%m-%d}" for day in (at - DAY, at)]
        there = {day: set(self._shelf.children(f"{LOG}/{day}/")) for day in days}
        before, self._seen = self._seen, there
        if before is None:
            return []
        return [f"{LOG}/{day}/{name}" for day in days for name in sorted(there[day] - before.get(day, set()))]

    def lines(self, key: str) -> list[Asked | None]:
        """Each question; None for a line that is none, whoever wrote it."""
        return [read_line(line) for line in (self._shelf.read(key) or b"").splitlines()]


def read_line(line: bytes) -> Asked | None:
    try:
        return Asked.model_validate(orjson.loads(line))
    except (orjson.JSONDecodeError, ValidationError):
        return None


def sampled(request_id: str, share: float) -> bool:
    """About that share, independently of the log's own choice, which is by the same ids."""
    return int.from_bytes(hashlib.sha256(f"shadow {request_id}".encode()).digest()[:8]) < share * 2**64
