"""The times in a step's statement: they keep the order of the work, whatever is done to the machine's clock.

    clock = step_clock(signer, lineage)
    clock.started       when the step began
    clock.now()         this moment, by the same clock

An audit calls a step altered that ended before it began, or began before its inputs were made. A clock that is set
back while a run works would leave such statements, for good.
"""

import time
from collections.abc import Iterable
from datetime import UTC, datetime, timedelta
from pathlib import Path

from qinglan.errors import DataError
from qinglan.lineage.dsse import ENVELOPE_SUFFIX
from qinglan.lineage.keys import Signer
from qinglan.lineage.release_folder import read_lineage_statement
from qinglan.lineage.trust import policy_at_hand

LONG_AGO = datetime.min.replace(tzinfo=UTC)


class StepClock:
    """Begins at the machine's time, or at the end of the steps before where that is later; runs by the monotonic."""

    def __init__(self, earlier: datetime = LONG_AGO) -> None:
        self.began = max(datetime.now(UTC), earlier)
        self._monotonic = time.monotonic()

    @property
    def started(self) -> str:
        return iso_time(self.began)

    def now(self) -> str:
        return iso_time(self.began + timedelta(seconds=time.monotonic() - self._monotonic))


def step_clock(signer: Signer, lineage: Path | None) -> StepClock:
    """The clock of a step that this key signs, after the steps whose statements lie in the folder.

    No step was done before its key was made, where a trust policy at hand says when that was.
    """
    policy = policy_at_hand()
    key = policy.keys.get(signer.id) if policy else None
    return StepClock(max(last_time(lineage), key.since if key else LONG_AGO))


def iso_time(moment: datetime) -> str:
    return moment.isoformat(timespec="milliseconds")


def last_time(lineage: Path | None) -> datetime:
    """The newest end of the steps whose statements lie there; a file that is no statement says nothing of time."""
    paths = lineage.glob(f"*{ENVELOPE_SUFFIX}") if lineage else ()
    return max(_times(paths), default=LONG_AGO)


def _times(paths: Iterable[Path]) -> Iterable[datetime]:
    for path in paths:
        try:
            yield read_lineage_statement(path).statement.at
        except (DataError, OSError):
            continue
