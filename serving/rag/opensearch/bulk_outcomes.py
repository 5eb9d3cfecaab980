"""The outcome of each passage of a bulk request, and a report of those that were refused."""

from pathlib import Path
from typing import Any, NamedTuple

import orjson

from qinglan.errors import DataError, OutageError
from qinglan.text.text import one_line

SHOWN = 5
LONGEST_REASON = 200
CREATED, CONFLICT = 201, 409
DOCUMENT_ERRORS = (400, 413)
"""Everything else that is not well is the cluster's doing, and passes."""


class PassageOutcome(NamedTuple):
    """The outcome of one passage; a conflict means that it already existed."""

    number: int
    created: bool
    reason: str = ""

    @property
    def refused(self) -> bool:
        return bool(self.reason)


def read_outcome(item: dict[str, Any]) -> PassageOutcome:
    number, status = int(item["_id"]), int(item["status"])
    if status in (CREATED, CONFLICT):
        return PassageOutcome(number, status == CREATED)
    reason = error_reason(item.get("error"))
    if status not in DOCUMENT_ERRORS:
        raise OutageError(f"passage {number} was not taken, status {status}: {reason}")
    return PassageOutcome(number, False, reason)


def error_reason(error: Any) -> str:
    """The outermost reason, which names the field, and the innermost, which says why."""
    reasons = []
    while isinstance(error, dict):
        reasons.append(str(error.get("reason") or ""))
        error = error.get("caused_by")
    if isinstance(error, str):
        reasons.append(error)
    ends = dict.fromkeys(reasons[:1] + reasons[-1:])
    return one_line("; ".join(reason[:LONGEST_REASON] for reason in ends if reason)) or "no reason given"


class PassageSource(NamedTuple):
    """A passage's position in the file."""

    line: int
    id: str


class RefusedPassages:
    """All are counted and written to a file, a line each; the first few are shown."""

    def __init__(self, file: Path) -> None:
        self._file = file
        self._numbers: set[int] = set()
        self._shown: list[str] = []
        file.unlink(missing_ok=True)

    @property
    def count(self) -> int:
        return len(self._numbers)

    def below(self, number: int) -> int:
        """Number of refused passages among the first `number`."""
        return sum(refused < number for refused in self._numbers)

    def add(self, outcome: PassageOutcome, source: PassageSource) -> None:
        if outcome.number in self._numbers:
            return
        self._numbers.add(outcome.number)
        if len(self._shown) < SHOWN:
            self._shown.append(f"  line {source.line}, id {source.id[:80]!r}: {outcome.reason}")
        with self._file.open("ab") as report:
            report.write(orjson.dumps({**source._asdict(), "reason": outcome.reason}) + b"\n")

    def check(self, path: Path, passages: int) -> None:
        if self._numbers:
            raise DataError(
                f"{path}: {self.count} of {passages} passages were refused. The first:",
                *self._shown,
                f"All of them are in {self._file}. Correct them and load again; until then the snapshot before is "
                "searched.",
            )
