"""python -m benchmarks.rollout [SCHEDULES]: the shipped controller in seeded schedules of faults, beside a naive one.

The last line is JSON: the share of schedules in which ours failed, over the naive controller's. It fails where a bad
model gets every user, the run never ends, or what is served at its end is not what its outcome says.
"""

import sys
import time
from collections.abc import Iterable, Sequence
from multiprocessing import get_context
from os import cpu_count

import numpy as np

from benchmarks.report import report
from benchmarks.rollout.faults import KINDS
from benchmarks.rollout.models import BAD, GOOD
from benchmarks.rollout.power import table
from benchmarks.rollout.simulate import Run, simulate_naive, timed

SCHEDULES = 10_000
ERRORS = ("failing", "rare_errors", "late", "crashing")
PROMOTED, NAIVE_FAILS, SECONDS = 0.95, 0.20, 120.0
WORKERS = min(cpu_count() or 1, 4)
"""The time aimed at is of CPU on each of them: the machine may have other work."""


def main(schedules: int) -> None:
    began = time.monotonic()
    with get_context("spawn").Pool(WORKERS) as pool:
        both = pool.map(timed, range(schedules), chunksize=50)
        seconds = time.monotonic() - began
        naive = pool.map(simulate_naive, range(schedules // 5), chunksize=50)
    controlled, cpu = [run for run, _ in both], sum(spent for _, spent in both)
    print("\n".join(by_fault(controlled)))
    print("\n".join(by_model(controlled, naive)))
    print("\n".join(table()))
    summary(controlled, naive, seconds, cpu)


def failed(run: Run) -> bool:
    return run.at_full or not run.outcome or not run.settled


def by_fault(runs: Sequence[Run]) -> list[str]:
    lines = [
        "fault          schedules  failed  good promoted  stopped by edit  minutes to promote  to take back  calls"
    ]
    for kind in KINDS:
        matching = [run for run in runs if run.fault == kind]
        good = [run for run in matching if run.good]
        done = [run.seconds / 60 for run in good if run.outcome == "Promoted"]
        back = [run.taken_back / 60 for run in matching if run.taken_back is not None]
        calls = np.mean([run.calls for run in matching]) if matching else 0
        lines.append(
            f"{kind:<14} {len(matching):>9}  {sum(map(failed, matching)):>6}  {_share(done, good):>13}  "
            f"{sum(run.stopped for run in good):>15}  {_median(done):>18}  {_median(back):>12}  {calls:>5.0f}"
        )
    return lines


def by_model(controlled: Sequence[Run], naive: Sequence[Run]) -> list[str]:
    lines = [
        "model          schedules  promoted  minutes to take back, median and 99 %       promoted by the naive one"
    ]
    for kind in (*GOOD, *BAD):
        matching, other = ([run for run in runs if run.model == kind] for runs in (controlled, naive))
        back = [run.taken_back / 60 for run in matching if run.taken_back is not None]
        worst = f"{np.percentile(back, 99):.1f}" if back else "-"
        lines.append(
            f"{kind:<14} {len(matching):>9}  {_share(_promoted(matching), matching):>8}  {_median(back):>28} "
            f"{worst:>17}  "
            f"{_share(_promoted(other), other):>25}"
        )
    return lines


def summary(controlled: Sequence[Run], naive: Sequence[Run], seconds: float, cpu: float) -> None:
    good = [run for run in controlled if run.good]
    back = [run.taken_back for run in controlled if run.taken_back is not None]
    promoted = len(_promoted(good)) / max(len(good), 1)
    fails, naive_fails = (sum(map(failed, runs)) / len(runs) for runs in (controlled, naive))
    ok = not fails and promoted >= PROMOTED and naive_fails >= NAIVE_FAILS and cpu / WORKERS <= SECONDS
    ratio = fails / naive_fails if naive_fails else 1.0
    report(
        "rollout", ratio, 0.0, ok, schedules=len(controlled), seconds=round(seconds, 1), cpu_seconds=round(cpu, 1),
        failed=sum(map(failed, controlled)), failed_seeds=[run.seed for run in controlled if failed(run)][:10],
        bad_at_full=sum(run.at_full for run in controlled), never_ended=sum(not run.outcome for run in controlled),
        good_promoted=round(promoted, 4), naive_fails=round(naive_fails, 4), naive_fails_on_errors=_on_errors(naive),
        minutes_to_take_back={"median": round(float(np.median(back)) / 60, 1), "p99": round(_p99(back) / 60, 1)},
    )  # fmt: skip


def _on_errors(naive: Sequence[Run]) -> float:
    """The naive controller on models whose error rate, all that it looks at, does show what they are."""
    shown = [run for run in naive if run.model in ERRORS]
    return round(sum(map(failed, shown)) / max(len(shown), 1), 4)


def _p99(values: Iterable[float]) -> float:
    return float(np.percentile(list(values), 99))


def _promoted(runs: Sequence[Run]) -> list[Run]:
    return [run for run in runs if run.outcome == "Promoted"]


def _share(part: Sequence[object], whole: Sequence[object]) -> str:
    return f"{len(part) / len(whole):.1%}" if whole else "-"


def _median(values: Sequence[float]) -> str:
    return f"{np.median(values):.1f}" if values else "-"


if __name__ == "__main__":
    main(int(sys.argv[1]) if len(sys.argv) > 1 else SCHEDULES)
