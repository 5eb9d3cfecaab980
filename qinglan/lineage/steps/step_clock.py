"""The times in a step's statement: they stay in the order of the work, even if the machine's clock is set back.

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

from qinglan.lineage.signing.keys import Signer
from qinglan.lineage.signing.trust import policy_at_hand
from qinglan.lineage.steps.earlier_steps import EarlierStep, read_earlier_steps

LONG_AGO = datetime.min.replace(tzinfo=UTC)


class StepClock:
    """A clock that starts at the machine's time, or at the end of the steps before it, and never goes back.

    After its start it counts by `time.monotonic`, which setting the machine's clock does not change.
    """

    def __init__(self, earlier: datetime = LONG_AGO) -> None:
        self.began = max(datetime.now(UTC), _next_millisecond(earlier))
        self._monotonic = time.monotonic()

    @property
    def started(self) -> str:
        return iso_time(self.began)

    def now(self) -> str:
        return iso_time(self.began + timedelta(seconds=time.monotonic() - self._monotonic))


def step_clock(signer: Signer, lineage: Path | None) -> StepClock:
    """The clock of a step that this key signs, after the steps whose statements are in the folder.

    It does not start before the key was made, if a trust policy on this machine says when that was.
    """
    policy = policy_at_hand()
    key = policy.keys.get(signer.id) if policy else None
    return StepClock(max(last_time(read_earlier_steps(lineage, signer)), key.since if key else LONG_AGO))


def iso_time(moment: datetime) -> str:
    return moment.isoformat(timespec="milliseconds")


def _next_millisecond(moment: datetime) -> datetime:
    """The first moment, not before this one, that `iso_time` does not cut: a `since` by hand may have more digits."""
    return moment + timedelta(microseconds=-moment.microsecond % 1000)


def last_time(steps: Iterable[EarlierStep]) -> datetime:
    """The newest end of the steps whose signatures are proven.

    Other statements are skipped: one dated in the year 9999 would push the dates of all later steps there.
    """
    return max((step.statement.at for step in steps if step.proof == "proven"), default=LONG_AGO)
