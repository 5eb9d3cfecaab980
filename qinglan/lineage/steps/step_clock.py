"""Clock for the times in a step's statement, which stay in order even if the machine's clock is set back.

    clock = step_clock(signer, lineage)
    clock.started       the time at which the step began
    clock.now()         the present time by the same clock

An audit marks a step as altered if it ended before it started, or started before its inputs were made. If the
machine's clock were set back during a run, the run would leave such statements.
"""

import time
from datetime import UTC, datetime, timedelta
from pathlib import Path

from qinglan.lineage.signing.keys import Signer
from qinglan.lineage.signing.trust import policy_at_hand
from qinglan.lineage.steps.earlier_steps import read_earlier_steps

LONG_AGO = datetime.min.replace(tzinfo=UTC)


class StepClock:
    """Clock that never goes back. It starts at the machine's time or at `earlier`, whichever is later.

    After its start it counts by `time.monotonic`, which does not change when the machine's clock is set.
    """

    def __init__(self, earlier: datetime = LONG_AGO) -> None:
        # A key's `since` in trust.yaml may have more digits than iso_time keeps, so round it up to a millisecond.
        earlier += timedelta(microseconds=-earlier.microsecond % 1000)
        self.began = max(datetime.now(UTC), earlier)
        self._monotonic = time.monotonic()

    @property
    def started(self) -> str:
        return iso_time(self.began)

    def now(self) -> str:
        return iso_time(self.began + timedelta(seconds=time.monotonic() - self._monotonic))


def step_clock(signer: Signer, lineage: Path | None) -> StepClock:
    """Return the clock of a step. It does not start before the end of the steps whose statements are in `lineage`.

    It does not start before the signing key was made either, if a trust policy on this machine names the key.
    """
    policy = policy_at_hand()
    key = policy.keys.get(signer.id) if policy else None
    # Only proven steps count: a forged statement of the year 9999 would push the dates of all later steps there.
    proven = [step.statement.at for step in read_earlier_steps(lineage, signer) if step.proof == "proven"]
    return StepClock(max([key.since if key else LONG_AGO, *proven]))


def iso_time(moment: datetime) -> str:
    return moment.isoformat(timespec="milliseconds")
